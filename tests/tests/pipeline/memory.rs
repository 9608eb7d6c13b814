//! Tensor allocations as a page of records → who held the memory, and when.

use std::collections::HashMap;

use crate::pipeline_support::{
    NamesInAddresses, PIDS_OF_USER, config, feed_damaged, folded_as, losses, page, run, run_with,
};
use deepctx_pipeline::{Config, Pipeline, TraceWindow};
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::trace::{Lane, RecordedEvent, RecordedValue};
use deepctx_profile::units::Nanos;
use deepctx_profile::view::Selection;
use proptest::prelude::*;

/// Folded stacks of every memory metric, and the gaps of the stage.
fn reported(profile: &Profile) -> String {
    let mut text = String::new();
    for metric in [Metric::TensorBytes, Metric::TensorReturnedBytes, Metric::PeakBytes, Metric::LiveBytes] {
        let folded = folded_as(profile, Selection { interpreter: true, ..Selection::of(metric) });
        text.extend(folded.lines().map(|line| format!("{metric}: {line}\n")));
    }
    for pool in &profile.memory {
        text.push_str(&format!("{} {}: {} at {}", pool.pid, pool.device, pool.peak_bytes, pool.peak_at.0));
        if let (Some(held), Some(most)) = (pool.peak_reserved_bytes, pool.most_reserved_bytes) {
            text.push_str(&format!(", held {held} {most}"));
        }
        if let Some(unused) = pool.most_unused_bytes {
            text.push_str(&format!(", unused {unused} at {}", pool.most_unused_at.0));
        }
        if pool.peak_unseen_bytes > 0 {
            text.push_str(&format!(", unseen {}", pool.peak_unseen_bytes));
        }
        if pool.asked_bytes > 0 {
            text.push_str(&format!(", asked {} given {}", pool.asked_bytes, pool.given_bytes));
        }
        text.push('\n');
    }
    let gaps = losses(profile);
    text.extend(gaps.lines().filter(|line| line.contains(" tensor")).map(|line| format!("{line}\n")));
    text
}

/// Records → all of it.
#[track_caller]
fn check(records: &str, expect: &str) {
    let mut pipeline = run(records);
    assert_eq!(reported(pipeline.profile()), page(expect));
    pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
}

#[test]
fn memory_is_counted_by_allocating_stack_and_at_peak() {
    check(
        "
        10 call 1 new 7/7 app address=64 bytes=100 : ! f main
        11 call 2 new 7/7 app address=256 bytes=50 : ! g main
        12 call 3 delete 7/8 app address=64
        13 call 4 new 7/7 app address=64 bytes=30 : ! f main
        14 call 5 new 7/7 app address=512 bytes=60 : ! g main
        15 call 6 new 7/7 app address=1024 bytes=20 : ! f main
        16 call 7 delete 7/7 app address=512
        17 call 8 delete 7/7 app address=1024
        ",
        // 100, 150, 50, 80, 140, 160, 100, 80.
        "
        tensor-bytes: app-7;main;f;[memory] cpu 150
        tensor-bytes: app-7;main;g;[memory] cpu 110
        tensor-returned-bytes: app-7;main;f;[memory] cpu 120
        tensor-returned-bytes: app-7;main;g;[memory] cpu 60
        peak-bytes: app-7;main;f;[memory] cpu 50
        peak-bytes: app-7;main;g;[memory] cpu 110
        live-bytes: app-7;main;f;[memory] cpu 30
        live-bytes: app-7;main;g;[memory] cpu 50
        7 cpu: 160 at 15
        ",
    );
}

#[test]
fn levels_of_devices_are_counters_of_a_trace() {
    let trace = Some(TraceWindow::First(Nanos(1_000_000_000)));
    // Two values within the first millisecond: the last one counts.
    let records = "
        10 call 1 report 7/7 app address=64 bytes=512 total-allocated=1512 total-reserved=4096 packed-device=257 : ! f main
        11 call 2 report 7/7 app address=1024 bytes=1024 total-allocated=2536 total-reserved=4096 packed-device=257 : ! g main
        2000000 call 3 report 7/7 app address=64 bytes=0xfffffffffffffe00 total-allocated=2024 total-reserved=8192 packed-device=257
        2000001 call 4 new 7/7 app address=64 bytes=100 : ! f main
        ";
    let mut pipeline = run_with(records, Config { trace, ..config() });
    let batch = pipeline.recorded().unwrap();
    let profile = pipeline.profile();
    let shown = |event: &RecordedEvent| {
        let Lane::Counter { pid, metric, node } = batch.lanes[event.lane as usize] else { return None };
        let RecordedValue { value, merged } = event.counted()?;
        let of = profile.frames.get(profile.tree.node(node).frame).label(&profile.strings, false);
        Some(format!("{pid} {metric} {of} {} {value} +{merged}", event.start.0))
    };
    let mut found: Vec<String> = batch.events.iter().filter_map(shown).collect();
    found.sort();
    let expect = [
        "7 live-bytes [memory] cpu 2000001 100 +0",
        "7 live-bytes [memory] cuda:1 11 2536 +1",
        "7 live-bytes [memory] cuda:1 2000000 2024 +0",
        "7 reserved-bytes [memory] cuda:1 11 4096 +1",
        "7 reserved-bytes [memory] cuda:1 2000000 8192 +0",
    ];
    assert_eq!(found, expect);
    assert_eq!(pipeline.recorded_account().map(|account| account.lost()), Some(0));
}

