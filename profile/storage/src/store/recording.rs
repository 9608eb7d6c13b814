//! Recordings: a profile with a trace, as the traces of its processes.
//!
//! Owns: [`Recording`]. Because: names of events are those of the profile's tree, so the two are read together. Does
//! not: compute anything of them.

use std::collections::BTreeMap;
use std::path::Path;

use super::container::Container;
use super::part::{PartEvents, PartTimes, TracePart};
use super::read::{self, StoredProfile};
use super::reason::{CONTEXT_LOST, NOT_FINISHED};
use super::trace::{List, TraceGaps, TraceReader};
use crate::error::{NotAProfile, OpenError};
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::ledger::{Ledger, Stage};
use deepctx_profile::profile::Meta;
use deepctx_profile::trace::{
    Lane, NotTraced, RankInfo, RecordedEvent, RecordedKind, Trace, TraceTime, UNKNOWN_LANE, assemble,
};
use deepctx_profile::tree::NodeId;

/// The traces of a recorded profile.
#[derive(Debug)]
pub(crate) struct Recording {
    /// By process id.
    pub(crate) traces: Vec<(u32, Trace)>,
    /// Of the capture.
    pub(crate) meta: Meta,
}

impl Recording {
    /// Opens the profile and reads the events of a part of its trace, at most `most`.
    ///
    /// # Errors
    /// It is not a profile, has no trace, its list of files is damaged, or the part has more events.
    pub(crate) fn open(path: &Path, part: TracePart, most: usize) -> Result<Self, OpenError> {
        let StoredProfile { mut profile, nodes, .. } = read::open(path)?;
        let not_a_trace = |because: NotAProfile| OpenError::NotAProfile { path: path.to_owned(), because };
        let container = Container::at(path)?;
        let Some(list) = List::read(&container)? else {
            return Err(not_a_trace(NotAProfile::WithoutTrace));
        };
        let count = list.events();
        let times = match part {
            TracePart::All | TracePart::Steps(..) if count <= most as u64 => PartTimes::ALL,
            TracePart::All => return Err(not_a_trace(NotAProfile::TraceTooLarge { count, most })),
            TracePart::Between(from, to) => {
                let first = list.first_ns();
                PartTimes { from: first.saturating_add(from.0), to: first.saturating_add(to.0) }
            }
            TracePart::Steps(from, until) => {
                PartTimes::of_steps(TraceReader::new(&container, list.clone()), from, until)
                    .ok_or_else(|| not_a_trace(NotAProfile::NoSuchSteps))?
            }
        };
        let ranks = list.ranks();
        let mut reader = TraceReader::new(&container, list);
        let reason = profile.strings.intern(CONTEXT_LOST.key);
        let frame = profile.frames.intern(Frame::Unresolved { reason, origin: Origin::default() });
        let lost = profile.tree.child(NodeId::ROOT, frame);
        let read = |node: NodeId| nodes.get(&node.number()).copied().unwrap_or(lost);
        let with_node = |lane: &Lane| match *lane {
            Lane::Counter { pid, metric, node } => Lane::Counter { pid, metric, node: read(node) },
            other => other,
        };
        let lanes: Vec<Lane> = reader.lanes().iter().map(with_node).collect();
        let mut events = PartEvents::new(reader.by_ref(), times, most);
        let mut in_rows = 0_u64;
        let with_nodes = events.by_ref().map(|event| {
            in_rows = in_rows.saturating_add(lost_in_row(&event));
            RecordedEvent { node: read(event.node), ..event }
        });
        let mut traces = assemble(&profile, &lanes, with_nodes);
        if events.is_full {
            return Err(not_a_trace(NotAProfile::PartTooLarge { most }));
        }
        set_ranks(&mut traces, &ranks);
        note_unreadable(&mut traces, reader.gaps());
        if let Some((_, first)) = traces.first_mut() {
            count_gaps(first, reader.gaps(), in_rows);
            first.lost_before = lost_before(&profile.ledger);
        }
        Ok(Recording { traces, meta: profile.meta })
    }
}

/// Determines the process of each rank. Children of a rank, such as its loaders, have the environment of the rank:
/// among the processes started as one rank, it is the one with the most work on devices, otherwise the most calls.
fn set_ranks(traces: &mut [(u32, Trace)], ranks: &BTreeMap<u32, RankInfo>) {
    let work = |trace: &Trace| (trace.device.len(), trace.host.len());
    let mut chosen: BTreeMap<RankInfo, usize> = BTreeMap::new();
    for (at, (pid, trace)) in traces.iter().enumerate() {
        let Some(rank) = ranks.get(pid) else { continue };
        let best = chosen.entry(*rank).or_insert(at);
        if work(trace) > work(&traces[*best].1) {
            *best = at;
        }
    }
    for (rank, at) in chosen {
        traces[at].1.rank = rank;
    }
}

