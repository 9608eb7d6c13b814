//! Code that a process loaded from a cache: nobody tells debuggers of it, but it is there as it was stored.
//!
//! Owns: finding such code in the memory of the process, by its bytes. Because: a program that was compiled once runs from its
//! cache ever after, and its kernels would have no names. Does not: read the cache, or say more than the bytes do: kernels with
//! equal code have their names together.
//!
//! The loader gives each section of an object file pages of its own, and changes nothing but what relocations name.

use std::hash::{BuildHasher as _, BuildHasherDefault};

use rustc_hash::{FxHashMap, FxHasher};

use crate::jit::Found;
use crate::jit::gdb::{Stated, relocated, stated};
use crate::python::TargetMemory;

/// Bytes of a page, to which the loader aligns sections; with larger pages, those are aligned to it too.
const PAGE: u64 = 4096;
/// Largest function that is looked for.
const CODE_BYTES_MAX: usize = 1 << 20;
/// Fewest bytes of a function that are told by no relocation: less is found by chance.
const TOLD_BYTES_MIN: usize = 16;
/// Most functions of one process's caches.
const FUNCTIONS_MAX: usize = 1 << 14;
/// Most bytes of their code.
const TOGETHER_BYTES_MAX: usize = 64 << 20;
/// Most names that are listed of equal code.
const NAMES_MAX: usize = 4;

/// Functions of caches.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    functions: Vec<Function>,
    /// By [`Found::number`].
    by_number: FxHashMap<u64, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Function {
    /// [`Found::number`].
    number: u64,
    /// Where it begins in its section.
    within: u64,
    /// Its code, with zeroes where it is changed.
    code: Vec<u8>,
    /// Where it is changed: bytes from its beginning, and how many.
    holes: Vec<(usize, usize)>,
    /// The modules that have it, and how they call it.
    of: Vec<(usize, String)>,
}

impl Loaded {
    /// Takes in the functions of an object file of a module.
    pub(super) fn add(&mut self, unit: usize, object: &[u8]) {
        for function in stated(object) {
            if let Some(one) = function_of(object, &function) {
                self.keep(unit, String::from_utf8_lossy(function.name).into_owned(), one);
            }
        }
    }

    fn keep(&mut self, unit: usize, name: String, one: Function) {
        let number = BuildHasherDefault::<FxHasher>::default().hash_one((&one.code, one.within));
        let at = match self.by_number.get(&number) {
            Some(at) => *at,
            None => {
                if self.functions.len() >= FUNCTIONS_MAX || self.bytes + one.code.len() > TOGETHER_BYTES_MAX {
                    return;
                }
                self.bytes += one.code.len();
                self.by_number.insert(number, self.functions.len());
                self.functions.push(Function { number, ..one });
                return self.called(self.functions.len() - 1, unit, name);
            }
        };
        // Another one of the same number: neither must be taken for the other.
        if self.functions.get(at).is_some_and(|known| (&known.code, known.within) == (&one.code, one.within))
        {
            self.called(at, unit, name);
        }
    }

    fn called(&mut self, at: usize, unit: usize, name: String) {
        if let Some(function) = self.functions.get_mut(at) {
            let as_unit = (unit, name);
            if function.of.len() < FUNCTIONS_MAX && !function.of.contains(&as_unit) {
                function.of.push(as_unit);
            }
        }
    }

    /// The modules that have a function that was found, and how they call it.
    pub(super) fn of(&self, number: u64) -> &[(usize, String)] {
        let function = self.by_number.get(&number).and_then(|at| self.functions.get(*at));
        function.map_or(&[], |function| &function.of)
    }

    /// The function at an address, in a mapping from `begin` to `end`.
    pub(super) fn find(
        &self,
        memory: &dyn TargetMemory,
        [begin, end]: [u64; 2],
        address: u64,
    ) -> Option<Found> {
        let longest = self.functions.iter().map(|one| one.within + one.code.len() as u64).max()?;
        let first = address.saturating_sub(longest).max(begin) & !(PAGE - 1);
        let until = address.checked_add(longest)?.min(end);
        let length = usize::try_from(until.checked_sub(first)?).ok().filter(|n| *n <= 4 * CODE_BYTES_MAX)?;
        let bytes = memory.read_vec(first, length).ok()?;
        let mut page = address & !(PAGE - 1);
        while page >= first.max(begin) {
            for function in &self.functions {
                let from = page + function.within;
                let size = function.code.len() as u64;
                if (from..from + size).contains(&address)
                    && let Some(there) = bytes.get((from - first) as usize..)
                    && function.is_at(there)
                {
                    let (name, number) = (function.name(), function.number);
                    return Some(Found { address: from, size, name, number });
                }
            }
            page = page.checked_sub(PAGE)?;
        }
        None
    }
}

