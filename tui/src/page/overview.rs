//! Overview page: findings, phases, the hottest contexts and tables, as lines.
//!
//! Owns: which of them there is room for, and which lines can be chosen. Because: what is most important must be on the
//! smallest screen, and a key must choose a row that is in sight. Does not: draw.

use deepctx_profile::frame::short_labels;
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::units::{Nanos, counted};
use deepctx_profile::view::conclusions::{Conclusions, FindingRow, PhaseRow, RuleCoverage, StepFigures};
use deepctx_profile::view::snapshot::{Lane, Overview, TableRow, Timeline};
use ratatui::layout::Rect;

use crate::layout::hot_paths::{HotPath, hot_paths};
use crate::layout::timeline::TimeSpan;
use crate::model::Model;
use crate::state::timeline::length;
use crate::text;

/// Minimum columns for tables beside the contexts.
const WIDE: u16 = 120;
/// Columns of the tables beside the contexts, and of the gap before them.
pub(crate) const BESIDE: u16 = 56;
const GAP: u16 = 2;
/// Columns before the word of a detail.
pub(crate) const INDENT: usize = 3;
/// Columns of that word.
pub(crate) const WORD: usize = 10;
/// Words of the details that matter most. On smaller screens, the others get what lines are left.
const FIRST: [&str; 3] = ["where", "advice", "callers"];
/// Minimum lines of a screen for headings.
const HEADINGS: usize = 14;
/// Minimum lines of a screen for details of several lines; one of 24 lines has these, also with a filter.
const MEDIUM: usize = 18;
/// Minimum lines of a screen for all details of the selected row.
const TALL: usize = 28;
/// Minimum lines of a screen for all lanes, which leave most of it to the contexts.
const WITH_LANES: usize = 36;
/// Lines that the first lanes leave to the contexts of a smaller screen: their title and four.
const CONTEXTS_LEAST: usize = 5;
/// Maximum time in the lanes.
const LANES_TIME: Nanos = Nanos(60_000_000_000);
/// Minimum columns for single training steps.
const WITH_STEPS: u16 = 100;
/// Minimum columns of contexts for their time a step, which leave room for names.
const WITH_STEP_TIMES: u16 = 80;
/// Columns before a title, of the line behind it, and beside that.
const AROUND_TITLE: usize = 5;

/// A selectable row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A finding by its number.
    Finding(usize),
    /// A node of the flame graph.
    Node(u32),
}

