//! The kernel's side of the walk: scratch memory, maps as unwind tables, and the loop over steps.
//!
//! Owns: how the walkers of `deepctx_walk` are cut into functions. Each search and each step is a function of its
//! own with external linkage: the verifier checks it once, whatever the number of frames, and no kernel from 5.15
//! on gives up (inlined, the same code exceeds a million instructions).

use core::intrinsics::{AtomicOrdering, atomic_xchg};
use core::mem::{MaybeUninit, offset_of};

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use deepctx_common::Plain;
use deepctx_common::config::{Config, config_flag};
use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::python::NO_PYTHON;
use deepctx_common::record::{KERNEL_WORDS_MAX, StackSample, USER_WORDS_MAX, word};
use deepctx_common::unwind::{
    BLOCK_SEARCH_STEPS, EXECUTABLE_SERIAL_SHIFT, MAPPING_SEARCH_STEPS, PAGE_SHIFT, ROWS_PER_BLOCK, Rule, row,
    rule_kind,
};
use deepctx_walk::interleave::{self, Flow, STEPS_MAX, Tables, Walk, Words, phase};
use deepctx_walk::memory::Memory;

use crate::maps::{
    EXECUTABLES, MAPPINGS, PAGES, PROCESSES, PYTHON_LAYOUTS, RULE_CACHE, RULES, SCRATCH, SCRATCH_SLOTS,
    SHARDS,
};

/// Words of one record: kernel words first, then user words.
pub const WORDS_MAX: usize = KERNEL_WORDS_MAX + USER_WORDS_MAX;

/// What one program run needs beyond its 512-byte stack. Below 32 KiB, the most that a per-CPU value may have.
#[repr(C)]
pub struct Scratch {
    /// 1 while claimed.
    busy: u64,
    /// The walk.
    pub walk: Walk,
    /// User registers.
    pub regs: pt_regs,
    /// The record: its fixed part …
    pub sample: StackSample,
    /// … and its words, right behind it.
    pub words: [u64; WORDS_MAX],
}

const _: () = {
    assert!(size_of::<Scratch>() < 32 << 10);
    assert!(offset_of!(Scratch, words) == offset_of!(Scratch, sample) + size_of::<StackSample>());
    assert!(offset_of!(Scratch, walk).is_multiple_of(8) && offset_of!(Scratch, sample).is_multiple_of(8));
    assert!(offset_of!(Walk, process).is_multiple_of(8) && offset_of!(Walk, mapping).is_multiple_of(8));
    assert!(offset_of!(Walk, executable).is_multiple_of(8) && offset_of!(Walk, rule).is_multiple_of(8));
    assert!(offset_of!(Walk, layout).is_multiple_of(8));
};

/// Entries of a [`RuleCache`]: 16 KiB. A stack of a hundred frames and its next neighbours fit several times over.
const CACHED_RULES: usize = 512;

/// Rules found lately, by stated address.
///
/// A search touches a dozen cache lines of the tables, all cold when a sample comes after 10 ms of other work; most
/// frames of a stack were in the last one too.
#[repr(C)]
pub struct RuleCache([CachedRule; CACHED_RULES]);

/// One rule. An entry without a serial number is free.
#[repr(C)]
struct CachedRule {
    svma: u64,
    serial: u64,
    rule: Rule,
}

const _: () = assert!(offset_of!(CachedRule, rule).is_multiple_of(8));

/// Where `svma` is cached: mixes in the bits above, since functions are aligned.
#[inline(always)]
fn cached_at(svma: u64) -> usize {
    (svma ^ svma >> 9 ^ svma >> 18) as usize & (CACHED_RULES - 1)
}

/// Copies a map value word by word. A plain assignment becomes a call of `memmove`, byte by byte: this target has no
/// cheap one, and the verifier follows each byte.
#[inline(always)]
pub fn copy<T: Plain>(to: &mut T, from: &T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let (to, from) = (&raw mut *to, &raw const *from);
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: within both values, which stand at multiples of 8: map values do, and so do the fields of a walk
        // (asserted above). Volatile keeps the loop from being recognised as a copy.
        unsafe { to.cast::<u64>().add(i).write_volatile(from.cast::<u64>().add(i).read_volatile()) };
    }
}

/// Sets a value to zeros, word by word; see [`copy`].
#[inline(always)]
pub fn clear<T: Plain>(value: &mut T) {
    const { assert!(size_of::<T>().is_multiple_of(8)) };
    let value = &raw mut *value;
    for i in 0..size_of::<T>() / 8 {
        // SAFETY: as in `copy`; all zeros is a value of every Plain type.
        unsafe { value.cast::<u64>().add(i).write_volatile(0) };
    }
}

