//! Imports: what other tools recorded, as a profile.
//!
//! Owns: distinguishing formats by their content, the bounds on what is read, and the errors. Because: views, reports
//! and exports are of use to people who recorded elsewhere. Does not: open files; bytes are handed in.
//!
//! | format | recognised by | metrics |
//! |---|---|---|
//! | pprof | protobuf that holds samples | those of its sample types that have a counterpart here |
//! | Kineto and Chrome traces | JSON with `traceEvents` | wall time of nested events; kernels, copies, launches and synchronization by correlation |
//! | rocprofv3 | JSON with `rocprofiler-sdk-tool` | kernels and copies, and the calls that launched them if they were traced |
//! | XPlane (JAX, TensorFlow) | protobuf of planes with lines | wall time of host events, kernels by stream |
//! | Perfetto | protobuf of packets with times or sequences | as Kineto traces, where categories are those |
//! | Nsight Systems | SQLite with its tables | as Kineto traces, for each process |
//! | `perf script` | a sample's head line, then indented frames | samples; CPU time where the event is a clock |
//! | folded stacks | `frame;frame 12` | samples |
//!
//! Traces have events in time: [`traces`] keeps them, and [`read`] sums the same events by calling context. Any of
//! the files may be packed by gzip or zstd. Content that is not understood is counted as a gap of the stage `decode`,
//! and files are bounded after decompression ([`BYTES_MAX`]) and in everything they can make grow.

mod arguments;
mod contexts;
mod cut_json;
mod events;
mod fields;
mod folded;
mod groups;
mod kineto;
mod lossy;
#[cfg(feature = "nsys")]
mod nsys;
mod packed;
mod perf_script;
mod perfetto;
mod pprof;
mod ranks;
mod rocprof;
mod trace_rows;
mod words;
mod xla;
mod xplane;

use std::fmt;

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::frame::Frame;
use deepctx_profile::ledger::{Ledger, Stage};
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::trace::{EventLanes, Job, Links, Trace};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::{Nanos, Time, counted};

use contexts::Part;
use packed::{DecompressedBytes, plain};

pub use events::{ProcessTraces, traces};

/// Maximum bytes of a file, decompressed: a long `perf script` has hundreds of megabytes, a decompression bomb more.
pub const BYTES_MAX: usize = 1 << 30;
/// Maximum events of a trace: an hour of training has a few tens of millions, which no viewer opens either. At about
/// 30 bytes each they take half of the limit for the file itself.
pub(crate) const EVENTS_MAX: usize = 1 << 24;
/// Limits of an imported profile.
const LIMITS: Limits = Limits { nodes: 1 << 24, frames: 1 << 22, string_bytes: 1 << 28 };

reasons! {
    class Unread, page "formats.md";
    const NOT_UNDERSTOOD = "not-understood", "lines or events of the file are not of its format";
    const ROUNDED = "rounded", "values with decimals were rounded";
    const UNKNOWN_METRIC = "unknown-metric", "sample types have no counterpart here and were left out";
    const CUT_SHORT = "cut-short", "the file ends in the middle: what stands before is there";
    const END_BEFORE_BEGIN = "end-before-begin", "events end before they begin and were left out";
    const TOO_LONG = "too-long", "events last longer than a year and were left out";
    const OUT_OF_RANGE = "out-of-range", "times before the zero of the clock, or beyond its end, were left out";
    const AT_ZERO = "at-time-zero",
        "events at time 0, more than a year before all others, were left out: when they were is not known";
    const NEGATIVE = "negative", "values below zero, as differences have, were left out";
    const NO_END = "no-end", "ranges that had not ended when the recording did were left out";
    const TABLE_DAMAGED = "table-damaged", "tables end at a damaged page: rows before it are there";
    const TOO_MANY_PROCESSES = "too-many-processes", "events of processes beyond the first 1024 were left out";
    const UNKNOWN_PACKET = "unknown-packet", "packets are of kinds that are not read";
    const NOT_A_NUMBER = "not-a-number", "values are NaN or infinite, which JSON does not have: they were left out";
    const REPAIRED = "repaired",
        "characters that the format does not allow, such as invalid UTF-8 or a comma behind a last element, were replaced";
    const TOO_DEEP = "too-deep",
        "frames, or operations within others, are nested more deeply than is read: they were left out";
    const KIND_NOT_READ = "kind-not-read",
        "events are of kinds that are not read, such as allocations, counters and samples, and were left out";
    const ON_NO_THREAD = "on-no-thread",
        "events are of kinds that lie on no thread, such as asynchronous ones, and were left out";
    const LOST_STATE = "lost-state", "events refer to names that were said before the file begins, or were lost";
    const UNKNOWN_CLOCK = "unknown-clock", "events have times of a clock that the file does not tie to its others";
    const END_WITHOUT_BEGIN = "end-without-begin", "ranges end that had not begun: the recording began within them";
    const DANGLING = "dangling", "frames refer to locations that the file does not have";
}

