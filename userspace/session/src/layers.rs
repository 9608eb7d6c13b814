//! Layers: which function of a process calls modules of PyTorch, and who is told.
//!
//! Owns: recognising that function among those that are named, by file and name, and telling the kernel programs of it.
//! Because: they read an argument of that function alone, and who names functions knows nothing of kernel programs.
//! Does not: read modules (the symbolizer does), or write maps (the capture does).

use deepctx_common::python::Called;
use deepctx_names::is_torch_module_file;
use deepctx_symbolizer::python::{PythonFrame, PythonSymbols};
use rustc_hash::FxHashMap;

use deepctx_capture::called::CalledMap;

/// From 2.1 on it calls the other one, in which the module is a variable of a closure.
const WRAPPED: &str = "_wrapped_call_impl";
/// Up to 2.0.
const PLAIN: &str = "_call_impl";

/// What was told of which process.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    map: Option<CalledMap>,
    told: FxHashMap<u32, Told>,
}

/// A function that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    code: u64,
    checksum: u32,
    wrapped: bool,
}

impl Layers {
    /// Tells functions to `map`; without one, none is looked for.
    pub(crate) fn new(map: Option<CalledMap>) -> Self {
        Self { map, told: FxHashMap::default() }
    }

    /// Whether anyone wants to know.
    pub(crate) fn is_on(&self) -> bool {
        self.map.is_some()
    }

    /// A function was named.
    pub(crate) fn named(
        &mut self,
        pid: u32,
        (code, checksum): (u64, u32),
        frame: &PythonFrame,
        python: &PythonSymbols,
    ) {
        let Some(map) = &mut self.map else { return };
        let wrapped = match &*frame.name {
            WRAPPED => true,
            PLAIN => false,
            _ => return,
        };
        if !is_torch_module_file(&frame.file) {
            return;
        }
        let now = Told { code, checksum, wrapped };
        let known = self.told.get(&pid);
        if known == Some(&now) || known.is_some_and(|known| known.wrapped && !wrapped) {
            return;
        }
        if let Some(called) = python.called(pid, code)
            && map.set(pid, Some(called))
        {
            self.told.insert(pid, now);
        }
    }

    /// Compares what was told with the process: another function at the address is not called on a module.
    pub(crate) fn compare(&mut self, python: &mut PythonSymbols) {
        let mut gone = Vec::new();
        for (&pid, told) in &self.told {
            if let Err(deepctx_symbolizer::python::NoPythonName::Replaced) =
                python.frame(pid, told.code, told.checksum, u32::MAX)
            {
                gone.push(pid);
            }
        }
        gone.into_iter().for_each(|pid| self.forget(pid));
    }

    /// The process has ended, or has another program.
    pub(crate) fn forget(&mut self, pid: u32) {
        if self.told.remove(&pid).is_some()
            && let Some(map) = &mut self.map
        {
            map.set(pid, None::<Called>);
        }
    }
}
