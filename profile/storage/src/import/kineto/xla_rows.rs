//! Rows of XLA's profiler in Chrome's form, as JAX (`perfetto_trace.json.gz`) and TensorBoard make it of XPlane files.
//!
//! Owns: [`XlaRows`]. Because: these events have no category: only the names of rows, which come before all events, say
//! what is a stream and what is a thread. Does not: read events, or know the names (`xla`).

use rustc_hash::FxHashMap;
use serde::Deserialize;

use deepctx_profile::trace::DeviceKind;

use super::event::RawEvent;
use crate::import::arguments::Text;
use crate::import::xla::{self, Plane};

/// Maximum named processes and streams: a host has some dozens.
const ROWS_MAX: usize = 1 << 16;

/// What the row of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum XlaRow {
    /// A stream of a GPU.
    Stream {
        /// The GPU.
        device: u32,
        /// Its number.
        stream: Option<u64>,
        /// What the event is.
        kind: DeviceKind,
    },
    /// A row of a GPU that repeats the time of its streams.
    Derived,
    /// A row of a device without streams.
    OtherDevice,
    /// A thread.
    Thread,
}

/// The named rows of a file.
#[derive(Default)]
pub(super) struct XlaRows {
    processes: FxHashMap<String, NamedProcess>,
    rows: usize,
}

#[derive(Default)]
struct NamedProcess {
    /// `None` if its name is not that of a plane.
    plane: Option<Plane>,
    /// Number and kinds of work of each stream, by thread.
    streams: FxHashMap<String, (Option<u64>, String)>,
}

/// Arguments of an event that names a row.
#[derive(Deserialize)]
struct Named<'b> {
    #[serde(borrow)]
    name: Text<'b>,
}

impl XlaRows {
    /// Takes the name of a row, if it is one of XLA's.
    pub(super) fn describe(&mut self, raw: &RawEvent<'_>) {
        let named = raw.args.and_then(|args| serde_json::from_str::<Named<'_>>(args.get()).ok());
        let (Some(named), true) = (named, self.rows < ROWS_MAX) else { return };
        let (name, process) = (&*named.name.0, raw.pid.to_text());
        match raw.name.as_ref().map(|what| &*what.0) {
            Some("process_name") if name.starts_with("/device:") || name.starts_with("/host:") => {
                self.processes.entry(process).or_default().plane = Some(Plane::of(name));
            }
            Some("thread_name") => {
                let Some((stream, kinds)) = xla::stream(name) else { return };
                let of = self.processes.entry(process).or_default();
                of.streams.insert(raw.tid.to_text(), (stream, kinds.to_owned()));
            }
            _ => return,
        }
        self.rows += 1;
    }

    /// What the row of an event of this name is; `None` if the file does not name it as XLA does.
    pub(super) fn of(&self, process: &str, thread: &str, event: &str) -> Option<XlaRow> {
        let of = self.processes.get(process)?;
        Some(match (of.plane?, of.streams.get(thread)) {
            (Plane::Gpu(device), Some((stream, kinds))) => {
                XlaRow::Stream { device, stream: *stream, kind: xla::work(kinds, event) }
            }
            (Plane::Gpu(_), None) => XlaRow::Derived,
            (Plane::OtherDevice, _) => XlaRow::OtherDevice,
            (Plane::Threads, _) => XlaRow::Thread,
        })
    }
}
