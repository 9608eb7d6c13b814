//! Keys: one table that drives the program and is printed by its help.
//!
//! Owns: which key does what, where, and in which words. Because: a help page written by hand is wrong within a week.
//! Does not: know how an action is carried out.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key press, or a click that stands for one, asks for.
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
    /// Zoom into the selected box; from the table, show the function in the flame graph.
    Enter,
    /// Zoom out by one frame.
    ZoomOut,
    /// Show everything again.
    ZoomReset,
    /// Next tab.
    NextTab,
    /// Previous tab.
    PreviousTab,
    /// Flame graph.
    ShowFlame,
    /// Table of functions.
    ShowTable,
    /// Losses and own cost.
    ShowLosses,
    /// Next column to sort by.
    Sort,
    /// Stop or resume taking in new snapshots; the capture goes on.
    Pause,
    /// Next choice of languages.
    NextView,
    /// Whether threads are told apart.
    ToggleThreads,
    /// Whether the interpreter's own frames are shown.
    ToggleInterpreter,
    /// Whether source lines tell frames apart.
    ToggleLines,
    /// Next metric.
    NextMetric,
    /// Begin to type a search.
    Search,
    /// Next match, hottest first.
    NextMatch,
    /// Previous match.
    PreviousMatch,
    /// Open or close the help.
    Help,
    /// Leave what is open: prompt, help, search, zoom.
    Escape,
    /// Accept what was typed.
    Accept,
    /// Delete the last character typed.
    Erase,
    /// Delete all that was typed.
    EraseAll,
    /// Leave the program.
    Quit,
    /// Leave and keep what was seen.
    QuitSaving,
    /// Leave and drop what was seen.
    QuitDropping,
}

/// Where a binding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// In every view, unless something is open on top of it.
    Views,
    /// In the flame graph.
    Flame,
    /// In the table.
    Table,
    /// While a search is typed.
    Typing,
    /// While the help is open.
    Help,
    /// While the program asks whether to save.
    Leaving,
}

impl Scope {
    /// Scopes in the order of the help.
    pub const ALL: [Self; 6] =
        [Self::Views, Self::Flame, Self::Table, Self::Typing, Self::Help, Self::Leaving];

