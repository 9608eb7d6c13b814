//! `report`: findings, hotspots and losses of a stored profile.
//!
//! Owns: the choice of the form. Does not: find or draw anything; `analysis` does.

use deepctx_analysis::over_time::Steps;
use deepctx_analysis::{OverTime, Report, Subset, render};
use deepctx_storage::export::Source;

use super::failure::{Done, Failure};
use super::options::{ReportArgs, ReportFormat};
use super::{lanes, open, output, selection};

/// Runs it.
///
/// # Errors
/// The profile could not be opened, has no values of the metric, or the output could not be written.
pub fn run(arguments: &ReportArgs) -> Result<Done, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let opened = open::open(&arguments.profile)?;
    let mut shown = selection::selection_of(&arguments.selection.live, &[&opened.profile])?;
    shown.group_by = selection::group_by(&arguments.group_by);
    let subset = Subset::new(&opened.profile, &arguments.selection.selected(shown, arguments.limit));
    selection::require_matches(&arguments.selection, &[subset.profile()])?;
    let report = Report::compute(&subset, opened.elapsed);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        ReportFormat::Text if arguments.all => render::text::write_all(&report, out),
        ReportFormat::Text => render::text::write(&report, out),
        ReportFormat::Json => render::json::write(&report, out),
        ReportFormat::Html => {
            let source = Source { profile: subset.profile(), selection: shown, elapsed: opened.elapsed };
            let job = lanes::job(&arguments.profile);
            let tables = job.as_ref().map(|job| OverTime::compute(job, Steps::default()));
            let lanes = job.and_then(lanes::of_job);
            let events = lanes.as_ref().zip(tables.as_ref());
            let events = events.map(|(lanes, tables)| render::html::Events { lanes, tables });
            render::html::write(&source, &report, events, out)
        }
    })?;
    Ok(Done::Fully)
}
