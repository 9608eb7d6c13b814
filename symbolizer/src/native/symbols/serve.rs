//! Serve: the symbol reader's side, which runs in a process of its own.
//!
//! Owns: its limits, and answering requests one by one. Because: the author of a file can exploit any bug in the
//! parsers of symbols, debug information or mangled names. Does not: open files.
//!
//! It exits when its socket closes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;

use deepctx_address_space::NoSymbol;
use deepctx_address_space::elf::u64_at;
use deepctx_address_space::worker::{self, Bounds};

use super::answer::{self, ADDRESSES_MAX, ANSWER_BYTES_MAX, Question, REQUEST_BYTES, Request};
use super::tables::{AddressFacts, Files, Tables};
use crate::guard;

/// Files: its own three, and four of a request. Memory: address space for all files with kept tables. Written:
/// addresses, and the largest answer after them.
const BOUNDS: Bounds =
    Bounds { files: 16, memory: 256 << 30, written: (8 * ADDRESSES_MAX + ANSWER_BYTES_MAX) as u64 };
/// Private memory: packed debug information is unpacked into it, at most 512 MiB of a file unless the user allows more.
const OWN_MEMORY: u64 = 4 << 30;

/// Most private memory kept after [`KEPT_PERIODS`]; beyond it the least recently used tables are dropped. Clients cache
/// names, so tables are needed less and less often.
const KEPT_BYTES: u64 = 48 << 20;
/// Periods between two checks of it: a file that is queried in each is read again once in that time, which takes a
/// tenth of a second, or a second for a program with much debug information.
const KEPT_PERIODS: u64 = 10;

/// Answers requests on standard input, which is a socket, until it is closed. Nothing else may run in this process.
///
/// # Errors
/// The privileges cannot be dropped, or the socket fails.
pub fn serve() -> io::Result<()> {
    // No file can be opened once privileges are dropped.
    let memory = OwnMemory::open().ok();
    worker::give_up_privileges(&BOUNDS)?;
    worker::limit_memory(OWN_MEMORY)?;
    // Installs the handler of missing pages while that is allowed.
    let _ = guard::catch_faults(|| ());
    let socket = worker::begin(true)?;
    answer_all(&socket, memory.as_ref())
}

/// Private memory of this process: resident pages that are not of files.
pub(super) struct OwnMemory {
    statm: File,
    /// Read before the system calls for it are blocked.
    page_bytes: u64,
}

impl OwnMemory {
    fn open() -> io::Result<Self> {
        let page_bytes = rustix::param::page_size() as u64;
        Ok(Self { statm: File::open("/proc/self/statm")?, page_bytes })
    }

    /// Resident pages minus those of files (`proc_pid_statm(5)`); `None` if the kernel does not report them.
    fn bytes(&self) -> Option<u64> {
        let mut text = [0; 128];
        let length = self.statm.read_at(&mut text, 0).ok()?;
        let mut pages = str::from_utf8(&text[..length]).ok()?.split_whitespace().map(str::parse::<u64>);
        let (resident, of_files) = (pages.nth(1)?.ok()?, pages.next()?.ok()?);
        Some(resident.saturating_sub(of_files) * self.page_bytes)
    }
}

