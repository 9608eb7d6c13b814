use std::fmt::Write as _;

use super::super::{EVENTS_MAX, read};
use super::*;
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{Status, SyncKind};
use deepctx_profile::units::Nanos;
use deepctx_profile::view;

/// Each event of a trace as a line, then the gaps.
fn shown(trace: &Trace) -> String {
    let mut out = String::new();
    let span = |begin: deepctx_profile::trace::TraceTime, length: Nanos| {
        format!("{}+{}", begin.as_nanos(), length.0)
    };
    for (_, op) in trace.host.iter() {
        assert_eq!(op.status, Status::Unknown);
        let thread = trace.threads()[op.thread.index()];
        let (process, thread) = (trace.name(thread.process), trace.name(thread.thread));
        let (time, name, id) = (span(op.begin, op.duration), trace.name(op.name), op.correlation);
        writeln!(out, "{:?} {process}/{thread} {time} {name} #{id}", op.kind).unwrap();
    }
    let lane = |id: deepctx_profile::intern::Id<deepctx_profile::trace::Stream>| {
        let of = trace.streams()[id.index()];
        format!("{}/{}", of.device, of.stream.map_or_else(|| "-".to_owned(), |stream| stream.to_string()))
    };
    for (_, op) in trace.device.iter() {
        let (time, name, id) = (span(op.begin, op.duration), trace.name(op.name), op.correlation);
        writeln!(out, "{:?} {} {time} {name} #{id} {} B", op.kind, lane(op.stream), op.bytes.0).unwrap();
    }
    for (_, sync) in trace.syncs.iter() {
        let (stream, on) = (sync.stream.map(lane), sync.recorded_on.map(lane));
        writeln!(out, "{:?} {stream:?} #{} record {:?} on {on:?}", sync.kind, sync.correlation, sync.record)
            .unwrap();
    }
    for (_, event) in trace.memory.iter() {
        writeln!(out, "memory {} {:?} {:+} B", event.at.as_nanos(), event.device, event.bytes).unwrap();
    }
    for (_, note) in trace.collectives.iter() {
        let (operation, group) = (trace.name(note.operation), trace.name(note.communicator));
        writeln!(
            out,
            "{operation} of group {group}, {} ranks, {} elements",
            note.group_size, note.elements_in
        )
        .unwrap();
    }
    for (reason, n) in trace.ledger.stage(Stage::Decode).gaps.iter() {
        writeln!(out, "{n} {}", reason.key).unwrap();
    }
    out
}

/// The one trace of a file.
fn trace(bytes: &[u8]) -> Result<(Trace, Kind), ImportError> {
    let (traces, kind) = traces(bytes)?;
    let [(_, trace)] = <[_; 1]>::try_from(traces).expect("one trace");
    Ok((trace, kind))
}

fn check(events: &str, expect: &[&str]) {
    let document = format!("{{\"traceEvents\":[{events}]}}");
    let (trace, _) = trace(document.as_bytes()).unwrap();
    assert_eq!(shown(&trace).lines().collect::<Vec<_>>(), expect, "{events}");
}

#[test]
fn every_schema_gives_the_same_events() {
    check(
        r#"{"ph":"X","cat":"Operator","name":"aten::mm","pid":7,"tid":"7","ts":1623142623460111,"dur":25},
           {"ph":"X","cat":"Operator","name":"ProfilerStep#5","pid":7,"tid":"7","ts":1623142623460100,"dur":90},
           {"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":7,"tid":"7","ts":1623142623460112,"dur":2,"args":{"correlation":3}},
           {"ph":"X","cat":"Kernel","name":"gemm","pid":0,"tid":"stream 7","ts":1623142623460120,"dur":8,"args":{"device":0,"stream":7,"correlation":3}},
           {"ph":"X","cat":"Memset","name":"Memset (Device)","pid":0,"tid":"stream 7","ts":1623142623460130,"dur":1,"args":{"device":0,"stream":7,"bytes":16}},
           {"ph":"i","name":"[memory]","pid":7,"tid":7,"ts":1623142623460121,"args":{"Device Type":0,"Device Id":-1,"Bytes":-4}}"#,
        &[
            "Operator 7/7 1623142623460111000+25000 aten::mm #0",
            "Step 7/7 1623142623460100000+90000 ProfilerStep#5 #0",
            "RuntimeCall 7/7 1623142623460112000+2000 cudaLaunchKernel #3",
            "Kernel 0/7 1623142623460120000+8000 gemm #3 0 B",
            "Fill 0/7 1623142623460130000+1000 Memset (Device) #0 16 B",
            "memory 1623142623460121000 None -4 B",
        ],
    );
    check(
        r#"{"ph":"X","cat":"cuda_driver","name":"cuLaunchKernelEx","pid":7,"tid":7,"ts":1365627862757.064,"dur":1.6,"args":{"correlation":16}},
           {"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":0,"tid":7,"ts":1365627862759.5,"dur":2.08,"args":{"device":1,"stream":9,"correlation":16,"Collective name":"_allgather_base","Process Group Name":"3","Group size":8,"In msg nelems":25136,"dtype":"BFloat16"}},
           {"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":7,"tid":7,"ts":1.5,"args":{"Device Type":1,"Device Id":1,"Bytes":512,"Addr":9}}"#,
        &[
            "DriverCall 7/7 1365627862757064+1600 cuLaunchKernelEx #16",
            "Kernel 1/9 1365627862759500+2080 ncclDevKernel #16 0 B",
            "memory 1500 Some(1) +512 B",
            "_allgather_base of group 3, 8 ranks, 25136 elements",
        ],
    );
}

