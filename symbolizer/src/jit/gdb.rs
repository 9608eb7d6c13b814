//! Code that a runtime registers for debuggers (GDB's JIT interface).
//!
//! Owns: the list behind `__jit_debug_descriptor`, and the functions of the object files in it. Because: LLVM reports
//! compiled code only to debuggers: each compilation is an object file with symbols in the memory of the process.
//! Does not: find the variable ([`crate::variable`]), or keep names.
//!
//! ```text
//! __jit_debug_descriptor { version u32, action u32, relevant *entry, first *entry }
//! entry                  { next *entry, previous *entry, object *bytes, size u64 }
//! ```

use std::hash::Hasher as _;
use std::ops::Range;

use deepctx_address_space::elf::{u16_at, u32_at, u64_at};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::{REREAD_INTERVAL, ReadTime};
use crate::memory::{ReadError, TargetMemory};

/// Name and size of the variable.
pub(crate) const DESCRIPTOR: (&str, u64) = ("__jit_debug_descriptor", 24);
/// The only existing version.
const VERSION: u32 = 1;
/// Most entries of the list read.
const ENTRIES_MAX: usize = 1 << 16;
/// Largest object file read.
const OBJECT_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of object files read per scan; the next scan continues.
const SCAN_BYTES_MAX: u64 = 64 << 20;
/// Most functions taken from one object file.
const FUNCTIONS_MAX: usize = 1 << 16;
/// Longest name kept.
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
/// Most relocations of one function.
const RELOCATIONS_MAX: usize = 1 << 12;

/// A function of an object file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name as in the file.
    pub name: String,
    /// Address: of a relocated file in memory, the address in the process.
    pub address: u64,
    /// Size in bytes; never 0.
    pub size: u64,
    /// Hash of the name and the code before relocation: equal in every copy of the file.
    pub code_hash: u64,
}

/// A function symbol of an object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectFunction<'a> {
    /// Name as in the file, of bounded length; never empty.
    pub(crate) name: &'a [u8],
    /// Stated address.
    address: u64,
    /// Size in bytes; never 0, and `address + size` does not overflow.
    size: u64,
    /// Index of its section.
    section: usize,
    /// Offset in that section; `None` if the file is inconsistent.
    pub(crate) section_offset: Option<u64>,
    /// Code before relocation; empty when the file does not contain it.
    pub(crate) code: &'a [u8],
}

impl ObjectFunction<'_> {
    /// Stated address: of a relocated file in memory, the address in the process.
    pub(super) const fn address(&self) -> u64 {
        self.address
    }
}

impl From<&ObjectFunction<'_>> for Function {
    fn from(symbol: &ObjectFunction<'_>) -> Self {
        Self {
            name: String::from_utf8_lossy(symbol.name).into_owned(),
            address: symbol.address,
            size: symbol.size,
            code_hash: hash(symbol.name, symbol.code),
        }
    }
}

/// The functions of an object file; empty for other bytes. An inconsistent table ends the list.
pub fn functions(bytes: &[u8]) -> Vec<Function> {
    object_functions(bytes).iter().map(Function::from).collect()
}

/// The functions of an object file with their code.
pub(crate) fn object_functions(bytes: &[u8]) -> Vec<ObjectFunction<'_>> {
    read_functions(bytes).unwrap_or_default()
}

/// The ranges of a function's code that relocation changes, as offsets from its start. `None` when the file does not
/// say, or is for an unsupported machine.
pub(crate) fn relocations(bytes: &[u8], function: &ObjectFunction<'_>) -> Option<Vec<Range<usize>>> {
    let begin = function.section_offset?;
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
            found.push(at as usize..at as usize + bytes);
        }
    }
    Some(found)
}

fn read_functions(bytes: &[u8]) -> Option<Vec<ObjectFunction<'_>>> {
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
            let (address, section_offset) = if relocatable {
                (begin.checked_add(value), Some(value))
            } else {
                (Some(value), value.checked_sub(begin))
            };
            let name = strings.get(u32_at(symbol, 0) as usize..).unwrap_or_default();
            let name = &name[..name.iter().position(|b| *b == 0).unwrap_or(name.len()).min(NAME_BYTES_MAX)];
            let Some(address) = address.filter(|at| at.checked_add(size).is_some()) else { continue };
            // Beyond its section there is other code.
            let is_inside = section_offset
                .is_none_or(|from| from.checked_add(size).is_some_and(|end| end <= u64_at(holder, 32)));
            if name.is_empty() || !is_inside {
                continue;
            }
            let code = section_offset.and_then(|from| part(u64_at(holder, 24).checked_add(from)?, size));
            let code = code.unwrap_or_default();
            functions.push(ObjectFunction { name, address, size, section: number, section_offset, code });
            if functions.len() >= FUNCTIONS_MAX {
                return Some(functions);
            }
        }
    }
    Some(functions)
}

