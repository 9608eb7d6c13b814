//! Names of code that runtimes generate at run time.
//!
//! Owns: one table of code per process, filled from its perf map, its jitdump and its registrations for debuggers as
//! they grow. Because: only the runtime knows these names, and it writes them to files that other users could have
//! planted. Does not: find the code (it is in anonymous executable mappings), or unwind it.

mod dump;
mod evidence;
pub(crate) mod fixed_code;
pub(crate) mod gdb;
mod growing;
mod left_out;
mod located;
mod names;
mod perf_map;
mod read_time;
mod registered;
mod table;

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deepctx_address_space::maps::{self, Mapping};
use deepctx_address_space::shares::Shares;
use deepctx_address_space::time_account::{Terms, TimeAccounts};
use deepctx_address_space::{Avma, GONE_USER, NoSymbol, ProcessStatus, accountable_user, thread_cpu_time};
use rustc_hash::FxHashMap;

pub use dump::{Dump, DumpEvent, DumpHeader, parse_dump_header, parse_jitdump, parse_records};
use evidence::RefutedRanges;
use gdb::ObjectFile;
pub use gdb::{Function, functions};
use growing::GrowingFile;
use left_out::LeftOutCode;
use located::LocatedCode;
use names::{NameSource, Names};
pub use perf_map::{PerfMap, PerfMapEntry, parse_perf_map};
use read_time::ReadTime;
use table::CodeTable;

use crate::memory::ProcessMemory;
use crate::readable::readable;

/// Most processes with generated code kept; each may hold two file descriptors.
const PROCESSES_MAX: usize = 128;
/// Most code ranges of all processes, of some 50 bytes each.
const RANGES_TOTAL_MAX: usize = 1 << 21;
/// Time limit for reading names of a user's processes, and for demangling them: samples of others wait for their names
/// meanwhile.
const READING: Terms =
    Terms { credit: Duration::from_secs(1), least: Duration::from_millis(10), regained: 20 };
/// Shortest time between two searches for files of a process that has none, after an address was not found.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);
/// Most that a jitdump is ahead of the samples; one that is further ahead has another clock.
const AHEAD_MAX_NS: u64 = 10_000_000_000;
/// Time after which files are read even though addresses are found: code may have been replaced.
const REREAD_INTERVAL: Duration = Duration::from_secs(1);

/// A name of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JitSymbol(u32);

/// A function that a runtime registered for debuggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredFunction<'a> {
    /// Name.
    pub name: &'a str,
    /// [`Function::code_hash`]: distinguishes it from other functions of the same name.
    pub code_hash: u64,
    /// Index among the functions that the process registered, in order.
    pub order: usize,
}

/// A function of a compilation cache that was located in memory by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocatedFunction {
    /// First address.
    pub(crate) address: u64,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Its name, or several.
    pub(crate) name: String,
    /// Key in the cache's table of functions; stays the same when the cache is read again.
    pub(crate) key: u64,
    /// [`gdb::bytes_hash`] of what is in memory.
    pub(crate) hash: u64,
}

/// Counters of [`Jit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitCounters {
    /// Code ranges read.
    pub entries: u64,
    /// Malformed lines and records.
    pub malformed: u64,
    /// Code ranges dropped because a bound was reached.
    pub dropped: u64,
    /// Files refused: not owned by the user of the process, not regular, or not readable.
    pub refused: u64,
    /// Functions registered for debuggers at an address where other code is.
    pub refuted: u64,
    /// Processes dropped to stay within the bound.
    pub processes_dropped: u64,
}

#[derive(Debug, Default)]
struct Process {
    table: Arc<CodeTable>,
    perf_map: Option<GrowingFile>,
    /// When its path was last looked at.
    perf_map_opened_at: Option<ReadTime>,
    dump: Option<GrowingFile>,
    descriptors: gdb::Descriptors,
    /// Functions registered for debuggers, in order.
    registered: Vec<JitSymbol>,
    /// The object files of those that are still registered.
    objects: FxHashMap<JitSymbol, ObjectFile>,
    /// Functions that were located by their bytes.
    located: FxHashMap<JitSymbol, LocatedCode>,
    /// Registered ranges that contain no such function.
    refuted: RefutedRanges,
    /// Opened when code is first compared with it.
    memory: Option<ProcessMemory>,
    /// The user that started it; `None` until it is first read.
    user: Option<u32>,
    /// Ranges charged to the user's share.
    ranges: usize,
    /// What was left out because of the user's share.
    left_out: LeftOutCode,
    /// Code that had a name has another one now, or none.
    is_renamed: bool,
    /// When the latest code that replaced other code was generated; later than samples that are yet to be named.
    renamed_ns: u64,
    /// When the latest code was generated.
    latest_ns: u64,
    /// Its sources were not read, because reading the user's sources took too long.
    is_late: bool,
    read_at: Option<ReadTime>,
    used_at_ns: u64,
    /// It was reported that a file of names was given up.
    is_loss_reported: bool,
    /// A sample of it was looked up, not only of the parent that it was forked from.
    is_sampled: bool,
}

