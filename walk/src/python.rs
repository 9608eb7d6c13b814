//! One step of a Python walk: find the thread state, read a frame, decide whether it ends an evaluation run.
//!
//! Owns: how the fields of [`PythonLayout`] are used. Because: the same steps run in the kernel and in tests.
//! Does not: know versions (they are data), names or lines (user space reads those from code objects).

use deepctx_common::python::{
    CODE_WORDS, NO_CFRAME, NO_FIELD, OWNED_BY_GENERATOR, PythonLayout, PythonProcess, TEXT_HASH, entry_rule,
    instruction_kind, thread_state as slot,
};

use crate::memory::Memory;

/// Words read of a frame in one access: enough for `f_lasti` at 104 in CPython 3.8 and 3.9.
pub const FRAME_WORDS: usize = 14;
/// Words read of a frame that holds a pointer to its instruction (3.11+): up to the entry mark.
const POINTER_FRAME_WORDS: usize = 10;
/// The instruction offset of a frame is not known.
pub const NO_INSTRUCTION: u32 = u32::MAX;

/// Distinguishes code objects at the same address; changes when the address is reused by another function.
///
/// Over the first `count` of the words at [`PythonLayout::code_identity`]: numbers of arguments and lines, and a
/// version that no two code objects share (3.12+), or the addresses of its names and tables; these may all be used
/// again, so that there what its name says is in it, as `name`. Same recipe on both sides: the kernel computes it from
/// the frame, user space from the object it names.
#[inline(always)]
pub const fn code_checksum(words: &[u64; CODE_WORDS], count: u16, name: u64) -> u32 {
    named(parts_sum(words, count), name)
}

/// Over all but the name. In two lanes, since each step waits for the one before.
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

/// The pointer in one slot, or 0 when it is unset or unreadable.
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

/// The thread state that the thread uses now: it names the sub-interpreter that runs. 0 when there is none, as while
/// the GIL is released.
#[inline(always)]
pub fn attached_state<M: Memory>(memory: &M, thread_pointer: u64, process: &PythonProcess) -> u64 {
    slot_value(memory, thread_pointer, process.attached_kind, process.attached)
}

/// The thread state that the thread got first, which stays when the GIL is released. 0 when it has none.
#[inline(always)]
pub fn bound_state<M: Memory>(memory: &M, thread_pointer: u64, process: &PythonProcess) -> u64 {
    slot_value(memory, thread_pointer, process.bound_kind, process.bound)
}

/// The `PyThreadState` of the thread: the attached one when there is one that is its own, else the bound one. 0 when
/// the thread has none.
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

/// True when the state's `thread_id` is this thread's `pthread_self`, which is the thread pointer in glibc and musl.
#[inline(always)]
pub fn belongs_to_thread<M: Memory>(
    memory: &M,
    state: u64,
    thread_pointer: u64,
    layout: &PythonLayout,
) -> bool {
    // What comes next is where its chain begins, which stands before this.
    let _ = memory.read_ahead(state.wrapping_add(u64::from(layout.tstate_frame)));
    memory.read_ahead(state.wrapping_add(u64::from(layout.tstate_thread_id))) == Some(thread_pointer)
}

/// Where the chain of frames of a thread state begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The innermost frame; 0 when the state runs nothing.
    pub frame: u64,
    /// Address of the `_PyCFrame` that names it (3.11, 3.12): it lies in the native frame of the evaluation that the
    /// innermost frames belong to. Else 0.
    pub cframe: u64,
    /// The frame that the `_PyCFrame` before it names: where the chain goes on behind this evaluation. Else 0.
    pub outer: u64,
}

/// The chain of a thread state. `None` when it cannot be read.
#[inline(always)]
pub fn chain<M: Memory>(memory: &M, state: u64, layout: &PythonLayout) -> Option<Chain> {
    let first = memory.read_ahead(state.wrapping_add(u64::from(layout.tstate_frame)))?;
    if layout.cframe_current_frame == NO_CFRAME || first == 0 {
        return Some(Chain { frame: first, ..Chain::default() });
    }
    chain_of_cframe(memory, first, layout)
}

