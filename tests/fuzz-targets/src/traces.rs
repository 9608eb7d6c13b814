//! Traces of other tools with their events, as arbitrary bytes: Kineto, rocprofv3, XPlane, and gzip around them.
//!
//! Beyond "no panic, no hang, bounded memory": what is computed over time adds up.

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::Steps;
use deepctx_profile::trace::Job;
use deepctx_storage::import;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok((trace, _)) = import::trace(data) else { return };
    let job = Job::new(vec![("fuzz".to_owned(), trace)]).expect("one trace has one rank");
    let tables = OverTime::compute(&job, Steps::default());
    for row in &tables.devices {
        assert_eq!(row.idle_ns + row.compute_ns + row.non_compute_ns, row.span_ns);
    }
    for path in &tables.critical_paths {
        assert_eq!(path.parts.iter().map(|part| part.time_ns).sum::<u64>(), path.window_ns);
    }
}
