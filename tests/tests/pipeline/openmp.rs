//! Work of OpenMP's threads as a page of records → the thread whose stack it is below.

use crate::pipeline_support::{check_gaps, check_stacks as check};

/// Thread 7 hands `f` (at 102) to thread 9 twice, which is sampled in it.
const SETTLED: &str = "
    10 call 1 parallel 7/7 app host-function=102 count=2 : ! mul main
    20 sample 7/9 app f g.st c.clo
    30 call 2 parallel 7/7 app host-function=102 count=2 : ! mul main
    40 sample 7/9 app f g.st c.clo
";

#[test]
fn openmp_helpers_are_attributed_once_two_regions_agree_on_ownership() {
    check(
        &format!(
            "{SETTLED}
            41 sample 7/9 app add f g.st c.clo
            50 call 3 parallel 7/7 app host-function=104 : ! relu main
            60 sample 7/9 app h g.st c.clo
            61 sample 7/7 app h g.run relu main"
        ),
        "
        app-7;c.clo;g.st;f 2
        app-7;main;mul;[omp parallel];f;add 1
        app-7;main;relu;[omp parallel];h 1
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
fn nested_and_single_thread_openmp_regions_leave_helpers_in_place() {
    check(
        &format!(
            "{SETTLED}
            50 call 3 parallel 7/7 app host-function=104 : ! in f g.run mul main
            51 call 4 parallel 7/9 app host-function=104 : ! in f g.st c.clo
            52 call 5 parallel 7/7 app host-function=104 count=1 : ! relu main
            60 sample 7/9 app f g.st c.clo"
        ),
        "
        app-7;c.clo;g.st;f 2
        app-7;main;mul;[omp parallel];f 1
        ",
    );
}

#[test]
fn unmatched_openmp_work_is_left_in_place_and_counted() {
    let records = format!(
        "{SETTLED}
        50 call 3 parallel 7/7 app host-function=104 : ! relu main
        60 sample 7/9 app f g.st c.clo"
    );
    check(&records, "app-7;c.clo;g.st;f 3");
    check_gaps("attribute", &records, "attribute team-unknown 3");
}

#[test]
fn threads_starting_the_same_openmp_region_are_not_distinguished() {
    check(
        "
        10 call 1 parallel 7/7 app host-function=102 : ! mul main
        11 call 2 parallel 7/8 app host-function=102 : ! mul main
        20 sample 7/9 app f g.st c.clo
        30 call 3 parallel 7/7 app host-function=102 : ! mul main
        31 call 4 parallel 7/8 app host-function=102 : ! mul main
        40 sample 7/9 app f g.st c.clo
        50 sample 7/9 app f g.st c.clo",
        "app-7;c.clo;g.st;f 3",
    );
}

#[test]
fn openmp_owner_is_not_inferred_across_missing_records() {
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
