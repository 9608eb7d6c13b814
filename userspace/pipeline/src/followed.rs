//! Followed processes: a bounded table of what a stage knows of each process, with a share for each user.
//!
//! Owns: [`FollowedProcesses`]. Because: a capture may last for weeks and meet more processes than are kept, and one
//! user's must not take the room of all others. Does not: know what a stage keeps of a process, or whose a process is
//! (who knows is asked once for each process, see [`FollowedProcesses::admit`]).

use rustc_hash::FxHashMap;

use crate::symbols::ProcessFacts;

/// How much of what stays free one user may hold, as in the kernel's tables: alone four fifths of all, the next one
/// four fifths of the rest.
const MULTIPLE: usize = 4;
/// Who has no share: root may have all that is free.
const ROOT: u32 = 0;
/// Who answers for processes of which nobody knows whose they are.
const NOBODY: u32 = u32::MAX;

/// How long a process has been silent before it gives way to another one: as long as a launch waits for its activities.
pub(crate) const SILENT_NS: u64 = 60_000_000_000;
/// How long a refused process is refused without another look: a look takes about as long as a hundred records.
const REFUSED_NS: u64 = 1_000_000_000;
/// Refused processes that are remembered by number.
const REFUSED_MAX: usize = 1 << 16;

/// Whether a record's process is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is followed, or was refused a moment ago.
    Decided,
    /// There is room for one more process of this user.
    Room { user: u32 },
    /// A process that has been silent has to end first.
    After { user: u32, silent: u32 },
    /// There is no room, for a while.
    Refused,
}

/// A followed process.
#[derive(Debug)]
struct Entry<P> {
    /// The user who answers for it.
    user: u32,
    /// When its last record came: `CLOCK_MONOTONIC`, nanoseconds.
    last_ns: u64,
    state: P,
}

/// What a stage knows of each process, by number; at most `room` processes.
#[derive(Debug)]
pub(crate) struct FollowedProcesses<P> {
    room: usize,
    by_pid: FxHashMap<u32, Entry<P>>,
    /// Processes that found no room, and until when that holds.
    refused_until_ns: FxHashMap<u32, u64>,
}

impl<P> FollowedProcesses<P> {
    pub(crate) fn new(room: usize) -> Self {
        Self { room, by_pid: FxHashMap::default(), refused_until_ns: FxHashMap::default() }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, pid: u32) -> Option<&mut P> {
        self.by_pid.get_mut(&pid).map(|entry| &mut entry.state)
    }

