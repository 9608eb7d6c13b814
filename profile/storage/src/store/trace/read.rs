//! Reading a trace: its events by time, whatever file they are in.
//!
//! Owns: [`TraceReader`], which merges the files by time, and [`TraceGaps`]. Because: a trace may be larger than
//! memory, and a damaged file must not take the others with it. Does not: write one.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Account, List, TraceFile, basis_name};
use crate::store::batch::Row;
use crate::store::columns::Table;
use crate::store::container::Container;
use crate::store::manifest::Segment;
use crate::store::read::load;
use crate::store::table::Batches;
use deepctx_profile::trace::{
    Basis, Cause, End, LOST_LANE, Lane, NotTraced, RecordedAccount, RecordedEvent, RecordedKind,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

/// Maximum lanes read: more than any recording has.
const LANES_MAX: usize = 1 << 20;
/// Begin of the events of a file that has nothing but values of counters.
const ONLY_COUNTERS: Nanos = Nanos(u64::MAX);
/// Times of unreadable files: those of an hour. Every trace of the recording gets a row for each.
const UNREADABLE_MAX: usize = 1 << 12;
/// Rows of a file in memory at once while files are merged: 1 MiB.
const BATCH_ROWS: usize = 1 << 13;

impl List {
    /// Number of events stated by the files.
    pub(in crate::store) fn events(&self) -> u64 {
        let events = self.segments.iter().filter(|listed| listed.segment.table == Table::Trace.name());
        events.fold(0, |sum, listed| sum.saturating_add(listed.segment.rows))
    }

    /// Start of the first event that is no counter value.
    pub(in crate::store) fn first_ns(&self) -> u64 {
        let events = self.segments.iter().filter(|listed| listed.segment.table == Table::Trace.name());
        let first = events.map(|listed| listed.events_from_ns.unwrap_or(listed.first_ns)).min();
        first.filter(|first| *first < u64::MAX).unwrap_or(0)
    }
}

/// Gaps of a trace on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceGaps {
    /// Events that the recorder could not keep, by reason.
    pub left_out: RecordedAccount,
    /// Events in files that could not be read.
    pub unreadable: u64,
    /// When they were. Files with nothing but values of counters are not among these; the last one may stand for
    /// several files.
    pub unreadable_times: Vec<UnreadableTime>,
    /// Damage of these files, one sentence each.
    pub damaged: Vec<String>,
    /// Whether the recording ended well.
    pub complete: bool,
}

/// The time of events in a file that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableTime {
    /// No event of these began earlier.
    pub from: Nanos,
    /// No event of these ended later; `None` if the list does not say.
    pub to: Option<Nanos>,
    /// How many there are.
    pub events: u64,
}

impl TraceGaps {
    fn unreadable_at(&mut self, left: UnreadableTime) {
        let is_full = self.unreadable_times.len() >= UNREADABLE_MAX;
        match self.unreadable_times.last_mut() {
            Some(last) if is_full => {
                last.from = last.from.min(left.from);
                last.to = last.to.zip(left.to).map(|(to, other)| to.max(other));
                last.events = last.events.saturating_add(left.events);
            }
            _ => self.unreadable_times.push(left),
        }
    }
}

/// The events of a trace, by begin. Of each file that overlaps the present time, the file's bytes and a few thousand
/// rows are in memory.
pub struct TraceReader<'p> {
    container: &'p Container,
    /// Files not reached yet, the earliest last.
    ahead: Vec<TraceFile>,
    /// Files with events left; `None` for the slot of a finished one.
    open: Vec<Option<OpenFile>>,
    /// Free slots.
    free: Vec<usize>,
    /// Begin of the next event of each open file, and its slot.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    lanes: Vec<Lane>,
    gaps: TraceGaps,
}

struct OpenFile {
    batches: Batches,
    name: String,
    events: std::vec::IntoIter<RecordedEvent>,
    left: UnreadableTime,
}

