//! Owns: running `readelf` and parsing its output. Because: its printed tables are the independent second opinion. Does
//! not: know rules or tables of this project.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// A frame description as `--debug-dump=frames-interp` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// First address.
    pub begin: u64,
    /// One past the last address.
    pub end: u64,
    /// The augmentation of its CIE contains an `S`.
    pub is_signal: bool,
    /// It is in `.debug_frame`.
    pub is_debug: bool,
    /// Its rows, the first at `begin`.
    pub rows: Vec<Row>,
}

/// A printed row: the text of its three columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// First address.
    pub begin: u64,
    /// Canonical frame address: `rsp+8`, `exp`.
    pub cfa: Box<str>,
    /// Caller's frame pointer: `c-16`, `u`, `exp`, `r5` for a register; empty without such a column.
    pub fp: Box<str>,
    /// Return address, in the same form.
    pub ra: Box<str>,
}

/// Details from `--debug-dump=frames`: expressions as text, and whether `u` was explicit or a default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Last CFA expression.
    pub cfa: Option<String>,
    /// Last expression for the frame pointer.
    pub fp: Option<String>,
    /// The frame pointer was explicitly undefined.
    pub fp_undefined: bool,
    /// The return address was explicitly undefined.
    pub ra_undefined: bool,
}

/// The printed forms of a machine's registers.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Column of the frame pointer.
    pub fp: &'static str,
    /// Its operand in instructions.
    pub fp_operand: &'static str,
    /// Operand of the return address in instructions.
    pub ra_operand: &'static str,
}

/// A header line: `OFFSET LENGTH ID CIE "zR" …` or `OFFSET LENGTH ID FDE cie=OFFSET pc=BEGIN..END`.
enum Header<'l> {
    Cie { offset: u64, augmentation: &'l str },
    Fde { cie: u64, begin: u64, end: u64 },
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn header(line: &str) -> Option<Header<'_>> {
    let mut words = line.split_whitespace();
    let offset = hex(words.next()?)?;
    let (_length, _id, kind) = (words.next()?, words.next()?, words.next()?);
    match kind {
        "CIE" => Some(Header::Cie { offset, augmentation: words.next().unwrap_or_default() }),
        "FDE" => {
            let cie = hex(words.next()?.strip_prefix("cie=")?)?;
            let (begin, end) = words.next()?.strip_prefix("pc=")?.split_once("..")?;
            Some(Header::Fde { cie, begin: hex(begin)?, end: hex(end)? })
        }
        _ => None,
    }
}

fn lines_of(
    arguments: &[&str],
    path: &Path,
    mut each: impl FnMut(&str) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut child = Command::new("readelf")
        .args(arguments)
        .arg(path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut out = BufReader::with_capacity(1 << 20, child.stdout.take().expect("stdout was asked for"));
    let mut line = String::new();
    while out.read_line(&mut line)? > 0 {
        each(line.trim_end())?;
        line.clear();
    }
    drop(out);
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(std::io::Error::other(format!("readelf ended with {status}"))) }
}

fn unexpected(line: &str) -> std::io::Error {
    std::io::Error::other(format!("readelf printed something unexpected: {line:?}"))
}

/// Loaded executable segments of `path`, as begin and end.
pub fn texts(path: &Path) -> std::io::Result<Vec<(u64, u64)>> {
    let mut texts = Vec::new();
    lines_of(&["--program-headers", "--wide"], path, |line| {
        // LOAD offset virtual physical file-size memory-size flags (one to three words) alignment
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"LOAD")
            && words.len() > 7
            && words[6..words.len() - 1].concat().contains('E')
        {
            let number = |word: &str| word.strip_prefix("0x").and_then(hex).ok_or_else(|| unexpected(line));
            let begin = number(words[2])?;
            texts.push((begin, begin + number(words[5])?));
        }
        Ok(())
    })?;
    Ok(texts)
}

