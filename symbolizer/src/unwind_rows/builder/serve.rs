//! Serve: the builder's side, which runs in a process of its own.
//!
//! Owns: its limits, and answering requests one by one. Because: the author of a file can exploit any bug in the
//! parsers of call frame information, compressed sections or instructions. Does not: open files, or keep state from
//! one file to the next.
//!
//! It exits when its socket closes.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::thread::available_parallelism;

use deepctx_address_space::NoSymbol;
use deepctx_address_space::worker::{self, Bounds};
use deepctx_common::unwind::{BLOCKS_PER_SHARD, SHARDS_MAX};

use super::answer::{BuildReply, REQUEST};
use super::{NotBuilt, table_of};
use crate::guard;
use crate::unwind_rows::cache::{BLOCK_BYTES, encode};
use crate::unwind_rows::sparse::FILE_BYTES_MAX;
use crate::unwind_rows::{NoTable, UnwindTable};

/// Threads of one builder; several work side by side.
const THREADS_MAX: usize = 8;
/// Files: its own three, an ELF file and a table, and those of the runtime. Memory: address space for the whole file,
/// the parts read of it, and the table. Written: the largest table, with its pages and rules.
const BOUNDS: Bounds = Bounds {
    files: 32,
    memory: FILE_BYTES_MAX + (8 << 30),
    written: SHARDS_MAX as u64 * BLOCKS_PER_SHARD as u64 * BLOCK_BYTES as u64 + (16 << 20),
};

/// Answers requests on standard input, which is a socket, until it is closed. Nothing else may run in this process.
///
/// # Errors
/// The privileges cannot be dropped, or the socket fails.
pub fn serve() -> io::Result<()> {
    worker::give_up_privileges(&BOUNDS)?;
    start_threads()?;
    // Installs the handler of missing pages while that is allowed.
    let _ = guard::catch_faults(|| ());
    let socket = worker::begin(true)?;
    answer_all(&socket)
}

/// Starts all threads in advance, and waits until each of them runs.
fn start_threads() -> io::Result<()> {
    let threads = available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().map_err(io::Error::other)?;
    rayon::broadcast(|_| ());
    Ok(())
}

/// Answers requests until the socket is closed.
fn answer_all(mut socket: &UnixStream) -> io::Result<()> {
    while let Some((_, [file, table])) = worker::receive::<{ REQUEST.len() }, 2>(socket)? {
        socket.write_all(&BuildReply(build(&file, table)).encode())?;
    }
    Ok(())
}

fn build(file: &File, mut table: File) -> Result<(), NotBuilt> {
    let bytes = encoded(|| table_of(file))?;
    // The memory is exhausted, or the bound above reached.
    table.write_all(&bytes).map_err(|_| NotBuilt::File(NoSymbol::TooLarge))
}

/// The bytes of a table. Parsers may panic on untrusted bytes: then this file has none.
fn encoded(build: impl FnOnce() -> Result<UnwindTable, NotBuilt>) -> Result<Vec<u8>, NotBuilt> {
    let bytes = guard::catch_faults(|| build().map(|table| encode(&table)));
    bytes.unwrap_or(Err(NotBuilt::Table(NoTable::BuilderEnded)))
}

#[cfg(test)]
mod tests {
    use super::super::{ANSWER_BYTES, BuiltTable, memory_file, sealed};
    use super::*;
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    /// The answer about a file, and the table.
    fn built(file: &File) -> (BuildReply, File) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let table = memory_file().unwrap();
        worker::send(&ours, &REQUEST, &[file.as_fd(), table.as_fd()]).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        answer_all(&theirs).unwrap();
        let mut bytes = [0; ANSWER_BYTES];
        ours.read_exact(&mut bytes).unwrap();
        (BuildReply::decode(bytes).unwrap(), table)
    }

    #[test]
    fn a_built_table_is_the_one_that_is_built_here() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let (answer, table) = built(&file);
        assert_eq!(answer, BuildReply(Ok(())));
        let Some(BuiltTable::Sealed(table)) = sealed(table) else { panic!("no table") };
        assert_eq!(table.into_table(), table_of(&file).ok());
    }

    #[test]
    fn a_file_that_is_no_elf_has_a_reason() {
        let file = File::open("/proc/self/status").unwrap();
        let (answer, table) = built(&file);
        assert_eq!(answer.0, table_of(&file).map(drop));
        assert!(answer.0.is_err() && sealed(table).is_none());
    }

    #[test]
    fn a_file_whose_parser_panics_is_refused() {
        let refused = Err(NotBuilt::Table(NoTable::BuilderEnded));
        assert_eq!(encoded(|| panic!("a parser that panics")), refused);
        let file = File::open("/proc/self/status").unwrap();
        let among_threads = || {
            rayon::join(|| assert!(file.metadata().is_err(), "one of several"), || ());
            table_of(&file)
        };
        assert_eq!(encoded(among_threads), refused);
    }

    #[test]
    fn a_sealed_table_cannot_be_written() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let (_, table) = built(&file);
        let mut theirs = table.try_clone().unwrap();
        assert!(sealed(table).is_some());
        assert_eq!(theirs.write_all(b"more").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
