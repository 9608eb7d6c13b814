//! Called functions: those whose calls show what they are made on, as the kernel programs know them.
//!
//! Owns: writing that map. Because: whoever finds such a function names frames on another thread than that which looks
//! after tables. Does not: know which functions those are.

use deepctx_common::Plain as _;
use deepctx_common::python::CalledFunction;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

/// The map, by process.
#[derive(Debug)]
pub struct CalledFunctionMap(pub(super) MapHandle);

impl CalledFunctionMap {
    /// Sets or removes the function of a process. False when there are more processes than the map has room for.
    pub fn set(&mut self, pid: u32, called: Option<CalledFunction>) -> bool {
        match called {
            Some(called) => self.0.update(pid.as_bytes(), called.as_bytes(), MapFlags::ANY).is_ok(),
            // One that is not there is removed already.
            None => self.0.delete(pid.as_bytes()).is_ok(),
        }
    }
}
