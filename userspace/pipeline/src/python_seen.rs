//! Seen: Python functions, coroutines and modules, reported the moment they come in.
//!
//! Owns: which functions of which process were reported already. Because: what can only be read while the process
//! lives, or while a coroutine runs, must be read long before the sample has its turn. Does not: read.

use deepctx_common::record::word;
use rustc_hash::FxHashSet;

use crate::decode::Sample;
use crate::stack_words::python_reference;
use crate::symbols::{ModuleReference, PythonReference};

/// Functions remembered by [`PythonSeen`]; at the bound all are forgotten and reported again.
const SEEN_MAX: usize = 1 << 16;

/// Python functions that were met already, so that each is reported once.
#[derive(Debug, Default)]
pub(crate) struct PythonSeen {
    seen: FxHashSet<(u32, u64, u32)>,
    new: Vec<PythonReference>,
    coroutines: Vec<u64>,
    modules: Vec<ModuleReference>,
}

/// What one sample brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct New<'a> {
    /// Functions that were not met before in its process.
    pub(crate) functions: &'a [PythonReference],
    /// Frames of coroutines that run, innermost first.
    pub(crate) coroutines: &'a [u64],
    /// Modules that were called, innermost first.
    pub(crate) modules: &'a [ModuleReference],
}

impl PythonSeen {
    /// The functions of a sample that were not met before in its process, and its coroutines.
    pub(crate) fn new_in(&mut self, sample: &Sample<'_>) -> New<'_> {
        self.new.clear();
        self.coroutines.clear();
        self.modules.clear();
        if sample.fixed.python_frames == 0 {
            return New::default();
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let mut words = sample.user.iter();
        while let Some(current) = words.next() {
            let tag = word::tag(current);
            if tag == word::COROUTINE {
                self.coroutines.push(current & word::PAYLOAD);
            } else if tag == word::OBJECT
                && let Some(of_type) = words.next()
            {
                self.modules.push(ModuleReference { object: current & word::PAYLOAD, of_type });
            } else if tag == word::PYTHON
                && let Some(detail) = words.next()
            {
                let reference = python_reference(current & word::PAYLOAD, detail);
                if self.seen.insert((sample.fixed.pid, reference.code, reference.checksum)) {
                    self.new.push(reference);
                }
            }
        }
        New { functions: &self.new, coroutines: &self.coroutines, modules: &self.modules }
    }

    /// The process has another program now: its functions are new.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.seen.retain(|(of, _, _)| *of != pid);
    }
}

/// The frames of the coroutines of a sample, innermost first.
pub(crate) fn coroutines<'a>(sample: &'a Sample<'_>) -> impl Iterator<Item = u64> + 'a {
    let mut words = sample.user.iter();
    std::iter::from_fn(move || {
        loop {
            let current = words.next()?;
            match word::tag(current) {
                word::PYTHON | word::OBJECT => drop(words.next()),
                word::COROUTINE => return Some(current & word::PAYLOAD),
                _ => {}
            }
        }
    })
}
