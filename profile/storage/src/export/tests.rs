//! Every format holds the same totals, whatever the profile and whatever is shown of it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use expect_test::expect;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::Value;

use super::*;
use crate::proto::{otlp as otlp_proto, perfetto as perfetto_proto, pprof as pprof_proto};
use deepctx_profile::ledger::{Reason, Stage};
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::testing::{grow, profile, selections, stacks};

fn bytes(format: Format, source: &Source<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    format.write(source, &mut out).unwrap();
    out
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The data of a page.
fn page_data(page: &[u8]) -> Value {
    let text = std::str::from_utf8(page).unwrap();
    let start = text.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    json_of(&page[start..start + text[start..].find('<').unwrap()])
}

type Totals = BTreeMap<String, u128>;

fn add(totals: &mut Totals, metric: &str, value: impl Into<u128>) {
    *totals.entry(metric.to_owned()).or_default() += value.into();
}

fn uint(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Totals by metric, as a reader of the format would compute them.
#[expect(clippy::too_many_lines, reason = "one match with an arm for each format")]
fn totals(format: Format, bytes: &[u8], selected: Metric) -> Totals {
    let mut totals = Totals::new();
    match format {
        Format::Folded => {
            let text = std::str::from_utf8(bytes).unwrap();
            for line in text.lines() {
                add(&mut totals, selected.name(), line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
            }
        }
        Format::Svg => unreachable!("a picture leaves out what is too narrow to be seen"),
        Format::Html => {
            for metric in page_data(bytes)["metrics"].as_array().unwrap() {
                let own = metric["own"].as_array().unwrap();
                let sum: u64 = own.iter().map(uint).sum();
                assert_eq!(uint(&metric["total"]), sum);
                add(&mut totals, metric["name"].as_str().unwrap(), sum);
            }
        }
        Format::Pprof => {
            let mut raw = Vec::new();
            GzDecoder::new(bytes).read_to_end(&mut raw).unwrap();
            let profile = pprof_proto::Profile::decode(&raw[..]).unwrap();
            let text = |place: i64| profile.string_table[place as usize].as_str();
            assert_eq!(profile.string_table[0], "");
            for sample in &profile.sample {
                assert_eq!(sample.value.len(), profile.sample_type.len());
                assert!(!sample.location_id.is_empty());
                for id in &sample.location_id {
                    assert!(profile.location.iter().any(|location| location.id == *id));
                }
                for (kind, value) in profile.sample_type.iter().zip(&sample.value) {
                    add(&mut totals, text(kind.kind), u128::try_from(*value).unwrap());
                }
            }
        }
        Format::Speedscope => {
            let file = json_of(bytes);
            let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
            for profile in file["profiles"].as_array().unwrap() {
                let weights: u64 = profile["weights"].as_array().unwrap().iter().map(uint).sum();
                assert_eq!(weights, uint(&profile["endValue"]));
                for stack in profile["samples"].as_array().unwrap() {
                    assert!(stack.as_array().unwrap().iter().all(|frame| uint(frame) < frames));
                }
                if weights > 0 {
                    add(&mut totals, profile["name"].as_str().unwrap(), weights);
                }
            }
        }
        Format::Firefox => {
            for thread in json_of(bytes)["threads"].as_array().unwrap() {
                let samples = &thread["samples"];
                let scale = if samples["weightType"] == "tracing-ms" { 1e6 } else { 1.0 };
                let weights = samples["weight"].as_array().unwrap();
                let stacks = samples["stack"].as_array().unwrap();
                assert_eq!((weights.len(), stacks.len()), (uint(&samples["length"]) as usize, weights.len()));
                let known = uint(&thread["stackTable"]["length"]);
                assert!(stacks.iter().all(|stack| uint(stack) < known));
                let name = thread["name"].as_str().unwrap().rsplit(' ').next().unwrap().to_owned();
                for weight in weights {
                    add(&mut totals, &name, (weight.as_f64().unwrap() * scale).round() as u64);
                }
            }
        }
        Format::Chrome => {
            let file = json_of(bytes);
            let mut ends: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            for event in file["traceEvents"].as_array().unwrap() {
                if event["ph"] != "X" {
                    continue;
                }
                for (key, value) in event["args"].as_object().unwrap() {
                    if let Some(metric) = key.strip_prefix("own ") {
                        add(&mut totals, metric, uint(value));
                    }
                }
                let nanos = |key: &str| (event[key].as_f64().unwrap() * 1000.0).round() as u64;
                let end = ends.entry((uint(&event["pid"]), uint(&event["tid"]))).or_default();
                *end = (*end).max(nanos("ts") + nanos("dur"));
            }
            // The rows are as long as the values on them.
            let drawn: u128 = ends.values().map(|&end| u128::from(end)).sum();
            assert_eq!(drawn, totals.get(selected.name()).copied().unwrap_or_default());
            // Contexts without the selected metric have no width, hence no event.
            totals.retain(|metric, _| metric == selected.name());
        }
        Format::Perfetto => {
            let trace = perfetto_proto::Trace::decode(bytes).unwrap();
            let names = trace.packet.iter().filter_map(|packet| packet.interned_data.as_ref());
            let names: BTreeMap<u64, String> = names
                .flat_map(|data| data.debug_annotation_names.iter().map(|name| (name.iid, name.name.clone())))
                .collect();
            let mut open: BTreeMap<u64, i64> = BTreeMap::new();
            for event in trace.packet.iter().filter_map(|packet| packet.track_event.as_ref()) {
                *open.entry(event.track_uuid()).or_default() += match event.kind {
                    perfetto_proto::SLICE_BEGIN => 1,
                    perfetto_proto::SLICE_END => -1,
                    _ => 0,
                };
                for annotation in &event.debug_annotations {
                    if let Some(metric) = names[&annotation.name_iid].strip_prefix("own ") {
                        add(&mut totals, metric, annotation.uint_value.unwrap());
                    }
                }
            }
            assert!(open.values().all(|&open| open == 0));
            totals.retain(|metric, _| metric == selected.name());
        }
        Format::Otlp => {
            let data = otlp_proto::ProfilesData::decode(bytes).unwrap();
            let tables = data.dictionary.unwrap();
            for profile in
                data.resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles)
            {
                let metric = &tables.string_table[profile.sample_type.unwrap().type_strindex as usize];
                for sample in &profile.samples {
                    let stack = &tables.stack_table[sample.stack_index as usize];
                    assert!(!stack.location_indices.is_empty());
                    for &location in &stack.location_indices {
                        let line = tables.location_table[location as usize].lines[0];
                        assert!(line.function_index > 0);
                        assert!((line.function_index as usize) < tables.function_table.len());
                    }
                    add(&mut totals, metric, u128::try_from(sample.values[0]).unwrap());
                }
            }
        }
        Format::Hatchet => {
            let file = json_of(bytes);
            let mut open = vec![&file[0]];
            while let Some(node) = open.pop() {
                for (name, value) in node["metrics"].as_object().unwrap() {
                    let metric = name.split(" (").next().unwrap();
                    if metric.parse::<Metric>().is_ok() {
                        add(&mut totals, metric, uint(value));
                    }
                }
                open.extend(node["children"].as_array().unwrap());
            }
        }
        Format::Dctx => {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            let opened = crate::open(file.path()).unwrap();
            assert!(opened.is_complete(), "{:?}", opened.notes);
            for metric in opened.profile.tree.metrics() {
                add(&mut totals, metric.name(), opened.profile.tree.total(metric).sum);
            }
        }
        Format::Json => {
            let file = json_of(bytes);
            for context in file["contexts"].as_array().unwrap() {
                for (metric, figures) in context["values"].as_object().unwrap() {
                    add(&mut totals, metric, uint(&figures[1]));
                }
            }
            for metric in file["metrics"].as_array().unwrap() {
                let sum = totals.get(metric["name"].as_str().unwrap()).copied();
                assert_eq!(sum, Some(u128::from(uint(&metric["total"]))));
            }
        }
        Format::Csv => {
            let text = std::str::from_utf8(bytes).unwrap();
            let mut rows = text.lines().map(split_row);
            let head = rows.next().unwrap();
            for row in rows {
                assert_eq!(row.len(), head.len());
                for (metric, value) in head.iter().zip(&row).skip(8).step_by(2) {
                    add(&mut totals, metric, value.parse::<u64>().unwrap());
                }
            }
        }
    }
    totals.retain(|_, sum| *sum > 0);
    totals
}

/// Fields of a CSV row; no text here has a newline, since control characters are replaced.
fn split_row(row: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in row.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

fn check_totals(profile: &Profile, selection: Selection) {
    let source = Source { profile, selection, elapsed: Nanos(5_000_000_000), folds: true };
    for &format in Format::ALL.iter().filter(|&&format| format != Format::Svg) {
        let mut expect = Totals::new();
        for metric in profile.tree.metrics() {
            let all =
                format.metrics() == Metrics::All && !matches!(format, Format::Chrome | Format::Perfetto);
            let sum = profile.tree.total(metric).sum;
            if sum > 0 && (all || metric == selection.metric) {
                add(&mut expect, metric.name(), sum);
            }
        }
        if format == Format::Html && profile.tree.metrics().count() == 0 {
            continue;
        }
        let found = totals(format, &bytes(format, &source), selection.metric);
        assert_eq!(found, expect, "{format}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn totals_are_the_same_in_every_format(
        time in stacks(),
        bytes in stacks(),
        samples in stacks(),
        selection in selections(),
    ) {
        let mut profile = profile("");
        grow(&mut profile, &time, Metric::CpuTime);
        grow(&mut profile, &bytes, Metric::AllocBytes);
        grow(&mut profile, &samples, Metric::Samples);
        check_totals(&profile, selection);
        check_totals(&profile, Selection { metric: Metric::AllocBytes, ..selection });
    }
}

#[test]
fn empty_profile_is_valid_in_every_format_that_allows_it() {
    let profile = profile("");
    check_totals(&profile, Selection::of(Metric::CpuTime));
}

#[test]
fn every_format_writes_a_stack_of_ten_thousand_frames() {
    let mut deep = profile("");
    let frames: Vec<_> = (0..10_000)
        .map(|n| {
            let name = deep.text(&format!("f{}", n % 7));
            deep.frame(deepctx_profile::frame::Frame::Operator { name })
        })
        .collect();
    for depth in [1, 300, 10_000] {
        deep.add(&frames[..depth], Metric::CpuTime, 7);
    }
    let source =
        Source { profile: &deep, selection: Selection::of(Metric::CpuTime), elapsed: Nanos(1), folds: true };
    for &format in Format::ALL {
        // Only checks that it is written: reading it would need a patient reader; the nested one is checked below.
        assert!(!bytes(format, &source).is_empty(), "{format}");
    }
    let text = String::from_utf8(bytes(Format::Hatchet, &source)).unwrap();
    let mut depth = 0;
    let mut deepest = 0;
    for byte in text.bytes() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    assert_eq!(depth, 0);
    assert!(deepest <= hatchet::DEPTH_MAX + 4, "{deepest} levels");
    let own: u64 = text
        .match_indices("\"cpu-time (ns)\":")
        .map(|(at, key)| {
            let digits = &text[at + key.len()..];
            digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap()].parse::<u64>().unwrap()
        })
        .sum();
    assert_eq!(own, 21);
}

#[test]
fn hostile_names_stay_data_in_every_format() {
    let mut hostile = profile("");
    let names = ["</script><img src=x onerror=alert(1)>", "a;b c\t\x1b[31m\"q\"", "=1+1", "\u{202e}kcab", ""];
    let stack: Vec<_> = names
        .iter()
        .map(|name| {
            let name = hostile.text(name);
            hostile.frame(deepctx_profile::frame::Frame::Operator { name })
        })
        .collect();
    hostile.add(&stack, Metric::CpuTime, 5_000_000);
    hostile.meta.target = "<b>\x1b]0;title\x07".to_owned();
    let source = Source {
        profile: &hostile,
        selection: Selection::of(Metric::CpuTime),
        elapsed: Nanos(0),
        folds: true,
    };
    // Our own format keeps names unchanged; viewers clean them.
    for &format in Format::ALL.iter().filter(|&&format| format != Format::Dctx) {
        let out = bytes(format, &source);
        assert!(out.windows(2).all(|pair| pair != b"\x1b[" && pair != b"\x1b]"), "{format}");
    }
    let page = String::from_utf8(bytes(Format::Html, &source)).unwrap();
    assert_eq!(page.matches("<img").count() + page.matches("<b>").count(), 0);
    // One each for data and events, and two for scripts.
    assert_eq!(page.matches("</script>").count(), 4);
    check_totals(&hostile, Selection::of(Metric::CpuTime));
}

#[test]
fn the_boot_of_the_host_is_in_no_document() {
    let without = profile("P a-1 / y m.py:f:1 5");
    let mut of_boot = without.clone();
    of_boot.meta.boot_id = "3f1c8a52-0d64-4b7e-9a1e-2c5d7f80b6a9".to_owned();
    for &format in Format::ALL.iter().filter(|&&format| format != Format::Dctx) {
        let [with, without] = [&of_boot, &without].map(|profile| {
            let selection = Selection::of(Metric::CpuTime);
            bytes(format, &Source { profile, selection, elapsed: Nanos(0), folds: true })
        });
        assert!(with == without, "{format}");
    }
}

#[test]
fn html_page_merges_small_frames_of_large_profiles_keeping_totals() {
    let mut wide = profile("");
    let names: Vec<_> = (0..1000)
        .map(|n| {
            let name = wide.text(&format!("f{n}"));
            wide.frame(deepctx_profile::frame::Frame::Operator { name })
        })
        .collect();
    for (n, &a) in names.iter().enumerate() {
        for (m, &b) in names.iter().enumerate().take(150) {
            wide.add(&[a, b], Metric::CpuTime, (n * m) as u64 + 1);
        }
    }
    assert!(wide.tree.len() > 100_000);
    let source =
        Source { profile: &wide, selection: Selection::of(Metric::CpuTime), elapsed: Nanos(0), folds: true };
    let page = bytes(Format::Html, &source);
    let expect = u128::from(wide.tree.total(Metric::CpuTime).sum);
    assert_eq!(totals(Format::Html, &page, Metric::CpuTime)["cpu-time"], expect);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
}

#[test]
fn losses_of_a_page_are_sorted_by_level_with_advice() {
    let mut lossy = profile("P a-1 / n f 1");
    lossy.ledger.gap(Stage::Decode, Reason::new("no-symbol", "no name"), 9);
    lossy.ledger.gap(Stage::Resolve, Reason::new("of-another-version", "so it is"), 2);
    lossy.ledger.dropped(Stage::Attribute, Reason::new("bad-length", "too long"), 1);
    lossy.ledger.stage_mut(Stage::Order).received = 10_000;
    lossy.ledger.dropped(Stage::Order, Reason::new("late", "too late"), 1);
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile: &lossy, selection, elapsed: Nanos(0), folds: true };
    let advice = "only damaged or foreign captures show this";
    let expect = serde_json::json!([
        ["attribute", "bad-length", "too long", 1, true, "act", advice],
        ["order", "late", "too late", 1, true, "worth knowing", null],
        ["resolve", "of-another-version", "so it is", 2, false, "worth knowing", null],
        ["decode", "no-symbol", "no name", 9, false, "fine", null],
    ]);
    assert_eq!(page_data(&bytes(Format::Html, &source))["losses"], expect);
}

#[test]
fn format_names_are_distinct_and_every_unit_is_exported() {
    for (place, format) in Format::ALL.iter().enumerate() {
        assert!(Format::ALL[..place].iter().all(|other| other.name() != format.name()));
    }
    // Bytes and counts are exported next to times.
    let mut profile = profile("");
    grow(&mut profile, &[(vec![0, 4, 9], 3)], Metric::AllocBytes);
    grow(&mut profile, &[(vec![0, 4, 9], 2)], Metric::Kernels);
    assert_eq!((Metric::AllocBytes.unit(), Metric::Kernels.unit()), (Unit::Bytes, Unit::Count));
    check_totals(&profile, Selection::of(Metric::Kernels));
}

#[test]
fn traces_show_when_a_process_was_busy_and_when_waiting() {
    let mut profile = profile("P a-1 / T a/1 / n f 30");
    let thread = deepctx_profile::tree::NodeId::from_number(2);
    let ms = |ms: u64| deepctx_profile::units::Nanos(ms * 1_000_000);
    for (metric, from, to) in [(Metric::CpuTime, 0, 200), (Metric::OffCpuTime, 200, 250)] {
        profile.timeline.add_span(thread, metric, ms(from), ms(to), ms(to - from).0);
    }
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile: &profile, selection, elapsed: ms(300), folds: true };
    let expect = [("cpu-time", 0, 1.0), ("cpu-time", 200, 0.0), ("off-cpu-time", 0, 0.0)];
    let expect = [&expect[..], &[("off-cpu-time", 200, 0.5), ("off-cpu-time", 300, 0.0)]].concat();

    let trace = json_of(&bytes(Format::Chrome, &source));
    let steps = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "C");
    let steps: Vec<_> = steps
        .map(|event| {
            assert_eq!(event["pid"], 1);
            let (name, at) = (event["name"].as_str().unwrap(), event["ts"].as_f64().unwrap() / 1000.0);
            (name, at as u64, event["args"]["value"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(steps, expect);

    let trace = perfetto_proto::Trace::decode(&*bytes(Format::Perfetto, &source)).unwrap();
    let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let tracks: BTreeMap<u64, _> = tracks.map(|track| (track.uuid, track)).collect();
    let steps = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        let track = tracks[&event.track_uuid()];
        let of = tracks.get(&track.parent_uuid?)?.process.as_ref()?;
        assert_eq!((of.pid, event.kind), (1, perfetto_proto::COUNTER));
        Some((track.name.as_deref()?, packet.timestamp? / 1_000_000, event.double_counter_value?))
    });
    assert_eq!(steps.collect::<Vec<_>>(), expect);
}

/// A kernel and a copy of one launch each, and two kernels of a graph that overlap on their stream.
fn with_devices() -> deepctx_profile::profile::Profile {
    use deepctx_profile::device::activity::{Activity, ActivityKind, Launch};
    use deepctx_profile::units::Nanos;

    let mut profile = profile(
        "P a-1 / T main/1 / y m.py:step:3 / o aten::mm / a cudaLaunchKernel / g gemm 30
         P a-1 / T main/1 / y m.py:step:4 / a cudaMemcpyAsync / g memcpy 5
         P a-1 / T io/2 / a cuGraphLaunch / g fused 5",
    );
    let node = |number| deepctx_profile::tree::NodeId::from_number(number);
    let micros = |micros: u64| Nanos(micros * 1000);
    let launch = Launch {
        grid: [8, 1, 1],
        block: [128, 1, 1],
        dynamic_shared: 16,
        static_shared: Some(32),
        registers: Some(40),
        arch: None,
        device_arch: None,
    };
    profile.gpu.shape(node(6), &launch);
    let mut add = |kind, place, correlation, launched: u64, start: u64, end: u64, bytes| {
        profile.gpu.activities.push(Activity {
            node: node(place),
            kind,
            pid: 1,
            device: 0,
            context: 1,
            stream: 7,
            correlation,
            start: micros(start),
            end: micros(end),
            launched: Some(micros(launched)),
            bytes,
        });
    };
    add(ActivityKind::Kernel, 6, 11, 10, 20, 50, 0);
    add(ActivityKind::Copy, 9, 12, 15, 50, 60, 4096);
    add(ActivityKind::Kernel, 12, 13, 16, 70, 90, 0);
    add(ActivityKind::Kernel, 12, 13, 16, 80, 95, 0);
    profile
}

#[test]
fn chrome_traces_link_each_launch_to_its_device_work() {
    let profile = with_devices();
    let source = Source {
        profile: &profile,
        selection: Selection::of(Metric::CpuTime),
        elapsed: Nanos(0),
        folds: true,
    };
    let trace = json_of(&bytes(Format::Chrome, &source));
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |categories: &'static [&str]| {
        let chosen =
            events.iter().filter(move |event| categories.contains(&event["cat"].as_str().unwrap_or("")));
        chosen.map(|event| {
            let [ph, name, ts, dur] = ["ph", "name", "ts", "dur"].map(|key| event[key].to_string());
            let place = format!("{}/{}", event["pid"], event["tid"]);
            format!("{ph} {name} {place} at {ts}+{dur} id {} {}", event["id"], event["args"]).replace('"', "")
        })
    };
    let text: Vec<String> = of(&["kernel", "gpu_memcpy", "cuda_runtime", "cuda_driver", "ac2g"]).collect();
    expect![[r#"
        X gemm 0/7 at 20.0+30.0 id null {External id:0,block:[128,1,1],called by:m.py:step:3,context:1,correlation:11,device:0,grid:[8,1,1],registers per thread:40,shared memory:48,stream:7}
        f ac2g 0/7 at 20.0+null id 1 null
        X Memcpy 0/7 at 50.0+10.0 id null {External id:0,bytes:4096,called by:m.py:step:4,context:1,correlation:12,device:0,stream:7}
        f ac2g 0/7 at 50.0+null id 2 null
        X fused 0/7 at 70.0+20.0 id null {External id:0,context:1,correlation:13,device:0,stream:7}
        f ac2g 0/7 at 70.0+null id 3 null
        X fused 0/1073741825 at 80.0+15.0 id null {External id:0,context:1,correlation:13,device:0,stream:7}
        f ac2g 0/1073741825 at 80.0+null id 4 null
        X cudaLaunchKernel 1/16777217 at 10.0+0.001 id null {External id:0,correlation:11}
        s ac2g 1/16777217 at 10.0+null id 1 null
        X cudaMemcpyAsync 1/16777217 at 15.0+0.001 id null {External id:0,correlation:12}
        s ac2g 1/16777217 at 15.0+null id 2 null
        X cuGraphLaunch 1/16777218 at 16.0+0.001 id null {External id:0,correlation:13}
        s ac2g 1/16777218 at 16.0+null id 3 null
        s ac2g 1/16777218 at 16.0+null id 4 null"#]].assert_eq(&text.join("\n"));
}

/// The events of the Chrome trace of a profile.
fn chrome_events(profile: &Profile) -> Vec<Value> {
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile, selection, elapsed: Nanos(0), folds: true };
    json_of(&bytes(Format::Chrome, &source))["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn one_stream_of_two_processes_is_two_rows() {
    let mut profile = with_devices();
    let of_other: Vec<_> = profile.gpu.activities.iter().take(1).copied().collect();
    for activity in of_other {
        profile.gpu.activities.push(deepctx_profile::device::activity::Activity { pid: 2, ..activity });
    }
    let events = chrome_events(&profile);
    let named = events.iter().filter(|event| event["name"] == "thread_name" && event["pid"] == 0);
    let named: BTreeMap<u64, &str> =
        named.map(|event| (uint(&event["tid"]), event["args"]["name"].as_str().unwrap())).collect();
    let [own, further] = ["stream 7 of process 1", "stream 7 of process 2"];
    assert_eq!(named, [(7, own), (1 << 30 | 1, own), (1 << 30 | 2, further)].into());
    let work = events.iter().filter(|event| event["cat"] == "kernel" && event["name"] == "gemm");
    assert_eq!(work.map(|event| uint(&event["tid"])).collect::<Vec<_>>(), [7, 1 << 30 | 2]);
}

#[test]
fn what_is_of_no_process_is_not_on_a_device() {
    let mut profile = with_devices();
    grow(&mut profile, &[(vec![8], 3)], Metric::CpuTime);
    let events = chrome_events(&profile);
    let of_device = events.iter().filter(|event| event["pid"] == 0 && event["ph"] == "X");
    assert_eq!(of_device.filter(|event| event["args"]["device"] != 0).count(), 0);
    let name = events.iter().find(|event| event["pid"] == 1 << 23 && event["name"] == "process_name");
    assert_eq!(name.unwrap()["args"]["name"], "of no process");
}

fn pprof_of(source: &Source<'_>) -> pprof_proto::Profile {
    let mut raw = Vec::new();
    GzDecoder::new(&*bytes(Format::Pprof, source)).read_to_end(&mut raw).unwrap();
    pprof_proto::Profile::decode(&raw[..]).unwrap()
}

#[test]
fn shortened_work_is_noted_in_both_traces() {
    let mut profile = with_devices();
    let first = profile.gpu.activities.iter().next().copied().unwrap();
    (0..9).for_each(|_| profile.gpu.activities.push(first));
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile: &profile, selection, elapsed: Nanos(0), folds: true };
    let expect = "2 work-shortened: work of devices begins later than it did";
    let chrome = json_of(&bytes(Format::Chrome, &source));
    assert!(chrome["deepctx"]["note"].as_str().unwrap().starts_with(expect));
    let perfetto = perfetto_proto::Trace::decode(&*bytes(Format::Perfetto, &source)).unwrap();
    let tracks = perfetto.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    assert_eq!(tracks.filter(|of| of.description.as_ref().is_some_and(|of| of.contains(expect))).count(), 1);
}

#[test]
fn values_that_formats_cannot_hold_are_capped_and_counted() {
    let profile = profile("P a-1 / n f 18446744073709551615");
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile: &profile, selection, elapsed: Nanos(0), folds: true };
    let data = otlp_proto::ProfilesData::decode(&*bytes(Format::Otlp, &source)).unwrap();
    let of = &data.resource_profiles[0];
    assert_eq!(of.scope_profiles[0].profiles[0].samples[0].values, [i64::MAX]);
    let attributes = &of.resource.as_ref().unwrap().attributes;
    let counted = attributes.iter().find(|of| of.key == "deepctx.value-too-large").unwrap();
    assert_eq!(counted.value, otlp_proto::AnyValue::number(1));
    // A host without a name has no attribute.
    assert!(attributes.iter().all(|of| of.key != "host.name"));

    let pprof = pprof_of(&source);
    assert_eq!(pprof.sample[0].value, [i64::MAX]);
    let comments = pprof.comment.iter().map(|place| &pprof.string_table[*place as usize]);
    assert_eq!(comments.filter(|said| said.starts_with("store value-too-large 1 gap: ")).count(), 1);
}

#[test]
fn frames_have_their_type_and_mappings_the_known_build_id() {
    let stack = "P a-1 / y t.py:f / l h.0 (B) / o aten::mm / n f@/l/x.so / a cuLaunchKernel / g gemm 5";
    let mut profile = profile(stack);
    for build_id in ["", "ab12"] {
        let (path, build_id, size) = ("/l/x.so".into(), build_id.into(), deepctx_profile::units::Bytes(1));
        profile.executables.push(deepctx_profile::profile::Executable { path, build_id, size });
    }
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile: &profile, selection, elapsed: Nanos(0), folds: true };
    let data = otlp_proto::ProfilesData::decode(&*bytes(Format::Otlp, &source)).unwrap();
    let tables = data.dictionary.unwrap();
    let is_type = |key: i32| tables.string_table[key as usize] == "profile.frame.type";
    let types = tables.attribute_table.iter().filter(|of| is_type(of.key_strindex));
    let types: Vec<_> = types.map(|of| of.value.clone()).collect();
    for expect in ["cpython", "layer", "operator", "native", "gpu_api", "gpu_kernel"] {
        assert!(types.contains(&otlp_proto::AnyValue::text(expect)), "no {expect}");
    }
    let pprof = pprof_of(&source);
    assert_eq!(pprof.string_table[pprof.mapping[0].build_id as usize], "ab12");
}

