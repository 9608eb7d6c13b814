//! HTML: one page with flame graphs from the root and from the leaves, a table of functions, and the losses.
//!
//! Owns: [`write()`], [`write_with`], and the page in `page/`. Because: everyone has a browser, and a file can be
//! mailed. Does not: load anything: script, style and data are in the page, and its own policy forbids it to ask for
//! more.
//!
//! Texts come from other processes. The page embeds them as JSON without a single `<`, and the script only ever sets
//! them as text.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::json_text::{field, list, value};
use super::outline::Outline;
use super::{Source, kind_name, page_events};
use deepctx_profile::frame::{BACKWARD, FrameKind, SPINNING, SpinPart, SpinState, clean, short_labels};
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::trace::EventLanes;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::counted;
use deepctx_profile::view::{View, fold, losses_by_level};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const FOLD_SCRIPT: &str = include_str!("page/fold.js");
const BESIDE_SCRIPT: &str = include_str!("page/beside.js");
const PRINT_SCRIPT: &str = include_str!("page/print.js");
/// Scripts for the timeline of single events, in this order.
const EVENT_SCRIPTS: [&str; 5] = [
    include_str!("page/events.js"),
    include_str!("page/picture.js"),
    include_str!("page/range.js"),
    include_str!("page/stage.js"),
    include_str!("page/timeline.js"),
];

/// More contexts would make the page slow to open; the smallest ones are merged then.
const NODES_MAX: usize = 100_000;
/// Style of columns of kernels.
const KERNEL: &str = "kernel";
/// Name of the merged ones.
const JOINED: &str = "[smaller ones]";

/// An additional tab of the page: one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tab {
    /// Fragment of the page's URL while this tab is open; unique among the tabs.
    pub id: String,
    /// Title of the tab.
    pub title: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// One text per column.
    pub rows: Vec<Vec<String>>,
    /// Number of omitted rows.
    pub left_out: usize,
    /// Layout of its rows.
    pub form: Form,
}

/// Layout of a tab's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As a table.
    #[default]
    Table,
    /// Each as a separate sheet: its first text as heading, below it every text that is not empty, with the title of
    /// its column.
    Sheets,
}

/// Style of numbers.
const NUMBER: &str = "number";

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Column {
    title: String,
    style: &'static str,
}

impl Column {
    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether it has numbers.
    pub fn is_number(&self) -> bool {
        self.style == NUMBER
    }

    /// Plain text.
    pub fn text(title: &str) -> Self {
        Column { title: title.to_owned(), style: "" }
    }

    /// Numbers, right-aligned.
    pub fn number(title: &str) -> Self {
        Column { title: title.to_owned(), style: NUMBER }
    }

    /// Names of kernels: short, with the full ones as titles.
    pub fn kernel(title: &str) -> Self {
        Column { title: title.to_owned(), style: KERNEL }
    }

    /// Names of code.
    pub fn code(title: &str) -> Self {
        Column { title: title.to_owned(), style: "name" }
    }

    /// Plain text that stays on one line.
    pub fn label(title: &str) -> Self {
        Column { title: title.to_owned(), style: "label" }
    }

    /// Values over time as a strip of colors: the cell has one digit from `0` to `9` for each span of time.
    pub fn strip(title: &str) -> Self {
        Column { title: title.to_owned(), style: "strip" }
    }

    /// Values over time as a curve: the cell has a height from `0` to `100` for each span of time, with spaces between.
    pub fn curve(title: &str) -> Self {
        Column { title: title.to_owned(), style: "curve" }
    }

    /// Files and lines.
    pub fn place(title: &str) -> Self {
        Column { title: title.to_owned(), style: "where" }
    }
}

/// Optional additions to a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageExtras<'m> {
    /// Additional tabs.
    pub tabs: &'m [Tab],
    /// Individual events, for a timeline tab.
    pub events: Option<&'m EventLanes>,
}

/// Writes the page.
///
/// # Errors
/// Those of `out`, and `InvalidData` if the profile has no values at all.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    write_with(source, PageExtras::default(), out)
}

