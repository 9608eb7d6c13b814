//! Overview, findings, metrics and other answers on the first screen, and those of keys.
//!
//! Owns: what a user sees first, and where Enter leads. Because: the first screen decides whether the others are read.
//! Does not: inspect the model. Screens are in `golden/`; `UPDATE_EXPECT=1` rewrites them.

#[macro_use]
mod program;
mod synthetic;

use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::conclusions::{Conclusions, FindingRow, PhaseRow, RuleCoverage, StepFigures};
use deepctx_profile::view::snapshot::{
    Baseline, FlameNode, FlameTree, FrameKind, Header, LossRow, MetricTotal, Overview, Snapshot, TabData,
    Unit,
};
use deepctx_profile::view::{Request, Resolution, TabRequest, Viewer};
use deepctx_tui::{Charset, Effects, Message, Model, RenderOptions, Setup, Tab, render_once, update};
use expect_test::expect_file;

use program::Program;
use synthetic::{Training, request};

screens! {
    Program::new;
    overview_80x24: 80 x 24, "1";
    overview_120x40: 120 x 40, "1";
    overview_160x48: 160 x 48, "1";
    overview_20x5: 20 x 5, "1";
    overview_context_chosen_80x24: 80 x 24, "1 Down Down Down";
    overview_filtered_80x24: 80 x 24, "1fload Enter";
}

screens! {
    Program::on_device;
    device_overview_120x40: 120 x 40, "1";
}

/// What `findings` shows of a profile, given as text.
fn findings_of(stacks: &str) -> Program {
    let mut program = Program::empty(100, 20);
    let Ok(mut profile) = deepctx_profile::text::parse(stacks) else { panic!("bad stacks: {stacks}") };
    let cells: Vec<_> =
        profile.tree.cells(Metric::CpuTime).map(|(node, cell)| (node, cell.sum / 1_000_000)).collect();
    for (node, samples) in cells {
        (0..samples).for_each(|_| profile.tree.add(node, Metric::Samples, 1));
    }
    program.press("1");
    let header = Header { metric: "cpu-time", ..Header::default() };
    let request = program.model.request();
    let mut snapshot = Viewer::new().snapshot(&profile, request, header, Resolution::default());
    let settings = deepctx_analysis::findings::Settings::default();
    snapshot.conclude(Arc::new(deepctx_analysis::conclude(&profile, Nanos(1_000_000_000), &settings)));
    program.show(snapshot);
    program
}

#[test]
fn a_profile_without_findings_says_so() {
    let stacks = (0..10).map(|n| format!("P a-1 / n f{n} {}", 20_000_000 + n)).collect::<Vec<_>>().join("\n");
    let screen = findings_of(&stacks).screen();
    assert!(screen.contains("nothing stands out, by "), "{screen}");
    assert!(screen.contains("hottest: f9 10.0%") && screen.contains("rules lack their input: "), "{screen}");
    assert!(findings_of("P a-1 / n f 5").screen().contains("; hottest: f 100%"));
}

#[test]
fn a_training_has_its_phases_side_by_side() {
    let screen = findings_of(
        "P a-1 / y t.py:step:1 / y /v/torch/nn/modules/module.py:Module._call_impl / n f 500000000
         P a-1 / y t.py:step:2 / y /v/torch/_tensor.py:Tensor.backward / n g 300000000
         P a-1 / y t.py:step:3 / y /v/torch/optim/sgd.py:SGD.step / n h 200000000",
    )
    .screen();
    let more = "--probe ranges,operators,modules adds steps, operators, layers";
    assert!(screen.contains(&format!("Phases, share of CPU time ({more})")), "{screen}");
    let bar = screen.lines().find(|line| line.contains("forward 50.0%")).unwrap();
    assert!(bar.contains("backward 30.0%") && bar.contains("optimizer 20.0%"), "{bar}");
    assert_eq!(bar.char_indices().filter(|(_, sign)| *sign == '▏').count(), 3);
}

