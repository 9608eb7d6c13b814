//! Cubins: lines of device code, read from the processes that loaded it.
//!
//! Owns: the thread that reads, and the queues to and from it. Because: reading and parsing an image takes
//! milliseconds, and records must not wait for it. Does not: find device code (a collector reports its location), or
//! use lines (the pipeline does).

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_capture::supervisor::{Heartbeat, Supervisor};
use deepctx_symbolizer::cubin::lines::Row;
use deepctx_symbolizer::cubin::reader::{CodeReader, ImageLines};
use deepctx_symbolizer::cubin::scoreboard::Wait;
use deepctx_symbolizer::guard::catch_faults;
use deepctx_symbolizer::memory::{ProcessMemory, ReadError, TargetMemory as _};
use deepctx_symbolizer::shares::Shares;
use deepctx_symbolizer::{GONE_USER, accountable_user};

use deepctx_pipeline::input::{CubinLines, UnreadCubin, WaitRow};

/// Capacity of the queues of requests and answers. Images of a program that compiles at run time come one by one.
const REQUESTS_MAX: usize = 4096;
/// Largest image that is read: as much as a collector keeps of all images.
const IMAGE_MAX: u64 = 64 << 20;
/// Bytes of lines kept for all images together; a line of code takes about ten.
const LINES_MAX: usize = 256 << 20;
/// A user may have this many times as much of them as is left for others.
const SHARE: usize = 4;
/// Most processes whose memory is kept open.
const PROCESSES_MAX: usize = 64;

/// The queues to and from the thread.
#[derive(Debug)]
pub(crate) struct Cubins {
    requests: Sender<UnreadCubin>,
    answers: Receiver<CubinLines>,
    /// Images being read.
    pending: usize,
}

impl Cubins {
    /// Starts the thread. It ends after this is dropped.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn start(supervisor: &Supervisor) -> io::Result<Self> {
        let (requests, requested) = bounded(REQUESTS_MAX);
        let (read, answers) = bounded(REQUESTS_MAX);
        let missing = "device code has no lines";
        supervisor.spawn("cubins", missing, move |heartbeat| work(&requested, &read, heartbeat))?;
        Ok(Self { requests, answers, pending: 0 })
    }

    /// Requests lines. An image that finds the queue full stays without lines.
    pub(crate) fn request(&mut self, unread: Vec<UnreadCubin>) {
        for cubin in unread {
            self.pending += usize::from(self.requests.try_send(cubin).is_ok());
        }
    }

    /// Lines read since the last call; waits at most `longest` for those being read.
    pub(crate) fn read(&mut self, longest: Duration) -> Vec<CubinLines> {
        let deadline = Instant::now() + longest;
        let mut read: Vec<CubinLines> = self.answers.try_iter().collect();
        while read.len() < self.pending
            && let Ok(lines) = self.answers.recv_deadline(deadline)
        {
            read.push(lines);
        }
        self.pending -= read.len().min(self.pending);
        read
    }
}

fn work(requested: &Receiver<UnreadCubin>, read: &Sender<CubinLines>, heartbeat: &Heartbeat) {
    // Not urgent. If the priority cannot be lowered, the work is done anyway.
    let _ = rustix::process::setpriority_process(None, 10);
    let mut processes: HashMap<u32, ProcessMemory> = HashMap::new();
    let mut reader = CodeReader::default();
    let mut shares = Shares::new(LINES_MAX, SHARE);
    while let Ok(cubin) = requested.recv() {
        heartbeat.beat();
        // Its process may end meanwhile.
        let user = accountable_user(cubin.pid).unwrap_or(GONE_USER);
        let lines = match fetch(&mut processes, &cubin) {
            Ok(image) => catch_faults(|| read_lines(&mut reader, &cubin, &image))
                .unwrap_or_else(|_| failed(&cubin, "reading it met a defect".to_owned())),
            Err(because) => failed(&cubin, because),
        };
        let lines = match shares.take(user, bytes_of(&lines)) {
            true => lines,
            false => failed(&cubin, "there are too many lines of this user already".to_owned()),
        };
        tracing::debug!(
            pid = cubin.pid,
            crc = cubin.crc,
            bytes = cubin.bytes,
            functions = lines.functions.len(),
            because = lines.because,
            "lines of device code"
        );
        heartbeat.idle();
        if read.send(lines).is_err() {
            return;
        }
    }
}

/// The bytes of an image.
fn fetch(processes: &mut HashMap<u32, ProcessMemory>, cubin: &UnreadCubin) -> Result<Vec<u8>, String> {
    if cubin.bytes > IMAGE_MAX {
        return Err(format!("it has {} bytes", cubin.bytes));
    }
    let text = |error: ReadError| error.to_string();
    if processes.get(&cubin.pid).is_some_and(|memory| memory.read_u64(0) == Err(ReadError::Gone)) {
        processes.remove(&cubin.pid);
    }
    if !processes.contains_key(&cubin.pid) {
        if processes.len() >= PROCESSES_MAX {
            processes.clear();
        }
        processes.insert(cubin.pid, ProcessMemory::open(cubin.pid).map_err(text)?);
    }
    let memory = processes.get(&cubin.pid).ok_or("it is gone")?;
    memory.read_vec(cubin.address, cubin.bytes as usize).map_err(text)
}

