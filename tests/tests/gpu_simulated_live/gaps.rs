//! What goes wrong around a device: each gap has a label, what can be counted is, and the program goes on.

use std::process::Stdio;
use std::time::Duration;

use deepctx_profile::activity::Tier;
use deepctx_profile::metric::Metric;
use deepctx_profile::view::losses;

use crate::cli_support::{can_capture, program};
use crate::simulated::{self, Capture, Running, Setting};
use crate::{KERNELS, compare_times, launcher, time};

fn lost(capture: &Capture, reason: &str) -> u64 {
    losses(&capture.profile).iter().filter(|row| row.reason == reason).map(|row| row.count).sum()
}

#[test]
fn each_misbehaviour_of_cupti_is_a_gap_with_a_label_and_the_program_goes_on() {
    for (libraries, words, tier) in [
        ("bare", "", Tier::Observed),
        ("cuda12", "busy", Tier::Observed),
        ("cuda12", "denied", Tier::Observed),
        ("cuda12", "lose=7", Tier::Collected),
        ("cuda12", "garbage=3", Tier::Collected),
        ("cuda12", "wild=5", Tier::Collected),
        ("cuda12", "skew", Tier::Collected),
        ("cuda13", "skew", Tier::Collected),
    ] {
        let setting = Setting { libraries, collector: true, misbehaves: words, ..Setting::default() };
        let Some(program) = simulated::launcher() else { return };
        let arguments = "--threads 2 --rate 5000 --launches 1000 --attended";
        let arguments: Vec<_> = arguments.split(' ').collect();
        let Some(capture) = simulated::record(setting, &program, &arguments) else { return };
        let process = capture.process();
        assert_eq!((process.tier, process.launches), (tier, 2000), "{words}: {process:?}");
        let labels: Vec<String> =
            capture.profile.ledger.rows().iter().map(|row| format!("{row:?}")).collect();
        let told = !process.note.is_empty() || !labels.is_empty();
        assert!(told, "{words} is told nowhere: {process:?}");
        println!("{words}: {:?} {labels:?}", process.note);
        capture.adds_up();
    }
}

#[test]
fn buffers_that_come_late_and_out_of_order_change_nothing() {
    let setting = Setting {
        libraries: "cuda13",
        collector: true,
        misbehaves: "late=300,reorder",
        ..Setting::default()
    };
    let Some(capture) = launcher(setting) else { return };
    let process = capture.process();
    assert_eq!((process.tier, process.launches, process.kernels), (Tier::Collected, 10_000, 10_000));
    assert_eq!(capture.total(Metric::GpuTime), time(&capture.account, &["kernel"]));
    compare_times(&capture);
    capture.adds_up();
}

#[test]
fn with_a_stack_for_some_launches_all_are_counted_and_timed_and_it_says_so() {
    let words = &["--launch-stacks", "200/s"];
    let setting = Setting { libraries: "cuda12", collector: true, words, ..Setting::default() };
    let Some(capture) = launcher(setting) else { return };
    let process = capture.process();
    assert_eq!((process.launches, process.kernels, process.joined), (10_000, 10_000, 10_600));
    // Nobody knows how long the program takes; two hundred a second are few in any case.
    assert!(process.launches_without_stack > 1000, "{process:?}");
    assert!(process.launches_without_stack < 10_000, "{process:?}");
    let mut below = 0;
    for (number, name) in KERNELS.iter().enumerate() {
        assert_eq!(capture.kernels(name), 2500, "{name}");
        below += capture.kernels_under(name, &format!("launch_{number}"));
    }
    assert_eq!(below, 10_000 - process.launches_without_stack);
    assert_eq!(capture.total(Metric::GpuTime), time(&capture.account, &["kernel"]));
    assert!(lost(&capture, "call-without-stack") >= process.launches_without_stack);
    capture.adds_up();
}

#[test]
fn a_flood_of_launches_is_counted_to_the_last_one() {
    let Some(flood) = simulated::launcher() else { return };
    let words = "--threads 4 --rate 0 --launches 50000 --attended";
    let setting = Setting { libraries: "bare", ..Setting::default() };
    let Some(capture) = simulated::record(setting, &flood, &words.split(' ').collect::<Vec<_>>()) else {
        return;
    };
    let launches = capture.process().launches;
    // What found the queue to the profiler full is counted by function.
    let lost = lost(&capture, "call-lost");
    assert!(launches <= 200_000 && launches + lost >= 200_000, "{launches} launches, {lost} calls lost");
    assert_eq!(capture.kernel_names().iter().map(|name| capture.kernels(name)).sum::<u64>(), launches);
    capture.adds_up();
}

#[test]
fn a_program_that_hides_itself_has_its_stacks_and_names_all_the_same() {
    let Some(hidden) = simulated::launcher() else { return };
    let words = "--undumpable --threads 1 --rate 5000 --launches 400 --attended";
    let setting = Setting { libraries: "cuda12", collector: true, ..Setting::default() };
    let Some(capture) = simulated::record(setting, &hidden, &words.split(' ').collect::<Vec<_>>()) else {
        return;
    };
    assert_eq!((capture.process().tier, capture.process().kernels), (Tier::Collected, 400));
    for (number, name) in KERNELS.iter().enumerate() {
        assert_eq!(capture.kernels_under(name, &format!("launch_{number}")), 100, "{name}");
    }
}

#[test]
fn a_profiler_that_dies_leaves_nothing_behind_and_the_next_one_begins_anew() {
    if !can_capture() {
        return;
    }
    let Some(launcher) = simulated::launcher() else { return };
    // Listeners are counted here.
    let _alone = simulated::alone();
    let setting = Setting { libraries: "cuda13", collector: true, ..Setting::default() };
    let words = ["--threads", "2", "--rate", "4000", "--seconds", "60"];
    let Some(mut running) = Running::start(setting, &launcher, &words) else { return };
    let folder = tempfile::tempdir().unwrap();
    let pid = running.pid().to_string();
    let mut dies = program();
    dies.args(["record", "--pid", &pid, "-o"]).arg(folder.path().join("lost.dctx"));
    let mut dies = dies.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    running.until_listeners(|listeners| listeners > 0);
    std::thread::sleep(Duration::from_millis(500));
    dies.kill().unwrap();
    dies.wait().unwrap();
    // Its probes go with it, and with them what told the collector that somebody listens.
    running.until_listeners(|listeners| listeners == 0);
    let capture = running.record("2s");
    let process = capture.process();
    assert_eq!(process.tier, Tier::Collected, "{process:?}");
    assert!(process.kernels > 500 && process.joined > 500, "{process:?}");
    capture.adds_up();
    assert!(running.runs(), "the program has ended");
}
