//! What can go wrong when a profile is written.
//!
//! Owns: [`StoreError`]. Because: a user with a full disk needs to read which disk, and what is safe. Does not: cover
//! opening; see [`OpenError`].

use std::io;
use std::path::{Path, PathBuf};

use crate::error::OpenError;

/// Why a profile could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The path exists.
    #[error("`{0}` exists already")]
    AlreadyExists(PathBuf),
    /// The folder could not be created.
    #[error("cannot create the profile `{path}`: {source}")]
    Create {
        /// The profile.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file of the profile could not be written. Earlier flushes are unharmed.
    #[error("cannot write `{path}`: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Rows could not be encoded. Earlier flushes are unharmed.
    #[error("cannot encode the table `{table}`: {source}")]
    Encode {
        /// The table.
        table: &'static str,
        /// The encoder's error.
        source: EncodeError,
    },
    /// The delta was created before an earlier one was written.
    #[error("this part of the profile was prepared before the last one was written; prepare it again")]
    StaleDelta,
    /// The profile to be packed cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Why rows cannot be encoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// As JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// As a Parquet table; the text is its library's error, or the conflict with the columns.
    #[error("{0}")]
    Table(String),
}

impl From<String> for EncodeError {
    fn from(said: String) -> Self {
        EncodeError::Table(said)
    }
}

impl StoreError {
    /// A hint for the user, if any.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            StoreError::AlreadyExists(_) => "choose another name, or remove it first",
            StoreError::Create { source, .. } | StoreError::Write { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "free some space, or write to another disk with -o"
                }
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                    "write to a folder that you may write to, with -o"
                }
                io::ErrorKind::FileTooLarge => {
                    "the file is too large: check `ulimit -f`, and the file system of -o"
                }
                io::ErrorKind::NotFound => "create the folder that shall hold the profile first",
                _ if source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
                    "raise `ulimit -n`: this process may open no more files"
                }
                _ => return None,
            },
            StoreError::Open(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }

    pub(super) fn encode<E: Into<EncodeError>>(table: &'static str) -> impl FnOnce(E) -> StoreError {
        move |source| StoreError::Encode { table, source: source.into() }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |source| StoreError::Write { path: path.to_owned(), source }
    }
}
