//! One file for a whole profile: the folder's files in a plain `tar` archive.
//!
//! Owns: writing and reading of such a file. Because: one file is easier to copy, attach and keep; and `tar xf` turns it
//! back into the folder, for every tool that reads Parquet. Does not: compress, since segments are compressed already, or
//! hold anything but what the manifest lists. The manifest comes first.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use super::manifest::{self, Manifest};
use super::{StoreError, write::Writer};
use crate::profile::Profile;
use crate::units::{Nanos, Time};

const BLOCK: usize = 512;
/// More files than any capture flushes.
const FILES_MAX: usize = 1 << 20;

/// Whether `path` is a file that holds a packed profile.
pub fn is_packed(path: &Path) -> bool {
    let regular = fs::metadata(path).is_ok_and(|found| found.is_file());
    let mut block = [0; BLOCK];
    let read = || File::open(path)?.read_exact(&mut block);
    regular && { read }().is_ok() && Header::read(&block).is_some_and(|header| header.name == manifest::FILE)
}

/// Writes the profile in the folder `path` as one file.
///
/// # Errors
/// The folder is no profile, or one of its files cannot be read or written.
pub fn pack(path: &Path, out: &mut dyn Write) -> Result<(), StoreError> {
    let found = Manifest::read(&Place::Folder(path))?;
    let names = [manifest::FILE].into_iter().chain(found.segments.iter().map(|s| s.file.as_str()));
    for name in names {
        let file = path.join(name);
        let bytes = manifest::read_bounded(&file, u64::MAX)
            .map_err(|source| StoreError::Read { path: file.clone(), source })?;
        entry(name, &bytes, out).map_err(StoreError::write(path))?;
    }
    end(out).map_err(StoreError::write(path))
}

/// Writes a profile that was never in a folder as one file. All its values are of one window of time, which ends `elapsed`
/// after the start.
///
/// # Errors
/// Those of `out`, and `Other` when rows cannot be encoded.
pub fn write(profile: &Profile, elapsed: Nanos, out: &mut dyn Write) -> io::Result<()> {
    let now = profile.meta.started_monotonic + elapsed;
    let (manifest, files) = Writer::in_memory(profile, Time::from_nanos(now.as_nanos()))
        .map_err(|error| io::Error::other(error.to_string()))?;
    entry(manifest::FILE, &manifest, out)?;
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
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", bytes.len()));
    put(136, "00000000000\0");
    // The sum is taken with spaces in its place.
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

fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

/// What a header block says.
struct Header {
    name: String,
    size: u64,
}

impl Header {
    /// `None` for anything but the header of a plain file.
    fn read(block: &[u8; BLOCK]) -> Option<Header> {
        if &block[257..262] != b"ustar" || !matches!(block[156], b'0' | 0) {
            return None;
        }
        let text = |from: usize, to: usize| {
            let field = block[from..to].split(|&byte| byte == 0).next().unwrap_or_default();
            std::str::from_utf8(field).ok()
        };
        let size = u64::from_str_radix(text(124, 136)?.trim(), 8).ok()?;
        Some(Header { name: text(0, 100)?.to_owned(), size })
    }
}

/// Where a profile is.
#[derive(Debug)]
pub(super) enum Place<'p> {
    /// A folder.
    Folder(&'p Path),
    /// One file: where each of its files begins, and how long it is.
    File { path: &'p Path, files: FxHashMap<String, (u64, u64)> },
}

impl<'p> Place<'p> {
    /// Looks what is at `path`.
    pub(super) fn at(path: &'p Path) -> Result<Self, StoreError> {
        if !is_packed(path) {
            return Ok(Place::Folder(path));
        }
        let files = index(path).map_err(|source| StoreError::Read { path: path.to_owned(), source })?;
        Ok(Place::File { path, files })
    }

    pub(super) fn path(&self) -> &'p Path {
        match self {
            Place::Folder(path) | Place::File { path, .. } => path,
        }
    }

    /// Reads a file of at most `most` bytes.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        match self {
            Place::Folder(folder) => manifest::read_bounded(&folder.join(name), most),
            Place::File { path, files } => {
                let &(start, size) = files.get(name).ok_or(io::ErrorKind::NotFound)?;
                if size > most {
                    return Err(io::Error::new(
                        io::ErrorKind::FileTooLarge,
                        format!("more than {most} bytes"),
                    ));
                }
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(start))?;
                let mut bytes = Vec::new();
                file.take(size).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

/// Places of the files in an archive. One that breaks off gives the files before: what is missing is told as lost.
fn index(path: &Path) -> io::Result<FxHashMap<String, (u64, u64)>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut files = FxHashMap::default();
    let mut at = 0u64;
    let mut block = [0; BLOCK];
    while at.saturating_add(BLOCK as u64) <= length && files.len() < FILES_MAX {
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut block)?;
        let Some(header) = Header::read(&block) else { break };
        let start = at + BLOCK as u64;
        // A file that claims to reach behind the end is as long as it is; its checksum tells.
        files.entry(header.name).or_insert((start, header.size.min(length - start)));
        let next =
            header.size.checked_next_multiple_of(BLOCK as u64).and_then(|size| start.checked_add(size));
        let Some(next) = next else { break };
        at = next;
    }
    Ok(files)
}
