//! App: what the screen knows.
//!
//! Owns: the model, and the messages that change it. Because: a terminal program that can be driven by a list of messages
//! can be tested without a terminal. Does not: draw, read the clock, wait, or hold more than the last snapshots.

mod act;
pub(crate) mod graph;
pub(crate) mod lines;
mod mouse;
pub(crate) mod pin;
pub(crate) mod prompt;
pub(crate) mod search;
pub(crate) mod table;
pub(crate) mod timeline;
mod update;

use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::snapshot::{
    Extra, FlameTree, Snapshot, SourceLines, SourcePlace, Table, TableRow, Timeline, Unit,
};
use deepctx_profile::view::Request;
use ratatui::layout::Rect;

use crate::keys::{Action, Scope};
use crate::layout::Areas;
use crate::source::SourceText;
use graph::GraphState;
use lines::LinesState;
use pin::Pin;
use prompt::Prompt;
use search::Search;
use table::TableState;
use timeline::TimelineState;

pub use update::update;

/// What fills the body of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Flame graph, root at the top.
    #[default]
    Flame,
    /// Bottom-up: functions, and below each its callers.
    Callers,
    /// Hottest functions.
    Table,
    /// What each process and thread did when.
    Timeline,
    /// A source file with what its lines cost.
    Source,
    /// Losses and own cost.
    Losses,
}

impl Tab {
    /// All tabs, left to right.
    pub const ALL: [Self; 6] =
        [Self::Flame, Self::Callers, Self::Table, Self::Timeline, Self::Source, Self::Losses];

    /// Name on the tab.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Flame => "Flame",
            Self::Callers => "Callers",
            Self::Table => "Table",
            Self::Timeline => "Time",
            Self::Source => "Source",
            Self::Losses => "Losses",
        }
    }

    fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}

/// What takes the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The view.
    #[default]
    Browse,
    /// A line that is typed.
    Typing(Prompt),
    /// The help, scrolled down by some lines.
    Help(usize),
    /// The question whether to save.
    Leaving,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Message {
    /// The source has something newer.
    Snapshot(Arc<Snapshot>),
    /// The text of the source file that was wanted.
    Text(Arc<SourceText>),
    /// The source will or will not give more.
    Live(bool),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// A key that is in the key table.
    Act(Action),
    /// A character for the line that is typed.
    Type(char),
    /// Left button at a column and row of the screen.
    Click(u16, u16),
    /// Right button.
    RightClick,
    /// Wheel; true is up.
    Wheel(bool),
}

/// What the event loop has to do after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Nothing: what is on the screen still holds.
    None,
    /// Draw.
    Redraw,
    /// Ask the source again, for the request has changed; and draw.
    Fetch,
    /// Leave.
    Quit {
        /// Whether the user wants to keep what was seen.
        save: bool,
    },
}

/// What is fixed while the program runs, and where it starts.
#[derive(Clone, Debug)]
pub struct Setup {
    /// First request; what it shows beside the flame graph is decided by the tab.
    pub request: Request,
    /// First tab.
    pub tab: Tab,
    /// Whether leaving asks "save what was seen?".
    pub can_save: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { request: Request::of(Metric::CpuTime), tab: Tab::Flame, can_save: false }
    }
}

/// The last snapshot that had the part of each tab: shown until a newer one comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    callers: Option<Arc<Snapshot>>,
    table: Option<Arc<Snapshot>>,
    timeline: Option<Arc<Snapshot>>,
    source: Option<Arc<Snapshot>>,
}

