//! Imports: what other tools recorded, as a profile.
//!
//! Owns: distinguishing formats by their content, the bounds on what is read, and the errors. Because: views, reports
//! and exports are of use to people who recorded elsewhere. Does not: open files; bytes are handed in.
//!
//! | format | recognised by | metrics |
//! |---|---|---|
//! | pprof | protobuf that holds samples | those of its sample types that have a counterpart here |
//! | Kineto and Chrome traces | JSON with `traceEvents` | wall time of nested events; kernels, copies, launches and synchronization by correlation |
//! | `perf script` | a sample's head line, then indented frames | samples; CPU time where the event is a clock |
//! | folded stacks | `frame;frame 12` | samples |
//!
//! Any of them may be gzipped. What a file holds that is not understood is counted as a gap of the stage `decode`, and
//! files are bounded after decompression ([`BYTES_MAX`]) and in everything they can make grow.

mod folded;
mod kineto;
mod perf_script;
mod pprof;
mod words;

use std::borrow::Cow;
use std::fmt;
use std::io::Read as _;

use flate2::read::MultiGzDecoder;

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::ledger::Stage;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::units::Nanos;

/// Most bytes of a file, decompressed: a long `perf script` has hundreds of megabytes, a bomb has more.
pub const BYTES_MAX: usize = 1 << 30;
/// Bounds of an imported profile.
const LIMITS: Limits = Limits { nodes: 1 << 24, frames: 1 << 22, string_bytes: 1 << 28 };

reasons! {
    class Unread, page "formats.md";
    const NOT_UNDERSTOOD = "not-understood", "lines or events of the file are not of its format";
    const ROUNDED = "rounded", "values with decimals were rounded";
    const UNKNOWN_METRIC = "unknown-metric", "sample types have no counterpart here and were left out";
    const NEGATIVE = "negative", "values below zero, as differences have, were left out";
    const DANGLING = "dangling", "frames refer to locations that the file does not have";
}

reasons! {
    class Gap, page "formats.md";
    const NO_LAUNCH = "no-launch", "work on a device has no call that launched it";
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
    /// Chrome trace events, as PyTorch's profiler writes them.
    Kineto,
    /// What `perf script` prints.
    PerfScript,
    /// Folded stacks.
    Folded,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Pprof => "pprof profile",
            Kind::Kineto => "Chrome or Kineto trace",
            Kind::PerfScript => "output of perf script",
            Kind::Folded => "file of folded stacks",
        })
    }
}

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// The profile.
    pub profile: Profile,
    /// Where it came from.
    pub kind: Kind,
    /// Length of the recording; zero when the format does not say.
    pub elapsed: Nanos,
}

/// A file cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is none of the formats.
    #[error("it is neither a profile nor anything that can be imported: {because}")]
    Unknown {
        /// How it is recognised.
        because: String,
    },
    /// It begins like one of them and then is something else.
    #[error("it is no valid {kind}: {because}")]
    Damaged {
        /// What it was taken for.
        kind: Kind,
        /// What is wrong, and where.
        because: String,
    },
    /// It is larger, or becomes larger, than what is read.
    #[error("it has more than {most} {what}, which is the most that is imported")]
    TooLarge {
        /// The bound.
        most: usize,
        /// Bytes, strings, …
        what: &'static str,
    },
    /// There is nothing in it that can be shown.
    #[error("there is nothing to show in this {kind}: {because}")]
    Empty {
        /// The format.
        kind: Kind,
        /// What is missing.
        because: String,
    },
}

impl ImportError {
    fn damaged(kind: Kind, because: impl Into<String>) -> Self {
        ImportError::Damaged { kind, because: because.into() }
    }
}

/// Reads a file of any of the formats. `name` is what the profile is called.
///
/// # Errors
/// It is none of them, is damaged, is too large, or holds nothing.
pub fn read(bytes: &[u8], name: &str) -> Result<Imported, ImportError> {
    let bytes = plain(bytes)?;
    let kind = detect(&bytes)?;
    let meta = Meta { target: format!("{name} ({kind})"), ..Meta::default() };
    let mut profile = Profile::new(meta, LIMITS);
    let elapsed = match kind {
        Kind::Pprof => pprof::read(&bytes, &mut profile)?,
        Kind::Kineto => kineto::read(&bytes, &mut profile)?,
        Kind::PerfScript => perf_script::read(&bytes, &mut profile),
        Kind::Folded => folded::read(&bytes, &mut profile),
    };
    if profile.tree.metrics().all(|metric| profile.tree.total(metric).sum == 0) {
        let because = "it has no value above zero".to_owned();
        return Err(ImportError::Empty { kind, because });
    }
    Ok(Imported { profile, kind, elapsed })
}

/// The bytes, decompressed if they are gzipped.
fn plain(bytes: &[u8]) -> Result<Cow<'_, [u8]>, ImportError> {
    const TOO_LARGE: ImportError = ImportError::TooLarge { most: BYTES_MAX, what: "bytes" };
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return if bytes.len() > BYTES_MAX { Err(TOO_LARGE) } else { Ok(Cow::Borrowed(bytes)) };
    }
    let mut out = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(BYTES_MAX as u64 + 1).read_to_end(&mut out);
    if out.len() > BYTES_MAX {
        return Err(TOO_LARGE);
    }
    read.map_err(|error| ImportError::Unknown {
        because: format!("it begins like a gzip file, but cannot be decompressed: {error}"),
    })?;
    Ok(Cow::Owned(out))
}

/// Recognises the format by its beginning.
fn detect(bytes: &[u8]) -> Result<Kind, ImportError> {
    let unknown = |because: &str| Err(ImportError::Unknown { because: because.to_owned() });
    // Enough for the long header that some tools write, little enough to look at at once.
    let start = &bytes[..bytes.len().min(64 * 1024)];
    let mut words = start.iter().filter(|byte| !byte.is_ascii_whitespace());
    let Some(&first) = words.next() else {
        return unknown("it is empty");
    };
    let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x1b);
    if start.iter().any(is_control) {
        return Ok(Kind::Pprof);
    }
    // A folded stack may begin with a bracket as well.
    if matches!((first, words.next()), (b'{', Some(b'"' | b'}')) | (b'[', Some(b'{' | b']'))) {
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

/// Counts what a file holds that is not understood.
fn gap(profile: &mut Profile, reason: &'static Reason, n: u64) {
    profile.ledger.gap(Stage::Decode, reason, n);
}

#[cfg(test)]
#[cfg(feature = "export")]
mod tests;
