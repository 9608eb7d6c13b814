//! Descriptors: a request carries the files it is about.
//!
//! Owns: fixed-size messages, each with its open files. Because: a worker opens no files itself. Does not: interpret
//! the bytes.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Most files per message.
const FILES_MAX: usize = 4;

/// Sends a request with its files, at most four.
///
/// # Errors
/// The socket's.
pub fn send(socket: impl AsFd, request: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(socket, &[IoSlice::new(request)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == request.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a request of this many bytes with this many files; `None` at the end of the stream.
///
/// # Errors
/// The socket's, or the message has another form.
pub fn receive<const BYTES: usize, const FILES: usize>(
    socket: impl AsFd,
) -> io::Result<Option<([u8; BYTES], [File; FILES])>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut files = Vec::with_capacity(FILES);
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights.map(File::from));
        }
    }
    match <[File; FILES]>::try_from(files) {
        Ok(files) if received.bytes == BYTES => Ok(Some((bytes, files))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_request_arrives_with_its_files() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        send(&ours, b"one", &[file.as_fd()]).unwrap();
        let (bytes, [its]) = receive::<3, 1>(&theirs).unwrap().unwrap();
        assert!(&bytes == b"one" && its.metadata().is_ok());
        send(&ours, b"two", &[file.as_fd(), file.as_fd()]).unwrap();
        assert_eq!(&receive::<3, 2>(&theirs).unwrap().unwrap().0, b"two");
        // Fewer files or fewer bytes are not a valid request.
        send(&ours, b"few", &[file.as_fd()]).unwrap();
        assert!(receive::<3, 2>(&theirs).is_err());
        (&ours).write_all(b"ab").unwrap();
        assert!(receive::<3, 0>(&theirs).is_err());
        drop(ours);
        assert!(receive::<3, 1>(&theirs).unwrap().is_none());
    }
}
