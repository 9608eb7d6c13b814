//! The timeline of a trace: keys, clicks and drags in, screens out.
//!
//! Owns: what a user sees of single events at each zoom. Because: a stored screen shows at once what a change did to
//! it. Does not: inspect the model. Screens are in `golden/`; `UPDATE_EXPECT=1` rewrites them.

#[macro_use]
mod program;
mod synthetic;

use std::sync::Arc;

use crossterm::event::{MouseButton, MouseEventKind};
use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::Steps;
use deepctx_analysis::render::screen::event_tables;
use deepctx_profile::trace::{EventLanes, Job, text};
use deepctx_profile::units::Nanos;
use deepctx_profile::view::TabRequest;
use deepctx_profile::view::conclusions::{Conclusions, FindingRow, RuleCoverage};
use deepctx_profile::view::snapshot::{Header, RangeConclusions, SharedLanes, Snapshot, TabData};
use deepctx_tui::{Charset, RenderOptions, Tab, render_once};
use expect_test::expect_file;

use program::Program;

/// Three steps of a training on one device: kernels, a copy beside them, and gradients that are exchanged.
fn training() -> Snapshot {
    of_lines((0..3).flat_map(step).collect())
}

/// The same, with what the machine did and what its tensors took.
fn counted() -> Snapshot {
    let memory =
        |at: u64| format!("counter 1 {} bytes={} live-bytes [memory] cuda:0", at * 50, at % 20 * 100_000);
    let mut lines: Vec<String> = (0..3).flat_map(step).chain((0..60).map(memory)).collect();
    for (at, share) in [(0, "0.25"), (500, "1"), (1500, "0.5"), (2500, "0")] {
        lines.push(format!("counter machine {at} share={share} system:cpu-busy-time [cpu 0]"));
    }
    lines.push("counter 1 1000 value=7 queue".to_owned());
    of_lines(lines)
}

/// The same, with the tables over its events.
fn analysed() -> Snapshot {
    let snapshot = training();
    let TabData::Events(lanes) = &snapshot.extra else { panic!("no lanes") };
    let tables = event_tables(&OverTime::compute(lanes.0.job(), Steps::default()));
    Snapshot { extra: TabData::EventTables(lanes.clone(), tables), ..snapshot }
}

fn of_lines(lines: Vec<String>) -> Snapshot {
    let trace = text::parse(&lines.join("\n")).expect("the lines are events");
    let job = Job::new(vec![("trace.json".to_owned(), trace)]).expect("there is one rank");
    let lanes = EventLanes::new(Arc::new(job), |_| 0);
    let header = Header {
        target: "trace.json".to_owned(),
        elapsed: Nanos(3_000_000),
        metric: "gpu-time",
        ..Header::default()
    };
    Snapshot { header, extra: TabData::Events(SharedLanes(Arc::new(lanes))), ..Snapshot::default() }
}

fn step(step: u64) -> Vec<String> {
    let (begin, first) = (step * 1000, 1 + step * 10);
    let (copy, reduce) = (first + 8, first + 9);
    let at = |from: u64, to: u64| format!("{}..{}", begin + from, begin + to);
    let mut lines = vec![
        format!("step main {} ProfilerStep#{step}", at(0, 1000)),
        format!("op main {} enumerate(DataLoader)#__next__", at(0, 150)),
        format!("call main {} cudaMemcpyAsync #{copy}", at(152, 158)),
        format!("copy 0/20 {} Memcpy HtoD #{copy} 4096B", at(165, 215)),
        format!("call backward {} cudaLaunchKernel #{reduce}", at(700, 705)),
        format!("kernel 0/8 {} ncclKernel_AllReduce #{reduce}", at(740, 960)),
    ];
    for layer in 0..8 {
        let (id, from) = (first + layer, 160 + 70 * layer);
        lines.push(format!("op main {} aten::linear", at(from, from + 60)));
        lines.push(format!("call main {} cudaLaunchKernel #{id}", at(from + 20, from + 30)));
        lines.push(format!("kernel 0/7 {} sgemm_128x64 #{id}", at(from + 40, from + 100)));
    }
    lines
}

impl Program {
    fn trace(width: u16, height: u16) -> Self {
        let mut program = Self::empty(width, height);
        program.press("5");
        program.show(training());
        program
    }

