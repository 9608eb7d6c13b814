//! What the kernel walker must know of a CPython: where structures keep their fields, and where this process keeps
//! its thread states. Offsets come from the version tables of `symbolizer/python/layout`.

use crate::Plain;

/// Field offsets of one CPython version, in bytes. Index into the `PYTHON_LAYOUTS` map = [`PythonProcess::layout`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonLayout {
    /// `PyThreadState` → the pointer from which the current frame is found.
    pub tstate_frame: u16,
    /// `_PyCFrame.current_frame` (3.11, 3.12), or [`NO_CFRAME`] when `tstate_frame` points at the frame itself.
    /// `_PyCFrame.previous` is the pointer behind it in both.
    pub cframe_current_frame: u16,
    /// `PyThreadState.thread_id` (`pthread_self`), to check that the state belongs to this thread.
    pub tstate_thread_id: u16,
    /// Frame → code object (`f_code`, `f_executable`).
    pub frame_code: u16,
    /// Frame → previous frame (`f_back`, `previous`).
    pub frame_previous: u16,
    /// Frame → last instruction (`f_lasti`, `prev_instr`, `instr_ptr`).
    pub frame_instruction: u16,
    /// Frame → the byte that marks an entry frame (`is_entry`, `owner`).
    pub frame_entry_mark: u16,
    /// The first of the words of a code object that tell it from others ([`CODE_WORDS`]): they never change.
    pub code_identity: u16,
    /// How many they are.
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
    /// Value of the entry mark byte that makes a frame an entry frame or a sentinel.
    pub entry_value: u8,
    /// Low bits of `frame_code` that are tags and must be cleared.
    pub code_tag_mask: u8,
    /// Frame → the byte that says who owns it (3.11+), or 0 when coroutines are not walked.
    pub frame_owner: u16,
    /// `co_name`, in bytes behind `code_identity`, where no version distinguishes code objects (≤ 3.11); else 0. What
    /// it says then counts too, see [`TEXT_HASH`].
    pub code_name: u16,
}

/// `PyASCIIObject.hash`: what a string says, as a number that it keeps. The same in all versions that need it.
pub const TEXT_HASH: u64 = 24;

/// [`PythonLayout::frame_owner`]'s byte in the frame of a generator or coroutine: it lies within that object.
pub const OWNED_BY_GENERATOR: u8 = 1;

/// Words of a code object that are read in one access, most of which tell it from others. Enough for those from
/// `co_argcount` to `co_lnotab` up to 3.10.
pub const CODE_WORDS: usize = 14;

/// `cframe_current_frame` when there is no `_PyCFrame`.
pub const NO_CFRAME: u16 = u16::MAX;
/// A field that the version lacks.
pub const NO_FIELD: u16 = u16::MAX;

/// How the last instruction is stored.
pub mod instruction_kind {
    /// An i32 byte offset (≤ 3.9).
    pub const BYTE_OFFSET: u8 = 0;
    /// An i32 in units of two bytes (3.10).
    pub const UNIT_OFFSET: u8 = 1;
    /// A pointer into the bytecode (3.11+).
    pub const POINTER: u8 = 2;
}

/// How Python frames pair up with native evaluation frames.
pub mod entry_rule {
    /// One Python frame per native evaluation frame (≤ 3.10).
    pub const ONE_PER_EVAL: u8 = 0;
    /// The frame whose mark equals the value is the last of this evaluation frame, and is real (3.11).
    pub const LAST_REAL: u8 = 1;
    /// The frame whose mark equals the value is a sentinel: it ends the run and is not shown (3.12+).
    pub const SENTINEL: u8 = 2;
}

/// Most ranges of code that count as the evaluation loop (its hot part and the cold ones reached from it).
pub const EVAL_RANGES: usize = 4;

/// Where one process keeps its interpreter.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonProcess {
    /// Addresses (AVMA) of the evaluation loop: begin and end of each range; unused ranges are 0, 0.
    pub eval: [[u64; 2]; EVAL_RANGES],
    /// Index into `PYTHON_LAYOUTS`, or [`NO_PYTHON`].
    pub layout: u32,
    /// One of [`thread_state`] for the slot of the bound ("gilstate") thread state.
    pub bound_kind: u8,
    /// One of [`thread_state`] for the slot of the attached thread state, preferred when it is set and this thread's.
    pub attached_kind: u8,
    /// How far below the frame pointer of the function that enters generated code the return address into that function
    /// lies, where such code keeps that frame pointer as it is (3.15+); else 0.
    pub entered: u16,
    /// Parameter of `bound_kind`.
    pub bound: i64,
    /// Parameter of `attached_kind`.
    pub attached: i64,
    /// Instructions, from `eval[0][0] + unset` on, at which a `_PyCFrame` is named by the thread state and not yet
    /// filled (3.11, 3.12).
    pub unset: u32,
    /// How many bytes they take; 0 when there are none.
    pub unset_length: u32,
    /// Where generated code returns to, from `eval[0][0]` on (it may lie before that): with `entered`, to the function
    /// that enters it; else to the evaluation loop. 0 when there is no such code.
    pub resume: u32,
    /// What leads from the address of the sentinel in a frame of the evaluation loop to its frame pointer; not
    /// positive, to its stack pointer.
    pub resume_base: i32,
}

/// Value of `CALLED[pid]`: a function whose calls tell the object that they are made on, its first argument.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalledFunction {
    /// Address of its code object; 0 for none.
    pub code: u64,
    /// Frame → first local variable (`f_localsplus`, `localsplus`).
    pub frame_locals: u32,
    /// `PyObject.ob_type`.
    pub object_type: u32,
}

/// Most processes with one: trainers and their data loaders, of which a machine has some hundred.
pub const CALLED_MAX: u32 = 1024;

/// Low bits of a local variable that are tags (3.14+); objects lie at multiples of more than that.
pub const LOCAL_TAGS: u64 = 7;

/// [`PythonProcess::layout`] of a process without a known interpreter.
pub const NO_PYTHON: u32 = u32::MAX;
/// Most layouts loaded at a time: one per (minor version, free-threaded or not).
pub const LAYOUTS_MAX: u32 = 64;

/// Ways to find a pointer to the thread state from the thread pointer (`fsbase` on x86-64).
pub mod thread_state {
    /// There is no such slot.
    pub const NONE: u8 = 0;
    /// `*(thread pointer + parameter)`: a TLS variable (local-exec), or a first-level glibc TSS slot.
    pub const THREAD_POINTER: u8 = 1;
    /// glibc second-level TSS slot: `*(*(thread pointer + (parameter >> 32)) + (parameter & 0xffff_ffff))`.
    pub const SECOND_LEVEL: u8 = 2;
    /// General-dynamic TLS: module id in `parameter >> 32`, offset in the block in the low half;
    /// `*(*(*(thread pointer + 8) + 16 × module) + offset)`.
    pub const DTV: u8 = 3;
    /// A variable of the process: `*(parameter)`. It holds the state of whichever thread runs Python.
    pub const GLOBAL: u8 = 4;
}

// SAFETY: repr(C), integers only, no padding (asserted in `layout`).
unsafe impl Plain for PythonLayout {}
// SAFETY: as above.
unsafe impl Plain for PythonProcess {}
// SAFETY: as above.
unsafe impl Plain for CalledFunction {}