/// All frame descriptions of `path`.
pub fn frames(path: &Path, words: &Words) -> std::io::Result<Vec<Frame>> {
    let mut frames: Vec<Frame> = Vec::new();
    // By section and offset: whether the augmentation has an S, and the row of the initial instructions.
    let mut cies: HashMap<(bool, u64), (bool, Option<Row>)> = HashMap::new();
    let mut is_debug = false;
    let mut columns = [None; 2];
    let mut in_cie = None;
    lines_of(&["--debug-dump=frames-interp,no-follow-links"], path, |line| {
        if let Some(rest) = line.strip_prefix("Contents of the ") {
            is_debug = rest.contains("debug_frame");
            in_cie = None;
        } else if line.is_empty() {
        } else if line.contains(" LOC ") {
            // The columns follow the address and the CFA.
            let column = |name| line.split_whitespace().skip(2).position(|word| word == name);
            columns = [column(words.fp), column("ra")];
        } else if let Some(header) = header(line) {
            match header {
                Header::Cie { offset, augmentation } => {
                    cies.insert((is_debug, offset), (augmentation.contains('S'), None));
                    in_cie = Some(offset);
                }
                Header::Fde { cie, begin, end } => {
                    let (is_signal, row) = cies.get(&(is_debug, cie)).ok_or_else(|| unexpected(line))?;
                    // Without instructions, its only row is that of its CIE, which is not printed again.
                    let rows = row.iter().map(|row| Row { begin, ..row.clone() }).collect();
                    frames.push(Frame { begin, end, is_signal: *is_signal, is_debug, rows });
                    in_cie = None;
                }
            }
        } else if line.ends_with("ZERO terminator") {
            in_cie = None;
        } else {
            let mut cells = line.split_whitespace();
            let begin = cells.next().and_then(hex).ok_or_else(|| unexpected(line))?;
            let cfa = cells.next().ok_or_else(|| unexpected(line))?.into();
            // A register is printed as `r5 (rdi)`.
            let rest: Vec<&str> = cells.filter(|cell| !cell.starts_with('(')).collect();
            let column =
                |at: Option<usize>| at.and_then(|at| rest.get(at)).copied().unwrap_or_default().into();
            let row = Row { begin, cfa, fp: column(columns[0]), ra: column(columns[1]) };
            if let Some(offset) = in_cie {
                if let Some(cie) = cies.get_mut(&(is_debug, offset)) {
                    cie.1 = Some(row);
                }
            } else {
                let frame = frames.last_mut().ok_or_else(|| unexpected(line))?;
                // A later row for the same address replaces the earlier one, including that of the CIE.
                if frame.rows.last().is_some_and(|last| last.begin == row.begin) {
                    frame.rows.pop();
                }
                frame.rows.push(row);
            }
        }
        Ok(())
    })?;
    Ok(frames)
}

/// Details by section (whether `.debug_frame`), frame, and address of the first row for which they hold.
pub fn details(path: &Path, words: &Words) -> std::io::Result<HashMap<(bool, u64, u64), Details>> {
    let mut found = HashMap::new();
    let mut is_debug = false;
    let mut frame = None;
    let mut now = Details::default();
    let mut remembered = Vec::new();
    let mut at = 0;
    lines_of(&["--debug-dump=frames,no-follow-links"], path, |line| {
        if let Some(rest) = line.strip_prefix("Contents of the ") {
            is_debug = rest.contains("debug_frame");
            return Ok(());
        }
        if let Some(header) = header(line) {
            now = Details::default();
            remembered.clear();
            frame = match header {
                Header::Fde { begin, .. } => Some(begin),
                Header::Cie { .. } => None,
            };
            at = frame.unwrap_or_default();
            return Ok(());
        }
        let (Some(frame), Some(instruction)) = (frame, line.trim_start().strip_prefix("DW_CFA_")) else {
            return Ok(());
        };
        let was_default = now == Details::default();
        let (name, operands) = instruction.split_once([' ', ':']).unwrap_or((instruction, ""));
        let operands = operands.trim();
        if name.starts_with("advance_loc") || name == "set_loc" {
            at = operands.rsplit(' ').next().and_then(hex).ok_or_else(|| unexpected(line))?;
        } else if name == "remember_state" {
            remembered.push(now.clone());
        } else if name == "restore_state" {
            now = remembered.pop().unwrap_or_default();
        } else if name == "def_cfa_expression" {
            now.cfa = Some(operands.into());
        } else if let Some(operation) = operands.strip_prefix(words.fp_operand) {
            now.fp = (name == "expression").then(|| operation.trim().into());
            now.fp_undefined = name == "undefined";
        } else if operands.starts_with(words.ra_operand) {
            now.ra_undefined = name == "undefined";
        } else {
            return Ok(());
        }
        if !was_default || now != Details::default() {
            found.insert((is_debug, frame, at), now.clone());
        }
        Ok(())
    })?;
    Ok(found)
}