impl Function {
    fn is_at(&self, bytes: &[u8]) -> bool {
        let Some(bytes) = bytes.get(..self.code.len()) else { return false };
        let mut from = 0;
        for (at, length) in self.holes.iter().copied().chain([(self.code.len(), 0)]) {
            if bytes.get(from..at) != self.code.get(from..at) {
                return false;
            }
            from = at + length;
        }
        true
    }

    /// Its name; of several the first ones.
    fn name(&self) -> String {
        let mut names: Vec<&str> = self.of.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let more = names.len().saturating_sub(NAMES_MAX);
        names.truncate(NAMES_MAX);
        let more = if more > 0 { format!(" or {more} more") } else { String::new() };
        names.join(" or ") + &more
    }
}

/// A function that can be told by its code.
fn function_of(object: &[u8], function: &Stated<'_>) -> Option<Function> {
    let mut holes = relocated(object, function)?;
    holes.sort_unstable();
    let mut code = function.code.to_vec();
    if code.len() > CODE_BYTES_MAX {
        return None;
    }
    let mut from = 0;
    for (at, length) in &mut holes {
        // Of places that overlap, and of one that leaves the function, the rest.
        let end = (*at + *length).min(code.len()).max(from);
        *at = (*at).max(from);
        *length = end - *at;
        from = end;
        code.get_mut(*at..end)?.fill(0);
    }
    let told = code.len() - holes.iter().map(|(_, length)| length).sum::<usize>();
    (told >= TOLD_BYTES_MIN).then(|| Function {
        number: 0,
        within: function.within.unwrap_or(0),
        code,
        holes,
        of: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::jit::gdb::tests::{OBJECT, damaged};
    use crate::python::memory::RecordedMemory;

    fn function(code: &[u8], holes: &[(usize, usize)]) -> Function {
        let mut code = code.to_vec();
        holes.iter().for_each(|(at, length)| code[*at..*at + *length].fill(0));
        Function { number: 0, within: 0, code, holes: holes.to_vec(), of: Vec::new() }
    }

    /// Memory with these bytes at the beginning of its second page.
    fn memory(code: &[u8]) -> RecordedMemory {
        let mut memory = RecordedMemory::default();
        let mut pages = vec![0xcc; 4 * PAGE as usize];
        pages[PAGE as usize..PAGE as usize + code.len()].copy_from_slice(code);
        memory.insert(0x10_0000, pages);
        memory
    }

    const MAPPING: [u64; 2] = [0x10_0000, 0x10_4000];

    #[test]
    fn code_is_found_whatever_was_written_into_it_when_it_was_loaded() {
        let code: Vec<u8> = (0..64).collect();
        let mut loaded = Loaded::default();
        loaded.keep(0, "tanh".into(), function(&code, &[(8, 8)]));
        let mut there = code.clone();
        there[8..16].fill(0x77);
        let found = loaded.find(&memory(&there), MAPPING, 0x10_1010).unwrap();
        assert_eq!((found.address, found.size, found.name.as_str()), (0x10_1000, 64, "tanh"));
        assert_eq!(loaded.find(&memory(&there), MAPPING, 0x10_1040), None);
        assert_eq!(loaded.find(&memory(&there), MAPPING, 0x10_0ff0), None);
        there[20] ^= 1;
        assert_eq!(loaded.find(&memory(&there), MAPPING, 0x10_1010), None);
    }

    #[test]
    fn equal_code_has_its_names_together() {
        let code: Vec<u8> = (0..64).collect();
        let mut loaded = Loaded::default();
        for (unit, name) in [(0, "add.1"), (0, "add"), (1, "add"), (0, "add")] {
            loaded.keep(unit, name.into(), function(&code, &[]));
        }
        let found = loaded.find(&memory(&code), MAPPING, 0x10_1000).unwrap();
        assert_eq!((found.name.as_str(), loaded.of(found.number).len()), ("add or add.1", 3));
    }

    #[test]
    fn functions_of_an_object_are_found_where_they_were_loaded() {
        let mut loaded = Loaded::default();
        loaded.add(7, OBJECT);
        let code = stated(OBJECT)[0].code.to_vec();
        let found = loaded.find(&memory(&code), MAPPING, 0x10_1004).unwrap();
        assert_eq!(found.name, "wrapped_add.1");
        assert_eq!(loaded.of(found.number), [(7, "wrapped_add.1".to_owned())]);
    }

    proptest! {
        #[test]
        fn any_object_is_taken(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0..4000_usize) {
            let mut loaded = Loaded::default();
            loaded.add(0, &damaged(bytes, at));
            for function in &loaded.functions {
                prop_assert!(function.is_at(&function.code));
            }
        }
    }
}