#[test]
fn allocated_reserved_and_requested_device_bytes_are_recorded() {
    check(
        "
        10 call 1 report 7/7 app address=64 bytes=512 total-allocated=1512 total-reserved=4096 packed-device=257 : ! f main
        11 call 2 malloc 7/7 app address=64 device=1 bytes=500
        12 call 3 report 7/7 app address=1024 bytes=1024 total-allocated=2536 total-reserved=4096 packed-device=257 : ! g main
        13 call 4 malloc 7/7 app address=1024 device=1 bytes=1000
        14 call 5 free 7/7 app address=64
        15 call 6 report 7/7 app address=64 bytes=0xfffffffffffffe00 total-allocated=2024 total-reserved=4096 packed-device=257
        ",
        "
        tensor-bytes: app-7;main;f;[memory] cuda:1 512
        tensor-bytes: app-7;main;g;[memory] cuda:1 1024
        tensor-returned-bytes: app-7;main;f;[memory] cuda:1 512
        peak-bytes: app-7;main;f;[memory] cuda:1 512
        peak-bytes: app-7;main;g;[memory] cuda:1 1024
        live-bytes: app-7;main;g;[memory] cuda:1 1024
        7 cuda:1: 2536 at 12, held 4096 4096, unused 2584 at 10, unseen 1000, asked 1500 given 1536
        ",
    );
}

#[test]
fn where_nothing_is_reported_a_mark_tells_alone() {
    check(
        "
        10 call 1 alone 7/7 app address=64 device=0 bytes=500 : ! f main
        11 call 2 malloc 7/7 app address=128 device=0 bytes=40
        12 call 3 free 7/7 app address=64
        13 call 4 free 7/7 app address=999
        ",
        "
        tensor-bytes: app-7;[unknown: stack-not-taken];[memory] cuda:0 40
        tensor-bytes: app-7;main;f;[unknown: jit];[memory] cuda:0 500
        tensor-returned-bytes: app-7;main;f;[unknown: jit];[memory] cuda:0 500
        peak-bytes: app-7;[unknown: stack-not-taken];[memory] cuda:0 40
        peak-bytes: app-7;main;f;[unknown: jit];[memory] cuda:0 500
        live-bytes: app-7;[unknown: stack-not-taken];[memory] cuda:0 40
        7 cuda:0: 540 at 11
        attribute tensor-free-unknown 1
        attribute tensor-without-stack 1
        ",
    );
}

#[test]
fn host_allocator_reports_are_not_counted_twice() {
    check(
        "
        10 call 1 new 7/7 app address=64 bytes=100 : ! f main
        10 call 2 report 7/7 app address=64 bytes=100 total-allocated=100 total-reserved=0 packed-device=0xff00 : ! new f main
        12 call 3 delete 7/7 app address=64
        12 call 4 report 7/7 app address=64 bytes=0xffffffffffffff9c total-allocated=0 total-reserved=0 packed-device=0xff00 : ! new f main
        ",
        "
        tensor-bytes: app-7;main;f;[memory] cpu 100
        tensor-returned-bytes: app-7;main;f;[memory] cpu 100
        peak-bytes: app-7;main;f;[memory] cpu 100
        7 cpu: 100 at 10
        ",
    );
}

