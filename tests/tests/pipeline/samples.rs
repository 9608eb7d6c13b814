//! Instruction samples as a page of records → instructions below kernels, with stall reasons.

use crate::pipeline_support::{NamesInAddresses, ReplayStep, config, feed_damaged, losses, run, steps};
use deepctx_analysis::{Report, Subset, render};
use deepctx_pipeline::Pipeline;
use deepctx_pipeline::input::{CubinLines, Input};
use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::text;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::{GroupBy, Selection};
use proptest::prelude::*;

/// The tree lines with samples, with their stacks, root first.
fn sampled(profile: &Profile) -> Vec<String> {
    let mut all = Vec::new();
    for metric in Metric::ALL.iter().copied().filter(|metric| metric.name().starts_with("stall:")) {
        for (node, cell) in profile.tree.cells(metric) {
            let frames = profile.tree.stack(node);
            let stack: Vec<String> = frames
                .into_iter()
                .map(|frame| profile.frames.get(frame).label(&profile.strings, true))
                .filter(|label| label != "all")
                .collect();
            all.push(format!("{} {}={}", stack.join("; "), metric, cell.sum));
        }
    }
    all.sort();
    all
}

fn stalls(profile: &Profile) -> u64 {
    let stall = |metric: &&Metric| metric.name().starts_with("stall:");
    Metric::ALL.iter().filter(stall).map(|metric| profile.tree.total(*metric).sum).sum()
}

const BEGIN: &str = "
    1 call 1 cuModuleGetFunction 7/7 app out=0x10 module=0x50 text=_Z4gemmPf
    2 return 1 out=0x100 entered=1
    3 state 7 collecting 26
    3 state 7 sampling 10
    3 name 7 1 _Z4gemmPf
    3 reason 7 4 smsp__pcsamp_warps_issue_stalled_wait
    3 reason 7 5 smsp__pcsamp_warps_issue_stalled_membar
    10 call 2 cuLaunchKernel 7/7 app function=0x100 : ! f main
    11 correlate 2 70
";

fn check(records: &str, expect: &[&str]) -> Profile {
    let mut pipeline = run(&format!("{BEGIN}{records}"));
    let profile = pipeline.profile().clone();
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!(sampled(&profile), expect);
    profile
}

#[test]
fn kernel_samples_go_below_the_only_context_or_all_callers() {
    let profile = check(
        "
        20 pc 7 name=1 offset=0x20 reason=4 n=3
        21 pc 7 name=1 offset=0x20 reason=5
        30 call 3 cuLaunchKernel 7/7 app function=0x100 : ! g main
        40 pc 7 name=1 offset=0x30 reason=4 n=2
        ",
        &[
            "app-7; [all callers]; [gpu] gemm(float*); gemm(float*)+0x30 stall:wait=2",
            "app-7; app/7; main; f; cuLaunchKernel; [gpu] gemm(float*); gemm(float*)+0x20 stall:membar=1",
            "app-7; app/7; main; f; cuLaunchKernel; [gpu] gemm(float*); gemm(float*)+0x20 stall:wait=3",
        ],
    );
    assert!(losses(&profile).contains("correlate pc-sample-shared 2"), "{}", losses(&profile));
    let note = &profile.gpu.processes[0].note;
    assert_eq!(note, "CUPTI 26, instructions are sampled every 1024 cycles");
}

#[test]
fn serialized_kernels_have_samples_below_their_launch_in_any_order() {
    check(
        "
        12 state 7 sampling 0x10000000a
        20 call 3 cuLaunchKernel 7/7 app function=0x100 : ! g main
        21 correlate 3 71
        30 pc 7 name=1 offset=0x20 reason=4 n=3 id=71
        40 kernel 7 id=71 start=1030 end=1050 name=1
        41 kernel 7 id=70 start=1012 end=1015 name=1
        50 pc 7 name=1 offset=0x20 reason=4 n=5 id=70
        51 pc 7 name=1 offset=0x20 reason=4 n=7 id=72
        ",
        &[
            "app-7; [unknown: launch-not-seen]; [gpu] gemm(float*); gemm(float*)+0x20 stall:wait=7",
            "app-7; app/7; main; f; cuLaunchKernel; [gpu] gemm(float*); gemm(float*)+0x20 stall:wait=5",
            "app-7; app/7; main; g; cuLaunchKernel; [gpu] gemm(float*); gemm(float*)+0x20 stall:wait=3",
        ],
    );
}

