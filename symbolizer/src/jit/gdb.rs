//! Code that a runtime registered for debuggers (GDB's JIT interface).
//!
//! Owns: the list behind `__jit_debug_descriptor`, and the functions of an object file in it. Because: LLVM tells debuggers, and
//! nobody else, what it compiled: each piece of code is there as an object file with its symbols, in the memory of the
//! process. Does not: find the variable ([`crate::variable`]) or remember names.
//!
//! ```text
//! __jit_debug_descriptor { version u32, action u32, relevant *entry, first *entry }
//! entry                  { next *entry, previous *entry, object *bytes, size u64 }
//! ```

use std::hash::Hasher as _;

use deepctx_address_space::elf::{u16_at, u32_at, u64_at};
use rustc_hash::{FxHashSet, FxHasher};

use crate::python::TargetMemory;
use crate::python::memory::ReadError;

/// Name and size of the variable.
pub(crate) const DESCRIPTOR: (&str, u64) = ("__jit_debug_descriptor", 24);
/// The only version there is.
const VERSION: u32 = 1;
/// Most entries of the list that are followed.
const ENTRIES_MAX: usize = 1 << 16;
/// Largest object file that is read.
const OBJECT_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of object files read at one look; the next look goes on.
const TOGETHER_BYTES_MAX: u64 = 64 << 20;
/// Most functions taken from one object file.
const FUNCTIONS_MAX: usize = 1 << 16;
/// Longest name that is kept.
const NAME_BYTES_MAX: usize = 1024;

const ET_REL: u16 = 1;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;
const R_AARCH64_ABS64: u32 = 257;
const R_AARCH64_PREL64: u32 = 260;
const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
const SHT_REL: u32 = 9;
const SHF_EXECINSTR: u64 = 4;
const STT_FUNC: u8 = 2;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 24;
/// Most places of one function that are changed when it is loaded.
const RELOCATIONS_MAX: usize = 1 << 12;

/// A function of an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name as the file has it.
    pub name: String,
    /// Where it is: in a relocated file in memory the address in the process.
    pub address: u64,
    /// Its bytes; never 0.
    pub size: u64,
    /// Of its name and its code before relocation: the same in a copy of the file elsewhere.
    pub code: u64,
}

/// A function as it stands in an object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stated<'a> {
    /// Its name as the file has it, no longer than names may be; never empty.
    pub(crate) name: &'a [u8],
    /// Where the file says that it is.
    address: u64,
    /// Its bytes; never 0, and `address + size` does not overflow.
    size: u64,
    /// The section that it is in.
    section: usize,
    /// Where it begins in that section; `None` of a file that contradicts itself.
    pub(crate) within: Option<u64>,
    /// Its code before relocation; empty when the file does not have it.
    pub(crate) code: &'a [u8],
}

/// The functions of an object file; none of bytes that are no such file. Tables that contradict the file end the answer.
pub fn functions(bytes: &[u8]) -> Vec<Function> {
    let function = |stated: &Stated<'_>| Function {
        name: String::from_utf8_lossy(stated.name).into_owned(),
        address: stated.address,
        size: stated.size,
        code: hash(stated.name, stated.code),
    };
    stated(bytes).iter().map(function).collect()
}

/// The same, with their code.
pub(crate) fn stated(bytes: &[u8]) -> Vec<Stated<'_>> {
    read_functions(bytes).unwrap_or_default()
}

/// Where the code of a function is changed when it is loaded: bytes from its beginning, and how many. `None` when the file does
/// not tell, or is for a machine that is not known.
pub(crate) fn relocated(bytes: &[u8], function: &Stated<'_>) -> Option<Vec<(usize, usize)>> {
    let begin = function.within?;
    let header = bytes.get(..64)?;
    let machine = u16_at(header, 18);
    let part = |at, length| part(bytes, at, length);
    let sections = part(u64_at(header, 40), u64::from(u16_at(header, 60)) * SECTION_BYTES as u64)?;
    let mut found = Vec::new();
    let of_section = |table: &&[u8]| {
        matches!(u32_at(table, 4), SHT_RELA | SHT_REL) && u32_at(table, 44) as usize == function.section
    };
    for table in sections.chunks_exact(SECTION_BYTES).filter(of_section) {
        if u32_at(table, 4) == SHT_REL {
            return None;
        }
        let rows = part(u64_at(table, 24), u64_at(table, 32))?;
        for row in rows.chunks_exact(RELOCATION_BYTES) {
            let bytes = match (machine, u32_at(row, 8)) {
                // R_X86_64_64, _PC64, _GOTOFF64
                (EM_X86_64, 1 | 24 | 25) | (EM_AARCH64, R_AARCH64_ABS64 | R_AARCH64_PREL64) => 8,
                (EM_X86_64 | EM_AARCH64, _) => 4,
                _ => return None,
            };
            let Some(at) = u64_at(row, 0).checked_sub(begin).filter(|at| *at < function.size) else {
                continue;
            };
            if found.len() >= RELOCATIONS_MAX {
                return None;
            }
            found.push((at as usize, bytes));
        }
    }
    Some(found)
}

