//! `diff`: what grew and what shrank between two profiles, by function and by calling context.
//!
//! Owns: the choice of the form. Does not: compare or draw; `analysis` does.

use deepctx_analysis::{diff, render};
use deepctx_storage::export::svg;

use super::failure::{Done, Failure};
use super::options::{DiffArgs, DiffFormat};
use super::{open, output, selection};

/// Runs it.
///
/// # Errors
/// One of the profiles could not be opened, neither has values of the metric, or the output could not be written.
pub fn run(arguments: &DiffArgs) -> Result<Done, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let [before, after] = [open::open(&arguments.before)?.profile, open::open(&arguments.after)?.profile];
    let selection = selection::selection_of(&arguments.selection, &[&after, &before])?;
    selection::require_matches(&arguments.selection, &[&after, &before])?;
    let [before, after] =
        [before, after].map(|profile| selection::filtered(profile, &arguments.selection, false));
    let comparison = diff::compare(&before, &after, &selection);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        DiffFormat::Text => render::text::write_comparison(&comparison.changes(arguments.limit), out),
        DiffFormat::Json => render::json::write(&comparison.changes(arguments.limit), out),
        DiffFormat::Svg => svg::write_difference(&comparison.difference(), out),
    })?;
    Ok(Done::Fully)
}
