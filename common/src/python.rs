//! Facts about a CPython that the kernel walker needs: field offsets of its structures, and where this process keeps
//! its thread states. The offsets come from the version tables of `symbolizer/python/layout`.

use crate::Plain;

/// Field offsets of one CPython version, in bytes. [`PythonProcess::layout`] is the index into the `PYTHON_LAYOUTS`
/// map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonLayout {
    /// `PyThreadState` → pointer that leads to the current frame.
    pub tstate_frame: u16,
    /// `_PyCFrame.current_frame` (3.11, 3.12), or [`NO_CFRAME`] if `tstate_frame` points at the frame itself.
    /// `_PyCFrame.previous` is the next pointer after it in both versions.
    pub cframe_current_frame: u16,
    /// `PyThreadState.thread_id` (`pthread_self`), to check that the state belongs to this thread.
    pub tstate_thread_id: u16,
    /// Frame → code object (`f_code`, `f_executable`).
    pub frame_code: u16,
    /// Frame → previous frame (`f_back`, `previous`).
    pub frame_previous: u16,
    /// Frame → last instruction (`f_lasti`, `prev_instr`, `instr_ptr`).
    pub frame_instruction: u16,
    /// Frame → byte that marks an entry frame (`is_entry`, `owner`).
    pub frame_entry_mark: u16,
    /// Offset of the first of the words that identify a code object ([`CODE_WORDS`]). These words are immutable.
    pub code_identity: u16,
    /// Number of identifying words.
    pub code_identity_words: u16,
    /// `PyCodeObject.co_code_adaptive`: start of the bytecode (3.11+).
    pub code_bytecode: u16,
    /// `_PyInterpreterFrame.tlbc_index` (free-threaded 3.14+), or [`NO_FIELD`].
    pub frame_tlbc_index: u16,
    /// `PyCodeObject.co_tlbc` (free-threaded 3.14+), or [`NO_FIELD`].
    pub code_tlbc: u16,
    /// One of [`instruction_kind`].
    pub instruction_kind: u8,
    /// One of [`entry_rule`].
    pub entry_rule: u8,
    /// Value of the entry mark byte in an entry frame or sentinel.
    pub entry_value: u8,
    /// Low tag bits of `frame_code`, to be cleared.
    pub code_tag_mask: u8,
    /// Frame → byte that states its owner (3.11+), or 0 if coroutines are not walked.
    pub frame_owner: u16,
    /// Offset of `co_name` from `code_identity`, for versions whose code objects carry no version number (≤ 3.11);
    /// otherwise 0. The hash of the name then counts too, see [`TEXT_HASH`].
    pub code_name: u16,
}

/// Offset of `PyASCIIObject.hash`: a string's cached hash, the same offset in all versions that need it.
pub const TEXT_HASH: u64 = 24;

/// Value of the byte at [`PythonLayout::frame_owner`] for the frame of a generator or coroutine, which is embedded in
/// that object.
pub const OWNED_BY_GENERATOR: u8 = 1;

/// Words of a code object read in one access; most of them identify it. Enough for the fields from `co_argcount` to
/// `co_lnotab` up to 3.10.
pub const CODE_WORDS: usize = 14;

/// `cframe_current_frame` if there is no `_PyCFrame`.
pub const NO_CFRAME: u16 = u16::MAX;
/// A field that the version does not have.
pub const NO_FIELD: u16 = u16::MAX;

/// Representation of the last instruction.
pub mod instruction_kind {
    /// An i32 byte offset (≤ 3.9).
    pub const BYTE_OFFSET: u8 = 0;
    /// An i32 in units of two bytes (3.10).
    pub const UNIT_OFFSET: u8 = 1;
    /// A pointer into the bytecode (3.11+).
    pub const POINTER: u8 = 2;
}

