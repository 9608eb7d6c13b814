//! The kernel side of the walk: claims scratch memory and loops over the steps.
//!
//! Owns: the division of the walkers of `deepctx_walk` into functions. Runs of steps are functions with external
//! linkage, which the verifier checks once each, independent of the number of frames; every kernel from 5.15 on accepts
//! them (inlined, the same code exceeds a million instructions).
//! Does not: read memory (`memory`), search tables (`tables`), or define scratch memory (`scratch`).

mod displaced;
mod lasting;
mod memory;
mod rare_step;
mod rule_cache;
mod scratch;
mod tables;

use core::intrinsics::{AtomicOrdering, atomic_xchg};

use deepctx_common::config::{Config, config_flag};
use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::python::NO_PYTHON;
use deepctx_common::record::word;
use deepctx_walk::interleave::{self, Flow, Outcome, STEPS_MAX, Walk, Words, phase};
use deepctx_walk::{quick, short};

pub use self::memory::ReadAhead;
pub use self::rule_cache::RuleCache;
pub use self::scratch::{Scratch, TAIL_WORDS, WORDS_MAX};
use crate::maps::{AHEAD, CALLED, PROCESSES, RULE_CACHE, SCRATCH, SCRATCH_SLOTS};
use crate::words::copy;

/// Claims a scratch slot of this CPU.
#[inline(always)]
pub fn claim() -> Option<*mut Scratch> {
    for i in 0..SCRATCH_SLOTS {
        let slot = SCRATCH.get_ptr_mut(i)?;
        // SAFETY: `busy` of a map value. The intrinsic, because the target's `AtomicU64` lacks exchange although the
        // instruction set has it from v3 on. A program that finds 1 leaves 1: no compare is needed.
        let was_busy = unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(&raw mut (*slot).busy, 1) };
        if was_busy == 0 {
            // SAFETY: claimed just now.
            unsafe { (*slot).walk.slot = u64::from(i) };
            return Some(slot);
        }
    }
    None
}

/// Read-ahead memory of a claimed slot.
#[inline(always)]
pub fn ahead(slot: &Scratch) -> Option<&'static mut ReadAhead> {
    let ahead = AHEAD.get_ptr_mut(slot.walk.slot as u32)?;
    // SAFETY: it belongs to the claimed slot, whose holder drops one reference before asking for the next.
    Some(unsafe { &mut *ahead })
}

/// Releases a claimed slot.
#[inline(always)]
pub fn release(slot: *mut Scratch) {
    // SAFETY: as in `claim`; the slot is a map value that stays valid, and only its holder releases it.
    unsafe { (&raw mut (*slot).busy).write_volatile(0) };
}

/// Walks the user stack from `slot.walk.registers`, with the parts that `flags` ([`config_flag`]) request. Its words
/// follow the first `kernel_words` words.
#[inline(always)]
pub fn user_stack(config: &Config, flags: u32, pid: u32, kernel_words: u32, slot: &mut Scratch) {
    // SAFETY: the value is copied immediately; user space replaces entries as a whole.
    let Some(process) = (unsafe { PROCESSES.get(&pid) }) else {
        slot.walk.process.python.layout = NO_PYTHON;
        slot.walk.begin(kernel_words, config.frames_max);
        slot.walk.python_end = PythonEnd::NotWalked as u32;
        slot.walk.native_end = WalkEnd::UnknownProcess as u32;
        slot.walk.stop_pc = slot.walk.registers.pc;
        slot.walk.native_frames = 1;
        let pc = slot.walk.registers.pc;
        let mut words = RecordWords(&raw mut slot.words);
        if words.put(kernel_words, word::tagged(word::EXACT, pc))
            && words.put(kernel_words + 1, word::tagged(word::GAP, WalkEnd::UnknownProcess as u64))
        {
            slot.walk.words = kernel_words + 2;
        }
        return;
    };
    copy(&mut slot.walk.process, process);
    slot.sample.generation = process.generation;
    if flags & config_flag::PYTHON == 0 {
        slot.walk.process.python.layout = NO_PYTHON;
    }
    slot.walk.called.code = 0;
    if flags & config_flag::OBJECTS != 0
        // SAFETY: as above.
        && let Some(called) = unsafe { CALLED.get(&pid) }
    {
        copy(&mut slot.walk.called, called);
    }
    slot.walk.begin(kernel_words, config.frames_max);
    if flags & config_flag::PYTHON == 0 {
        slot.walk.python_end = PythonEnd::NotWalked as u32;
    }
    if flags & config_flag::NATIVE == 0 && flags & config_flag::OPERATORS != 0 {
        slot.walk.short = short::state::SHORT;
    } else if flags & config_flag::NATIVE == 0 {
        slot.walk.phase = phase::PYTHON_REST;
        slot.walk.native_end = WalkEnd::NotWalked as u32;
    }
    let scratch = &raw mut *slot;
    for _ in 0..STEPS_MAX / STEPS_PER_RUN {
        if steps(scratch) != CONTINUE {
            break;
        }
    }
}

/// Steps per call of [`steps`]: two short loops are verified much faster than one long loop, because the verifier
/// follows every iteration.
const STEPS_PER_RUN: u32 = 32;

