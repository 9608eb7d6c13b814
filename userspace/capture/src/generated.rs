//! Generated: unwind tables of code that a process made at run time.
//!
//! Owns: reading such code and the frame information beside it out of a process, and remembering what it gave.
//! Because: XLA's and oneDNN's kernels run in anonymous memory, and a stack through them is worth as much as any other.
//! Does not: decode what it reads ([`deepctx_symbolizer::generated`]) or place tables.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::time::{Duration, Instant};

use deepctx_symbolizer::generated::{GeneratedCode, frame_runs};
use deepctx_symbolizer::maps::{self, Backing, Keep, Mapping};
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
/// Largest neighbour in which frame information is looked for.
const NEIGHBOUR_BYTES_MAX: u64 = 16 << 20;
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
pub(super) enum Found {
    /// Its table is loaded, or there is none.
    Known(Result<ExecutableId, NoExecutable>),
    /// A table that is not loaded yet, and the hash of what it was made from.
    New(u64, BuiltTable),
}

/// A process with generated code.
pub(super) struct Surroundings {
    /// The user who answers for it.
    pub(super) user: u32,
    /// All of its mappings, whatever their permissions.
    pub(super) mappings: Vec<Mapping>,
    /// A way to its memory.
    pub(super) memory: ProcessMemory,
}

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

impl Surroundings {
    /// Of a process that is there.
    pub(super) fn read(pid: u32) -> Option<Self> {
        let user = accountable_user(pid)?;
        let mappings = maps::read(pid, Keep::All).ok()?.mappings;
        Some(Self { user, mappings, memory: ProcessMemory::open(pid).ok()? })
    }
}

impl Generated {
    /// What is known of an anonymous executable mapping of a process, or a new table to be placed and reported by
    /// [`Generated::placed`].
    pub(super) fn find(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        process: &Surroundings,
        is_loaded: impl FnOnce(ExecutableId) -> bool,
    ) -> Found {
        if !self.accounts.allows(process.user, Instant::now()) {
            if self.accounts.is_first_refusal(process.user) {
                tracing::warn!(
                    user = process.user,
                    "looking at generated code of this user's processes takes too long; some of it is left out"
                );
            }
            return Found::Known(Err(NoExecutable::OverBudget));
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
        process: &Surroundings,
        is_loaded: impl FnOnce(ExecutableId) -> bool,
    ) -> Found {
        let bytes = match Bytes::read(mapping, &process.mappings, &process.memory) {
            Ok(bytes) => bytes,
            Err(reason) => return Found::Known(Err(reason)),
        };
        let hash = bytes.hash();
        if let Some(known) = self.known.get(&(pid, mapping.begin.0)).filter(|known| known.hash == hash) {
            match &known.table {
                Ok(id) if !is_loaded(*id) => {}
                table => return Found::Known(table.clone()),
            }
        }
        let code = bytes.decode(mapping);
        let table = if code.frames.is_empty() && code.functions.is_empty() {
            Err(NoExecutable::Generated)
        } else {
            builder::build_image(&code.to_elf(), process.user).map_err(NoExecutable::from)
        };
        match table {
            Ok(table) => Found::New(hash, table),
            Err(reason) => {
                // Looked at once more, it would say the same again.
                self.placed(pid, mapping, hash, Err(reason.clone()));
                Found::Known(Err(reason))
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

/// The code of a mapping, and what lies right beside it, where LLVM's linker puts the frame information.
struct Bytes {
    code: Vec<u8>,
    /// With their addresses.
    neighbours: Vec<(u64, Vec<u8>)>,
}

impl Bytes {
    fn read(mapping: &Mapping, all: &[Mapping], memory: &dyn TargetMemory) -> Result<Self, NoExecutable> {
        if mapping.len() > CODE_BYTES_MAX {
            return Err(NoExecutable::Generated);
        }
        let bytes =
            |m: &Mapping| memory.read_vec(m.begin.0, m.len() as usize).map_err(|_| NoExecutable::Generated);
        let code = bytes(mapping)?;
        let at = all.partition_point(|m| m.begin.0 < mapping.begin.0);
        let before = at.checked_sub(1).and_then(|at| all.get(at)).filter(|m| m.end == mapping.begin);
        let after = all.get(at + 1).filter(|m| m.begin == mapping.end);
        let is_data = |m: &&Mapping| {
            let data = m.backing == Backing::Anonymous && m.readable && !m.executable;
            data && m.len() <= NEIGHBOUR_BYTES_MAX
        };
        let neighbours = before.into_iter().chain(after).filter(is_data);
        // A neighbour that went away in the meantime has nothing to say.
        let neighbours = neighbours.map(|m| (m.begin.0, bytes(m).unwrap_or_default())).collect();
        Ok(Self { code, neighbours })
    }

    fn hash(&self) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(&self.code);
        for (address, bytes) in &self.neighbours {
            hasher.write_u64(*address);
            hasher.write(bytes);
        }
        hasher.finish()
    }

    fn decode(self, mapping: &Mapping) -> GeneratedCode {
        let mut frames = Vec::new();
        for (address, bytes) in &self.neighbours {
            add_runs(&mut frames, *address, bytes);
        }
        add_runs(&mut frames, mapping.begin.0, &self.code);
        // Kernels of oneDNN and the like have no frame information, but each begins a page of its own.
        let functions = entries_of_generated_code(Arch::NATIVE, &self.code, mapping.begin.0);
        GeneratedCode { text: mapping.begin.0..mapping.end.0, code: self.code, frames, functions }
    }
}

fn add_runs(frames: &mut Vec<(u64, Vec<u8>)>, address: u64, memory: &[u8]) {
    for run in frame_runs(memory) {
        frames.push((address + run.start as u64, memory[run].to_vec()));
    }
}
