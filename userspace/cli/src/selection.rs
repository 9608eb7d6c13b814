//! What to show of a profile: `--view`, `--metric`, `--filter`, `--path`, `--group-by`.
//!
//! Owns: these options, and the selection that they define. Does not: open, draw or write.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use deepctx_analysis::{Query, Selection as Selected, usual_metric};
use deepctx_capture::Clock;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::snapshot::device_was_busy;
use deepctx_profile::view::{self, Pattern, Selection};

use super::failure::Failure;
use super::{nearest, out_of_memory};

/// Which frames to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// Every frame.
    #[default]
    Full,
    /// Python functions only, including the cost of the native and kernel code that they called.
    Python,
    /// Native and kernel frames only, including the interpreter.
    Native,
}

/// How to look at a profile.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "View")]
pub(crate) struct SelectionArgs {
    /// Which frames to show.
    #[arg(long, value_name = "VIEW", env = "DEEPCTX_VIEW", default_value = "full")]
    pub view: View,
    /// Metric to show (default: what the timer measured: `cpu-time`, or `cycles` with `--event cycles`). The terminal
    /// view, `report` and HTML pages show `gpu-time` by default once a device was busy.
    #[arg(long, value_name = "NAME", env = "DEEPCTX_METRIC", value_parser = metrics())]
    pub metric: Option<Metric>,
    /// Count only stacks with a frame, shown or hidden, that matches this regular expression. A leading `!` inverts it.
    #[arg(long, value_name = "REGEX", env = "DEEPCTX_FILTER", value_parser = Pattern::new)]
    pub filter: Option<Pattern>,
}

/// How to look at a stored profile.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "View")]
pub(crate) struct StoredSelectionArgs {
    /// As with a live view.
    #[command(flatten)]
    pub live: SelectionArgs,
    /// Count only stacks that match this query, such as `python:train_step ** operator:aten::*` (see docs/query.md).
    #[arg(long, value_name = "QUERY", env = "DEEPCTX_PATH", value_parser = Query::parse)]
    pub path: Option<Query>,
}

impl StoredSelectionArgs {
    /// The selected part of a profile and how to show it, with this many rows per table.
    pub(crate) fn selected(&self, shown: Selection, rows: usize) -> Selected {
        Selected { shown, filter: self.live.filter.clone(), path: self.path.clone(), rows }
    }

    /// Refuses a whole profile with too many calling contexts for the memory limit; a part of it may have fewer.
    ///
    /// # Errors
    /// As of [`out_of_memory::refuse_beyond_limit`].
    pub(crate) fn require_memory_for(&self, whole: &Profile) -> Result<(), Failure> {
        match self.path.is_none() && self.live.filter.is_none() {
            true => out_of_memory::refuse_beyond_limit(whole.tree.len()),
            false => Ok(()),
        }
    }

    /// The metric to open `selected` of a profile with: device time, as in the terminal view, if a device was busy with
    /// that part and no option names a metric.
    pub(crate) fn opening_metric(&self, selected: &Selected, whole: &Profile, elapsed: Nanos) -> Metric {
        let busy = |profile: &Profile| device_was_busy(profile.tree.total(Metric::GpuTime).sum, elapsed);
        // The part is computed only if it can matter.
        if self.live.metric.is_none() && busy(whole) && busy(&selected.part_of(whole)) {
            Metric::GpuTime
        } else {
            selected.shown.metric
        }
    }
}

/// What stands at the root of each stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// The process.
    Process,
    /// The thread.
    Thread,
    /// The device, for work that ran on one.
    Device,
    /// The stream, for work that ran in one.
    Stream,
}

/// The selection from the options, of `metric` unless they name another.
pub(crate) fn selection(options: &SelectionArgs, metric: Metric) -> Selection {
    let view = match options.view {
        View::Full => view::View::Full,
        View::Python => view::View::Python,
        View::Native => view::View::Native,
    };
    Selection { view, ..Selection::of(options.metric.unwrap_or(metric)) }
}

/// The selection from the options for profiles. Without a metric option, uses what their timer measured, or their first
/// metric if they have no such values.
///
/// # Errors
/// The named metric is in none of the profiles, or its values have no sum.
pub(crate) fn selection_of(options: &SelectionArgs, profiles: &[&Profile]) -> Result<Selection, Failure> {
    if let Some(level) = options.metric.filter(|metric| !metric.adds_up()) {
        return Err(Failure::new(format_args!(
            "--metric {level}: its values are readings, which cannot be added up"
        ))
        .hint(
            "`report` shows their mean and percentiles, `export --format perfetto` their values over time",
        ));
    }
    let has_values = |metric: &Metric| profiles.iter().any(|profile| profile.tree.total(*metric).sum > 0);
    if let Some(asked) = options.metric
        && !has_values(&asked)
    {
        return Err(no_such_metric(
            asked,
            Metric::ALL.iter().copied().filter(|metric| metric.adds_up() && has_values(metric)).collect(),
        ));
    }
    Ok(selection(options, usual_metric(profiles)))
}

