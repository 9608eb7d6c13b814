//! Figures: readings of a GPU as values of an interval.
//!
//! Owns: the metric and the value for each reading. Because: the library reports percentages, bits and levels, while
//! a profile has time and levels. Does not: read.

use deepctx_pipeline::system::{Metric, SystemValue};

use super::protocol::{Figure, GpuReading};

/// Levels, and the maximum of each: a larger value is not a reading (the library's "not available" is the largest
/// number), and would spoil the sums of a profile.
const LEVELS: [(Figure, Metric, u64); 6] = [
    (Figure::MemoryUsedBytes, Metric::MemoryUsedBytes, 1 << 50),
    (Figure::MemoryTotalBytes, Metric::MemoryTotalBytes, 1 << 50),
    (Figure::PowerMilliwatts, Metric::GpuPowerMilliwatts, 100_000_000),
    (Figure::TemperatureCelsius, Metric::GpuTemperatureCelsius, 1000),
    (Figure::ClockMegahertz, Metric::GpuClockMegahertz, 1_000_000),
    (Figure::MemoryClockMegahertz, Metric::GpuMemoryClockMegahertz, 1_000_000),
];
/// Shares of time.
const SHARES: [(Figure, Metric); 2] =
    [(Figure::BusyPercent, Metric::GpuBusyTime), (Figure::MemoryBusyPercent, Metric::GpuMemoryBusyTime)];

// Why clocks are lower than they could be: bits of `nvmlClocksEventReasons`, in `nvml.h`.
/// Somebody set the clocks of applications.
const SET_CLOCKS: u64 = 0x2;
const POWER_CAP: u64 = 0x4;
/// The hardware slowed itself down: for heat or power, each with its own bit, or for another reason.
const HARDWARE: u64 = 0x8;
/// Clocks are those of the slowest GPU of a group.
const SYNC_BOOST: u64 = 0x10;
const THERMAL: u64 = 0x20;
const HARDWARE_THERMAL: u64 = 0x40;
/// The power supply requested it.
const HARDWARE_POWER: u64 = 0x80;
const DISPLAY: u64 = 0x100;

/// The name of a GPU's context.
pub(super) fn name(gpu: &GpuReading) -> String {
    match &*gpu.uuid {
        "" => format!("gpu {}", gpu.index),
        uuid => format!("gpu {} {uuid}", gpu.index),
    }
}

/// A GPU's reading as values of an interval of this length. A missing figure has no value.
pub(super) fn values(gpu: &GpuReading, interval_ns: u64) -> Vec<SystemValue> {
    let resource = name(gpu);
    let value = |metric: Metric, value| SystemValue {
        resource: resource.clone(),
        metric: metric.name().to_owned(),
        value,
    };
    let shares = SHARES.into_iter().filter_map(|(figure, metric)| {
        let percent = gpu.get(figure).filter(|percent| *percent <= 100)?;
        Some(value(metric, interval_ns.saturating_mul(percent) / 100))
    });
    let levels = LEVELS.into_iter().filter_map(|(figure, metric, most)| {
        gpu.get(figure).filter(|level| *level <= most).map(|level| value(metric, level))
    });
    let limited = gpu.get(Figure::ClockReasons).into_iter().flat_map(limits);
    let limited = limited.map(|(metric, is_limited)| value(metric, u64::from(is_limited) * interval_ns));
    shares.chain(levels).chain(limited).collect()
}

/// Active limits at the time of the reading; they count for the whole interval.
fn limits(reasons: u64) -> [(Metric, bool); 4] {
    let any = |bits| reasons & bits != 0;
    let (power, thermal) = (any(HARDWARE_POWER), any(HARDWARE_THERMAL));
    [
        (Metric::GpuPowerLimitedTime, power || any(POWER_CAP)),
        (Metric::GpuThermalLimitedTime, thermal || any(THERMAL)),
        (Metric::GpuSlowdownTime, any(HARDWARE) && !power && !thermal),
        (Metric::GpuClockSettingTime, any(SET_CLOCKS | SYNC_BOOST | DISPLAY)),
    ]
}

