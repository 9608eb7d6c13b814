//! Names: handles and host stubs of one process → their kernels.
//!
//! Owns: the name of each handle, from its creation or from the first activity of one of its launches. Because: a
//! launch passes a handle, and only earlier calls gave the name for it. Does not: read the process, or demangle.

use std::collections::hash_map::Entry;

use deepctx_profile::intern::FrameId;
use rustc_hash::FxHashMap;

use crate::input::CodeFacts;

/// Handles remembered per process: several times the kernels of the largest frameworks' libraries.
const HANDLES_MAX: usize = 1 << 18;
/// Names that a collector may send: kernels of a process.
pub(super) const REPORTED_MAX: usize = 1 << 17;
/// Handles without a name that are remembered, and looked up together.
const UNNAMED_MAX: usize = 1 << 14;
/// A handle without a name is looked up again after this long, then after twice as long, and so on.
const AGAIN_NS: u64 = 500_000_000;
const TRIES_MAX: u32 = 7;
/// Launches of a handle whose stacks are searched for a stub.
const STUBS_MAX: u32 = 8;

/// A kernel by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedKernel {
    /// The kernel.
    pub(super) frame: FrameId,
    /// The module of its code; 0 if unknown.
    pub(super) module: u64,
    /// It was found in process memory, not reported by a call.
    pub(super) recovered: bool,
    /// Facts from its code, if found.
    pub(super) code: Option<CodeFacts>,
}

/// One kernel of a process: kernels of the same name in different modules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KernelKey {
    /// Its name.
    pub(crate) frame: FrameId,
    /// The module of its code; 0 if unknown.
    pub(crate) module: u64,
}

impl NamedKernel {
    /// Which kernel it is.
    pub(super) fn key(self) -> KernelKey {
        KernelKey { frame: self.frame, module: self.module }
    }

    /// A kernel whose name a call reported.
    pub(super) fn new(frame: FrameId, module: u64) -> Self {
        Self { frame, module, recovered: false, code: None }
    }
}

/// The names of one process.
#[derive(Debug, Default)]
pub(super) struct Names {
    handles: FxHashMap<u64, NamedKernel>,
    /// How many of them each known module has.
    modules: FxHashMap<u64, usize>,
    /// Handles launched without a name, with the launch of their last look-up, and the number of look-ups.
    unnamed: FxHashMap<u64, (u64, u32)>,
    /// Handles without a name, and how many of their launches were not below a stub.
    without_stub: FxHashMap<u64, u32>,
    /// Those to be looked up now.
    wanted: Vec<(u64, u64)>,
}

impl Names {
    /// A handle got a name. False if there is no room for it.
    pub(super) fn name(&mut self, handle: u64, named: NamedKernel) -> bool {
        if handle == 0 {
            return true;
        }
        if self.handles.len() >= HANDLES_MAX && !self.handles.contains_key(&handle) {
            return false;
        }
        if let Some(before) = self.handles.insert(handle, named)
            && let Entry::Occupied(mut count) = self.modules.entry(before.module)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if named.module != 0 {
            *self.modules.entry(named.module).or_default() += 1;
        }
        true
    }

    /// A handle means the same kernel as another one.
    pub(super) fn alias(&mut self, handle: u64, of: u64) -> bool {
        self.get(of).is_none_or(|named| self.name(handle, named))
    }

    /// The kernel of a handle.
    pub(super) fn get(&self, handle: u64) -> Option<NamedKernel> {
        self.handles.get(&handle).copied()
    }

    /// The kernels of a module, as far as calls reported them; none for an unknown module.
    pub(super) fn of_module(&self, module: u64) -> impl Iterator<Item = FrameId> {
        let of_module = self.handles.values().filter(move |named| module != 0 && named.module == module);
        of_module.map(|named| named.frame)
    }

    /// How many handles of a module calls reported; 0 for an unknown module.
    pub(super) fn handles_of(&self, module: u64) -> usize {
        self.modules.get(&module).copied().unwrap_or(0)
    }

    /// Whether to search the stack of a launch of this handle for a stub. The number of searches is limited.
    pub(super) fn may_have_stub(&mut self, handle: u64) -> bool {
        if self.without_stub.len() >= UNNAMED_MAX && !self.without_stub.contains_key(&handle) {
            return false;
        }
        let searched = self.without_stub.entry(handle).or_insert(0);
        *searched = (*searched + 1).min(STUBS_MAX + 1);
        *searched <= STUBS_MAX
    }

