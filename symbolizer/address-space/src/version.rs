//! The version of a file: who wrote its bytes, and since when they have been unchanged.
//!
//! Owns: [`FileVersion`], [`FileKey`]. Because: a build-id is whatever the author of the file wrote, so facts about
//! one file must not be used for another, not even in a later run. Does not: read the file; the kernel keeps all of
//! this.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::StatVfsMountFlags;

/// Permission bits of others than the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// One version of one file.
///
/// Users cannot set the time of the last change (`ctime`) or the inode of a file, and only root can set its owner,
/// except on a file system that a user provides: an image, or a FUSE server. Those are mounted without set-user-id
/// programs, for the same reason, and are recognized by that. An owner can write to a mapped file without its times
/// changing at once; then the version is wrong for that file, and for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// File system.
    pub device: u64,
    /// Number in it.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Time of the last write, since 1970; its owner can set it.
    pub modified_ns: i128,
    /// Time of the last change of content, owner or mode.
    pub changed_ns: i128,
    /// User that it belongs to.
    pub owner: u32,
    /// Users other than the owner can write it.
    pub writable_by_others: bool,
    /// Its file system may be a user's, so that user may have chosen all of this.
    pub foreign: bool,
}

/// The version of a file according to its metadata: enough to distinguish files that are mapped during a capture.
/// Anything kept longer, or shared between users, needs a [`FileVersion`].
///
/// It has the time of the last change, which users cannot set: a file of a user, made with the size and time that a
/// package will have, may leave its number to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileKey {
    /// The key of a file with these metadata.
    pub fn of(meta: &Metadata) -> Self {
        let modified = (meta.mtime(), meta.mtime_nsec());
        let changed = (meta.ctime(), meta.ctime_nsec());
        Self { device: meta.dev(), inode: meta.ino(), size: meta.len(), modified, changed }
    }

    /// The key without the time of the last change, which is also that of a new link or mode. It identifies a file only
    /// while a descriptor of that is open, so that its number cannot be another's. No file has it as its own key.
    #[must_use]
    pub const fn while_open(self) -> Self {
        Self { changed: (i64::MIN, -1), ..self }
    }
}

impl FileVersion {
    /// The version of an open file.
    ///
    /// # Errors
    /// The system's.
    pub fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.len(),
            modified_ns: ns(meta.mtime(), meta.mtime_nsec()),
            changed_ns: ns(meta.ctime(), meta.ctime_nsec()),
            owner: meta.uid(),
            writable_by_others: meta.mode() & WRITABLE_BY_OTHERS != 0,
            foreign: rustix::fs::fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::NOSUID),
        })
    }

    /// The only user who can have written its content; `None` if others could too.
    pub fn author(&self) -> Option<u32> {
        (!self.writable_by_others && !self.foreign).then_some(self.owner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_write_shows_though_the_owner_resets_its_time() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one").unwrap();
        let before = FileVersion::of(&file).unwrap();
        let key = FileKey::of(&file.metadata().unwrap());
        assert_eq!(FileVersion::of(&file).unwrap(), before);
        assert_eq!(FileKey::of(&file.metadata().unwrap()), key);
        // The kernel's clock of files has a resolution of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let modified = file.metadata().unwrap().modified().unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"two", 0).unwrap();
        file.set_modified(modified).unwrap();
        let after = FileVersion::of(&file).unwrap();
        assert_eq!((after.modified_ns, after.size, after.inode), (before.modified_ns, 3, before.inode));
        assert_ne!(after, before);
        assert_ne!(FileKey::of(&file.metadata().unwrap()), key);
    }

    #[test]
    fn a_new_link_leaves_the_key_while_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let key = || FileKey::of(&std::fs::metadata(&path).unwrap());
        let before = key();
        // The kernel's clock of files has a resolution of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::hard_link(&path, folder.path().join("link")).unwrap();
        assert_ne!(key(), before);
        assert_eq!(key().while_open(), before.while_open());
        assert_ne!(before.while_open(), before);
        std::fs::write(&path, "other").unwrap();
        assert_ne!(key().while_open(), before.while_open());
    }

    #[test]
    fn a_file_that_others_may_write_has_no_author() {
        let file = tempfile::tempfile().unwrap();
        for (mode, alone) in [(0o600, true), (0o755, true), (0o664, false), (0o602, false)] {
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            let version = FileVersion { foreign: false, ..FileVersion::of(&file).unwrap() };
            assert_eq!(version.author(), alone.then_some(version.owner), "{mode:o}");
            assert_eq!(FileVersion { foreign: true, ..version }.author(), None);
        }
    }
}
