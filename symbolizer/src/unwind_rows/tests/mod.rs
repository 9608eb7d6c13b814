//! Tests of unwind tables, and builders of their input: call frame sections and ELF files.

mod aarch64;
mod cache;
mod forms;
mod hostile;
mod layout;
mod runtimes;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, rule_kind};

use super::{Count, NoTable, UnwindTable};

/// Call frame instructions, as bytes.
pub(super) mod cfi {
    pub(crate) const REMEMBER: [u8; 1] = [0x0a];
    pub(crate) const RESTORE_STATE: [u8; 1] = [0x0b];
    pub(crate) const RBX: u8 = 3;
    pub(crate) const RDI: u8 = 5;
    pub(crate) const RBP: u8 = 6;
    pub(crate) const RSP: u8 = 7;
    pub(crate) const R10: u8 = 10;
    pub(crate) const RA: u8 = 16;
    pub(crate) const X9: u8 = 9;
    pub(crate) const X29: u8 = 29;
    pub(crate) const X30: u8 = 30;
    pub(crate) const SP: u8 = 31;

    pub(crate) fn uleb(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }
    pub(crate) fn sleb(mut value: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 && low & 0x40 == 0 || value == -1 && low & 0x40 != 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }
    pub(crate) fn advance(delta: u32) -> Vec<u8> {
        match delta {
            0..64 => vec![0x40 | delta as u8],
            _ => [&[0x04], &delta.to_le_bytes()[..]].concat(),
        }
    }
    pub(crate) fn def_cfa(register: u8, offset: u64) -> Vec<u8> {
        [&[0x0c, register], &uleb(offset)[..]].concat()
    }
    pub(crate) fn def_cfa_register(register: u8) -> Vec<u8> {
        vec![0x0d, register]
    }
    pub(crate) fn def_cfa_offset(offset: u64) -> Vec<u8> {
        [&[0x0e], &uleb(offset)[..]].concat()
    }
    /// At CFA − 8 × `slot`.
    pub(crate) fn offset(register: u8, slot: u64) -> Vec<u8> {
        [&[0x80 | register], &uleb(slot)[..]].concat()
    }
    pub(crate) fn restore(register: u8) -> Vec<u8> {
        vec![0xc0 | register]
    }
    pub(crate) fn undefined(register: u8) -> Vec<u8> {
        vec![0x07, register]
    }
    pub(crate) fn same_value(register: u8) -> Vec<u8> {
        vec![0x08, register]
    }
    pub(crate) fn in_register(register: u8, other: u8) -> Vec<u8> {
        vec![0x09, register, other]
    }
    pub(crate) fn def_cfa_expression(operations: &[u8]) -> Vec<u8> {
        [&[0x0f], &uleb(operations.len() as u64)[..], operations].concat()
    }
    pub(crate) fn expression(register: u8, operations: &[u8]) -> Vec<u8> {
        [&[0x10, register], &uleb(operations.len() as u64)[..], operations].concat()
    }
    /// `DW_OP_breg`.
    pub(crate) fn breg(register: u8, offset: i64) -> Vec<u8> {
        [&[0x70 + register], &sleb(offset)[..]].concat()
    }
    pub(crate) const DEREF: [u8; 1] = [0x06];
    pub(crate) fn plus_uconst(value: u64) -> Vec<u8> {
        [&[0x23], &uleb(value)[..]].concat()
    }
    /// The expression of PLT entries.
    pub(crate) fn plt(threshold: u8) -> Vec<u8> {
        let rest = [0x3f, 0x1a, 0x30 + threshold, 0x2a, 0x33, 0x24, 0x22];
        [&breg(RSP, 8)[..], &breg(RA, 0), &rest].concat()
    }
    /// The usual instructions of a CIE: CFA = rsp + 8, return address at CFA − 8.
    pub(crate) fn initial() -> Vec<u8> {
        [def_cfa(RSP, 8), offset(RA, 1)].concat()
    }
}

/// Builds a call frame section.
#[derive(Clone, Default)]
pub(super) struct Section {
    pub(super) bytes: Vec<u8>,
    is_debug: bool,
    is_aarch64: bool,
}

impl Section {
    pub(super) fn debug() -> Self {
        Self { is_debug: true, ..Self::default() }
    }

    pub(super) fn aarch64() -> Self {
        Self { is_aarch64: true, ..Self::default() }
    }

    fn entry(&mut self, body: &[u8]) -> usize {
        let at = self.bytes.len();
        let padded = body.len().next_multiple_of(4);
        self.bytes.extend((padded as u32).to_le_bytes());
        self.bytes.extend(body);
        self.bytes.resize(at + 4 + padded, 0);
        at
    }

    /// Adds a CIE with absolute addresses of eight bytes; returns its offset.
    pub(super) fn cie(&mut self, augmentation: &str, instructions: &[u8]) -> usize {
        self.cie_encoded(augmentation, 0, instructions)
    }

    /// Adds a CIE with an `R` in its augmentation; `encoding` is a `DW_EH_PE`.
    pub(super) fn cie_encoded(&mut self, augmentation: &str, encoding: u8, instructions: &[u8]) -> usize {
        let id = if self.is_debug { u32::MAX } else { 0 };
        let mut body = id.to_le_bytes().to_vec();
        body.push(1);
        body.extend(augmentation.as_bytes());
        // Terminator; code factor, data factor −8, return address column.
        body.extend(if self.is_aarch64 { [0, 4, 0x78, cfi::X30] } else { [0, 1, 0x78, cfi::RA] });
        if augmentation.starts_with('z') {
            body.extend([1, encoding]);
        }
        body.extend(instructions);
        self.entry(&body)
    }

