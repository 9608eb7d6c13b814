//! Places: a folder, or one file with all that a folder would hold.
//!
//! Owns: finding and reading the files of a profile, however it lies there. Because: whoever reads need not know
//! which it is, and both may be damaged. Does not: know what is in the files.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::error::OpenError;

/// The file that says which others there are.
pub(super) const MANIFEST: &str = "manifest.json";
/// An archive consists of blocks of this many bytes.
pub(super) const BLOCK: usize = 512;
/// More files than any capture flushes.
const FILES_MAX: usize = 1 << 20;

/// Whether `path` is a file that holds a packed profile.
pub fn is_packed(path: &Path) -> bool {
    let regular = fs::metadata(path).is_ok_and(|found| found.is_file());
    let mut block = [0; BLOCK];
    let read = || File::open(path)?.read_exact(&mut block);
    regular && { read }().is_ok() && Header::read(&block).is_some_and(|header| header.name == MANIFEST)
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
    pub(super) fn at(path: &'p Path) -> Result<Self, OpenError> {
        if !is_packed(path) {
            return Ok(Place::Folder(path));
        }
        let files = index(path).map_err(|source| OpenError::Read { path: path.to_owned(), source })?;
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
            Place::Folder(folder) => read_bounded(&folder.join(name), most),
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

/// Places of the files in an archive. One that breaks off gives the files before: what is missing is reported as lost.
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
        // A file that claims to reach behind the end is as long as it is; its checksum shows that.
        files.entry(header.name).or_insert((start, header.size.min(length - start)));
        let next =
            header.size.checked_next_multiple_of(BLOCK as u64).and_then(|size| start.checked_add(size));
        let Some(next) = next else { break };
        at = next;
    }
    Ok(files)
}

/// Bytes of an archive behind a file of this size, up to the next block.
pub(super) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}

/// Reads a file of at most `most` bytes. Follows no device or pipe: those would never end.
pub(super) fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {most} bytes")));
    }
    Ok(bytes)
}