    fn counters(width: u16, height: u16) -> Self {
        let mut program = Self::empty(width, height);
        program.press("5");
        program.show(counted());
        program
    }
}

screens! {
    Program::counters;
    counters_80x24: 80 x 24, "";
    counters_of_the_machine_120x24: 120 x 24, "Down Down Down Down Down Down Down nn";
    counters_zoomed_80x24: 80 x 24, "Down Down Down Down Down nnnnn +++";
}

screens! {
    Program::trace;
    events_80x24: 80 x 24, "";
    events_160x48: 160 x 48, "";
    events_20x5: 20 x 5, "";
    events_zoomed_80x24: 80 x 24, "n +++";
    events_one_kernel_160x48: 160 x 48, "nn ++++++";
    events_in_a_gap_80x24: 80 x 24, "n Left ++";
    events_of_a_thread_80x24: 80 x 24, "Down Down Down nnnn +++";
    events_selecting_80x24: 80 x 24, "nnn Space Right Right Right Right";
    events_selected_80x24: 80 x 24, "n Space nnnnnnn Space";
    events_selected_160x48: 160 x 48, "Space End Space";
    events_end_80x24: 80 x 24, "++ End";
}

#[test]
fn ascii_draws_the_same_lanes() {
    let options = RenderOptions {
        width: 80,
        height: 14,
        tab: Tab::Timeline,
        signs: Charset::Ascii,
        ..RenderOptions::default()
    };
    let text = render_once(&training(), &options);
    assert!(text.is_ascii());
    expect_file!["golden/events_ascii_80x14.txt"].assert_eq(&text);
}

#[test]
fn ranks_with_their_own_clock_are_marked() {
    let trace = |at: u64| text::parse(&format!("kernel 0/7 {at}..{} gemm", at + 50)).expect("it is an event");
    let traces = vec![("a.json".to_owned(), trace(0)), ("b.json".to_owned(), trace(20))];
    let job = Job::new(traces).expect("there are two ranks");
    let lanes = EventLanes::with_unaligned(Arc::new(job), |_| 0, vec![1]);
    let mut program = Program::empty(80, 24);
    program.press("5");
    program.show(Snapshot { extra: TabData::Events(SharedLanes(Arc::new(lanes))), ..training() });
    let screen = program.screen();
    let expect =
        ["rank 0 gpu0 stream 7", "rank 1 own clock gpu0 s7", "clocks not aligned with rank 0's: rank 1"];
    for text in expect {
        assert!(screen.contains(text), "{text}: {screen}");
    }
}

#[test]
fn dragging_selects_as_keys_do() {
    let mut program = Program::trace(80, 24);
    let tables = |program: &mut Program| {
        let screen = program.screen();
        screen.lines().skip_while(|line| !line.contains("selected:")).take(4).collect::<Vec<_>>().join("\n")
    };
    program.click(40, 4).mouse(MouseEventKind::Drag(MouseButton::Left), 60, 4);
    program.mouse(MouseEventKind::Up(MouseButton::Left), 60, 4);
    let dragged = tables(&mut program);
    program.press("Esc");
    assert_eq!(tables(&mut program), "");
    program.click(40, 4).mouse(MouseEventKind::Up(MouseButton::Left), 40, 4).press("Space");
    program.click(60, 4).mouse(MouseEventKind::Up(MouseButton::Left), 60, 4).press("Space");
    assert!(dragged.contains("sgemm_128x64"), "{dragged}");
    assert_eq!(tables(&mut program), dragged);
}

#[test]
fn a_click_on_the_tables_of_a_selection_moves_nothing() {
    let mut program = Program::trace(80, 24);
    program.press("n Space nnnnnnn Space");
    let before = program.screen();
    program.click(60, 18).mouse(MouseEventKind::Drag(MouseButton::Left), 50, 18);
    program.mouse(MouseEventKind::Up(MouseButton::Left), 50, 18);
    assert_eq!(program.screen(), before);
}