/// The overview of a training whose latest steps took so many milliseconds.
fn steps_of(milliseconds: &[u64]) -> Snapshot {
    let conclusions = Conclusions {
        phases: vec![PhaseRow { name: "forward", time: Nanos(1), share: 1.0 }],
        steps: Some(StepFigures { count: 4, mean: Nanos(40_000_000), ..StepFigures::default() }),
        latest_steps: milliseconds.iter().map(|ms| Nanos(ms * 1_000_000)).collect(),
        ..Conclusions::default()
    };
    let overview = Overview { conclusions: Some(Arc::new(conclusions)), ..Overview::default() };
    Snapshot { extra: TabData::Overview(overview), ..Snapshot::default() }
}

#[test]
fn phases_are_divided_by_the_steps_in_the_sums() {
    let mut snapshot = steps_of(&[]);
    let TabData::Overview(Overview { conclusions: Some(conclusions), .. }) = &mut snapshot.extra else {
        panic!("an overview has conclusions")
    };
    let conclusions = Arc::make_mut(conclusions);
    conclusions.phases[0].time = Nanos(100_000_000);
    // Three were timed; the work of the fourth is there, too.
    conclusions.steps = Some(StepFigures { count: 3, in_sums: 4.0, ..StepFigures::default() });
    let mut program = Program::empty(100, 20);
    program.press("1").show(snapshot);
    let screen = program.screen();
    assert!(screen.contains("forward 25.0 ms"), "{screen}");
}

#[test]
fn a_wide_screen_draws_the_latest_training_steps() {
    let title = |width: u16, milliseconds: &[u64]| {
        let mut program = Program::empty(width, 20);
        program.press("1").show(steps_of(milliseconds));
        let screen = program.screen();
        screen.lines().find(|line| line.contains("Training step 40.0 ms")).map(str::to_owned)
    };
    let check = |width, milliseconds: &[u64], expect: &str| {
        let title = title(width, milliseconds).unwrap();
        assert!(title.ends_with(expect), "{title}");
        assert_eq!(title.chars().count(), usize::from(width));
    };
    check(100, &[10, 20, 40, 80], "── ▁▂▄█");
    check(100, &[0, 8], "── ▁█");
    check(99, &[10, 20, 40, 80], "────");
    check(100, &[], "────");
    // The latest of them, where there is no room for all.
    let many: Vec<u64> = std::iter::repeat_n(80, 200).chain([40, 80]).collect();
    check(100, &many, "██▄█");
}

#[test]
fn single_training_steps_are_drawn_in_ascii_too() {
    let still = RenderOptions {
        width: 100,
        height: 20,
        tab: Tab::Overview,
        request: Request { part: TabRequest::Overview, ..request() },
        signs: Charset::Ascii,
        ..RenderOptions::default()
    };
    let text = render_once(&steps_of(&[10, 20, 40, 80]), &still);
    assert!(text.lines().any(|line| line.ends_with("-- .:=#")), "{text}");
}

#[test]
fn spinning_is_a_hatched_phase_after_those_of_a_step() {
    let screen = findings_of(
        "P a-1 / y t.py:step:1 / y /v/torch/nn/modules/module.py:Module._call_impl / n f 300000000
         P a-1 / y t.py:step:2 / y /v/torch/_tensor.py:Tensor.backward / n g 300000000
         P a-1 / n clone3 / n gomp_team_barrier_wait_end 400000000",
    )
    .screen();
    let bar = screen.lines().find(|line| line.contains("forward 30.0%")).unwrap();
    let (before, after) = bar.split_once("spinning 40.0%").unwrap();
    assert!(after.starts_with(" ╱") && before.contains("backward 30.0%") && !before.contains("╱"), "{bar}");
}

#[test]
fn enter_on_a_finding_opens_its_place() {
    let mut program = findings_of(
        "P a-1 / n _start / n main / y t.py:f:1 / y t.py:step:30 / n gomp_team_barrier_wait_end 600000000
         P a-1 / n _start / n main / y t.py:f:1 / y t.py:load:9 / n read 400000000",
    );
    assert!(
        program.screen().contains("▲  60.0% 60% of cpu-time is threads spinning"),
        "{}",
        program.screen()
    );
    program.press("Enter");
    assert_eq!((program.model.tab(), program.selected().as_str()), (Tab::Flame, "t.py:step"));
    assert!(program.screen().contains("/t.py:step"), "it is searched for");
}

