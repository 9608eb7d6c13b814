//! Units: what a number counts, as types.
//!
//! Owns: nanoseconds, bytes, counts, a number with its noun ([`counted`]), and points in time that know their clock.
//! Because: mistaking a time for a size, or comparing a host time with a device time, must not compile, and "1 samples"
//! reads like a defect. Does not: read any clock, know irregular plurals.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Sum that stops at the largest value instead of wrapping.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Difference that stops at zero instead of wrapping.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
    };
}

quantity! {
    /// A length of time in nanoseconds.
    Nanos
}
quantity! {
    /// A size in bytes.
    Bytes
}
quantity! {
    /// A number of things.
    Count
}

impl Nanos {
    /// One second.
    pub const SECOND: Nanos = Nanos(1_000_000_000);

    /// As seconds, for people.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// A duration of more than 584 years becomes the longest one that there is.
impl From<Duration> for Nanos {
    fn from(length: Duration) -> Self {
        Self(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// `1.23 s`, `45.6 ms`, `789 µs`, `12 ns`: three significant figures.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")])
    }
}

/// `1.50 GiB`, `12.0 KiB`, `7 B`: three significant figures.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn scaled(f: &mut fmt::Formatter<'_>, value: u64, scales: &[(u64, &str)]) -> fmt::Result {
    let last = (1, "");
    // From half of the next smaller unit below it, a value rounds up to a unit: 999.6 µs are 1.00 ms.
    let halves = scales.iter().skip(1).map(|(smaller, _)| smaller / 2).chain([0]);
    let found = scales.iter().zip(halves).find(|((size, _), half)| value >= size - half);
    let &(size, unit) = found.map(|(scale, _)| scale).or(scales.last()).unwrap_or(&last);
    if size == 1 {
        return f.pad(&format!("{value} {unit}"));
    }
    let shown = value as f64 / size as f64;
    let digits = match shown {
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    f.pad(&format!("{shown:.digits$} {unit}"))
}

/// A number with its noun: `1 step`, `3 steps`. [`counted_as`] is for nouns whose plural is not the noun and an `s`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", plural_ending(number))
}

/// A number with the form of its noun that fits: `1 launch`, `3 launches`.
pub fn counted_as(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The ending of a regular noun after this number, where the number is not formatted as by [`counted`].
pub const fn plural_ending(number: u64) -> &'static str {
    if number == 1 { "" } else { "s" }
}

/// Clocks that a [`Time`] can belong to.
pub mod clock {
    /// `CLOCK_MONOTONIC` of the host: the clock of every record.
    #[derive(Clone, Copy, Debug)]
    pub enum Monotonic {}

    /// The clock of a device's activity records. Its offset from the host's is measured, with an uncertainty.
    #[derive(Clone, Copy, Debug)]
    pub enum Device {}

    /// `CLOCK_REALTIME` of the host: nanoseconds since 1970 UTC. Only for the day and hour of a capture.
    #[derive(Clone, Copy, Debug)]
    pub enum Realtime {}

    /// The clock of one trace of another tool, to which the tool has converted times of host and devices. Two such
    /// clocks are related only by [`ClockInfo`](crate::trace::ClockInfo).
    #[derive(Clone, Copy, Debug)]
    pub enum TraceClock {}
}

/// A point in time on one clock, in nanoseconds since that clock's zero.
///
/// Times of different clocks can be neither compared nor subtracted:
///
/// ```compile_fail
/// use deepctx_profile::units::{Time, clock};
/// let (a, b) = (Time::<clock::Monotonic>::from_nanos(1), Time::<clock::Realtime>::from_nanos(2));
/// let _ = b - a;
/// ```
pub struct Time<Clock> {
    ns: u64,
    clock: PhantomData<fn() -> Clock>,
}

impl<Clock> Time<Clock> {
    /// The point `ns` nanoseconds after the clock's zero.
    pub const fn from_nanos(ns: u64) -> Self {
        Time { ns, clock: PhantomData }
    }

