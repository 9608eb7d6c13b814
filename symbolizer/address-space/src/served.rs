//! Files served by a user's program (FUSE), and how to open files without waiting for such a program.
//!
//! Owns: which file systems are served by a user, and opening a file only after checking that. Because: opening,
//! traversing or reading such a file waits for that program, which may never answer, and no signal interrupts the
//! wait. Does not: decide what to open, or look at contents.
//!
//! The kernel lists every FUSE connection in `fusectl`, with the owner's id as this process sees it; `fusectl` is a
//! single-instance file system, which is mounted here privately. Mount lists would not do: a mount in another
//! namespace reports its owner as root, and one that was unmounted while in use is in no list.
//!
//! Network file systems (NFS, Ceph, Lustre, …) and root's FUSE servers are not refused: only root can mount those,
//! and cluster jobs often map files from them.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, readlinkat, statat, statx,
};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::device_number::DeviceNumber;
use crate::elf;
use crate::reason::NoSymbol;

/// Where a path may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathScope {
    /// Within a root folder: links cannot lead out of it.
    Root,
    /// Below a folder: links out of it are refused.
    Beneath,
}

/// Most symbolic links followed, as the kernel does.
const LINKS_MAX: usize = 40;
/// Most names resolved for a path, with those in links; each may take a descriptor. A user's links can lead through
/// 80 000 folders.
const NAMES_MAX: usize = 256;
/// Finds a file without any effect on it.
const FIND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The folder of all FUSE connections; `None` if there can be none, or they cannot be listed.
fn connections() -> Option<&'static OwnedFd> {
    static CONNECTIONS: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let mount = || {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    };
    let usual = || openat(CWD, "/sys/fs/fuse/connections", FIND | OFlags::DIRECTORY, Mode::empty());
    CONNECTIONS.get_or_init(|| mount().or_else(|_: Errno| usual()).ok()).as_ref()
}

/// Whether any FUSE server of a user exists.
pub(crate) fn any() -> bool {
    let Some(connections) = connections() else { return false };
    let list = openat(connections, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Ok(entries) = list.and_then(Dir::new) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        // Connections are named by number.
        name.to_bytes().first().is_some_and(u8::is_ascii_digit) && is_of_user(name.to_bytes())
    })
}

/// Whether a user's FUSE server serves the file system with this device number.
pub(crate) fn is_served_by_user(device: DeviceNumber) -> bool {
    // File systems without a device have major number 0.
    device.major == 0 && is_of_user(device.minor.to_string().as_bytes())
}

fn is_of_user(connection: &[u8]) -> bool {
    let owner = |folder| statat(folder, OsStr::from_bytes(connection), AtFlags::SYMLINK_NOFOLLOW);
    connections().is_some_and(|folder| owner(folder).is_ok_and(|found| found.st_uid != 0))
}

/// Opens the file that a link of `/proc` leads to, if it is a regular one that no user's FUSE server serves.
///
/// # Errors
/// [`NoSymbol::NotRegularFile`], [`NoSymbol::UserFile`], or a reason of the file system.
pub(crate) fn open_link(link: &Path) -> Result<File, NoSymbol> {
    let found = openat(CWD, link, FIND, Mode::empty()).map_err(reason)?;
    open_found(&found)
}

/// Opens a path below the root folder of a process. Links are resolved within that folder.
///
/// # Errors
/// As of [`open_link`].
pub(crate) fn open_below_root(pid: u32, path: &Path) -> Result<File, NoSymbol> {
    open_found(&walk(begin(pid, "root")?, path, PathScope::Root)?)
}

/// Metadata of the file that a link of `/proc` leads to.
///
/// # Errors
/// [`NoSymbol::UserFile`], or a reason of the file system.
pub(crate) fn metadata_of_link(link: &Path) -> Result<Metadata, NoSymbol> {
    let found = openat(CWD, link, FIND, Mode::empty()).map_err(reason)?;
    check(&found)?;
    File::from(found).metadata().map_err(|error| NoSymbol::from_io(&error))
}

/// Opens a folder of a process; the path begins at the target of `link`, below `/proc/PID`.
///
/// # Errors
/// [`NoSymbol::UserFile`], or a reason of the file system.
pub(crate) fn open_folder(pid: u32, link: &str, path: &Path, scope: PathScope) -> Result<OwnedFd, NoSymbol> {
    list_found(&walk(begin(pid, link)?, path, scope)?)
}

/// Opens a subfolder of an open folder. Links are not followed.
///
/// # Errors
/// As of [`open_folder`].
pub(crate) fn open_subfolder(folder: &OwnedFd, name: &str) -> Result<OwnedFd, NoSymbol> {
    list_found(&find_entry(folder, name)?)
}