/// How Python frames pair with native evaluation frames.
pub mod entry_rule {
    /// One Python frame per native evaluation frame (≤ 3.10).
    pub const ONE_PER_EVAL: u8 = 0;
    /// The frame whose mark equals the value is the last of this evaluation frame, and is a real frame (3.11).
    pub const LAST_REAL: u8 = 1;
    /// The frame whose mark equals the value is a sentinel: it ends the run and is not emitted (3.12+).
    pub const SENTINEL: u8 = 2;
}

/// Limit on code ranges that count as the evaluation loop (its hot part and the cold parts reached from it).
pub const EVAL_RANGES: usize = 4;

/// Location of the interpreter in one process.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonProcess {
    /// Address ranges (AVMA) of the evaluation loop: begin and end of each; unused ranges are 0, 0.
    pub eval: [[u64; 2]; EVAL_RANGES],
    /// Index into `PYTHON_LAYOUTS`, or [`NO_PYTHON`].
    pub layout: u32,
    /// One of [`thread_state`], for the slot of the bound ("gilstate") thread state.
    pub bound_kind: u8,
    /// One of [`thread_state`], for the slot of the attached thread state, preferred if it is set and belongs to this
    /// thread.
    pub attached_kind: u8,
    /// For interpreters whose generated code leaves the frame pointer unchanged (3.15+): distance in bytes from the
    /// frame pointer of the function that enters generated code down to the return address into that function.
    /// Otherwise 0.
    pub entered: u16,
    /// Parameter of `bound_kind`.
    pub bound: i64,
    /// Parameter of `attached_kind`.
    pub attached: i64,
    /// First instruction at which a `_PyCFrame` is linked to the thread state but not filled in yet (3.11, 3.12),
    /// relative to `eval[0][0]`.
    pub unset: u32,
    /// Length of that instruction range in bytes; 0 if there is none.
    pub unset_length: u32,
    /// Address to which generated code returns, relative to `eval[0][0]` (may be negative): with `entered`, in the
    /// function that enters generated code; otherwise in the evaluation loop. 0 if there is no such code.
    pub resume: u32,
    /// Offset from the sentinel in a frame of the evaluation loop: if positive, to the frame pointer of that frame;
    /// otherwise to its stack pointer.
    pub resume_base: i32,
}

/// Value of `CALLED[pid]`: a function for whose calls the first argument (the object) is reported.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalledFunction {
    /// Address of the code object; 0 for none.
    pub code: u64,
    /// Frame → first local variable (`f_localsplus`, `localsplus`).
    pub frame_locals: u32,
    /// `PyObject.ob_type`.
    pub object_type: u32,
}

/// Limit on processes with such a function: trainers and their data loaders, a few hundred per machine.
pub const CALLED_MAX: u32 = 1024;

/// Low bits of a local variable that are tags (3.14+); objects are aligned to more than that.
pub const LOCAL_TAGS: u64 = 7;

/// [`PythonProcess::layout`] of a process without a known interpreter.
pub const NO_PYTHON: u32 = u32::MAX;
/// Limit on layouts loaded at a time: one per minor version and build (free-threaded or not).
pub const LAYOUTS_MAX: u32 = 64;

/// Ways to reach a pointer to the thread state from the thread pointer (`fsbase` on x86-64).
pub mod thread_state {
    /// There is no such slot.
    pub const NONE: u8 = 0;
    /// `*(thread pointer + parameter)`: a TLS variable (local-exec), or a first-level glibc TSS slot.
    pub const THREAD_POINTER: u8 = 1;
    /// glibc second-level TSS slot: `*(*(thread pointer + (parameter >> 32)) + (parameter & 0xffff_ffff))`.
    pub const SECOND_LEVEL: u8 = 2;
    /// General-dynamic TLS: module id in `parameter >> 32`, offset in the TLS block in the low half;
    /// `*(*(*(thread pointer + 8) + 16 × module) + offset)`.
    pub const DTV: u8 = 3;
    /// A global variable: `*(parameter)`. It holds the state of whichever thread runs Python.
    pub const GLOBAL: u8 = 4;
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for PythonLayout {}
// SAFETY: as above.
unsafe impl Plain for PythonProcess {}
// SAFETY: as above.
unsafe impl Plain for CalledFunction {}
