//! Naming frames from recorded code objects that are created, freed and replaced.

use std::sync::{Arc, Mutex};

use deepctx_common::python::{CODE_WORDS, TEXT_HASH};
use deepctx_walk::python::code_checksum;
use proptest::prelude::*;

use super::super::code::read_code;
use super::super::layout::{Layout, all_layouts};
use super::*;
use crate::memory::RecordedMemory;

const CODE_TYPE: u64 = 0x5555_0000;
const CODE: u64 = 0x7000_0000;
const PID: u32 = 7;

/// Memory that the test changes while it is in use, and that can become unreadable.
#[derive(Clone, Default)]
struct SharedMemory(Arc<Mutex<(RecordedMemory, Option<ReadError>)>>);

impl TargetMemory for SharedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let shared = self.0.lock().unwrap();
        shared.1.map_or_else(|| shared.0.read(address, into), Err)
    }
}

impl SharedMemory {
    fn fail(&self, error: ReadError) {
        self.0.lock().unwrap().1 = Some(error);
    }

    /// The hash as stored in a string object.
    fn hash(text: &str) -> u64 {
        text.bytes().fold(5381, |hash, byte| hash.wrapping_mul(33) ^ u64::from(byte))
    }

    fn string(&self, layout: &Layout, address: u64, text: &str) {
        let user = &layout.user;
        let mut bytes = vec![0; usize::from(user.str_ascii_data)];
        let at = usize::from(user.str_length);
        bytes[at..at + 8].copy_from_slice(&(text.len() as u64).to_le_bytes());
        let at = usize::from(user.str_state);
        bytes[at..at + 4].copy_from_slice(&(0b11001_u32 << user.str_kind_shift).to_le_bytes());
        if layout.minor <= 11 {
            let at = usize::try_from(TEXT_HASH).unwrap();
            bytes[at..at + 8].copy_from_slice(&Self::hash(text).to_le_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
        self.0.lock().unwrap().0.insert(address, bytes);
    }

    /// A code object at `address` named `name`, whose strings are in a region chosen by `place`.
    fn code(&self, layout: &Layout, address: u64, place: u64, name: &str, first_line: u32) -> u32 {
        let (kernel, user) = (&layout.kernel, &layout.user);
        let base = 0x9000_0000 + place * 0x1_0000;
        let mut bytes = vec![0; 256];
        let mut put = |offset: u16, value: &[u8]| {
            let at = usize::from(offset);
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        put(user.object_type, &CODE_TYPE.to_le_bytes());
        put(user.code_firstlineno, &first_line.to_le_bytes());
        put(user.code_name, &base.to_le_bytes());
        put(user.code_filename, &(base + 0x1000).to_le_bytes());
        put(user.code_lines, &(base + 0x2000).to_le_bytes());
        if user.code_qualname != deepctx_common::python::NO_FIELD {
            put(user.code_qualname, &(base + 0x3000).to_le_bytes());
        }
        let words = bytes[usize::from(kernel.code_identity)..].chunks_exact(8).map(|b| b.try_into().unwrap());
        let words: Vec<u64> = words.map(u64::from_le_bytes).take(CODE_WORDS).collect();
        let name_hash = if kernel.code_name == 0 { 0 } else { Self::hash(name) };
        let checksum = code_checksum(&words.try_into().unwrap(), kernel.code_identity_words, name_hash);
        self.0.lock().unwrap().0.insert(address, bytes);
        self.string(layout, base, name);
        self.string(layout, base + 0x1000, "/file.py");
        self.string(layout, base + 0x3000, &format!("Class.{name}"));
        self.0.lock().unwrap().0.insert(base + 0x2000, vec![0; usize::from(user.bytes_data)]);
        checksum
    }
}

fn symbols(layout: &'static Layout, memory: &SharedMemory) -> PythonSymbols {
    let mut symbols = PythonSymbols::default();
    assert!(symbols.attach_to(PID, layout, CODE_TYPE, Box::new(memory.clone())));
    symbols
}

fn name(symbols: &mut PythonSymbols, checksum: u32) -> Result<String, NoPythonName> {
    symbols.frame(PID, CODE, checksum, 0).map(|frame| frame.name.to_string())
}

fn layout() -> &'static Layout {
    Layout::of(11, false).unwrap()
}

#[test]
fn a_code_object_of_every_version_is_named() {
    for layout in all_layouts() {
        let memory = SharedMemory::default();
        let checksum = memory.code(layout, CODE, 0, "f", 3);
        let mut symbols = symbols(layout, &memory);
        let frame = symbols.frame(PID, CODE, checksum, u32::MAX - 1).unwrap();
        let qualname = if layout.minor >= 11 { "Class.f" } else { "f" };
        assert_eq!(
            (&*frame.qualname, &*frame.file, frame.line, frame.first_line),
            (qualname, "/file.py", Some(3), 3)
        );
    }
}

#[test]
fn cached_names_outlive_their_process() {
    let memory = SharedMemory::default();
    let checksum = memory.code(layout(), CODE, 0, "f", 3);
    let mut symbols = symbols(layout(), &memory);
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("f"));
    memory.fail(ReadError::Gone);
    symbols.revalidate();
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("f"));
    assert_eq!(name(&mut symbols, checksum + 1), Err(NoPythonName::ProcessGone));
    symbols.detach(PID);
    assert_eq!(name(&mut symbols, checksum), Err(NoPythonName::NotAttached));
}

