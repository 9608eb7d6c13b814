//! Scratch memory: state of a program run that does not fit on the 512-byte stack.
//!
//! Owns: its layout. Because: maps hold it, and every program that walks or builds a record claims a slot. Does not:
//! claim or fill it.

use core::mem::offset_of;

use deepctx_common::call::{ARGUMENTS_MAX, Call, TEXT_MAX};
use deepctx_common::record::{KERNEL_WORDS_MAX, StackSample, USER_WORDS_MAX};
use deepctx_walk::interleave::Walk;

use crate::arch::UserRegs;

/// Words of one record: kernel words, then user words.
pub const WORDS_MAX: usize = KERNEL_WORDS_MAX + USER_WORDS_MAX;
/// Words that may follow them: a call, its arguments and a text.
pub const TAIL_WORDS: usize = size_of::<Call>() / 8 + ARGUMENTS_MAX + TEXT_MAX / 8;

/// State of a program run that does not fit on the 512-byte stack. Below 32 KiB, the limit on a per-CPU value.
#[repr(C)]
pub struct Scratch {
    /// 1 while claimed.
    pub(super) busy: u64,
    /// The walk.
    pub walk: Walk,
    /// User registers.
    pub regs: UserRegs,
    /// Fetched arguments of a call.
    pub arguments: [u64; ARGUMENTS_MAX],
    /// The record: its fixed part …
    pub sample: StackSample,
    /// … its words, directly after it …
    pub words: [u64; WORDS_MAX],
    /// … and room for what may follow them.
    pub tail: [u64; TAIL_WORDS],
    /// Never written. The compiler may turn "below the end" into "not the end", from which kernels before 6.8 derive no
    /// bound: to them the word after the last one would be reachable.
    past_end: u64,
}

const _: () = {
    assert!(size_of::<Scratch>() < 32 << 10);
    assert!(offset_of!(Scratch, words) == offset_of!(Scratch, sample) + size_of::<StackSample>());
    assert!(offset_of!(Scratch, tail) == offset_of!(Scratch, words) + 8 * WORDS_MAX);
    assert!(offset_of!(Scratch, walk).is_multiple_of(8) && offset_of!(Scratch, sample).is_multiple_of(8));
    assert!(offset_of!(Walk, process).is_multiple_of(8) && offset_of!(Walk, mapping).is_multiple_of(8));
    assert!(offset_of!(Walk, executable).is_multiple_of(8) && offset_of!(Walk, rule).is_multiple_of(8));
    assert!(offset_of!(Walk, layout).is_multiple_of(8) && offset_of!(Walk, called).is_multiple_of(8));
};
