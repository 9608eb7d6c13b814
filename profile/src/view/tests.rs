use std::num::NonZeroU32;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::export::folded;
use crate::frame::{Frame, Origin, Role};
use crate::intern::{FrameId, StrId};
use crate::profile::{Limits, Meta, Profile};
use crate::snapshot::FlameTree;

/// A profile from lines like `P python3-7 / T main/7 / y a.py:f:12 / n add@libm.so 30`: one letter for the kind of
/// frame, its text, and a value of `cpu-time` at the end.
pub(crate) fn profile(lines: &str) -> Profile {
    let meta = Meta { target: "python train.py (pid 7)".to_owned(), frequency_hz: 99, ..Meta::default() };
    let mut profile = Profile::new(meta, Limits::default());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (path, value) = line.rsplit_once(' ').unwrap();
        let stack: Vec<FrameId> = path
            .split(" / ")
            .map(|part| {
                let frame = frame(&mut profile, part);
                profile.frame(frame)
            })
            .collect();
        profile.add(&stack, Metric::CpuTime, value.parse().unwrap());
    }
    profile
}

fn frame(profile: &mut Profile, part: &str) -> Frame {
    let (kind, text) = part.trim().split_once(' ').unwrap();
    let number = |text: &str| text.parse().unwrap();
    let (name, module) = text.split_once('@').unwrap_or((text, ""));
    let (name, module) = (profile.text(name), profile.text(module));
    match kind {
        "P" => {
            let (comm, pid) = text.rsplit_once('-').unwrap();
            Frame::Process { comm: profile.text(comm), pid: number(pid) }
        }
        "T" => {
            let (name, tid) = text.rsplit_once('/').unwrap();
            Frame::Thread { name: profile.text(name), tid: number(tid) }
        }
        "y" => {
            let mut parts = text.split(':');
            let file = profile.text(parts.next().unwrap());
            let function = profile.text(parts.next().unwrap());
            let line = parts.next().and_then(|line| NonZeroU32::new(number(line)));
            Frame::Python { function, file, line, first_line: NonZeroU32::new(1), role: Role::Code }
        }
        "n" | "i" => {
            let role = if kind == "i" { Role::Interpreter } else { Role::Code };
            Frame::Native { symbol: name, module, file: StrId::EMPTY, line: None, inlined: false, role }
        }
        "k" => Frame::Kernel { symbol: name },
        "o" => Frame::Operator { name },
        "r" => Frame::Range { name },
        "a" => Frame::GpuApi { name },
        "s" => {
            let (device, stream) = text.split_once('/').unwrap();
            Frame::Stream { device: number(device), stream: Some(number(stream)), name: StrId::EMPTY }
        }
        "g" => Frame::GpuKernel { name },
        "?" => Frame::Unresolved { reason: name, origin: Origin::Native },
        other => panic!("no kind of frame `{other}`"),
    }
}

const TRAINING: &str = "
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / y /a/train.py:step:30 / o aten::addmm / n gemm@/l/libmkl.so 500
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / y /a/train.py:step:31 / o aten::addmm / n gemm@/l/libmkl.so 200
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / n read@/l/libc.so / k vfs_read 40
    P python3-7 / T pt_data/8 / n clone@/l/libc.so / i eval@python3 / y /a/data.py:load:5 / y /a/data.py:load:6 60
    P python3-7 / T pt_data/8 / ? no-row / n memcpy@/l/libc.so 7
";

fn check(selection: Selection, expect: Expect) {
    let mut out = Vec::new();
    folded::write(&profile(TRAINING), &selection, &mut out).unwrap();
    expect.assert_eq(&String::from_utf8(out).unwrap());
}

const CPU: Selection = Selection::of(Metric::CpuTime);