#[test]
fn synchronisations_are_told_apart_from_work() {
    check(
        r#"{"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":20,"ts":1,"dur":3,"args":{"wait_on_stream":7,"wait_on_cuda_event_record_corr_id":5169,"stream":20,"correlation":5170,"device":0}},
           {"ph":"X","cat":"cuda_sync","name":"Context Sync","pid":0,"tid":-1,"ts":1,"dur":9,"args":{"stream":4294967295,"correlation":225,"device":0}},
           {"ph":"X","cat":"cuda_sync","name":"Event Sync","pid":0,"tid":-1,"ts":1,"dur":9,"args":{"stream":-1,"correlation":226,"device":0}}"#,
        &[
            "StreamWait Some(\"0/20\") #5170 record Some(5169) on Some(\"0/7\")",
            "Context None #225 record None on None",
            "Event None #226 record None on None",
        ],
    );
    assert_ne!(SyncKind::Stream, SyncKind::Context);
}

#[test]
fn odd_events_are_left_out_and_counted() {
    let odd =
        |ts: &str, dur: &str| format!(r#"{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{ts},"dur":{dur}}}"#);
    let good = odd("1", "2");
    let kept = "Other 1/1 1000+2000 a #0";
    check(&[good.clone(), odd("5", "-1")].join(","), &[kept, "1 end-before-begin"]);
    check(&[good.clone(), odd("5", "1e16")].join(","), &[kept, "1 too-long"]);
    check(&[good.clone(), odd("-5", "1")].join(","), &[kept, "1 out-of-range"]);
    check(&[good.clone(), odd("\"soon\"", "1")].join(","), &[kept, "1 not-understood"]);
    check(&[good.clone(), odd("1e300", "null")].join(","), &[kept, "1 not-understood"]);
    check(&[odd("0", "1"), good.clone()].join(","), &["Other 1/1 0+1000 a #0", kept]);
    let late = odd("1695835542514261.125", "2");
    let kept_late = "Other 1/1 1695835542514261125+2000 a #0";
    check(&[odd("0", "1"), late.clone(), odd("0.000", "7")].join(","), &[kept_late, "2 at-time-zero"]);
    // An invalid event, or a name that is not text, affects nothing else.
    let named = |name: &str| format!(r#"{{"ph":"X","name":{name},"pid":[],"tid":{{}},"ts":1,"dur":2}}"#);
    for name in ["null", "7", "[\"a\"]", r#"{"a":1}"#] {
        check(&[named(name), good.clone()].join(","), &[kept, "1 not-understood"]);
    }
    for value in ["null", "true", "7", "-7", "1.5", r#""a""#, r#"[{"ph":"X"}]"#] {
        check(&[value.to_owned(), good.clone()].join(","), &[kept, "1 not-understood"]);
    }
}

#[test]
fn numbered_steps_of_jax_are_training_steps() {
    check(
        r#"{"ph":"X","name":"train","pid":7,"tid":1,"ts":10,"dur":5,"args":{"step_num":"3"}},
           {"ph":"X","name":"dot","pid":7,"tid":1,"ts":11,"dur":2}"#,
        &["Step 7/1 10000+5000 train#3 #0", "Other 7/1 11000+2000 dot #0"],
    );
}

#[test]
fn streams_of_jax_are_device_work() {
    let named = |what: &str, pid: u32, tid: u32, name: &str| {
        format!(r#"{{"ph":"M","name":"{what}","pid":{pid},"tid":{tid},"args":{{"name":"{name}"}}}},"#)
    };
    let names = [
        named("process_name", 1, 0, "/device:GPU:3"),
        named("thread_name", 1, 17, "Stream #14(MemcpyD2H,Compute)"),
        named("thread_name", 1, 99, "XLA Ops"),
        named("process_name", 2, 0, "/device:TPU:0"),
        named("process_name", 701, 0, "/host:CPU"),
        named("thread_name", 701, 5, "python"),
    ];
    let events = r#"
        {"ph":"X","name":"cuLaunchKernel","pid":701,"tid":5,"ts":10,"dur":2,"args":{"correlation_id":"18"}},
        {"ph":"X","name":"load","pid":701,"tid":5,"ts":13,"dur":1},
        {"ph":"X","name":"fusion","pid":1,"tid":17,"ts":15,"dur":3,"args":{"correlation_id":"18","hlo_op":"f.1"}},
        {"ph":"X","name":"MemcpyD2H","pid":1,"tid":17,"ts":19,"dur":1},
        {"ph":"X","name":"f.1","pid":1,"tid":99,"ts":15,"dur":3},
        {"ph":"X","name":"f.1","pid":2,"tid":3,"ts":15,"dur":3},{}"#;
    check(
        &format!("{}{events}", names.concat()),
        &[
            "RuntimeCall 701/5 10000+2000 cuLaunchKernel #18",
            "Other 701/5 13000+1000 load #0",
            "Kernel 3/14 15000+3000 fusion #18 0 B",
            "Copy 3/14 19000+1000 MemcpyD2H #0 0 B",
            "1 on-no-thread",
        ],
    );
}

#[test]
fn communicators_have_the_names_that_programs_give_them() {
    let of = |description: &str| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":0,"tid":7,"ts":10,"dur":5,"args":{{"stream":7,
                "Collective name":"allreduce","Process Group Name":"3",{description}"Group size":4}}}}"#
        )
    };
    let check_group = |description: &str, expect: &str| {
        let collective = format!("allreduce of group {expect}, 4 ranks, 0 elements");
        check(&of(description), &["Kernel 0/7 10000+5000 ncclDevKernel #0 0 B", &collective]);
    };
    check_group(r#""Process Group Description":"mesh_tp","#, "3 mesh_tp");
    check_group(r#""Process Group Description":"undefined","#, "3");
    check_group("", "3");
}

#[test]
fn messages_name_the_other_rank() {
    let peer = |operation: &str, arguments: &str| {
        let file = format!(
            r#"{{"traceEvents":[{{"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":0,"tid":7,"ts":10,"dur":5,
                "args":{{"stream":7,"Collective name":"{operation}",{arguments}"Group size":4}}}}]}}"#
        );
        let (trace, _) = trace(file.as_bytes()).unwrap();
        let note = trace.collectives.iter().next().unwrap().1;
        note.peer
    };
    assert_eq!(peer("send", r#""Dst Rank":3,"#), Some(3));
    assert_eq!(peer("recv", r#""Src Rank":"2","#), Some(2));
    // No rank is negative, and a sender's source is not the other rank.
    assert_eq!(peer("send", r#""Dst Rank":-1,"#), None);
    assert_eq!(peer("send", r#""Src Rank":3,"#), None);
    assert_eq!(peer("allreduce", r#""Src Rank":3,"#), None);
}

#[test]
fn a_value_that_is_no_number_spoils_no_other() {
    check(
        r#"{"ph":"X","cat":"kernel","name":"NaN","pid":0,"tid":7,"ts":10,"dur":5,"args":{"occupancy":-nan,"bytes":4}},
           {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":1,"ts":NaN,"dur":2}"#,
        &["Kernel 0/7 10000+5000 NaN #0 4 B", "1 not-understood", "2 not-a-number"],
    );
}

#[test]
fn a_comma_behind_the_last_event_spoils_nothing() {
    check(
        "{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2,},\n",
        &["Other 1/1 1000+2000 a #0", "2 repaired"],
    );
    let document = br#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2},]"#;
    let (list, _) = trace(document).unwrap();
    assert_eq!(shown(&list), "Other 1/1 1000+2000 a #0\n1 repaired\n");
    // The losses of the profile say it, too.
    let losses = view::losses(&read(document, "x").unwrap().profile);
    let losses: Vec<_> = losses.iter().map(|row| (row.reason.as_str(), row.count)).collect();
    assert_eq!(losses, [("repaired", 1)]);
}

#[test]
fn a_text_that_json_does_not_allow_spoils_nothing() {
    check(
        "{\"ph\":\"X\",\"name\":\"a\tC:\\Users\\udc80\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2}",
        &["Other 1/1 1000+2000 a C:/Users\u{fffd} #0", "3 repaired"],
    );
}

#[test]
fn of_a_key_written_twice_the_last_value_counts() {
    check(
        r#"{"ph":"C","ph":"X","name":"b","name":"a","pid":7,"pid":1,"tid":1,"ts":9,"ts":1,"dur":2,"args":7,"args":{}},
           {"ph":"X","name":"c","name":"c","pid":1,"tid":1,"ts":4,"dur":1}"#,
        &["Other 1/1 1000+2000 a #0", "Other 1/1 4000+1000 c #0"],
    );
}

#[test]
fn what_follows_the_document_is_counted() {
    let check = |rest: &str, expect: &str| {
        let document = r#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2}]}"#;
        let (trace, _) = trace(format!("{document}{rest}").as_bytes()).unwrap();
        assert_eq!(shown(&trace), format!("Other 1/1 1000+2000 a #0\n{expect}"), "{rest:?}");
    };
    check("", "");
    check("\n", "");
    check("\n\0\0", "");
    check(" {\"traceEvents\":[]}", "1 not-understood\n");
}

#[test]
fn events_without_kind_time_or_values_are_counted() {
    check(
        r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2},{"name":"b","pid":1,"tid":1,"ts":1},
           {"ph":"i","name":"[memory]","pid":1,"tid":1,"args":{"Bytes":4}},
           {"ph":"C","name":"memory","pid":1,"ts":2,"args":{}},{}"#,
        &["Other 1/1 1000+2000 a #0", "3 not-understood"],
    );
}

#[test]
fn begins_are_joined_with_their_ends() {
    check(
        r#"{"ph":"B","name":"outer","pid":7,"tid":1,"ts":10},
           {"ph":"B","cat":"cpu_op","name":"aten::mm","pid":7,"tid":1,"ts":12},
           {"ph":"B","name":"other thread","pid":7,"tid":2,"ts":11},
           {"ph":"E","pid":7,"tid":1,"ts":15},
           {"ph":"E","name":"outer","pid":7,"tid":1,"ts":20},
           {"ph":"E","pid":7,"tid":1,"ts":30},
           {"ph":"i","name":"mark","pid":7,"tid":1,"ts":16},
           {"ph":"i","s":"g","name":"mark of everything","pid":7,"tid":1,"ts":16},
           {"ph":"E","pid":7,"tid":3,"ts":90},
           {"ph":"B","name":"late in the file","pid":7,"tid":3,"ts":80},
           {"ph":"b","cat":"net","id":1,"name":"request","pid":7,"tid":1,"ts":1},
           {"ph":"e","cat":"net","id":1,"name":"request","pid":7,"tid":1,"ts":2},
           {"ph":"s","id":1,"name":"flow","pid":7,"tid":1,"ts":1},
           {"ph":"M","name":"thread_name","pid":7,"tid":1,"args":{"name":"main"}}"#,
        &[
            "Other 7/1 16000+0 mark #0",
            "Other 7/1 10000+10000 outer #0",
            "Operator 7/1 12000+3000 aten::mm #0",
            "Other 7/3 80000+10000 late in the file #0",
            "2 on-no-thread",
            "1 end-without-begin",
            "1 no-end",
        ],
    );
}

#[test]
fn ends_with_names_end_the_begins_of_these_names() {
    let check = |halves: &str, expect: &[&str]| {
        let event = |half: &str| {
            let (kind, rest) = half.split_at(1);
            let (name, at) = rest.trim().split_once('@').unwrap();
            format!(r#"{{"ph":"{kind}","name":"{name}","pid":7,"tid":1,"ts":{at}}}"#)
        };
        check(&halves.split(", ").map(event).collect::<Vec<_>>().join(","), expect);
    };
    // The end of b was lost: that of a is not its own, and c never began.
    check(
        "B a@10, B b@12, E a@20, E c@30",
        &["Other 7/1 10000+10000 a #0", "1 no-end", "1 end-without-begin"],
    );
    // An end without a name is the innermost begin's that is left.
    check(
        "B a@10, B b@12, B c@14, E b@20, E @30",
        &["Other 7/1 10000+20000 a #0", "Other 7/1 12000+8000 b #0", "1 no-end"],
    );
    // Of two with a name, the inner one ends first.
    check("B a@10, B a@12, E a@20, E a@30", &["Other 7/1 10000+20000 a #0", "Other 7/1 12000+8000 a #0"]);
    // At the same time, the order of the ends says nothing.
    check(
        "B a@10, B b@12, B c@14, E a@20, E b@20, E c@20",
        &["Other 7/1 10000+10000 a #0", "Other 7/1 12000+8000 b #0", "Other 7/1 14000+6000 c #0"],
    );
    check(
        "B a@10, B b@12, E a@20, E b@21",
        &["Other 7/1 10000+10000 a #0", "1 no-end", "1 end-without-begin"],
    );
}

#[test]
fn an_event_at_time_0_makes_no_trace_of_1970() {
    let event = |ts| format!(r#"{{"ph":"X","name":"a","pid":1,"tid":1,"ts":{ts},"dur":2}}"#);
    let events = [event("0"), event("1695835542514261.125"), event("1695835542514270")].join(",");
    let document = format!(r#"{{"traceEvents":[{events}]}}"#);
    let (trace, _) = trace(document.as_bytes()).unwrap();
    let (first, last) = trace.span().unwrap();
    assert_eq!((last - first, trace.clock.epoch_ns), (Nanos(10_875), Some(0)));
    // The totals are of the same events.
    let profile = read(document.as_bytes(), "x").unwrap();
    assert_eq!(
        (profile.elapsed, profile.profile.ledger.stage(Stage::Decode).gaps.count("at-time-zero")),
        (Nanos(10_875), 1)
    );
}

#[test]
fn a_part_of_the_time_has_its_own_sums() {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::trace::{EventLanes, Job, text};
    // Begins at 5 µs: moments are relative to that.
    let trace = text::parse(
        "step main 5..25 s#1
         op main 6..20 aten::mm
         call main 8..10 cudaLaunchKernel #1
         call main 25..45 cudaDeviceSynchronize #2
         kernel 0/7 15..35 gemm #1
         copy 0/7 36..40 Memcpy HtoD #1 400B",
    );
    let job = Job::new(vec![("t".to_owned(), trace.unwrap())]).unwrap();
    let lanes = EventLanes::new(std::sync::Arc::new(job), |_| 0);
    let micros = |ns: u64| Nanos(ns * 1000);
    let check = |from, to, metric, expect: (u64, u64)| {
        let profile = super::super::profile_of_range(&lanes, micros(from), micros(to));
        let total = profile.tree.total(metric);
        assert_eq!((total.sum, total.count), expect, "{from}..{to} {metric:?}");
    };
    check(0, 100, Metric::GpuTime, (20_000, 1));
    check(0, 20, Metric::GpuTime, (10_000, 1));
    check(0, 10, Metric::GpuTime, (0, 0));
    check(33, 100, Metric::CopyBytes, (200, 1));
    check(0, 100, Metric::WallTime, (40_000, 4));
    // Of the call, and not of the preceding launch or operator.
    check(20, 30, Metric::WallTime, (10_000, 1));
    check(0, 20, Metric::StepTime, (20_000, 1));
    check(0, 19, Metric::StepTime, (0, 0));
    check(20, 30, Metric::LaunchTime, (0, 0));
    // Its launch was before: it is still its context.
    let profile = super::super::profile_of_range(&lanes, micros(20), micros(30));
    let (node, _) = profile.tree.cells(Metric::GpuTime).next().unwrap();
    let stack = profile
        .tree
        .stack(node)
        .into_iter()
        .map(|frame| profile.frames.get(frame).label(&profile.strings, false));
    let stack: Vec<String> = stack.collect();
    assert!(stack.iter().any(|name| name == "aten::mm"), "{stack:?}");
}

#[test]
fn a_trace_without_its_end_is_read_up_to_there() {
    let whole =
        r#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":2},{"ph":"X","name":"b"}]}"#;
    let check = |bytes: &[u8]| {
        let (trace, kind) = trace(bytes).unwrap();
        assert_eq!((shown(&trace).as_str(), kind), ("Other 1/1 1000+2000 a #0\n1 cut-short\n", Kind::Kineto));
    };
    check(&whole.as_bytes()[..whole.len() - 12]);
    // Cut within a number, which is invalid then.
    for number in ["-", "1.", "1e"] {
        check(format!(r#"{}{{"ts":{number}"#, &whole[..whole.len() - 23]).as_bytes());
        check(format!("{}\n{{\"ts\":{number}", &whole[..whole.len() - 23]).as_bytes());
    }
}

#[test]
fn a_name_in_no_encoding_spoils_nothing_else() {
    let document =
        b"{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"a\xff\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":2}]}";
    let (trace, _) = trace(document).unwrap();
    assert_eq!(shown(&trace), "Other 1/1 1000+2000 a\u{fffd} #0\n1 repaired\n");
}

#[test]
fn ranks_and_clocks_are_read() {
    let check = |rest: &str, expect: (Option<u32>, Option<u32>, Option<u64>, u64)| {
        let document = format!(
            r#"{{"traceEvents":[{{"ph":"X","name":"a","pid":1,"tid":1,"ts":1623142623460111,"dur":2}}]{rest}}}"#
        );
        let (trace, _) = trace(document.as_bytes()).unwrap();
        let clock = trace.clock;
        let found = (trace.rank.rank, trace.rank.world_size, clock.epoch_ns, clock.resolution.0);
        assert_eq!(found, expect, "{rest}");
    };
    check("", (None, None, Some(0), 1000));
    check(
        r#","distributedInfo":{"backend":"nccl","rank":3,"world_size":8}"#,
        (Some(3), Some(8), Some(0), 1000),
    );
    check(
        r#","baseTimeNanoseconds":1767189312000000000"#,
        (None, None, Some(1_767_189_312_000_000_000), 1000),
    );
}

#[test]
fn formats_without_events_are_refused_by_name() {
    let check = |bytes: &[u8], expect: &str| assert_eq!(trace(bytes).unwrap_err().to_string(), expect);
    check(
        b"a;b 3\n",
        "a file of folded stacks has no events in time: a timeline needs a Kineto, rocprofv3, XPlane, Perfetto or Nsight Systems trace",
    );
}

#[test]
fn rocprofv3_dispatches_are_joined_with_their_calls() {
    let document = br#"{"rocprofiler-sdk-tool":[{"metadata":{"pid":9},
        "agents":[{"id":{"handle":1},"type":1},{"id":{"handle":5},"type":2},{"id":{"handle":6},"type":2}],
        "kernel_symbols":[{"kernel_id":8,"formatted_kernel_name":"gemm"}],
        "strings":{"buffer_records":[{"kind":"NONE","operations":["hipLaunchKernel"]}]},
        "buffer_records":{
          "kernel_dispatch":[
            {"kind":11,"operation":2,"thread_id":3,"correlation_id":{"internal":7},"start_timestamp":100,"end_timestamp":140,
             "dispatch_info":{"agent_id":{"handle":6},"queue_id":{"handle":2},"kernel_id":8},"stream_id":{"handle":4}},
            {"kind":11,"operation":2,"thread_id":3,"correlation_id":{"internal":9},"start_timestamp":150,"end_timestamp":140,
             "dispatch_info":{"agent_id":{"handle":6},"kernel_id":8}},
            {"kind":11,"operation":2,"thread_id":3,"correlation_id":{"internal":9},"start_timestamp":150,
             "end_timestamp":18446744073709551615,"dispatch_info":{"agent_id":{"handle":6},"kernel_id":8}}],
          "hip_api":[{"kind":0,"operation":0,"thread_id":3,"correlation_id":{"internal":7},"start_timestamp":80,"end_timestamp":90}]}}]}"#;
    let (trace, kind) = trace(document).unwrap();
    assert_eq!(kind, Kind::Rocprof);
    let expect = "RuntimeCall 9/3 80+10 hipLaunchKernel #7\nKernel 1/4 100+40 gemm #7 0 B\n\
                  1 end-before-begin\n1 too-long\n";
    assert_eq!(shown(&trace), expect);
}

#[test]
fn rocprofv3_keeps_ranges_and_processes_apart() {
    let record = |operation: u32, id: u32, (start, end): (u32, u32)| {
        format!(
            r#""kind":0,"operation":{operation},"thread_id":3,"correlation_id":{{"internal":{id}}},
                "start_timestamp":{start},"end_timestamp":{end}"#
        )
    };
    let process = |pid: u32, range: &str| {
        format!(
            r#"{{"metadata":{{"pid":{pid}}},"agents":[{{"id":{{"handle":5}},"type":2}}],
            "kernel_symbols":[{{"kernel_id":8,"formatted_kernel_name":"gemm"}}],
            "strings":{{"marker_api":[{{"key":3,"value":"{range}"}}],
              "buffer_records":[{{"operations":["hipLaunchKernel","ncclAllReduce","roctxNameOsThread"]}}]}},
            "buffer_records":{{
              "kernel_dispatch":[{{{},"stream_id":{{"handle":4}},
                 "dispatch_info":{{"agent_id":{{"handle":5}},"kernel_id":8}}}}],
              "hip_api":[{{{}}}],"rccl_api":[{{{}}}],"marker_api":[{{{}}},{{{}}}]}}}}"#,
            record(0, 1, (100, 140)),
            record(0, 1, (80, 90)),
            record(1, 2, (70, 95)),
            record(0, 3, (60, 200)),
            record(2, 4, (50, 51)),
        )
    };
    let document = format!(r#"{{"rocprofiler-sdk-tool":[{},{}]}}"#, process(9, "train"), process(10, "test"));
    let (traces, _) = traces(document.as_bytes()).unwrap();
    let expect = |pid: u32, range: &str| {
        format!(
            "RuntimeCall {pid}/3 80+10 hipLaunchKernel #1\nOther {pid}/3 70+25 ncclAllReduce #0\n\
             Annotation {pid}/3 60+140 {range} #0\nOther {pid}/3 50+1 roctxNameOsThread #0\n\
             Kernel 0/4 100+40 gemm #1 0 B\n"
        )
    };
    let found: Vec<_> = traces.iter().map(|(pid, trace)| (*pid, trace.clock.domain, shown(trace))).collect();
    let expect = [(Some(9), Some(0), expect(9, "train")), (Some(10), Some(0), expect(10, "test"))];
    assert_eq!(found, expect);
    let many = format!(r#"{{"rocprofiler-sdk-tool":[{}{{}}]}}"#, "{},".repeat(1024));
    let error = super::traces(many.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("more than 1024 processes"), "{error}");
}

/// A record of rocprofv3 from a time to 90.
fn rocprof_record(start: u32) -> String {
    format!(
        r#""kind":0,"operation":0,"thread_id":3,"correlation_id":{{"internal":7}},
            "start_timestamp":{start},"end_timestamp":90"#
    )
}

#[test]
fn rocprofv3_is_read_up_to_its_end_whatever_its_names() {
    let document = format!(
        r#"{{"rocprofiler-sdk-tool":[{{"metadata":{{"pid":9}},"strings":{{"buffer_records":[{{"operations":["hip?"]}}]}},
            "buffer_records":{{"hip_api":[{{{}}},{{{}}}]}}}}]}}"#,
        rocprof_record(80),
        rocprof_record(85)
    );
    let (first, second) = ("RuntimeCall 9/3 80+10 hip? #7\n", "RuntimeCall 9/3 85+5 hip? #7\n");
    let cut = |end: usize| trace(&document.as_bytes()[..end]);
    assert_eq!(shown(&cut(document.len() - 10).unwrap().0), format!("{first}1 cut-short\n"));
    // Without a whole event there is nothing to read.
    let first_start = document.find("start_timestamp").unwrap();
    assert!(matches!(cut(first_start), Err(ImportError::Damaged { .. })));
    let odd: Vec<u8> = document.bytes().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
    let expect = format!("{first}{second}1 repaired\n").replace('?', "\u{fffd}");
    assert_eq!(shown(&trace(&odd).unwrap().0), expect);
}

#[test]
fn rocprofv3_records_without_a_place_are_counted() {
    let document = format!(
        r#"{{"rocprofiler-sdk-tool":[{{"metadata":{{"pid":9}},"agents":[{{"id":{{"handle":5}},"type":2}}],
            "callback_records":{{"counter_collection":[{{}},{{"records":[1,2]}}]}},
            "buffer_records":{{"memory_allocation":[{{}},{{}}],"rocjpeg_api":[{{}}],"scratch_memory":[],"other":null,
              "memory_copy":[{{{},"dst_agent_id":{{"handle":6}},"bytes":8}}]}}}}]}}"#,
        rocprof_record(80)
    );
    let (trace, _) = trace(document.as_bytes()).unwrap();
    assert_eq!(shown(&trace), "Copy 0/- 80+10 Memcpy #7 8 B\n1 unknown-device\n5 kind-not-read\n");
}

/// A field of a message whose content is a message.
fn nested(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3 | 2) as u8];
    prost::encoding::encode_varint(content.len() as u64, &mut out);
    out.extend(content);
    out
}

