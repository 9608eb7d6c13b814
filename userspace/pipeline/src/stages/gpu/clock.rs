//! Clock: the offset between a process's device clock and the host's.
//!
//! Owns: the readings, and the offset with its uncertainty at any time. Because: this is the one place where device
//! time becomes host time; a delay below the clocks' uncertainty is not a delay. Does not: read clocks.
//!
//! Each reading brackets the device clock between two host readings: the offset is the middle of the bracket, plus or
//! minus half its width. Clocks drift, so an old tight bracket loses value every second.

use deepctx_profile::device::activity::ClockOffset;
use deepctx_profile::units::{Nanos, Time, clock};

/// Readings that are kept: one minute at one per second.
const READINGS_MAX: usize = 64;
/// Assumed drift between two clocks, parts per million. A host's clock is slewed by at most 500, for short times; the
/// remaining drift of crystals is below 20.
const DRIFT_PPM: u64 = 20;

/// The offset at one reading.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Host time in the middle of the bracket.
    at_ns: u64,
    /// Host minus device.
    offset_ns: i128,
    /// Half the bracket.
    within_ns: u64,
}

impl Reading {
    /// How far off it can be at a host time.
    fn uncertainty_at(&self, at_ns: u64) -> u64 {
        self.within_ns.saturating_add(self.at_ns.abs_diff(at_ns) / 1_000_000 * DRIFT_PPM)
    }
}

/// A device clock.
#[derive(Debug, Default)]
pub(super) struct DeviceClock {
    readings: Vec<Reading>,
    first: Option<Reading>,
    count: u64,
    jumps: u64,
}

/// A device time by the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostTime {
    pub(super) time: Time<clock::Monotonic>,
    /// Largest possible error.
    pub(super) within: Nanos,
}

impl DeviceClock {
    /// A reading of the device clock between two of the host's. False if it is implausible.
    pub(super) fn read(&mut self, device_ns: u64, before_ns: u64, after_ns: u64) -> bool {
        if after_ns < before_ns {
            return false;
        }
        let at_ns = before_ns + (after_ns - before_ns) / 2;
        let within_ns = (after_ns - before_ns).div_ceil(2);
        let reading = Reading { at_ns, offset_ns: i128::from(at_ns) - i128::from(device_ns), within_ns };
        let agrees = |old: &Reading| {
            let apart = old.offset_ns.abs_diff(reading.offset_ns);
            apart <= u128::from(old.uncertainty_at(at_ns)) + u128::from(within_ns)
        };
        // After a clock was set, earlier readings are of no use.
        if self.readings.iter().any(|old| !agrees(old)) {
            self.jumps += 1;
            self.readings.clear();
            self.first = None;
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.remove(0);
        }
        self.readings.push(reading);
        self.first.get_or_insert(reading);
        self.count += 1;
        true
    }

    /// A device time by the host's clock; `None` without a reading.
    pub(super) fn host(&self, device: Time<clock::Device>) -> Option<HostTime> {
        let near = self.readings.last()?;
        // Any reading is near enough to choose the best one.
        let about = near.offset_ns + i128::from(device.as_nanos());
        let about = u64::try_from(about.max(0)).unwrap_or(u64::MAX);
        let best = self.readings.iter().min_by_key(|reading| reading.uncertainty_at(about))?;
        let time_ns = best.offset_ns + i128::from(device.as_nanos());
        Some(HostTime {
            time: Time::from_nanos(u64::try_from(time_ns.max(0)).unwrap_or(u64::MAX)),
            within: Nanos(best.uncertainty_at(about)),
        })
    }

    /// The offset for the profile.
    pub(super) fn offset(&self) -> Option<ClockOffset> {
        let (first, last) = (self.first?, self.readings.last()?);
        let best = self.readings.iter().min_by_key(|reading| reading.uncertainty_at(last.at_ns))?;
        let narrow = |wide: i128| i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX });
        Some(ClockOffset {
            offset_ns: narrow(best.offset_ns),
            uncertainty: Nanos(best.uncertainty_at(last.at_ns)),
            drift_ns: narrow(last.offset_ns - first.offset_ns),
            readings: self.count,
        })
    }

    /// How often the clock was set to another time.
    pub(super) fn jumps(&self) -> u64 {
        self.jumps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings (device, before, after), a device time, and its host time with its uncertainty.
    fn check(readings: &[(u64, u64, u64)], device: u64, expect: Option<(u64, u64)>) {
        let mut clock = DeviceClock::default();
        for (device, before, after) in readings {
            clock.read(*device, *before, *after);
        }
        let host = clock.host(Time::from_nanos(device));
        assert_eq!(host.map(|host| (host.time.as_nanos(), host.within.0)), expect);
    }

    #[test]
    fn the_tightest_bracket_counts() {
        check(&[], 5, None);
        check(&[(1000, 2000, 2200)], 1500, Some((2600, 100)));
        check(&[(1000, 2000, 2200), (2000, 3090, 3110), (3000, 4000, 4400)], 1500, Some((2600, 10)));
    }

    #[test]
    fn a_bracket_loses_worth_as_time_goes_by() {
        let second = 1_000_000_000;
        // Tight, but ten seconds old: 1 + 20 ppm of 10 s; the newer one is better.
        check(
            &[(0, 100, 102), (10 * second, 10 * second, 10 * second + 300)],
            10 * second,
            Some((10 * second + 150, 150)),
        );
    }

    #[test]
    fn a_clock_that_was_set_begins_anew() {
        let mut clock = DeviceClock::default();
        assert!(clock.read(1000, 2000, 2010));
        assert!(clock.read(2000, 9000, 9010));
        assert_eq!(clock.jumps(), 1);
        let host = clock.host(Time::from_nanos(2000)).unwrap();
        assert_eq!((host.time.as_nanos(), host.within.0), (9005, 5));
        assert!(!clock.read(1, 5, 4), "the bracket is inside out");
    }

    #[test]
    fn drift_is_reported() {
        let second = 1_000_000_000;
        let mut clock = DeviceClock::default();
        for n in 0..100 {
            clock.read(n * second, n * second + 5 * n, n * second + 5 * n + 20);
        }
        let offset = clock.offset().unwrap();
        assert_eq!((offset.drift_ns, offset.readings, offset.uncertainty.0), (495, 100, 10));
        assert_eq!(offset.offset_ns, 505);
    }
}
