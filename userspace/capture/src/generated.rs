//! Generated: unwind tables of code that a process made at run time.
//!
//! Owns: reading such code and the frame information beside it out of a process, and remembering what it gave.
//! Because: XLA's and oneDNN's kernels run in anonymous memory, and a stack through them is worth as much as any other.
//! Does not: decode what it reads ([`deepctx_symbolizer::generated`]) or place tables.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::Hasher as _;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use deepctx_symbolizer::generated::{GeneratedCode, frame_runs};
use deepctx_symbolizer::maps::{self, Backing, LineFilter, Mapping};
use deepctx_symbolizer::memory::{ProcessMemory, TargetMemory};
use deepctx_symbolizer::time_account::{Terms, TimeAccounts};
use deepctx_symbolizer::unwind_rows::builder::{self, BuiltTable};
use deepctx_symbolizer::unwind_rows::derived::entries_of_generated_code;
use deepctx_symbolizer::{Arch, accountable_user, thread_cpu_time};
use rustc_hash::FxHasher;

use super::no_executable::NoExecutable;
use super::tables::ExecutableId;

/// Largest mapping of generated code that is read; oneDNN's was 8 MB. Reading and decoding it takes 0.7 s at worst.
const CODE_BYTES_MAX: u64 = 16 << 20;
/// Most memory of a process in which frame information is looked for, at each scan.
const FRAME_MEMORY_MAX: u64 = 16 << 20;
/// Most mappings in which it is looked for: numba takes two or three for each object that it compiles.
const FRAME_MAPPINGS_MAX: usize = 1 << 10;
/// Most frame information that is taken into account for one mapping of code. A function has some 50 bytes.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Most runs of it, each a section of the image: an ELF file has at most 65,279. An object has one.
const RUNS_MAX: usize = 1 << 14;
/// Most mappings of generated code that are remembered, over all processes.
const KNOWN_MAX: usize = 1 << 14;

/// What looking at generated code of a user's processes may take: others wait for their tables meanwhile.
const LOOKING: Terms =
    Terms { credit: Duration::from_secs(1), least: Duration::from_millis(10), regained: 20 };

/// What a mapping gave when it was last read.
#[derive(Debug)]
struct KnownMapping {
    /// Of the bytes that were looked at.
    hash: u64,
    table: Result<ExecutableId, NoExecutable>,
}

/// What a look at a mapping gave.
pub(super) enum GeneratedMapping {
    /// Its table is loaded, or there is none.
    Resolved(Result<ExecutableId, NoExecutable>),
    /// A table that is not loaded yet, and the hash of what it was made from.
    New(u64, BuiltTable),
}

/// A process with generated code.
pub(super) struct ProcessView {
    /// The user who answers for it.
    pub(super) user: u32,
    /// All of its mappings, whatever their permissions.
    mappings: Vec<Mapping>,
    /// A way to its memory.
    memory: ProcessMemory,
    /// Frame information by the first address of its mapping, as far as that was read.
    frames: RefCell<HashMap<u64, Rc<FrameRuns>>>,
    /// What may still be read for it.
    frame_memory_left: Cell<u64>,
}

/// Runs of frame information, with their addresses.
type FrameRuns = Vec<(u64, Vec<u8>)>;

/// What is known of generated code, by process and first address.
#[derive(Debug)]
pub(super) struct Generated {
    known: HashMap<(u32, u64), KnownMapping>,
    accounts: TimeAccounts,
}

impl Default for Generated {
    fn default() -> Self {
        Self { known: HashMap::new(), accounts: TimeAccounts::new(LOOKING) }
    }
}

impl ProcessView {
    /// Of a process that is there.
    pub(super) fn read(pid: u32) -> Option<Self> {
        let user = accountable_user(pid)?;
        let mappings = maps::read(pid, LineFilter::All).ok()?.mappings;
        Some(Self {
            user,
            mappings,
            memory: ProcessMemory::open(pid).ok()?,
            frames: RefCell::default(),
            frame_memory_left: Cell::new(FRAME_MEMORY_MAX),
        })
    }

    /// The frame information that may be that of the code in a mapping, nearest first, and whether there is more.
    fn frames_near(&self, code: &Mapping) -> (Vec<Rc<FrameRuns>>, bool) {
        let mut found = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        let mut mappings = frame_mappings(&self.mappings, code);
        let mut more = mappings.len() > FRAME_MAPPINGS_MAX;
        mappings.truncate(FRAME_MAPPINGS_MAX);
        for mapping in mappings {
            let Some(runs) = self.frames_in(mapping) else {
                more = true;
                continue;
            };
            count += runs.len();
            bytes += runs.iter().map(|(_, run)| run.len()).sum::<usize>();
            if count > RUNS_MAX || bytes > FRAME_BYTES_MAX {
                more = true;
                break;
            }
            if !runs.is_empty() {
                found.push(runs);
            }
        }
        (found, more)
    }

    /// The frame information in a mapping; none if too much was read for this process already.
    fn frames_in(&self, mapping: &Mapping) -> Option<Rc<FrameRuns>> {
        if let Some(known) = self.frames.borrow().get(&mapping.begin.0) {
            return Some(Rc::clone(known));
        }
        self.frame_memory_left.set(self.frame_memory_left.get().checked_sub(mapping.len())?);
        // One that went away in the meantime has nothing to say.
        let bytes = self.memory.read_vec(mapping.begin.0, mapping.len() as usize).unwrap_or_default();
        let runs = Rc::new(runs(mapping.begin.0, &bytes));
        self.frames.borrow_mut().insert(mapping.begin.0, Rc::clone(&runs));
        Some(runs)
    }
}