/// Claims a scratch slot of this CPU.
#[inline(always)]
pub fn claim() -> Option<*mut Scratch> {
    for i in 0..SCRATCH_SLOTS {
        let slot = SCRATCH.get_ptr_mut(i)?;
        // SAFETY: `busy` of a map value. The intrinsic, since the target's `AtomicU64` lacks exchange although the
        // instruction set has it from v3 on. Who finds a 1 leaves a 1: no compare is needed.
        let was_busy = unsafe { atomic_xchg::<u64, { AtomicOrdering::SeqCst }>(&raw mut (*slot).busy, 1) };
        if was_busy == 0 {
            // SAFETY: claimed just now.
            unsafe { (*slot).walk.slot = u64::from(i) };
            return Some(slot);
        }
    }
    None
}

/// Gives a claimed slot back.
#[inline(always)]
pub fn release(slot: *mut Scratch) {
    // SAFETY: as in `claim`; the slot is a map value that stays valid, and only its holder gives it back.
    unsafe { (&raw mut (*slot).busy).write_volatile(0) };
}

/// Walks the user stack from `slot.walk.registers`; words go behind the first `kernel_words`.
#[inline(always)]
pub fn user_stack(config: &Config, pid: u32, kernel_words: u32, slot: &mut Scratch) {
    // SAFETY: the value is copied at once; user space replaces entries as a whole.
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
    if config.flags & config_flag::PYTHON == 0 {
        slot.walk.process.python.layout = NO_PYTHON;
    }
    slot.walk.begin(kernel_words, config.frames_max);
    if config.flags & config_flag::PYTHON == 0 {
        slot.walk.python_end = PythonEnd::NotWalked as u32;
    }
    if config.flags & config_flag::NATIVE == 0 {
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

/// Steps in one call of [`steps`]: two short loops are verified much faster than a long one, since the kernel follows
/// every iteration.
const STEPS_PER_RUN: u32 = 32;

/// A run of steps on a claimed slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn steps(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    for _ in 0..STEPS_PER_RUN {
        // SAFETY: the caller passes a claimed slot, valid for the whole run.
        let next = unsafe { (*scratch).walk.phase };
        let flow = if next == phase::NATIVE { native_step(scratch) } else { python_step(scratch) };
        if flow != CONTINUE {
            return STOP;
        }
    }
    CONTINUE
}

const CONTINUE: u32 = 0;
const STOP: u32 = 1;

fn flow_number(flow: Flow) -> u32 {
    match flow {
        Flow::Continue => CONTINUE,
        Flow::Stop => STOP,
    }
}

/// One native step on a claimed slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn native_step(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: the caller passes a claimed slot, valid for the whole run.
    let (walk, mut words) = unsafe { (&mut (*scratch).walk, RecordWords(&raw mut (*scratch).words)) };
    flow_number(interleave::native_step(walk, &mut words, &Kernel))
}

/// One Python step on a claimed slot.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn python_step(scratch: *mut Scratch) -> u32 {
    if scratch.is_null() {
        return STOP;
    }
    // SAFETY: as above.
    let (walk, mut words) = unsafe { (&mut (*scratch).walk, RecordWords(&raw mut (*scratch).words)) };
    flow_number(interleave::python_step(walk, &mut words, &Kernel))
}

/// The words of the record being made.
struct RecordWords(*mut [u64; WORDS_MAX]);

impl Words for RecordWords {
    #[inline(always)]
    fn put(&mut self, index: u32, word: u64) -> bool {
        if index as usize >= WORDS_MAX {
            return false;
        }
        // SAFETY: the index was checked; the array is part of the claimed slot.
        unsafe { (*self.0)[index as usize] = word };
        true
    }
}

/// User memory and unwind tables as the kernel programs see them.
struct Kernel;

impl Memory for Kernel {
    #[inline(always)]
    fn read_array<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = MaybeUninit::<[u64; N]>::uninit();
        // SAFETY: destination and size agree; when the helper succeeds it has written all of it, and a failed one
        // clears it.
        unsafe {
            let failed =
                bpf_probe_read_user(words.as_mut_ptr().cast(), (N * 8) as u32, address as *const _) != 0;
            if failed { None } else { Some(words.assume_init()) }
        }
    }

    #[inline(always)]
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        // SAFETY: destination and size agree; the helper checks the source and never faults.
        unsafe {
            bpf_probe_read_user(words.as_mut_ptr().cast(), (words.len() * 8) as u32, address as *const _) == 0
        }
    }
}

impl Tables for Kernel {
    #[inline(always)]
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        as_result(find_mapping(walk, pc))
    }

    #[inline(always)]
    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        as_result(find_rule(walk, svma))
    }

    #[inline(always)]
    fn find_layout(&self, walk: &mut Walk) -> bool {
        match PYTHON_LAYOUTS.get(walk.process.python.layout) {
            Some(layout) => {
                copy(&mut walk.layout, layout);
                true
            }
            None => false,
        }
    }
}

