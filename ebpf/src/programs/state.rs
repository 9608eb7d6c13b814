//! State that programs keep from one run to the next: the values of their maps.
//!
//! Owns: their layout. Because: maps hold them, and programs use maps. Does not: decide anything.

/// A call whose return is pending.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InFlight {
    pub(super) call: u64,
    pub(super) entered_ns: u64,
    /// Address of the result to read on return, or 0.
    pub(super) out: u64,
}

/// Chooses the calls that get a stack, if not all do: a random draw with a chance computed from the previous period of
/// 100 ms. Taking the first calls would favour the beginning of each burst.
#[repr(C)]
pub struct Limiter {
    /// Start of the current period, `CLOCK_MONOTONIC` nanoseconds.
    pub(super) began_ns: u64,
    pub(super) seen: u64,
    pub(super) taken: u64,
    /// Chance of a call, in units of 2⁻³².
    pub(super) chance: u64,
}

/// A token bucket in one number: the time up to which the budget of walks is spent.
#[repr(C)]
pub struct Bucket {
    pub(super) paid_ns: u64,
}
