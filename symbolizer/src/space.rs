//! Address spaces over time: which mapping an address was in when the sample was taken.
//!
//! Owns: versions of each process's executable regions, fork, exec and exit, and the end of their lives. Because: a
//! stack is resolved after it was taken, when the library may be unmapped, the process replaced or gone, and its pid
//! in use again. Does not: read `/proc`, open files or look at a clock; time comes with the events.

use std::collections::VecDeque;
use std::sync::Arc;

use deepctx_address_space::{Avma, NoSymbol, Svma};
use rustc_hash::FxHashMap;

use crate::native::ModuleHandle;

/// Most versions kept of one process; programs that map code all the time (JITs) would grow without end.
const VERSIONS_MAX: usize = 64;
/// Most processes kept, the living and the dead together.
const PROCESSES_MAX: usize = 65_536;

/// What code in a region belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A file, with the region's bias: AVMA − SVMA, modulo 2⁶⁴.
    Module {
        /// Which file.
        module: ModuleHandle,
        /// AVMA − SVMA, modulo 2⁶⁴.
        bias: u64,
    },
    /// Code that was generated at run time (anonymous or shared memory): only the runtime can name it.
    Generated,
    /// No names here, and why.
    Nobody(NoSymbol),
}

/// An executable region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First address.
    pub begin: Avma,
    /// First address behind it.
    pub end: Avma,
    /// What the code belongs to.
    pub owner: Owner,
}

impl Region {
    /// Where the module's file states an address of this region to be; `None` outside modules.
    pub fn svma(&self, address: Avma) -> Option<(ModuleHandle, Svma)> {
        match self.owner {
            Owner::Module { module, bias } => Some((module, address.to_svma(bias))),
            Owner::Generated | Owner::Nobody(_) => None,
        }
    }
}

/// The executable regions of a process at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSpace {
    regions: Vec<Region>,
}

impl AddressSpace {
    /// From regions in any order. Empty ones are left out; of overlapping ones the first by address stays.
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

    /// The region of an address.
    ///
    /// # Errors
    /// [`NoSymbol::Unmapped`].
    pub fn lookup(&self, address: Avma) -> Result<&Region, NoSymbol> {
        let at = self.regions.partition_point(|r| r.begin <= address);
        self.regions[..at].last().filter(|r| address < r.end).ok_or(NoSymbol::Unmapped)
    }

    /// All regions by ascending address.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }
}

/// What was known of a process from one moment on.
#[derive(Clone, Debug)]
enum State {
    /// These regions.
    Live(Arc<AddressSpace>),
    /// A new program began; its mappings have not been read yet.
    Unread,
    /// It had ended.
    Gone,
}

/// One state and the time from which it held.
#[derive(Clone, Debug)]
struct Version {
    since_ns: u64,
    state: State,
    /// The same program as the version before, read again.
    continues: bool,
}

/// Counters of [`Spaces`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCounters {
    /// Versions that replaced an earlier one because the regions had changed.
    pub versions: u64,
    /// Updates that changed nothing.
    pub unchanged: u64,
    /// Versions dropped because a process had more than are kept.
    pub versions_dropped: u64,
    /// Processes dropped because more were seen than are kept.
    pub processes_dropped: u64,
    /// Processes dropped at their end of life.
    pub processes_retired: u64,
}

/// The address spaces of all processes.
#[derive(Debug, Default)]
pub struct Spaces {
    processes: FxHashMap<u32, VecDeque<Version>>,
    /// Processes in the order in which they came, for dropping the oldest; may hold pids that are gone already.
    arrival: VecDeque<u32>,
    counters: SpaceCounters,
}

impl Spaces {
    /// Without processes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mappings of a process were read at `time_ns`. For the first reading they count from the process's beginning
    /// (or its exec): nobody can know better, and the samples before it need them.
    pub fn update(&mut self, pid: u32, time_ns: u64, space: AddressSpace) {
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

    /// `child` was forked: it has the regions of `parent` until it says otherwise.
    pub fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        let state = match self.version_at(parent, time_ns) {
            Some(Version { state: State::Live(space), .. }) => State::Live(Arc::clone(space)),
            _ => State::Unread,
        };
        self.push(child, Version { since_ns: time_ns, state, continues: false });
    }

    /// The process began a new program.
    pub fn exec(&mut self, pid: u32, time_ns: u64) {
        self.push(pid, Version { since_ns: time_ns, state: State::Unread, continues: false });
    }