/// A line of the page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OverviewLine<'a> {
    Title(String),
    /// A title, and times of the latest training steps to draw at its end.
    StepsTitle(String, &'a [Nanos]),
    Note(String),
    Finding(&'a FindingRow),
    /// A word, and its value for the selected row.
    Detail(&'static str, String),
    Phases(&'a [PhaseRow], Option<StepFigures>),
    /// A thread or stream, in a part of the time.
    Lane(&'a Lane, &'a Timeline, TimeSpan),
    /// A context, and its time a step where that is shown.
    Path(HotPath, Option<Nanos>),
    /// Heading of [`OverviewLine::Row`].
    Table(&'static str),
    /// A row, and its name, just long enough to differ from the others of the table.
    Row(&'a TableRow, String),
}

/// A line, and the number of its target.
pub(crate) type Line<'a> = (OverviewLine<'a>, Option<usize>);

/// The page for one size of the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OverviewPage<'a> {
    /// Lines over the whole width.
    pub(crate) lines: Vec<Line<'a>>,
    /// Lines beside the last of `lines`, from line `beside_from` on.
    pub(crate) beside: Vec<OverviewLine<'a>>,
    /// First line with something beside it.
    pub(crate) beside_from: usize,
    /// All selectable rows: findings, visible or not, and the visible contexts.
    pub(crate) targets: Vec<Target>,
}

impl OverviewPage<'_> {
    /// Columns of a line, of `width`: with something beside it, it is shorter.
    pub(crate) fn columns(&self, line: usize, width: u16) -> u16 {
        let has_beside = !self.beside.is_empty() && line >= self.beside_from;
        if has_beside { width.saturating_sub(BESIDE + GAP) } else { width }
    }

    /// The target at a place on the page, which has `width` columns.
    pub(crate) fn target_at(&self, x: u16, line: usize, width: u16) -> Option<usize> {
        let (_, target) = self.lines.get(line).filter(|_| x < self.columns(line, width))?;
        *target
    }
}

/// The page of a model; empty before the first snapshot.
pub(crate) fn page(model: &Model) -> OverviewPage<'_> {
    let Some(overview) = model.overview_data() else { return OverviewPage::default() };
    let (height, chosen) = (usize::from(model.areas().body.height), model.overview.chosen);
    let conclusions = overview.conclusions.as_deref();
    let mut page = OverviewPage::default();
    findings(&mut page, model, conclusions, height, chosen);
    let details_at = page.lines.len();
    let details = if model.interactive { details(conclusions, model.areas().body) } else { 0 };
    if let Some(Conclusions { rules, .. }) = conclusions
        && let Some(note) = coverage(rules)
        && height >= HEADINGS
    {
        page.lines.push((OverviewLine::Note(note), None));
    }
    if let Some(Conclusions { phases, steps, latest_steps, .. }) = conclusions
        && !phases.is_empty()
        && height > page.lines.len() + details + 4
    {
        let columns = model.areas().body.width;
        let title = match steps {
            Some(steps) => phases_title(*steps, usize::from(columns)),
            None => phases_without_steps(overview, usize::from(columns)),
        };
        let latest = fitting_behind(&title, latest_steps, columns);
        page.lines.push((OverviewLine::StepsTitle(title, latest), None));
        page.lines.push((OverviewLine::Phases(phases, *steps), None));
    }
    lanes(&mut page, model, &overview.timeline, height, details);
    let room = height.saturating_sub(page.lines.len() + details);
    contexts(&mut page, model, room);
    let about = about(model, &page, details);
    page.beside_from += about.len();
    page.lines.splice(details_at..details_at, about.into_iter().map(|line| (line, None)));
    page.lines.truncate(height);
    page
}

/// Visible findings: those around the selected one.
fn findings<'a>(
    page: &mut OverviewPage<'a>,
    model: &'a Model,
    conclusions: Option<&'a Conclusions>,
    height: usize,
    chosen: usize,
) {
    let Some(conclusions) = conclusions else {
        page.lines.push((OverviewLine::Note("analysing …".to_owned()), None));
        return;
    };
    let found = &conclusions.findings;
    page.targets.extend((0..found.len()).map(Target::Finding));
    let shown = found.len().min((height / 4).max(1));
    let first = if chosen < found.len() { (chosen + 1).saturating_sub(shown) } else { 0 };
    if height >= HEADINGS {
        let of = if shown < found.len() { format!(", {shown} of {}", found.len()) } else { String::new() };
        let of_all = if model.request.filter.is_some() { " in the whole profile" } else { "" };
        page.lines.push((OverviewLine::Title(format!("Findings{of_all}{of}")), None));
    }
    let rows = found.iter().enumerate().skip(first).take(shown);
    page.lines.extend(rows.map(|(at, row)| (OverviewLine::Finding(row), Some(at))));
    if found.is_empty() {
        page.lines.push((OverviewLine::Note(nothing(model, conclusions)), None));
    }
}

/// Text if there are no findings: it points to the hottest line.
fn nothing(model: &Model, conclusions: &Conclusions) -> String {
    let hottest = model.overview_data().and_then(|overview| overview.functions.first());
    let hottest = hottest.map_or_else(String::new, |row| {
        format!("; hottest: {} {}", row.label, text::percent(row.exclusive, model.whole()))
    });
    match conclusions.rules.checked {
        0 => format!("no rule has its input yet{hottest}"),
        rules => format!("nothing stands out, by {}{hottest}", counted(rules as u64, "rule")),
    }
}