/// Stages before the recorder.
const BEFORE: [Stage; 4] = [Stage::Kernel, Stage::Decode, Stage::Order, Stage::Correlate];
/// Gaps of calls and activities that are losses: counted in what arrived, but not recorded themselves.
const LOST: [&str; 3] = ["call-lost", "activity-dropped", "message-malformed"];

/// Losses of a capture before its recorder: records of any kind, in and out of the window, since neither kind nor time
/// of a lost record is known.
fn lost_before(of: &Ledger) -> Ledger {
    let mut lost = Ledger::default();
    for stage in BEFORE {
        let account = of.stage(stage);
        let gaps = account.gaps.iter().filter(|(reason, _)| LOST.contains(&&*reason.key));
        for (reason, count) in account.dropped.iter().chain(gaps) {
            lost.stage_mut(stage).dropped.add(reason.clone(), count);
        }
    }
    lost
}

/// Lost events that a row stands for.
fn lost_in_row(event: &RecordedEvent) -> u64 {
    if event.kind == RecordedKind::Gap { event.position } else { 0 }
}

/// Notes in each trace when events of unreadable files were: they may be of any process.
fn note_unreadable(traces: &mut [(u32, Trace)], gaps: &TraceGaps) {
    if gaps.unreadable_times.is_empty() {
        return;
    }
    let ends = traces.iter().filter_map(|(_, trace)| trace.span()).map(|(_, end)| end);
    let last = ends.max().unwrap_or_default();
    for of in &gaps.unreadable_times {
        let from = TraceTime::from_nanos(of.from.0);
        let to = of.to.map_or(last, |to| TraceTime::from_nanos(to.0)).max(from);
        // Without room for the row, the count in the ledger remains.
        traces.iter_mut().for_each(|(_, trace)| _ = trace.lose(UNKNOWN_LANE, from, to, of.events));
    }
}

/// Adds the gaps of the files to the ledger of a trace. The recorder's account has its losses; rows have them as well
/// and count only without an account, as after a crash.
fn count_gaps(trace: &mut Trace, gaps: &TraceGaps, in_rows: u64) {
    let ledger = &mut trace.ledger;
    for because in [NotTraced::QueueFull, NotTraced::WriterBehind, NotTraced::WithoutTimes] {
        ledger.dropped(Stage::Store, because.reason(), gaps.left_out.left_out(because));
    }
    let without_account = if gaps.left_out.received == 0 { in_rows } else { 0 };
    ledger.dropped(Stage::Store, NotTraced::Unfinished.reason(), without_account);
    ledger.dropped(Stage::Store, NotTraced::Unreadable.reason(), gaps.unreadable);
    ledger.gap(Stage::Store, NOT_FINISHED, u64::from(!gaps.complete));
}

#[cfg(test)]
mod tests {
    use deepctx_profile::ledger::Reason;
    use deepctx_profile::trace::{End, RecordedAccount, RecordedBatch, RecordedKind};
    use deepctx_profile::units::Nanos;

    use crate::store::{TraceWriter, Writer};

    use super::*;

    /// A profile whose trace has ten launches, one every 10 ns from 100 ns on, and a step around each.
    fn recorded(path: &Path) {
        let profile = Writer::create(path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
        for number in 1..=10 {
            let start = Nanos(90 + 10 * number);
            let of = |kind, position| RecordedEvent {
                kind,
                id: if kind == RecordedKind::Launch { number } else { 0 },
                end: End::After(Nanos(10)),
                ..RecordedEvent::gap(0, start, start, position)
            };
            let events = vec![of(RecordedKind::Step, number), of(RecordedKind::Launch, 1)];
            let lanes = if number == 1 { vec![Lane::Thread { pid: 7, tid: 8 }] } else { Vec::new() };
            writer.append(&mut RecordedBatch { lanes, first_lane: 0, events }).unwrap();
        }
        writer.finish(&RecordedAccount::new(20, 20)).unwrap();
    }

    #[test]
    fn a_trace_that_is_too_large_is_read_in_parts() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        recorded(&path);
        let check = |part, most, expect: Result<usize, &str>| {
            let found = Recording::open(&path, part, most);
            let calls = |trace: &Trace| trace.host.iter().filter(|(_, op)| op.kind.is_call()).count();
            match (&found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(calls(&found.traces[0].1), expect, "{part:?}"),
                (Err(error), Err(said)) => assert!(error.to_string().contains(said), "{error}"),
                _ => panic!("{part:?} of {most}: {found:?}"),
            }
        };
        let between = |from, to| TracePart::Between(Nanos(from), Nanos(to));
        check(TracePart::All, 20, Ok(10));
        check(TracePart::All, 19, Err("its trace of 20 events has more than 19 events: choose fewer with"));
        check(between(0, 25), 19, Ok(3));
        check(between(20, 1000), 20, Ok(8));
        check(between(0, 1000), 19, Err("this part of its trace has more than 19 events"));
        check(TracePart::Steps(Some(3), Some(5)), 19, Ok(2));
        // It fits: other events may belong to these steps.
        check(TracePart::Steps(Some(3), Some(5)), 20, Ok(10));
        check(TracePart::Steps(Some(30), None), 19, Err("its trace has no such training steps"));
    }