/// Takes up to [`STEPS_PER_RUN`] steps on a claimed slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn steps(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    for _ in 0..STEPS_PER_RUN {
        // SAFETY: the caller passes a claimed slot, valid for the whole run.
        let flow = match unsafe { (*scratch).walk.phase } {
            phase::NATIVE => native_steps(scratch),
            phase::GENERATED => generated_step(scratch),
            _ => python_step(scratch),
        };
        if flow != CONTINUE {
            return STOP;
        }
    }
    CONTINUE
}

/// Quick steps per call of [`native_steps`]: a call and its return cost as much as a frame.
const QUICK_STEPS: u32 = 16;

const CONTINUE: u32 = 0;
const STOP: u32 = 1;

/// Takes quick steps on a claimed slot while they succeed, then a full step.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn native_steps(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: the caller passes a claimed slot, valid for the whole run.
    let Some(rules) = RULE_CACHE.get_ptr_mut(unsafe { (*scratch).walk.slot } as u32) else { return STOP };
    // SAFETY: as above.
    let Some((walk, mut words, kernel)) = (unsafe { parts(scratch, rules) }) else { return STOP };
    for _ in 0..QUICK_STEPS {
        if !quick::native_step(walk, &mut words, &kernel) {
            break;
        }
    }
    flow_number(interleave::native_step(walk, &mut words, &kernel))
}

/// Takes a step out of generated code, on a claimed slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn generated_step(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: as above. These steps look up no rule.
    let Some((walk, mut words, kernel)) = (unsafe { parts(scratch, core::ptr::null()) }) else { return STOP };
    flow_number(interleave::generated_step(walk, &mut words, &kernel))
}

/// Takes a Python step on a claimed slot. Its parts are verified separately, so that their paths do not multiply.
#[inline(always)]
fn python_step(scratch: *mut Scratch) -> u32 {
    let mut outcome = python_frames(scratch, 0);
    if outcome == Outcome::BEGIN.number() {
        outcome = python_begin(scratch);
        if outcome == Outcome::FRAMES.number() {
            outcome = python_frames(scratch, 1);
        }
    }
    if outcome <= Outcome::STOP.number() { outcome } else { python_end(scratch, outcome) }
}

const _: () = assert!(Outcome::CONTINUE.number() == CONTINUE && Outcome::STOP.number() == STOP);

/// Finds the beginning of a run. Returns an [`Outcome`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_begin(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: as above.
    let Some((walk, mut words, kernel)) = (unsafe { parts(scratch, core::ptr::null()) }) else { return STOP };
    interleave::python_begin(walk, &mut words, &kernel).number()
}

/// Quick steps per call of [`python_frames`]: the kernel verifies each iteration.
const QUICK_PYTHON_STEPS: u32 = 8;

/// Takes quick Python steps while they succeed, then a full step. Takes none if [`python_begin`] has not run and is
/// needed. Returns an [`Outcome`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_frames(scratch: *mut Scratch, was_asked: u32) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: as above.
    let Some((walk, mut words, kernel)) = (unsafe { parts(scratch, core::ptr::null()) }) else { return STOP };
    if was_asked == 0 && !interleave::has_begun(walk) {
        return Outcome::BEGIN.number();
    }
    for _ in 0..QUICK_PYTHON_STEPS {
        if !quick::python_step(walk, &mut words, &kernel) {
            break;
        }
    }
    interleave::python_frame(walk, &mut words, &kernel).number()
}

/// Handles the [`Outcome`] that ends a run or the Python walk.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_end(scratch: *mut Scratch, outcome: u32) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: as above; the parts do not overlap.
    let (walk, mut words) = unsafe { (&mut (*scratch).walk, RecordWords(&raw mut (*scratch).words)) };
    flow_number(interleave::python_end(walk, &mut words, Outcome::from_number(outcome)))
}

fn flow_number(flow: Flow) -> u32 {
    match flow {
        Flow::Continue => CONTINUE,
        Flow::Stop => STOP,
    }
}

/// The parts of a claimed slot that a step needs.
///
/// # Safety
/// The caller has claimed `scratch`, and drops one set of parts before it makes the next.
#[inline(always)]
// SAFETY: the contract above.
unsafe fn parts<'a>(
    scratch: *mut Scratch,
    rules: *const RuleCache,
) -> Option<(&'a mut Walk, RecordWords, Kernel)> {
    // SAFETY: the caller's contract; the parts do not overlap.
    unsafe {
        let ahead = AHEAD.get_ptr_mut((*scratch).walk.slot as u32)?;
        let kernel = Kernel { ahead, rules, process: u64::from((*scratch).sample.pid) };
        Some((&mut (*scratch).walk, RecordWords(&raw mut (*scratch).words), kernel))
    }
}

/// The words of the record under construction.
struct RecordWords(*mut [u64; WORDS_MAX]);

impl Words for RecordWords {
    #[inline(always)]
    fn put(&mut self, index: u32, word: u64) -> bool {
        // Verifiers of old kernels (6.1) do not carry bounds over to a copy of half a register.
        let index = core::hint::black_box(index as usize);
        if index >= WORDS_MAX {
            return false;
        }
        // SAFETY: the index was checked; the array is part of the claimed slot.
        unsafe { (*self.0)[index] = word };
        true
    }
}

/// User memory and unwind tables as the kernel programs see them: the data of the claimed slot.
struct Kernel {
    ahead: *mut ReadAhead,
    rules: *const RuleCache,
    /// Distinguishes the walked process from others.
    process: u64,
}
