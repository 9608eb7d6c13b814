//! Code that a process loaded from a compilation cache, without registering it for debuggers.
//!
//! Owns: finding such code in the memory of the process, by its bytes. Because: once compiled, a program runs from
//! the cache, and its kernels would have no names. Does not: read the cache, or distinguish kernels with equal code:
//! these get all of their names.
//!
//! The loader places each section of an object file on separate pages, and changes only the relocated bytes.

use std::hash::{BuildHasher as _, BuildHasherDefault};
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHasher};

use crate::jit::LocatedFunction;
use crate::jit::fixed_code::FixedCode;
use crate::jit::gdb::{ObjectFunction, bytes_hash, object_functions};
use crate::memory::TargetMemory;

/// Page size to which the loader aligns sections; larger pages are aligned to it too.
const PAGE: u64 = 4096;
/// Largest function located.
const CODE_BYTES_MAX: usize = 1 << 20;
/// Fewest bytes of a function outside relocations: fewer would match by chance.
const FIXED_BYTES_MIN: usize = 16;
/// Most functions of the caches of one process.
const FUNCTIONS_MAX: usize = 1 << 14;
/// Most bytes of their code in total.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// Most names listed for equal code.
const NAMES_MAX: usize = 4;

/// The functions of compilation caches.
#[derive(Debug, Default)]
pub(super) struct CachedCode {
    functions: Vec<CachedFunction>,
    /// Index in `functions` by [`LocatedFunction::key`].
    by_key: FxHashMap<u64, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct CachedFunction {
    /// [`LocatedFunction::key`].
    key: u64,
    /// Offset in its section.
    section_offset: u64,
    code: FixedCode,
    /// The modules that contain it, with its name in each.
    modules: Vec<(usize, String)>,
}

impl CachedCode {
    /// Adds the functions of an object file of a module.
    pub(super) fn add(&mut self, module: usize, object: &[u8]) {
        for symbol in object_functions(object) {
            if let Some(function) = cached_function(object, &symbol) {
                self.insert(module, String::from_utf8_lossy(symbol.name).into_owned(), function);
            }
        }
    }

    fn insert(&mut self, module: usize, name: String, new: CachedFunction) {
        let key = BuildHasherDefault::<FxHasher>::default().hash_one((&new.code, new.section_offset));
        let at = match self.by_key.get(&key) {
            Some(at) => *at,
            None => {
                if self.functions.len() >= FUNCTIONS_MAX || self.bytes + new.code.len() > TOTAL_BYTES_MAX {
                    return;
                }
                self.bytes += new.code.len();
                self.by_key.insert(key, self.functions.len());
                self.functions.push(CachedFunction { key, ..new });
                return self.add_module(self.functions.len() - 1, module, name);
            }
        };
        // After a hash collision, neither function must be taken for the other.
        let is_same =
            |known: &CachedFunction| (&known.code, known.section_offset) == (&new.code, new.section_offset);
        if self.functions.get(at).is_some_and(is_same) {
            self.add_module(at, module, name);
        }
    }

    fn add_module(&mut self, at: usize, module: usize, name: String) {
        if let Some(function) = self.functions.get_mut(at) {
            let entry = (module, name);
            if function.modules.len() < FUNCTIONS_MAX && !function.modules.contains(&entry) {
                function.modules.push(entry);
            }
        }
    }

    /// The modules that contain a located function, with its name in each.
    pub(super) fn modules_of(&self, key: u64) -> &[(usize, String)] {
        let function = self.by_key.get(&key).and_then(|at| self.functions.get(*at));
        function.map_or(&[], |function| &function.modules)
    }

