//! App: what the screen knows, and how each message changes it.
//!
//! Owns: the model and its pure update. Because: a terminal program that can be driven by a list of messages can be
//! tested without a terminal. Does not: draw, read the clock, wait, or hold more than the last snapshot.

pub(crate) mod flame;
pub(crate) mod search;
pub(crate) mod table;

use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::snapshot::{FlameTree, Snapshot, TableRow};
use deepctx_profile::view::{GroupBy, Selection, View};
use ratatui::layout::Rect;

use crate::keys::{Action, Scope};
use crate::layout::Areas;
use crate::view;
use flame::FlameState;
use search::Search;
use table::TableState;

/// Longest search, in characters: longer than any name worth typing.
const QUERY_LIMIT: usize = 200;

/// Lines that one turn of the mouse wheel moves.
const WHEEL_LINES: usize = 3;

/// What fills the body of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Flame graph, root at the top.
    #[default]
    Flame,
    /// Hottest functions.
    Table,
    /// Losses and own cost.
    Losses,
}

impl Tab {
    /// All tabs, left to right.
    pub const ALL: [Self; 3] = [Self::Flame, Self::Table, Self::Losses];

    /// Name on the tab.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Flame => "Flame",
            Self::Table => "Table",
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
    /// The search line; holds the search from before, to go back to.
    Typing(String),
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
    /// The source will or will not give more.
    Live(bool),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// A key that is in the key table.
    Act(Action),
    /// A character for the search line.
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
    /// Metrics that can be chosen; may be empty when the source knows only the requested one.
    pub metrics: Vec<Metric>,
    /// First request.
    pub request: Selection,
    /// First tab.
    pub tab: Tab,
    /// Whether leaving asks "save what was seen?".
    pub can_save: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let request = Selection::of(Metric::CpuTime);
        Self { metrics: Vec::new(), request, tab: Tab::Flame, can_save: false }
    }
}

/// All that a drawing depends on.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    pub(crate) setup: Setup,
    pub(crate) request: Selection,
    pub(crate) tab: Tab,
    pub(crate) mode: Mode,
    pub(crate) screen: Rect,
    /// Whether someone types: a still picture has no selection and no hints.
    pub(crate) interactive: bool,
    pub(crate) live: bool,
    pub(crate) paused: bool,
    /// The request changed and its first snapshot has not come yet.
    pub(crate) awaiting: bool,
    pub(crate) flame: FlameState,
    pub(crate) table: TableState,
    pub(crate) losses_scroll: usize,
    pub(crate) search: Option<Search>,
    /// Answer to the last key when there is nothing else to see of it.
    pub(crate) status: Option<&'static str>,
}

impl Model {
    /// A screen of `width` × `height` without a snapshot yet.
    #[must_use]
    pub fn new(setup: Setup, width: u16, height: u16) -> Self {
        Self {
            request: setup.request,
            tab: setup.tab,
            setup,
            screen: Rect::new(0, 0, width, height),
            interactive: true,
            live: true,
            awaiting: true,
            snapshot: None,
            mode: Mode::Browse,
            paused: false,
            flame: FlameState::default(),
            table: TableState::default(),
            losses_scroll: 0,
            search: None,
            status: None,
        }
    }

    /// A screen that nobody types at: nothing is selected, and no line is spent on keys.
    pub(crate) fn still(setup: Setup, width: u16, height: u16) -> Self {
        Self { interactive: false, ..Self::new(setup, width, height) }
    }

    /// What the source should be asked for.
    #[must_use]
    pub fn request(&self) -> &Selection {
        &self.request
    }

    /// Whether a newer snapshot would be taken in: not while paused, but for the first answer to a new request.
    #[must_use]
    pub fn wants_snapshot(&self) -> bool {
        !self.paused || self.awaiting
    }