impl<'p> TraceReader<'p> {
    pub(in crate::store) fn new(container: &'p Container, list: List) -> Self {
        let Account { received, kept, queue_full, writer_behind, without_times } = list.account;
        let mut left_out = RecordedAccount::new(received, kept);
        left_out.leave_out(NotTraced::QueueFull, queue_full);
        left_out.leave_out(NotTraced::WriterBehind, writer_behind);
        left_out.leave_out(NotTraced::WithoutTimes, without_times);
        let gaps = TraceGaps { left_out, complete: list.complete, ..TraceGaps::default() };
        let of = |listed: &TraceFile, table: Table| listed.segment.table == table.name();
        let (lanes, events): (Vec<_>, Vec<_>) = list
            .segments
            .into_iter()
            .filter(|listed| of(listed, Table::Trace) || of(listed, Table::TraceLanes))
            .partition(|listed| of(listed, Table::TraceLanes));
        let mut reader = TraceReader {
            container,
            ahead: events,
            open: Vec::new(),
            free: Vec::new(),
            next: BinaryHeap::new(),
            lanes: Vec::new(),
            gaps,
        };
        reader.ahead.sort_rows_by_key(|listed| Reverse(listed.first_ns));
        for listed in lanes {
            let outcome = reader.read_lanes(&listed.segment);
            reader.note(&listed.segment.file, outcome, 0);
        }
        reader
    }

    /// The lanes that events refer to.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The gaps of the trace; complete once the last event was read.
    pub fn gaps(&self) -> &TraceGaps {
        &self.gaps
    }

    fn note(&mut self, file: &str, outcome: Result<(), String>, events: u64) {
        if let Err(because) = outcome {
            let because = deepctx_profile::frame::clean(&because.chars().take(200).collect::<String>());
            let file = deepctx_profile::frame::clean(&file.chars().take(80).collect::<String>());
            self.gaps.unreadable = self.gaps.unreadable.saturating_add(events);
            self.gaps.damaged.push(format!("{file}: {because}"));
        }
    }

    /// The same for a file of events, of which these were left.
    fn note_events(&mut self, file: &str, outcome: Result<(), String>, left: UnreadableTime) {
        if outcome.is_err() && left.from < ONLY_COUNTERS {
            self.gaps.unreadable_at(left);
        }
        self.note(file, outcome, left.events);
    }

    fn read_lanes(&mut self, segment: &Segment) -> Result<(), String> {
        let mut batches =
            Batches::of(Table::TraceLanes, load(self.container, segment)?, segment.rows, BATCH_ROWS)?;
        while let Some(batch) = batches.next()? {
            for row in batch.iter() {
                let (number, lane) =
                    lane(&row).ok_or_else(|| format!("row {} makes no sense", row.number()))?;
                let number = number as usize;
                if number >= LANES_MAX {
                    return Err(format!("it has a lane {number}"));
                }
                if number >= self.lanes.len() {
                    // Lanes in between, whose file is lost, get a placeholder.
                    self.lanes.resize(number + 1, LOST_LANE);
                }
                self.lanes[number] = lane;
            }
        }
        Ok(())
    }

    /// Opens the files that start before the next event.
    fn open_due(&mut self) {
        while let Some(listed) = self.ahead.last() {
            if self.next.peek().is_some_and(|Reverse((start, _))| *start < listed.first_ns) {
                return;
            }
            let Some(TraceFile { segment, first_ns, events_from_ns, last_ns }) = self.ahead.pop() else {
                return;
            };
            let from = Nanos(events_from_ns.unwrap_or(first_ns));
            let left = UnreadableTime { from, to: last_ns.map(Nanos), events: segment.rows };
            let batches = load(self.container, &segment)
                .map_err(String::from)
                .and_then(|bytes| Batches::of(Table::Trace, bytes, segment.rows, BATCH_ROWS));
            match batches {
                Ok(batches) => {
                    let name = segment.file;
                    let file = OpenFile { batches, name, events: Vec::new().into_iter(), left };
                    let at = self.free.pop().unwrap_or_else(|| {
                        self.open.push(None);
                        self.open.len() - 1
                    });
                    self.open[at] = Some(file);
                    self.refill(at);
                }
                Err(because) => self.note_events(&segment.file, Err(because), left),
            }
        }
    }

