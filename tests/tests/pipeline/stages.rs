//! The pipeline as a page of records → folded stacks and losses.

use crate::pipeline_support::{
    NamesInAddresses, ReplayStep, check_gaps, check_stacks as check, config, folded, folded_as, page, run,
    run_with, steps,
};
use deepctx_pipeline::input::ProcessRefusal;
use deepctx_pipeline::{Config, Pipeline};
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Meta;
use deepctx_profile::view::{Selection, complete_share};

#[test]
fn a_stack_stands_root_first_with_kernel_frames_on_top() {
    check("10 sample 7/7 app f! g main", "app-7;main;g;f 1");
    check("10 sample 7/7 app k:read k:entry f main", "app-7;main;f;entry_[k];read_[k] 1");
}

#[test]
fn python_frames_stand_where_the_walk_put_them() {
    check(
        "10 sample 7/7 app cfun! py:inner py:outer eval call py:main eval start",
        "app-7;start;eval;m.py:main;call;eval;m.py:outer;m.py:inner;cfun 1",
    );
}

#[test]
fn evaluations_without_python_frames_say_why() {
    check(
        "10 sample 7/7 app gap:python-torn eval! call py:main eval start",
        "app-7;start;eval;m.py:main;call;eval;[unknown: python-torn] 1",
    );
    // The innermost is just beginning or ending: nothing is missing.
    check(
        "10 sample 7/7 app gap:python-complete eval! call py:main eval start",
        "app-7;start;eval;m.py:main;call;eval 1",
    );
}

#[test]
fn python_frames_assigned_too_far_inward_are_moved_outward() {
    check(
        "10 sample 7/7 app py:b eval! call py:a eval call2 py:main eval call3 gap:python-chain-short eval start",
        "app-7;start;eval;m.py:main;call3;eval;m.py:a;call2;eval;m.py:b;call;eval 1",
    );
    // More than the innermost: those of a sub-interpreter.
    check(
        "10 sample 7/7 app py:main eval! call gap:python-chain-short eval call2 gap:python-chain-short eval start",
        "app-7;start;eval;m.py:main;call2;eval;[unknown: python-other-state];call;eval;[unknown: python-other-state] 1",
    );
}

#[test]
fn evaluation_loops_are_marked_so_that_views_can_hide_them() {
    let mut pipeline = run("10 sample 7/7 app cfun! py:main eval start");
    let profile = pipeline.profile();
    let hidden: Vec<_> =
        profile.frames.iter().filter(|(_, frame)| frame.is_interpreter()).map(|(id, _)| id).collect();
    let labels: Vec<_> =
        hidden.iter().map(|id| profile.frames.get(*id).label(&profile.strings, false)).collect();
    assert_eq!(labels, ["eval"]);
}

/// Records → stacks without the framework's dispatch.
fn check_operators(records: &str, expect: &str) {
    let mut pipeline = run(records);
    let profile = pipeline.profile();
    assert_eq!(folded_as(profile, Selection::of(Metric::Samples)), page(expect));
}

#[test]
fn an_operator_stands_before_the_function_with_which_it_begins() {
    check_operators("10 sample 7/7 app gemm! o.mm start", "app-7;start;aten::mm;gemm 1");
    check("10 sample 7/7 app gemm! o.mm start", "app-7;start;aten::mm;at::_ops::mm::call();gemm 1");
}

#[test]
fn operators_nest_and_their_dispatch_is_one_with_them() {
    check_operators(
        "10 sample 7/7 app gemm! r.mm v.mm o.mm impl o.relu py:main eval start",
        "app-7;start;m.py:main;aten::relu;impl;aten::mm;gemm 1",
    );
    // An operator nested in itself begins twice.
    check_operators("10 sample 7/7 app f! v.mm o.mm r.mm o.mm", "app-7;aten::mm;aten::mm;f 1");
}

#[test]
fn a_boxed_operator_begins_where_its_dispatch_first_names_it() {
    check_operators("10 sample 7/7 app f! r.mm v.mm d.call start", "app-7;start;aten::mm;f 1");
    check_operators("10 sample 7/7 app f! d.call start", "app-7;start;f 1");
}

#[test]
fn inlined_functions_follow_the_function_they_are_in() {
    check("10 sample 7/7 app a+b! main", "app-7;main;a;b 1");
}

#[test]
fn failed_walk_adds_a_gap_at_the_root_end() {
    check("10 sample 7/7 app f! g gap:no-row native=no-row", "app-7;[unknown: no-row];g;f 1");
    // The record had no room for the word.
    check("10 sample 7/7 app f! g native=too-many-frames", "app-7;[unknown: too-many-frames];g;f 1");
    // Python frames after a gap are further out.
    check(
        "10 sample 7/7 app f! gap:no-table py:main native=no-table",
        "app-7;m.py:main;[unknown: no-table];f 1",
    );
}

