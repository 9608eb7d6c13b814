//! Look: what `--view`, `--metric` and the like mean to the profile, and opening one from disk.
//!
//! Owns: the translation of options into selections. Does not: draw or write.

use std::path::Path;

use deepctx_profile::metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::store::{self, Opened};
use deepctx_profile::view::{self, Selection};

use super::failure::Failure;
use super::options::{Event, GroupBy, LookArgs, Metric, View};
use super::record::store_failure;

/// The selection that the options ask for, of a capture whose timer measured `timer`.
pub fn selection(look: &LookArgs, timer: metric::Metric) -> Selection {
    let metric = match look.metric {
        None => timer,
        Some(Metric::CpuTime) => metric::Metric::CpuTime,
        Some(Metric::Cycles) => metric::Metric::Cycles,
        Some(Metric::Samples) => metric::Metric::Samples,
        Some(Metric::OffCpuTime) => metric::Metric::OffCpuTime,
        Some(Metric::WallTime) => metric::Metric::WallTime,
    };
    let view = match look.view {
        View::Full => view::View::Full,
        View::Python => view::View::Python,
        View::Native => view::View::Native,
    };
    Selection { view, ..Selection::of(metric) }
}

/// What the timer of a capture measures.
pub fn measured(event: Event) -> metric::Metric {
    match event {
        Event::CpuClock => metric::Metric::CpuTime,
        Event::Cycles => metric::Metric::Cycles,
    }
}

/// What the timer of a profile measured.
pub fn timer_of(profile: &Profile) -> metric::Metric {
    let has = |metric| !profile.tree.total(metric).is_empty();
    if !has(metric::Metric::CpuTime) && has(metric::Metric::Cycles) {
        metric::Metric::Cycles
    } else {
        metric::Metric::CpuTime
    }
}

/// What stands at the root of each stack.
pub fn group_by(groups: &[GroupBy]) -> view::GroupBy {
    if groups.contains(&GroupBy::Thread) { view::GroupBy::Thread } else { view::GroupBy::Process }
}

/// Opens a profile and says on standard error what is missing from it.
///
/// # Errors
/// It is none, or of another version.
pub fn open(path: &Path) -> Result<Opened, Failure> {
    let opened = store::open(path).map_err(|error| store_failure(&error))?;
    if !opened.finished {
        super::note(format_args!(
            "{}: the capture did not end well; this is what was written until its last flush",
            path.display()
        ));
    }
    for lost in &opened.lost {
        super::note(format_args!("{}/{}: left out: {}", path.display(), lost.file, lost.because));
    }
    Ok(opened)
}
