//! Generated: unwind tables of code that a process generated at run time.
//!
//! Owns: reading such code and its frame information from a process, and caching the result. Because: XLA's and
//! oneDNN's kernels run in anonymous memory, and stacks through them matter as much as any other. Does not: decode
//! what it reads ([`deepctx_symbolizer::generated`]) or place tables.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hasher as _;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use deepctx_symbolizer::generated::{GeneratedCode, described, frame_runs};
use deepctx_symbolizer::maps::{self, Backing, LineFilter, Mapping};
use deepctx_symbolizer::memory::{ProcessMemory, TargetMemory};
use deepctx_symbolizer::time_account::{Terms, TimeAccounts};
use deepctx_symbolizer::unwind_rows::PADDING_MAX;
use deepctx_symbolizer::unwind_rows::builder::{self, BuiltTable};
use deepctx_symbolizer::unwind_rows::derived::entries_of_generated_code;
use deepctx_symbolizer::{Arch, accountable_user, thread_cpu_time};
use rustc_hash::FxHasher;

use super::no_executable::{NoExecutable, RETRY_AFTER};
use super::tables::ExecutableId;

/// Largest mapping of generated code that is read; oneDNN's was 8 MB. Reading and decoding it takes 0.7 s at worst.
const CODE_BYTES_MAX: u64 = 16 << 20;
/// Most memory of a process that is searched for frame information, per scan.
const FRAME_MEMORY_MAX: u64 = 16 << 20;
/// Most mappings that are searched: numba takes two or three for each object that it compiles.
const FRAME_MAPPINGS_MAX: usize = 1 << 10;
/// Most frame information used for one mapping of code. A function has some 50 bytes.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Most runs of it, each a section of the image: an ELF file has at most 65,279. An object has one.
const RUNS_MAX: usize = 1 << 14;
/// Most mappings of generated code that are remembered, over all processes. With more, the user with most of them gives
/// way.
const KNOWN_MAX: usize = 1 << 14;

/// Bytes at the end of a function of which at least one is not zero.
const LAST_BYTES: usize = 16;

/// Time limit for reading generated code of a user's processes: others wait for their tables meanwhile.
const LOOKING: Terms =
    Terms { credit: Duration::from_secs(1), least: Duration::from_millis(10), regained: 20 };

/// How soon a known mapping is read again by a scan that found new ones: its code may have been replaced. Other scans
/// read all of them, since one of them holds the code that prompted the scan.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Most known mappings that such a scan reads again: its requester waits for rows of the new code.
const LOOKS_AGAIN_MAX: u32 = 32;

/// The last result for a mapping.
#[derive(Debug)]
struct KnownMapping {
    /// The user who was charged for it.
    user: u32,
    /// Its size in the process.
    bytes: u64,
    /// Hash of the bytes read.
    hash: u64,
    table: Result<ExecutableId, NoExecutable>,
    looked: Instant,
}

impl KnownMapping {
    /// Its result, unless its table is no longer loaded.
    fn table(&self, is_loaded: &impl Fn(ExecutableId) -> bool) -> Option<Result<ExecutableId, NoExecutable>> {
        let is_there = self.table.as_ref().map_or(true, |id| is_loaded(*id));
        is_there.then(|| self.table.clone())
    }
}

/// Result of reading a mapping.
pub(super) enum GeneratedMapping {
    /// Its table is loaded, or there is none.
    Resolved(Result<ExecutableId, NoExecutable>),
    /// A table that is not loaded yet, and the hash of its input.
    New(u64, BuiltTable),
}

/// A process with generated code.
pub(super) struct ProcessView {
    /// The user who is charged for it.
    pub(super) user: u32,
    /// All of its mappings, whatever their permissions.
    mappings: Vec<Mapping>,
    /// Access to its memory.
    memory: ProcessMemory,
    /// Frame information read so far, by the first address of its mapping.
    frames: RefCell<HashMap<u64, Rc<[Rc<FrameRun>]>>>,
    /// Bytes that may still be read for it.
    frame_memory_left: Cell<u64>,
    /// Whether it has unknown generated code.
    has_news: bool,
    /// How many known mappings may still be read again, if so.
    looks_left: Cell<u32>,
}