/// Writes the page with additions.
///
/// # Errors
/// As for [`write()`].
pub fn write_with(source: &Source<'_>, more: PageExtras<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    if outline.metrics.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the profile has no values"));
    }
    let pieces = [
        ("/*STYLE*/", Piece::Texts(&[STYLE])),
        ("/*DATA*/", Piece::Data),
        ("/*EVENTS*/", Piece::Events),
        ("/*EVENT_SCRIPTS*/", Piece::Texts(if more.events.is_some() { &EVENT_SCRIPTS } else { &[] })),
        ("/*SCRIPT*/", Piece::Texts(&[FOLD_SCRIPT, BESIDE_SCRIPT, SCRIPT, PRINT_SCRIPT])),
    ];
    let mut rest = PAGE;
    for (mark, piece) in pieces {
        // Each mark occurs once in the page, which is part of the program.
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        match piece {
            Piece::Texts(texts) => texts.iter().try_for_each(|text| out.write_all(text.as_bytes()))?,
            Piece::Data => data(source, &outline, more, &mut NoMarkup(out))?,
            // Base64 contains no markup.
            Piece::Events => more.events.map_or(Ok(()), |lanes| page_events::write(lanes, out))?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

enum Piece {
    Texts(&'static [&'static str]),
    Data,
    Events,
}

/// Writes JSON without `<`, which occurs only in texts, so that no text can close the enclosing element.
struct NoMarkup<'o>(&'o mut dyn Write);

impl Write for NoMarkup<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for (place, part) in bytes.split(|&byte| byte == b'<').enumerate() {
            if place > 0 {
                self.0.write_all(b"\\u003c")?;
            }
            self.0.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn data(
    source: &Source<'_>,
    outline: &Outline<'_>,
    more: PageExtras<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let boxes = Boxes::of(outline, &waits(outline, source.selection.view));
    let profile = source.profile;
    out.write_all(b"{")?;
    field(out, "target", &target(source))?;
    out.write_all(b",")?;
    field(out, "facts", &facts(source))?;
    writeln!(out, ",\"received\":{},\"lost\":{},", profile.ledger.received(), profile.ledger.lost())?;
    out.write_all(b"\"losses\":")?;
    list(out, losses_by_level(profile), |out, row| {
        let (reason, sentence, level) = (clean(&row.reason), clean(&row.sentence), row.level().name());
        value(out, &json!([row.stage, reason, sentence, row.count, row.lost, level, row.advice()]))
    })?;
    out.write_all(b",\n\"tabs\":")?;
    list(out, more.tabs, |out, tab| value(out, &ShownTab::of(tab)))?;
    out.write_all(b",\n")?;
    field(out, "hasEvents", &more.events.is_some())?;
    out.write_all(b",\n")?;
    let limits = json!({ "samePercent": fold::SAME_PERCENT, "least": fold::LEAST, "named": fold::NAMED });
    field(out, "fold", &limits)?;
    out.write_all(b",\n")?;
    field(out, "folds", &source.folds)?;
    out.write_all(b",\n\"frames\":")?;
    let all = || outline.contexts.frames.iter();
    let short = short_labels(all().map(|(id, frame)| (frame.kind(), outline.frame_label(id))));
    let frames = all().zip(&short).map(|((id, frame), short)| {
        let place = frame.detail(outline.contexts.strings, source.selection.lines);
        let full = outline.frame_label(id);
        // A short name without more information is not repeated.
        let short = if short == full { "" } else { short };
        json!([full, kind_name(frame.kind()), place, short, folding(frame.kind(), full)])
    });
    let joined = json!([JOINED, kind_name(FrameKind::Unresolved), "", "", 0]);
    list(out, frames.chain([joined, spinning_frame()]), |out, frame| value(out, &frame))?;
    out.write_all(b",\n")?;
    let frame = outline.contexts.frames.len() + 1;
    field(out, "spinning", &json!({ "frame": frame, "begin": boxes.begin, "end": boxes.end }))?;
    out.write_all(b",\n")?;
    field(out, "parents", &boxes.parents)?;
    out.write_all(b",\n")?;
    field(out, "nodeFrames", &boxes.frames)?;
    out.write_all(b",\n\"metrics\":")?;
    list(out, outline.metrics.iter().zip(&boxes.own), |out, (&metric, own)| {
        let unit = match metric.unit() {
            Unit::Nanoseconds => "ns",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        };
        let total = outline.contexts.tree.total(metric).sum;
        value(out, &json!({ "name": metric.name(), "unit": unit, "total": total, "own": own }))
    })?;
    out.write_all(b"}")
}

/// A tab with what is shown of the names in it.
#[derive(Serialize)]
struct ShownTab<'t> {
    #[serde(flatten)]
    tab: &'t Tab,
    /// By column of kernels: a short name for each row.
    short: BTreeMap<usize, Vec<String>>,
}

impl<'t> ShownTab<'t> {
    fn of(tab: &'t Tab) -> Self {
        let short = |at: usize| {
            let names = tab.rows.iter().map(|row| row.get(at).map_or("", String::as_str));
            short_labels(names.map(|name| (FrameKind::GpuKernel, name)))
        };
        let columns = tab.columns.iter().enumerate().filter(|(_, column)| column.style == KERNEL);
        ShownTab { tab, short: columns.map(|(at, _)| (at, short(at))).collect() }
    }
}