    /// Adds an FDE with absolute addresses.
    pub(super) fn fde(&mut self, cie: usize, begin: u64, length: u64, instructions: &[u8]) -> usize {
        let fields = [begin.to_le_bytes(), length.to_le_bytes()].concat();
        self.fde_encoded(cie, &fields, instructions)
    }

    /// Adds an FDE with begin and length as bytes.
    pub(super) fn fde_encoded(&mut self, cie: usize, fields: &[u8], instructions: &[u8]) -> usize {
        let pointer = if self.is_debug { cie } else { self.bytes.len() + 4 - cie };
        let mut body = (pointer as u32).to_le_bytes().to_vec();
        body.extend(fields);
        if !self.is_debug {
            body.push(0);
        }
        body.extend(instructions);
        self.entry(&body)
    }

    pub(super) fn terminator(&mut self) {
        self.bytes.extend([0; 4]);
    }
}

/// Builds an ELF file.
#[derive(Clone)]
pub(super) struct Elf {
    pub(super) kind: u16,
    pub(super) machine: u16,
    pub(super) entry: u64,
    /// Executable segments: start and length.
    pub(super) texts: Vec<(u64, u64)>,
    /// Name, address, flags, contents.
    pub(super) sections: Vec<(&'static str, u64, u64, Vec<u8>)>,
    /// Type, and index of the section that it contains; a `PT_LOAD` is not executable.
    pub(super) segments: Vec<(u32, usize)>,
}

/// Address of the text of [`Elf::of`].
pub(super) const TEXT: u64 = 0x10_0000;

impl Elf {
    /// A library with 64 MiB of text at [`TEXT`].
    pub(super) fn of(eh_frame: Section) -> Self {
        let mut elf = Self::without_frames();
        elf.sections.push((".eh_frame", 0x1000, 2, eh_frame.bytes));
        elf
    }

    pub(super) fn without_frames() -> Self {
        let texts = vec![(TEXT, 64 << 20)];
        Self {
            kind: 3,
            machine: Arch::X86_64.elf_machine(),
            entry: 0,
            texts,
            sections: Vec::new(),
            segments: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let count = self.texts.len() + self.segments.len();
        let mut data = vec![0; 64 + 56 * count];
        let mut headers = vec![0; 64];
        let mut names = vec![0];
        let mut offsets = Vec::new();
        // The names of dynamic symbols stand in the section behind them.
        let header =
            |name: usize, kind: u32, flags: u64, address: u64, offset: usize, size: usize, link: usize| {
                let words = [flags, address, offset as u64, size as u64, link as u64, 1, 0];
                let mut bytes = [(name as u32).to_le_bytes(), kind.to_le_bytes()].concat();
                bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
                bytes.resize(64, 0);
                bytes
            };
        for (name, address, flags, bytes) in &self.sections {
            let (kind, link) = match *name {
                ".dynsym" => (11, offsets.len() + 2),
                ".rela.dyn" => (4, 0),
                _ => (1, 0),
            };
            headers.extend(header(names.len(), kind, *flags, *address, data.len(), bytes.len(), link));
            names.extend(name.as_bytes());
            names.push(0);
            offsets.push(data.len());
            data.extend(bytes);
        }
        headers.extend(header(0, 3, 0, 0, data.len(), names.len(), 0));
        data.extend(names);
        data.resize(data.len().next_multiple_of(8), 0);

        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend([self.kind, self.machine].iter().flat_map(|half| half.to_le_bytes()));
        file.extend(1u32.to_le_bytes());
        for word in [self.entry, 64, data.len() as u64] {
            file.extend(word.to_le_bytes());
        }
        let sections = self.sections.len() as u16 + 2;
        file.extend([0u8; 4]);
        for half in [64, 56, count as u16, 64, sections, sections - 1] {
            file.extend(half.to_le_bytes());
        }
        let mut segment = |kind: u32, flags: u32, offset: usize, address: u64, in_file: u64, length: u64| {
            file.extend([kind.to_le_bytes(), flags.to_le_bytes()].concat());
            for word in [offset as u64, address, address, in_file, length, 1] {
                file.extend(word.to_le_bytes());
            }
        };
        for &(begin, length) in &self.texts {
            segment(1, 5, 0x1000, begin, 0, length);
        }
        for &(kind, section) in &self.segments {
            let (_, address, _, bytes) = &self.sections[section];
            segment(kind, 4, offsets[section], *address, bytes.len() as u64, bytes.len() as u64);
        }
        data[..file.len()].copy_from_slice(&file);
        data.extend(headers);
        data
    }

    pub(super) fn table(&self) -> Result<UnwindTable, NoTable> {
        let arch = Arch::of_elf_machine(self.machine).unwrap_or(Arch::NATIVE);
        UnwindTable::from_elf_for(&self.bytes(), arch)
    }
}

/// CFA = rsp + offset, rbp untouched.
pub(super) fn rsp(offset: i32) -> Rule {
    Rule { cfa: rule_kind::SP, cfa_offset: offset, ..Rule::default() }
}

/// CFA = rbp + 16, rbp at CFA − 16.
pub(super) fn rbp_frame() -> Rule {
    Rule { cfa: rule_kind::FP, cfa_offset: 16, fp: fp_kind::AT_CFA, fp_offset: -16, ..Rule::default() }
}

pub(super) fn kind_at(table: &UnwindTable, address: u64) -> u8 {
    table.lookup(address).map_or(rule_kind::NONE, |rule| rule.cfa)
}

pub(super) fn counted(table: &UnwindTable, count: Count) -> u64 {
    table.stats().get(count)
}
