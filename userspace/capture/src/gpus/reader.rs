//! Reader: the process that loads the driver's library to read GPU figures.
//!
//! Owns: dropping every privilege before the library is loaded, and answering requests one at a time. Because: the
//! library is vendor code of whatever version is installed: it may hang, end its process, or not be what its name
//! claims. Does not: know what its figures are used for.
//!
//! System calls cannot be allowed one by one as for other workers: the library opens devices, maps them and issues
//! ioctls to its driver. So what no reader needs is refused: programs, sockets, other processes, the kernel.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use deepctx_symbolizer::worker::{self, Bounds};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::library::Library;
use super::protocol::{REQUEST, Refusal, Reply};

/// Files: the driver's devices, several per GPU. Memory: address space; the driver maps much and uses little.
/// Written: nothing known, but a library that writes a log must not be killed for it.
const BOUNDS: Bounds = Bounds { files: 1024, memory: 256 << 30, written: 16 << 20 };

/// Answers requests on standard input, which is a socket, until it is closed. Nothing else may run in this process.
///
/// # Errors
/// The privileges cannot be dropped, or the socket fails.
pub fn serve() -> io::Result<()> {
    worker::give_up_privileges(&BOUNDS)?;
    // A call of the library may never return to the point where the end of the socket is noticed. The querying thread
    // starts this process, and lives as long as anybody wants an answer.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let confined = worker::refuse_programs_and_sockets();
    worker::ready(&socket)?;
    let mut library = None;
    answer_all(&socket, || {
        // Not before the first request: the initialization time of the library has its own deadline.
        let library = library.get_or_insert_with(|| match confined {
            Ok(()) => Library::open(),
            // The library never runs unconfined.
            Err(_) => Err(Refusal::Unconfined),
        });
        Reply(library.as_ref().map(Library::read).map_err(|refusal| *refusal))
    })
}

/// Answers requests until the socket is closed.
fn answer_all(mut socket: &UnixStream, mut read: impl FnMut() -> Reply) -> io::Result<()> {
    let mut request = REQUEST;
    loop {
        match socket.read_exact(&mut request) {
            Ok(()) => socket.write_all(&read().encode())?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::HEAD_BYTES;
    use super::*;

    #[test]
    fn each_request_has_one_answer() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[REQUEST[0]; 3]).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        answer_all(&theirs, || Reply(Err(Refusal::NoLibrary))).unwrap();
        drop(theirs);
        let mut bytes = Vec::new();
        ours.read_to_end(&mut bytes).unwrap();
        let (answers, rest) = bytes.as_chunks::<HEAD_BYTES>();
        assert_eq!((answers.len(), rest.len()), (3, 0));
        for head in answers {
            assert_eq!(Reply::decode(head, &[]), Some(Reply(Err(Refusal::NoLibrary))));
        }
    }
}
