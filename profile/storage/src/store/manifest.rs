//! The manifest: which files are the profile.
//!
//! Owns: `manifest.json`. Because: one small file that is replaced as a whole makes a flush happen entirely or not
//! at all. Does not: look into segments.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::place::{MANIFEST, Place};
use deepctx_profile::activity::GpuProcess;
use deepctx_profile::memory::Pool;
use deepctx_profile::profile::Meta;

const FORMAT: &str = "deepctx-profile";
/// Version of the format: raised when old readers would misread a profile.
pub const VERSION: u64 = 1;
/// Raised with additions that old readers may ignore.
const MINOR: u64 = 2;
/// A manifest entry takes about 150 bytes: this is more of them than any capture writes.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: String,
    version: u64,
    #[serde(default)]
    minor: u64,
    pub(super) complete: bool,
    pub(super) end_ns: u64,
    #[serde(default)]
    pub(super) meta: Meta,
    /// What is known of the device work of each process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gpu: Vec<GpuProcess>,
    /// What tensors took, by process and device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) memory: Vec<Pool>,
    /// Activities that no segment has.
    #[serde(default)]
    pub(super) activities_left_out: u64,
    pub(super) segments: Vec<Segment>,
}

/// One file of rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    pub(super) table: String,
    pub(super) file: String,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) crc32: u32,
    /// How often it was merged with others; only its writer needs to know.
    #[serde(skip)]
    pub(super) level: u8,
}

/// Only what tells a profile from anything else, so that a later version need keep nothing but this.
#[derive(Deserialize)]
struct Preamble {
    format: String,
    version: u64,
}

impl Manifest {
    pub(super) fn new(meta: Meta) -> Self {
        let (format, segments) = (FORMAT.to_owned(), Vec::new());
        Manifest {
            format,
            version: VERSION,
            minor: MINOR,
            complete: false,
            end_ns: 0,
            meta,
            gpu: Vec::new(),
            memory: Vec::new(),
            activities_left_out: 0,
            segments,
        }
    }

    pub(super) fn read(place: &Place<'_>) -> Result<Manifest, StoreError> {
        let path = place.path();
        let not_a_profile = |because: String| StoreError::NotAProfile { path: path.to_owned(), because };
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NotFound(path.to_owned()));
            }
            Err(source) => return Err(StoreError::Read { path: path.to_owned(), source }),
            Ok(found) if !found.is_dir() && matches!(place, Place::Folder(_)) => {
                return Err(not_a_profile("it is neither a folder nor a packed one".to_owned()));
            }
            Ok(_) => {}
        }
        let bytes = match place.read(MANIFEST, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(not_a_profile(format!("it has no `{MANIFEST}`")));
            }
            Err(source) => return Err(StoreError::Read { path: path.join(MANIFEST), source }),
        };
        let odd = |error: serde_json::Error| not_a_profile(format!("`{MANIFEST}` is damaged: {error}"));
        let preamble: Preamble = serde_json::from_slice(&bytes).map_err(odd)?;
        if preamble.format != FORMAT {
            return Err(not_a_profile(format!("`{MANIFEST}` has the format `{}`", preamble.format)));
        }
        if preamble.version != VERSION {
            let (path, found) = (path.to_owned(), preamble.version);
            return Err(StoreError::UnknownVersion { path, found, supported: VERSION });
        }
        serde_json::from_slice(&bytes).map_err(odd)
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        self.put(folder)?;
        sync(folder)
    }

    /// As [`Manifest::write`], but it is sure to last only after a [`sync`].
    pub(super) fn put(&self, folder: &Path) -> Result<(), StoreError> {
        put(folder, MANIFEST, &self.to_bytes()?)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec_pretty(self)
            .map_err(|error| StoreError::Encode { table: "manifest", message: error.to_string() })
    }
}

/// Puts a file in place so that it is there with all its bytes, or not at all, whenever the machine stops. Its name lasts
/// only after a [`sync`].
pub(super) fn put(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    let path = folder.join(name);
    let temporary = folder.join(format!(".{name}.new"));
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
    written.map_err(|error| {
        // Best effort: a left-over temporary file harms nobody but takes space, which may be what is missing.
        _ = fs::remove_file(&temporary);
        StoreError::write(&path)(error)
    })
}

/// Makes the names in a folder last.
pub(super) fn sync(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::write(folder))
}

fn write_synced(path: &PathBuf, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
