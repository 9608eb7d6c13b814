//! Device code: the kernels in a CUDA binary, and the resources they need.
//!
//! Owns: finding kernels in a cubin, and the images in a fat binary ([`fatbin`]), in a process without privileges
//! ([`reader`]). Because: a profiler that attaches
//! after a program loaded its kernels finds their names nowhere else; registers and shared memory limit how many
//! blocks are resident at once. Does not: disassemble (of instructions, only what they wait for is decoded), or decide
//! when to search a process.
//!
//! A cubin is an ELF file for machine 190. Up to CUDA 12 its OS/ABI is 0x33 with version 7, from CUDA 13 on 0x41 with
//! version 8; the facts read here are the same in both (as written by `ptxas` 12.9 and 13.5):
//!
//! | what | where |
//! |---|---|
//! | a kernel | a function symbol with bit 0x10 in `st_other`; functions that kernels call lack it |
//! | registers | attribute 0x2f of `.nv.info`: pairs of symbol and number; else the upper byte of `sh_info` of its text |
//! | static shared memory | size of `.nv.shared.KERNEL` |

mod evidence;
pub mod fatbin;
pub mod handle;
pub mod lines;
pub mod names;
pub mod process;
pub mod reader;
pub mod scan;
pub mod scoreboard;
pub mod stub;

use std::fmt;

use deepctx_common::reasons;
use object::LittleEndian;
use object::elf::{FileHeader64, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// ELF machine of device code.
const EM_CUDA: u16 = 190;
/// Smallest page size.
const PAGE: u64 = 4096;
/// Bit of `st_other`: the function can be launched.
const STO_ENTRY: u8 = 0x10;
/// Most kernels of one image; the largest libraries have some thousand.
pub const KERNELS_MAX: usize = 1 << 16;
/// Longest name.
const NAME_MAX: usize = 8192;

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Mangled name.
    pub name: String,
    /// Registers per thread; `None` when the file does not say.
    pub registers: Option<u32>,
    /// Static shared memory per block, in bytes.
    pub static_shared: u64,
    /// Size of its code in bytes.
    pub code: u64,
}

/// The content of a cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// Target architecture: 80 for `sm_80`.
    pub arch: u32,
    /// Kernels, in the order of the symbol table.
    pub kernels: Vec<Kernel>,
    /// Kernels beyond [`KERNELS_MAX`].
    pub left_out: usize,
}

/// Why bytes are not a cubin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoCubin {
    /// Not a 64-bit ELF file.
    NotElf,
    /// An ELF file for another machine.
    OtherMachine(u16),
    /// One of its tables is corrupt.
    Corrupt(CubinTable),
}

impl NoCubin {
    reasons! {
        class Unread, page "gpu.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) adds the machine and the table.
        pub fn reason(self) {
            Self::NotElf => "cubin-not-elf", "not a 64-bit ELF file";
            Self::OtherMachine(_) => "cubin-of-other-machine", "an ELF file for another machine than a CUDA device";
            Self::Corrupt(_) => "cubin-corrupt", "a table of the device code cannot be read";
        }
    }
}

impl fmt::Display for NoCubin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMachine(machine) => {
                write!(f, "an ELF file for machine {machine}, not for a CUDA device")
            }
            Self::Corrupt(table) => write!(f, "the {table} cannot be read"),
            Self::NotElf => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for NoCubin {}

/// A table of a cubin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CubinTable {
    /// The section headers.
    Sections,
    /// The symbol table.
    Symbols,
    /// The attributes (`.nv.info`).
    Attributes,
    /// The line table (`.debug_line`).
    Lines,
}

impl fmt::Display for CubinTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sections => "table of sections",
            Self::Symbols => "table of symbols",
            Self::Attributes => "table of attributes",
            Self::Lines => "table of lines",
        })
    }
}