#[test]
fn enter_on_a_context_zooms_the_flame_graph() {
    let mut program = Program::new(80, 24);
    program.press("1 End Enter");
    assert_eq!(program.model.tab(), Tab::Flame);
    assert_eq!(program.selected(), program.zoomed());
}

/// An overview with these conclusions and nothing else.
fn concluded(width: u16, height: u16, conclusions: Conclusions) -> Program {
    let mut program = Program::empty(width, height);
    program.press("1");
    let conclusions = Some(Arc::new(conclusions));
    let extra = TabData::Overview(Overview { conclusions, ..Overview::default() });
    let header = Header { samples: 1, ..Header::default() };
    program.show(Snapshot { header, extra, ..Snapshot::default() });
    program
}

#[test]
fn a_long_advice_is_whole_at_80_columns() {
    let advice = "Raise `num_workers` of the loader, keep its workers with `persistent_workers`, and move \
                  decoding to the device, so that steps no longer wait for the next batch.";
    let finding = FindingRow { advice: advice.to_owned(), ..FindingRow::default() };
    let mut program = concluded(80, 24, Conclusions { findings: vec![finding], ..Conclusions::default() });
    let screen = program.screen();
    let text = screen.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(text.contains(advice), "{screen}");
}

#[test]
fn one_rule_and_one_sample_are_singular() {
    let rules = RuleCoverage { checked: 45, unchecked: 1, most_helpful: Some(("--off-cpu", 1)) };
    let screen = concluded(100, 20, Conclusions { rules, ..Conclusions::default() }).screen();
    assert!(screen.contains("1 of 46 rules lacks its input: --off-cpu gives it"), "{screen}");
    assert!(screen.contains(" 1 sample ·"), "{screen}");
}

#[test]
fn a_key_unfolds_numbered_layers_in_the_overview() {
    let mut program = Program::empty(80, 24);
    program.press("1");
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
        node("python-7", FrameKind::Process, 100, 0, &[2, 3]),
        node("g.h.0 (Block)", FrameKind::Layer, 60, 1, &[]),
        node("g.h.1 (Block)", FrameKind::Layer, 40, 1, &[]),
    ];
    let extra = TabData::Overview(Overview::default());
    program.show(Snapshot { flame: FlameTree { nodes }, extra, ..Snapshot::default() });
    for (keys, folded) in [("", true), ("z", false), ("z", true)] {
        let screen = program.press(keys).screen();
        assert_eq!(screen.contains("g.h.{0,1} (Block) ×2"), folded, "{screen}");
        assert_eq!(screen.contains("g.h.1 (Block)"), !folded, "{screen}");
    }
}

#[test]
fn a_finding_of_another_metric_switches_to_it() {
    let mut program = Program::empty(120, 40);
    program.training = Some(Training::on_device(50));
    program.fetch();
    program.press("1");
    assert_eq!(program.model.request().selection.metric, Metric::CpuTime);
    let screen = program.screen();
    let mut findings = screen.lines().filter(|line| line.starts_with(" ▲") || line.starts_with(" ·"));
    let at = findings.position(|line| line.contains("of gpu-time"));
    program.press(&"Down ".repeat(at.unwrap()));
    program.press("Enter");
    assert_eq!(program.model.request().selection.metric, Metric::GpuTime, "{screen}");
    assert!(program.selected().contains("cutlass"), "{}", program.selected());
}

