//! Comparisons of a program's own counts with its profile.
//!
//! Owns: the definition of equal. Because: comparisons decide whether a check passes, so they have tests of their own.
//! Does not: start anything.

use super::reported::{EntrySum, Kernel, ReportedProfile, TracedKernel};
use super::row::Row;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum relative difference of equal times.
const TIMES_WITHIN: f64 = 0.01;
/// The same for two runs with separate clocks and caches.
const RUNS_WITHIN: f64 = 0.05;

/// Compares the kernel counts of the program, the probes and the activities; `timed`: there are activities.
pub(super) fn counts(
    part: &'static str,
    account: &[Value],
    reported: &ReportedProfile,
    timed: bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |what: &str, own: u64, kernel: Kernel| {
        rows.push(Row::equal(part, format!("{what}: own count = probes"), own, kernel.launches));
        if timed {
            rows.push(Row::equal(part, format!("{what}: own count = CUPTI"), own, kernel.timed));
        }
    };
    for (key, exactly) in [("kernels", true), ("contained", false)] {
        let mut own: BTreeMap<&str, u64> = BTreeMap::new();
        let said = account.iter().filter_map(|said| said[key].as_object()).flatten();
        said.for_each(|(name, count)| *own.entry(name).or_default() += count.as_u64().unwrap_or(0));
        for (name, count) in own {
            let kernel = if exactly {
                reported.kernels.get(name).copied().unwrap_or_default()
            } else {
                reported.containing(name)
            };
            add(name, count, kernel);
        }
    }
    rows
}

/// All launches of a collected process: probes and CUPTI in the same run.
pub(super) fn both_sides(part: &'static str, reported: &ReportedProfile) -> Vec<Row> {
    let of = |name| reported.number(name);
    let mut rows = vec![
        Row::equal(part, "tier", "collected", reported.process["tier"].as_str().unwrap_or("none")),
        Row::equal(part, "all kernels: probes = CUPTI", of("launches_collected"), of("kernels")),
        Row::equal(
            part,
            "all kernels joined with launches",
            of("kernels") + of("graph_kernels"),
            of("joined"),
        ),
    ];
    for gap in [
        "launch-without-activity",
        "launch-without-correlation",
        "activity-without-launch",
        "activity-dropped",
        "activity-skipped",
        "call-lost",
    ] {
        rows.push(Row::equal(part, gap, 0, reported.losses.get(gap).copied().unwrap_or(0)));
    }
    rows
}

/// Compares what entered calls, by function and metric.
pub(super) fn calls(part: &'static str, account: &[Value], reported: &ReportedProfile) -> Vec<Row> {
    let mut rows = Vec::new();
    for (function, metrics) in account.iter().filter_map(|said| said["calls"].as_object()).flatten() {
        for (metric, own) in metrics.as_object().into_iter().flatten() {
            let got = reported.calls.get(function).and_then(|metrics| metrics.get(metric));
            let got = got.copied().unwrap_or_default();
            let what = format!("{function}: {metric}");
            let own_times = own["calls"].as_u64().unwrap_or(0);
            rows.push(match own["bytes"].as_u64() {
                Some(sum) => Row::equal(part, what, text(EntrySum { times: own_times, sum }), text(got)),
                None => Row::equal(part, what, own_times, got.times),
            });
        }
    }
    rows
}

fn text(entered: EntrySum) -> String {
    format!("{} calls, {} bytes", entered.times, entered.sum)
}

/// Compares the kernel times of one run from both sides, by correlation id.
pub(super) fn same_run(part: &'static str, theirs: &[TracedKernel], ours: &[TracedKernel]) -> Vec<Row> {
    /// By correlation id: kernels, microseconds.
    fn by_call(kernels: &[TracedKernel]) -> BTreeMap<u64, (u64, f64)> {
        let mut calls: BTreeMap<u64, (u64, f64)> = BTreeMap::new();
        for kernel in kernels {
            let call = calls.entry(kernel.correlation).or_default();
            *call = (call.0 + 1, call.1 + kernel.took);
        }
        calls
    }
    let (theirs, ours) = (by_call(theirs), by_call(ours));
    let kernels = |calls: &BTreeMap<u64, (u64, f64)>| calls.values().map(|call| call.0).sum::<u64>();
    let mut rows = vec![Row::equal(part, "same run: kernels reported", kernels(&theirs), kernels(&ours))];
    let worst = theirs.iter().filter_map(|(call, (_, theirs))| {
        let (_, ours) = ours.get(call)?;
        // Traces have three decimals of a microsecond.
        Some(((theirs - ours).abs() - 0.0015).max(0.0) / theirs.max(1e-3))
    });
    let (count, worst) = worst.fold((0u64, 0f64), |(count, worst), off| (count + 1, worst.max(off)));
    rows.push(Row::equal(part, "same run: kernels of the same calls", theirs.len() as u64, count));
    let reported = format!("worst of {count}: {:.3} %", worst * 100.0);
    rows.push(Row::holds(
        part,
        "same run: time of each kernel",
        "within 1 %",
        reported,
        count > 0 && worst <= TIMES_WITHIN,
    ));
    rows
}