/// The mappings that may hold the frame information of the code in one of them, nearest first.
///
/// LLVM writes it into memory of its own, which it protects from writing: right beside the code (XLA), or wherever the
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
    mappings.sort_by_key(|m| distance(m));
    mappings
}

/// The runs of frame information in memory at an address.
fn runs(address: u64, memory: &[u8]) -> FrameRuns {
    let of = |run: Range<usize>| (address + run.start as u64, memory[run].to_vec());
    frame_runs(memory).into_iter().map(of).collect()
}

impl Generated {
    /// What is known of an anonymous executable mapping of a process, or a new table to be placed and reported by
    /// [`Generated::placed`].
    pub(super) fn find(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        process: &ProcessView,
        is_loaded: impl FnOnce(ExecutableId) -> bool,
    ) -> GeneratedMapping {
        if !self.accounts.allows(process.user, Instant::now()) {
            if self.accounts.is_first_refusal(process.user) {
                tracing::warn!(
                    user = process.user,
                    "looking at generated code of this user's processes takes too long; some of it is left out"
                );
            }
            return GeneratedMapping::Resolved(Err(NoExecutable::OverBudget));
        }
        let began = thread_cpu_time();
        let found = self.look(pid, mapping, process, is_loaded);
        // Waiting for memory of the process is charged by its reader.
        self.accounts.charge(process.user, thread_cpu_time().saturating_sub(began), Instant::now());
        found
    }

    fn look(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        process: &ProcessView,
        is_loaded: impl FnOnce(ExecutableId) -> bool,
    ) -> GeneratedMapping {
        let bytes = match Bytes::read(mapping, process) {
            Ok(bytes) => bytes,
            Err(reason) => return GeneratedMapping::Resolved(Err(reason)),
        };
        let hash = bytes.hash();
        if let Some(known) = self.known.get(&(pid, mapping.begin.0)).filter(|known| known.hash == hash) {
            match &known.table {
                Ok(id) if !is_loaded(*id) => {}
                table => return GeneratedMapping::Resolved(table.clone()),
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
                // Looked at once more, it would say the same again.
                self.placed(pid, mapping, hash, Err(reason.clone()));
                GeneratedMapping::Resolved(Err(reason))
            }
        }
    }

    /// Remembers what became of a new table.
    pub(super) fn placed(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        hash: u64,
        table: Result<ExecutableId, NoExecutable>,
    ) {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert((pid, mapping.begin.0), KnownMapping { hash, table });
    }

    /// Forgets a process.
    pub(super) fn forget_process(&mut self, pid: u32) {
        self.known.retain(|(of, _), _| *of != pid);
    }
}

/// The code of a mapping, and frame information that may be about it.
struct Bytes {
    code: Vec<u8>,
    frames: Vec<Rc<FrameRuns>>,
    /// Whether there is more than was taken.
    more: bool,
}

impl Bytes {
    fn read(mapping: &Mapping, process: &ProcessView) -> Result<Self, NoExecutable> {
        if mapping.len() > CODE_BYTES_MAX {
            return Err(NoExecutable::OverBound);
        }
        let code = process.memory.read_vec(mapping.begin.0, mapping.len() as usize);
        let code = code.map_err(|_| NoExecutable::Generated)?;
        let (mut frames, more) = process.frames_near(mapping);
        let mut own = runs(mapping.begin.0, &code);
        let more = more || own.len() > RUNS_MAX;
        own.truncate(RUNS_MAX);
        frames.push(Rc::new(own));
        Ok(Self { code, frames, more })
    }

    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(&self.code);
        for (address, run) in self.frames.iter().flat_map(|runs| runs.iter()) {
            hasher.write_u64(*address);
            hasher.write(run);
        }
        hasher.finish()
    }

    fn decode(self, mapping: &Mapping) -> GeneratedCode {
        let frames = self.frames.iter().flat_map(|runs| runs.iter().cloned()).collect();
        // Kernels of oneDNN and the like have no frame information, but each begins a page of its own.
        let functions = entries_of_generated_code(Arch::NATIVE, &self.code, mapping.begin.0);
        GeneratedCode { text: mapping.begin.0..mapping.end.0, code: self.code, frames, functions }
    }
}

#[cfg(test)]
mod tests {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

    use super::*;

    #[test]
    fn code_that_is_too_large_to_read_says_so() {
        let check = |bytes: u64, expect: &str| {
            let (read, private) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
            // SAFETY: new memory, anywhere; nothing refers to it, and it stays until the test ends.
            let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes as usize, read, private) }.unwrap();
            let pid = std::process::id();
            let process = ProcessView::read(pid).unwrap();
            let mapping = process.mappings.iter().find(|m| m.begin.0 == at as u64 && m.len() == bytes);
            let found = Generated::default().find(pid, mapping.unwrap(), &process, |_| false);
            let GeneratedMapping::Resolved(Err(why)) = found else { panic!("there is a table of nothing") };
            assert_eq!(why.reason().key, expect);
        };
        check(CODE_BYTES_MAX + 4096, "generated-over-bound");
        check(4096, "generated-without-frames");
    }

    #[test]
    fn frames_are_looked_for_in_read_only_memory_nearest_first() {
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
        // Writable memory counts beside code only, other code and files never, nor does more than can be read.
        check(0xb000, &[0xa000, 0x9000, 0xd000, 0x1000]);
    }
}
