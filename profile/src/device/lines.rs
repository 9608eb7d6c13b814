//! Device lines: sentences about the device work of a process.
//!
//! Owns: [`device_lines`]. Because: the report and the live view must say the same, and a merely bounded time must
//! not look measured. Does not: compute anything.

use crate::device::activity::{GpuProcess, JoinMethod, Tier};
use crate::frame::clean;
use crate::units::{Nanos, counted, counted_as};

/// Facts about the device work of a process, one sentence per line.
pub fn device_lines(process: &GpuProcess) -> Vec<String> {
    let mut lines: Vec<String> = process.devices.iter().map(|device| clean(&device.line())).collect();
    let seen = [
        (process.launches, "kernel launch", "kernel launches"),
        (process.graph_launches, "graph launch", "graph launches"),
        (process.transfers, "copy or fill", "copies and fills"),
        (process.captured, "launch into a graph", "launches into graphs"),
    ];
    let seen = seen.into_iter().filter(|(n, ..)| *n > 0);
    let seen: Vec<_> = seen.map(|(n, one, many)| counted_as(n, one, many)).collect();
    if !seen.is_empty() {
        lines.push(seen.join(", "));
    }
    if process.launches_without_stack > 0 {
        let share = process.launches_without_stack as f64 * 100.0 / process.launches.max(1) as f64;
        let n = process.launches_without_stack;
        let (launches, verb) = (counted_as(n, "launch", "launches"), if n == 1 { "has" } else { "have" });
        lines.push(format!(
            "stacks are sampled: {launches} ({share:.1}%) {verb} none; counts and times are exact"
        ));
    }
    match process.tier {
        Tier::Observed if process.busy_at_most > Nanos(0) => lines.push(format!(
            "device time is not measured; devices were busy at most {} between launches and waits",
            process.busy_at_most
        )),
        Tier::Observed => lines.push("device time is not measured".to_owned()),
        Tier::Borrowed | Tier::Collected => lines.extend(collected(process)),
    }
    if let Some(clock) = process.clock {
        let drift = Nanos(clock.drift_ns.unsigned_abs());
        lines.push(format!(
            "device clock known to {}, moved by {drift} over {}",
            clock.uncertainty,
            counted(clock.readings, "reading")
        ));
    }
    if process.overhead > Nanos(0) {
        lines.push(format!("the profiling interface itself took {}", process.overhead));
    }
    lines
}

/// Kernels reported by activities, and how they compare with the launches that probes observed.
fn collected(process: &GpuProcess) -> [String; 2] {
    let how = match process.join {
        JoinMethod::Exact => "by correlation id",
        JoinMethod::Estimated => "by order, an estimate",
        JoinMethod::None => "not at all",
    };
    // A stored profile may state any number.
    let reported = counted(process.kernels.saturating_add(process.graph_kernels), "kernel");
    let launches = counted_as(process.launches_collected, "launch", "launches");
    let kernels = counted(process.kernels, "kernel");
    let difference = process.difference();
    [
        format!("{reported} reported, {} joined with launches {how}", process.joined),
        format!("{launches} by probes, {kernels} by activities: difference {difference}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::activity::ClockOffset;

    #[test]
    fn numbers_of_a_damaged_profile_do_not_overflow() {
        let process = GpuProcess {
            tier: Tier::Collected,
            kernels: u64::MAX,
            graph_kernels: u64::MAX,
            ..GpuProcess::default()
        };
        assert!(device_lines(&process)[0].starts_with("18446744073709551615 kernels reported"));
    }

    #[test]
    fn device_lines_name_the_source_of_times() {
        let check = |process: GpuProcess, expect: &[&str]| assert_eq!(device_lines(&process), expect);
        check(
            GpuProcess {
                launches: 4,
                launches_without_stack: 1,
                graph_launches: 1,
                busy_at_most: Nanos(5_000_000),
                ..GpuProcess::default()
            },
            &[
                "4 kernel launches, 1 graph launch",
                "stacks are sampled: 1 launch (25.0%) has none; counts and times are exact",
                "device time is not measured; devices were busy at most 5.00 ms between launches and waits",
            ],
        );
        check(
            GpuProcess {
                tier: Tier::Collected,
                join: JoinMethod::Exact,
                launches: 12,
                launches_collected: 10,
                kernels: 8,
                graph_kernels: 5,
                joined: 13,
                clock: Some(ClockOffset {
                    offset_ns: 1,
                    uncertainty: Nanos(1500),
                    drift_ns: -20,
                    readings: 7,
                }),
                ..GpuProcess::default()
            },
            &[
                "12 kernel launches",
                "13 kernels reported, 13 joined with launches by correlation id",
                "10 launches by probes, 8 kernels by activities: difference 2",
                "device clock known to 1.50 µs, moved by 20 ns over 7 readings",
            ],
        );
    }
}
