//! Model: the state of the view.
//!
//! Owns: [`Model`], and queries about it. Because: a screen that depends on nothing else can be compared with a
//! stored one. Does not: change by itself, draw, read the clock, wait, or hold more than the latest snapshots.

use std::sync::Arc;

use deepctx_profile::context::selection::View;
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::trace::EventLanes;
use deepctx_profile::view::conclusions::Conclusions;
use deepctx_profile::view::event_tables::EventTable;
use deepctx_profile::view::fold::{Fold, FoldedTree, Orientation};
use deepctx_profile::view::request::{Request, TabRequest};
use deepctx_profile::view::snapshot::{
    FlameNode, FlameTree, LineRow, LossRow, MetricTotal, Overview, Snapshot, SourceLines, SourcePlace,
    SourceText, TabData, Table, TableRow, Timeline,
};
use ratatui::layout::Rect;

use crate::keys::Scope;
use crate::layout::areas::Areas;
use crate::layout::boxes::{self, FlameLayout};
use crate::layout::table::Columns;
use crate::state::events::EventsState;
use crate::state::graph::GraphState;
use crate::state::overview::OverviewState;
use crate::state::pin::Pin;
use crate::state::prompt::{Prompt, Purpose};
use crate::state::search::Search;
use crate::state::source::{SourceRows, SourceState};
use crate::state::table::TableState;
use crate::state::timeline::TimelineState;
use crate::tab::Tab;
use crate::tree::path;

/// The receiver of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The view.
    #[default]
    Browse,
    /// A line being typed.
    Typing(Prompt),
    /// The help, scrolled down by some lines.
    Help(usize),
    /// The menu of metrics, with the selected one.
    Metrics(usize),
    /// The prompt whether to save.
    ConfirmQuit,
}

/// Initial and constant settings of the view.
#[derive(Clone, Debug)]
pub struct Setup {
    /// First request; its part follows from the tab.
    pub request: Request,
    /// First tab.
    pub tab: Tab,
    /// Whether quitting prompts to save the profile.
    pub can_save: bool,
    /// Whether a key writes the capture so far, or what the flight recorder keeps of it.
    pub can_write_kept: bool,
    /// Whether to show the time of a device once it was busy; false if the user chose a metric.
    pub follows_device: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            request: Request::of(Metric::CpuTime),
            tab: Tab::default(),
            can_save: false,
            can_write_kept: false,
            follows_device: false,
        }
    }
}

/// The latest snapshot with the data of each tab: shown until a newer one arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) overview: Option<Arc<Snapshot>>,
    pub(crate) callers: Option<Arc<Snapshot>>,
    pub(crate) table: Option<Arc<Snapshot>>,
    pub(crate) timeline: Option<Arc<Snapshot>>,
    pub(crate) source: Option<Arc<Snapshot>>,
}

/// All state that the screen depends on.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) parts: Parts,
    pub(crate) setup: Setup,
    pub(crate) request: Request,
    pub(crate) tab: Tab,
    pub(crate) mode: Mode,
    pub(crate) screen: Rect,
    /// Whether there is a user: [`render_once`](crate::render_once) shows no selection and no hints.
    pub(crate) interactive: bool,
    pub(crate) live: bool,
    pub(crate) paused: bool,
    /// The request changed and its first snapshot has not arrived yet.
    pub(crate) pending: bool,
    pub(crate) overview: OverviewState,
    pub(crate) flame: GraphState,
    pub(crate) callers: GraphState,
    /// The boxes of this tab's tree.
    pub(crate) folded: FoldedTree,
    /// Whether trunks, wrappers and siblings are folded.
    pub(crate) folds: bool,
    pub(crate) table: TableState,
    pub(crate) timeline: TimelineState,
    pub(crate) events: EventsState,
    /// Whether the time tab shows totals although there are individual events.
    pub(crate) sums_by_time: bool,
    pub(crate) source: SourceState,
    pub(crate) health_scroll: usize,
    pub(crate) search: Option<Search>,
    pub(crate) pin: Option<Pin>,
    /// Response to the latest key if nothing else shows it.
    pub(crate) status: Option<&'static str>,
    /// Text for the clipboard that the event loop has not passed to the terminal yet.
    pub(crate) clipboard: Option<String>,
}

