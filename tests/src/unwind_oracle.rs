//! Every row of an unwind table against the output of `readelf --debug-dump=frames-interp` for the same file.
//!
//! Owns: the comparison and its report. Because: a wrong row gives a wrong stack that looks right; the only proof is to
//! compare all rows with an independent reader. Does not: choose files beyond [`default_files`], print.
//!
//! For each printed row, the table must give the expected rule at its first and last address and at each page
//! boundary within; between frames it must give none. Forms that the table does not support must be unsupported in
//! the table too, and are counted under a name.

mod aarch64;
pub mod readelf;
mod x86_64;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use deepctx_common::unwind::{PAGE_SHIFT, Rule, rule_detail, rule_kind};
use deepctx_symbolizer::Arch;
use deepctx_symbolizer::unwind_rows::{ENTRY_BYTES, NoTable, PADDING_MAX, UnwindTable};

use readelf::{Details, Frame, Row};

/// Mismatches kept as text; all are counted.
const EXAMPLES_MAX: usize = 20;

/// Why no comparison took place.
#[derive(Debug, thiserror::Error)]
pub enum NotCompared {
    /// The file cannot be read, `readelf` cannot be run, or its output was not understood.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// The file has no table.
    #[error("{0}: {1}")]
    NoTable(PathBuf, NoTable),
}

/// Outcome for one file.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The file.
    pub file: PathBuf,
    /// Frames printed.
    pub frames: u64,
    /// Rows compared.
    pub rows: u64,
    /// Of these, rows with a supported rule.
    pub supported: u64,
    /// The others, by form.
    pub unsupported: BTreeMap<String, u64>,
    /// Rows replaced by a rule of a kind that no frame description contains.
    pub replaced: u64,
    /// Gaps between frames compared.
    pub gaps: u64,
    /// Frames not compared, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Number of mismatches.
    pub mismatches: u64,
    /// The first mismatches.
    pub examples: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, rows, supported, replaced, gaps, mismatches, .. } = self;
        write!(f, "{}: {frames} frames, {rows} rows, {supported} supported, ", self.file.display())?;
        write!(f, "{replaced} replaced, {gaps} gaps, {mismatches} mismatches")?;
        for (form, rows) in &self.unsupported {
            write!(f, "\n  unsupported: {rows} rows: {form}")?;
        }
        for (reason, frames) in &self.skipped {
            write!(f, "\n  not compared: {frames} frames: {reason}")?;
        }
        for example in &self.examples {
            write!(f, "\n  mismatch: {example}")?;
        }
        Ok(())
    }
}

/// The rule expected for a printed row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ExpectedRule {
    Rule(Rule),
    /// An unsupported form, as text.
    Unsupported(String),
}

/// Compares the table of `path`, a file for any machine of [`Arch`], with `readelf`.
pub fn compare(path: &Path) -> Result<Report, NotCompared> {
    let io = |error| NotCompared::Io(path.into(), error);
    let bytes = std::fs::read(path).map_err(io)?;
    let arch = arch(&bytes);
    let table = UnwindTable::from_elf_for(&bytes, arch)
        .map_err(|reason| NotCompared::NoTable(path.into(), reason))?;
    compare_table(path, &table, arch, entry(&bytes)).map_err(io)
}

/// The machine of an ELF file; for any other file, the host's.
fn arch(bytes: &[u8]) -> Arch {
    let number = bytes.get(18..20).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
    number.and_then(Arch::of_elf_machine).unwrap_or(Arch::NATIVE)
}