#[inline(always)]
fn as_result(end: u32) -> Result<(), WalkEnd> {
    match end {
        FOUND => Ok(()),
        n if n == WalkEnd::NoMapping as u32 => Err(WalkEnd::NoMapping),
        n if n == WalkEnd::NoTable as u32 => Err(WalkEnd::NoTable),
        n if n == WalkEnd::NoRow as u32 => Err(WalkEnd::NoRow),
        _ => Err(WalkEnd::TableCorrupt),
    }
}

const FOUND: u32 = 0;

/// Finds the mapping that holds `pc`: a binary search in the process's sorted run. 0, or the [`WalkEnd`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_mapping(walk: *mut Walk, pc: u64) -> u32 {
    if walk.is_null() {
        return WalkEnd::TableCorrupt as u32;
    }
    // SAFETY: the caller passes the walk of a claimed slot.
    let walk = unsafe { &mut *walk };
    let base = walk.process.mappings_base;
    let (mut low, mut high) = (0u32, walk.process.mappings);
    // Invariant: mappings before `low` begin at or below pc, those from `high` on begin above it.
    for _ in 0..MAPPING_SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let Some(mapping) = MAPPINGS.get(base.wrapping_add(middle)) else {
            return WalkEnd::TableCorrupt as u32;
        };
        if mapping.begin <= pc {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return WalkEnd::NoMapping as u32;
    }
    let Some(mapping) = MAPPINGS.get(base.wrapping_add(low - 1)) else { return WalkEnd::TableCorrupt as u32 };
    if pc < mapping.begin || pc >= mapping.end {
        return WalkEnd::NoMapping as u32;
    }
    copy(&mut walk.mapping, mapping);
    let Some(executable) = EXECUTABLES.get(mapping.executable) else { return WalkEnd::TableCorrupt as u32 };
    copy(&mut walk.executable, executable);
    FOUND
}

/// Finds the rule for the stated address `svma` in the walk's executable. 0, or the [`WalkEnd`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn find_rule(walk: *mut Walk, svma: u64) -> u32 {
    if walk.is_null() {
        return WalkEnd::TableCorrupt as u32;
    }
    // SAFETY: as above.
    let walk = unsafe { &mut *walk };
    let executable = &walk.executable;
    let serial = u64::from(executable.flags >> EXECUTABLE_SERIAL_SHIFT);
    let Some(cache) = RULE_CACHE.get_ptr_mut(walk.slot as u32) else { return WalkEnd::TableCorrupt as u32 };
    // SAFETY: the cache of the claimed slot; the index is masked to its length.
    let cached = unsafe { &mut (*cache).0[cached_at(svma)] };
    if cached.svma == svma && cached.serial == serial {
        copy(&mut walk.rule, &cached.rule);
        return FOUND;
    }
    let page = (svma >> PAGE_SHIFT).wrapping_sub(u64::from(executable.first_page));
    if page >= u64::from(executable.pages) {
        return WalkEnd::NoRow as u32;
    }
    let Some(page) = PAGES.get(executable.pages_base.wrapping_add(page as u32)) else {
        return WalkEnd::TableCorrupt as u32;
    };
    if page.blocks == 0 {
        return WalkEnd::NoRow as u32;
    }
    let Some(shard) = SHARDS.get(u32::from(page.shard)) else { return WalkEnd::NoTable as u32 };
    // The last row whose `pc_low` is at or below ours: compare whole rows with the largest rule number.
    let key = row::pack(svma as u16, u16::MAX);
    let (mut low, mut high) = (0u32, u32::from(page.blocks));
    for _ in 0..BLOCK_SEARCH_STEPS {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let Some(block) = shard.get(page.first_block.wrapping_add(middle)) else {
            return WalkEnd::TableCorrupt as u32;
        };
        if block[0] <= key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if low == 0 {
        return WalkEnd::NoRow as u32;
    }
    let Some(block) = shard.get(page.first_block.wrapping_add(low - 1)) else {
        return WalkEnd::TableCorrupt as u32;
    };
    // The last of the 16 rows that is not above the key; the first is not.
    let mut at = 0;
    let mut step = ROWS_PER_BLOCK / 2;
    while step > 0 {
        if block[at + step] <= key {
            at += step;
        }
        step /= 2;
    }
    let rule = u32::from(row::rule(block[at]));
    if rule >= executable.rules {
        return WalkEnd::TableCorrupt as u32;
    }
    let Some(rule) = RULES.get(executable.rules_base.wrapping_add(rule)) else {
        return WalkEnd::TableCorrupt as u32;
    };
    if rule.cfa == rule_kind::NONE {
        return WalkEnd::NoRow as u32;
    }
    copy(&mut walk.rule, rule);
    if serial != 0 {
        cached.svma = svma;
        cached.serial = serial;
        copy(&mut cached.rule, rule);
    }
    FOUND
}
