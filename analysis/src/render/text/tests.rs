use expect_test::{Expect, expect};

use deepctx_profile::frame::Frame;
use deepctx_profile::ledger::{Account, Reason, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::View;

use super::*;
use crate::{Selection, Subset};

fn profile(lines: &str) -> Profile {
    deepctx_profile::text::parse(lines).unwrap()
}

fn report(profile: &Profile, rows: usize) -> Report {
    let selection = Selection { rows, ..Selection::of(Metric::CpuTime) };
    Report::compute(&Subset::new(profile, &selection), Nanos(0))
}

fn check(profile: &Profile, expect: Expect) {
    let mut out = Vec::new();
    write_to_depth(&report(profile, 3), 3, Names::Short, &mut out).unwrap();
    expect.assert_eq(&String::from_utf8(out).unwrap());
}

/// The tables from the one with this title to the losses.
fn check_tables(profile: &Profile, rows: usize, title: &str, expect: Expect) {
    let mut out = Vec::new();
    write_all(&report(profile, rows), Names::Short, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let start = text.find(&format!("\n{title}")).unwrap();
    expect.assert_eq(&text[start + 1..text.find("\nLosses and gaps").unwrap()]);
}

#[test]
fn text_report_shows_where_time_went_and_what_was_lost() {
    let mut profile = profile(
        "P python3-7 / n _start@python3 / y /srv/a/very/long/path/to/some/where/in/the/tree/train.py:main:9 / y /a/train.py:run:20 / y /a/train.py:epoch:21 / y /a/train.py:step:30 / o aten::addmm / n gemm@/l/libmkl.so 5000000000
         P python3-7 / n _start@python3 / y /srv/a/very/long/path/to/some/where/in/the/tree/train.py:main:9 / n read@/l/libc.so / k vfs_read 40000000
         P python3-7 / n std::vector<std::pair<std::string, std::map<int, std::string>>>::emplace_back<std::string> 7000000",
    );
    profile.meta.host = "gpu-1".to_owned();
    for stage in [Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute] {
        profile.ledger.stage_mut(stage).pass(3);
    }
    profile.ledger.stage_mut(Stage::Decode).received += 1;
    profile.ledger.dropped(Stage::Decode, Reason::new("short-record", "the record is too short"), 1);
    profile.ledger.gap(Stage::Resolve, Reason::new("no-row", "the unwind table has no row for this PC"), 1);
    check(
        &profile,
        expect![[r#"
            cpu-time of python train.py (pid 7) on gpu-1
            5.05 s in 3 values, 99 Hz per CPU, 11 calling contexts

            Findings, by what could be won at most
                   ?  25% of all records were lost, most of them in stage decode: do not trust small differences
                       lost-events: Sample less often (--freq), record fewer…unch-stacks 100/s); docs/loss.md explains each reason.

            Hottest functions
                self   total  function                   where
               99.1%   99.1%  gemm                       /l/libmkl.so
                0.8%    0.8%  vfs_read_[k]
                0.1%    0.1%  std::vector::emplace_back

            Hottest contexts, innermost call first
               99.1%   5.00 s  gemm
                                 aten::addmm
                                 train.py:step
                                 … 3 more frames
                                 python3-7
                0.8%  40.0 ms  vfs_read_[k]
                                 read
                                 train.py:main
                                 python3-7
                0.1%  7.00 ms  std::vector::emplace_back
                                 python3-7

            Losses and gaps
              1 of 4 records lost (25.00%)
              66.66% of stacks complete
              Act: lost records
                decode     short-record                   1  lost  the record is too short
                           → only damaged or foreign captures show this
              Worth knowing: incomplete records, small losses
                resolve    no-row                         1  gap   the unwind table has no row for this PC
                           → hand-written assembler without CFI, or code made at run time
        "#]],
    );
}

#[test]
fn one_lost_of_a_million_is_counted_and_worth_knowing() {
    let mut profile = profile("P a-1 / n f 1");
    let reason = Reason::new("short-record", "the record is too short");
    *profile.ledger.stage_mut(Stage::Decode) = Account { received: 1_000_000, ..Account::default() };
    profile.ledger.dropped(Stage::Decode, reason, 1);
    let mut out = Vec::new();
    write_all(&report(&profile, 3), Names::Short, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (_, rows) = text.split_once(Level::WorthKnowing.title()).unwrap();
    let row: Vec<&str> = rows.trim_start().lines().next().unwrap().split_whitespace().take(4).collect();
    assert_eq!(row, ["decode", "short-record", "1", "lost"]);
    assert!(text.contains("1 of 1000000 records lost") && !text.contains(Level::Act.title()), "{text}");
}

#[test]
fn phases_and_training_steps_stand_together() {
    let mut profile = profile(
        "P python3-7 / y /a/train.py:main:9 / y /v/torch/utils/data/dataloader.py:Iter.__next__ 100000000
         P python3-7 / y /a/train.py:main:10 / y /v/torch/nn/modules/module.py:Module._call_impl 300000000
         P python3-7 / y /a/train.py:main:11 / y /v/torch/_tensor.py:Tensor.backward 500000000
         P python3-7 / y /a/train.py:main:12 / r Optimizer.step#SGD.step / y /v/torch/optim/sgd.py:SGD.step 100000000",
    );
    let range = profile.tree.cells(Metric::CpuTime).find_map(|(node, _)| {
        let parent = profile.tree.node(node).parent;
        let frame = profile.frames.get(profile.tree.node(parent).frame);
        matches!(frame, Frame::Range { .. }).then_some(parent)
    });
    for took in [10_000_000, 12_000_000] {
        profile.tree.add(range.unwrap(), Metric::RangeTime, took);
    }
    profile.tree.add(range.unwrap(), Metric::StepTime, 250_000_000);
    check_tables(
        &profile,
        10,
        "Phases",
        expect![[r#"
        Phases, over 1 training step
                        cpu-time  phase
                  100 ms   10.0%  data loading
                  300 ms   30.0%  forward
                  500 ms   50.0%  backward
                  100 ms   10.0%  optimizer

        Training steps, from the end of one to the end of the next
             steps      mean   deviation       least        most  name and where it is entered
                 1    250 ms        0 ns      250 ms      250 ms  Optimizer.step#SGD.step  train.py:main:12

        Ranges that the program names, without those within them
             times      mean   deviation       least        most  name and where it is entered
                 2   11.0 ms     1.00 ms     10.0 ms     12.0 ms  Optimizer.step#SGD.step  train.py:main:12
    "#]],
    );
}

#[test]
fn training_steps_have_percentiles_where_they_are_known() {
    let mut profile = profile("P python3-7 / y /a/train.py:main:12 / r step 100000000");
    let (place, _) = profile.tree.cells(Metric::CpuTime).next().unwrap();
    for took in [10_000_000, 10_000_000, 10_000_000, 20_000_000] {
        profile.add_step(place, Nanos(took));
    }
    let mut out = Vec::new();
    write_all(&report(&profile, 10), Names::Short, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let words = |from: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(from)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(words("steps")[..6], ["steps", "mean", "deviation", "p50", "p95", "least"]);
    // The middle of what is left of a bucket: from the shortest step to its end, from its begin to the longest step.
    assert_eq!(words("4 ")[5..9], ["10.2", "ms", "20.0", "ms"]);
    let mut out = Vec::new();
    write(&report(&profile, 10), Names::Short, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("step: 4, mean 12.5 ms, p50 10.2 ms, p95 20.0 ms, longest 20.0 ms"), "{text}");
}

#[test]
fn figures_of_steps_stay_beside_long_names() {
    let (name, function) = ("Optimizer.step#".repeat(9), "function_".repeat(9));
    let mut profile = profile(&format!("P python3-7 / y /a/train.py:{function}:12 / r {name} 100000000"));
    let (place, _) = profile.tree.cells(Metric::CpuTime).next().unwrap();
    (0..12_345).for_each(|_| profile.add_step(place, Nanos(81_400_000)));
    let mut out = Vec::new();
    write(&report(&profile, 10), Names::Short, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let line = text.lines().find(|line| line.starts_with("Steps ")).unwrap();
    let figures = ": 12345, mean 81.4 ms, p50 81.4 ms, p95 81.4 ms, longest 81.4 ms, at …";
    assert!(line.contains(figures) && line.ends_with("function_:12"), "{line}");
    assert!(line.chars().count() <= 118, "{line}");
}

#[test]
fn an_empty_profile_says_so() {
    check(
        &profile(""),
        expect![[r#"
            cpu-time of python train.py (pid 7)
            0 ns in 0 values, 99 Hz per CPU, 0 calling contexts

            Findings, by what could be won at most
              none: 0 rules checked, 54 without their input (deepctx-bpf analyze)

            Hottest functions
              there are no values of cpu-time

            Losses and gaps
              no records were counted
        "#]],
    );
}

#[test]
fn a_ledger_that_does_not_add_up_is_shown() {
    let mut profile = profile("P a-1 / n f 1");
    profile.ledger.stage_mut(Stage::Decode).received = 2;
    let mut out = Vec::new();
    write(&report(&profile, 10), Names::Short, &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("THE LEDGER DOES NOT ADD UP: stage decode: received 2"));
}

#[test]
fn long_texts_keep_what_tells_them_apart() {
    assert_eq!(without_middle("abcdefghij", 7), "abc…hij");
    assert_eq!(without_start("/a/b/train.py:12", 12), "…train.py:12");
    assert_eq!(without_start("ééé", 3), "ééé");
}

#[test]
fn a_fusion_lists_all_its_operators() {
    check_tables(
        &profile(crate::tables::compiled::tests::RUN),
        2,
        "Compiled",
        expect![[r#"
            Compiled code, by what it was compiled from
               55.6%  xla jit_step  fusion.1  /a/net.py:8
                      jit(step)/mul [fused: exp]
               33.3%  [no module]
                      xla::cpu::DotThunk
                6.7%  … 2 more
        "#]],
    );
}

#[test]
fn instructions_stand_below_their_kernel() {
    check_tables(
        &crate::tables::instructions::tests::sampled(),
        10,
        "Instructions",
        expect![[r#"
            Instructions with most samples, and what their warps waited for
              100.0%       100  [gpu] gemm
                 80.0%      +0x10  long_scoreboard 75.0%, wait 25.0%  /src/gemm.cu:7
                                   waits for +0x0 (/src/gemm.cu:6) (modelled)
                                   waits for [unknown: producer-before-block] (modelled)
                 20.0%      +0x40  selected 100.0%
        "#]],
    );
}

#[test]
fn holders_of_memory_stand_below_its_peak() {
    check_tables(
        &crate::tables::memory::tests::profile(),
        2,
        "Memory",
        expect![[r#"
            Memory at its peak
              process 7, cuda:0
                600 MiB at 3.20 s: most at a time, of 800 MiB that the allocator held (25.0% unused); 12 allocations of 1.00 GiB in all
                the allocator held 900 MiB at most; 500 MiB of it were unused at 4.00 s
                2.4% more were given out than asked for
                100 MiB of the most were allocated before the capture
                 50.0%    300 MiB  train.py:load:3 ▸ aten::empty
                 26.7%    160 MiB  train.py:step:3 ▸ aten::linear ▸ aten::addmm
                … 1 more place
        "#]],
    );
}

/// A profile with something in every table, and more phases and functions than fit.
fn full() -> Profile {
    let mut lines = String::new();
    for n in 0..40 {
        lines += &format!("P python3-7 / T py/7 / y /a/train.py:main:{n} / n function_{n} 10000000\n");
    }
    for (name, n) in
        [("spin", 300), ("fault", 200), ("collect", 100), ("import", 900), ("log", 100), ("save", 100)]
    {
        let frames = match name {
            "spin" => "n gomp_barrier_wait",
            "fault" => "k exc_page_fault",
            "collect" => "n gc_collect_main",
            "import" => "y <frozen importlib._bootstrap>:_find_and_load",
            "log" => "y /lib/python3.11/logging/__init__.py:info",
            _ => "y /v/torch/serialization.py:save",
        };
        lines += &format!("P python3-7 / T py/7 / {frames} 10000000\n").repeat(n);
    }
    for part in [
        "/v/torch/_tensor.py:Tensor.backward",
        "/v/torch/optim/sgd.py:SGD.step",
        "/v/torch/nn/modules/module.py:_call_impl",
        "/v/torch/utils/data/dataloader.py:__next__",
        "/v/torch/_dynamo/convert_frame.py:compile",
        "/a/t.py:evaluate",
    ] {
        lines += &format!("P python3-7 / T py/7 / y {part} / o aten::mm / n gemm 10000000\n");
    }
    lines +=
        "P python3-7 / T py/7 / o [inductor cpp_fused_0] / y /a/t.py:f:3 / o aten::mul / n kernel 10000000\n";
    let mut profile = profile(&lines);
    let path = profile.text("Net.h");
    let layer = profile.frame(Frame::Layer { path, class: path });
    let range = text_frame(&mut profile, "r epoch");
    for metric in [Metric::RangeTime, Metric::StepTime, Metric::CpuTime, Metric::OffCpuTime, Metric::GpuTime]
    {
        profile.add(&[layer, range], metric, 5_000_000);
    }
    profile
        .gpu
        .processes
        .push(deepctx_profile::device::activity::GpuProcess { pid: 7, ..Default::default() });
    profile.ledger.stage_mut(Stage::Decode).received = 4;
    profile.ledger.dropped(Stage::Decode, Reason::new("short-record", "the record is too short"), 4);
    profile
}

fn text_frame(profile: &mut Profile, frame: &str) -> deepctx_profile::FrameId {
    deepctx_profile::text::parse_frame(profile, frame).unwrap()
}

#[test]
fn the_short_report_fits_one_screen() {
    let mut profile = full();
    let memory = crate::tables::memory::tests::profile();
    let sampled = crate::tables::instructions::tests::sampled();
    profile.merge(&memory);
    profile.merge(&sampled);
    let cpu = ["m machine", "m cpu 0"].map(|frame| text_frame(&mut profile, frame));
    let node = profile.add(&cpu, Metric::CpuBusyTime, 500_000_000);
    profile.timeline.add_span(node, Metric::CpuBusyTime, Nanos(0), Nanos(1_000_000_000), 500_000_000);
    profile.meta.kept = Some(KeptWindow { because: "signal".to_owned(), ..KeptWindow::default() });
    let mut out = Vec::new();
    write(&report(&profile, 20), Names::Short, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().count() <= 45, "{} lines:\n{text}", text.lines().count());
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    for part in [
        "Findings",
        "more finding",
        "Phases",
        "Hottest functions",
        "Layers",
        "Steps",
        "epoch: 1, mean 5.00 ms",
        "epoch: 1, own time: mean 5.00 ms",
        "Peak memory",
        "Machine        all cpus cpu-busy-time ",
        "Quality: ",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn quality_speaks_of_stacks_and_never_rounds_up() {
    let check = |cut: u64, expect: &str| {
        let mut profile = profile("P a-1 / n f 1");
        profile.ledger.stage_mut(Stage::Attribute).pass(100_000);
        // Records without a stack do not count: here mappings.
        profile.ledger.gap(
            Stage::Kernel,
            Reason::new("mapping-without-rows", "walked by frame pointers"),
            900,
        );
        profile.ledger.gap(Stage::Resolve, Reason::new("no-mapping", "unknown"), cut);
        let mut out = Vec::new();
        write(&report(&profile, 20), Names::Short, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let said = text.lines().find_map(|line| line.strip_prefix("Quality: none of 100000 records lost, "));
        assert_eq!(said, Some(expect), "{text}");
    };
    check(0, "100.00% of stacks complete. All tables: report --all");
    check(3, "99.99% of stacks complete (most others: no-mapping). All tables: report --all");
}

#[test]
fn threads_that_wait_for_no_call_are_apart_in_contexts() {
    let profile = profile(
        "P a-1 / n clone3 / u /l/libgomp.so.1+0x10 / u /l/libgomp.so.1+0x20 6000000
         P a-1 / n clone3 / n gomp_thread_start / n gomp_barrier_wait_end 3000000
         P a-1 / y t.py:f / n gomp_barrier_wait_end 1000000",
    );
    check_tables(
        &profile,
        3,
        "Hottest contexts",
        expect![[r#"
            Hottest contexts, innermost call first
               60.0%  6.00 ms  libgomp.so.1+0x20
                                 libgomp.so.1+0x10
                                 [spinning]
                                 a-1
               30.0%  3.00 ms  gomp_barrier_wait_end
                                 [spinning]
                                 a-1
               10.0%  1.00 ms  gomp_barrier_wait_end
                                 t.py:f
                                 a-1
        "#]],
    );
    let contexts = &report(&profile, 3).contexts.rows;
    assert_eq!(contexts[1].frames, ["a-1", "clone3", "gomp_thread_start", "gomp_barrier_wait_end"]);
}

#[test]
fn calls_that_a_view_hides_still_wait() {
    let profile = profile("P a-1 / y t.py:f / n gomp_barrier_wait_end 1000000");
    for view in [View::Full, View::Native] {
        let mut selection = Selection { rows: 3, ..Selection::of(Metric::CpuTime) };
        selection.shown.view = view;
        let rows = crate::Contexts::compute(&Subset::new(&profile, &selection)).rows;
        let mut out = Vec::new();
        contexts(&rows, 3, Names::Short, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.contains("gomp_barrier_wait_end") && !shown.contains("[spinning]"), "{shown}");
    }
}

#[test]
fn functions_that_differ_late_differ_in_both_forms() {
    let types = "at::Long, ".repeat(10);
    let name = |of: &str| format!("void at::native::loop<{types}at::Fill<{of}> >(int)");
    let [float, double] = ["float", "double"].map(name);
    let lines = |of: &str, times: usize| format!("P a-1 / n {of} 10000000\n").repeat(times);
    let profile = profile(&(lines(&float, 60) + &lines(&double, 40)));
    let shown = |names| {
        let mut out = Vec::new();
        write_all(&report(&profile, 10), names, &mut out).unwrap();
        write(&report(&profile, 10), names, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let (short, full) = (shown(Names::Short), shown(Names::Full));
    assert!(!short.contains(&float), "{short}");
    assert!(short.contains("at::native::loop<… float> takes 60% of cpu-time by itself"), "{short}");
    for of in ["float", "double"] {
        assert!(short.matches(&format!("… {of}>")).count() >= 3, "{short}");
        assert!(full.matches(&name(of)).count() >= 3, "{full}");
    }
}
