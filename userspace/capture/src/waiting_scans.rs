//! Waiting scans: processes to be scanned, and the order in which users take turns.
//!
//! Owns: each user's queue, whose scan is running, and the scan time used by each user's processes. Because: one
//! user's thousands of large processes would otherwise keep all other users' processes without unwind rows until they
//! are scanned. Does not: scan.

use std::collections::{BTreeMap, HashMap};

/// Most waiting processes: beyond them a request is refused, and the next incomplete sample asks again.
const WAITING_MAX: usize = 1 << 16;
/// How often the scan time of a user is halved: nobody pays for long, and nobody saves up.
const HALVED_EVERY_NS: u64 = 1_000_000_000;

/// How soon a process should be scanned; a smaller value is sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Its samples are incomplete until then.
    Sampled,
    /// It is to be scanned again.
    Rescan,
}

/// Position of a process among those of its user: by urgency, then in the order of requests.
type QueuePosition = (Urgency, u64);

/// Scans that wait.
#[derive(Default)]
pub(crate) struct WaitingScans {
    /// The user and the position of each process.
    processes: HashMap<u32, (u32, QueuePosition)>,
    users: HashMap<u32, User>,
    requests: u64,
    /// When times were last halved, `CLOCK_MONOTONIC` nanoseconds.
    halved_ns: u64,
}

#[derive(Default)]
struct User {
    waiting: BTreeMap<QueuePosition, u32>,
    /// Time of the scans of this user's processes.
    took_ns: u64,
    /// Begin of the running scan of one of them: `CLOCK_MONOTONIC`, nanoseconds.
    scanned_since_ns: Option<u64>,
}

impl User {
    fn is_of_interest(&self) -> bool {
        self.took_ns > 0 || !self.waiting.is_empty() || self.scanned_since_ns.is_some()
    }
}

impl WaitingScans {
    /// Requests a scan of a user's process; false if too many wait.
    pub(crate) fn add(&mut self, pid: u32, user: u32, urgency: Urgency) -> bool {
        let before = self.processes.get(&pid).copied();
        if before.is_none() && self.processes.len() >= WAITING_MAX {
            return false;
        }
        let urgency = before.map_or(urgency, |(_, (before, _))| before.min(urgency));
        // It may have changed its user since.
        if before.is_none_or(|(owner, (before, _))| (owner, before) != (user, urgency)) {
            self.remove(pid);
            self.requests += 1;
            let place = (urgency, self.requests);
            self.processes.insert(pid, (user, place));
            self.users.entry(user).or_default().waiting.insert(place, pid);
        }
        true
    }

    /// The process needs no scan any more.
    pub(crate) fn remove(&mut self, pid: u32) {
        let Some((user, place)) = self.processes.remove(&pid) else { return };
        if let Some(user) = self.users.get_mut(&user) {
            user.waiting.remove(&place);
        }
    }

    /// True while this process waits.
    pub(crate) fn contains(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// True if none waits, and none is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.users.values().all(|user| user.scanned_since_ns.is_none())
    }

    /// The next process to scan, and its user, who has one scan at a time: of the user with the least scan time,
    /// processes with incomplete samples first.
    pub(crate) fn begin(&mut self, now_ns: u64) -> Option<(u32, u32)> {
        let may = |(_, user): &(&u32, &mut User)| !user.waiting.is_empty() && user.scanned_since_ns.is_none();
        let least = |(number, user): &(&u32, &mut User)| (user.took_ns, **number);
        let (&number, user) = self.users.iter_mut().filter(may).min_by_key(least)?;
        let (_, pid) = user.waiting.pop_first()?;
        user.scanned_since_ns = Some(now_ns);
        self.processes.remove(&pid);
        Some((pid, number))
    }

