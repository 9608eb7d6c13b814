//! Errors of opening: why a file gives no profile.
//!
//! Owns: [`OpenError`]. Because: a program that opens profiles acts on the reason, and a person needs to read what
//! helps. Does not: cover damage inside a profile, which is a [`Note`](crate::Note) on the profile that was opened.

use std::io;
use std::path::PathBuf;

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
        because: String,
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