    pub(crate) fn contains(&self, pid: u32) -> bool {
        self.by_pid.contains_key(&pid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &P)> {
        self.by_pid.iter().map(|(pid, entry)| (*pid, &entry.state))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut P)> {
        self.by_pid.iter_mut().map(|(pid, entry)| (*pid, &mut entry.state))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &P> {
        self.by_pid.values().map(|entry| &entry.state)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.by_pid.values_mut().map(|entry| &mut entry.state)
    }

    /// A record of a process is about to be used. The caller follows the process if it may ([`Self::follow`]).
    #[inline]
    pub(crate) fn admit(&mut self, pid: u32, time_ns: u64, facts: &mut dyn ProcessFacts) -> Admission {
        if self.note_record(pid, time_ns) {
            return Admission::Decided;
        }
        let user = facts.accountable_user(pid).unwrap_or(NOBODY);
        if self.has_room(user) {
            return Admission::Room { user };
        }
        if let Some(silent) = self.longest_silent(user, time_ns) {
            return Admission::After { user, silent };
        }
        self.refuse(pid, time_ns);
        Admission::Refused
    }

    /// A record of a process has this time. False when it is yet to be decided whether the process is followed.
    #[inline]
    fn note_record(&mut self, pid: u32, time_ns: u64) -> bool {
        match self.by_pid.get_mut(&pid) {
            Some(entry) => {
                entry.last_ns = entry.last_ns.max(time_ns);
                true
            }
            None => self.refused_until_ns.get(&pid).is_some_and(|until_ns| time_ns < *until_ns),
        }
    }

    /// Whether one more process of a user may be followed.
    fn has_room(&self, user: u32) -> bool {
        let free = self.room.saturating_sub(self.by_pid.len());
        free > 0 && (user == ROOT || self.held_by(user) < MULTIPLE * (free - 1))
    }

    fn held_by(&self, user: u32) -> usize {
        self.by_pid.values().filter(|entry| entry.user == user).count()
    }

    /// The process that gives way to one of a user: the one that has been silent longest, for a minute at least, of the
    /// users who hold no fewer. It may have ended without a record of it.
    fn longest_silent(&self, user: u32, now_ns: u64) -> Option<u32> {
        let mut held: FxHashMap<u32, usize> = FxHashMap::default();
        for entry in self.by_pid.values() {
            *held.entry(entry.user).or_default() += 1;
        }
        let own = held.get(&user).copied().unwrap_or(0);
        let silent = self.by_pid.iter().filter(|(_, entry)| {
            held[&entry.user] >= own && entry.last_ns.saturating_add(SILENT_NS) <= now_ns
        });
        silent.min_by_key(|(pid, entry)| (entry.last_ns, **pid)).map(|(pid, _)| *pid)
    }

    /// Follows a process of a user from now on, if there is room; otherwise it is refused for a while.
    pub(crate) fn follow(&mut self, pid: u32, user: u32, now_ns: u64, state: P) {
        if self.has_room(user) {
            self.refused_until_ns.remove(&pid);
            self.by_pid.insert(pid, Entry { user, last_ns: now_ns, state });
        } else {
            self.refuse(pid, now_ns);
        }
    }

    fn refuse(&mut self, pid: u32, now_ns: u64) {
        if self.refused_until_ns.len() >= REFUSED_MAX {
            self.refused_until_ns.clear();
        }
        self.refused_until_ns.insert(pid, now_ns.saturating_add(REFUSED_NS));
    }

    /// A process begins, begins anew or ends: its number may be refused no longer.
    pub(crate) fn forget_refusal(&mut self, pid: u32) {
        self.refused_until_ns.remove(&pid);
    }

    /// The process is followed no longer.
    pub(crate) fn remove(&mut self, pid: u32) -> Option<P> {
        self.by_pid.remove(&pid).map(|entry| entry.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSES_MAX: usize = 768;

    /// Everybody's processes are one user's.
    struct Owner(u32);

    impl ProcessFacts for Owner {
        fn accountable_user(&mut self, _pid: u32) -> Option<u32> {
            Some(self.0)
        }
    }

    /// A process has a record, and is followed if there is room.
    fn meet(processes: &mut FollowedProcesses<()>, pid: u32, user: u32, now_ns: u64) -> Admission {
        let admission = processes.admit(pid, now_ns, &mut Owner(user));
        if let Admission::Room { user } = admission {
            processes.follow(pid, user, now_ns, ());
        }
        admission
    }

    /// Follows processes from this number on until one is refused; gives how many were followed.
    fn meet_many(processes: &mut FollowedProcesses<()>, user: u32, first: u32, now_ns: u64) -> usize {
        (first..first + 2000)
            .take_while(|pid| matches!(meet(processes, *pid, user, now_ns), Admission::Room { .. }))
            .count()
    }

    #[test]
    fn each_user_leaves_a_fifth_to_others() {
        let mut processes = FollowedProcesses::new(PROCESSES_MAX);
        let followed: Vec<usize> =
            (1..=3).map(|user| meet_many(&mut processes, user, user * 10_000, 1)).collect();
        assert_eq!(followed, [614, 123, 24]);
        assert_eq!(meet_many(&mut processes, ROOT, 90_000, 1), PROCESSES_MAX - 614 - 123 - 24);
    }

    #[test]
    fn the_longest_silent_gives_way_to_its_equals() {
        let mut processes = FollowedProcesses::new(PROCESSES_MAX);
        meet_many(&mut processes, 1, 10_000, 1);
        meet(&mut processes, 7, 2, 0);
        assert_eq!(meet(&mut processes, 10_000, 1, 5), Admission::Decided);
        let silent = |user, now_ns| processes.longest_silent(user, now_ns);
        assert_eq!(silent(1, SILENT_NS), None, "nobody was silent for a minute but user 2");
        assert_eq!(silent(1, SILENT_NS + 1), Some(10_001));
        assert_eq!(silent(2, SILENT_NS), Some(7));
        let late = meet(&mut processes, 9000, 1, SILENT_NS + 1);
        assert_eq!(late, Admission::After { user: 1, silent: 10_001 });
    }

    #[test]
    fn a_refused_process_waits_for_another_look() {
        let mut processes = FollowedProcesses::new(PROCESSES_MAX);
        let refused = 10_000 + meet_many(&mut processes, 1, 10_000, 1) as u32;
        assert_eq!(meet(&mut processes, refused, 1, REFUSED_NS), Admission::Decided);
        assert_eq!(meet(&mut processes, refused, 1, REFUSED_NS + 1), Admission::Refused);
        processes.forget_refusal(refused);
        assert_eq!(
            meet(&mut processes, refused, 1, 2),
            Admission::Refused,
            "the number is another process's"
        );
    }
}
