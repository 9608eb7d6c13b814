//! Errors of opening: why a file gives no profile.
//!
//! Owns: [`OpenError`]. Because: a program that opens profiles acts on the reason, and a person needs to read what
//! helps. Does not: cover damage inside a profile, which is a [`Note`](crate::Note) on the profile that was opened.

use std::io;
#[cfg(feature = "import")]
use std::path::Path;
use std::path::PathBuf;

use deepctx_profile::trace::SameRank;

#[cfg(feature = "import")]
use crate::import::ImportError;
use crate::version::FormatVersion;

/// Why a file cannot be opened as a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The path does not exist.
    #[error("no such profile: `{path}`")]
    NotFound {
        /// The given path.
        path: PathBuf,
    },
    /// The path is not a profile.
    #[error("`{path}` is not a profile: {because}")]
    NotAProfile {
        /// The given path.
        path: PathBuf,
        /// The missing or unexpected part.
        #[source]
        because: NotAProfile,
    },
    /// Its manifest, without which its other files are useless, is damaged.
    #[error("`{path}` is not a profile: `manifest.json` is damaged: {source}")]
    Corrupt {
        /// The profile.
        path: PathBuf,
        /// The parse error.
        source: serde_json::Error,
    },
    /// A newer program wrote it, in a form that would be misread here.
    #[error(
        "`{path}` has profile format {found}, but this program reads format {}: it needs a deepctx-bpf that reads format {}",
        supported.major, found.major
    )]
    NewerMajor {
        /// The profile.
        path: PathBuf,
        /// Its version.
        found: FormatVersion,
        /// The newest version that can be read, with all of its older minor ones.
        supported: FormatVersion,
        /// Version of the program that wrote it, if stated.
        writer: Option<String>,
    },
    /// Its version is no longer supported.
    #[error("`{path}` has profile format {found}, but this program reads format {}", supported.major)]
    OlderMajor {
        /// The profile.
        path: PathBuf,
        /// Its version.
        found: FormatVersion,
        /// The newest version that can be read.
        supported: FormatVersion,
    },
    /// The system refuses to read it.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a file of another tool, or an unknown one, that cannot be imported.
    #[cfg(feature = "import")]
    #[error("{path}: {source}")]
    Import {
        /// The file.
        path: PathBuf,
        /// The importer's error.
        source: ImportError,
    },
}

/// Why a path is not a profile, or has no trace of the requested kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAProfile {
    /// It is neither a folder nor one of our files.
    #[error("it is neither a folder nor a packed one")]
    NeitherFolderNorFile,
    /// A file that every profile has is missing.
    #[error("it has no `{0}`")]
    WithoutFile(&'static str),
    /// That file has another format.
    #[error("`{file}` has the format `{format}`")]
    OtherFormat {
        /// The file.
        file: &'static str,
        /// The format that it states.
        format: String,
    },
    /// No individual events were recorded.
    #[error("the profile has no events in time: record it with `--trace 10s`")]
    WithoutTrace,
    /// The list of the trace's files is damaged.
    #[error("it is damaged: {0}")]
    DamagedList(#[source] serde_json::Error),
    /// That list is of another program or version.
    #[error("it has format `{format}` {version}, and this program reads `{known}` {newest}")]
    OtherTraceFormat {
        /// The format that it states.
        format: String,
        /// Its version.
        version: u64,
        /// The known format.
        known: &'static str,
        /// Its newest supported version.
        newest: u64,
    },
    /// The trace is larger than the limit.
    #[error(
        "its trace of {count} events has more than {most} events: choose fewer with `--between` or `--steps`"
    )]
    TraceTooLarge {
        /// Events of the trace.
        count: u64,
        /// The limit.
        most: usize,
    },
    /// So is the requested part.
    #[error("this part of its trace has more than {most} events: choose fewer with `--between` or `--steps`")]
    PartTooLarge {
        /// The limit.
        most: usize,
    },
    /// It has none of the requested training steps.
    #[error("its trace has no such training steps")]
    NoSuchSteps,
    /// A part by time was requested of another tool's file.
    #[error("a part of the time is read of captures with `record --trace` only: this is another tool's file")]
    NoParts,
    /// The folder has no traces.
    #[error("the folder holds no trace (*.json, *.json.gz, *.xplane.pb, *.pftrace, *.sqlite, *.dctx)")]
    NoTraces,
    /// It has more traces than are read.
    #[error("the folder holds {count} traces, and {most} are read at most")]
    TooManyTraces {
        /// Traces of the folder.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// It has more entries than are looked at, so traces may be missed.
    #[error("the folder has more than {most} entries, which is the most that is searched for traces")]
    TooManyEntries {
        /// The limit.
        most: usize,
    },
    /// The traces do not form a job.
    #[error(transparent)]
    SameRank(#[from] SameRank),
}

/// Ends of names of reports that only their tools read, their formats, and what to do.
#[cfg(feature = "import")]
const REPORTS: [(&str, &str, &str); 4] = [
    ("nsys-rep", "a report of Nsight Systems", "export it (`nsys export --type sqlite`)"),
    ("qdrep", "a report of Nsight Systems", "export it (`nsys export --type sqlite`)"),
    ("ncu-rep", "a report of Nsight Compute", "it is about single kernels: record with Nsight Systems"),
    ("otf2", "a trace in OTF2", "write JSON (`rocprofv3 --output-format json`)"),
];

impl OpenError {
    /// Of a file that cannot be imported.
    #[cfg(feature = "import")]
    pub(crate) fn import(path: &Path, source: ImportError) -> Self {
        let report = REPORTS.into_iter().find(|(end, ..)| path.extension().is_some_and(|of| of == *end));
        let source = match report {
            Some((_, format, because)) => ImportError::NotRead { format, because },
            None => source,
        };
        OpenError::Import { path: path.to_owned(), source }
    }

    /// A hint for the user, if any.
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
            OpenError::Import { source: ImportError::TooLarge { .. }, .. } => {
                "trace fewer steps, or open the files of a job one at a time".to_owned()
            }
            // The error says what to do.
            #[cfg(feature = "import")]
            OpenError::Import { source: ImportError::NotRead { .. }, .. } => return None,
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
