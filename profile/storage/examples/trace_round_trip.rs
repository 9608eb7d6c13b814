//! Traces to Chrome's form and to Perfetto's, and back: are they equal?
//!
//! Owns: the comparison of every row, and the sizes and times beside it. Because: tests hold small traces, and real
//! ones are tens of megabytes that nobody commits. Does not: measure anything else.
//!
//! `cargo run --release -p deepctx-storage --example trace_round_trip -- TRACES…`; a folder is a job. Ends with 1 where
//! a trace came back another one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::trace::{Job, listing};
use deepctx_profile::units::Nanos;
use deepctx_profile::view::Selection;
use deepctx_storage::export::{Events, Format, Source};
use deepctx_storage::{import, open_traces};

fn main() -> ExitCode {
    let mut are_equal = true;
    for path in std::env::args_os().skip(1).map(PathBuf::from) {
        let begun = Instant::now();
        let job = match open_traces(std::slice::from_ref(&path)) {
            Ok(job) => job,
            Err(error) => {
                println!("{error}");
                are_equal = false;
                continue;
            }
        };
        let events: usize = job.ranks().iter().map(|of| of.trace.len()).sum();
        println!("{}: {events} events, opened in {:.2?}", path.display(), begun.elapsed());
        for format in [Format::Chrome, Format::Perfetto] {
            are_equal &= round_trip(&job, format);
        }
    }
    if are_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn round_trip(job: &Job, format: Format) -> bool {
    let limits = Limits { nodes: 16, frames: 16, string_bytes: 1 << 10 };
    let profile = Profile::new(Meta::default(), limits);
    let source = Source {
        profile: &profile,
        selection: Selection::of(Metric::WallTime),
        elapsed: Nanos(0),
        folds: true,
    };
    let (mut bytes, begun) = (Vec::new(), Instant::now());
    if let Err(error) = format.write_events(&source, &Events::of(job, |_| 0), &mut bytes) {
        println!("  {format}: {error}");
        return false;
    }
    let (written, begun) = (begun.elapsed(), Instant::now());
    let traces = match import::traces(&bytes) {
        Ok((traces, _)) => traces,
        Err(error) => {
            println!("  {format}: {error}");
            return false;
        }
    };
    let read = begun.elapsed();
    let mut difference = (traces.len() != job.ranks().len()).then(|| "other ranks".to_owned());
    for ((_, found), expect) in traces.iter().zip(job.ranks()) {
        let (found_rows, expect_rows) = (listing(found), listing(&expect.trace));
        let first = expect_rows.iter().zip(&found_rows).find(|(expect, found)| expect != found);
        difference = difference.or(first.map(|(expect, found)| format!("{expect} became {found}")));
        let counts = (found_rows.len() != expect_rows.len()).then(|| "another number of rows".to_owned());
        let losses = (found.ledger != expect.trace.ledger).then(|| "other losses".to_owned());
        difference = difference.or(counts).or(losses);
    }
    let verdict = difference.as_deref().unwrap_or("equal");
    println!("  {format}: {} bytes, written in {written:.2?}, read in {read:.2?}: {verdict}", bytes.len());
    difference.is_none()
}