static NO_TREE: FlameTree = FlameTree { nodes: Vec::new() };

impl Model {
    /// A screen of `width` × `height` without a snapshot yet.
    #[must_use]
    pub fn new(setup: Setup, width: u16, height: u16) -> Self {
        let mut model = Self {
            request: setup.request.clone(),
            tab: setup.tab,
            setup,
            screen: Rect::new(0, 0, width, height),
            interactive: true,
            live: true,
            pending: true,
            snapshot: None,
            parts: Parts::default(),
            mode: Mode::Browse,
            paused: false,
            overview: OverviewState::default(),
            flame: GraphState::default(),
            callers: GraphState::default(),
            folded: FoldedTree::default(),
            folds: true,
            table: TableState::default(),
            timeline: TimelineState::default(),
            events: EventsState::default(),
            sums_by_time: false,
            source: SourceState::default(),
            health_scroll: 0,
            search: None,
            pin: None,
            status: None,
            clipboard: None,
        };
        if let TabRequest::Source(file) = &model.request.part {
            model.source.place = Some(SourcePlace { file: Arc::clone(file), line: 0, pid: 0 });
        }
        model.request_tab();
        model
    }

    /// A screen without a user: nothing is selected, and no line shows keys.
    pub(crate) fn non_interactive(setup: Setup, width: u16, height: u16) -> Self {
        Self { interactive: false, ..Self::new(setup, width, height) }
    }

    /// The tab that is open.
    #[must_use]
    pub fn tab(&self) -> Tab {
        self.tab
    }

    /// What to request from the source.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Whether a newer snapshot would be shown: not while paused, except the first one for a new request.
    #[must_use]
    pub fn accepts_snapshot(&self) -> bool {
        !self.paused || self.pending
    }

    /// The source file whose text is missing.
    #[must_use]
    pub fn missing_text(&self) -> Option<&SourcePlace> {
        let missing = self.tab == Tab::Source && self.source.text.is_none();
        self.source.place.as_ref().filter(|_| missing)
    }

    /// Text copied since the last call, for the clipboard.
    pub fn take_copied(&mut self) -> Option<String> {
        self.clipboard.take()
    }

