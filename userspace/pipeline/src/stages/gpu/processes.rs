//! Processes: which processes the stage follows, and what it keeps of those that have ended.
//!
//! Owns: [`Processes`]. Because: what is known of a process when it begins, and after it has ended, outlasts its
//! state. Does not: interpret calls; or decide whose processes are followed ([`FollowedProcesses`] does).

use deepctx_profile::device::processes::{ProcessRows, SINGLE_MAX};
use rustc_hash::FxHashSet;

use super::process::Process;
use crate::followed::FollowedProcesses;
use crate::stage::ProcessChangeKind;

/// Processes that are followed: more than run on the devices of a host.
const LIVE_MAX: usize = 768;
/// Latest processes that ended and keep a row of their own: more than anyone reads.
pub(super) const ENDED_MAX: usize = 240;
const _: () = assert!(LIVE_MAX + ENDED_MAX <= SINGLE_MAX, "each has a row in the profile");

/// Processes that are remembered for having begun.
const BORN_MAX: usize = 1 << 16;

/// The processes that were met.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) followed: FollowedProcesses<Process>,
    /// What the profile keeps of processes that are gone.
    pub(super) ended: ProcessRows,
    /// Processes that began while they were watched. Most will never call an accelerator.
    born: FxHashSet<u32>,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            followed: FollowedProcesses::new(LIVE_MAX),
            ended: ProcessRows::default(),
            born: FxHashSet::default(),
        }
    }
}

impl Processes {
    #[inline]
    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.followed.get_mut(pid)
    }

    /// Follows a process of a user from now on, if there is room.
    pub(super) fn follow(&mut self, pid: u32, user: u32, now_ns: u64) {
        let process = Process::new(pid, now_ns, self.born.contains(&pid));
        self.followed.follow(pid, user, now_ns, process);
    }

    /// A process begins, begins anew or ends: what is known of its number is about another one.
    pub(super) fn changed(&mut self, pid: u32, kind: ProcessChangeKind) {
        self.followed.forget_refusal(pid);
        match kind {
            ProcessChangeKind::Begins if self.born.len() < BORN_MAX => _ = self.born.insert(pid),
            ProcessChangeKind::Begins => self.born.clear(),
            ProcessChangeKind::Ends => _ = self.born.remove(&pid),
        }
    }
}