fn read_functions(bytes: &[u8]) -> Option<Vec<Stated<'_>>> {
    let header = bytes.get(..64)?;
    if header[..6] != *b"\x7fELF\x02\x01" || usize::from(u16_at(header, 58)) != SECTION_BYTES {
        return None;
    }
    let relocatable = u16_at(header, 16) == ET_REL;
    let part = |at, length| part(bytes, at, length);
    let sections = part(u64_at(header, 40), u64::from(u16_at(header, 60)) * SECTION_BYTES as u64)?;
    let section = |n: usize| sections.get(n * SECTION_BYTES..(n + 1) * SECTION_BYTES);
    let mut functions = Vec::new();
    for table in sections.chunks_exact(SECTION_BYTES).filter(|table| u32_at(table, 4) == SHT_SYMTAB) {
        let strings = section(u32_at(table, 40) as usize)?;
        let strings = part(u64_at(strings, 24), u64_at(strings, 32))?;
        let symbols = part(u64_at(table, 24), u64_at(table, 32))?;
        for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
            let (value, size) = (u64_at(symbol, 8), u64_at(symbol, 16));
            let number = usize::from(u16_at(symbol, 6));
            let holder = section(number);
            let Some(holder) = holder.filter(|s| u64_at(s, 8) & SHF_EXECINSTR != 0) else { continue };
            if symbol[4] & 15 != STT_FUNC || size == 0 || size > OBJECT_BYTES_MAX {
                continue;
            }
            let begin = u64_at(holder, 16);
            let (address, within) = if relocatable {
                (begin.checked_add(value), Some(value))
            } else {
                (Some(value), value.checked_sub(begin))
            };
            let name = strings.get(u32_at(symbol, 0) as usize..).unwrap_or_default();
            let name = &name[..name.iter().position(|b| *b == 0).unwrap_or(name.len()).min(NAME_BYTES_MAX)];
            let Some(address) = address.filter(|at| at.checked_add(size).is_some()) else { continue };
            if name.is_empty() {
                continue;
            }
            let code = within.and_then(|from| part(u64_at(holder, 24).checked_add(from)?, size));
            let code = code.unwrap_or_default();
            functions.push(Stated { name, address, size, section: number, within, code });
            if functions.len() >= FUNCTIONS_MAX {
                return Some(functions);
            }
        }
    }
    Some(functions)
}

/// Some bytes of a file; `None` when it does not have them.
fn part(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
}

fn hash(name: &[u8], code: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_usize(name.len());
    hasher.write(name);
    hasher.write(code);
    hasher.finish()
}

/// What is known of the lists of one process.
#[derive(Debug, Default)]
pub(super) struct Registered {
    /// Addresses of descriptors.
    descriptors: Vec<u64>,
    /// What each descriptor said when its list was last followed to the end.
    heads: Vec<Option<[u64; 4]>>,
    /// Entries whose object files were read: address of the entry and the file, and its size.
    known: FxHashSet<[u64; 3]>,
}

impl Registered {
    /// A descriptor was found.
    pub(super) fn add(&mut self, descriptor: u64) {
        if !self.descriptors.contains(&descriptor) {
            self.descriptors.push(descriptor);
            self.heads.push(None);
        }
    }

    /// Whether there is anything to read.
    pub(super) fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The object files that were registered since the last time, oldest first.
    pub(super) fn read_new(&mut self, memory: &dyn TargetMemory) -> Vec<Vec<u8>> {
        let mut objects = Vec::new();
        for (descriptor, head) in self.descriptors.iter().zip(&mut self.heads) {
            // A list that changes under the reader is read again with the next look.
            if let Ok(now) = read_list(memory, *descriptor, *head, &mut self.known, &mut objects) {
                *head = now;
            }
        }
        objects
    }
}

