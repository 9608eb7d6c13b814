//! The whole program but for the terminal: keys and clicks in, pictures out.
//!
//! Owns: what a user sees in every view and state. Because: a stored picture shows at once what a change did to it.
//! Does not: look inside the model. Pictures are in `golden/`; `UPDATE_EXPECT=1` writes them anew.

mod synthetic;

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use deepctx_profile::metric::Metric;
use deepctx_profile::snapshot::Snapshot;
use deepctx_profile::view::{Selection, View};
use deepctx_tui::{
    Effects, Message, Model, Palette, Setup, Still, Tab, Theme, draw, message, render_once, update,
};
use expect_test::expect_file;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

/// The program with a terminal of cells.
struct Program {
    model: Model,
    terminal: Terminal<TestBackend>,
    effects: Effects,
}

impl Program {
    fn new(width: u16, height: u16) -> Self {
        let mut program = Self::empty(width, height);
        program.show(synthetic::snapshot(50, &Selection::of(Metric::CpuTime)));
        program
    }

    fn empty(width: u16, height: u16) -> Self {
        let setup =
            Setup { metrics: vec![Metric::CpuTime, Metric::Samples], can_save: true, ..Setup::default() };
        Self {
            model: Model::new(setup, width, height),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            effects: Effects::None,
        }
    }

    fn show(&mut self, snapshot: Snapshot) {
        self.effects = update(&mut self.model, Message::Snapshot(Arc::new(snapshot)));
    }

    fn event(&mut self, event: Event) {
        if let Some(message) = message(&self.model, &event) {
            self.effects = update(&mut self.model, message);
        }
    }

