//! The store: a profile as a folder, `run.dctx`.
//!
//! Owns: the format on disk, the writer that a capture flushes into, and the reader. Because: what was captured must
//! outlive a crash of the profiler and be open to tools that are not ours. Does not: know what is captured, or when
//! to flush.
//!
//! # Format, version 1
//!
//! ```text
//!   run.dctx/
//!     manifest.json                what belongs to the profile; replaced as a whole at each flush
//!     frames-000000.parquet        segments: never changed once they are listed
//!     nodes-000000.parquet
//!     values-000000.parquet
//!     timeline-000000.parquet
//!     activities-000000.parquet    only when devices did something, and so `shapes`
//!     ledger-000000.parquet
//!     executables-000000.parquet
//!     frames-000001.parquet        the next flush: what is new since the one before
//!     …
//!     trace.json, trace-*.parquet  only with `record --trace`: see `trace`
//! ```
//!
//! A flush writes each table's new rows to a temporary name, syncs, renames, and then replaces the manifest in the
//! same way. Files that the manifest does not list (of a flush that was cut short) mean nothing. Tables without new
//! rows get no segment.
//!
//! Eight segments of a table become one, and eight of those, in the same way, so that a capture of any length has
//! some dozens of files. What old ones are merged into has the same rows, but for three tables: rows of `values`
//! about one context and metric become one row, of a window that is as wide as theirs together; so do rows of
//! `timeline` about one window of its present width; and of the `ledger` the newest rows stay. Sums are the same. A
//! segment that was merged is removed after the manifest lists the new one: a program that meets a missing file reads
//! the manifest again.
//!
//! All of a table's segments together are the table; `docs/formats.md` lists their columns, which `columns.rs`
//! declares. (After a crash there may be files of a flush or of a merge that was cut short beside them; the manifest
//! knows which count.)
//!
//! The manifest is a JSON object: `format` (`"deepctx-profile"`), `version` (a reader refuses another one), `minor`
//! (grows with additions that old readers may ignore), `complete` (false until the capture ended well), `end_ns`
//! (time of the last flush since the capture began), `gpu` (what is known of each process that used a device),
//! `device_uses` (how long each device of another tool's trace was at work), `memory` (what tensors took, by process
//! and device), `step_times` (how often training steps took how long, by place: `node`, `buckets`, each the shortest
//! time in nanoseconds and the number of steps, and `latest`, the times of the latest steps), `producers` (what sampled
//! instructions wait for: `frame`, and `waits_for`, the numbers of frames), `activities_left_out` (how many no segment
//! has), `meta` (see [`Meta`](deepctx_profile::profile::Meta)) and `segments`, each with `table`, `file`, `rows`,
//! `bytes` and `crc32` (of the file).
//!
//! # One file
//!
//! A packed profile (`record --pack`, `export --format dctx`) is a plain `tar` archive of the same files, the manifest
//! first: `tar xf` makes it a folder again.

mod batch;
mod columns;
mod container;
mod devices;
mod error;
mod lanes;
mod manifest;
mod merge;
mod pack;
#[cfg(feature = "import")]
mod part;
mod producers;
mod read;
mod reason;
#[cfg(feature = "import")]
mod recording;
mod schema;
mod step_times;
mod table;
mod trace;
mod unmerged;
mod write;
mod written_values;

pub use container::{FoundProfile, is_packed};
pub use error::{EncodeError, StoreError};
pub use pack::{pack, write as write_packed};
#[cfg(feature = "import")]
pub use part::TracePart;
pub use trace::TraceWriter;
#[cfg(feature = "import")]
pub use trace::{TraceGaps, TraceReader, UnreadableTime};
pub use write::{Delta, MergeResult, PendingMerge, Writer};

pub(crate) use read::{LostSegment, StoredProfile, open};
#[cfg(feature = "import")]
pub(crate) use recording::Recording;

#[cfg(test)]
mod tests;
