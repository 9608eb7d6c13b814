//! Programs on AMD's runtime, and collectives of both vendors.

use deepctx_profile::activity::Tier;
use deepctx_profile::metric::Metric;

use crate::KERNELS;
use crate::simulated::{self, Setting};

/// What a thread of the program does besides launches: copies of 4096 and 2048 bytes and a fill of 1024 for every 20 of them, a
/// graph of three kernels for every 50, a collective of 4000 bytes for every 100.
const WORDS: &str = "--threads 4 --rate 10000 --launches 1000 --graphs --copies --collectives --attended";

#[test]
fn launches_copies_and_collectives_are_counted_exactly_on_either_vendors_runtime() {
    for (libraries, more) in [("hip", &["--hip"][..]), ("cuda13", &[])] {
        let Some(program) = simulated::launcher() else { return };
        let words: Vec<&str> = WORDS.split(' ').chain(more.iter().copied()).collect();
        let Some(capture) = simulated::record(Setting { libraries, ..Setting::default() }, &program, &words)
        else {
            return;
        };
        let process = capture.process();
        assert_eq!(process.tier, Tier::Observed, "{process:?}");
        // Each collective launches a kernel of its own.
        assert_eq!((process.launches, process.graph_launches), (4000 + 40, 80), "{libraries}");
        assert_eq!((process.transfers, process.captured), (3 * 200, 4 * 3), "{libraries}");
        for (number, name) in KERNELS.iter().enumerate() {
            assert_eq!(capture.kernels(name), 1000, "{libraries}: {name}");
            assert_eq!(capture.kernels_under(name, &format!("launch_{number}")), 1000, "{libraries}: {name}");
        }
        // Below where they were captured.
        for (name, function, expect) in [
            ("captured_a_2us", "capture_first", 80),
            ("captured_a_2us", "capture_second", 80),
            ("captured_b_3us", "capture_first", 80),
        ] {
            assert_eq!(capture.kernels_under(name, function), expect, "{libraries}: {name}");
        }
        let reduced = "ncclDevKernel_AllReduce_Sum_f32_RING_LL_40us";
        assert_eq!(capture.kernels_under(reduced, "reduce"), 40, "{libraries}");
        let sums = [Metric::CollectiveBytes, Metric::CopyBytes, Metric::GpuTime].map(|of| capture.total(of));
        assert_eq!(sums, [40 * 4000, 200 * (4096 + 2048 + 1024), 0], "{libraries}");
        // Four threads, each with memory of the device and of the host that is never given back.
        let memory = [Metric::AllocBytes, Metric::FreeBytes].map(|of| capture.total(of));
        assert_eq!(memory, [4 * 2 * 4096, 0], "{libraries}");
        assert!(process.busy_at_most_ns > 0 && capture.total(Metric::SyncTime) > 0, "{libraries}");
        capture.adds_up();
    }
}
