//! Processes: which processes the stage follows, and what it keeps of those that have ended.
//!
//! Owns: [`Processes`], and the share of each user. Because: a capture may last for weeks and meet more processes than
//! are kept, and one user's must not take the room of all others. Does not: interpret calls; or know whose a process is
//! (who knows is asked once for each process, see [`super::Gpu::admit`]).

use deepctx_profile::device::processes::{ProcessRows, SINGLE_MAX};
use rustc_hash::{FxHashMap, FxHashSet};

use super::process::Process;
use crate::stage::ProcessChangeKind;

/// Processes that are followed: more than run on the devices of a host.
const LIVE_MAX: usize = 768;
/// Latest processes that ended and keep a row of their own: more than anyone reads.
pub(super) const ENDED_MAX: usize = 240;
const _: () = assert!(LIVE_MAX + ENDED_MAX <= SINGLE_MAX, "each has a row in the profile");

/// How much of what stays free one user may hold, as in the kernel's tables: alone four fifths of all, the next one
/// four fifths of the rest.
const MULTIPLE: usize = 4;
/// Who has no share: root may have all that is free.
const ROOT: u32 = 0;
/// Who answers for processes of which nobody knows whose they are.
pub(super) const NOBODY: u32 = u32::MAX;

/// How long a process has been silent before it gives way to another one: as long as a launch waits for its activities.
const SILENT_NS: u64 = super::EXPIRY_NS;
/// How long a refused process is refused without another look: a look takes about as long as a hundred records.
const REFUSED_NS: u64 = 1_000_000_000;
/// Processes that are remembered by number alone, for having begun or having been refused.
const NUMBERS_MAX: usize = 1 << 16;

/// The processes that were met.
#[derive(Debug, Default)]
pub(super) struct Processes {
    pub(super) by_pid: FxHashMap<u32, Process>,
    /// What the profile keeps of processes that are gone.
    pub(super) ended: ProcessRows,
    /// Processes that began while they were watched. Most will never call an accelerator.
    born: FxHashSet<u32>,
    /// Processes that found no room, and until when that holds.
    refused_until_ns: FxHashMap<u32, u64>,
}

impl Processes {
    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.by_pid.get_mut(&pid)
    }

    /// A record of a process has this time. False when it is yet to be decided whether the process is followed.
    pub(super) fn note_record(&mut self, pid: u32, time_ns: u64) -> bool {
        match self.by_pid.get_mut(&pid) {
            Some(process) => {
                process.last_ns = process.last_ns.max(time_ns);
                true
            }
            None => self.refused_until_ns.get(&pid).is_some_and(|until_ns| time_ns < *until_ns),
        }
    }

    /// Whether one more process of a user may be followed.
    pub(super) fn has_room(&self, user: u32) -> bool {
        let free = LIVE_MAX.saturating_sub(self.by_pid.len());
        free > 0 && (user == ROOT || self.held_by(user) < MULTIPLE * (free - 1))
    }

    fn held_by(&self, user: u32) -> usize {
        self.by_pid.values().filter(|process| process.user == user).count()
    }

    /// The process that gives way to one of a user: the one that has been silent longest, for a minute at least, of the
    /// users who hold no fewer. It may have ended without a record of it.
    pub(super) fn longest_silent(&self, user: u32, now_ns: u64) -> Option<u32> {
        let mut held: FxHashMap<u32, usize> = FxHashMap::default();
        for process in self.by_pid.values() {
            *held.entry(process.user).or_default() += 1;
        }
        let own = held.get(&user).copied().unwrap_or(0);
        let silent = self.by_pid.iter().filter(|(_, process)| {
            held[&process.user] >= own && process.last_ns.saturating_add(SILENT_NS) <= now_ns
        });
        silent.min_by_key(|(pid, process)| (process.last_ns, **pid)).map(|(pid, _)| *pid)
    }

    /// Follows a process from now on; without room it is refused for a while.
    pub(super) fn make(&mut self, pid: u32, user: u32, now_ns: u64) {
        if self.has_room(user) {
            self.refused_until_ns.remove(&pid);
            self.by_pid.insert(pid, Process::new(pid, user, now_ns, self.born.contains(&pid)));
            return;
        }
        if self.refused_until_ns.len() >= NUMBERS_MAX {
            self.refused_until_ns.clear();
        }
        self.refused_until_ns.insert(pid, now_ns.saturating_add(REFUSED_NS));
    }

    /// A process begins, begins anew or ends: what is known of its number is about another one.
    pub(super) fn changed(&mut self, pid: u32, kind: ProcessChangeKind) {
        self.refused_until_ns.remove(&pid);
        match kind {
            ProcessChangeKind::Begins if self.born.len() < NUMBERS_MAX => _ = self.born.insert(pid),
            ProcessChangeKind::Begins => self.born.clear(),
            ProcessChangeKind::Ends => _ = self.born.remove(&pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows processes from this number on until one is refused; gives how many were followed.
    fn follow(processes: &mut Processes, user: u32, first: u32, now_ns: u64) -> usize {
        let before = processes.by_pid.len();
        for pid in first..first + 2000 {
            processes.make(pid, user, now_ns);
            if processes.get_mut(pid).is_none() {
                break;
            }
        }
        processes.by_pid.len() - before
    }

    #[test]
    fn each_user_leaves_a_fifth_to_others() {
        let mut processes = Processes::default();
        let followed: Vec<usize> =
            (1..=3).map(|user| follow(&mut processes, user, user * 10_000, 1)).collect();
        assert_eq!(followed, [614, 123, 24]);
        assert_eq!(follow(&mut processes, ROOT, 90_000, 1), LIVE_MAX - 614 - 123 - 24);
    }

    #[test]
    fn the_longest_silent_gives_way_to_its_equals() {
        let mut processes = Processes::default();
        follow(&mut processes, 1, 10_000, 1);
        processes.make(7, 2, 0);
        assert!(processes.note_record(10_000, 5));
        assert_eq!(processes.longest_silent(1, SILENT_NS), None, "nobody was silent for a minute but user 2");
        assert_eq!(processes.longest_silent(1, SILENT_NS + 1), Some(10_001));
        assert_eq!(processes.longest_silent(2, SILENT_NS), Some(7));
    }

    #[test]
    fn a_refused_process_waits_for_another_look() {
        let mut processes = Processes::default();
        let refused = 10_000 + follow(&mut processes, 1, 10_000, 1) as u32;
        assert!(
            processes.note_record(refused, REFUSED_NS) && !processes.note_record(refused, REFUSED_NS + 1)
        );
        processes.changed(refused, ProcessChangeKind::Ends);
        assert!(!processes.note_record(refused, 2), "the number is another process's");
    }
}