/// Compares the totals of a trace and of the tree.
pub(super) fn totals(part: &'static str, theirs: &[TracedKernel], reported: &ReportedProfile) -> Row {
    let theirs: f64 = theirs.iter().map(|kernel| kernel.took).sum();
    let ours = reported.kernels.values().map(|kernel| kernel.ns).sum::<u64>() as f64 / 1000.0;
    let holds = theirs > 0.0 && (ours / theirs - 1.0).abs() <= TIMES_WITHIN;
    let what = "same run: time of all kernels, in the tree";
    Row::holds(part, what, format!("{theirs:.1} µs within 1 %"), format!("{ours:.1} µs"), holds)
}

/// Compares the mean times of kernels in two runs, weighted by frequency.
pub(super) fn two_runs(part: &'static str, theirs: &[TracedKernel], ours: &[TracedKernel]) -> Row {
    fn by_name(kernels: &[TracedKernel]) -> BTreeMap<String, (f64, f64)> {
        let mut names: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for kernel in kernels {
            // Demanglers differ in spaces.
            let name = names.entry(kernel.name.replace(' ', "")).or_default();
            *name = (name.0 + 1.0, name.1 + kernel.took);
        }
        names
    }
    let (theirs, ours) = (by_name(theirs), by_name(ours));
    let both = theirs.iter().filter_map(|(name, theirs)| Some((theirs, ours.get(name)?)));
    let (mut expected, mut got, mut names) = (0.0, 0.0, 0);
    for ((times, sum), (our_times, our_sum)) in both {
        (expected, got, names) = (expected + sum, got + our_sum / our_times * times, names + 1);
    }
    let off = if expected > 0.0 { got / expected - 1.0 } else { f64::INFINITY };
    let reported = format!("{:+.2} % over {names} of {} kernels", off * 100.0, theirs.len());
    Row::holds(
        part,
        "two runs: mean times of the same kernels",
        "within 5 %",
        reported,
        off.abs() <= RUNS_WITHIN,
    )
}

/// The launches of a program that was running before the attach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecoveredLaunches {
    pub(super) right: u64,
    pub(super) unnamed: u64,
    pub(super) wrong: u64,
}

