//! Event traces of other tools, as arbitrary bytes: Kineto, rocprofv3, XPlane, Perfetto, Nsight Systems, and gzip
//! around them. A line `---` separates the traces of two ranks.
//!
//! Beyond "no panic, no hang, bounded memory": tables over time add up, and exports can be read back.

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::Steps;
use deepctx_profile::Selection;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::trace::Job;
use deepctx_profile::units::Nanos;
use deepctx_storage::export::{Events, Format, Source};
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
    // Both traces may claim the same rank.
    let Ok(job) = Job::new(traces.collect()) else { return };
    exports(&job);
    let tables = OverTime::compute(&job, Steps::default());
    for row in &tables.devices {
        assert_eq!(row.idle_ns + row.compute_ns + row.non_compute_ns, row.span_ns);
    }
    let of_slowest = tables.slowest.iter().filter_map(|step| step.found.figures()?.path.as_ref());
    for path in tables.critical_paths.iter().chain(of_slowest) {
        assert_eq!(path.parts.iter().map(|part| part.time_ns).sum::<u64>(), path.window_ns);
    }
}

/// Every export can be read back, with the same number of ranks.
fn exports(job: &Job) {
    if job.ranks().is_empty() {
        return;
    }
    let profile = Profile::new(Meta::default(), Limits { nodes: 16, frames: 16, string_bytes: 1 << 10 });
    let source = Source {
        profile: &profile,
        selection: Selection::of(Metric::WallTime),
        elapsed: Nanos(0),
        folds: true,
    };
    let events = Events::of(job, |_| 0);
    for format in Format::ALL.iter().filter(|format| format.has_events()) {
        let mut bytes = Vec::new();
        // Times beyond the range of a format's clock cannot be written.
        if format.write_events(&source, &events, &mut bytes).is_err() {
            continue;
        }
        let has_events = job.ranks().iter().any(|of| !of.trace.is_empty());
        match import::traces(&bytes) {
            Ok((traces, _)) => assert_eq!(traces.len(), job.ranks().len(), "{format}"),
            Err(error) => assert!(!has_events, "{format}: {error}"),
        }
    }
}
