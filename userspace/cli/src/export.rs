//! `export`: a stored or imported profile in another format.
//!
//! Owns: what an export needs besides its format. Does not: know any format; `profile` has the list.

use std::io::IsTerminal as _;
use std::path::Path;

use deepctx_analysis::over_time::JobClocks;
use deepctx_profile::view::Selection;
use deepctx_storage::export::{Events, Format, Source, html, shortened_work};

use super::failure::{Completion, Failure};
use super::options::ExportArgs;
use super::{lanes, open, output, selection};

/// Runs the command.
///
/// # Errors
/// What stopped the command.
pub(crate) fn run(arguments: &ExportArgs) -> Result<Completion, Failure> {
    let to = &arguments.output;
    output::refuse_existing_output(to)?;
    if is_binary(arguments.format) && to.output == Path::new("-") && std::io::stdout().is_terminal() {
        let format = arguments.format;
        return Err(Failure::new(format_args!(
            "standard output: {format} is binary, and this is a terminal"
        ))
        .hint(format_args!("write it to a file with -o run.{}", format.extension())));
    }
    let opened = open::open(&arguments.profile)?;
    let selection = Selection {
        lines: arguments.lines,
        group_by: selection::group_by(&arguments.group_by),
        ..selection::selection_of(&arguments.selection.live, &[&opened.profile])?
    };
    let selected = arguments.selection.selected(selection, 0);
    let profile = selected.part_of(&opened.profile);
    selection::require_matches(&arguments.selection, &[&profile], &[&opened.profile])?;
    let mut source =
        Source { profile: &profile, selection, elapsed: opened.elapsed, folds: !arguments.no_fold };
    // A page is a view, other formats are data.
    if arguments.format == Format::Html {
        source.selection.metric =
            arguments.selection.opening_metric(&selected, &opened.profile, opened.elapsed);
    }
    let is_wanted = arguments.format.has_events() && !arguments.sums;
    let job = is_wanted.then(|| lanes::job(&arguments.profile)).flatten();
    let clocks = job.as_ref().map(|job| JobClocks::of(job));
    let events = job.as_ref().zip(clocks.as_ref());
    let events = events.map(|(job, clocks)| Events::of(job, |rank| clocks.offset_ns(rank)));
    for (count, key, sentence) in events.iter().flat_map(Events::left_out) {
        super::note(format_args!("{}: {count} {key}: {sentence}", arguments.profile.display()));
    }
    let draws_sums = arguments.format.has_events() && events.is_none();
    if let Some((count, reason)) = draws_sums.then(|| shortened_work(&profile)).flatten() {
        super::note(format_args!("{}: {count} {}: {reason}", arguments.profile.display(), reason.key));
    }
    if let Some(said) = job.as_ref().zip(clocks.as_ref()).and_then(|(job, of)| lanes::unaligned(job, of)) {
        super::note(format_args!("{}: {said}", arguments.profile.display()));
    }
    output::write(&to.output, to.force, |out| match arguments.format {
        Format::Html => {
            let lanes = lanes::read(&arguments.profile);
            html::write_with(
                &source,
                html::PageExtras { events: lanes.as_ref(), ..html::PageExtras::default() },
                out,
            )
        }
        other => match &events {
            Some(events) => other.write_events(&source, events, out),
            None => other.write(&source, out),
        },
    })?;
    Ok(Completion::Fully)
}

fn is_binary(format: Format) -> bool {
    matches!(format, Format::Pprof | Format::Perfetto | Format::Otlp | Format::Dctx)
}
