//! Any tree, any size, any sequence of messages.
//!
//! Owns: the properties that hold for all inputs. Because: a profile may be damaged and a user may lean on the
//! keyboard; neither may end the program. Does not: check what it draws.

use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::units::{Bytes, Nanos};
use deepctx_profile::view::conclusions::{
    Conclusions, FindingPlace, FindingRow, PhaseRow, RuleCoverage, Severity, StepFigures,
};
use deepctx_profile::view::snapshot::{
    Baseline, Column, FlameNode, FlameTree, FrameKind, Header, Lane, LineRow, LossRow, MemoryUse,
    MetricTotal, NoText, Overhead, Overview, Snapshot, SourceLines, SourcePlace, SourceText, StageRow,
    TabData, Table, TableRow, Timeline, Unit,
};
use deepctx_profile::view::{Request, TabRequest};
use deepctx_tui::keys::{Action, BINDINGS};
use deepctx_tui::{
    Charset, Effects, Message, Model, Palette, RenderOptions, Setup, Tab, Theme, draw, render_once, update,
};
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

fn kind() -> impl Strategy<Value = FrameKind> {
    prop::sample::select(vec![
        FrameKind::Root,
        FrameKind::Process,
        FrameKind::Python,
        FrameKind::Native,
        FrameKind::Kernel,
        FrameKind::GpuKernel,
        FrameKind::Unresolved,
    ])
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["main", "fib", "read", "数据", ""]).prop_map(str::to_owned),
        1 => ".{0,20}",
    ]
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..1000, 1 => any::<u64>()]
}

/// Half of the trees are sound; the others have any parent and any children.
fn tree() -> impl Strategy<Value = FlameTree> {
    let node = (
        label(),
        kind(),
        [value(), value(), value()],
        source(),
        any::<u32>(),
        prop::collection::vec(0u32..40, 0..5),
    );
    (prop::collection::vec(node, 0..40), any::<bool>()).prop_map(|(nodes, sound)| {
        let mut tree = FlameTree::default();
        for (index, (label, kind, [exclusive, inclusive, before], source, parent, children)) in
            (0u32..).zip(nodes)
        {
            let (parent, children) =
                if sound { (parent % index.max(1), Vec::new()) } else { (parent % 64, children) };
            let detail = label.clone();
            tree.nodes.push(FlameNode {
                label,
                detail,
                kind,
                each: None,
                workers: None,
                exclusive,
                inclusive,
                before,
                source,
                parent,
                children,
            });
        }
        if sound {
            for index in (1..tree.nodes.len()).rev() {
                let FlameNode { parent, inclusive, .. } = tree.nodes[index];
                let above = &mut tree.nodes[parent as usize];
                above.inclusive = above.inclusive.saturating_add(inclusive);
                above.children.push(index as u32);
            }
            let labels: Vec<String> = tree.nodes.iter().map(|node| node.label.clone()).collect();
            for node in &mut tree.nodes {
                node.children.sort_by(|a, b| labels[*a as usize].cmp(&labels[*b as usize]));
            }
        }
        tree
    })
}

fn source() -> impl Strategy<Value = Option<SourcePlace>> {
    let file = prop::sample::select(vec!["/srv/train.py", "<string>", ""]);
    prop::option::of((file, any::<u32>()).prop_map(|(file, line)| SourcePlace {
        file: file.into(),
        line,
        pid: 1,
    }))
}

fn text() -> impl Strategy<Value = Arc<SourceText>> {
    let lines = prop::collection::vec(label(), 0..60);
    prop_oneof![
        3 => (lines, any::<bool>()).prop_map(|(lines, changed)| SourceText::Lines { lines, changed }),
        1 => prop::sample::select(NoText::ALL.to_vec()).prop_map(SourceText::Missing),
    ]
    .prop_map(Arc::new)
}

fn unit() -> impl Strategy<Value = Unit> {
    prop::sample::select(vec![Unit::Nanoseconds, Unit::Count, Unit::Bytes])
}

fn table_row() -> impl Strategy<Value = TableRow> {
    (label(), label(), kind(), value(), value(), source(), prop::collection::vec((value(), value()), 0..3))
        .prop_map(|(label, detail, kind, exclusive, inclusive, source, others)| TableRow {
            label,
            detail,
            kind,
            exclusive,
            inclusive,
            others,
            source,
        })
}

