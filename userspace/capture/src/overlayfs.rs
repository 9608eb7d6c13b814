//! Overlayfs: files as overlays show them, and the file below that backs each.
//!
//! Owns: deciding whether two files have the same backing file. Because: the kernel puts probes on the backing file,
//! whichever overlay shows it. Does not: find files.

use std::collections::HashSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;

/// What a file on an overlay shows of its backing file: its inode number and times, on a device of the overlay's own.
/// The kernel puts probes on the backing file, so one that two overlays show, or an overlay and the folder below it,
/// must get its probes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BackingFile {
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
    /// An overlay shows it.
    overlay: bool,
}

impl BackingFile {
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

    /// Whether one of these files has the same backing file, through an overlay.
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
    fn a_file_that_two_overlays_show_is_one_file() {
        let file = BackingFile { inode: 7, bytes: 9, modified: (1, 2), changed: (3, 4), overlay: false };
        let shown = BackingFile { overlay: true, ..file };
        let known = |files: &[BackingFile]| files.iter().copied().collect::<HashSet<_>>();
        // Through two overlays; in the folder below and through an overlay; the other way round.
        assert!(shown.is_among(&known(&[shown])));
        assert!(shown.is_among(&known(&[file])));
        assert!(file.is_among(&known(&[shown])));
        // Files of two devices, without an overlay, have the same numbers by chance; or another time.
        assert!(!file.is_among(&known(&[file])));
        assert!(!shown.is_among(&known(&[BackingFile { changed: (3, 5), ..file }])));
    }
}
