//! Rules on single events: jobs with the defect, their twins, and profiles without events.

use deepctx_profile::metric::Metric;
use deepctx_profile::trace::{Job, text};
use deepctx_profile::units::Nanos;

use crate::findings::{Finding, Findings, LocationKind, Settings};
use crate::{Selection, Subset};

fn job(ranks: &[String]) -> Job {
    let parse = |(place, lines): (usize, &String)| (format!("rank{place}.json"), text::parse(lines).unwrap());
    Job::new(ranks.iter().enumerate().map(parse).collect()).unwrap()
}

/// A rank that computes until a given time and then is in a collective until the end.
fn rank(number: u32, computes_until: u32) -> String {
    format!(
        "rank {number} of 3\n step m 0..100 ProfilerStep#1\n kernel 0/7 0..{computes_until} gemm
         kernel 0/9 {computes_until}..100 ncclKernel_AllReduce"
    )
}

fn found(rule: &str, job: Option<&Job>) -> Findings {
    found_by_all(&[rule], job)
}

/// What these rules find where three ranks compute until the given times.
pub(super) fn found_by(rules: &[&str], computes_until: [u32; 3]) -> Vec<Finding> {
    let ranks = [0, 1, 2].map(|number| rank(number, computes_until[number as usize]));
    found_by_all(rules, Some(&job(&ranks))).findings
}

fn found_by_all(rules: &[&str], job: Option<&Job>) -> Findings {
    let mut settings = Settings::default();
    rules.iter().for_each(|rule| settings.only(rule).unwrap());
    let profile = deepctx_profile::text::parse("P a-1 / n f 1").unwrap();
    let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime)).with_events(job);
    Findings::compute(&subset, Nanos(1), &settings)
}

#[track_caller]
fn check(rule: &str, ranks: &[String], expect: &str) {
    let found = found(rule, Some(&job(ranks)));
    let titles: Vec<&str> = found.findings.iter().map(|of| of.title.as_str()).collect();
    let said = if titles.is_empty() { &*found.checks[0].outcome } else { &titles.join("; ") };
    assert_eq!(said, expect, "{:?}", found.checks);
    assert!(found.findings.iter().all(|of| of.places[0].kind == LocationKind::Rank));
}

#[test]
fn the_rank_that_others_wait_for_is_found() {
    let late = [rank(0, 20), rank(1, 20), rank(2, 80)];
    check("straggler", &late, "The other 2 ranks wait for rank 2: 40% of the time of all ranks");
    check("straggler", &[rank(0, 20), rank(1, 21), rank(2, 22)], "healthy");
    check("straggler", &["step m 0..100 ProfilerStep#1".into(), "op m 0..9 aten::mm".into()], "not-checked");
    // Waits in collectives of three groups at once are one wait.
    let at_once = |number: u32, begin: u32| {
        let of = [7, 8, 9].map(|stream| format!("kernel 0/{stream} {begin}..100 ncclKernel_AllReduce"));
        format!("rank {number} of 2\n step m 0..100 ProfilerStep#1\n {}", of.join("\n"))
    };
    let once = "The other rank waits for rank 1: 45% of the time of both";
    check("straggler", &[at_once(0, 0), at_once(1, 90)], once);
    let found = found("straggler", Some(&job(&late)));
    let figures: Vec<String> = found.findings[0].evidence.iter().map(ToString::to_string).collect();
    assert!(
        figures.contains(&"compute above the median of ranks: 60.0 µs (measured)".to_owned()),
        "{figures:?}"
    );
    assert_eq!(found.findings[0].places[0].name, "rank 2");
}

#[test]
fn ranks_whose_clocks_disagree_have_no_straggler() {
    // Three collectives: how far the clock is ahead in each, and how long after its first rank it begins, in µs.
    let rank = |ahead: [u64; 3], late: u64| {
        let of = (0..).zip(ahead).map(|(n, ahead)| {
            let begin = 1000 * n + ahead;
            format!("kernel 0/9 {}..{} ncclKernel_AllReduce\n", begin + late, begin + 800)
        });
        of.collect::<String>()
    };
    let first = || rank([0; 3], 0);
    check(
        "straggler",
        &[first(), rank([200; 3], 500)],
        "The other rank waits for rank 1: 29% of the time of both",
    );
    check("straggler", &[first(), rank([200; 3], 10)], "healthy");
    let apart = [first(), rank([200, 200, 600], 10)];
    check("straggler", &apart, "not-checked");
    let found = found("straggler", Some(&job(&apart)));
    assert_eq!(found.checks[0].reason_key.as_deref(), Some("clocks-disagree"));
}