#[test]
fn a_finding_that_was_left_moves_nothing_later() {
    let mut program = Program::on_device(120, 40);
    let screen = program.press("1").screen();
    let mut findings = screen.lines().filter(|line| line.starts_with(" ▲") || line.starts_with(" ·"));
    let at = findings.position(|line| line.contains("of gpu-time"));
    program.press(&"Down ".repeat(at.unwrap()));
    // Its snapshot is late.
    let training = program.training.take();
    program.press("Enter 1 2");
    program.training = training;
    program.fetch();
    assert_eq!(program.model.request().selection.metric, Metric::GpuTime);
    assert_eq!(program.selected(), "all");
}

#[test]
fn escape_clears_search_then_zoom_then_filter() {
    let mut program = Program::new(80, 24);
    program.press("fpython Enter Down Down Enter /sgemm Enter");
    let state = |program: &Program| (program.zoomed(), program.model.request().filter.is_some());
    program.press("Esc");
    assert!(!program.screen().contains("/sgemm"));
    let (zoomed, filtered) = state(&program);
    assert!(zoomed != "all" && filtered);
    program.press("Esc");
    assert_eq!(state(&program), ("all".to_owned(), true));
    program.press("Esc");
    assert_eq!(state(&program), ("all".to_owned(), false));
}

#[test]
fn control_z_gives_the_terminal_back() {
    let mut program = Program::new(80, 24);
    program.press("Ctrl-Z");
    assert_eq!(program.effects, Effects::Suspend);
    program.press("m");
    assert!(program.screen().contains("Metrics"), "keys mean what they meant before");
}

#[test]
fn control_z_works_in_prompts_menus_and_the_help() {
    for keys in ["/sgemm", "fpython", "m Down", "?", "q"] {
        let mut program = Program::new(80, 24);
        let browsing = program.screen();
        let open = program.press(keys).screen();
        assert_ne!(open, browsing, "{keys} opens something");
        program.press("Ctrl-Z");
        assert_eq!(program.effects, Effects::Suspend, "{keys}");
        assert_eq!(program.screen(), open, "{keys}");
    }
}

#[test]
fn a_key_writes_the_capture_or_says_why_not() {
    let mut program = Program::new(80, 24);
    program.press("w");
    assert_eq!(program.effects, Effects::WriteKept);
    assert!(program.screen().contains("writing the profile"), "{}", program.screen());
    for (can_save, expect) in [(false, "this profile is stored already"), (true, "takes no profile")] {
        program.model = Model::new(Setup { can_save, ..Setup::default() }, 80, 24);
        program.press("w");
        assert_eq!(program.effects, Effects::Redraw);
        assert!(program.screen().contains(expect), "{}", program.screen());
    }
}

#[test]
fn a_click_beside_the_contexts_chooses_none() {
    let mut program = Program::new(120, 40);
    let before = program.press("1").screen();
    // A context, and a row of the operators beside it.
    let is_both = |line: &str| line.contains("82.5%") && line.contains("mm::forward");
    let row = before.lines().position(is_both).unwrap() as u16;
    assert_eq!(program.click(100, row).screen(), before);
    assert_ne!(program.click(10, row).screen(), before);
}

#[test]
fn only_a_large_screen_has_lanes() {
    let check = |width: u16, height: u16, expect: bool| {
        let screen = Program::new(width, height).press("1").screen();
        assert_eq!(screen.contains("Threads and streams, last 12."), expect, "{screen}");
        assert_eq!(screen.contains("pt_autograd_0/4720"), expect, "{screen}");
    };
    check(160, 48, true);
    check(120, 40, false);
    check(100, 60, false);
}

#[test]
fn a_small_screen_has_the_busiest_thread_and_stream() {
    let screen = Program::on_device(80, 24).press("1").screen();
    for lane in ["  ~ MainThread/4711        0.79 █▄█▄", "  A gpu0 stream 7          0.62 ▅▅▅▅"]
    {
        assert!(screen.lines().any(|line| line.starts_with(lane)), "{screen}");
    }
    assert!(!screen.contains("pt_autograd_0/4720") && !screen.contains("Threads and streams"), "{screen}");
    let findings = screen.lines().filter(|line| line.starts_with(" ▲") || line.starts_with(" ·"));
    assert_eq!(findings.count(), 3, "{screen}");
    // Contexts come first.
    let small = Program::on_device(80, 20).press("1").screen();
    assert!(!small.contains("  ~ MainThread/4711") && small.contains("Where CPU time goes"), "{small}");
}