#[test]
fn a_selection_has_findings_of_its_own() {
    let mut program = Program::trace(100, 48);
    program.press("n Space nnnnnnn Space");
    let TabRequest::EventRange(from, to) = program.model.request().part else { panic!("no range") };
    assert!(from < to && !program.screen().contains("in this part"));
    let finding = |title: &str| FindingRow { title: title.to_owned(), ..FindingRow::default() };
    let conclusions = Arc::new(Conclusions {
        findings: vec![finding("Small kernels take all of it"), finding("The device is idle")],
        rules: RuleCoverage { checked: 9, unchecked: 41, most_helpful: None },
        ..Conclusions::default()
    });
    let mut show = |from, to| {
        let snapshot = training();
        let TabData::Events(lanes) = &snapshot.extra else { panic!("no lanes") };
        let of = RangeConclusions { from, to, conclusions: Arc::clone(&conclusions) };
        let extra = TabData::EventRange(lanes.clone(), of);
        program.show(Snapshot { extra, ..snapshot });
        program.screen()
    };
    let screen = show(from, to);
    let said = "2 findings in this part: 9 rules run on its events, 41 need more than these";
    for text in [said, "Small kernels take all of it", "The device is idle", "sgemm_128x64"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    // Those of another part are none of this one.
    assert!(!show(from, to.saturating_add(Nanos(1))).contains("in this part"));
    program.press("Esc");
    assert_eq!(program.model.request().part, TabRequest::Events);
}

#[test]
fn analyses_follow_each_other_below_the_lanes() {
    let mut program = Program::trace(80, 24);
    program.press("a");
    assert_eq!(program.model.request().part, TabRequest::EventTables);
    assert!(program.screen().contains("analyses: being computed"));
    program.show(analysed());
    let titles = ["Devices over time", "Idle streams", "Critical path", "Steps over time"];
    for (number, title) in (1..).zip(titles) {
        let screen = program.screen();
        assert!(screen.contains(&format!(" {title} · {number} of ")), "{screen}");
        assert!(screen.contains("gpu0 stream 7") && !screen.contains("more column"), "{screen}");
        program.press("a");
    }
    program.press("Esc");
    assert!(!program.screen().contains("Steps over time"));
    assert_eq!(program.model.request().part, TabRequest::Events);
}

#[test]
fn the_last_analysis_is_followed_by_none() {
    let mut program = Program::trace(80, 24);
    program.press("a");
    let TabData::EventTables(lanes, tables) = analysed().extra else { panic!("no tables") };
    let extra = TabData::EventTables(lanes.clone(), Arc::from(&tables[..1]));
    program.show(Snapshot { extra, ..training() });
    assert!(program.screen().contains(" Devices over time · 1 of 1"));
    program.press("a");
    assert_eq!(program.model.request().part, TabRequest::Events);
    assert!(!program.screen().contains("Devices over time"));
    program.press("a");
    program.show(Snapshot { extra: TabData::EventTables(lanes, Arc::from([])), ..training() });
    assert!(program.screen().contains("no analysis"));
}

#[test]
fn a_selection_takes_the_place_of_an_analysis() {
    let mut program = Program::trace(80, 24);
    program.press("a");
    program.show(analysed());
    program.press("n Space nnnnnnn Space");
    let screen = program.screen();
    assert!(screen.contains("selected:") && !screen.contains("Devices over time"), "{screen}");
    program.press("a");
    let screen = program.screen();
    assert!(screen.contains("Devices over time") && !screen.contains("selected:"), "{screen}");
    program.press("Esc");
    assert!(program.screen().contains("selected:"));
}

#[test]
fn the_wheel_zooms_at_the_pointer_and_back() {
    let mut program = Program::trace(80, 24);
    program.click(50, 4);
    let before = program.screen();
    program.mouse(MouseEventKind::ScrollUp, 50, 4).mouse(MouseEventKind::ScrollUp, 50, 4);
    assert_ne!(program.screen(), before);
    program.mouse(MouseEventKind::ScrollDown, 50, 4).mouse(MouseEventKind::ScrollDown, 50, 4);
    assert_eq!(program.screen(), before);
}

#[test]
fn any_zoom_stays_within_the_trace() {
    let mut program = Program::trace(80, 24);
    for keys in [
        "++++++++++++++++++++++++++",
        "Left Left Left",
        "End Right",
        "----",
        "n N Home Left",
        "Down Down Down Down Down Down PgDn",
        "0",
    ] {
        program.press(keys);
        assert!(program.screen().contains("in sight"), "after {keys}");
    }
}