#[test]
fn walk_that_ended_at_code_known_since_says_so() {
    let check = |record: &str, stack: &str, gaps: &str| {
        let record = format!("10 sample 7/7 app {record} native=no-mapping");
        check(&record, stack);
        check_gaps("", &record, gaps);
    };
    // Named code, and generated code without a name, have a mapping by now.
    check("f! g gap:no-mapping", "app-7;[unknown: code-too-new];g;f 1", "resolve code-too-new 1");
    check("f! g", "app-7;[unknown: code-too-new];g;f 1", "resolve code-too-new 1");
    check(
        "?made! gap:no-mapping py:main",
        "app-7;m.py:main;[unknown: code-too-new];[unknown: jit-of-test] 1",
        "resolve code-too-new 1\nresolve jit-of-test 1",
    );
    // Where the walk stopped, there is no mapping, whatever preceded.
    check(
        "f! ?strip gap:no-mapping",
        "app-7;[unknown: no-mapping];[unknown: stripped];f 1",
        "resolve no-mapping 1\nresolve stripped 1",
    );
    check("gap:no-mapping", "app-7;[unknown: no-mapping] 1", "resolve no-mapping 1");
}

#[test]
fn walk_that_ended_at_left_out_code_says_so() {
    let record = "10 sample 7/7 app f! b.g gap:no-mapping native=no-mapping";
    check(record, "app-7;[unknown: code-left-out];b.g;f 1");
    check_gaps("", record, "resolve code-left-out 1");
    // Only the code where the walk stopped counts, and only if it had no mapping there.
    let record = "10 sample 7/7 app b.g! f gap:no-mapping native=no-mapping";
    check(record, "app-7;[unknown: code-too-new];f;b.g 1");
    let record = "10 sample 7/7 app b.g! gap:no-row native=no-row";
    check(record, "app-7;[unknown: no-row];b.g 1");
}

#[test]
fn walk_in_a_refused_process_says_why() {
    let unknown = "app f! gap:unknown-process native=unknown-process";
    // The same stack before, while and after the process is refused, and that of another one.
    let records = format!(
        "
        10 sample 7/7 {unknown}
        20 sample 7/7 {unknown}
        21 sample 8/8 {unknown}
        22 sample 7/7 app f! g gap:no-row native=no-row
        30 sample 7/7 {unknown}
        "
    );
    let refusals = [
        (ProcessRefusal::NoRoom, "process-without-room"),
        (ProcessRefusal::OverShare, "process-over-share"),
        (ProcessRefusal::GaveWay, "process-gave-way"),
    ];
    for (refusal, key) in refusals {
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
        pipeline.symbols().refused = Some((7, 15..25, refusal));
        for step in steps(&records) {
            if let ReplayStep::Feed(input) = step {
                pipeline.feed(input);
            }
        }
        // Those after the first are cached by then.
        (10..40).for_each(|time| pipeline.advance(time));
        pipeline.finish();
        assert_eq!(pipeline.accounts().stacks_and_complete(), (5, 0));
        let profile = pipeline.profile();
        assert!(folded(profile).contains(&format!("app-7;[unknown: {key}];f 1\n")), "{}", folded(profile));
        let gaps = &profile.ledger.stage(Stage::Resolve).gaps;
        assert_eq!([key, "unknown-process", "no-row"].map(|key| gaps.count(key)), [1, 3, 1]);
        assert_eq!(complete_share(&profile.ledger), Some(0.0));
        profile.ledger.check(CheckTime::Finished).unwrap();
    }
}

#[test]
fn truncated_kernel_stack_has_a_gap_above_the_user_frames() {
    check(
        "10 sample 7/7 app k:a k:b main kernel=truncated flags=1",
        "app-7;main;[unknown: kernel-stack-truncated]_[k];b_[k];a_[k] 1",
    );
}

#[test]
fn a_frame_without_a_name_stays_with_its_reason() {
    check("10 sample 7/7 app ?strip! main", "app-7;main;[unknown: stripped] 1");
    check("10 sample 7/7 app raw:f000000000000001 main", "app-7;main;[unknown: malformed-words] 1");
}

#[test]
fn a_question_that_is_never_answered_makes_no_frame_vanish() {
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
    pipeline.symbols().silent = true;
    for step in steps("10 sample 7/7 app f! main") {
        if let ReplayStep::Feed(input) = step {
            pipeline.feed(input);
        }
    }
    pipeline.finish();
    assert_eq!(folded(pipeline.profile()), "app-7;[unknown: not-answered];[unknown: not-answered] 1\n");
}

