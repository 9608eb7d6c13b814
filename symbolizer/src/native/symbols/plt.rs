//! Stubs of a file's procedure linkage table (PLT), through which it calls functions of other files.
//!
//! Owns: [`Stubs`]. Because: a stub has no symbol, and takes a noticeable part of the time of programs with many small
//! calls. Does not: read names; a stub is known by the number of the dynamic symbol that it jumps to.
//!
//! ```text
//!   stub  jmp *slot(%rip) ────▶ slot ◀──── .rela.plt, .rela.dyn: slot, kind, number of a dynamic symbol
//! ```
//! The bytes are untrusted: a stub that jumps elsewhere has no symbol.

use deepctx_address_space::elf::u64_at;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{LittleEndian, Object as _, ObjectSection as _};
use rustc_hash::FxHashMap;

use super::runtime_names::file_range;

/// Sections with stubs, and the bytes of one. Those of `.plt.got` may have twice as many, of which the jump is in the
/// first half.
const SECTIONS: [(&str, u64); 3] = [(".plt", 16), (".plt.sec", 16), (".plt.got", 8)];
/// Most bytes of a section that are decoded: the largest library of PyTorch has half a megabyte.
const CODE_BYTES_MAX: usize = 16 << 20;
/// Bytes of one relocation (`Elf64_Rela`): offset u64, type u32, symbol u32, addend i64.
const RELOCATION_BYTES: usize = 24;
/// Most relocations of a section that are read.
const RELOCATIONS_MAX: usize = 4 << 20;
/// `R_X86_64_GLOB_DAT` and `R_X86_64_JUMP_SLOT` (System V ABI, table 4.9).
const SLOT_KINDS: [u32; 2] = [6, 7];

/// Stubs of a file, ascending.
#[derive(Debug, Default)]
pub(super) struct Stubs(Box<[Stub]>);

#[derive(Clone, Copy, Debug)]
struct Stub {
    begin: u64,
    end: u64,
    /// Number of the dynamic symbol.
    symbol: u32,
}

impl Stubs {
    /// The stubs in a file; `data` are its bytes.
    pub(super) fn of(elf: &ElfFile<'_, FileHeader64<LittleEndian>>, data: &[u8]) -> Self {
        let section =
            |name: &str| file_range(elf, name).and_then(|range| data.get(range)).unwrap_or_default();
        let mut symbols = FxHashMap::default();
        for relocations in [section(".rela.plt"), section(".rela.dyn")] {
            for relocation in relocations.as_chunks::<RELOCATION_BYTES>().0.iter().take(RELOCATIONS_MAX) {
                let (slot, info) = (u64_at(relocation, 0), u64_at(relocation, 8));
                let (kind, symbol) = (info as u32, (info >> 32) as u32);
                if SLOT_KINDS.contains(&kind) && symbol != 0 {
                    symbols.insert(slot, symbol);
                }
            }
        }
        // A file of another machine has slots of other kinds.
        if symbols.is_empty() {
            return Self::default();
        }
        let mut stubs = Vec::new();
        for (name, size) in SECTIONS {
            let Some(address) = elf.section_by_name(name).map(|section| section.address()) else { continue };
            let code = section(name);
            let code = &code[..code.len().min(CODE_BYTES_MAX)];
            for now in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
                let is_jump = now.mnemonic() == Mnemonic::Jmp && now.is_ip_rel_memory_operand();
                if is_jump && let Some(&symbol) = symbols.get(&now.ip_rel_memory_address()) {
                    let begin = address.wrapping_add(now.ip().wrapping_sub(address) / size * size);
                    stubs.push(Stub { begin, end: begin.saturating_add(size), symbol });
                }
            }
        }
        stubs.sort_unstable_by_key(|stub| stub.begin);
        Self(stubs.into_boxed_slice())
    }

    /// Number of the dynamic symbol to which the stub at an address jumps.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let behind = self.0.partition_point(|stub| stub.begin <= address);
        let stub = self.0.get(behind.checked_sub(1)?)?;
        (address < stub.end).then_some(stub.symbol)
    }
}
