//! Autograd nodes as a page of records → where their stacks are in the tree.

use crate::pipeline_support::{
    NamesInAddresses, check_gaps, check_stacks as check, config, feed_damaged, folded, run,
};
use deepctx_pipeline::Pipeline;
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::profile::Meta;
use proptest::prelude::*;

/// Two operators of thread 1, which is 7/7; then its first backward pass.
const FORWARD: &str = "
    10 call 1 made 7/7 app sequence=0 forward-thread=1 : ! o.mm f main
    11 call 2 made 7/7 app sequence=1 forward-thread=1 : ! o.exp g main
    20 call 3 pass 7/7 app stack-pointer=500 : ! back main
";

#[test]
fn a_node_stands_below_the_operator_that_made_it() {
    check(
        &format!(
            "{FORWARD}
            21 call 4 node 7/7 app sequence=1 forward-thread=1 stack-pointer=400
            22 sample 7/7 app x! e. back main
            23 call 5 node 7/7 app sequence=0 forward-thread=1 stack-pointer=400
            24 sample 7/7 app x! e. back main
            30 sample 7/7 app x! main"
        ),
        "
        app-7;main;f;aten::mm;[backward];x 1
        app-7;main;g;aten::exp;[backward];x 1
        app-7;main;x 1
        ",
    );
}

#[test]
fn equal_stacks_in_different_autograd_nodes_stay_separate() {
    let nodes: String = (0..6)
        .map(|n| {
            format!(
                "{at} call {at} node 7/7 app sequence={} forward-thread=1 stack-pointer=400
                 {after} sample 7/7 app x! e. back main\n",
                n % 2,
                at = 30 + 2 * n,
                after = 31 + 2 * n
            )
        })
        .collect();
    // At once, and piece by piece.
    let pieces =
        nodes.replace("sample 7/7 app x! e. back main\n", "sample 7/7 app x! e. back main\nadvance 40\n");
    for nodes in [nodes, pieces] {
        check(
            &format!("{FORWARD}{nodes}"),
            "
            app-7;main;f;aten::mm;[backward];x 3
            app-7;main;g;aten::exp;[backward];x 3
            ",
        );
    }
}

#[test]
fn nodes_of_several_threads_have_the_same_numbers() {
    check(
        "
        10 call 1 made 7/7 app sequence=0 forward-thread=1 : ! o.mm f main
        11 call 2 made 7/8 app sequence=0 forward-thread=2 : ! o.exp g run
        19 call 3 pass 7/7 app stack-pointer=500 : ! back main
        20 sample 7/9 app idle! work
        21 call 4 node 7/9 app sequence=0 forward-thread=2 stack-pointer=400
        22 sample 7/9 app x! e. work
        23 call 5 node 7/9 app sequence=0 forward-thread=1 stack-pointer=400
        24 sample 7/9 app x! e. work
        ",
        "
        app-7;main;f;aten::mm;[backward];x 1
        app-7;run;g;aten::exp;[backward];x 1
        app-7;work;idle 1
        ",
    );
}

#[test]
fn first_autograd_node_of_a_thread_precedes_the_thread_number() {
    check(
        "
        10 call 1 made 7/7 app sequence=0 forward-thread=0 : ! o.mm f main
        11 call 2 made 7/7 app sequence=1 forward-thread=5 : ! o.exp g main
        20 call 3 pass 7/7 app stack-pointer=500 : ! back main
        21 call 4 node 7/7 app sequence=0 forward-thread=5 stack-pointer=400
        22 sample 7/7 app x! e. back main
        ",
        "app-7;main;f;aten::mm;[backward];x 1",
    );
}

