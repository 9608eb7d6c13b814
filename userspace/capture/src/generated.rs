//! Generated: unwind tables of code that a process made at run time.
//!
//! Owns: reading such code and the frame information beside it out of a process, and remembering what it gave.
//! Because: XLA's and oneDNN's kernels run in anonymous memory, and a stack through them is worth as much as any other.
//! Does not: decode what it reads ([`deepctx_symbolizer::generated`]) or place tables.

use std::collections::HashMap;
use std::hash::Hasher as _;

use deepctx_symbolizer::Arch;
use deepctx_symbolizer::generated::{GeneratedCode, frame_runs};
use deepctx_symbolizer::maps::{Backing, Mapping};
use deepctx_symbolizer::memory::TargetMemory;
use deepctx_symbolizer::unwind_rows::UnwindTable;
use deepctx_symbolizer::unwind_rows::derived::entries_of_generated_code;
use rustc_hash::FxHasher;

use super::no_executable::NoExecutable;
use super::tables::ExecutableId;

/// Largest mapping of generated code that is read; oneDNN's was 8 MB.
const CODE_BYTES_MAX: u64 = 64 << 20;
/// Largest neighbour in which frame information is looked for.
const NEIGHBOUR_BYTES_MAX: u64 = 16 << 20;
/// Most mappings of generated code that are remembered, over all processes.
const KNOWN_MAX: usize = 1 << 14;

/// What a mapping gave when it was last read.
#[derive(Debug)]
struct Known {
    /// Of the bytes that the table was made from.
    hash: u64,
    table: Result<ExecutableId, NoExecutable>,
}

/// What a look at a mapping gave.
pub(super) enum Found {
    /// Its table is loaded, or there is none.
    Known(Result<ExecutableId, NoExecutable>),
    /// A table that is not loaded yet, and the hash of what it was made from.
    New(u64, Box<UnwindTable>),
}

/// What is known of generated code, by process and first address.
#[derive(Debug, Default)]
pub(super) struct Generated {
    known: HashMap<(u32, u64), Known>,
}

impl Generated {
    /// What is known of an anonymous executable mapping, or a new table to be placed and reported by
    /// [`Generated::placed`]. `all` are the mappings of the process, whatever their permissions.
    pub(super) fn find(
        &mut self,
        pid: u32,
        mapping: &Mapping,
        all: &[Mapping],
        memory: &dyn TargetMemory,
        is_loaded: impl FnOnce(ExecutableId) -> bool,
    ) -> Found {
        let code = match read(mapping, all, memory) {
            Ok(code) => code,
            Err(reason) => return Found::Known(Err(reason)),
        };
        let hash = hash(&code);
        if let Some(known) = self.known.get(&(pid, mapping.begin.0)).filter(|known| known.hash == hash) {
            match &known.table {
                Ok(id) if !is_loaded(*id) => {}
                table => return Found::Known(table.clone()),
            }
        }
        if code.frames.is_empty() && code.functions.is_empty() {
            return Found::Known(Err(NoExecutable::Generated));
        }
        match UnwindTable::from_elf(&code.to_elf()) {
            Ok(table) => Found::New(hash, Box::new(table)),
            Err(reason) => Found::Known(Err(NoExecutable::Table(reason))),
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
        self.known.insert((pid, mapping.begin.0), Known { hash, table });
    }

    /// Forgets a process.
    pub(super) fn forget_process(&mut self, pid: u32) {
        self.known.retain(|(of, _), _| *of != pid);
    }
}

/// Reads the code of a mapping and the frame information in it or right beside it, where LLVM's linker puts it.
fn read(
    mapping: &Mapping,
    all: &[Mapping],
    memory: &dyn TargetMemory,
) -> Result<GeneratedCode, NoExecutable> {
    if mapping.len() > CODE_BYTES_MAX {
        return Err(NoExecutable::Generated);
    }
    let bytes =
        |m: &Mapping| memory.read_vec(m.begin.0, m.len() as usize).map_err(|_| NoExecutable::Generated);
    let mut code = GeneratedCode {
        text: mapping.begin.0..mapping.end.0,
        code: bytes(mapping)?,
        ..GeneratedCode::default()
    };
    let at = all.partition_point(|m| m.begin.0 < mapping.begin.0);
    let before = at.checked_sub(1).and_then(|at| all.get(at)).filter(|m| m.end == mapping.begin);
    let after = all.get(at + 1).filter(|m| m.begin == mapping.end);
    for neighbour in before.into_iter().chain(after) {
        let data = neighbour.backing == Backing::Anonymous && neighbour.readable && !neighbour.executable;
        if data && neighbour.len() <= NEIGHBOUR_BYTES_MAX {
            // A neighbour that went away in the meantime has nothing to say.
            add_runs(&mut code.frames, neighbour.begin.0, &bytes(neighbour).unwrap_or_default());
        }
    }
    add_runs(&mut code.frames, mapping.begin.0, &code.code);
    // Kernels of oneDNN and the like have no frame information, but each begins a page of its own.
    code.functions = entries_of_generated_code(Arch::NATIVE, &code.code, mapping.begin.0);
    Ok(code)
}

fn add_runs(frames: &mut Vec<(u64, Vec<u8>)>, address: u64, memory: &[u8]) {
    for run in frame_runs(memory) {
        frames.push((address + run.start as u64, memory[run].to_vec()));
    }
}

fn hash(code: &GeneratedCode) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(&code.code);
    for (address, bytes) in &code.frames {
        hasher.write_u64(*address);
        hasher.write(bytes);
    }
    hasher.finish()
}
