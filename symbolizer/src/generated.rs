//! Code that a process generated at run time, as an ELF image.
//!
//! Owns: finding the call frame information that compilers place beside such code, and wrapping both in an image from
//! which unwind tables are built as from any file. Because: XLA and other users of LLVM write `.eh_frame` next to the
//! code for their own unwinder, and it is in no file. Does not: read processes; the caller passes bytes and
//! addresses.

use std::ops::Range;

use deepctx_address_space::Arch;
use gimli::{BaseAddresses, EhFrame, EhFrameOffset, LittleEndian, UnwindSection as _};
use rustc_hash::FxHashMap;

/// The start of each `.eh_frame` CIE, after its length and up to its augmentation: id 0, version 1.
const CIE_START: [u8; 5] = [0, 0, 0, 0, 1];
/// Letters of an augmentation that begins with `z`: encodings of pointers, personality, data, signal frame, keys of
/// return addresses (LSB, chapter 10.6.1.1.1, and GCC's `unwind-dw2.c`).
const AUGMENTATION: &[u8] = b"RPLSB";
/// Size of the length field.
const LENGTH_BYTES: usize = 4;
/// Largest plausible entry.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// The runs of `.eh_frame` entries in memory, as ranges of offsets.
///
/// A run begins at a CIE and continues while entries of plausible length follow; a terminator ends it.
pub fn frame_runs(memory: &[u8]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut from = 0;
    while let Some(at) = augmentation(memory, from) {
        let begin = (at - CIE_START.len()).checked_sub(LENGTH_BYTES).filter(|begin| *begin >= from);
        let end = begin.map_or(0, |begin| run_end(memory, begin));
        if let Some(begin) = begin.filter(|begin| end > *begin) {
            runs.push(begin..end);
        }
        from = end.max(at + 1);
    }
    runs
}

/// The next augmentation of a CIE that begins at `from` or later.
fn augmentation(memory: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memory.get(at..)?.iter().position(|byte| *byte == b'z')?;
        let rest = &memory[at + 1..];
        let letters = rest.iter().take_while(|byte| AUGMENTATION.contains(byte)).count();
        let is_ended = letters > 0 && rest.get(letters) == Some(&0);
        if is_ended && memory[from..at].ends_with(&CIE_START) {
            return Some(at);
        }
        at += 1;
    }
}

fn run_end(memory: &[u8], begin: usize) -> usize {
    let mut end = begin;
    while let Some(length) =
        memory.get(end..end + LENGTH_BYTES).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
    {
        let next = end + LENGTH_BYTES + length as usize;
        if length == 0 || length as usize > ENTRY_BYTES_MAX || next > memory.len() {
            break;
        }
        end = next;
    }
    end
}

/// The functions described by a run of `.eh_frame` entries at an address, sorted by begin.
///
/// Only the heads of entries are read, each once. An unreadable entry describes nothing, here as in a table.
pub fn described(address: u64, run: &[u8]) -> Vec<Range<u64>> {
    let mut section = EhFrame::new(run, LittleEndian);
    if Arch::NATIVE == Arch::Aarch64 {
        section.set_vendor(gimli::Vendor::AArch64);
    }
    let bases = BaseAddresses::default().set_eh_frame(address);
    let word = |at: usize| Some(u32::from_le_bytes(*run.get(at..)?.first_chunk()?));
    let mut cies = FxHashMap::default();
    let (mut functions, mut at) = (Vec::new(), 0);
    while let Some((length, id)) = word(at).zip(word(at + LENGTH_BYTES)) {
        let offset = EhFrameOffset(at);
        if id == 0 {
            cies.extend(section.cie_from_offset(&bases, offset).map(|cie| (at, cie)));
        } else {
            // The CIE pointer is a distance backwards.
            let cie =
                |of: EhFrameOffset| cies.get(&of.0).cloned().ok_or(gimli::Error::NoUnwindInfoForAddress);
            let description = section.fde_from_offset(&bases, offset, |_, _, of| cie(of));
            functions.extend(description.map(|of| of.initial_address()..of.end_address()));
        }
        at = at.saturating_add(LENGTH_BYTES + length as usize);
    }
    functions.sort_unstable_by_key(|function| function.start);
    functions
}

/// Generated code with its call frame information. Addresses are those in the process.
#[derive(Clone, Debug, Default)]
pub struct GeneratedCode {
    /// Address range of the code.
    pub text: Range<u64>,
    /// The code, from the start of `text`; empty when it is not needed.
    pub code: Vec<u8>,
    /// Known or assumed functions.
    pub functions: Vec<Range<u64>>,
    /// Address and bytes of each run of `.eh_frame`.
    pub frames: Vec<(u64, Vec<u8>)>,
}

