//! Field offsets of each CPython version: one row per version.
//!
//! Owns: the version tables for the walker in the kernel and the readers in user space, and their stable numbers.
//! Because: supporting another version must mean adding one row here. Does not: read a process. A test compares the
//! rows with the headers of installed interpreters; from 3.13 on they are also compared with the offsets that the
//! process publishes ([`super::debug_offsets`]).

use deepctx_common::python::{
    CalledFunction, LAYOUTS_MAX, NO_CFRAME, NO_FIELD, PythonLayout, entry_rule::*, instruction_kind::*,
};

use super::lines::LineFormat;

/// Everything that depends on the version of the interpreter. For x86-64; offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `n` of `3.n`.
    pub minor: u8,
    /// Built with `--disable-gil`.
    pub free_threaded: bool,
    /// Offsets for the walker in the kernel.
    pub kernel: PythonLayout,
    /// Offsets for the readers in user space.
    pub user: UserLayout,
}

/// Offsets that only user space needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserLayout {
    /// `PyObject.ob_type`.
    pub object_type: u16,
    /// `PyCodeObject.co_argcount` (i32).
    pub code_argcount: u16,
    /// `PyCodeObject.co_flags` (i32).
    pub code_flags: u16,
    /// `PyCodeObject.co_firstlineno` (i32).
    pub code_firstlineno: u16,
    /// `PyCodeObject.co_filename`.
    pub code_filename: u16,
    /// `PyCodeObject.co_name`.
    pub code_name: u16,
    /// `PyCodeObject.co_qualname` (3.11+), or [`NO_FIELD`].
    pub code_qualname: u16,
    /// `PyCodeObject.co_lnotab` or `co_linetable`.
    pub code_lines: u16,
    /// `PyCodeObject._co_firsttraceable` (3.11+), or [`NO_FIELD`]: the code unit from which on the function has
    /// started.
    pub code_first_traceable: u16,
    /// The format of that table.
    pub line_format: LineFormat,
    /// `PyBytesObject.ob_size`.
    pub bytes_size: u16,
    /// `PyBytesObject.ob_sval`.
    pub bytes_data: u16,
    /// `PyASCIIObject.length`, in code points.
    pub str_length: u16,
    /// `PyASCIIObject.state`.
    pub str_state: u16,
    /// Position of the three bits `state.kind`; `compact` and `ascii` are the two bits above them.
    pub str_kind_shift: u8,
    /// `sizeof(PyASCIIObject)`: offset of the characters of an ASCII string.
    pub str_ascii_data: u16,
    /// `sizeof(PyCompactUnicodeObject)`: offset of the characters of other strings, or of the pointer to them.
    pub str_compact_data: u16,
    /// `_PyRuntime` → the `Py_tss_t` whose slot holds each thread's state; [`NO_FIELD`] where that is a TLS variable.
    pub runtime_tss: u16,
    /// `_PyRuntime` → the state of the thread that holds the GIL (up to 3.11), or [`NO_FIELD`]. Thread states of a
    /// sub-interpreter are found only by it.
    pub runtime_running: u16,
    /// Frame → its `owner` byte (3.11+), or [`NO_FIELD`].
    pub frame_owner: u16,
    /// Frame → its first local variable (`f_localsplus`, `localsplus`).
    pub frame_locals: u16,
    /// `_PyRuntime` → the main interpreter, for versions with `interpreter_jit`.
    pub runtime_main: u16,
    /// `PyInterpreterState.jit`: the interpreter generates code that cannot be unwound by itself (3.14); else 0.
    /// Optional parts of the structure precede it, so the offset holds only if `PyInterpreterState` has
    /// `interpreter_size` bytes.
    pub interpreter_jit: u32,
    /// `sizeof(PyInterpreterState)` with a JIT and with a GIL; else 0.
    pub interpreter_size: u32,
}

impl Layout {
    /// The stable number of this layout: its index in the `PYTHON_LAYOUTS` map.
    pub const fn index(&self) -> u32 {
        (self.minor as u32 - OLDEST_MINOR as u32) * 2 + self.free_threaded as u32
    }

    /// Offsets for the walker in the kernel when it reports coroutines.
    pub const fn kernel_with_coroutines(&self) -> PythonLayout {
        let owner = if self.user.frame_owner == NO_FIELD { 0 } else { self.user.frame_owner };
        PythonLayout { frame_owner: owner, ..self.kernel }
    }

    /// Offsets for the kernel programs to report the object that a function is called on.
    pub fn called(&self, code: u64) -> CalledFunction {
        let user = &self.user;
        CalledFunction { code, frame_locals: user.frame_locals.into(), object_type: user.object_type.into() }
    }

    /// The layout of `3.minor`, or `None` when the version is not supported.
    pub fn of(minor: u8, free_threaded: bool) -> Option<&'static Self> {
        ALL.iter().find(|layout| layout.minor == minor && layout.free_threaded == free_threaded)
    }

    /// The layout with this stable number.
    pub fn by_index(index: u32) -> Option<&'static Self> {
        ALL.iter().find(|layout| layout.index() == index)
    }
}

