//! A folder, as a process sees it.
//!
//! Owns: opening a folder below the root or working folder of the process, listing and reading it within bounds.
//! Because: the program's settings say where dumps and caches are, often inside a container, and other users may
//! write to these folders. Only files owned by the process's own user or by root are accepted, and a file served by a
//! user's program (FUSE) is never waited for. Does not: follow links within the folder, or interpret the files.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::Dir;

use crate::served::{self, PathScope};
use crate::status::ProcessStatus;

/// Most entries read of a folder.
const ENTRIES_MAX: usize = 1 << 16;

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    folder: OwnedFd,
    user: u32,
}

impl Folder {
    /// Opens a folder of a process; `None` if there is none, or if a FUSE server of a user serves it or part of its
    /// path. A relative path is resolved from the working folder of the process and stays below it.
    pub fn open(pid: u32, path: &Path) -> Option<Self> {
        let folder = if path.is_absolute() {
            served::open_folder(pid, "root", path, PathScope::Root)
        } else {
            served::open_folder(pid, "cwd", path, PathScope::Beneath)
        };
        Some(Self { folder: folder.ok()?, user: ProcessStatus::read(pid)?.user })
    }

    /// Opens a subfolder.
    pub fn subfolder(&self, name: &str) -> Option<Self> {
        Some(Self { folder: served::open_subfolder(&self.folder, name).ok()?, user: self.user })
    }

    /// The names of its entries that are valid UTF-8.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = Dir::read_from(&self.folder) else { return Vec::new() };
        let names = entries.take(ENTRIES_MAX).filter_map(Result::ok);
        names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned)).collect()
    }

    /// Reads a file owned by the user of the process or by root, if it is no larger than `limit` bytes.
    pub fn read(&self, name: &str, limit: u64) -> Option<Vec<u8>> {
        let file = served::open_entry(&self.folder, name).ok()?;
        let facts = file.metadata().ok()?;
        if facts.len() > limit || (facts.uid() != self.user && facts.uid() != 0) {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// When an entry was last modified, in seconds since 1970; `None` if there is none. Of a link: the link's time.
    pub fn modified(&self, name: &str) -> Option<i64> {
        let found = served::find_entry(&self.folder, name).ok()?;
        File::from(found).metadata().ok().map(|facts| facts.mtime())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_within_the_folder_are_read() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("dump");
        std::fs::create_dir_all(folder.join("aa")).unwrap();
        std::fs::write(folder.join("a.txt"), "a").unwrap();
        std::fs::write(folder.join("aa/b.txt"), "bb").unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
        let opened = Folder::open(std::process::id(), &folder).unwrap();
        let mut names = opened.names();
        names.sort();
        assert_eq!(names, [".", "..", "a.txt", "aa", "link"]);
        assert_eq!(opened.read("a.txt", 10).as_deref(), Some(b"a".as_slice()));
        assert_eq!(opened.subfolder("aa").unwrap().read("b.txt", 2).as_deref(), Some(b"bb".as_slice()));
        let refused = [
            ("a.txt", 0),
            ("link", 10),
            ("../secret", 10),
            ("aa", 10),
            ("aa/b.txt", 10),
            ("none", 10),
            ("", 10),
        ];
        for (name, limit) in refused {
            assert_eq!(opened.read(name, limit), None, "{name}");
        }
        for name in ["..", ".", "", "a.txt", "link"] {
            assert!(opened.subfolder(name).is_none(), "{name}");
        }
        assert!(opened.modified("a.txt").is_some() && opened.modified("none").is_none());
    }

    #[test]
    fn a_relative_folder_stays_below_the_working_folder() {
        let pid = std::process::id();
        assert!(Folder::open(pid, Path::new("src")).is_some());
        assert!(Folder::open(pid, Path::new("../address-space")).is_none());
        assert!(Folder::open(pid, Path::new("/nowhere/at/all")).is_none());
    }
}