    /// The process ended. Its regions stay for samples that are still on their way, until [`Self::retire`].
    pub fn exit(&mut self, pid: u32, time_ns: u64) {
        if self.processes.contains_key(&pid) {
            self.push(pid, Version { since_ns: time_ns, state: State::Gone, continues: false });
        }
    }

    /// No sample older than `before_ns` will come any more: what only those could ask for is dropped.
    pub fn retire(&mut self, before_ns: u64) {
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
    pub fn at(&self, pid: u32, time_ns: u64) -> Option<&AddressSpace> {
        match &self.version_at(pid, time_ns)?.state {
            State::Live(space) => Some(space),
            State::Unread | State::Gone => None,
        }
    }

    /// The region of an address at a time. A library that was mapped between two readings is found in the later one.
    ///
    /// # Errors
    /// [`NoSymbol::UnknownProcess`], [`NoSymbol::ProcessGone`] or [`NoSymbol::Unmapped`].
    pub fn lookup(&self, pid: u32, time_ns: u64, address: Avma) -> Result<Region, NoSymbol> {
        let versions = self.processes.get(&pid).ok_or(NoSymbol::UnknownProcess)?;
        let at = versions.partition_point(|v| v.since_ns <= time_ns).saturating_sub(1);
        let then = match &versions.get(at).ok_or(NoSymbol::UnknownProcess)?.state {
            State::Live(space) => space.lookup(address),
            State::Unread => Err(NoSymbol::UnknownProcess),
            State::Gone => Err(NoSymbol::ProcessGone),
        };
        let later = match versions.get(at + 1) {
            Some(Version { state: State::Live(space), continues: true, .. }) => Some(space),
            _ => None,
        };
        then.or_else(|reason| later.ok_or(reason)?.lookup(address)).copied()
    }

    /// True when something is kept of the process, even if it has ended.
    pub fn is_known(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// True when the process is known and has not ended.
    pub fn is_alive(&self, pid: u32) -> bool {
        let last = self.processes.get(&pid).and_then(VecDeque::back);
        last.is_some_and(|v| !matches!(v.state, State::Gone))
    }

    /// Processes that are kept.
    pub fn len(&self) -> usize {
        self.processes.len()
    }

    /// True when no process is kept.
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// What happened so far.
    pub const fn counters(&self) -> SpaceCounters {
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
        // Events of one process come in order; a clock that went back must not break the search.
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

    /// Makes room: the first process that has ended goes, else the one that came first.
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
    fn a_region_holds_its_first_address_and_not_its_end() {
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
    fn samples_from_before_the_first_reading_use_it() {
        let mut spaces = Spaces::new();
        spaces.update(7, 100, space(&[(0x1000, 0x2000)]));
        assert_eq!(found(&spaces, 7, 5, 0x1000), Ok(0x1000));
        assert_eq!(found(&spaces, 8, 5, 0x1000), Err(NoSymbol::UnknownProcess));
    }

    #[test]
    fn an_unmapped_library_is_found_by_older_samples_only() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000), (0x8000, 0x9000)]));
        spaces.update(7, 100, space(&[(0x1000, 0x2000)]));
        assert_eq!(found(&spaces, 7, 99, 0x8000), Ok(0x8000));
        assert_eq!(found(&spaces, 7, 100, 0x8000), Err(NoSymbol::Unmapped));
    }

    #[test]
    fn a_library_mapped_between_two_readings_is_found_in_the_later_one() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.update(7, 100, space(&[(0x1000, 0x2000), (0x8000, 0x9000)]));
        assert_eq!(found(&spaces, 7, 50, 0x8000), Ok(0x8000));
    }

    #[test]
    fn the_program_after_an_exec_never_names_the_one_before() {
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
    fn a_child_has_the_regions_of_its_parent_until_it_is_read() {
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
    fn a_pid_in_use_again_keeps_both_lives_apart() {
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
    fn a_dead_process_goes_when_no_sample_of_it_can_come() {
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
    fn a_living_process_is_never_retired() {
        let mut spaces = Spaces::new();
        spaces.update(7, 0, space(&[(0x1000, 0x2000)]));
        spaces.update(7, 10, space(&[(0x1000, 0x3000)]));
        spaces.retire(u64::MAX);
        assert_eq!(found(&spaces, 7, 11, 0x2000), Ok(0x1000));
    }

    #[test]
    fn the_same_mappings_again_make_no_version() {
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
    fn of_too_many_processes_the_dead_go_first() {
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
        fn a_lookup_agrees_with_a_search_of_all_regions(
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
