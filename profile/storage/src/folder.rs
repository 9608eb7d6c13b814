//! Folder: a directory that is held, and the files in it.
//!
//! Owns: every way in which files of a profile, and outputs, are made, replaced, read and removed. Because: the
//! profiler runs as root, often in folders that others may rename and fill with links, so a path that was right a
//! moment ago cannot be trusted: a folder is opened once, and everything else uses its descriptor. Does not: know
//! what is in the files.
//!
//! Everything created here is private (0700, 0600) and belongs to the caller, also below `sudo`. A new file has a
//! random name, must not exist and is no link; it gets its real name by being renamed within the folder.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::owner::{self, Owner};

/// Flags to open a folder that must also be made durable.
const HELD: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Flags to open a file of any kind: without waiting for a pipe or following a link.
const FOREIGN: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// Flags to create a file.
const NEW: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Maximum depth of folders removed with a profile. It has none itself, but a user may have added some.
const DEPTH_MAX: usize = 8;
/// Maximum attempts at a random name.
const NAMES_MAX: usize = 16;

/// A directory held by a descriptor: it stays the same one even if moved.
#[derive(Debug)]
pub struct Folder {
    descriptor: OwnedFd,
    /// Its original path, for messages.
    path: PathBuf,
}

/// Whether a file may replace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverwritePolicy {
    /// An existing one stays, which is an error.
    Keep,
    /// An existing one is replaced. A link is replaced, not its target.
    Replace,
}

impl Folder {
    /// Opens an existing folder. The path is the user's: links in it are followed.
    ///
    /// # Errors
    /// It does not exist, is not a folder, or may not be searched.
    pub fn open(path: &Path) -> io::Result<Folder> {
        // Without reading permission, so that a folder whose file names are known can be used too.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Folder { descriptor, path: path.to_owned() })
    }

