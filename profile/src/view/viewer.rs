//! The viewer: takes requests from a screen and makes snapshots.
//!
//! Owns: the merged tree of the last request, and the mark. Because: a live view refreshes several times a second,
//! and repeating a request should cost only what is new in the profile. Does not: read a clock; the header has the
//! time.

use super::lanes::{busiest, lanes};
use super::losses::{losses, stages};
use super::mark::Mark;
use super::merged_tree::{MergedTree, RefreshScope};
use super::overview::overview;
use super::source_lines::source_lines;
use crate::device::activity::GpuProcess;
use crate::device::device_lines;
use crate::device::processes::add_rows;
use crate::frame::clean;
use crate::profile::Profile;
use crate::view::request::{Request, Resolution, TabRequest};
use crate::view::snapshot::{Baseline, DeviceRow, Header, MetricTotal, Overview, Snapshot, TabData};

/// Makes the snapshots of one screen from one profile.
#[derive(Clone, Debug, Default)]
pub struct Viewer {
    /// The merged tree, and its form.
    tree: Option<(TreeForm, MergedTree)>,
    mark: Option<(u32, Mark)>,
}

/// What a merged tree depends on besides its selection: whether recursion is folded, and whether the backward pass is
/// shown below its operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TreeForm {
    fold_recursion: bool,
    backward_in_place: bool,
}

impl Viewer {
    /// A viewer without a merged tree or a mark.
    pub fn new() -> Self {
        Self::default()
    }

    /// The snapshot of a request. The profile must be the same growing profile at each call.
    pub fn snapshot(
        &mut self,
        profile: &Profile,
        request: &Request,
        header: Header,
        resolution: Resolution,
    ) -> Snapshot {
        if request.mark == 0 {
            self.mark = None;
        } else if self.mark.as_ref().is_none_or(|(number, _)| *number != request.mark) {
            self.mark = Some((request.mark, Mark::set(profile, header.elapsed)));
        }
        let since = self.mark.as_ref().map(|(_, mark)| mark).filter(|_| request.since_mark);
        let Request { fold_recursion, backward_in_place, .. } = *request;
        let form = TreeForm { fold_recursion, backward_in_place };
        let tree = match &mut self.tree {
            Some((of, tree)) if *of == form && *tree.selection() == request.selection => tree,
            slot => {
                let tree = MergedTree::new(request.selection).with_spinning_apart();
                let tree = if request.selection.interpreter { tree } else { tree.with_probes_joined() };
                let tree = if backward_in_place { tree } else { tree.with_backward_apart() };
                let tree = if fold_recursion { tree.folding_recursion() } else { tree };
                &mut slot.insert((form, tree)).1
            }
        };
        tree.refresh_part(profile, RefreshScope { filter: request.filter.as_ref(), since });
        let total = |metric| MetricTotal { metric, total: profile.tree.total(metric).sum };
        let extra = match &request.part {
            TabRequest::Flame => TabData::None,
            TabRequest::Overview => {
                TabData::Overview(Overview { timeline: busiest(profile, header.elapsed), ..overview(tree) })
            }
            TabRequest::Callers => TabData::Callers(tree.callers(resolution)),
            TabRequest::Table => TabData::Table(tree.full_table(profile, resolution, since)),
            TabRequest::Timeline
            | TabRequest::Events
            | TabRequest::EventRange(..)
            | TabRequest::EventTables => {
                TabData::Timeline(lanes(profile, &request.selection, header.elapsed))
            }
            TabRequest::Source(file) => TabData::Source(source_lines(tree, profile, file, since)),
        };
        Snapshot {
            flame: tree.flame(resolution),
            unfiltered: match request.filter {
                Some(_) => profile.tree.total(request.selection.metric).sum,
                None => tree.total(),
            },
            probes: tree.probes(),
            extra,
            since: since.map(|mark| Baseline {
                at: mark.at(),
                before: tree.total_before(),
                count_before: tree.counts.0,
                count_since: tree.counts.1,
            }),
            metrics: profile.tree.metrics_with_sum().map(total).collect(),
            stages: stages(profile),
            devices: devices(profile),
            losses: losses(profile),
            header,
        }
    }
}

