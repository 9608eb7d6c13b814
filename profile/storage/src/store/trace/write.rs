//! Writing a trace: batches of events into files, and their list at each flush.
//!
//! Owns: [`TraceWriter`], and the rows of events and lanes. Because: only a capture writes one. Does not: read one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Account, FORMAT, LIST, List, ListedRank, TraceFile, VERSION, basis_name};
use crate::folder::Folder;
use crate::store::StoreError;
use crate::store::batch::Batch;
use crate::store::columns::Table;
use crate::store::manifest::{Segment, put, sync};
use crate::store::table::encode;
use deepctx_profile::trace::{Lane, NotTraced, RecordedAccount, RecordedBatch, RecordedEvent, RecordedKind};
use deepctx_profile::units::Nanos;

/// Writes the events of a capture into the folder of its profile.
#[derive(Debug)]
pub struct TraceWriter {
    folder: Arc<Folder>,
    list: List,
    /// Files are numbered by attempt, so that none is ever written twice.
    attempt: u32,
}

impl TraceWriter {
    /// Begins the trace of a window from the start of the capture, or of training steps if it has no length.
    ///
    /// # Errors
    /// The list could not be written.
    pub fn create(folder: Arc<Folder>, window: Option<Nanos>) -> Result<Self, StoreError> {
        let list = List {
            format: FORMAT.to_owned(),
            version: VERSION,
            complete: false,
            window_ns: window.map(|window| window.0),
            account: Account::default(),
            ranks: BTreeMap::new(),
            segments: Vec::new(),
        };
        let writer = TraceWriter { folder, list, attempt: 0 };
        writer.put_list(&writer.list)?;
        Ok(writer)
    }

    /// Records that a process is a rank of a job of `world_size` ranks; the next flush writes it.
    pub fn set_rank(&mut self, pid: u32, rank: u32, world_size: u32) {
        self.list.ranks.insert(pid, ListedRank { rank, world_size });
    }

    /// Writes events and their new lanes.
    ///
    /// # Errors
    /// Nothing of them is listed then; earlier data stays.
    pub fn append(&mut self, batch: &mut RecordedBatch) -> Result<(), StoreError> {
        batch.events.sort_unstable_by_key(|event| (event.start, event.id));
        let number = self.attempt;
        self.attempt = self.attempt.saturating_add(1);
        let mut list = self.list.clone();
        let written = self.put_segments(number, batch, &mut list);
        if let Err(error) = written.and_then(|()| self.commit(&list)) {
            // No list has these files; they would only take space, which may be exhausted.
            for listed in list.segments.iter().skip(self.list.segments.len()) {
                _ = self.folder.remove(listed.segment.file.as_ref());
            }
            return Err(error);
        }
        self.list = list;
        Ok(())
    }

    /// Puts a list in place of the present one. If it may not be durable, the present one comes back, because the
    /// events of a failed write count as lost; if that fails as well, the trace has these events.
    fn commit(&self, list: &List) -> Result<(), StoreError> {
        self.put_unsynced(list)?;
        let Err(error) = sync(&self.folder) else { return Ok(()) };
        self.put_unsynced(&self.list).map_or(Ok(()), |()| Err(error))
    }

    /// Writes the files of a batch and adds them to a list.
    fn put_segments(&self, number: u32, batch: &RecordedBatch, list: &mut List) -> Result<(), StoreError> {
        let lanes = lane_rows(batch.first_lane, &batch.lanes);
        let events = event_rows(&batch.events);
        let is_event = |event: &&RecordedEvent| event.kind != RecordedKind::Counter;
        let first_ns = batch.events.first().map_or(0, |event| event.start.0);
        let events_from_ns = batch.events.iter().find(is_event).map_or(u64::MAX, |event| event.start.0);
        let events_from_ns = Some(events_from_ns).filter(|from| *from > first_ns);
        let end = |event: &RecordedEvent| event.start.saturating_add(event.end.duration()).0;
        let last_ns = batch.events.iter().filter(is_event).map(end).max();
        if let Some(segment) = self.put_segment(Table::TraceLanes, number, lanes)? {
            let (first_ns, events_from_ns, last_ns) = (0, None, None);
            list.segments.push(TraceFile { segment, first_ns, events_from_ns, last_ns });
        }
        if let Some(segment) = self.put_segment(Table::Trace, number, events)? {
            list.segments.push(TraceFile { segment, first_ns, events_from_ns, last_ns });
        }
        // The names of the files must be durable before the list has them.
        sync(&self.folder)
    }