impl GeneratedCode {
    /// An ELF file with this code at these addresses.
    pub fn to_elf(&self) -> Vec<u8> {
        let mut image = Image::default();
        image.bytes.resize(usize::from(FILE_HEADER_BYTES + PROGRAM_HEADER_BYTES), 0);
        let code_at = image.append(&self.code);
        image.section(SHT_NULL, 0, 0, 0..0, 0);
        for (address, bytes) in &self.frames {
            let at = image.append(bytes);
            image.section(SHT_PROGBITS, EH_FRAME_NAME, *address, at, 0);
        }
        let names = image.append(NAMES);
        let name_table = image.section_count;
        image.section(SHT_STRTAB, SHSTRTAB_NAME, 0, names, 0);
        if !self.functions.is_empty() {
            let symbols: Vec<u8> = std::iter::once(&(0..0)).chain(&self.functions).flat_map(symbol).collect();
            let at = image.append(&symbols);
            image.section(SHT_SYMTAB, SYMTAB_NAME, 0, at, name_table);
        }
        image.finish(&self.text, &code_at, name_table)
    }
}

/// Section names: `.eh_frame` at 1, `.shstrtab` at 11, `.symtab` at 21.
const NAMES: &[u8] = b"\0.eh_frame\0.shstrtab\0.symtab\0";
const EH_FRAME_NAME: u32 = 1;
const SHSTRTAB_NAME: u32 = 11;
const SYMTAB_NAME: u32 = 21;

// Numbers and layouts of the System V gABI, chapters 4 and 5.
const FILE_HEADER_BYTES: u16 = 64;
const PROGRAM_HEADER_BYTES: u16 = 56;
const SECTION_HEADER_BYTES: u16 = 64;
const SYMBOL_BYTES: u64 = 24;
const SHT_NULL: u32 = 0;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHF_ALLOC: u64 = 2;
const SHN_ABS: u16 = 0xfff1;
const STT_FUNC: u8 = 2;
const PT_LOAD: u32 = 1;
const PF_R_X: u32 = 5;
const ET_DYN: u16 = 3;

/// A local function symbol; an empty range gives the null symbol that starts every table.
fn symbol(range: &Range<u64>) -> Vec<u8> {
    let (info, section) = if range.is_empty() { (0, 0) } else { (STT_FUNC, SHN_ABS) };
    let mut bytes = vec![0, 0, 0, 0, info, 0];
    bytes.extend(section.to_le_bytes());
    bytes.extend(range.start.to_le_bytes());
    bytes.extend(range.end.saturating_sub(range.start).to_le_bytes());
    bytes
}

#[derive(Default)]
struct Image {
    bytes: Vec<u8>,
    sections: Vec<u8>,
    section_count: u16,
}

