//! Container: a folder, or one file with all that a folder would hold.
//!
//! Owns: finding and reading the files of a profile, in either form. Because: readers need not know which form it is,
//! and both may be damaged. Does not: know what is in the files.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::error::{NotAProfile, OpenError};
use crate::folder::{self, Folder};

/// The file that lists all others.
pub(super) const MANIFEST: &str = "manifest.json";
/// Block size of an archive.
pub(super) const BLOCK: usize = 512;
/// Maximum number of files, more than any capture flushes.
const FILES_MAX: usize = 1 << 20;

/// Whether a listed file may have this name: it leads to no other folder. Who owns a profile can write any list.
pub(super) fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

/// Whether the file at `path` holds a packed profile.
pub fn is_packed(path: &Path) -> bool {
    packed(path).is_some()
}

/// The file at `path`, if it is a packed profile.
fn packed(path: &Path) -> Option<File> {
    folder::open_file(path).ok().filter(begins_packed)
}

/// Whether an open file is a packed profile.
fn begins_packed(file: &File) -> bool {
    let mut block = [0; BLOCK];
    let read = file.read_exact_at(&mut block, 0);
    read.is_ok() && Header::read(&block).is_some_and(|header| header.name == MANIFEST)
}

/// A profile found in a folder.
#[derive(Debug)]
pub struct FoundProfile(ProfileForm);

#[derive(Debug)]
enum ProfileForm {
    Folder(Folder),
    Packed,
}

impl FoundProfile {
    /// The profile `name` in `parent`; `None` if it is not a profile, or only a link to one.
    pub fn in_folder(parent: &Folder, name: &OsStr) -> Option<FoundProfile> {
        if let Ok(folder) = parent.folder(name) {
            return folder
                .file(MANIFEST.as_ref())
                .is_ok()
                .then_some(FoundProfile(ProfileForm::Folder(folder)));
        }
        parent.file(name).is_ok_and(|file| begins_packed(&file)).then_some(FoundProfile(ProfileForm::Packed))
    }

    /// Removes it: of a folder the found one, of one file only the name.
    ///
    /// # Errors
    /// A system call failed.
    pub fn remove(&self, parent: &Folder, name: &OsStr) -> io::Result<()> {
        match &self.0 {
            ProfileForm::Folder(folder) => parent.remove_folder(name, folder),
            ProfileForm::Packed => parent.remove(name),
        }
    }
}

/// Fields of a header block.
struct Header {
    name: String,
    size: u64,
}

impl Header {
    /// `None` unless it is the header of a plain file.
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

/// The place of a profile. It is opened once, so that everything is read from the same folder or file.
#[derive(Debug)]
pub(super) enum Container {
    /// A folder.
    Folder(Arc<Folder>),
    /// One file: offset and length of each of its files.
    File { path: PathBuf, file: File, files: FxHashMap<String, (u64, u64)> },
}

impl Container {
    /// Opens the profile at `path`.
    pub(super) fn at(path: &Path) -> Result<Self, OpenError> {
        let path = path.to_owned();
        if let Some(file) = packed(&path) {
            return match index(&file) {
                Ok(files) => Ok(Container::File { path, file, files }),
                Err(source) => Err(OpenError::Read { path, source }),
            };
        }
        Folder::open(&path).map(|folder| Container::Folder(Arc::new(folder))).map_err(|source| {
            match source.kind() {
                io::ErrorKind::NotFound => OpenError::NotFound { path },
                io::ErrorKind::NotADirectory => {
                    OpenError::NotAProfile { path, because: NotAProfile::NeitherFolderNorFile }
                }
                _ => OpenError::Read { path, source },
            }
        })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Container::Folder(folder) => folder.path(),
            Container::File { path, .. } => path,
        }
    }

    /// Reads a file of at most `most` bytes.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        match self {
            Container::Folder(folder) => folder.read(name, most),
            Container::File { file, files, .. } => {
                let &(start, size) = files.get(name).ok_or(io::ErrorKind::NotFound)?;
                if size > most {
                    return Err(io::Error::new(
                        io::ErrorKind::FileTooLarge,
                        format!("more than {most} bytes"),
                    ));
                }
                let mut bytes = Vec::new();
                Part { file, at: start }.take(size).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

/// Reads from an offset of a file that others read too.
struct Part<'f> {
    file: &'f File,
    at: u64,
}

impl io::Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Offsets of the files in an archive. A truncated one yields the files before: missing ones are reported as lost.
fn index(file: &File) -> io::Result<FxHashMap<String, (u64, u64)>> {
    let length = file.metadata()?.len();
    let mut files = FxHashMap::default();
    let mut at = 0u64;
    let mut block = [0; BLOCK];
    while at.saturating_add(BLOCK as u64) <= length && files.len() < FILES_MAX {
        file.read_exact_at(&mut block, at)?;
        let Some(header) = Header::read(&block) else { break };
        let start = at + BLOCK as u64;
        // A file that claims to extend beyond the end is truncated; its checksum shows that.
        files.entry(header.name).or_insert((start, header.size.min(length - start)));
        let next =
            header.size.checked_next_multiple_of(BLOCK as u64).and_then(|size| start.checked_add(size));
        let Some(next) = next else { break };
        at = next;
    }
    Ok(files)
}

/// Padding after a file of this size, up to the next block.
pub(super) fn padding(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64) - size
}