/// Parses a cubin.
///
/// # Errors
/// [`NoCubin`].
pub fn read(bytes: &[u8]) -> Result<Cubin, NoCubin> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).map_err(|_| NoCubin::NotElf)?;
    let endian = header.endian().map_err(|_| NoCubin::NotElf)?;
    let machine = header.e_machine.get(endian).0;
    if machine != EM_CUDA {
        return Err(NoCubin::OtherMachine(machine));
    }
    let arch = architecture(header.e_ident.abi_version, header.e_flags.get(endian).0);
    let sections = header.sections(endian, bytes).map_err(|_| NoCubin::Corrupt(CubinTable::Sections))?;
    let symbols =
        sections.symbols(endian, bytes, SHT_SYMTAB).map_err(|_| NoCubin::Corrupt(CubinTable::Symbols))?;

    let mut registers = FxHashMap::default();
    let mut shared = FxHashMap::default();
    for section in sections.iter() {
        let Ok(name) = sections.section_name(endian, section) else { continue };
        if name == b".nv.info" {
            let info = section.data(endian, bytes).map_err(|_| NoCubin::Corrupt(CubinTable::Attributes))?;
            registers = register_counts(info);
        } else if let Some(kernel) = name.strip_prefix(b".nv.shared.") {
            shared.insert(kernel, section.sh_size.get(endian));
        }
    }

    let mut cubin = Cubin { arch, kernels: Vec::new(), left_out: 0 };
    for (number, symbol) in (0u32..).zip(symbols.iter()) {
        if symbol.st_type() != STT_FUNC || symbol.st_other.0 & STO_ENTRY == 0 {
            continue;
        }
        let Ok(name) = symbol.name(endian, symbols.strings()) else { continue };
        if name.is_empty() || name.len() > NAME_MAX {
            continue;
        }
        if cubin.kernels.len() >= KERNELS_MAX {
            cubin.left_out += 1;
            continue;
        }
        let text = sections.section(object::SectionIndex(usize::from(symbol.st_shndx.get(endian).0))).ok();
        let of_text = text.map(|text| text.sh_info.get(endian) >> 24).filter(|registers| *registers > 0);
        cubin.kernels.push(Kernel {
            name: String::from_utf8_lossy(name).into_owned(),
            registers: registers.get(&number).copied().or(of_text),
            static_shared: shared.get(name).copied().unwrap_or(0),
            code: symbol.st_size.get(endian),
        });
    }
    Ok(cubin)
}

/// The architecture that the flags of a cubin state.
fn architecture(abi_version: u8, flags: u32) -> u32 {
    match abi_version {
        // The second byte since CUDA 13; the first before.
        8.. => flags >> 8 & 0xff,
        _ => flags & 0xff,
    }
}

/// Registers by symbol number. An attribute is a format byte, a kind byte, and two bytes that are the value or
/// (format 4) the length of the value that follows.
fn register_counts(info: &[u8]) -> FxHashMap<u32, u32> {
    const SIZED: u8 = 4;
    const REGISTERS: u8 = 0x2f;
    let mut counts = FxHashMap::default();
    let mut rest = info;
    while let [format, kind, low, high, after @ ..] = rest {
        let length = if *format == SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let Some((value, after)) = after.split_at_checked(length) else { break };
        if let (REGISTERS, Some((&[a, b, c, d], tail))) = (*kind, value.split_first_chunk::<4>())
            && let Some(&[e, f, g, h]) = tail.first_chunk::<4>()
        {
            counts.insert(u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        }
        rest = after;
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // `tests/fixtures/cubin/kernels.ptx`, by `ptxas -arch=sm_80` of CUDA 12.9 and 13.5.
    const CUDA_12: &[u8] = include_bytes!("../../tests/fixtures/cubin/cuda12.cubin");
    const CUDA_13: &[u8] = include_bytes!("../../tests/fixtures/cubin/cuda13.cubin");

    #[test]
    fn kernels_are_found_in_both_formats() {
        let kernel = |name: &str, registers, static_shared, code| Kernel {
            name: name.to_owned(),
            registers: Some(registers),
            static_shared,
            code,
        };
        // Registers and shared memory as printed by `ptxas -v`. The device function is inlined or removed.
        let kernels = vec![kernel("_Z4reluPf", 6, 0, 256), kernel("_Z4gemmPfi", 10, 1024, 384)];
        for cubin in [CUDA_12, CUDA_13] {
            assert_eq!(read(cubin), Ok(Cubin { arch: 80, kernels: kernels.clone(), left_out: 0 }));
        }
        assert_eq!((CUDA_12[7], CUDA_12[8], CUDA_13[7], CUDA_13[8]), (0x33, 7, 0x41, 8));
    }

    #[test]
    fn registers_are_known_without_attributes() {
        let mut bytes = CUDA_13.to_vec();
        // Changes the attribute to an unknown kind.
        let at = bytes.windows(4).position(|four| four == [4, 0x2f, 8, 0]).unwrap();
        bytes[at + 1] = 0xee;
        let registers: Vec<_> = read(&bytes).unwrap().kernels.iter().map(|kernel| kernel.registers).collect();
        assert_eq!(registers, [Some(6), Some(10)]);
    }

    #[test]
    fn other_files_have_a_reason() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(matches!(read(&own), Err(NoCubin::OtherMachine(62 | 183))));
        assert_eq!(read(b"not one"), Err(NoCubin::NotElf));
        assert!(matches!(read(&CUDA_12[..1000]), Err(NoCubin::Corrupt(_))));
    }

    proptest! {
        #[test]
        fn corrupt_cubins_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut: prop::sample::Index,
        ) {
            for whole in [CUDA_12, CUDA_13] {
                let mut bytes = whole.to_vec();
                for (at, value) in &changes {
                    let at = at.index(bytes.len());
                    bytes[at] = *value;
                }
                _ = read(&bytes);
                bytes.truncate(cut.index(bytes.len()));
                _ = read(&bytes);
            }
        }
    }
}
