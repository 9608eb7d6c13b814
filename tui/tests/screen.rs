//! The whole program except the terminal: keys and clicks in, screens out.
//!
//! Owns: what a user sees in every view and state. Because: a stored screen shows at once what a change did to it.
//! Does not: inspect the model. Screens are in `golden/`; `UPDATE_EXPECT=1` rewrites them.

#[macro_use]
mod program;
mod synthetic;

use std::sync::Arc;

use crossterm::event::{Event, MouseButton, MouseEventKind};
use deepctx_profile::view::conclusions::{Conclusions, FindingRow};
use deepctx_profile::view::snapshot::{
    FlameNode, FlameTree, FrameKind, NoText, Snapshot, SourceText, StageRow, TabData,
};
use deepctx_profile::view::{Request, TabRequest, View};
use deepctx_tui::{
    Charset, Effects, Message, Model, Palette, RenderOptions, Setup, Tab, render_once, update,
};
use expect_test::{expect, expect_file};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use program::Program;
use synthetic::{Training, request};

screens! {
    Program::new;
    flame_80x24: 80 x 24, "";
    flame_unfolded_80x24: 80 x 24, "z";
    flame_python_80x24: 80 x 24, "v";
    metrics_80x24: 80 x 24, "m Down";
    metrics_20x5: 20 x 5, "m Down";
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
    callers_80x24: 80 x 24, "3";
    callers_120x40: 120 x 40, "3";
    callers_20x5: 20 x 5, "3";
    callers_zoomed_80x24: 80 x 24, "3 Down Enter Down Down";
    table_80x24: 80 x 24, "4";
    table_120x40: 120 x 40, "4";
    table_20x5: 20 x 5, "4";
    table_by_total_selected_80x24: 80 x 24, "4s Down Down Down";
    table_by_other_metric_80x24: 80 x 24, "4ss";
    table_reversed_80x24: 80 x 24, "4S";
    table_found_80x24: 80 x 24, "4/mkl Enter n";
    timeline_80x24: 80 x 24, "5";
    timeline_120x40: 120 x 40, "5";
    timeline_20x5: 20 x 5, "5";
    timeline_selected_80x24: 80 x 24, "5 Down Left Left Left";
    timeline_zoomed_80x24: 80 x 24, "5 Down Left Left Left Enter Enter";
    timeline_processes_80x24: 80 x 24, "5t";
    source_80x24: 80 x 24, "/step Enter o";
    source_120x40: 120 x 40, "/step Enter o";
    source_20x5: 20 x 5, "/step Enter o";
    source_hottest_80x24: 80 x 24, "/step Enter o n";
    source_not_chosen_80x24: 80 x 24, "6";
    health_80x24: 80 x 24, "7";
    health_120x40: 120 x 40, "7";
    health_20x5: 20 x 5, "7";
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
    program.press("d 3");
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
    let mut check = |keys: &str, expected: TabRequest| {
        program.press(keys);
        assert_eq!(program.model.request().part, expected, "after {keys}");
    };
    check("1", TabRequest::Overview);
    check("3", TabRequest::Callers);
    check("4", TabRequest::Table);
    check("5", TabRequest::Events);
    check("e", TabRequest::Timeline);
    check("e", TabRequest::Events);
    check("6", TabRequest::Flame);
    check("7", TabRequest::Flame);
    check("2/step Enter o", TabRequest::Source("/srv/train.py".into()));
    check("BackTab", TabRequest::Events);
    check("Tab Tab", TabRequest::Flame);
    check("Tab", TabRequest::Overview);
}

#[test]
fn pinning_again_lets_go() {
    let mut program = Program::new(80, 24);
    program.press("3 P");
    assert!(!program.screen().contains('◆'), "the root is no function");
    program.press("2 Down P");
    assert!(program.screen().contains("◆"));
    program.press("P");
    assert!(!program.screen().contains('◆'));
}

