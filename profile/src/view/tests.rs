use expect_test::expect;
use proptest::prelude::*;

use super::*;
use crate::context::selection::{GroupBy, View};
use crate::frame::WorkerKind;
use crate::intern::FrameId;
use crate::metric::Metric;
use crate::profile::{Limits, Meta, Profile};
use crate::testing::{grow, profile, selections, show, stacks};

const TRAINING: &str = "
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / y /a/train.py:step:30 / o aten::addmm / n gemm@/l/libmkl.so 500
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / y /a/train.py:step:31 / o aten::addmm / n gemm@/l/libmkl.so 200
    P python3-7 / T python3/7 / n _start@python3 / i eval@python3 / y /a/train.py:main:9 / n read@/l/libc.so / k vfs_read 40
    P python3-7 / T pt_data/8 / n clone@/l/libc.so / i eval@python3 / y /a/data.py:load:5 / y /a/data.py:load:6 60
    P python3-7 / T pt_data/8 / ? no-row / n memcpy@/l/libc.so 7
";

const CPU: Selection = Selection::of(Metric::CpuTime);

fn merged(profile: &Profile, selection: Selection) -> MergedTree {
    let mut tree = MergedTree::new(selection);
    tree.refresh(profile);
    tree
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
    .assert_eq(&show(&merged(&profile, CPU).flame(Resolution::default())));
}

