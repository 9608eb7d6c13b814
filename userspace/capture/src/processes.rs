//! Processes: what the kernel programs know about each process, and when it is scanned again.
//!
//! Owns: scanning a process (mappings, tables, interpreter), publishing it, and the rate limit of re-scans. Because:
//! a sample with an unknown PC requests a scan, and a process whose code has no tables would request scans forever.
//! Does not: choose targets or read samples.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use deepctx_common::memory::table_bytes;
use deepctx_common::python::{NO_PYTHON, PythonProcess};
use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_common::unwind::{self, executable_flag};
use deepctx_symbolizer::NoSymbol;
use deepctx_symbolizer::maps::{self, Backing, Maps};
use deepctx_symbolizer::memory::reader::{self, Subject};
use deepctx_symbolizer::python::NoInterpreter;

use super::arena::QUARANTINE_NS;
use super::clock::monotonic_ns;
use super::executables::{Executables, MappingRows};
use super::last_samples::LastSamples;
use super::no_executable::NoExecutable;
use super::refusals::Refusals;
use super::room::Room;
use super::scan_job::{InheritedPython, ProcessReading, PythonSearch, ScanJob, ScanReading, Shape};
use super::tables::{Eviction, TableError, Tables};

/// Shortest time between two scans of one process.
const SCAN_INTERVAL_NS: u64 = 100_000_000;
/// Longest time between two scans: each scan that finds nothing new doubles the interval up to this.
const SCAN_INTERVAL_MAX_NS: u64 = 25_600_000_000;

/// How long nothing new of a user is published after the user's processes were evicted.
const HELD_BACK_NS: u64 = 10_000_000_000;
/// How long after an eviction there is more room.
const SETTLED_NS: u64 = 2 * QUARANTINE_NS;
/// Most notices on full tables.
const NOTICES_MAX: usize = 32;

/// Result of a scan, for the symbolizer.
pub struct ScanResult {
    /// The process.
    pub pid: u32,
    /// When its mappings were read, `CLOCK_MONOTONIC` nanoseconds.
    pub time_ns: u64,
    /// Its executable mappings.
    pub maps: Maps,
}

/// Why a process could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It cannot be read.
    #[error("process {pid}: {}", reason.sentence())]
    Process {
        /// The process.
        pid: u32,
        /// Why.
        reason: NoSymbol,
    },
    /// The kernel's tables are full or refuse.
    #[error(transparent)]
    Tables(#[from] TableError),
}

impl ScanError {
    /// Whether a later scan may succeed: there is no room now, or `/proc` did not answer in time, as on an
    /// overloaded machine.
    pub(crate) fn may_pass(&self) -> bool {
        use TableError::{Full, HeldBack, OverShare};
        let is_silent = matches!(self, Self::Process { reason: NoSymbol::ProcessSilent, .. });
        is_silent || matches!(self, Self::Tables(Full { .. } | OverShare { .. } | HeldBack { .. }))
    }
}

/// The table and the user that an error is about.
fn notice_key(error: &TableError) -> NoticeKey {
    let key = |room, user| NoticeKey { room, user };
    match error {
        TableError::Full { room, .. } => key(*room, None),
        TableError::OverShare { room, user, .. } => key(*room, Some(*user)),
        TableError::HeldBack { room, user } => key(*room, Some(*user)),
        // The kernel refuses: which map makes no difference.
        TableError::Map { .. } | TableError::Load(_) => key(Room::Processes, None),
    }
}

#[derive(Default)]
struct State {
    /// Numbers the programs that a process runs: data of an earlier one must not be published.
    program: u64,
    /// Identifies the program that was scanned.
    first_line: Box<[u8]>,
    shape: Shape,
    /// The interpreter, once found; looked for again when the mappings change or if it was not ready.
    python: Option<PythonProcess>,
    /// Why there is none.
    no_python: Option<NoInterpreter>,
    /// Set until the first scan.
    inherited: Option<InheritedPython>,
    last_scan_ns: u64,
    interval_ns: u64,
    missing: UnwalkableMappings,
}

impl State {
    fn of_program(program: u64) -> Self {
        Self { program, ..Self::default() }
    }

    /// Leaves its mappings out, since others need the room; it is not scanned again before this time has passed.
    fn leave_out(&mut self, mappings: u64, now_ns: u64, interval_ns: u64) {
        self.missing = UnwalkableMappings { over_share: mappings, ..UnwalkableMappings::default() };
        (self.last_scan_ns, self.interval_ns) = (now_ns, interval_ns);
    }
}