/// All that a drawing depends on.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) parts: Parts,
    pub(crate) setup: Setup,
    pub(crate) request: Request,
    pub(crate) tab: Tab,
    pub(crate) mode: Mode,
    pub(crate) screen: Rect,
    /// Whether someone types: a still picture has no selection and no hints.
    pub(crate) interactive: bool,
    pub(crate) live: bool,
    pub(crate) paused: bool,
    /// The request changed and its first snapshot has not come yet.
    pub(crate) awaiting: bool,
    pub(crate) flame: GraphState,
    pub(crate) callers: GraphState,
    pub(crate) table: TableState,
    pub(crate) timeline: TimelineState,
    pub(crate) lines: LinesState,
    pub(crate) losses_scroll: usize,
    pub(crate) search: Option<Search>,
    pub(crate) pin: Option<Pin>,
    /// Answer to the last key when there is nothing else to see of it.
    pub(crate) status: Option<&'static str>,
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
            awaiting: true,
            snapshot: None,
            parts: Parts::default(),
            mode: Mode::Browse,
            paused: false,
            flame: GraphState::default(),
            callers: GraphState::default(),
            table: TableState::default(),
            timeline: TimelineState::default(),
            lines: LinesState::default(),
            losses_scroll: 0,
            search: None,
            pin: None,
            status: None,
        };
        if let deepctx_profile::view::Part::Source(file) = &model.request.part {
            model.lines.place = Some(SourcePlace { file: Arc::clone(file), line: 0, pid: 0 });
        }
        update::ask_for_tab(&mut model);
        model
    }

    /// A screen that nobody types at: nothing is selected, and no line is spent on keys.
    pub(crate) fn still(setup: Setup, width: u16, height: u16) -> Self {
        Self { interactive: false, ..Self::new(setup, width, height) }
    }

    /// The tab that is open.
    #[must_use]
    pub fn tab(&self) -> Tab {
        self.tab
    }

    /// What the source should be asked for.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Whether a newer snapshot would be taken in: not while paused, but for the first answer to a new request.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        !self.paused || self.awaiting
    }

    /// The source file whose text is missing.
    #[must_use]
    pub fn wants_text(&self) -> Option<&SourcePlace> {
        let wanted = self.tab == Tab::Source && self.lines.text.is_none();
        self.lines.place.as_ref().filter(|_| wanted)
    }

    /// Whether an answer of the source is due.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.awaiting || self.wants_text().is_some()
    }

    /// Scopes of the key table that hold now, first match wins.
    #[must_use]
    pub fn scopes(&self) -> &'static [Scope] {
        match (&self.mode, self.tab) {
            (Mode::Typing(_), _) => &[Scope::Typing],
            (Mode::Help(_), _) => &[Scope::Help],
            (Mode::Leaving, _) => &[Scope::Leaving],
            (Mode::Browse, Tab::Flame | Tab::Callers) => &[Scope::Graph, Scope::Views],
            (Mode::Browse, Tab::Table) => &[Scope::Table, Scope::Views],
            (Mode::Browse, Tab::Timeline) => &[Scope::Timeline, Scope::Views],
            (Mode::Browse, Tab::Source) => &[Scope::Source, Scope::Views],
            (Mode::Browse, Tab::Losses) => &[Scope::Views],
        }
    }

    /// Whether characters go to a line that is typed.
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
        let path = crate::layout::path(tree, node);
        path.iter()
            .filter_map(|&node| tree.nodes.get(node as usize))
            .map(|node| node.label.as_str())
            .collect()
    }

    pub(crate) fn areas(&self) -> Areas {
        Areas::of(self.screen, self.interactive, self.has_strip())
    }

    /// Whether there is something to say of what the picture leaves out or compares with.
    fn has_strip(&self) -> bool {
        self.request.filter.is_some() || self.request.mark > 0 || self.pin.is_some()
    }

    /// Where the user is in the tree of this tab.
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

    pub(crate) fn flame_tree(&self) -> &FlameTree {
        self.snapshot.as_ref().map_or(&NO_TREE, |snapshot| &snapshot.flame)
    }

    fn callers_tree(&self) -> &FlameTree {
        match self.parts.callers.as_ref().map(|snapshot| &snapshot.extra) {
            Some(Extra::Callers(tree)) => tree,
            _ => &NO_TREE,
        }
    }

    pub(crate) fn table_data(&self) -> Option<&Table> {
        match self.parts.table.as_ref().map(|snapshot| &snapshot.extra) {
            Some(Extra::Table(table)) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn rows(&self) -> &[TableRow] {
        self.table_data().map_or(&[], |table| &table.rows)
    }

    pub(crate) fn timeline_data(&self) -> Option<&Timeline> {
        match self.parts.timeline.as_ref().map(|snapshot| &snapshot.extra) {
            Some(Extra::Timeline(timeline)) => Some(timeline),
            _ => None,
        }
    }

    pub(crate) fn source_data(&self) -> Option<&SourceLines> {
        match self.parts.source.as_ref().map(|snapshot| &snapshot.extra) {
            Some(Extra::Source(lines)) => Some(lines),
            _ => None,
        }
    }

    /// The snapshot that the body of this tab is drawn from.
    pub(crate) fn shown(&self) -> Option<&Arc<Snapshot>> {
        match self.tab {
            Tab::Flame | Tab::Losses => self.snapshot.as_ref(),
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
}