/// Frame information.
struct FrameRun {
    address: u64,
    bytes: Vec<u8>,
    /// The functions that it describes, sorted by begin.
    described: Vec<Range<u64>>,
}

impl FrameRun {
    /// Whether it describes any of this code.
    fn is_about(&self, code: &Mapping) -> bool {
        // The description of a signal frame begins a byte before its function.
        let from = self.described.partition_point(|function| function.start.saturating_add(1) < code.begin.0);
        self.described.get(from).is_some_and(|function| function.start < code.end.0)
    }
}

/// When to check whether all code is described: whenever there are twice as many runs. Each check goes through all of
/// them, and a process may have one in each of a thousand mappings.
#[derive(Debug, Default)]
struct DescribedChecks {
    next: usize,
}

impl DescribedChecks {
    /// Whether a check is due with this many runs.
    fn is_due(&mut self, runs: usize) -> bool {
        let is_due = runs > 0 && runs >= self.next;
        if is_due {
            self.next = 2 * runs;
        }
        is_due
    }
}

/// Whether all code in a mapping is described. Zeros, and bytes between two functions, are not code.
fn is_all_described(code: &[u8], mapping: &Mapping, by: &[Rc<FrameRun>]) -> bool {
    let all = by.iter().flat_map(|run| &run.described);
    let mut functions: Vec<&Range<u64>> = all.filter(|of| may_be_function(of, code, mapping)).collect();
    functions.sort_unstable_by_key(|function| function.start);
    let offset = |address: u64| address.saturating_sub(mapping.begin.0).min(code.len() as u64) as usize;
    let end = mapping.end.0..mapping.end.0;
    let mut described = 0;
    functions.into_iter().chain([&end]).all(|function| {
        let gap = code.get(described..offset(function.start)).unwrap_or_default();
        described = described.max(offset(function.end));
        gap.len() as u64 <= PADDING_MAX || gap.iter().all(|byte| *byte == 0)
    })
}

/// Whether a description may be of one function of a mapping: it stays within it, and does not end in zeros. Others are
/// of code that was there before, or mere data: they say nothing of whether there are true ones elsewhere.
fn may_be_function(described: &Range<u64>, code: &[u8], mapping: &Mapping) -> bool {
    // The description of a signal frame begins a byte before its function.
    let is_within = described.start.saturating_add(1) >= mapping.begin.0 && described.end <= mapping.end.0;
    let end = described.end.saturating_sub(mapping.begin.0) as usize;
    let last = code.get(end.saturating_sub(LAST_BYTES)..end).unwrap_or_default();
    is_within && last.iter().any(|byte| *byte != 0)
}

type FrameRuns = Vec<Rc<FrameRun>>;

/// Known generated code, by process and first address.
#[derive(Debug)]
pub(super) struct GeneratedCodeCache {
    known: HashMap<(u32, u64), KnownMapping>,
    accounts: TimeAccounts,
}

impl Default for GeneratedCodeCache {
    fn default() -> Self {
        Self { known: HashMap::new(), accounts: TimeAccounts::new(LOOKING) }
    }
}

impl ProcessView {
    /// The view of a running process; `has_news`: some of its generated code is unknown.
    pub(super) fn read(pid: u32, has_news: bool) -> Option<Self> {
        let user = accountable_user(pid)?;
        let mappings = maps::read(pid, LineFilter::All).ok()?.mappings;
        Some(Self {
            user,
            mappings,
            memory: ProcessMemory::open(pid).ok()?,
            frames: RefCell::default(),
            frame_memory_left: Cell::new(FRAME_MEMORY_MAX),
            has_news,
            looks_left: Cell::new(LOOKS_AGAIN_MAX),
        })
    }

    /// Whether a mapping read at that time is read again.
    fn looks_again(&self, looked: Instant) -> bool {
        let left = self.looks_left.get();
        if self.has_news && (left == 0 || looked.elapsed() < LOOK_AGAIN) {
            return false;
        }
        self.looks_left.set(left.saturating_sub(1));
        true
    }