reasons! {
    class Gap, page "formats.md";
    const NO_LAUNCH = "no-launch", "work on a device has no call that launched it";
    const UNKNOWN_CATEGORY = "unknown-category", "events are of categories that are not known, so they are no time of any thread";
    const AMBIGUOUS_ID = "ambiguous-id", "several calls have the id of the work: it is below the latest that began before it";
    const NO_PROCESS = "no-process",
        "calls and work have ids, and the file does not say of which of its processes: they are not joined";
    const UNKNOWN_DEVICE = "unknown-device",
        "work is of none of the GPUs that the file lists: it counts as work of device 0";
    const GROUP_RANKS_CUT = "group-ranks-cut",
        "lists of the ranks of communicators are cut: these communicators are known by their names only";
    const GROUP_RANKS_LEFT_OUT = "group-ranks-left-out",
        "lists of the ranks of communicators beyond the first 4096 of a trace, or very long ones, were left out";
}

reasons! {
    class Unnamed, page "formats.md";
    const NO_SYMBOL = "no-symbol", "the file has no name for the address";
    const NO_LOCATION = "no-location", "the file lacks the location of the frame";
}

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// pprof's `profile.proto`.
    Pprof,
    /// Chrome trace events, as written by PyTorch's profiler.
    Kineto,
    /// JSON of AMD's rocprofv3.
    Rocprof,
    /// XPlane of XLA's profiler, as written by JAX and TensorFlow.
    XPlane,
    /// Perfetto's protobuf.
    Perfetto,
    /// SQLite exports of Nsight Systems.
    Nsys,
    /// Output of `perf script`.
    PerfScript,
    /// Folded stacks.
    Folded,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Pprof => "pprof profile",
            Kind::Kineto => "Chrome or Kineto trace",
            Kind::Rocprof => "rocprofv3 trace",
            Kind::XPlane => "XPlane trace",
            Kind::Perfetto => "Perfetto trace",
            Kind::Nsys => "Nsight Systems export",
            Kind::PerfScript => "output of perf script",
            Kind::Folded => "file of folded stacks",
        })
    }
}

/// An imported file.
#[derive(Debug)]
pub struct ImportedProfile {
    /// The profile.
    pub profile: Profile,
    /// Its format.
    pub kind: Kind,
    /// Length of the recording; zero if the format does not state it.
    pub elapsed: Nanos,
}

/// Why a file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It has none of the formats.
    #[error("it is neither a profile nor anything that can be imported: {because}")]
    Unknown {
        /// How it is recognized.
        because: String,
    },
    /// It begins like one of them but is invalid.
    #[error("it is no valid {kind}: {because}")]
    Damaged {
        /// The assumed format.
        kind: Kind,
        /// The error, and its position.
        because: String,
    },
    /// Its format is recognized but not supported.
    #[error("it is {format}, which is not read: {because}")]
    NotRead {
        /// The format.
        format: &'static str,
        /// Why, or what is supported instead.
        because: &'static str,
    },
    /// It has sums, but events with times are needed.
    #[error(
        "a {kind} has no events in time: a timeline needs a Kineto, rocprofv3, XPlane, Perfetto or Nsight Systems trace"
    )]
    NoEvents {
        /// The format.
        kind: Kind,
    },
    /// It is larger, or expands to more, than the limit.
    #[error("it has more than {most} {what}, which is the most that is imported")]
    TooLarge {
        /// The limit.
        most: usize,
        /// Bytes, strings, …
        what: &'static str,
    },
    /// It has nothing to show.
    #[error("there is nothing to show in this {kind}: {because}")]
    Empty {
        /// The format.
        kind: Kind,
        /// What is missing.
        because: String,
    },
}

