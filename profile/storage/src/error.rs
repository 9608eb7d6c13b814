//! Errors of opening: why a file gives no profile.
//!
//! Owns: [`OpenError`]. Because: a program that opens profiles acts on the reason, and a person needs to read what
//! helps. Does not: cover damage inside a profile, which is a [`Note`](crate::Note) on the profile that was opened.

use std::io;
use std::path::PathBuf;

use deepctx_profile::trace::SameRank;

#[cfg(feature = "import")]
use crate::import::ImportError;
use crate::version::FormatVersion;

/// A file cannot be opened as a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is nothing at the path.
    #[error("no such profile: `{path}`")]
    NotFound {
        /// What was to be opened.
        path: PathBuf,
    },
    /// There is something else at the path.
    #[error("`{path}` is not a profile: {because}")]
    NotAProfile {
        /// What was to be opened.
        path: PathBuf,
        /// What is missing or odd.
        #[source]
        because: NotAProfile,
    },
    /// Its manifest, without which its other files mean nothing, is damaged.
    #[error("`{path}` is not a profile: `manifest.json` is damaged: {source}")]
    Corrupt {
        /// The profile.
        path: PathBuf,
        /// Where the manifest stops making sense.
        source: serde_json::Error,
    },
    /// A newer program wrote it, in a way that would be misread here.
    #[error(
        "`{path}` has profile format {found}, but this program reads format {}: it needs a deepctx-bpf that reads format {}",
        supported.major, found.major
    )]
    NewerMajor {
        /// The profile.
        path: PathBuf,
        /// Its version.
        found: FormatVersion,
        /// The newest version that can be read; older minor ones can be, too.
        supported: FormatVersion,
        /// Version of the program that wrote it, if it says so.
        writer: Option<String>,
    },
    /// It has a version that is no longer read.
    #[error("`{path}` has profile format {found}, but this program reads format {}", supported.major)]
    OlderMajor {
        /// The profile.
        path: PathBuf,
        /// Its version.
        found: FormatVersion,
        /// The newest version that can be read.
        supported: FormatVersion,
    },
    /// The system does not let it be read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a file of another tool, or of none, that cannot be imported.
    #[cfg(feature = "import")]
    #[error("{path}: {source}")]
    Import {
        /// The file.
        path: PathBuf,
        /// What the importer said.
        source: ImportError,
    },
}

/// Why what is at a path is no profile, or holds no trace of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAProfile {
    /// It is something else than a folder or a file of ours.
    #[error("it is neither a folder nor a packed one")]
    NeitherFolderNorFile,
    /// The file that every profile has is missing.
    #[error("it has no `{0}`")]
    WithoutFile(&'static str),
    /// That file is of something else.
    #[error("`{file}` has the format `{format}`")]
    OtherFormat {
        /// The file.
        file: &'static str,
        /// The format that it states.
        format: String,
    },
    /// No events in time were recorded.
    #[error("the profile has no events in time: record it with `--trace 10s`")]
    WithoutTrace,
    /// The list of the trace's files is damaged.
    #[error("it is damaged: {0}")]
    DamagedList(#[source] serde_json::Error),
    /// That list is of another program, or of another version.
    #[error("it has format `{format}` {version}, and this program reads `{known}` {newest}")]
    OtherTraceFormat {
        /// The format that it states.
        format: String,
        /// Its version.
        version: u64,
        /// The format that is known.
        known: &'static str,
        /// The newest version of it that is known.
        newest: u64,
    },
    /// The trace is larger than is read at once.
    #[error(
        "its trace of {count} events has more than {most} events: choose fewer with `--between` or `--steps`"
    )]
    TraceTooLarge {
        /// Events of the trace.
        count: u64,
        /// As many are read.
        most: usize,
    },
    /// A part of it is, too.
    #[error("this part of its trace has more than {most} events: choose fewer with `--between` or `--steps`")]
    PartTooLarge {
        /// As many are read.
        most: usize,
    },
    /// It has none of the training steps that were asked for.
    #[error("its trace has no such training steps")]
    NoSuchSteps,
    /// A part by time was asked for of another tool's file.
    #[error("a part of the time is read of captures with `record --trace` only: this is another tool's file")]
    NoParts,
    /// The folder has none of the files that hold traces.
    #[error("the folder holds no trace (*.json, *.json.gz, *.xplane.pb, *.pftrace, *.sqlite)")]
    NoTraces,
    /// It has more than are read.
    #[error("the folder holds {count} traces, and {most} are read at most")]
    TooManyTraces {
        /// Traces of the folder.
        count: usize,
        /// As many are read.
        most: usize,
    },
    /// The traces are no job.
    #[error(transparent)]
    SameRank(#[from] SameRank),
}

impl OpenError {
    /// What the user can do about it, if anything.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            OpenError::NotFound { .. } => {
                "a profile is a folder, such as `record -o run.dctx` makes".to_owned()
            }
            OpenError::NewerMajor { writer: Some(writer), .. } => {
                format!("update deepctx-bpf: version {writer} wrote it, so that one or a newer one reads it")
            }
            OpenError::NewerMajor { writer: None, .. } => {
                "update deepctx-bpf to the version that wrote it, or a newer one".to_owned()
            }
            OpenError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "a profile is for its owner alone: who called sudo to make it, or else root".to_owned()
            }
            #[cfg(feature = "import")]
            OpenError::Import { .. } => {
                "a profile is what `record -o` makes; pprof, Kineto, rocprofv3, XPlane, Perfetto and Nsight \
                Systems traces, perf script output and folded stacks are imported"
                    .to_owned()
            }
            _ => return None,
        })
    }
}