/// Mappings whose code cannot be unwound by rows, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnwalkableMappings {
    file: u64,
    rows: u64,
    room: u64,
    over_share: u64,
    over_budget: u64,
    over_bound: u64,
    left_out: u64,
}

impl UnwalkableMappings {
    /// All mappings of a process for which there was no room.
    fn refused(error: &TableError, mappings: u64) -> Self {
        match error {
            TableError::OverShare { .. } | TableError::HeldBack { .. } => {
                Self { over_share: mappings, ..Self::default() }
            }
            _ => Self { room: mappings, ..Self::default() },
        }
    }

    fn count(&mut self, reason: &NoExecutable) {
        match reason {
            NoExecutable::File(_) => self.file += 1,
            NoExecutable::Table(_) | NoExecutable::Generated => self.rows += 1,
            NoExecutable::Room(_) => self.room += 1,
            NoExecutable::OverShare(_) => self.over_share += 1,
            NoExecutable::OverBudget => self.over_budget += 1,
            NoExecutable::OverBound => self.over_bound += 1,
        }
    }

    fn add(&mut self, other: Self) {
        let Self { file, rows, room, over_share, over_budget, over_bound, left_out } = other;
        self.file += file;
        self.rows += rows;
        self.room += room;
        self.over_share += over_share;
        self.over_budget += over_budget;
        self.over_bound += over_bound;
        self.left_out += left_out;
    }
}

reasons! {
    class Unread, page "unwinding.md";
    const WITHOUT_FILE = "mapping-without-file", "executable mappings whose file could not be read";
    const WITHOUT_ROWS = "mapping-without-rows",
        "executable mappings without call frame information: walked by frame pointers, if at all";
    const WITHOUT_ROOM = "mapping-without-room", "executable mappings whose unwind table found no room";
    const OVER_SHARE = "mapping-over-share",
        "executable mappings left out: their user has most of the kernel's tables, and others need the rest";
    const OVER_BUDGET = "mapping-over-budget",
        "executable mappings of generated code not looked at: those of their user took too long";
    const OVER_BOUND = "mapping-over-bound",
        "executable mappings of generated code that is, or whose call frame information is, more than is read";
    const LEFT_OUT = "mapping-left-out", "executable mappings beyond what is kept of a process";
}

/// Counters of this stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanCounters {
    /// Scans done.
    pub scans: u64,
    /// Scans put off by the rate limit, or because too many waited.
    pub put_off: u64,
    /// Executable mappings without unwind rows because their file could not be read, at the last scan of each process.
    pub without_file: u64,
    /// The same, because their code has no call frame information.
    pub without_rows: u64,
    /// The same, because there was no room for their table.
    pub without_room: u64,
    /// The same, because their user has most of the tables and others need the rest.
    pub over_share: u64,
    /// The same, because reading generated code of their user took too long.
    pub over_budget: u64,
    /// Executable mappings with more generated code, or call frame information around it, than is read.
    pub over_bound: u64,
    /// Mappings left out because the process has too many.
    pub left_out: u64,
}

impl ScanCounters {
    /// What is missing from the tables, and how often.
    pub fn gaps(&self) -> [(&'static Reason, u64); 7] {
        [
            (WITHOUT_FILE, self.without_file),
            (WITHOUT_ROWS, self.without_rows),
            (WITHOUT_ROOM, self.without_room),
            (OVER_SHARE, self.over_share),
            (OVER_BUDGET, self.over_budget),
            (OVER_BOUND, self.over_bound),
            (LEFT_OUT, self.left_out),
        ]
    }
}

/// The processes that the kernel programs know.
pub(crate) struct Processes {
    tables: Tables,
    executables: Executables,
    states: HashMap<u32, State>,
    python: bool,
    /// Number of programs seen.
    programs: u64,
    scans: u64,
    changes: u64,
    put_off: u64,
    /// Counts of processes that are gone.
    missing_before: UnwalkableMappings,
    /// Evicted users: when, and which table was full. Nothing new of them is published for a while.
    held_back: HashMap<u32, (u64, Room)>,
    notices: Notices,
    /// Processes without unwind data, for the pipeline.
    refusals: Refusals,
    last_samples: Arc<LastSamples>,
}

/// What a notice is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct NoticeKey {
    room: Room,
    /// Whose processes; `None`: of all users.
    user: Option<u32>,
}

