//! The whole program except the terminal: keys and clicks in, screens out.
//!
//! Owns: what a user sees in every view and state. Because: a stored screen shows at once what a change did to it.
//! Does not: inspect the model. Screens are in `golden/`; `UPDATE_EXPECT=1` rewrites them.

mod synthetic;

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use deepctx_profile::snapshot::{Extra, FlameNode, FlameTree, FrameKind, NoText, Snapshot, SourceText};
use deepctx_profile::view::{Part, Request, View};
use deepctx_tui::{
    Effects, Message, Model, Palette, RenderOptions, Setup, Tab, Theme, draw, message, render_once, update,
};
use expect_test::expect_file;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

use synthetic::{Training, request};

/// The program with a terminal of cells, and a run that answers new requests.
struct Program {
    model: Model,
    terminal: Terminal<TestBackend>,
    effects: Effects,
    training: Option<Training>,
    text: Arc<SourceText>,
}

impl Program {
    fn new(width: u16, height: u16) -> Self {
        let mut program = Self::empty(width, height);
        program.training = Some(Training::at(50));
        program.fetch();
        program
    }

    fn empty(width: u16, height: u16) -> Self {
        let setup = Setup { request: request(), can_save: true, ..Setup::default() };
        Self {
            model: Model::new(setup, width, height),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            effects: Effects::None,
            training: None,
            text: synthetic::text(),
        }
    }

    fn show(&mut self, snapshot: Snapshot) {
        self.effects = update(&mut self.model, Message::Snapshot(Arc::new(snapshot)));
    }

    /// What the loop does after a new request.
    fn fetch(&mut self) {
        if let Some(training) = &mut self.training {
            let snapshot = training.snapshot(self.model.request());
            self.show(snapshot);
        }
        if self.model.missing_text().is_some() {
            update(&mut self.model, Message::Text(Arc::clone(&self.text)));
        }
    }

    /// The run continues for some refreshes.
    fn go_on(&mut self, turns: u64) -> &mut Self {
        if let Some(training) = &mut self.training {
            training.go_on(turns);
        }
        self.fetch();
        self
    }