#[test]
fn xplane_lines_become_streams_and_threads() {
    use crate::proto::xplane::{
        EVENTS, LINES, PLANES, STATS, XEvent, XEventMetadata, XLine, XPlane, XStat, XStatMetadata,
    };
    use prost::Message as _;

    let plane = |name: &str, (id, line): (i64, &str), event: &str, offset_ps: i64, stat: &str| {
        let stats = XStat { metadata_id: 6, unsigned: Some(18), signed: None };
        let of_event = XEvent { metadata_id: 4, offset_ps, duration_ps: 2_000 };
        let of_event = [of_event.encode_to_vec(), nested(STATS, &stats.encode_to_vec())].concat();
        let line = XLine { id, name: line.into(), timestamp_ns: 1_000 };
        let line = [line.encode_to_vec(), nested(EVENTS, &of_event)].concat();
        let plane = XPlane {
            name: name.into(),
            event_metadata: [(4, XEventMetadata { name: event.into() })].into(),
            stat_metadata: [(6, XStatMetadata { name: stat.into() })].into(),
        };
        nested(PLANES, &[plane.encode_to_vec(), nested(LINES, &line)].concat())
    };
    let id = "correlation_id";
    let host = plane("/host:CPU", (1, "python"), "hipModuleLaunchKernel", 0, id);
    let step = plane("/host:CPU", (1, "python"), "train", 0, "step_num");
    let other = plane("/host:CPU", (2, "python"), "load", 0, "batch");
    let device = plane("/device:GPU:2", (17, "Stream #17(Memset,Compute)"), "gemm", 500_400, id);
    let derived = plane("/device:GPU:2", (3, "XLA Ops"), "fusion", 0, id);
    let tpu = plane("/device:TPU:0", (3, "XLA Ops"), "fusion", 0, id);
    let (trace, kind) = trace(&[host, step, other, device, derived, tpu].concat()).unwrap();
    assert_eq!(kind, Kind::XPlane);
    let expect = "RuntimeCall /host:CPU/python 1000+2 hipModuleLaunchKernel #18\n\
                  Step /host:CPU/python 1000+2 train#18 #0\nOther /host:CPU/python 2 1000+2 load #0\n\
                  Kernel 2/17 1500+2 gemm #18 0 B\n1 rounded\n1 on-no-thread\n";
    assert_eq!(shown(&trace), expect);
}