#[test]
fn a_pass_within_a_node_stands_below_what_made_both() {
    check(
        &format!(
            "{FORWARD}
            21 call 4 node 7/7 app sequence=1 forward-thread=1 stack-pointer=400
            22 call 5 made 7/7 app sequence=2 forward-thread=1 : ! o.sin part e. back main
            23 call 6 pass 7/7 app stack-pointer=300 : ! e. back main
            24 call 7 node 7/7 app sequence=2 forward-thread=1 stack-pointer=200
            25 sample 7/7 app y! e. again e. back main
            26 sample 7/7 app x! e. back main
            27 call 8 node 7/7 app sequence=0 forward-thread=1 stack-pointer=400
            28 sample 7/7 app x! e. back main"
        ),
        "
        app-7;main;f;aten::mm;[backward];x 1
        app-7;main;g;aten::exp;[backward];part;aten::sin;[backward];y 1
        app-7;main;g;aten::exp;[backward];x 1
        ",
    );
}

#[test]
fn what_is_not_certain_stays_where_it_ran() {
    let node = "21 call 4 node 7/7 app sequence=1 forward-thread=1 stack-pointer=400";
    for (records, gaps) in [
        // Its operator was not recorded, so its creator is unknown.
        (
            "21 call 4 node 7/7 app sequence=9 forward-thread=1 stack-pointer=400\n22 sample 7/7 app x! e. back main",
            "attribute forward-unknown 1\n",
        ),
        (
            "21 call 4 node 7/7 app sequence=18446744073709551615 forward-thread=1 stack-pointer=400\n22 sample 7/7 app x! e. back main",
            "",
        ),
        // A record is missing, perhaps of the running node.
        (&format!("{node}\nlose 0 1\n22 sample 7/7 app x! e. back main"), "attribute backward-uncertain 1\n"),
        // Its start may have been missed: no stack without nodes preceded it.
        (
            "28 call 5 node 7/8 app sequence=1 forward-thread=1 stack-pointer=400\n29 sample 7/8 app x! e. run",
            "attribute backward-uncertain 1\n",
        ),
        // The stack is truncated at the root, so the number of nodes, or whether there is one, is unknown.
        (
            &format!("{node}\n22 sample 7/7 app x! e. gap:no-row native=no-row"),
            "attribute backward-uncertain 1\n",
        ),
        (&format!("{node}\n22 sample 7/7 app x! gap:no-row native=no-row"), ""),
        // Another node may be about to begin.
        (&format!("{node}\n22 sample 7/7 app e.! back main"), ""),
        (&format!("{node}\n22 sample 7/7 app k:trap e.! back main"), ""),
    ] {
        let records = format!("{FORWARD}{records}");
        let mut pipeline = run(&records);
        assert!(!folded(pipeline.profile()).contains("[backward]"), "{records}");
        check_gaps("attribute", &records, gaps);
    }
}

#[test]
fn process_reusing_a_pid_has_its_own_autograd_nodes() {
    check(
        &format!(
            "{FORWARD}
            30 exit 7
            40 sample 7/7 new main!
            41 call 4 node 7/7 new sequence=1 forward-thread=1 stack-pointer=400
            42 sample 7/7 new x! e. back main"
        ),
        "
        new-7;main 1
        new-7;main;back;torch::autograd::Engine::evaluate_function(GraphTask&);x 1
        ",
    );
}

#[test]
fn stacks_taken_before_all_probes_attached_close_no_scope() {
    // The thread may have been in a node, or in a nested pass, that began before the probe.
    let page = "
        10 call 1 made 7/7 app sequence=0 forward-thread=1 : ! o.mm f main
        12 call 2 node 7/7 app sequence=9 forward-thread=1 stack-pointer=400
        13 sample 7/7 app main!
        14 call 3 node 7/7 app sequence=0 forward-thread=1 stack-pointer=400
        15 sample 7/7 app x! e. back main
        16 call 4 pass 7/8 app stack-pointer=500 : ! back main
        17 call 5 node 7/7 app sequence=0 forward-thread=1 stack-pointer=400
        18 sample 7/7 app x! e. back main
        19 sample 7/7 app main!
        20 call 6 node 7/7 app sequence=0 forward-thread=1 stack-pointer=400
        21 sample 7/7 app x! e. back main";
    check(
        page,
        "
        app-7;main 2
        app-7;main;back;torch::autograd::Engine::evaluate_function(GraphTask&);x 2
        app-7;main;f;aten::mm;[backward];x 1
        ",
    );
    check_gaps("attribute", page, "attribute backward-uncertain 2\nattribute forward-unknown 1\n");
}

