//! Works of OpenMP's threads as a page of records → below whom they stand.

use crate::pipeline_support::{check_gaps, check_stacks as check};

/// Thread 7 hands `f` (at 102) to thread 9 twice, which is seen at it.
const SETTLED: &str = "
    10 call 1 team 7/7 app host-function=102 count=2 : ! mul main
    20 sample 7/9 app f g.st c.clo
    30 call 2 team 7/7 app host-function=102 count=2 : ! mul main
    40 sample 7/9 app f g.st c.clo
";

#[test]
fn a_work_stands_below_the_line_that_handed_it_out_once_two_works_agree_on_whom() {
    check(
        &format!(
            "{SETTLED}
            41 sample 7/9 app add f g.st c.clo
            50 call 3 team 7/7 app host-function=104 : ! relu main
            60 sample 7/9 app h g.st c.clo
            61 sample 7/7 app h g.run relu main"
        ),
        "
        app-7;c.clo;g.st;f 2
        app-7;main;mul;[team];f;add 1
        app-7;main;relu;[team];h 1
        app-7;main;relu;g.run;h 1
        ",
    );
}

#[test]
fn a_thread_that_waits_for_work_stays_where_it_is() {
    check(
        &format!(
            "{SETTLED} 50 sample 7/9 app g.bar g.st c.clo 
                  51 sample 7/9 app k:futex g.bar g.st c.clo"
        ),
        "
        app-7;c.clo;g.st;f 2
        app-7;c.clo;g.st;g.bar 1
        app-7;c.clo;g.st;g.bar;futex_[k] 1
        ",
    );
}

#[test]
fn what_is_handed_out_within_a_work_and_what_is_for_nobody_else_leaves_helpers_where_they_were() {
    check(
        &format!(
            "{SETTLED}
            50 call 3 team 7/7 app host-function=104 : ! in f g.run mul main
            51 call 4 team 7/9 app host-function=104 : ! in f g.st c.clo
            52 call 5 team 7/7 app host-function=104 count=1 : ! relu main
            60 sample 7/9 app f g.st c.clo"
        ),
        "
        app-7;c.clo;g.st;f 2
        app-7;main;mul;[team];f 1
        ",
    );
}

#[test]
fn a_work_that_its_thread_did_not_hand_out_is_left_and_counted() {
    let records = format!(
        "{SETTLED}
        50 call 3 team 7/7 app host-function=104 : ! relu main
        60 sample 7/9 app f g.st c.clo"
    );
    check(&records, "app-7;c.clo;g.st;f 3");
    check_gaps("attribute", &records, "attribute team-unknown 3");
}

#[test]
fn whoever_hands_out_the_same_as_another_is_not_told_from_it() {
    check(
        "
        10 call 1 team 7/7 app host-function=102 : ! mul main
        11 call 2 team 7/8 app host-function=102 : ! mul main
        20 sample 7/9 app f g.st c.clo
        30 call 3 team 7/7 app host-function=102 : ! mul main
        31 call 4 team 7/8 app host-function=102 : ! mul main
        40 sample 7/9 app f g.st c.clo
        50 sample 7/9 app f g.st c.clo",
        "app-7;c.clo;g.st;f 3",
    );
}

#[test]
fn where_records_are_missing_nobody_is_concluded_from_the_last_call() {
    check(
        &format!(
            "{SETTLED} 45 sample 7/7 app main
                  lose 0 3
                  50 sample 7/9 app f g.st c.clo"
        ),
        "
        app-7;c.clo;g.st;f 3
        app-7;main 1
        ",
    );
}

#[test]
fn another_program_in_the_process_has_other_teams() {
    check(
        &format!(
            "{SETTLED} 50 exec 7 app
                  60 sample 7/9 app f g.st c.clo"
        ),
        "app-7;c.clo;g.st;f 3",
    );
}
