//! Dumps of ranks, one of which waits for the other in a collective of PyTorch.

use std::time::Instant;

use serde_json::Value;

use crate::cli_support::expect_code;
use crate::cli_support::recording::LONGEST;
use crate::frameworks::{Target, with_torch};

/// The main threads of the process and the one that it started, in this order.
fn main_threads(pid: &str) -> Vec<Value> {
    let dump: Value =
        serde_json::from_str(&expect_code(0, &["dump", "--pid", pid, "--format", "json"])).unwrap();
    let mut processes = dump["processes"].as_array().unwrap().clone();
    processes.sort_by_key(|process| process["pid"].as_u64() != pid.parse().ok());
    let main_of = |process: &Value| {
        let threads = process["threads"].as_array().unwrap();
        threads.iter().find(|thread| thread["tid"] == process["pid"]).unwrap().clone()
    };
    processes.iter().map(main_of).collect()
}

#[test]
fn a_dump_names_the_collective_that_a_rank_waits_in() {
    let Some(mut command) = with_torch("torch_late_rank.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    command.env("GLOO_SOCKET_IFNAME", "lo");
    let target = Target::start(command.arg(folder.path().join("meeting")));
    let begin = Instant::now();
    let [_, late] = loop {
        let mains: [Value; 2] = main_threads(&target.pid()).try_into().unwrap();
        // It first prepares the collective, and then waits in it.
        if mains[0]["collective"] == "all_reduce" && mains[0]["wait"].is_object() {
            break mains;
        }
        assert!(begin.elapsed() < LONGEST, "{mains:#?}");
    };
    assert!(late["collective"].is_null(), "{late:#}");
    let text = expect_code(0, &["dump", "--pid", &target.pid()]);
    assert!(text.lines().any(|line| line.ends_with(", in all_reduce with other ranks")), "{text}");
}