    /// Opens the parent folder of `path`, and returns the name in it.
    ///
    /// # Errors
    /// As [`Folder::open`], or the path has no name in a folder, such as `..`.
    pub fn of_parent(path: &Path) -> io::Result<(Folder, OsString)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidFilename)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok((Folder::open(parent.unwrap_or(Path::new(".")))?, name.to_owned()))
    }

    /// Creates a folder in this one.
    ///
    /// # Errors
    /// The name exists, it could not be created, or another one took its place meanwhile.
    pub fn make(&self, name: &OsStr) -> io::Result<Folder> {
        rustix::fs::mkdirat(&self.descriptor, name, Mode::RWXU)?;
        let descriptor = rustix::fs::openat(&self.descriptor, name, HELD, Mode::empty())?;
        let made = Folder { descriptor, path: self.path.join(name) };
        if !made.is_own()? || made.names()?.next().is_some() {
            return Err(io::Error::other("somebody else put another folder in its place"));
        }
        owner::give(&made.descriptor);
        Ok(made)
    }

    /// Whether it belongs to this process, or to the user it is created for (some disks have one owner for all files).
    fn is_own(&self) -> io::Result<bool> {
        let user = rustix::fs::fstat(&self.descriptor)?.st_uid;
        let callers = Owner::behind_sudo().map(|owner| owner.user.as_raw());
        Ok(user == rustix::process::geteuid().as_raw() || Some(user) == callers)
    }

    /// Opens a folder in this one, not through a link.
    ///
    /// # Errors
    /// There is none, or it is not a folder.
    pub fn folder(&self, name: &OsStr) -> io::Result<Folder> {
        let descriptor = rustix::fs::openat(&self.descriptor, name, HELD, Mode::empty())?;
        Ok(Folder { descriptor, path: self.path.join(name) })
    }

    /// Its path when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this name exists.
    pub fn has(&self, name: &OsStr) -> bool {
        self.stat(name).is_ok()
    }

    /// Whether `name` still refers to that folder.
    pub fn holds(&self, name: &OsStr, folder: &Folder) -> bool {
        let same = |a: Stat, b: Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        self.stat(name)
            .is_ok_and(|found| rustix::fs::fstat(&folder.descriptor).is_ok_and(|held| same(found, held)))
    }

    /// Metadata of an entry; a link is not followed.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn stat(&self, name: &OsStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens a regular file for reading, without blocking; anything else is refused.
    ///
    /// # Errors
    /// It does not exist, may not be read, or is not a regular file.
    pub fn file(&self, name: &OsStr) -> io::Result<File> {
        regular(rustix::fs::openat(&self.descriptor, name, FOREIGN, Mode::empty()))
    }

    /// Reads a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Folder::file`], or it is larger.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let file = self.file(name.as_ref())?;
        let mut length = file.metadata()?.len();
        let mut bytes = Vec::new();
        if length <= most {
            // It may grow meanwhile.
            file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
            length = bytes.len() as u64;
        }
        if length > most {
            return Err(io::Error::new(ErrorKind::FileTooLarge, format!("more than {most} bytes")));
        }
        Ok(bytes)
    }

    /// Creates a file, under a random name until it is [published](PartialFile::publish).
    ///
    /// # Errors
    /// It could not be created.
    pub fn begin(&self) -> io::Result<PartialFile<'_>> {
        for _ in 0..NAMES_MAX {
            let name = random_name();
            match rustix::fs::openat(&self.descriptor, &*name, NEW, Mode::RUSR | Mode::WUSR) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(descriptor) => {
                    owner::give(&descriptor);
                    return Ok(PartialFile { folder: self, name, file: Some(File::from(descriptor)) });
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Puts a file in place, replacing one of that name, so that it is complete or absent whenever the machine stops.
    /// Its name is durable only after [`Folder::sync`].
    ///
    /// # Errors
    /// It could not be written. Nothing remains of it then.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.begin()?;
        file.write_all(bytes)?;
        file.sync()?;
        file.publish(name.as_ref(), OverwritePolicy::Replace).map(drop)
    }

    /// Makes its names durable. Only for a folder that was created here.
    ///
    /// # Errors
    /// A system call failed.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }

    /// Removes a file or link.
    ///
    /// # Errors
    /// A system call failed.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Renames an entry to a random name, and returns it.
    ///
    /// # Errors
    /// A system call failed.
    pub fn set_aside(&self, name: &OsStr) -> io::Result<OsString> {
        let aside = random_name();
        self.rename(name, aside.as_ref(), OverwritePolicy::Keep)?;
        Ok(aside.into())
    }

    /// Renames within the folder.
    ///
    /// # Errors
    /// The system's; with [`OverwritePolicy::Keep`] also that the name exists.
    pub fn rename(&self, from: &OsStr, to: &OsStr, existing: OverwritePolicy) -> io::Result<()> {
        let folder = &self.descriptor;
        let outcome = match existing {
            OverwritePolicy::Replace => rustix::fs::renameat(folder, from, folder, to),
            OverwritePolicy::Keep => {
                match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
                    // Not every file system supports this.
                    Err(Errno::INVAL | Errno::NOSYS) if self.has(to) => Err(Errno::EXIST),
                    Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(folder, from, folder, to),
                    other => other,
                }
            }
        };
        Ok(outcome?)
    }

    /// Removes `folder`, which is expected under `name`: its content, wherever it has moved, and then the name if that
    /// is an empty folder.
    ///
    /// # Errors
    /// A system call failed.
    pub fn remove_folder(&self, name: &OsStr, folder: &Folder) -> io::Result<()> {
        self.remove_nested(name, folder, DEPTH_MAX)
    }

    fn remove_nested(&self, name: &OsStr, folder: &Folder, depth: usize) -> io::Result<()> {
        for file in folder.names()? {
            match rustix::fs::unlinkat(&folder.descriptor, &*file, AtFlags::empty()) {
                // Not one of our files, but it is removed too.
                Err(Errno::ISDIR | Errno::PERM) if depth > 0 => {
                    folder.remove_nested(&file, &folder.folder(&file)?, depth - 1)?;
                }
                other => other?,
            }
        }
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR)?)
    }

    fn names(&self) -> io::Result<std::vec::IntoIter<OsString>> {
        use std::os::unix::ffi::OsStrExt as _;
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names.into_iter())
    }
}

/// A file being written; removed unless published.
#[derive(Debug)]
pub struct PartialFile<'f> {
    folder: &'f Folder,
    name: String,
    /// `None` once it is published.
    file: Option<File>,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl PartialFile<'_> {
    /// Waits until everything written is on disk.
    ///
    /// # Errors
    /// A system call failed.
    pub fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::sync_all)
    }

    /// Gives the file its name, and returns it for further writing.
    ///
    /// # Errors
    /// It could not be renamed; with [`OverwritePolicy::Keep`] also that the name exists.
    pub fn publish(mut self, name: &OsStr, existing: OverwritePolicy) -> io::Result<File> {
        self.folder.rename(self.name.as_ref(), name, existing)?;
        self.file.take().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Write for PartialFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for PartialFile<'_> {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Best effort: a leftover temporary file is harmless but takes space, which may be exhausted.
            _ = self.folder.remove(self.name.as_ref());
        }
    }
}

