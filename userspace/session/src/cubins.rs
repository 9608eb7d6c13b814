//! Cubins: lines of device code, read from the processes that loaded it.
//!
//! Owns: the thread that reads, and the queues to and from it. Because: reading and parsing an image takes milliseconds, and
//! records must not wait for it. Does not: find device code (a collector tells where it is), or use lines (the pipeline).

use std::collections::HashMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_symbolizer::cubin::lines;
use deepctx_symbolizer::python::ProcessMemory;
use deepctx_symbolizer::python::memory::{ReadError, TargetMemory as _};

use deepctx_pipeline::input::{CubinLines, UnreadCubin};

/// Requests that may wait, and answers: images of a program that compiles at run time come one by one.
const REQUESTS_MAX: usize = 4096;
/// Largest image that is read: as much as a collector keeps of all.
const IMAGE_MAX: u64 = 64 << 20;
/// Bytes of lines that are kept, of all images together; a line of code takes some ten.
const LINES_MAX: usize = 256 << 20;
/// Processes that are kept open.
const PROCESSES_MAX: usize = 64;

/// The way to the thread.
#[derive(Debug)]
pub(crate) struct Cubins {
    requests: Sender<UnreadCubin>,
    answers: Receiver<CubinLines>,
    /// Images that are being read.
    waiting: usize,
}

impl Cubins {
    /// Starts the thread. It ends after this is dropped.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn start() -> io::Result<Self> {
        let (requests, asked) = bounded(REQUESTS_MAX);
        let (read, answers) = bounded(REQUESTS_MAX);
        thread::Builder::new().name("cubins".into()).spawn(move || work(&asked, &read))?;
        Ok(Self { requests, answers, waiting: 0 })
    }

    /// Asks for lines. What finds no room has none.
    pub(crate) fn ask(&mut self, unread: Vec<UnreadCubin>) {
        for cubin in unread {
            self.waiting += usize::from(self.requests.try_send(cubin).is_ok());
        }
    }

    /// What was read since the last time; waits for so long for what is being read.
    pub(crate) fn answers(&mut self, longest: Duration) -> Vec<CubinLines> {
        let deadline = Instant::now() + longest;
        let mut read: Vec<CubinLines> = self.answers.try_iter().collect();
        while read.len() < self.waiting
            && let Ok(lines) = self.answers.recv_deadline(deadline)
        {
            read.push(lines);
        }
        self.waiting -= read.len().min(self.waiting);
        read
    }
}

fn work(asked: &Receiver<UnreadCubin>, read: &Sender<CubinLines>) {
    // It is not urgent; where that cannot be said, it is done all the same.
    let _ = rustix::process::setpriority_process(None, 10);
    let mut processes: HashMap<u32, ProcessMemory> = HashMap::new();
    let mut left = LINES_MAX;
    while let Ok(cubin) = asked.recv() {
        let mut lines = match fetched(&mut processes, &cubin) {
            Ok(image) => parsed(&cubin, &image),
            Err(because) => failed(&cubin, because),
        };
        match left.checked_sub(bytes_of(&lines)) {
            Some(rest) => left = rest,
            None => lines = failed(&cubin, "there are too many lines already".to_owned()),
        }
        tracing::debug!(
            pid = cubin.pid,
            crc = cubin.crc,
            bytes = cubin.bytes,
            functions = lines.functions.len(),
            because = lines.because,
            "lines of device code"
        );
        if read.send(lines).is_err() {
            return;
        }
    }
}

/// The bytes of an image.
fn fetched(processes: &mut HashMap<u32, ProcessMemory>, cubin: &UnreadCubin) -> Result<Vec<u8>, String> {
    if cubin.bytes > IMAGE_MAX {
        return Err(format!("it has {} bytes", cubin.bytes));
    }
    let said = |error: ReadError| error.to_string();
    if processes.get(&cubin.pid).is_some_and(|memory| memory.read_u64(0) == Err(ReadError::Gone)) {
        processes.remove(&cubin.pid);
    }
    if !processes.contains_key(&cubin.pid) {
        if processes.len() >= PROCESSES_MAX {
            processes.clear();
        }
        processes.insert(cubin.pid, ProcessMemory::open(cubin.pid).map_err(said)?);
    }
    let memory = processes.get(&cubin.pid).ok_or("it is gone")?;
    memory.read_vec(cubin.address, cubin.bytes as usize).map_err(said)
}

/// Memory that lines take, about.
fn bytes_of(lines: &CubinLines) -> usize {
    let rows = |rows: &Vec<(u32, u32, u32)>| rows.len() * size_of::<(u32, u32, u32)>();
    let functions = lines.functions.iter().map(|(name, of)| name.len() + rows(of)).sum::<usize>();
    functions + lines.files.iter().map(String::len).sum::<usize>()
}

fn failed(cubin: &UnreadCubin, because: String) -> CubinLines {
    CubinLines { pid: cubin.pid, crc: cubin.crc, because, ..CubinLines::default() }
}

fn parsed(cubin: &UnreadCubin, image: &[u8]) -> CubinLines {
    let lines = match lines::read(image) {
        Ok(lines) => lines,
        Err(error) => return failed(cubin, error.to_string()),
    };
    let functions = lines.functions.into_iter().map(|(name, rows)| {
        let row = |row: lines::Row| (row.offset, row.file, row.line.map_or(0, std::num::NonZero::get));
        (name, rows.into_iter().map(row).collect())
    });
    CubinLines {
        pid: cubin.pid,
        crc: cubin.crc,
        because: String::new(),
        files: lines.files,
        functions: functions.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `symbolizer/src/cubin/lines.rs` says.
    const CUBIN: &[u8] = include_bytes!("../../../symbolizer/tests/fixtures/cubin/lines13.cubin");

    fn ask(address: u64, bytes: u64) -> CubinLines {
        let mut cubins = Cubins::start().unwrap();
        let pid = std::process::id();
        cubins.ask(vec![UnreadCubin { pid, crc: 9, address, bytes, asked_ns: 0 }]);
        cubins.answers(Duration::from_secs(20)).pop().unwrap()
    }

    #[test]
    fn lines_are_read_from_the_memory_of_a_process() {
        let address = CUBIN.as_ptr().expose_provenance() as u64;
        let lines = ask(address, CUBIN.len() as u64);
        assert_eq!(lines.because, "");
        let at = |offset| lines.at("_Z5scalePfi", offset).map(|(file, line)| (file, line.get()));
        assert_eq!((at(0xa0), at(0x180)), (Some(("/src/demo/twice.cuh", 12)), None));
        assert_eq!(lines.at("_Z4gone", 0), None);
    }

    #[test]
    fn an_image_that_is_not_there_or_is_none_says_so() {
        let address = CUBIN.as_ptr().expose_provenance() as u64;
        for (address, bytes) in
            [(0x10, 4096), (u64::MAX - 9, 9), (address, u64::MAX), (address + 8, 64), (address, 0)]
        {
            let lines = ask(address, bytes);
            assert!(!lines.because.is_empty() && lines.functions.is_empty(), "{address:#x}: {lines:?}");
        }
    }
}