/// Drops tables until at most this much is kept, or only those of the last request.
fn keep_below(most: u64, tables: &mut Tables, memory: &OwnMemory) {
    while memory.bytes().is_some_and(|bytes| bytes > most) && tables.forget_oldest() {
        // musl's allocator returns free pages by itself.
        #[cfg(target_env = "gnu")]
        // SAFETY: no argument is a pointer; the allocator gives free pages back.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Answers requests until the socket is closed.
pub(super) fn answer_all(mut socket: &UnixStream, memory: Option<&OwnMemory>) -> io::Result<()> {
    let mut tables = Tables::default();
    let mut looked_in: Option<u64> = None;
    while let Some((request, [shared, own, debug, supplement])) = worker::receive::<REQUEST_BYTES, 4>(socket)?
    {
        let request = Request::decode(request).ok_or(io::ErrorKind::InvalidData)?;
        let files = Files { own: &own, debug: &debug, supplement: &supplement };
        let written = answer_one(&mut tables, request, &shared, files)?;
        socket.write_all(&(written as u64).to_le_bytes())?;
        // While no client waits.
        if let Some(memory) = memory
            && looked_in.is_none_or(|last| request.asked.period >= last.saturating_add(KEPT_PERIODS))
        {
            looked_in = Some(request.asked.period);
            keep_below(KEPT_BYTES, &mut tables, memory);
        }
    }
    Ok(())
}

/// Writes the answer after the addresses; returns its length.
fn answer_one(tables: &mut Tables, request: Request, shared: &File, files: Files<'_>) -> io::Result<usize> {
    let mut addresses = vec![0; 8 * request.count];
    shared.read_exact_at(&mut addresses, 0)?;
    let addresses: Vec<u64> = addresses.chunks_exact(8).map(|bytes| u64_at(bytes, 0)).collect();
    let answer = match request.question {
        Question::Names => {
            let refused = |reason: NoSymbol| AddressFacts {
                functions: vec![Err(reason); addresses.len()],
                with_debug: false,
            };
            answer::encode(&tables.functions(request.asked, files, &addresses).unwrap_or_else(refused))
        }
        Question::Starts => answer::encode_starts(&Tables::starts(files.own, &addresses)),
    };
    shared.write_all_at(&answer, 8 * request.count as u64)?;
    Ok(answer.len())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::path::Path;
    use std::time::Duration;

    use deepctx_address_space::worker::send;

    use super::super::tables::{DebugFile, TableRequest};
    use super::*;

    /// Sends a request to a reader, and returns the bytes of the answer.
    fn answered(request: Request, file: &File, addresses: &[u64]) -> Vec<u8> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let shared: File =
            rustix::fs::memfd_create("symbols", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
        let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_le_bytes()).collect();
        shared.write_all_at(&bytes, 0).unwrap();
        let file = file.as_fd();
        send(&ours, &request.encode(), &[shared.as_fd(), file, file, file]).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        answer_all(&theirs, None).unwrap();
        let mut length = [0; 8];
        ours.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        io::Read::read_exact(&mut &ours, &mut length).unwrap();
        let mut answer = vec![0; u64::from_le_bytes(length) as usize];
        shared.read_exact_at(&mut answer, bytes.len() as u64).unwrap();
        answer
    }

    fn asked(debug: DebugFile, question: Question, count: usize) -> Request {
        Request { question, asked: TableRequest { key: 1, debug, ..TableRequest::default() }, count }
    }

    /// This program, and addresses all over its code.
    fn this_program() -> (Vec<u8>, Vec<u64>) {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let facts =
            deepctx_address_space::elf::ElfFacts::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        let code = facts.segments.iter().find(|segment| segment.executable).unwrap();
        let addresses = (0..500).map(|n| code.svma.0 + n * (code.file_size / 500)).collect();
        (bytes, addresses)
    }

    #[test]
    fn an_answer_is_what_is_read_here() {
        let (_, addresses) = this_program();
        let file = File::open("/proc/self/exe").unwrap();
        let request = asked(DebugFile::Own, Question::Names, addresses.len());
        let found = answer::decode(&answered(request, &file, &addresses), addresses.len()).unwrap();
        let files = Files { own: &file, debug: &file, supplement: &file };
        assert_eq!(found, Tables::default().functions(request.asked, files, &addresses).unwrap());
        assert!(found.with_debug && found.functions.iter().filter(|of| of.is_ok()).count() > 400);
        let request = asked(DebugFile::No, Question::Starts, addresses.len());
        let starts = answer::decode_starts(&answered(request, &file, &addresses), addresses.len()).unwrap();
        assert_eq!(starts, Tables::starts(&file, &addresses));
        assert!(starts.iter().flatten().count() > 400);
    }

    #[test]
    fn tables_beyond_the_bound_go_but_the_last() {
        let (_, addresses) = this_program();
        let file = File::open("/proc/self/exe").unwrap();
        let files = Files { own: &file, debug: &file, supplement: &file };
        let (mut tables, memory) = (Tables::default(), OwnMemory::open().unwrap());
        let read = |tables: &mut Tables, key| {
            let asked = TableRequest { key, debug: DebugFile::Own, ..TableRequest::default() };
            assert!(tables.functions(asked, files, &addresses).unwrap().with_debug);
        };
        (1..=4).for_each(|key| read(&mut tables, key));
        keep_below(u64::MAX, &mut tables, &memory);
        assert_eq!(tables.files(), 4);
        keep_below(0, &mut tables, &memory);
        assert_eq!(tables.files(), 1);
        assert!(memory.bytes().is_some_and(|bytes| bytes > 0));
        // Dropped tables are read again.
        read(&mut tables, 1);
    }

    #[test]
    fn addresses_of_what_is_no_elf_have_a_reason() {
        for path in ["/proc/self/status", "/etc/passwd"] {
            let file = File::open(Path::new(path)).unwrap();
            let request = asked(DebugFile::Own, Question::Names, 3);
            let found = answer::decode(&answered(request, &file, &[1, 2, u64::MAX]), 3).unwrap();
            assert!(found.functions.iter().all(Result::is_err) && !found.with_debug, "{found:?}");
        }
    }

    #[test]
    fn three_damaged_bytes_anywhere_leave_an_answer() {
        let (good, addresses) = this_program();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("damaged");
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for round in 0..8 {
            let mut bytes = good.clone();
            // Headers of the file and of its segments; then anywhere.
            let among = if round % 2 == 0 { 64 + 13 * 56 } else { bytes.len() };
            (0..3).for_each(|_| bytes[random(among)] ^= 1 << random(8));
            std::fs::write(&path, &bytes).unwrap();
            let request = asked(DebugFile::Own, Question::Names, addresses.len());
            let file = File::open(&path).unwrap();
            let answer = answered(request, &file, &addresses);
            assert!(answer::decode(&answer, addresses.len()).is_some(), "{round}");
        }
    }
}