/// Of a file with more bytes than [`BYTES_MAX`].
pub(crate) const TOO_LARGE: ImportError = ImportError::TooLarge { most: BYTES_MAX, what: "bytes" };

impl ImportError {
    fn damaged(kind: Kind, because: impl Into<String>) -> Self {
        ImportError::Damaged { kind, because: because.into() }
    }
}

/// Reads a file of any of the formats. `name` becomes the name of the profile.
///
/// # Errors
/// It has none of the formats, is damaged, is too large, or has no content.
pub fn read(bytes: &[u8], name: &str) -> Result<ImportedProfile, ImportError> {
    let DecompressedBytes { bytes, is_cut } = plain(bytes)?;
    let kind = detect(&bytes)?;
    let meta = Meta { target: format!("{name} ({kind})"), ..Meta::default() };
    let mut profile = Profile::new(meta, LIMITS);
    let elapsed = match kind {
        Kind::Pprof => pprof::read(&bytes, &mut profile)?,
        Kind::Kineto | Kind::Rocprof | Kind::XPlane | Kind::Perfetto | Kind::Nsys => {
            add_traces(events::of_kind(kind, &bytes)?, &mut profile)
        }
        Kind::PerfScript => perf_script::read(&bytes, &mut profile),
        Kind::Folded => folded::read(&bytes, &mut profile),
    };
    if profile.tree.metrics().all(|metric| profile.tree.total(metric).sum == 0) {
        let because = "it has no value above zero".to_owned();
        return Err(ImportError::Empty { kind, because });
    }
    if is_cut {
        count_cut(&mut profile.ledger);
    }
    Ok(ImportedProfile { profile, kind, elapsed })
}

/// An event that lasts longer, or begins this long before all others, has a time that its writer did not know.
const YEAR: Nanos = Nanos(366 * 24 * 3600 * 1_000_000_000);

/// Removes events whose time was unknown to their writer, and counts them.
fn leave_out_at_zero(trace: &mut Trace) {
    let left_out = trace.leave_out_at_zero(YEAR);
    trace.ledger.gap(Stage::Decode, AT_ZERO, left_out);
}

/// Adds the traces of one file, which share a clock, and returns its length.
fn add_traces(traces: ProcessTraces, profile: &mut Profile) -> Nanos {
    let spans = traces.iter().filter_map(|(_, trace)| trace.span());
    let Some((first, last)) = spans.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))) else { return Nanos(0) };
    if let Some(epoch) = traces.iter().find_map(|(_, trace)| trace.clock.epoch_ns) {
        profile.meta.started = Time::from_nanos(epoch.saturating_add(first.as_nanos()));
    }
    for (_, trace) in &traces {
        contexts::add(trace, &Links::of(trace), Part::ALL, NodeId::ROOT, profile);
    }
    contexts::add_device_uses(traces.iter().map(|(_, trace)| trace), Part::ALL, profile);
    last - first
}

/// The profile of all ranks of a job, each below a separate frame.
pub fn profile_of_job(job: &Job, name: &str) -> ImportedProfile {
    let ranks = counted(job.ranks().len() as u64, "rank");
    let meta = Meta { target: format!("{name} ({ranks})"), ..Meta::default() };
    let mut profile = Profile::new(meta, LIMITS);
    let mut elapsed = Nanos(0);
    for of in job.ranks() {
        let frame = Frame::Range { name: profile.text(&format!("rank {}", of.rank)) };
        let frame = profile.frame(frame);
        let root = profile.tree.child(NodeId::ROOT, frame);
        elapsed = elapsed.max(contexts::add(&of.trace, &of.links, Part::ALL, root, &mut profile));
        contexts::add_device_uses([&of.trace].into_iter(), Part::ALL, &mut profile);
    }
    ImportedProfile { profile, kind: Kind::Kineto, elapsed }
}