#[test]
fn ranks_that_are_late_by_turns_are_no_stragglers() {
    let turns = |number: u32, times: [[u32; 2]; 3]| {
        let of = times.map(|[begin, end]| format!("kernel 0/9 {begin}..{end} ncclKernel_AllReduce"));
        format!("rank {number} of 3\n step m 0..300 ProfilerStep#1\n {}", of.join("\n"))
    };
    let ranks = [
        turns(0, [[60, 100], [120, 200], [220, 300]]),
        turns(1, [[20, 100], [160, 200], [220, 300]]),
        turns(2, [[20, 100], [120, 200], [260, 300]]),
    ];
    check("straggler", &ranks, "healthy");
}

#[test]
fn two_ranks_that_are_late_by_turns_are_no_stragglers() {
    let turns = |number: u32, times: [[u32; 2]; 2]| {
        let of = times.map(|[begin, end]| format!("kernel 0/9 {begin}..{end} ncclKernel_AllReduce"));
        format!("rank {number} of 2\n step m 0..200 ProfilerStep#1\n {}", of.join("\n"))
    };
    let ranks = [turns(0, [[60, 100], [120, 200]]), turns(1, [[20, 100], [160, 200]])];
    check("straggler", &ranks, "healthy");
    let late = [turns(0, [[20, 100], [120, 200]]), turns(1, [[60, 100], [160, 200]])];
    check("straggler", &late, "The other rank waits for rank 1: 20% of the time of both");
}

#[test]
fn if_the_latest_rank_comes_earlier_all_end_earlier() {
    let late = found("straggler", Some(&job(&[rank(0, 20), rank(1, 20), rank(2, 80)])));
    // The others wait 60 of their 100 µs each.
    assert_eq!(late.findings[0].gain.percent().map(f64::round), Some(60.0));
}

#[test]
fn work_that_is_spread_unevenly_is_found() {
    let uneven = "Rank 2 has 100% more of compute than the mean of ranks, 40% of its steps";
    check("uneven-ranks", &[rank(0, 20), rank(1, 20), rank(2, 80)], uneven);
    check("uneven-ranks", &[rank(0, 70), rank(1, 70), rank(2, 80)], "healthy");
    // Ranks without collectives do not end together: the steps are those of the rank with the most.
    let alone = |number: u32, until: u32, computes: u32| {
        format!("rank {number} of 3\n step m 0..{until} ProfilerStep#1\n kernel 0/7 0..{computes} gemm")
    };
    let uneven = "Rank 2 has 145% more of compute than the mean of ranks, 53% of its steps";
    check("uneven-ranks", &[alone(0, 10, 10), alone(1, 10, 10), alone(2, 100, 90)], uneven);
    check("uneven-ranks", &["kernel 0/7 0..9 gemm".into(), "kernel 0/7 0..20 gemm".into()], "not-checked");
}

#[test]
fn far_longer_steps_are_counted_where_each_is_known() {
    let at = |n: u32| -> u32 { if n.is_multiple_of(50) { 50_000 } else { 1_000 } };
    let steps = (0..1000u32).map(|n| (n, at(n))).scan(0, |begin, (n, us)| {
        let line = format!("step m {begin}..{} ProfilerStep#{n}", *begin + us);
        *begin += us;
        Some(line)
    });
    // Steps of another marker, all of which are as long.
    let epochs = "step m 0..900000 epoch#1\nstep m 900000..1800000 epoch#2".to_owned();
    let job = job(&[steps.collect::<Vec<_>>().join("\n"), epochs]);
    let mut profile = deepctx_profile::text::parse("").unwrap();
    let frame = deepctx_profile::text::parse_frame(&mut profile, "r ProfilerStep").unwrap();
    (0..1000u32).for_each(|n| _ = profile.add(&[frame], Metric::StepTime, u64::from(at(n)) * 1_000));
    let subset = Subset::new(&profile, &Selection::of(Metric::StepTime));
    let mut settings = Settings::default();
    settings.only("uneven-steps").unwrap();
    let violations =
        |subset: &Subset<'_>| Findings::compute(subset, Nanos(1), &settings).findings[0].violations;
    assert_eq!(violations(&subset), 1);
    assert_eq!(violations(&subset.with_events(Some(&job))), 20);
}

#[test]
fn rules_about_ranks_need_events_of_several() {
    let one = job(&[rank(0, 20)]);
    for rule in ["straggler", "uneven-ranks"] {
        for events in [None, Some(&one)] {
            assert_eq!(found(rule, events).checks[0].record_with.as_deref(), Some("--trace"), "{rule}");
        }
    }
}
