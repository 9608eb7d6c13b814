//! Named ranges of a program as a page of records → where its stacks are in the tree, and times of ranges and training
//! steps.

use crate::pipeline_support::{check_gaps, check_stacks as check, folded_as, page, run};
use deepctx_profile::metric::Metric;
use deepctx_profile::view::Selection;

/// Records → a metric by context.
#[track_caller]
fn check_metric(records: &str, metric: Metric, expect: &str) {
    let mut pipeline = run(records);
    assert_eq!(folded_as(pipeline.profile(), Selection::of(metric)), page(expect));
}

const STEP: &str = "
    10 call 1 named 7/7 app text=epoch : ! py:_enter@1 py:train@3 py:main@9
    11 call 2 begins 7/7 app handle=0x40
";

#[test]
fn a_range_stands_behind_the_function_that_entered_it() {
    check(
        &format!(
            "{STEP}
            20 sample 7/7 app py:work@1 py:train@4 py:main@9
            21 sample 7/7 app py:train@5 py:main@9
            30 call 3 ends 7/7 app handle=0x40
            40 sample 7/7 app py:work@1 py:train@6 py:main@9"
        ),
        "
        app-7;m.py:main;m.py:train;[range] epoch 1
        app-7;m.py:main;m.py:train;[range] epoch;m.py:work 1
        app-7;m.py:main;m.py:train;m.py:work 1
        ",
    );
}

#[test]
fn range_entered_by_a_returned_function_belongs_to_its_caller() {
    // A generator in a `with` statement: its frame is off the stack while the range is open.
    check(
        &format!(
            "{STEP}
            20 sample 7/7 app py:work@1 py:main@9
            21 sample 7/7 app f! start"
        ),
        "
        app-7;[range] epoch;start;f 1
        app-7;m.py:main;[range] epoch;m.py:work 1
        ",
    );
}

#[test]
fn ranges_stand_within_ranges() {
    check(
        &format!(
            "{STEP}
            12 call 3 named 7/7 app text=batch : ! py:_enter@1 py:one@2 py:train@4 py:main@9
            13 call 4 begins 7/7 app handle=0x80
            20 sample 7/7 app py:work@1 py:one@3 py:train@4 py:main@9
            21 call 5 ends 7/7 app handle=0x80
            22 sample 7/7 app py:work@1 py:one@3 py:train@4 py:main@9
            23 call 6 ends 7/7 app handle=0x80
            24 sample 7/7 app py:work@1 py:one@3 py:train@4 py:main@9"
        ),
        "
        app-7;m.py:main;m.py:train;[range] epoch;m.py:one;[range] batch;m.py:work 1
        app-7;m.py:main;m.py:train;[range] epoch;m.py:one;m.py:work 2
        ",
    );
}

#[test]
fn other_threads_are_not_in_it() {
    check(&format!("{STEP} 20 sample 7/8 app py:work@1 py:main@9"), "app-7;m.py:main;m.py:work 1");
}

#[test]
fn equal_stacks_in_different_ranges_stay_separate() {
    let mut records = String::new();
    for n in 0..6 {
        let (at, name) = (10 * n, ["a", "b"][n % 2]);
        records += &format!(
            "{} call {} named 7/7 app text={name} : ! py:_enter@1 py:main@9
             {} call {} begins 7/7 app handle=0x40
             {} sample 7/7 app py:work@1 py:main@9
             {} call {} ends 7/7 app handle=0x40\n",
            at + 1,
            3 * n + 1,
            at + 2,
            3 * n + 2,
            at + 3,
            at + 4,
            3 * n + 3
        );
        if n == 3 {
            records += &format!("advance {}\n", at + 4);
        }
    }
    check(
        &records,
        "
        app-7;m.py:main;[range] a;m.py:work 3
        app-7;m.py:main;[range] b;m.py:work 3
        ",
    );
}

#[test]
fn time_in_ranges_is_that_of_each_alone() {
    check_metric(
        &format!(
            "{STEP}
            12 call 3 named 7/7 app text=batch : ! py:_enter@1 py:train@4 py:main@9
            13 call 4 begins 7/7 app handle=0x80
            23 call 5 ends 7/7 app handle=0x80
            41 call 6 ends 7/7 app handle=0x40
            50 call 7 ends 7/7 app handle=0x80"
        ),
        Metric::RangeTime,
        "
        app-7;m.py:main;m.py:train;[range] epoch 20
        app-7;m.py:main;m.py:train;[range] epoch;[range] batch 10
        ",
    );
}

#[test]
fn training_step_lasts_between_range_ends_at_the_same_place() {
    let mut records = String::new();
    for (n, end) in [100, 130, 170].into_iter().enumerate() {
        for (line, later) in [(5, 0), (8, 7)] {
            let (call, end) = (10 * n + line, end + later);
            records += &format!(
                "{} call {call} named 7/7 app text=Optimizer.step#SGD : ! py:_enter@1 py:main@{line}
                 {} call {} begins 7/7 app handle=0x40
                 {end} call {} ends 7/7 app handle=0x40\n",
                end - 3,
                end - 2,
                call + 1,
                call + 2
            );
        }
    }
    // Two optimizers, three times each: two steps at each place.
    check_metric(&records, Metric::StepTime, "app-7;m.py:main;[range] Optimizer.step#SGD 140");
}