    /// The scan of this user's process ended.
    pub(crate) fn end(&mut self, user: u32, now_ns: u64) {
        let halvings = now_ns.saturating_sub(self.halved_ns) / HALVED_EVERY_NS;
        if halvings > 0 {
            self.halved_ns = now_ns;
            let halvings = u32::try_from(halvings).unwrap_or(u32::MAX);
            for user in self.users.values_mut() {
                user.took_ns = user.took_ns.checked_shr(halvings).unwrap_or(0);
            }
            self.users.retain(|_, user| user.is_of_interest());
        }
        let user = self.users.entry(user).or_default();
        let took_ns = now_ns.saturating_sub(user.scanned_since_ns.take().unwrap_or(now_ns));
        user.took_ns = user.took_ns.saturating_add(took_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::Urgency::{Rescan, Sampled};
    use super::*;

    /// Scans all waiting processes, 10 ms each; returns them in order.
    fn scanned(waiting: &mut WaitingScans) -> Vec<u32> {
        let mut order = Vec::new();
        while let Some((pid, user)) = waiting.begin(HALVED_EVERY_NS) {
            waiting.end(user, HALVED_EVERY_NS + 10_000_000);
            order.push(pid);
        }
        order
    }

    fn check(requests: &[(u32, u32, Urgency)], expect: &[u32]) {
        let mut waiting = WaitingScans::default();
        for &(pid, user, urgency) in requests {
            assert!(waiting.add(pid, user, urgency));
        }
        assert_eq!(scanned(&mut waiting), expect, "{requests:?}");
        assert!(waiting.is_empty());
    }

    #[test]
    fn users_take_turns() {
        check(&[], &[]);
        check(&[(3, 7, Rescan), (1, 7, Rescan), (2, 7, Rescan)], &[3, 1, 2]);
        check(&[(1, 7, Rescan), (2, 7, Rescan), (3, 7, Rescan), (4, 8, Rescan)], &[1, 4, 2, 3]);
        check(&[(1, 7, Sampled), (2, 7, Sampled), (3, 7, Sampled), (4, 8, Rescan)], &[1, 4, 2, 3]);
    }

    #[test]
    fn processes_with_incomplete_samples_come_first() {
        check(&[(1, 7, Rescan), (2, 7, Sampled), (3, 7, Rescan), (4, 7, Sampled)], &[2, 4, 1, 3]);
    }

    #[test]
    fn a_process_waits_once() {
        check(&[(1, 7, Rescan), (2, 7, Rescan), (1, 7, Rescan)], &[1, 2]);
        check(&[(1, 7, Rescan), (2, 7, Rescan), (2, 7, Sampled)], &[2, 1]);
        check(&[(1, 7, Sampled), (2, 7, Sampled), (1, 7, Rescan)], &[1, 2]);
        check(&[(1, 7, Rescan), (2, 9, Rescan), (1, 8, Rescan)], &[1, 2]);
    }

    #[test]
    fn processes_that_ended_are_not_scanned() {
        let mut waiting = WaitingScans::default();
        for pid in 1..=3 {
            assert!(waiting.add(pid, 7, Rescan));
        }
        waiting.remove(2);
        waiting.remove(4);
        assert!(waiting.contains(1) && !waiting.contains(2));
        assert_eq!(scanned(&mut waiting), [1, 3]);
    }

    #[test]
    fn time_without_scans_is_not_saved_up() {
        let mut waiting = WaitingScans::default();
        for (user, began_ns, took_ns) in [(7, 0, 100_000_000_000), (8, 59 * HALVED_EVERY_NS, HALVED_EVERY_NS)]
        {
            assert!(waiting.add(user, user, Rescan));
            assert_eq!(waiting.begin(began_ns), Some((user, user)));
            waiting.end(user, began_ns + took_ns);
        }
        // All of the first one's time is forgotten, and half of the other's.
        waiting.end(9, 160 * HALVED_EVERY_NS);
        for pid in 1..=4 {
            assert!(waiting.add(pid, 7 + pid % 2, Rescan));
        }
        assert_eq!(scanned(&mut waiting), [2, 1, 4, 3]);
    }

    #[test]
    fn each_user_has_one_scan_at_a_time() {
        let mut waiting = WaitingScans::default();
        for (pid, user) in [(1, 7), (2, 7), (3, 8)] {
            assert!(waiting.add(pid, user, Sampled));
        }
        assert_eq!(waiting.begin(0), Some((1, 7)));
        assert_eq!(waiting.begin(0), Some((3, 8)));
        assert_eq!(waiting.begin(0), None);
        waiting.remove(2);
        assert!(!waiting.is_empty());
        waiting.end(7, 5);
        waiting.end(8, 5);
        assert!(waiting.is_empty());
    }

    #[test]
    fn only_so_many_wait() {
        let mut waiting = WaitingScans::default();
        for pid in 0..WAITING_MAX as u32 {
            assert!(waiting.add(pid, 7, Rescan));
        }
        assert!(!waiting.add(WAITING_MAX as u32, 8, Sampled));
        assert!(waiting.add(0, 7, Sampled));
    }
}
