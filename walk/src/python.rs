//! One step of a Python walk: find the thread state, read a frame, decide whether it ends an evaluation run.
//!
//! Owns: the use of the fields of [`PythonLayout`]. Because: the same steps run in the kernel and in tests.
//! Does not: know versions (they are data), names or lines (user space reads them from code objects).

use deepctx_common::python::{
    CODE_WORDS, NO_CFRAME, NO_FIELD, OWNED_BY_GENERATOR, PythonLayout, PythonProcess, TEXT_HASH, entry_rule,
    instruction_kind, thread_state as slot,
};

use crate::memory::Memory;

/// Words read per frame in one access: enough for `f_lasti` at 104 in CPython 3.8 and 3.9.
pub const FRAME_WORDS: usize = 14;
/// Words read per frame that holds an instruction pointer (3.11+): up to the entry mark.
const POINTER_FRAME_WORDS: usize = 10;
/// The instruction offset of a frame is unknown.
pub const NO_INSTRUCTION: u32 = u32::MAX;

/// Distinguishes code objects at the same address; changes when another function reuses the address.
///
/// Covers the first `count` words at [`PythonLayout::code_identity`]: numbers of arguments and lines, and a version
/// number that is unique per code object (3.12+), or the addresses of its names and tables. Those addresses can be
/// reused, so for such versions the hash of the name is included, as `name`. Both sides use the same recipe: the kernel
/// computes it from the frame, user space from the code object that the frame names.
#[inline(always)]
pub const fn code_checksum(words: &[u64; CODE_WORDS], count: u16, name: u64) -> u32 {
    named(parts_sum(words, count), name)
}

/// Checksum of everything but the name, in two lanes, because each step depends on the previous one.
#[inline(always)]
const fn parts_sum(words: &[u64; CODE_WORDS], count: u16) -> u64 {
    const { assert!(CODE_WORDS.is_multiple_of(2)) };
    let (mut even, mut odd) = (0xcbf2_9ce4_8422_2325_u64, 0x8422_2325_cbf2_9ce4_u64);
    let mut i = 0;
    while i < CODE_WORDS {
        if i < count as usize {
            even = mixed(even ^ words[i]);
        }
        if i + 1 < count as usize {
            odd = mixed(odd ^ words[i + 1]);
        }
        i += 2;
    }
    mixed(even) ^ odd
}

#[inline(always)]
const fn named(parts: u64, name: u64) -> u32 {
    let sum = mixed(parts ^ name);
    (sum ^ sum >> 32) as u32
}

#[inline(always)]
const fn mixed(word: u64) -> u64 {
    let product = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 29
}

/// The pointer in one slot, or 0 if it is unset or unreadable.
#[inline(always)]
fn slot_value<M: Memory>(memory: &M, thread_pointer: u64, kind: u8, parameter: i64) -> u64 {
    let low = parameter as u64 & 0xffff_ffff;
    let high = parameter as u64 >> 32;
    let address = match kind {
        slot::THREAD_POINTER => thread_pointer.wrapping_add_signed(parameter),
        slot::SECOND_LEVEL => match memory.read_u64(thread_pointer.wrapping_add(high)) {
            Some(block) if block != 0 => block.wrapping_add(low),
            _ => return 0,
        },
        slot::DTV => {
            let Some(dtv) = memory.read_u64(thread_pointer.wrapping_add(8)) else { return 0 };
            match memory.read_u64(dtv.wrapping_add(16 * high)) {
                Some(block) if block != 0 && block != u64::MAX => block.wrapping_add(low),
                _ => return 0,
            }
        }
        slot::GLOBAL => parameter as u64,
        _ => return 0,
    };
    memory.read_u64(address).unwrap_or(0)
}

/// The thread state that is attached now; it names the running sub-interpreter. 0 if there is none, for example while
/// the GIL is released.
#[inline(always)]
pub fn attached_state<M: Memory>(memory: &M, thread_pointer: u64, process: &PythonProcess) -> u64 {
    slot_value(memory, thread_pointer, process.attached_kind, process.attached)
}

/// The first thread state of the thread, which stays bound while the GIL is released. 0 if there is none.
#[inline(always)]
pub fn bound_state<M: Memory>(memory: &M, thread_pointer: u64, process: &PythonProcess) -> u64 {
    slot_value(memory, thread_pointer, process.bound_kind, process.bound)
}

/// The thread's `PyThreadState`: the attached one if it exists and belongs to this thread, otherwise the bound one. 0
/// if the thread has none.
#[inline(always)]
pub fn thread_state<M: Memory>(
    memory: &M,
    thread_pointer: u64,
    process: &PythonProcess,
    layout: &PythonLayout,
) -> u64 {
    let attached = attached_state(memory, thread_pointer, process);
    if attached != 0 && belongs_to_thread(memory, attached, thread_pointer, layout) {
        return attached;
    }
    bound_state(memory, thread_pointer, process)
}

