//! Store: files of debuginfod servers, kept between captures.
//!
//! Owns: one private, bounded folder, files by build-id, and the checks a file must pass to be kept and used.
//! Because: a downloaded file belongs to the requested build only if its own build-id says so. Does not: query
//! servers.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use deepctx_address_space::NoSymbol;
use deepctx_address_space::elf::{BuildId, ElfFacts};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};

/// Most bytes kept: some ten large libraries.
pub(super) const BYTES_MAX: u64 = 2 << 30;
/// Most files examined when making room.
const FILES_MAX: usize = 1 << 16;
/// Suffix of a file.
const SUFFIX: &str = ".debug";
/// Prefix of a file that is being written.
const TEMPORARY: &str = ".writing-";
/// Age after which such a file is a leftover of a killed process.
const TEMPORARY_MAX_AGE: Duration = Duration::from_secs(3600);
/// Resolution of the time of last use.
const USE_RESOLUTION: Duration = Duration::from_secs(600);

/// The folder.
#[derive(Debug)]
pub(super) struct Store {
    folder: OwnedFd,
    bytes_max: u64,
}

/// A file that is being written; deleted unless it is kept.
#[derive(Debug)]
pub(super) struct Temporary<'s> {
    pub(super) file: File,
    name: String,
    store: &'s Store,
}

impl Store {
    /// Opens the folder, creating it if needed.
    ///
    /// # Errors
    /// The error of the system call, or another user may write to the folder.
    pub(super) fn open(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = File::from(rustix::fs::open(folder, flags, Mode::empty())?);
        let facts = opened.metadata()?;
        if facts.uid() != rustix::process::geteuid().as_raw() || facts.mode() & 0o077 != 0 {
            return Err(io::Error::other("the folder must be private: mode 700, and yours"));
        }
        Ok(Self { folder: opened.into(), bytes_max })
    }

    /// The file of a build.
    pub(super) fn find(&self, id: &BuildId) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, file_name(id), flags, Mode::empty()).ok()?);
        if let Err(reason) = check(&file, id) {
            tracing::warn!(build = %id, reason = reason.key(), "a kept file of a debuginfod server is removed");
            let _ = unlinkat(&self.folder, file_name(id), AtFlags::empty());
            return None;
        }
        let is_old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > USE_RESOLUTION);
        if file.metadata().and_then(|facts| facts.modified()).is_ok_and(is_old) {
            // If this fails, the file is evicted earlier.
            let _ = file.set_modified(SystemTime::now());
        }
        Some(file)
    }

    /// A new, empty file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn begin(&self) -> io::Result<Temporary<'_>> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let name = format!("{TEMPORARY}{}-{number}-{now:x}", std::process::id());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, &name, flags, Mode::RUSR | Mode::WUSR)?.into();
        Ok(Temporary { file, name, store: self })
    }

    /// Removes the least recently used files until the bound holds, and leftovers of killed processes.
    fn make_room(&self) -> io::Result<()> {
        let (mut files, mut total) = (Vec::new(), 0);
        for entry in Dir::read_from(&self.folder)?.take(FILES_MAX) {
            let name = entry?.file_name().to_owned();
            let Ok(facts) = statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(facts.st_mtime.max(0).unsigned_abs());
            if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
                continue;
            }
            if name.to_bytes().starts_with(TEMPORARY.as_bytes()) {
                if modified.elapsed().is_ok_and(|age| age > TEMPORARY_MAX_AGE) {
                    let _ = unlinkat(&self.folder, &name, AtFlags::empty());
                }
            } else if name.to_bytes().ends_with(SUFFIX.as_bytes()) {
                let bytes = facts.st_size.max(0).unsigned_abs();
                total += bytes;
                files.push((modified, facts.st_mtime_nsec, bytes, name));
            }
        }
        files.sort_unstable();
        for (_, _, bytes, name) in files {
            if total <= self.bytes_max {
                break;
            }
            let _ = unlinkat(&self.folder, &name, AtFlags::empty());
            total -= bytes;
        }
        Ok(())
    }
}

impl Temporary<'_> {
    /// Keeps the file as that of a build, after checking it.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn keep(self, id: &BuildId) -> Result<(), NoSymbol> {
        check(&self.file, id)?;
        let folder = &self.store.folder;
        renameat(folder, &self.name, folder, file_name(id)).map_err(|_| NoSymbol::DebuginfodFailed)?;
        if let Err(error) = self.store.make_room() {
            tracing::warn!(%error, "no room is made among the files of debuginfod servers");
        }
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // A kept file has another name by now.
        let _ = unlinkat(&self.store.folder, &self.name, AtFlags::empty());
    }
}

fn file_name(id: &BuildId) -> String {
    format!("{id}{SUFFIX}")
}

/// Whether a file has symbols or debug information, and this build-id.
fn check(file: &File, id: &BuildId) -> Result<(), NoSymbol> {
    let facts = ElfFacts::read(file).map_err(|_| NoSymbol::DebuginfodUnusable)?;
    if facts.build_id != Some(*id) {
        return Err(NoSymbol::DebuginfodOtherBuild);
    }
    let sections = &facts.sections;
    let is_usable = (sections.symtab || sections.debug_info > 0) && !sections.inflated;
    if is_usable { Ok(()) } else { Err(NoSymbol::DebuginfodUnusable) }
}
