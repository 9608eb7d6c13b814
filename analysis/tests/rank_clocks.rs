//! Clocks of our own captures that are opened as one job.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use deepctx_analysis::OverTime;
use deepctx_analysis::over_time::{ClockBasis, Steps};
use deepctx_profile::profile::Meta;
use deepctx_profile::trace::{End, Lane, RecordedAccount, RecordedBatch, RecordedEvent, RecordedKind};
use deepctx_profile::units::{Nanos, Time};
use deepctx_profile::{NodeId, text};
use deepctx_storage::store::TraceWriter;
use deepctx_storage::{Writer, open_traces};

const SECOND: u64 = 1_000_000_000;
/// When the first capture begins, since 1970.
const STARTED: u64 = 1_700_000_000 * SECOND;
/// The same since the boot.
const STARTED_MONOTONIC: u64 = 5_000 * SECOND;

/// Writes a capture that begins so much later than the first one, with a calendar that is ahead of the first one's. Two
/// seconds after the first one began, a collective runs.
fn write(path: &Path, boot_id: &str, later_ns: u64, ahead_ns: u64) {
    let mut profile = text::parse("g ncclDevKernel_AllReduce_Sum_f32 5").unwrap();
    profile.meta = Meta {
        started: Time::from_nanos(STARTED + later_ns + ahead_ns),
        started_monotonic: Time::from_nanos(STARTED_MONOTONIC + later_ns),
        boot_id: boot_id.to_owned(),
        ..Meta::default()
    };
    let mut writer = Writer::create(path, &profile.meta).unwrap();
    let mut trace = TraceWriter::create(writer.folder(), None).unwrap();
    let start = Nanos(2 * SECOND - later_ns);
    let kernel = RecordedEvent {
        kind: RecordedKind::Kernel,
        end: End::After(Nanos(50_000)),
        node: NodeId::from_number(1),
        ..RecordedEvent::gap(0, start, start, 0)
    };
    let lanes = vec![Lane::Stream { pid: 7, device: 0, context: 1, stream: 13 }];
    trace.append(&mut RecordedBatch { lanes, first_lane: 0, events: vec![kernel] }).unwrap();
    trace.finish(&RecordedAccount::new(1, 1)).unwrap();
    writer.finish(&profile, Time::from_nanos(STARTED_MONOTONIC + 3 * SECOND)).unwrap();
}

/// Two captures with these boot ids, and what is known of the second one's clock: basis, offset, error, and compared
/// ends of collectives.
#[track_caller]
fn check(boot_ids: [&str; 2], ahead_ns: u64, expect: (ClockBasis, i64, Option<u64>, usize)) {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["rank0.dctx", "rank1.dctx"].map(|name| folder.path().join(name));
    write(&paths[0], boot_ids[0], 0, 0);
    write(&paths[1], boot_ids[1], SECOND, ahead_ns);
    let found = OverTime::compute(&open_traces(&paths).unwrap(), Steps::default()).stragglers;
    // The folder of both is the same job.
    let of_folder = open_traces(&[folder.path().to_owned()]).unwrap();
    assert_eq!(OverTime::compute(&of_folder, Steps::default()).stragglers, found, "{boot_ids:?}");
    let row = &found.ranks[1];
    let clock = (row.clock, row.clock_offset_ns, row.clock_uncertainty_ns, row.ends_compared);
    assert_eq!(clock, expect, "{boot_ids:?}");
    // Either way, the collective begins on both ranks at once.
    assert_eq!(found.collectives.iter().map(|row| row.skew_ns).collect::<Vec<_>>(), [0], "{boot_ids:?}");
}

#[test]
fn captures_of_one_boot_have_a_common_clock() {
    // The calendar was set between the two captures.
    check(["3f1c8a52", "3f1c8a52"], 400_000_000, (ClockBasis::Common, 0, Some(0), 0));
}

#[test]
fn captures_of_other_boots_are_aligned_by_collectives() {
    let by_ends = (ClockBasis::CollectiveEnds, 400_000_000, Some(0), 1);
    check(["3f1c8a52", "77ab01c4"], 400_000_000, by_ends);
    // As captures of older versions are, which have no id.
    check(["", ""], 400_000_000, by_ends);
    check(["3f1c8a52", ""], 400_000_000, by_ends);
    // The calendar contradicts the id.
    check(["3f1c8a52", "3f1c8a52"], 2 * SECOND, (ClockBasis::CollectiveEnds, 2_000_000_000, Some(0), 1));
}