    /// Presses keys: words name keys, everything else is typed letter by letter.
    fn press(&mut self, keys: &str) -> &mut Self {
        for word in keys.split(' ').filter(|word| !word.is_empty()) {
            let (code, modifiers) = match word {
                "Up" => (KeyCode::Up, KeyModifiers::NONE),
                "Down" => (KeyCode::Down, KeyModifiers::NONE),
                "Left" => (KeyCode::Left, KeyModifiers::NONE),
                "Right" => (KeyCode::Right, KeyModifiers::NONE),
                "PgDn" => (KeyCode::PageDown, KeyModifiers::NONE),
                "PgUp" => (KeyCode::PageUp, KeyModifiers::NONE),
                "Home" => (KeyCode::Home, KeyModifiers::NONE),
                "End" => (KeyCode::End, KeyModifiers::NONE),
                "Enter" => (KeyCode::Enter, KeyModifiers::NONE),
                "Esc" => (KeyCode::Esc, KeyModifiers::NONE),
                "Tab" => (KeyCode::Tab, KeyModifiers::NONE),
                "BackTab" => (KeyCode::BackTab, KeyModifiers::SHIFT),
                "Backspace" => (KeyCode::Backspace, KeyModifiers::NONE),
                "Space" => (KeyCode::Char(' '), KeyModifiers::NONE),
                "Ctrl-C" => (KeyCode::Char('c'), KeyModifiers::CONTROL),
                "Ctrl-U" => (KeyCode::Char('u'), KeyModifiers::CONTROL),
                text => {
                    for letter in text.chars() {
                        self.event(Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)));
                    }
                    continue;
                }
            };
            self.event(Event::Key(KeyEvent::new(code, modifiers)));
        }
        self
    }

    fn mouse(&mut self, kind: MouseEventKind, column: u16, row: u16) -> &mut Self {
        self.event(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        self
    }

    fn click(&mut self, column: u16, row: u16) -> &mut Self {
        self.mouse(MouseEventKind::Down(MouseButton::Left), column, row)
    }

    fn selected(&self) -> String {
        self.model.selected_path().last().map_or(String::new(), |label| (*label).to_owned())
    }

    fn zoomed(&self) -> String {
        self.model.zoomed_path().last().map_or(String::new(), |label| (*label).to_owned())
    }

    /// The screen as text, and below it where it is reversed or underlined: that is all a terminal without colour has.
    fn picture(&mut self) -> String {
        let Self { model, terminal, .. } = self;
        let theme = Theme::new(Palette::Plain);
        terminal.draw(|frame| draw(model, &theme, frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        let mut marks = String::new();
        for y in 0..buffer.area.height {
            let mut line = String::new();
            let mut open: Option<(u16, Modifier)> = None;
            for x in 0..=buffer.area.width {
                let now = (x < buffer.area.width)
                    .then(|| buffer[(x, y)].modifier & (Modifier::REVERSED | Modifier::UNDERLINED))
                    .filter(|marks| !marks.is_empty());
                if open.map(|(_, modifier)| modifier) != now {
                    if let Some((from, modifier)) = open {
                        marks += &format!("line {y}, columns {from}..{x}: {modifier:?}\n");
                    }
                    open = now.map(|modifier| (x, modifier));
                }
                if x < buffer.area.width {
                    line.push_str(buffer[(x, y)].symbol());
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        format!("{text}{:─<40}\n{marks}", "")
    }
}

macro_rules! pictures {
    ($($name:ident: $width:literal x $height:literal, $keys:literal;)*) => {$(
        #[test]
        fn $name() {
            let mut program = Program::new($width, $height);
            program.press($keys);
            expect_file![concat!("golden/", stringify!($name), ".txt")].assert_eq(&program.picture());
        }
    )*};
}

pictures! {
    flame_80x24: 80 x 24, "";
    flame_120x40: 120 x 40, "";
    flame_20x5: 20 x 5, "";
    flame_selected_80x24: 80 x 24, "Down Down Down Down Down Down Down Down";
    flame_zoomed_80x24: 80 x 24, "Down Down Down Down Down Down Down Down Enter Down";
    flame_zoomed_20x5: 20 x 5, "Down Down Down Down Down Enter";
    flame_typing_80x24: 80 x 24, "/SGEMM Backspace Ctrl-U sgemm";
    flame_found_80x24: 80 x 24, "/sgemm Enter";
    flame_found_20x5: 20 x 5, "/sgemm Enter";
    flame_nothing_found_80x24: 80 x 24, "/nosuch Enter";
    flame_paused_80x24: 80 x 24, "Space";
    flame_other_request_80x24: 80 x 24, "vLti";
    table_80x24: 80 x 24, "2";
    table_120x40: 120 x 40, "2";
    table_20x5: 20 x 5, "2";
    table_by_total_selected_80x24: 80 x 24, "2s Down Down Down";
    table_found_80x24: 80 x 24, "2/mkl Enter n";
    losses_80x24: 80 x 24, "3";
    losses_120x40: 120 x 40, "3";
    losses_20x5: 20 x 5, "3";
    help_80x24: 80 x 24, "?";
    help_end_80x24: 80 x 24, "? PgDn PgDn PgDn PgDn";
    help_120x40: 120 x 40, "?";
    help_20x5: 20 x 5, "? Down";
    leaving_80x24: 80 x 24, "q";
    leaving_20x5: 20 x 5, "q";
}

#[test]
fn a_notice_takes_precedence_over_the_view_but_not_over_the_tabs() {
    let mut program = Program::empty(80, 24);
    let mut snapshot = synthetic::snapshot(50, &Selection::of(Metric::CpuTime));
    snapshot.header.notice = Some("target exited; the profile is complete, q leaves".to_owned());
    program.show(snapshot);
    expect_file!["golden/notice_80x24.txt"].assert_eq(&program.picture());
}

#[test]
fn before_the_first_snapshot_the_screen_says_what_it_waits_for() {
    expect_file!["golden/waiting_80x24.txt"].assert_eq(&Program::empty(80, 24).picture());
}

#[test]
fn a_profile_without_samples_is_not_an_empty_screen() {
    let mut program = Program::empty(80, 24);
    program.show(Snapshot::default());
    expect_file!["golden/no_samples_80x24.txt"].assert_eq(&program.picture());
}

#[test]
fn a_still_picture_has_neither_selection_nor_keys_nor_escapes() {
    let snapshot = synthetic::snapshot(50, &Selection::of(Metric::CpuTime));
    let mut all = String::new();
    for tab in Tab::ALL {
        all += &render_once(&snapshot, &Still { width: 100, height: 20, tab, palette: Palette::Plain });
        all += "\n";
    }
    assert!(!all.contains('\x1b'));
    expect_file!["golden/still_100x20.txt"].assert_eq(&all);
}

#[test]
fn a_coloured_still_picture_shows_the_same_text() {
    let snapshot = synthetic::snapshot(50, &Selection::of(Metric::CpuTime));
    for palette in [Palette::Sixteen, Palette::Indexed, Palette::True] {
        let still = Still { tab: Tab::Table, palette, ..Still::default() };
        let colored = render_once(&snapshot, &still);
        let plain = render_once(&snapshot, &Still { palette: Palette::Plain, ..still });
        let mut stripped = String::new();
        for part in colored.split('\x1b') {
            stripped.push_str(part.strip_prefix('[').map_or(part, |part| part.split_once('m').unwrap().1));
        }
        let trimmed: Vec<&str> = stripped.lines().map(str::trim_end).collect();
        assert_eq!(trimmed, plain.lines().collect::<Vec<_>>(), "{palette:?}");
    }
}

/// Presses keys on a fresh screen; tells the selected and the zoomed function.
#[track_caller]
fn check(keys: &str, selected: &str, zoomed: &str) {
    let mut program = Program::new(80, 24);
    program.press(keys);
    assert_eq!((program.selected().as_str(), program.zoomed().as_str()), (selected, zoomed), "after {keys}");
}

#[test]
fn keys_move_through_the_flame_graph() {
    check("", "all", "all");
    check("Up", "all", "all");
    check("Left", "all", "all");
    check("Down", "python-4711", "all");
    check("Down Down", "MainThread", "all");
    check("Down Down Right", "pt_autograd_0", "all");
    check("Down Down Right Left", "MainThread", "all");
    check("jjlh", "MainThread", "all");
    check("Down Down Right Down Down Down Down", "at::native::sum_kernel", "all");
    check("Down Down Right Down Down Down Down Down", "at::native::sum_kernel", "all");
    check("End", "mkl_blas_avx512_sgemm_kernel", "all");
    check("End Home", "all", "all");
    check("PgDn PgUp", "all", "all");
}

#[test]
fn keys_zoom_in_and_out() {
    check("Down Down Enter", "MainThread", "MainThread");
    check("Down Down Enter Up Up", "all", "MainThread");
    check("Down Down Enter Up Up Down Down Down", "_start", "MainThread");
    check("Down Down Enter Up Enter", "python-4711", "python-4711");
    check("Down Down Enter Backspace", "MainThread", "python-4711");
    check("Down Down Enter Down 0", "_start", "all");
    check("Down Down Enter Esc", "MainThread", "all");
    check("Backspace", "all", "all");
}

#[test]
fn a_search_goes_to_the_hottest_match_and_on_to_the_next() {
    check("/sgemm Enter", "mkl_blas_avx512_sgemm_kernel", "all");
    check("/sgemm Enter n", "void cutlass::Kernel<cutlass_80_simt_sgemm_128x64>", "all");
    check("/sgemm Enter nn", "mkl_blas_avx512_sgemm_pack", "all");
    check("/sgemm Enter nnn", "mkl_blas_avx512_sgemm_kernel", "all");
    check("/sgemm Enter N", "mkl_blas_avx512_sgemm_pack", "all");
    check("/sgemm Esc n", "all", "all");
    check("/SGEMM Enter", "all", "all");
    check("/_find_and_load Enter", "importlib:_find_and_load", "importlib:_find_and_load");
}

#[test]
fn the_table_finds_its_function_in_the_flame_graph() {
    check("2 Down Enter", "mkl_blas_avx512_sgemm_kernel", "all");
    check("2s Down Down Down Enter", "_start", "all");
    check("2 Enter", "all", "all");
}

#[test]
fn the_mouse_selects_zooms_and_switches_tabs() {
    let mut program = Program::new(80, 24);
    program.click(3, 5);
    assert_eq!(program.selected(), "MainThread");
    program.click(3, 5);
    assert_eq!(program.zoomed(), "MainThread");
    program.mouse(MouseEventKind::Down(MouseButton::Right), 3, 5);
    assert_eq!(program.zoomed(), "python-4711");
    program.click(12, 2).click(30, 4).click(30, 4);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel", "tab, row, row again");
    program.click(79, 23).click(0, 0).click(500, 500);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel", "clicks beside everything");
}

#[test]
fn selection_and_zoom_stay_on_their_functions_while_the_tree_grows() {
    let mut program = Program::new(80, 24);
    program.press("Down Down Down Down Down Enter Down Down Down");
    let (selected, zoomed) = (program.selected(), program.zoomed());
    assert_ne!(selected, zoomed);
    let mut grown = synthetic::snapshot(51, &Selection::of(Metric::CpuTime));
    // A process that sorts first moves every index.
    let shift = |index: u32| if index == 0 { 0 } else { index + 1 };
    for node in &mut grown.flame.nodes {
        node.parent = shift(node.parent);
        node.children.iter_mut().for_each(|child| *child = shift(*child));
    }
    let mut first = grown.flame.nodes[1].clone();
    first.label = "a-new-process".to_owned();
    first.children.clear();
    grown.flame.nodes.insert(1, first);
    grown.flame.nodes[0].children.insert(0, 1);
    program.show(grown);
    assert_eq!((program.selected(), program.zoomed()), (selected, zoomed));
}

#[test]
fn what_is_gone_leaves_the_selection_at_its_nearest_caller() {
    let mut program = Program::new(80, 24);
    program.press("Down Down Down");
    let mut shrunk = synthetic::snapshot(50, &Selection::of(Metric::CpuTime));
    shrunk.flame.nodes.truncate(3);
    program.show(shrunk);
    assert_eq!(program.selected(), "MainThread");
}

#[test]
fn a_paused_screen_takes_in_nothing_but_the_answer_to_a_new_request() {
    let mut program = Program::new(80, 24);
    program.press("Space");
    program.show(Snapshot::default());
    assert_eq!(program.effects, Effects::None);
    assert!(!program.model.wants_snapshot());
    program.press("v");
    assert_eq!(program.effects, Effects::Fetch);
    assert_eq!(program.model.request().view, View::Python);
    assert!(program.model.wants_snapshot());
    program.show(synthetic::snapshot(51, program.model.request()));
    assert_eq!(program.effects, Effects::Redraw);
    assert!(!program.model.wants_snapshot());
    program.press("p");
    assert!(program.model.wants_snapshot());
}

#[test]
fn every_choice_of_a_request_comes_back_to_where_it_began() {
    for (key, times) in [("v", 3), ("L", 2), ("t", 2), ("i", 2), ("m", 2)] {
        let mut program = Program::new(80, 24);
        let before = *program.model.request();
        for turn in 1..=times {
            program.press(key);
            assert_eq!(program.effects, Effects::Fetch);
            assert_eq!(*program.model.request() == before, turn == times, "{key} {turn} times");
        }
    }
}

/// Presses keys on a fresh screen; tells what the loop is asked to do.
#[track_caller]
fn check_effects(keys: &str, expected: Effects) {
    let mut program = Program::new(80, 24);
    program.press(keys);
    assert_eq!(program.effects, expected, "after {keys}");
}

#[test]
fn leaving_asks_whether_to_save() {
    check_effects("q", Effects::Redraw);
    check_effects("qy", Effects::Quit { save: true });
    check_effects("q Enter", Effects::Quit { save: true });
    check_effects("qn", Effects::Quit { save: false });
    check_effects("q Esc", Effects::Redraw);
    check_effects("Ctrl-C Ctrl-C", Effects::Quit { save: false });
    check_effects("? Ctrl-C y", Effects::Quit { save: true });
    check_effects("/q", Effects::Redraw);
    let mut program = Program::new(80, 24);
    program.model = Model::new(Setup::default(), 80, 24);
    program.press("q");
    assert_eq!(program.effects, Effects::Quit { save: false }, "nothing to save");
}

#[test]
fn a_key_without_a_meaning_causes_no_drawing() {
    let mut program = Program::new(80, 24);
    program.effects = Effects::None;
    program.press("xyz");
    program.mouse(MouseEventKind::Moved, 3, 3);
    program.event(Event::FocusGained);
    assert_eq!(program.effects, Effects::None);
}

#[test]
fn a_buffer_of_another_size_than_the_model_knows_is_drawn_as_far_as_it_goes() {
    let mut program = Program::new(80, 24);
    for (width, height) in [(1, 1), (40, 10), (200, 60), (0, 0)] {
        program.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        program.picture();
    }
}

#[test]
fn names_cannot_speak_to_the_terminal() {
    let mut program = Program::empty(80, 24);
    let mut snapshot = synthetic::snapshot(50, &Selection::of(Metric::CpuTime));
    for node in &mut snapshot.flame.nodes {
        node.label = "\x1b]0;owned\x07\x1b[2J\u{202e}evil\n\t\u{200b}".to_owned();
    }
    snapshot.header.target = "\x1b[31mred\x1b[0m".to_owned();
    snapshot.header.notice = Some("\x1b[5mblink".to_owned());
    snapshot.losses[0].sentence = "\x1b[5mblink\r\n".to_owned();
    for row in &mut snapshot.table {
        row.detail = "\x1b[5mblink".to_owned();
    }
    let hostile = |text: &str| text.chars().any(|it| (it.is_control() && it != '\n') || it == '\u{202e}');
    for tab in Tab::ALL {
        let text = render_once(&snapshot, &Still { tab, ..Still::default() });
        assert!(!hostile(&text), "{text:?}");
    }
    program.show(snapshot);
    for key in ["Down", "2 Down", "3"] {
        program.press(key);
        let text = program.picture();
        assert!(!hostile(&text), "{text:?}");
    }
}