    /// Headline in the help.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Views => "Everywhere",
            Self::Flame => "Flame graph",
            Self::Table => "Table",
            Self::Typing => "While typing a search",
            Self::Help => "In this help",
            Self::Leaving => "When asked whether to save",
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
    /// Keys that do the same.
    pub keys: &'static [Key],
    /// Where they do it.
    pub scope: Scope,
    /// What they do.
    pub action: Action,
    /// What they do, in words.
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
    bind(Scope::Views, &[letter('q'), control('c')], Action::Quit, "leave", "quit"),
    bind(Scope::Views, &[letter('?'), key(KeyCode::F(1))], Action::Help, "this help", "help"),
    bind(
        Scope::Views,
        &[letter(' '), letter('p')],
        Action::Pause,
        "pause or resume the screen; the capture goes on",
        "pause",
    ),
    bind(Scope::Views, &[letter('/')], Action::Search, "search function names", "search"),
    bind(Scope::Views, &[key(KeyCode::Tab)], Action::NextTab, "next tab", "next"),
    bind(Scope::Views, &[key(KeyCode::BackTab)], Action::PreviousTab, "previous tab", ""),
    bind(Scope::Views, &[letter('1')], Action::ShowFlame, "flame graph", ""),
    bind(Scope::Views, &[letter('2')], Action::ShowTable, "table of functions", ""),
    bind(Scope::Views, &[letter('3')], Action::ShowLosses, "losses and own cost", ""),
    bind(Scope::Views, &[letter('n')], Action::NextMatch, "next match, hottest first", ""),
    bind(Scope::Views, &[letter('N')], Action::PreviousMatch, "previous match", ""),
    bind(Scope::Views, &[letter('v')], Action::NextView, "languages shown: full, python, native", "view"),
    bind(Scope::Views, &[letter('t')], Action::ToggleThreads, "tell threads apart", ""),
    bind(Scope::Views, &[letter('i')], Action::ToggleInterpreter, "show the interpreter's own frames", ""),
    bind(Scope::Views, &[letter('L')], Action::ToggleLines, "tell frames apart by source line", ""),
    bind(Scope::Views, &[letter('m')], Action::NextMetric, "next metric", ""),
    bind(Scope::Views, &[ESCAPE], Action::Escape, "clear the search, then the zoom", ""),
    bind(Scope::Views, &[key(KeyCode::Up), letter('k')], Action::Up, "caller; row or line above", ""),
    bind(
        Scope::Views,
        &[key(KeyCode::Down), letter('j')],
        Action::Down,
        "hottest callee; row or line below",
        "",
    ),
    bind(Scope::Views, &[key(KeyCode::PageUp), control('b')], Action::PageUp, "up by a screen", ""),
    bind(Scope::Views, &[key(KeyCode::PageDown), control('f')], Action::PageDown, "down by a screen", ""),
    bind(Scope::Views, &[key(KeyCode::Home), letter('g')], Action::First, "to the top", ""),
    bind(
        Scope::Views,
        &[key(KeyCode::End), letter('G')],
        Action::Last,
        "down the hottest path; last row",
        "",
    ),
    bind(Scope::Flame, &[key(KeyCode::Left), letter('h')], Action::Left, "box to the left", ""),
    bind(Scope::Flame, &[key(KeyCode::Right), letter('l')], Action::Right, "box to the right", ""),
    bind(
        Scope::Flame,
        &[ENTER, letter('+')],
        Action::Enter,
        "zoom into the selected box (or click it twice)",
        "zoom",
    ),
    bind(
        Scope::Flame,
        &[key(KeyCode::Backspace), letter('-')],
        Action::ZoomOut,
        "zoom out by a frame (or right click)",
        "",
    ),
    bind(Scope::Flame, &[letter('0')], Action::ZoomReset, "show everything", "all"),
    bind(
        Scope::Table,
        &[letter('s')],
        Action::Sort,
        "sort by self, total, name (or click the column)",
        "sort",
    ),
    bind(Scope::Table, &[ENTER], Action::Enter, "find the function in the flame graph", "find"),
    bind(Scope::Typing, &[ENTER], Action::Accept, "go to the hottest match", "go"),
    bind(Scope::Typing, &[ESCAPE, control('c')], Action::Escape, "keep the search from before", "cancel"),
    bind(Scope::Typing, &[key(KeyCode::Backspace)], Action::Erase, "delete a character", ""),
    bind(Scope::Typing, &[control('u')], Action::EraseAll, "delete all", ""),
    bind(
        Scope::Help,
        &[ESCAPE, letter('?'), letter('q'), key(KeyCode::F(1))],
        Action::Help,
        "close",
        "close",
    ),
    bind(Scope::Help, &[key(KeyCode::Up), letter('k')], Action::Up, "line above", ""),
    bind(Scope::Help, &[key(KeyCode::Down), letter('j')], Action::Down, "line below", ""),
    bind(Scope::Help, &[key(KeyCode::PageUp)], Action::PageUp, "up by a screen", ""),
    bind(Scope::Help, &[key(KeyCode::PageDown), letter(' ')], Action::PageDown, "down by a screen", ""),
    bind(Scope::Help, &[control('c')], Action::Quit, "leave the program", ""),
    bind(Scope::Leaving, &[letter('y'), ENTER], Action::QuitSaving, "save and leave", "save"),
    bind(Scope::Leaving, &[letter('n'), control('c')], Action::QuitDropping, "leave without saving", "drop"),
    bind(Scope::Leaving, &[ESCAPE], Action::Escape, "stay", "stay"),
];

/// The action of a key press in the first of `scopes` that binds it.
#[must_use]
pub fn action(scopes: &[Scope], event: &KeyEvent) -> Option<Action> {
    let pressed = Key { code: event.code, control: event.modifiers.contains(KeyModifiers::CONTROL) };
    scopes.iter().find_map(|scope| {
        BINDINGS.iter().find(|it| it.scope == *scope && it.keys.contains(&pressed)).map(|it| it.action)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_scope() {
        let mut seen = HashSet::new();
        for binding in BINDINGS {
            for key in binding.keys {
                assert!(seen.insert((binding.scope, *key)), "{} twice in {:?}", key.name(), binding.scope);
            }
        }
    }

    #[test]
    fn a_view_does_not_hide_a_key_that_holds_everywhere() {
        let everywhere: HashSet<Key> =
            BINDINGS.iter().filter(|it| it.scope == Scope::Views).flat_map(|it| it.keys).copied().collect();
        for binding in BINDINGS.iter().filter(|it| matches!(it.scope, Scope::Flame | Scope::Table)) {
            for key in binding.keys {
                assert!(!everywhere.contains(key), "{} in {:?}", key.name(), binding.scope);
            }
        }
    }

    #[test]
    fn shift_is_part_of_the_letter_and_control_is_not() {
        let press = |code, modifiers| action(&[Scope::Flame, Scope::Views], &KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('N'), KeyModifiers::SHIFT), Some(Action::PreviousMatch));
        assert_eq!(press(KeyCode::Char('n'), KeyModifiers::NONE), Some(Action::NextMatch));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Action::Quit));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }
}