/// Opens a regular file in an open folder. Links are not followed.
///
/// # Errors
/// As of [`open_link`].
pub(crate) fn open_entry(folder: &OwnedFd, name: &str) -> Result<File, NoSymbol> {
    open_found(&find_entry(folder, name)?)
}

/// Finds an entry of an open folder.
///
/// # Errors
/// [`NoSymbol::UserFile`], or a reason of the file system.
pub(crate) fn find_entry(folder: &OwnedFd, name: &str) -> Result<OwnedFd, NoSymbol> {
    if name.contains('/') || matches!(name, "" | "." | "..") {
        return Err(NoSymbol::ModuleMissing);
    }
    let found = openat(folder, name, FIND | OFlags::NOFOLLOW, Mode::empty()).map_err(reason)?;
    check(&found)?;
    Ok(found)
}

/// The folder of a process that a link below `/proc/PID` leads to.
fn begin(pid: u32, link: &str) -> Result<OwnedFd, NoSymbol> {
    openat(CWD, format!("/proc/{pid}/{link}"), FIND | OFlags::DIRECTORY, Mode::empty()).map_err(reason)
}

/// Resolves a path one folder at a time, so that each is checked before a server could be asked. Also when there is no
/// server: one may be mounted while the kernel resolves a long path.
fn walk(start: OwnedFd, path: &Path, scope: PathScope) -> Result<OwnedFd, NoSymbol> {
    check(&start)?;
    let leads_out = |path: &Path| scope == PathScope::Beneath && path.is_absolute();
    if leads_out(path) {
        return Err(NoSymbol::ModuleMissing);
    }
    // The folders from the start to the current one.
    let mut at = vec![start];
    let mut left: VecDeque<OsString> = names(path);
    let (mut links, mut resolved) = (0, 0);
    while let Some(name) = left.pop_front() {
        resolved += 1;
        if resolved > NAMES_MAX {
            return Err(NoSymbol::ModuleUnreadable);
        }
        if name == ".." {
            if at.len() == 1 && scope == PathScope::Beneath {
                return Err(NoSymbol::ModuleMissing);
            }
            at.truncate((at.len() - 1).max(1));
            continue;
        }
        let folder = at.last().ok_or(NoSymbol::ModuleMissing)?;
        let found = openat(folder, &name, FIND | OFlags::NOFOLLOW, Mode::empty()).map_err(reason)?;
        if check(&found)? != FileType::Symlink {
            at.push(found);
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(NoSymbol::ModuleUnreadable);
        }
        if is_planted(folder, &found)? {
            return Err(NoSymbol::PermissionDenied);
        }
        let target = readlinkat(&found, "", Vec::new()).map_err(reason)?;
        let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
        if leads_out(&target) {
            return Err(NoSymbol::ModuleMissing);
        }
        if target.is_absolute() {
            at.truncate(1);
        }
        for name in names(&target).into_iter().rev() {
            left.push_front(name);
        }
    }
    at.pop().ok_or(NoSymbol::ModuleMissing)
}

/// Whether somebody may have put a link where others put files (`/tmp`). As with `fs.protected_symlinks`, which does
/// not see that links are followed here: only the owner of such a folder, and this process's user, may have links in
/// it.
fn is_planted(folder: &OwnedFd, link: &OwnedFd) -> Result<bool, NoSymbol> {
    /// Sticky, and writable by everybody.
    const SHARED: u16 = 0o1002;
    let (folder, link) = (facts(folder)?, facts(link)?);
    let is_trusted = [folder.stx_uid, rustix::process::geteuid().as_raw()].contains(&link.stx_uid);
    Ok(folder.stx_mode & SHARED == SHARED && !is_trusted)
}

/// The names in a path; neither the root nor the current folder is one.
fn names(path: &Path) -> VecDeque<OsString> {
    let names = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

/// The type of a file, if no user's FUSE server serves it. Asks no server.
fn check(found: impl AsFd) -> Result<FileType, NoSymbol> {
    let stat = facts(found)?;
    if is_served_by_user(DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor }) {
        return Err(NoSymbol::UserFile);
    }
    Ok(FileType::from_raw_mode(stat.stx_mode.into()))
}

/// Metadata of a file that was found. Asks no server.
fn facts(found: impl AsFd) -> Result<Statx, NoSymbol> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(found, "", flags, StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::UID).map_err(reason)
}