/// The overview of a training of which 100 ms in one function are known; `in_sums` are of four steps.
fn context_of_steps() -> Snapshot {
    let node = |label: &str, kind, children: &[u32]| FlameNode {
        label: label.to_owned(),
        kind,
        inclusive: 100_000_000,
        children: children.to_vec(),
        ..FlameNode::default()
    };
    let nodes = vec![node("all", FrameKind::Root, &[1]), node("t.py:step", FrameKind::Python, &[])];
    let steps = StepFigures { count: 3, in_sums: 4.0, mean: Nanos(10_000_000), ..StepFigures::default() };
    let conclusions = Some(Arc::new(Conclusions { steps: Some(steps), ..Conclusions::default() }));
    let extra = TabData::Overview(Overview { conclusions, ..Overview::default() });
    let header = Header { metric: "cpu-time", unit: Unit::Nanoseconds, ..Header::default() };
    Snapshot { header, flame: FlameTree { nodes }, extra, ..Snapshot::default() }
}

#[test]
fn contexts_have_their_time_a_step_where_it_fits() {
    let check = |width: u16, change: fn(&mut Snapshot), expect: &str| {
        let mut snapshot = context_of_steps();
        change(&mut snapshot);
        let mut program = Program::empty(width, 24);
        program.press("1").show(snapshot);
        let screen = program.screen();
        let row = screen.lines().find(|line| line.ends_with("P t.py:step")).unwrap();
        assert_eq!(row, format!("   100% {expect}████████████ P t.py:step"));
        assert_eq!(screen.contains("goes, share and time a step"), !expect.is_empty(), "{screen}");
    };
    check(80, |_| (), " 25.0 ms ");
    check(79, |_| (), "");
    // The tables beside them take 58 columns.
    check(137, |_| (), "");
    check(138, |_| (), " 25.0 ms ");
    // Another step has passed since conclusions were drawn.
    check(80, |snapshot| snapshot.header.elapsed = Nanos(10_000_000), " 20.0 ms ");
    // Steps since a mark are not known, and counts are no times.
    check(80, |snapshot| snapshot.since = Some(Baseline::default()), "");
    check(80, |snapshot| snapshot.header.unit = Unit::Count, "");
}

#[test]
fn a_key_without_effect_says_why() {
    let mut program = Program::new(80, 24);
    for (keys, expect) in [
        ("F", "no filter is set"),
        ("D", "no mark is set"),
        ("6o", "no source is open"),
        ("2/step Enter oo", "this is the source already"),
    ] {
        program.press(keys);
        assert!(program.screen().contains(expect), "{keys}: {}", program.screen());
    }
    update(&mut program.model, Message::Live(false));
    program.press("Space");
    assert!(program.screen().contains("nothing to pause"), "{}", program.screen());
    assert!(program.model.accepts_snapshot());
}

#[test]
fn searching_a_source_file_leads_to_the_flame_graph() {
    let mut program = Program::new(80, 24);
    program.press("/step Enter o");
    assert_eq!(program.model.tab(), Tab::Source);
    program.press("/mkl_blas_avx512_sgemm_kernel Enter");
    assert_eq!(program.model.tab(), Tab::Flame);
    assert_eq!(program.selected(), "mkl_blas_avx512_sgemm_kernel");
}

#[test]
fn a_context_of_the_overview_can_be_pinned() {
    let mut program = Program::new(80, 24);
    program.press("1 Down Down Down P");
    assert!(program.screen().contains("mm::forward total 47.0%"), "{}", program.screen());
}

#[test]
fn the_help_has_a_beginning_and_an_end() {
    let mut program = Program::new(80, 24);
    let first = program.press("?").screen();
    let last = program.press("End").screen();
    assert!(last.contains("unresolved: the name is the reason"), "{last}");
    assert_eq!(program.press("Home").screen(), first);
}

