//! Any tree, any size, any sequence of messages.
//!
//! Owns: the properties that hold whatever happens. Because: a profile may be damaged and a user may lean on the
//! keyboard; neither may end the program. Does not: care what it looks like.

use std::sync::Arc;

use deepctx_profile::snapshot::{FlameNode, FlameTree, FrameKind, Header, LossRow, Snapshot, TableRow, Unit};
use deepctx_tui::keys::{Action, BINDINGS};
use deepctx_tui::{Effects, Message, Model, Palette, Setup, Still, Tab, Theme, draw, render_once, update};
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
    let node = (label(), kind(), value(), value(), any::<u32>(), prop::collection::vec(0u32..40, 0..5));
    (prop::collection::vec(node, 0..40), any::<bool>()).prop_map(|(nodes, sound)| {
        let mut tree = FlameTree::default();
        for (index, (label, kind, exclusive, inclusive, parent, children)) in (0u32..).zip(nodes) {
            let (parent, children) =
                if sound { (parent % index.max(1), Vec::new()) } else { (parent % 64, children) };
            let detail = label.clone();
            tree.nodes.push(FlameNode { label, detail, kind, exclusive, inclusive, parent, children });
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

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let row = (label(), label(), kind(), value(), value()).prop_map(
        |(label, detail, kind, exclusive, inclusive)| TableRow { label, detail, kind, exclusive, inclusive },
    );
    let loss = (label(), label(), label(), any::<u64>(), any::<bool>())
        .prop_map(|(stage, reason, sentence, count, lost)| LossRow { stage, reason, sentence, count, lost });
    let header = (label(), any::<[u64; 4]>(), any::<[f64; 3]>(), any::<Option<()>>()).prop_map(
        |(target, [elapsed_ns, samples, lost, own_memory_bytes], [rate, share, own], notice)| Header {
            notice: notice.map(|()| target.clone()),
            target,
            elapsed_ns,
            samples,
            lost,
            own_memory_bytes,
            samples_per_second: rate,
            complete_share: Some(share),
            own_cpu_share: own,
            unit: Unit::Bytes,
            ..Header::default()
        },
    );
    (header, tree(), prop::collection::vec(row, 0..30), prop::collection::vec(loss, 0..5))
        .prop_map(|(header, flame, table, losses)| Snapshot { header, flame, table, losses })
}

fn message() -> impl Strategy<Value = Message> {
    let actions: Vec<Action> = BINDINGS.iter().map(|binding| binding.action).collect();
    prop_oneof![
        12 => prop::sample::select(actions).prop_map(Message::Act),
        3 => any::<char>().prop_map(Message::Type),
        3 => prop::sample::select(vec!['a', 'i', 'f']).prop_map(Message::Type),
        3 => (0u16..100, 0u16..40).prop_map(|(x, y)| Message::Click(x, y)),
        1 => any::<(u16, u16)>().prop_map(|(x, y)| Message::Click(x, y)),
        1 => Just(Message::RightClick),
        2 => any::<bool>().prop_map(Message::Wheel),
        1 => any::<bool>().prop_map(Message::Live),
        2 => (0u16..90, 0u16..40).prop_map(|(width, height)| Message::Resize(width, height)),
        3 => snapshot().prop_map(|snapshot| Message::Snapshot(Arc::new(snapshot))),
    ]
}

proptest! {
    #[test]
    fn nothing_panics_and_the_selection_is_always_a_path_of_the_tree(
        first in snapshot(),
        messages in prop::collection::vec(message(), 0..60),
    ) {
        let mut model = Model::new(Setup { can_save: true, ..Setup::default() }, 80, 24);
        let mut size = (80, 24);
        let mut shown = Arc::new(first);
        update(&mut model, Message::Snapshot(Arc::clone(&shown)));
        for message in messages {
            let (wanted, arrived) = match &message {
                Message::Snapshot(snapshot) => (model.wants_snapshot(), Some(Arc::clone(snapshot))),
                _ => (false, None),
            };
            if let Message::Resize(width, height) = message {
                size = (width, height);
            }
            let effects = update(&mut model, message);
            if let Some(snapshot) = arrived && wanted {
                prop_assert_eq!(effects, Effects::Redraw);
                shown = snapshot;
            }
            let (selected, zoomed) = (model.selected_path(), model.zoomed_path());
            prop_assert_eq!(selected.is_empty(), shown.flame.nodes.is_empty());
            for path in [&selected, &zoomed] {
                let known = path.iter().all(|label| shown.flame.nodes.iter().any(|node| node.label == *label));
                prop_assert!(known);
            }
            let common = selected.iter().zip(&zoomed).take_while(|(a, b)| a == b).count();
            prop_assert!(common == selected.len() || common == zoomed.len(), "on one line of descent");
            let mut buffer = Buffer::empty(Rect::new(0, 0, size.0, size.1));
            draw(&model, &Theme::new(Palette::Indexed), &mut buffer);
        }
    }

    #[test]
    fn any_snapshot_can_be_printed_at_any_size(snapshot in snapshot(), width in 0u16..120, height in 0u16..50) {
        for tab in Tab::ALL {
            for palette in [Palette::Plain, Palette::True] {
                let text = render_once(&snapshot, &Still { width, height, tab, palette });
                prop_assert!(text.lines().count() <= usize::from(height));
            }
        }
    }
}
