//! Keys: the key table, which drives the program and is printed by its help.
//!
//! Owns: which key does what, where, and the text of the help. Because: a help page written by hand is soon out of
//! date. Does not: know how an action is carried out.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The action of a key press, or of an equivalent click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Up by one: caller, row above, line above.
    Up,
    /// Down by one: hottest callee, row below, line below.
    Down,
    /// Box to the left.
    Left,
    /// Box to the right.
    Right,
    /// Up by a screen.
    PageUp,
    /// Down by a screen.
    PageDown,
    /// To the root, or the first row.
    First,
    /// Down the hottest path to its end, or to the last row.
    Last,
    /// Zoom into the selected box or moment; from the table, show the function in the flame graph.
    Enter,
    /// Zoom out by one frame.
    ZoomOut,
    /// Show everything again.
    ZoomReset,
    /// To the next event of the selected lane.
    NextEvent,
    /// To the previous event.
    PreviousEvent,
    /// Start or end a selection of time.
    SelectRange,
    /// The next table over all events.
    NextAnalysis,
    /// Next tab.
    NextTab,
    /// Previous tab.
    PreviousTab,
    /// Overview.
    ShowOverview,
    /// Flame graph.
    ShowFlame,
    /// Bottom-up tree.
    ShowCallers,
    /// Table of functions.
    ShowTable,
    /// Timeline.
    ShowTimeline,
    /// Source file.
    ShowSource,
    /// Losses, gaps and own cost.
    ShowHealth,
    /// Source file of the selection.
    OpenSource,
    /// Next column to sort by.
    Sort,
    /// Reverse the sort order.
    Reverse,
    /// Pause or resume updates of the screen; the capture continues.
    Pause,
    /// Next view of languages.
    NextView,
    /// Next grouping below processes: threads, devices, streams.
    NextGroup,
    /// Whether the interpreter's internal frames are shown.
    ToggleInterpreter,
    /// Whether frames are split by source line.
    ToggleLines,
    /// Whether repeated sequences of calls are folded.
    ToggleRecursion,
    /// Whether the backward pass is a separate half.
    ToggleBackward,
    /// Whether the time tab shows individual events or totals.
    ToggleEvents,
    /// Whether chains of boxes with the same value are folded.
    ToggleTrunk,
    /// Open or close the menu of metrics.
    ChooseMetric,
    /// Set a mark: compare values since with those before.
    SetMark,
    /// Switch between values since the mark and all values.
    ToggleDifference,
    /// Clear the mark.
    DropMark,
    /// Pin the selected function, or release it.
    Pin,
    /// Copy the selected stack, row or line to the clipboard.
    Copy,
    /// Type a filter.
    Filter,
    /// Clear the filter.
    DropFilter,
    /// Type a search.
    Search,
    /// Next match, hottest first.
    NextMatch,
    /// Previous match.
    PreviousMatch,
    /// Open or close the help.
    Help,
    /// Close what is open: prompt, help, search, zoom, filter.
    Escape,
    /// Accept what was typed.
    Accept,
    /// Delete the last character typed.
    Erase,
    /// Delete everything typed.
    EraseAll,
    /// Give the terminal back to the shell until the job is continued.
    Suspend,
    /// Write the capture so far, or the last part of it as kept by the flight recorder.
    WriteKept,
    /// Quit.
    Quit,
    /// Quit and save the profile.
    QuitSaving,
    /// Quit without saving.
    QuitDropping,
}

/// Where a binding is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In every view, unless something is open on top of it.
    Views,
    /// In the overview.
    Overview,
    /// In the flame graph and the tree of callers.
    Graph,
    /// In the table.
    Table,
    /// In the timeline.
    Timeline,
    /// In the timeline of a trace with individual events.
    Events,
    /// In a source file.
    Source,
    /// While typing a search or a filter.
    Typing,
    /// While the menu of metrics is open.
    Metrics,
    /// While the help is open.
    Help,
    /// While the program prompts to save.
    ConfirmQuit,
}

