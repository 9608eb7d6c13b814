//! Look: what `--view`, `--metric` and the like mean to the profile, and opening one from disk.
//!
//! Owns: the translation of options into selections, and telling our profiles from other tools' files. Does not: draw or
//! write.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::{self, Selection};
use deepctx_storage::import;
use deepctx_storage::store::{self, Opened};

use super::failure::{Failure, store_failure};
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

/// The selection that the options ask for, of a profile: of what its timer measured unless they name a metric, and of
/// the first one that it has when it has no values of that. When another one was asked for, that is said on standard
/// error.
pub fn selection_of(look: &LookArgs, profile: &Profile) -> Selection {
    let usual = [Metric::CpuTime, Metric::Cycles];
    let has_values = |metric: &Metric| profile.tree.total(*metric).sum > 0;
    let candidates = look.metric.into_iter().chain(usual).chain(Metric::ALL.iter().copied());
    let found = { candidates }.find(has_values);
    let metric = found.or(look.metric).unwrap_or(usual[0]);
    if let Some(asked) = look.metric
        && asked != metric
    {
        super::note(format_args!(
            "the profile has no values of {asked}; this is {metric} (--metric chooses)"
        ));
    }
    Selection { metric, ..selection(look, metric) }
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

/// As [`open`], with only the stacks that the options let through; their pattern sees the lines of functions or not.
///
/// # Errors
/// As of [`open`].
pub fn open_filtered(path: &Path, look: &LookArgs, lines: bool) -> Result<Opened, Failure> {
    let opened = open(path)?;
    Ok(match &look.filter {
        Some(pattern) => Opened { profile: view::only(&opened.profile, pattern, lines), ..opened },
        None => opened,
    })
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
