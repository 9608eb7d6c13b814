//! Checks that a function registered for debuggers is where the runtime says it is.
//!
//! Owns: comparing registered functions with the memory of the process. Because: code is freed and its memory reused,
//! and a registered object file may state any address. A name attached to the wrong code is worse than no name. Does
//! not: find object files, or keep names.

use std::collections::VecDeque;
use std::ops::Range;

use super::fixed_code::FixedCode;
use super::gdb::{Function, ObjectFunction, object_functions};
use crate::memory::{ReadError, TargetMemory};

/// Least part of the code outside relocations: a smaller one proves nothing.
const FIXED_PART: usize = 4;

/// Most ranges kept of functions that are not where they were registered; used only for the reason of a missing name.
const REFUTED_MAX: usize = 256;

/// Registered ranges that contain no such function; latest last.
#[derive(Debug, Default)]
pub(super) struct RefutedRanges(VecDeque<Range<u64>>);

impl RefutedRanges {
    /// Adds a function.
    pub(super) fn add(&mut self, function: Range<u64>) {
        if self.0.len() >= REFUTED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(function);
    }

    /// Whether such a range contains this address.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.0.iter().any(|function| function.contains(&address))
    }
}

/// Whether memory confirms a registered function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// Its code is at its address.
    Confirmed,
    /// Something else is there, or nothing.
    Refuted,
    /// The file does not contain its code, or not enough of it.
    Unknown,
    /// The memory there did not answer, or the process is gone.
    Unread,
}

/// The functions of an object file of a process, each compared with its memory.
pub(super) fn functions(object: &[u8], memory: &dyn TargetMemory) -> Vec<(Function, Evidence)> {
    let with_evidence = |function: &ObjectFunction<'_>| {
        let code = fixed_code(object, function);
        let evidence = code.map_or(Evidence::Unknown, |code| compare(&code, function.address(), memory));
        (Function::from(function), evidence)
    };
    object_functions(object).iter().map(with_evidence).collect()
}

/// Addresses of the functions of an object file that memory holds no longer, as far as it can be read.
pub(super) fn refuted(object: &[u8], memory: &dyn TargetMemory) -> Vec<u64> {
    let is_refuted = |function: &&ObjectFunction<'_>| {
        fixed_code(object, function).is_some_and(|code| {
            match memory.read_vec(function.address(), code.len()) {
                Ok(bytes) => !code.matches(&bytes),
                Err(error) => error == ReadError::Unmapped,
            }
        })
    };
    object_functions(object).iter().filter(is_refuted).map(ObjectFunction::address).collect()
}

/// The code of a function, if it is enough to prove something.
fn fixed_code(object: &[u8], function: &ObjectFunction<'_>) -> Option<FixedCode> {
    FixedCode::of(object, function).filter(|code| code.fixed_bytes() * FIXED_PART >= code.len())
}

fn compare(code: &FixedCode, address: u64, memory: &dyn TargetMemory) -> Evidence {
    match memory.read_vec(address, code.len()) {
        Ok(bytes) if code.matches(&bytes) => Evidence::Confirmed,
        Err(error) if error.is_silence() || error == ReadError::Gone => Evidence::Unread,
        Ok(_) | Err(_) => Evidence::Refuted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jit::gdb::tests::OBJECT;
    use crate::memory::RecordedMemory;

    #[test]
    fn a_function_is_believed_where_its_code_is() {
        let [function] = &object_functions(OBJECT)[..] else { panic!("one function") };
        let check = |code: Vec<u8>, expect: Evidence| {
            let mut memory = RecordedMemory::default();
            memory.insert(function.address(), code);
            let found: Vec<Evidence> =
                functions(OBJECT, &memory).into_iter().map(|(_, found)| found).collect();
            assert_eq!(found, [expect]);
        };
        let code = function.code.to_vec();
        check(code.clone(), Evidence::Confirmed);
        check(code[..code.len() - 1].to_vec(), Evidence::Refuted);
        let mut other = code;
        other[3] ^= 1;
        check(other, Evidence::Refuted);
    }

    /// Memory of which each read ends like this.
    struct FailingMemory(ReadError);

    impl TargetMemory for FailingMemory {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), ReadError> {
            Err(self.0)
        }
    }

    #[test]
    fn memory_that_does_not_answer_refutes_nothing() {
        for (error, expect) in [
            (ReadError::NoAnswer, Evidence::Unread),
            (ReadError::Gone, Evidence::Unread),
            (ReadError::Unmapped, Evidence::Refuted),
            (ReadError::UserFile, Evidence::Refuted),
        ] {
            let found = functions(OBJECT, &FailingMemory(error));
            assert!(matches!(found[..], [(_, evidence)] if evidence == expect), "{error:?}");
        }
    }
}
