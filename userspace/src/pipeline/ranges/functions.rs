//! Functions: what ends a step by its name, and which uses of a function's first instruction are calls of it.
//!
//! Owns: whether a name that a user gave is that of ranges or of a function, and telling calls from others who read the same
//! byte. Because: `train:step` may be either, and an interpreter also reads a function to rewrite it, or for whoever asks for
//! its code. Does not: watch, or place anything.

use deepctx_common::record::word;
use rustc_hash::FxHashMap;

use crate::pipeline::decode::{Sample, Words};

/// Uses of one function by one thread that are no further apart belong to one call: it was rewritten, or calls itself. What is
/// called more often is not watched for long.
const ONE_CALL_NS: u64 = 200_000;
/// Threads whose last call is remembered; at the bound all are forgotten.
const THREADS_MAX: usize = 1 << 14;

/// What a name that a user gave turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Range,
    Function,
}

/// The names that a user gave.
#[derive(Debug)]
pub(super) struct Markers(Vec<(String, Seen)>);

impl Markers {
    /// None of them was seen.
    pub(super) fn new(names: Vec<String>) -> Self {
        Self(names.into_iter().map(|name| (name, Seen::Nothing)).collect())
    }

    /// Whether a range of this name ends a step.
    pub(super) fn has_range(&mut self, range: &str) -> bool {
        let fits = |(name, seen): &&mut (String, Seen)| *seen != Seen::Function && range.starts_with(&**name);
        self.0.iter_mut().find(fits).map(|(_, seen)| *seen = Seen::Range).is_some()
    }

    /// Whether the function of this name does.
    pub(super) fn has_function(&mut self, function: &str) -> bool {
        let fits = |(name, seen): &&mut (String, Seen)| *seen != Seen::Range && *name == function;
        self.0.iter_mut().find(fits).map(|(_, seen)| *seen = Seen::Function).is_some()
    }

    /// Those that nothing was seen of.
    pub(super) fn unseen(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, seen)| *seen == Seen::Nothing).map(|(name, _)| &**name)
    }
}

/// Whether a use of a function's first instruction is a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is one.
    Call,
    /// It belongs to the one before.
    Repeated,
    /// The function does not run: somebody else reads it.
    Elsewhere,
}

/// Whether it is the evaluation loop that uses the function at `code`, as far as the stack tells: what is native stands behind
/// the Python frames that it evaluates. Some compilers make it read a function before that is the one that runs.
fn is_evaluated(code: Option<u64>, user: Words<'_>) -> bool {
    let mut words = user.iter();
    let first = words.next();
    let is_python = |word: &u64| word::tag(*word) == word::PYTHON;
    let innermost = first.into_iter().chain(words).find(is_python);
    let (Some(innermost), Some(code)) = (innermost, code) else { return true };
    first == Some(innermost) || innermost & word::PAYLOAD == code
}

/// Uses of functions so far.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// When each thread last used a function, `CLOCK_MONOTONIC` nanoseconds; by process, thread and function.
    last: FxHashMap<(u32, u32, u32), u64>,
}

impl Uses {
    /// A function, the code object at `code`, was used by the code of this stack.
    pub(super) fn used(&mut self, function: u32, code: Option<u64>, sample: &Sample<'_>) -> Use {
        if !is_evaluated(code, sample.user) {
            return Use::Elsewhere;
        }
        if self.last.len() >= THREADS_MAX {
            self.last.clear();
        }
        let (who, now_ns) = (&sample.fixed, sample.fixed.header.time_ns);
        let before_ns = self.last.insert((who.pid, who.tid, function), now_ns);
        match before_ns.is_some_and(|before_ns| now_ns.saturating_sub(before_ns) < ONE_CALL_NS) {
            true => Use::Repeated,
            false => Use::Call,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_called_by_the_evaluation_loop_and_read_by_others() {
        const CODE: u64 = 0x1000;
        let check = |words: &[u64], expect| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(is_evaluated(Some(CODE), Words::of(&bytes)), expect, "{words:x?}");
            assert!(is_evaluated(None, Words::of(&bytes)));
        };
        let python = |code| word::tagged(word::PYTHON, code);
        let native = word::tagged(word::EXACT, 0x7000);
        check(&[python(CODE), 0, native], true);
        // Its caller still counts as the one that runs.
        check(&[python(0x2000), 0, native], true);
        // The loop was entered by a call of a native function.
        check(&[native, python(CODE), 0], true);
        // `code.co_code`.
        check(&[native, python(0x2000), 0], false);
        check(&[native], true);
        check(&[], true);
    }

    #[test]
    fn a_name_stays_what_it_was_seen_as_first() {
        let markers = || Markers::new(vec!["Optimizer.step#".into(), "train:step".into()]);
        let mut first_range = markers();
        assert!(first_range.has_range("train:step 7") && !first_range.has_function("train:step"));
        assert!(first_range.has_range("train:step 8"));
        let mut first_function = markers();
        assert!(first_function.has_function("train:step") && !first_function.has_range("train:step 7"));
        assert_eq!(first_function.unseen().collect::<Vec<_>>(), ["Optimizer.step#"]);
        assert!(!first_function.has_range("aten::add") && !first_function.has_function("train:other"));
    }
}
