//! The mappings of a process, and the files behind them.
//!
//! Owns: the parser of `/proc/PID/maps` (pure), opening the file of a mapping, the image of the vdso. Because: the
//! path in a maps line is only a name. The file may be deleted, replaced, unnamed or in another mount namespace, and
//! only the kernel knows which file is mapped. Does not: keep history, or read the content of files ([`crate::elf`]).

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{major, minor};

use crate::address::{Avma, FileOffset};
pub use crate::device_number::DeviceNumber;
use crate::read_error::ReadError;
use crate::reader::{self, Subject};
use crate::reason::NoSymbol;
use crate::served;

/// Most bytes read of a maps file: 2²⁰ mappings (sixteen times the kernel's default limit) with long lines.
pub const MAPS_BYTES_MAX: u64 = 128 << 20;
/// Most mappings kept of one process; the kernel's default `vm.max_map_count` is 65 530.
pub const MAPPINGS_MAX: usize = 1 << 18;
/// Most jitdump files kept of one process, which needs one.
const JITDUMPS_MAX: usize = 4;
/// Attempts to read a process that execs each time: a file of `/proc` opened before an exec belongs to the old address
/// space, and is empty.
const EXECS_MAX: usize = 8;
/// Longest path kept: `PATH_MAX`.
const PATH_BYTES_MAX: usize = 4096;
/// Largest vdso read; real ones have two to four pages.
const VDSO_BYTES_MAX: u64 = 256 << 10;

/// What backs a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A file with a name.
    File,
    /// A file that was deleted, or replaced by an upgrade.
    DeletedFile,
    /// A `memfd_create` file, or shared memory that looks like one.
    Memfd,
    /// No file: memory that the process allocated.
    Anonymous,
    /// The kernel's vdso.
    Vdso,
    /// The kernel's page of out-of-line instructions for uprobes.
    Uprobes,
    /// Any other special mapping (`[vsyscall]`, `[stack]`, a device).
    Special,
}

/// One line of a maps file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub begin: Avma,
    /// End address, exclusive.
    pub end: Avma,
    /// Offset in the file that is mapped at `begin`.
    pub offset: FileOffset,
    /// Device number of the file system.
    pub device: DeviceNumber,
    /// Inode number, 0 without a file.
    pub inode: u64,
    /// Readable.
    pub readable: bool,
    /// Writable.
    pub writable: bool,
    /// Executable.
    pub executable: bool,
    /// What backs it.
    pub backing: Backing,
    /// Path as the kernel prints it, without ` (deleted)`, with escaped newlines restored; may be empty.
    pub path: Box<OsStr>,
}

impl Mapping {
    /// Length in bytes.
    pub const fn len(&self) -> u64 {
        self.end.0 - self.begin.0
    }

    /// True for an empty mapping, which the parser never returns.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path as a path.
    pub fn path(&self) -> &Path {
        Path::new(&*self.path)
    }
}

/// Which lines to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFilter {
    /// Executable mappings only.
    Executable,
    /// All mappings.
    All,
}

/// The content of a maps file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// The requested mappings, by ascending address, never overlapping.
    pub mappings: Vec<Mapping>,
    /// The first line, whatever it maps: constant while the process runs the same program.
    pub first_line: Box<[u8]>,
    /// Jitdump files (`jit-PID.dump`), which runtimes map so that profilers find them; a child that was forked has its
    /// parent's too.
    pub jitdumps: Vec<Mapping>,
    /// Lines that could not be parsed, or that overlap an earlier one.
    pub malformed: u64,
    /// Mappings beyond [`MAPPINGS_MAX`].
    pub dropped: u64,
}

