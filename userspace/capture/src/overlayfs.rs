//! Overlayfs: files as overlays show them, and the backing file of each.
//!
//! Owns: deciding whether two files have the same backing file. Because: the kernel puts probes on the backing file,
//! through whichever overlay it is opened. Does not: find files.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;

/// Attributes of the backing file that a file on an overlay shows: inode number and times, on the overlay's own device.
/// The kernel puts probes on the backing file, so one that two overlays show, or an overlay and the folder below it,
/// must get its probes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// Whether another file has the same backing file, through an overlay.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        (self.overlay || other.overlay) && *self == Self { overlay: self.overlay, ..*other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_two_overlays_show_is_one_file() {
        let file = BackingFile { inode: 7, bytes: 9, modified: (1, 2), changed: (3, 4), overlay: false };
        let shown = BackingFile { overlay: true, ..file };
        // Through two overlays; in the folder below and through an overlay; the other way round.
        assert!(shown.is_shared_with(&shown));
        assert!(shown.is_shared_with(&file));
        assert!(file.is_shared_with(&shown));
        // Files of two devices, without an overlay, with the same numbers by chance; or with another time.
        assert!(!file.is_shared_with(&file));
        assert!(!shown.is_shared_with(&BackingFile { changed: (3, 5), ..file }));
    }
}