/// Every supported layout, for the loader to fill the map: `PYTHON_LAYOUTS[layout.index()] = layout.kernel`.
pub fn all_layouts() -> &'static [Layout] {
    ALL
}

/// `n` of the oldest supported `3.n`.
pub const OLDEST_MINOR: u8 = 8;

/// The words of a code object that distinguish it from others.
#[derive(Clone, Copy)]
struct CodeIdentity {
    /// Offset of the first word.
    first: u16,
    /// Number of words.
    words: u16,
    /// Offset of `co_name` from the first word, if the hash of the name counts too; else 0.
    name: u16,
}

/// A layout with the offsets in code objects.
const fn code(kernel: PythonLayout, identity: CodeIdentity, bytecode: u16) -> PythonLayout {
    PythonLayout {
        code_name: identity.name,
        code_identity: identity.first,
        code_identity_words: identity.words,
        code_bytecode: bytecode,
        ..kernel
    }
}

/// Frames up to 3.10: objects on a chain of `f_back`, one per evaluation.
const FRAMES_3_8: PythonLayout = PythonLayout {
    tstate_frame: 24,
    cframe_current_frame: NO_CFRAME,
    tstate_thread_id: 176,
    frame_code: 32,
    frame_previous: 24,
    frame_instruction: 104,
    frame_entry_mark: NO_FIELD,
    code_identity: NO_FIELD,
    code_identity_words: 0,
    code_bytecode: NO_FIELD,
    frame_tlbc_index: NO_FIELD,
    code_tlbc: NO_FIELD,
    instruction_kind: BYTE_OFFSET,
    entry_rule: ONE_PER_EVAL,
    entry_value: 0,
    code_tag_mask: 0,
    frame_owner: 0,
    code_name: 0,
};
const FRAMES_3_10: PythonLayout =
    PythonLayout { frame_instruction: 96, instruction_kind: UNIT_OFFSET, ..FRAMES_3_8 };
/// 3.11: interpreter frames without objects; `is_entry` marks the last of an evaluation.
const FRAMES_3_11: PythonLayout = PythonLayout {
    tstate_frame: 56,
    cframe_current_frame: 8,
    tstate_thread_id: 152,
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_entry_mark: 68,
    instruction_kind: POINTER,
    entry_rule: LAST_REAL,
    entry_value: 1,
    ..FRAMES_3_8
};
/// 3.12: `owner` = `FRAME_OWNED_BY_CSTACK` marks a sentinel below the frames of an evaluation.
const FRAMES_3_12: PythonLayout = PythonLayout {
    tstate_frame: 56,
    cframe_current_frame: 0,
    tstate_thread_id: 136,
    frame_code: 0,
    frame_previous: 8,
    frame_instruction: 56,
    frame_entry_mark: 70,
    instruction_kind: POINTER,
    entry_rule: SENTINEL,
    entry_value: 3,
    ..FRAMES_3_8
};
const FRAMES_3_13: PythonLayout =
    PythonLayout { tstate_frame: 72, cframe_current_frame: NO_CFRAME, tstate_thread_id: 152, ..FRAMES_3_12 };
/// 3.14: references carry tags in their low bits; `owner` = `FRAME_OWNED_BY_INTERPRETER`.
const FRAMES_3_14: PythonLayout = PythonLayout { frame_entry_mark: 74, code_tag_mask: 3, ..FRAMES_3_13 };
const FRAMES_3_14T: PythonLayout = PythonLayout {
    frame_entry_mark: 78,
    frame_tlbc_index: 72,
    code_tlbc: 224,
    code_tag_mask: 1,
    ..FRAMES_3_13
};
const FRAMES_3_15: PythonLayout = PythonLayout { tstate_thread_id: 176, ..FRAMES_3_14 };
const FRAMES_3_15T: PythonLayout = PythonLayout { tstate_thread_id: 176, ..FRAMES_3_14T };

/// From `co_argcount` to `co_lnotab`, with `co_name`.
const CODE_3_8: CodeIdentity = CodeIdentity { first: 16, words: 14, name: USER_3_8.code_name - 16 };
/// From `co_argcount` to `co_linetable`, with `co_name`.
const CODE_3_11: CodeIdentity = CodeIdentity { first: 56, words: 11, name: USER_3_11.code_name - 56 };
/// From `co_flags` to `co_version`.
const CODE_3_12: CodeIdentity = CodeIdentity { first: 48, words: 6, name: 0 };
const CODE_3_13T: CodeIdentity = CodeIdentity { first: 64, words: 6, name: 0 };

