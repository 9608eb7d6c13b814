//! Traces of other tools with their events, as arbitrary bytes: Kineto, rocprofv3, XPlane, Nsight Systems, and gzip
//! around them.
//!
//! Beyond "no panic, no hang, bounded memory": what is computed over time adds up.

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::Steps;
use deepctx_profile::trace::Job;
use deepctx_storage::import;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok((traces, _)) = import::traces(data) else { return };
    let traces = traces.into_iter().map(|(_, trace)| ("fuzz".to_owned(), trace)).collect();
    // Traces of one file name no ranks, or there is one of them.
    let job = Job::new(traces).expect("each trace has a rank of its own");
    let tables = OverTime::compute(&job, Steps::default());
    for row in &tables.devices {
        assert_eq!(row.idle_ns + row.compute_ns + row.non_compute_ns, row.span_ns);
    }
    for path in &tables.critical_paths {
        assert_eq!(path.parts.iter().map(|part| part.time_ns).sum::<u64>(), path.window_ns);
    }
}