/// The chain that the `_PyCFrame` at this address names. `None` when it cannot be read.
#[inline(always)]
pub fn chain_of_cframe<M: Memory>(memory: &M, cframe: u64, layout: &PythonLayout) -> Option<Chain> {
    let field = u64::from(layout.cframe_current_frame);
    let at = cframe.wrapping_add(field);
    // It lies in a native frame, which was often read already.
    let near = [memory.peek_stack(at), memory.peek_stack(at.wrapping_add(8))];
    let [frame, previous] = match near {
        [Some(frame), Some(previous)] => [frame, previous],
        _ => memory.read_array(at)?,
    };
    // One that is not filled yet may name anything.
    let outer = previous.wrapping_add(field);
    let outer = match previous {
        0 => 0,
        // The outermost lies in the thread's state, of which this much was read.
        _ => memory.peek_stack(outer).or_else(|| memory.read_ahead(outer)).unwrap_or(0),
    };
    Some(Chain { frame, cframe, outer })
}

/// What one frame said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Address of the code object; 0 when the frame is a sentinel that must not be shown.
    pub code: u64,
    /// The next frame outwards; 0 at the end.
    pub previous: u64,
    /// Offset in bytes into the bytecode, or [`NO_INSTRUCTION`].
    pub instruction: u32,
    /// [`code_checksum`] of the code object.
    pub checksum: u32,
    /// The frame ends the run of its native evaluation frame.
    pub entry: bool,
    /// The frame belongs to a coroutine or generator; false unless the layout asks.
    pub coroutine: bool,
}

/// The word at a byte offset that is a multiple of 8; 0 beyond the end.
#[inline(always)]
fn u64_at<const N: usize>(words: &[u64; N], offset: u16) -> u64 {
    // The kernel's verifier must see the bound on the very register that is used; the compiler would rather compare
    // the offset and shift it another time.
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

/// Buffers of [`read_frame`], outside the (512-byte) stack of a kernel program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffers {
    /// The frame.
    pub frame: [u64; FRAME_WORDS],
    /// Its code object.
    pub code: [u64; CODE_WORDS],
    /// Code objects of this walk.
    pub seen: [SeenCode; SEEN_CODES],
    /// Number of the walk; grows with each.
    pub walk: u64,
}

/// Code objects that one walk remembers: modules that call modules run the same few functions again and again.
const SEEN_CODES: usize = 16;

/// A code object that a frame of this walk runs. The frame keeps it alive, so that its address means it until the walk
/// is over, and not longer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SeenCode {
    /// Its address.
    code: u64,
    /// The walk that saw it.
    walk: u64,
    /// Its [`code_checksum`].
    checksum: u64,
}

impl Buffers {
    /// Forgets the code objects of the last walk.
    #[inline(always)]
    pub fn begin(&mut self) {
        self.walk = self.walk.wrapping_add(1);
    }
}

/// Reads the frame at `address`; `None` when it or its code object cannot be read.
#[inline(always)]
pub fn read_frame<M: Memory>(
    memory: &M,
    address: u64,
    layout: &PythonLayout,
    buffers: &mut Buffers,
) -> Option<Frame> {
    // The smallest frame since 3.11 ends where the fields do, perhaps at the end of mapped memory.
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

/// The frame at `address`, if it was read ahead, is within an evaluation and nothing is special about it.
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

/// What the frame in the buffer says.
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
                // -2 in a frame that has not begun to run.
                Some(offset) if offset == i64::from(offset as i32) => offset as u32,
                _ => NO_INSTRUCTION,
            }
        }
    };
    Some(frame)
}

/// Where the bytecode begins that the frame runs. Without a GIL each thread may have a copy of its own (3.14+).
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
    // The first entry of the array is the code object's own.
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
