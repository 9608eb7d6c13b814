//! Server: the socket on which a capture accepts requests.
//!
//! Owns: the thread that reads them, which users may send them, and how much is read per connection. Because: the
//! capture loop must never wait for a client that connects and sends nothing. Does not: carry a request out.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_storage::folder::Folder;

use super::super::failure::Failure;
use super::socket::{NamedSocket, peer_user};
use super::{CaptureControl, ControlAnswer, ControlRequest};

/// Maximum bytes of a request.
const REQUEST_MAX: u64 = 256;
/// Maximum requests of one connection.
const REQUESTS_MAX: usize = 1000;
/// Maximum requests answered per call.
const AT_ONCE: usize = 16;
/// Timeout for the next bytes of a request, and for the client to read an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the capture has to answer: it checks for requests ten times a second.
const ANSWER_LONGEST: Duration = Duration::from_secs(10);
/// Shortest and longest pause after a connection that could not be accepted, as without a free descriptor.
const PAUSE: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// A request that waits for its answer.
#[derive(Debug)]
struct PendingRequest {
    /// The request.
    request: ControlRequest,
    answer: Sender<ControlAnswer>,
}

impl PendingRequest {
    /// Sends the answer. The client may have disconnected.
    fn answer(self, answer: ControlAnswer) {
        let _ = self.answer.send(answer);
    }
}

/// The socket of a capture.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    requests: Receiver<PendingRequest>,
    /// Dropped at the end, which ends the thread.
    socket: Option<NamedSocket>,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Creates the socket.
    ///
    /// # Errors
    /// The path exists, or no socket can be created there.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse | std::io::ErrorKind::AlreadyExists => {
                Failure::new(format_args!("{}: already exists", path.display()))
                    .hint("another capture may use it; remove it if none does, or name another path")
            }
            _ => Failure::io(path.display(), &error),
        };
        let (folder, name) = Folder::of_parent(path).map_err(failed)?;
        let socket = NamedSocket::create(folder, &name).map_err(failed)?;
        let listener = socket.listener().map_err(failed)?;
        let (ask, requests) = bounded(1);
        let thread = thread::Builder::new()
            .name("control".into())
            .spawn(move || serve(&listener, &ask))
            .map_err(failed)?;
        Ok(Self { requests, socket: Some(socket), thread: Some(thread) })
    }

    /// Answers pending requests; true when one of them ends the capture.
    pub(crate) fn answer_all(&self, capture: &mut CaptureControl<'_>) -> bool {
        let mut ends = false;
        // One connection is served at a time; its next request follows the answer.
        for pending in self.requests.try_iter().take(AT_ONCE) {
            ends |= pending.request == ControlRequest::Stop;
            let answer = capture.carry_out(pending.request);
            pending.answer(answer);
        }
        ends
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        drop(self.socket.take());
        // Pending requests get no answer.
        self.requests = crossbeam_channel::never();
        // The thread may still wait for a client, for a few seconds at most; the end of the capture does not wait for
        // it.
        drop(self.thread.take().filter(JoinHandle::is_finished).map(JoinHandle::join));
    }
}

fn serve(listener: &UnixListener, ask: &Sender<PendingRequest>) {
    let mut accept = || listener.accept().map(|(connection, _)| connection);
    while let Some(connection) = next_connection(&mut accept, &mut thread::sleep) {
        if let Err(error) = converse(&connection, ask) {
            tracing::debug!(%error, "a connection for control ended");
        }
    }
}

/// The next connection; `None` once the socket was shut down. Any other failure may be over soon.
fn next_connection(
    accept: &mut dyn FnMut() -> io::Result<UnixStream>,
    pause: &mut dyn FnMut(Duration),
) -> Option<UnixStream> {
    let [shortest, longest] = PAUSE;
    let mut next = shortest;
    loop {
        match accept() {
            Ok(connection) => return Some(connection),
            // Of the errors in accept(2), only that of a socket that does not listen anymore.
            Err(error) if error.kind() == ErrorKind::InvalidInput => return None,
            Err(error) if next == shortest => {
                tracing::warn!(%error, "requests for control wait: no connection can be accepted");
            }
            Err(_) => {}
        }
        pause(next);
        next = (next * 2).min(longest);
    }
}