/// Generated code of all processes.
#[derive(Debug)]
pub struct Jit {
    processes: FxHashMap<u32, Process>,
    names: Names,
    range_shares: Shares,
    /// CPU time for reading names, by user.
    accounts: TimeAccounts,
    /// The same for demangling them.
    demangling: TimeAccounts,
    counters: JitCounters,
}

impl Default for Jit {
    fn default() -> Self {
        Self {
            processes: FxHashMap::default(),
            names: Names::default(),
            range_shares: Shares::new(RANGES_TOTAL_MAX, 1),
            accounts: TimeAccounts::new(READING),
            demangling: TimeAccounts::new(READING),
            counters: JitCounters::default(),
        }
    }
}

impl Jit {
    /// A table without processes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the code at an address at the time of a sample. If the address is not found, reads what was added
    /// to the process's files; searches for files at most ten times a second.
    ///
    /// # Errors
    /// [`NoSymbol::JitWithoutMap`], [`NoSymbol::JitNotCovered`], [`NoSymbol::JitRefuted`],
    /// [`NoSymbol::JitNoRoom`] or [`NoSymbol::JitLate`].
    pub fn lookup(&mut self, pid: u32, time_ns: u64, address: Avma) -> Result<JitSymbol, NoSymbol> {
        let now = ReadTime::now(time_ns);
        let process = self.process(pid);
        process.used_at_ns = process.used_at_ns.max(time_ns);
        process.is_sampled = true;
        let found = process.table.lookup(address.0, time_ns);
        let interval = match (found, process.has_source()) {
            (Some(symbol), _) if process.is_doubtful(symbol, now) => Duration::ZERO,
            (Some(_), _) => REREAD_INTERVAL,
            (None, false) => SEARCH_INTERVAL,
            // Each address is looked up once or a few times, and checking for additions takes a system call or two.
            (None, true) => Duration::ZERO,
        };
        if process.read_at.is_none_or(|at| at.is_before(now, interval)) {
            process.read_at = Some(now);
            self.read(pid, now, address);
            let process = self.process(pid);
            return process.table.lookup(address.0, time_ns).ok_or(process.reason(address));
        }
        found.ok_or(process.reason(address))
    }

    /// The text of a name.
    pub fn name(&self, symbol: JitSymbol) -> Option<&str> {
        self.names.get(symbol).map(|entry| &*entry.name)
    }

    /// The readable form of a name; the name itself if demangling those of its user has taken too long.
    pub(crate) fn readable_name(&mut self, symbol: JitSymbol) -> Option<String> {
        let entry = self.names.get(symbol)?;
        if !self.demangling.allows(entry.user, Instant::now()) {
            if self.demangling.is_first_refusal(entry.user) {
                tracing::warn!(user = entry.user, "demangling names of its generated code takes too long");
            }
            return Some(entry.name.to_string());
        }
        let began = thread_cpu_time();
        let readable = readable(&entry.name);
        self.demangling.charge(entry.user, thread_cpu_time().saturating_sub(began), Instant::now());
        Some(readable)
    }

