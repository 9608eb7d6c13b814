//! Duty-cycled probes as a page of records → no state is trusted across a pause, and the pause is reported.

use crate::pipeline_support::{check_gaps, check_stacks as check, folded_as, page, run};
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::Selection;
use proptest::prelude::*;

/// Records → a metric by context.
#[track_caller]
fn check_metric(records: &str, metric: Metric, expect: &str) {
    let mut pipeline = run(records);
    assert_eq!(folded_as(pipeline.profile(), Selection::of(metric)), page(expect));
}

/// A range begins in a duty window, which ends.
const RANGE: &str = "
    1 duty begins
    10 call 1 named 7/7 app text=epoch : ! py:_enter@1 py:train@3 py:main@9
    11 call 2 begins 7/7 app handle=0x40
    20 sample 7/7 app py:work@1 py:train@4 py:main@9
    30 duty ends
";

#[test]
fn a_range_is_over_for_us_when_its_turn_is() {
    let records = format!(
        "{RANGE}
        40 sample 7/7 app py:work@1 py:train@4 py:main@9
        50 duty begins
        60 sample 7/7 app py:work@1 py:train@4 py:main@9
        70 call 3 ends 7/7 app handle=0x40"
    );
    check(
        &records,
        "
        app-7;m.py:main;m.py:train;[range] epoch;m.py:work 1
        app-7;m.py:main;m.py:train;m.py:work 2
        ",
    );
    check_metric(&records, Metric::RangeTime, "");
    check_gaps("attribute", &records, "attribute watched-in-turns 2\nattribute range-not-watched 1\n");
}

#[test]
fn ranges_do_not_nest_across_duty_windows() {
    let records = format!(
        "{RANGE}
        50 duty begins
        60 call 3 named 7/7 app text=batch : ! py:_enter@1 py:one@2 py:main@9
        61 call 4 begins 7/7 app handle=0x80
        62 sample 7/7 app py:work@1 py:one@3 py:main@9
        63 call 5 ends 7/7 app handle=0x80"
    );
    check(
        &records,
        "
        app-7;m.py:main;m.py:one;[range] batch;m.py:work 1
        app-7;m.py:main;m.py:train;[range] epoch;m.py:work 1
        ",
    );
    check_metric(&records, Metric::RangeTime, "app-7;m.py:main;m.py:one;[range] batch 2");
}

#[test]
fn range_names_are_forgotten_when_a_duty_window_ends() {
    let records = "
        1 duty begins
        10 call 1 named 7/7 app text=epoch : ! py:_enter@1 py:train@3 py:main@9
        11 duty ends
        20 duty begins
        21 call 2 begins 7/7 app handle=0x40
        22 sample 7/7 app py:work@1 py:train@4 py:main@9
    ";
    check(records, "app-7;m.py:main;m.py:train;m.py:work 1");
}

#[test]
fn a_step_lasts_no_longer_than_a_turn() {
    let step = |at: u64, call: u64| {
        format!(
            "{at} call {call} named 7/7 app text=Optimizer.step#SGD : ! py:_enter@1 py:main@5
             {} call {} begins 7/7 app handle=0x40
             {} call {} ends 7/7 app handle=0x40\n",
            at + 1,
            call + 1,
            at + 2,
            call + 2
        )
    };
    // Two ends in the first duty window, 20 apart, and two in the second one, 30 apart.
    let records = ["1 duty begins\n", &step(10, 1), &step(30, 4), "40 duty ends\n", "90 duty begins\n"]
        .concat()
        + &step(100, 7)
        + &step(130, 10);
    check_metric(&records, Metric::StepTime, "app-7;m.py:main;[range] Optimizer.step#SGD 50");
}

#[test]
fn autograd_nodes_are_attributed_across_duty_windows_not_between_them() {
    let records = "
        1 duty begins
        2 call 90 node 7/7 app sequence=18446744073709551615 forward-thread=1 stack-pointer=400
        10 call 1 made 7/7 app sequence=0 forward-thread=1 : ! o.mm f main
        11 call 2 made 7/7 app sequence=1 forward-thread=1 : ! o.exp g main
        20 duty ends
        25 sample 7/7 app x! e. back main
        30 duty begins
        40 call 3 pass 7/7 app stack-pointer=500 : ! back main
        41 call 4 node 7/7 app sequence=1 forward-thread=1 stack-pointer=400
        42 sample 7/7 app x! e. back main
        50 duty ends
        55 sample 7/7 app x! e. back main
    ";
    check(
        records,
        "
        app-7;main;back;torch::autograd::Engine::evaluate_function(GraphTask&);x 2
        app-7;main;g;aten::exp;[backward];x 1
        ",
    );
    check_gaps("attribute", records, "attribute backward-not-watched 2\nattribute watched-in-turns 2\n");
}

#[test]
fn unnumbered_thread_is_a_new_one_in_each_duty_window() {
    let of = |pause: &str| {
        format!(
            "1 duty begins
            9 call 3 node 7/7 app sequence=18446744073709551615 forward-thread=1 stack-pointer=400
            10 call 1 made 7/7 app sequence=0 forward-thread=0 : ! o.mm f main
            {pause}
            15 call 2 made 7/7 app sequence=1 forward-thread=5 : ! o.exp g main
            20 call 5 pass 7/7 app stack-pointer=500 : ! back main
            21 call 4 node 7/7 app sequence=0 forward-thread=5 stack-pointer=400"
        )
    };
    check_gaps("attribute", &of(""), "");
    let paused = of("11 duty ends\n 14 duty begins");
    check_gaps("attribute", &paused, "attribute watched-in-turns 2\nattribute forward-unknown 1\n");
}