#[test]
fn boxes_below_the_least_share_stay_in_their_parents() {
    let profile = profile(TRAINING);
    let resolution = Resolution { least_share: 0.2, ..Resolution::default() };
    expect![[r#"
        all 0/807 Root 
          python3-7 0/807 Process 
            _start 0/740 Native python3
              train.py:main 0/740 Python /a/train.py:1
                train.py:step 0/700 Python /a/train.py:1
                  aten::addmm 0/700 Operator 
                    gemm 700/700 Native /l/libmkl.so
    "#]]
    .assert_eq(&show(&merged(&profile, CPU).flame(resolution)));
}

fn table(tree: &MergedTree, resolution: Resolution) -> String {
    let rows = tree.table(resolution);
    rows.iter()
        .map(|r| format!("{} {} {} {:?} {}\n", r.exclusive, r.inclusive, r.label, r.kind, r.detail))
        .collect()
}

#[test]
fn a_recursive_function_counts_once_per_stack() {
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
    .assert_eq(&table(&merged(&profile, CPU), Resolution::default()));
}

#[test]
fn same_names_in_two_files_are_two_rows() {
    let profile = profile("P a-1 / y /x/utils.py:run 1\n P a-1 / y /y/utils.py:run 2");
    expect![[r#"
        2 2 utils.py:run Python /y/utils.py:1
        1 1 utils.py:run Python /x/utils.py:1
    "#]]
    .assert_eq(&table(&merged(&profile, CPU), Resolution { rows: 2, ..Resolution::default() }));
}

#[test]
fn an_empty_profile_gives_a_lone_root() {
    let profile = profile("");
    assert_eq!(show(&merged(&profile, CPU).flame(Resolution::default())), "all 0/0 Root \n");
    assert_eq!(show(&MergedTree::new(CPU).flame(Resolution::default())), "all 0/0 Root \n");
    assert!(merged(&profile, CPU).table(Resolution::default()).is_empty());
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

proptest! {
    #[test]
    fn the_flame_tree_and_the_table_hold_every_value_once(stacks in stacks(), selection in selections()) {
        let mut profile = profile("");
        grow(&mut profile, &stacks, Metric::CpuTime);
        let tree = merged(&profile, selection);
        let total = profile.tree.total(Metric::CpuTime).sum;
        let flame = tree.flame(Resolution::default());
        prop_assert_eq!(flame.nodes.iter().map(|n| n.exclusive).sum::<u64>(), total);
        for (place, node) in flame.nodes.iter().enumerate() {
            prop_assert!(place == 0 || (node.parent as usize) < place);
            let below: u64 = node.children.iter().map(|&c| flame.nodes[c as usize].inclusive).sum();
            prop_assert_eq!(node.inclusive, node.exclusive + below);
            let labels: Vec<_> = node.children.iter().map(|&c| &flame.nodes[c as usize].label).collect();
            prop_assert!(labels.is_sorted());
        }
        for row in tree.table(Resolution::default()) {
            prop_assert!(row.exclusive <= row.inclusive && row.inclusive <= total);
        }
    }

    #[test]
    fn a_refreshed_tree_equals_a_new_one(
        before in stacks(),
        after in stacks(),
        selection in selections(),
    ) {
        let mut profile = profile("");
        let mut kept = MergedTree::new(selection);
        grow(&mut profile, &before, Metric::CpuTime);
        kept.refresh(&profile);
        grow(&mut profile, &after, Metric::CpuTime);
        kept.refresh(&profile);
        let new = merged(&profile, selection);
        prop_assert_eq!(kept.flame(Resolution::default()), new.flame(Resolution::default()));
        prop_assert_eq!(kept.table(Resolution::default()), new.table(Resolution::default()));
    }
}

#[test]
fn threads_that_spin_for_nobody_stand_apart() {
    let profile = profile(
        "P a-1 / n clone / n gomp_thread_start / n gomp_team_barrier_wait_end / n do_spin 40
         P a-1 / n clone / n gomp_thread_start / n work 10
         P a-1 / y t.py:f:1 / n gomp_team_barrier_wait_end 5
         P a-1 / ? no-row / n gomp_team_barrier_wait_end 3",
    );
    let mut tree = MergedTree::new(CPU).with_spinning_apart();
    tree.refresh(&profile);
    expect![[r#"
        all 0/58 Root 
          a-1 0/58 Process 
            [spinning] 0/40 Kernel waits for other threads without giving up its CPU
              gomp_team_barrier_wait_end 0/40 Native 
                do_spin 40/40 Native 
            [unknown: no-row] 0/3 Unresolved 
              gomp_team_barrier_wait_end 3/3 Native 
            clone 0/10 Native 
              gomp_thread_start 0/10 Native 
                work 10/10 Native 
            t.py:f 0/5 Python t.py:1
              gomp_team_barrier_wait_end 5/5 Native 
    "#]]
    .assert_eq(&show(&tree.flame(Resolution::default())));
    let named: Vec<_> =
        tree.table(Resolution::default()).into_iter().map(|row| (row.label, row.inclusive)).collect();
    assert!(named.contains(&("gomp_team_barrier_wait_end".to_owned(), 48)), "{named:?}");
}

#[test]
fn idle_workers_of_a_stripped_runtime_stand_apart() {
    const WORKER: &str = "P a-1 / n clone3 / u /l/libc.so.6+0x1 / u /l/libgomp.so.1+0x10";
    let profile = profile(&format!(
        "{WORKER} / u /l/libgomp.so.1+0x20 40
         {WORKER} / u /l/libgomp.so.1+0x20 / k do_syscall_64 2
         {WORKER} / u /l/libgomp.so.1+0x20 / n task / n gemm 7
         {WORKER} / n main._omp_fn.0 10
         {WORKER} / n main._omp_fn.0 / u /l/libgomp.so.1+0x20 5
         P a-1 / n main / u /l/libgomp.so.1+0x20 3"
    ));
    let mut tree = MergedTree::new(CPU).with_spinning_apart();
    tree.refresh(&profile);
    expect![[r#"
        all 0/67 Root 
          a-1 0/67 Process 
            [spinning] 0/42 Kernel waits for other threads without giving up its CPU
              libgomp.so.1+0x10 0/42 Native /l/libgomp.so.1
                libgomp.so.1+0x20 40/42 Native /l/libgomp.so.1
                  do_syscall_64_[k] 2/2 Kernel 
            clone3 0/22 Native 
              libc.so.6+0x1 0/22 Native /l/libc.so.6
                libgomp.so.1+0x10 0/22 Native /l/libgomp.so.1
                  libgomp.so.1+0x20 0/7 Native /l/libgomp.so.1
                    task 0/7 Native 
                      gemm 7/7 Native 
                  main._omp_fn.0 10/15 Native 
                    libgomp.so.1+0x20 5/5 Native /l/libgomp.so.1
            main 0/3 Native 
              libgomp.so.1+0x20 3/3 Native /l/libgomp.so.1
    "#]]
    .assert_eq(&show(&tree.flame(Resolution::default())));
}

#[test]
fn kernel_frames_of_a_probe_are_one_box() {
    let profile = profile(
        "P a-1 / o aten::mm / k asm_exc_int3 / k uprobe_notify_resume / k bpf_prog_1_operator 30
         P a-1 / o aten::mm / k asm_exc_int3 / k irqentry_exit_to_user_mode 5
         P a-1 / o aten::mm / k asm_exc_page_fault 7
         P a-1 / n launch / k do_syscall_64 / k __x64_sys_uretprobe / k uprobe_handle_trampoline / g gemm 3",
    );
    let mut tree = MergedTree::new(CPU).with_probes_joined();
    tree.refresh(&profile);
    expect![[r#"
        all 0/45 Root 
          a-1 0/45 Process 
            aten::mm 0/42 Operator 
              [probes] 35/35 Kernel kernel code of probes: the cost of profiling
              asm_exc_page_fault_[k] 7/7 Kernel 
            launch 0/3 Native 
              do_syscall_64_[k] 0/3 Kernel 
                [probes] 0/3 Kernel kernel code of probes: the cost of profiling
                  [gpu] gemm 3/3 GpuKernel 
    "#]]
    .assert_eq(&show(&tree.flame(Resolution::default())));
    let rows = tree.table(Resolution::default());
    assert!(rows.iter().any(|row| row.label == "[probes]" && row.inclusive == 38), "{rows:?}");
}

const BACKWARD_PASS: &str = "
    P a-1 / T main/1 / y t.py:step:1 / y t.py:loss:2 / o aten::mm / n sgemm 30
    P a-1 / T main/1 / y t.py:step:1 / y t.py:loss:2 / o aten::mm / o [backward] / o MmBackward0 / n sgemm 40
    P a-1 / T main/1 / y t.py:step:1 / y t.py:loss:2 / o aten::mm / o [backward] / o MmBackward0 / o aten::mul / o [backward] / n dmul 5
    P a-1 / T main/1 / o [backward] / n lost 1";

#[test]
fn the_backward_pass_is_a_half_of_its_own() {
    let profile = profile(BACKWARD_PASS);
    let selection = Selection { group_by: GroupBy::Thread, ..CPU };
    let show = |tree: MergedTree| {
        let mut tree = tree;
        tree.refresh(&profile);
        show(&tree.flame(Resolution::default()))
    };
    expect![[r#"
        all 0/76 Root 
          a-1 0/76 Process 
            main/1 0/76 Thread 
              [backward] 0/46 Operator 
                lost 1/1 Native 
                t.py:step 0/45 Python t.py:1
                  t.py:loss 0/45 Python t.py:1
                    aten::mm 0/45 Operator 
                      MmBackward0 0/45 Operator 
                        aten::mul 0/5 Operator 
                          [backward] 0/5 Operator 
                            dmul 5/5 Native 
                        sgemm 40/40 Native 
              t.py:step 0/30 Python t.py:1
                t.py:loss 0/30 Python t.py:1
                  aten::mm 0/30 Operator 
                    sgemm 30/30 Native 
    "#]]
    .assert_eq(&show(MergedTree::new(selection).with_backward_apart()));
    let in_place = show(MergedTree::new(selection));
    assert_eq!(in_place.matches("t.py:loss").count(), 1, "{in_place}");
}

#[test]
fn hidden_time_says_whose_threads_it_is_of() {
    let profile = profile(
        "P a-1 / n clone / n gomp_thread_start / n sgemm 40
         P a-1 / n clone / n torch::autograd::Engine::thread_init(int) / n mul 7
         P a-1 / n clone / n gomp_thread_start / y t.py:callback:1 3
         P a-1 / n clone / n other 5
         P a-1 / y t.py:f:1 / n sgemm 10
         P b-2 / n other 5",
    );
    let check = |view, expect: &[(&str, Option<(WorkerKind, u64)>)]| {
        let mut tree = MergedTree::new(Selection { view, ..CPU });
        tree.refresh(&profile);
        let flame = tree.flame(Resolution::default());
        let found: Vec<_> = flame.nodes.iter().map(|node| (node.label.as_str(), node.workers)).collect();
        assert_eq!(found[..expect.len()], *expect);
        assert!(flame.nodes.iter().filter(|node| node.workers.is_some()).count() <= 1);
    };
    let of = Some((WorkerKind::OpenMp, 40));
    check(
        View::Python,
        &[("all", None), ("a-1", of), ("t.py:callback", None), ("t.py:f", None), ("b-2", None)],
    );
    check(View::Full, &[("all", None), ("a-1", None)]);
}