/// Text about rules that lack their input, which are no findings.
fn coverage(rules: &RuleCoverage) -> Option<String> {
    let all = counted((rules.checked + rules.unchecked) as u64, "rule");
    let one = rules.unchecked == 1;
    let help = rules.most_helpful.map_or_else(String::new, |(options, rules)| match one {
        true => format!(": {options} gives it"),
        false => format!(": {options} gives {rules} of them theirs"),
    });
    let lack = if one { "lacks its input" } else { "lack their input" };
    (rules.unchecked > 0).then(|| format!("{} of {all} {lack}{help}", rules.unchecked))
}

/// The title of the phases. Without room for all, percentiles stay longest.
fn phases_title(steps: StepFigures, columns: usize) -> String {
    let StepFigures { count, mean, least, most, median, p95, .. } = steps;
    let beside = |time: Nanos| text::duration_beside(time, mean);
    let mean_step = format!("Training step {}", text::duration(mean));
    let steps = counted(count, "step");
    let extremes = format!("{} to {}", beside(least), beside(most));
    let percentiles =
        median.zip(p95).map(|(median, p95)| format!("p50 {}, p95 {}", beside(median), beside(p95)));
    let (all, some) = match percentiles {
        Some(percentiles) => (format!("{percentiles}, {extremes}"), percentiles),
        None => (extremes.clone(), extremes),
    };
    let titles = [
        format!("{mean_step} ({all}), {steps}; CPU time a step"),
        format!("{mean_step} ({some}), {steps}; CPU time a step"),
        format!("{mean_step} ({some}), {steps}"),
    ];
    // Two columns stand before a title.
    let fits = |title: &String| text::width(title) + 2 <= columns;
    titles.into_iter().find(fits).unwrap_or_else(|| format!("{mean_step}, {steps}"))
}

/// The title of phases without steps: what else can be recorded, which nobody finds who does not know its name.
fn phases_without_steps(overview: &Overview, columns: usize) -> String {
    let is_torch = |row: &TableRow| row.detail.contains("libtorch") || row.detail.contains("/torch/");
    let is_bare = overview.operators.is_empty() && overview.layers.is_empty();
    let lacks_all = is_bare && overview.functions.iter().any(is_torch);
    let title = |more: &str| format!("Phases, share of CPU time ({more})");
    let titles = [
        title("--probe ranges,operators,modules --probe-budget 3% adds steps, operators and layers"),
        title("--probe ranges,operators,modules adds steps, operators, layers"),
        title("--probe ranges,operators,modules adds detail"),
    ];
    let fits = |title: &String| lacks_all && text::width(title) + 2 <= columns;
    titles.into_iter().find(fits).unwrap_or_else(|| title("--probe ranges records the steps"))
}

/// The latest of these steps, as many as there are columns for behind a title.
fn fitting_behind<'a>(title: &str, steps: &'a [Nanos], columns: u16) -> &'a [Nanos] {
    let room = usize::from(columns).saturating_sub(text::width(title) + AROUND_TITLE);
    let shown = if columns >= WITH_STEPS { steps.len().min(room) } else { 0 };
    &steps[steps.len() - shown..]
}

