//! `report`: findings, hotspots and losses of a stored profile.
//!
//! Owns: choosing the output form. Does not: find or draw anything; `analysis` does.

use deepctx_analysis::over_time::Steps;
use deepctx_analysis::{ModelTables, OverTime, Report, Subset, render};
use deepctx_profile::trace::Job;
use deepctx_profile::units::Nanos;
use deepctx_storage::export::Source;

use super::failure::{Completion, Failure};
use super::options::{ReportArgs, ReportFormat};
use super::{lanes, open, output, selection};

/// Runs the command.
///
/// # Errors
/// The profile could not be opened, has no values of the metric, or the output could not be written.
pub(crate) fn run(arguments: &ReportArgs) -> Result<Completion, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    if !arguments.model.table.is_empty() && arguments.format == ReportFormat::Html {
        return Err(
            Failure::new("--table is printed as text or JSON only").hint("choose --format text or json")
        );
    }
    let opened = open::open(&arguments.profile)?;
    arguments.selection.require_memory_for(&opened.profile)?;
    let mut shown = selection::selection_of(&arguments.selection.live, &[&opened.profile])?;
    shown.group_by = selection::group_by(&arguments.group_by);
    let of_model = !arguments.model.table.is_empty();
    let shows_events = of_model || arguments.format == ReportFormat::Html;
    let has_ranks = deepctx_storage::may_have_ranks(&arguments.profile);
    let job = if shows_events || has_ranks { lanes::job(&arguments.profile) } else { None };
    let mut selected = arguments.selection.selected(shown, arguments.limit);
    selected.shown.metric = arguments.selection.opening_metric(&selected, &opened.profile, opened.elapsed);
    let subset = Subset::new(&opened.profile, &selected);
    let subset = subset.with_events(job.as_deref().filter(|_| has_ranks));
    selection::require_matches(&arguments.selection, &[subset.profile()], &[&opened.profile])?;
    if of_model {
        return model(arguments, &subset, opened.elapsed, job.as_deref());
    }
    let report = Report::compute(&subset, opened.elapsed);
    let names = names(arguments);
    let peaks = arguments.model.peaks()?;
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        ReportFormat::Text if arguments.all => render::text::write_all(&report, names, out),
        ReportFormat::Text => render::text::write(&report, names, out),
        ReportFormat::Json => render::json::write(&report, out),
        ReportFormat::Html => {
            let (profile, selection) = (subset.profile(), selected.shown);
            let source = Source { profile, selection, elapsed: opened.elapsed, folds: true };
            let model = ModelTables::compute(&subset, opened.elapsed, peaks, job.as_deref());
            let tables = job.as_ref().map(|job| OverTime::compute(job, Steps::default()));
            let lanes = job.clone().and_then(lanes::of_job);
            let events = lanes.as_ref().zip(tables.as_ref());
            let events = events.map(|(lanes, tables)| render::html::Events { lanes, tables });
            render::html::write(&source, &report, &model, events, out)
        }
    })?;
    Ok(Completion::Fully)
}

fn names(arguments: &ReportArgs) -> render::text::Names {
    match arguments.full_names {
        true => render::text::Names::Full,
        false => render::text::Names::Short,
    }
}

/// Writes tables of the model.
fn model(
    arguments: &ReportArgs,
    subset: &Subset<'_>,
    elapsed: Nanos,
    job: Option<&Job>,
) -> Result<Completion, Failure> {
    let which = arguments.model.tables();
    let tables = ModelTables::compute(subset, elapsed, arguments.model.peaks()?, job);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        ReportFormat::Json => render::json::write_model(&tables, &which, out),
        ReportFormat::Text | ReportFormat::Html => {
            render::text::write_model(&tables, &which, names(arguments), out)
        }
    })?;
    Ok(Completion::Fully)
}