    /// The frame information of the code in a mapping, nearest first, and whether there may be more. That of other code
    /// is excluded: it would require a new table whenever anything is compiled.
    fn frames_near(&self, code: &Mapping, bytes_of_code: &[u8]) -> (FrameRuns, bool) {
        let mut found = Vec::new();
        let mut bytes = 0;
        let mut checks = DescribedChecks::default();
        let mut mappings = frame_mappings(&self.mappings, code);
        let mut more = mappings.len() > FRAME_MAPPINGS_MAX;
        mappings.truncate(FRAME_MAPPINGS_MAX);
        for mapping in mappings {
            // Writable memory may be large, and compilers put all of their frame information into one kind.
            if mapping.writable && !found.is_empty() {
                break;
            }
            let Some(runs) = self.frames_in(mapping) else {
                more = true;
                continue;
            };
            for run in runs.iter().filter(|run| run.is_about(code)) {
                bytes += run.bytes.len();
                if found.len() == RUNS_MAX || bytes > FRAME_BYTES_MAX {
                    return (found, true);
                }
                found.push(Rc::clone(run));
            }
            // There are as many as there are objects, and each costs a request to the reader.
            if checks.is_due(found.len()) && is_all_described(bytes_of_code, code, &found) {
                return (found, false);
            }
        }
        (found, more)
    }

    /// The frame information in a mapping; none if too much was read for this process already.
    fn frames_in(&self, mapping: &Mapping) -> Option<Rc<[Rc<FrameRun>]>> {
        if let Some(known) = self.frames.borrow().get(&mapping.begin.0) {
            return Some(Rc::clone(known));
        }
        self.frame_memory_left.set(self.frame_memory_left.get().checked_sub(mapping.len())?);
        // A mapping that is gone meanwhile has none.
        let bytes = self.memory.read_vec(mapping.begin.0, mapping.len() as usize).unwrap_or_default();
        let runs: Rc<[_]> = runs(mapping.begin.0, &bytes).into();
        self.frames.borrow_mut().insert(mapping.begin.0, Rc::clone(&runs));
        Some(runs)
    }
}

/// The mappings that may hold the frame information of the code in one of them: read-only ones, nearest first, then the
/// others.
///
/// LLVM writes it into separate memory, which it then makes read-only: right beside the code (XLA), or wherever the
/// kernel finds room for a few pages (numba). Beside code it may be writable as well.
fn frame_mappings<'m>(all: &'m [Mapping], code: &Mapping) -> Vec<&'m Mapping> {
    let distance = |m: &Mapping| match m.begin < code.begin {
        true => code.begin.0.saturating_sub(m.end.0),
        false => m.begin.0.saturating_sub(code.end.0),
    };
    let may_hold = |m: &&Mapping| {
        let data = m.backing == Backing::Anonymous && m.readable && !m.executable;
        data && m.len() <= FRAME_MEMORY_MAX && (!m.writable || distance(m) == 0)
    };
    let mut mappings: Vec<_> = all.iter().filter(may_hold).collect();
    mappings.sort_by_key(|m| (m.writable, distance(m)));
    mappings
}

/// The runs of frame information in memory at an address.
fn runs(address: u64, memory: &[u8]) -> FrameRuns {
    let of = |run: Range<usize>| {
        let (address, bytes) = (address + run.start as u64, memory[run].to_vec());
        let described = described(address, &bytes);
        Rc::new(FrameRun { address, bytes, described })
    };
    frame_runs(memory).into_iter().map(of).collect()
}

impl GeneratedCodeCache {
    /// The known result for an anonymous executable mapping of a process, or a new table to be placed and reported by
    /// [`GeneratedCodeCache::placed`].
    pub(super) fn find(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        process: &ProcessView,
        is_loaded: impl Fn(ExecutableId) -> bool,
    ) -> GeneratedMapping {
        if !self.accounts.allows(process.user, Instant::now()) {
            if self.accounts.is_first_refusal(process.user) {
                tracing::warn!(
                    user = process.user,
                    "looking at generated code of this user's processes takes too long; some of it is left out"
                );
            }
            // The earlier result stays valid: only new code is left out.
            let before = self.known(pid, mapping).and_then(|known| known.table(&is_loaded));
            return GeneratedMapping::Resolved(before.unwrap_or(Err(NoExecutable::OverBudget)));
        }
        let began = thread_cpu_time();
        let found = self.look(pid, mapping, process, is_loaded);
        // Its reader charges the wait for memory of the process.
        self.accounts.charge(process.user, thread_cpu_time().saturating_sub(began), Instant::now());
        found
    }