/// The busiest threads and streams in the last minute, below a title, if the screen is large. On a smaller one, the
/// busiest thread and the busiest stream, a line each, if that leaves room for contexts.
fn lanes<'a>(
    page: &mut OverviewPage<'a>,
    model: &Model,
    timeline: &'a Timeline,
    height: usize,
    details: usize,
) {
    let whole = length(timeline);
    let shown = whole.min(LANES_TIME);
    let span = TimeSpan { from: whole.saturating_sub(shown), length: shown };
    let line = |lane: &'a Lane| -> Line<'a> { (OverviewLine::Lane(lane, timeline, span), None) };
    if model.areas().body.width >= WIDE && height >= WITH_LANES {
        if !timeline.lanes.is_empty() {
            let title = format!("Threads and streams, last {}", text::duration(shown));
            page.lines.push((OverviewLine::Title(title), None));
            page.lines.extend(timeline.lanes.iter().map(line));
        }
        return;
    }
    // The busiest ones come first.
    let first = |metric: Metric| timeline.lanes.iter().find(|lane| lane.metric == metric.name());
    let busiest: Vec<&Lane> = [Metric::CpuTime, Metric::GpuTime].into_iter().filter_map(first).collect();
    let taken = page.lines.len() + details + busiest.len();
    if height >= MEDIUM && height >= taken + CONTEXTS_LEAST {
        page.lines.extend(busiest.into_iter().map(line));
    }
}

/// Lines for details of the selected row: their number is constant, so that nothing jumps. On a wide screen, most
/// details have room in a line.
fn details(conclusions: Option<&Conclusions>, body: Rect) -> usize {
    let any = conclusions.is_some_and(|conclusions| !conclusions.findings.is_empty());
    match usize::from(body.height) {
        _ if !any => 0,
        TALL.. if body.width < WIDE => 7,
        MEDIUM.. => 4,
        HEADINGS.. => 2,
        _ => 0,
    }
}

fn about<'a>(model: &Model, page: &OverviewPage<'a>, lines: usize) -> Vec<OverviewLine<'a>> {
    let body = model.areas().body;
    let mut about = match page.targets.get(model.overview.chosen) {
        Some(Target::Finding(at)) => {
            let conclusions = model.overview_data().and_then(|overview| overview.conclusions.as_deref());
            let finding = conclusions.and_then(|it| it.findings.get(*at));
            finding.map_or_else(Vec::new, |finding| about_finding(finding, usize::from(body.width)))
        }
        Some(Target::Node(node)) => about_node(model, *node),
        None => Vec::new(),
    };
    let is_tall = usize::from(body.height) >= TALL;
    // A finding about the whole machine has no place, nor has an operator. The advice matters more than a whole title.
    about.retain(|(word, detail)| !detail.is_empty() && (is_tall || *word != "finding"));
    let columns = usize::from(body.width).saturating_sub(INDENT + WORD);
    let mut about = spread(&about, lines, columns, is_tall);
    about.resize(lines, ("", String::new()));
    about.into_iter().map(|(word, detail)| OverviewLine::Detail(word, detail)).collect()
}

