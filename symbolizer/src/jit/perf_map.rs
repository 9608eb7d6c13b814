//! Perf maps: text files in which runtimes name the code that they generate (`/tmp/perf-PID.map`).
//!
//! Owns: which file is accepted, and the parser, pure and restartable. Because: the file grows while it is
//! read, its last line may be incomplete, and other users could have planted it. Does not: read it.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use deepctx_address_space::{NoSymbol, ProcessStatus, maps, running_for};

/// Longest name kept; generated names can contain whole type expressions.
pub(super) const NAME_BYTES_MAX: usize = 1024;

/// One line: a range of generated code and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfMapEntry {
    /// First address.
    pub begin: u64,
    /// Length in bytes, not 0.
    pub size: u64,
    /// Name, at most 1024 bytes.
    pub name: Box<str>,
}

/// The lines parsed from a part of a perf map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerfMap {
    /// Entries in the order of the file: a later one replaces earlier ones that it overlaps.
    pub entries: Vec<PerfMapEntry>,
    /// Malformed lines.
    pub malformed: u64,
    /// Bytes up to the end of the last complete line: where to continue reading.
    pub consumed: usize,
}

/// Parses lines of the form `START SIZE NAME` with hexadecimal numbers. Never fails: malformed lines are counted.
pub fn parse_perf_map(bytes: &[u8]) -> PerfMap {
    let consumed = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let mut map = PerfMap { consumed, ..PerfMap::default() };
    for line in bytes[..consumed].split(|b| *b == b'\n') {
        match parse_line(line) {
            Some(entry) => map.entries.push(entry),
            None => map.malformed += u64::from(!line.trim_ascii().is_empty()),
        }
    }
    map
}

fn parse_line(line: &[u8]) -> Option<PerfMapEntry> {
    let line = line.trim_ascii_start();
    let (begin, rest) = line.split_at(line.iter().position(|b| *b == b' ')?);
    let rest = rest.trim_ascii_start();
    let (size, name) = rest.split_at(rest.iter().position(|b| *b == b' ')?);
    let name = name.trim_ascii();
    let (begin, size) = (hex(begin)?, hex(size)?);
    begin.checked_add(size)?;
    if size == 0 || name.is_empty() {
        return None;
    }
    Some(PerfMapEntry { begin, size, name: truncated(name) })
}

fn hex(digits: &[u8]) -> Option<u64> {
    let digits = digits.strip_prefix(b"0x").or_else(|| digits.strip_prefix(b"0X")).unwrap_or(digits);
    let text = str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, 16).ok()
}

/// At most [`NAME_BYTES_MAX`] bytes of a name, as text.
pub(super) fn truncated(name: &[u8]) -> Box<str> {
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    String::from_utf8_lossy(name).into()
}

/// Slack when the time of a file is compared with the start of a process: it is of a coarse clock.
const SLACK: Duration = Duration::from_secs(1);

/// The perf map of a process.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) file: File,
    /// It was last changed before the process started: an earlier process with this number left it, as in a container
    /// that is started again.
    pub(super) is_leftover: bool,
}

/// Opens `/tmp/perf-PID.map` as the process sees it, with the pid in its own namespace. All users can write to
/// `/tmp`: only a file of the process's own user, or of root, is accepted.
pub(super) fn open(pid: u32) -> Result<Found, NoSymbol> {
    let status = ProcessStatus::read(pid).ok_or(NoSymbol::ProcessGone)?;
    let file = maps::open_below_root(pid, Path::new(&format!("/tmp/perf-{}.map", status.own_pid)))?;
    let facts = file.metadata().map_err(|e| NoSymbol::from_io(&e))?;
    if facts.uid() != status.user && facts.uid() != 0 {
        return Err(NoSymbol::PermissionDenied);
    }
    let age = facts.modified().ok().and_then(|changed| changed.elapsed().ok());
    let is_leftover = age.zip(running_for(pid)).is_some_and(|(age, running)| age > running + SLACK);
    Ok(Found { file, is_leftover })
}