/// Parses the bytes of a maps file. Never fails: malformed lines are counted.
pub fn parse(bytes: &[u8], keep: LineFilter) -> Maps {
    let mut maps = Maps { first_line: first_line(bytes), ..Maps::default() };
    let mut end_before = 0;
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        // Most lines of a big process are data: check the permissions before anything is allocated.
        let wanted = keep == LineFilter::All
            || line.split(|b| *b == b' ').nth(1).and_then(|p| p.get(2)) == Some(&b'x');
        if !wanted && !line.ends_with(b".dump") {
            continue;
        }
        let Some(mapping) = parse_line(line) else {
            maps.malformed += 1;
            continue;
        };
        if maps.jitdumps.len() < JITDUMPS_MAX && is_jitdump(&mapping) {
            maps.jitdumps.push(mapping.clone());
        }
        if !wanted {
            continue;
        }
        if mapping.begin.0 < end_before {
            maps.malformed += 1;
        } else if maps.mappings.len() == MAPPINGS_MAX {
            maps.dropped += 1;
        } else {
            end_before = mapping.end.0;
            maps.mappings.push(mapping);
        }
    }
    maps
}

/// The first line of a maps file.
pub fn first_line(bytes: &[u8]) -> Box<[u8]> {
    bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().into()
}

fn is_jitdump(mapping: &Mapping) -> bool {
    let name = mapping.path().file_name().map_or(&b""[..], OsStr::as_bytes);
    matches!(mapping.backing, Backing::File | Backing::DeletedFile)
        && name.strip_prefix(b"jit-").and_then(|n| n.strip_suffix(b".dump")).is_some_and(all_digits)
}

fn all_digits(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let range = field(&mut rest)?;
    let permissions = field(&mut rest)?;
    let offset = hex(field(&mut rest)?)?;
    let device = field(&mut rest)?;
    let inode = decimal(field(&mut rest)?)?;
    let dash = range.iter().position(|b| *b == b'-')?;
    let (begin, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
    let colon = device.iter().position(|b| *b == b':')?;
    let number = |digits: &[u8]| u32::try_from(hex(digits)?).ok();
    let device = DeviceNumber { major: number(&device[..colon])?, minor: number(&device[colon + 1..])? };
    if begin >= end || permissions.len() != 4 {
        return None;
    }
    // The kernel pads the path to a column. Paths start with '/', '[' or the name of a file system.
    let shown = rest.trim_ascii_start();
    if shown.len() > 2 * PATH_BYTES_MAX {
        return None;
    }
    let (backing, path) = backing(shown, inode);
    Some(Mapping {
        begin: Avma(begin),
        end: Avma(end),
        offset: FileOffset(offset),
        device,
        inode,
        readable: permissions[0] == b'r',
        writable: permissions[1] == b'w',
        executable: permissions[2] == b'x',
        backing,
        path: OsStr::from_bytes(&unescape(path)).into(),
    })
}

/// The next field; up to the inode, fields are separated by single spaces.
fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
    let (field, tail) = rest.split_at(end);
    *rest = tail.get(1..).unwrap_or_default();
    (!field.is_empty()).then_some(field)
}