    /// A handle that no call named was launched at this time: looks it up at increasing intervals.
    pub(super) fn want(&mut self, handle: u64, time_ns: u64) {
        if handle == 0 || self.unnamed.len() >= UNNAMED_MAX && !self.unnamed.contains_key(&handle) {
            return;
        }
        let (asked_ns, tries) = self.unnamed.entry(handle).or_insert((0, 0));
        let wait = if *tries == 0 { 0 } else { AGAIN_NS << *tries };
        if *tries < TRIES_MAX && time_ns >= asked_ns.saturating_add(wait) {
            (*asked_ns, *tries) = (time_ns, *tries + 1);
            self.wanted.push((handle, time_ns));
        }
    }

    /// The handles to be looked up, each with the time of its launch.
    pub(super) fn wanted(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.wanted)
    }

    /// Whether a handle still waits for this answer. False if a call has named it meanwhile, or if modules were
    /// unloaded since: then the kernel found may be another one.
    pub(super) fn is_wanted(&self, handle: u64, asked_ns: u64) -> bool {
        self.get(handle).is_none() && self.unnamed.get(&handle).is_some_and(|(last, _)| *last == asked_ns)
    }

    /// A module is gone: its handles may be reused. So may those that were found in memory, whose module is unknown.
    pub(super) fn unload(&mut self, module: u64) {
        if module != 0 {
            // A recovered name has no module, so that it is in no count.
            self.handles.retain(|_, named| named.module != module && !named.recovered);
            self.modules.remove(&module);
            self.unnamed.clear();
            self.without_stub.clear();
            self.wanted.clear();
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
        names.name(1, NamedKernel::new(gemm, 100));
        names.name(2, NamedKernel::new(relu, 200));
        assert!(names.alias(3, 1) && names.alias(4, 99));
        assert_eq!(names.get(3).map(|named| named.frame), Some(gemm));
        assert_eq!(names.get(4), None, "an alias of nothing");
        names.unload(100);
        assert_eq!((names.get(1), names.get(3)), (None, None));
        assert!(names.get(2).is_some());
        names.unload(0);
        assert!(names.get(2).is_some());
    }

    #[test]
    fn handles_are_counted_by_module() {
        let frame = FrameId::from_number(10);
        let mut names = Names::default();
        // The last one gives a handle to another module.
        for (handle, module) in [(1, 100), (2, 100), (3, 200), (4, 0), (5, 300), (2, 200), (5, 200)] {
            names.name(handle, NamedKernel::new(frame, module));
        }
        names.alias(6, 1);
        let counts = |names: &Names| [0, 100, 200, 300].map(|module| names.handles_of(module));
        assert_eq!(counts(&names), [0, 2, 3, 0]);
        assert_eq!(counts(&names), [0, 100, 200, 300].map(|module| names.of_module(module).count()));
        names.unload(200);
        assert_eq!((counts(&names), names.modules.len()), ([0, 2, 0, 0], 1));
    }

    #[test]
    fn handle_lookups_back_off_and_eventually_stop() {
        let mut names = Names::default();
        let times: Vec<u64> = (0..2000).map(|n| n * 100_000_000).collect();
        let mut asked = Vec::new();
        for time_ns in times {
            names.want(7, time_ns);
            asked.extend(names.wanted().into_iter().map(|(_, time_ns)| time_ns / 1_000_000_000));
        }
        assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63]);
        names.want(0, 0);
        assert!(names.wanted().is_empty());
        assert_eq!((0..20).filter(|_| names.may_have_stub(7)).count(), 8);
    }

    #[test]
    fn names_found_before_a_module_unload_are_discarded() {
        let frame = FrameId::from_number(10);
        let found = NamedKernel { frame, module: 0, recovered: true, code: None };
        let mut names = Names::default();
        names.want(7, 50);
        assert!(names.is_wanted(7, 50) && !names.is_wanted(7, 49) && !names.is_wanted(8, 50));
        names.unload(100);
        assert!(!names.is_wanted(7, 50));
        names.want(7, 60);
        assert!(names.is_wanted(7, 60));
        names.name(7, found);
        assert!(!names.is_wanted(7, 60), "it is named");
        names.unload(100);
        assert_eq!(names.get(7), None);
    }
}
