//! Overview page: findings, phases, the hottest contexts and tables, as lines.
//!
//! Owns: which of them there is room for, and which lines can be chosen. Because: what is most important must be on the
//! smallest screen, and a key must choose a row that is in sight. Does not: draw.

use deepctx_profile::frame::short_labels;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::conclusions::{Conclusions, FindingRow, PhaseRow, RuleCoverage, StepFigures};
use deepctx_profile::view::snapshot::{Lane, Overview, TableRow, Timeline};

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
/// Minimum lines of a screen for headings.
const HEADINGS: usize = 14;
/// Minimum lines of a screen for all details of the selected row.
const TALL: usize = 28;
/// Minimum lines of a screen for lanes, which leave most of it to the contexts.
const WITH_LANES: usize = 36;
/// Maximum time in the lanes.
const LANES_TIME: Nanos = Nanos(60_000_000_000);

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
    Note(String),
    Finding(&'a FindingRow),
    /// A word, and its value for the selected row.
    Detail(&'static str, String),
    Phases(&'a [PhaseRow], Option<StepFigures>),
    /// A thread or stream, in a part of the time.
    Lane(&'a Lane, &'a Timeline, TimeSpan),
    Path(HotPath),
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
    let details = details(conclusions, height, model.interactive);
    if let Some(Conclusions { rules, .. }) = conclusions
        && let Some(note) = coverage(rules)
        && height >= HEADINGS
    {
        page.lines.push((OverviewLine::Note(note), None));
    }
    if let Some(Conclusions { phases, steps, .. }) = conclusions
        && !phases.is_empty()
        && height > page.lines.len() + details + 4
    {
        page.lines.push((OverviewLine::Title(phases_title(*steps)), None));
        page.lines.push((OverviewLine::Phases(phases, *steps), None));
    }
    lanes(&mut page, model, &overview.timeline, height);
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
        rules => format!("nothing stands out, by {}{hottest}", counted(rules, "rule")),
    }
}

/// Text about rules that lack their input, which are no findings.
fn coverage(rules: &RuleCoverage) -> Option<String> {
    let all = rules.checked + rules.unchecked;
    let help = rules
        .most_helpful
        .map_or_else(String::new, |(options, rules)| format!(": {options} gives {rules} of them theirs"));
    (rules.unchecked > 0).then(|| format!("{} of {all} rules lack their input{help}", rules.unchecked))
}

fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

fn phases_title(steps: Option<StepFigures>) -> String {
    match steps {
        Some(StepFigures { count, mean, least, most }) => format!(
            "Training step {} ({} to {}), {}; CPU time a step",
            text::duration(mean),
            text::duration(least),
            text::duration(most),
            counted(usize::try_from(count).unwrap_or(usize::MAX), "step")
        ),
        None => "Phases, share of CPU time (--probe ranges records the steps)".to_owned(),
    }
}

/// The busiest threads and streams in the last minute, if the screen is large.
fn lanes<'a>(page: &mut OverviewPage<'a>, model: &Model, timeline: &'a Timeline, height: usize) {
    let has_room = model.areas().body.width >= WIDE && height >= WITH_LANES;
    if !has_room || timeline.lanes.is_empty() {
        return;
    }
    let whole = length(timeline);
    let shown = whole.min(LANES_TIME);
    let span = TimeSpan { from: whole.saturating_sub(shown), length: shown };
    let title = format!("Threads and streams, last {}", text::duration(shown));
    page.lines.push((OverviewLine::Title(title), None));
    page.lines.extend(timeline.lanes.iter().map(|lane| (OverviewLine::Lane(lane, timeline, span), None)));
}

/// Details of the selected row: the number of lines is constant, so that nothing jumps.
fn details(conclusions: Option<&Conclusions>, height: usize, interactive: bool) -> usize {
    let any = conclusions.is_some_and(|conclusions| !conclusions.findings.is_empty());
    match height {
        _ if !any || !interactive => 0,
        TALL.. => 4,
        HEADINGS.. => 2,
        _ => 0,
    }
}

fn about<'a>(model: &Model, page: &OverviewPage<'a>, lines: usize) -> Vec<OverviewLine<'a>> {
    let mut about = match page.targets.get(model.overview.chosen) {
        Some(Target::Finding(at)) => {
            let conclusions = model.overview_data().and_then(|overview| overview.conclusions.as_deref());
            conclusions.and_then(|it| it.findings.get(*at)).map_or_else(Vec::new, about_finding)
        }
        Some(Target::Node(node)) => about_node(model, *node),
        None => Vec::new(),
    };
    // A finding about the whole machine has no place, nor has an operator.
    about.retain(|(_, text)| !text.is_empty());
    about.resize(lines, ("", String::new()));
    about.into_iter().map(|(word, text)| OverviewLine::Detail(word, text)).collect()
}

fn about_finding(finding: &FindingRow) -> Vec<(&'static str, String)> {
    let place = |place: &deepctx_profile::view::conclusions::FindingPlace| {
        format!("{} {}", place.name, text::share(place.share))
    };
    let places: Vec<String> = finding.places.iter().map(place).collect();
    let found_by = format!("{}: {}", finding.rule, finding.evidence.join(" · "));
    vec![
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
    page.lines.push((OverviewLine::Title(format!("Where {} goes", text::metric(metric))), None));
    let paths = hot_paths(model.drawn(), room - below - 1);
    if paths.is_empty() {
        page.lines.push((OverviewLine::Note(model.empty_reason().to_owned()), None));
    }
    for path in paths {
        let target = page.targets.len();
        page.targets.push(Target::Node(model.folded.first_of(path.named)));
        page.lines.push((OverviewLine::Path(path), Some(target)));
    }
    if wide {
        page.beside = side_by_side(&tables, room);
    } else if let Some((title, rows)) = tables.first().filter(|_| below > 1) {
        page.lines.push((OverviewLine::Table(title), None));
        page.lines.extend(table_rows(&rows[..rows.len().min(below - 1)]).map(|row| (row, None)));
    }
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
