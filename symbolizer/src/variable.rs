//! The address of a library's variable, by its name.
//!
//! Owns: searching the symbol tables of a file for one data symbol. Because: runtimes publish data in variables with
//! agreed names (`__jit_debug_descriptor`, `environ`), often in static symbol tables of a million entries, of which a
//! few dozen have the right size. Does not: read processes, or resolve symbol versions.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use deepctx_address_space::Svma;
use deepctx_address_space::elf::{read_array, read_range, u16_at, u32_at, u64_at};

/// Most section headers read.
const SECTIONS_MAX: u64 = 1 << 16;
/// Most bytes of the symbol tables of a file searched: 10 million symbols. Of all together: thousands of sections may
/// state the same bytes.
const SYMBOLS_BYTES_MAX: u64 = 240 << 20;
/// Most names compared, each by a read.
const NAMES_MAX: usize = 1 << 16;
/// Bytes of a symbol table read at a time.
const PIECE: u64 = 24 << 13;
const SYMBOL_BYTES: usize = 24;
const SECTION_BYTES: u64 = 64;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_OBJECT: u8 = 1;

/// The stated address of the variable with this name and size, from the static or dynamic symbols.
pub(crate) fn find(file: &File, name: &str, size: u64) -> Option<Svma> {
    let length = file.metadata().ok()?.len();
    let header: [u8; 64] = read_array(file, 0).ok()?;
    if header[..4] != *b"\x7fELF" || u64::from(u16_at(&header, 58)) != SECTION_BYTES {
        return None;
    }
    let (at, count) = (u64_at(&header, 40), u64::from(u16_at(&header, 60)).min(SECTIONS_MAX));
    let sections = read_range(file, length, at, count * SECTION_BYTES)?;
    let section = |n: usize| sections.chunks_exact(SECTION_BYTES as usize).nth(n);
    let (mut bytes_left, mut names_left) = (SYMBOLS_BYTES_MAX, NAMES_MAX);
    for table in sections.chunks_exact(SECTION_BYTES as usize) {
        if !matches!(u32_at(table, 4), SHT_SYMTAB | SHT_DYNSYM) {
            continue;
        }
        let Some(names) = section(u32_at(table, 40) as usize).map(|names| u64_at(names, 24)) else {
            continue;
        };
        let (mut from, mut left) = (u64_at(table, 24), u64_at(table, 32).min(bytes_left));
        while left >= SYMBOL_BYTES as u64 {
            let Some(piece) = read_range(file, length, from, left.min(PIECE)) else { break };
            bytes_left = bytes_left.saturating_sub(piece.len() as u64);
            for symbol in piece.chunks_exact(SYMBOL_BYTES) {
                let defined = u16_at(symbol, 6) != 0;
                if symbol[4] & 15 == STT_OBJECT && defined && u64_at(symbol, 16) == size {
                    names_left = names_left.checked_sub(1)?;
                    let at = names.saturating_add(u32_at(symbol, 0).into());
                    if is_named(file, at, name) {
                        return Some(Svma(u64_at(symbol, 8)));
                    }
                }
            }
            from = from.saturating_add(piece.len() as u64);
            left -= piece.len() as u64;
        }
    }
    None
}

fn is_named(file: &File, at: u64, name: &str) -> bool {
    let mut bytes = vec![0; name.len() + 1];
    file.read_exact_at(&mut bytes, at).is_ok() && bytes.split_last() == Some((&0, name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environ_of_the_c_library_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        let Some(libc) = path.into_iter().find(|path| path.contains("libc.so")) else {
            println!("skipped: the tests are linked statically");
            return;
        };
        let file = File::open(libc).unwrap();
        assert!(find(&file, "__environ", 8).is_some());
        for (name, size) in [("__environ", 16), ("__environ2", 8), ("", 8)] {
            assert_eq!(find(&file, name, size), None, "{name} {size}");
        }
    }

    /// An ELF file whose sections all state the same symbols, of this size and without a name.
    fn sections_of_the_same_symbols(sections: u64, symbols: u64, size: u64) -> Vec<u8> {
        const BEGIN: u64 = 64;
        let mut bytes = vec![0; BEGIN as usize];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[40..48].copy_from_slice(&BEGIN.to_le_bytes());
        bytes[58..60].copy_from_slice(&(SECTION_BYTES as u16).to_le_bytes());
        bytes[60..62].copy_from_slice(&(sections as u16).to_le_bytes());
        let mut section = [0; SECTION_BYTES as usize];
        section[4..8].copy_from_slice(&SHT_SYMTAB.to_le_bytes());
        section[24..32].copy_from_slice(&(BEGIN + sections * SECTION_BYTES).to_le_bytes());
        section[32..40].copy_from_slice(&(symbols * SYMBOL_BYTES as u64).to_le_bytes());
        let mut symbol = [0; SYMBOL_BYTES];
        symbol[4] = STT_OBJECT;
        symbol[6] = 1;
        symbol[16..24].copy_from_slice(&size.to_le_bytes());
        bytes.extend(section.repeat(sections as usize));
        bytes.extend(symbol.repeat(symbols as usize));
        bytes
    }

    #[test]
    fn the_same_symbols_in_every_section_end_the_search() {
        // Without a bound on all sections together, names are compared for hours, or tables read for minutes.
        for size in [8, 9] {
            let mut file = tempfile::tempfile().unwrap();
            let bytes = sections_of_the_same_symbols(60_000, 1 << 16, size);
            std::io::Write::write_all(&mut file, &bytes).unwrap();
            let began = std::time::Instant::now();
            assert_eq!(find(&file, "__environ", 8), None);
            assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
        }
    }

    #[test]
    fn a_corrupt_file_has_no_variables() {
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = vec![0xff_u8; 4096];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[58] = 64;
        bytes[59] = 0;
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        assert_eq!(find(&file, "x", 8), None);
    }
}
