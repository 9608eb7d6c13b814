//! Units of counters: what a value over time measures, and how it is written.
//!
//! Owns: [`CounterUnit`], how a recorded quantity becomes a value at a moment, and the name of its process. Because:
//! a metric of the machine is a sum over an interval, a counter is a level, and trace formats have no place for a
//! unit except the name of a series. Does not: know counters.

use crate::metric::{Metric, Unit};
use crate::units::{Bytes, Nanos};

/// Unit of a counter's values. Names are stored, as names of series: append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CounterUnit {
    /// A number.
    Count,
    /// Share of time, 1 for all of it.
    Share,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// A number per second.
    PerSecond,
    /// Milliwatts.
    Milliwatts,
    /// Degrees Celsius.
    DegreesCelsius,
    /// Megahertz.
    Megahertz,
    /// Megabits per second.
    MegabitsPerSecond,
}

impl CounterUnit {
    /// Every unit.
    pub const ALL: [Self; 9] = [
        Self::Count,
        Self::Share,
        Self::Bytes,
        Self::BytesPerSecond,
        Self::PerSecond,
        Self::Milliwatts,
        Self::DegreesCelsius,
        Self::Megahertz,
        Self::MegabitsPerSecond,
    ];

    /// Stable name: that of the series of a counter with this unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Share => "share",
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes/s",
            Self::PerSecond => "count/s",
            Self::Milliwatts => "mW",
            Self::DegreesCelsius => "celsius",
            Self::Megahertz => "MHz",
            Self::MegabitsPerSecond => "Mbit/s",
        }
    }

    /// The unit of a series; `None` if its name does not show one.
    pub fn of_series(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// The unit of a metric over time.
    pub fn of_metric(metric: Metric) -> Self {
        match (metric, metric.unit()) {
            (Metric::GpuPowerMilliwatts, _) => Self::Milliwatts,
            (Metric::GpuTemperatureCelsius, _) => Self::DegreesCelsius,
            (Metric::GpuClockMegahertz | Metric::GpuMemoryClockMegahertz, _) => Self::Megahertz,
            (Metric::NetworkLinkMegabits, _) => Self::MegabitsPerSecond,
            (_, Unit::Nanoseconds) => Self::Share,
            (_, Unit::Bytes) if metric.is_level() => Self::Bytes,
            (_, Unit::Bytes) => Self::BytesPerSecond,
            (_, Unit::Count) if metric.is_level() => Self::Count,
            (_, Unit::Count) => Self::PerSecond,
        }
    }

    /// The value of a metric `recorded` over this time: levels as they are, times as a share of it, everything else per
    /// second.
    pub fn value(metric: Metric, recorded: u64, over: Nanos) -> f64 {
        let (recorded, over) = (recorded as f64, over.0.max(1) as f64);
        match Self::of_metric(metric) {
            _ if metric.is_level() => recorded,
            // A clock in ticks may count a tick more than the elapsed time.
            Self::Share => (recorded / over).min(1.0),
            _ => recorded * 1e9 / over,
        }
    }

    /// A value with its unit, for people.
    pub fn written(self, value: f64) -> String {
        let bytes = |value: f64| Bytes(value.max(0.0) as u64);
        match self {
            Self::Count => number(value),
            Self::Share => format!("{:.1}%", value * 100.0),
            Self::Bytes => bytes(value).to_string(),
            Self::BytesPerSecond => format!("{}/s", bytes(value)),
            Self::PerSecond => format!("{}/s", number(value)),
            Self::DegreesCelsius => format!("{value:.0} °C"),
            Self::Milliwatts | Self::Megahertz | Self::MegabitsPerSecond => {
                format!("{value:.0} {}", self.name())
            }
        }
    }
}

/// Name of a counter's process in a trace; 0 is the machine.
pub fn counter_process(pid: u32) -> String {
    if pid == 0 { "machine".to_owned() } else { pid.to_string() }
}

/// A value with its unit, if it is known.
pub fn counter_value_in_words(unit: Option<CounterUnit>, value: f64) -> String {
    unit.map_or_else(|| number(value), |unit| unit.written(value))
}

/// Whole numbers without decimals, and others with a few.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_say_their_unit() {
        for unit in CounterUnit::ALL {
            assert_eq!(CounterUnit::of_series(unit.name()), Some(unit));
        }
        assert_eq!(CounterUnit::of_series("value"), None);
    }

    #[test]
    fn metrics_become_levels_shares_and_rates() {
        let check = |metric, recorded, expect: &str| {
            let value = CounterUnit::value(metric, recorded, Nanos(500_000_000));
            assert_eq!(CounterUnit::of_metric(metric).written(value), expect, "{metric}");
        };
        check(Metric::CpuBusyTime, 125_000_000, "25.0%");
        check(Metric::CpuBusyTime, 510_000_000, "100.0%");
        check(Metric::MemoryUsedBytes, 3 << 20, "3.00 MiB");
        check(Metric::LiveBytes, 512, "512 B");
        check(Metric::DiskReadBytes, 1 << 20, "2.00 MiB/s");
        check(Metric::ThrottledPeriods, 3, "6/s");
        check(Metric::GpuPowerMilliwatts, 71_500, "71500 mW");
        check(Metric::GpuTemperatureCelsius, 45, "45 °C");
        check(Metric::GpuClockMegahertz, 1980, "1980 MHz");
        check(Metric::NetworkLinkMegabits, 10_000, "10000 Mbit/s");
        assert_eq!(counter_value_in_words(None, 2.5), "2.50");
    }
}