/// True if the state's `thread_id` is this thread's `pthread_self`, which equals the thread pointer in glibc and musl.
#[inline(always)]
pub fn belongs_to_thread<M: Memory>(
    memory: &M,
    state: u64,
    thread_pointer: u64,
    layout: &PythonLayout,
) -> bool {
    // The next read is the head of the chain, which precedes this field: read ahead from there.
    let _ = memory.read_ahead(state.wrapping_add(u64::from(layout.tstate_frame)));
    memory.read_ahead(state.wrapping_add(u64::from(layout.tstate_thread_id))) == Some(thread_pointer)
}

/// Head of the frame chain of a thread state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The innermost frame; 0 if the state runs nothing.
    pub frame: u64,
    /// Address of the `_PyCFrame` that points to it (3.11, 3.12), in the native frame of the evaluation to which the
    /// innermost frames belong. Otherwise 0.
    pub cframe: u64,
    /// The frame that the previous `_PyCFrame` points to: the chain continues there after this evaluation. Otherwise 0.
    pub outer: u64,
}

/// The chain of a thread state; `None` if it cannot be read.
#[inline(always)]
pub fn chain<M: Memory>(memory: &M, state: u64, layout: &PythonLayout) -> Option<Chain> {
    let first = memory.read_ahead(state.wrapping_add(u64::from(layout.tstate_frame)))?;
    if layout.cframe_current_frame == NO_CFRAME || first == 0 {
        return Some(Chain { frame: first, ..Chain::default() });
    }
    chain_of_cframe(memory, first, layout)
}

/// The chain that the `_PyCFrame` at this address points to; `None` if it cannot be read.
#[inline(always)]
pub fn chain_of_cframe<M: Memory>(memory: &M, cframe: u64, layout: &PythonLayout) -> Option<Chain> {
    let field = u64::from(layout.cframe_current_frame);
    let at = cframe.wrapping_add(field);
    // The structure lies in a native frame, which often has been read already.
    let near = [memory.peek_stack(at), memory.peek_stack(at.wrapping_add(8))];
    let [frame, previous] = match near {
        [Some(frame), Some(previous)] => [frame, previous],
        _ => memory.read_array(at)?,
    };
    // A `_PyCFrame` that is not filled in yet may point anywhere.
    let outer = previous.wrapping_add(field);
    let outer = match previous {
        0 => 0,
        // The outermost one lies in the thread state, which the read-ahead covers.
        _ => memory.peek_stack(outer).or_else(|| memory.read_ahead(outer)).unwrap_or(0),
    };
    Some(Chain { frame, cframe, outer })
}

/// The content of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Address of the code object; 0 for a sentinel, which is not emitted.
    pub code: u64,
    /// The next frame outwards; 0 at the end of the chain.
    pub previous: u64,
    /// Offset in bytes into the bytecode, or [`NO_INSTRUCTION`].
    pub instruction: u32,
    /// [`code_checksum`] of the code object.
    pub checksum: u32,
    /// The frame ends the run of its native evaluation frame.
    pub entry: bool,
    /// The frame belongs to a coroutine or generator; always false if the layout does not request this.
    pub coroutine: bool,
}

/// The word at a byte offset that is a multiple of 8; 0 beyond the end.
#[inline(always)]
fn u64_at<const N: usize>(words: &[u64; N], offset: u16) -> u64 {
    // The kernel's verifier needs the bound on the register that is used as index; otherwise the compiler compares the
    // offset and shifts it again.
    let index = core::hint::black_box((offset >> 3) as usize);
    if index < N { words[index] } else { 0 }
}

/// The u32 at a byte offset that is a multiple of 4; 0 beyond the end.
#[inline(always)]
fn u32_at<const N: usize>(words: &[u64; N], offset: u16) -> u32 {
    (u64_at(words, offset) >> ((offset & 4) * 8)) as u32
}

/// The byte at an offset; 0 beyond the end.
#[inline(always)]
fn u8_at<const N: usize>(words: &[u64; N], offset: u16) -> u8 {
    (u64_at(words, offset) >> ((offset & 7) * 8)) as u8
}

/// Buffers of [`read_frame`], kept off the 512-byte stack of a kernel program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffers {
    /// The frame.
    pub frame: [u64; FRAME_WORDS],
    /// Its code object.
    pub code: [u64; CODE_WORDS],
    /// Code objects seen in this walk.
    pub seen: [SeenCode; SEEN_CODES],
    /// Number of the walk; incremented for each.
    pub walk: u64,
}

/// Number of code objects that a walk remembers: nested modules run the same few functions repeatedly.
const SEEN_CODES: usize = 16;

/// A code object run by a frame of this walk. That frame keeps it alive, so its address is valid until the end of the
/// walk, and no longer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenCode {
    /// Address of the code object.
    code: u64,
    /// Number of the walk that saw it.
    walk: u64,
    /// Its [`code_checksum`].
    checksum: u64,
}

impl Buffers {
    /// Forgets the code objects of the previous walk.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.walk = self.walk.wrapping_add(1);
    }
}

