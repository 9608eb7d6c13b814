//! The interpreter of a live process: from its mappings to [`locate`], file by file; and the process's memory.
//!
//! Owns: which files are asked, in which order, and how much of each is read.
//! Because: a process maps hundreds of files, some of a gigabyte, one of which may hold an interpreter.
//! Does not: decide what an interpreter is.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use deepctx_address_space::maps::{self, Backing, Keep, Mapping};
use object::read::ReadCache;
use rustc_hash::FxHashSet;

use super::elf::Elf;
use super::locate::{Interpreter, Module, NoInterpreter, likelihood, locate};
use super::memory::{ReadError, TargetMemory};

/// Most bytes read of one file: the dynamic symbols, the evaluation loop and the frame descriptions of the largest
/// interpreters take a tenth of it. A file made to hurt costs this much and no more.
const FILE_BYTES_MAX: u64 = 128 << 20;

/// Finds the interpreter of `pid` among its executable mappings ([`maps::read`] with [`maps::Keep::Executable`]).
///
/// # Errors
/// The reason why there is none; [`NoInterpreter::may_change`] tells whether to ask again later.
pub fn locate_process(pid: u32, mappings: &[Mapping]) -> Result<(Interpreter, ProcessMemory), NoInterpreter> {
    let memory = ProcessMemory::open(pid)?;
    let candidates = candidates(mappings, &program(pid));
    let files: Vec<OnceCell<Option<ReadCache<Budgeted>>>> =
        candidates.iter().map(|_| OnceCell::new()).collect();
    let modules = candidates.iter().zip(&files).filter_map(|(&(mapping, is_program), file)| {
        let data = file.get_or_init(|| {
            let file = maps::open(pid, mapping).ok()?;
            Some(ReadCache::new(Budgeted { file, left: FILE_BYTES_MAX }))
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

/// Most bytes of a section that is asked for by name.
const SECTION_BYTES_MAX: u64 = 4096;
/// Most files in which one is sought: extension modules of the interpreter, its library, the program.
const SECTION_FILES_MAX: usize = 64;

/// A section of this name, of the first file that has one: an extension module of CPython's, libpython, or the program.
pub(super) fn section(pid: u32, name: &str) -> Option<Vec<u8>> {
    let mappings = maps::read(pid, Keep::Executable).ok()?.mappings;
    let may_have = |mapping: &Mapping, is_program: bool| {
        let file = mapping.path().file_name().unwrap_or_default().to_string_lossy();
        is_program || file.contains("python")
    };
    candidates(&mappings, &program(pid))
        .into_iter()
        .filter(|(mapping, is_program)| may_have(mapping, *is_program))
        .take(SECTION_FILES_MAX)
        .find_map(|(mapping, _)| {
            let file = maps::open(pid, mapping).ok()?;
            let data = ReadCache::new(Budgeted { file, left: FILE_BYTES_MAX });
            Elf::parse(&data)?.section(name, SECTION_BYTES_MAX).map(<[u8]>::to_vec)
        })
}

/// The path of the program that the process runs, as its mappings show it; empty when it cannot be read.
fn program(pid: u32) -> Box<OsStr> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let path = path.as_os_str().as_bytes();
    OsStr::from_bytes(path.strip_suffix(b" (deleted)").unwrap_or(path)).into()
}

/// One executable mapping of each file, likeliest first, and whether it is the program.
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

/// A file of which only so much may be read.
struct Budgeted {
    file: File,
    left: u64,
}

impl Read for Budgeted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let wanted = into.len() as u64;
        if wanted > self.left {
            return Err(io::Error::other("more of the file was asked for than an interpreter needs"));
        }
        self.left -= wanted;
        self.file.read(into)
    }
}

impl Seek for Budgeted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// A live process, read through `/proc/PID/mem`.
///
/// The open file stays bound to the address space that the process had when it was opened: after an exec, an exit,
/// or a reuse of the pid, reads say [`ReadError::Gone`] and never return another program's bytes.
#[derive(Debug)]
pub struct ProcessMemory {
    mem: File,
    pid: u32,
}

impl ProcessMemory {
    /// Opens the memory of `pid` (as seen from the pid namespace of this process).
    ///
    /// # Errors
    /// [`ReadError::Gone`] when there is no such process, [`ReadError::Denied`] without the right to ptrace it.
    pub fn open(pid: u32) -> Result<Self, ReadError> {
        let mem = File::open(format!("/proc/{pid}/mem")).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => ReadError::Denied,
            _ => ReadError::Gone,
        })?;
        Ok(Self { mem, pid })
    }
}

impl TargetMemory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        // Offsets of files are signed: user addresses are far below this, and the kernel would say EINVAL.
        if address > i64::MAX as u64 {
            return Err(ReadError::Unmapped);
        }
        let mut done = 0;
        while done < into.len() {
            let Some(at) = address.checked_add(done as u64) else { return Err(ReadError::Unmapped) };
            match self.mem.read_at(&mut into[done..], at) {
                // End of file at any address means that the address space has no users left.
                Ok(0) => return Err(ReadError::Gone),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(ReadError::Denied);
                }
                Err(_) => return Err(ReadError::Unmapped),
            }
        }
        Ok(())
    }

    fn section(&self, name: &str) -> Option<Vec<u8>> {
        section(self.pid, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_reads_back() {
        let value = 0x1122_3344_5566_7788_u64;
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        assert_eq!(memory.read_u64(std::ptr::from_ref(&value) as u64), Ok(value));
    }

    #[test]
    fn an_unmapped_address_is_not_the_end_of_the_process() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        for address in [0, 8, u64::MAX, u64::MAX - 7, 1 << 63, 0xffff_8000_0000_0000] {
            assert_eq!(memory.read_u64(address), Err(ReadError::Unmapped), "{address:#x}");
        }
    }

    #[test]
    fn a_process_that_ended_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let memory = ProcessMemory::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(memory.read_u64(0x1000), Err(ReadError::Gone));
        assert_eq!(ProcessMemory::open(child.id()).err(), Some(ReadError::Gone));
    }
}