/// Notices about full tables: one for each table and user.
#[derive(Default)]
struct Notices {
    said: HashSet<NoticeKey>,
    waiting: Vec<String>,
}

impl Notices {
    fn add(&mut self, about: NoticeKey, text: String) {
        if self.said.len() < NOTICES_MAX && self.said.insert(about) {
            self.waiting.push(text);
        } else {
            tracing::debug!("{text}");
        }
    }
}

impl Processes {
    /// Prepares processes in these tables; looks for interpreters if `python` is set.
    pub(crate) fn new(tables: Tables, executables: Executables, python: bool) -> Self {
        let missing_before = UnwalkableMappings::default();
        let states = HashMap::new();
        Self {
            tables,
            executables,
            states,
            python,
            programs: 0,
            scans: 0,
            changes: 0,
            put_off: 0,
            missing_before,
            held_back: HashMap::new(),
            notices: Notices::default(),
            refusals: Refusals::default(),
            last_samples: Arc::default(),
        }
    }

    /// Where to say who was sampled: others give way first.
    pub(crate) fn last_samples(&self) -> &Arc<LastSamples> {
        &self.last_samples
    }

    /// The tables.
    pub(crate) fn tables(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// Processes without unwind data, which the pipeline does not know of yet.
    pub(crate) fn refusals(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    /// Bytes in this process's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let of = |state: &State| state.first_line.len() + size_of_val(&*state.shape);
        self.states.values().map(of).sum::<usize>()
            + table_bytes(self.states.capacity(), size_of::<(u32, State)>())
            + self.tables.held_bytes()
            + self.executables.held_bytes()
            + self.refusals.held_bytes()
    }

    /// Notices since the last call.
    pub(crate) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices.waiting)
    }

    /// Prepares a process, for the first time or again.
    ///
    /// # Errors
    /// As of [`Self::finish`].
    pub(crate) fn scan(&mut self, pid: u32) -> Result<ScanResult, ScanError> {
        let reading = self.begin(pid).read();
        self.finish(reading)
    }

    /// Begins a scan: returns the job that a reader runs.
    pub(crate) fn begin(&mut self, pid: u32) -> ScanJob {
        self.scans += 1;
        let now_ns = monotonic_ns();
        self.programs += 1;
        let state = self.states.entry(pid).or_insert_with(|| State::of_program(self.programs));
        // Until it is finished, samples request no other one.
        state.last_scan_ns = now_ns;
        state.interval_ns = state.interval_ns.max(SCAN_INTERVAL_NS);
        let python = match (&state.no_python, state.inherited.take()) {
            _ if !self.python => PythonSearch::Never,
            _ if state.python.is_some() => PythonSearch::IfProgramDiffers(state.first_line.clone()),
            (_, Some(inherited)) => PythonSearch::UnlessInherited(inherited),
            (Some(reason), _) if reason.may_change() => PythonSearch::Always,
            _ => PythonSearch::IfMappingsDiffer(state.shape.clone()),
        };
        let program = state.program;
        let held_back = self.held_back.iter().filter(|(_, (since, _))| now_ns < since + HELD_BACK_NS);
        let held_back = held_back.map(|(user, (_, room))| (*user, *room)).collect();
        ScanJob { pid, program, python, held_back, files: self.executables.files() }
    }

    /// Publishes the reading of a process. If a table is full, processes of the user with most of it are evicted, or
    /// idle ones: there is room at the next scan.
    ///
    /// # Errors
    /// It could not be read, runs another program by now, or has no room.
    pub(crate) fn finish(&mut self, reading: ScanReading) -> Result<ScanResult, ScanError> {
        let (pid, read_ns) = (reading.pid, reading.process.as_ref().map_or(0, |process| process.time_ns));
        let finished = self.publish(reading);
        match &finished {
            Ok(_) => self.refusals.forget(pid),
            Err(ScanError::Tables(error)) => {
                self.notices.add(notice_key(error), error.to_string());
                self.refusals.refused(pid, read_ns, error);
            }
            // There may be data of it, and it was not refused any.
            Err(ScanError::Process { .. }) => {}
        }
        let now_ns = monotonic_ns();
        match self.tables.give_way(pid, &self.last_samples, now_ns) {
            Some(Eviction { user, room, pids, idle: false }) => self.make_room(user, room, &pids, now_ns),
            Some(Eviction { user, room, pids, idle: true }) => {
                tracing::debug!(user, %room, processes = pids.len(), "idle processes give way");
                // They are scanned again as soon as they are sampled, and who asked once there is room.
                self.evict(&pids, SCAN_INTERVAL_NS, now_ns);
                if let Some(state) = self.states.get_mut(&pid) {
                    state.interval_ns = state.interval_ns.min(SETTLED_NS);
                }
            }
            None => {}
        }
        finished
    }

    /// Evicts processes of a user for a while: others need the room.
    fn make_room(&mut self, user: u32, room: Room, pids: &[u32], now_ns: u64) {
        // Slots given back are not free yet.
        let unsettled = self.held_back.get(&user).is_some_and(|(since, _)| now_ns < since + SETTLED_NS);
        if unsettled || pids.is_empty() {
            return;
        }
        self.held_back.retain(|_, (since, _)| now_ns < *since + HELD_BACK_NS);
        self.held_back.insert(user, (now_ns, room));
        let processes = if pids.len() == 1 { "process" } else { "processes" };
        let text = format!(
            "user {user} has most of the kernel's {room}, and others need some: stacks of {} {processes} of theirs \
             stay incomplete for a while",
            pids.len()
        );
        self.notices.add(NoticeKey { room, user: Some(user) }, text);
        self.evict(pids, SCAN_INTERVAL_MAX_NS, now_ns);
    }

    /// Removes what the kernel programs know of processes.
    fn evict(&mut self, pids: &[u32], interval_ns: u64, now_ns: u64) {
        for &pid in pids {
            let mappings = self.tables.mappings_of(pid) as u64;
            let gone = self.tables.remove_process(pid, now_ns);
            self.executables.forget(&gone);
            self.refusals.evicted(pid, now_ns);
            if let Some(state) = self.states.get_mut(&pid) {
                state.leave_out(mappings, now_ns, interval_ns);
            }
        }
    }

    fn publish(&mut self, reading: ScanReading) -> Result<ScanResult, ScanError> {
        let now_ns = monotonic_ns();
        self.tables.settle(now_ns);
        let ScanReading { pid, program, process } = reading;
        let process = process.inspect_err(|reason| self.not_read(pid, program, *reason, now_ns));
        let ProcessReading { time_ns, account, maps, shape, files, interpreter } =
            process.map_err(|reason| ScanError::Process { pid, reason })?;
        let gone = ScanError::Process { pid, reason: NoSymbol::ProcessGone };
        let state = self.states.get_mut(&pid).filter(|state| state.program == program).ok_or(gone)?;
        let held_back = self.held_back.get(&account).filter(|(since, _)| now_ns < since + HELD_BACK_NS);
        let files = match (files, held_back) {
            (Ok(files), None) => files,
            (Err(room), _) | (_, Some(&(_, room))) => {
                state.leave_out(shape.len() as u64, now_ns, SCAN_INTERVAL_MAX_NS);
                return Err(TableError::HeldBack { room, user: account }.into());
            }
        };
        let changed = state.shape != shape;
        self.changes += u64::from(changed);
        state.first_line = maps.first_line.clone();
        state.last_scan_ns = now_ns;
        state.interval_ns = if changed {
            SCAN_INTERVAL_NS
        } else {
            (state.interval_ns * 2).clamp(SCAN_INTERVAL_NS, SCAN_INTERVAL_MAX_NS)
        };
        state.shape = shape;
        match interpreter {
            Some(Ok(process)) => state.python = Some(process),
            Some(Err(reason)) => {
                tracing::debug!(pid, %reason, "no interpreter");
                // One that was found before was of another program.
                (state.python, state.no_python) = (None, Some(reason));
            }
            None => {}
        }
        let python = state.python.unwrap_or(PythonProcess { layout: NO_PYTHON, ..PythonProcess::default() });

        let located = self.executables.locate(pid, &maps.mappings, files, &mut self.tables, account, now_ns);
        let (mappings, mut missing) = walked_mappings(pid, &maps, &located);
        let published = self.tables.set_process(pid, account, &mappings, python, now_ns);
        let published = published
            .inspect_err(|error| state.missing = UnwalkableMappings::refused(error, mappings.len() as u64))?;
        self.executables.forget(&published.gone);
        missing.left_out = published.left_out as u64;
        state.missing = missing;
        tracing::debug!(pid, ?missing, "scanned");
        Ok(ScanResult { pid, time_ns, maps })
    }

    /// Forgets a process that was gone before the first scan of its program.
    fn not_read(&mut self, pid: u32, program: u64, reason: NoSymbol, now_ns: u64) {
        let is_new = |state: &State| state.program == program && state.shape.is_empty();
        if reason != NoSymbol::ProcessGone || !self.states.get(&pid).is_some_and(is_new) {
            return;
        }
        if self.tables.mappings_of(pid) > 0 {
            // Those of its program before the exec: nobody else would free them if the record of its end is lost.
            self.remove(pid, now_ns);
        } else {
            self.states.remove(&pid);
        }
    }

    /// How many scans found other mappings than the one before.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether the process runs the program that it ran when it was scanned.
    pub(crate) fn is_scanned(&self, pid: u32) -> bool {
        self.states.get(&pid).is_some_and(|state| state.first_line == first_line(pid))
    }

    /// Whether the rate limit lets `pid` be scanned now. A refusal is counted.
    pub(crate) fn may_scan(&mut self, pid: u32, now_ns: u64) -> bool {
        let Some(state) = self.states.get(&pid) else { return true };
        let may = now_ns.saturating_sub(state.last_scan_ns) >= state.interval_ns;
        if !may {
            self.put_off();
        }
        may
    }

    /// Counts a requested scan that is not done.
    pub(crate) fn put_off(&mut self) {
        self.put_off += 1;
    }

    /// The counters so far.
    pub(crate) fn counters(&self) -> ScanCounters {
        let mut missing = self.missing_before;
        for state in self.states.values() {
            missing.add(state.missing);
        }
        let UnwalkableMappings { file, rows, room, over_share, over_budget, over_bound, left_out } = missing;
        let Self { scans, put_off, .. } = *self;
        ScanCounters {
            scans,
            put_off,
            without_file: file,
            without_rows: rows,
            without_room: room,
            over_share,
            over_budget,
            over_bound,
            left_out,
        }
    }

    /// A process was forked: it has its parent's interpreter, or none like its parent, until it maps something else.
    pub(crate) fn forked(&mut self, parent: u32, child: u32) {
        let Some(of) = self.states.get(&parent) else { return };
        let interpreter = match (of.python, of.no_python) {
            (Some(python), _) => Ok(python),
            (None, Some(reason)) if !reason.may_change() => Err(reason),
            (None, _) => return,
        };
        let inherited = Some(InheritedPython { interpreter, shape: of.shape.clone() });
        self.programs += 1;
        let state = State { inherited, ..State::of_program(self.programs) };
        self.states.entry(child).or_insert(state);
    }

    /// The process runs another program: forgets its interpreter and its code, and allows a scan at once.
    pub(crate) fn exec(&mut self, pid: u32) {
        self.programs += 1;
        self.refusals.forget(pid);
        self.executables.forget_process(pid);
        let before = self.states.insert(pid, State::of_program(self.programs));
        self.missing_before.add(before.unwrap_or_default().missing);
    }

    /// The process ended.
    pub(crate) fn remove(&mut self, pid: u32, now_ns: u64) {
        let before = self.states.remove(&pid);
        self.missing_before.add(before.unwrap_or_default().missing);
        self.refusals.forget(pid);
        self.executables.forget_process(pid);
        let gone = self.tables.remove_process(pid, now_ns);
        self.executables.forget(&gone);
    }

    /// Forgets processes that are gone although nobody reported it: requests may be dropped under load.
    pub(crate) fn sweep(&mut self, now_ns: u64) {
        let gone: Vec<u32> =
            self.states.keys().copied().filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()).collect();
        for pid in gone {
            self.remove(pid, now_ns);
        }
    }

    /// Processes whose interpreter was not ready when scanned, and that may be scanned again now.
    pub(crate) fn unready(&self, now_ns: u64) -> Vec<u32> {
        self.states
            .iter()
            .filter(|(_, s)| matches!(s.no_python, Some(NoInterpreter::NotInitialised)) && s.python.is_none())
            .filter(|(_, s)| now_ns.saturating_sub(s.last_scan_ns) >= s.interval_ns)
            .map(|(pid, _)| *pid)
            .collect()
    }
}