fn no_such_metric(asked: Metric, known: Vec<Metric>) -> Failure {
    let failure = Failure::new(format_args!("--metric {asked}: the profile has no values of this metric"));
    let names = nearest::sorted(asked.name(), known.into_iter().map(Metric::name).collect());
    if names.is_empty() {
        return failure.hint("it has no values of any metric");
    }
    failure.hint(format_args!("it has {}", names.join(", ")))
}

/// Rejects a filter or query that matches no stack of any profile, given the selected parts: an empty result would look
/// like a healthy program. Suggests names from `wholes`.
///
/// # Errors
/// All parts are empty.
pub(crate) fn require_matches(
    options: &StoredSelectionArgs,
    parts: &[&Profile],
    wholes: &[&Profile],
) -> Result<(), Failure> {
    let named = [
        options.path.as_ref().map(|query| format!("--path {}", query.text())),
        options.live.filter.as_ref().map(|pattern| format!("--filter {}", pattern.text())),
    ];
    let named: Vec<String> = named.into_iter().flatten().collect();
    if named.is_empty() || parts.iter().any(|part| part.tree.metrics().next().is_some()) {
        return Ok(());
    }
    let failure = Failure::new(format_args!("{}: no stack matches", named.join(" ")));
    let query = options.path.as_ref().map(|query| query.text());
    let filter = options.live.filter.as_ref().map(Pattern::text);
    let asked = [query, filter].into_iter().flatten().filter(|text| !text.trim_start().starts_with('!'));
    let near: Vec<String> = asked.flat_map(|text| nearest::frames(text, wholes)).collect();
    if !near.is_empty() {
        return Err(failure.hint(format_args!("the nearest names are {}", near.join(", "))));
    }
    let language = match query {
        Some(_) => "docs/query.md explains the query language",
        None => "the filter is a regular expression that must match one frame",
    };
    Err(failure.hint(format_args!("{language}; `deepctx-bpf report --all FILE` lists functions")))
}

/// The metric that a capture's timer measures.
pub(crate) fn measured(clock: Clock) -> Metric {
    match clock {
        Clock::CpuClock => Metric::CpuTime,
        Clock::Cycles => Metric::Cycles,
    }
}

/// The root of each stack: processes, and below them the finest requested group.
pub(crate) fn group_by(groups: &[GroupBy]) -> view::GroupBy {
    let finest = [
        (GroupBy::Stream, view::GroupBy::Stream),
        (GroupBy::Device, view::GroupBy::Device),
        (GroupBy::Thread, view::GroupBy::Thread),
    ];
    let asked = finest.into_iter().find(|(group, _)| groups.contains(group));
    asked.map_or(view::GroupBy::Process, |(_, group)| group)
}

/// Parses a metric name. Metrics of single warp states and of the machine are too many for the help.
fn metrics() -> impl TypedValueParser<Value = Metric> {
    let shown = |metric: &Metric| PossibleValue::new(metric.name()).hide(metric.name().contains(':'));
    PossibleValuesParser::new(Metric::ALL.iter().map(shown)).try_map(|name| name.parse::<Metric>())
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;

    use super::*;

    #[test]
    fn reports_open_on_device_time_unless_a_metric_was_chosen() {
        let mut profile = text::parse("P a-1 / n launch / g gemm 1\nP a-1 / n load 90").unwrap();
        let (kernel, _) = profile.tree.cells(Metric::CpuTime).find(|(_, cell)| cell.sum == 1).unwrap();
        profile.tree.add(kernel, Metric::GpuTime, 500);
        let check = |metric: Option<Metric>, filter: Option<&str>, elapsed_ns: u64, expect: Metric| {
            let filter = filter.map(|text| Pattern::new(text).unwrap());
            let live = SelectionArgs { view: View::Full, metric, filter };
            let shown = selection_of(&live, &[&profile]).unwrap();
            let options = StoredSelectionArgs { live, path: None };
            let selected = options.selected(shown, 10);
            assert_eq!(options.opening_metric(&selected, &profile, Nanos(elapsed_ns)), expect);
        };
        check(None, None, 1_000, Metric::GpuTime);
        check(None, None, 10_000, Metric::CpuTime);
        check(Some(Metric::CpuTime), None, 1_000, Metric::CpuTime);
        // Nothing of this part ran on the device.
        check(None, Some("load"), 1_000, Metric::CpuTime);
        check(None, Some("launch"), 1_000, Metric::GpuTime);
    }
}
