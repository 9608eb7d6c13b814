//! `timeline`: tables and charts of the single events of a trace.
//!
//! Owns: choosing the output form. Because: no other command shows the events of traces, and several files form one
//! job. Does not: read or compute anything; `storage` and `analysis` do.

use deepctx_analysis::{OverTime, render};
use deepctx_storage::store::TracePart;

use super::failure::{Completion, Failure, open_failure};
use super::options::{TextOrJson, TimeRange, TimelineArgs};
use super::output;

/// Runs the command.
///
/// # Errors
/// A file is no trace, or the output could not be written.
pub(crate) fn run(arguments: &TimelineArgs) -> Result<Completion, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let part = match (arguments.between, arguments.steps) {
        (Some(TimeRange { from, to }), _) => TracePart::Between(from, to),
        (None, Some(steps)) => TracePart::Steps(steps.from, steps.until),
        (None, None) => TracePart::All,
    };
    let job = deepctx_storage::open_traces_in_part(&arguments.traces, part)
        .map_err(|error| open_failure(&error))?;
    let steps = arguments.steps.unwrap_or_default();
    let tables = OverTime::compute(&job, steps).what_if(&job, steps, &arguments.what_if);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        TextOrJson::Text => render::text::write_over_time(&tables, arguments.limit, out),
        TextOrJson::Json => render::json::write(&tables, out),
    })?;
    Ok(Completion::Fully)
}