    /// Scopes of the key table that hold now, first match wins.
    #[must_use]
    pub fn scopes(&self) -> &'static [Scope] {
        match (&self.mode, self.tab) {
            (Mode::Typing(_), _) => &[Scope::Typing],
            (Mode::Help(_), _) => &[Scope::Help],
            (Mode::Leaving, _) => &[Scope::Leaving],
            (Mode::Browse, Tab::Flame) => &[Scope::Flame, Scope::Views],
            (Mode::Browse, Tab::Table) => &[Scope::Table, Scope::Views],
            (Mode::Browse, Tab::Losses) => &[Scope::Views],
        }
    }

    /// Whether characters go to the search line.
    #[must_use]
    pub fn is_typing(&self) -> bool {
        matches!(self.mode, Mode::Typing(_))
    }

    /// Labels from the root to the selected box; empty before the first snapshot.
    #[must_use]
    pub fn selected_path(&self) -> Vec<&str> {
        self.labels_to(self.flame.selected)
    }

    /// Labels from the root to the box zoomed into; empty before the first snapshot.
    #[must_use]
    pub fn zoomed_path(&self) -> Vec<&str> {
        self.labels_to(self.flame.zoom)
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
        Areas::of(self.screen, self.interactive)
    }

    pub(crate) fn tree(&self) -> &FlameTree {
        static EMPTY: FlameTree = FlameTree { nodes: Vec::new() };
        self.snapshot.as_ref().map_or(&EMPTY, |snapshot| &snapshot.flame)
    }

    pub(crate) fn rows(&self) -> &[TableRow] {
        self.snapshot.as_ref().map_or(&[], |snapshot| &snapshot.table)
    }

    /// Sum of the metric over everything: the whole that percentages refer to.
    pub(crate) fn whole(&self) -> u64 {
        self.tree().nodes.first().map_or(0, |root| root.inclusive)
    }
}

/// Changes the model by one message; pure but for the model itself.
pub fn update(model: &mut Model, message: Message) -> Effects {
    match message {
        Message::Snapshot(snapshot) => take_snapshot(model, snapshot),
        Message::Live(live) => {
            let changed = model.live != live;
            model.live = live;
            if changed { Effects::Redraw } else { Effects::None }
        }
        Message::Resize(width, height) => {
            model.screen = Rect::new(0, 0, width, height);
            keep_visible(model);
            Effects::Redraw
        }
        Message::Act(action) => {
            model.status = None;
            act(model, action)
        }
        Message::Type(character) => {
            let Some(search) = model.search.as_ref().filter(|_| model.is_typing()) else {
                return Effects::None;
            };
            if search.query().chars().count() >= QUERY_LIMIT || character.is_control() {
                return Effects::None;
            }
            let query = format!("{}{character}", search.query());
            set_search(model, &query);
            Effects::Redraw
        }
        Message::Click(column, row) => click(model, column, row),
        Message::RightClick => {
            if model.mode == Mode::Browse && model.tab == Tab::Flame {
                return act(model, Action::ZoomOut);
            }
            Effects::None
        }
        Message::Wheel(up) => wheel(model, up),
    }
}

fn take_snapshot(model: &mut Model, snapshot: Arc<Snapshot>) -> Effects {
    if !model.wants_snapshot() {
        return Effects::None;
    }
    model.awaiting = false;
    let mut flame = model.flame;
    flame.carry_over(model.tree(), &snapshot.flame);
    model.flame = flame;
    let before = model.snapshot.replace(snapshot);
    let rows = before.as_ref().map_or(&[][..], |it| &it.table);
    // The model borrows its rows, the state is part of the model: taken out for the time of the call.
    let mut table = std::mem::take(&mut model.table);
    table.carry_over(rows, model.rows());
    model.table = table;
    if let Some(query) = model.search.as_ref().map(|search| search.query().to_owned()) {
        set_search(model, &query);
    }
    keep_in_range(model);
    Effects::Redraw
}

