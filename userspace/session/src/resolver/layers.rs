//! Layers: the function of a process that calls modules of PyTorch, reported to the kernel programs.
//!
//! Owns: recognizing that function among the named ones, by file and name, and writing it to the kernel programs'
//! map. Because: they read an argument of that function alone, and do not know names. Does not: read modules (the
//! symbolizer does), or own the map (the capture does).

use deepctx_capture::CalledFunctionMap;
use deepctx_common::python::{CALLED_MAX, CalledFunction};
use deepctx_common::reason::Reason;
use deepctx_names::is_torch_module_file;
use deepctx_pipeline::symbols::PythonReference;
use deepctx_symbolizer::python::{NoPythonName, PythonFrame, PythonSymbols};
use deepctx_symbolizer::shares::Shares;
use deepctx_symbolizer::{GONE_USER, accountable_user};
use rustc_hash::{FxHashMap, FxHashSet};

use super::reason::NO_ROOM_FOR_LAYERS;

/// Since PyTorch 2.1 this function calls the other one, which has the module in a variable of a closure.
const WRAPPED: &str = "_wrapped_call_impl";
/// Up to PyTorch 2.0.
const PLAIN: &str = "_call_impl";
/// How much of what stays free one user may have, as of the kernel's other tables.
const SHARE_MULTIPLE: usize = 4;

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
#[derive(Debug)]
pub(super) struct Layers {
    map: Option<CalledFunctionMap>,
    reported: FxHashMap<u32, ReportedFunction>,
    shares: Shares,
    /// Processes that run and have no room in the map.
    refused: FxHashSet<u32>,
    refusals: u64,
}

/// A function that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReportedFunction {
    code: CodeObject,
    wrapped: bool,
    /// The user charged for the entry.
    user: u32,
}

impl Layers {
    /// Reports functions to `map`; without one, none is searched for.
    pub(super) fn new(map: Option<CalledFunctionMap>) -> Self {
        Self {
            map,
            reported: FxHashMap::default(),
            shares: Shares::new(CALLED_MAX as usize, SHARE_MULTIPLE),
            refused: FxHashSet::default(),
            refusals: 0,
        }
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
        let known = self.reported.get(&pid).copied();
        let is_known = |known: ReportedFunction| match known.wrapped == wrapped {
            true => known.code == code,
            false => known.wrapped,
        };
        if known.is_some_and(is_known) {
            return;
        }
        let Some(called) = python.called(pid, code.address) else { return };
        let user = known.map_or_else(|| accountable_user(pid).unwrap_or(GONE_USER), |known| known.user);
        let has_room = known.is_some() || self.shares.may_have(user, 1);
        if !has_room || !map.set(pid, Some(called)) {
            self.refusals += u64::from(self.refused.insert(pid));
            return;
        }
        self.refused.remove(&pid);
        if self.reported.insert(pid, ReportedFunction { code, wrapped, user }).is_none() {
            self.shares.charge(user, 1);
        }
    }

    /// What is missing, and how often.
    pub(super) fn gaps(&self) -> [(&'static Reason, u64); 1] {
        [(NO_ROOM_FOR_LAYERS, self.refusals)]
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
        self.refused.remove(&pid);
        if let Some(reported) = self.reported.remove(&pid)
            && let Some(map) = &mut self.map
        {
            map.set(pid, None::<CalledFunction>);
            self.shares.give(reported.user, 1);
        }
    }
}
