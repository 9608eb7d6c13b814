//! Serve: the reader's side, which runs in a process of its own.
//!
//! Owns: its limits, and answering requests one by one. Because: whoever writes device code can exploit any bug in
//! what parses and unpacks it. Does not: open files.
//!
//! It exits when its socket closes.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use deepctx_address_space::elf::u64_at;
use deepctx_address_space::worker::{self, Bounds};
use memmap2::Mmap;

use super::answer::{ANSWER_BYTES_MAX, Contents, Question, REQUEST_BYTES, Request};
use crate::cubin::fatbin::{self, IMAGE_MAX};
use crate::cubin::lines::{self, LineTable, Row};
use crate::cubin::names::{KernelFacts, KernelNames};
use crate::cubin::scoreboard::{self, Wait, Waits};
use crate::cubin::{NoCubin, stub};
use crate::guard;

/// Files: its own three, and two of a request. Memory: address space for a mapped file and an answer. Written: an
/// image, and the largest answer after it.
const BOUNDS: Bounds =
    Bounds { files: 16, memory: 256 << 30, written: (IMAGE_MAX + ANSWER_BYTES_MAX) as u64 };
/// Private memory: an unpacked image, the names of all of them, and an answer twice.
const OWN_MEMORY: u64 = 2 << 30;

/// Answers requests on standard input, which is a socket, until it is closed. Nothing else may run in this process.
///
/// # Errors
/// The privileges cannot be dropped, or the socket fails.
pub fn serve() -> io::Result<()> {
    worker::give_up_privileges(&BOUNDS)?;
    worker::limit_memory(OWN_MEMORY)?;
    // Installs the handler of missing pages while that is allowed.
    let _ = guard::catch_faults(|| ());
    // With what threads may do: answers are written to the file in memory.
    let socket = worker::begin(true)?;
    answer_all(&socket)
}

/// Answers requests until the socket is closed.
fn answer_all(mut socket: &UnixStream) -> io::Result<()> {
    while let Some((request, [shared, file])) = worker::receive::<REQUEST_BYTES, 2>(socket)? {
        let request = Request::decode(&request).filter(|request| request.input <= IMAGE_MAX as u64);
        let request = request.ok_or(io::ErrorKind::InvalidData)?;
        let mut input = vec![0; request.input as usize];
        shared.read_exact_at(&mut input, 0)?;
        let answer = answer_here(request.question, &input, Some(&file)).encode(request.question);
        shared.write_all_at(&answer, request.input)?;
        socket.write_all(&(answer.len() as u64).to_le_bytes())?;
    }
    Ok(())
}

/// The answer to a question, found in this process.
pub(super) fn answer_here(question: Question, input: &[u8], file: Option<&File>) -> Contents {
    let unread = Contents::NotCubin(NoCubin::NotElf);
    match question {
        Question::FatBinaries { most_bytes, budget } => {
            mapped(file, |bytes| fat_binaries(bytes, most_bytes, budget)).unwrap_or(unread)
        }
        Question::Stubs => {
            let offsets: Vec<u64> = input.chunks_exact(8).map(|offset| u64_at(offset, 0)).collect();
            let names = mapped(file, |bytes| stub::kernels_at(bytes, &offsets));
            Contents::Stubs(names.unwrap_or_default().into_iter().collect())
        }
        Question::Image => {
            let mut names = KernelNames::default();
            names.add_cubin(input).map_or_else(Contents::NotCubin, |()| kernels(names, 0))
        }
        Question::Lines => {
            // An image whose lines can be read is one whose sections can.
            let waits = scoreboard::read(input).unwrap_or_default();
            lines::read(input).map_or_else(Contents::NotCubin, |table| line_rows(table, waits))
        }
    }
}

fn fat_binaries(bytes: &[u8], most_bytes: u64, mut budget: u64) -> Contents {
    let sections = fatbin::sections(bytes);
    if sections.iter().map(|section| section.len() as u64).fold(0, u64::saturating_add) > most_bytes {
        return Contents::TooManyBytes;
    }
    let mut names = KernelNames::default();
    for section in sections {
        names.add_fat_binaries(section, &mut budget);
    }
    kernels(names, budget)
}