    fn event(&mut self, event: Event) {
        if let Some(message) = message(&self.model, &event) {
            self.effects = update(&mut self.model, message);
            if self.effects == Effects::Fetch {
                self.fetch();
                self.effects = Effects::Fetch;
            }
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
    fn screen(&mut self) -> String {
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

macro_rules! screens {
    ($($name:ident: $width:literal x $height:literal, $keys:literal;)*) => {$(
        #[test]
        fn $name() {
            let mut program = Program::new($width, $height);
            program.press($keys);
            expect_file![concat!("golden/", stringify!($name), ".txt")].assert_eq(&program.screen());
        }
    )*};
}

screens! {
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
    flame_filtered_80x24: 80 x 24, "fsgemm|vfs_read Enter";
    flame_filtered_away_80x24: 80 x 24, "f!python Enter";
    flame_filter_typing_80x24: 80 x 24, "fsgemm(";
    flame_folded_80x24: 80 x 24, "r/_find_and_load Enter";
    flame_pinned_80x24: 80 x 24, "/sgemm_kernel Enter P Esc Home";
    flame_pinned_filtered_20x5: 20 x 5, "fsgemm Enter P";
    callers_80x24: 80 x 24, "2";
    callers_120x40: 120 x 40, "2";
    callers_20x5: 20 x 5, "2";
    callers_zoomed_80x24: 80 x 24, "2 Down Enter Down Down";
    table_80x24: 80 x 24, "3";
    table_120x40: 120 x 40, "3";
    table_20x5: 20 x 5, "3";
    table_by_total_selected_80x24: 80 x 24, "3s Down Down Down";
    table_by_other_metric_80x24: 80 x 24, "3ss";
    table_reversed_80x24: 80 x 24, "3S";
    table_found_80x24: 80 x 24, "3/mkl Enter n";
    timeline_80x24: 80 x 24, "4";
    timeline_120x40: 120 x 40, "4";
    timeline_20x5: 20 x 5, "4";
    timeline_selected_80x24: 80 x 24, "4 Down Left Left Left";
    timeline_zoomed_80x24: 80 x 24, "4 Down Left Left Left Enter Enter";
    timeline_processes_80x24: 80 x 24, "4t";
    source_80x24: 80 x 24, "/step Enter o";
    source_120x40: 120 x 40, "/step Enter o";
    source_20x5: 20 x 5, "/step Enter o";
    source_hottest_80x24: 80 x 24, "/step Enter o n";
    source_not_chosen_80x24: 80 x 24, "5";
    losses_80x24: 80 x 24, "6";
    losses_120x40: 120 x 40, "6";
    losses_20x5: 20 x 5, "6";
    help_80x24: 80 x 24, "?";
    help_end_80x24: 80 x 24, "? PgDn PgDn PgDn PgDn PgDn";
    help_120x40: 120 x 40, "?";
    help_20x5: 20 x 5, "? Down";
    leaving_80x24: 80 x 24, "q";
    leaving_20x5: 20 x 5, "q";
}

#[test]
fn a_mark_shows_changes_in_the_flame_graph() {
    let mut program = Program::new(80, 24);
    program.press("M");
    expect_file!["golden/since_nothing_80x24.txt"].assert_eq(&program.screen());
    program.training.as_mut().unwrap().slow_disk = true;
    program.go_on(20);
    expect_file!["golden/since_80x24.txt"].assert_eq(&program.screen());
    program.press("d");
    expect_file!["golden/since_off_80x24.txt"].assert_eq(&program.screen());
    program.press("d 2");
    expect_file!["golden/since_callers_80x24.txt"].assert_eq(&program.screen());
    program.press("D");
    assert_eq!(program.model.request().mark, 0);
}

#[test]
fn figures_of_an_unreadable_file_are_shown_without_text() {
    let mut program = Program::new(80, 24);
    program.text = Arc::new(SourceText::Missing(NoText::NotFound));
    program.press("/step Enter o");
    expect_file!["golden/source_missing_80x24.txt"].assert_eq(&program.screen());
    let reasons: std::collections::HashSet<_> = NoText::ALL.iter().map(|it| it.reason().sentence).collect();
    assert_eq!(reasons.len(), NoText::ALL.len());
}

#[test]
fn a_modified_file_is_marked() {
    let mut program = Program::new(80, 24);
    let SourceText::Lines { lines, .. } = &*synthetic::text() else { panic!() };
    program.text = Arc::new(SourceText::Lines { lines: lines.clone(), changed: true });
    program.press("/step Enter o");
    assert!(program.screen().contains("file changed: lines may have moved"));
}

#[test]
fn an_invalid_filter_stays_open_with_its_error() {
    let mut program = Program::new(80, 24);
    program.press("f( Enter");
    assert!(program.model.is_typing());
    program.press("Ctrl-U gemm Enter");
    assert!(!program.model.is_typing());
    assert_eq!(program.model.request().filter.as_ref().unwrap().text(), "gemm");
    program.press("f Esc");
    assert!(program.model.request().filter.is_some());
    program.press("f Ctrl-U Enter");
    assert_eq!(program.model.request().filter, None);
    program.press("fgemm Enter F");
    assert_eq!(program.model.request().filter, None);
}

#[test]
fn each_tab_asks_for_what_it_shows() {
    let mut program = Program::new(80, 24);
    let mut check = |keys: &str, expected: Part| {
        program.press(keys);
        assert_eq!(program.model.request().part, expected, "after {keys}");
    };
    check("2", Part::Callers);
    check("3", Part::Table);
    check("4", Part::Timeline);
    check("5", Part::Flame);
    check("6", Part::Flame);
    check("1/step Enter o", Part::Source("/srv/train.py".into()));
    check("BackTab", Part::Timeline);
    check("Tab Tab", Part::Flame);
}

#[test]
fn pinning_again_lets_go() {
    let mut program = Program::new(80, 24);
    program.press("P");
    assert!(!program.screen().contains('◆'), "the root is no function");
    program.press("Down P");
    assert!(program.screen().contains("◆"));
    program.press("P");
    assert!(!program.screen().contains('◆'));
}

#[test]
fn a_notice_leaves_the_tabs_visible() {
    let mut program = Program::empty(80, 24);
    let mut snapshot = Training::at(50).snapshot(&request());
    snapshot.header.notice = Some("target exited; the profile is complete, q leaves".to_owned());
    program.show(snapshot);
    expect_file!["golden/notice_80x24.txt"].assert_eq(&program.screen());
}

#[test]
fn a_screen_without_a_snapshot_says_that_it_waits() {
    expect_file!["golden/waiting_80x24.txt"].assert_eq(&Program::empty(80, 24).screen());
}

#[test]
fn a_profile_without_samples_is_not_an_empty_screen() {
    let mut program = Program::empty(80, 24);
    program.show(Snapshot::default());
    expect_file!["golden/no_samples_80x24.txt"].assert_eq(&program.screen());
}

/// As `screens`, of a run with a device.
macro_rules! device_pictures {
    ($($name:ident: $width:literal x $height:literal, $keys:literal;)*) => {$(
        #[test]
        fn $name() {
            let mut program = Program::empty($width, $height);
            program.training = Some(Training::on_device(50));
            program.fetch();
            program.press($keys);
            expect_file![concat!("golden/", stringify!($name), ".txt")].assert_eq(&program.screen());
        }
    )*};
}

device_pictures! {
    device_flame_80x24: 80 x 24, "mmm";
    device_callers_80x24: 80 x 24, "mmm2";
    device_table_120x40: 120 x 40, "mmm3";
    device_timeline_80x24: 80 x 24, "4";
    device_timeline_processes_80x24: 80 x 24, "ttt4 Down Down";
    device_grouped_80x24: 80 x 24, "mmmt";
    device_streams_80x24: 80 x 24, "mmmtt";
    device_losses_80x24: 80 x 24, "6";
    device_kernels_80x24: 80 x 24, "mmmm";
    device_filtered_80x24: 80 x 24, "mmmf cutlass Enter";
    device_source_80x24: 80 x 24, "mmm/step Enter o";
}

/// The request of each tab.
fn still(tab: Tab) -> RenderOptions {
    let part = match tab {
        Tab::Flame | Tab::Losses => Part::Flame,
        Tab::Callers => Part::Callers,
        Tab::Table => Part::Table,
        Tab::Timeline => Part::Timeline,
        Tab::Source => Part::Source("/srv/train.py".into()),
    };
    let request = Request { part, ..request() };
    RenderOptions {
        width: 100,
        height: 20,
        tab,
        request,
        text: Some(synthetic::text()),
        palette: Palette::Plain,
    }
}

#[test]
fn a_rendered_screen_has_no_selection_keys_or_escapes() {
    let mut training = Training::at(50);
    let mut all = String::new();
    for tab in Tab::ALL {
        let still = still(tab);
        all += &render_once(&training.snapshot(&still.request), &still);
        all += "\n";
    }
    assert!(!all.contains('\x1b'));
    expect_file!["golden/still_100x20.txt"].assert_eq(&all);
}

#[test]
fn a_coloured_rendering_has_the_same_text() {
    for (palette, tab) in
        [(Palette::Sixteen, Tab::Table), (Palette::Indexed, Tab::Source), (Palette::True, Tab::Timeline)]
    {
        let still = RenderOptions { palette, ..still(tab) };
        let snapshot = Training::at(50).snapshot(&still.request);
        let colored = render_once(&snapshot, &still);
        let plain = render_once(&snapshot, &RenderOptions { palette: Palette::Plain, ..still });
        let mut stripped = String::new();
        for part in colored.split('\x1b') {
            stripped.push_str(part.strip_prefix('[').map_or(part, |part| part.split_once('m').unwrap().1));
        }
        let trimmed: Vec<&str> = stripped.lines().map(str::trim_end).collect();
        assert_eq!(trimmed, plain.lines().collect::<Vec<_>>(), "{palette:?}");
    }
}

/// Presses keys on a fresh screen; returns the selected and the zoomed function.
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
    check("Down Down", "MainThread/4711", "all");
    check("Down Down Right", "pt_autograd_0/4720", "all");
    check("Down Down Right Left", "MainThread/4711", "all");
    check("jjlh", "MainThread/4711", "all");
    check("Down Down Right Down Down Down Down", "at::native::sum_kernel", "all");
    check("Down Down Right Down Down Down Down Down", "at::native::sum_kernel", "all");
    check("End", "mkl_blas_avx512_sgemm_kernel", "all");
    check("End Home", "all", "all");
    check("PgDn PgUp", "all", "all");
}

#[test]
fn keys_zoom_in_and_out() {
    check("Down Down Enter", "MainThread/4711", "MainThread/4711");
    check("Down Down Enter Up Up", "all", "MainThread/4711");
    check("Down Down Enter Up Up Down Down Down", "_start", "MainThread/4711");
    check("Down Down Enter Up Enter", "python-4711", "python-4711");
    check("Down Down Enter Backspace", "MainThread/4711", "python-4711");
    check("Down Down Enter Down 0", "_start", "all");
    check("Down Down Enter Esc", "MainThread/4711", "all");
    check("Backspace", "all", "all");
}

#[test]
fn a_search_selects_the_hottest_match_then_the_next() {
    check("/sgemm Enter", "mkl_blas_avx512_sgemm_kernel", "all");
    check("/sgemm Enter n", "[gpu] void cutlass::Kernel<cutlass_80_simt_sgemm_128x64>", "all");
    check("/sgemm Enter nn", "mkl_blas_avx512_sgemm_pack", "all");
    check("/sgemm Enter nnn", "mkl_blas_avx512_sgemm_kernel", "all");
    check("/sgemm Enter N", "mkl_blas_avx512_sgemm_pack", "all");
    check("/sgemm Esc n", "all", "all");
    check("/SGEMM Enter", "all", "all");
    check("/_find_and_load Enter", "importlib.py:_find_and_load", "importlib.py:_find_and_load");
}

#[test]
fn the_table_finds_its_function_in_the_flame_graph() {
    check("3 Down Enter", "mkl_blas_avx512_sgemm_kernel", "all");
    check("3s Down Down Down Enter", "train.py:<module>", "all");
    check("3 Enter", "all", "all");
}

#[test]
fn the_mouse_selects_zooms_and_switches_tabs() {
    let mut program = Program::new(80, 24);
    program.click(3, 5);
    assert_eq!(program.selected(), "MainThread/4711");
    program.click(3, 5);
    assert_eq!(program.zoomed(), "MainThread/4711");
    program.mouse(MouseEventKind::Down(MouseButton::Right), 3, 5);
    assert_eq!(program.zoomed(), "python-4711");
    program.click(22, 2).click(30, 4).click(30, 4);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel", "tab, row, row again");
    program.click(79, 23).click(0, 0).click(500, 500);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel", "clicks beside everything");
}

#[test]
fn selection_and_zoom_survive_a_growing_tree() {
    let mut program = Program::new(80, 24);
    program.press("Down Down Down Down Down Enter Down Down Down");
    let (selected, zoomed) = (program.selected(), program.zoomed());
    assert_ne!(selected, zoomed);
    let mut grown = Training::at(51).snapshot(&request());
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
fn a_vanished_selection_moves_to_its_nearest_caller() {
    let mut program = Program::new(80, 24);
    program.press("Down Down Down");
    let mut shrunk = Training::at(50).snapshot(&request());
    shrunk.flame.nodes.truncate(3);
    program.show(shrunk);
    assert_eq!(program.selected(), "MainThread/4711");
}

#[test]
fn a_paused_screen_accepts_only_snapshots_of_a_new_request() {
    let mut program = Program::new(80, 24);
    let training = program.training.take();
    program.press("Space");
    program.show(Snapshot::default());
    assert_eq!(program.effects, Effects::None);
    assert!(!program.model.accepts_snapshot());
    program.press("v");
    assert_eq!(program.effects, Effects::Fetch);
    assert_eq!(program.model.request().selection.view, View::Python);
    assert!(program.model.accepts_snapshot() && program.model.is_waiting());
    program.training = training;
    program.fetch();
    assert_eq!(program.effects, Effects::Redraw);
    assert!(!program.model.accepts_snapshot() && !program.model.is_waiting());
    program.press("p");
    assert!(program.model.accepts_snapshot());
}

#[test]
fn every_toggle_of_a_request_returns_to_its_start() {
    for (key, times) in [("v", 3), ("L", 2), ("t", 2), ("i", 2), ("r", 2), ("m", 3), ("Tab", 6)] {
        let mut program = Program::new(80, 24);
        let before = (program.model.request().clone(), program.zoomed());
        for turn in 1..=times {
            program.press(key);
            assert_eq!(program.effects, Effects::Fetch);
            let now = (program.model.request().clone(), program.zoomed());
            // Two tabs need the flame graph alone.
            if key != "Tab" || turn == times {
                assert_eq!(now == before, turn == times, "{key} {turn} times");
            }
        }
    }
}

/// Presses keys on a fresh screen; returns the effects.
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
fn mismatched_buffer_size_is_drawn_as_far_as_it_fits() {
    let mut program = Program::new(80, 24);
    for (width, height) in [(1, 1), (40, 10), (200, 60), (0, 0)] {
        program.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        program.screen();
    }
}

#[test]
fn a_stack_of_ten_thousand_frames_can_be_navigated() {
    let mut program = Program::empty(80, 24);
    let node = |index: u32| FlameNode {
        label: format!("f{index}"),
        kind: FrameKind::Python,
        inclusive: 10,
        parent: index.saturating_sub(1),
        children: (index < 10_000).then_some(index + 1).into_iter().collect(),
        ..FlameNode::default()
    };
    let nodes: Vec<FlameNode> = (0..=10_000).map(node).collect();
    program.show(Snapshot { flame: FlameTree { nodes }, ..Snapshot::default() });
    program.press("End");
    assert_eq!(program.selected(), "f10000");
    assert!(program.screen().contains("f10000"));
    program.press("Enter PgUp Up");
    assert!(program.screen().contains("f9981"));
    program.press("Home 0 PgDn /f777 Enter n P M");
    assert!(program.screen().contains("f777"));
}

#[test]
fn names_cannot_speak_to_the_terminal() {
    let mut program = Program::empty(80, 24);
    let hostile = |text: &str| text.chars().any(|it| (it.is_control() && it != '\n') || it == '\u{202e}');
    let evil = "\x1b]0;owned\x07\x1b[2J\u{202e}evil\n\t\u{200b}";
    let mut training = Training::at(50);
    let text = Arc::new(SourceText::Lines { lines: vec![evil.to_owned(); 40], changed: false });
    for tab in Tab::ALL {
        let mut still = still(tab);
        let mut snapshot = training.snapshot(&still.request);
        for node in &mut snapshot.flame.nodes {
            (node.label, node.detail) = (evil.to_owned(), evil.to_owned());
        }
        snapshot.header.target = "\x1b[31mred\x1b[0m".to_owned();
        snapshot.header.notice = Some("\x1b[5mblink".to_owned());
        snapshot.losses[0].sentence = "\x1b[5mblink\r\n".to_owned();
        match &mut snapshot.extra {
            Extra::None => {}
            Extra::Callers(tree) => tree.nodes.iter_mut().for_each(|node| node.label = evil.to_owned()),
            Extra::Table(table) => table.rows.iter_mut().for_each(|row| row.detail = evil.to_owned()),
            Extra::Timeline(timeline) => {
                timeline.lanes.iter_mut().for_each(|lane| lane.label = evil.to_owned())
            }
            Extra::Source(lines) => {
                lines.file = evil.into();
                still.request.part = Part::Source(evil.into());
            }
        }
        still.text = Some(Arc::clone(&text));
        let drawn = render_once(&snapshot, &still);
        assert!(!hostile(&drawn), "{drawn:?}");
        let setup = Setup { request: still.request.clone(), tab, can_save: false };
        program.model = Model::new(setup, 80, 24);
        program.show(snapshot);
        update(&mut program.model, Message::Text(Arc::clone(&text)));
        for keys in ["Down", "P", "/owned Enter", "Up"] {
            program.press(keys);
            let drawn = program.screen();
            assert!(!hostile(&drawn), "{drawn:?}");
        }
    }
}
