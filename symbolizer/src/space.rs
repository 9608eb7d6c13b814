//! Address spaces over time: the mapping that an address was in when the sample was taken.
//!
//! Owns: the versions of each process's executable regions, across fork, exec and exit, and when they are dropped.
//! Because: a stack is resolved later than it was taken; by then the library may be unmapped, the process replaced or
//! gone, and its pid reused. Does not: read `/proc`, open files or read a clock; events carry their time.

use std::collections::VecDeque;
use std::sync::Arc;

use deepctx_address_space::{Avma, NoSymbol, Svma};
use deepctx_common::memory::table_bytes;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::native::ModuleHandle;

/// Most versions kept of one process: programs that keep mapping code (JITs) would grow without bound.
const VERSIONS_MAX: usize = 64;
/// Most processes kept, live and dead ones together.
const PROCESSES_MAX: usize = 65_536;

/// The owner of the code in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A file.
    Module {
        /// Which file.
        module: ModuleHandle,
        /// AVMA − SVMA, modulo 2⁶⁴.
        bias: u64,
    },
    /// Code generated at run time (anonymous or shared memory): only the runtime can name it.
    Generated,
    /// No file or runtime can name the code, for this reason.
    Unknown(NoSymbol),
}

/// An executable region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First address.
    pub begin: Avma,
    /// End address, exclusive.
    pub end: Avma,
    /// The owner of the code.
    pub owner: Owner,
}

impl Region {
    /// The module and stated address of an address in this region; `None` outside modules.
    pub fn svma(&self, address: Avma) -> Option<(ModuleHandle, Svma)> {
        match self.owner {
            Owner::Module { module, bias } => Some((module, address.to_svma(bias))),
            Owner::Generated | Owner::Unknown(_) => None,
        }
    }
}

/// The executable regions of a process at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSpace {
    regions: Vec<Region>,
}

impl AddressSpace {
    /// From regions in any order. Empty ones are dropped; of overlapping ones the first by address stays.
    pub fn new(mut regions: Vec<Region>) -> Self {
        regions.retain(|r| r.begin < r.end);
        regions.sort_by_key(|r| r.begin);
        let mut end = Avma(0);
        regions.retain(|r| {
            let keep = r.begin >= end;
            if keep {
                end = r.end;
            }
            keep
        });
        Self { regions }
    }

    /// The region that contains an address.
    ///
    /// # Errors
    /// [`NoSymbol::Unmapped`].
    pub fn lookup(&self, address: Avma) -> Result<&Region, NoSymbol> {
        Ok(&self.regions[self.index_of(address)?])
    }

    /// Whether the region that contains an address is not among the first `most`, in which the kernel's trampolines for
    /// uprobes do not count.
    fn is_beyond(&self, most: usize, address: Avma) -> Result<bool, NoSymbol> {
        let at = self.index_of(address)?;
        if at < most {
            return Ok(false);
        }
        let of_uprobes = |r: &&Region| r.owner == Owner::Unknown(NoSymbol::UprobeTrampoline);
        Ok(at - self.regions[..most].iter().filter(of_uprobes).count() >= most)
    }

    fn index_of(&self, address: Avma) -> Result<usize, NoSymbol> {
        let after = self.regions.partition_point(|r| r.begin <= address);
        let at = after.checked_sub(1).filter(|at| address < self.regions[*at].end);
        at.ok_or(NoSymbol::Unmapped)
    }

    /// All regions by ascending address.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }
}

/// The state of a process from one point in time on.
#[derive(Clone, Debug)]
enum State {
    /// The process had these regions.
    Live(Arc<AddressSpace>),
    /// A new program started; its mappings have not been read yet.
    Unread,
    /// The process had exited.
    Gone,
}

/// One state, and the time from which on it held.
#[derive(Clone, Debug)]
struct Version {
    since_ns: u64,
    state: State,
    /// The same program as in the version before.
    continues: bool,
}