#[test]
fn what_does_not_fit_together_is_counted() {
    let first = "10 call 1 new 7/7 app address=64 bytes=100 : ! f main\n";
    let kept = "tensor-bytes: app-7;main;f;[memory] cpu 100\n";
    for (rest, expect) in [
        // Allocated before the capture.
        ("12 call 3 delete 7/7 app address=65", "attribute tensor-free-unknown 1\n"),
        // Of another process.
        ("12 call 3 delete 8/8 app address=64", "attribute tensor-free-unknown 1\n"),
        // An empty allocation, which has no unique address.
        ("12 call 3 new 7/7 app address=64 bytes=0 : ! f main", ""),
        ("12 call 3 new 7/7 app address=unread bytes=5 : ! f main", "attribute tensor-unreadable 1\n"),
        ("12 call 3 new 7/7 app address=128 bytes=unread : ! f main", "attribute tensor-unreadable 1\n"),
    ] {
        check(
            &format!("{first}{rest}"),
            &format!(
                "{kept}peak-bytes: app-7;main;f;[memory] cpu 100
                live-bytes: app-7;main;f;[memory] cpu 100
                7 cpu: 100 at 10
                {expect}"
            ),
        );
    }
    // Its free was lost; and one stack is limited.
    check(
        &format!("{first}12 call 3 new 7/7 app address=64 bytes=7 flags=limited"),
        &format!(
            "tensor-bytes: app-7;[unknown: stack-limited];[memory] cpu 7
            {kept}tensor-returned-bytes: app-7;main;f;[memory] cpu 100
            peak-bytes: app-7;main;f;[memory] cpu 100
            live-bytes: app-7;[unknown: stack-limited];[memory] cpu 7
            7 cpu: 100 at 10
            attribute tensor-free-missed 1
            attribute tensor-without-stack 1
            "
        ),
    );
}

#[test]
fn reused_pid_does_not_inherit_memory_of_the_ended_process() {
    check(
        "
        10 call 1 new 7/7 app address=64 bytes=100 : ! f main
        20 exit 7
        30 call 2 delete 7/7 app address=64
        31 call 3 new 7/7 app address=64 bytes=40 : ! f main
        ",
        "
        tensor-bytes: app-7;main;f;[memory] cpu 140
        peak-bytes: app-7;main;f;[memory] cpu 140
        live-bytes: app-7;main;f;[memory] cpu 140
        7 cpu: 100 at 10
        7 cpu: 40 at 31
        attribute tensor-free-unknown 1
        ",
    );
}

/// A process allocates so many bytes at a time.
fn allocates(time: u64, pid: u32, bytes: u64) -> String {
    format!("{time} call {time} new {pid}/{pid} app address=64 bytes={bytes} : ! f main\n")
}

fn peak(profile: &Profile, pid: u32) -> Option<u64> {
    profile.memory.iter().find(|pool| pool.pid == pid).map(|pool| pool.peak_bytes)
}

#[test]
fn memory_of_a_process_after_thousands_of_others_is_known() {
    let ended = (1..=3000u32).map(|n| {
        let time = u64::from(n) * 10;
        format!("{}{} exit {n}\n", allocates(time, n, 1000 + u64::from(n)), time + 5)
    });
    let mut pipeline = run(&format!("{}{}", ended.collect::<String>(), allocates(40_000, 3001, 7)));
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!((peak(profile, 3001), peak(profile, 3000), peak(profile, 1)), (Some(7), Some(4000), None));
    let gaps = losses(profile);
    let gaps: Vec<&str> = gaps.lines().filter(|line| line.contains(" tensor")).collect();
    assert_eq!(gaps, [format!("attribute tensor-rows-left-out {}", 3001 - profile.memory.len())]);
    let at_peak = profile.tree.total(Metric::PeakBytes).sum;
    assert_eq!(at_peak, (1..=3000).map(|n| 1000 + n).sum::<u64>() + 7);
}

#[test]
fn one_user_leaves_room_for_the_memory_of_another() {
    let theirs = (1..=1000).map(|n| allocates(u64::from(n) * 10, PIDS_OF_USER + n, 100));
    let other = 2 * PIDS_OF_USER;
    let mut pipeline = run(&format!("{}{}", theirs.collect::<String>(), allocates(20_000, other, 7)));
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    assert_eq!(peak(profile, other), Some(7));
    let followed = profile.memory.len() - 1;
    assert!(followed < 256, "{followed}");
    assert!(reported(profile).contains(&format!("attribute tensors-full {}", 1000 - followed)));
}

#[test]
fn devices_that_a_process_makes_up_have_a_bound() {
    let devices = (0..100).map(|n| {
        let time = 10 + n;
        format!(
            "{time} call {time} report 7/7 app address={} bytes=8 total-allocated=8 total-reserved=8 packed-device={} : ! f main\n",
            64 * (n + 1),
            n << 8 | 1
        )
    });
    let mut pipeline = run(&format!("{}{}", devices.collect::<String>(), allocates(1000, 8, 7)));
    let profile = pipeline.profile();
    assert_eq!((profile.memory.len(), peak(profile, 8)), (64 + 1, Some(7)));
    assert!(reported(profile).contains("attribute tensors-full 36\n"));
}