#[test]
fn the_menu_chooses_a_metric() {
    let mut program = Program::new(80, 24);
    let metric = |program: &Program| program.model.request().selection.metric;
    program.press("m Down Esc");
    assert_eq!(metric(&program), Metric::CpuTime);
    program.press("m Down Enter");
    let chosen = metric(&program);
    assert_ne!(chosen, Metric::CpuTime);
    program.press("m Up Enter");
    assert_eq!(metric(&program), Metric::CpuTime);
    program.press("m Up Enter");
    assert_ne!(metric(&program), Metric::CpuTime, "around the end");
}

#[test]
fn the_source_of_native_code_is_that_of_its_caller() {
    let mut program = Program::new(80, 24);
    program.press("/sgemm_kernel Enter o");
    assert_eq!(program.model.request().part, TabRequest::Source("/srv/train.py".into()));
    assert!(program.screen().contains("no line is known of this: its nearest caller with one"));
    program.press("4o");
    assert_eq!(program.model.request().part, TabRequest::Source("/srv/train.py".into()), "row 1 is selected");
    program.press("1 Down Down Down o");
    assert_eq!(program.model.request().part, TabRequest::Source("/srv/train.py".into()), "of an operator");
    assert!(program.screen().contains("no line is known of this: its nearest caller with one"));
}

#[test]
fn a_layer_without_room_leaves_out_what_it_shares() {
    let mut program = Program::empty(50, 12);
    let label = |label: &str| FlameNode {
        label: label.to_owned(),
        kind: FrameKind::Layer,
        inclusive: 10,
        ..FlameNode::default()
    };
    let outer = FlameNode { children: vec![1, 2], inclusive: 20, ..label("GPT2LMHeadModel.h.1 (GPT2Block)") };
    let nodes = vec![
        outer,
        label("GPT2LMHeadModel.h.1.attn (GPT2Attention)"),
        label("GPT2LMHeadModel.h.1.mlp (GPT2MLP)"),
    ];
    program.show(Snapshot { flame: FlameTree { nodes }, ..Snapshot::default() });
    let screen = program.screen();
    assert!(screen.contains("….attn (GPT") && screen.contains("….mlp (GPT2MLP)"), "{screen}");
}

#[test]
fn the_backward_pass_and_spinning_are_drawn_hatched() {
    let mut program = Program::empty(90, 12);
    let node = |label: &str, kind, inclusive| FlameNode {
        label: label.to_owned(),
        kind,
        inclusive,
        ..FlameNode::default()
    };
    let all = FlameNode { children: vec![1, 2, 3], ..node("all", FrameKind::Root, 30) };
    let parts = ["[backward]", "[spinning]", "aten::mm"].map(|label| node(label, FrameKind::Operator, 10));
    let nodes = std::iter::once(all).chain(parts).collect();
    program.show(Snapshot { flame: FlameTree { nodes }, ..Snapshot::default() });
    let screen = program.screen();
    for hatched in ["╱╱ [backward] ╱", "╱╱ [spinning] ╱"] {
        assert!(screen.contains(hatched), "{screen}");
    }
    assert!(!screen.contains("╱ aten::mm"), "{screen}");
}

#[test]
fn probes_are_a_box_and_a_share_in_the_header() {
    let probes = "P a-1 / o aten::mm / k asm_exc_int3 / k uprobe_notify_resume 400000000";
    let mut program = findings_of(&format!("{probes}\nP a-1 / o aten::mm / n sgemm 600000000"));
    let screen = program.press("2").screen();
    assert!(screen.contains("probes: 40.0% of CPU time") && screen.contains("╱╱ [probes] ╱"), "{screen}");
    assert!(!screen.contains("uprobe_notify_resume"), "{screen}");
    let without = findings_of("P a-1 / n sgemm 600000000").press("2").screen();
    assert!(!without.contains("probes:"), "{without}");
}

