//! Layers: the function of a process that calls modules of PyTorch, reported to the kernel programs.
//!
//! Owns: recognizing that function among the named ones, by file and name, and writing it to the kernel programs'
//! map. Because: they read an argument of that function alone, and do not know names. Does not: read modules (the
//! symbolizer does), or own the map (the capture does).

use deepctx_capture::CalledFunctionMap;
use deepctx_common::python::CalledFunction;
use deepctx_names::is_torch_module_file;
use deepctx_pipeline::symbols::PythonReference;
use deepctx_symbolizer::python::{NoPythonName, PythonFrame, PythonSymbols};
use rustc_hash::FxHashMap;

/// Since PyTorch 2.1 this function calls the other one, which has the module in a variable of a closure.
const WRAPPED: &str = "_wrapped_call_impl";
/// Up to PyTorch 2.0.
const PLAIN: &str = "_call_impl";

/// A code object: its address, and a checksum that detects a reused address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CodeObject {
    pub(super) address: u64,
    pub(super) checksum: u32,
}

impl CodeObject {
    pub(super) fn of(frame: &PythonReference) -> Self {
        Self { address: frame.code, checksum: frame.checksum }
    }
}

/// The function of each process.
#[derive(Debug, Default)]
pub(super) struct Layers {
    map: Option<CalledFunctionMap>,
    reported: FxHashMap<u32, ReportedFunction>,
}

/// A function that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReportedFunction {
    code: CodeObject,
    wrapped: bool,
}

impl Layers {
    /// Reports functions to `map`; without one, none is searched for.
    pub(super) fn new(map: Option<CalledFunctionMap>) -> Self {
        Self { map, reported: FxHashMap::default() }
    }

    /// Whether functions are searched for.
    pub(super) fn is_on(&self) -> bool {
        self.map.is_some()
    }

    /// A function was named.
    pub(super) fn named(&mut self, pid: u32, code: CodeObject, frame: &PythonFrame, python: &PythonSymbols) {
        let Some(map) = &mut self.map else { return };
        let wrapped = match &*frame.name {
            WRAPPED => true,
            PLAIN => false,
            _ => return,
        };
        if !is_torch_module_file(&frame.file) {
            return;
        }
        let now = ReportedFunction { code, wrapped };
        let known = self.reported.get(&pid);
        if known == Some(&now) || known.is_some_and(|known| known.wrapped && !wrapped) {
            return;
        }
        if let Some(called) = python.called(pid, code.address)
            && map.set(pid, Some(called))
        {
            self.reported.insert(pid, now);
        }
    }

    /// Compares the reported functions with the process: another function at the address is not called on a module.
    pub(super) fn revalidate(&mut self, python: &mut PythonSymbols) {
        let mut gone = Vec::new();
        for (&pid, ReportedFunction { code, .. }) in &self.reported {
            let named = python.frame(pid, code.address, code.checksum, u32::MAX);
            if matches!(named, Err(NoPythonName::Replaced)) {
                gone.push(pid);
            }
        }
        gone.into_iter().for_each(|pid| self.forget(pid));
    }

    /// The process has ended, or runs another program.
    pub(super) fn forget(&mut self, pid: u32) {
        if self.reported.remove(&pid).is_some()
            && let Some(map) = &mut self.map
        {
            map.set(pid, None::<CalledFunction>);
        }
    }
}