#[test]
fn the_course_of_a_device_holds_between_changes() {
    let second = 1_000_000_000u64;
    let pipeline = run(&format!(
        "
        {} call 1 report 7/7 app address=64 bytes=512 total-allocated=512 total-reserved=2048 packed-device=1 : ! f main
        {} call 2 report 7/7 app address=128 bytes=100 total-allocated=612 total-reserved=4096 packed-device=1 : ! f main
        {} call 3 report 7/7 app address=64 bytes=0xfffffffffffffe00 total-allocated=100 total-reserved=4096 packed-device=1
        {} sample 7/7 app f! main",
        second / 10,
        second / 2,
        second / 2 + 1,
        second
    ));
    let profile = pipeline.into_profile();
    let lanes: Vec<_> = profile.timeline.lanes().iter().filter(|lane| lane.metric.is_level()).collect();
    let values = |metric| &lanes.iter().find(|lane| lane.metric == metric).unwrap().values[..];
    assert_eq!(values(Metric::LiveBytes), [0, 512, 512, 512, 512, 612, 100, 100, 100, 100]);
    assert_eq!(values(Metric::ReservedBytes), [0, 2048, 2048, 2048, 2048, 4096, 4096, 4096, 4096, 4096]);
}

/// Actions of a small allocator: an address, and bytes (0 for a free).
fn allocator() -> impl Strategy<Value = Vec<(u8, u16, bool)>> {
    proptest::collection::vec((0u8..12, 0u16..500, any::<bool>()), 1..120)
}

proptest! {
    #[test]
    fn whatever_is_allocated_is_live_or_was_returned(events in allocator()) {
        let mut records = String::new();
        let mut live: HashMap<u8, (u64, &str)> = HashMap::new();
        let (mut peak, mut at_peak, mut unknown, mut missed) = (0, HashMap::new(), 0, 0);
        for (n, (address, bytes, who)) in (1u64..).zip(&events) {
            let (bytes, who) = (u64::from(*bytes), if *who { "f" } else { "g" });
            if bytes % 3 == 0 {
                records.push_str(&format!("{n} call {n} delete 7/7 app address={address}\n"));
                unknown += u64::from(live.remove(address).is_none());
            } else {
                records.push_str(&format!("{n} call {n} new 7/7 app address={address} bytes={bytes} : ! {who} main\n"));
                missed += u64::from(live.insert(*address, (bytes, who)).is_some());
            }
            let sum: u64 = live.values().map(|(bytes, _)| bytes).sum();
            if sum > peak {
                peak = sum;
                at_peak.clear();
                for (bytes, who) in live.values() {
                    *at_peak.entry(*who).or_insert(0) += bytes;
                }
            }
        }
        let mut pipeline = run(&records);
        let profile = pipeline.profile();
        let total = |metric| profile.tree.total(metric).sum;
        let still: u64 = live.values().map(|(bytes, _)| bytes).sum();
        prop_assert_eq!(total(Metric::TensorBytes), still + total(Metric::TensorReturnedBytes));
        prop_assert_eq!(total(Metric::LiveBytes), still);
        prop_assert_eq!(total(Metric::PeakBytes), peak);
        let by: HashMap<String, u64> = folded_as(profile, Selection::of(Metric::PeakBytes))
            .lines()
            .map(|line| line.rsplit_once(' ').unwrap())
            .map(|(stack, bytes)| (stack.split(';').nth(2).unwrap().to_owned(), bytes.parse().unwrap()))
            .collect();
        prop_assert_eq!(by, at_peak.into_iter().map(|(who, bytes)| (who.to_owned(), bytes)).collect());
        let gaps = losses(profile);
        let gap = |key: &str| gaps.lines().find_map(|line| {
            line.strip_prefix(&format!("attribute {key} ")).map(|n| n.parse::<u64>().unwrap())
        });
        prop_assert_eq!(gap("tensor-free-unknown").unwrap_or(0), unknown);
        prop_assert_eq!(gap("tensor-free-missed").unwrap_or(0), missed);
        prop_assert!(profile.ledger.check(CheckTime::Finished).is_ok());
    }

    #[test]
    fn whatever_is_damaged_the_ledger_adds_up(
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20)
    ) {
        let page = "
            10 call 1 new 7/7 app address=64 bytes=100 : ! f main
            11 call 2 report 7/7 app address=64 bytes=512 total-allocated=1512 total-reserved=4096 packed-device=257 : ! f main
            12 call 3 malloc 7/7 app address=64 device=1 bytes=500
            13 call 4 free 7/7 app address=64
            14 call 5 report 7/7 app address=64 bytes=0xfffffffffffffe00 total-allocated=1000 total-reserved=4096 packed-device=257
            15 call 6 delete 7/7 app address=64";
        let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config());
        feed_damaged(&mut pipeline, page, &damage);
        pipeline.finish();
        pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
    }
}
