//! Names of code that a runtime generated while it ran.
//!
//! Owns: one table of code per process, filled from its perf map, its jitdump and what it registered for debuggers, as
//! they grow. Because: only the runtime knows these names, and it says them in files that other users could have
//! planted. Does not: find the code (an anonymous executable mapping does) or unwind it.

mod dump;
pub(crate) mod gdb;
mod perf_map;
mod table;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use deepctx_address_space::maps::{self, Mapping};
use deepctx_address_space::{Avma, NoSymbol};
use rustc_hash::FxHashMap;

pub use dump::{Dump, DumpEvent, DumpHeader, parse_dump_header, parse_jitdump, parse_records};
pub use gdb::{Function, functions};
pub use perf_map::{PerfMap, PerfMapEntry, parse_perf_map};
use table::CodeTable;

use crate::python::ProcessMemory;

/// Most processes with generated code that are followed; each may hold two descriptors.
const PROCESSES_MAX: usize = 128;
/// Most different names over all processes.
const NAMES_MAX: usize = 1 << 20;
/// Most bytes read of one file over its life.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Most functions of one process that were registered for debuggers.
const PIECES_MAX: usize = 1 << 17;
/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// Shortest time between two looks for files where there are none, after an address was not found.
const RETRY_NS: u64 = 100_000_000;
/// Time after which the files are looked at even though addresses are found: code may have been replaced.
const RENEWAL_NS: u64 = 1_000_000_000;

/// A name of generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JitSymbol(u32);

/// A function that a runtime registered for debuggers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Its name.
    pub name: &'a str,
    /// [`Function::code`]: tells it from another function of the same name.
    pub code: u64,
    /// Its place among those that the process registered, from 0 in order.
    pub order: usize,
}

/// A function that was found in memory by its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Where it begins.
    pub(crate) address: u64,
    /// Its bytes.
    pub(crate) size: u64,
    /// Its name, or several.
    pub(crate) name: String,
    /// By which whoever found it knows it again, also after it had to forget and read its files once more.
    pub(crate) number: u64,
}

/// What is known of a name.
#[derive(Debug)]
struct Named {
    name: Arc<str>,
    /// [`Function::code`] and the place among those that the process registered.
    piece: Option<(u64, usize)>,
    /// By what a compiler's files know it, if it was found by its bytes.
    loaded: Option<u64>,
}

/// Counters of [`Jit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitCounters {
    /// Pieces of code read.
    pub entries: u64,
    /// Lines and records that could not be understood.
    pub malformed: u64,
    /// Pieces of code dropped because a bound was reached.
    pub dropped: u64,
    /// Files that were there but not believed: not the process's own, not regular, not readable.
    pub refused: u64,
    /// Processes dropped to stay within the bound.
    pub processes_dropped: u64,
}

/// A file that is read as it grows.
#[derive(Debug)]
struct Growing {
    file: File,
    offset: u64,
    /// Header of a jitdump; `None` for a perf map.
    header: Option<DumpHeader>,
    ended: bool,
}

#[derive(Debug, Default)]
struct Process {
    table: Arc<CodeTable>,
    perf_map: Option<Growing>,
    dump: Option<Growing>,
    registered: gdb::Registered,
    /// Functions from there, in order.
    pieces: Vec<JitSymbol>,
    /// Opened with the first of these.
    memory: Option<ProcessMemory>,
    looked_at_ns: Option<u64>,
    asked_at_ns: u64,
}

/// Generated code of all processes.
#[derive(Debug, Default)]
pub struct Jit {
    processes: FxHashMap<u32, Process>,
    names: Vec<Named>,
    by_name: FxHashMap<Arc<str>, JitSymbol>,
    counters: JitCounters,
}