/// The profile of an interval of a job, since its first event; with several ranks, each below a frame of its own.
pub fn profile_of_range(lanes: &EventLanes, from: Nanos, to: Nanos) -> Profile {
    let mut profile = Profile::new(Meta::default(), LIMITS);
    for (place, of) in lanes.job().ranks().iter().enumerate() {
        let Some((from, to)) = lanes.times_of(place, from, to) else { continue };
        let mut root = NodeId::ROOT;
        if lanes.job().ranks().len() > 1 {
            let frame = Frame::Range { name: profile.text(&format!("rank {}", of.rank)) };
            let frame = profile.frame(frame);
            root = profile.tree.child(NodeId::ROOT, frame);
        }
        contexts::add(&of.trace, &of.links, Part { from, to }, root, &mut profile);
        contexts::add_device_uses([&of.trace].into_iter(), Part { from, to }, &mut profile);
    }
    profile
}

/// Counts a truncated file, unless its reader noticed.
fn count_cut(ledger: &mut Ledger) {
    if ledger.stage(Stage::Decode).gaps.count(CUT_SHORT.key) == 0 {
        ledger.gap(Stage::Decode, CUT_SHORT, 1);
    }
}

/// First keys of traces in JSON.
const KEYS: [&[u8]; 2] = [b"\"schemaVersion\"", b"\"traceEvents\""];

/// Detects the format from the start of the file.
fn detect(bytes: &[u8]) -> Result<Kind, ImportError> {
    let unknown = |because: &str| Err(ImportError::Unknown { because: because.to_owned() });
    // Enough for the long header of some tools, small enough to search at once.
    let start = &bytes[..bytes.len().min(64 * 1024)];
    let mut words = start.iter().filter(|byte| !byte.is_ascii_whitespace());
    let Some(&first) = words.next() else {
        return unknown("it is empty");
    };
    if start.starts_with(b"SQLite format 3\0") {
        // Its reader determines whose database it is.
        return if cfg!(feature = "nsys") { Ok(Kind::Nsys) } else { Err(SQLITE_NOT_BUILT) };
    }
    // A folded stack may also begin with a bracket.
    let is_json = matches!((first, words.next()), (b'{', Some(b'"' | b'}')) | (b'[', Some(b'{' | b']')));
    let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b);
    // No protobuf begins with a bracket (that would start a group) or has trace keys near its start: such a file is
    // damaged JSON.
    let head = &start[..start.len().min(256)];
    let has_key = KEYS.iter().any(|key| head.windows(key.len()).any(|window| window == *key));
    let is_text = is_json && (start.first() == Some(&first) || has_key);
    if !is_text && start.iter().any(is_control) {
        return Ok(match start {
            _ if xplane::is_one(start) => Kind::XPlane,
            _ if perfetto::is_one(start) => Kind::Perfetto,
            _ => Kind::Pprof,
        });
    }
    if first == b'{' && start.windows(ROCPROF.len()).take(256).any(|window| window == ROCPROF) {
        return Ok(Kind::Rocprof);
    }
    if is_json {
        return Ok(Kind::Kineto);
    }
    let text = String::from_utf8_lossy(start);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    if lines.clone().take(200).any(|line| perf_script::head(line).is_some()) {
        return Ok(Kind::PerfScript);
    }
    match lines.next() {
        Some(line) if folded::split(line).is_some() => Ok(Kind::Folded),
        Some(line) => unknown(&format!(
            "its first line is `{}`, where folded stacks would end in a number",
            deepctx_profile::frame::clean(&line.chars().take(60).collect::<String>())
        )),
        None => unknown("it has only comments"),
    }
}

/// The first key of rocprofv3's JSON.
const ROCPROF: &[u8] = b"\"rocprofiler-sdk-tool\"";

/// Databases need an optional library.
const SQLITE_NOT_BUILT: ImportError =
    ImportError::NotRead { format: "an SQLite database", because: "this program was built without `nsys`" };

/// Counts content of a file that is not understood.
fn gap(profile: &mut Profile, reason: &'static Reason, n: u64) {
    profile.ledger.gap(Stage::Decode, reason, n);
}

#[cfg(test)]
#[cfg(feature = "export")]
mod tests;
