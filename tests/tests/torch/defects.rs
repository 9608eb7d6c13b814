//! Training loops with one defect each, their twins, and the findings for such realistic programs.

use crate::cases::{Analysis, Case, hold};
use crate::cli_support::recording::record_until;
use crate::frameworks::{Target, line, record_from_go, with_torch};
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use serde_json::Value;

const PROGRAM: &str = "torch_cases.py";

/// A defect at a marked line of its loop.
fn at_its_line(name: &'static str, rule: &'static str) -> Case {
    Case { name, rule, place: format!("{PROGRAM}:{name}:{}", line(PROGRAM, name)) }
}

#[test]
fn defects_of_training_loops_are_found_at_their_lines() {
    let Some(mut command) = with_torch(PROGRAM) else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = ["--context", "python,native", "-F", "499", "--off-cpu", "--system-metrics", "500ms"];
    let (mut target, recording) = record_from_go(command.arg(folder.path()), &options);
    target.wait_for("slow_loader twin");
    // More than the rule allows.
    let wanted = 2 * std::thread::available_parallelism().unwrap().get() as u64 + 1;
    recording.wait_until(|file| {
        let analysis = Analysis::of(file, &[]);
        analysis.finding("loader-workers").is_some_and(|found| found["datapoints"].as_u64() >= Some(wanted))
    });
    std::fs::write(folder.path().join("workers-seen"), "").unwrap();
    target.wait_for("done");
    let (_folder, file) = recording.end();
    hold(
        &[
            at_its_line("slow_loader", "slow-data-loader"),
            at_its_line("many_workers", "loader-workers"),
            at_its_line("stuck_worker", "stuck-data-loader"),
            at_its_line("checkpoints", "checkpoint-time"),
            at_its_line("layouts", "conversions"),
            at_its_line("optimizers", "single-tensor-optimizer"),
        ],
        &file,
        &[],
    );
}

/// The process of a context of a profile.
fn process_of(profile: &Profile, context: u64) -> Option<u32> {
    let stack = profile.tree.stack(NodeId::from_number(context.try_into().unwrap()));
    let frames = stack.into_iter().map(|frame| profile.frames.get(frame));
    frames.into_iter().find_map(|frame| match frame {
        Frame::Process { pid, .. } => Some(pid),
        _ => None,
    })
}

#[test]
fn memory_grows_in_the_loop_that_keeps_its_losses() {
    const RULE: &str = "growing-memory";
    let loops = ["loss", "number"].map(|kept| Some(Target::start(with_torch("torch_growing.py")?.arg(kept))));
    let [Some(grows), Some(stays)] = loops else { return };
    let pids = format!("{},{}", grows.pid(), stays.pid());
    let (_folder, file) =
        record_until(&pids, &["--probe", "memory"], |file| Analysis::of(file, &[]).finding(RULE).is_some());
    let analysis = Analysis::of(&file, &[]);
    let profile = deepctx_storage::open(&file).unwrap().profile;
    let context = |finding: &Value| finding["places"][0]["context"].as_u64().unwrap();
    let growing: Vec<_> =
        analysis.findings(RULE).map(|finding| process_of(&profile, context(finding)).unwrap()).collect();
    assert_eq!(growing, [grows.pid().parse::<u32>().unwrap()]);
    // The other one was measured for as long.
    let lanes = profile.timeline.lanes().iter().filter(|lane| lane.metric == Metric::LiveBytes);
    let long = lanes.filter(|lane| lane.values.len() >= 40);
    assert_eq!(long.filter_map(|lane| process_of(&profile, lane.node.number().into())).count(), 2);
    println!("| growing memory: {}", analysis.finding(RULE).unwrap()["title"]);
}
