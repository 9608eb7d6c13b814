//! Socket: a listening socket in a folder, for other programs of the same user.
//!
//! Owns: its name, and removing it. Because: a socket is a file in the folder like any other, and is created and
//! removed as those are: within the held folder, private from the first moment, and never replacing another file.
//! Does not: know the requests or the clients.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixListener;

use rustix::fs::{FileType, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

use deepctx_storage::folder::Folder;

/// Maximum pending connections.
const WAITING_MAX: i32 = 8;

/// A socket in a folder. Dropping it removes its name.
#[derive(Debug)]
pub(crate) struct NamedSocket {
    folder: Folder,
    name: OsString,
    /// Device and inode of the socket, so that no other file is removed.
    made: (u64, u64),
    listener: UnixListener,
}

impl NamedSocket {
    /// Creates a socket to which only this user and root can connect.
    ///
    /// # Errors
    /// The name exists, or the socket could not be created.
    pub(crate) fn create(folder: Folder, name: &OsStr) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Set before binding: the file inherits the permissions, so that others can never connect.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        // A socket path has at most 107 bytes; going through the descriptor, only the file name counts.
        let mut path = OsString::from(format!("/proc/self/fd/{}/", folder.as_fd().as_raw_fd()));
        path.push(name);
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        let found = folder.stat(name)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let made = (found.st_dev, found.st_ino);
        let named = Self { folder, name: name.to_owned(), made, listener: UnixListener::from(socket) };
        listen(&named.listener, WAITING_MAX)?;
        Ok(named)
    }

    /// Returns a listener. Its waiters get an error when the socket ends.
    ///
    /// # Errors
    /// A system call failed.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for NamedSocket {
    fn drop(&mut self) {
        // Wakes threads that wait for a connection.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let is_ours = |found: rustix::fs::Stat| (found.st_dev, found.st_ino) == self.made;
        if self.folder.stat(&self.name).is_ok_and(is_ours) {
            let _ = self.folder.remove(&self.name);
        }
    }
}

/// The user at the other end of a connection.
///
/// # Errors
/// A system call failed.
pub(crate) fn peer_user(connection: impl AsFd) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(connection)?.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_private_and_goes_with_its_name() {
        let kept = tempfile::tempdir().unwrap();
        let path = kept.path().join("control.sock");
        let make = || Folder::of_parent(&path).and_then(|(folder, name)| NamedSocket::create(folder, &name));
        let socket = make().unwrap();
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(make().is_err(), "one that is there stays");
        let listener = socket.listener().unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let user = rustix::process::getuid().as_raw();
        let (connection, _) = listener.accept().unwrap();
        assert_eq!((peer_user(&connection).unwrap(), peer_user(&client).unwrap()), (user, user));
        let waiting = std::thread::spawn(move || listener.accept().is_err());
        drop(socket);
        assert!(waiting.join().unwrap() && !path.exists());
    }

    #[test]
    fn what_took_its_place_is_left_alone() {
        let kept = tempfile::tempdir().unwrap();
        let path = kept.path().join("control.sock");
        let (folder, name) = Folder::of_parent(&path).unwrap();
        let socket = NamedSocket::create(folder, &name).unwrap();
        std::fs::rename(&path, kept.path().join("moved")).unwrap();
        std::fs::write(&path, "of somebody else").unwrap();
        drop(socket);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of somebody else");
    }
}
