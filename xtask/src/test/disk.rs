//! Disk space: whether a complete run fits.
//!
//! Owns: how much it needs. Because: on a full disk, tests fail one by one with misleading errors of compilers and of
//! the product. Does not: remove anything.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::sh;

/// Space of a run from an empty checkout without caches: 11 GiB in cargo's folder, two of caches, and temporary files
/// of the tests.
const WHOLE_RUN_MIB: u64 = 14 << 10;

/// Checks that there is space for a whole run, considering the results of earlier runs.
///
/// # Errors
/// There is too little space, or it cannot be determined.
pub(super) fn require_space() -> Result<()> {
    let target = sh::target_dir();
    let built = if target.exists() { mib(sh::command("du").arg("-sm").arg(&target))? } else { 0 };
    let free = free_mib(&sh::root())?;
    match missing_mib(built, free) {
        0 => Ok(()),
        missing => bail!(
            "a whole run needs {} MiB beside what is built; {free} MiB are free, {missing} too few: free some space, or \
             name the groups to run",
            free + missing
        ),
    }
}

fn missing_mib(built: u64, free: u64) -> u64 {
    WHOLE_RUN_MIB.saturating_sub(built).saturating_sub(free)
}

fn free_mib(folder: &Path) -> Result<u64> {
    mib(sh::command("df").args(["--output=avail", "-BM"]).arg(folder))
}

/// The first number that a program prints, in MiB.
fn mib(command: &mut std::process::Command) -> Result<u64> {
    let said = sh::output(command)?;
    number(&said).with_context(|| format!("no size in {said:?}"))
}

fn number(said: &str) -> Option<u64> {
    said.split_whitespace().find_map(|word| word.trim_end_matches('M').parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_in_what_du_and_df_print() {
        assert_eq!(number("10563\t/a/1/target\n"), Some(10563));
        assert_eq!(number(" Avail\n66546M\n"), Some(66546));
        assert_eq!(number("df: no such file\n"), None);
    }

    #[test]
    fn what_is_built_already_needs_no_room() {
        assert_eq!(missing_mib(0, WHOLE_RUN_MIB), 0);
        assert_eq!(missing_mib(WHOLE_RUN_MIB, 0), 0);
        assert_eq!(missing_mib(1 << 10, 3 << 10), 10 << 10);
    }
}
