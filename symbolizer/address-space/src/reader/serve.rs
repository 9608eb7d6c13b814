//! Serve: the reader's side, which runs in a process of its own.
//!
//! Owns: dropping every privilege, and answering requests one by one. Because: a read of another process may never
//! return, and nothing can end a thread blocked like that, nor its process. Does not: open files, or interpret what
//! it reads.
//!
//! It does not request a parent-death signal: to the kernel, the "parent" is the thread that started it. It exits
//! when the socket closes.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::protocol::{ANSWER_BYTES, PIECE_BYTES, REQUEST_BYTES, ReplyHeader, Request};
use super::suspects::is_charged;
use crate::cpu_clock::CpuWaitClock;
use crate::worker::{self, Bounds};

/// Files: its own three, its clock, and one that it reads. Memory: its own file is mapped, and it needs one buffer.
const BOUNDS: Bounds = Bounds { files: 16, memory: 1 << 30, written: 0 };

/// Answers requests on standard input, which is a socket, until it is closed. Nothing else may run in this process.
///
/// # Errors
/// The privileges cannot be dropped, or the socket fails.
pub fn serve() -> io::Result<()> {
    // The user `nobody` could not open it.
    let cpu_wait = CpuWaitClock::of_this_thread();
    worker::give_up_privileges(&BOUNDS)?;
    let socket = worker::begin(false)?;
    answer_all(&socket, &cpu_wait)
}

/// Answers requests until the socket is closed.
pub(super) fn answer_all(socket: &UnixStream, cpu_wait: &CpuWaitClock) -> io::Result<()> {
    let mut buffer = vec![0; ANSWER_BYTES + PIECE_BYTES];
    while let Some((request, [file])) = worker::receive::<REQUEST_BYTES, 1>(socket)? {
        let request = Request::decode(request);
        let (began, queued) = (Instant::now(), cpu_wait.now());
        let read = read(&file, request, &mut buffer[ANSWER_BYTES..]);
        let mut took = began.elapsed();
        if is_charged(took) {
            took = took.saturating_sub(cpu_wait.now().saturating_sub(queued));
        }
        let microseconds = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        drop(file);
        let (error, length) = match read {
            Ok(length) => (0, length),
            // An error without a number does not come from the system.
            Err(error) => (error.raw_os_error().map_or(u32::MAX, i32::unsigned_abs), 0),
        };
        let answer = ReplyHeader { error, length: length as u32, microseconds };
        buffer[..ANSWER_BYTES].copy_from_slice(&answer.encode());
        (&*socket).write_all(&buffer[..ANSWER_BYTES + length])?;
    }
    Ok(())
}

fn read(mut file: &File, request: Request, buffer: &mut [u8]) -> io::Result<usize> {
    let into = buffer.get_mut(..request.length).ok_or(io::ErrorKind::InvalidInput)?;
    let mut done = 0;
    loop {
        let read = match request.position {
            Some(position) => file.read_at(into, position),
            // Files of `/proc` come a page at a time.
            None => file.read(&mut into[done..]),
        };
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(read) if request.position.is_none() && read > 0 && done + read < into.len() => done += read,
            read => return Ok(done + read?),
        }
    }
}