#[test]
fn unnamed_launches_and_graph_launches_make_kernel_contexts_uncertain() {
    for uncertain in [
        "12 call 3 cuLaunchKernel 7/7 app function=0x999 : ! h main",
        "12 call 3 cuGraphLaunch 7/7 app graph-exec=0x5 : ! h main",
    ] {
        check(
            &format!("{uncertain}\n20 pc 7 name=1 offset=0x20 reason=4"),
            &["app-7; [all callers]; [gpu] gemm(float*); gemm(float*)+0x20 stall:wait=1"],
        );
    }
}

#[test]
fn samples_with_unknown_parts_are_labelled_and_counted() {
    let profile = check(
        "
        20 pc 7 name=9 offset=0x20 reason=4
        21 pc 7 name=1 offset=0x20 reason=99 n=4294967295
        22 pc 7 name=1 offset=0xffffffffffffffff reason=5
        23 state 7 sampling-dropped 8
        24 state 7 not-sampling 35
        ",
        &[
            "app-7; [all callers]; [gpu] [unknown: name-not-reported]; [unknown: name-not-reported]+0x20 stall:wait=1",
            "app-7; app/7; main; f; cuLaunchKernel; [gpu] gemm(float*); [unknown: instruction-not-known] stall:membar=1",
            "app-7; app/7; main; f; cuLaunchKernel; [gpu] gemm(float*); gemm(float*)+0x20 stall:misc=4294967295",
        ],
    );
    let losses = losses(&profile);
    for row in
        ["pc-sample-dropped 8", "stall-reason-unknown 4294967295", "pc-out-of-range 1", "pc-sample-shared 1"]
    {
        assert!(losses.contains(row), "{row}: {losses}");
    }
    assert!(profile.gpu.processes[0].note.contains("NVreg_RestrictProfilingToAdminUsers"));
}

fn with_lines(records: &str) -> Profile {
    let mut pipeline = run(&format!("{BEGIN}{records}"));
    let profile = pipeline.profile().clone();
    profile.ledger.check(CheckTime::Finished).unwrap();
    profile
}

#[test]
fn samples_wait_a_bounded_time_for_their_source_lines() {
    let at = |line: &str| {
        format!(
            "app-7; app/7; main; f; cuLaunchKernel; [gpu] gemm(float*); gemm(float*)+0x30{line} stall:wait=2"
        )
    };
    let sample = "20 pc 7 cubin=77 name=1 offset=0x30 reason=4\n21 pc 7 cubin=77 name=1 offset=0x30 reason=4";
    // The lines may arrive at any time.
    for records in [
        format!("12 cubin 7 77\n{sample}\nlines 7 77 ok\n"),
        format!("12 cubin 7 77\nadvance 15\nlines 7 77 ok\n{sample}\n"),
        format!("lines 7 77 ok\n12 cubin 7 77\n{sample}\n"),
        format!("12 cubin 7 77\n{sample}\nadvance 1000000000\nlines 7 77 ok\n"),
    ] {
        let profile = with_lines(&records);
        assert_eq!(sampled(&profile), [at(" (gemm.cu:9)")], "{records}");
        assert!(!losses(&profile).contains("pc-lines-unread"));
    }
    // Without an answer, with a late one, or with an invalid one.
    for records in [
        format!("12 cubin 7 77\n{sample}\n"),
        format!("12 cubin 7 77\n{sample}\nadvance 6000000000\nlines 7 77 ok\n"),
        format!("12 cubin 7 77\n{sample}\nlines 7 77 damaged\n"),
    ] {
        let profile = with_lines(&records);
        assert_eq!(sampled(&profile), [at("")], "{records}");
        assert!(losses(&profile).contains("correlate pc-lines-unread 1"), "{records}{}", losses(&profile));
    }
    // An image without lines, and an address that the table marks as having none.
    let profile = with_lines(&format!("{sample}\nlines 7 77 ok\n"));
    assert_eq!(sampled(&profile), [at("")]);
    let profile = with_lines("12 cubin 7 77\n20 pc 7 cubin=77 name=1 offset=0x40 reason=4\nlines 7 77 ok\n");
    assert!(sampled(&profile)[0].ends_with("gemm(float*)+0x40 stall:wait=1"));
}