    /// Queues the next event of an open file, reading more if needed. A finished file is closed.
    fn refill(&mut self, at: usize) {
        let Some(file) = &mut self.open[at] else { return };
        let mut outcome = Ok(());
        if file.events.as_slice().is_empty() {
            outcome = file.next_events().map(|events| file.events = events.into_iter());
        }
        if let Some(first) = file.events.as_slice().first() {
            self.next.push(Reverse((first.start.0, at)));
            return;
        }
        if let Some(ended) = self.open[at].take() {
            self.free.push(at);
            self.note_events(&ended.name, outcome, ended.left);
        }
    }
}

impl OpenFile {
    fn next_events(&mut self) -> Result<Vec<RecordedEvent>, String> {
        let Some(batch) = self.batches.next()? else { return Ok(Vec::new()) };
        let of = |row: Row<'_>| event(&row).ok_or_else(|| format!("row {} makes no sense", row.number()));
        batch.iter().map(of).collect()
    }
}

impl Iterator for TraceReader<'_> {
    type Item = RecordedEvent;

    fn next(&mut self) -> Option<RecordedEvent> {
        self.open_due();
        let Reverse((_, at)) = self.next.pop()?;
        let file = self.open[at].as_mut()?;
        let event = file.events.next()?;
        file.left.events = file.left.events.saturating_sub(1);
        // Sorted: the rest begins no earlier.
        file.left.from = file.left.from.max(event.start);
        self.refill(at);
        Some(event)
    }
}

fn lane(row: &Row<'_>) -> Option<(u32, Lane)> {
    let pid = row.u32("pid")?;
    let lane = match (row.u32("tid"), row.text("metric")) {
        (Some(tid), _) => Lane::Thread { pid, tid },
        (None, Some(metric)) => {
            Lane::Counter { pid, metric: metric.parse().ok()?, node: NodeId::from_number(row.u32("node")?) }
        }
        (None, None) => Lane::Stream {
            pid,
            device: row.u32("device")?,
            context: row.u32("context")?,
            stream: row.u32("stream")?,
        },
    };
    Some((row.u32("lane")?, lane))
}

fn event(row: &Row<'_>) -> Option<RecordedEvent> {
    let basis = BASES.into_iter().find(|basis| Some(basis_name(*basis)) == row.text("cause_kind"));
    let number = |column| row.u64(column).unwrap_or(0);
    let cause = number("cause");
    Some(RecordedEvent {
        kind: RecordedKind::from_name(row.text("kind")?)?,
        lane: row.u32("lane")?,
        start: Nanos(row.u64("start_ns")?),
        end: End::from_name(row.text("end")?, Nanos(row.u64("duration_ns")?))?,
        node: NodeId::from_number(row.u32("node")?),
        id: number("id"),
        cause: basis.map(|basis| Cause { id: cause, basis }),
        correlation: row.u32("correlation").unwrap_or(0),
        stream: number("stream"),
        object: number("object"),
        position: number("position"),
        bytes: number("bytes"),
        graph_node: number("graph_node"),
    })
}

const BASES: [Basis; 3] = [Basis::Exact, Basis::ByOrder, Basis::Inferred];

#[cfg(test)]
mod tests {
    use std::fs;

    use deepctx_profile::profile::Meta;
    use deepctx_profile::trace::RecordedBatch;
    use proptest::prelude::*;

    use super::super::TraceWriter;
    use super::*;
    use crate::store::Writer;

    const LANE: Lane = Lane::Thread { pid: 7, tid: 8 };

