//! Kernel programs and links that a process holds, and what must be true of a recording that has ended.
//!
//! Owns: listing them while it runs, waiting for their end, and looking at what is left. Because: whatever ended a
//! recording, none of its probes may be left in the kernel, and its profile must open. Does not: record.

use std::collections::HashSet;
use std::fs;

use deepctx_profile::ledger::CheckTime;
use libbpf_rs::query::{LinkInfoIter, ProgInfoIter};

use super::lives;
use super::recording::wait_for;

/// Whatever happened: the profile opens, its ledger adds up, and the target lives.
#[track_caller]
pub(crate) fn is_in_order(file: &str, target: &str, when: CheckTime) {
    let checked = deepctx_storage::open(file).unwrap().profile.ledger.check(when);
    checked.unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(lives(target), "the target {target} has ended");
}

/// Ids of the kernel programs and links that a process has open (`/proc/PID/fdinfo`).
pub(crate) struct HeldObjects {
    pub(crate) programs: HashSet<u32>,
    pub(crate) links: HashSet<u32>,
}

impl HeldObjects {
    /// Those of a profiler that records.
    #[track_caller]
    pub(crate) fn by(pid: &str) -> Self {
        // `strace` starts it as a child.
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let folders = children.split_whitespace().chain([pid]).map(|pid| format!("/proc/{pid}/fdinfo"));
        let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let texts: Vec<String> = files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
        let numbers = |key: &str| {
            let lines = texts.iter().flat_map(|text| text.lines());
            lines.filter_map(|line| line.strip_prefix(key)?.trim().parse().ok()).collect()
        };
        let held = Self { programs: numbers("prog_id:"), links: numbers("link_id:") };
        assert!(!held.programs.is_empty(), "process {pid} holds no kernel program");
        held
    }

    /// Waits until the kernel has freed all of them, which follows their last use.
    #[track_caller]
    pub(crate) fn are_gone(&self) {
        wait_for("the end of all programs and links", || {
            let programs = ProgInfoIter::default().any(|program| self.programs.contains(&program.id));
            !programs && !LinkInfoIter::default().any(|link| self.links.contains(&link.id))
        });
    }

    /// As [`is_in_order`], and nothing is left in the kernel.
    #[track_caller]
    pub(crate) fn left_in_order(&self, file: &str, target: &str, when: CheckTime) {
        self.are_gone();
        is_in_order(file, target, when);
    }
}