const USER_3_8: UserLayout = UserLayout {
    object_type: 8,
    code_argcount: 16,
    code_flags: 36,
    code_firstlineno: 40,
    code_filename: 104,
    code_name: 112,
    code_qualname: NO_FIELD,
    code_lines: 120,
    code_first_traceable: NO_FIELD,
    line_format: LineFormat::Lnotab,
    bytes_size: 16,
    bytes_data: 32,
    str_length: 16,
    str_state: 32,
    str_kind_shift: 2,
    str_ascii_data: 48,
    str_compact_data: 72,
    runtime_tss: 1392,
    runtime_running: 1368,
    frame_owner: NO_FIELD,
    frame_locals: 360,
    runtime_main: NO_FIELD,
    interpreter_jit: 0,
    interpreter_size: 0,
};
const USER_3_9: UserLayout = UserLayout { runtime_tss: 584, runtime_running: 568, ..USER_3_8 };
const USER_3_10: UserLayout = UserLayout { line_format: LineFormat::Ranges, frame_locals: 352, ..USER_3_9 };
const USER_3_11: UserLayout = UserLayout {
    code_argcount: 56,
    code_flags: 48,
    code_firstlineno: 72,
    code_filename: 112,
    code_name: 120,
    code_qualname: 128,
    code_lines: 136,
    code_first_traceable: 168,
    line_format: LineFormat::Locations,
    runtime_tss: 592,
    runtime_running: 576,
    frame_owner: 69,
    frame_locals: 72,
    ..USER_3_8
};
const USER_3_12: UserLayout = UserLayout {
    code_argcount: 52,
    code_firstlineno: 68,
    code_first_traceable: 176,
    str_ascii_data: 40,
    str_compact_data: 56,
    runtime_tss: 1544,
    runtime_running: NO_FIELD,
    frame_owner: FRAMES_3_12.frame_entry_mark,
    ..USER_3_11
};
const USER_3_13: UserLayout = UserLayout { runtime_tss: 2160, code_first_traceable: 184, ..USER_3_12 };
/// Without a GIL every object header is 16 bytes longer.
const USER_3_13T: UserLayout = UserLayout {
    object_type: 24,
    code_argcount: 68,
    code_flags: 64,
    code_firstlineno: 84,
    code_filename: 128,
    code_name: 136,
    code_qualname: 144,
    code_lines: 152,
    code_first_traceable: 200,
    bytes_size: 32,
    bytes_data: 48,
    str_length: 32,
    str_state: 48,
    str_ascii_data: 56,
    str_compact_data: 72,
    ..USER_3_13
};
const USER_3_14: UserLayout = UserLayout {
    runtime_tss: 2336,
    code_first_traceable: 192,
    frame_owner: FRAMES_3_14.frame_entry_mark,
    frame_locals: 80,
    runtime_main: 816,
    interpreter_jit: 223_184,
    interpreter_size: 225_864,
    ..USER_3_13
};
/// `interned` is a separate byte there, so that it can be written without the neighboring bits.
const USER_3_14T: UserLayout = UserLayout {
    str_kind_shift: 8,
    runtime_tss: 2336,
    code_first_traceable: 208,
    frame_owner: FRAMES_3_14T.frame_entry_mark,
    frame_locals: 80,
    ..USER_3_13T
};
/// 3.15 keeps the thread state in TLS variables only.
const USER_3_15: UserLayout = UserLayout {
    runtime_tss: NO_FIELD,
    runtime_main: NO_FIELD,
    interpreter_jit: 0,
    interpreter_size: 0,
    ..USER_3_14
};
const USER_3_15T: UserLayout = UserLayout { runtime_tss: NO_FIELD, ..USER_3_14T };

const fn row(minor: u8, free_threaded: bool, kernel: PythonLayout, user: UserLayout) -> Layout {
    Layout { minor, free_threaded, kernel, user }
}

const ALL: &[Layout] = &[
    row(8, false, code(FRAMES_3_8, CODE_3_8, NO_FIELD), USER_3_8),
    row(9, false, code(FRAMES_3_8, CODE_3_8, NO_FIELD), USER_3_9),
    row(10, false, code(FRAMES_3_10, CODE_3_8, NO_FIELD), USER_3_10),
    row(11, false, code(FRAMES_3_11, CODE_3_11, 184), USER_3_11),
    row(12, false, code(FRAMES_3_12, CODE_3_12, 192), USER_3_12),
    row(13, false, code(FRAMES_3_13, CODE_3_12, 200), USER_3_13),
    row(13, true, code(FRAMES_3_13, CODE_3_13T, 216), USER_3_13T),
    row(14, false, code(FRAMES_3_14, CODE_3_12, 208), USER_3_14),
    row(14, true, code(FRAMES_3_14T, CODE_3_13T, 232), USER_3_14T),
    row(15, false, code(FRAMES_3_15, CODE_3_12, 208), USER_3_15),
    row(15, true, code(FRAMES_3_15T, CODE_3_13T, 232), USER_3_15T),
];

const _: () = {
    let mut i = 0;
    while i < ALL.len() {
        assert!(ALL[i].index() < LAYOUTS_MAX);
        assert!(i == 0 || ALL[i - 1].index() < ALL[i].index());
        i += 1;
    }
};