    /// Whether a mapping was read before.
    pub(super) fn knows(&self, pid: u32, mapping: &Mapping) -> bool {
        self.known(pid, mapping).is_some()
    }

    fn known(&self, pid: u32, mapping: &Mapping) -> Option<&KnownMapping> {
        self.known.get(&(pid, mapping.begin.0)).filter(|known| known.bytes == mapping.len())
    }

    fn look(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        process: &ProcessView,
        is_loaded: impl Fn(ExecutableId) -> bool,
    ) -> GeneratedMapping {
        let known = self.known(pid, mapping).and_then(|known| Some((known.table(&is_loaded)?, known)));
        if let Some((table, known)) = &known
            && !process.looks_again(known.looked)
        {
            return GeneratedMapping::Resolved(table.clone());
        }
        let bytes = match Bytes::read(mapping, process) {
            Ok(bytes) => bytes,
            Err(reason) => {
                self.placed(pid, process.user, mapping, 0, Err(reason.clone()));
                return GeneratedMapping::Resolved(Err(reason));
            }
        };
        let hash = bytes.hash();
        if let Some((table, known)) = known.filter(|(_, known)| known.hash == hash) {
            let is_recent = known.looked.elapsed() < RETRY_AFTER;
            if !table.as_ref().is_err_and(NoExecutable::is_for_now) {
                self.placed(pid, process.user, mapping, hash, table.clone());
                return GeneratedMapping::Resolved(table);
            }
            if is_recent {
                return GeneratedMapping::Resolved(table);
            }
        }
        let more = bytes.more;
        let code = bytes.decode(mapping);
        if more {
            tracing::debug!(pid, code = mapping.begin.0, "more frame information than is taken into account");
        }
        let table = if code.frames.is_empty() && code.functions.is_empty() {
            Err(if more { NoExecutable::OverBound } else { NoExecutable::Generated })
        } else {
            builder::build_image(&code.to_elf(), process.user).map_err(NoExecutable::from)
        };
        match table {
            Ok(table) => GeneratedMapping::New(hash, table),
            Err(reason) => {
                // Another reading would give the same result.
                self.placed(pid, process.user, mapping, hash, Err(reason.clone()));
                GeneratedMapping::Resolved(Err(reason))
            }
        }
    }

    /// Records the result for a mapping of a user's process, or the placement of a new table.
    pub(super) fn placed(
        &mut self,
        pid: u32,
        user: u32,
        mapping: &Mapping,
        hash: u64,
        table: Result<ExecutableId, NoExecutable>,
    ) {
        let place = (pid, mapping.begin.0);
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&place) {
            self.forget_greediest();
        }
        let known = KnownMapping { user, bytes: mapping.len(), hash, table, looked: Instant::now() };
        self.known.insert(place, known);
    }

    /// Forgets the code of the user with most of it. That of others would be read again at their expense.
    fn forget_greediest(&mut self) {
        let mut held: HashMap<u32, usize> = HashMap::new();
        for known in self.known.values() {
            *held.entry(known.user).or_default() += 1;
        }
        let greediest = held.into_iter().max_by_key(|(user, held)| (*held, *user)).map(|(user, _)| user);
        self.known.retain(|_, known| Some(known.user) != greediest);
    }

    /// Forgets a process.
    pub(super) fn forget_process(&mut self, pid: u32) {
        self.known.retain(|(of, _), _| *of != pid);
    }
}

/// The code of a mapping, and frame information that may describe it.
struct Bytes {
    code: Vec<u8>,
    frames: FrameRuns,
    /// Whether there is more than was read.
    more: bool,
}