fn hex(digits: &[u8]) -> Option<u64> {
    number(digits, 16)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    number(digits, 10)
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` accepts a sign; the kernel writes none.
    let text = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

fn backing(shown: &[u8], inode: u64) -> (Backing, &[u8]) {
    let (path, deleted) = match shown.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (shown, false),
    };
    let backing = match path {
        b"[vdso]" => Backing::Vdso,
        b"[uprobes]" => Backing::Uprobes,
        b"" | b"/dev/zero" | b"/anon_hugepage" => Backing::Anonymous,
        _ if path.starts_with(b"[anon:") || path.starts_with(b"[anon_shmem:") => Backing::Anonymous,
        b"[heap]" | b"[stack]" => Backing::Anonymous,
        _ if path.starts_with(b"/memfd:") || path.starts_with(b"/SYSV") => Backing::Memfd,
        _ if path.starts_with(b"/") && inode != 0 && deleted => Backing::DeletedFile,
        _ if path.starts_with(b"/") && inode != 0 => Backing::File,
        _ => Backing::Special,
    };
    (backing, path)
}

/// The kernel writes a newline in a path as `\012` and every other byte as it is.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, tail)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                out.push(b'\n');
                rest = after;
            }
            None => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    out
}

/// The mappings of a process cannot be read.
#[derive(Debug)]
pub struct UnreadMaps {
    /// The reason, for counting and display.
    pub reason: NoSymbol,
    source: Option<io::Error>,
}

impl From<NoSymbol> for UnreadMaps {
    fn from(reason: NoSymbol) -> Self {
        UnreadMaps { reason, source: None }
    }
}

impl From<UnreadMaps> for NoSymbol {
    fn from(unread: UnreadMaps) -> Self {
        unread.reason
    }
}

impl fmt::Display for UnreadMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl Error for UnreadMaps {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as &(dyn Error + 'static))
    }
}

/// Reads and parses `/proc/PID/maps`.
///
/// # Errors
/// [`NoSymbol::ProcessGone`] when there is no such process, or [`NoSymbol::PermissionDenied`].
pub fn read(pid: u32, keep: LineFilter) -> Result<Maps, UnreadMaps> {
    let gone_or = |e: &io::Error| match e.kind() {
        io::ErrorKind::PermissionDenied => NoSymbol::PermissionDenied,
        io::ErrorKind::TimedOut if reader::is_missing(e) => NoSymbol::NoMemoryReader,
        io::ErrorKind::TimedOut => NoSymbol::ProcessSilent,
        _ => NoSymbol::ProcessGone,
    };
    let subject = Subject::of(pid);
    let mut bytes = Vec::new();
    for _ in 0..EXECS_MAX {
        bytes = reader::read_proc(&subject, "maps", MAPS_BYTES_MAX)
            .map_err(|error| UnreadMaps { reason: gone_or(&error), source: Some(error) })?;
        if !bytes.is_empty() || !has_user_space(pid) {
            break;
        }
    }
    // A line that the bound cut off would be misread.
    if bytes.len() as u64 == MAPS_BYTES_MAX {
        bytes.truncate(bytes.iter().rposition(|b| *b == b'\n').unwrap_or(0));
    }
    // A process that is exiting has an empty maps file, as kernel threads have.
    if bytes.is_empty() {
        return Err(NoSymbol::ProcessGone.into());
    }
    if reader::is_installed() && is_jammed(pid, &subject) {
        return Err(NoSymbol::ProcessSilent.into());
    }
    Ok(parse(&bytes, keep))
}

/// Whether a process has user memory: kernel threads and zombies have none.
pub fn has_user_space(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/statm")).is_ok_and(|pages| !pages.starts_with(b"0 "))
}

/// Whether the lock of the address space is held: opening the files of its mappings would wait for it.
fn is_jammed(pid: u32, subject: &Subject) -> bool {
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return false };
    // Nothing is mapped at address 0.
    let answer = reader::read_memory(subject, &memory, 0, &mut [0], true);
    matches!(answer, Err(ReadError::NoAnswer | ReadError::Refused))
}

/// Opens the file behind a mapping: through `/proc/PID/map_files`, which refers to the mapped file even if it was
/// deleted, replaced or never had a name, otherwise by its path below the root folder of the process. Never blocks on
/// FIFOs or devices, nor on a user's FUSE server.
///
/// # Errors
/// The reason why neither way works.
pub fn open(pid: u32, mapping: &Mapping) -> Result<File, NoSymbol> {
    match mapping.backing {
        Backing::File | Backing::DeletedFile | Backing::Memfd => {}
        Backing::Uprobes => return Err(NoSymbol::UprobeTrampoline),
        Backing::Anonymous => return Err(NoSymbol::JitWithoutMap),
        Backing::Vdso | Backing::Special => return Err(NoSymbol::SpecialMapping),
    }
    match served::open_link(&map_files_path(pid, mapping)) {
        Ok(file) => return Ok(file),
        Err(NoSymbol::PermissionDenied | NoSymbol::ModuleMissing) => {}
        Err(reason) => return Err(reason),
    }
    match mapping.backing {
        Backing::File => {
            let file = open_below_root(pid, mapping.path())?;
            if leads_elsewhere(&file, mapping) { Err(NoSymbol::ModuleMissing) } else { Ok(file) }
        }
        _ => Err(NoSymbol::ModuleDeleted),
    }
}

/// Like [`open`], but never another file than the one that the line of the mapping states. Because: a process may map
/// another file at the same addresses at any moment, and what is known of that line is then used for other processes.
///
/// # Errors
/// As of [`open`]; [`NoSymbol::ModuleMissing`] if another file is there by now.
pub fn open_as_listed(pid: u32, mapping: &Mapping) -> Result<File, NoSymbol> {
    let file = open(pid, mapping)?;
    let facts = file.metadata().map_err(|error| NoSymbol::from_io(&error))?;
    let device = DeviceNumber { major: major(facts.dev()), minor: minor(facts.dev()) };
    let is_listed = device == mapping.device && facts.ino() == mapping.inode;
    if is_listed || has_own_numbers(&file) { Ok(file) } else { Err(NoSymbol::ModuleMissing) }
}

/// Whether the file system may state other numbers for a file than for its mappings.
fn has_own_numbers(file: &File) -> bool {
    // include/uapi/linux/magic.h: overlayfs, btrfs, bcachefs, Ceph; and aufs.
    const SYSTEMS: [i64; 5] = [0x794c_7630, 0x9123_683e, 0xca45_1a4e, 0x00c3_6400, 0x6175_6673];
    rustix::fs::fstatfs(file).is_ok_and(|system| SYSTEMS.contains(&system.f_type))
}

/// Whether the path of a mapping leads to another file by now. Some file systems (btrfs, overlayfs) state another
/// device for a file than for its mappings: then nothing is known.
fn leads_elsewhere(file: &File, mapping: &Mapping) -> bool {
    let Ok(facts) = file.metadata() else { return false };
    let device = DeviceNumber { major: major(facts.dev()), minor: minor(facts.dev()) };
    device == mapping.device && facts.ino() != mapping.inode
}

/// Metadata of the file of a mapping, through its link. Never asks a user's FUSE server.
///
/// # Errors
/// [`NoSymbol::UserFile`], or a reason of the file system.
pub fn metadata(pid: u32, mapping: &Mapping) -> Result<Metadata, NoSymbol> {
    served::metadata_of_link(&map_files_path(pid, mapping))
}

/// The link through which the kernel gives access to the file of a mapping.
pub fn map_files_path(pid: u32, mapping: &Mapping) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.begin.0, mapping.end.0))
}

/// Opens a path as the process sees it. Links are resolved within its root folder: an absolute link in a container
/// must not lead to a file of the host. Never waits for a user's file server (FUSE).
///
/// # Errors
/// [`NoSymbol::NotRegularFile`], [`NoSymbol::UserFile`], or a reason of the file system.
pub fn open_below_root(pid: u32, path: &Path) -> Result<File, NoSymbol> {
    served::open_below_root(pid, path)
}

/// Opens a regular file of this machine by its path, or by a link in `/proc`; never waits for a user's file server.
///
/// # Errors
/// As of [`open_below_root`].
pub fn open_path(path: &Path) -> Result<File, NoSymbol> {
    if path.starts_with("/proc") {
        return served::open_link(path);
    }
    served::open_below_root(std::process::id(), path)
}

/// The image of the vdso, an ELF file that exists only in memory: the copy of this process, which the kernel gave to
/// all 64-bit programs of this boot. That of another process is not read, because a process may write to its own.
///
/// # Errors
/// [`NoSymbol::SpecialMapping`] when `mapping` is not of this size, as in a 32-bit program, or when this process has
/// none.
pub fn vdso(mapping: &Mapping) -> Result<&'static [u8], NoSymbol> {
    static IMAGE: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| own_vdso().ok().flatten()).as_deref();
    image.filter(|image| image.len() as u64 == mapping.len()).ok_or(NoSymbol::SpecialMapping)
}

fn own_vdso() -> io::Result<Option<Vec<u8>>> {
    let maps = parse(&std::fs::read("/proc/self/maps")?, LineFilter::Executable);
    let Some(found) = maps.mappings.iter().find(|mapping| mapping.backing == Backing::Vdso) else {
        return Ok(None);
    };
    let mut bytes = vec![0; usize::try_from(found.len().min(VDSO_BYTES_MAX)).unwrap_or_default()];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, found.begin.0)?;
    Ok(Some(bytes))
}

#[cfg(test)]
#[path = "maps_tests.rs"]
mod tests;