/// Most processes whose device work is shown: more than anyone scrolls through.
const PROCESSES_SHOWN: usize = 100;

/// What is known of the device work of each process, and of all others together.
fn devices(profile: &Profile) -> Vec<DeviceRow> {
    let used = profile.gpu.processes.iter().filter(|process| process.is_used());
    let mut processes = Vec::new();
    add_rows(&mut processes, used, PROCESSES_SHOWN);
    let row = |process: &GpuProcess| DeviceRow {
        process: process.label(),
        tier: process.tier.times(),
        note: clean(&process.note),
        lines: device_lines(process),
    };
    processes.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::context::selection::{GroupBy, Selection, View};
    use crate::metric::Metric;
    use crate::testing::{grow, profile, selections, show, stacks};
    use crate::tree::NodeId;
    use crate::units::Nanos;
    use crate::view::request::Pattern;
    use crate::view::snapshot::{FlameNode, FlameTree};

    const CPU: Request = Request::of(Metric::CpuTime);

    fn answer(profile: &Profile, request: &Request) -> Snapshot {
        Viewer::new().snapshot(profile, request, Header::default(), Resolution::default())
    }

    #[test]
    fn probes_in_boxes_too_small_to_draw_count() {
        let profile = profile(
            "P a-1 / o aten::mm / k asm_exc_int3 1
             P a-1 / o aten::add / k asm_exc_int3 1
             P a-1 / n f 98",
        );
        let least = Resolution { least_share: 0.05, ..Resolution::default() };
        let request = Request::select(CPU.selection);
        let snapshot = Viewer::new().snapshot(&profile, &request, Header::default(), least);
        assert!(snapshot.flame.nodes.iter().all(|node| node.label != "[probes]"));
        assert_eq!(snapshot.probes, 2);
    }

    fn callers(snapshot: &Snapshot) -> &FlameTree {
        match &snapshot.extra {
            TabData::Callers(tree) => tree,
            other => panic!("no callers but {other:?}"),
        }
    }

    const SERVER: &str = "
        P web-1 / y app.py:main:3 / y app.py:get:10 / n encode@/l/j.so 30
        P web-1 / y app.py:main:4 / y app.py:put:20 / n encode@/l/j.so 50
        P web-1 / y app.py:main:4 / y app.py:put:21 / y app.py:put:21 / n write@/l/c.so 5
        P web-1 / y app.py:main:4 7
    ";

    #[test]
    fn below_a_function_are_its_callers() {
        let snapshot = answer(&profile(SERVER), &Request { part: TabRequest::Callers, ..CPU });
        expect![[r#"
            all 0/92 Root 
              encode 0/80 Native /l/j.so
                app.py:put 0/50 Python app.py:1
                  app.py:main 0/50 Python app.py:1
                    web-1 50/50 Process 
                app.py:get 0/30 Python app.py:1
                  app.py:main 0/30 Python app.py:1
                    web-1 30/30 Process 
              app.py:main 0/7 Python app.py:1
                web-1 7/7 Process 
              write 0/5 Native /l/c.so
                app.py:put 0/5 Python app.py:1
                  app.py:put 0/5 Python app.py:1
                    app.py:main 0/5 Python app.py:1
                      web-1 5/5 Process 
        "#]]
        .assert_eq(&show(callers(&snapshot)));
    }

    #[test]
    fn frames_of_probes_are_shown_beside_the_interpreters() {
        let profile = profile("P a-1 / o aten::mm / k asm_exc_int3 / k uprobe_notify_resume 30");
        let labels = |interpreter| {
            let selection = Selection { interpreter, ..CPU.selection };
            let flame = answer(&profile, &Request::select(selection)).flame;
            flame.nodes.into_iter().map(|node| node.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(false), ["all", "a-1", "aten::mm", "[probes]"]);
        let all = ["all", "a-1", "aten::mm", "asm_exc_int3_[k]", "uprobe_notify_resume_[k]"];
        assert_eq!(labels(true), all);
    }

    #[test]
    fn callers_of_about_the_same_share_keep_their_order() {
        let first = |g: u64| {
            let lines = format!("P a-1 / n f 5000\nP a-1 / n g {g}\nP a-1 / n h 1000");
            let snapshot = answer(&profile(&lines), &Request { part: TabRequest::Callers, ..CPU });
            callers(&snapshot).nodes[1].label.clone()
        };
        // 45.4 % and 45.5 %, then 41 % and 50 %.
        assert_eq!([first(5010), first(6000)], ["f", "g"]);
    }

    #[test]
    fn the_backward_pass_is_apart_until_it_is_put_back() {
        let of = profile(
            "P a-1 / y t.py:loss:2 / o aten::mm / n sgemm 3
             P a-1 / y t.py:loss:2 / o aten::mm / o [backward] / n sgemm 4",
        );
        for (backward_in_place, parent) in [(false, "a-1"), (true, "aten::mm")] {
            let FlameTree { nodes } = answer(&of, &Request { backward_in_place, ..CPU }).flame;
            let half = nodes.iter().find(|node| node.label == "[backward]").unwrap();
            assert_eq!(nodes[half.parent as usize].label, parent);
        }
    }

    fn check_lines(request: Request, file: &str, expect: Expect) {
        let snapshot =
            answer(&profile(SERVER), &Request { part: TabRequest::Source(file.into()), ..request });
        let TabData::Source(lines) = snapshot.extra else { panic!("no source") };
        assert_eq!(&*lines.file, file);
        let text: String = lines
            .lines
            .iter()
            .map(|row| format!("{} {}/{}\n", row.line, row.exclusive, row.inclusive))
            .collect();
        expect.assert_eq(&text);
    }

    #[test]
    fn a_line_counts_once_per_stack_and_includes_hidden_callees() {
        check_lines(
            CPU,
            "app.py",
            expect![[r#"
            3 0/30
            4 7/62
            10 0/30
            20 0/50
            21 0/5
        "#]],
        );
        let python = Selection { view: View::Python, ..CPU.selection };
        check_lines(
            Request { selection: python, ..CPU },
            "app.py",
            expect![[r#"
            3 0/30
            4 7/62
            10 30/30
            20 50/50
            21 5/5
        "#]],
        );
        let filter = Some(Pattern::new("!encode").unwrap());
        check_lines(
            Request { filter, ..CPU },
            "app.py",
            expect![[r#"
            4 7/12
            21 0/5
        "#]],
        );
        check_lines(CPU, "other.py", expect![[""]]);
    }

    fn flame(stacks: &str) -> String {
        show(&answer(&profile(stacks), &Request { fold_recursion: true, ..CPU }).flame)
    }

    #[test]
    fn repeated_call_sequences_are_folded() {
        expect![[r#"
            all 0/21 Root 
              a 0/21 Native 
                b 4/20 Native 
                  a 3/3 Native 
                  c 13/13 Native 
                d 1/1 Native 
        "#]]
        .assert_eq(&flame(
            "n a / n b 4
             n a / n b / n a 3
             n a / n b / n a / n b / n c 5
             n a / n b / n a / n b / n a / n b / n c 8
             n a / n a / n a / n d 1",
        ));
        // Repeated sequences are folded; similar ones stay.
        expect![[r#"
            all 0/1 Root 
              a 0/1 Native 
                b 0/1 Native 
                  a 0/1 Native 
                    c 1/1 Native 
        "#]]
        .assert_eq(&flame("n a / n b / n a / n c 1"));
        expect![[r#"
            all 0/1 Root 
              [unknown: x] 0/1 Unresolved 
                [unknown: x] 1/1 Unresolved 
        "#]]
        .assert_eq(&flame("? x / ? x 1"));
    }

    #[test]
    fn a_stack_of_ten_thousand_frames_works() {
        let deep = vec!["n f"; 10_000].join(" / ");
        let mut profile = profile(&format!("n main / {deep} 7"));
        for part in
            [TabRequest::Flame, TabRequest::Callers, TabRequest::Table, TabRequest::Source("f.c".into())]
        {
            let snapshot = answer(&profile, &Request { part, ..CPU });
            assert_eq!(snapshot.flame.nodes.len(), 10_002);
        }
        assert_eq!(answer(&profile, &Request { fold_recursion: true, ..CPU }).flame.nodes.len(), 3);
        // Many functions that recur as deep are cut at the bound, with a box that says so.
        for n in 0..20 {
            let leaf = profile.text(&format!("leaf_{n}"));
            let leaf = profile.frame(crate::Frame::Operator { name: leaf });
            let bottom = NodeId::from_number(10_001);
            let node = profile.tree.child(bottom, leaf);
            profile.tree.add(node, Metric::CpuTime, 1);
        }
        let snapshot = answer(&profile, &Request { part: TabRequest::Callers, ..CPU });
        let tree = callers(&snapshot);
        assert!(tree.nodes.len() < 110_000);
        assert!(tree.nodes.iter().any(|node| node.label.starts_with("[callers not shown")));
        assert_eq!(tree.nodes.iter().map(|node| node.exclusive).sum::<u64>(), 27);
    }

    #[test]
    fn values_since_a_mark_are_separated_from_those_before() {
        let mut profile = profile("P a-1 / n f 10\nP a-1 / n g 30");
        let mut viewer = Viewer::new();
        let request = Request { mark: 1, since_mark: true, part: TabRequest::Table, ..CPU };
        let header = || Header { elapsed: Nanos(5), ..Header::default() };
        let first = viewer.snapshot(&profile, &request, header(), Resolution::default());
        assert_eq!((first.flame.nodes[0].inclusive, first.flame.nodes[0].before), (0, 40));

        profile.merge(&crate::testing::profile("P a-1 / n f 25\nP a-1 / n h 1"));
        let second = viewer.snapshot(&profile, &request, Header::default(), Resolution::default());
        let boxes: Vec<_> = second
            .flame
            .nodes
            .iter()
            .map(|node| (node.label.as_str(), node.inclusive, node.before))
            .collect();
        assert_eq!(boxes, [("all", 26, 40), ("a-1", 26, 40), ("f", 25, 10), ("h", 1, 0)]);
        assert_eq!(
            second.since,
            Some(Baseline { at: Nanos(5), before: 40, count_before: 2, count_since: 2 })
        );
        let TabData::Table(table) = &second.extra else { panic!("no table") };
        assert_eq!(table.rows.iter().map(|row| row.exclusive).collect::<Vec<_>>(), [25, 1]);

        let all = viewer.snapshot(
            &profile,
            &Request { since_mark: false, ..request.clone() },
            header(),
            Resolution::default(),
        );
        assert_eq!((all.flame.nodes[0].inclusive, all.since), (66, None));
        let again =
            viewer.snapshot(&profile, &Request { mark: 2, ..request }, header(), Resolution::default());
        assert_eq!((again.flame.nodes[0].inclusive, again.flame.nodes[0].before), (0, 66));
    }

    #[test]
    fn the_table_has_every_metric() {
        let mut profile = profile("P a-1 / n f 10");
        grow(&mut profile, &[(vec![0, 8], 3)], Metric::OffCpuTime);
        let snapshot = answer(&profile, &Request { part: TabRequest::Table, ..CPU });
        let TabData::Table(table) = snapshot.extra else { panic!("no table") };
        assert_eq!(table.others.iter().map(|it| it.metric).collect::<Vec<_>>(), ["off-cpu-time"]);
        assert_eq!((table.rows[0].exclusive, &table.rows[0].others[..]), (10, &[(3, 3)][..]));
        let metrics: Vec<_> = snapshot.metrics.iter().map(|it| (it.metric.name(), it.total)).collect();
        assert_eq!(metrics, [("cpu-time", 10), ("off-cpu-time", 3)]);
    }

    #[test]
    fn lanes_are_processes_with_their_threads_hottest_first() {
        let mut profile = profile("P a-1 / T a/1 1\nP a-1 / T b/2 1\nP b-2 / T b/2 1");
        let add = |profile: &mut Profile, node: u32, at: u64, value| {
            profile.timeline.add(NodeId::from_number(node), Metric::CpuTime, Nanos(at), value);
        };
        // Nodes in order of creation: a-1, a/1, b/2 below it, b-2, b/2 below that.
        add(&mut profile, 2, 0, 5);
        add(&mut profile, 3, 100_000_000, 9);
        add(&mut profile, 5, 0, 1);
        let check = |group_by, expected: &[(&str, u64, &[u64])]| {
            let selection = Selection { group_by, ..CPU.selection };
            let request = Request { selection, part: TabRequest::Timeline, ..CPU };
            let TabData::Timeline(timeline) = answer(&profile, &request).extra else { panic!("no timeline") };
            let lanes: Vec<_> = timeline
                .lanes
                .iter()
                .map(|lane| (lane.label.as_str(), lane.total, &lane.values[..]))
                .collect();
            assert_eq!(lanes, expected);
        };
        check(GroupBy::Process, &[("a-1", 14, &[5, 9]), ("b-2", 1, &[1])]);
        check(
            GroupBy::Thread,
            &[
                ("a-1", 14, &[5, 9]),
                ("b/2", 9, &[0, 9]),
                ("a/1", 5, &[5]),
                ("b-2", 1, &[1]),
                ("b/2", 1, &[1]),
            ],
        );
    }

    #[test]
    fn the_overview_has_the_busiest_threads_and_streams() {
        let threads: Vec<String> = (1..=8).map(|tid| format!("P a-1 / T t/{tid} 1")).collect();
        let mut profile = profile(&threads.join("\n"));
        // The process is node 1; its threads follow.
        for node in 2..=9 {
            let value = u64::from(node);
            profile.timeline.add(NodeId::from_number(node), Metric::CpuTime, Nanos(0), value);
        }
        for metric in [Metric::GpuTime, Metric::OffCpuTime] {
            profile.timeline.add(NodeId::from_number(2), metric, Nanos(0), 50);
        }
        let snapshot = answer(&profile, &Request { part: TabRequest::Overview, ..CPU });
        let TabData::Overview(overview) = snapshot.extra else { panic!("no overview") };
        let lanes: Vec<_> =
            overview.timeline.lanes.iter().map(|lane| (lane.label.as_str(), lane.total)).collect();
        let expect = [("t/8", 9), ("t/7", 8), ("t/6", 7), ("t/5", 6), ("t/4", 5), ("t/3", 4), ("t/1", 50)];
        assert_eq!(lanes, expect);
    }

    #[test]
    fn parts_of_the_machine_have_lanes_without_a_sum() {
        let mut profile = profile("P a-1 / T a/1 1\nm machine / m cpu 0 1\nm machine / m cpu 1 1");
        for (node, value) in [(2, 5), (4, 7), (5, 9)] {
            profile.timeline.add(NodeId::from_number(node), Metric::CpuTime, Nanos(0), value);
        }
        let request = Request { part: TabRequest::Timeline, ..CPU };
        let TabData::Timeline(timeline) = answer(&profile, &request).extra else { panic!("no timeline") };
        let lanes: Vec<_> = timeline.lanes.iter().map(|lane| (lane.label.as_str(), lane.total)).collect();
        assert_eq!(lanes, [("[cpu 1]", 9), ("[cpu 0]", 7), ("a-1", 5)]);
    }

    #[test]
    fn an_hour_of_idle_capture_is_shown() {
        let mut profile = profile("P a-1 / T a/1 1");
        profile.timeline.add(NodeId::from_number(2), Metric::CpuTime, Nanos(0), 5);
        profile.timeline.add(NodeId::from_number(2), Metric::CpuTime, Nanos(300_000_000), 7);
        let header = Header { elapsed: Nanos(3_600_000_000_000), ..Header::default() };
        let request = Request { part: TabRequest::Timeline, ..CPU };
        let snapshot = Viewer::new().snapshot(&profile, &request, header, Resolution::default());
        let TabData::Timeline(timeline) = snapshot.extra else { panic!("no timeline") };
        assert_eq!((timeline.window, timeline.windows), (Nanos(12_800_000_000), 282));
        assert_eq!(timeline.lanes[0].values, [12]);
    }

    proptest! {
        #[test]
        fn every_tree_holds_every_value_once(
            stacks in stacks(), later in stacks(), selection in selections(), fold_recursion: bool,
        ) {
            let mut profile = profile("");
            grow(&mut profile, &stacks, Metric::CpuTime);
            let mut viewer = Viewer::new();
            let part = TabRequest::Callers;
            let request = Request { fold_recursion, part, mark: 1, since_mark: true, ..Request::select(selection) };
            viewer.snapshot(&profile, &request, Header::default(), Resolution::default());
            let before = profile.tree.total(Metric::CpuTime).sum;
            grow(&mut profile, &later, Metric::CpuTime);
            let snapshot = viewer.snapshot(&profile, &request, Header::default(), Resolution::default());
            let since = profile.tree.total(Metric::CpuTime).sum - before;
            for tree in [&snapshot.flame, callers(&snapshot)] {
                prop_assert_eq!(tree.nodes.iter().map(|node| node.exclusive).sum::<u64>(), since);
                prop_assert_eq!((tree.nodes[0].inclusive, tree.nodes[0].before), (since, before));
                for (place, node) in tree.nodes.iter().enumerate() {
                    prop_assert!(place == 0 || (node.parent as usize) < place);
                    let below: u64 = node.children.iter().map(|&child| tree.nodes[child as usize].inclusive).sum();
                    prop_assert_eq!(node.inclusive, node.exclusive + below);
                    let child = |child: &u32| &tree.nodes[*child as usize];
                    let children = || node.children.iter().map(child);
                    let percent = |child: &FlameNode| child.inclusive * 100 / since.max(1);
                    let in_order = if std::ptr::eq(tree, &raw const snapshot.flame) {
                        children().is_sorted_by_key(|child| &child.label)
                    } else {
                        children().is_sorted_by_key(|child| std::cmp::Reverse(percent(child)))
                    };
                    prop_assert!(in_order);
                }
            }
            // Matching and other stacks together are all stacks.
            let filtered = |pattern: &str| {
                let filter = Some(Pattern::new(pattern).unwrap());
                answer(&profile, &Request { filter, ..Request::select(selection) }).flame.nodes[0].inclusive
            };
            prop_assert_eq!(filtered("f") + filtered("!f"), since + before);
        }

        #[test]
        fn lines_sum_up_to_the_cost_of_their_file(stacks in stacks(), selection in selections()) {
            let mut profile = profile("");
            grow(&mut profile, &stacks, Metric::CpuTime);
            let part = TabRequest::Source(Arc::from("m.py"));
            let snapshot = answer(&profile, &Request { part, ..Request::select(selection) });
            let TabData::Source(lines) = snapshot.extra else { panic!("no source") };
            let total = profile.tree.total(Metric::CpuTime).sum;
            prop_assert!(lines.lines.iter().map(|row| row.exclusive).sum::<u64>() <= total);
            for row in &lines.lines {
                prop_assert!(row.exclusive <= row.inclusive && row.inclusive <= total);
            }
            prop_assert!(selection.view != View::Native || lines.lines.is_empty());
        }
    }
}
