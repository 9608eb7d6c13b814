//! Processes: the pools of each process, and the rows of those that have ended.
//!
//! Owns: [`Processes`]. Because: a capture may last for weeks, and the pools of processes that are gone must not take
//! the room of those that run. Does not: interpret calls of allocators.

use deepctx_profile::device::memory::{self, POOLS_MAX};
use deepctx_profile::frame::Frame;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::Device;
use super::pool::Pool;
use crate::followed::{Admission, FollowedProcesses};
use crate::symbols::ProcessFacts;

/// Processes that are followed.
const LIVE_MAX: usize = 256;
/// Devices of one process: more than a host has.
const DEVICES_MAX: usize = 64;
/// Pools of processes that run: a process has the host's and some devices'.
const POOLS_LIVE_MAX: usize = 768;
/// Rows of processes that have ended: those with the largest peaks.
const ENDED_MAX: usize = POOLS_MAX - POOLS_LIVE_MAX;

/// The processes that were met.
#[derive(Debug)]
pub(super) struct Processes {
    /// By process, a few devices each.
    followed: FollowedProcesses<Vec<(Device, Pool)>>,
    /// Pools of all followed processes.
    pools: usize,
    /// Rows of processes that are gone.
    ended: Vec<memory::Pool>,
    /// Rows that gave way to those with larger peaks.
    rows_left_out: u64,
    /// Calls for which there was no pool.
    pub(super) without_pool: u64,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            followed: FollowedProcesses::new(LIVE_MAX),
            pools: 0,
            ended: Vec::new(),
            rows_left_out: 0,
            without_pool: 0,
        }
    }
}

impl Processes {
    /// A call of a process is about to be used: the process is followed from now on, if there is room.
    #[inline]
    pub(super) fn admit(
        &mut self,
        pid: u32,
        time_ns: u64,
        facts: &mut dyn ProcessFacts,
        profile: &mut Profile,
    ) {
        let user = match self.followed.admit(pid, time_ns, facts) {
            Admission::Decided | Admission::Refused => return,
            Admission::Room { user } => user,
            Admission::After { user, silent } => {
                self.end(silent, time_ns, profile);
                user
            }
        };
        self.followed.follow(pid, user, time_ns, Vec::new());
    }

    /// The pool of a device of a process; `None`, which is counted, when there are too many. `thread`: the node of one
    /// of its threads.
    pub(super) fn pool(
        &mut self,
        pid: u32,
        device: Device,
        thread: NodeId,
        now_ns: u64,
        profile: &mut Profile,
    ) -> Option<&mut Pool> {
        let Some(pools) = self.followed.get_mut(pid) else {
            self.without_pool += 1;
            return None;
        };
        let at = match pools.iter().position(|(known, _)| *known == device) {
            Some(at) => at,
            None if self.pools >= POOLS_LIVE_MAX || pools.len() >= DEVICES_MAX => {
                self.without_pool += 1;
                return None;
            }
            None => {
                self.pools += 1;
                let name = device.name();
                let frame = profile.text(&memory::device_frame(&name));
                let frame = profile.frame(Frame::Operator { name: frame });
                let process = profile.tree.node(thread).parent;
                let lane = profile.tree.child(process, frame);
                pools.push((device, Pool::new(pid, name, lane, frame, now_ns)));
                pools.len() - 1
            }
        };
        pools.get_mut(at).map(|(_, pool)| pool)
    }

    /// The pools of a process.
    pub(super) fn of(&mut self, pid: u32) -> &mut [(Device, Pool)] {
        self.followed.get_mut(pid).map_or(&mut [], Vec::as_mut_slice)
    }

    /// The pools of all followed processes.
    pub(super) fn pools_mut(&mut self) -> impl Iterator<Item = &mut Pool> {
        self.followed.values_mut().flatten().map(|(_, pool)| pool)
    }

    /// A process begins, begins anew or ends: its number is another one's from now on.
    pub(super) fn changed(&mut self, pid: u32, time_ns: u64, profile: &mut Profile) {
        self.followed.forget_refusal(pid);
        self.end(pid, time_ns, profile);
    }

    fn end(&mut self, pid: u32, time_ns: u64, profile: &mut Profile) {
        for (_, mut pool) in self.followed.remove(pid).unwrap_or_default() {
            self.pools -= 1;
            pool.end(time_ns, profile);
            if let Some(row) = pool.row() {
                self.ended.push(row);
            }
        }
        // Twice as many before any is chosen: they are not sorted anew for each.
        if self.ended.len() > 2 * ENDED_MAX {
            self.rows_left_out += memory::keep_largest(&mut self.ended, ENDED_MAX);
        }
    }

    /// A row for each pool, at most [`POOLS_MAX`].
    pub(super) fn rows(&self) -> Vec<memory::Pool> {
        let mut rows = self.ended.clone();
        memory::keep_largest(&mut rows, ENDED_MAX);
        rows.extend(self.followed.values().flatten().filter_map(|(_, pool)| pool.row()));
        rows
    }

    /// Rows that gave way to those with larger peaks.
    pub(super) fn rows_left_out(&self) -> u64 {
        self.rows_left_out + self.ended.len().saturating_sub(ENDED_MAX) as u64
    }
}