/// Opens the regular file at a user's path, following links. Anything else is not touched.
///
/// # Errors
/// It does not exist, may not be read, or is not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    // Checked first: opening and closing a pipe would end its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    regular(rustix::fs::openat(CWD, path, FOREIGN.difference(OFlags::NOFOLLOW), Mode::empty()))
}

fn regular(opened: Result<OwnedFd, Errno>) -> io::Result<File> {
    let descriptor = match opened {
        Err(Errno::LOOP | Errno::NXIO) => return Err(not_regular()),
        other => other?,
    };
    match FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode) {
        FileType::RegularFile => Ok(File::from(descriptor)),
        _ => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "not a regular file")
}

/// An unpredictable name: the hash is keyed with the system's random bytes. Safety relies on `O_EXCL`;
/// this only prevents collisions.
fn random_name() -> String {
    let [a, b] = [RandomState::new(), RandomState::new()].map(|keys| keys.build_hasher().finish());
    format!(".{a:016x}{b:016x}.new")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn made() -> (tempfile::TempDir, Folder, Folder) {
        let outside = tempfile::tempdir().unwrap();
        let parent = Folder::open(outside.path()).unwrap();
        let folder = parent.make("held".as_ref()).unwrap();
        (outside, parent, folder)
    }

    fn names(path: &Path) -> Vec<String> {
        let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_held_folder_is_the_same_wherever_it_is() {
        let (outside, parent, folder) = made();
        let path = |name: &str| outside.path().join(name);
        folder.put("one", b"1").unwrap();
        fs::rename(path("held"), path("moved")).unwrap();
        fs::create_dir(path("trap")).unwrap();
        symlink(path("trap"), path("held")).unwrap();
        folder.put("two", b"2").unwrap();
        folder.put("one", b"3").unwrap();
        folder.sync().unwrap();
        assert_eq!(folder.read("one", 1).unwrap(), b"3");
        assert_eq!(names(&path("moved")), ["one", "two"]);
        assert_eq!(names(&path("trap")), [""; 0]);
        assert!(!parent.holds("held".as_ref(), &folder) && parent.holds("moved".as_ref(), &folder));
        // Its name is unknown, but it is emptied; the link is not a folder and stays.
        assert!(parent.remove_folder("held".as_ref(), &folder).is_err());
        assert_eq!(
            (names(&path("moved")), names(outside.path())),
            (vec![], vec!["held".into(), "moved".into(), "trap".to_owned()])
        );
    }

    #[test]
    fn no_link_is_followed_and_no_pipe_waited_for() {
        let (outside, _, folder) = made();
        let victim = outside.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let held = outside.path().join("held");
        symlink(&victim, held.join("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(held.join("pipe")).status().unwrap().success());
        for name in ["link", "pipe"] {
            assert_eq!(folder.read(name, 100).unwrap_err().to_string(), "not a regular file", "{name}");
            folder.put(name, b"new").unwrap();
            assert_eq!(folder.read(name, 100).unwrap(), b"new", "{name}");
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        symlink(outside.path(), held.join("above")).unwrap();
        assert!(folder.folder("above".as_ref()).is_err());
        assert!(folder.make("above".as_ref()).is_err());
        assert!(open_file(&held.join("link")).is_ok() && open_file(&held).is_err());
    }

    #[test]
    fn what_is_made_is_private_and_whole() {
        let (outside, _, folder) = made();
        let held = outside.path().join("held");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        folder.put("file", b"1").unwrap();
        assert_eq!((mode(&held), mode(&held.join("file"))), (0o700, 0o600));
        let mut partial = folder.begin().unwrap();
        partial.write_all(b"half").unwrap();
        assert_eq!(names(&held).len(), 2);
        drop(partial);
        assert_eq!(names(&held), ["file"]);
        let refused = folder.begin().unwrap().publish("file".as_ref(), OverwritePolicy::Keep).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
        assert_eq!((names(&held), folder.read("file", 9).unwrap()), (vec!["file".to_owned()], b"1".to_vec()));
        assert_eq!(folder.read("file", 0).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }
}