#[test]
fn a_replacing_code_object_has_its_own_name() {
    let memory = SharedMemory::default();
    let before = memory.code(layout(), CODE, 0, "before", 3);
    let mut symbols = symbols(layout(), &memory);
    assert_eq!(name(&mut symbols, before).as_deref(), Ok("before"));
    let after = memory.code(layout(), CODE, 1, "after", 30);
    // Samples from before and after the change arrive in any order.
    for _ in 0..3 {
        assert_eq!(name(&mut symbols, after).as_deref(), Ok("after"));
        assert_eq!(name(&mut symbols, before).as_deref(), Ok("before"));
        symbols.revalidate();
    }
    assert_eq!(name(&mut symbols, 99), Err(NoPythonName::Replaced));
}

#[test]
fn code_objects_differ_by_the_addresses_of_their_parts() {
    let memory = SharedMemory::default();
    let before = memory.code(layout(), CODE, 0, "before", 3);
    let mut symbols = symbols(layout(), &memory);
    assert_eq!(name(&mut symbols, before).as_deref(), Ok("before"));
    let after = memory.code(layout(), CODE, 1, "after", 3);
    assert_ne!(before, after);
    assert_eq!(name(&mut symbols, after).as_deref(), Ok("after"));
    symbols.revalidate();
    assert_eq!(name(&mut symbols, before).as_deref(), Ok("before"), "a sample from before the change");
}

#[test]
fn a_different_name_at_equal_addresses_is_detected() {
    for layout in all_layouts().iter().filter(|layout| layout.minor <= 11) {
        let memory = SharedMemory::default();
        let before = memory.code(layout, CODE, 0, "f1", 3);
        let mut symbols = symbols(layout, &memory);
        assert_eq!(name(&mut symbols, before).as_deref(), Ok("f1"));
        let after = memory.code(layout, CODE, 0, "f2", 3);
        assert_ne!(before, after, "3.{}", layout.minor);
        assert_eq!(name(&mut symbols, after).as_deref(), Ok("f2"));
        // Sampled while `f3` was there, and first requested when `f4` was.
        let late = memory.code(layout, CODE, 0, "f3", 3);
        memory.code(layout, CODE, 0, "f4", 3);
        assert_eq!(name(&mut symbols, late), Err(NoPythonName::Replaced));
    }
}