#[test]
fn live_allocations_are_forgotten_when_a_duty_window_ends() {
    let records = "
        1 duty begins
        10 call 1 new 7/7 app address=64 bytes=100 : ! f main
        11 call 2 new 7/7 app address=128 bytes=50 : ! g main
        12 call 3 delete 7/7 app address=64
        20 duty ends
        30 duty begins
        31 call 4 delete 7/7 app address=128
        32 call 5 new 7/7 app address=128 bytes=70 : ! f main
    ";
    check_metric(
        records,
        Metric::TensorBytes,
        "
        app-7;main;f;[memory] cpu 170
        app-7;main;g;[memory] cpu 50
        ",
    );
    check_metric(records, Metric::TensorReturnedBytes, "app-7;main;f;[memory] cpu 100");
    let mut pipeline = run(records);
    pipeline.finish();
    let of = |profile: &Profile, metric| folded_as(profile, Selection::of(metric));
    assert_eq!(of(pipeline.profile(), Metric::LiveBytes), page("app-7;main;f;[memory] cpu 70"));
    let peak = "
        app-7;main;f;[memory] cpu 100
        app-7;main;g;[memory] cpu 50
    ";
    assert_eq!(of(pipeline.profile(), Metric::PeakBytes), page(peak));
    check_gaps(
        "attribute",
        records,
        "
        attribute watched-in-turns 2
        attribute tensor-free-unknown 1
        attribute tensor-not-watched 1
        ",
    );
}

#[test]
fn owner_of_an_openmp_helper_is_relearned_each_duty_window() {
    let work = |at: u64, call: u64| {
        format!(
            "{at} call {call} parallel 7/7 app host-function=102 count=2 : ! mul main
             {} sample 7/9 app f g.st c.clo\n",
            at + 5
        )
    };
    let records = ["1 duty begins\n", &work(10, 1), &work(20, 2), &work(30, 3)].concat()
        + "40 duty ends\n 45 sample 7/9 app f g.st c.clo\n 50 duty begins\n 51 sample 7/9 app f g.st c.clo\n"
        + &work(60, 4)
        + &work(70, 5)
        + &work(80, 6);
    check(
        &records,
        "
        app-7;c.clo;g.st;f 6
        app-7;main;mul;[omp parallel];f 2
        ",
    );
}

#[test]
fn between_two_turns_operators_are_not_counted() {
    let begins = |at: u64, call: u64| {
        format!("{at} call {call} starts 7/7 app return-address=104 stack-pointer=400 scope=0 : o.mm main\n")
    };
    let records = ["1 duty begins\n", &begins(10, 1), "20 duty ends\n", &begins(21, 2), "30 duty begins\n"]
        .concat()
        + &begins(40, 3);
    let mut pipeline = run(&records);
    let profile = pipeline.profile();
    assert_eq!(profile.tree.total(Metric::Calls).sum, 2);
    let gaps = &profile.ledger.stage(Stage::Attribute).gaps;
    assert_eq!((gaps.count("operator-not-watched"), gaps.count("watched-in-turns")), (1, 2));
}

/// Lines of a program that does everything at once, with times.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = prop_oneof![
        Just("call N named 7/7 app text=epoch : ! py:_enter@1 py:main@9"),
        Just("call N begins 7/7 app handle=0x40"),
        Just("call N ends 7/7 app handle=0x40"),
        Just("sample 7/7 app py:work@1 py:main@9"),
        Just("sample 7/7 app x! e. back main"),
        Just("sample 7/9 app f g.st c.clo"),
        Just("call N made 7/7 app sequence=1 forward-thread=1 : ! o.mm f main"),
        Just("call N pass 7/7 app stack-pointer=500 : ! back main"),
        Just("call N node 7/7 app sequence=1 forward-thread=1 stack-pointer=400"),
        Just("call N new 7/7 app address=64 bytes=100 : ! f main"),
        Just("call N delete 7/7 app address=64"),
        Just("call N parallel 7/7 app host-function=102 count=2 : ! mul main"),
        Just("duty begins"),
        Just("duty ends"),
    ];
    let numbered =
        |(n, line): (usize, &str)| format!("{} {}", 10 * n + 10, line.replace('N', &(n + 1).to_string()));
    proptest::collection::vec(line, 1..60)
        .prop_map(move |lines| lines.into_iter().enumerate().map(numbered).collect())
}

proptest! {
    #[test]
    fn duty_windows_lose_nothing_and_count_nothing_twice(lines in lines()) {
        let without: Vec<String> = lines.iter().filter(|line| !line.contains("duty ")).cloned().collect();
        let of = |lines: &[String]| {
            let mut pipeline = run(&lines.join("\n"));
            pipeline.finish();
            let profile = pipeline.profile();
            profile.ledger.check(CheckTime::Finished).unwrap();
            let totals = [Metric::Samples, Metric::TensorBytes].map(|metric| profile.tree.total(metric).sum);
            (totals, profile.tree.total(Metric::RangeTime).sum)
        };
        let ((totals, in_ranges), (all, all_in_ranges)) = (of(&lines), of(&without));
        prop_assert_eq!(totals, all);
        prop_assert!(in_ranges <= all_in_ranges);
    }
}
