//! What devices did, as Nsight Systems' tables have it.
//!
//! Owns: kernels, graphs, copies, fills and synchronizations. Because: each has a table with columns of its own. Does
//! not: name their launches; calls have the same `correlationId`.

use rusqlite::Result;
use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_profile::intern::StrId;
use deepctx_profile::trace::{DeviceKind, DeviceOp, Sync, SyncKind};
use deepctx_profile::units::Bytes;

use super::database::{Database, Row};
use super::processes::{Processes, span};
use super::{Reader, names};
use crate::import::NOT_UNDERSTOOD;

/// Columns of all kinds of work, in this order.
const WORK: [&str; 7] = ["start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId"];

impl Reader<'_> {
    /// Reads device work.
    pub(super) fn devices(&mut self) -> Result<()> {
        let columns = [&WORK[..], &["graphNodeId", "demangledName", "shortName", "mangledName"]].concat();
        self.table("CUPTI_ACTIVITY_KIND_KERNEL", &columns, |processes, row| {
            let number = processes.user(row.number(2))?;
            let name = kernel_name(processes, number, row)?;
            work(
                processes,
                number,
                row,
                Work { kind: DeviceKind::Kernel, name, bytes: 0, node: row.number(7) },
            )
        })?;
        let columns = [&WORK[..], &["graphId"]].concat();
        self.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &columns, |processes, row| {
            let number = processes.user(row.number(2))?;
            let name = match row.number(7) {
                Some(graph) => format!("[graph {graph}]"),
                None => "[graph]".to_owned(),
            };
            let name = processes.get(number).trace.text(&name);
            work(processes, number, row, Work { kind: DeviceKind::Kernel, name, bytes: 0, node: None })
        })?;
        self.copies()?;
        let memory = labels(self.database, "ENUM_CUDA_MEM_KIND", "label")?;
        let columns = [&WORK[..], &["graphNodeId", "bytes", "memKind"]].concat();
        self.table("CUPTI_ACTIVITY_KIND_MEMSET", &columns, |processes, row| {
            let number = processes.user(row.number(2))?;
            let name = match row.integer(9).and_then(|kind| memory.get(&kind)) {
                Some(kind) => format!("Memset ({kind})"),
                None => "Memset".to_owned(),
            };
            let name = processes.get(number).trace.text(&name);
            let (bytes, node) = (row.number(8).unwrap_or(0), row.number(7));
            work(processes, number, row, Work { kind: DeviceKind::Fill, name, bytes, node })
        })
    }

    fn copies(&mut self) -> Result<()> {
        let memory = labels(self.database, "ENUM_CUDA_MEM_KIND", "label")?;
        let directions = labels(self.database, "ENUM_CUDA_MEMCPY_OPER", "name")?;
        let columns = [&WORK[..], &["graphNodeId", "bytes", "copyKind", "srcKind", "dstKind"]].concat();
        self.table("CUPTI_ACTIVITY_KIND_MEMCPY", &columns, |processes, row| {
            let number = processes.user(row.number(2))?;
            let direction = row.integer(9).unwrap_or(0);
            let direction = match directions.get(&direction) {
                Some(name) => name.as_str(),
                None => usize::try_from(direction)
                    .ok()
                    .and_then(|at| names::COPIES.get(at).copied())
                    .unwrap_or(""),
            };
            let kind = |at| row.integer(at).and_then(|kind| memory.get(&kind)).map(String::as_str);
            let name = names::copy(direction, kind(10), kind(11));
            let name = processes.get(number).trace.text(&name);
            let (bytes, node) = (row.number(8).unwrap_or(0), row.number(7));
            work(processes, number, row, Work { kind: DeviceKind::Copy, name, bytes, node })
        })
    }

    /// Reads synchronizations, with the records of the events they wait for.
    pub(super) fn synchronisations(&mut self) -> Result<()> {
        // By process and event id, which is unique from one record to the next.
        let mut records: FxHashMap<(usize, u64), Record> = FxHashMap::default();
        let columns = ["globalPid", "eventSyncId", "correlationId", "streamId", "contextId"];
        self.table("CUPTI_ACTIVITY_KIND_CUDA_EVENT", &columns, |processes, row| {
            let number = processes.user(row.number(0))?;
            if let (Some(id @ 1..), Some(correlation)) = (row.number(1), row.number(2)) {
                let (stream, context) = (row.number(3), row.number(4));
                records.insert((number, id), Record { correlation, stream, context });
            }
            Ok(())
        })?;
        let kinds = labels(self.database, "ENUM_CUPTI_SYNC_TYPE", "name")?;
        let columns = [&WORK[..], &["syncType", "deprecatedSyncType", "eventSyncId"]].concat();
        self.table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &columns, |processes, row| {
            let number = processes.user(row.number(2))?;
            let kind = row.integer(7).or(row.integer(8)).and_then(|kind| sync_kind(&kinds, kind));
            let kind = kind.ok_or(NOT_UNDERSTOOD)?;
            let (begin, duration) = span(row.integer(0), row.integer(1))?;
            let record = row.number(9).and_then(|id| records.get(&(number, id)));
            let process = processes.get(number);
            // The device in such a row is the calling thread's, not the stream's.
            let of_thread = row.number(3).and_then(|device| u32::try_from(device).ok()).unwrap_or(0);
            let device_of = |context: Option<u64>| {
                context.and_then(|context| process.contexts.get(&context)).copied().unwrap_or(of_thread)
            };
            let device = device_of(row.number(4));
            let recorded = record.and_then(|of| Some((device_of(of.context), of.stream?)));
            let waits_on_stream = matches!(kind, SyncKind::Stream | SyncKind::StreamWait);
            let stream = row.number(5).filter(|_| waits_on_stream);
            let row = Sync {
                kind,
                stream: stream.map(|stream| process.stream(device, Some(stream))),
                begin,
                duration,
                correlation: row.number(6).unwrap_or(0),
                record: record.map(|of| of.correlation),
                recorded_on: recorded.map(|(device, stream)| process.stream(device, Some(stream))),
            };
            let row = process.trace.syncs.push(row);
            processes.added(row).map(drop)
        })
    }
}

