//! Rules found recently: their layout.
//!
//! Owns: how many, and how they lie. Because: a map holds them beside each scratch slot. Does not: look anything up
//! (`tables` does).

use core::mem::offset_of;

use deepctx_common::unwind::Rule;

/// Entries of a [`RuleCache`]: 24 KiB. The stacks of a few threads fit.
pub(super) const CACHED_RULES: usize = 1024;
/// Places of the index: a stack's functions rarely share one.
pub(super) const CACHE_INDEX: usize = 2048;

/// Rules found recently, in the order in which walks first asked for them.
///
/// A search touches a dozen cache lines of the tables, all cold when a sample comes after 10 ms of other work; most
/// frames of a stack were in the last one too. In this order the rule of a caller stands behind that of its callee:
/// most look-ups are one comparison, on a line that was fetched already.
#[repr(C)]
pub struct RuleCache {
    pub(super) entries: [CachedRule; CACHED_RULES],
    /// Place of an address → its entry, if that was not overwritten.
    pub(super) index: [u16; CACHE_INDEX],
    /// Entries written so far: the next one goes behind the last, around.
    pub(super) written: u64,
}

const _: () = assert!(size_of::<RuleCache>() <= 32 << 10);

/// One rule.
#[repr(C)]
pub(super) struct CachedRule {
    /// Executable and address as one number; 0 is free.
    pub(super) key: u64,
    pub(super) rule: Rule,
}

const _: () = assert!(offset_of!(CachedRule, rule).is_multiple_of(8));
