//! Sites: the probes that are one stage's own, and the processes whose changes it waits for.
//!
//! Owns: which site is for what, reading its arguments by their meaning, and how many of its calls never came. Because: each
//! question to a framework is a stage of its own, and all of them are told by calls. Does not: know what a call means.

use std::collections::VecDeque;

use deepctx_common::call::Call;
use deepctx_events::Role;
use rustc_hash::FxHashMap;

use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::stage::{ProcessChange, SiteTable};

/// Beginnings and ends of processes that may wait for the samples.
const CHANGES_MAX: usize = 1 << 16;

/// Sites by number; `W` is what each is for.
#[derive(Debug)]
pub(crate) struct Sites<W> {
    by_number: FxHashMap<u32, Site<W>>,
    changes: Changes,
}

#[derive(Debug)]
struct Site<W> {
    what: W,
    roles: Vec<Role>,
    seen: u64,
    counted: u64,
}

impl<W> Default for Sites<W> {
    fn default() -> Self {
        Self { by_number: FxHashMap::default(), changes: Changes::default() }
    }
}

impl<W> Sites<W> {
    /// Takes in probes; those that `what` gives nothing for are for nothing here.
    pub(crate) fn learn(&mut self, sites: Vec<SiteInfo>, mut what: impl FnMut(&SiteInfo) -> Option<W>) {
        for info in sites {
            if let Some(what) = what(&info) {
                let site = Site { what, roles: info.roles, seen: 0, counted: 0 };
                self.by_number.insert(info.site, site);
            }
        }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// What a call's site is for; `None` when it is another stage's.
    #[inline]
    pub(crate) fn what(&self, call: &Call) -> Option<&W> {
        self.by_number.get(&call.site).map(|site| &site.what)
    }

    /// A call of one of them has come: what that is for.
    pub(crate) fn record(&mut self, call: &Call) -> Option<&W> {
        let site = self.by_number.get_mut(&call.site)?;
        site.seen += 1;
        Some(&site.what)
    }

    /// What was read of a call, each with its meaning; `None` for what could not be read.
    pub(crate) fn arguments<'a>(
        &'a self,
        arguments: &'a Arguments<'_>,
    ) -> impl Iterator<Item = (Role, Option<u64>)> + Clone + 'a {
        let roles = self.by_number.get(&arguments.call.site).map_or(&[][..], |site| &site.roles);
        let unread = arguments.call.unread;
        let values = arguments.values.iter().enumerate();
        let values = values.map(move |(at, value)| (at < 32 && unread & 1 << at == 0).then_some(value));
        roles.iter().copied().zip(values)
    }

    /// The argument with a meaning; `None` when it could not be read, or there is none.
    pub(crate) fn argument(&self, arguments: &Arguments<'_>, role: Role) -> Option<u64> {
        self.arguments(arguments).find(|(other, _)| *other == role)?.1
    }

    /// The next process that the samples have reached the change of, and when that was.
    #[inline]
    pub(crate) fn changed(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        self.changes.reached(now_ns)
    }

    /// Calls that were counted by their probe and never came.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.by_number.values().map(|site| site.counted.saturating_sub(site.seen));
        lost.fold(0, u64::saturating_add)
    }
}

impl<W> SiteTable for Sites<W> {
    fn counted(&mut self, counts: &[u64]) {
        for (number, site) in &mut self.by_number {
            site.counted = counts.get(*number as usize).copied().unwrap_or(site.counted);
        }
    }

    fn will_change(&mut self, change: ProcessChange) {
        if !self.is_empty() {
            self.changes.add(change.pid, change.time_ns);
        }
    }
}

/// Processes that begin, begin anew, or end at times that the samples have not reached.
#[derive(Debug, Default)]
struct Changes(VecDeque<(u64, u32)>);

impl Changes {
    /// Adds one, at this time (`CLOCK_MONOTONIC` nanoseconds). Of too many the oldest is forgotten.
    fn add(&mut self, pid: u32, time_ns: u64) {
        if self.0.len() >= CHANGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((time_ns, pid));
    }

    /// The next one that the samples have reached, and when it was.
    #[inline]
    fn reached(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        self.0.pop_front_if(|(time_ns, _)| *time_ns <= now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_when_their_time_does() {
        let mut changes = Changes::default();
        [(7, 10), (8, 10), (9, 20)].into_iter().for_each(|(pid, time_ns)| changes.add(pid, time_ns));
        let due = |changes: &mut Changes, now_ns| {
            std::iter::from_fn(|| changes.reached(now_ns)).map(|(_, pid)| pid).collect::<Vec<_>>()
        };
        assert!(due(&mut changes, 9).is_empty());
        assert_eq!(due(&mut changes, 15), [7, 8]);
        assert_eq!(due(&mut changes, u64::MAX), [9]);
    }

    #[test]
    fn too_many_changes_push_the_oldest_out() {
        let mut changes = Changes::default();
        (0..=CHANGES_MAX as u32).for_each(|pid| changes.add(pid, 1));
        assert_eq!(changes.reached(1), Some((1, 1)));
    }
}