/// Details over at most so many lines of `columns`: each in up to three, places in up to two. `all`: each has a line.
fn spread(
    details: &[(&'static str, String)],
    lines: usize,
    columns: usize,
    all: bool,
) -> Vec<(&'static str, String)> {
    let mut out = Vec::new();
    for (at, (word, detail)) in details.iter().enumerate() {
        let later = details[at + 1..].iter().filter(|(word, _)| all || FIRST.contains(word)).count();
        let most = if *word == "where" { 2 } else { 3 };
        let room = lines.saturating_sub(out.len() + later).min(most);
        let words = std::iter::once(*word).chain(std::iter::repeat(""));
        out.extend(words.zip(text::wrap(detail, columns, room)));
    }
    out
}

/// What there is to say of a finding, on a screen of `columns`.
fn about_finding(finding: &FindingRow, columns: usize) -> Vec<(&'static str, String)> {
    let place = |place: &deepctx_profile::view::conclusions::FindingPlace| {
        format!("{} {}", place.name, text::share(place.share))
    };
    let places: Vec<String> = finding.places.iter().map(place).collect();
    let found_by = format!("{}: {}", finding.rule, finding.evidence.join(" · "));
    // The line at the bottom has it, if that is long enough.
    let is_cut = text::width(&finding.title) >= columns;
    let title = if is_cut { finding.title.clone() } else { String::new() };
    vec![
        ("finding", title),
        ("where", places.join(" · ")),
        ("advice", finding.advice.clone()),
        ("gain", finding.gain.clone()),
        ("found by", found_by),
    ]
}

fn about_node(model: &Model, node: u32) -> Vec<(&'static str, String)> {
    let tree = model.flame_tree();
    let above: Vec<&str> = crate::tree::path(tree, node)
        .iter()
        .rev()
        .filter_map(|&node| tree.nodes.get(node as usize))
        .map(|node| node.label.as_str())
        .collect();
    let detail = tree.nodes.get(node as usize).map_or("", |node| node.detail.as_str());
    vec![("where", detail.to_owned()), ("callers", above.join(" ← "))]
}

/// The hottest contexts, and tables beside or below them.
fn contexts<'a>(page: &mut OverviewPage<'a>, model: &'a Model, room: usize) {
    if room < 2 {
        return;
    }
    let metric = model.shown().map_or("", |snapshot| snapshot.header.metric);
    let wide = model.areas().body.width >= WIDE;
    let tables = tables(model);
    let most = tables.first().map_or(0, |(_, rows)| rows.len() + 1);
    let below = if wide || room < 9 { 0 } else { (room / 3).min(most) };
    page.beside_from = page.lines.len();
    let columns = model.areas().body.width.saturating_sub(if wide { BESIDE + GAP } else { 0 });
    let steps = steps_in_values(model).filter(|_| columns >= WITH_STEP_TIMES);
    let figures = if steps.is_some() { ", share and time a step" } else { "" };
    let title = format!("Where {} goes{figures}", text::metric(metric));
    page.lines.push((OverviewLine::Title(title), None));
    let paths = hot_paths(model.drawn(), room - below - 1);
    if paths.is_empty() {
        page.lines.push((OverviewLine::Note(model.empty_reason().to_owned()), None));
    }
    for path in paths {
        let target = page.targets.len();
        page.targets.push(Target::Node(model.folded.first_of(path.named)));
        let value = path.value(model.drawn());
        let step = steps.map(|steps| Nanos((value as f64 / steps) as u64));
        page.lines.push((OverviewLine::Path(path, step), Some(target)));
    }
    if wide {
        page.beside = side_by_side(&tables, room);
    } else if let Some((title, rows)) = tables.first().filter(|_| below > 1) {
        page.lines.push((OverviewLine::Table(title), None));
        page.lines.extend(table_rows(&rows[..rows.len().min(below - 1)]).map(|row| (row, None)));
    }
}

/// Training steps that the shown values are of. `None` without steps, if the values are no times, and if they are only
/// those since a mark: its steps are not counted.
fn steps_in_values(model: &Model) -> Option<f64> {
    let snapshot = model.shown().filter(|snapshot| snapshot.since.is_none())?;
    let conclusions = model.overview_data()?.conclusions.as_deref()?;
    let steps = conclusions.steps.filter(|_| model.unit() == Unit::Nanoseconds)?;
    // Conclusions are drawn seldom: the values may be newer.
    let newer = snapshot.header.elapsed.saturating_sub(conclusions.at);
    let since = if steps.mean.0 > 0 { newer.0 as f64 / steps.mean.0 as f64 } else { 0.0 };
    Some(steps.in_sums + since).filter(|steps| *steps > 0.0)
}

/// Tables with rows, the most informative one first.
fn tables(model: &Model) -> Vec<(&'static str, &[TableRow])> {
    let Some(overview) = model.overview_data() else { return Vec::new() };
    // Less than half a percent is not worth showing.
    let least = model.whole() / 200;
    let upto = |rows: &[TableRow], value: fn(&TableRow) -> u64| {
        rows.iter().take_while(|row| value(row) > least).count()
    };
    let Overview { operators, layers, functions, .. } = overview;
    let tables = [
        ("Operators", &operators[..upto(operators, |row| row.exclusive)]),
        ("Layers", &layers[..upto(layers, |row| row.inclusive)]),
        ("Functions", &functions[..upto(functions, |row| row.exclusive)]),
    ];
    tables.into_iter().filter(|(_, rows)| !rows.is_empty()).collect()
}

fn table_rows(rows: &[TableRow]) -> impl Iterator<Item = OverviewLine<'_>> {
    let names = short_labels(rows.iter().map(|row| (row.kind, row.label.as_str())));
    rows.iter().zip(names).map(|(row, name)| OverviewLine::Row(row, name))
}