/// A range of a file; `None` beyond its end.
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

/// Hash of bytes, to notice that others are in their place.
pub(crate) fn bytes_hash(bytes: &[u8]) -> u64 {
    hash(b"", bytes)
}

/// An entry of a list: where it is, and which bytes are its object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectFile {
    entry: u64,
    address: u64,
    size: u64,
}

impl ObjectFile {
    pub(super) fn read(&self, memory: &dyn TargetMemory) -> Result<Vec<u8>, ReadError> {
        memory.read_vec(self.address, self.size as usize)
    }
}

/// An object file that was read.
#[derive(Clone, Copy, Debug)]
struct ReadObject {
    /// Address of the descriptor.
    descriptor: u64,
    /// Hash of its bytes: another file may be registered in its place. `None` if it could not be read.
    content: Option<u64>,
    checked_at: ReadTime,
}

/// What a runtime did since its lists were read before.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Object files that it registered, oldest first.
    pub(super) new: Vec<(ObjectFile, Vec<u8>)>,
    /// Object files that it registers no longer.
    pub(super) gone: Vec<ObjectFile>,
}

/// A descriptor and its first entry. An entry that is registered or removed is named by the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListHead {
    /// Version and last action.
    action: u64,
    /// The entry of that action.
    relevant: u64,
    /// The newest entry, and its object file.
    first: ObjectFile,
}

/// The descriptors of one process, and the state of reading their lists.
#[derive(Clone, Debug, Default)]
pub(super) struct Descriptors {
    /// Addresses of the descriptors.
    addresses: Vec<u64>,
    /// ListHead of each list when it was last read to the end.
    heads: Vec<Option<ListHead>>,
    /// Entries whose object files were read.
    known: FxHashMap<ObjectFile, ReadObject>,
}

impl Descriptors {
    /// Adds the address of a descriptor.
    pub(super) fn add(&mut self, descriptor: u64) {
        if !self.addresses.contains(&descriptor) {
            self.addresses.push(descriptor);
            self.heads.push(None);
        }
    }

    /// True without descriptors.
    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// What changed since the last call.
    pub(super) fn read_new(&mut self, memory: &dyn TargetMemory, now: ReadTime) -> Changes {
        let mut changes = Changes::default();
        for (descriptor, head) in self.addresses.iter().zip(&mut self.heads) {
            let known = &mut self.known;
            // A list that changes while it is read is read again by the next scan.
            if let Ok(read) = read_list(memory, *descriptor, now, *head, known, &mut changes) {
                *head = read;
            }
        }
        changes
    }

    /// Whether a file is to be compared with memory again.
    pub(super) fn is_due(&self, file: ObjectFile, now: ReadTime) -> bool {
        self.known.get(&file).is_some_and(|known| known.checked_at.is_before(now, REREAD_INTERVAL))
    }

    /// Files that are to be compared again: at most so many, those first that were not for the longest time.
    pub(super) fn due(&self, now: ReadTime, most: usize) -> Vec<ObjectFile> {
        let due = self.known.iter().filter(|(_, known)| known.checked_at.is_before(now, REREAD_INTERVAL));
        let mut due: Vec<_> = due.map(|(file, known)| (known.checked_at.instant(), *file)).collect();
        due.sort_unstable_by_key(|(at, _)| *at);
        due.into_iter().take(most).map(|(_, file)| file).collect()
    }