/// Counters of [`Spaces`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCounters {
    /// Versions added because the regions had changed.
    pub versions: u64,
    /// Updates that changed nothing.
    pub unchanged: u64,
    /// Versions dropped because a process had more than are kept.
    pub versions_dropped: u64,
    /// Processes dropped because more appeared than are kept.
    pub processes_dropped: u64,
    /// Processes dropped after their exit.
    pub processes_retired: u64,
}

/// The address spaces of all processes.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    processes: FxHashMap<u32, VecDeque<Version>>,
    /// Processes in order of arrival, to drop the oldest; may contain pids that were dropped already.
    arrival: VecDeque<u32>,
    counters: SpaceCounters,
}

impl Spaces {
    /// Without processes.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Records the mappings of a process as read at `time_ns`. The first ones are taken to hold since the start of
    /// the process (or its exec): nothing better is known, and earlier samples need them.
    pub(crate) fn update(&mut self, pid: u32, time_ns: u64, space: AddressSpace) {
        match self.processes.get_mut(&pid).and_then(VecDeque::back_mut) {
            None => {
                let state = State::Live(Arc::new(space));
                self.insert(pid, Version { since_ns: 0, state, continues: false });
            }
            Some(Version { state: state @ State::Unread, .. }) => *state = State::Live(Arc::new(space)),
            Some(Version { state: State::Live(before), .. }) if **before == space => {
                self.counters.unchanged += 1
            }
            Some(Version { state, .. }) => {
                let continues = matches!(state, State::Live(_));
                self.push(pid, Version { since_ns: time_ns, state: State::Live(Arc::new(space)), continues });
                self.counters.versions += 1;
            }
        }
    }