#[test]
fn nodes_created_within_an_uncertain_autograd_node_are_counted() {
    let page = "
        10 call 1 made 7/8 app sequence=2 forward-thread=1 : ! o.sin part e. back main
        11 call 2 made 7/8 app sequence=3 forward-thread=1 : ! o.cos gap:no-row
        20 call 3 pass 7/7 app stack-pointer=500 : ! back main
        21 call 4 node 7/7 app sequence=2 forward-thread=1 stack-pointer=400
        22 sample 7/7 app x! e. back main
        23 call 5 node 7/7 app sequence=3 forward-thread=1 stack-pointer=400";
    check(
        page,
        "app-7;main;back;torch::autograd::Engine::evaluate_function(GraphTask&);part;aten::sin;[backward];x 1",
    );
    check_gaps("attribute", page, "attribute forward-uncertain 2\nattribute backward-uncertain 1\n");
}

#[test]
fn nodes_that_are_nested_too_deeply_are_each_counted() {
    let mut page = FORWARD.to_owned();
    for depth in 1..=5u64 {
        let within = "e. back ".repeat(depth as usize);
        let (at, pointer) = (20 + 10 * depth, 1000 - 100 * depth);
        let number = if depth == 1 { 0 } else { depth };
        for call in 0..3 {
            page += &format!(
                "{at} call {at}{call} node 7/7 app sequence={number} forward-thread=1 stack-pointer={pointer}\n",
            );
        }
        page += &format!(
            "{at} call {at}4 made 7/7 app sequence={} forward-thread=1 : ! o.sin part {within} main
             {at} call {at}5 pass 7/7 app stack-pointer={} : ! back {within} main\n",
            depth + 1,
            pointer - 50,
        );
    }
    page += "80 sample 7/7 app x! e. back e. back e. back e. back e. back main";
    let mut pipeline = run(&page);
    let all = folded(pipeline.profile());
    assert_eq!(all.matches("[backward]").count(), 0, "{all}");
    check_gaps("attribute", &page, "attribute backward-nested 3\n");
}

#[test]
fn thread_and_node_numbers_are_separate_per_copy_of_torch() {
    check(
        &format!(
            "{FORWARD}
            21 call 4 node 7/7 app sequence=1 forward-thread=1 stack-pointer=400
            22 sample 7/7 app x! e. back main
            30 call 6 made2 7/7 app sequence=1 forward-thread=1 : ! o.tan h main
            31 sample 7/7 app x! e. back main
            32 call 7 pass2 7/7 app stack-pointer=500 : ! back main
            33 call 8 node2 7/7 app sequence=1 forward-thread=1 stack-pointer=400
            34 sample 7/7 app x! e. back main
            35 call 9 node2 7/7 app sequence=0 forward-thread=1 stack-pointer=400
            36 sample 7/7 app x! e. back main"
        ),
        "
        app-7;main;back;torch::autograd::Engine::evaluate_function(GraphTask&);x 2
        app-7;main;g;aten::exp;[backward];x 1
        app-7;main;h;aten::tan;[backward];x 1
        ",
    );
}

proptest! {
    #[test]
    fn each_autograd_node_is_paired_or_counted_and_never_misattributed(
        program in crate::pipeline_programs::programs()
    ) {
        crate::pipeline_programs::check(&program);
    }

    #[test]
    fn whatever_is_damaged_the_ledger_adds_up(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20)
    ) {
        let page = format!(
            "{FORWARD}
            21 call 4 node 7/7 app sequence=1 forward-thread=1 stack-pointer=400
            22 sample 7/7 app x! e. back main
            23 call 5 node 7/7 app sequence=0 forward-thread=1 stack-pointer=400
            24 sample 7/7 app x! e. back main"
        );
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
        feed_damaged(&mut pipeline, &page, &damage);
        pipeline.finish();
        pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
    }
}
