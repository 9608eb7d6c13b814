//! Thunks of XLA's modules as a page of records → where their samples are in the tree.

use crate::pipeline_support::{check_gaps, check_stacks};

/// Records → stacks, where `@Dot` is the function of `DotThunk`, behind the frame of its kind.
#[track_caller]
fn check(records: &str, expect: &str) {
    let mut parts = expect.split('@');
    let mut whole = parts.next().unwrap().to_owned();
    for part in parts {
        let (kind, rest) = part.split_once(';').unwrap();
        let kind = format!("xla::cpu::{kind}Thunk");
        whole += &format!("{kind};{kind}::Execute(xla::cpu::Thunk::ExecuteParams const&);{rest}");
    }
    check_stacks(records, &whole);
}

#[test]
fn stack_within_a_thunk_shows_its_name_and_origin() {
    check(
        "
        10 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100
        20 sample 7/7 app f t.Dot main
        30 call 2 t.Dot 7/7 app text=dot.4 unit=jit_f stack-pointer=100
        40 sample 7/7 app f t.Dot main
        50 call 3 t.Sort 7/7 app text=sort.0 unit=jit_g stack-pointer=100
        60 sample 7/7 app g t.Sort main
        70 sample 7/7 app g main",
        "
        app-7;main;[xla jit_f];net.py:loss;jit(f)/dot;dot.3;@Dot;f 1
        app-7;main;[xla jit_f];net.py:loss;jit(f)/dot;dot.4;@Dot;f 1
        app-7;main;[xla jit_g];sort.0;@Sort;g 1
        app-7;main;g 1
        ",
    );
}

#[test]
fn what_runs_in_a_loop_stands_below_it() {
    check(
        "
        10 call 1 t.While 7/7 app text=while.1 unit=jit_f stack-pointer=100
        11 call 2 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=50
        20 sample 7/7 app f t.Dot g t.While main
        21 sample 7/7 app g t.While main
        30 call 3 t.Dot 7/7 app text=dot.5 unit=jit_f stack-pointer=100
        40 sample 7/7 app f t.Dot main",
        "
        app-7;main;[xla jit_f];net.py:loss;jit(f)/dot;dot.5;@Dot;f 1
        app-7;main;[xla jit_f];while.1;@While;g 1
        app-7;main;[xla jit_f];while.1;@While;g;[xla jit_f];net.py:loss;jit(f)/dot;dot.3;@Dot;f 1
        ",
    );
}

#[test]
fn thunk_of_another_thread_or_kind_is_not_matched() {
    let records = "
        10 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100
        20 sample 7/8 app f t.Dot main
        30 call 2 t.Sort 7/7 app text=sort.0 unit=jit_f stack-pointer=100
        40 sample 7/7 app f t.Dot main";
    check(
        records,
        "
        app-7;main;@Dot;f 2
        ",
    );
    check_gaps("attribute", records, "attribute thunk-unknown 2");
}

#[test]
fn loop_thunk_is_named_once_the_other_must_have_ended() {
    // The second begins further down: the first may still enclose it. A complete stack outside of both ends them.
    let two = "
        10 call 1 t.While 7/7 app text=while.1 unit=jit_f stack-pointer=100
        20 call 2 t.While 7/7 app text=while.2 unit=jit_f stack-pointer=50";
    check(&format!("{two} \n 30 sample 7/7 app f t.While main"), "app-7;main;@While;f 1");
    check(
        &format!("{two} frame-pointer=120 \n 30 sample 7/7 app f t.While main"),
        "app-7;main;[xla jit_f];while.2;@While;f 1",
    );
    check(
        "
        10 call 1 t.While 7/7 app text=while.1 unit=jit_f stack-pointer=100
        15 sample 7/7 app main
        advance 16
        20 call 2 t.While 7/7 app text=while.2 unit=jit_f stack-pointer=50
        30 sample 7/7 app f t.While main",
        "
        app-7;main 1
        app-7;main;[xla jit_f];while.2;@While;f 1
        ",
    );
}

#[test]
fn thunk_kind_seen_running_others_is_remembered_as_nesting() {
    check(
        "
        10 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100
        11 call 2 t.Sort 7/7 app text=sort.0 unit=jit_f stack-pointer=50
        20 sample 7/7 app g t.Sort t.Dot main
        30 call 3 t.Dot 7/7 app text=dot.4 unit=jit_f stack-pointer=100
        31 call 4 t.Dot 7/7 app text=dot.5 unit=jit_f stack-pointer=50
        40 sample 7/7 app f t.Dot main",
        "
        app-7;main;@Dot;[xla jit_f];sort.0;@Sort;g 1
        app-7;main;@Dot;f 1
        ",
    );
}

#[test]
fn names_that_are_none_leave_the_kind() {
    for odd in [
        "text=",
        "text=dot.3 name-bytes=9",
        "text=dot.3 unit-name=unread",
        "text=dot.3 unit=",
        "text=dot.3 unit-name=1",
        "text=dot\u{7f}",
        "text=dot.3 flags=8",
    ] {
        let unit = if odd.contains("unit=") { "" } else { "unit=jit_f" };
        let records = format!(
            "
            9 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100
            10 call 2 t.Dot 7/7 app {odd} {unit} stack-pointer=100
            20 sample 7/7 app f t.Dot main"
        );
        check(&records, "app-7;main;@Dot;f 1");
        check_gaps("attribute", &records, "attribute thunk-unknown 1\nattribute thunk-unnamed 1");
    }
}

#[test]
fn truncated_module_name_is_shown_as_far_as_read() {
    check(
        "
        10 call 1 t.Sort 7/7 app text=sort.0 unit=jit_f unit-name-bytes=3 stack-pointer=100
        20 sample 7/7 app f t.Sort main",
        "app-7;main;[xla jit];sort.0;@Sort;f 1",
    );
}

#[test]
fn thunks_are_not_inferred_across_missing_records() {
    check(
        "
        10 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100
        20 sample 7/7 app f t.Dot main
        25 sample 7/9 app main
        lose 0 3
        30 sample 7/7 app f t.Dot main",
        "
        app-7;main 1
        app-7;main;[xla jit_f];net.py:loss;jit(f)/dot;dot.3;@Dot;f 1
        app-7;main;@Dot;f 1
        ",
    );
}

#[test]
fn another_program_in_the_process_has_begun_nothing() {
    check(
        "
        10 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100
        20 exec 7 app
        30 sample 7/7 app f t.Dot main",
        "app-7;main;@Dot;f 1",
    );
}

#[test]
fn waiting_thunk_is_not_credited_with_work_of_others() {
    check(
        "
        10 call 1 t.Ynn 7/7 app text=fusion.1 unit=jit_f stack-pointer=100
        20 sample 7/7 app f h.Task t.Ynn main",
        "app-7;main;@Ynn;xla::cpu::SlinkyThreadPool::Impl::WorkOnTasks();f 1",
    );
}
