//! Rules on pressure and limits of the machine: a profile with the defect and a twin without.

use deepctx_profile::metric::Metric;
use deepctx_profile::units::Nanos;

use super::tests::{check, on_machine, profile};
use crate::findings::{Findings, Settings};
use crate::{Selection, Subset};

#[test]
fn pressure_of_the_machine_is_found() {
    let rules = [
        ("cpu-pressure", "cpu-pressure-time", "some program of the machine waited for a CPU", 150_000_000),
        ("io-pressure", "io-pressure-time", "some program of the machine waited for a disk", 150_000_000),
        (
            "memory-pressure",
            "memory-pressure-time",
            "some program of the machine waited for memory",
            150_000_000,
        ),
    ];
    for (rule, metric, what, ns) in rules {
        let waits = |ns: u64| on_machine(&format!("system:{metric}: m machine 20x{ns}"));
        check(rule, &waits(ns), &format!("For 30% of the capture, {what}"));
        check(rule, &waits(1_000_000), "healthy");
        check(rule, "P py-7 / n f 300", "record with --system-metrics 500ms");
        // A kernel that does not count pressure.
        check(rule, &on_machine(""), "record with --system-metrics 500ms");
    }
    let lines = on_machine("P py-7 / n f 250\nsystem:cpu-pressure-time: m machine 20x150000000");
    let profile = profile(&lines);
    let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
    let found = Findings::compute(&subset, Nanos(10_000_000_000), &Settings::default());
    let pressure = found.findings.iter().find(|finding| finding.rule == "cpu-pressure").unwrap();
    let evidence: Vec<_> = pressure.evidence.iter().map(|of| (of.name.as_ref(), of.value)).collect();
    let expect = [
        ("time in which some task waited for a CPU", 30.0),
        ("CPUs of the machine busy", 50.0),
        ("of that, for the profiled programs", 25.0),
    ];
    assert_eq!(evidence, expect);
}

#[test]
fn cpus_that_a_hypervisor_withholds_are_found() {
    const RULE: &str = "cpu-steal";
    // The other CPU is busy for all of the 10 s.
    let steal = |ns: u64| on_machine(&format!("system:cpu-steal-time: m machine / m cpu 1 20x{ns}"));
    let expect = "The hypervisor withheld CPUs for 20% of the time in which they had something to run";
    check(RULE, &steal(125_000_000), expect);
    check(RULE, &steal(10_000_000), "healthy");
    check(RULE, &steal(0), "healthy");
    // Half of the time in which it had something to run, and that was 40 ms.
    let idle = "system:cpu-busy-time: m machine / m cpu 0 20x1000000\n\
                system:cpu-steal-time: m machine / m cpu 0 20x1000000";
    check(RULE, idle, "healthy");
    check(RULE, "P py-7 / n f 300", "record with --system-metrics 500ms");
    let stolen = profile(&steal(125_000_000));
    let found = Findings::of_profile(&stolen, Nanos(10_000_000_000), &Settings::default()).findings;
    let of_cpus = found.iter().find(|finding| finding.rule == RULE).unwrap();
    let last = of_cpus.evidence.last().map(ToString::to_string);
    assert_eq!(last.as_deref(), Some("cpu 1 withheld, of the capture: 25.0% (measured)"));
}

#[test]
fn a_cpu_limit_that_stops_a_cgroup_is_found() {
    let limit = |throttled: u64| {
        on_machine(&format!(
            "system:limited-periods: m machine / m cgroup /job 20x5\n\
             system:throttled-periods: m machine / m cgroup /job 20x{throttled}"
        ))
    };
    check("cpu-limit", &limit(2), "The CPU limit of cgroup /job stopped it in 40% of its periods");
    check("cpu-limit", &limit(0), "healthy");
    // They would be reported twice, and the machine may be idle.
    check("cpu-pressure", &limit(2), "record with nothing");
    check("cpu-limit", &on_machine(""), "healthy");
    check("cpu-limit", "P py-7 / n f 300", "record with --system-metrics 500ms");
}
