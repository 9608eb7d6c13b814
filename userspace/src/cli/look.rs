//! Look: what `--view`, `--metric` and the like mean to the profile, and opening one from disk.
//!
//! Owns: the translation of options into selections, and telling our profiles from other tools' files. Does not: draw or
//! write.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use deepctx_profile::import;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::store::{self, Opened};
use deepctx_profile::view::{self, Selection};

use super::failure::Failure;
use super::options::{Event, GroupBy, LookArgs, View};
use super::record::store_failure;

/// The selection that the options ask for, of a capture whose timer measured `timer`.
pub fn selection(look: &LookArgs, timer: Metric) -> Selection {
    let view = match look.view {
        View::Full => view::View::Full,
        View::Python => view::View::Python,
        View::Native => view::View::Native,
    };
    Selection { view, ..Selection::of(look.metric.unwrap_or(timer)) }
}

/// What the timer of a capture measures.
pub fn measured(event: Event) -> Metric {
    match event {
        Event::CpuClock => Metric::CpuTime,
        Event::Cycles => Metric::Cycles,
    }
}

/// What the timer of a profile measured; of a file of another tool that had none, the first metric that it has.
pub fn timer_of(profile: &Profile) -> Metric {
    let has = |metric: &Metric| !profile.tree.total(*metric).is_empty();
    [Metric::CpuTime, Metric::Cycles]
        .into_iter()
        .find(has)
        .or_else(|| Metric::ALL.iter().copied().find(has))
        .unwrap_or(Metric::CpuTime)
}

/// The selection, with another metric when the profile has no values of the one that was asked for; that is said on
/// standard error.
pub fn with_values(selection: Selection, profile: &Profile) -> Selection {
    let asked = selection.metric;
    let has_values = |&metric: &_| profile.tree.total(metric).sum > 0;
    if has_values(&asked) {
        return selection;
    }
    let Some(metric) = profile.tree.metrics().find(has_values) else { return selection };
    super::note(format_args!("the profile has no values of {asked}; this is {metric} (--metric chooses)"));
    Selection { metric, ..selection }
}

/// What stands at the root of each stack.
pub fn group_by(groups: &[GroupBy]) -> view::GroupBy {
    if groups.contains(&GroupBy::Thread) { view::GroupBy::Thread } else { view::GroupBy::Process }
}

/// Opens a profile, or imports another tool's file, and says on standard error what is missing from it.
///
/// # Errors
/// It is neither, is damaged, or is of another version.
pub fn open(path: &Path) -> Result<Opened, Failure> {
    // Pipes are read as well: `deepctx-bpf report <(perf script)`.
    let foreign = fs::metadata(path).is_ok_and(|found| !found.is_dir()) && !store::is_packed(path);
    let opened = if foreign { import(path)? } else { store::open(path).map_err(|e| store_failure(&e))? };
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

fn import(path: &Path) -> Result<Opened, Failure> {
    let name = path.display();
    let bytes = read(path).map_err(|error| Failure::io(&name, &error))?;
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let imported = import::read(&bytes, &file).map_err(|error| {
        Failure::new(format_args!("{name}: {error}")).hint(
            "a profile is what `record -o` makes; pprof, Kineto and Chrome traces, perf script output and folded stacks are imported",
        )
    })?;
    for row in view::losses(&imported.profile) {
        super::note(format_args!("{name}: {} {}: {}", row.count, row.reason, row.sentence));
    }
    Ok(Opened { profile: imported.profile, finished: true, elapsed: imported.elapsed, lost: Vec::new() })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more than is accepted, so that the importer sees that there is more.
    File::open(path)?.take(import::BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