#[test]
fn what_ran_on_a_device_stands_below_it_when_devices_are_told_apart() {
    let profile = profile(
        "P a-1 / T a/1 / y m.py:f / a cuLaunchKernel / s 0/7 / g gemm 5
         P a-1 / T a/1 / y m.py:f / a cuLaunchKernel / s 0/9 / g gemm 3
         P a-1 / T a/1 / y m.py:f / a cuLaunchKernel / s 1/7 / g gemm 2
         P a-1 / T a/1 / y m.py:f 100",
    );
    let check = |group_by, expect: Expect| {
        let mut out = Vec::new();
        folded::write(&profile, &Selection { group_by, ..CPU }, &mut out).unwrap();
        expect.assert_eq(&String::from_utf8(out).unwrap());
    };
    check(
        GroupBy::Process,
        expect![[r#"
        a-1;m.py:f 100
        a-1;m.py:f;cuLaunchKernel;[gpu] gemm 10
    "#]],
    );
    check(
        GroupBy::Device,
        expect![[r#"
        a-1;[device 0];m.py:f;cuLaunchKernel;[gpu] gemm 8
        a-1;[device 1];m.py:f;cuLaunchKernel;[gpu] gemm 2
        a-1;m.py:f 100
    "#]],
    );
    check(
        GroupBy::Stream,
        expect![[r#"
        a-1;[device 0, stream 7];m.py:f;cuLaunchKernel;[gpu] gemm 5
        a-1;[device 0, stream 9];m.py:f;cuLaunchKernel;[gpu] gemm 3
        a-1;[device 1, stream 7];m.py:f;cuLaunchKernel;[gpu] gemm 2
        a-1;m.py:f 100
    "#]],
    );
}

#[test]
fn the_full_view_shows_functions_of_all_languages_by_process() {
    check(
        CPU,
        expect![[r#"
        python3-7;[unknown: no-row];memcpy 7
        python3-7;_start;train.py:main;read;vfs_read_[k] 40
        python3-7;_start;train.py:main;train.py:step;aten::addmm;gemm 700
        python3-7;clone;data.py:load;data.py:load 60
    "#]],
    );
}

#[test]
fn the_python_view_gives_hidden_values_to_the_python_caller() {
    check(
        Selection { view: View::Python, ..CPU },
        expect![[r#"
        python3-7 7
        python3-7;data.py:load;data.py:load 60
        python3-7;train.py:main 40
        python3-7;train.py:main;train.py:step;aten::addmm 700
    "#]],
    );
}

#[test]
fn the_native_view_shows_the_interpreter_too() {
    check(
        Selection { view: View::Native, ..CPU },
        expect![[r#"
        python3-7;[unknown: no-row];memcpy 7
        python3-7;_start;eval;gemm 700
        python3-7;_start;eval;read;vfs_read_[k] 40
        python3-7;clone;eval 60
    "#]],
    );
}

#[test]
fn lines_threads_and_the_interpreter_are_shown_when_asked_for() {
    let selection = Selection { lines: true, group_by: GroupBy::Thread, interpreter: true, ..CPU };
    check(
        selection,
        expect![[r#"
        python3-7;pt_data/8;[unknown: no-row];memcpy 7
        python3-7;pt_data/8;clone;eval;data.py:load:5;data.py:load:6 60
        python3-7;python3/7;_start;eval;train.py:main:9;read;vfs_read_[k] 40
        python3-7;python3/7;_start;eval;train.py:main:9;train.py:step:30;aten::addmm;gemm 500
        python3-7;python3/7;_start;eval;train.py:main:9;train.py:step:31;aten::addmm;gemm 200
    "#]],
    );
}

#[test]
fn a_metric_without_values_folds_to_nothing() {
    check(Selection::of(Metric::GpuTime), expect![[""]]);
}

pub(crate) fn show(flame: &FlameTree) -> String {
    let mut text = String::new();
    let mut to_write = vec![(0usize, 0u32)];
    while let Some((depth, at)) = to_write.pop() {
        let node = &flame.nodes[at as usize];
        let pad = " ".repeat(depth * 2);
        text += &format!(
            "{pad}{} {}/{} {:?} {}\n",
            node.label, node.exclusive, node.inclusive, node.kind, node.detail
        );
        to_write.extend(node.children.iter().rev().map(|&child| (depth + 1, child)));
    }
    text
}

fn screen(profile: &Profile, selection: Selection) -> Screen {
    let mut screen = Screen::new(selection);
    screen.refresh(profile);
    screen
}

#[test]
fn the_flame_tree_has_sorted_children_and_places() {
    let profile = profile(TRAINING);
    expect![[r#"
        all 0/807 Root 
          python3-7 0/807 Process 
            [unknown: no-row] 0/7 Unresolved 
              memcpy 7/7 Native /l/libc.so
            _start 0/740 Native python3
              train.py:main 0/740 Python /a/train.py:1
                read 0/40 Native /l/libc.so
                  vfs_read_[k] 40/40 Kernel 
                train.py:step 0/700 Python /a/train.py:1
                  aten::addmm 0/700 Operator 
                    gemm 700/700 Native /l/libmkl.so
            clone 0/60 Native /l/libc.so
              data.py:load 0/60 Python /a/data.py:1
                data.py:load 60/60 Python /a/data.py:1
    "#]]
    .assert_eq(&show(&screen(&profile, CPU).flame(Grain::default())));
}

#[test]
fn boxes_below_the_least_share_are_left_out_and_stay_in_their_parents() {
    let profile = profile(TRAINING);
    let grain = Grain { least_share: 0.2, ..Grain::default() };
    expect![[r#"
        all 0/807 Root 
          python3-7 0/807 Process 
            _start 0/740 Native python3
              train.py:main 0/740 Python /a/train.py:1
                train.py:step 0/700 Python /a/train.py:1
                  aten::addmm 0/700 Operator 
                    gemm 700/700 Native /l/libmkl.so
    "#]]
    .assert_eq(&show(&screen(&profile, CPU).flame(grain)));
}

fn table(screen: &Screen, grain: Grain) -> String {
    let rows = screen.table(grain);
    rows.iter()
        .map(|r| format!("{} {} {} {:?} {}\n", r.exclusive, r.inclusive, r.label, r.kind, r.detail))
        .collect()
}

#[test]
fn a_function_that_recurs_counts_once_per_stack() {
    let profile = profile(TRAINING);
    expect![[r#"
        700 700 gemm Native /l/libmkl.so
        60 60 data.py:load Python /a/data.py:1
        40 40 vfs_read_[k] Kernel 
        7 7 memcpy Native /l/libc.so
        0 740 _start Native python3
        0 740 train.py:main Python /a/train.py:1
        0 700 aten::addmm Operator 
        0 700 train.py:step Python /a/train.py:1
        0 60 clone Native /l/libc.so
        0 40 read Native /l/libc.so
        0 7 [unknown: no-row] Unresolved 
    "#]]
    .assert_eq(&table(&screen(&profile, CPU), Grain::default()));
}

#[test]
fn two_functions_of_one_name_in_two_files_are_two_rows() {
    let profile = profile("P a-1 / y /x/utils.py:run 1\n P a-1 / y /y/utils.py:run 2");
    expect![[r#"
        2 2 utils.py:run Python /y/utils.py:1
        1 1 utils.py:run Python /x/utils.py:1
    "#]]
    .assert_eq(&table(&screen(&profile, CPU), Grain { rows: 2, ..Grain::default() }));
}

#[test]
fn an_empty_profile_gives_a_lone_root() {
    let profile = profile("");
    assert_eq!(show(&screen(&profile, CPU).flame(Grain::default())), "all 0/0 Root \n");
    assert_eq!(show(&Screen::new(CPU).flame(Grain::default())), "all 0/0 Root \n");
    assert!(screen(&profile, CPU).table(Grain::default()).is_empty());
}

#[test]
fn a_name_that_ends_in_a_number_cannot_be_taken_for_a_second_value() {
    let profile = profile("P a-1 / n odd 12 34");
    let mut out = Vec::new();
    folded::write(&profile, &CPU, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "a-1;odd_12 34\n");
}

#[test]
fn refused_frames_show_among_the_losses() {
    let mut profile = Profile::new(Meta::default(), Limits { nodes: 1, ..Limits::default() });
    profile.add(&[FrameId::TABLE_FULL], Metric::Samples, 1);
    let rows = losses(&profile);
    assert_eq!(
        (rows[0].stage.as_str(), rows[0].reason.as_str(), rows[0].count),
        ("attribute", "tree-full", 1)
    );
}

pub(crate) fn stacks() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    prop::collection::vec((prop::collection::vec(0u8..16, 0..10), 0u64..1000), 0..60)
}

pub(crate) fn grow(profile: &mut Profile, stacks: &[(Vec<u8>, u64)], metric: Metric) {
    const FRAMES: [&str; 16] = [
        "P a-1",
        "P b-2",
        "T a/1",
        "T b/2",
        "y m.py:f:1",
        "y m.py:f:2",
        "y n.py:f",
        "i eval",
        "n f",
        "n g h 5",
        "k f",
        "o f",
        "g f",
        "? f",
        "s 0/7",
        "s 1/7",
    ];
    for (stack, value) in stacks {
        let stack: Vec<FrameId> = stack
            .iter()
            .map(|&n| {
                let frame = frame(profile, FRAMES[n as usize]);
                profile.frame(frame)
            })
            .collect();
        profile.add(&stack, metric, *value);
    }
}

pub(crate) fn selections() -> impl Strategy<Value = Selection> {
    (0usize..3, any::<bool>(), 0usize..4, any::<bool>()).prop_map(|(view, lines, group_by, interpreter)| {
        Selection { view: View::ALL[view], lines, group_by: GroupBy::ALL[group_by], interpreter, ..CPU }
    })
}

proptest! {
    #[test]
    fn folded_totals_are_tree_totals_and_every_context_stands_once(stacks in stacks(), selection in selections()) {
        let mut profile = profile("");
        grow(&mut profile, &stacks, Metric::CpuTime);
        let mut out = Vec::new();
        folded::write(&profile, &selection, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<(&str, u64)> =
            text.lines().map(|l| l.rsplit_once(' ').unwrap()).map(|(s, v)| (s, v.parse().unwrap())).collect();
        prop_assert_eq!(lines.iter().map(|l| l.1).sum::<u64>(), profile.tree.total(Metric::CpuTime).sum);
        // What hangs on the root itself comes first, whatever the root is called.
        let contexts = lines.iter().filter(|l| l.0 != "all");
        let paths: Vec<Vec<&str>> = contexts.map(|l| l.0.split(';').collect()).collect();
        prop_assert!(paths.windows(2).all(|pair| pair[0] < pair[1]), "not sorted, or twice:\n{}", text);
    }

    #[test]
    fn the_flame_tree_and_the_table_hold_every_value_once(stacks in stacks(), selection in selections()) {
        let mut profile = profile("");
        grow(&mut profile, &stacks, Metric::CpuTime);
        let screen = screen(&profile, selection);
        let total = profile.tree.total(Metric::CpuTime).sum;
        let flame = screen.flame(Grain::default());
        prop_assert_eq!(flame.nodes.iter().map(|n| n.exclusive).sum::<u64>(), total);
        for (place, node) in flame.nodes.iter().enumerate() {
            prop_assert!(place == 0 || (node.parent as usize) < place);
            let below: u64 = node.children.iter().map(|&c| flame.nodes[c as usize].inclusive).sum();
            prop_assert_eq!(node.inclusive, node.exclusive + below);
            let labels: Vec<_> = node.children.iter().map(|&c| &flame.nodes[c as usize].label).collect();
            prop_assert!(labels.is_sorted());
        }
        for row in screen.table(Grain::default()) {
            prop_assert!(row.exclusive <= row.inclusive && row.inclusive <= total);
        }
    }

    #[test]
    fn a_screen_kept_up_to_date_equals_a_new_one(
        before in stacks(),
        after in stacks(),
        selection in selections(),
    ) {
        let mut profile = profile("");
        let mut kept = Screen::new(selection);
        grow(&mut profile, &before, Metric::CpuTime);
        kept.refresh(&profile);
        grow(&mut profile, &after, Metric::CpuTime);
        kept.refresh(&profile);
        let new = screen(&profile, selection);
        prop_assert_eq!(kept.flame(Grain::default()), new.flame(Grain::default()));
        prop_assert_eq!(kept.table(Grain::default()), new.table(Grain::default()));
    }
}