/// The record of an event: its call, and stream.
struct Record {
    correlation: u64,
    stream: Option<u64>,
    context: Option<u64>,
}

/// Specifics of one kind of work.
struct Work {
    kind: DeviceKind,
    name: StrId,
    bytes: u64,
    node: Option<u64>,
}

fn work(
    processes: &mut Processes<'_>,
    number: usize,
    row: &Row<'_>,
    of: Work,
) -> Result<(), &'static Reason> {
    let (begin, duration) = span(row.integer(0), row.integer(1))?;
    let device = row.number(3).and_then(|device| u32::try_from(device).ok()).ok_or(NOT_UNDERSTOOD)?;
    let process = processes.get(number);
    if let Some(context) = row.number(4) {
        process.contexts.insert(context, device);
    }
    let (stream, correlation) = (process.stream(device, row.number(5)), row.number(6).unwrap_or(0));
    let op = DeviceOp {
        bytes: Bytes(of.bytes),
        graph_node: of.node.unwrap_or(0),
        ..DeviceOp::correlated(stream, of.kind, begin, duration, of.name, correlation)
    };
    let op = process.trace.device.push(op);
    processes.added(op).map(drop)
}

/// The longest available name: with its template arguments, without, or mangled. The first versions have the text
/// itself where later ones have its number.
fn kernel_name(
    processes: &mut Processes<'_>,
    number: usize,
    row: &Row<'_>,
) -> Result<StrId, &'static Reason> {
    for at in [8, 9, 10] {
        if let Some(id) = row.integer(at) {
            return Ok(processes.name(number, id, |name| name));
        }
        if let Some(text) = row.text(at) {
            return Ok(processes.get(number).trace.text(&text));
        }
    }
    Err(NOT_UNDERSTOOD)
}

fn sync_kind(kinds: &FxHashMap<i64, String>, kind: i64) -> Option<SyncKind> {
    let Some(name) = kinds.get(&kind) else {
        // `CUpti_ActivitySynchronizationType`
        return [SyncKind::Event, SyncKind::StreamWait, SyncKind::Stream, SyncKind::Context]
            .get(usize::try_from(kind.checked_sub(1)?).ok()?)
            .copied();
    };
    Some(match name {
        _ if name.ends_with("EVENT_SYNCHRONIZE") => SyncKind::Event,
        _ if name.ends_with("STREAM_WAIT_EVENT") => SyncKind::StreamWait,
        _ if name.ends_with("STREAM_SYNCHRONIZE") => SyncKind::Stream,
        _ if name.ends_with("CONTEXT_SYNCHRONIZE") => SyncKind::Context,
        _ => return None,
    })
}

/// Maximum values of an enumeration; the longest one has a few dozen.
const LABELS_MAX: usize = 4096;

/// Reads an enumeration of a file: numbers differ between versions, names do not.
fn labels(database: &Database<'_>, table: &str, column: &str) -> Result<FxHashMap<i64, String>> {
    let mut labels = FxHashMap::default();
    database.rows(table, &["id", column], |row| {
        if let (Some(id), Some(label)) = (row.integer(0), row.text(1)) {
            labels.insert(id, label.into_owned());
        }
        labels.len() < LABELS_MAX
    })?;
    Ok(labels)
}