#[test]
fn too_many_events_of_an_xplane_are_refused_undecoded() {
    // An event without content takes two bytes. The last one was cut.
    let line = [nested(4, &[]).repeat(EVENTS_MAX), vec![4 << 3 | 2, 9]].concat();
    let plane = nested(1, &[nested(2, b"/host:CPU"), nested(3, &line)].concat());
    let error = trace(&plane).unwrap_err();
    assert!(matches!(error, ImportError::TooLarge { most: EVENTS_MAX, .. }), "{error}");
}

#[test]
fn first_schema_kernels_are_device_time_and_waits_are_none() {
    let document = br#"{"traceEvents":[
        {"ph":"X","cat":"Operator","name":"ProfilerStep#5","pid":7,"tid":"7","ts":100,"dur":90},
        {"ph":"X","cat":"Operator","name":"aten::mm","pid":7,"tid":"7","ts":110,"dur":20},
        {"ph":"X","cat":"Runtime","name":"cudaLaunchKernel","pid":7,"tid":"7","ts":112,"dur":2,"args":{"correlation":3}},
        {"ph":"i","name":"[memory]","pid":7,"tid":7,"ts":115,"args":{"Device Type":1,"Device Id":0,"Bytes":64,"Addr":1}},
        {"ph":"i","name":"[memory]","pid":7,"tid":7,"ts":150,"args":{"Device Type":1,"Device Id":0,"Bytes":-64,"Addr":1}},
        {"ph":"X","cat":"Kernel","name":"gemm","pid":0,"tid":"stream 7","ts":120,"dur":8,"args":{"device":0,"stream":7,"correlation":3}},
        {"ph":"X","cat":"cuda_sync","name":"Context Sync","pid":0,"tid":-1,"ts":1,"dur":900,"args":{"stream":-1,"correlation":9,"device":0}}
    ]}"#;
    let imported = read(document, "x").unwrap();
    let expect = "\
all
  process-7
    [range] ProfilerStep  wall-time=70000 range-time=90000 step-time=90000
      aten::mm  wall-time=18000 tensor-bytes=64 tensor-returned-bytes=64
        cudaLaunchKernel  wall-time=2000 launch-time=2000
          [device 0, stream 7]
            [gpu] gemm  gpu-time=8000 kernels=1 launch-delay=8000