    #[test]
    fn losses_are_counted_once_and_by_their_reason() {
        let check = |account: Option<RecordedAccount>, expect: [u64; 3]| {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path().join("run.dctx");
            let profile = Writer::create(&path, &Meta::default()).unwrap();
            let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
            let gap = RecordedEvent::gap(0, Nanos(5), Nanos(9), 1000);
            let launch = RecordedEvent { kind: RecordedKind::Launch, id: 1, start: Nanos(1), ..gap };
            let lanes = vec![Lane::Thread { pid: 7, tid: 8 }];
            let events = vec![launch, gap];
            writer.append(&mut RecordedBatch { lanes, first_lane: 0, events }).unwrap();
            if let Some(account) = account {
                writer.finish(&account).unwrap();
            }
            let trace = Recording::open(&path, TracePart::All, 20).unwrap().traces.remove(0).1;
            let dropped = &trace.ledger.stage(Stage::Store).dropped;
            let reasons = [NotTraced::QueueFull, NotTraced::WriterBehind, NotTraced::Unfinished];
            assert_eq!(reasons.map(|because| dropped.count(because.reason().key)), expect);
            assert!(trace.lost.iter().map(|(_, lost)| lost.events).eq([1000]));
        };
        let account = |because| {
            let mut account = RecordedAccount::new(1001, 1);
            account.leave_out(because, 1000);
            Some(account)
        };
        check(account(NotTraced::QueueFull), [1000, 0, 0]);
        check(account(NotTraced::WriterBehind), [0, 1000, 0]);
        check(None, [0, 0, 1000]);
    }

    #[test]
    fn an_unreadable_file_is_a_loss_at_its_time() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        recorded(&path);
        std::fs::remove_file(path.join("trace-000004.parquet")).unwrap();
        let trace = Recording::open(&path, TracePart::All, 20).unwrap().traces.remove(0).1;
        let lost = trace
            .lost
            .iter()
            .map(|(_, lost)| (trace.name(lost.lane), lost.from.as_nanos(), lost.to.as_nanos(), lost.events));
        assert!(lost.eq([(UNKNOWN_LANE, 140, 150, 2)]));
        let dropped = &trace.ledger.stage(Stage::Store).dropped;
        assert_eq!(dropped.count(NotTraced::Unreadable.reason().key), 2);
    }

    #[test]
    fn records_lost_before_the_recorder_are_kept_by_stage() {
        let mut ledger = Ledger::default();
        ledger.stage_mut(Stage::Kernel).dropped.add(Reason::new("ring-full", "no room"), 7);
        ledger.stage_mut(Stage::Order).dropped.add(Reason::new("late", "too late"), 2);
        ledger.stage_mut(Stage::Correlate).gaps.add(Reason::new("call-lost", "never came"), 3);
        ledger.stage_mut(Stage::Correlate).gaps.add(Reason::new("name-unknown", "no name"), 4);
        // Data that was written but cannot be read is not lost before the recorder, nor is a stack without a name.
        ledger.stage_mut(Stage::Store).dropped.add(Reason::new("trace-unreadable", "damaged"), 5);
        ledger.stage_mut(Stage::Resolve).gaps.add(Reason::new("no-name", "no name"), 6);
        let lost = lost_before(&ledger);
        let rows: Vec<_> = Stage::ALL
            .iter()
            .flat_map(|stage| {
                lost.stage(*stage).dropped.iter().map(|(reason, count)| (*stage, &*reason.key, count))
            })
            .collect();
        let expect =
            [(Stage::Kernel, "ring-full", 7), (Stage::Order, "late", 2), (Stage::Correlate, "call-lost", 3)];
        assert_eq!(rows, expect);
    }
}
