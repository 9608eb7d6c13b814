//! Traces of other tools with their events, as arbitrary bytes: Kineto, rocprofv3, XPlane, Nsight Systems, and gzip
//! around them. A line `---` parts the traces of two ranks.
//!
//! Beyond "no panic, no hang, bounded memory": what is computed over time adds up.

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::Steps;
use deepctx_profile::trace::Job;
use deepctx_storage::import;

const BETWEEN_RANKS: &[u8] = b"\n---\n";

/// Runs one input.
pub fn run(data: &[u8]) {
    let place = data.windows(BETWEEN_RANKS.len()).position(|window| window == BETWEEN_RANKS);
    let files = match place {
        Some(place) => vec![&data[..place], &data[place + BETWEEN_RANKS.len()..]],
        None => vec![data],
    };
    let traces = files.into_iter().filter_map(|file| import::traces(file).ok());
    let traces = traces.flat_map(|(traces, _)| traces).map(|(_, trace)| ("fuzz".to_owned(), trace));
    // Both may say that they are of one rank.
    let Ok(job) = Job::new(traces.collect()) else { return };
    let tables = OverTime::compute(&job, Steps::default());
    for row in &tables.devices {
        assert_eq!(row.idle_ns + row.compute_ns + row.non_compute_ns, row.span_ns);
    }
    for path in &tables.critical_paths {
        assert_eq!(path.parts.iter().map(|part| part.time_ns).sum::<u64>(), path.window_ns);
    }
}