/// Opens a file that was found: exactly the checked one, whatever its name means by now.
fn open_found(found: &OwnedFd) -> Result<File, NoSymbol> {
    if check(found)? != FileType::RegularFile {
        return Err(NoSymbol::NotRegularFile);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    elf::check_regular(File::from(openat(CWD, link, flags, Mode::empty()).map_err(reason)?))
}

/// Opens a folder that was found, to be listed.
fn list_found(found: &OwnedFd) -> Result<OwnedFd, NoSymbol> {
    check(found)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(found, ".", flags, Mode::empty()).map_err(reason)
}

fn reason(error: Errno) -> NoSymbol {
    NoSymbol::from_io(&error.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::{ResolveFlags, openat2};

    use super::*;

    /// As the kernel resolves a path.
    fn found_at_once(start: &OwnedFd, path: &str, scope: PathScope) -> Result<OwnedFd, NoSymbol> {
        let flags = match scope {
            PathScope::Root => ResolveFlags::IN_ROOT,
            PathScope::Beneath => ResolveFlags::BENEATH,
        };
        openat2(start, path, FIND, Mode::empty(), flags).map_err(reason)
    }

    /// The content of the file at a path, resolved one folder at a time and at once, with the same result.
    fn walked(start: &Path, path: &str, scope: PathScope) -> Result<String, NoSymbol> {
        let start = || openat(CWD, start, FIND | OFlags::DIRECTORY, Mode::empty()).map_err(reason);
        let read = |found: OwnedFd| {
            let mut text = String::new();
            open_found(&found)?.read_to_string(&mut text).unwrap();
            Ok(text)
        };
        let by_folders = walk(start()?, Path::new(path), scope).and_then(read);
        let at_once = found_at_once(&start()?, path, scope).and_then(read);
        assert_eq!(by_folders.is_ok(), at_once.is_ok(), "{path} {scope:?}");
        by_folders
    }

    #[test]
    fn a_walk_stays_within_its_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "within").unwrap();
        std::fs::write(folder.path().join("file"), "outside").unwrap();
        symlink("/a/b", root.join("absolute")).unwrap();
        symlink("b/../b", root.join("a/relative")).unwrap();
        symlink("../../../file", root.join("out")).unwrap();
        symlink("round", root.join("round")).unwrap();
        for path in ["/a/b/file", "a//./b/file", "/absolute/file", "/a/relative/file", "/../../a/b/file"] {
            assert_eq!(walked(&root, path, PathScope::Root).as_deref(), Ok("within"), "{path}");
        }
        let refused = |path| walked(&root, path, PathScope::Root).unwrap_err();
        assert_eq!(refused("/out"), NoSymbol::ModuleMissing);
        assert_eq!(refused("/round"), NoSymbol::ModuleUnreadable);
        assert_eq!(refused("/a/b"), NoSymbol::NotRegularFile);
        assert_eq!(refused("/a/none/file"), NoSymbol::ModuleMissing);
        for path in ["a/b/file", "a/../a/b/file", "a/relative/file"] {
            assert_eq!(walked(&root, path, PathScope::Beneath).as_deref(), Ok("within"), "{path}");
        }
        for path in ["/a/b/file", "../root/a/b/file", "absolute/file", "out", "a/../../root/a/b/file"] {
            assert!(walked(&root, path, PathScope::Beneath).is_err(), "{path}");
        }
    }

    #[test]
    fn a_link_that_others_planted_is_not_followed() {
        use std::fs::Permissions;
        use std::os::unix::fs::{PermissionsExt as _, lchown};

        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(file, "").unwrap();
        symlink("file", &link).unwrap();
        let found = || {
            let start = openat(CWD, folder.path(), FIND | OFlags::DIRECTORY, Mode::empty()).unwrap();
            walk(start, Path::new("link"), PathScope::Root).map(drop)
        };
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(found(), Ok(()), "the owner's own");
        if lchown(&link, Some(65_534), Some(65_534)).is_err() {
            println!("skipped: only root can give a link away");
            return;
        }
        assert_eq!(found(), Err(NoSymbol::PermissionDenied));
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found(), Ok(()), "nobody else can have put it there");
    }

    #[test]
    fn a_path_of_endless_folders_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/".repeat(NAMES_MAX));
        std::fs::create_dir_all(&deep).unwrap();
        let walked = |path: &str| {
            let start = openat(CWD, folder.path(), FIND | OFlags::DIRECTORY, Mode::empty()).unwrap();
            walk(start, Path::new(path), PathScope::Root).map(drop)
        };
        assert_eq!(walked(&"a/".repeat(NAMES_MAX)), Ok(()));
        // Through links, names are counted as often as they are passed.
        symlink(format!("/{}", "a/".repeat(NAMES_MAX)), folder.path().join("link")).unwrap();
        for path in ["link".to_owned(), "a/../".repeat(NAMES_MAX)] {
            assert_eq!(walked(&path), Err(NoSymbol::ModuleUnreadable), "{path}");
        }
    }

    #[test]
    fn a_disk_and_a_missing_server_are_no_users() {
        let is_served = |major, minor| is_served_by_user(DeviceNumber { major, minor });
        assert!(!is_served(8, 1) && !is_served(0, u32::MAX));
    }
}