#[test]
fn processes_of_one_number_are_told_apart_by_name() {
    let profile = profile("P cc1-4294967295 / n f 5\nP sh-4294967295 / n f 3\nP python3-7 / n f 2");
    let selection = Selection::of(Metric::CpuTime);
    let source = Source { profile: &profile, selection, elapsed: Nanos(0), folds: true };
    let data = otlp_proto::ProfilesData::decode(&*bytes(Format::Otlp, &source)).unwrap();
    let text = |value: &Option<otlp_proto::AnyValue>| match value.as_ref().unwrap().kind.as_ref().unwrap() {
        otlp_proto::Kind::Text(text) => text.clone(),
        otlp_proto::Kind::Number(number) => number.to_string(),
    };
    let shown = data.resource_profiles.iter().map(|of| {
        let attributes = of.resource.iter().flat_map(|resource| &resource.attributes);
        let attributes = attributes.filter(|of| of.key.starts_with("process."));
        let attributes: Vec<String> = attributes.map(|of| text(&of.value)).collect();
        let samples = of.scope_profiles[0].profiles[0].samples.iter();
        format!("{} {}", attributes.join(" "), samples.map(|sample| sample.values[0]).sum::<i64>())
    });
    // That number stands for all others of a name.
    assert_eq!(shown.collect::<Vec<_>>(), ["7 python3 2", "cc1 5", "sh 3"]);

    let pprof = pprof_of(&source);
    let numbers = pprof.sample.iter().flat_map(|sample| &sample.label).filter(|label| label.str == 0);
    assert_eq!(numbers.map(|label| label.num).collect::<Vec<_>>(), [7]);
}