/// Follows one list. Gives what its head was if all of it was read.
fn read_list(
    memory: &dyn TargetMemory,
    descriptor: u64,
    head_before: Option<[u64; 4]>,
    known: &mut FxHashSet<[u64; 3]>,
    objects: &mut Vec<Vec<u8>>,
) -> Result<Option<[u64; 4]>, ReadError> {
    let mut bytes = [0; 24];
    memory.read(descriptor, &mut bytes)?;
    let mut head = [u64_at(&bytes, 8), u64_at(&bytes, 16), 0, 0];
    if head[1] != 0 {
        // Entries are freed and used again: the first one tells by its file that it is another.
        let mut first = [0; 32];
        memory.read(head[1], &mut first)?;
        (head[2], head[3]) = (u64_at(&first, 16), u64_at(&first, 24));
    }
    if u32_at(&bytes, 0) != VERSION || Some(head) == head_before {
        return Ok(head_before);
    }
    let (mut entry, mut fresh) = (head[1], Vec::new());
    for _ in 0..ENTRIES_MAX {
        if entry == 0 {
            break;
        }
        let mut bytes = [0; 32];
        memory.read(entry, &mut bytes)?;
        let file = [entry, u64_at(&bytes, 16), u64_at(&bytes, 24)];
        if !known.contains(&file) && file[2] <= OBJECT_BYTES_MAX {
            fresh.push(file);
        }
        entry = u64_at(&bytes, 0);
    }
    // The newest is first in the list.
    let mut left = TOGETHER_BYTES_MAX;
    for file in fresh.into_iter().rev() {
        let Some(rest) = left.checked_sub(file[2]) else { return Ok(None) };
        left = rest;
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        known.insert(file);
        if let Ok(object) = memory.read_vec(file[1], file[2] as usize) {
            objects.push(object);
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::python::memory::RecordedMemory;

    /// An object file that XLA compiled, as it lies in the memory of the process.
    pub(crate) const OBJECT: &[u8] = include_bytes!("../../tests/fixtures/xla/wrapped_add.1.o");

    /// The object with other bytes from one place on.
    pub(crate) fn damaged(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
        let mut object = OBJECT.to_vec();
        let at = at.min(object.len());
        bytes.truncate(object.len() - at);
        object[at..at + bytes.len()].copy_from_slice(&bytes);
        object
    }

    #[test]
    fn functions_of_a_compiled_object_are_read() {
        let found = functions(OBJECT);
        let [function] = &found[..] else { panic!("{found:?}") };
        assert_eq!((function.name.as_str(), function.address % 16), ("wrapped_add.1", 0));
        assert!(function.size > 16);
    }

    #[test]
    fn the_same_code_is_told_wherever_it_was_placed() {
        let at = |address: u64| {
            let mut object = OBJECT.to_vec();
            let sections = u64_at(&object, 40) as usize;
            for n in 0..usize::from(u16_at(&object, 60)) {
                let section = sections + n * SECTION_BYTES;
                if u64_at(&object, section + 8) & SHF_EXECINSTR != 0 {
                    object[section + 16..section + 24].copy_from_slice(&address.to_le_bytes());
                }
            }
            functions(&object).remove(0)
        };
        let (one, other) = (at(0x1000), at(0x2000));
        assert_eq!((one.code, one.address + 0x1000), (other.code, other.address));
    }

    /// A process with a list of these object files, newest first as runtimes keep it.
    fn process(objects: &[&[u8]]) -> RecordedMemory {
        let mut memory = RecordedMemory::default();
        let entry = |n: usize| if n < objects.len() { 0x10_0000 * (n as u64 + 2) } else { 0 };
        let mut descriptor = vec![1, 0, 0, 0, 1, 0, 0, 0];
        descriptor.extend([entry(0), entry(0)].iter().flat_map(|word| word.to_le_bytes()));
        memory.insert(0x1000, descriptor);
        for (n, object) in objects.iter().enumerate() {
            let words = [entry(n + 1), 0, entry(n) + 0x100, object.len() as u64];
            memory.insert(entry(n), words.iter().flat_map(|word| word.to_le_bytes()).collect());
            memory.insert(entry(n) + 0x100, object.to_vec());
        }
        memory
    }

    #[test]
    fn each_object_is_read_once_the_oldest_first() {
        let mut registered = Registered::default();
        registered.add(0x1000);
        let (one, two, three) = (b"one".as_slice(), b"two".as_slice(), b"three".as_slice());
        assert_eq!(registered.read_new(&process(&[two, one])), [one, two]);
        assert!(registered.read_new(&process(&[two, one])).is_empty());
        // Entries are freed and used again: another address or size is another file.
        assert_eq!(registered.read_new(&process(&[three, two, one])), [one, three]);
    }

    #[test]
    fn a_list_that_never_ends_or_cannot_be_read_is_left() {
        let mut registered = Registered::default();
        registered.add(0x1000);
        let mut memory = process(&[b"one"]);
        let ring = [0x20_0000_u64, 0, 0x20_0100, 3];
        memory.insert(0x20_0000, ring.iter().flat_map(|word| word.to_le_bytes()).collect());
        assert!(registered.read_new(&memory).len() <= ENTRIES_MAX);
        registered.add(0x7000);
        assert!(registered.read_new(&memory).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_have_functions_within_them(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0..4000_usize) {
            for function in functions(&damaged(bytes, at)) {
                prop_assert!(function.size > 0 && function.address.checked_add(function.size).is_some());
            }
        }
    }
}