    /// `child` was forked: it has the regions of `parent` until its own are read.
    pub(crate) fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        let state = match self.version_at(parent, time_ns) {
            Some(Version { state: State::Live(space), .. }) => State::Live(Arc::clone(space)),
            _ => State::Unread,
        };
        self.push(child, Version { since_ns: time_ns, state, continues: false });
    }

    /// The process started a new program.
    pub(crate) fn exec(&mut self, pid: u32, time_ns: u64) {
        self.push(pid, Version { since_ns: time_ns, state: State::Unread, continues: false });
    }

    /// The process exited. Its regions stay until [`Self::retire`], for samples that are still to be resolved.
    pub(crate) fn exit(&mut self, pid: u32, time_ns: u64) {
        if self.processes.contains_key(&pid) {
            self.push(pid, Version { since_ns: time_ns, state: State::Gone, continues: false });
        }
    }

    /// Drops what only samples older than `before_ns` need; no such samples will follow.
    pub(crate) fn retire(&mut self, before_ns: u64) {
        let counters = &mut self.counters;
        self.processes.retain(|_, versions| {
            while versions.get(1).is_some_and(|next| next.since_ns <= before_ns) {
                versions.pop_front();
            }
            let dead = matches!(versions.front(), Some(v) if matches!(v.state, State::Gone) && v.since_ns <= before_ns);
            let keep = versions.len() > 1 || !dead;
            counters.processes_retired += u64::from(!keep);
            keep
        });
        let processes = &self.processes;
        self.arrival.retain(|pid| processes.contains_key(pid));
    }

    /// The address space of a process at a time.
    pub(crate) fn at(&self, pid: u32, time_ns: u64) -> Option<&AddressSpace> {
        match &self.version_at(pid, time_ns)?.state {
            State::Live(space) => Some(space),
            State::Unread | State::Gone => None,
        }
    }

    /// The region of an address at a time. A library that was mapped between two reads of the mappings is found in
    /// the later one.
    ///
    /// # Errors
    /// [`NoSymbol::UnknownProcess`], [`NoSymbol::ProcessGone`] or [`NoSymbol::Unmapped`].
    pub(crate) fn lookup(&self, pid: u32, time_ns: u64, address: Avma) -> Result<Region, NoSymbol> {
        self.find(pid, time_ns, |space| space.lookup(address).copied())
    }

    /// Whether the region of an address at a time is not among the first `most` of its process.
    ///
    /// # Errors
    /// Those of [`Self::lookup`].
    pub(crate) fn is_beyond(
        &self,
        pid: u32,
        time_ns: u64,
        most: usize,
        address: Avma,
    ) -> Result<bool, NoSymbol> {
        self.find(pid, time_ns, |space| space.is_beyond(most, address))
    }

    /// Looks in the address space at a time, then in the next one of the same program.
    fn find<T>(
        &self,
        pid: u32,
        time_ns: u64,
        look: impl Fn(&AddressSpace) -> Result<T, NoSymbol>,
    ) -> Result<T, NoSymbol> {
        let versions = self.processes.get(&pid).ok_or(NoSymbol::UnknownProcess)?;
        let at = versions.partition_point(|v| v.since_ns <= time_ns).saturating_sub(1);
        let then = match &versions.get(at).ok_or(NoSymbol::UnknownProcess)?.state {
            State::Live(space) => look(space),
            State::Unread => Err(NoSymbol::UnknownProcess),
            State::Gone => Err(NoSymbol::ProcessGone),
        };
        let later = match versions.get(at + 1) {
            Some(Version { state: State::Live(space), continues: true, .. }) => Some(space),
            _ => None,
        };
        then.or_else(|reason| look(later.ok_or(reason)?))
    }

    /// True when a version of the process is kept, even if it has exited.
    pub(crate) fn is_known(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// True when the process is known and has not exited.
    pub(crate) fn is_alive(&self, pid: u32) -> bool {
        let last = self.processes.get(&pid).and_then(VecDeque::back);
        last.is_some_and(|v| !matches!(v.state, State::Gone))
    }

    /// Bytes in memory. What several versions share is divided among them.
    pub(crate) fn bytes(&self) -> usize {
        let regions = |version: &Version| match &version.state {
            State::Live(space) => size_of_val(&*space.regions) / Arc::strong_count(space).max(1),
            State::Unread | State::Gone => 0,
        };
        let of = |versions: &VecDeque<Version>| {
            versions.capacity() * size_of::<Version>() + versions.iter().map(regions).sum::<usize>()
        };
        self.processes.values().map(of).sum::<usize>()
            + table_bytes(self.processes.capacity(), size_of::<(u32, VecDeque<Version>)>())
            + self.arrival.capacity() * size_of::<u32>()
    }

    /// Files that some process has, or had and may still be asked about.
    pub(crate) fn modules(&self) -> FxHashSet<ModuleHandle> {
        let spaces = self.processes.values().flatten().filter_map(|version| match &version.state {
            State::Live(space) => Some(&**space),
            State::Unread | State::Gone => None,
        });
        let owners = spaces.flat_map(|space| &space.regions).map(|region| region.owner);
        owners
            .filter_map(|owner| if let Owner::Module { module, .. } = owner { Some(module) } else { None })
            .collect()
    }

    /// Number of processes kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    /// The counters so far.
    pub(crate) const fn counters(&self) -> SpaceCounters {
        self.counters
    }

    fn version_at(&self, pid: u32, time_ns: u64) -> Option<&Version> {
        let versions = self.processes.get(&pid)?;
        let at = versions.partition_point(|v| v.since_ns <= time_ns);
        versions.get(at.saturating_sub(1))
    }

    fn push(&mut self, pid: u32, version: Version) {
        let Some(versions) = self.processes.get_mut(&pid) else {
            self.insert(pid, version);
            return;
        };
        // Events of one process are ordered; a clock that went back must not break the binary search.
        let since_ns = versions.back().map_or(version.since_ns, |last| last.since_ns.max(version.since_ns));
        versions.push_back(Version { since_ns, ..version });
        if versions.len() > VERSIONS_MAX {
            versions.pop_front();
            self.counters.versions_dropped += 1;
        }
    }

    fn insert(&mut self, pid: u32, version: Version) {
        if self.processes.len() >= PROCESSES_MAX {
            self.drop_oldest();
        }
        self.arrival.push_back(pid);
        self.processes.insert(pid, VecDeque::from([version]));
    }

    /// Makes room: drops the first process that has exited, else the oldest.
    fn drop_oldest(&mut self) {
        let ended = self.arrival.iter().position(|pid| !self.is_alive(*pid)).unwrap_or(0);
        if let Some(pid) = self.arrival.remove(ended) {
            self.counters.processes_dropped += u64::from(self.processes.remove(&pid).is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn region(begin: u64, end: u64) -> Region {
        Region { begin: Avma(begin), end: Avma(end), owner: Owner::Generated }
    }

    fn space(ranges: &[(u64, u64)]) -> AddressSpace {
        AddressSpace::new(ranges.iter().map(|(b, e)| region(*b, *e)).collect())
    }

    fn found(spaces: &Spaces, pid: u32, time: u64, address: u64) -> Result<u64, NoSymbol> {
        spaces.lookup(pid, time, Avma(address)).map(|r| r.begin.0)
    }

    #[test]
    fn a_region_includes_its_first_address_but_not_its_end() {
        let space = space(&[(0x1000, 0x2000), (0x2000, 0x3000), (0x5000, 0x6000)]);
        for (address, expected) in [
            (0xfff, None),
            (0x1000, Some(0x1000)),
            (0x1fff, Some(0x1000)),
            (0x2000, Some(0x2000)),
            (0x3000, None),
            (0x6000, None),
        ] {
            assert_eq!(space.lookup(Avma(address)).ok().map(|r| r.begin.0), expected, "{address:#x}");
        }
    }

    #[test]
    fn regions_beyond_a_number_are_told_apart() {
        let mut regions: Vec<Region> = (1..=4).map(|n| region(n << 12, (n << 12) + 0x800)).collect();
        let check = |regions: &[Region], beyond: &[u64]| {
            let space = AddressSpace::new(regions.to_vec());
            let is_beyond = |n: &u64| space.is_beyond(2, Avma(n << 12)) == Ok(true);
            assert_eq!((1..=4).filter(is_beyond).collect::<Vec<u64>>(), beyond);
            assert_eq!(space.is_beyond(2, Avma(0x4800)), Err(NoSymbol::Unmapped));
        };
        check(&regions, &[3, 4]);
        regions[1].owner = Owner::Unknown(NoSymbol::UprobeTrampoline);
        check(&regions, &[4]);
        regions[1].owner = Owner::Generated;
        regions[2].owner = Owner::Unknown(NoSymbol::UprobeTrampoline);
        check(&regions, &[3, 4]);
    }

    #[test]
    fn samples_before_the_first_read_use_it() {
        let mut spaces = Spaces::new();
        spaces.update(7, 100, space(&[(0x1000, 0x2000)]));
        assert_eq!(found(&spaces, 7, 5, 0x1000), Ok(0x1000));
        assert_eq!(found(&spaces, 8, 5, 0x1000), Err(NoSymbol::UnknownProcess));
    }

    #[test]
    fn an_unmapped_library_is_found_for_older_samples_only() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000), (0x8000, 0x9000)]));
        spaces.update(7, 100, space(&[(0x1000, 0x2000)]));
        assert_eq!(found(&spaces, 7, 99, 0x8000), Ok(0x8000));
        assert_eq!(found(&spaces, 7, 100, 0x8000), Err(NoSymbol::Unmapped));
    }

    #[test]
    fn a_library_mapped_between_reads_is_found_in_the_later() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.update(7, 100, space(&[(0x1000, 0x2000), (0x8000, 0x9000)]));
        assert_eq!(found(&spaces, 7, 50, 0x8000), Ok(0x8000));
    }

    #[test]
    fn regions_after_an_exec_never_apply_to_earlier_samples() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.exec(7, 50);
        assert_eq!(found(&spaces, 7, 60, 0x8000), Err(NoSymbol::UnknownProcess));
        spaces.update(7, 100, space(&[(0x8000, 0x9000)]));
        assert_eq!(found(&spaces, 7, 60, 0x8000), Ok(0x8000));
        assert_eq!(found(&spaces, 7, 49, 0x8000), Err(NoSymbol::Unmapped));
        assert_eq!(found(&spaces, 7, 49, 0x1000), Ok(0x1000));
    }

    #[test]
    fn a_child_has_its_parents_regions_until_read() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.fork(7, 8, 10);
        assert_eq!(found(&spaces, 8, 11, 0x1000), Ok(0x1000));
        spaces.fork(99, 100, 10);
        assert_eq!(found(&spaces, 100, 11, 0x1000), Err(NoSymbol::UnknownProcess));
        spaces.update(100, 20, space(&[(0x3000, 0x4000)]));
        assert_eq!(found(&spaces, 100, 11, 0x3000), Ok(0x3000));
    }

    #[test]
    fn a_reused_pid_keeps_both_processes_apart() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.exit(7, 50);
        assert_eq!(found(&spaces, 7, 60, 0x1000), Err(NoSymbol::ProcessGone));
        assert!(!spaces.is_alive(7));
        spaces.fork(1, 7, 70);
        spaces.update(7, 80, space(&[(0x3000, 0x4000)]));
        assert_eq!(found(&spaces, 7, 40, 0x1000), Ok(0x1000));
        assert_eq!(found(&spaces, 7, 60, 0x3000), Err(NoSymbol::ProcessGone));
        assert_eq!(found(&spaces, 7, 75, 0x3000), Ok(0x3000));
    }

    #[test]
    fn a_dead_process_is_dropped_once_no_sample_can_follow() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.exit(7, 50);
        spaces.retire(49);
        assert_eq!(found(&spaces, 7, 49, 0x1000), Ok(0x1000));
        spaces.retire(50);
        assert_eq!(found(&spaces, 7, 49, 0x1000), Err(NoSymbol::UnknownProcess));
        assert_eq!((spaces.len(), spaces.counters().processes_retired), (0, 1));
    }

    #[test]
    fn a_live_process_is_never_retired() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.update(7, 10, space(&[(0x1000, 0x3000)]));
        spaces.retire(u64::MAX);
        assert_eq!(found(&spaces, 7, 11, 0x2000), Ok(0x1000));
    }

    #[test]
    fn unchanged_mappings_add_no_version() {
        let mut spaces = Spaces::new();
        for time in 0..1000 {
            spaces.update(7, time, space(&[(0x1000, 0x2000)]));
        }
        assert_eq!((spaces.counters().versions, spaces.counters().unchanged), (0, 999));
    }

    #[test]
    fn versions_are_bounded_and_the_loss_is_counted() {
        let mut spaces = Spaces::new();
        for time in 0..200 {
            spaces.update(7, time, space(&[(0x1000, 0x2000 + time)]));
        }
        assert_eq!(spaces.counters().versions_dropped, 200 - VERSIONS_MAX as u64);
    }

    #[test]
    fn of_too_many_processes_dead_ones_are_dropped_first() {
        let mut spaces = Spaces::new();
        for pid in 0..u32::try_from(PROCESSES_MAX).unwrap() {
            spaces.update(pid, 0, AddressSpace::default());
        }
        spaces.exit(5, 10);
        spaces.update(u32::MAX, 20, AddressSpace::default());
        assert_eq!((spaces.len(), spaces.is_known(5), spaces.is_known(0)), (PROCESSES_MAX, false, true));
        spaces.update(u32::MAX - 1, 20, AddressSpace::default());
        assert_eq!((spaces.is_known(0), spaces.counters().processes_dropped), (false, 2));
    }

    proptest! {
        #[test]
        fn a_lookup_agrees_with_a_linear_search(
            ranges in proptest::collection::vec((0u64..500, 0u64..500), 0..40),
            address in 0u64..500,
        ) {
            let space = space(&ranges);
            prop_assert!(space.regions().windows(2).all(|pair| pair[0].end <= pair[1].begin));
            let slow = space.regions().iter().find(|r| r.begin.0 <= address && address < r.end.0);
            prop_assert_eq!(space.lookup(Avma(address)).ok(), slow);
        }
    }
}
