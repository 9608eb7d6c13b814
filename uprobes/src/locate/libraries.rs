//! The files that a process has mapped as code.
//!
//! Owns: one entry for each file, and the path by which the kernel reaches exactly that file. Because: wheels contain
//! their own copies of libraries, containers have their own roots, and upgrades delete files that are still in use;
//! only the process's own mappings identify the file. Does not: read the files.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use deepctx_address_space::maps::{self, Backing, DeviceNumber, LineFilter, Mapping};
use deepctx_address_space::{Avma, FileOffset, NoSymbol};
use deepctx_events::Family;

/// Identity of a file: device and inode, and also the path, because inode numbers are reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Device of its file system.
    pub device: DeviceNumber,
    /// Inode number.
    pub inode: u64,
    /// Path according to its first user.
    pub path: PathBuf,
}

/// A mapped file with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// A process that has it mapped.
    pub pid: u32,
    /// One of its mappings there.
    pub mapping: Mapping,
}

impl Library {
    /// A file that need not be mapped by any process.
    ///
    /// # Errors
    /// There is no such file.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let metadata = fs::metadata(&path)?;
        let device = device_number(metadata.dev());
        let mapping = Mapping {
            // No address: the file is accessed by its path.
            begin: Avma(0),
            end: Avma(0),
            offset: FileOffset(0),
            device,
            inode: metadata.ino(),
            readable: true,
            writable: false,
            executable: true,
            backing: Backing::File,
            path: path.into_os_string().into_boxed_os_str(),
        };
        Ok(Self { pid: std::process::id(), mapping })
    }

    /// Identity of the file.
    pub fn key(&self) -> FileKey {
        let Mapping { device, inode, .. } = self.mapping;
        FileKey { device, inode, path: self.mapping.path().to_owned() }
    }

    /// Its family by name.
    pub fn family(&self) -> Option<Family> {
        let name = self.mapping.path().file_name()?.as_bytes();
        Family::ALL.into_iter().find(|family| family.is_named(name))
    }

    /// Whether it is our own collector, by name.
    pub fn is_collector(&self) -> bool {
        self.mapping.path().file_name().is_some_and(|name| super::collector::is_named(name.as_bytes()))
    }

    /// Opens exactly that file.
    ///
    /// # Errors
    /// A reason of the file system; [`NoSymbol::ModuleMissing`] if the process maps another file there by now.
    pub fn open(&self) -> Result<File, NoSymbol> {
        maps::open_as_listed(self.pid, &self.mapping)
    }

    /// A path for other processes to exactly that file, valid while this process lives: below its root, since
    /// containers differ; or through `map_files`, if the path leads elsewhere by now.
    pub fn attach_path(&self) -> PathBuf {
        let path = self.mapping.path();
        let below_root = Path::new("/proc").join(self.pid.to_string()).join("root");
        let below_root = below_root.join(path.strip_prefix("/").unwrap_or(path));
        // The device is not compared: overlay and copy-on-write file systems show another one in the maps. Opened in a
        // way that waits for no user's file server: the path is one of the process.
        let is_same = |pid| {
            let is_it = |file: File| file.metadata().is_ok_and(|m| m.ino() == self.mapping.inode);
            maps::open_below_root(pid, path).is_ok_and(is_it)
        };
        match self.mapping.backing {
            Backing::File if same_root(self.pid) && is_same(std::process::id()) => path.to_owned(),
            Backing::File if is_same(self.pid) => below_root,
            _ => maps::map_files_path(self.pid, &self.mapping),
        }
    }
}

/// Number of a device, as `makedev` packs it.
const fn device_number(device: u64) -> DeviceNumber {
    let major = (device >> 32 & 0xffff_f000) | (device >> 8 & 0xfff);
    let minor = (device >> 12 & 0xffff_ff00) | (device & 0xff);
    DeviceNumber { major: major as u32, minor: minor as u32 }
}

/// True if a process has the same root file system as this one.
fn same_root(pid: u32) -> bool {
    let root = |path: &str| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let namespace = |path: &str| fs::read_link(path).ok();
    let same_namespace = namespace("/proc/self/ns/mnt")
        .is_some_and(|own| namespace(&format!("/proc/{pid}/ns/mnt")) == Some(own));
    same_namespace
        && matches!((root("/proc/self/root/"), root(&format!("/proc/{pid}/root/"))), (Ok(a), Ok(b)) if a == b)
}

/// The files that a process has mapped as code, each once.
///
/// # Errors
/// [`NoSymbol::ProcessGone`] or [`NoSymbol::PermissionDenied`].
pub fn of_process(pid: u32) -> Result<Vec<Library>, NoSymbol> {
    let maps = maps::read(pid, LineFilter::Executable)?;
    let mut libraries: Vec<Library> = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    for mapping in maps.mappings {
        let is_file = matches!(mapping.backing, Backing::File | Backing::DeletedFile | Backing::Memfd);
        if is_file && seen.insert((mapping.device, mapping.inode)) {
            libraries.push(Library { pid, mapping });
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_executable_is_among_the_files_of_this_process() {
        let own = fs::canonicalize("/proc/self/exe").unwrap();
        let libraries = of_process(std::process::id()).unwrap();
        let found = libraries.iter().find(|library| library.mapping.path() == own).unwrap();
        assert_eq!(found.attach_path(), own);
        assert_eq!(found.family(), None);
        let inode = fs::metadata(&own).unwrap().ino();
        assert_eq!(found.open().unwrap().metadata().unwrap().ino(), inode);
        let keys: std::collections::HashSet<_> = libraries.iter().map(Library::key).collect();
        assert_eq!(keys.len(), libraries.len());
    }

    #[test]
    fn a_process_that_is_gone_is_a_reason() {
        assert_eq!(of_process(u32::MAX - 1), Err(NoSymbol::ProcessGone));
    }
}
