//! `_Py_DebugOffsets`: the layout that CPython publishes from 3.13 on.
//!
//! Owns: reading it from the start of `_PyRuntime`, and comparing it with the version table. Because: a vendor's
//! build may differ from the headers of the table; then frames must not be read. Does not: replace the table: it
//! lacks a third of the required fields (flags, keyword-only arguments, TLS).

use super::layout::Layout;
use crate::memory::{ReadError, TargetMemory};

/// The first eight bytes.
const COOKIE: [u8; 8] = *b"xdebugpy";

/// The result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugOffsets {
    /// All published offsets agree with the table.
    Agree,
    /// This field differs.
    Differ {
        /// Name of the field.
        field: &'static str,
        /// Offset in the table.
        table: u64,
        /// Published offset.
        process: u64,
    },
    /// No offsets: the cookie or the version is not the expected one.
    Missing,
}

/// Whether the interpreter whose `_PyRuntime` is at `runtime` was built without a GIL (3.13+).
///
/// # Errors
/// When memory cannot be read. `Ok(None)` without a cookie.
pub fn free_threaded(memory: &dyn TargetMemory, runtime: u64) -> Result<Option<bool>, ReadError> {
    let mut head = [0; 24];
    memory.read(runtime, &mut head)?;
    let flag =
        u64::from_le_bytes([head[16], head[17], head[18], head[19], head[20], head[21], head[22], head[23]]);
    Ok((head[..8] == COOKIE && flag <= 1).then_some(flag == 1))
}

/// `sizeof(PyInterpreterState)` in this build, which depends on more than the version (3.13+).
///
/// # Errors
/// When memory cannot be read.
pub fn interpreter_size(memory: &dyn TargetMemory, runtime: u64) -> Result<u64, ReadError> {
    memory.read_u64(runtime.wrapping_add(48))
}

/// Compares the offsets at `runtime` with the layout, field by field.
///
/// # Errors
/// When memory cannot be read.
pub fn compare(memory: &dyn TargetMemory, runtime: u64, layout: &Layout) -> Result<DebugOffsets, ReadError> {
    let Some(positions) = positions(layout.minor) else { return Ok(DebugOffsets::Missing) };
    let size = positions.iter().map(|(_, at, _)| at + 8).max().unwrap_or(24);
    let bytes = memory.read_vec(runtime, size)?;
    let at = |offset: usize| {
        bytes.get(offset..offset + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
    };
    let version = at(8) >> 16;
    if bytes[..8] != COOKIE || version != 0x300 + u64::from(layout.minor) {
        return Ok(DebugOffsets::Missing);
    }
    for (field, position, expected) in positions {
        let (process, table) = (at(position), u64::from(expected(layout)));
        if process != table {
            return Ok(DebugOffsets::Differ { field, table, process });
        }
    }
    Ok(DebugOffsets::Agree)
}

/// Gives the offset of a field in the table.
type TableOffset = fn(&Layout) -> u16;

/// A field, the position of its offset in `_Py_DebugOffsets`, and its offset in the table.
type Position = (&'static str, usize, TableOffset);

/// In the order of [`FIELDS`], for each minor version; fields were inserted between versions.
fn positions(minor: u8) -> Option<Vec<Position>> {
    let at: [usize; FIELDS.len()] = match minor {
        13 => [184, 232, 240, 248, 256, 264, 280, 288, 296, 304, 312, 320, 344, 520, 528, 544, 552, 560],
        14 => [208, 256, 264, 272, 280, 288, 320, 328, 336, 344, 352, 360, 384, 600, 608, 624, 632, 640],
        15 => [208, 320, 328, 336, 344, 352, 384, 392, 400, 408, 416, 424, 448, 696, 704, 720, 728, 736],
        _ => return None,
    };
    Some(FIELDS.iter().zip(at).map(|(&(field, of), at)| (field, at, of)).collect())
}

const FIELDS: [(&str, TableOffset); 18] = [
    ("thread_state.current_frame", |l| l.kernel.tstate_frame),
    ("interpreter_frame.previous", |l| l.kernel.frame_previous),
    ("interpreter_frame.executable", |l| l.kernel.frame_code),
    ("interpreter_frame.instr_ptr", |l| l.kernel.frame_instruction),
    ("interpreter_frame.localsplus", |l| l.user.frame_locals),
    ("interpreter_frame.owner", |l| l.kernel.frame_entry_mark),
    ("code_object.filename", |l| l.user.code_filename),
    ("code_object.name", |l| l.user.code_name),
    ("code_object.qualname", |l| l.user.code_qualname),
    ("code_object.linetable", |l| l.user.code_lines),
    ("code_object.firstlineno", |l| l.user.code_firstlineno),
    ("code_object.argcount", |l| l.user.code_argcount),
    ("code_object.co_code_adaptive", |l| l.kernel.code_bytecode),
    ("bytes_object.ob_size", |l| l.user.bytes_size),
    ("bytes_object.ob_sval", |l| l.user.bytes_data),
    ("unicode_object.state", |l| l.user.str_state),
    ("unicode_object.length", |l| l.user.str_length),
    ("unicode_object.asciiobject_size", |l| l.user.str_ascii_data),
];