#[test]
fn a_recording_has_no_figures_of_its_overhead() {
    let mut program = Program::empty(100, 30);
    let mut snapshot = Training::at(50).snapshot(&request());
    snapshot.header.overhead = None;
    program.show(snapshot);
    assert!(!program.screen().contains("profiler:"));
    program.press("7");
    assert!(program.screen().contains("not known: profiles do not store it"));
}

#[test]
fn a_notice_and_what_was_lost_fit_narrow_screens() {
    let check = |width: u16, notice: &str| {
        let mut program = Program::empty(width, 24);
        let mut snapshot = Training::at(50).snapshot(&request());
        snapshot.header.notice = Some("target exited; the profile is complete, q leaves".to_owned());
        program.show(snapshot);
        let screen = program.screen();
        assert!(screen.contains(notice) && screen.contains(" 10 lost"), "{screen}");
    };
    check(60, "target exited; the profile is complete…");
    check(40, "target exited; the…");
}

#[test]
fn only_a_large_loss_alarms_in_the_header() {
    let check = |received: u64, health: &str, alarms: bool| {
        let loss = LossRow { count: 1, received, lost: true, ..LossRow::default() };
        let header = Header { samples: received - 1, lost: 1, ..Header::default() };
        let mut program = Program::empty(80, 24);
        program.show(Snapshot { header, losses: vec![loss], ..Snapshot::default() });
        let screen = program.screen();
        assert!(screen.contains(" 1 lost (") && screen.contains(health), "{screen}");
        // Without colors, an alarm is reversed.
        assert_eq!(screen.contains("\nline 1, columns "), alarms, "{screen}");
    };
    check(1_000_000, "7 Health ✓", false);
    check(1_000, "7 Health !", true);
}

#[test]
fn the_header_always_names_what_auto_chose() {
    let check = |width: u16, notice: bool, expect: &str, hidden: &str| {
        let mut program = Program::empty(width, 24);
        let mut snapshot = Training::at(50).snapshot(&request());
        snapshot.header.auto_probes = ["operators", "modules", "ranges"].map(str::to_owned).to_vec();
        let text = "target exited; the profile is complete, q leaves";
        snapshot.header.notice = notice.then(|| text.to_owned());
        program.show(snapshot);
        let screen = program.screen();
        let line = screen.lines().nth(1).unwrap();
        assert!(line.contains(" 10 lost") && line.contains(expect) && !line.contains(hidden), "{screen}");
    };
    check(120, false, " · auto: operators, modules, ranges · complete", "+2");
    check(120, true, "modules, ranges · target exited; the profile is complete, q leaves", "+2");
    check(80, false, " · auto: operators, modules, ranges", "+2");
    check(80, true, " · auto: operators +2 · target exited; the profile is", "modules");
    check(40, false, " · auto: operators +2", "modules");
    check(40, true, "target exited; the…", "auto");
}

#[test]
fn an_empty_screen_says_why() {
    let mut program = Program::empty(80, 24);
    program.show(Snapshot::default());
    assert!(program.screen().contains("no samples yet: an idle program has none"));
    update(&mut program.model, Message::Live(false));
    assert!(program.screen().contains("no samples: the program used no CPU time"));
    let metrics = vec![MetricTotal { metric: Metric::OffCpuTime, total: 7 }];
    program.show(Snapshot { metrics, ..Snapshot::default() });
    assert!(program.screen().contains("no values of this metric: m shows others"));
}

#[test]
fn a_terminal_without_unicode_gets_ascii() {
    let mut training = Training::on_device(50);
    for tab in Tab::ALL {
        let part = match tab {
            Tab::Overview => TabRequest::Overview,
            Tab::Flame | Tab::Health | Tab::Source => TabRequest::Flame,
            Tab::Callers => TabRequest::Callers,
            Tab::Table => TabRequest::Table,
            Tab::Timeline => TabRequest::Timeline,
        };
        let request = Request { part, ..request() };
        let still = RenderOptions { signs: Charset::Ascii, tab, request, ..RenderOptions::default() };
        let text = render_once(&training.snapshot(&still.request), &still);
        assert!(text.is_ascii() && text.lines().count() > 3, "{text}");
    }
}