#[test]
fn an_equal_checksum_is_detected_by_revalidation() {
    // The checksum covers no pointers in this version, only a version number, which these two share.
    let layout = Layout::of(12, false).unwrap();
    let memory = SharedMemory::default();
    let checksum = memory.code(layout, CODE, 0, "before", 3);
    let mut symbols = symbols(layout, &memory);
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("before"));
    assert_eq!(memory.code(layout, CODE, 1, "after", 3), checksum);
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("before"), "not validated again within an epoch");
    symbols.revalidate();
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("after"));
    assert_eq!(symbols.counters().reread, 1);
}

#[test]
fn an_object_of_another_type_is_refused() {
    let memory = SharedMemory::default();
    let checksum = memory.code(layout(), CODE, 0, "f", 3);
    memory.0.lock().unwrap().0.insert(CODE, vec![0xab; 256]);
    let mut symbols = symbols(layout(), &memory);
    assert_eq!(name(&mut symbols, checksum), Err(NoPythonName::NotACodeObject));
    memory.fail(ReadError::Unmapped);
    assert_eq!(name(&mut symbols, checksum), Err(NoPythonName::Unreadable));
    memory.fail(ReadError::Denied);
    assert_eq!(name(&mut symbols, checksum), Err(NoPythonName::Denied));
}

#[test]
fn an_exec_drops_the_names_of_the_old_program() {
    // Both programs have code objects with equal checksums.
    let layout = Layout::of(12, false).unwrap();
    let memory = SharedMemory::default();
    let checksum = memory.code(layout, CODE, 0, "old", 3);
    let mut symbols = symbols(layout, &memory);
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("old"));
    let other = SharedMemory::default();
    assert_eq!(other.code(layout, CODE, 0, "new", 3), checksum);
    symbols.attach_to(PID, layout, CODE_TYPE, Box::new(other));
    assert_eq!(name(&mut symbols, checksum).as_deref(), Ok("new"));
}

#[test]
fn the_cache_is_bounded_and_counts_evictions() {
    let memory = SharedMemory::default();
    let checksum = memory.code(layout(), CODE, 0, "f", 3);
    let mut symbols = symbols(layout(), &memory);
    let requested = CODES_MAX as u64 * 2;
    for n in 0..requested {
        // The same object under another address each time: the strings are shared.
        let bytes = memory.0.lock().unwrap().0.read_vec(CODE, 256).unwrap();
        memory.0.lock().unwrap().0.insert(CODE + 0x1000, bytes);
        symbols.attach_to(PID, layout(), CODE_TYPE, Box::new(memory.clone()));
        assert!(symbols.frame(PID, CODE + 0x1000, checksum, 0).is_ok());
        assert!(symbols.cached() <= CODES_MAX, "after {n}");
    }
    let counters = symbols.counters();
    assert_eq!((counters.requested, counters.read), (requested, requested));
    assert_eq!(counters.evicted + symbols.cached() as u64, requested);
}

proptest! {
    /// Garbage in place of everything that is read, but with the right type.
    #[test]
    fn any_memory_gives_a_name_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 256..1024), at in any::<u32>()) {
        for layout in all_layouts() {
            let mut object = bytes.clone();
            let place = usize::from(layout.user.object_type);
            object[place..place + 8].copy_from_slice(&CODE_TYPE.to_le_bytes());
            // Half of the pointers lead back into the garbage.
            for field in [layout.user.code_name, layout.user.code_filename, layout.user.code_lines] {
                let field = usize::from(field);
                if object[field] % 2 == 0 {
                    let inside = CODE + u64::from(object[field]);
                    object[field..field + 8].copy_from_slice(&inside.to_le_bytes());
                }
            }
            let mut memory = RecordedMemory::default();
            memory.insert(CODE, object);
            if let Ok(code) = read_code(&memory, layout, CODE_TYPE, CODE) {
                let _ = code.lines.line_at(at);
            }
        }
    }
}
