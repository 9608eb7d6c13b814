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
//! ```
//!
//! A flush writes each table's new rows to a temporary name, syncs, renames, and then replaces the manifest in the
//! same way. Files that the manifest does not list (of a flush that was cut short) mean nothing. Tables without new
//! rows get no segment.
//!
//! Eight segments of a table become one, and eight of those, in the same way, so that a capture of any length has some
//! dozens of files. What old ones are merged into has the same rows, but for three tables: rows of `values` about one
//! context and metric become one row, of a window that is as wide as theirs together; so do rows of `timeline` about one
//! window of its present width; and of the `ledger` the newest rows stay. Sums are the same. A segment that was merged is
//! removed after the manifest lists the new one: a program that meets a missing file reads the manifest again.
//!
//! All of a table's segments together are the table:
//!
//! | table | column | type | meaning |
//! |---|---|---|---|
//! | `frames` | `id` | u32 | number of the frame |
//! | | `kind` | string | `process` `thread` `python` `native` `native-unnamed` `kernel` `kernel-unnamed` `operator` `gpu-api` `gpu-kernel` `instruction` `stream` `wait` `unresolved`, and the stand-ins `root` `tree-full` `table-full` |
//! | | `label` | string | text of the frame, as in folded stacks |
//! | | `name` | string? | name of the process or thread, qualified name of the function, symbol, operator; which device a stream is of |
//! | | `number` | u32? | process or thread id; number of a stream |
//! | | `module` | string? | path of the executable or library |
//! | | `file` | string? | path of the source file |
//! | | `line`, `first_line` | u32? | line being executed, line of the definition |
//! | | `offset` | u64? | address in the module, of native code without a name; device of a stream |
//! | | `inlined` | bool | native code that was inlined into its caller |
//! | | `interpreter` | bool | native code that is an interpreter's evaluation loop |
//! | | `dispatch` | bool | native code that is a framework's dispatch within an operator |
//! | | `reason` | string? | why there is no name |
//! | | `origin` | string? | kind of code that an `unresolved` frame stands for: `native` `python` `kernel` `gpu` |
//! | `nodes` | `id` | u32 | number of the calling context; 0, the root, is not listed |
//! | | `parent` | u32 | the caller's context; always smaller than `id` |
//! | | `frame` | u32 | what is called |
//! | `values` | `node` | u32 | calling context |
//! | | `metric` | string | `cpu-time`, … (nanoseconds, bytes or counts) |
//! | | `from_ns`, `to_ns` | u64 | window of time since the capture began; wider in older rows |
//! | | `count`, `sum` | u64 | values in the window |
//! | | `min`, `max` | u64 | extremes from the start of the capture to the end of the window |
//! | | `sum_squares` | decimal(38, 0) | in the window |
//! | `timeline` | `node` | u32 | calling context, of a thread for instance, with all below it |
//! | | `metric` | string | `cpu-time`, … |
//! | | `from_ns`, `to_ns` | u64 | window of time since the capture began; finer than those of `values` |
//! | | `sum` | u64 | of the values in the window |
//! | `activities` | `kind` | string | `kernel` `copy` `fill` `graph` `sync`: a row is one thing that a device did |
//! | | `node` | u32 | calling context that it belongs to |
//! | | `pid`, `device`, `context`, `stream` | u32 | where it ran |
//! | | `correlation` | u32 | id of the call that asked for it; 0 for none |
//! | | `start_ns`, `end_ns` | u64 | since the capture began |
//! | | `launched_ns` | u64? | when the host called for it |
//! | | `bytes` | u64 | copied or filled |
//! | `shapes` | `node` | u32 | calling context of kernels; the newest rows of a node count |
//! | | `what` | string | `grid.x` … `block.z`, `dynamic-shared`, `static-shared` (bytes of a block), `registers` (of a thread), `architecture` (80: `sm_80`) |
//! | | `min`, `max`, `last` | u32 | of the launches in that context |
//! | `ledger` | `at_ns` | u64 | since the capture began; the newest rows hold the totals, older ones how they grew |
//! | | `stage` | string | `kernel` `decode` `order` `resolve` `attribute` |
//! | | `class` | string | `received` `kept` `merged` `dropped` `gap` |
//! | | `reason`, `sentence` | string? | why, for `dropped` and `gap` |
//! | | `count` | u64 | records (or frames, for gaps) from the start of the capture |
//! | `executables` | `path`, `build_id` | string | as the target sees it; build-id in hex, or empty |
//! | | `size` | u64 | bytes |
//!
//! A type with `?` may be null. So the hottest functions of a profile are, in DuckDB:
//!
//! ```sql
//! select label, sum(v.sum) as own
//! from 'run.dctx/values-*.parquet' v
//! join 'run.dctx/nodes-*.parquet' n on v.node = n.id
//! join 'run.dctx/frames-*.parquet' f on n.frame = f.id
//! where metric = 'cpu-time' group by label order by own desc limit 10;
//! ```
//!
//! (After a crash such a pattern may match files of the flush or of the merge that was cut short; the manifest knows which
//! count.)
//!
//! The manifest is a JSON object: `format` (`"deepctx-profile"`), `version` (a reader refuses another one), `minor`
//! (grows with additions that old readers may ignore), `complete` (false until the capture ended well), `end_ns`
//! (time of the last flush since the capture began), `gpu` (what is known of each process that used a device),
//! `memory` (what tensors took, by process and device), `activities_left_out` (how many no segment has), `meta` (see [`Meta`](deepctx_profile::profile::Meta)) and `segments`, each
//! with `table`, `file`, `rows`, `bytes` and `crc32` (of the file).
//!
//! # One file
//!
//! A packed profile (`record --pack`, `export --format dctx`) is a plain `tar` archive of the same files, the manifest
//! first: `tar xf` makes it a folder again.

mod devices;
mod error;
mod lanes;
mod manifest;
mod merge;
mod pack;
mod place;
mod read;
mod schema;
mod table;
mod write;

pub use error::StoreError;
pub use pack::{pack, write as write_packed};
pub use place::is_packed;
pub use write::{Delta, Due, Merged, Writer};

pub(crate) use read::{LostSegment, Stored, open};

#[cfg(test)]
mod tests;