impl Scope {
    /// Scopes in the order of the help.
    pub const ALL: [Self; 11] = [
        Self::Views,
        Self::Overview,
        Self::Graph,
        Self::Table,
        Self::Timeline,
        Self::Events,
        Self::Source,
        Self::Typing,
        Self::Metrics,
        Self::Help,
        Self::ConfirmQuit,
    ];

    /// Headline in the help.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Views => "Everywhere",
            Self::Overview => "Overview",
            Self::Graph => "Flame graph and callers",
            Self::Table => "Table",
            Self::Timeline => "Time",
            Self::Events => "Time, of a trace",
            Self::Source => "Source",
            Self::Typing => "While typing a search or a filter",
            Self::Metrics => "In the menu of metrics",
            Self::Help => "In this help",
            Self::ConfirmQuit => "At the prompt to save",
        }
    }
}

/// A key with its modifiers; shift is part of the character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    code: KeyCode,
    control: bool,
}

impl Key {
    /// Name as printed in the help.
    #[must_use]
    pub fn name(self) -> String {
        let name = match self.code {
            KeyCode::Char(' ') => "Space".to_owned(),
            KeyCode::Char(character) => character.to_string(),
            KeyCode::Up => "↑".to_owned(),
            KeyCode::Down => "↓".to_owned(),
            KeyCode::Left => "←".to_owned(),
            KeyCode::Right => "→".to_owned(),
            KeyCode::PageUp => "PgUp".to_owned(),
            KeyCode::PageDown => "PgDn".to_owned(),
            KeyCode::BackTab => "Shift-Tab".to_owned(),
            other => format!("{other}"),
        };
        if self.control { format!("Ctrl-{}", name.to_uppercase()) } else { name }
    }
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Keys of the action.
    pub keys: &'static [Key],
    /// Where it is active.
    pub scope: Scope,
    /// The action.
    pub action: Action,
    /// Its text in the help.
    pub help: &'static str,
    /// Word for the hint line at the bottom of the screen; empty to leave it out.
    pub hint: &'static str,
}

const fn key(code: KeyCode) -> Key {
    Key { code, control: false }
}

const fn letter(character: char) -> Key {
    key(KeyCode::Char(character))
}

const fn control(character: char) -> Key {
    Key { code: KeyCode::Char(character), control: true }
}

const fn bind(
    scope: Scope,
    keys: &'static [Key],
    action: Action,
    help: &'static str,
    hint: &'static str,
) -> Binding {
    Binding { keys, scope, action, help, hint }
}

const ESCAPE: Key = key(KeyCode::Esc);
const ENTER: Key = key(KeyCode::Enter);

