//! Called functions: the functions for which the kernel programs read the object of the call.
//!
//! Owns: writing that map. Because: such a function is found on the thread that names frames, not on the one that
//! owns the tables. Does not: know which functions these are.

use deepctx_common::Plain as _;
use deepctx_common::python::CalledFunction;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

/// The map, by process.
#[derive(Debug)]
pub struct CalledFunctionMap(pub(super) MapHandle);

impl CalledFunctionMap {
    /// Sets or removes the function of a process. False if the map is full.
    pub fn set(&mut self, pid: u32, called: Option<CalledFunction>) -> bool {
        match called {
            Some(called) => self.0.update(pid.as_bytes(), called.as_bytes(), MapFlags::ANY).is_ok(),
            // A missing entry counts as removed.
            None => self.0.delete(pid.as_bytes()).is_ok(),
        }
    }
}