fn act(model: &mut Model, action: Action) -> Effects {
    match action {
        Action::Quit if model.setup.can_save => model.mode = Mode::Leaving,
        Action::Quit | Action::QuitDropping => return Effects::Quit { save: false },
        Action::QuitSaving => return Effects::Quit { save: true },
        Action::Help => {
            model.mode = if matches!(model.mode, Mode::Help(_)) { Mode::Browse } else { Mode::Help(0) };
        }
        Action::Pause => model.paused = !model.paused,
        Action::NextTab => model.tab = model.tab.step(1),
        Action::PreviousTab => model.tab = model.tab.step(Tab::ALL.len() - 1),
        Action::ShowFlame => model.tab = Tab::Flame,
        Action::ShowTable => model.tab = Tab::Table,
        Action::ShowLosses => model.tab = Tab::Losses,
        Action::NextView => {
            let at = View::ALL.iter().position(|view| *view == model.request.view).map_or(0, |at| at + 1);
            model.request.view = View::ALL[at % View::ALL.len()];
            return ask_again(model);
        }
        Action::ToggleThreads => {
            model.request.group_by = match model.request.group_by {
                GroupBy::Process => GroupBy::Thread,
                GroupBy::Thread => GroupBy::Process,
            };
            return ask_again(model);
        }
        Action::ToggleInterpreter => {
            model.request.interpreter = !model.request.interpreter;
            return ask_again(model);
        }
        Action::ToggleLines => {
            model.request.lines = !model.request.lines;
            return ask_again(model);
        }
        Action::NextMetric => return next_metric(model),
        Action::Search => {
            let before = model.search.as_ref().map_or(String::new(), |search| search.query().to_owned());
            model.mode = Mode::Typing(before);
            set_search(model, "");
        }
        Action::Erase => {
            let Some(search) = &model.search else { return Effects::None };
            let mut query = search.query().to_owned();
            query.pop();
            set_search(model, &query);
        }
        Action::EraseAll => set_search(model, ""),
        Action::Accept => {
            model.mode = Mode::Browse;
            if model.search.as_ref().is_some_and(Search::is_empty) {
                model.search = None;
            } else {
                next_match(model, true);
            }
        }
        Action::NextMatch => next_match(model, true),
        Action::PreviousMatch => next_match(model, false),
        Action::Sort => {
            let mut table = std::mem::take(&mut model.table);
            table.sort_by(table.sort.next(), model.rows());
            model.table = table;
        }
        Action::Escape => escape(model),
        Action::Up
        | Action::Down
        | Action::Left
        | Action::Right
        | Action::PageUp
        | Action::PageDown
        | Action::First
        | Action::Last
        | Action::Enter
        | Action::ZoomOut
        | Action::ZoomReset => {
            navigate(model, action);
            return Effects::Redraw;
        }
    }
    keep_in_range(model);
    Effects::Redraw
}

fn ask_again(model: &mut Model) -> Effects {
    model.awaiting = true;
    Effects::Fetch
}

fn next_metric(model: &mut Model) -> Effects {
    let metrics = &model.setup.metrics;
    let at = metrics.iter().position(|metric| *metric == model.request.metric);
    let next = at.map_or(0, |at| at + 1) % metrics.len().max(1);
    match metrics.get(next) {
        Some(&metric) if metric != model.request.metric => {
            model.request.metric = metric;
            ask_again(model)
        }
        _ => {
            model.status = Some("this profile has one metric");
            Effects::Redraw
        }
    }
}

fn escape(model: &mut Model) {
    match std::mem::take(&mut model.mode) {
        Mode::Typing(before) if before.is_empty() => model.search = None,
        Mode::Typing(before) => set_search(model, &before),
        Mode::Help(_) | Mode::Leaving => {}
        Mode::Browse => {
            if model.search.take().is_none() {
                flame::navigate(model, Action::ZoomReset);
            }
        }
    }
}

fn set_search(model: &mut Model, query: &str) {
    model.search = Some(Search::of(query, model.tree()));
}