    /// Nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }
}

impl<Clock> Clone for Time<Clock> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Clock> Copy for Time<Clock> {}
impl<Clock> Default for Time<Clock> {
    fn default() -> Self {
        Self::from_nanos(0)
    }
}
impl<Clock> PartialEq for Time<Clock> {
    fn eq(&self, other: &Self) -> bool {
        self.ns == other.ns
    }
}
impl<Clock> Eq for Time<Clock> {}
impl<Clock> PartialOrd for Time<Clock> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<Clock> Ord for Time<Clock> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ns.cmp(&other.ns)
    }
}
impl<Clock> Hash for Time<Clock> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ns.hash(state);
    }
}
impl<Clock> fmt::Debug for Time<Clock> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}ns", self.ns)
    }
}

/// Time from `earlier` to `self`; zero if `earlier` is in fact later.
impl<Clock> Sub for Time<Clock> {
    type Output = Nanos;

    fn sub(self, earlier: Self) -> Nanos {
        Nanos(self.ns.saturating_sub(earlier.ns))
    }
}

impl<Clock> Add<Nanos> for Time<Clock> {
    type Output = Self;

    fn add(self, length: Nanos) -> Self {
        Self::from_nanos(self.ns.saturating_add(length.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_shown_with_three_significant_figures() {
        let check = |shown: String, expect: &str| assert_eq!(shown, expect);
        check(Nanos(0).to_string(), "0 ns");
        check(Nanos(999).to_string(), "999 ns");
        check(Nanos(1_500).to_string(), "1.50 µs");
        check(Nanos(45_600_000).to_string(), "45.6 ms");
        check(Nanos(9_999_000_000).to_string(), "10.0 s");
        check(Nanos(123_456_000_000).to_string(), "123 s");
        check(Bytes(7).to_string(), "7 B");
        check(Bytes(1536).to_string(), "1.50 KiB");
        check(Bytes(u64::MAX).to_string(), "16777216 TiB");
        check(format!("{:>8}", Nanos(12)), "   12 ns");
    }

    #[test]
    fn what_rounds_to_a_unit_is_shown_in_it() {
        let check = |shown: String, expect: &str| assert_eq!(shown, expect);
        check(Nanos(999_499).to_string(), "999 µs");
        check(Nanos(999_600).to_string(), "1.00 ms");
        check(Nanos(999_500_000).to_string(), "1.00 s");
        check(Bytes(1023).to_string(), "1023 B");
        check(Bytes((1 << 20) - 513).to_string(), "1023 KiB");
        check(Bytes((1 << 20) - 1).to_string(), "1.00 MiB");
    }

    #[test]
    fn only_one_thing_is_singular() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "file")), ["0 files", "1 file", "2 files"]);
        let launches = |n| counted_as(n, "graph launch", "graph launches");
        assert_eq!([0, 1, 2].map(launches), ["0 graph launches", "1 graph launch", "2 graph launches"]);
        assert_eq!(counted(u64::MAX, "call"), "18446744073709551615 calls");
    }

    #[test]
    fn durations_without_room_are_the_longest() {
        assert_eq!(Nanos::from(Duration::new(2, 5)), Nanos(2_000_000_005));
        assert_eq!(Nanos::from(Duration::from_nanos(u64::MAX)), Nanos(u64::MAX));
        assert_eq!(Nanos::from(Duration::MAX), Nanos(u64::MAX));
    }

    #[test]
    fn differences_of_times_never_wrap() {
        let (early, late) = (Time::<clock::Monotonic>::from_nanos(5), Time::from_nanos(9));
        assert_eq!(late - early, Nanos(4));
        assert_eq!(early - late, Nanos(0));
        assert_eq!(late + Nanos(u64::MAX), Time::from_nanos(u64::MAX));
    }
}