impl Image {
    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        begin..self.bytes.len()
    }

    fn section(&mut self, kind: u32, name: u32, address: u64, at: Range<usize>, link: u16) {
        let (flags, entry) = match kind {
            SHT_PROGBITS => (SHF_ALLOC, 0),
            SHT_SYMTAB => (0, SYMBOL_BYTES),
            _ => (0, 0),
        };
        let header = &mut self.sections;
        header.extend([name, kind].map(u32::to_le_bytes).as_flattened());
        header
            .extend([flags, address, at.start as u64, at.len() as u64].map(u64::to_le_bytes).as_flattened());
        // The number of local symbols in a symbol table; without meaning in other sections.
        header.extend([u32::from(link), 1].map(u32::to_le_bytes).as_flattened());
        header.extend([8, entry].map(u64::to_le_bytes).as_flattened());
        self.section_count += 1;
    }

    fn finish(mut self, text: &Range<u64>, code: &Range<usize>, names: u16) -> Vec<u8> {
        let sections = std::mem::take(&mut self.sections);
        let table = self.append(&sections).start as u64;

        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(16, 0);
        head.extend([ET_DYN, Arch::NATIVE.elf_machine()].map(u16::to_le_bytes).as_flattened());
        head.extend(1u32.to_le_bytes());
        head.extend([0, u64::from(FILE_HEADER_BYTES), table].map(u64::to_le_bytes).as_flattened());
        head.extend(0u32.to_le_bytes());
        let counts =
            [FILE_HEADER_BYTES, PROGRAM_HEADER_BYTES, 1, SECTION_HEADER_BYTES, self.section_count, names];
        head.extend(counts.map(u16::to_le_bytes).as_flattened());

        head.extend([PT_LOAD, PF_R_X].map(u32::to_le_bytes).as_flattened());
        let memory = text.end.saturating_sub(text.start);
        let program = [code.start as u64, text.start, text.start, code.len() as u64, memory, 1];
        head.extend(program.map(u64::to_le_bytes).as_flattened());
        self.bytes[..head.len()].copy_from_slice(&head);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use deepctx_common::unwind::rule_kind;

    use super::{GeneratedCode, described, frame_runs, symbol};
    use crate::unwind_rows::UnwindTable;

    /// A CIE (CFA = rsp + 8) and an FDE for 32 bytes at `pc`, which pushes after one byte. The FDE stores the
    /// distance from its own field to `pc`.
    fn frames(address: u64, pc: u64) -> Vec<u8> {
        let mut bytes =
            vec![20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
        bytes.extend([20, 0, 0, 0, 28, 0, 0, 0]);
        let field = address + bytes.len() as u64;
        bytes.extend((pc.wrapping_sub(field) as u32).to_le_bytes());
        bytes.extend([32, 0, 0, 0, 0, 0x41, 0x0e, 16, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn frames_are_found_among_other_data() {
        let run = frames(0x7000_1000, 0x7000_0000);
        let mut memory = vec![0xaa; 40];
        memory.extend(&run);
        memory.extend([0; 16]);
        memory.extend(b"not a frame \x01zR\0 at all");
        let expect = 40..40 + run.len();
        assert_eq!(frame_runs(&memory).as_slice(), std::slice::from_ref(&expect));
    }

    #[test]
    fn frames_with_any_augmentation_are_found() {
        let check = |augmentation: &[u8], is_found: bool| {
            let mut run = vec![16, 0, 0, 0, 0, 0, 0, 0, 1];
            run.extend(augmentation);
            run.resize(20, 0);
            assert_eq!(!frame_runs(&run).is_empty(), is_found, "{augmentation:?}");
        };
        // Of C, of C++ with handlers, of a signal frame.
        for augmentation in [b"zR\0".as_slice(), b"zPLR\0", b"zRS\0"] {
            check(augmentation, true);
        }
        // Of GCC 2, and text.
        for augmentation in [b"eh\0".as_slice(), b"z\0", b"zRx\0", b"zebra\0"] {
            check(augmentation, false);
        }
    }

    #[test]
    fn a_truncated_entry_ends_the_run_before_it() {
        let run = frames(0, 0x100);
        for cut in 0..run.len() {
            let runs = frame_runs(&run[..cut]);
            assert!(runs.iter().all(|r| r.end <= cut), "{cut}: {runs:?}");
        }
    }

    #[test]
    fn a_run_says_which_functions_it_describes() {
        let address = 0x7f00_0000_2010;
        let mut run = frames(address, 0x7f00_0000_1040);
        let second = run.len();
        run.extend(frames(address + second as u64, 0x7f00_0000_1000));
        let begins =
            |run: &[u8]| described(address, run).iter().map(|function| function.start).collect::<Vec<_>>();
        assert_eq!(begins(&run), [0x7f00_0000_1000, 0x7f00_0000_1040]);
        // An unreadable entry describes nothing, and hides no other.
        let mut damaged = run.clone();
        damaged[9..11].copy_from_slice(b"qq");
        assert_eq!(described(address, &damaged), std::slice::from_ref(&(0x7f00_0000_1000..0x7f00_0000_1020)));
        for cut in 0..run.len() {
            assert!(described(address, &run[..cut]).len() <= 2, "{cut}");
            let mut wrong = run.clone();
            wrong[cut] = 0xff;
            assert!(described(address, &wrong).len() <= 2, "{cut}");
        }
    }

    #[test]
    fn a_function_that_ends_before_it_begins_is_empty() {
        let symbol = symbol(&Range { start: 8, end: 4 });
        assert_eq!(symbol[16..], [0_u8; 8]);
    }

    #[test]
    fn an_unwind_table_is_built_from_generated_code() {
        let (text, address) = (0x7f00_0000_1000, 0x7f00_0000_2010);
        let code = GeneratedCode {
            text: text..text + 0x1000,
            frames: vec![(address, frames(address, text + 0x40))],
            ..GeneratedCode::default()
        };
        let table = UnwindTable::from_elf(&code.to_elf()).unwrap();
        let rule = |at: u64| table.lookup(at).unwrap();
        assert_eq!((rule(text + 0x40).cfa, rule(text + 0x40).cfa_offset), (rule_kind::SP, 8));
        assert_eq!((rule(text + 0x41).cfa, rule(text + 0x41).cfa_offset), (rule_kind::SP, 16));
        assert_eq!(rule(text + 0x60).cfa, rule_kind::NONE, "after the function");
    }
}