impl Jit {
    /// With nothing read.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name of the code at an address at the time of a sample. Looks at what the process's files were grown by when the
    /// address is not found; for files, at most ten times a second of the samples' clock.
    ///
    /// # Errors
    /// [`NoSymbol::JitWithoutMap`] or [`NoSymbol::JitNotCovered`].
    pub fn lookup(&mut self, pid: u32, time_ns: u64, address: Avma) -> Result<JitSymbol, NoSymbol> {
        let process = self.process(pid);
        process.asked_at_ns = process.asked_at_ns.max(time_ns);
        let found = process.table.lookup(address.0, time_ns);
        let pause = match (found, process.has_source()) {
            (Some(_), _) => RENEWAL_NS,
            (None, false) => RETRY_NS,
            // Each address is asked for once or a few times, and to see that nothing was added takes a call or two. The time of a
            // question may be long ago: that since which the process has these mappings.
            (None, true) => 0,
        };
        if process.looked_at_ns.is_none_or(|at| time_ns.saturating_sub(at) >= pause) {
            process.looked_at_ns = Some(time_ns);
            self.read(pid);
            let process = self.process(pid);
            return process.table.lookup(address.0, time_ns).ok_or(process.reason());
        }
        let reason = process.reason();
        found.ok_or(reason)
    }

    /// The text of a name.
    pub fn name(&self, symbol: JitSymbol) -> Option<&str> {
        self.names.get(symbol.0 as usize).map(|named| &*named.name)
    }