/// `e_entry` of an ELF file.
fn entry(bytes: &[u8]) -> u64 {
    bytes.get(24..32).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn compare_table(path: &Path, table: &UnwindTable, arch: Arch, entry: u64) -> std::io::Result<Report> {
    let mut report = Report { file: path.into(), ..Report::default() };
    let texts = readelf::texts(path)?;
    let words = match arch {
        Arch::X86_64 => &x86_64::WORDS,
        Arch::Aarch64 => &aarch64::WORDS,
    };
    let mut frames = readelf::frames(path, words)?;
    let details = readelf::details(path, words)?;
    report.frames = frames.len() as u64;
    let mut skip = |frame: &Frame| {
        let reason = if frame.begin == frame.end {
            "empty"
        } else if !texts.iter().any(|text| {
            (text.0..text.1).contains(&(frame.begin + u64::from(frame.is_signal))) && frame.begin > 0
        }) {
            "outside the text"
        } else {
            return true;
        };
        *report.skipped.entry(reason).or_default() += 1;
        false
    };
    frames.retain(|frame| skip(frame));
    frames.sort_by_key(|frame| (frame.begin, frame.end));
    let mut covered: Option<u64> = None;
    for (at, frame) in frames.iter().enumerate() {
        if let Some(covered) = covered.filter(|&covered| frame.begin > covered) {
            report.gap(table, covered, frame.begin, entry);
        }
        let overlaps = covered.is_some_and(|covered| covered > frame.begin)
            || frames.get(at + 1).is_some_and(|next| next.begin < frame.end);
        covered = covered.max(Some(frame.end));
        if overlaps {
            *report.skipped.entry("overlapping").or_default() += 1;
            continue;
        }
        report.frame(table, arch, frame, |row| details.get(&(frame.is_debug, frame.begin, row)));
    }
    Ok(report)
}

impl Report {
    fn frame<'d>(
        &mut self,
        table: &UnwindTable,
        arch: Arch,
        frame: &Frame,
        details: impl Fn(u64) -> Option<&'d Details>,
    ) {
        let mut latest = &Details::default();
        for (at, row) in frame.rows.iter().enumerate() {
            if let Some(details) = details(row.begin) {
                latest = details;
            }
            let end = frame.rows.get(at + 1).map_or(frame.end, |next| next.begin).min(frame.end);
            if row.begin >= end {
                continue;
            }
            self.rows += 1;
            let expected = if frame.is_signal {
                ExpectedRule::Rule(Rule { cfa: rule_kind::SIGNAL, ..Rule::default() })
            } else {
                expected(arch, row, latest)
            };
            match &expected {
                ExpectedRule::Rule(_) => self.supported += 1,
                ExpectedRule::Unsupported(form) => *self.unsupported.entry(form.clone()).or_default() += 1,
            }
            let page = 1 << PAGE_SHIFT;
            let boundaries = (row.begin / page + 1..=(end - 1) / page).map(|number| number * page);
            for address in boundaries.chain([row.begin, end - 1]) {
                let found = table.lookup(address);
                if found.is_some_and(|found| found.cfa >= rule_kind::X86_SWITCHED) {
                    self.replaced += 1;
                    break;
                }
                let same = match (&expected, &found) {
                    (ExpectedRule::Rule(expected), Some(found)) => expected == found,
                    (ExpectedRule::Unsupported(_), Some(found)) => {
                        found.cfa == rule_kind::UNSUPPORTED && found.detail != 0
                    }
                    (_, None) => false,
                };
                if !same {
                    self.mismatch(format!(
                        "{address:#x} of row {row:?}: expected {expected:?}, found {found:?}"
                    ));
                    break;
                }
            }
        }
    }

    fn gap(&mut self, table: &UnwindTable, begin: u64, end: u64, entry: u64) {
        if end - begin <= PADDING_MAX {
            return;
        }
        self.gaps += 1;
        // Rules derived from instructions cannot be compared with any other reader.
        let is_derived = |rule: &Rule| rule.detail == rule_detail::DERIVED || rule.cfa == rule_kind::REGISTER;
        let at = |address: u64| table.lookup(address).unwrap_or_default();
        // Before a derived function or an entry point nearby, there is padding, where the previous rule continues.
        let near = begin..end.min(begin + PADDING_MAX + 1);
        let is_marked_entry = |address: u64| address == entry && at(address).cfa == rule_kind::END;
        let is_padding = near.clone().any(|address| is_derived(&at(address)) || is_marked_entry(address));
        for address in [begin, end - 1] {
            let found = at(address);
            let is_entry = (entry..entry.saturating_add(ENTRY_BYTES)).contains(&address);
            let is_right = found.cfa == rule_kind::NONE
                || is_derived(&found)
                || is_entry && found.cfa == rule_kind::END
                || is_padding && near.contains(&address);
            if !is_right {
                self.mismatch(format!("{address:#x} between frames: found a rule of kind {}", found.cfa));
            }
        }
    }

    fn mismatch(&mut self, words: String) {
        self.mismatches += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(words);
        }
    }
}

/// The rule expected for a printed row.
fn expected(arch: Arch, row: &Row, details: &Details) -> ExpectedRule {
    let rule = match arch {
        Arch::X86_64 => x86_64::expected(row, details),
        Arch::Aarch64 => aarch64::expected(row, details),
    };
    rule.map_or_else(ExpectedRule::Unsupported, ExpectedRule::Rule)
}

/// `rsp+8` → (`rsp`, 8).
fn register_and_offset(text: &str) -> Option<(&str, i32)> {
    let (register, offset) = text.split_at(text.find(['+', '-'])?);
    Some((register, offset.parse().ok()?))
}

/// `c-16` → −16.
fn at_cfa(text: &str) -> Option<i32> {
    text.strip_prefix('c')?.parse().ok()
}

/// The key under which an unsupported form is counted.
fn unsupported(column: &str, form: &str) -> String {
    format!("{column} {form}")
}

/// Libraries that exist wherever the tests run: those mapped by this process, the compiler's C++ library, the
/// interpreter and library of `python3`, and the paths in `DEEPCTX_ORACLE_FILES` (separated by colons).
pub fn default_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_to_string("/proc/self/maps")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
        .filter(|path| path.to_string_lossy().contains(".so"))
        .collect();
    let asked = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    files.extend(asked("gcc", &["-print-file-name=libstdc++.so.6"]).map(PathBuf::from));
    let script = "import sys, sysconfig as s; v = s.get_config_var; \
                  print(sys.executable); print(v('LIBDIR') + '/' + (v('INSTSONAME') or ''))";
    let python = asked("python3", &["-c", script]).unwrap_or_default();
    files.extend(python.lines().map(PathBuf::from));
    files.extend(std::env::var_os(FILES_VARIABLE).iter().flat_map(std::env::split_paths));
    let mut files: Vec<PathBuf> = files.iter().filter_map(|file| file.canonicalize().ok()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files.dedup();
    files
}

/// Environment variable with additional files to compare, separated by colons.
pub const FILES_VARIABLE: &str = "DEEPCTX_ORACLE_FILES";

/// Where Debian's cross compilers install aarch64 libraries.
const AARCH64_FOLDER: &str = "/usr/aarch64-linux-gnu/lib";

/// Libraries of aarch64, if they are installed.
pub fn aarch64_files() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(AARCH64_FOLDER) else { return Vec::new() };
    let mut files: Vec<PathBuf> =
        entries.flatten().filter_map(|entry| entry.path().canonicalize().ok()).collect();
    // Other files there are linker scripts.
    files.retain(|file| {
        std::fs::read(file)
            .is_ok_and(|bytes| bytes.starts_with(b"\x7fELF\x02\x01\x01") && bytes.get(16) == Some(&3))
    });
    files.sort();
    files.dedup();
    files
}
