//! One file for a whole profile: the folder's files in a plain `tar` archive.
//!
//! Owns: writing of such a file; it is read by [`super::container`]. Because: one file is easier to copy, attach and
//! keep; and `tar xf` turns it back into the folder, for every tool that reads Parquet. Does not: compress, since
//! segments are compressed already, or hold anything but what the manifest lists. The manifest comes first.

use std::io::{self, Write};
use std::sync::Arc;

use super::container::{BLOCK, Container, MANIFEST, is_plain_name, padding};
use super::manifest::Manifest;
use super::read::SEGMENT_BYTES_MAX;
use super::trace::{LIST, List};
use super::{StoreError, write};
use crate::error::OpenError;
use crate::folder::Folder;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::{Nanos, Time};

/// Writes the profile in a folder as one file.
///
/// # Errors
/// The folder is not a profile, lists a file outside of it, or one of its files cannot be read or written.
pub fn pack(folder: &Arc<Folder>, out: &mut dyn Write) -> Result<(), StoreError> {
    let found = Manifest::read(&Container::Folder(Arc::clone(folder)))?;
    let trace = List::read(&Container::Folder(Arc::clone(folder)))?;
    let of_trace = trace.iter().flat_map(|list| [LIST].into_iter().chain(list.files()));
    let of_profile = [MANIFEST].into_iter().chain(found.segments.iter().map(|s| s.file.as_str()));
    let names = of_profile.chain(of_trace);
    for name in names {
        let failed = |source: io::Error| OpenError::Read { path: folder.path().join(name), source };
        // The owner of the folder may have changed its lists, and root packs it.
        if !is_plain_name(name) {
            return Err(failed(io::ErrorKind::InvalidFilename.into()).into());
        }
        // No reader would open a larger one.
        let bytes = folder.read(name, SEGMENT_BYTES_MAX).map_err(failed)?;
        entry(name, &bytes, out).map_err(StoreError::write(folder.path()))?;
    }
    end(out).map_err(StoreError::write(folder.path()))
}

/// Writes a profile that was never in a folder as one file. All its values are in one window of time, which ends
/// `elapsed` after the start.
///
/// # Errors
/// Those of `out`, and `Other` if rows cannot be encoded.
pub fn write(profile: &Profile, elapsed: Nanos, out: &mut dyn Write) -> io::Result<()> {
    let now = profile.meta.started_monotonic + elapsed;
    let (manifest, files) = write::in_memory(profile, Time::from_nanos(now.as_nanos()))
        .map_err(|error| io::Error::other(error.to_string()))?;
    entry(MANIFEST, &manifest, out)?;
    for (name, bytes) in &files {
        entry(name, bytes, out)?;
    }
    end(out)?;
    out.flush()
}

fn entry(name: &str, bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut block = [0u8; BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    if name.len() > 99 {
        return Err(io::Error::new(io::ErrorKind::InvalidFilename, "a file of a profile has a long name"));
    }
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", bytes.len()));
    put(136, "00000000000\0");
    // The checksum is computed with spaces in its place.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.write_all(&block)?;
    out.write_all(bytes)?;
    out.write_all(&[0; BLOCK][..padding(bytes.len() as u64) as usize])
}

fn end(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}