    /// The registered function of a name, if it was registered for debuggers.
    pub fn registered_function(&self, symbol: JitSymbol) -> Option<RegisteredFunction<'_>> {
        let entry = self.names.get(symbol)?;
        match entry.source {
            NameSource::Registered { code_hash, order, .. } => {
                Some(RegisteredFunction { name: &entry.name, code_hash, order })
            }
            NameSource::File | NameSource::Cached { .. } => None,
        }
    }

    /// The key of a name in the compilation cache, if the function was located by its bytes.
    pub(crate) fn cached_function(&self, symbol: JitSymbol) -> Option<u64> {
        match self.names.get(symbol)?.source {
            NameSource::Cached { key } => Some(key),
            NameSource::File | NameSource::Registered { .. } => None,
        }
    }

    /// Adds a function of a compilation cache that was located by its bytes.
    pub(crate) fn add_located(
        &mut self,
        pid: u32,
        time_ns: u64,
        located: LocatedFunction,
    ) -> Option<JitSymbol> {
        let code = LocatedCode::of(&located, ReadTime::now(time_ns));
        let LocatedFunction { address, size, name, key, .. } = located;
        self.counters.entries += 1;
        let mut process = self.take_process(pid);
        let symbol = self.names.add(process.user(), name.into(), NameSource::Cached { key });
        if let Some(symbol) = symbol {
            self.insert(&mut process, address, size, 0, symbol);
            process.located.insert(symbol, code);
            process.is_sampled = true;
        }
        self.processes.insert(pid, process);
        symbol
    }

    /// All functions that a process registered for debuggers, in order.
    pub fn registered_functions(&self, pid: u32) -> impl DoubleEndedIterator<Item = RegisteredFunction<'_>> {
        let registered = self.processes.get(&pid).map_or(&[][..], |process| &process.registered);
        registered.iter().filter_map(|symbol| self.registered_function(*symbol))
    }

    /// Adds the address of `__jit_debug_descriptor` in a process; the next lookup reads it.
    pub fn add_descriptor(&mut self, pid: u32, address: Avma) {
        let process = self.process(pid);
        process.descriptors.add(address.0);
        process.read_at = None;
    }

    /// Opens the jitdump file of a process, if it is among those that it maps.
    pub fn add_dump(&mut self, pid: u32, mapped: &[Mapping]) {
        if mapped.is_empty() || self.processes.get(&pid).is_some_and(|process| process.dump.is_some()) {
            return;
        }
        let Some(ProcessStatus { own_pid, .. }) = ProcessStatus::read(pid) else { return };
        for mapping in mapped {
            let opened = maps::open(pid, mapping).ok().and_then(|file| {
                let mut header = [0; dump::HEADER_BYTES];
                file.read_exact_at(&mut header, 0).ok()?;
                Some((file, parse_dump_header(&header)?))
            });
            match opened {
                Some((file, header)) if header.pid == own_pid => {
                    self.process(pid).dump = Some(GrowingFile::dump(file, header));
                    return;
                }
                // That of a parent, whose code at the same addresses is another one since the fork.
                Some(_) => {}
                None => self.counters.refused += 1,
            }
        }
    }

    /// The child has the generated code of the parent at that time, and will write its own files.
    pub fn fork(&mut self, parent: u32, child: u32, time_ns: u64) {
        let Some(process) = self.processes.get(&parent).filter(|process| !process.table.is_empty()) else {
            return;
        };
        let mut table = Arc::clone(&process.table);
        // A jitdump is ahead of the events: what the parent has generated since is not in the child.
        if process.latest_ns > time_ns {
            Arc::make_mut(&mut table).retain(|since_ns, _| since_ns <= time_ns);
        }
        let forked = Process {
            ranges: table.len(),
            table,
            registered: process.registered.clone(),
            objects: process.objects.clone(),
            located: process.located.clone(),
            descriptors: process.descriptors.clone(),
            user: process.user,
            used_at_ns: process.used_at_ns,
            ..Process::default()
        };
        // The first change of either copies the table.
        if self.range_shares.take(forked.user.unwrap_or(GONE_USER), forked.ranges) {
            self.forget(child);
            self.make_room();
            self.processes.insert(child, forked);
        } else {
            self.counters.dropped += forked.ranges as u64;
        }
    }

    /// Drops the process, which runs another program now.
    pub fn forget(&mut self, pid: u32) {
        if let Some(process) = self.processes.remove(&pid) {
            self.range_shares.give(process.user.unwrap_or(GONE_USER), process.ranges);
            self.names.release(process.ranges);
        }
    }

    /// Keeps the processes for which `keep` is true, and the names of code that any process has.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        let gone: Vec<u32> = self.processes.keys().copied().filter(|pid| !keep(*pid)).collect();
        gone.into_iter().for_each(|pid| self.forget(pid));
        let processes = self.processes.values();
        if self.names.has_unused(processes.clone().map(|process| process.ranges).sum()) {
            self.names.keep(processes.flat_map(Process::symbols));
        }
    }

    /// The counters so far.
    pub const fn counters(&self) -> JitCounters {
        self.counters
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        if !self.processes.contains_key(&pid) {
            self.make_room();
        }
        self.processes.entry(pid).or_default()
    }

    /// Takes the process with its user out of the table: additions are counted separately.
    fn take_process(&mut self, pid: u32) -> Process {
        if !self.processes.contains_key(&pid) {
            self.make_room();
        }
        let mut process = self.processes.remove(&pid).unwrap_or_default();
        process.user.get_or_insert_with(|| accountable_user(pid).unwrap_or(GONE_USER));
        process
    }

    /// Drops a process if there are too many: of the user with the most, the one sampled longest ago.
    fn make_room(&mut self) {
        if self.processes.len() < PROCESSES_MAX {
            return;
        }
        let mut of_user: FxHashMap<Option<u32>, usize> = FxHashMap::default();
        for process in self.processes.values() {
            *of_user.entry(process.user).or_default() += 1;
        }
        let greediest = of_user.into_iter().max_by_key(|(_, processes)| *processes).map(|(user, _)| user);
        let theirs = self.processes.iter().filter(|(_, process)| Some(process.user) == greediest);
        if let Some(oldest) = theirs.min_by_key(|(_, process)| process.used_at_ns).map(|(pid, _)| *pid) {
            self.forget(oldest);
            self.counters.processes_dropped += 1;
        }
    }

    /// Reads additions to the files of a process, and checks what is known of an address.
    fn read(&mut self, pid: u32, now: ReadTime, address: Avma) {
        let mut process = self.take_process(pid);
        let user = process.user();
        process.is_late = !self.accounts.allows(user, Instant::now());
        if !process.is_late {
            let began = thread_cpu_time();
            self.check_registered(&mut process, now, address);
            self.check_located_at(pid, &mut process, now, address);
            self.read_sources(pid, now, &mut process);
            // Waiting for memory of the process is charged by its reader.
            self.accounts.charge(user, thread_cpu_time().saturating_sub(began), Instant::now());
        }
        self.processes.insert(pid, process);
    }

    /// Reads additions to the sources of a process that were read before, and checks some of its registered functions.
    /// True when names that were given before are out of date.
    pub(crate) fn recheck(&mut self, pid: u32, time_ns: u64) -> bool {
        // Children that were forked have their parent's lists, which are not read before a sample needs them.
        let is_read = |process: &Process| {
            let is_file_open = process.perf_map.is_some() || process.dump.is_some();
            is_file_open || process.memory.is_some() || process.is_sampled && !process.located.is_empty()
        };
        if !self.processes.get(&pid).is_some_and(is_read) {
            return false;
        }
        let (mut process, now) = (self.take_process(pid), ReadTime::now(time_ns));
        let user = process.user();
        if self.accounts.allows(user, Instant::now()) {
            let began = thread_cpu_time();
            self.check_due_objects(&mut process, now);
            self.check_due_located(pid, &mut process, now);
            self.read_sources(pid, now, &mut process);
            self.accounts.charge(user, thread_cpu_time().saturating_sub(began), Instant::now());
        }
        let is_renamed = std::mem::take(&mut process.is_renamed);
        // A jitdump is ahead of the samples: names asked for with the time of this call are those of the code before.
        let ahead_ns = process.renamed_ns.saturating_sub(time_ns);
        process.is_renamed = (1..=AHEAD_MAX_NS).contains(&ahead_ns);
        self.processes.insert(pid, process);
        is_renamed
    }

    /// The processes with generated code.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    fn read_sources(&mut self, pid: u32, now: ReadTime, process: &mut Process) {
        self.open_perf_map(pid, now, process);
        self.read_registered(pid, now, process);
        let (mut perf_map, mut dump) = (process.perf_map.take(), process.dump.take());
        for growing in [perf_map.as_mut(), dump.as_mut()].into_iter().flatten() {
            if self.read_growth(growing, process).is_err() {
                growing.end();
                self.counters.refused += 1;
            }
        }
        (process.perf_map, process.dump) = (perf_map, dump);
    }

    fn apply(&mut self, process: &mut Process, event: DumpEvent) {
        match event {
            DumpEvent::Load { time_ns, begin, size, index, name } => {
                // An index that is used again takes no more room.
                let is_new = process.table.by_index(index).is_none();
                if let Some(symbol) = self.add(process, time_ns, begin, size, &name)
                    && (!is_new || self.range_shares.take(process.user(), 1))
                {
                    process.ranges += usize::from(is_new);
                    Arc::make_mut(&mut process.table).set_index(index, symbol);
                }
            }
            DumpEvent::Move { time_ns, begin, size, index } => match process.table.by_index(index) {
                Some(symbol) => _ = self.insert(process, begin, size, time_ns, symbol),
                None => {
                    self.counters.malformed += 1;
                    self.end_names(process, begin, size);
                }
            },
        }
    }

    fn add(
        &mut self,
        process: &mut Process,
        time_ns: u64,
        begin: u64,
        size: u64,
        name: &str,
    ) -> Option<JitSymbol> {
        self.counters.entries += 1;
        match self.names.of_file(process.user(), name) {
            Some(symbol) => self.insert(process, begin, size, time_ns, symbol).then_some(symbol),
            None => {
                self.leave_out(process, begin, size);
                None
            }
        }
    }

    /// Adds a range within the share of the user; false if there is no room.
    fn insert(
        &mut self,
        process: &mut Process,
        begin: u64,
        size: u64,
        time_ns: u64,
        symbol: JitSymbol,
    ) -> bool {
        process.latest_ns = process.latest_ns.max(time_ns);
        let table = Arc::make_mut(&mut process.table);
        let ended = table.clear(begin, size, time_ns);
        if table.has_replaced_other(ended, symbol) {
            process.is_renamed = true;
            process.renamed_ns = process.renamed_ns.max(time_ns);
        }
        self.give_ranges(process, ended);
        let user = process.user();
        if !self.range_shares.take(user, 1) {
            process.is_renamed |= ended > 0;
            self.leave_out(process, begin, size);
            self.names.release(1);
            return false;
        }
        process.ranges += 1;
        let kept = Arc::make_mut(&mut process.table).insert(begin, size, time_ns, symbol);
        if !kept {
            self.give_ranges(process, 1);
            self.leave_out(process, begin, size);
        }
        kept
    }

    /// Leaves code out for want of room. Whatever had a name at its addresses is gone all the same.
    fn leave_out(&mut self, process: &mut Process, begin: u64, size: u64) {
        process.left_out.add(begin, size);
        self.counters.dropped += 1;
        self.end_names(process, begin, size);
    }

    /// Unnamed code is at these addresses now.
    fn end_names(&mut self, process: &mut Process, begin: u64, size: u64) {
        let ended = Arc::make_mut(&mut process.table).clear(begin, size, 0);
        self.release_ranges(process, ended);
    }
}