    /// The bytes of a known file, if they are still in memory; an error if that cannot be known.
    pub(super) fn read_again(
        &mut self,
        file: ObjectFile,
        memory: &dyn TargetMemory,
        now: ReadTime,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let Some(known) = self.known.get_mut(&file) else { return Ok(None) };
        known.checked_at = now;
        match file.read(memory) {
            Ok(object) => Ok(Some(object).filter(|object| known.content == Some(bytes_hash(object)))),
            Err(ReadError::Unmapped) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A file is not what it was: whatever its list has in its place is read.
    pub(super) fn forget(&mut self, file: ObjectFile) {
        self.known.remove(&file);
        self.heads.fill(None);
    }
}

/// Reads one list, if it was changed. Returns its head if the list was read to the end.
fn read_list(
    memory: &dyn TargetMemory,
    descriptor: u64,
    now: ReadTime,
    head_before: Option<ListHead>,
    known: &mut FxHashMap<ObjectFile, ReadObject>,
    changes: &mut Changes,
) -> Result<Option<ListHead>, ReadError> {
    let head = read_head(memory, descriptor)?;
    if head.action as u32 != VERSION || Some(head) == head_before {
        return Ok(head_before);
    }
    let (mut entry, mut files, mut fresh) = (head.first.entry, FxHashSet::default(), Vec::new());
    while entry != 0 && files.len() < ENTRIES_MAX {
        let (file, next) = read_entry(memory, entry)?;
        if !files.insert(file) {
            // A ring.
            break;
        }
        if !known.contains_key(&file) && file.size <= OBJECT_BYTES_MAX {
            fresh.push(file);
        }
        entry = next;
    }
    // Of a list that changes meanwhile, a freed entry may lead to an early end.
    if read_head(memory, descriptor)? != head {
        return Ok(None);
    }
    if entry == 0 {
        let gone = known.extract_if(|file, of| of.descriptor == descriptor && !files.contains(file));
        changes.gone.extend(gone.map(|(file, _)| file));
    }
    // The newest is first in the list.
    let mut left = SCAN_BYTES_MAX;
    for file in fresh.into_iter().rev() {
        let Some(rest) = left.checked_sub(file.size) else { return Ok(None) };
        left = rest;
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        let object = match file.read(memory) {
            Err(error) if error.is_silence() => return Ok(None),
            object => object.ok(),
        };
        let content = object.as_ref().map(|object| bytes_hash(object));
        known.insert(file, ReadObject { descriptor, content, checked_at: now });
        changes.new.extend(object.map(|object| (file, object)));
    }
    Ok(Some(head))
}

fn read_head(memory: &dyn TargetMemory, descriptor: u64) -> Result<ListHead, ReadError> {
    let mut bytes = [0; 24];
    memory.read(descriptor, &mut bytes)?;
    let (action, relevant, entry) = (u64_at(&bytes, 0), u64_at(&bytes, 8), u64_at(&bytes, 16));
    // Entries are freed and reused: a different file in the first entry shows that.
    let none = ObjectFile { entry, address: 0, size: 0 };
    let first = if entry == 0 { none } else { read_entry(memory, entry)?.0 };
    Ok(ListHead { action, relevant, first })
}

/// An entry, and the address of the next.
fn read_entry(memory: &dyn TargetMemory, entry: u64) -> Result<(ObjectFile, u64), ReadError> {
    let mut bytes = [0; 32];
    memory.read(entry, &mut bytes)?;
    Ok((ObjectFile { entry, address: u64_at(&bytes, 16), size: u64_at(&bytes, 24) }, u64_at(&bytes, 0)))
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::RecordedMemory;

    /// An object file that XLA compiled, from the memory of the process.
    pub(crate) const OBJECT: &[u8] = include_bytes!("../../tests/fixtures/xla/wrapped_add.1.o");

    /// The object with its bytes overwritten from an offset on.
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

    /// The object with its code at this address.
    pub(crate) fn object_at(address: u64) -> Vec<u8> {
        let mut object = OBJECT.to_vec();
        let sections = u64_at(&object, 40) as usize;
        for n in 0..usize::from(u16_at(&object, 60)) {
            let section = sections + n * SECTION_BYTES;
            if u64_at(&object, section + 8) & SHF_EXECINSTR != 0 {
                object[section + 16..section + 24].copy_from_slice(&address.to_le_bytes());
            }
        }
        object
    }

    #[test]
    fn equal_code_has_the_same_hash_at_any_address() {
        let at = |address: u64| functions(&object_at(address)).remove(0);
        let (one, other) = (at(0x1000), at(0x2000));
        assert_eq!((one.code_hash, one.address + 0x1000), (other.code_hash, other.address));
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

    /// The new object files of a process, and the number of those that are gone.
    fn changes(descriptors: &mut Descriptors, memory: &RecordedMemory) -> (Vec<Vec<u8>>, usize) {
        let changes = descriptors.read_new(memory, ReadTime::now(0));
        (changes.new.into_iter().map(|(_, object)| object).collect(), changes.gone.len())
    }

    #[test]
    fn each_object_is_read_once_oldest_first() {
        let mut descriptors = Descriptors::default();
        descriptors.add(0x1000);
        let (one, two, three) = (b"one".to_vec(), b"two".to_vec(), b"three".to_vec());
        let both = process(&[&two, &one]);
        assert_eq!(changes(&mut descriptors, &both), (vec![one.clone(), two.clone()], 0));
        assert_eq!(changes(&mut descriptors, &both), (vec![], 0));
        // Entries are freed and reused: another address or size means another file.
        let reused = process(&[&three, &two, &one]);
        assert_eq!(changes(&mut descriptors, &reused), (vec![one, three], 1));
    }

    #[test]
    fn an_object_that_left_the_list_is_gone() {
        let mut descriptors = Descriptors::default();
        descriptors.add(0x1000);
        let all = process(&[b"one", b"two"]);
        assert_eq!(changes(&mut descriptors, &all).0.len(), 2);
        assert_eq!(
            changes(&mut descriptors, &process(&[b"one"])),
            (vec![], 0),
            "the descriptor is as before"
        );
        // An entry in the middle is removed: the first stays, and the descriptor names the removed one.
        let mut memory = process(&[b"one"]);
        let first = 0x20_0000_u64;
        let words = [2_u64 << 32 | 1, 0x30_0000, first];
        memory.insert(0x1000, words.iter().flat_map(|word| word.to_le_bytes()).collect());
        assert_eq!(changes(&mut descriptors, &memory), (vec![], 1));
        // Registered again.
        assert_eq!(changes(&mut descriptors, &all), (vec![b"two".to_vec()], 0));
        // A list that cannot be read to its end says nothing of the others.
        let mut memory = all.clone();
        memory
            .insert(first, [0x7000_u64, 0, first + 0x100, 3].iter().flat_map(|w| w.to_le_bytes()).collect());
        memory.insert(0x1000, words.iter().flat_map(|word| word.to_le_bytes()).collect());
        assert_eq!(changes(&mut descriptors, &memory), (vec![], 0));
    }

    #[test]
    fn another_object_in_the_same_place_is_read_again() {
        let mut descriptors = Descriptors::default();
        descriptors.add(0x1000);
        let (memory, at) = (process(&[b"one"]), ReadTime::now(5));
        let [(file, _)] = descriptors.read_new(&memory, at).new[..] else { panic!("one object") };
        assert!(!descriptors.is_due(file, at) && descriptors.is_due(file, ReadTime::now(1_000_000_005)));
        assert_eq!(descriptors.read_again(file, &memory, at), Ok(Some(b"one".to_vec())));
        assert_eq!(descriptors.read_again(file, &RecordedMemory::default(), at), Ok(None));
        let memory = process(&[b"two"]);
        assert_eq!(descriptors.read_again(file, &memory, at), Ok(None));
        descriptors.forget(file);
        assert_eq!(changes(&mut descriptors, &memory), (vec![b"two".to_vec()], 0));
    }

    #[test]
    fn a_cyclic_or_unreadable_list_is_bounded() {
        let mut descriptors = Descriptors::default();
        descriptors.add(0x1000);
        let mut memory = process(&[b"one"]);
        let ring = [0x20_0000_u64, 0, 0x20_0100, 3];
        memory.insert(0x20_0000, ring.iter().flat_map(|word| word.to_le_bytes()).collect());
        assert_eq!(changes(&mut descriptors, &memory), (vec![b"one".to_vec()], 0));
        descriptors.add(0x7000);
        assert_eq!(changes(&mut descriptors, &memory), (vec![], 0));
    }

    proptest! {
        #[test]
        fn any_bytes_give_valid_functions(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0..4000_usize) {
            for function in functions(&damaged(bytes, at)) {
                prop_assert!(function.size > 0 && function.address.checked_add(function.size).is_some());
            }
        }
    }
}