#[test]
fn what_a_lost_record_may_have_ended_is_not_believed() {
    let lost = format!(
        "{STEP}
        lose 0 1
        20 sample 7/7 app py:work@1 py:train@4 py:main@9
        30 call 3 ends 7/7 app handle=0x40"
    );
    check(&lost, "app-7;m.py:main;m.py:train;m.py:work 1");
    check_gaps("attribute", &lost, "attribute range-uncertain 1");
    check_metric(&lost, Metric::RangeTime, "");
    // The first end is lost: the second one comes when the record object is destroyed, at any time.
    let destroyed = format!("{STEP} lose 0 1\n 90 call 3 ends 7/7 app handle=0x40");
    check_metric(&destroyed, Metric::RangeTime, "");
    check_gaps("attribute", &destroyed, "attribute range-uncertain 1");
}

#[test]
fn a_process_that_ends_takes_its_ranges_along() {
    let ended = format!(
        "{STEP}
        15 exit 7
        20 sample 7/7 app py:work@1 py:main@9"
    );
    check(&ended, "app-7;m.py:main;m.py:work 1");
    check_gaps("attribute", &ended, "attribute range-unfinished 1");
}

#[test]
fn a_record_without_a_name_is_no_range() {
    check(
        "
        9 call 1 named 7/8 app text=epoch : ! py:_enter@1 py:train@3
        11 call 2 begins 7/7 app handle=0x40
        20 sample 7/7 app py:work@1 py:main@9",
        "app-7;m.py:main;m.py:work 1",
    );
}

#[test]
fn a_name_is_that_of_the_next_call_only() {
    for between in ["ends 7/7 app handle=0x80", "marked 7/7 app : ! py:main@9"] {
        check(
            &format!(
                "9 call 1 named 7/7 app text=epoch : ! py:_enter@1 py:main@9
                 10 call 2 {between}
                 11 call 3 begins 7/7 app handle=0x40
                 20 sample 7/7 app py:work@1 py:main@9"
            ),
            "app-7;m.py:main;m.py:work 1",
        );
    }
}

#[test]
fn a_record_that_begins_twice_has_one_lost_end() {
    let records = format!(
        "{STEP}
        12 call 3 named 7/7 app text=batch : ! py:_enter@1 py:train@4 py:main@9
        13 call 4 begins 7/7 app handle=0x40
        20 call 5 ends 7/7 app handle=0x40"
    );
    check_gaps("attribute", &records, "attribute range-uncertain 1");
    let batch = "app-7;m.py:main;m.py:train;[range] epoch;[range] batch 7";
    check_metric(&records, Metric::RangeTime, batch);
}

#[test]
fn pushed_range_is_open_until_popped_in_its_domain() {
    let records = "
        10 call 1 pushed 7/7 app text=epoch : ! py:push@1 py:train@3 py:main@9
        11 call 2 pushed 7/7 app text=batch handle=0x9 : ! py:push@1 py:train@4 py:main@9
        20 sample 7/7 app py:work@1 py:train@5 py:main@9
        21 call 3 popped 7/7 app
        22 sample 7/7 app py:work@1 py:train@6 py:main@9
        31 call 4 popped 7/7 app handle=0x9
        32 sample 7/7 app py:work@1 py:train@7 py:main@9
        33 call 5 popped 7/7 app handle=0x9";
    check(
        records,
        "
        app-7;m.py:main;m.py:train;[range] batch;m.py:work 1
        app-7;m.py:main;m.py:train;[range] epoch;[range] batch;m.py:work 1
        app-7;m.py:main;m.py:train;m.py:work 1
        ",
    );
    check_gaps("attribute", records, "");
}

#[test]
fn another_thread_pops_nothing() {
    check(
        "
        10 call 1 pushed 7/7 app text=epoch : ! py:push@1 py:main@9
        11 call 2 popped 7/8 app
        20 sample 7/7 app py:work@1 py:main@9",
        "app-7;m.py:main;[range] epoch;m.py:work 1",
    );
}

#[test]
fn a_message_that_only_a_tool_understands_is_no_name() {
    let record = |kind: u32| {
        format!(
            "10 call 1 message 7/7 app text=bytes kind={kind} : ! py:push@1 py:main@9
             20 sample 7/7 app py:work@1 py:main@9"
        )
    };
    check(&record(1), "app-7;m.py:main;[range] bytes;m.py:work 1");
    check(&record(3), "app-7;m.py:main;[range] unnamed;m.py:work 1");
    check_gaps("attribute", &record(3), "attribute range-unnamed 1");
}

#[test]
fn what_is_meant_to_be_profiled_is_a_range() {
    check(
        "
        10 call 1 start 7/7 app : ! py:main@9
        20 sample 7/7 app py:work@1 py:main@10
        30 call 2 stop 7/8 app
        40 sample 7/7 app py:work@1 py:main@11",
        "
        app-7;m.py:main;[range] profiler;m.py:work 1
        app-7;m.py:main;m.py:work 1
        ",
    );
}

#[test]
fn a_function_that_marks_steps_ends_one_with_each_call() {
    let records = "
        10 call 1 marked 7/7 app : ! py:train@3 py:main@9
        40 call 2 marked 7/7 app : ! py:train@3 py:main@9
        60 call 3 marked 7/7 app : ! py:train@3 py:main@9
        70 sample 7/7 app py:work@1 py:train@4 py:main@9";
    check_metric(records, Metric::StepTime, "app-7;m.py:main;m.py:train;[range] marked 50");
    check(records, "app-7;m.py:main;m.py:train;m.py:work 1");
    let mut pipeline = run(records);
    let profile = pipeline.profile();
    let (place, steps) = profile.tree.cells(Metric::StepTime).next().unwrap();
    let times = profile.step_times.of(place).unwrap();
    let percentile = |percent| times.percentile(percent, &steps).map(|bounds| bounds.middle().0);
    assert_eq!([50, 95].map(percentile), [Some(20), Some(30)]);
}