fn conclusions() -> impl Strategy<Value = Conclusions> {
    let place =
        (label(), any::<f64>()).prop_map(|(label, share)| FindingPlace { name: label.clone(), label, share });
    let metric = prop::option::of(prop::sample::select(vec![Metric::CpuTime, Metric::GpuTime]));
    let finding = (label(), any::<f64>(), prop::collection::vec(place, 0..3), metric).prop_map(
        |(title, share, places, metric)| FindingRow {
            rule: "rule".to_owned(),
            severity: if share < 0.5 { Severity::Low } else { Severity::High },
            gain: title.clone(),
            evidence: vec![title.clone()],
            title,
            share,
            places,
            metric,
            advice: "advice".to_owned(),
        },
    );
    let phase = (value(), any::<f64>()).prop_map(|(time, share)| PhaseRow {
        name: "forward",
        time: Nanos(time),
        share,
    });
    let steps = (value(), any::<f64>()).prop_map(|(count, in_sums)| StepFigures {
        count,
        in_sums,
        ..StepFigures::default()
    });
    let steps = prop::option::of(steps);
    let latest_steps = prop::collection::vec(value().prop_map(Nanos), 0..80);
    let (findings, phases) = (prop::collection::vec(finding, 0..9), prop::collection::vec(phase, 0..4));
    (findings, phases, steps, latest_steps, 0usize..40).prop_map(
        |(findings, phases, steps, latest_steps, unchecked)| Conclusions {
            at: Nanos(0),
            findings,
            rules: RuleCoverage { checked: 3, unchecked, most_helpful: Some(("--off-cpu", unchecked)) },
            phases,
            steps,
            latest_steps,
        },
    )
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let lane = (label(), kind(), unit(), value(), prop::collection::vec(value(), 0..40)).prop_map(
        |(label, kind, unit, total, values)| {
            let level = total % 2 == 1;
            Lane { label, kind, metric: "metric", unit, level, total, values }
        },
    );
    (value(), prop_oneof![0usize..600, any::<usize>()], prop::collection::vec(lane, 0..30), 0usize..9)
        .prop_map(|(window_ns, windows, lanes, lanes_left_out)| Timeline {
            window: Nanos(window_ns),
            windows,
            lanes,
            lanes_left_out,
        })
}

