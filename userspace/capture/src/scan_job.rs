//! Scan job: what a scan reads of a process, before any table changes.
//!
//! Owns: reading the mappings, the files behind them and the interpreter. Because: a process decides how long that
//! takes, and others must be scanned meanwhile. Does not: change a table, or know of other processes.

use std::collections::HashMap;

use deepctx_common::python::PythonProcess;
use deepctx_symbolizer::maps::{self, LineFilter, Maps};
use deepctx_symbolizer::python::{NoInterpreter, locate_process};
use deepctx_symbolizer::{NoSymbol, accountable_user};

use super::clock::monotonic_ns;
use super::executables::{Files, OpenedFiles};
use super::room::Room;

/// Begin and end of every mapping, to see whether a scan found something new.
pub(crate) type Shape = Vec<(u64, u64)>;

/// When an interpreter is looked for.
pub(crate) enum PythonSearch {
    Never,
    /// Where the mappings are others than at the last scan.
    IfMappingsDiffer(Shape),
    Always,
}

/// A scan that has begun.
pub(crate) struct ScanJob {
    pub(crate) pid: u32,
    /// Numbers the program that the process ran when the scan began.
    pub(crate) program: u64,
    pub(crate) python: PythonSearch,
    /// Users of whose processes nothing new is published for now, and of what there was too little.
    pub(crate) held_back: HashMap<u32, Room>,
    pub(crate) files: Files,
}

/// What a scan read.
pub(crate) struct ScanReading {
    pub(crate) pid: u32,
    pub(crate) program: u64,
    pub(crate) process: Result<ProcessReading, NoSymbol>,
}

/// What was read of a process that is there.
pub(crate) struct ProcessReading {
    /// When its mappings were read, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) time_ns: u64,
    /// Who answers for it.
    pub(crate) account: u32,
    /// Its executable mappings.
    pub(crate) maps: Maps,
    pub(crate) shape: Shape,
    /// The files of its mappings, unless nothing of its user is published.
    pub(crate) files: Result<OpenedFiles, Room>,
    /// The interpreter, if it was looked for.
    pub(crate) interpreter: Option<Result<PythonProcess, NoInterpreter>>,
}

impl ScanJob {
    /// Reads it.
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
        let search = match python {
            PythonSearch::Never => false,
            PythonSearch::IfMappingsDiffer(before) => before != shape,
            PythonSearch::Always => true,
        };
        let located = || locate_process(pid, &maps.mappings).map(|(interpreter, _)| interpreter.process);
        let (files, interpreter) = files.open_beside(pid, &maps.mappings, || search.then(located));
        Ok(ProcessReading { time_ns, account, maps, shape, files: Ok(files), interpreter })
    }
}
