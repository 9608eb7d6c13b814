//! What can go wrong between a profile and the disk.
//!
//! Owns: [`StoreError`]. Because: a user with a full disk needs to read which disk, and what is safe. Does not: cover
//! damage inside a profile, which is no failure but a labelled loss of the profile that was opened.

use std::io;
use std::path::{Path, PathBuf};

/// A profile could not be written or opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place is taken.
    #[error("`{0}` exists already")]
    AlreadyExists(PathBuf),
    /// The folder could not be made.
    #[error("cannot create the profile `{path}`: {source}")]
    Create {
        /// The profile.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the profile could not be written. What was flushed before is unharmed.
    #[error("cannot write `{path}`: {source}; what was written before is complete and can be opened")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Rows could not be encoded. What was flushed before is unharmed.
    #[error("cannot encode the table `{table}`: {message}")]
    Encode {
        /// The table.
        table: &'static str,
        /// What the encoder said.
        message: String,
    },
    /// The delta was made before an earlier one was written.
    #[error("this part of the profile was prepared before the last one was written; prepare it again")]
    StaleDelta,
    /// There is nothing at the path.
    #[error("no such profile: `{0}`")]
    NotFound(PathBuf),
    /// There is something else at the path.
    #[error("`{path}` is not a profile: {because}")]
    NotAProfile {
        /// What was to be opened.
        path: PathBuf,
        /// What is missing or odd.
        because: String,
    },
    /// The profile is of another version.
    #[error("`{path}` has profile version {found}, but this program reads version {supported}")]
    UnknownVersion {
        /// The profile.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The version that can be read.
        supported: u64,
    },
    /// The manifest could not be read.
    #[error("cannot read `{path}`: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    /// What the user can do about it, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            StoreError::AlreadyExists(_) => Some("choose another name, or remove it first"),
            StoreError::Create { source, .. } | StoreError::Write { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some("free some space, or write to another disk with -o")
                }
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                    Some("write to a folder that you may write to, with -o")
                }
                io::ErrorKind::NotFound => Some("create the folder that shall hold the profile first"),
                _ => None,
            },
            StoreError::NotFound(_) => Some("a profile is a folder, such as `record -o run.dctx` makes"),
            StoreError::UnknownVersion { found, supported, .. } if found > supported => {
                Some("open it with the version of the program that made it, or a newer one")
            }
            StoreError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("profiles made as root can only be read as root, unless their owner is changed")
            }
            _ => None,
        }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Write { path: path.to_owned(), source }
    }
}