    fn event(start: u64, id: u64) -> RecordedEvent {
        RecordedEvent {
            kind: RecordedKind::Launch,
            id,
            cause: id.is_multiple_of(3).then_some(Cause { id: id / 3, basis: Basis::ByOrder }),
            end: if id.is_multiple_of(5) { End::NotReturned } else { End::After(Nanos(id)) },
            stream: u64::MAX - id,
            node: NodeId::from_number(id as u32),
            ..RecordedEvent::gap(0, Nanos(start), Nanos(start), id)
        }
    }

    /// Reads a trace of files with these begins, whose lane is in the first; `damage` is applied to the folder.
    fn read(
        files: &[&[u64]],
        damage: impl FnOnce(&std::path::Path),
    ) -> (Vec<RecordedEvent>, Vec<Lane>, TraceGaps) {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        let profile = Writer::create(&path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
        let (mut lanes, mut id) = (vec![LANE], 0);
        for starts in files {
            let mut events: Vec<RecordedEvent> = Vec::new();
            for start in *starts {
                id += 1;
                events.push(event(*start, id));
            }
            let lanes = std::mem::take(&mut lanes);
            writer.append(&mut RecordedBatch { lanes, first_lane: 0, events }).unwrap();
        }
        writer.finish(&RecordedAccount::new(id, id)).unwrap();
        damage(&path);
        let container = Container::at(&path).unwrap();
        let mut reader = TraceReader::new(&container, List::read(&container).unwrap().unwrap());
        let events = reader.by_ref().collect();
        (events, reader.lanes().to_vec(), reader.gaps().clone())
    }

    #[test]
    fn a_damaged_file_leaves_a_gap_only() {
        let check = |damage: &dyn Fn(&std::path::Path), ids: &[u64], lanes: &[Lane], said: &str| {
            let (events, found, gaps) = read(&[&[10, 30], &[20, 40]], |path| damage(path));
            assert_eq!(events.iter().map(|event| event.id).collect::<Vec<_>>(), ids, "{said}");
            assert_eq!((found.as_slice(), gaps.damaged.join(";").as_str()), (lanes, said));
            assert_eq!(gaps.unreadable, 4 - ids.len() as u64);
        };
        check(&|_| {}, &[1, 3, 2, 4], &[LANE], "");
        let truncate = |path: &std::path::Path| {
            let file = path.join("trace-000001.parquet");
            let bytes = fs::read(&file).unwrap();
            fs::write(&file, &bytes[..100]).unwrap();
        };
        let (.., gaps) = read(&[&[10, 30], &[20, 40]], truncate);
        assert!(gaps.damaged[0].starts_with("trace-000001.parquet: it has 100 bytes instead of"), "{gaps:?}");
        assert_eq!(gaps.unreadable, 2);
        let remove =
            |name: &'static str| move |path: &std::path::Path| fs::remove_file(path.join(name)).unwrap();
        let gone = "No such file or directory (os error 2)";
        check(&remove("trace-000000.parquet"), &[3, 4], &[LANE], &format!("trace-000000.parquet: {gone}"));
        check(
            &remove("trace-lanes-000000.parquet"),
            &[1, 3, 2, 4],
            &[],
            &format!("trace-lanes-000000.parquet: {gone}"),
        );
    }

    #[test]
    fn an_unreadable_file_says_when_its_events_were() {
        let check = |damage: &dyn Fn(&std::path::Path), expect: &[(u64, Option<u64>, u64)]| {
            let (.., gaps) = read(&[&[10, 30], &[20, 40]], |path| damage(path));
            let times = gaps.unreadable_times.iter().map(|of| (of.from.0, of.to.map(|to| to.0), of.events));
            assert_eq!(times.collect::<Vec<_>>(), expect);
        };
        let remove = |path: &std::path::Path| fs::remove_file(path.join("trace-000001.parquet")).unwrap();
        check(&|_| {}, &[]);
        // The last of them took 4 ns.
        check(&remove, &[(20, Some(44), 2)]);
        let without_end = |path: &std::path::Path| {
            let list = path.join("trace.json");
            let mut json: serde_json::Value = serde_json::from_slice(&fs::read(&list).unwrap()).unwrap();
            for file in json["segments"].as_array_mut().unwrap() {
                file.as_object_mut().unwrap().remove("last_ns");
            }
            fs::write(&list, json.to_string()).unwrap();
            remove(path);
        };
        check(&without_end, &[(20, None, 2)]);
    }

    #[test]
    fn counters_come_back_and_begin_no_trace() {
        use deepctx_profile::metric::Metric;
        use deepctx_profile::trace::RecordedValue;

        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        let profile = Writer::create(&path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
        let node = NodeId::from_number(5);
        let lanes = vec![LANE, Lane::Counter { pid: 0, metric: Metric::CpuBusyTime, node }];
        let counted = RecordedValue { value: 3, merged: 2 };
        let counter = |from, to| RecordedEvent::counter(1, Nanos(from), Nanos(to), node, counted);
        let first = vec![counter(10, 20), event(30, 1)];
        writer.append(&mut RecordedBatch { lanes: lanes.clone(), first_lane: 0, events: first }).unwrap();
        let second = vec![counter(20, 30)];
        writer.append(&mut RecordedBatch { lanes: Vec::new(), first_lane: 2, events: second }).unwrap();
        let container = Container::at(&path).unwrap();
        let list = List::read(&container).unwrap().unwrap();
        assert_eq!(list.first_ns(), 30);
        let mut reader = TraceReader::new(&container, list);
        let events: Vec<_> = reader.by_ref().collect();
        assert_eq!(events, [counter(10, 20), counter(20, 30), event(30, 1)]);
        assert_eq!((reader.lanes(), events[0].counted()), (&lanes[..], Some(counted)));
    }

    #[test]
    fn files_are_closed_when_they_are_read() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        let profile = Writer::create(&path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
        for number in 0..9 {
            // Each overlaps the next one.
            let events = vec![event(10 * number, number), event(10 * number + 15, number)];
            writer.append(&mut RecordedBatch { lanes: vec![LANE], first_lane: 0, events }).unwrap();
        }
        let container = Container::at(&path).unwrap();
        let mut reader = TraceReader::new(&container, List::read(&container).unwrap().unwrap());
        let mut read = 0;
        while reader.next().is_some() {
            read += 1;
            let open = reader.open.iter().flatten().count();
            assert!(open <= 3, "{open} files are open after {read} events");
        }
        assert_eq!((read, reader.open.iter().flatten().count()), (18, 0));
        assert_eq!(reader.gaps().unreadable, 0);
    }

    #[test]
    fn what_was_flushed_is_there_without_an_end() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        let profile = Writer::create(&path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
        let events = vec![event(1, 1)];
        writer.append(&mut RecordedBatch { lanes: vec![LANE], first_lane: 0, events }).unwrap();
        drop(writer);
        let container = Container::at(&path).unwrap();
        let reader = TraceReader::new(&container, List::read(&container).unwrap().unwrap());
        assert!(!reader.gaps().complete);
        assert_eq!(reader.collect::<Vec<_>>(), [event(1, 1)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn events_come_back_as_written_and_in_order(
            files in prop::collection::vec(prop::collection::vec(0u64..50, 0..40), 0..5),
        ) {
            let slices: Vec<&[u64]> = files.iter().map(Vec::as_slice).collect();
            let (mut events, _, gaps) = read(&slices, |_| {});
            prop_assert!(events.is_sorted_by_key(|event| event.start));
            prop_assert_eq!((gaps.unreadable, gaps.damaged.len()), (0, 0));
            events.sort_by_key(|event| event.id);
            let written: Vec<RecordedEvent> =
                files.concat().into_iter().zip(1..).map(|(start, id)| event(start, id)).collect();
            prop_assert_eq!(events, written);
        }
    }
}