";
    assert_eq!(deepctx_profile::text::tree(&imported.profile), expect);
    assert!(view::losses(&imported.profile).is_empty());
}

#[test]
fn unknown_categories_are_no_time_of_any_thread() {
    let event = |category: &str, ts: u32| {
        format!(r#"{{"ph":"X","cat":"{category}","name":"x","pid":7,"tid":7,"ts":{ts},"dur":10}}"#)
    };
    let document = |events: &[String]| format!("{{\"traceEvents\":[{}]}}", events.join(","));
    let wall = |document: &str| {
        let imported = read(document.as_bytes(), "x").unwrap();
        let total = imported.profile.tree.total(deepctx_profile::metric::Metric::WallTime).sum;
        let notes = view::losses(&imported.profile).into_iter().map(|row| (row.count, row.sentence));
        (total, notes.collect::<Vec<_>>())
    };
    let known = document(&[
        event("cpu_op", 0),
        event("mtia_ccp_events", 20),
        event("hpu_op", 40),
        event("hpu_op", 60),
    ]);
    let expect = "events are of categories that are not known, so they are no time of any thread: `hpu_op` (2), `mtia_ccp_events` (1)";
    assert_eq!(wall(&known), (10_000, vec![(3, expect.to_owned())]));
    let (trace, _) = trace(known.as_bytes()).unwrap();
    let kinds: Vec<_> = trace.host.iter().map(|(_, op)| op.kind.name()).collect();
    assert_eq!(kinds, ["operator", "unknown-category", "unknown-category", "unknown-category"]);
    let categories: Vec<_> = trace.categories.iter().map(|(_, of)| trace.name(of.category)).collect();
    assert_eq!(categories, ["mtia_ccp_events", "hpu_op", "hpu_op"]);
    // Another program's categories are its own.
    assert_eq!(wall(&document(&[event("render", 0), event("layout", 20)])), (20_000, Vec::new()));
}

#[test]
fn counters_keep_their_values() {
    let document = r#"{"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"a","pid":7,"tid":7,"ts":1,"dur":2},
        {"ph":"C","name":"memory","pid":7,"ts":1.5,"args":{"used":0.1,"free":"12","what":null}}]}"#;
    let (trace, _) = trace(document.as_bytes()).unwrap();
    let found: Vec<_> = trace
        .counters
        .iter()
        .map(|(_, of)| (trace.name(of.name), trace.name(of.series), of.at.as_nanos(), of.value.get()))
        .collect();
    assert_eq!(found, [("memory", "used", 1500, 0.1), ("memory", "free", 1500, 12.0)]);
    assert_eq!(trace.ledger.stage(Stage::Decode).gaps.count("not-understood"), 1);
}