    /// Whether the source is expected to deliver something.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.pending || self.missing_text().is_some()
    }

    /// Active scopes of the key table; the first match wins.
    #[must_use]
    pub fn scopes(&self) -> &'static [Scope] {
        match (&self.mode, self.tab) {
            (Mode::Typing(_), _) => &[Scope::Typing],
            (Mode::Help(_), _) => &[Scope::Help],
            (Mode::Metrics(_), _) => &[Scope::Metrics],
            (Mode::ConfirmQuit, _) => &[Scope::ConfirmQuit],
            (Mode::Browse, Tab::Overview) => &[Scope::Overview, Scope::Views],
            (Mode::Browse, Tab::Flame | Tab::Callers) => &[Scope::Graph, Scope::Views],
            (Mode::Browse, Tab::Table) => &[Scope::Table, Scope::Views],
            (Mode::Browse, Tab::Timeline) if self.events_data().is_some() => &[Scope::Events, Scope::Views],
            (Mode::Browse, Tab::Timeline) => &[Scope::Timeline, Scope::Views],
            (Mode::Browse, Tab::Source) => &[Scope::Source, Scope::Views],
            (Mode::Browse, Tab::Health) => &[Scope::Views],
        }
    }

    /// Whether characters go to a line being typed.
    #[must_use]
    pub fn is_typing(&self) -> bool {
        matches!(self.mode, Mode::Typing(_))
    }

    /// Labels from the root to the selected box; empty before the first snapshot.
    #[must_use]
    pub fn selected_path(&self) -> Vec<&str> {
        self.labels_to(self.graph().selected)
    }

    /// Labels from the root to the box zoomed into; empty before the first snapshot.
    #[must_use]
    pub fn zoomed_path(&self) -> Vec<&str> {
        self.labels_to(self.graph().zoom)
    }

    fn labels_to(&self, node: u32) -> Vec<&str> {
        let tree = self.tree();
        path(tree, node)
            .iter()
            .filter_map(|&node| tree.nodes.get(node as usize))
            .map(|node| node.label.as_str())
            .collect()
    }

    pub(crate) fn areas(&self) -> Areas {
        Areas::of(self.screen, self.interactive, self.has_strip())
    }

    /// Whether there is a filter, a mark or a pinned function to show.
    fn has_strip(&self) -> bool {
        self.request.filter.is_some() || self.request.mark > 0 || self.pin.is_some()
    }

    /// The user's position in this tab's tree.
    pub(crate) fn graph(&self) -> &GraphState {
        if self.tab == Tab::Callers { &self.callers } else { &self.flame }
    }

    pub(crate) fn graph_mut(&mut self) -> &mut GraphState {
        if self.tab == Tab::Callers { &mut self.callers } else { &mut self.flame }
    }

    /// The tree of this tab: bottom-up among the callers, top-down everywhere else.
    pub(crate) fn tree(&self) -> &FlameTree {
        if self.tab == Tab::Callers { self.callers_tree() } else { self.flame_tree() }
    }

    /// The boxes of this tab: its tree, with chains folded.
    pub(crate) fn drawn(&self) -> &FlameTree {
        &self.folded.tree
    }

    /// The selected box.
    pub(crate) fn selected_box(&self) -> u32 {
        self.folded.box_of(self.graph().selected)
    }

    /// The box zoomed into.
    pub(crate) fn zoomed_box(&self) -> u32 {
        self.folded.box_of(self.graph().zoom)
    }

    pub(crate) fn select_box(&mut self, place: u32) {
        self.graph_mut().selected = self.folded.first_of(place);
    }

    pub(crate) fn zoom_box(&mut self, place: u32) {
        let GraphState { listed, .. } = *self.graph();
        let within = place != 0 && path(self.drawn(), place).contains(&self.folded.box_of(listed));
        self.zoom_and_list(place, if within { listed } else { 0 });
    }

    /// Zooms into a box and lists its callees: siblings that differ by a number are separate boxes.
    pub(crate) fn list_box(&mut self, place: u32) {
        self.zoom_and_list(place, self.folded.last_of(place));
    }

    fn zoom_and_list(&mut self, place: u32, listed: u32) {
        let before = *self.graph();
        let zoom = self.folded.first_of(place);
        (self.graph_mut().zoom, self.graph_mut().listed) = (zoom, listed);
        if before != *self.graph() {
            self.fold();
        }
    }

    /// Rebuilds the boxes, since the tree, the tab, the zoom, the search, the pinned function or folding changed.
    pub(crate) fn fold(&mut self) {
        let search = self.search.as_ref().filter(|search| !search.is_empty());
        // Search matches are not hidden.
        let keep = |node: &FlameNode| {
            search.is_some_and(|search| search.matches(&node.label))
                || self.pin.as_ref().is_some_and(|pin| pin.is(&node.label, &node.detail, node.kind))
        };
        let growth = if self.tab == Tab::Callers { Orientation::BottomUp } else { Orientation::TopDown };
        self.folded = match self.folds {
            // The list of contexts of the overview names a whole chain in each row.
            true => {
                let trunks = self.tab != Tab::Overview;
                let fold = Fold { growth, trunks, listed: self.graph().listed, ..Fold::default() };
                FoldedTree::of(self.tree(), fold, keep)
            }
            false => FoldedTree::nothing(self.tree()),
        };
    }

    pub(crate) fn flame_tree(&self) -> &FlameTree {
        self.snapshot.as_ref().map_or(&NO_TREE, |snapshot| &snapshot.flame)
    }

    pub(crate) fn callers_tree(&self) -> &FlameTree {
        match self.parts.callers.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::Callers(tree)) => tree,
            _ => &NO_TREE,
        }
    }

    pub(crate) fn overview_data(&self) -> Option<&Overview> {
        match self.parts.overview.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::Overview(overview)) => Some(overview),
            _ => None,
        }
    }

    pub(crate) fn table_data(&self) -> Option<&Table> {
        match self.parts.table.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::Table(table)) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn rows(&self) -> &[TableRow] {
        self.table_data().map_or(&[], |table| &table.rows)
    }

    pub(crate) fn timeline_data(&self) -> Option<&Timeline> {
        match self.parts.timeline.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::Timeline(timeline)) => Some(timeline),
            _ => None,
        }
    }

    /// The lanes of a trace, if the source has one.
    pub(crate) fn events_data(&self) -> Option<&EventLanes> {
        match self.parts.timeline.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::Events(lanes) | TabData::EventRange(lanes, _) | TabData::EventTables(lanes, _)) => {
                Some(&lanes.0)
            }
            _ => None,
        }
    }

    /// The tables over all events of a trace, once known.
    pub(crate) fn event_tables(&self) -> Option<&[EventTable]> {
        match self.parts.timeline.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::EventTables(_, tables)) => Some(tables),
            _ => None,
        }
    }

    /// Conclusions from the selected part of a trace, once known.
    pub(crate) fn range_conclusions(&self) -> Option<&Conclusions> {
        let range = self.events.range.as_ref()?;
        match self.parts.timeline.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::EventRange(_, of)) if (of.from, of.to) == (range.from, range.to) => {
                Some(&of.conclusions)
            }
            _ => None,
        }
    }

    pub(crate) fn source_data(&self) -> Option<&SourceLines> {
        match self.parts.source.as_ref().map(|snapshot| &snapshot.extra) {
            Some(TabData::Source(lines)) => Some(lines),
            _ => None,
        }
    }

    /// The snapshot that the body of this tab is drawn from.
    pub(crate) fn shown(&self) -> Option<&Arc<Snapshot>> {
        match self.tab {
            Tab::Flame | Tab::Health => self.snapshot.as_ref(),
            Tab::Overview => self.parts.overview.as_ref(),
            Tab::Callers => self.parts.callers.as_ref(),
            Tab::Table => self.parts.table.as_ref(),
            Tab::Timeline => self.parts.timeline.as_ref(),
            Tab::Source => self.parts.source.as_ref(),
        }
    }

    /// Sum of the metric over everything in this tab: the whole that percentages refer to.
    pub(crate) fn whole(&self) -> u64 {
        let root = self.shown().and_then(|snapshot| snapshot.flame.nodes.first());
        root.map_or(0, |root| root.inclusive)
    }

    /// Unit of the values.
    pub(crate) fn unit(&self) -> Unit {
        self.shown().map_or(Unit::Count, |snapshot| snapshot.header.unit)
    }

    /// Metrics with values in the profile.
    pub(crate) fn metrics(&self) -> &[MetricTotal] {
        self.snapshot.as_ref().map_or(&[], |snapshot| &snapshot.metrics)
    }

    /// Whether so much was lost that it asks for action.
    pub(crate) fn has_losses(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| snapshot.losses.iter().any(LossRow::asks_for_action))
    }

    /// The visible boxes.
    pub(crate) fn flame_layout(&self) -> FlameLayout {
        self.flame_rows(self.graph().scroll, usize::from(self.areas().body.height))
    }

    /// The boxes of some rows of the whole graph.
    pub(crate) fn flame_rows(&self, first_row: usize, rows: usize) -> FlameLayout {
        let (selected, zoom) = (self.selected_box(), self.zoomed_box());
        // In the Python view, the own value of a process is that of code outside Python.
        let hides_frames = self.request.selection.view == View::Python && self.tab != Tab::Callers;
        let view = boxes::View { tree: self.drawn(), zoom, selected, hides_frames };
        FlameLayout::of(view, self.areas().body.width, first_row, rows)
    }

    /// The columns of the table at a width.
    pub(crate) fn table_columns(&self, width: u16) -> Columns {
        Columns::of(width, self.metric_count(), self.table.sort)
    }

    /// Metrics of the table: the one shown, and the others.
    pub(crate) fn metric_count(&self) -> usize {
        1 + self.table_data().map_or(0, |table| table.others.len())
    }

    /// The selected row of the table.
    pub(crate) fn selected_row(&self) -> Option<&TableRow> {
        let row = self.table.order.get(self.table.position())?;
        self.rows().get(*row as usize)
    }

    /// Rows of the open source file.
    pub(crate) fn source_rows(&self) -> SourceRows<'_> {
        match self.source.text.as_deref() {
            Some(SourceText::Lines { lines, .. }) => SourceRows::Text(lines),
            _ => SourceRows::Figures(self.source_figures()),
        }
    }

    /// Figures of the open source file; those of another one do not count.
    pub(crate) fn source_figures(&self) -> &[LineRow] {
        let file = self.source.place.as_ref().map(|place| &place.file);
        match self.source_data() {
            Some(data) if Some(&data.file) == file => &data.lines,
            _ => &[],
        }
    }

    /// Whether a search is being typed.
    pub(crate) fn is_searching(&self) -> bool {
        matches!(&self.mode, Mode::Typing(prompt) if prompt.purpose == Purpose::Search)
    }

    /// Searches the shown tree.
    pub(crate) fn set_search(&mut self, query: &str) {
        self.search = Some(Search::of(query, self.tree()));
        self.fold();
    }

    /// Matches the search against the currently shown tree.
    pub(crate) fn search_again(&mut self) {
        if let Some(query) = self.search.as_ref().map(|search| search.query().to_owned()) {
            self.set_search(&query);
        }
    }

    /// Requests the data of the tab.
    pub(crate) fn request_tab(&mut self) {
        self.request.part = match self.tab {
            Tab::Overview => TabRequest::Overview,
            Tab::Flame | Tab::Health => TabRequest::Flame,
            Tab::Callers => TabRequest::Callers,
            Tab::Table => TabRequest::Table,
            Tab::Timeline if self.sums_by_time => TabRequest::Timeline,
            Tab::Timeline => match (self.events.analysis, &self.events.range) {
                (Some(_), _) => TabRequest::EventTables,
                (None, Some(range)) => TabRequest::EventRange(range.from, range.to),
                (None, None) => TabRequest::Events,
            },
            Tab::Source => self
                .source
                .place
                .as_ref()
                .map_or(TabRequest::Flame, |place| TabRequest::Source(Arc::clone(&place.file))),
        };
    }

    /// Why a view is empty.
    pub(crate) fn empty_reason(&self) -> &'static str {
        let selected = self.request.selection.metric;
        let is_absent = self.metrics().iter().all(|it| it.metric != selected);
        if self.request.filter.is_some() {
            "no stack matches the filter: Esc clears it"
        } else if self.request.mark > 0 && self.request.since_mark {
            "no samples since the mark yet: d shows all"
        } else if is_absent && !self.metrics().is_empty() {
            "no values of this metric: m shows others"
        } else if self.live {
            "no samples yet: an idle program has none (--off-cpu measures its waits)"
        } else {
            "no samples: the program used no CPU time (--off-cpu measures its waits)"
        }
    }
}
