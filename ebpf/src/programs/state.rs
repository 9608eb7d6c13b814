//! What programs keep between two runs: the values of their maps.
//!
//! Owns: their layout. Because: maps hold them, and programs use maps. Does not: decide anything.

/// A call whose return is waited for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InFlight {
    pub(super) call: u64,
    pub(super) entered_ns: u64,
    /// Address behind which a result will be, or 0.
    pub(super) out: u64,
}

/// Who gets a stack, when not all do: a draw among those of a tenth of a second, with the chance that the tenth before
/// suggests. Taking the first that come would favour what stands at the beginning of each burst.
#[repr(C)]
pub struct Limiter {
    /// Since when `seen` counts, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    pub(super) seen: u64,
    pub(super) taken: u64,
    /// Of 2³².
    pub(super) chance: u64,
}

/// A token bucket in one number: the time up to which walks are paid for.
#[repr(C)]
pub struct Bucket {
    pub(super) paid_ns: u64,
}