/// Compares recovered names with the kernels of one step, as the program knows them. A launch is wrong if its name
/// belongs to no kernel of the step, or to one that was launched less often.
pub(super) fn recovered(step: &BTreeMap<String, u64>, reported: &ReportedProfile) -> RecoveredLaunches {
    let plain = |name: &str| name.trim_end_matches("[recovered]").replace(' ', "");
    let step: BTreeMap<String, u64> = step.iter().map(|(name, times)| (plain(name), *times)).collect();
    let all: u64 = reported.kernels.values().map(|kernel| kernel.launches).sum();
    let of_step = step.values().sum::<u64>().max(1);
    let mut sum = RecoveredLaunches::default();
    for (name, kernel) in &reported.kernels {
        if name.contains("[unknown") {
            sum.unnamed += kernel.launches;
            continue;
        }
        // A step may have begun before the attach, and another may not have ended.
        let most = step.get(&plain(name)).map_or(0, |times| times * (all / of_step + 2));
        sum.right += kernel.launches.min(most);
        sum.wrong += kernel.launches.saturating_sub(most);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::row::Verdict;
    use super::*;
    use serde_json::json;

    fn reported(kernels: &[(&str, u64, u64)]) -> ReportedProfile {
        let kernel = |&(name, launches, timed): &(&str, u64, u64)| {
            (name.to_owned(), Kernel { launches, timed, ns: timed * 1000 })
        };
        ReportedProfile { kernels: kernels.iter().map(kernel).collect(), ..ReportedProfile::default() }
    }

    fn failed(rows: &[Row]) -> Vec<&str> {
        rows.iter().filter(|row| row.verdict == Verdict::Failed).map(|row| row.what.as_str()).collect()
    }

    #[test]
    fn a_kernel_too_few_on_either_side_is_seen() {
        let account = [json!({"kernels": {"a": 3}}), json!({"kernels": {"a": 2}, "contained": {"erf": 4}})];
        let check = |kernels: &[(&str, u64, u64)], expect: &[&str]| {
            assert_eq!(failed(&counts("x", &account, &reported(kernels), true)), expect);
        };
        check(&[("a", 5, 5), ("v<erf>", 3, 3), ("w<erf>", 1, 1)], &[]);
        check(&[("a", 5, 4), ("v<erf>", 4, 4)], &["a: own count = CUPTI"]);
        check(&[("a", 6, 5), ("v<erf>", 4, 4)], &["a: own count = probes"]);
        check(&[("a", 5, 5)], &["erf: own count = probes", "erf: own count = CUPTI"]);
    }

    #[test]
    fn times_of_one_run_are_compared_call_by_call() {
        let traced = |correlation, took| TracedKernel { name: "k".to_owned(), correlation, took };
        let theirs = [traced(1, 10.0), traced(2, 20.0), traced(2, 5.0)];
        let check = |ours: &[TracedKernel], expect: &[&str]| {
            assert_eq!(failed(&same_run("x", &theirs, ours)), expect)
        };
        check(&[traced(2, 25.1), traced(2, 0.0), traced(1, 10.0)], &[]);
        check(&[traced(1, 10.0), traced(2, 26.0), traced(2, 0.0)], &["same run: time of each kernel"]);
        let lost = ["same run: kernels reported", "same run: kernels of the same calls"];
        check(&theirs[1..], &lost);
        check(&[], &[lost[0], lost[1], "same run: time of each kernel"]);
    }

    #[test]
    fn the_time_in_the_tree_is_that_of_the_trace() {
        let theirs = [TracedKernel { name: "k".to_owned(), correlation: 1, took: 10.0 }];
        let verdict = |timed| totals("x", &theirs, &reported(&[("k", 10, timed)])).verdict;
        assert_eq!([9, 10, 11].map(verdict), [Verdict::Failed, Verdict::Ok, Verdict::Failed]);
        assert_eq!(totals("x", &[], &reported(&[])).verdict, Verdict::Failed);
    }

    #[test]
    fn times_of_two_runs_are_means_by_name() {
        let traced = |name: &str, took| TracedKernel { name: name.to_owned(), correlation: 0, took };
        let theirs = [traced("a<b >", 10.0), traced("a<b>", 12.0), traced("other", 1.0)];
        let verdict = |ours: &[TracedKernel]| two_runs("x", &theirs, ours).verdict;
        assert_eq!(verdict(&[traced("a<b>", 11.2)]), Verdict::Ok);
        assert_eq!(verdict(&[traced("a<b>", 12.0)]), Verdict::Failed);
        assert_eq!(verdict(&[]), Verdict::Failed);
    }

    #[test]
    fn kernel_name_with_too_many_launches_is_wrong() {
        let step = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 3)]);
        let check = |kernels: &[(&str, u64, u64)], right, unnamed, wrong| {
            assert_eq!(recovered(&step, &reported(kernels)), RecoveredLaunches { right, unnamed, wrong });
        };
        check(&[("a [recovered]", 10, 0), ("b", 30, 0)], 40, 0, 0);
        check(&[("[unknown: handle-not-named]", 30, 0), ("a", 10, 0)], 10, 30, 0);
        check(&[("a", 40, 0)], 12, 0, 28);
        check(&[("c", 4, 0), ("a", 1, 0)], 1, 0, 4);
    }

    #[test]
    fn calls_are_compared_with_their_bytes() {
        let account = [
            json!({"calls": {"cuMemAlloc_v2": {"alloc-bytes": {"calls": 2, "bytes": 8}}, "s": {"sync-time": {"calls": 1}}}}),
        ];
        let mut reported = ReportedProfile::default();
        let mut enter = |function: &str, metric: &str, times, sum| {
            let metrics = BTreeMap::from([(metric.to_owned(), EntrySum { times, sum })]);
            reported.calls.insert(function.to_owned(), metrics);
        };
        enter("cuMemAlloc_v2", "alloc-bytes", 2, 8);
        enter("s", "sync-time", 1, 12345);
        assert_eq!(failed(&calls("x", &account, &reported)), [""; 0]);
        reported.calls.remove("s");
        assert_eq!(failed(&calls("x", &account, &reported)), ["s: sync-time"]);
    }
}
