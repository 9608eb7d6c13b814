//! Seen Python: reports functions, coroutines and modules as soon as their records arrive.
//!
//! Owns: which functions of which process have been reported. Because: some facts can only be read while the process
//! lives or the coroutine runs, long before the sample's turn comes. Does not: read them.

use deepctx_common::record::word;

use crate::by_process::ByProcess;
use crate::decode::Sample;
use crate::stack_words::python_reference;
use crate::symbols::{CoroutineReference, ModuleReference, PythonReference};

/// Functions in [`SeenPythonObjects`]; when full, it is cleared and all are reported again.
const SEEN_MAX: usize = 1 << 16;

/// Python functions seen so far, so that each is reported once.
#[derive(Debug, Default)]
pub(crate) struct SeenPythonObjects {
    /// By code object and checksum.
    seen: ByProcess<(u64, u32), (), SEEN_MAX>,
    new: Vec<PythonReference>,
    coroutines: Vec<CoroutineReference>,
    modules: Vec<ModuleReference>,
}

/// What one sample brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewReferences<'a> {
    /// Functions not seen before in its process.
    pub(crate) functions: &'a [PythonReference],
    /// Running coroutines and generators, innermost first.
    pub(crate) coroutines: &'a [CoroutineReference],
    /// Modules being called, innermost first.
    pub(crate) modules: &'a [ModuleReference],
}

impl SeenPythonObjects {
    /// The functions of a sample that are new in its process, and its coroutines.
    pub(crate) fn new_in(&mut self, sample: &Sample<'_>) -> NewReferences<'_> {
        self.new.clear();
        self.coroutines.clear();
        self.modules.clear();
        if sample.fixed.python_frames == 0 {
            return NewReferences::default();
        }
        self.coroutines.extend(coroutines(sample));
        let pid = sample.fixed.pid;
        let mut words = sample.user.iter();
        while let Some(current) = words.next() {
            let tag = word::tag(current);
            if tag == word::OBJECT
                && let Some(of_type) = words.next()
            {
                self.modules.push(ModuleReference { object: current & word::PAYLOAD, of_type });
            } else if tag == word::PYTHON
                && let Some(detail) = words.next()
            {
                let reference = python_reference(current & word::PAYLOAD, detail);
                let function = (reference.code, reference.checksum);
                if self.seen.get(pid, &function).is_none() {
                    self.seen.get_or_insert_with(pid, function, || ());
                    self.new.push(reference);
                }
            }
        }
        NewReferences { functions: &self.new, coroutines: &self.coroutines, modules: &self.modules }
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.seen.held_bytes()
    }

    /// The process runs another program now: its functions are new.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.seen.remove(pid);
    }
}

/// The coroutines and generators of a sample, innermost first. The walk reports each behind its Python frame.
pub(crate) fn coroutines<'a>(sample: &'a Sample<'_>) -> impl Iterator<Item = CoroutineReference> + 'a {
    of_words(sample.user.iter())
}

fn of_words(mut words: impl Iterator<Item = u64>) -> impl Iterator<Item = CoroutineReference> {
    let mut function = None;
    std::iter::from_fn(move || {
        loop {
            let current = words.next()?;
            let payload = current & word::PAYLOAD;
            match word::tag(current) {
                word::PYTHON => function = words.next().map(|detail| python_reference(payload, detail)),
                word::OBJECT => drop(words.next()),
                word::COROUTINE => {
                    if let Some(function) = function.take() {
                        return Some(CoroutineReference { frame: payload, function });
                    }
                }
                _ => {}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use deepctx_common::record::StackSample;

    use super::*;
    use crate::decode::Words;

    #[test]
    fn functions_of_a_process_are_new_after_it_was_forgotten() {
        let words = [word::tagged(word::PYTHON, 0xa0), word::python_detail(7, 0)];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let new_in = |seen: &mut SeenPythonObjects, pid: u32| {
            let fixed = StackSample { pid, python_frames: 1, ..StackSample::default() };
            let (kernel, user) = (Words::default(), Words::of(&bytes));
            seen.new_in(&Sample { fixed, words: &bytes, kernel, user }).functions.len()
        };
        let mut seen = SeenPythonObjects::default();
        assert_eq!([7, 7, 8].map(|pid| new_in(&mut seen, pid)), [1, 0, 1]);
        seen.forget(7);
        assert_eq!([8, 7].map(|pid| new_in(&mut seen, pid)), [0, 1]);
    }

    fn check(words: &[u64], expect: &[(u64, u64)]) {
        let found: Vec<_> = of_words(words.iter().copied()).map(|of| (of.frame, of.function.code)).collect();
        assert_eq!(found, expect, "{words:x?}");
    }

    #[test]
    fn a_coroutine_runs_the_function_reported_before_it() {
        let python = |code| [word::tagged(word::PYTHON, code), word::python_detail(7, 0)];
        let ([a, detail], [b, _]) = (python(0xa0), python(0xb0));
        let coroutine = |frame| word::tagged(word::COROUTINE, frame);
        let native = word::tagged(word::RETURN, 0x1000);
        check(&[a, detail, b, detail], &[]);
        check(&[a, detail, b, detail, coroutine(1)], &[(1, 0xb0)]);
        check(&[a, detail, native, coroutine(1), b, detail, coroutine(2)], &[(1, 0xa0), (2, 0xb0)]);
        check(
            &[coroutine(1), a, detail, word::tagged(word::OBJECT, 3), coroutine(9), coroutine(2)],
            &[(2, 0xa0)],
        );
        check(&[coroutine(1), a], &[]);
    }
}
