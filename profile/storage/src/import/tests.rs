use std::io::Write as _;

use expect_test::{Expect, expect};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::export::{Format, Source};
use crate::proto::pprof;
use deepctx_profile::metric::Metric;
use deepctx_profile::testing::{grow, profile, selections, stacks};
use deepctx_profile::view::{GroupBy, Selection, View};
use deepctx_profile::{text, view};

fn check(input: &[u8], expect: Expect) {
    let shown = match read(input, "file") {
        Ok(imported) => {
            let mut shown = format!("{}\n{}", imported.kind, text::tree(&imported.profile));
            for row in view::losses(&imported.profile) {
                shown += &format!("{} {}\n", row.reason, row.count);
            }
            shown
        }
        Err(error) => format!("{error}\n"),
    };
    expect.assert_eq(&shown);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

const PERF: &str = "\
# cmdline : perf record -g python3 a.py
#
python3 my app 4711/4712 [001] 12345.678901:   10101010 cpu-clock:ppp: 
        7f12ab34cd56 gemm(int, char const*)+0x1f (/usr/lib/libblas.so)
        7f12ab34cd57 helper (inlined)
        7f12ab34aaaa py::main:/srv/train.py+0xb (/tmp/perf-4711.map)
        7f12ab34bbbb [unknown] (/usr/lib/libc.so.6 (deleted))
        7f12ab34cccc [unknown] ([unknown])

python3  4711 12346.5: cpu-clock: 
    ffffffff81234567 vfs_read+0x2 ([kernel.kallsyms])
    ffffffff81234568 [unknown] ([kernel.kallsyms])
        7f12ab34cd56 read+0x1 (/usr/lib/libc.so.6)
what is this line
";

#[test]
fn perf_script_becomes_samples_and_the_time_of_clocks() {
    let expect = expect![[r#"
        output of perf script
        all
          python3 my app-4711
            python3 my app/4712
              [unknown: no-symbol]
                libc.so.6+0x7f12ab34bbbb
                  train.py:main
                    helper
                      gemm(int, char const*)  cpu-time=10101010 samples=1
          python3-4711
            python3/4711
              read
                [unknown: no-symbol]_[k]
                  vfs_read_[k]  samples=1
        not-understood 1
    "#]];
    check(PERF.as_bytes(), expect);
    assert_eq!(read(PERF.as_bytes(), "x").unwrap().elapsed, Nanos(821_099_000));
}

#[test]
fn heads_of_perf_script_are_read_in_all_their_forms() {
    /// Name, process, thread, time, event and period of a header line.
    type SampleHeader<'a> = (&'a str, u32, u32, u64, &'a str, Option<u64>);
    let check = |line: &str, expect: Option<SampleHeader<'_>>| {
        let found = perf_script::head(line).map(|head| head.parts());
        assert_eq!(found, expect, "{line}");
    };
    check("a 1/2 [003] 4.5: 6 cycles:u: ", Some(("a", 1, 2, 4_500_000_000, "cycles:u", Some(6))));
    check("a 1 4.000000005:  cycles: ", Some(("a", 1, 1, 4_000_000_005, "cycles", None)));
    check(
        "swapper     0 [000]  1.1:     1 cpu-clock: ",
        Some(("swapper", 0, 0, 1_100_000_000, "cpu-clock", Some(1))),
    );
    check("a b 12 13/14 4.5: e: ", Some(("a b 12", 13, 14, 4_500_000_000, "e", None)));
    check("\t7f12ab34cd56 gemm+0x1f (/usr/lib/libblas.so)", None);
    check("a 1 4.5", None);
    check("a;b 1", None);
    check("", None);
}

#[test]
fn folded_stacks_become_samples_and_their_words_tell_the_kind() {
    check(
        b"python3-7;_start;train.py:main;train.py:step:31;aten::addmm;gemm;memcpy_[k] 5\n\
          python3-7;_start;[unknown: no-row];lib.so+0x1f3a;[gpu] gemm<float> 2.6\n\
          main (/srv/a.py:12);f_[i] 1\n\
          no number here\n\n# a comment\n",
        expect![[r#"
            file of folded stacks
            all
              a.py:main:12
                f  samples=1
              python3-7
                _start
                  [unknown: no-row]
                    lib.so+0x1f3a
                      [gpu] gemm<float>  samples=3
                  train.py:main
                    train.py:step:31
                      aten::addmm
                        gemm
                          memcpy_[k]  samples=5
            not-understood 1
            rounded 1
        "#]],
    );
}

#[test]
fn large_values_of_folded_stacks_keep_each_digit() {
    let check = |value: &str, expect: (u64, u64)| {
        let ImportedProfile { profile, .. } = read(format!("a;b {value}\n").as_bytes(), "x").unwrap();
        let rounded = profile.ledger.stage(Stage::Decode).gaps.count(ROUNDED.key);
        assert_eq!((profile.tree.total(Metric::Samples).sum, rounded), expect, "{value}");
    };
    check("9007199254740993", (9_007_199_254_740_993, 0));
    check("18446744073709551615", (u64::MAX, 0));
    check("18446744073709551616", (u64::MAX, 1));
    check("9007199254740993.0", (9_007_199_254_740_992, 1));
    check("12.0", (12, 0));
}

/// How often a reason is counted in a file.
fn counted(input: &[u8], reason: &Reason) -> u64 {
    read(input, "x").unwrap().profile.ledger.stage(Stage::Decode).gaps.count(reason.key)
}

#[test]
fn frames_beyond_the_depth_limit_are_counted() {
    let folded = format!("{}f 1\n", "f;".repeat(16 * 1024 + 1));
    assert_eq!(counted(folded.as_bytes(), TOO_DEEP), 2);
    let frames = "\t7f12ab34cd56 f+0x1f (/usr/lib/libblas.so)\n".repeat(16 * 1024 + 3);
    assert_eq!(counted(format!("a 1/1 1.5: cycles: \n{frames}").as_bytes(), TOO_DEEP), 3);
    let pprof = pprof::Profile {
        sample_type: vec![pprof::ValueType { kind: 1, unit: 2 }],
        sample: vec![pprof::Sample { location_id: vec![1; 16 * 1024 + 4], value: vec![1], label: vec![] }],
        location: vec![pprof::Location { id: 1, ..pprof::Location::default() }],
        string_table: ["", "samples", "count"].map(str::to_owned).to_vec(),
        ..pprof::Profile::default()
    };
    assert_eq!(counted(&pprof.encode_to_vec(), TOO_DEEP), 4);
}

#[test]
fn bytes_that_are_no_text_are_counted() {
    assert_eq!(counted(b"a\xff;b\xfe 1\n", REPAIRED), 2);
    assert_eq!(counted(b"a\xff 1/1 1.5: cycles: \n\t7f12ab34cd56 f (/l/x.so)\n", REPAIRED), 1);
    assert_eq!(counted("é;b 1\n".as_bytes(), REPAIRED), 0);
}

const KINETO: &str = r#"{"schemaVersion":1,"baseTimeNanoseconds":1000,"traceEvents":[
    {"ph":"M","name":"process_name","pid":7,"tid":7,"args":{"name":"python"}},
    {"ph":"X","cat":"python_function","name":"train.py(9): step","pid":7,"tid":7,"ts":10.0,"dur":100.5,"args":{"Python id":1}},
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":20,"dur":50,"args":{"External id":5}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":30,"dur":4,"args":{"correlation":42}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":7,"tid":7,"ts":60,"dur":5.001,"args":{"correlation":43}},
    {"ph":"X","cat":"kernel","name":"sgemm","pid":0,"tid":3,"ts":41,"dur":200,"args":{"correlation":42,"device":0}},
    {"ph":"X","cat":"kernel","name":"lonely","pid":0,"tid":3,"ts":300,"dur":1,"args":{"correlation":99}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":3,"ts":310,"dur":2,"args":{"correlation":42,"bytes":4096}},
    {"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":0,"dur":400},
    {"ph":"X","name":"no length","pid":7,"tid":7,"ts":1},
    {"ph":"f","cat":"ac2g","name":"ac2g","pid":0,"tid":3,"ts":41,"id":42,"bp":"e"}
]}"#;

#[test]
fn imported_kineto_trace_puts_device_work_below_its_launch() {
    check(
        KINETO.as_bytes(),
        expect![[r#"
            Chrome or Kineto trace
            all
              [unknown: no-launch]
                [device 0, stream 3]
                  [gpu] lonely  gpu-time=1000 kernels=1
              process-7
                train.py:step  wall-time=50500
                  aten::mm  wall-time=40999
                    cudaLaunchKernel  wall-time=4000 launch-time=4000
                      [device 0, stream 3]
                        [gpu] Memcpy HtoD  copy-time=2000 copy-bytes=4096
                        [gpu] sgemm  gpu-time=200000 kernels=1 launch-delay=11000
                    cudaStreamSynchronize  wall-time=5001 sync-time=5001
            no-launch 1
            not-understood 1
        "#]],
    );
}

#[test]
fn a_call_within_a_call_launches_or_waits_once() {
    check(
        br#"{"schemaVersion":1,"traceEvents":[
            {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":10,"dur":10},
            {"ph":"X","cat":"cuda_driver","name":"cuLaunchKernel","pid":7,"tid":7,"ts":12,"dur":6},
            {"ph":"X","cat":"cuda_runtime","name":"cudaMemcpy","pid":7,"tid":7,"ts":30,"dur":20},
            {"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":7,"tid":7,"ts":32,"dur":16},
            {"ph":"X","cat":"cuda_driver","name":"cuStreamSynchronize","pid":7,"tid":7,"ts":33,"dur":14}
        ]}"#,
        expect![[r#"
            Chrome or Kineto trace
            all
              process-7
                cudaLaunchKernel  wall-time=4000 launch-time=10000
                  cuLaunchKernel  wall-time=6000
                cudaMemcpy  wall-time=4000
                  cudaStreamSynchronize  wall-time=2000 sync-time=16000
                    cuStreamSynchronize  wall-time=14000
        "#]],
    );
}

#[test]
fn a_list_of_events_is_a_trace_too() {
    check(
        br#"[{"ph":"X","name":"f","pid":"main","tid":1,"ts":0.5,"dur":1,"args":null}]"#,
        expect![[r#"
            Chrome or Kineto trace
            all
              [unknown: main]
                f  wall-time=1000
        "#]],
    );
}

#[test]
fn unknown_formats_are_refused_with_the_reason() {
    check(
        b"",
        expect![[r#"
        it is neither a profile nor anything that can be imported: it is empty
    "#]],
    );
    check(
        b"hello there\nworld",
        expect![[r#"
        it is neither a profile nor anything that can be imported: its first line is `hello there`, where folded stacks would end in a number
    "#]],
    );
    check(
        b"{\"frames\": []}",
        expect![[r#"
        it is neither a profile nor anything that can be imported: it is a JSON document without `traceEvents`
    "#]],
    );
    check(
        b"{\"traceEvents\": [{\"ph\":\"X\"",
        expect![[r#"
        it is no valid Chrome or Kineto trace: EOF while parsing an object at line 1 column 26
    "#]],
    );
    check(
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0",
        expect![[r#"
        it is no valid pprof profile: at byte 0, there is no field of a protobuf message
    "#]],
    );
    check(
        b"\x0a\x04\x08\x01\x10\x02\x12\x02\x0a\x00\x32\x01x",
        expect![[r#"
        it is no valid pprof profile: its string table does not begin with the empty string
    "#]],
    );
    check(
        b"\x32\x00",
        expect![[r#"
        there is nothing to show in this pprof profile: it has no samples
    "#]],
    );
    check(
        b"\x1f\x8bnot gzip",
        expect![[r#"
        it is neither a profile nor anything that can be imported: it begins like a gzip file, but cannot be decompressed: invalid gzip header
    "#]],
    );
    check(
        b"a;b 0\n",
        expect![[r#"
        there is nothing to show in this file of folded stacks: it has no value above zero
    "#]],
    );
}

#[test]
fn damaged_json_is_still_json() {
    let check = |input: &[u8], is_json: bool| {
        assert_eq!(matches!(detect(input), Ok(Kind::Kineto)), is_json, "{}", input.escape_ascii());
    };
    check(b"{\n \"traceEvents\": [ {\"ph\": \"X\", \x01\"ts\": 1}]}", true);
    check(b"{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"\x02\xff\"}]}", true);
    check(b"[ {\"ph\": \"X\", \x00}]", true);
    check(b"\n{\n \"schemaVersion\": 1, \x01", true);
    // The first field of a protobuf, of 123 bytes: text begins after its length.
    check(b"\x0a{\"\x00", false);
    check(b"\n [{\x00", false);
}

#[test]
fn what_a_cut_gzip_file_has_is_read() {
    let lines: Vec<String> = (0..20_000).map(|n: u64| format!("main;{:x} 1\n", n * n * n)).collect();
    let whole = gzip(lines.concat().as_bytes());
    let gaps = |bytes: &[u8]| {
        let imported = read(bytes, "x").unwrap();
        let samples = imported.profile.tree.total(Metric::Samples).sum;
        (samples, imported.profile.ledger.stage(Stage::Decode).gaps.count(CUT_SHORT.key))
    };
    assert_eq!(gaps(&whole), (20_000, 0));
    let (samples, cut) = gaps(&whole[..whole.len() / 2]);
    assert!((5_000..15_000).contains(&samples) && cut == 1, "{samples}");
    let event = |n: u64| format!(r#"{{"ph":"X","cat":"kernel","name":"{:x}","ts":{n},"dur":1}}"#, n * n * n);
    let events: Vec<String> = (0..20_000).map(event).collect();
    let trace = gzip(format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")).as_bytes());
    let (traces, _) = traces(&trace[..trace.len() / 2]).unwrap();
    let (_, trace) = &traces[0];
    let cut = trace.ledger.stage(Stage::Decode).gaps.count(CUT_SHORT.key);
    assert!((5_000..15_000).contains(&trace.device.len()) && cut == 1, "{cut}");
}

#[test]
fn a_bomb_is_given_up_at_the_bound() {
    // Ten thousand members of a mebibyte of zeros each are ten gibibytes in ten megabytes.
    let member = gzip(&vec![0; 1 << 20]);
    let bomb = member.repeat(10_000);
    let error = read(&bomb, "bomb").unwrap_err();
    assert_eq!(error, ImportError::TooLarge { most: BYTES_MAX, what: "bytes" });
}

fn export(profile: &Profile, format: Format, selection: Selection) -> Vec<u8> {
    let mut out = Vec::new();
    format.write(&Source { profile, selection, elapsed: Nanos(9), folds: true }, &mut out).unwrap();
    out
}

fn folded(profile: &Profile, selection: Selection) -> String {
    String::from_utf8(export(profile, Format::Folded, selection)).unwrap()
}

#[test]
fn other_processes_of_a_name_come_back_from_pprof() {
    let all = profile("P cc1-4294967295 / n f 5\nP sh-7 / n f 3");
    let imported = read(&export(&all, Format::Pprof, Selection::of(Metric::CpuTime)), "x").unwrap();
    assert_eq!(text::tree(&imported.profile), text::tree(&all));
    let frames = imported.profile.frames.iter();
    let processes = frames.filter_map(|(_, frame)| match frame {
        Frame::Process { pid, .. } => Some(pid),
        _ => None,
    });
    assert_eq!(processes.collect::<Vec<_>>(), [Frame::OTHERS, 7]);
}

/// Stacks with a process as their outermost frame, and only there, as in all captures.
fn rooted(stacks: Vec<(Vec<u8>, u64)>) -> Vec<(Vec<u8>, u64)> {
    let is_process = |frame: &u8| *frame < 2;
    let root = |stack: Vec<u8>| {
        [stack.len() as u8 % 2].into_iter().chain(stack.into_iter().filter(|f| !is_process(f)))
    };
    stacks.into_iter().map(|(stack, value)| (root(stack).collect(), value)).collect()
}

proptest! {
    #[test]
    fn folded_stacks_come_back_as_they_went(stacks in stacks(), selection in selections()) {
        let mut profile = profile("");
        grow(&mut profile, &stacks, Metric::CpuTime);
        // Folded stacks do not identify threads.
        let selection = Selection { group_by: GroupBy::Process, ..selection };
        let out = folded(&profile, selection);
        if let Ok(imported) = read(out.as_bytes(), "x") {
            let again = Selection { metric: Metric::Samples, interpreter: true, lines: true, view: View::Full, ..selection };
            prop_assert_eq!(folded(&imported.profile, again), out);
        } else {
            prop_assert!(stacks.iter().all(|(_, value)| *value == 0));
        }
    }

    #[test]
    fn pprof_comes_back_with_every_metric(stacks in stacks(), bytes in stacks(), selection in selections()) {
        let (stacks, bytes) = (rooted(stacks), rooted(bytes));
        let mut profile = profile("");
        grow(&mut profile, &stacks, Metric::CpuTime);
        grow(&mut profile, &bytes, Metric::AllocBytes);
        let selection = Selection { group_by: GroupBy::Process, ..selection };
        let Ok(imported) = read(&export(&profile, Format::Pprof, selection), "x") else {
            prop_assert!(stacks.iter().chain(&bytes).all(|(_, value)| *value == 0));
            return Ok(());
        };
        for metric in [Metric::CpuTime, Metric::AllocBytes] {
            prop_assert_eq!(imported.profile.tree.total(metric).sum, profile.tree.total(metric).sum);
        }
        let again = Selection { interpreter: true, lines: true, view: View::Full, ..selection };
        prop_assert_eq!(folded(&imported.profile, again), folded(&profile, selection));
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes, "x");
    }

    #[test]
    fn a_file_that_is_cut_or_changed_is_answered(
        format in prop::sample::select(vec![Format::Pprof, Format::Chrome, Format::Folded]),
        cut in 0.0f64..1.0,
        change in any::<(prop::sample::Index, u8)>(),
    ) {
        let all = profile("P a-1 / y t.py:f:3 / n g@/l/x.so 30\n P a-1 / k h 4");
        let mut bytes = export(&all, format, Selection::of(Metric::CpuTime));
        if format == Format::Pprof {
            bytes = plain(&bytes).unwrap().bytes.into_owned();
        }
        let (at, byte) = change;
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = read(&bytes, "x");
        let end = (bytes.len() as f64 * cut) as usize;
        let _ = read(&bytes[..end], "x");
        let _ = read(&gzip(&bytes[..end]), "x");
    }
}