fn next_match(model: &mut Model, forward: bool) {
    let Some(search) = model.search.as_ref().filter(|search| !search.is_empty()) else {
        model.status = Some("no search: / begins one");
        return;
    };
    match model.tab {
        Tab::Table => {
            let found = model.table.next_match(model.rows(), search, forward);
            model.status = found.is_none().then_some("no match");
            if let Some(position) = found {
                table::select(model, position);
            }
        }
        Tab::Flame | Tab::Losses => {
            let found = search.next(model.flame.selected, forward);
            model.status = found.is_none().then_some("no match");
            if let Some(node) = found {
                model.tab = Tab::Flame;
                flame::reveal(model, node);
            }
        }
    }
}

fn navigate(model: &mut Model, action: Action) {
    if let Mode::Help(line) = &mut model.mode {
        scroll(line, action, usize::from(model.screen.height));
        keep_in_range(model);
        return;
    }
    if model.mode != Mode::Browse {
        return;
    }
    match model.tab {
        Tab::Flame => flame::navigate(model, action),
        Tab::Table => table::navigate(model, action),
        Tab::Losses => {
            let page = usize::from(model.areas().body.height);
            scroll(&mut model.losses_scroll, action, page);
            keep_in_range(model);
        }
    }
}

/// Moves the first visible line of a text; the end is found by `keep_in_range`.
fn scroll(line: &mut usize, action: Action, page: usize) {
    let page = page.saturating_sub(1).max(1);
    *line = match action {
        Action::Up => line.saturating_sub(1),
        Action::Down => line.saturating_add(1),
        Action::PageUp => line.saturating_sub(page),
        Action::PageDown => line.saturating_add(page),
        Action::First => 0,
        Action::Last => usize::MAX,
        _ => *line,
    };
}

fn wheel(model: &mut Model, up: bool) -> Effects {
    let step =
        |line: usize| if up { line.saturating_sub(WHEEL_LINES) } else { line.saturating_add(WHEEL_LINES) };
    match (&mut model.mode, model.tab) {
        (Mode::Help(line), _) => *line = step(*line),
        (_, Tab::Flame) => model.flame.scroll = step(model.flame.scroll),
        (_, Tab::Table) => model.table.scroll = step(model.table.scroll),
        (_, Tab::Losses) => model.losses_scroll = step(model.losses_scroll),
    }
    keep_in_range(model);
    Effects::Redraw
}

fn click(model: &mut Model, column: u16, row: u16) -> Effects {
    model.status = None;
    match model.mode {
        Mode::Browse => {}
        Mode::Help(_) => return act(model, Action::Help),
        Mode::Typing(_) | Mode::Leaving => return Effects::None,
    }
    let areas = model.areas();
    if areas.tabs().is_some_and(|tabs| tabs.y == row) {
        let Some(tab) = view::header::tab_at(model, column) else { return Effects::None };
        model.tab = tab;
        keep_in_range(model);
        return Effects::Redraw;
    }
    if !areas.body.contains((column, row).into()) {
        return Effects::None;
    }
    let (x, y) = (column - areas.body.x, usize::from(row - areas.body.y));
    match model.tab {
        Tab::Flame => flame::click(model, x, y),
        Tab::Table => table::click(model, x, y),
        Tab::Losses => return Effects::None,
    }
    Effects::Redraw
}

/// Clamps what may point past its end after the content or the screen changed.
fn keep_in_range(model: &mut Model) {
    flame::keep_in_range(model);
    table::keep_in_range(model);
    let lines = view::losses::line_count(model);
    model.losses_scroll =
        model.losses_scroll.min(lines.saturating_sub(usize::from(model.areas().body.height)));
    let lines = view::help::line_count();
    let height = usize::from(view::help::area(model.screen).height);
    if let Mode::Help(line) = &mut model.mode {
        *line = (*line).min(lines.saturating_sub(height));
    }
}

/// Scrolls so that what is selected can be seen, after the screen changed.
fn keep_visible(model: &mut Model) {
    flame::keep_visible(model);
    table::keep_visible(model);
    keep_in_range(model);
}