#[test]
fn perfetto_traces_draw_the_same_arrows() {
    let profile = with_devices();
    let source = Source {
        profile: &profile,
        selection: Selection::of(Metric::CpuTime),
        elapsed: Nanos(0),
        folds: true,
    };
    let trace = perfetto_proto::Trace::decode(&*bytes(Format::Perfetto, &source)).unwrap();
    let tracks = trace.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let tracks: BTreeMap<u64, _> = tracks.map(|track| (track.uuid, track)).collect();
    let events = trace.packet.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        let (name, track) = (event.name.as_deref()?, tracks[&event.track_uuid()].name.as_deref()?);
        let arrows = (&event.flow_ids, &event.terminating_flow_ids);
        Some(format!("{} {name} on {track} {arrows:?}", packet.timestamp?))
    });
    expect![[r#"
        10000 cudaLaunchKernel on launches main/1 ([1], [])
        15000 cudaMemcpyAsync on launches main/1 ([2], [])
        16000 cuGraphLaunch on launches io/2 ([3, 4], [])
        20000 gemm on stream 7 of process 1 ([], [1])
        50000 memcpy on stream 7 of process 1 ([], [2])
        70000 fused on stream 7 of process 1 ([], [3])
        80000 fused on stream 7 of process 1 ([], [4])"#]]
    .assert_eq(&events.collect::<Vec<_>>().join("\n"));
}