/// Memory that lines take, approximately.
fn bytes_of(lines: &CubinLines) -> usize {
    let rows = |rows: &Vec<(u32, u32, u32)>| rows.len() * size_of::<(u32, u32, u32)>();
    let functions = lines.functions.iter().map(|(name, of)| name.len() + rows(of)).sum::<usize>();
    let wait = |(_, producers, _): &WaitRow| size_of::<WaitRow>() + size_of_val(&producers[..]);
    let waits = lines.waits.iter().map(|(name, of)| name.len() + of.iter().map(wait).sum::<usize>());
    functions + waits.sum::<usize>() + lines.files.iter().map(String::len).sum::<usize>()
}

fn failed(cubin: &UnreadCubin, because: String) -> CubinLines {
    CubinLines { pid: cubin.pid, crc: cubin.crc, because, ..CubinLines::default() }
}

fn read_lines(reader: &mut CodeReader, cubin: &UnreadCubin, image: &[u8]) -> CubinLines {
    let user = accountable_user(cubin.pid).unwrap_or(GONE_USER);
    let ImageLines { lines, waits } = match reader.lines(user, image) {
        Ok(lines) => lines,
        Err(error) => return failed(cubin, error.to_string()),
    };
    let functions = lines.functions.into_iter().map(|(name, rows)| {
        let row = |row: Row| (row.offset, row.file, row.line.map_or(0, std::num::NonZero::get));
        (name, rows.into_iter().map(row).collect())
    });
    let waiting = waits.functions.into_iter().map(|(name, of)| {
        let row = |wait: Wait| (wait.offset, wait.producers, wait.unknown.map_or(0, |reason| reason as u8));
        (name, of.into_iter().map(row).collect())
    });
    CubinLines {
        pid: cubin.pid,
        crc: cubin.crc,
        because: String::new(),
        files: lines.files,
        functions: functions.collect(),
        waits: waiting.collect(),
        waits_left_out: waits.left_out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Described in `symbolizer/src/cubin/lines.rs`.
    const CUBIN: &[u8] = include_bytes!("../../../symbolizer/tests/fixtures/cubin/lines13.cubin");

    fn request(address: u64, bytes: u64) -> CubinLines {
        let mut cubins = Cubins::start(&Supervisor::default()).unwrap();
        let pid = std::process::id();
        cubins.request(vec![UnreadCubin { pid, crc: 9, address, bytes, asked_ns: 0 }]);
        cubins.read(Duration::from_secs(20)).pop().unwrap()
    }

    #[test]
    fn lines_are_read_from_the_memory_of_a_process() {
        let address = CUBIN.as_ptr().expose_provenance() as u64;
        let lines = request(address, CUBIN.len() as u64);
        assert_eq!(lines.because, "");
        let at = |offset| lines.at("_Z5scalePfi", offset).map(|(file, line)| (file, line.get()));
        assert_eq!((at(0xa0), at(0x180)), (Some(("/src/demo/twice.cuh", 12)), None));
        assert_eq!(lines.at("_Z4gone", 0), None);
        // The multiplication waits for the load of line 8.
        let wait = lines.waits_at("_Z5scalePfi", 0xa0);
        assert_eq!((wait, at(0x90)), (Some(&(0xa0, vec![0x90], 0)), Some(("/src/demo/train.cu", 8))));
        assert_eq!((lines.waits_at("_Z5scalePfi", 0x90), lines.waits_left_out), (None, 0));
    }

    #[test]
    fn lines_of_one_user_leave_room_for_those_of_others() {
        let bytes = bytes_of(&CubinLines { files: vec!["x".repeat(16 << 20)], ..CubinLines::default() });
        let mut shares = Shares::new(LINES_MAX, SHARE);
        let images = (0..1000).take_while(|_| shares.take(7, bytes)).count();
        assert_eq!(images, 12, "four fifths");
        assert!(shares.take(8, bytes));
    }

    #[test]
    fn the_supervisor_sees_that_lines_are_read() {
        let supervisor = Supervisor::default();
        let mut cubins = Cubins::start(&supervisor).unwrap();
        let address = CUBIN.as_ptr().expose_provenance() as u64;
        let (pid, bytes, deadline) =
            (std::process::id(), CUBIN.len() as u64, Instant::now() + Duration::from_secs(20));
        let mut seen = false;
        while !seen {
            assert!(Instant::now() < deadline, "its work is not seen");
            if cubins.pending == 0 {
                cubins.request(vec![UnreadCubin { pid, crc: 9, address, bytes, asked_ns: 0 }]);
            }
            seen = supervisor.newly_stalled(Duration::ZERO).iter().any(|stall| stall.thread == "cubins");
            cubins.read(Duration::ZERO);
        }
        cubins.read(Duration::from_secs(20));
        assert!(supervisor.newly_stalled(Duration::ZERO).is_empty(), "it waits");
    }

    #[test]
    fn an_unreadable_image_has_a_reason() {
        let address = CUBIN.as_ptr().expose_provenance() as u64;
        for (address, bytes) in
            [(0x10, 4096), (u64::MAX - 9, 9), (address, u64::MAX), (address + 8, 64), (address, 0)]
        {
            let lines = request(address, bytes);
            assert!(!lines.because.is_empty() && lines.functions.is_empty(), "{address:#x}: {lines:?}");
        }
    }
}