fn extra() -> impl Strategy<Value = TabData> {
    let row = table_row();
    let conclusions = prop::option::of(conclusions().prop_map(Arc::new));
    let rows = || prop::collection::vec(table_row(), 0..5);
    let overview = (conclusions, rows(), rows(), rows(), timeline()).prop_map(
        |(conclusions, functions, operators, layers, timeline)| Overview {
            conclusions,
            functions,
            operators,
            layers,
            timeline,
        },
    );
    let others = prop::collection::vec(unit().prop_map(|unit| Column { metric: "metric", unit }), 0..3);
    let table = (others, prop::collection::vec(row, 0..30)).prop_map(|(others, rows)| Table { others, rows });
    let line = (any::<u32>(), value(), value()).prop_map(|(line, exclusive, inclusive)| LineRow {
        line,
        exclusive,
        inclusive,
    });
    let lines =
        (prop::sample::select(vec!["/srv/train.py", ""]), prop::collection::vec(line, 0..20), value())
            .prop_map(|(file, mut lines, without_line)| {
                lines.sort_by_key(|row| row.line);
                SourceLines { file: file.into(), lines, without_line }
            });
    prop_oneof![
        1 => Just(TabData::None),
        3 => overview.prop_map(TabData::Overview),
        2 => tree().prop_map(TabData::Callers),
        2 => table.prop_map(TabData::Table),
        2 => timeline().prop_map(TabData::Timeline),
        2 => lines.prop_map(TabData::Source),
    ]
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let loss = (label(), label(), label(), any::<[u64; 2]>(), any::<bool>()).prop_map(
        |(stage, reason, sentence, [count, received], lost)| LossRow {
            stage,
            reason,
            sentence,
            count,
            received,
            lost,
        },
    );
    let header = (label(), any::<[u64; 4]>(), any::<[f64; 3]>(), any::<Option<()>>()).prop_map(
        |(target, [elapsed_ns, samples, lost, own_memory_bytes], [rate, share, own], notice)| Header {
            notice: notice.map(|()| target.clone()),
            target,
            elapsed: Nanos(elapsed_ns),
            samples,
            lost,
            overhead: Some(Overhead { cpu_share: own, memory: Bytes(own_memory_bytes) }),
            memory: vec![MemoryUse { by: "unwind rows", bytes: own_memory_bytes }],
            samples_per_second: rate,
            complete_share: Some(share),
            unit: Unit::Bytes,
            ..Header::default()
        },
    );
    let since = prop::option::of((value(), value(), value(), value()).prop_map(
        |(at_ns, before, count_before, count_since)| Baseline {
            at: Nanos(at_ns),
            before,
            count_before,
            count_since,
        },
    ));
    let stage = (value(), value(), value(), value()).prop_map(|(received, kept, merged, dropped)| StageRow {
        stage: "stage",
        received,
        kept,
        merged,
        dropped,
    });
    let parts = (extra(), since, prop::collection::vec(stage, 0..4), value());
    (header, tree(), parts, prop::collection::vec(loss, 0..5)).prop_map(
        |(header, flame, (extra, since, stages, unfiltered), losses)| Snapshot {
            header,
            flame,
            unfiltered,
            probes: unfiltered / 3,
            extra,
            since,
            metrics: [(Metric::CpuTime, u64::MAX), (Metric::Samples, 7)]
                .map(|(metric, total)| MetricTotal { metric, total })
                .to_vec(),
            stages,
            devices: Vec::new(),
            losses,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let actions: Vec<Action> = BINDINGS.iter().map(|binding| binding.action).collect();
    prop_oneof![
        12 => prop::sample::select(actions).prop_map(Message::Action),
        3 => any::<char>().prop_map(Message::Character),
        3 => prop::sample::select(vec!['a', 'i', 'f']).prop_map(Message::Character),
        3 => (0u16..100, 0u16..40).prop_map(|(x, y)| Message::Click(x, y)),
        1 => any::<(u16, u16)>().prop_map(|(x, y)| Message::Click(x, y)),
        1 => Just(Message::RightClick),
        2 => (any::<bool>(), 0u16..100, 0u16..40).prop_map(|(up, x, y)| Message::Wheel(up, x, y)),
        1 => (0u16..100, 0u16..40).prop_map(|(x, y)| Message::Drag(x, y)),
        1 => Just(Message::Release),
        1 => any::<bool>().prop_map(Message::Live),
        2 => (0u16..90, 0u16..40).prop_map(|(width, height)| Message::Resize(width, height)),
        2 => text().prop_map(Message::Text),
        4 => snapshot().prop_map(|snapshot| Message::Snapshot(Arc::new(snapshot))),
    ]
}

proptest! {
    #[test]
    fn the_selection_is_always_a_path_of_the_tree(
        first in snapshot(),
        messages in prop::collection::vec(message(), 0..60),
    ) {
        let mut model = Model::new(Setup { can_save: true, ..Setup::default() }, 80, 24);
        let mut size = (80, 24);
        let mut shown = Arc::new(first);
        let mut callers = match &shown.extra {
            TabData::Callers(tree) => tree.clone(),
            _ => FlameTree::default(),
        };
        update(&mut model, Message::Snapshot(Arc::clone(&shown)));
        for message in messages {
            let (accepted, arrived) = match &message {
                Message::Snapshot(snapshot) => (model.accepts_snapshot(), Some(Arc::clone(snapshot))),
                _ => (false, None),
            };
            if let Message::Resize(width, height) = message {
                size = (width, height);
            }
            let effects = update(&mut model, message);
            if let Some(snapshot) = arrived && accepted {
                prop_assert!(matches!(effects, Effects::Redraw | Effects::Fetch));
                shown = snapshot;
                if let TabData::Callers(tree) = &shown.extra {
                    callers = tree.clone();
                }
            }
            let (selected, zoomed) = (model.selected_path(), model.zoomed_path());
            let tree = if model.tab() == Tab::Callers { &callers } else { &shown.flame };
            prop_assert_eq!(selected.is_empty(), tree.nodes.is_empty());
            for path in [&selected, &zoomed] {
                let known = path.iter().all(|label| tree.nodes.iter().any(|node| node.label == *label));
                prop_assert!(known);
            }
            let common = selected.iter().zip(&zoomed).take_while(|(a, b)| a == b).count();
            prop_assert!(common == selected.len() || common == zoomed.len(), "on one line of descent");
            let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
            draw(&model, &Theme::new(Palette::Indexed), &mut buffer);
        }
    }

    #[test]
    fn any_snapshot_can_be_printed_at_any_size(
        snapshot in snapshot(),
        text in text(),
        width in 0u16..200,
        height in 0u16..60,
    ) {
        let mut request = Request::of(Metric::CpuTime);
        if let TabData::Source(lines) = &snapshot.extra {
            request.part = TabRequest::Source(Arc::clone(&lines.file));
        }
        for tab in Tab::ALL {
            for palette in [Palette::Plain, Palette::True] {
                let (request, text) = (request.clone(), Some(Arc::clone(&text)));
                let text = render_once(&snapshot, &RenderOptions { width, height, tab, request, text, palette, signs: Charset::Unicode });
                prop_assert!(text.lines().count() <= usize::from(height));
            }
        }
    }
}
