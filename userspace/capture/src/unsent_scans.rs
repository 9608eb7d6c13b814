//! Unsent scans: results of scans that the pipeline has no room for yet.
//!
//! Owns: the order in which users take turns, and how much may wait. Because: one user's process may keep the
//! pipeline busy with its names for a long time; other users' processes are scanned meanwhile, and get their names
//! first. Does not: scan or send.

use std::collections::VecDeque;

use super::processes::ScanResult;

/// Mappings that wait to be sent, of all processes together: some 20 MiB, or a second of a storm of new programs.
const UNSENT_MAX: usize = 1 << 17;

/// Results of scans, in turn by user.
#[derive(Default)]
pub(super) struct UnsentScans {
    users: VecDeque<(u32, VecDeque<ScanResult>)>,
    mappings: usize,
}

impl UnsentScans {
    /// Adds the result of a scan of this user's process.
    pub(super) fn push(&mut self, user: u32, scanned: ScanResult) {
        self.mappings += scanned.maps.mappings.len();
        match self.users.iter_mut().find(|(of, _)| *of == user) {
            Some((_, scans)) => scans.push_back(scanned),
            None => self.users.push_back((user, VecDeque::from([scanned]))),
        }
    }

    /// The next result to send.
    pub(super) fn pop(&mut self) -> Option<ScanResult> {
        let (user, mut scans) = self.users.pop_front()?;
        let scanned = scans.pop_front()?;
        if !scans.is_empty() {
            self.users.push_back((user, scans));
        }
        self.mappings -= scanned.maps.mappings.len();
        Some(scanned)
    }

    /// Whether all results were sent.
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether to stop scanning until some are sent.
    pub(super) fn is_full(&self) -> bool {
        self.mappings >= UNSENT_MAX
    }
}

#[cfg(test)]
mod tests {
    use deepctx_symbolizer::maps::{LineFilter, Maps, parse};

    use super::*;

    /// Adds scans (user, process) and checks the order in which they are sent.
    fn check(scans: &[(u32, u32)], expect: &[u32]) {
        let mut unsent = UnsentScans::default();
        for &(user, pid) in scans {
            unsent.push(user, ScanResult { pid, time_ns: 0, maps: Maps::default() });
        }
        let sent: Vec<u32> = std::iter::from_fn(|| unsent.pop()).map(|scanned| scanned.pid).collect();
        assert_eq!(sent, expect, "{scans:?}");
        assert!(unsent.is_empty() && !unsent.is_full());
    }

    #[test]
    fn users_take_turns() {
        check(&[], &[]);
        check(&[(7, 1), (7, 2), (7, 3)], &[1, 2, 3]);
        check(&[(7, 1), (7, 2), (7, 3), (8, 4)], &[1, 4, 2, 3]);
        check(&[(7, 1), (7, 2), (8, 3), (8, 4)], &[1, 3, 2, 4]);
    }

    #[test]
    fn only_so_many_mappings_wait() {
        let maps = parse(b"1000-2000 r-xp 00000000 08:01 7 /bin/a\n", LineFilter::Executable);
        assert_eq!(maps.mappings.len(), 1);
        let mut unsent = UnsentScans::default();
        for _ in 0..UNSENT_MAX {
            assert!(!unsent.is_full());
            unsent.push(7, ScanResult { pid: 1, time_ns: 0, maps: maps.clone() });
        }
        assert!(unsent.is_full());
        unsent.pop();
        assert!(!unsent.is_full());
    }
}
