//! Entry: the byte of a function that each call of it reads, and that nothing else reads as long as the function runs.
//!
//! Owns: where the first instruction of a code object lies, and in which functions it is no sign of a call. Because: an
//! interpreter's functions are data, and whoever wants to know of calls must watch that. Does not: watch.

use deepctx_common::python::NO_FIELD;

use super::layout::Layout;
use super::locate::generates_code;
use super::memory::{ReadError, TargetMemory};

/// Why calls of a function cannot be told by its first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoEntry {
    /// The process is not attached, or its memory could not be read.
    #[error("the function could not be read from the process")]
    Unreadable,
    /// Each thread has a copy of its own (free-threaded 3.14 and later).
    #[error("each thread of a free-threaded interpreter has a copy of the function")]
    CopyPerThread,
    /// The interpreter compiles what runs often: that reads no instructions.
    #[error(
        "the interpreter compiles what runs often (PYTHON_JIT), and such code calls functions without reading them"
    )]
    Compiled,
    /// A loop goes back to it (up to 3.10).
    #[error("the function begins with a loop, each round of which looks like a call (up to Python 3.10)")]
    BeginsWithLoop,
}

impl From<ReadError> for NoEntry {
    fn from(_: ReadError) -> Self {
        Self::Unreadable
    }
}

/// `PyCodeObject.co_code` up to 3.10.
const CODE_BYTES: u64 = 48;
/// Most bytes of a function in which a loop is looked for.
const BYTES_MAX: u64 = 1 << 20;

/// The address of that byte. `runtime`: address of `_PyRuntime`, or 0.
pub(super) fn entry(
    memory: &dyn TargetMemory,
    layout: &Layout,
    runtime: u64,
    code: u64,
) -> Result<u64, NoEntry> {
    if layout.kernel.code_tlbc != NO_FIELD {
        return Err(NoEntry::CopyPerThread);
    }
    if runtime != 0 && generates_code(memory, runtime, layout) {
        return Err(NoEntry::Compiled);
    }
    if layout.kernel.code_bytecode != NO_FIELD {
        return Ok(code.wrapping_add(u64::from(layout.kernel.code_bytecode)));
    }
    let bytes = memory.read_u64(code.wrapping_add(CODE_BYTES))?;
    let length = memory.read_u64(bytes.wrapping_add(u64::from(layout.user.bytes_size)))?;
    let first = bytes.wrapping_add(u64::from(layout.user.bytes_data));
    let instructions = memory.read_vec(first, length.min(BYTES_MAX) as usize)?;
    if begins_with_loop(&instructions) { Err(NoEntry::BeginsWithLoop) } else { Ok(first) }
}

/// Whether a jump leads to the first instruction. Up to 3.10 all jumps backwards are absolute (Include/opcode.h).
fn begins_with_loop(instructions: &[u8]) -> bool {
    const EXTENDED_ARG: u8 = 144;
    /// `JUMP_IF_FALSE_OR_POP`, `JUMP_IF_TRUE_OR_POP`, `JUMP_ABSOLUTE`, `POP_JUMP_IF_FALSE`, `POP_JUMP_IF_TRUE`,
    /// `JUMP_IF_NOT_EXC_MATCH`.
    const JUMPS: [u8; 6] = [111, 112, 113, 114, 115, 121];
    let mut extended = false;
    for unit in instructions.chunks_exact(2) {
        if JUMPS.contains(&unit[0]) && unit[1] == 0 && !extended {
            return true;
        }
        extended = unit[0] == EXTENDED_ARG && (extended || unit[1] != 0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::memory::RecordedMemory;
    use super::*;

    #[test]
    fn a_loop_at_the_beginning_is_told_from_others() {
        let check = |instructions: &[u8], expect| assert_eq!(begins_with_loop(instructions), expect);
        // LOAD_FAST, POP_JUMP_IF_FALSE 6, JUMP_ABSOLUTE 0.
        check(&[124, 0, 114, 6, 113, 0], true);
        check(&[124, 0, 114, 6, 113, 2], false);
        // To 256, by way of a prefix; and by way of one that adds nothing.
        check(&[144, 1, 113, 0], false);
        check(&[144, 0, 113, 0], true);
        // LOAD_CONST 0 is no jump, nor is half an instruction.
        check(&[100, 0, 113], false);
    }

    #[test]
    fn the_place_depends_on_the_version() {
        const CODE: u64 = 0x1000;
        let mut bytes = vec![0; 0x200];
        // A code object that has its instructions at 0x1100: two of them.
        bytes[48..56].copy_from_slice(&0x1100_u64.to_le_bytes());
        bytes[0x110] = 4;
        bytes[0x120..0x124].copy_from_slice(&[124, 0, 83, 0]);
        let mut memory = RecordedMemory::default();
        memory.insert(CODE, bytes);
        let check = |minor, free_threaded, expect| {
            let layout = Layout::of(minor, free_threaded).unwrap();
            assert_eq!(entry(&memory, layout, 0, CODE), expect, "3.{minor}");
        };
        check(8, false, Ok(0x1120));
        check(10, false, Ok(0x1120));
        check(11, false, Ok(CODE + 184));
        check(13, true, Ok(CODE + 216));
        check(14, false, Ok(CODE + 208));
        check(14, true, Err(NoEntry::CopyPerThread));
        let unmapped = entry(&memory, Layout::of(9, false).unwrap(), 0, 0);
        assert_eq!(unmapped, Err(NoEntry::Unreadable));
    }
}