    /// The function of a name, if it was registered for debuggers.
    pub fn piece(&self, symbol: JitSymbol) -> Option<Piece<'_>> {
        let named = self.names.get(symbol.0 as usize)?;
        named.piece.map(|(code, order)| Piece { name: &named.name, code, order })
    }

    /// By what a compiler's files know the function of a name, if it was found by its bytes.
    pub(crate) fn loaded(&self, symbol: JitSymbol) -> Option<u64> {
        self.names.get(symbol.0 as usize)?.loaded
    }

    /// A function was found by its bytes.
    pub(crate) fn found_code(&mut self, pid: u32, found: Found) -> Option<JitSymbol> {
        let Found { address, size, name, number } = found;
        self.counters.entries += 1;
        let symbol = self.add_name(Named { name: name.into(), piece: None, loaded: Some(number) })?;
        let table = Arc::make_mut(&mut self.process(pid).table);
        let kept = table.insert(address, size, 0, symbol);
        self.counters.dropped += u64::from(!kept);
        Some(symbol)
    }

    /// All functions that a process registered for debuggers, in order.
    pub fn pieces(&self, pid: u32) -> impl DoubleEndedIterator<Item = Piece<'_>> {
        let pieces = self.processes.get(&pid).map_or(&[][..], |process| &process.pieces);
        pieces.iter().filter_map(|symbol| self.piece(*symbol))
    }

    /// A descriptor of GDB's interface was found in a process; the next look reads it.
    pub fn found_descriptor(&mut self, pid: u32, address: Avma) {
        let process = self.process(pid);
        process.registered.add(address.0);
        process.looked_at_ns = None;
    }

    /// A jitdump file was found among the mappings of a process.
    pub fn found_dump(&mut self, pid: u32, mapping: Option<&Mapping>) {
        let Some(mapping) = mapping else { return };
        if self.processes.get(&pid).is_some_and(|process| process.dump.is_some()) {
            return;
        }
        let opened = maps::open(pid, mapping).ok().and_then(|file| {
            let mut header = [0; dump::HEADER_BYTES];
            file.read_exact_at(&mut header, 0).ok()?;
            let header = parse_dump_header(&header)?;
            Some(Growing { file, offset: header.size.into(), header: Some(header), ended: false })
        });
        match opened {
            Some(dump) => self.process(pid).dump = Some(dump),
            None => self.counters.refused += 1,
        }
    }

    /// The child has the parent's generated code, and will write its own files.
    pub fn fork(&mut self, parent: u32, child: u32) {
        if let Some(process) = self.processes.get(&parent).filter(|process| !process.table.is_empty()) {
            let table = Arc::clone(&process.table);
            let (asked_at_ns, pieces) = (process.asked_at_ns, process.pieces.clone());
            *self.process(child) = Process { table, asked_at_ns, pieces, ..Process::default() };
        }
    }

    /// The process has another program now.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Keeps only some processes.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.processes.retain(|pid, _| keep(*pid));
    }

    /// What happened so far.
    pub const fn counters(&self) -> JitCounters {
        self.counters
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        if !self.processes.contains_key(&pid) && self.processes.len() >= PROCESSES_MAX {
            let oldest = self.processes.iter().min_by_key(|(_, p)| p.asked_at_ns).map(|(pid, _)| *pid);
            if let Some(oldest) = oldest {
                self.processes.remove(&oldest);
                self.counters.processes_dropped += 1;
            }
        }
        self.processes.entry(pid).or_default()
    }

    /// Reads what was added to the files of a process.
    fn read(&mut self, pid: u32) {
        let Some(mut process) = self.processes.remove(&pid) else { return };
        if process.perf_map.is_none() {
            match open_perf_map(pid) {
                Ok(file) => process.perf_map = Some(Growing { file, offset: 0, header: None, ended: false }),
                Err(NoSymbol::ModuleMissing | NoSymbol::ProcessGone) => {}
                Err(_) => self.counters.refused += 1,
            }
        }
        self.read_registered(pid, &mut process);
        let Process { table, perf_map, dump, .. } = &mut process;
        for growing in [perf_map.as_mut(), dump.as_mut()].into_iter().flatten() {
            if self.read_growth(growing, table).is_err() {
                growing.ended = true;
                self.counters.refused += 1;
            }
        }
        self.processes.insert(pid, process);
    }

    /// Reads what was registered for debuggers.
    fn read_registered(&mut self, pid: u32, process: &mut Process) {
        if process.registered.is_empty() {
            return;
        }
        if process.memory.is_none() {
            process.memory = ProcessMemory::open(pid).ok();
            self.counters.refused += u64::from(process.memory.is_none());
        }
        let Some(memory) = &process.memory else { return };
        for object in process.registered.read_new(memory) {
            for function in functions(&object) {
                self.counters.entries += 1;
                let symbol = if process.pieces.len() < PIECES_MAX {
                    let piece = Some((function.code, process.pieces.len()));
                    self.add_name(Named { name: function.name.into(), piece, loaded: None })
                } else {
                    None
                };
                let table = Arc::make_mut(&mut process.table);
                let kept = symbol.filter(|s| table.insert(function.address, function.size, 0, *s));
                self.counters.dropped += u64::from(kept.is_none());
                process.pieces.extend(symbol);
            }
        }
    }

    fn read_growth(&mut self, growing: &mut Growing, table: &mut Arc<CodeTable>) -> io::Result<()> {
        let size = growing.file.metadata()?.len().min(FILE_BYTES_MAX);
        if growing.header.is_none() && size < growing.offset {
            // Written anew: what it said before holds no longer.
            growing.offset = 0;
            *table = Arc::default();
        }
        let mut piece = Vec::new();
        while growing.offset < size && !growing.ended {
            piece.resize(PIECE, 0);
            let read = growing.file.read_at(&mut piece, growing.offset)?;
            piece.truncate(read);
            let before = growing.offset;
            match growing.header {
                None => {
                    let map = parse_perf_map(&piece);
                    self.counters.malformed += map.malformed;
                    growing.offset += map.consumed as u64;
                    let table = Arc::make_mut(table);
                    for entry in map.entries {
                        self.add(table, 0, entry.begin, entry.size, &entry.name);
                    }
                }
                Some(header) => {
                    let records = parse_records(&piece, header);
                    self.counters.malformed += records.malformed;
                    growing.offset = growing.offset.saturating_add(records.next);
                    growing.ended = records.ended;
                    let table = Arc::make_mut(table);
                    for event in records.events {
                        self.apply(table, event);
                    }
                }
            }
            if growing.offset == before {
                // Half a line or record: the rest is not written yet. A whole piece without a line end never will be.
                growing.ended |= read == PIECE;
                self.counters.malformed += u64::from(growing.ended);
                break;
            }
        }
        Ok(())
    }

    fn apply(&mut self, table: &mut CodeTable, event: DumpEvent) {
        match event {
            DumpEvent::Load { time_ns, begin, size, index, name } => {
                if let Some(symbol) = self.add(table, time_ns, begin, size, &name) {
                    table.number(index, symbol);
                }
            }
            DumpEvent::Move { time_ns, begin, size, index } => match table.numbered(index) {
                Some(symbol) => {
                    self.counters.dropped += u64::from(!table.insert(begin, size, time_ns, symbol))
                }
                None => self.counters.malformed += 1,
            },
        }
    }

    fn add(
        &mut self,
        table: &mut CodeTable,
        time_ns: u64,
        begin: u64,
        size: u64,
        name: &str,
    ) -> Option<JitSymbol> {
        self.counters.entries += 1;
        let symbol = match self.by_name.get(name) {
            Some(symbol) => Some(*symbol),
            None => self.new_name(name),
        };
        let kept = symbol.filter(|symbol| table.insert(begin, size, time_ns, *symbol));
        self.counters.dropped += u64::from(kept.is_none());
        kept
    }

    fn new_name(&mut self, name: &str) -> Option<JitSymbol> {
        let name: Arc<str> = name.into();
        let symbol = self.add_name(Named { name: Arc::clone(&name), piece: None, loaded: None })?;
        self.by_name.insert(name, symbol);
        Some(symbol)
    }

    fn add_name(&mut self, named: Named) -> Option<JitSymbol> {
        let room = self.names.len() < NAMES_MAX;
        let symbol = room.then(|| u32::try_from(self.names.len()).ok()).flatten()?;
        self.names.push(named);
        Some(JitSymbol(symbol))
    }
}