    /// Marks the trace as complete, with the counts of the events.
    ///
    /// # Errors
    /// The list could not be written; the events are on disk.
    pub fn finish(&mut self, account: &RecordedAccount) -> Result<(), StoreError> {
        self.list.account = Account {
            received: account.received,
            kept: account.kept,
            queue_full: account.left_out(NotTraced::QueueFull),
            writer_behind: account.left_out(NotTraced::WriterBehind),
            without_times: account.left_out(NotTraced::WithoutTimes),
        };
        self.list.complete = true;
        self.put_list(&self.list)
    }

    fn put_segment(&self, table: Table, number: u32, rows: Batch) -> Result<Option<Segment>, StoreError> {
        let count = rows.rows() as u64;
        if count == 0 {
            return Ok(None);
        }
        let bytes = encode(table, std::iter::once(Ok(rows))).map_err(StoreError::encode(table.name()))?;
        let file = format!("{}-{number:06}.parquet", table.name());
        put(&self.folder, &file, &bytes)?;
        Ok(Some(Segment {
            table: table.name().to_owned(),
            file,
            rows: count,
            bytes: bytes.len() as u64,
            crc32: crc32fast::hash(&bytes),
            level: 0,
        }))
    }

    fn put_list(&self, list: &List) -> Result<(), StoreError> {
        self.put_unsynced(list)?;
        sync(&self.folder)
    }

    /// Like [`TraceWriter::put_list`], but durable only after a [`sync`].
    fn put_unsynced(&self, list: &List) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec_pretty(list).map_err(StoreError::encode(LIST))?;
        put(&self.folder, LIST, &bytes)
    }
}

fn lane_rows(first: u32, lanes: &[Lane]) -> Batch {
    let mut batch = Batch::new(Table::TraceLanes);
    for (number, lane) in (first..).zip(lanes) {
        let (pid, tid, stream, counter) = match *lane {
            Lane::Thread { pid, tid } => (pid, Some(tid), None, None),
            Lane::Stream { pid, device, context, stream } => {
                (pid, None, Some((device, context, stream)), None)
            }
            Lane::Counter { pid, metric, node } => (pid, None, None, Some((metric, node))),
        };
        batch.push([
            number.into(),
            pid.into(),
            tid.into(),
            stream.map(|(device, ..)| device).into(),
            stream.map(|(_, context, _)| context).into(),
            stream.map(|(.., stream)| stream).into(),
            counter.map(|(metric, _)| metric.name()).into(),
            counter.map(|(_, node)| node.number()).into(),
        ]);
    }
    batch
}

fn event_rows(events: &[RecordedEvent]) -> Batch {
    let mut batch = Batch::new(Table::Trace);
    // Missing values take no room, and the others are close to the previous one: half of all events are not calls.
    let some = |value: u64| Some(value).filter(|value| *value > 0);
    for event in events {
        let basis = event.cause.map(|cause| basis_name(cause.basis));
        batch.push([
            event.kind.name().into(),
            event.lane.into(),
            event.start.0.into(),
            event.end.duration().0.into(),
            event.end.name().into(),
            event.node.number().into(),
            some(event.id).into(),
            event.cause.and_then(|cause| some(cause.id)).into(),
            basis.unwrap_or("none").into(),
            Some(event.correlation).filter(|number| *number > 0).into(),
            some(event.stream).into(),
            some(event.object).into(),
            some(event.position).into(),
            some(event.bytes).into(),
            some(event.graph_node).into(),
        ]);
    }
    batch
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::Meta;

    use super::*;
    use crate::store::Writer;
    use crate::store::container::Container;

    #[test]
    fn a_list_that_may_not_be_durable_does_not_stay() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        let profile = Writer::create(&path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), None).unwrap();
        let listed_window =
            || List::read(&Container::at(&path).unwrap()).unwrap().and_then(|list| list.window_ns);
        let list = List { window_ns: Some(7), ..writer.list.clone() };
        writer.commit(&list).unwrap();
        assert_eq!(listed_window(), Some(7));
        // Opened as a path only, its names cannot be made durable.
        writer.folder = Arc::new(Folder::open(&path).unwrap());
        assert!(writer.commit(&list).is_err());
        assert_eq!(listed_window(), None);
    }
}
