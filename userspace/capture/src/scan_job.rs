//! Scan job: what a scan reads from a process before any table changes.
//!
//! Owns: reading the mappings, the files behind them and the interpreter. Because: a process controls how long that
//! takes, and other processes must be scanned meanwhile. Does not: change a table, or know other processes.

use std::collections::HashMap;

use deepctx_common::python::PythonProcess;
use deepctx_symbolizer::maps::{self, LineFilter, Maps};
use deepctx_symbolizer::python::{NoInterpreter, locate_process};
use deepctx_symbolizer::{NoSymbol, accountable_user};

use super::clock::monotonic_ns;
use super::executables::{Files, OpenedFiles};
use super::room::Room;

/// Begin and end of every mapping, to detect changes since the last scan.
pub(crate) type Shape = Vec<(u64, u64)>;

/// An interpreter, or why there is none.
pub(crate) type InterpreterResult = Result<PythonProcess, NoInterpreter>;

/// When to look for an interpreter.
pub(crate) enum PythonSearch {
    Never,
    /// If the first mapping is another one than when the interpreter was found: the record of an exec may be lost.
    IfProgramDiffers(Box<[u8]>),
    /// If the mappings differ from those of the last scan.
    IfMappingsDiffer(Shape),
    /// If the mappings differ from those of the parent process. With the same ones it has the same interpreter at the
    /// same place.
    UnlessInherited(InheritedPython),
    Always,
}

impl PythonSearch {
    /// The result for a process with these mappings, the first of which has this line; `None` if it is unchanged.
    fn found(
        self,
        first_line: &[u8],
        shape: &Shape,
        locate: impl FnOnce() -> InterpreterResult,
    ) -> Option<InterpreterResult> {
        match self {
            Self::Never => None,
            Self::IfProgramDiffers(before) => (program_of(&before) != program_of(first_line)).then(locate),
            Self::IfMappingsDiffer(before) => (before != *shape).then(locate),
            Self::UnlessInherited(of) if of.shape == *shape => Some(of.interpreter),
            Self::UnlessInherited(_) | Self::Always => Some(locate()),
        }
    }
}

/// The part of a first mapping's line that stays while the program runs: an upgrade deletes its file.
fn program_of(first_line: &[u8]) -> &[u8] {
    first_line.strip_suffix(b" (deleted)").unwrap_or(first_line)
}

/// The result for a parent process.
pub(crate) struct InheritedPython {
    pub(crate) interpreter: InterpreterResult,
    /// The mappings in which that was found.
    pub(crate) shape: Shape,
}

/// A scan that has begun.
pub(crate) struct ScanJob {
    pub(crate) pid: u32,
    /// Number of the program that the process ran when the scan began.
    pub(crate) program: u64,
    pub(crate) python: PythonSearch,
    /// Users whose processes publish nothing new for now, and the table that was full.
    pub(crate) held_back: HashMap<u32, Room>,
    pub(crate) files: Files,
}

/// The reading of a scan.
pub(crate) struct ScanReading {
    pub(crate) pid: u32,
    pub(crate) program: u64,
    pub(crate) process: Result<ProcessReading, NoSymbol>,
}

/// The reading of a live process.
pub(crate) struct ProcessReading {
    /// When its mappings were read, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) time_ns: u64,
    /// The user who is charged for it.
    pub(crate) account: u32,
    /// Its executable mappings.
    pub(crate) maps: Maps,
    pub(crate) shape: Shape,
    /// The files of its mappings, unless nothing of its user is published.
    pub(crate) files: Result<OpenedFiles, Room>,
    /// The interpreter, if it was looked for.
    pub(crate) interpreter: Option<InterpreterResult>,
}

impl ScanJob {
    /// Reads the process.
    pub(crate) fn read(self) -> ScanReading {
        let Self { pid, program, .. } = self;
        ScanReading { pid, program, process: self.read_process() }
    }

    fn read_process(self) -> Result<ProcessReading, NoSymbol> {
        let Self { pid, python, held_back, files, .. } = self;
        let time_ns = monotonic_ns();
        let account = accountable_user(pid).ok_or(NoSymbol::ProcessGone)?;
        let maps = maps::read(pid, LineFilter::Executable)?;
        let shape: Shape = maps.mappings.iter().map(|m| (m.begin.0, m.end.0)).collect();
        if let Some(&room) = held_back.get(&account) {
            return Ok(ProcessReading { time_ns, account, maps, shape, files: Err(room), interpreter: None });
        }
        let located = || locate_process(pid, &maps.mappings).map(|(interpreter, _)| interpreter.process);
        let search = || python.found(&maps.first_line, &shape, located);
        let (files, interpreter) = files.open_beside(pid, &maps.mappings, search);
        Ok(ProcessReading { time_ns, account, maps, shape, files: Ok(files), interpreter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_looked_for_where_mappings_are_new() {
        let shape = |begin: u64| vec![(begin, begin + 1)];
        let inherited = |begin| {
            let interpreter = Err(NoInterpreter::NotPython);
            PythonSearch::UnlessInherited(InheritedPython { interpreter, shape: shape(begin) })
        };
        let check = |search: PythonSearch, expect: Option<NoInterpreter>| {
            let found = search.found(b"first", &shape(7), || Err(NoInterpreter::NoVersion));
            assert_eq!(found.map(|located| located.err().unwrap()), expect);
        };
        check(PythonSearch::Never, None);
        check(PythonSearch::IfProgramDiffers(Box::new(*b"first")), None);
        check(PythonSearch::IfProgramDiffers(Box::new(*b"first (deleted)")), None);
        check(PythonSearch::IfProgramDiffers(Box::new(*b"other")), Some(NoInterpreter::NoVersion));
        check(PythonSearch::Always, Some(NoInterpreter::NoVersion));
        check(PythonSearch::IfMappingsDiffer(shape(7)), None);
        check(PythonSearch::IfMappingsDiffer(shape(8)), Some(NoInterpreter::NoVersion));
        check(inherited(7), Some(NoInterpreter::NotPython));
        check(inherited(8), Some(NoInterpreter::NoVersion));
    }
}