#[test]
fn instructions_that_wait_for_scoreboards_have_producers() {
    let profile = with_lines(
        "12 reason 7 6 smsp__pcsamp_warps_issue_stalled_long_scoreboard
        12 cubin 7 77
        20 pc 7 cubin=77 name=1 offset=0x30 reason=6
        21 pc 7 cubin=77 name=1 offset=0x40 reason=6
        22 pc 7 cubin=77 name=1 offset=0x50 reason=6
        23 pc 7 cubin=77 name=1 offset=0x30 reason=4
        lines 7 77 ok\n",
    );
    let label = |frame| profile.frames.get(frame).label(&profile.strings, true);
    let producers = profile.producers.iter().map(|(waiting, of)| {
        let of: Vec<String> = of.iter().map(|producer| label(*producer)).collect();
        format!("{} waits for {}", label(waiting), of.join(", "))
    });
    let mut producers: Vec<String> = producers.collect();
    producers.sort();
    let expect = [
        "gemm(float*)+0x30 (gemm.cu:9) waits for gemm(float*)+0x20 (gemm.cu:9), gemm(float*)+0x10 (gemm.cu:5)",
        "gemm(float*)+0x40 waits for [unknown: producer-before-block]",
    ];
    assert_eq!(producers, expect);
    assert!(losses(&profile).contains("pc-producers-left-out 3"), "{}", losses(&profile));
    // A stall that has nothing to do with results has no producers.
    let profile = with_lines("12 cubin 7 77\n20 pc 7 cubin=77 name=1 offset=0x30 reason=4\nlines 7 77 ok\n");
    assert_eq!(profile.producers.iter().len(), 0);
}

/// Events with their sample counts.
fn happens() -> impl Strategy<Value = (String, u64)> {
    let sample = (0u64..4, 0u64..3, 0u64..200, 0u32..4, 3u32..8, 0u32..1000).prop_map(
        |(cubin, name, offset, id, reason, n)| {
            let line =
                format!("pc 7 cubin={cubin} name={name} offset={offset} id={id} reason={reason} n={n}");
            (line, u64::from(n))
        },
    );
    let call = (0u64..3, prop::sample::select(vec!["f", "g"])).prop_map(|(handle, caller)| {
        (format!("call NUMBER cuLaunchKernel 7/7 app function={} : ! {caller} main", 0x100 + handle), 0)
    });
    prop_oneof![
        6 => sample,
        2 => call,
        1 => (0u64..4).prop_map(|crc| (format!("cubin 7 {crc}"), 0)),
        1 => (0u32..4).prop_map(|id| (format!("kernel 7 id={id} start=1030 end=1050 name=1"), 0)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_sample_is_in_the_tree_once(all in prop::collection::vec(happens(), 1..60), answers in any::<u8>()) {
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
        let mut page = String::from(BEGIN);
        let mut given = 0;
        for (n, (line, samples)) in (10u64..).zip(&all) {
            page += &format!("{} {}\n", n * 10, line.replace("NUMBER", &n.to_string()));
            given += samples;
        }
        for step in steps(&page) {
            match step {
                ReplayStep::Feed(input) => pipeline.feed(input),
                ReplayStep::Advance(time) => pipeline.advance(time),
            }
        }
        for crc in 0..4 {
            if answers >> crc & 1 == 1 {
                pipeline.feed(Input::Lines(vec![CubinLines { pid: 7, crc, ..CubinLines::default() }]));
            }
        }
        pipeline.finish();
        let profile = pipeline.profile();
        prop_assert_eq!(stalls(profile), given, "{}", text::tree(profile));
        profile.ledger.check(CheckTime::Finished).unwrap();
    }

    #[test]
    fn damaged_samples_never_panic_and_the_account_adds_up(
        all in prop::collection::vec(happens(), 1..20),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
        let page: String = (10u64..).zip(&all)
            .map(|(n, (line, _))| format!("{} {}\n", n * 10, line.replace("NUMBER", &n.to_string())))
            .collect();
        feed_damaged(&mut pipeline, &format!("{BEGIN}{page}"), &damage);
        pipeline.finish();
        pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
        let _ = pipeline.profile().ledger.stage(Stage::Correlate);
    }
}

#[test]
fn instructions_appear_in_every_device_view() {
    let mut pipeline = run(&format!("{BEGIN}20 pc 7 name=1 offset=0x20 reason=4 n=3"));
    for group_by in [GroupBy::Process, GroupBy::Thread, GroupBy::Stream] {
        let of_metric = deepctx_analysis::Selection::of(Metric::StallWait);
        let shown = Selection { group_by, ..of_metric.shown };
        let subset = Subset::new(pipeline.profile(), &deepctx_analysis::Selection { shown, ..of_metric });
        let mut out = Vec::new();
        let names = render::text::Names::Short;
        render::text::write_all(&Report::compute(&subset, Nanos(0)), names, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("gemm+0x20"), "{text}");
        assert!(text.contains("+0x20  wait 100.0%"), "{text}");
    }
}