#[cfg(test)]
mod tests {
    use nvml_wrapper_sys::bindings::*;

    use super::*;

    fn reading(figures: &[(Figure, u64)]) -> GpuReading {
        let mut gpu = GpuReading { index: 3, uuid: "GPU-a".into(), ..GpuReading::default() };
        figures.iter().for_each(|(figure, value)| gpu.set(*figure, *value));
        gpu
    }

    /// Values of half a second.
    #[track_caller]
    fn check(figures: &[(Figure, u64)], expect: &[&str]) {
        let found = values(&reading(figures), 500_000_000);
        let found = found.into_iter().map(|it| format!("{} {}={}", it.resource, it.metric, it.value));
        assert_eq!(found.collect::<Vec<_>>(), expect);
    }

    #[test]
    fn shares_become_time_and_levels_stay() {
        check(&[], &[]);
        check(
            &[
                (Figure::BusyPercent, 75),
                (Figure::MemoryBusyPercent, 0),
                (Figure::MemoryUsedBytes, 7),
                (Figure::MemoryTotalBytes, 80),
                (Figure::PowerMilliwatts, 350_000),
                (Figure::TemperatureCelsius, 61),
                (Figure::ClockMegahertz, 1980),
                (Figure::MemoryClockMegahertz, 2619),
            ],
            &[
                "gpu 3 GPU-a system:gpu-busy-time=375000000",
                "gpu 3 GPU-a system:gpu-memory-busy-time=0",
                "gpu 3 GPU-a system:memory-used-bytes=7",
                "gpu 3 GPU-a system:memory-total-bytes=80",
                "gpu 3 GPU-a system:gpu-power-milliwatts=350000",
                "gpu 3 GPU-a system:gpu-temperature-celsius=61",
                "gpu 3 GPU-a system:gpu-clock-megahertz=1980",
                "gpu 3 GPU-a system:gpu-memory-clock-megahertz=2619",
            ],
        );
    }

    #[test]
    fn what_is_not_available_is_left_out() {
        let not_available = u64::from(u32::MAX);
        check(
            &[
                (Figure::BusyPercent, not_available),
                (Figure::MemoryUsedBytes, u64::MAX),
                (Figure::PowerMilliwatts, not_available),
                (Figure::TemperatureCelsius, not_available),
            ],
            &[],
        );
        assert_eq!(name(&GpuReading { index: 2, ..GpuReading::default() }), "gpu 2");
    }

    #[test]
    fn limits_hold_for_the_whole_interval() {
        let limited = |reasons: u64| {
            let found = values(&reading(&[(Figure::ClockReasons, reasons)]), 1);
            found.iter().map(|it| it.value).collect::<Vec<_>>()
        };
        // Power, heat, another slowdown, set clocks.
        for (reasons, expect) in [
            (0, [0, 0, 0, 0]),
            (nvmlClocksThrottleReasonGpuIdle, [0, 0, 0, 0]),
            (nvmlClocksThrottleReasonSwPowerCap, [1, 0, 0, 0]),
            (nvmlClocksThrottleReasonSwThermalSlowdown, [0, 1, 0, 0]),
            (nvmlClocksThrottleReasonHwSlowdown, [0, 0, 1, 0]),
            (nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown, [0, 1, 0, 0]),
            (nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown, [1, 0, 0, 0]),
            (nvmlClocksThrottleReasonApplicationsClocksSetting, [0, 0, 0, 1]),
            (nvmlClocksThrottleReasonSyncBoost, [0, 0, 0, 1]),
            (nvmlClocksThrottleReasonDisplayClockSetting, [0, 0, 0, 1]),
        ] {
            assert_eq!(limited(reasons.into()), expect, "{reasons:#x}");
        }
    }
}