/// Serves one connection, request by request.
fn converse(connection: &UnixStream, ask: &Sender<PendingRequest>) -> std::io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut answers = connection;
    if !may_ask(peer_user(connection)?, rustix::process::geteuid().as_raw()) {
        let answer = ControlAnswer::Refused(
            "only root and the user who started the capture may control it".to_owned(),
        );
        return writeln!(answers, "{answer}");
    }
    let mut lines = BufReader::new(connection);
    for _ in 0..REQUESTS_MAX {
        let mut line = Vec::new();
        if (&mut lines).take(REQUEST_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_whole = line.ends_with(b"\n") || (line.len() as u64) < REQUEST_MAX;
        if !is_whole {
            let sentence = format!("a request has at most {REQUEST_MAX} bytes");
            return writeln!(answers, "{}", ControlAnswer::Refused(sentence));
        }
        let answer = match ControlRequest::parse(&String::from_utf8_lossy(&line)) {
            Ok(request) => answered(request, ask),
            Err(sentence) => ControlAnswer::Refused(sentence),
        };
        writeln!(answers, "{answer}")?;
    }
    Ok(())
}

/// The socket's permissions already keep other users out, except on file systems with one owner for all files.
fn may_ask(user: u32, own: u32) -> bool {
    user == 0 || user == own
}

/// The capture's answer to a request.
fn answered(request: ControlRequest, ask: &Sender<PendingRequest>) -> ControlAnswer {
    let ended = || ControlAnswer::Refused("the capture is ending".to_owned());
    let (answer, answers) = bounded(1);
    if ask.send_timeout(PendingRequest { request, answer }, ANSWER_LONGEST).is_err() {
        return ended();
    }
    answers.recv_timeout(ANSWER_LONGEST).unwrap_or_else(|_| ended())
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use rustix::io::Errno;

    use super::*;

    /// What a connection receives after sending this.
    fn received(sent: &[u8]) -> String {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (ask, requests) = bounded::<PendingRequest>(1);
        let capture = thread::spawn(move || {
            for pending in requests {
                let done = format!("{:?}", pending.request);
                pending.answer(ControlAnswer::Done(done));
            }
        });
        // A client that sends too much is disconnected midway.
        let served = thread::spawn(move || drop(converse(&server, &ask)));
        let (mut sender, sent) = (client.try_clone().unwrap(), sent.to_vec());
        let sending = thread::spawn(move || {
            let _ = sender.write_all(&sent);
            let _ = sender.shutdown(Shutdown::Write);
        });
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said);
        drop(client);
        for thread in [capture, served, sending] {
            thread.join().unwrap();
        }
        String::from_utf8(said).unwrap()
    }

    #[test]
    fn each_line_is_answered_and_nonsense_by_a_sentence() {
        let check = |sent: &[u8], expect: &[&str]| {
            let said = received(sent);
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines.len(), expect.len(), "{said}");
            for (line, expect) in lines.iter().zip(expect) {
                assert!(line.contains(expect), "{line}");
            }
        };
        check(b"status\nfreq 7\n", &[r#"{"done":"Status"}"#, r#"{"done":"Frequency(7)"}"#]);
        check(b"stop", &["Stop"]);
        check(b"", &[]);
        check(b"\xff\xfe\0\nkeep\n", &["expected status", "Keep"]);
        check(&[b'a'; 100_000], &["at most 256 bytes"]);
        check(&b"keep\n".repeat(5000), &["Keep"; REQUESTS_MAX]);
    }

    #[test]
    fn only_root_and_the_same_user_may_ask() {
        let check = |user, own, expect| assert_eq!(may_ask(user, own), expect);
        check(0, 1000, true);
        check(1000, 1000, true);
        check(1001, 1000, false);
        check(1000, 0, false);
    }

    #[test]
    fn only_the_end_of_the_socket_ends_its_thread() {
        let (_client, server) = UnixStream::pair().unwrap();
        let mut server = Some(server);
        let mut results = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].into_iter();
        let mut pauses = Vec::new();
        let mut accept = || match results.next() {
            Some(error) => Err(error.into()),
            None => server.take().ok_or_else(|| io::Error::from(Errno::INVAL)),
        };
        let mut pause = |length: Duration| pauses.push(length.as_millis());
        assert!(next_connection(&mut accept, &mut pause).is_some());
        assert!(next_connection(&mut accept, &mut pause).is_none());
        assert_eq!(pauses, [10, 20, 40]);
    }

    #[test]
    fn the_end_waits_for_nobody_who_is_connected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let socket = ControlSocket::create(&path).unwrap();
        let error = ControlSocket::create(&path).unwrap_err().to_string();
        assert!(error.contains("already exists"), "{error}");
        let client = UnixStream::connect(&path).unwrap();
        (&client).write_all(b"status\n").unwrap();
        let pending = loop {
            if let Ok(pending) = socket.requests.try_recv() {
                break pending;
            }
            thread::yield_now();
        };
        assert_eq!(pending.request, ControlRequest::Status);
        drop(socket);
        assert!(!path.exists());
        drop(pending);
        let mut said = String::new();
        BufReader::new(&client).read_line(&mut said).unwrap();
        assert!(said.contains("the capture is ending"), "{said}");
    }
}
