//! System: what the machine did meanwhile, as contexts of the profile.
//!
//! Owns: [`SystemSample`], and where its values go: below `[machine]`, one context for each part of the machine.
//! Because: a program may be slow for reasons that its own stacks do not show: other programs, a disk, a limit of its
//! cgroup. Does not: read anything from the machine; the capture does.

use deepctx_profile::frame::Frame;
/// Readers of the machine name their values by this.
pub use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Time;
use serde::{Deserialize, Serialize};

use crate::spans::CounterValue;

/// Name of the context above all parts of the machine.
pub const MACHINE: &str = "machine";
/// Values of a sample that are used: four for each of a thousand CPUs, and the rest.
const VALUES_MAX: usize = 8192;

/// Resource usage of the machine between two times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemSample {
    /// When the totals were read last: `CLOCK_MONOTONIC`, nanoseconds.
    pub from_ns: u64,
    /// When they were read now.
    pub to_ns: u64,
    /// The values, zeros included: a zero shows that the counter was read.
    pub values: Vec<SystemValue>,
}

/// One value of a part of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemValue {
    /// The part: `cpu 3`, `disk sda`, or the [machine](MACHINE) itself.
    pub resource: String,
    /// Name of the metric.
    pub metric: String,
    /// The increase; for a level, the value.
    pub value: u64,
}

/// Adds a sample to the profile, and hands its values to the recorder. Metrics that are unknown, or not of the machine,
/// are left out: a newer program wrote them.
pub(crate) fn add(sample: &SystemSample, profile: &mut Profile, mut record: impl FnMut(CounterValue)) {
    let started = profile.meta.started_monotonic;
    let since = |ns| Time::from_nanos(ns) - started;
    let (from, to) = (since(sample.from_ns), since(sample.to_ns));
    for SystemValue { resource, metric, value } in sample.values.iter().take(VALUES_MAX) {
        let Some(metric) = metric.parse::<Metric>().ok().filter(|metric| metric.is_of_machine()) else {
            continue;
        };
        let node = node(profile, resource);
        profile.tree.add(node, metric, *value);
        if *value > 0 {
            profile.timeline.add_span(node, metric, from, to, *value);
        }
        let SystemSample { from_ns, to_ns, .. } = *sample;
        record(CounterValue { pid: 0, metric, node, from_ns, to_ns, value: *value });
    }
}

/// The context of a part of the machine.
fn node(profile: &mut Profile, resource: &str) -> NodeId {
    let mut frame = |name: &str| {
        let name = profile.text(name);
        profile.frame(Frame::Resource { name })
    };
    let (machine, part) = (frame(MACHINE), (resource != MACHINE).then(|| frame(resource)));
    profile.tree.path(NodeId::ROOT, std::iter::once(machine).chain(part))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::{Limits, Meta};
    use deepctx_profile::text;
    use deepctx_profile::units::Nanos;

    use super::*;

    fn value(resource: &str, metric: Metric, value: u64) -> SystemValue {
        SystemValue { resource: resource.to_owned(), metric: metric.name().to_owned(), value }
    }

    #[test]
    fn values_stand_below_the_machine_and_in_the_timeline() {
        let meta = Meta { started_monotonic: Time::from_nanos(1_000_000_000), ..Meta::default() };
        let mut profile = Profile::new(meta, Limits::default());
        let sample = |from_ns, busy, used| SystemSample {
            from_ns,
            to_ns: from_ns + 500_000_000,
            values: vec![
                value("cpu 0", Metric::CpuBusyTime, busy),
                value(MACHINE, Metric::IoPressureTime, 0),
                value(MACHINE, Metric::MemoryUsedBytes, used),
                value("cpu 0", Metric::CpuTime, 7),
                SystemValue { resource: "cpu 0".into(), metric: "system:from-the-future".into(), value: 1 },
            ],
        };
        let mut recorded = Vec::new();
        add(&sample(1_000_000_000, 400_000_000, 9), &mut profile, |value| recorded.push(value));
        add(&sample(1_500_000_000, 100_000_000, 8), &mut profile, |value| recorded.push(value));
        assert_eq!(
            text::tree(&profile),
            "all\n  [machine]  system:io-pressure-time=0/2[0..0] system:memory-used-bytes=17/2[8..9]\n    \
             [cpu 0]  system:cpu-busy-time=500000000/2[100000000..400000000]\n"
        );
        let lanes = profile.timeline.lanes();
        let of = |metric| lanes.iter().find(|lane| lane.metric == metric).map(|lane| &lane.values[..]);
        assert_eq!(profile.timeline.window(), Nanos(100_000_000));
        let busy = [[80_000_000; 5], [20_000_000; 5]].concat();
        assert_eq!(of(Metric::CpuBusyTime), Some(&busy[..]));
        assert_eq!(of(Metric::MemoryUsedBytes), Some(&[[9; 5], [8; 5]].concat()[..]));
        let one = |value: &CounterValue| (value.metric, value.from_ns, value.to_ns, value.value);
        let recorded: Vec<_> = recorded.iter().map(one).collect();
        assert_eq!(recorded.len(), 6, "zeros are recorded, too: {recorded:?}");
        assert_eq!(recorded[0], (Metric::CpuBusyTime, 1_000_000_000, 1_500_000_000, 400_000_000));
        assert_eq!((of(Metric::IoPressureTime), of(Metric::CpuTime)), (None, None));
    }
}
