//! Serve: the reader's side, which runs in a process of its own.
//!
//! Owns: dropping every privilege, and answering requests one by one. Because: a read of another process may never
//! return, and nothing can end a thread blocked like that, nor its process. Does not: open files, or interpret what
//! it reads: that is up to the walk.
//!
//! It does not request a parent-death signal: to the kernel, the "parent" is the thread that started it. It exits
//! when the socket closes.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::protocol::{ANSWER_BYTES, PIECE_BYTES, REQUEST_BYTES, ReplyHeader, Request};
use super::suspects::is_charged;
use super::walk::{self, ANSWER_MAX, Walk, WalkedMemory};
use crate::cpu_clock::{CpuWaitClock, thread_cpu_time};
use crate::worker::{self, Bounds};

/// Files: its own three, its clock, and one that it reads. Memory: its own file is mapped, and it needs one buffer.
const BOUNDS: Bounds = Bounds { files: 16, memory: 1 << 30, written: 0 };

/// Answers requests on standard input, which is a socket, until it is closed. Nothing else may run in this process.
/// Requests for walks are answered by `walk`.
///
/// # Errors
/// The privileges cannot be dropped, or the socket fails.
pub fn serve(walk: Walk) -> io::Result<()> {
    // The user `nobody` could not open it.
    let cpu_wait = CpuWaitClock::of_this_thread();
    worker::give_up_privileges(&BOUNDS)?;
    let socket = worker::begin(false)?;
    answer_all(&socket, &cpu_wait, walk)
}

/// Answers requests until the socket is closed.
fn answer_all(mut socket: &UnixStream, cpu_wait: &CpuWaitClock, walk: Walk) -> io::Result<()> {
    let mut buffer = vec![0; ANSWER_BYTES + PIECE_BYTES];
    while let Some((request, [file])) = worker::receive::<REQUEST_BYTES, 1>(socket)? {
        let request = Request::decode(request);
        if request.is_walk() {
            let mut question = vec![0; request.length];
            socket.read_exact(&mut question)?;
            socket.write_all(&answer_walk(&file, &question, cpu_wait, walk))?;
            continue;
        }
        let (began, queued) = (Instant::now(), cpu_wait.now());
        let read = read(&file, request, &mut buffer[ANSWER_BYTES..]);
        let microseconds = microseconds(began, queued, Duration::ZERO, cpu_wait);
        drop(file);
        let (error, length) = match read {
            Ok(length) => (0, length),
            // An error without a number does not come from the system.
            Err(error) => (error.raw_os_error().map_or(u32::MAX, i32::unsigned_abs), 0),
        };
        let answer = ReplyHeader { error, length: length as u32, microseconds };
        buffer[..ANSWER_BYTES].copy_from_slice(&answer.encode());
        socket.write_all(&buffer[..ANSWER_BYTES + length])?;
    }
    Ok(())
}

/// The time since `began` for which the process is responsible: not that in the queue for a CPU, nor `work`.
fn microseconds(began: Instant, queued: Duration, work: Duration, cpu_wait: &CpuWaitClock) -> u32 {
    let mut took = began.elapsed();
    if is_charged(took) {
        took = took.saturating_sub(cpu_wait.now().saturating_sub(queued)).saturating_sub(work);
    }
    u32::try_from(took.as_micros()).unwrap_or(u32::MAX)
}

/// The answer of a walk, with its header: whether it led to a mapping that it avoids, then what it found; nothing if
/// that is too long.
fn answer_walk(file: &File, question: &[u8], cpu_wait: &CpuWaitClock, walk: Walk) -> Vec<u8> {
    let (began, queued, worked) = (Instant::now(), cpu_wait.now(), thread_cpu_time());
    let (avoided, question) = walk::decode(question).unwrap_or_default();
    let memory = WalkedMemory::new(file, avoided);
    let mut found = walk(&memory, question);
    if found.len() >= ANSWER_MAX {
        found.clear();
    }
    let work = thread_cpu_time().saturating_sub(worked);
    let microseconds = microseconds(began, queued, work, cpu_wait);
    let header = ReplyHeader { error: 0, length: found.len() as u32 + 1, microseconds };
    [&header.encode()[..], &[u8::from(memory.led_to_avoided())][..], &found[..]].concat()
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

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::ops::Range;
    use std::os::fd::AsFd as _;

    use super::*;

    /// The eight bytes at the address in the question.
    fn follow(memory: &WalkedMemory<'_>, question: &[u8]) -> Vec<u8> {
        let mut bytes = [0; 8];
        let address = u64::from_le_bytes(question.try_into().unwrap());
        memory.read(address, &mut bytes).map_or(Vec::new(), |()| bytes.to_vec())
    }

    #[test]
    fn a_walk_is_answered_with_what_it_found() {
        let value = std::hint::black_box(0x1122_3344_5566_7788_u64);
        let address = std::ptr::from_ref(&value) as u64;
        let check = |avoided: &[Range<u64>], expect: &[u8]| {
            let question = walk::encode(avoided, &address.to_le_bytes());
            let message = [&Request::walk(question.len()).encode()[..], &question[..]].concat();
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            let memory = File::open("/proc/self/mem").unwrap();
            worker::send(&ours, &message, &[memory.as_fd()]).unwrap();
            ours.shutdown(Shutdown::Write).unwrap();
            answer_all(&theirs, &CpuWaitClock::of_this_thread(), follow).unwrap();
            drop(theirs);
            let (mut header, mut answer) = ([0; ANSWER_BYTES], Vec::new());
            ours.read_exact(&mut header).unwrap();
            ours.read_to_end(&mut answer).unwrap();
            assert_eq!(ReplyHeader::decode(header).length as usize, answer.len());
            assert_eq!(answer, expect, "{avoided:?}");
        };
        check(&[], &[&[0][..], &value.to_le_bytes()[..]].concat());
        check(&[0..8, address..address + 1], &[1]);
    }
}