/// Reads the frame at `address`; `None` if the frame or its code object cannot be read.
#[inline(always)]
pub fn read_frame<M: Memory>(
    memory: &M,
    address: u64,
    layout: &PythonLayout,
    buffers: &mut Buffers,
) -> Option<Frame> {
    // The smallest frame since 3.11 ends with these fields, possibly at the end of mapped memory.
    let read = if layout.instruction_kind == instruction_kind::POINTER {
        memory.read_below(address, &mut buffers.frame[..POINTER_FRAME_WORDS])
    } else {
        memory.read_words(address, &mut buffers.frame)
    };
    if !read {
        return None;
    }
    what_is_read(memory, layout, buffers)
}

/// The frame at `address`, if a read-ahead covers it and it is an ordinary frame within a run.
#[inline(always)]
pub(crate) fn peek_frame<M: Memory>(
    memory: &M,
    address: u64,
    layout: &PythonLayout,
    buffers: &mut Buffers,
) -> Option<Frame> {
    if layout.instruction_kind != instruction_kind::POINTER
        || layout.frame_owner != 0
        || !memory.peek_below(address, &mut buffers.frame[..POINTER_FRAME_WORDS])
        || is_marked(layout, buffers)
    {
        return None;
    }
    what_is_read(memory, layout, buffers)
}

#[inline(always)]
fn is_marked(layout: &PythonLayout, buffers: &Buffers) -> bool {
    u8_at(&buffers.frame, layout.frame_entry_mark) == layout.entry_value
}

/// Decodes the frame in the buffer.
#[inline(always)]
fn what_is_read<M: Memory>(memory: &M, layout: &PythonLayout, buffers: &mut Buffers) -> Option<Frame> {
    let mut frame = Frame { previous: u64_at(&buffers.frame, layout.frame_previous), ..Frame::default() };
    let marked = is_marked(layout, buffers);
    match layout.entry_rule {
        entry_rule::SENTINEL if marked => {
            frame.entry = true;
            return Some(frame);
        }
        entry_rule::LAST_REAL => frame.entry = marked,
        entry_rule::ONE_PER_EVAL => frame.entry = true,
        _ => {}
    }
    let code = u64_at(&buffers.frame, layout.frame_code) & !u64::from(layout.code_tag_mask);
    if code == 0 {
        return None;
    }
    frame.code = code;
    frame.coroutine =
        layout.frame_owner != 0 && u8_at(&buffers.frame, layout.frame_owner) == OWNED_BY_GENERATOR;
    frame.checksum = checksum(memory, code, layout, buffers)?;
    frame.instruction = match layout.instruction_kind {
        instruction_kind::BYTE_OFFSET => u32_at(&buffers.frame, layout.frame_instruction),
        instruction_kind::UNIT_OFFSET => u32_at(&buffers.frame, layout.frame_instruction).wrapping_mul(2),
        _ => {
            let at = u64_at(&buffers.frame, layout.frame_instruction);
            match bytecode(memory, code, layout, &buffers.frame).map(|start| at.wrapping_sub(start) as i64) {
                // -2 in a frame that has not started to run.
                Some(offset) if offset == i64::from(offset as i32) => offset as u32,
                _ => NO_INSTRUCTION,
            }
        }
    };
    Some(frame)
}

/// Start of the bytecode that the frame runs. In free-threaded builds each thread may have its own copy (3.14+).
#[inline(always)]
fn bytecode<M: Memory>(
    memory: &M,
    code: u64,
    layout: &PythonLayout,
    frame: &[u64; FRAME_WORDS],
) -> Option<u64> {
    let own = code.wrapping_add(u64::from(layout.code_bytecode));
    if layout.frame_tlbc_index == NO_FIELD {
        return Some(own);
    }
    let index = u32_at(frame, layout.frame_tlbc_index);
    // The first entry of the array is the code object's own bytecode.
    if index == 0 {
        return Some(own);
    }
    let copies = memory.read_u64(code.wrapping_add(u64::from(layout.code_tlbc)))?;
    let size = memory.read_u64(copies)?;
    if u64::from(index) >= size {
        return None;
    }
    memory.read_u64(copies.wrapping_add(8).wrapping_add(8 * u64::from(index)))
}

/// [`code_checksum`] of the code object at `code`.
#[inline(always)]
fn checksum<M: Memory>(memory: &M, code: u64, layout: &PythonLayout, buffers: &mut Buffers) -> Option<u32> {
    let place = (code >> 5 ^ code >> 9) as usize & (SEEN_CODES - 1);
    let seen = &buffers.seen[place];
    if seen.code == code && seen.walk == buffers.walk {
        return Some(seen.checksum as u32);
    }
    let words = code.wrapping_add(u64::from(layout.code_identity));
    if !memory.read_words(words, &mut buffers.code) {
        return None;
    }
    let parts = parts_sum(&buffers.code, layout.code_identity_words);
    let name = match layout.code_name {
        0 => 0,
        at => {
            let at = u64_at(&buffers.code, at).wrapping_add(TEXT_HASH);
            memory.read_lasting(at, parts ^ code).unwrap_or(0)
        }
    };
    let checksum = named(parts, name);
    buffers.seen[place] = SeenCode { code, walk: buffers.walk, checksum: u64::from(checksum) };
    Some(checksum)
}