impl Bytes {
    fn read(mapping: &Mapping, process: &ProcessView) -> Result<Self, NoExecutable> {
        if mapping.len() > CODE_BYTES_MAX {
            return Err(NoExecutable::OverBound);
        }
        let code = process.memory.read_vec(mapping.begin.0, mapping.len() as usize);
        let code = code.map_err(|_| NoExecutable::Generated)?;
        let (mut frames, more) = process.frames_near(mapping, &code);
        let mut own = runs(mapping.begin.0, &code);
        own.retain(|run| run.is_about(mapping));
        let more = more || own.len() > RUNS_MAX;
        own.truncate(RUNS_MAX);
        frames.append(&mut own);
        Ok(Self { code, frames, more })
    }

    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(&self.code);
        for run in &self.frames {
            hasher.write_u64(run.address);
            hasher.write(&run.bytes);
        }
        hasher.finish()
    }

    fn decode(self, mapping: &Mapping) -> GeneratedCode {
        let frames = self.frames.iter().map(|run| (run.address, run.bytes.clone())).collect();
        // Kernels of oneDNN and the like have no frame information, but each begins on a new page.
        let functions = entries_of_generated_code(Arch::NATIVE, &self.code, mapping.begin.0);
        GeneratedCode { text: mapping.begin.0..mapping.end.0, code: self.code, frames, functions }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_symbolizer::unwind_rows::NoTable;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

    use super::*;

    #[test]
    fn code_that_is_too_large_to_read_says_so() {
        let check = |bytes: u64, expect: &str| {
            let (size, private) = (bytes as usize, MapFlags::PRIVATE);
            // SAFETY: new memory, anywhere; nothing refers to it, and it stays until the test ends. The pages around it
            // keep the kernel from joining it with mappings of other tests.
            let at = unsafe {
                let around =
                    mmap_anonymous(std::ptr::null_mut(), size + 2 * 4096, ProtFlags::empty(), private);
                let at = around.unwrap().byte_add(4096);
                mprotect(at, size, MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
                at
            };
            let pid = std::process::id();
            let process = ProcessView::read(pid, true).unwrap();
            let mapping = process.mappings.iter().find(|m| m.begin.0 == at as u64 && m.len() == bytes);
            let found = GeneratedCodeCache::default().find(pid, mapping.unwrap(), &process, |_| false);
            let GeneratedMapping::Resolved(Err(why)) = found else { panic!("there is a table of nothing") };
            assert_eq!(why.reason().key, expect);
        };
        check(CODE_BYTES_MAX + 4096, "generated-over-bound");
        check(4096, "generated-without-frames");
    }

    /// A page with the frame description of the first bytes of `code`, as LLVM writes it.
    fn describe(code: u64) {
        let mut run =
            vec![20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1, 0, 0];
        run.extend([24, 0, 0, 0, 28, 0, 0, 0]);
        run.extend([code, 16].map(u64::to_le_bytes).as_flattened());
        run.extend([0; 4]);
        // SAFETY: new memory, anywhere, which is written before anybody else knows of it; it stays until the test ends.
        unsafe {
            let (both, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let page = mmap_anonymous(std::ptr::null_mut(), 4096, both, private).unwrap();
            page.cast::<u8>().copy_from_nonoverlapping(run.as_ptr(), run.len());
            mprotect(page, 4096, MprotectFlags::READ).unwrap();
        }
    }

    #[test]
    fn compiled_code_leaves_tables_of_other_code() {
        let (mut generated, pid) = (GeneratedCodeCache::default(), std::process::id());
        // Unreadable pages between them, so that the kernel does not merge the mappings.
        let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE);
        // SAFETY: new memory, anywhere; nothing refers to it, and it stays until the test ends.
        let codes = unsafe {
            let begin = mmap_anonymous(std::ptr::null_mut(), 4 * 4096, none, private).unwrap();
            [1, 3].map(|page| {
                let code = begin.byte_add(page * 4096);
                mprotect(code, 4096, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
                // More than is described, so that no page of frames is skipped.
                code.cast::<u8>().write_bytes(0x90, 100);
                mprotect(code, 4096, MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
                code as u64
            })
        };
        let look = |generated: &mut GeneratedCodeCache, code: u64, has_news: bool| {
            // Nothing is read again, however long this test takes.
            generated.known.values_mut().for_each(|known| known.looked = Instant::now() + LOOK_AGAIN * 1000);
            let process = ProcessView::read(pid, has_news).unwrap();
            let mapping = process.mappings.iter().find(|mapping| mapping.begin.0 == code).unwrap();
            let (hash, table) = match generated.find(pid, mapping, &process, |_| true) {
                GeneratedMapping::New(hash, table) => (hash, table),
                GeneratedMapping::Resolved(Ok(_)) => return "known",
                GeneratedMapping::Resolved(Err(why)) => return why.reason().key,
            };
            let table = table.into_table().unwrap();
            assert_eq!(table.lookup(code).map(|rule| rule.cfa_offset), Some(8), "{code:#x}");
            generated.placed(pid, process.user, mapping, hash, Ok(ExecutableId(1)));
            "new"
        };
        let mut check = |has_news: bool, expect: [&str; 2]| {
            assert_eq!(codes.map(|code| look(&mut generated, code, has_news)), expect);
        };
        describe(codes[0]);
        check(true, ["new", "generated-without-frames"]);
        // A scan prompted by other code changes nothing.
        describe(codes[1]);
        check(true, ["known", "generated-without-frames"]);
        check(false, ["known", "new"]);
        describe(codes[0]);
        check(false, ["new", "known"]);
        // Known code is not news, whatever reading it has cost.
        let user = ProcessView::read(pid, false).unwrap().user;
        generated.accounts.charge(user, Duration::from_secs(3600), Instant::now());
        assert_eq!(look(&mut generated, codes[0], false), "known");
        generated.known.clear();
        assert_eq!(look(&mut generated, codes[0], false), "generated-over-budget");
    }

    #[test]
    fn code_that_found_no_room_is_tried_again() {
        let (mut generated, pid) = (GeneratedCodeCache::default(), std::process::id());
        let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE);
        // SAFETY: new memory, anywhere; nothing refers to it, and it stays until the test ends.
        let code = unsafe {
            // Between unreadable pages, so that the kernel does not merge it with another mapping.
            let code = mmap_anonymous(std::ptr::null_mut(), 3 * 4096, none, private).unwrap().byte_add(4096);
            mprotect(code, 4096, MprotectFlags::READ | MprotectFlags::WRITE).unwrap();
            code.cast::<u8>().write_bytes(0x90, 16);
            mprotect(code, 4096, MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
            code as u64
        };
        describe(code);
        let process = ProcessView::read(pid, false).unwrap();
        let mapping = process.mappings.iter().find(|mapping| mapping.begin.0 == code).unwrap();
        let new = |cache: &mut GeneratedCodeCache| match cache.find(pid, mapping, &process, |_| true) {
            GeneratedMapping::New(hash, _) => Some(hash),
            GeneratedMapping::Resolved(_) => None,
        };
        let passing = [NoTable::ShareSpent, NoTable::NoBuilder].map(NoExecutable::Table);
        for reason in passing.into_iter().chain([NoExecutable::Room("it is full".to_owned())]) {
            let hash = new(&mut generated).unwrap();
            generated.placed(pid, process.user, mapping, hash, Err(reason));
            assert_eq!(new(&mut generated), None, "too early");
            generated.known.values_mut().for_each(|known| known.looked -= RETRY_AFTER);
        }
        let hash = new(&mut generated).unwrap();
        generated.placed(pid, process.user, mapping, hash, Err(NoExecutable::Generated));
        assert_eq!(new(&mut generated), None);
    }

    #[test]
    fn one_users_code_does_not_displace_that_of_others() {
        let lines = b"1000-2000 r-xp 00000000 00:00 0\n";
        let mapping = &maps::parse(lines, LineFilter::All).mappings[0];
        let mut generated = GeneratedCodeCache::default();
        let place = |generated: &mut GeneratedCodeCache, pid: u32, user: u32| {
            generated.placed(pid, user, mapping, 0, Err(NoExecutable::Generated));
        };
        place(&mut generated, 0, 1001);
        (1..KNOWN_MAX as u32).for_each(|pid| place(&mut generated, pid, 1000));
        place(&mut generated, 1, 1000);
        assert_eq!(generated.known.len(), KNOWN_MAX, "it was known");
        place(&mut generated, KNOWN_MAX as u32, 1002);
        let users: Vec<bool> =
            [0, 1, KNOWN_MAX as u32].iter().map(|pid| generated.knows(*pid, mapping)).collect();
        assert_eq!(users, [true, false, true]);
    }

    #[test]
    fn descriptions_are_checked_when_there_are_twice_as_many() {
        let mut checks = DescribedChecks::default();
        let runs = [0, 0, 1, 1, 2, 3, 4, 5, 9, 17, 18];
        let due: Vec<usize> = runs.into_iter().filter(|runs| checks.is_due(*runs)).collect();
        assert_eq!(due, [1, 2, 4, 9, 18]);
    }

    #[test]
    fn code_is_described_but_for_padding() {
        let lines = b"1000-2000 r-xp 00000000 00:00 0\n";
        let mapping = &maps::parse(lines, LineFilter::All).mappings[0];
        let check = |nops: &[(usize, usize)], described: &[(u64, u64)], expect: bool| {
            let mut code = vec![0; 0x1000];
            nops.iter().for_each(|&(from, to)| code[from..to].fill(0x90));
            let described = described.iter().map(|&(from, to)| from..to).collect();
            let run = FrameRun { address: 0, bytes: Vec::new(), described };
            let found = is_all_described(&code, mapping, &[Rc::new(run)]);
            assert_eq!(found, expect, "{nops:?}");
        };
        let first = (0x1000, 0x1040);
        check(&[(0, 0x40)], &[], false);
        check(&[(0, 0x40)], &[first], true);
        check(&[(0, 0x80)], &[first], false);
        check(&[(0, 0x80)], &[first, (0x1050, 0x1080)], false);
        check(&[(0, 0x80)], &[first, (0x1048, 0x1080)], true);
        check(&[(0, 0x40), (0xf00, 0x1000)], &[first, (0x1f00, 0x2000)], true);
        // Frames of other code, or of more than there is: they describe none of it.
        check(&[(0, 0x40)], &[first, (0, u64::MAX), (0x3000, 0x4000)], true);
        check(&[(0, 0x40)], &[(0, u64::MAX)], false);
        check(&[(0, 0x40)], &[(0x800, 0x1040)], false);
        check(&[(0, 0x40)], &[(0x1000, 0x2000)], false);
        check(&[(0, 0x40)], &[(0xfff, 0x1040)], true);
        check(&[(0x800, 0x900)], &[(0x3000, 0x4000)], false);
    }

    #[test]
    fn frames_are_looked_for_in_read_only_memory_first() {
        let lines = "\
            1000-2000 r--p 00000000 00:00 0\n\
            5000-6000 rw-p 00000000 00:00 0\n\
            7000-8000 r--p 00000000 fe:00 7 /lib/a.so\n\
            9000-a000 r--p 00000000 00:00 0\n\
            a000-b000 rw-p 00000000 00:00 0\n\
            b000-c000 r-xp 00000000 00:00 0\n\
            c000-d000 ---p 00000000 00:00 0\n\
            d000-e000 r--p 00000000 00:00 0\n\
            10000-2000000 r--p 00000000 00:00 0\n";
        let all = maps::parse(lines.as_bytes(), LineFilter::All).mappings;
        let check = |code: u64, expect: &[u64]| {
            let code = all.iter().find(|mapping| mapping.begin.0 == code).unwrap();
            let found: Vec<u64> = frame_mappings(&all, code).iter().map(|mapping| mapping.begin.0).collect();
            assert_eq!(found, expect);
        };
        // Writable memory counts only beside code; other code and files never; nor anything beyond the limit.
        check(0xb000, &[0x9000, 0xd000, 0x1000, 0xa000]);
    }
}