impl Process {
    /// Whether anything is there that may have grown.
    fn has_source(&self) -> bool {
        self.perf_map.is_some() || self.dump.is_some() || !self.registered.is_empty()
    }

    fn reason(&self) -> NoSymbol {
        if self.perf_map.is_none() && self.dump.is_none() && self.table.is_empty() {
            NoSymbol::JitWithoutMap
        } else {
            NoSymbol::JitNotCovered
        }
    }
}

/// Opens `/tmp/perf-PID.map` as the process sees it, with the pid by which it knows itself. `/tmp` is open to all
/// users: only a file of the process's own user, or of root, is believed.
fn open_perf_map(pid: u32) -> Result<File, NoSymbol> {
    let status = read_status(pid).map_err(|_| NoSymbol::ProcessGone)?;
    let status = parse_status(&status).ok_or(NoSymbol::ProcessGone)?;
    let file = maps::open_below_root(pid, Path::new(&format!("/tmp/perf-{}.map", status.own_pid)))?;
    let owner = file.metadata().map_err(|e| NoSymbol::from_io(&e))?.uid();
    if owner == status.user || owner == 0 { Ok(file) } else { Err(NoSymbol::PermissionDenied) }
}

pub(crate) fn read_status(pid: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16 << 10];
    let read = File::open(format!("/proc/{pid}/status"))?.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Of `/proc/PID/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// The pid in the innermost namespace.
    own_pid: u32,
    /// Effective user.
    pub(crate) user: u32,
}

pub(crate) fn parse_status(bytes: &[u8]) -> Option<Status> {
    let field = |key: &[u8]| {
        let line = bytes.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(key))?;
        Some(str::from_utf8(line).ok()?.split_ascii_whitespace())
    };
    // Kernels before 4.1, and those without pid namespaces, have no NSpid.
    let own_pid = field(b"NSpid:").or_else(|| field(b"Pid:"))?.next_back()?.parse().ok()?;
    let user = field(b"Uid:")?.nth(1)?.parse().ok()?;
    Some(Status { own_pid, user })
}

#[cfg(test)]
mod tests;