/// The box of threads that wait for no call.
fn spinning_frame() -> Value {
    let (kind, what) = (FrameKind::Kernel, "waits for other threads without giving up its CPU");
    json!([SPINNING, kind_name(kind), what, "", folding(kind, SPINNING)])
}

/// By node: whether its frame begins or ends a wait for no call, by [`SpinState`]. Only the full view shows every
/// call that may wait.
fn waits(outline: &Outline<'_>, view: View) -> Vec<Option<bool>> {
    let contexts = &outline.contexts;
    let mut waits = vec![None; contexts.tree.len()];
    let mut states = vec![SpinState::default(); contexts.tree.len()];
    for &(node, _) in outline.order.iter().skip(1).filter(|_| view == View::Full) {
        let before = states[contexts.tree.node(node).parent.index()];
        let after = before.then(SpinPart::of(&outline.frame(node), contexts.strings));
        states[node.index()] = after;
        waits[node.index()] = (before.is_apart() != after.is_apart()).then_some(after.is_apart());
    }
    waits
}

/// How folding treats a frame: 1 for a wrapper, 2 for siblings that differ by a number, 4 for a heading of the frames
/// below it, 8 for the backward pass.
fn folding(kind: FrameKind, label: &str) -> u8 {
    let is_backward = kind == FrameKind::Operator && label == BACKWARD;
    u8::from(fold::is_wrapper(kind, label))
        | u8::from(fold::may_be_joined(kind, label)) << 1
        | u8::from(fold::is_heading(kind, label)) << 2
        | u8::from(is_backward) << 3
}

fn target(source: &Source<'_>) -> String {
    match source.profile.meta.target.as_str() {
        "" => "profile".to_owned(),
        target => clean(target),
    }
}

fn facts(source: &Source<'_>) -> Vec<String> {
    let meta = &source.profile.meta;
    let mut facts = Vec::new();
    if !meta.host.is_empty() {
        facts.push(format!("on {}", clean(&meta.host)));
    }
    if source.elapsed.0 > 0 {
        facts.push(source.elapsed.to_string());
    }
    if meta.frequency_hz > 0 {
        facts.push(format!("{} Hz per CPU", meta.frequency_hz));
    }
    let samples = source.profile.tree.total(Metric::Samples).sum;
    if samples > 0 {
        facts.push(counted(samples, "sample"));
    }
    facts.push(format!("{} view", source.selection.view.name()));
    facts
}

/// The contexts as columns, callers before callees.
struct Boxes {
    parents: Vec<u32>,
    frames: Vec<u32>,
    /// By metric.
    own: Vec<Vec<u64>>,
    /// Which begin a wait for no call.
    begin: Vec<u32>,
    /// Which end one.
    end: Vec<u32>,
}

impl Boxes {
    fn of(outline: &Outline<'_>, waits: &[Option<bool>]) -> Self {
        let tree = &outline.contexts.tree;
        let inclusive: Vec<Vec<u64>> = outline.metrics.iter().map(|&m| tree.inclusive(m)).collect();
        let least = least_share(outline, &inclusive);
        let joined = outline.contexts.frames.len() as u32;
        let own = vec![Vec::new(); outline.metrics.len()];
        let (begin, end) = (Vec::new(), Vec::new());
        let mut boxes = Boxes { parents: Vec::new(), frames: Vec::new(), own, begin, end };
        // By node: its box; by box: the box for children that are too small.
        let mut box_of: Vec<u32> = vec![0; tree.len()];
        let mut joined_of: Vec<Option<u32>> = Vec::new();
        let mut is_joined: Vec<bool> = vec![false; tree.len()];
        for &(node, _) in &outline.order {
            let parent = tree.node(node).parent;
            let above = box_of[parent.index()];
            let small = node != NodeId::ROOT && share(node, &inclusive) < least;
            let place = if node != NodeId::ROOT && is_joined[parent.index()] {
                is_joined[node.index()] = true;
                above
            } else if small {
                is_joined[node.index()] = true;
                match joined_of[above as usize] {
                    Some(place) => place,
                    None => {
                        let place = boxes.add(above, joined, &mut joined_of);
                        joined_of[above as usize] = Some(place);
                        place
                    }
                }
            } else {
                boxes.add(above, outline.frame_id(node).number(), &mut joined_of)
            };
            box_of[node.index()] = place;
            match waits[node.index()].filter(|_| !is_joined[node.index()]) {
                Some(true) => boxes.begin.push(place),
                Some(false) => boxes.end.push(place),
                None => {}
            }
            for (own, &metric) in boxes.own.iter_mut().zip(&outline.metrics) {
                let own = &mut own[place as usize];
                *own = own.saturating_add(outline.own(node, metric));
            }
        }
        boxes
    }

