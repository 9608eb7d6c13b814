//! The trace of a live capture on disk: single events, beside the tables of the profile.
//!
//! Owns: the files `trace-*.parquet` and their list `trace.json`. Because: events are a hundred times more than a
//! profile and are written by a thread of their own, so their list is a file of its own: no flush of the profile waits
//! for it, and no half-written one harms the profile. Does not: know what an event means, or hold names: events refer
//! to contexts of the profile's tree.
//!
//! ```text
//!   run.dctx/
//!     trace.json                   what belongs to the trace; replaced as a whole at each flush
//!     trace-000000.parquet         events, sorted by begin within the file
//!     trace-lanes-000000.parquet   threads and streams that are new in it
//! ```
//!
//! Whatever stops the program, the trace holds everything up to the last flush that succeeded.

#[cfg(feature = "import")]
mod read;
mod write;

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use super::container::Container;
use super::manifest::Segment;
use crate::error::{NotAProfile, OpenError};
use deepctx_profile::trace::Basis;
#[cfg(feature = "import")]
use deepctx_profile::trace::RankInfo;

#[cfg(feature = "import")]
pub use read::{TraceGaps, TraceReader, UnreadableTime};
pub use write::TraceWriter;

/// The file that lists all others.
pub(super) const LIST: &str = "trace.json";
const FORMAT: &str = "deepctx-trace";
/// 2 adds ranges and steps; 3 has no value where older versions have 0; 4 adds operators and other kinds of calls; 5
/// adds graph edges; 6 adds counters. Newer versions are refused, because their events would be misread.
const VERSION: u64 = 6;
/// Maximum size. An entry takes about 200 bytes, so this holds a month of one flush per second.
const LIST_BYTES_MAX: u64 = 1 << 29;

/// The list of a trace's files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct List {
    format: String,
    version: u64,
    /// Whether the recording ended well.
    complete: bool,
    /// Length of the window from the start of the capture, nanoseconds; `None` if it is one of training steps.
    window_ns: Option<u64>,
    /// Events seen by the recorder, by outcome.
    #[serde(default)]
    account: Account,
    /// Ranks by process id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    ranks: BTreeMap<u32, ListedRank>,
    segments: Vec<TraceFile>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    received: u64,
    kept: u64,
    queue_full: u64,
    writer_behind: u64,
    without_times: u64,
}

/// The rank of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ListedRank {
    rank: u32,
    world_size: u32,
}

/// One of its files.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct TraceFile {
    #[serde(flatten)]
    segment: Segment,
    /// Start of the first event in it.
    first_ns: u64,
    /// Begin of the first event that is not a value of a counter, if later: values may hold from before the events
    /// beside them. `u64::MAX` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events_from_ns: Option<u64>,
    /// End of the last event that is not a value of a counter; `None` without any, and in lists of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_ns: Option<u64>,
}

impl List {
    /// The list of a trace; `None` without a trace.
    pub(super) fn read(container: &Container) -> Result<Option<List>, OpenError> {
        let path = || container.path().join(LIST);
        let bytes = match container.read(LIST, LIST_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(OpenError::Read { path: path(), source }),
        };
        let odd = |because: NotAProfile| OpenError::NotAProfile { path: path(), because };
        let list: List =
            serde_json::from_slice(&bytes).map_err(|error| odd(NotAProfile::DamagedList(error)))?;
        if list.format != FORMAT || !(1..=VERSION).contains(&list.version) {
            let (format, version) = (list.format.chars().take(40).collect::<String>(), list.version);
            let (known, newest) = (FORMAT, VERSION);
            return Err(odd(NotAProfile::OtherTraceFormat { format, version, known, newest }));
        }
        Ok(Some(list))
    }

    /// Ranks by process id.
    #[cfg(feature = "import")]
    pub(super) fn ranks(&self) -> BTreeMap<u32, RankInfo> {
        let rank = |of: &ListedRank| RankInfo { rank: Some(of.rank), world_size: Some(of.world_size) };
        self.ranks.iter().map(|(pid, of)| (*pid, rank(of))).collect()
    }

    /// Names of the files.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().map(|listed| listed.segment.file.as_str())
    }
}

/// The name of a basis in the files.
fn basis_name(basis: Basis) -> &'static str {
    match basis {
        Basis::Exact => "exact",
        Basis::ByOrder => "by-order",
        Basis::Inferred => "inferred",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use deepctx_profile::profile::Meta;
    use deepctx_profile::trace::{Lane, RecordedBatch, RecordedEvent};
    use deepctx_profile::units::Nanos;

    use super::*;
    use crate::store::Writer;

    #[test]
    fn a_failed_write_leaves_no_files_behind() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("run.dctx");
        let profile = Writer::create(&path, &Meta::default()).unwrap();
        let mut writer = TraceWriter::create(profile.folder(), Some(Nanos(1000))).unwrap();
        let batch = || RecordedBatch {
            lanes: vec![Lane::Thread { pid: 7, tid: 8 }],
            first_lane: 0,
            events: vec![RecordedEvent::gap(0, Nanos(1), Nanos(2), 1)],
        };
        // A folder in the file's place simulates a full disk.
        fs::create_dir(path.join("trace-000000.parquet")).unwrap();
        assert!(writer.append(&mut batch()).is_err());
        assert!(!path.join("trace-lanes-000000.parquet").exists());
        writer.append(&mut batch()).unwrap();
        let list = List::read(&Container::at(&path).unwrap()).unwrap().unwrap();
        let files: Vec<&str> = list.files().collect();
        assert_eq!(files, ["trace-lanes-000001.parquet", "trace-000001.parquet"]);
        assert!(files.iter().all(|file| path.join(file).is_file()));
    }

    #[test]
    fn a_damaged_list_is_an_error() {
        let check = |text: &str, expect: &str| {
            let temporary = tempfile::tempdir().unwrap();
            fs::write(temporary.path().join(LIST), text).unwrap();
            let error = List::read(&Container::at(temporary.path()).unwrap()).unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
        };
        check("{", "it is damaged: EOF");
        let list =
            r#"{"format": "deepctx-trace", "version": 7, "complete": true, "window_ns": 1, "segments": []}"#;
        check(list, "it has format `deepctx-trace` 7, and this program reads `deepctx-trace` 6");
    }
}
