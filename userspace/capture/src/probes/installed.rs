//! Installed: drivers and runtimes on this machine, and its kernel version.
//!
//! Owns: where loaders look for them. Because: a command that is about to start must be probed from its first call.
//! Does not: attach to them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use deepctx_events::Family;
use deepctx_uprobes::{Kernel, Library};

use crate::doctor;

/// Installed drivers and runtimes, in folders from the environment and the usual ones.
pub(in super::super) fn installed() -> Vec<Library> {
    const USUAL: [&str; 6] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        // The driver's folder in containers.
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/lib64",
        "/opt/rocm/lib",
    ];
    /// Entries of a folder that are read: far more than system folders have.
    const ENTRIES_MAX: usize = 1 << 16;
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&named).filter(|folder| folder.is_absolute());
    let folders: Vec<PathBuf> = folders.chain(USUAL.map(PathBuf::from)).collect();
    let mut paths: Vec<PathBuf> = Vec::new();
    for entries in folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()) {
        let ours = entries.flatten().take(ENTRIES_MAX).filter(|entry| {
            let name = entry.file_name();
            Family::ALL.into_iter().any(|family| family.is_named(name.as_bytes()))
        });
        // Several names may refer to one file.
        paths.extend(ours.filter_map(|entry| std::fs::canonicalize(entry.path()).ok()));
    }
    paths.sort_unstable();
    paths.dedup();
    paths.iter().filter_map(|path| Library::of_file(path).ok()).collect()
}

/// Version of the running kernel; an unreadable one counts as old.
pub fn running_kernel() -> Kernel {
    kernel_of(&rustix::system::uname().release().to_string_lossy())
}

fn kernel_of(release: &str) -> Kernel {
    Kernel { version: doctor::version(release).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_version_is_read_from_any_release() {
        let check = |release: &str, expect| assert_eq!(kernel_of(release).version, expect, "{release}");
        check("6.18.44-cloud", (6, 18));
        check("6.18+", (6, 18));
        check("6.18_custom", (6, 18));
        check("unknown", (0, 0));
    }
}
