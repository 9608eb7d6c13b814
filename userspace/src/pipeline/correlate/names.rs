//! Names: handles and host stubs of one process → their kernels.
//!
//! Owns: what each handle was called when it was made, or by the first activity of a launch of it. Because: a launch says
//! which handle, and only the calls before it said what that is. Does not: look into the process, or demangle.

use deepctx_profile::intern::FrameId;
use rustc_hash::FxHashMap;

/// Handles remembered in a process: some times the kernels of the largest frameworks' libraries.
const HANDLES_MAX: usize = 1 << 18;

/// A kernel by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// The kernel.
    pub(super) frame: FrameId,
    /// The module that its code came with; 0 when it is not known.
    pub(super) module: u64,
    /// It was found in the process, not told by a call.
    pub(super) recovered: bool,
}

impl Named {
    /// A kernel that a call told the name of.
    pub(super) fn told(frame: FrameId, module: u64) -> Self {
        Self { frame, module, recovered: false }
    }
}

/// The names of one process.
#[derive(Debug, Default)]
pub(super) struct Names {
    handles: FxHashMap<u64, Named>,
}

impl Names {
    /// A handle got a name. False when there is no room for it.
    pub(super) fn name(&mut self, handle: u64, named: Named) -> bool {
        if handle == 0 {
            return true;
        }
        if self.handles.len() >= HANDLES_MAX && !self.handles.contains_key(&handle) {
            return false;
        }
        self.handles.insert(handle, named);
        true
    }

    /// A handle stands for the same kernel as another one.
    pub(super) fn alias(&mut self, handle: u64, of: u64) -> bool {
        self.get(of).is_none_or(|named| self.name(handle, named))
    }

    /// The kernel of a handle.
    pub(super) fn get(&self, handle: u64) -> Option<Named> {
        self.handles.get(&handle).copied()
    }

    /// A module is gone: its handles may come again as something else.
    pub(super) fn unload(&mut self, module: u64) {
        if module != 0 {
            self.handles.retain(|_, named| named.module != module);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_lead_to_the_kernel_until_its_module_is_unloaded() {
        let (gemm, relu) = (FrameId::from_number(10), FrameId::from_number(11));
        let mut names = Names::default();
        names.name(1, Named::told(gemm, 100));
        names.name(2, Named::told(relu, 200));
        assert!(names.alias(3, 1) && names.alias(4, 99));
        assert_eq!(names.get(3).map(|named| named.frame), Some(gemm));
        assert_eq!(names.get(4), None, "an alias of nothing");
        names.unload(100);
        assert_eq!((names.get(1), names.get(3)), (None, None));
        assert!(names.get(2).is_some());
        names.unload(0);
        assert!(names.get(2).is_some());
    }
}
