//! Files: those that have their probes.
//!
//! Owns: deciding whether a file is one of them, by whatever path it is reached. Because: the kernel puts probes on a
//! file, not on a path, and one that gets them twice is counted twice. Does not: attach.

use std::collections::HashSet;
use std::collections::hash_map::{Entry, HashMap};
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use deepctx_uprobes::Library;

use crate::overlayfs::BackingFile;

/// The files that have their probes.
#[derive(Default)]
pub(super) struct ProbedFiles {
    /// By device and inode. They stay open, so that no other file gets their number.
    open: HashMap<(u64, u64), File>,
    /// The files that overlays show.
    backing: HashSet<BackingFile>,
}

impl ProbedFiles {
    /// Remembers a file, and gives a path that leads to it whatever becomes of its own; `None` when it has its probes
    /// already.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn add(&mut self, library: &Library) -> Result<Option<PathBuf>, String> {
        let file = library.open().map_err(|reason| reason.sentence().to_owned())?;
        let metadata = file.metadata().map_err(|error| error.to_string())?;
        let backing = BackingFile::of(&file, &metadata);
        if backing.is_among(&self.backing) {
            let path = library.mapping.path().display();
            tracing::debug!(%path, "its probes are there: an overlay shows the same file twice");
            return Ok(None);
        }
        let path = path_of(&file);
        match self.open.entry((metadata.dev(), metadata.ino())) {
            Entry::Occupied(_) => Ok(None),
            Entry::Vacant(entry) => {
                entry.insert(file);
                self.backing.insert(backing);
                Ok(Some(path))
            }
        }
    }

    /// The path of a file that was added.
    pub(super) fn path(&self, library: &Library) -> Option<PathBuf> {
        let metadata = library.open().ok()?.metadata().ok()?;
        self.open.get(&(metadata.dev(), metadata.ino())).map(path_of)
    }
}

/// A path that leads to an open file whatever becomes of its own.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