fn kernels(names: KernelNames, budget: u64) -> Contents {
    let left_out = names.left_out();
    let row = |(name, facts): (String, KernelFacts)| {
        (name, [facts.arch.map(u64::from), facts.registers.map(u64::from), facts.static_shared])
    };
    Contents::Kernels { kernels: names.into_rows().map(row).collect(), left_out, budget }
}

fn line_rows(table: LineTable, waits: Waits) -> Contents {
    let row = |row: Row| [row.offset, row.file, row.line.map_or(0, NonZeroU32::get)];
    let functions =
        table.functions.into_iter().map(|(name, rows)| (name, rows.into_iter().map(row).collect()));
    let wait = |wait: Wait| (wait.offset, wait.producers, wait.unknown.map_or(0, |reason| reason as u8));
    let waiting =
        waits.functions.into_iter().map(|(name, waits)| (name, waits.into_iter().map(wait).collect()));
    Contents::Lines {
        files: table.files,
        functions: functions.collect(),
        left_out: table.left_out,
        waits: waiting.collect(),
        waits_left_out: waits.left_out,
    }
}

/// Reads a mapped file; `None` when it cannot be mapped, or is shortened meanwhile.
fn mapped<T>(file: Option<&File>, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
    // SAFETY: the file may change under the mapping; it is read as plain bytes by checked parsers, and `catch_faults`
    // turns missing pages into an error.
    let map = unsafe { Mmap::map(file?) }.ok()?;
    guard::catch_faults(|| read(&map)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use deepctx_address_space::worker::send;

    use super::*;

    const LINES: &[u8] = include_bytes!("../../../tests/fixtures/cubin/lines13.cubin");
    const CUBIN: &[u8] = include_bytes!("../../../tests/fixtures/cubin/cuda13.cubin");

    /// Sends a request to a reader, and returns its answer.
    fn answered(question: Question, input: &[u8], file: &File) -> Contents {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let shared = rustix::fs::memfd_create("device-code", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let shared = File::from(shared);
        shared.write_all_at(input, 0).unwrap();
        let request = Request { question, input: input.len() as u64 };
        send(&ours, &request.encode(), &[shared.as_fd(), file.as_fd()]).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        answer_all(&theirs).unwrap();
        let mut length = [0; 8];
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        (&ours).read_exact(&mut length).unwrap();
        let mut answer = vec![0; u64::from_le_bytes(length) as usize];
        shared.read_exact_at(&mut answer, input.len() as u64).unwrap();
        Contents::decode(&answer).unwrap()
    }

    #[test]
    fn an_answer_is_what_is_read_here() {
        let own = File::open("/proc/self/exe").unwrap();
        let everything = Question::FatBinaries { most_bytes: u64::MAX, budget: 1 << 20 };
        for (question, input) in [
            (Question::Image, CUBIN),
            (Question::Lines, LINES),
            (Question::Lines, b"no cubin"),
            (Question::Image, &LINES[..99]),
            (Question::Stubs, &[1, 0, 0, 0, 0, 0, 0, 0]),
            (everything, &[]),
        ] {
            let here = answer_here(question, input, Some(&own));
            assert_eq!(answered(question, input, &own), here, "{question:?}");
        }
        let Contents::Kernels { kernels, left_out: 0, .. } = answered(Question::Image, CUBIN, &own) else {
            panic!("no kernels");
        };
        assert_eq!(kernels.len(), 2);
        let Contents::Lines { functions, waits, .. } = answered(Question::Lines, LINES, &own) else {
            panic!("no lines");
        };
        assert!(functions.iter().any(|(name, rows)| name == "_Z5scalePfi" && !rows.is_empty()));
        let of_sum = waits.iter().find(|(name, _)| name == "_Z3sumPf").map(|(_, waits)| &waits[..]);
        assert_eq!(of_sum, Some(&[(0x60, vec![0x50, 0x40], 0)][..]));
    }

    #[test]
    fn what_is_no_elf_has_no_device_code() {
        let text = File::open("/etc/passwd").unwrap();
        let everything = Question::FatBinaries { most_bytes: u64::MAX, budget: 1 << 20 };
        let none = Contents::Kernels { kernels: Vec::new(), left_out: 0, budget: 1 << 20 };
        assert_eq!(answered(everything, &[], &text), none);
        assert_eq!(answered(Question::Stubs, &[0; 16], &text), Contents::Stubs(Vec::new()));
    }
}