/// Tables one below the other, each with its part of the room.
fn side_by_side<'a>(tables: &[(&'static str, &'a [TableRow])], room: usize) -> Vec<OverviewLine<'a>> {
    let mut lines = Vec::new();
    for (at, (title, rows)) in tables.iter().enumerate() {
        let part = (room - lines.len()) / (tables.len() - at);
        if part < 2 {
            break;
        }
        lines.push(OverviewLine::Table(title));
        lines.extend(table_rows(&rows[..rows.len().min(part - 1)]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_leaves_out_figures_that_have_no_room() {
        let ms = |ms: u64| Nanos(ms * 1_000_000);
        let steps = StepFigures {
            count: 101,
            in_sums: 102.0,
            mean: Nanos(81_400_000),
            least: ms(55),
            most: ms(119),
            median: Some(ms(80)),
            p95: Some(ms(104)),
        };
        let check = |steps, columns, expect: &str| assert_eq!(phases_title(steps, columns), expect);
        check(steps, 80, "Training step 81.4 ms (p50 80, p95 104, 55 to 119), 101 steps; CPU time a step");
        check(steps, 79, "Training step 81.4 ms (p50 80, p95 104), 101 steps; CPU time a step");
        check(steps, 60, "Training step 81.4 ms (p50 80, p95 104), 101 steps");
        check(steps, 20, "Training step 81.4 ms, 101 steps");
        let older = StepFigures { median: None, p95: None, ..steps };
        check(older, 80, "Training step 81.4 ms (55 to 119), 101 steps; CPU time a step");
    }

    #[test]
    fn phases_of_bare_torch_name_what_else_can_be_recorded() {
        let row = |detail: &str| TableRow { detail: detail.to_owned(), ..TableRow::default() };
        let torch = Overview { functions: vec![row("/l/libtorch_cpu.so")], ..Overview::default() };
        let check = |overview: &Overview, columns, expect: &str| {
            let title = phases_without_steps(overview, columns);
            let more = title.strip_prefix("Phases, share of CPU time (--probe ranges");
            assert!(more.is_some_and(|more| more.starts_with(expect)), "{title}");
            assert!(text::width(&title) + 2 <= columns, "{title}");
        };
        check(&torch, 160, ",operators,modules --probe-budget 3% adds steps");
        check(&torch, 100, ",operators,modules adds steps");
        check(&torch, 80, ",operators,modules adds detail");
        check(&torch, 70, " records the steps");
        check(&Overview { operators: vec![row("")], ..torch.clone() }, 160, " records the steps");
        let other = Overview { functions: vec![row("/l/libjax.so")], ..Overview::default() };
        check(&other, 160, " records the steps");
    }

    #[test]
    fn the_latest_steps_fill_the_columns_behind_a_title() {
        let steps: Vec<Nanos> = (0..64).map(Nanos).collect();
        let check = |columns, expect: &[Nanos]| {
            assert_eq!(fitting_behind(&"t".repeat(75), &steps, columns), expect, "{columns}");
        };
        check(99, &[]);
        check(100, &steps[44..]);
        check(143, &steps[1..]);
        check(160, &steps);
        assert!(fitting_behind(&"t".repeat(100), &steps, 100).is_empty());
    }
}