    fn add(&mut self, parent: u32, frame: u32, joined_of: &mut Vec<Option<u32>>) -> u32 {
        let place = self.parents.len() as u32;
        self.parents.push(parent);
        self.frames.push(frame);
        self.own.iter_mut().for_each(|own| own.push(0));
        joined_of.push(None);
        place
    }
}

/// The largest share of a context over all metrics.
fn share(node: NodeId, inclusive: &[Vec<u64>]) -> f64 {
    let shares = inclusive.iter().map(|sums| match sums[0] {
        0 => 0.0,
        total => sums[node.index()] as f64 / total as f64,
    });
    shares.fold(0.0, f64::max)
}

/// The share below which contexts are merged: 0 if all of them fit.
fn least_share(outline: &Outline<'_>, inclusive: &[Vec<u64>]) -> f64 {
    if outline.order.len() <= NODES_MAX {
        return 0.0;
    }
    let mut shares: Vec<f64> = outline.order.iter().map(|(node, _)| share(*node, inclusive)).collect();
    // Half of the boxes for contexts, since each may get one more for merged ones below it.
    let (_, least, _) = shares.select_nth_unstable_by(NODES_MAX / 2, |a, b| b.total_cmp(a));
    least.next_up()
}

#[cfg(test)]
mod tests {
    use deepctx_profile::intern::FrameId;
    use deepctx_profile::trace::EventClass;
    use deepctx_profile::view::Selection;

    use super::*;

    #[test]
    fn events_are_drawn_in_the_colours_of_their_legend() {
        let [_, picture, _, _, timeline] = EVENT_SCRIPTS;
        let (_, drawn) = picture.split_once("const names = [").unwrap();
        let (drawn, _) = drawn.split_once(']').unwrap();
        let drawn: Vec<&str> = drawn.split(", ").map(|name| name.trim_matches('"')).collect();
        let (_, legend) = timeline.split_once("const KINDS = [").unwrap();
        let (legend, _) = legend.split_once("];").unwrap();
        let legend: Vec<&str> = legend.split('[').skip(1).filter_map(|kind| kind.split('"').nth(1)).collect();
        assert_eq!(drawn, legend);
        // Steps have one besides their class.
        assert_eq!(drawn.len(), EventClass::ALL.len() + 1);
    }

    #[test]
    fn threads_begin_and_end_to_wait_for_no_call() {
        const WORKER: &str = "P a-1 / n clone3 / u libgomp.so.1+0x10";
        let profile = deepctx_profile::testing::profile(&format!(
            "{WORKER} / u libgomp.so.1+0x20 60\n{WORKER} / n work 30\nP a-1 / y t.py:f / n gomp_barrier_wait 5"
        ));
        let outline = Outline::of(&profile, &Selection::of(Metric::CpuTime));
        let boxes = Boxes::of(&outline, &waits(&outline, View::Full));
        let label = |at: &u32| outline.frame_label(FrameId::from_number(boxes.frames[*at as usize]));
        let [begin, end] = [&boxes.begin, &boxes.end].map(|of| of.iter().map(label).collect::<Vec<_>>());
        assert_eq!((begin, end), (vec!["libgomp.so.1+0x10"], vec!["work"]));
        assert!(waits(&outline, View::Native).iter().all(Option::is_none));
    }

    #[test]
    fn large_numbers_are_no_powers_of_ten() {
        let (_, amount) = SCRIPT.split_once("function amount(").unwrap();
        let (amount, _) = amount.split_once("\n}").unwrap();
        assert!(amount.contains("scaled < 999.5 ? scaled.toPrecision(3)"), "{amount}");
    }

    #[test]
    fn lists_are_readable_and_wide_tables_can_be_scrolled() {
        for rule in [
            "select option { background: var(--ground); color: var(--ink); }",
            "#view:has(> table) { overflow-x: auto; }",
        ] {
            assert!(STYLE.contains(rule), "no {rule}");
        }
    }

    #[test]
    fn every_kind_of_frame_has_colour_and_legend() {
        let (_, rest) = SCRIPT.split_once("const LEGEND = [").unwrap();
        let (legend, _) = rest.split_once("];").unwrap();
        for kind in FrameKind::ALL {
            let ([r, g, b], kind) = (kind.color(), kind_name(kind));
            let colour = format!(" --{kind}: #{r:02x}{g:02x}{b:02x};");
            assert!(STYLE.contains(&colour), "the page has not the colour{colour}");
            assert!(legend.contains(&format!("\"{kind}\"")), "no word for {kind}");
        }
    }