/// The first mapping of a process: a new program has another one, since it lies at another address or is of another
/// file. (One at a fixed address that execs itself is detected through the addresses of its libraries.)
fn first_line(pid: u32) -> Box<[u8]> {
    /// Longer than any line.
    const LINE_MAX: u64 = 8192;
    let read = reader::read_proc(&Subject::of(pid), "maps", LINE_MAX).unwrap_or_default();
    maps::first_line(&read)
}

/// The mappings for the walker, and those without a table.
fn walked_mappings(
    pid: u32,
    maps: &Maps,
    located: &[MappingRows],
) -> (Vec<unwind::Mapping>, UnwalkableMappings) {
    let mut missing = UnwalkableMappings::default();
    let mappings = maps
        .mappings
        .iter()
        .zip(located)
        // The walker passes this one by asking the kernel, and only for addresses without a known mapping.
        .filter(|(m, _)| m.backing != Backing::Uprobes)
        .map(|(m, located)| {
            let executable = match &located.table {
                Ok(id) => id.0,
                Err(reason) => {
                    missing.count(reason);
                    tracing::debug!(pid, mapping = %Executables::describe(m), %reason, "no unwind table");
                    0
                }
            };
            unwind::Mapping {
                begin: m.begin.0,
                end: m.end.0,
                bias: located.bias,
                executable,
                flags: flags(m.backing, located.table.is_ok()),
            }
        })
        .collect();
    (mappings, missing)
}