#[test]
fn a_key_copies_what_is_selected() {
    let copied = |keys: &str| {
        let mut program = Program::new(80, 24);
        program.press(keys);
        let text = program.model.take_copied();
        assert_eq!(program.effects == Effects::Copy, text.is_some(), "{keys}");
        text
    };
    assert_eq!(copied("3 y"), None, "the root is no stack");
    expect![[r#"
        python-4711
        CPU time 12.0 s"#]]
    .assert_eq(&copied("y").unwrap());
    expect![[r#"
        python-4711
        MainThread/4711
        _start  (/opt/libtorch_cpu.so)
        Py_RunMain  (/opt/libtorch_cpu.so)
        train.py:<module>  (/srv/train.py:40)
        train.py:main  (/srv/train.py:30)
        train.py:epoch  (/srv/train.py:20)
        train.py:step  (/srv/train.py:10)
        mm::forward
        at::native::addmm  (/opt/libtorch_cpu.so)
        mkl_blas_avx512_sgemm_kernel  (/opt/libmkl_rt.so)
        CPU time 4.92 s"#]]
    .assert_eq(&copied("G y").unwrap());
    expect!["at::native::sum_kernel  (/opt/libtorch_cpu.so)"].assert_eq(&copied("4 Down y").unwrap());
    expect!["/srv/train.py:10"].assert_eq(&copied("/step Enter o y").unwrap());
    assert_eq!(copied("7 y"), None, "figures of the profiler are no stack");
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

screens! {
    Program::on_device;
    device_flame_80x24: 80 x 24, "m Down Down Down Enter";
    device_callers_80x24: 80 x 24, "m Down Down Down Enter 3";
    device_table_120x40: 120 x 40, "m Down Down Down Enter 4";
    device_timeline_80x24: 80 x 24, "5";
    device_timeline_processes_80x24: 80 x 24, "ttt5 Down Down";
    device_grouped_80x24: 80 x 24, "m Down Down Down Enter t";
    device_streams_80x24: 80 x 24, "m Down Down Down Enter tt";
    device_health_80x24: 80 x 24, "7";
    device_kernels_80x24: 80 x 24, "m Down Down Down Down Enter";
    device_filtered_80x24: 80 x 24, "m Down Down Down Enter f cutlass Enter";
    device_source_80x24: 80 x 24, "m Down Down Down Enter /step Enter o";
}

/// The request of each tab.
fn still(tab: Tab) -> RenderOptions {
    let part = match tab {
        Tab::Overview => TabRequest::Overview,
        Tab::Flame | Tab::Health => TabRequest::Flame,
        Tab::Callers => TabRequest::Callers,
        Tab::Table => TabRequest::Table,
        Tab::Timeline => TabRequest::Timeline,
        Tab::Source => TabRequest::Source("/srv/train.py".into()),
    };
    let request = Request { part, ..request() };
    RenderOptions {
        width: 100,
        height: 20,
        tab,
        request,
        text: Some(synthetic::text()),
        palette: Palette::Plain,
        signs: Charset::Unicode,
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
    // Unfolded, each node is a box.
    check("z", "all", "all");
    check("z Up", "all", "all");
    check("z Left", "all", "all");
    check("z Down", "python-4711", "all");
    check("z Down Down", "MainThread/4711", "all");
    check("z Down Down Right", "pt_autograd_0/4720", "all");
    check("z Down Down Right Left", "MainThread/4711", "all");
    check("zjjlh", "MainThread/4711", "all");
    check("End", "mkl_blas_avx512_sgemm_kernel", "all");
    check("End Home", "all", "all");
    check("PgDn PgUp", "all", "all");
    // The process is the root's box, a thread begins its trunk's.
    check("Down", "MainThread/4711", "all");
    check("Down Right", "pt_autograd_0/4720", "all");
    check("Down Right Down Down", "pt_autograd_0/4720", "all");
    check("Down Right Left Down", "train.py:step", "all");
}

#[test]
fn keys_zoom_in_and_out() {
    check("z Down Down Enter", "MainThread/4711", "MainThread/4711");
    check("z Down Down Enter Up Up", "all", "MainThread/4711");
    check("z Down Down Enter Up Enter", "python-4711", "python-4711");
    check("z Down Down Enter Backspace", "MainThread/4711", "python-4711");
    check("z Down Down Enter Esc", "MainThread/4711", "all");
    check("Down Enter", "MainThread/4711", "MainThread/4711");
    check("Down Enter Up", "all", "MainThread/4711");
    check("Down Enter Up Down Down", "train.py:step", "MainThread/4711");
    check("Down Enter Backspace", "MainThread/4711", "all");
    check("Down Enter Down 0", "train.py:step", "all");
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
    check("4 Down Enter", "at::native::sum_kernel", "all");
    check("4s Down Down Down Enter", "train.py:epoch", "all");
    check("4 Enter", "mkl_blas_avx512_sgemm_kernel", "all");
}

#[test]
fn the_mouse_selects_zooms_and_switches_tabs() {
    let mut program = Program::new(80, 24);
    program.click(3, 4);
    assert_eq!(program.selected(), "MainThread/4711");
    program.click(3, 4);
    assert_eq!(program.zoomed(), "MainThread/4711");
    program.mouse(MouseEventKind::Down(MouseButton::Right), 3, 4);
    assert_eq!(program.zoomed(), "all");
    program.click(22, 2).click(30, 4).click(30, 4);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel", "tab, row, row again");
    program.click(79, 23).click(0, 0).click(500, 500);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel", "clicks beside everything");
}

#[test]
fn selection_and_zoom_survive_a_growing_tree() {
    let mut program = Program::new(80, 24);
    program.press("Down Enter Down Down");
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
    for (key, times) in [("v", 3), ("L", 2), ("t", 2), ("i", 2), ("r", 2), ("b", 2), ("Tab", 7)] {
        let mut program = Program::new(80, 24);
        let before = (program.model.request().clone(), program.zoomed());
        for turn in 1..=times {
            program.press(key);
            assert_eq!(program.effects, Effects::Fetch);
            let now = (program.model.request().clone(), program.zoomed());
            // Several tabs need the flame graph alone.
            if key != "Tab" || turn == times {
                assert_eq!(now == before, turn == times, "{key} {turn} times");
            }
        }
    }
}

#[test]
fn records_under_way_have_a_column() {
    let mut program = Program::empty(100, 30);
    let mut snapshot = Training::at(50).snapshot(&request());
    snapshot.stages = vec![StageRow { stage: "order", received: 5_373, kept: 5_200, merged: 50, dropped: 6 }];
    program.show(snapshot);
    let screen = program.press("7").screen();
    let row = screen.lines().find(|line| line.trim_start().starts_with("order")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["order", "5,373", "5,200", "50", "6", "117"]);
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
    // Whoever presses it twice must not lose the capture.
    check_effects("qq", Effects::Redraw);
    check_effects("qqy", Effects::Quit { save: true });
    check_effects("Ctrl-C Ctrl-C", Effects::Quit { save: false });
    check_effects("? Ctrl-C y", Effects::Quit { save: true });
    check_effects("/q", Effects::Redraw);
    let mut program = Program::new(80, 24);
    program.model = Model::new(Setup { tab: Tab::Flame, ..Setup::default() }, 80, 24);
    program.press("q");
    assert_eq!(program.effects, Effects::Quit { save: false }, "nothing to save");
}

#[test]
fn a_key_without_a_meaning_causes_no_drawing() {
    let mut program = Program::new(80, 24);
    program.effects = Effects::None;
    program.press("xYW");
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
    assert!(program.screen().contains("… 10001 frames: f9998 → f9999 → f10000"));
    program.press("z End");
    assert_eq!(program.selected(), "f10000");
    assert!(program.screen().contains("f10000"));
    program.press("Enter PgUp Up");
    assert!(program.screen().contains("f9981"));
    program.press("Home 0 PgDn /f777 Enter n P M");
    assert!(program.screen().contains("f777"));
}

#[test]
fn layers_in_one_box_are_listed_when_it_is_entered() {
    let mut program = Program::empty(120, 12);
    let node = |label: &str, kind, inclusive, parent, children: &[u32]| FlameNode {
        label: label.to_owned(),
        kind,
        inclusive,
        parent,
        children: children.to_vec(),
        ..FlameNode::default()
    };
    let nodes = vec![
        node("all", FrameKind::Root, 100, 0, &[1]),
        node("python-7", FrameKind::Process, 100, 0, &[2, 4]),
        node("g.h.0 (Block)", FrameKind::Layer, 60, 1, &[3]),
        node("g.h.0.attn (Attention)", FrameKind::Layer, 50, 2, &[]),
        node("g.h.1 (Block)", FrameKind::Layer, 40, 1, &[5]),
        node("g.h.1.attn (Attention)", FrameKind::Layer, 30, 4, &[]),
    ];
    program.show(Snapshot { flame: FlameTree { nodes }, ..Snapshot::default() });
    let mut check = |keys: &str, shown: &[&str], hidden: &[&str]| {
        program.press(keys);
        let screen = program.screen();
        for (texts, expect) in [(shown, true), (hidden, false)] {
            for text in texts {
                assert_eq!(screen.contains(text), expect, "after {keys}: {text} in\n{screen}");
            }
        }
    };
    let (joined, both, single) = ("g.h.{0,1} (Block) ×2", "g.h.{0,1}.attn (Attention) ×2", "g.h.1 (Block)");
    check("Down", &[joined, both, "100%, each 40.0% to 60.0%"], &[single]);
    check("Enter", &["g.h.0 (Block)", single, "g.h.1.attn (Attention)"], &[joined, both]);
    check("Right Enter", &["g.h.1.attn (Attention)"], &["g.h.0"]);
    check("Esc", &[joined], &[single]);
    check("z", &["g.h.0 (Block)", single], &[joined]);
    check("z /h.1 Enter", &[single], &[joined]);
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
            TabData::None | TabData::Events(_) | TabData::EventRange(..) | TabData::EventTables(..) => {}
            TabData::Overview(overview) => {
                overview.functions.iter_mut().for_each(|row| row.label = evil.to_owned());
                let finding = FindingRow { title: evil.to_owned(), ..FindingRow::default() };
                let conclusions = Conclusions { findings: vec![finding], ..Conclusions::default() };
                overview.conclusions = Some(Arc::new(conclusions));
            }
            TabData::Callers(tree) => tree.nodes.iter_mut().for_each(|node| node.label = evil.to_owned()),
            TabData::Table(table) => table.rows.iter_mut().for_each(|row| row.detail = evil.to_owned()),
            TabData::Timeline(timeline) => {
                timeline.lanes.iter_mut().for_each(|lane| lane.label = evil.to_owned())
            }
            TabData::Source(lines) => {
                lines.file = evil.into();
                still.request.part = TabRequest::Source(evil.into());
            }
        }
        still.text = Some(Arc::clone(&text));
        let drawn = render_once(&snapshot, &still);
        assert!(!hostile(&drawn), "{drawn:?}");
        let setup = Setup { request: still.request.clone(), tab, ..Setup::default() };
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
