//! Below: files as overlays show them.
//!
//! Owns: telling that two of them are made of one file. Because: the kernel puts probes on that one, whoever shows it. Does not:
//! find files.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;

/// A file as overlays show it: with the inode number and the times of the file that it is made of, on a device of its own.
/// The kernel puts probes on the latter, so one that two overlays show, or an overlay and the folder below it, must get its
/// probes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Below {
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
    /// It is an overlay that shows it.
    overlay: bool,
}

impl Below {
    pub(super) fn of(file: &File, metadata: &Metadata) -> Self {
        const OVERLAY: i64 = 0x794c_7630;
        Self {
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            overlay: rustix::fs::fstatfs(file).is_ok_and(|system| system.f_type == OVERLAY),
        }
    }

    /// Whether one of these files is this one, by way of an overlay.
    pub(super) fn is_among(&self, known: &HashSet<Self>) -> bool {
        let shown = Self { overlay: true, ..*self };
        let below = Self { overlay: false, ..*self };
        known.contains(&shown) || self.overlay && known.contains(&below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_overlays_show_twice_gets_its_probes_once() {
        let file = Below { inode: 7, bytes: 9, modified: (1, 2), changed: (3, 4), overlay: false };
        let shown = Below { overlay: true, ..file };
        let known = |files: &[Below]| files.iter().copied().collect::<HashSet<_>>();
        // Below one overlay, and by another; in the folder below, and by an overlay; the other way round.
        assert!(shown.is_among(&known(&[shown])));
        assert!(shown.is_among(&known(&[file])));
        assert!(file.is_among(&known(&[shown])));
        // Files of two devices, without an overlay, have the same numbers by chance; or another time.
        assert!(!file.is_among(&known(&[file])));
        assert!(!shown.is_among(&known(&[Below { changed: (3, 5), ..file }])));
    }
}
