//! Host stubs: the functions by which a program's own code launches its kernels.
//!
//! Owns: finding the symbols at given offsets of a file, and the kernels that they launch. Because: a program passes
//! the runtime the address of a stub (with HIP, of a variable). Does not: read processes; derive the kernel's name
//! from the stub's ([`deepctx_names::kernel_of_stub`]); accept a file without device code, or a symbol that is merely
//! nearby.

use deepctx_names::kernel_of_stub;
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_OBJECT};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};
use rustc_hash::FxHashMap;

/// Sections that only files with device code have.
const DEVICE_SECTIONS: [&[u8]; 4] = [b".nv_fatbin", b"__nv_relfatbin", b".hip_fatbin", b".hipFatBinSegment"];
/// Longest name of a symbol.
const NAME_MAX: usize = 8192;

/// The mangled names of the kernels at offsets of a file. Offsets without a symbol, or with symbols of several
/// kernels, are left out.
pub fn kernels_at(file: &[u8], offsets: &[u64]) -> FxHashMap<u64, String> {
    names_at(file, offsets).unwrap_or_default()
}

fn names_at(file: &[u8], offsets: &[u64]) -> Option<FxHashMap<u64, String>> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    let has_device_code =
        |section| sections.section_name(endian, section).is_ok_and(|name| DEVICE_SECTIONS.contains(&name));
    if !sections.iter().any(has_device_code) {
        return None;
    }
    let mut wanted = FxHashMap::default();
    for segment in header.program_headers(endian, file).ok()?.iter().filter(|s| s.p_type(endian) == PT_LOAD) {
        let (begin, size) = (segment.p_offset(endian), segment.p_filesz(endian));
        for offset in offsets {
            if let Some(into) = offset.checked_sub(begin).filter(|into| *into < size) {
                wanted.insert(segment.p_vaddr(endian).wrapping_add(into), *offset);
            }
        }
    }
    // `None` for offsets with symbols of several kernels.
    let mut found: FxHashMap<u64, Option<String>> = FxHashMap::default();
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        let Ok(symbols) = sections.symbols(endian, file, table) else { continue };
        for symbol in symbols.iter().filter(|symbol| matches!(symbol.st_type(), STT_FUNC | STT_OBJECT)) {
            let Some(offset) = wanted.get(&symbol.st_value(endian)) else { continue };
            if symbol.is_undefined(endian) {
                continue;
            }
            let name = symbol.name(endian, symbols.strings()).ok().filter(|name| name.len() <= NAME_MAX);
            let Some(kernel) = name.and_then(|name| str::from_utf8(name).ok()).and_then(kernel_of_stub)
            else {
                continue;
            };
            let known = found.entry(*offset).or_insert_with(|| Some(kernel.clone()));
            if known.as_ref() != Some(&kernel) {
                *known = None;
            }
        }
    }
    Some(found.into_iter().filter_map(|(offset, kernel)| Some((offset, kernel?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_device_code_has_no_stubs() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(kernels_at(&own, &[0, 64, 4096]).is_empty());
        assert!(kernels_at(b"no file", &[0]).is_empty());
    }
}