/// How the walker treats a mapping: without rows it follows frame pointers in generated or hand-written code.
pub(crate) fn flags(backing: Backing, has_table: bool) -> u32 {
    match backing {
        Backing::Vdso => executable_flag::VDSO,
        Backing::Anonymous => executable_flag::ANONYMOUS | executable_flag::FRAME_POINTERS,
        // Code of a file without any call frame information: Go, or hand-written.
        Backing::File | Backing::DeletedFile | Backing::Memfd if !has_table => {
            executable_flag::FRAME_POINTERS
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use deepctx_pipeline::input::{ProcessRefusal, RefusedProcess};

    use super::*;

    /// The refusals that wait, by process.
    fn refused(processes: &mut Processes) -> Vec<RefusedProcess> {
        let mut all = Vec::new();
        processes.refusals().hand_on(|refused, _| {
            all = refused;
            false
        });
        all.sort_unstable_by_key(|refused| refused.pid);
        all
    }

    #[test]
    fn processes_without_unwind_data_are_reported() {
        let mut processes = Processes::new(Tables::default(), Executables::new(None), false);
        // No process has these numbers.
        let ([evicted, pid], user) = ([u32::MAX - 1, u32::MAX], 1000);
        let mapping = unwind::Mapping { begin: 0x1000, end: 0x2000, ..unwind::Mapping::default() };
        processes.tables().set_process(evicted, user, &[mapping], PythonProcess::default(), 0).unwrap();
        processes.make_room(user, Room::Mappings, &[evicted], 50);
        let program = processes.begin(pid).program;
        let (maps, files) = (Maps::default(), Err(Room::Mappings));
        let process =
            ProcessReading { time_ns: 60, account: user, maps, shape: vec![], files, interpreter: None };
        assert!(processes.finish(ScanReading { pid, program, process: Ok(process) }).is_err());
        let reported = |pid, since_ns| RefusedProcess { pid, since_ns, refusal: ProcessRefusal::GaveWay };
        assert_eq!(refused(&mut processes), [reported(evicted, 50), reported(pid, 60)]);
        processes.exec(pid);
        processes.remove(evicted, 70);
        assert!(refused(&mut processes).is_empty(), "their numbers mean others now");
    }

    #[test]
    fn who_ends_right_after_an_exec_leaves_no_tables() {
        let mut processes = Processes::new(Tables::default(), Executables::new(None), false);
        // No process has this number.
        let (pid, user) = (u32::MAX, 1000);
        let mapping = unwind::Mapping { begin: 0x1000, end: 0x2000, ..unwind::Mapping::default() };
        processes.tables().set_process(pid, user, &[mapping], PythonProcess::default(), 0).unwrap();
        processes.exec(pid);
        assert!(processes.scan(pid).is_err());
        assert_eq!((processes.tables().mappings_of(pid), processes.states.len()), (0, 0));
    }
}
