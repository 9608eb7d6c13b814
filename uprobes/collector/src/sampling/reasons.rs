//! Stall reasons, by name.
//!
//! Owns: which of CUPTI's reasons are requested, and their numbers for listeners. Because: CUPTI numbers them by
//! device, and has most of them twice. Does not: know what they mean.

use std::sync::{Mutex, PoisonError};

use crate::probe;

/// Maximum number of remembered names: those of several architectures.
const NAMES_MAX: usize = 1024;

/// Names, indexed by our number.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The reasons to request: CUPTI's number and ours. Reports new ones.
pub(super) fn wanted(reasons: &[(u32, String)]) -> Vec<(u32, u32)> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wanted = Vec::new();
    for (number, name) in reasons.iter().filter(|(_, name)| is_whole(name)) {
        let known = names.iter().position(|known| known == name);
        let ours = match known {
            Some(ours) => ours,
            None if names.len() >= NAMES_MAX => continue,
            None => {
                probe::reason(names.len() as u32, name);
                names.push(name.clone());
                names.len() - 1
            }
        };
        wanted.push((*number, ours as u32));
    }
    wanted
}

/// Reports all names again.
pub(super) fn report_again() {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, name) in (0..).zip(names.iter()) {
        probe::reason(number, name);
    }
}

/// Whether samples of this reason are not part of another reason's. Reasons with `_not_issued` count the subset of
/// samples in which no other warp was selected either; two counters count samples, not reasons.
fn is_whole(name: &str) -> bool {
    !name.ends_with("_not_issued") && !name.ends_with("_sample_count") && !name.ends_with("_data_dropped")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_one_number_on_all_devices() {
        let of = |first: u32, names: &[&str]| -> Vec<(u32, String)> {
            (first..).zip(names.iter().map(|name| format!("smsp__pcsamp_{name}"))).collect()
        };
        let older =
            of(3, &["sample_count", "warps_issue_stalled_wait", "warps_issue_stalled_wait_not_issued"]);
        let newer = of(9, &["warps_issue_stalled_gmma", "warps_issue_stalled_wait", "samples_data_dropped"]);
        let (older, newer) = (wanted(&older), wanted(&newer));
        let [(4, wait)] = older[..] else { panic!("{older:?}") };
        let [(9, gmma), (10, also_wait)] = newer[..] else { panic!("{newer:?}") };
        assert_eq!(wait, also_wait);
        assert_ne!(wait, gmma);
    }
}