impl Process {
    /// Whether the process has a source that may have grown.
    fn has_source(&self) -> bool {
        self.perf_map.is_some() || self.dump.is_some() || !self.descriptors.is_empty()
    }

    /// Whether it wrote a perf map. One of an earlier process with its number is none.
    fn has_map(&self) -> bool {
        self.perf_map.as_ref().is_some_and(|map| !map.is_leftover())
    }

    /// Whether a name is of code that was not compared with memory of late.
    fn is_doubtful(&self, symbol: JitSymbol, now: ReadTime) -> bool {
        let is_registered_due =
            self.objects.get(&symbol).is_some_and(|file| self.descriptors.is_due(*file, now));
        is_registered_due || self.is_located_due(symbol, now)
    }

    fn is_located_due(&self, symbol: JitSymbol, now: ReadTime) -> bool {
        self.located.get(&symbol).is_some_and(|code| code.is_due(now))
    }

    fn user(&self) -> u32 {
        self.user.unwrap_or(GONE_USER)
    }

    /// The names of its code, some of them several times.
    fn symbols(&self) -> impl Iterator<Item = JitSymbol> {
        self.table.symbols().chain(self.registered.iter().copied())
    }

    fn reason(&self, address: Avma) -> NoSymbol {
        if self.refuted.contains(address.0) {
            NoSymbol::JitRefuted
        } else if self.left_out.contains(address.0) {
            NoSymbol::JitNoRoom
        } else if self.is_late {
            NoSymbol::JitLate
        } else if !self.has_map()
            && self.dump.is_none()
            && self.table.is_empty()
            && self.registered.is_empty()
        {
            NoSymbol::JitWithoutMap
        } else {
            NoSymbol::JitNotCovered
        }
    }
}

#[cfg(test)]
mod tests;
