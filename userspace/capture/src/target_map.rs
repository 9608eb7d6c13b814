//! Target map: the processes whose samples and calls the programs record.
//!
//! Owns: filling the map when a capture begins. Because: the programs follow the forks of a target, but only once it
//! is in the map. Does not: follow processes later (the kernel programs do), or choose targets (`targets`).

use deepctx_common::Plain as _;
use deepctx_common::config::map;
use deepctx_common::process::{Target, target_flag};
use libbpf_rs::{ErrorKind, MapCore as _, MapFlags, MapHandle};

use super::config::CaptureConfig;
use super::error::CaptureError;
use super::load::LoadedPrograms;
use super::table_error::{TableError, map_error};
use super::targets::{self, Targets};

/// Most lists of processes that are taken. Each one after the second means that a process forked a child which forked
/// in turn, all within the few milliseconds between a list and its processes' entry in the map.
const LISTS_MAX: usize = 16;

/// The map, and the entry for a selected process.
pub(super) struct TargetMap {
    map: MapHandle,
    target: Target,
}

impl TargetMap {
    pub(super) fn new(loaded: &LoadedPrograms, config: &CaptureConfig) -> Result<Self, CaptureError> {
        let flags = if config.follow_children { target_flag::FOLLOW } else { 0 };
        Ok(Self { map: loaded.map(map::TARGETS)?, target: Target { flags } })
    }

    /// Makes every process that the selectors match a target, with all its descendants; returns those of the last list.
    /// The programs must follow forks by now.
    pub(super) fn fill(&self, config: &CaptureConfig) -> Result<Vec<u32>, CaptureError> {
        let mut is_cut = false;
        let list = || -> Result<Vec<u32>, CaptureError> {
            let found = targets::find_matches(&config.targets, config.follow_children)?;
            is_cut = found.is_cut;
            Ok(found.pids)
        };
        let entered = enter_all(list, |pid| Ok(self.enter(pid)?));
        // Of the whole machine, processes are sampled whether they are entered or not.
        if is_cut && !config.targets.contains(&Targets::All) {
            tracing::warn!("more processes match than can be followed; some may be left out");
        }
        entered
    }

    /// Enters a process; false if it was there.
    pub(super) fn enter(&self, pid: u32) -> Result<bool, TableError> {
        match self.map.update(pid.as_bytes(), self.target.as_bytes(), MapFlags::NO_EXIST) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(map_error(map::TARGETS)(error)),
        }
    }
}

/// Lists processes and enters them until a list has no new one. A child forked after the list was taken, by a process
/// that entered the map with that list, is in neither: only another list shows it.
fn enter_all<E>(
    mut list: impl FnMut() -> Result<Vec<u32>, E>,
    mut enter: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Vec<u32>, E> {
    let mut found = Vec::new();
    for _ in 0..LISTS_MAX {
        found = list()?;
        let mut new = false;
        for &pid in &found {
            new |= enter(pid)?;
        }
        if !new {
            return Ok(found);
        }
    }
    tracing::warn!("targets start processes faster than they can be listed; some are not followed");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    /// A chain of processes, each the parent of the next: `alive` at first, up to `last` forked one by one, each by its
    /// parent, whenever a process is about to be entered. Checks those in the map at the end.
    fn check(alive: u32, last: u32, expect: impl IntoIterator<Item = u32>) {
        let state = RefCell::new((alive, BTreeSet::new()));
        let list = || Ok::<_, Infallible>((1..=state.borrow().0).collect());
        let enter = |pid| {
            let (alive, map) = &mut *state.borrow_mut();
            if *alive < last {
                // The program follows a fork of a process in the map.
                if map.contains(alive) {
                    map.insert(*alive + 1);
                }
                *alive += 1;
            }
            Ok(map.insert(pid))
        };
        enter_all(list, enter).unwrap_or_else(|never| match never {});
        assert_eq!(state.into_inner().1, expect.into_iter().collect());
    }

    #[test]
    fn processes_that_stand_still_are_all_entered() {
        check(3, 3, 1..=3);
    }

    #[test]
    fn children_forked_while_their_parents_are_entered_are_followed() {
        check(2, 3, 1..=3);
        check(2, 6, 1..=6);
        check(1, 40, 1..=40);
    }
}