    #[test]
    fn every_kind_of_frame_is_visible_on_white() {
        for kind in FrameKind::ALL.map(kind_name) {
            // The first colour is that of light windows and of paper.
            let (_, colour) = STYLE.split_once(&format!(" --{kind}: #")).unwrap();
            let channels = [0, 2, 4].map(|at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap());
            assert!(channels.iter().min() <= Some(&0xd8), "{kind} is {channels:?}");
        }
    }

    #[test]
    fn scripts_pass_no_list_as_arguments() {
        // A browser bounds the number of arguments, and a node may have more children.
        for script in [SCRIPT, FOLD_SCRIPT, BESIDE_SCRIPT].into_iter().chain(EVENT_SCRIPTS) {
            assert!(!script.contains("push(..."), "{script}");
        }
    }

    #[test]
    fn tabs_have_an_address_and_keys() {
        assert!(SCRIPT.contains("history.replaceState(null, \"\", \"#\" + tab)"));
        assert!(SCRIPT.contains("setAttribute(\"aria-controls\", \"view\")") && PAGE.contains("id=\"view\""));
        let (_, keys) = SCRIPT.split_once("const TAB_KEYS = {").unwrap();
        let (keys, _) = keys.split_once("};").unwrap();
        for key in ["ArrowLeft", "ArrowRight", "Home", "End"] {
            assert!(keys.contains(&format!(" {key}: ")), "no {key}");
        }
    }

    #[test]
    fn boxes_have_keys_and_details_beside_them() {
        let (_, keys) = SCRIPT.split_once("const BOX_KEYS = [").unwrap();
        let (keys, _) = keys.split_once("];").unwrap();
        for key in ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"] {
            assert!(keys.contains(&format!("\"{key}\"")), "no {key}");
        }
        // Without any text, the summary takes no column.
        assert!(PAGE.contains("aria-label=\"Summary\"></aside>") && STYLE.contains("#beside:not(:empty)"));
        for part in ["beside", "details"] {
            let is_styled = STYLE.contains(&format!("#{part} h3"));
            assert!(PAGE.contains(&format!("<aside id=\"{part}\"")) && is_styled, "{part}");
            assert!(SCRIPT.contains(&format!("byId(\"{part}\")")), "nothing fills {part}");
        }
    }

    #[test]
    fn counts_on_the_page_have_a_singular() {
        let (_, counted) = SCRIPT.split_once("const counted = ").unwrap();
        assert!(counted.lines().next().unwrap().contains("number === 1 ? \"\" : \"s\""));
        for script in [SCRIPT, PRINT_SCRIPT].into_iter().chain(EVENT_SCRIPTS) {
            for noun in ["events", "rows", "lanes", "counters", "records", "functions", "names"] {
                assert!(!script.contains(&format!(".toLocaleString(\"en\") + \" {noun}")), "{noun}");
                assert!(!script.contains(&format!(".toLocaleString(\"en\") + \" more {noun}")), "{noun}");
            }
        }
    }

    #[test]
    fn tables_have_short_names_of_kernels_beside_full_ones() {
        let full = |of: &str| format!("void at::native::fill<at::Fill<{of}>, 4>(int, long)");
        let name = |of: &str| vec!["1".to_owned(), full(of)];
        let tab = Tab {
            id: "kernels".to_owned(),
            title: "Kernels".to_owned(),
            columns: vec![Column::number("Launches"), Column::kernel("Kernel")],
            rows: vec![name("float"), name("double")],
            left_out: 0,
            form: Form::Table,
        };
        let written = serde_json::to_value(ShownTab::of(&tab)).unwrap();
        assert_eq!(written["rows"][0][1], full("float"));
        let short = written["short"]["1"].as_array().unwrap();
        let is_short = |name: &Value| name.as_str().unwrap().starts_with("at::native::fill<");
        assert!(short.iter().all(is_short), "{short:?}");
        assert_ne!(short[0], short[1]);
    }

    #[test]
    fn pictures_in_cells_are_drawn_and_sized() {
        for column in [Column::strip("by time"), Column::curve("by time")] {
            let style = column.style;
            assert!(SCRIPT.contains(&format!("function {style}(")), "nothing draws a {style}");
            assert!(STYLE.contains(&format!("td.{style} div {{")), "a {style} has no height");
        }
        assert!(SCRIPT.contains("const PICTURES = { strip, curve };"));
    }
}