    /// The function at an address of a mapping.
    pub(super) fn locate(
        &self,
        memory: &dyn TargetMemory,
        mapping: Range<u64>,
        address: u64,
    ) -> Option<LocatedFunction> {
        let begin = mapping.start;
        let extents = self.functions.iter().map(|f| f.section_offset + f.code.len() as u64);
        let longest = extents.max()?;
        let first = address.saturating_sub(longest).max(begin) & !(PAGE - 1);
        let until = address.checked_add(longest)?.min(mapping.end);
        let length = usize::try_from(until.checked_sub(first)?).ok().filter(|n| *n <= 4 * CODE_BYTES_MAX)?;
        let bytes = memory.read_vec(first, length).ok()?;
        let mut page = address & !(PAGE - 1);
        while page >= first.max(begin) {
            for function in &self.functions {
                let from = page + function.section_offset;
                let size = function.code.len() as u64;
                if (from..from + size).contains(&address)
                    && let Some(found) = bytes.get((from - first) as usize..)
                    && function.code.matches(found)
                {
                    let (name, key) = (function.name(), function.key);
                    let hash = bytes_hash(found.get(..function.code.len())?);
                    return Some(LocatedFunction { address: from, size, name, key, hash });
                }
            }
            page = page.checked_sub(PAGE)?;
        }
        None
    }
}

impl CachedFunction {
    /// Its name, or the first of several.
    fn name(&self) -> String {
        let mut names: Vec<&str> = self.modules.iter().map(|(_, name)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let more = names.len().saturating_sub(NAMES_MAX);
        names.truncate(NAMES_MAX);
        let more = if more > 0 { format!(" or {more} more") } else { String::new() };
        names.join(" or ") + &more
    }
}

/// A function that can be identified by its code.
fn cached_function(object: &[u8], symbol: &ObjectFunction<'_>) -> Option<CachedFunction> {
    if symbol.code.len() > CODE_BYTES_MAX {
        return None;
    }
    let code = FixedCode::of(object, symbol)?;
    (code.fixed_bytes() >= FIXED_BYTES_MIN).then(|| CachedFunction {
        key: 0,
        section_offset: symbol.section_offset.unwrap_or(0),
        code,
        modules: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::jit::gdb::tests::{OBJECT, damaged};
    use crate::memory::RecordedMemory;

    fn function(code: &[u8], relocated: &[Range<usize>]) -> CachedFunction {
        let code = FixedCode::new(code.to_vec(), relocated.to_vec()).unwrap();
        CachedFunction { key: 0, section_offset: 0, code, modules: Vec::new() }
    }

    /// Memory with these bytes at the start of its second page.
    fn memory(code: &[u8]) -> RecordedMemory {
        let mut memory = RecordedMemory::default();
        let mut pages = vec![0xcc; 4 * PAGE as usize];
        pages[PAGE as usize..PAGE as usize + code.len()].copy_from_slice(code);
        memory.insert(0x10_0000, pages);
        memory
    }

    const MAPPING: Range<u64> = 0x10_0000..0x10_4000;

    #[test]
    fn code_is_located_despite_relocations() {
        let code: Vec<u8> = (0..64).collect();
        let mut cached = CachedCode::default();
        cached.insert(0, "tanh".into(), function(&code, std::slice::from_ref(&(8..16))));
        let mut loaded = code.clone();
        loaded[8..16].fill(0x77);
        let found = cached.locate(&memory(&loaded), MAPPING, 0x10_1010).unwrap();
        assert_eq!((found.address, found.size, found.name.as_str()), (0x10_1000, 64, "tanh"));
        assert_eq!(cached.locate(&memory(&loaded), MAPPING, 0x10_1040), None);
        assert_eq!(cached.locate(&memory(&loaded), MAPPING, 0x10_0ff0), None);
        loaded[20] ^= 1;
        assert_eq!(cached.locate(&memory(&loaded), MAPPING, 0x10_1010), None);
    }

    #[test]
    fn equal_code_has_all_of_its_names() {
        let code: Vec<u8> = (0..64).collect();
        let mut cached = CachedCode::default();
        for (unit, name) in [(0, "add.1"), (0, "add"), (1, "add"), (0, "add")] {
            cached.insert(unit, name.into(), function(&code, &[]));
        }
        let found = cached.locate(&memory(&code), MAPPING, 0x10_1000).unwrap();
        assert_eq!((found.name.as_str(), cached.modules_of(found.key).len()), ("add or add.1", 3));
    }

    #[test]
    fn functions_of_an_object_are_located_in_memory() {
        let mut cached = CachedCode::default();
        cached.add(7, OBJECT);
        let code = object_functions(OBJECT)[0].code.to_vec();
        let found = cached.locate(&memory(&code), MAPPING, 0x10_1004).unwrap();
        assert_eq!(found.name, "wrapped_add.1");
        assert_eq!(cached.modules_of(found.key), [(7, "wrapped_add.1".to_owned())]);
    }

    proptest! {
        #[test]
        fn any_object_is_handled(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0..4000_usize) {
            let mut cached = CachedCode::default();
            cached.add(0, &damaged(bytes, at));
            for function in &cached.functions {
                prop_assert!(function.code.fixed_bytes() >= FIXED_BYTES_MIN);
            }
        }
    }
}
