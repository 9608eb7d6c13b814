//! Cache of recently found rules: its layout.
//!
//! Owns: the number of entries and their order. Because: a map holds a cache per scratch slot. Does not: look anything
//! up (`tables` does).

use core::mem::offset_of;

use deepctx_common::unwind::Rule;

/// Entries of a [`RuleCache`]: 24 KiB, enough for the stacks of a few threads.
pub(super) const CACHED_RULES: usize = 1024;
/// Slots of the index: the functions of a stack rarely share one.
pub(super) const CACHE_INDEX: usize = 2048;

/// Recently found rules, in the order in which walks first asked for them.
///
/// A search touches a dozen cache lines of the tables, all cold if a sample follows 10 ms of other work; most frames of
/// a stack were also in the previous one. In this order the rule of a caller follows that of its callee, so most
/// lookups are one comparison, on a cache line that was fetched already.
#[repr(C)]
pub struct RuleCache {
    pub(super) entries: [CachedRule; CACHED_RULES],
    /// Index slot of an address → its entry, unless overwritten.
    pub(super) index: [u16; CACHE_INDEX],
    /// Number of entries written so far; the next one follows the last and wraps around.
    pub(super) written: u64,
}

const _: () = assert!(size_of::<RuleCache>() <= 32 << 10);

/// One rule.
#[repr(C)]
pub(super) struct CachedRule {
    /// Executable and address as one number; 0 means free.
    pub(super) key: u64,
    pub(super) rule: Rule,
}

const _: () = assert!(offset_of!(CachedRule, rule).is_multiple_of(8));