#[test]
fn equal_stacks_are_one_context_and_their_values_add_up() {
    let mut pipeline = run("10 sample 7/7 app f! main period=100\n20 sample 7/7 app f! main period=50");
    let total = pipeline.profile().tree.total(Metric::CpuTime);
    assert_eq!((total.count, total.sum, total.min, total.max), (2, 150, 50, 100));
    assert_eq!(pipeline.stack_hits_and_misses(), (0, 2), "both were met before the first was resolved");
}

#[test]
fn missing_addresses_are_requested_once_and_in_batches() {
    let mut pipeline = run("
        10 sample 7/7 app k:sys a! b main
        11 sample 7/8 app b! c main
        12 sample 8/8 app a! main
        advance 15
        20 sample 7/7 app c! b main
        21 sample 7/7 app k:sys a! b main
    ");
    let asked = pipeline.symbols().asked.clone();
    // Process 7: a!, b, main, b!, c; then c!. Process 8: a!, main.
    assert_eq!(asked["user"], (3, 8));
    assert_eq!(asked["kernel"], (1, 1));
    assert_eq!(pipeline.stack_hits_and_misses(), (1, 4));
}

#[test]
fn short_processes_whose_numbers_are_used_again_share_a_context() {
    let mut records = String::new();
    for minute in 1..=3u64 {
        let begin_ns = minute * 60_000_000_000;
        for pid in 100..300 {
            let at_ns = begin_ns + 10 * pid;
            // The other begins were lost.
            if pid % 4 != 0 {
                records += &format!("{at_ns} fork {pid} of 7 sh\n");
            }
            records += &format!("{at_ns} sample {pid}/{pid} sh f! main\n");
            // The other ends were lost.
            if pid % 2 == 0 {
                records += &format!("{} exit {pid}\n", at_ns + 5);
            }
        }
        records += &format!("advance {}\n", begin_ns + 30_000_000_000);
    }
    let mut pipeline = run(&records);
    let stacks = folded(pipeline.profile());
    // The first 64 of a name have a context each, which is also that of later ones with the same number.
    assert_eq!(stacks.lines().count(), 65, "{stacks}");
    assert!(stacks.contains("sh-[others];main;f 408\n"), "{stacks}");
}

#[test]
fn an_address_is_requested_for_its_first_time() {
    let mut pipeline = run("
        10 sample 7/7 app a! main
        12 sample 7/7 app b! main
        advance 15
        20 sample 7/7 app c! main
    ");
    let mut asked = pipeline.symbols().asked_at.clone();
    asked.sort();
    let expect = [("a", 10), ("b", 12), ("c", 20), ("main", 10)];
    assert_eq!(asked, expect.map(|(name, time_ns)| (name.to_owned(), time_ns)));
}

#[test]
fn kernel_addresses_are_requested_again_once_their_names_changed() {
    let records = "
        10 sample 7/7 app k:sys f! main
        advance 15
        20 sample 7/7 app k:sys f! main
        advance 25
        30 sample 7/7 app k:sys f! main
        advance 35
        40 sample 7/7 app k:sys f! main
    ";
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
    for step in steps(records) {
        match step {
            ReplayStep::Feed(input) => pipeline.feed(input),
            ReplayStep::Advance(time) => {
                pipeline.symbols().kernel_renamed = time == 25;
                pipeline.advance(time);
            }
        }
    }
    pipeline.finish();
    let asked = pipeline.symbols().asked.clone();
    assert_eq!((asked["kernel"], asked["user"]), ((2, 2), (1, 2)));
    assert_eq!(folded(pipeline.profile()), page("app-7;main;f;sys_[k] 4"));
}

#[test]
fn addresses_of_many_stacks_stay_cached() {
    // More addresses than are cached, nearly all of them in one stack only.
    const BATCHES: usize = 1900;
    let mut records = String::new();
    for batch in 1..=BATCHES {
        let once = (0..60).map(|n| format!("x{batch:x}.{n:x}")).collect::<Vec<_>>().join(" ");
        let line = format!("{batch} sample 7/7 app y{batch:x}! a b main\n{batch} sample 8/8 app {once}\n");
        records += &format!("{line}advance {batch}\n");
    }
    let mut pipeline = run(&records);
    assert_eq!(pipeline.symbols().asked["user"].1, 3 + BATCHES * 61);
    let folded = folded(pipeline.profile());
    let of_many = folded.lines().filter(|line| line.starts_with("app-7;main;b;a;y"));
    assert_eq!(of_many.count(), BATCHES);
}

#[test]
fn python_functions_are_told_at_once_and_once() {
    let records = "
        10 sample 7/7 app py:f@1 py:g@2 eval
        11 sample 7/7 app py:f@3 eval
        12 sample 8/8 app py:f@1 eval
    ";
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
    for step in steps(records) {
        if let ReplayStep::Feed(input) = step {
            pipeline.feed(input);
        }
    }
    // f and g of process 7, f of process 8; the names follow when the samples are used.
    assert_eq!(pipeline.symbols().asked["python-seen"], (2, 3));
    assert!(!pipeline.symbols().asked.contains_key("python"));
}

#[test]
fn stack_is_resolved_in_the_address_space_at_its_time() {
    check(
        "
        5 space 7 app v1
        10 sample 7/7 app f!
        20 exec 7 tool
        25 space 7 tool v2
        30 sample 7/7 tool f!
        ",
        "
        app-7;f~v1 1
        tool-7;f~v2 1
        ",
    );
}

#[test]
fn origin_of_compiled_code_appears_once_above_all_its_frames() {
    check("10 sample 7/7 app k^u! f", "app-7;f;[xla u];m.py:traced;k 1");
    check("10 sample 7/7 app l^u! k^u f", "app-7;f;[xla u];m.py:traced;k;l 1");
    check("10 sample 7/7 app k^u! g k^u f", "app-7;f;[xla u];m.py:traced;k;g;k 1");
    check("10 sample 7/7 app k^v! k^u f", "app-7;f;[xla u];m.py:traced;k;[xla v];m.py:traced;k 1");
}

#[test]
fn a_forked_child_has_the_address_space_of_its_parent() {
    check(
        "
        5 space 7 app v1
        10 fork 9 of 7 app
        20 sample 9/9 app f!
        ",
        "app-9;f~v1 1",
    );
}

#[test]
fn mappings_read_soon_after_a_sample_still_name_it() {
    let records = "
        10 sample 7/7 app f!
        advance 20
        15 space 7 app v1
        advance 200
    ";
    let mut pipeline = run_with(records, Config { mapping_lookahead_ns: 100, ..config() });
    // The fake counts a reading from its own time on; it must precede the use of the sample.
    assert_eq!(pipeline.symbols().asked["user"].0, 1);
    assert!(folded(pipeline.profile()).starts_with("app-7;"));
}

#[test]
fn threads_are_told_apart_by_group_and_joined_by_default() {
    check("10 sample 7/7 app f!\n11 sample 7/8 worker f!\n5 space 7 app v", "app-7;f~v 2");
}

#[test]
fn lost_and_damaged_records_are_in_the_ledger() {
    check_gaps("", "10 sample 7/7 app f!\nlose 0 3\n20 sample 7/7 app f!", "kernel sequence-gap 3 lost");
    check_gaps("", "10 sample 7/7 app f!\ngarbage 5", "decode short-record 1 lost");
    check_gaps("", "10 sample 7/7 app f!\nadvance 10\n9 sample 7/7 app f!", "order late 1 lost");
    check_gaps(
        "",
        "10 sample 7/7 app f! gap:no-row native=no-row\n11 sample 7/7 app ?x! python=chain-short",
        "
        resolve no-row 1
        resolve python-chain-short 1
        resolve stripped 1
        ",
    );
    check_gaps("", "10 sample 7/7 app f! native=200", "resolve unknown-end 1");
}

#[test]
fn too_many_waiting_records_are_used_early_and_counted() {
    let records: String = (0..10).map(|n| format!("{} sample 7/7 app f!\nbatch\n", 100 - n)).collect();
    let mut pipeline = run_with(&records, Config { waiting_records: 4, ..config() });
    let ledger = &pipeline.profile().ledger;
    assert!(ledger.stage(Stage::Order).gaps.count("early") > 0);
    assert!(ledger.stage(Stage::Order).dropped.count("late") > 0);
    ledger.check(CheckTime::Finished).unwrap();
}

#[test]
fn waiting_bytes_are_bounded_too() {
    let records: String = (0..100).map(|n| format!("{n} sample 7/7 app f! g h i j\nbatch\n")).collect();
    let bound = 2_000;
    let mut pipeline = Pipeline::new(
        NamesInAddresses::default(),
        Meta::default(),
        Config { waiting_bytes: bound, ..config() },
    );
    for step in steps(&records) {
        if let ReplayStep::Feed(input) = step {
            pipeline.feed(input);
            assert!(pipeline.waiting_bytes() <= bound);
        }
    }
    pipeline.finish();
    assert_eq!(folded(pipeline.profile()), "app-7;j;i;h;g;f 100\n");
}

/// Off-CPU time of a page, by context.
fn off_cpu(page: &str) -> String {
    let mut pipeline = run(page);
    let mut text = String::new();
    let kept = pipeline.profile();
    for (node, cell) in kept.tree.cells(Metric::OffCpuTime) {
        let stack: Vec<_> = kept
            .tree
            .stack(node)
            .iter()
            .map(|frame| kept.frames.get(*frame).label(&kept.strings, false))
            .collect();
        text.push_str(&format!("{} {} in {}\n", stack[2..].join(";"), cell.sum, cell.count));
    }
    text
}

#[test]
fn off_cpu_wait_lasts_until_the_thread_runs_again() {
    let check = |page: &str, expect: &str| assert_eq!(off_cpu(page), expect, "{page}");
    // Either half first: the second wait's stack is known when it begins.
    check(
        "10 block 7/7 app k:futex_w f! main\n25 wake 7/7 app since 10\n
         30 block 7/7 app k:futex_w f! main\n90 wake 7/7 app since 30",
        "main;f;futex_w_[k];[off-cpu: futex] 75 in 2\n",
    );
    check(
        "10 block 7/7 app f! main flags=16\n25 wake 7/7 app since 10",
        "main;f;[off-cpu: waiting for a CPU] 15 in 1\n",
    );
    check("25 wake 7/7 app since 10", "[off-cpu: stack lost] 15 in 1\n");
    check("25 wake 7/7 app since 10 1", "[off-cpu: stack not taken: rate limit] 15 in 1\n");
    // Still waiting when the capture or the process ends.
    check("10 block 7/7 app f! main\n60 sample 8/8 app g!", "main;f;[off-cpu: blocked] 50 in 1\n");
    check("10 block 7/7 app f! main\n40 exit 7\n60 sample 8/8 app g!", "main;f;[off-cpu: blocked] 30 in 1\n");
    // The thread runs, but its return to the CPU was not recorded.
    check(
        "10 block 7/7 app f! main\n40 block 7/7 app g! main\n50 wake 7/7 app since 40",
        "main;g;[off-cpu: blocked] 10 in 1\n",
    );
}

#[test]
fn a_wait_is_no_sample_and_its_records_add_up() {
    let mut pipeline = run("10 block 7/7 app f! main\n25 wake 7/7 app since 10\n30 sample 7/7 app f! main");
    assert_eq!(pipeline.accounts().samples(), 1);
    assert_eq!(pipeline.accounts().stacks_and_complete(), (2, 2));
    let profile = pipeline.profile();
    assert_eq!(profile.tree.total(Metric::Samples).sum, 1);
    let resolve = profile.ledger.stage(Stage::Resolve);
    assert_eq!((resolve.received, resolve.kept, resolve.merged), (3, 2, 1));
}

#[test]
fn live_and_stored_shares_of_complete_stacks_are_equal() {
    // Two samples and a wait.
    let whole = "
        10 sample 7/7 app f! main
        12 block 7/7 app f! main
        14 wake 7/7 app since 12
        16 sample 7/7 app g!
    ";
    for (record, complete) in [
        ("20 sample 7/7 app f! gap:no-row native=no-row", 3),
        ("20 sample 7/7 app f! native=too-many-frames", 3),
        // The code has a mapping by now: `code-too-new`.
        ("20 sample 7/7 app f! g native=no-mapping", 3),
        // Its mapping was left out: `code-left-out`.
        ("20 sample 7/7 app f! b.g native=no-mapping", 3),
        // The reason is that of a newer version.
        ("20 sample 7/7 app f! g native=200", 3),
        // Python and kernel frames are no native part.
        ("20 sample 7/7 app f! main python=chain-short kernel=truncated flags=1", 4),
    ] {
        let mut pipeline = run(&format!("{whole}{record}"));
        assert_eq!(pipeline.accounts().stacks_and_complete(), (4, complete), "{record}");
        let stored = complete_share(&pipeline.profile().ledger);
        assert_eq!(stored, Some(complete as f64 / 4.0), "{record}");
    }
}

#[test]
fn a_timer_that_counts_cycles_measures_cycles_and_no_time() {
    let config = Config { timer: Metric::Cycles, off_cpu: true, ..config() };
    let mut pipeline = run_with("10 sample 7/7 app f! main period=1000", config);
    let tree = &pipeline.profile().tree;
    let sum = |metric| tree.total(metric).sum;
    assert_eq!((sum(Metric::Cycles), sum(Metric::Samples)), (1000, 1));
    assert_eq!((sum(Metric::CpuTime), sum(Metric::WallTime)), (0, 0));
}
