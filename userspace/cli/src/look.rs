//! Look: what `--view`, `--metric` and the like mean to the profile, and opening one from disk.
//!
//! Owns: the translation of options into selections, and the notes of a profile on standard error. Does not: know a format,
//! draw or write.

use std::path::Path;

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::{self, Selection};
use deepctx_storage::Opened;

use super::failure::{Failure, open_failure};
use super::options::{GroupBy, LookArgs, View};
use deepctx_capture::Clock;

/// The selection that the options ask for, of `metric` unless they name another.
pub fn selection(look: &LookArgs, metric: Metric) -> Selection {
    let view = match look.view {
        View::Full => view::View::Full,
        View::Python => view::View::Python,
        View::Native => view::View::Native,
    };
    Selection { view, ..Selection::of(look.metric.unwrap_or(metric)) }
}

/// The selection that the options ask for, of profiles: of what their timer measured unless they name a metric, and of the
/// first metric that they have when they have no values of that.
///
/// # Errors
/// The options name a metric that none of the profiles has.
pub fn selection_of(look: &LookArgs, profiles: &[&Profile]) -> Result<Selection, Failure> {
    let has_values = |metric: &Metric| profiles.iter().any(|profile| profile.tree.total(*metric).sum > 0);
    if let Some(asked) = look.metric
        && !has_values(&asked)
    {
        return Err(no_such_metric(asked, Metric::ALL.iter().copied().filter(has_values).collect()));
    }
    let usual = [Metric::CpuTime, Metric::Cycles];
    let metric = usual.iter().chain(Metric::ALL).copied().find(has_values).unwrap_or(usual[0]);
    Ok(selection(look, metric))
}

fn no_such_metric(asked: Metric, known: Vec<Metric>) -> Failure {
    let failure = Failure::new(format_args!("--metric {asked}: the profile has no values of it"));
    match known.is_empty() {
        true => failure.hint("it has no values at all"),
        false => {
            let names: Vec<&str> = known.into_iter().map(Metric::name).collect();
            failure.hint(format_args!("it has {}", names.join(", ")))
        }
    }
}

/// What the timer of a capture measures.
pub fn measured(clock: Clock) -> Metric {
    match clock {
        Clock::CpuClock => Metric::CpuTime,
        Clock::Cycles => Metric::Cycles,
    }
}

/// What stands at the root of each stack: processes, and below them the finest that was asked for.
pub fn group_by(groups: &[GroupBy]) -> view::GroupBy {
    let finest = [
        (GroupBy::Stream, view::GroupBy::Stream),
        (GroupBy::Device, view::GroupBy::Device),
        (GroupBy::Thread, view::GroupBy::Thread),
    ];
    let asked = finest.into_iter().find(|(group, _)| groups.contains(group));
    asked.map_or(view::GroupBy::Process, |(_, group)| group)
}

/// Opens a profile, or imports another tool's file, and says on standard error what should be known about it.
///
/// # Errors
/// It is neither, is damaged, or is of another version.
pub fn open(path: &Path) -> Result<Opened, Failure> {
    let opened = deepctx_storage::open(path).map_err(|error| open_failure(&error))?;
    for note in &opened.notes {
        super::note(format_args!("{}: {note}", path.display()));
    }
    Ok(opened)
}

/// A profile with only the stacks that the options let through; their pattern sees the lines of functions or not.
pub fn filtered(profile: Profile, look: &LookArgs, lines: bool) -> Profile {
    match &look.filter {
        Some(pattern) => view::only(&profile, pattern, lines),
        None => profile,
    }
}
