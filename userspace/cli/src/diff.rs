//! `diff`: what grew and what shrank between two profiles, by function and by calling context, or by event.
//!
//! Owns: choosing the output form. Does not: compare or draw; `analysis` does.

use deepctx_analysis::diff::{self, Comparison, GrowthLimit, Regression};
use deepctx_analysis::over_time::EventDifference;
use deepctx_analysis::render;
use deepctx_profile::units::counted_as;
use deepctx_storage::export::svg;

use super::failure::{Completion, Failure, open_failure};
use super::options::{DiffArgs, DiffFormat, DiffTable};
use super::{open, out_of_memory, output, selection};

/// Maximum number of functions named per limit.
const GROWN_MAX: usize = 5;

/// Runs the command.
///
/// # Errors
/// One of the profiles could not be opened, neither has values of the metric, or the output could not be written.
pub(crate) fn run(arguments: &DiffArgs) -> Result<Completion, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    if arguments.events {
        return events(arguments);
    }
    if let Some(DiffTable::Operators) = arguments.table {
        return operators(arguments);
    }
    let [before, after] = [open::open(&arguments.before)?.profile, open::open(&arguments.after)?.profile];
    let selection = selection::selection_of(&arguments.selection.live, &[&after, &before])?;
    let selected = arguments.selection.selected(selection, 0);
    let wholes = [&after, &before];
    let [before, after] = [&before, &after].map(|profile| selected.part_of(profile));
    selection::require_matches(&arguments.selection, &[&after, &before], &wholes)?;
    out_of_memory::refuse_beyond_limit(before.tree.len().saturating_add(after.tree.len()))?;
    let comparison = diff::compare(&before, &after, &selection);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        DiffFormat::Text => render::text::write_comparison(&comparison.changes(arguments.limit), out),
        DiffFormat::Json => render::json::write(&comparison.changes(arguments.limit), out),
        DiffFormat::Svg => svg::write_difference(&comparison.difference(), out),
        DiffFormat::Markdown => render::markdown::write_comparison(&comparison.changes(arguments.limit), out),
    })?;
    Ok(grown(&comparison, &arguments.fail_on))
}

/// Compares two profiles operator by operator.
fn operators(arguments: &DiffArgs) -> Result<Completion, Failure> {
    require_text_or_json(arguments, "--table operators")?;
    let wholes = [open::open(&arguments.before)?.profile, open::open(&arguments.after)?.profile];
    let [before, after] = &wholes;
    let selection = selection::selection_of(&arguments.selection.live, &[after, before])?;
    let selected = arguments.selection.selected(selection, 0);
    let parts = [before, after].map(|profile| selected.part_of(profile));
    selection::require_matches(&arguments.selection, &[&parts[1], &parts[0]], &[after, before])?;
    let compared = diff::compare_operators(&parts[0], &parts[1], arguments.limit);
    if compared.operators.is_empty() {
        let failure = Failure::new("neither profile has operators of a framework");
        return Err(failure.hint("record with `--probe operators`, or omit --table to compare by function"));
    }
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        DiffFormat::Json => render::json::write(&compared, out),
        DiffFormat::Text | DiffFormat::Svg | DiffFormat::Markdown => {
            render::text::write_operator_comparison(&compared, out)
        }
    })?;
    Ok(Completion::Fully)
}

/// Rejects formats that this comparison does not support.
fn require_text_or_json(arguments: &DiffArgs, what: &str) -> Result<(), Failure> {
    if matches!(arguments.format, DiffFormat::Svg | DiffFormat::Markdown) {
        let failure = Failure::new(format_args!("{what} supports text and JSON output only"));
        return Err(failure.hint("choose --format text or json"));
    }
    Ok(())
}

/// Reports what grew beyond its limit, and returns how the command ends.
fn grown(comparison: &Comparison, limits: &[GrowthLimit]) -> Completion {
    let mut done = Completion::Fully;
    for limit in limits {
        for sentence in grown_in_words(&comparison.beyond(*limit), *limit) {
            super::note(sentence);
            done = Completion::WithGrowth;
        }
    }
    done
}

/// What grew beyond a limit: some of it by name, and the number of the others.
fn grown_in_words(grown: &[Regression], limit: GrowthLimit) -> Vec<String> {
    let named = grown.iter().take(GROWN_MAX).map(|grown| format!("{grown}, and {limit} is allowed"));
    let more = grown.len().saturating_sub(GROWN_MAX) as u64;
    let more = (more > 0).then(|| {
        format!("{} grew by more than {limit}", counted_as(more, "more function", "more functions"))
    });
    named.chain(more).collect()
}

/// Compares traces event by event.
fn events(arguments: &DiffArgs) -> Result<Completion, Failure> {
    require_text_or_json(arguments, "--events")?;
    let open = |path: &std::path::PathBuf| {
        deepctx_storage::open_traces(std::slice::from_ref(path)).map_err(|error| open_failure(&error))
    };
    let (before, after) = (open(&arguments.before)?, open(&arguments.after)?);
    let [of_before, of_after] =
        [arguments.steps_before, arguments.steps_after].map(Option::unwrap_or_default);
    let difference = EventDifference::compute(&before, of_before, &after, of_after);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        DiffFormat::Json => render::json::write(&difference, out),
        DiffFormat::Text | DiffFormat::Svg | DiffFormat::Markdown => {
            render::text::write_event_difference(&difference, arguments.limit, out)
        }
    })?;
    Ok(Completion::Fully)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_are_not_named_are_counted() {
        let grown = |n: usize| Regression { function: Some(format!("f{n}")), change: 0.1, bound: 0.01 };
        let said = |functions: usize| {
            let grown: Vec<_> = (0..functions).map(grown).collect();
            grown_in_words(&grown, GrowthLimit::Function(0.05))
        };
        assert_eq!(said(1), ["the share of f0 grew by 10.00% ±1.00%, and +5% is allowed"]);
        assert_eq!(said(GROWN_MAX).len(), GROWN_MAX);
        assert_eq!(said(GROWN_MAX + 1)[GROWN_MAX..], ["1 more function grew by more than +5%"]);
        assert_eq!(said(GROWN_MAX + 3)[GROWN_MAX..], ["3 more functions grew by more than +5%"]);
    }
}