/// Every key of the program.
pub const BINDINGS: &[Binding] = &[
    bind(Scope::Views, &[letter('q'), control('c')], Action::Quit, "quit", "quit"),
    bind(Scope::Views, &[letter('?'), key(KeyCode::F(1))], Action::Help, "this help", "help"),
    bind(Scope::Views, &[letter('m')], Action::ChooseMetric, "choose the metric", "metric"),
    bind(
        Scope::Views,
        &[letter('v')],
        Action::NextView,
        "frames: full, Python + operators, native",
        "frames",
    ),
    bind(Scope::Views, &[letter('/')], Action::Search, "search function names", "search"),
    bind(Scope::Views, &[letter('f')], Action::Filter, "filter stacks by regex (!regex excludes)", "filter"),
    bind(
        Scope::Views,
        &[letter(' '), letter('p')],
        Action::Pause,
        "pause or resume updates; the capture continues",
        "pause",
    ),
    bind(
        Scope::Views,
        &[letter('w')],
        Action::WriteKept,
        "write the capture so far, or what --keep holds, to a profile",
        "",
    ),
    bind(Scope::Views, &[key(KeyCode::Tab)], Action::NextTab, "next tab", ""),
    bind(Scope::Views, &[key(KeyCode::BackTab)], Action::PreviousTab, "previous tab", ""),
    bind(Scope::Views, &[letter('1')], Action::ShowOverview, "overview: findings, phases, hottest code", ""),
    bind(Scope::Views, &[letter('2')], Action::ShowFlame, "flame graph", ""),
    bind(
        Scope::Views,
        &[letter('3')],
        Action::ShowCallers,
        "callers: functions with their callers below",
        "",
    ),
    bind(Scope::Views, &[letter('4')], Action::ShowTable, "table of functions", ""),
    bind(Scope::Views, &[letter('5')], Action::ShowTimeline, "processes and threads over time", ""),
    bind(Scope::Views, &[letter('6')], Action::ShowSource, "source file with the cost of each line", ""),
    bind(Scope::Views, &[letter('7')], Action::ShowHealth, "health: losses, gaps, profiler overhead", ""),
    bind(
        Scope::Views,
        &[letter('o')],
        Action::OpenSource,
        "open the source of the selection, or of its nearest caller",
        "",
    ),
    bind(Scope::Views, &[letter('n')], Action::NextMatch, "next match or line, hottest first", ""),
    bind(Scope::Views, &[letter('N')], Action::PreviousMatch, "previous match", ""),
    bind(Scope::Views, &[letter('F')], Action::DropFilter, "clear the filter", ""),
    bind(Scope::Views, &[letter('t')], Action::NextGroup, "group by process, thread, device, stream", ""),
    bind(
        Scope::Views,
        &[letter('i')],
        Action::ToggleInterpreter,
        "show frames of the interpreter and of probes",
        "",
    ),
    bind(Scope::Views, &[letter('L')], Action::ToggleLines, "split by source line", ""),
    bind(Scope::Views, &[letter('r')], Action::ToggleRecursion, "collapse recursion", ""),
    bind(
        Scope::Views,
        &[letter('b')],
        Action::ToggleBackward,
        "backward pass: apart, or below its operators",
        "",
    ),
    bind(
        Scope::Views,
        &[letter('M')],
        Action::SetMark,
        "set a mark: compare values since with those before",
        "mark",
    ),
    bind(Scope::Views, &[letter('d')], Action::ToggleDifference, "toggle: since mark / all", ""),
    bind(Scope::Views, &[letter('D')], Action::DropMark, "clear the mark", ""),
    bind(
        Scope::Views,
        &[letter('P')],
        Action::Pin,
        "pin the selected function: keep its numbers visible",
        "",
    ),
    bind(Scope::Views, &[letter('y')], Action::Copy, "copy the selected stack, row or line (OSC 52)", ""),
    bind(Scope::Views, &[ESCAPE], Action::Escape, "clear the search, then the zoom, then the filter", ""),
    bind(
        Scope::Views,
        &[control('z')],
        Action::Suspend,
        "suspend: fg continues; records are lost meanwhile",
        "",
    ),
    bind(Scope::Views, &[key(KeyCode::Up), letter('k')], Action::Up, "move up", ""),
    bind(Scope::Views, &[key(KeyCode::Down), letter('j')], Action::Down, "move down (widest child)", ""),
    bind(Scope::Views, &[key(KeyCode::PageUp), control('b')], Action::PageUp, "up by a screen", ""),
    bind(Scope::Views, &[key(KeyCode::PageDown), control('f')], Action::PageDown, "down by a screen", ""),
    bind(Scope::Views, &[key(KeyCode::Home), letter('g')], Action::First, "to the top", ""),
    bind(
        Scope::Views,
        &[key(KeyCode::End), letter('G')],
        Action::Last,
        "follow the widest boxes to the leaf; last row",
        "",
    ),
    bind(
        Scope::Overview,
        &[ENTER],
        Action::Enter,
        "show the finding or the code in the flame graph (or click it twice)",
        "show",
    ),
    bind(
        Scope::Overview,
        &[letter('z')],
        Action::ToggleTrunk,
        "unfold or fold wrappers, numbered layers",
        "",
    ),
    bind(Scope::Graph, &[key(KeyCode::Left), letter('h')], Action::Left, "box to the left", ""),
    bind(Scope::Graph, &[key(KeyCode::Right), letter('l')], Action::Right, "box to the right", ""),
    bind(
        Scope::Graph,
        &[ENTER, letter('+')],
        Action::Enter,
        "zoom into the selected box (or click it twice)",
        "zoom",
    ),
    bind(
        Scope::Graph,
        &[letter('z')],
        Action::ToggleTrunk,
        "unfold or fold trunks, wrappers, numbered layers",
        "fold",
    ),
    bind(
        Scope::Graph,
        &[key(KeyCode::Backspace), letter('-')],
        Action::ZoomOut,
        "zoom out by a frame (or right click)",
        "",
    ),
    bind(Scope::Graph, &[letter('0')], Action::ZoomReset, "show everything", ""),
    bind(Scope::Table, &[letter('s')], Action::Sort, "sort by the next column (or click it)", "sort"),
    bind(Scope::Table, &[letter('S')], Action::Reverse, "reverse order", ""),
    bind(Scope::Table, &[ENTER], Action::Enter, "find the function in the flame graph", "find"),
    bind(Scope::Timeline, &[key(KeyCode::Left), letter('h')], Action::Left, "earlier", ""),
    bind(Scope::Timeline, &[key(KeyCode::Right), letter('l')], Action::Right, "later", ""),
    bind(Scope::Timeline, &[ENTER, letter('+')], Action::Enter, "zoom into the selected moment", "zoom"),
    bind(
        Scope::Timeline,
        &[key(KeyCode::Backspace), letter('-')],
        Action::ZoomOut,
        "zoom out (or right click)",
        "",
    ),
    bind(Scope::Timeline, &[letter('0')], Action::ZoomReset, "show the whole time", "all"),
    bind(Scope::Timeline, &[letter('e')], Action::ToggleEvents, "single events, if recorded", ""),
    bind(
        Scope::Events,
        &[letter('+'), ENTER],
        Action::Enter,
        "zoom in at the cursor (or the wheel)",
        "zoom in",
    ),
    bind(
        Scope::Events,
        &[letter('-'), key(KeyCode::Backspace)],
        Action::ZoomOut,
        "zoom out (or the wheel)",
        "zoom out",
    ),
    bind(
        Scope::Events,
        &[letter(' ')],
        Action::SelectRange,
        "begin or end a selection, whose tables show (or drag)",
        "select",
    ),
    bind(
        Scope::Events,
        &[letter('a')],
        Action::NextAnalysis,
        "next analysis: devices, idle, critical path, steps, ranks",
        "",
    ),
    bind(Scope::Events, &[letter('n')], Action::NextEvent, "next event of the lane", "next"),
    bind(Scope::Events, &[letter('N')], Action::PreviousEvent, "event before it", ""),
    bind(Scope::Events, &[key(KeyCode::Left), letter('h')], Action::Left, "earlier by a column", ""),
    bind(Scope::Events, &[key(KeyCode::Right), letter('l')], Action::Right, "later by a column", ""),
    bind(Scope::Events, &[key(KeyCode::Home), letter('g')], Action::First, "to the first event", ""),
    bind(Scope::Events, &[key(KeyCode::End), letter('G')], Action::Last, "to the end", ""),
    bind(Scope::Events, &[letter('0')], Action::ZoomReset, "show the whole time", "all"),
    bind(Scope::Events, &[letter('e')], Action::ToggleEvents, "sums by time instead", ""),
    bind(Scope::Source, &[ENTER], Action::NextMatch, "next line with a value, hottest first", "next line"),
    bind(Scope::Source, &[key(KeyCode::Backspace)], Action::ShowFlame, "back to the flame graph", "back"),
    bind(Scope::Typing, &[ENTER], Action::Accept, "go to the hottest match; apply the filter", "go"),
    bind(Scope::Typing, &[ESCAPE, control('c')], Action::Escape, "cancel", "cancel"),
    bind(Scope::Typing, &[key(KeyCode::Backspace)], Action::Erase, "delete a character", ""),
    bind(Scope::Typing, &[control('u')], Action::EraseAll, "delete all", ""),
    bind(Scope::Metrics, &[key(KeyCode::Up), letter('k')], Action::Up, "metric above", ""),
    bind(Scope::Metrics, &[key(KeyCode::Down), letter('j'), letter('m')], Action::Down, "metric below", ""),
    bind(Scope::Metrics, &[ENTER], Action::Accept, "show this metric", "show"),
    bind(Scope::Metrics, &[ESCAPE, letter('q')], Action::Escape, "cancel", "cancel"),
    bind(Scope::Metrics, &[control('c')], Action::Quit, "quit", ""),
    bind(
        Scope::Help,
        &[ESCAPE, letter('?'), letter('q'), key(KeyCode::F(1))],
        Action::Help,
        "close",
        "close",
    ),
    bind(Scope::Help, &[key(KeyCode::Up), letter('k')], Action::Up, "line above", ""),
    bind(Scope::Help, &[key(KeyCode::Down), letter('j')], Action::Down, "line below", ""),
    bind(Scope::Help, &[key(KeyCode::Home), letter('g')], Action::First, "to the top", ""),
    bind(Scope::Help, &[key(KeyCode::End), letter('G')], Action::Last, "to the end", ""),
    bind(Scope::Help, &[key(KeyCode::PageUp)], Action::PageUp, "up by a screen", ""),
    bind(Scope::Help, &[key(KeyCode::PageDown), letter(' ')], Action::PageDown, "down by a screen", ""),
    bind(Scope::Help, &[control('c')], Action::Quit, "quit", ""),
    bind(Scope::ConfirmQuit, &[letter('y'), ENTER], Action::QuitSaving, "save and quit", "save"),
    bind(
        Scope::ConfirmQuit,
        &[letter('n'), control('c')],
        Action::QuitDropping,
        "quit without saving",
        "discard",
    ),
    bind(Scope::ConfirmQuit, &[ESCAPE], Action::Escape, "cancel", "cancel"),
];

