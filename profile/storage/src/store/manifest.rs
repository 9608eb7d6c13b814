//! The manifest: which files are the profile.
//!
//! Owns: `manifest.json`. Because: one small file that is replaced as a whole makes a flush happen entirely or not
//! at all. Does not: look into segments.

use std::cmp::Ordering;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::StoreError;
use super::container::{Container, MANIFEST};
use super::producers::StoredWait;
use super::step_times::StoredPlace;
use crate::error::{NotAProfile, OpenError};
use crate::folder::Folder;
use crate::version::FormatVersion;
use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::device::gpu::DeviceUse;
use deepctx_profile::device::memory::Pool;
use deepctx_profile::profile::Meta;

const FORMAT: &str = "deepctx-profile";
/// A manifest entry takes about 150 bytes: this is enough for any capture.
const BYTES_MAX: u64 = 64 << 20;
/// Characters shown of a program's version.
const WRITER_MAX: usize = 40;

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
    /// Facts about the device work of each process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gpu: Vec<GpuProcess>,
    /// How long each device of another tool's trace was at work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) device_uses: Vec<DeviceUse>,
    /// Tensor memory, by process and device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) memory: Vec<Pool>,
    /// How often training steps took how long, by place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) step_times: Vec<StoredPlace>,
    /// What sampled instructions wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) producers: Vec<StoredWait>,
    /// Activities in no segment.
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
    /// Number of merges; only its writer needs it.
    #[serde(skip)]
    pub(super) level: u8,
}

/// Only what distinguishes a profile from anything else, so that later versions need to keep only this: the first two.
/// The others are shown if they still have their present form.
#[derive(Deserialize)]
struct Preamble {
    format: String,
    version: u64,
    #[serde(default)]
    minor: serde_json::Value,
    #[serde(default)]
    meta: serde_json::Value,
}

impl Preamble {
    fn check(&self, path: &Path) -> Result<(), OpenError> {
        let (path, supported) = (path.to_owned(), FormatVersion::CURRENT);
        let found = FormatVersion { major: self.version, minor: self.minor.as_u64().unwrap_or(0) };
        match found.major.cmp(&supported.major) {
            Ordering::Less => Err(OpenError::OlderMajor { path, found, supported }),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(OpenError::NewerMajor { path, found, supported, writer: self.writer() }),
        }
    }

    /// Version of the program that wrote it, if stated.
    fn writer(&self) -> Option<String> {
        let version: String = self.meta.get("version")?.as_str()?.chars().take(WRITER_MAX).collect();
        (!version.is_empty()).then(|| deepctx_profile::frame::clean(&version))
    }
}

impl Manifest {
    pub(super) fn new(meta: Meta) -> Self {
        let (format, segments) = (FORMAT.to_owned(), Vec::new());
        Manifest {
            format,
            version: FormatVersion::CURRENT.major,
            minor: FormatVersion::CURRENT.minor,
            complete: false,
            end_ns: 0,
            meta,
            gpu: Vec::new(),
            device_uses: Vec::new(),
            memory: Vec::new(),
            step_times: Vec::new(),
            producers: Vec::new(),
            activities_left_out: 0,
            segments,
        }
    }

    pub(super) fn read(container: &Container) -> Result<Manifest, OpenError> {
        let path = container.path();
        let not_a_profile = |because: NotAProfile| OpenError::NotAProfile { path: path.to_owned(), because };
        let bytes = match container.read(MANIFEST, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(not_a_profile(NotAProfile::WithoutFile(MANIFEST)));
            }
            Err(source) => return Err(OpenError::Read { path: path.join(MANIFEST), source }),
        };
        let corrupt = |source: serde_json::Error| OpenError::Corrupt { path: path.to_owned(), source };
        let preamble: Preamble = serde_json::from_slice(&bytes).map_err(corrupt)?;
        if preamble.format != FORMAT {
            let format = preamble.format;
            return Err(not_a_profile(NotAProfile::OtherFormat { file: MANIFEST, format }));
        }
        preamble.check(path)?;
        serde_json::from_slice(&bytes).map_err(corrupt)
    }

    pub(super) fn version(&self) -> FormatVersion {
        FormatVersion { major: self.version, minor: self.minor }
    }

    pub(super) fn write(&self, folder: &Folder) -> Result<(), StoreError> {
        self.put(folder)?;
        sync(folder)
    }

    /// Like [`Manifest::write`], but durable only after a [`sync`].
    pub(super) fn put(&self, folder: &Folder) -> Result<(), StoreError> {
        put(folder, MANIFEST, &self.to_bytes()?)
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, StoreError> {
        serde_json::to_vec_pretty(self).map_err(StoreError::encode("manifest"))
    }
}

/// [`Folder::put`] with a store error.
pub(super) fn put(folder: &Folder, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
    folder.put(name, bytes).map_err(|error| StoreError::write(&folder.path().join(name))(error))
}

/// Makes the names in a folder durable.
pub(super) fn sync(folder: &Folder) -> Result<(), StoreError> {
    folder.sync().map_err(StoreError::write(folder.path()))
}
