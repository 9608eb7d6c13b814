//! Finding the interpreter of a live process among its mapped files.
//!
//! Owns: which files are examined, in which order, and how much of each is read. Because: a process maps hundreds of
//! files, some of a gigabyte, one of which may contain an interpreter. Does not: decide what an interpreter is
//! ([`locate`]).

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use deepctx_address_space::maps::{self, Backing, LineFilter, Mapping};
use object::read::ReadCache;
use rustc_hash::FxHashSet;

use super::elf::Elf;
use super::locate::{Interpreter, Module, NoInterpreter, likelihood, locate};
use crate::memory::{ProcessMemory, ReadError, TargetMemory};

/// Most bytes read of one file: the dynamic symbols, the evaluation loop and the frame descriptions of the largest
/// interpreters take a tenth of it. A malicious file costs no more than this.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// Finds the interpreter of `pid` among its executable mappings ([`maps::read`] with [`maps::LineFilter::Executable`]).
///
/// # Errors
/// The reason why there is none; [`NoInterpreter::may_change`] says whether to try again later.
pub fn locate_process(
    pid: u32,
    mappings: &[Mapping],
) -> Result<(Interpreter, InterpreterMemory), NoInterpreter> {
    let memory = InterpreterMemory::open(pid)?;
    let candidates = candidates(mappings, &program(pid));
    let files: Vec<OnceCell<Option<ReadCache<LimitedFile>>>> =
        candidates.iter().map(|_| OnceCell::new()).collect();
    let modules = candidates.iter().zip(&files).filter_map(|(&(mapping, is_program), file)| {
        let data = file.get_or_init(|| {
            let file = maps::open(pid, mapping).ok()?;
            Some(ReadCache::new(LimitedFile { file, left: FILE_BYTES_MAX }))
        });
        Some(Module {
            begin: mapping.begin.0,
            file_offset: mapping.offset.0,
            is_program,
            data: data.as_ref()?,
        })
    });
    let interpreter = locate(&memory, modules)?;
    Ok((interpreter, memory))
}

/// Largest section read by name.
const SECTION_BYTES_MAX: u64 = 4096;
/// Most files searched for a section: extension modules of the interpreter, its library, the program.
const SECTION_FILES_MAX: usize = 64;

/// The section of this name, from the first file that has one: an extension module of CPython, libpython, or the
/// program.
fn section(pid: u32, name: &str) -> Option<Vec<u8>> {
    let mappings = maps::read(pid, LineFilter::Executable).ok()?.mappings;
    let is_candidate = |mapping: &Mapping, is_program: bool| {
        let file = mapping.path().file_name().unwrap_or_default().to_string_lossy();
        is_program || file.contains("python")
    };
    candidates(&mappings, &program(pid))
        .into_iter()
        .filter(|(mapping, is_program)| is_candidate(mapping, *is_program))
        .take(SECTION_FILES_MAX)
        .find_map(|(mapping, _)| {
            let file = maps::open(pid, mapping).ok()?;
            let data = ReadCache::new(LimitedFile { file, left: FILE_BYTES_MAX });
            Elf::parse(&data)?.section(name, SECTION_BYTES_MAX).map(<[u8]>::to_vec)
        })
}

/// The path of the program of the process, as in its mappings; empty when it cannot be read.
fn program(pid: u32) -> Box<OsStr> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let path = path.as_os_str().as_bytes();
    OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)).into()
}

/// One executable mapping of each file, most likely first, and whether it is the program.
fn candidates<'m>(mappings: &'m [Mapping], program: &OsStr) -> Vec<(&'m Mapping, bool)> {
    let mut seen = FxHashSet::default();
    let mut candidates: Vec<_> = mappings
        .iter()
        .filter(|m| {
            m.executable && matches!(m.backing, Backing::File | Backing::DeletedFile | Backing::Memfd)
        })
        .filter(|m| seen.insert((m.device, m.inode, &m.path)))
        .map(|m| (m, *m.path == *program))
        .collect();
    candidates.sort_by_key(|(mapping, is_program)| {
        let name = mapping.path().file_name().unwrap_or_default();
        std::cmp::Reverse(likelihood(&Path::new(name).to_string_lossy(), *is_program))
    });
    candidates
}

/// A file with a limit on the bytes read.
struct LimitedFile {
    file: File,
    left: u64,
}

impl Read for LimitedFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = into.len() as u64;
        if wanted > self.left {
            return Err(io::Error::other("the limit of bytes read of this file is reached"));
        }
        self.left -= wanted;
        self.file.read(into)
    }
}

impl Seek for LimitedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// The memory of an interpreter's process, with the sections of its files.
#[derive(Debug)]
pub struct InterpreterMemory {
    process: ProcessMemory,
    pid: u32,
}

impl InterpreterMemory {
    /// Opens the memory of `pid` (as seen from the pid namespace of this process).
    ///
    /// # Errors
    /// As [`ProcessMemory::open`].
    pub fn open(pid: u32) -> Result<Self, ReadError> {
        Ok(Self { process: ProcessMemory::open(pid)?, pid })
    }
}

impl TargetMemory for InterpreterMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        self.process.read(address, into)
    }

    fn walk(&self, question: &[u8]) -> Option<Result<Vec<u8>, ReadError>> {
        self.process.walk(question)
    }

    fn section(&self, name: &str) -> Option<Vec<u8>> {
        section(self.pid, name)
    }
}