/// The action of a key press in the first of `scopes` that binds it. The job can be suspended in any of them.
#[must_use]
pub fn action(scopes: &[Scope], event: &KeyEvent) -> Option<Action> {
    let pressed = Key { code: event.code, control: event.modifiers.contains(KeyModifiers::CONTROL) };
    let bound = || BINDINGS.iter().filter(move |it| it.keys.contains(&pressed));
    let of_scope = scopes.iter().find_map(|scope| bound().find(|it| it.scope == *scope));
    of_scope.or_else(|| bound().find(|it| it.action == Action::Suspend)).map(|it| it.action)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_unique_within_a_scope() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            for key in binding.keys {
                assert!(seen.insert((binding.scope, *key)), "{} twice in {:?}", key.name(), binding.scope);
            }
        }
    }

    // For a trace, which cannot be paused and has no search matches, three keys have a different meaning.
    #[test]
    fn views_do_not_shadow_global_keys() {
        let everywhere: HashSet<Key> =
            BINDINGS.iter().filter(|it| it.scope == Scope::Views).flat_map(|it| it.keys).copied().collect();
        for binding in BINDINGS.iter().filter(|it| {
            matches!(
                it.scope,
                Scope::Overview | Scope::Graph | Scope::Table | Scope::Timeline | Scope::Source
            )
        }) {
            for key in binding.keys {
                assert!(!everywhere.contains(key), "{} in {:?}", key.name(), binding.scope);
            }
        }
    }

    #[test]
    fn shift_is_part_of_the_letter_but_control_is_not() {
        let press = |code, modifiers| action(&[Scope::Graph, Scope::Views], &KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('N'), KeyModifiers::SHIFT), Some(Action::PreviousMatch));
        assert_eq!(press(KeyCode::Char('n'), KeyModifiers::NONE), Some(Action::NextMatch));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }
}
