//! Host stubs: the functions by which a program's own code launches its kernels.
//!
//! Owns: from an address in a file to the kernel that the symbol there stands for. Because: what a program gives the runtime
//! to launch is the address of a stub (of a variable, with HIP), and compilers name it after the kernel. Does not: read
//! processes; accept a file that carries no device code, or a symbol that only lies nearby.
//!
//! | symbol at the address | kernel |
//! |---|---|
//! | `_ZL24__device_stub__Z4gemmPfiPfi` (nvcc) | `_Z4gemmPfi`: what follows `__device_stub_` is its symbol |
//! | `_Z19__device_stub__gemmPfi` (clang) | `_Z4gemmPfi`: the same name without the prefix |
//! | `_Z4gemmPfi` | itself: the host's side of a kernel is named as the kernel is |

use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, STT_OBJECT};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Sym as _};
use rustc_hash::FxHashMap;

const PREFIX: &str = "__device_stub__";
/// Sections that only files with device code have.
const CARRIES: [&[u8]; 4] = [b".nv_fatbin", b"__nv_relfatbin", b".hip_fatbin", b".hipFatBinSegment"];
/// Longest name of a symbol.
const NAME_MAX: usize = 8192;

/// The kernels that stand at places of a file: by offset, as the compiler wrote their names. Places where no symbol begins,
/// or symbols of several kernels, are left out.
pub fn kernels_at(file: &[u8], offsets: &[u64]) -> FxHashMap<u64, String> {
    names_at(file, offsets).unwrap_or_default()
}

fn names_at(file: &[u8], offsets: &[u64]) -> Option<FxHashMap<u64, String>> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    let carries = |section| sections.section_name(endian, section).is_ok_and(|name| CARRIES.contains(&name));
    if !sections.iter().any(carries) {
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
    // `None` for places that stand for several kernels.
    let mut found: FxHashMap<u64, Option<String>> = FxHashMap::default();
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        let Ok(symbols) = sections.symbols(endian, file, table) else { continue };
        for symbol in symbols.iter().filter(|symbol| matches!(symbol.st_type(), STT_FUNC | STT_OBJECT)) {
            let Some(offset) = wanted.get(&symbol.st_value(endian)) else { continue };
            if symbol.is_undefined(endian) {
                continue;
            }
            let name = symbol.name(endian, symbols.strings()).ok().filter(|name| name.len() <= NAME_MAX);
            let Some(kernel) = name.and_then(|name| str::from_utf8(name).ok()).and_then(kernel_of) else {
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

/// The kernel that the host's symbol of this name stands for; `None` when the name cannot be taken apart.
pub fn kernel_of(symbol: &str) -> Option<String> {
    let Some(at) = symbol.find(PREFIX) else {
        return (!symbol.is_empty()).then(|| symbol.to_owned());
    };
    // The identifier has its length before it; a symbol of C has none.
    let digits = symbol[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let (before, length) = symbol[..at].split_at(at - digits);
    let end = if digits == 0 { symbol.len() } else { at.checked_add(length.parse().ok()?)? };
    let kernel = symbol.get(at..end)?.strip_prefix(PREFIX)?;
    if kernel.is_empty() {
        return None;
    }
    if kernel.starts_with('Z') {
        // The last underscore of the prefix begins the kernel's own symbol.
        return symbol.get(at + PREFIX.len() - 1..end).map(str::to_owned);
    }
    let behind = &symbol[end..];
    if digits == 0 {
        return Some(kernel.to_owned());
    }
    Some(format!("{before}{}{kernel}{behind}", kernel.len()))
}

/// The kernel of a stub by the stub's readable name; `None` when it is the name of no stub.
pub fn kernel_of_readable(name: &str) -> Option<String> {
    let (before, kernel) = name.split_once(PREFIX)?;
    match kernel.strip_prefix('Z') {
        // The kernel's own symbol, then the parameters of the stub.
        Some(_) if before.is_empty() => {
            let symbol = kernel.split('(').next()?;
            Some(format!("_{symbol}"))
        }
        _ if kernel.is_empty() || kernel.starts_with('(') => None,
        _ => Some(format!("{before}{kernel}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(symbol: &str, expect: Option<&str>) {
        assert_eq!(kernel_of(symbol).as_deref(), expect, "{symbol}");
    }

    #[test]
    fn a_stub_is_named_after_its_kernel_by_every_compiler() {
        check("_ZL24__device_stub__Z4gemmPfiPfi", Some("_Z4gemmPfi"));
        check("__device_stub__Z4gemmPfi", Some("_Z4gemmPfi"));
        check("_Z19__device_stub__gemmPfi", Some("_Z4gemmPfi"));
        check("_ZN3net19__device_stub__gemmEPfi", Some("_ZN3net4gemmEPfi"));
        check("_Z19__device_stub__gemmIfEvPT_", Some("_Z4gemmIfEvPT_"));
        check("__device_stub__gemm", Some("gemm"));
        check("_Z4gemmPfi", Some("_Z4gemmPfi"));
    }

    #[test]
    fn a_stub_is_known_by_its_readable_name_too() {
        for (name, expect) in [
            ("__device_stub__Z4gemmPfi(float*, int)", Some("_Z4gemmPfi")),
            ("__device_stub__Z4gemmPfi", Some("_Z4gemmPfi")),
            ("net::__device_stub__gemm(float*, int)", Some("net::gemm(float*, int)")),
            ("gemm(float*, int)", None),
            ("__device_stub__(int)", None),
            ("__device_stub__", None),
        ] {
            assert_eq!(kernel_of_readable(name).as_deref(), expect, "{name}");
        }
    }

    #[test]
    fn a_stub_whose_name_lies_about_its_length_is_none() {
        for symbol in ["_ZL99__device_stub__Z4gemmPfi", "_ZL15__device_stub__", "_Z3__device_stub__gemm", ""]
        {
            check(symbol, None);
        }
        check("_Z99999999999999999999999__device_stub__gemm", None);
    }

    #[test]
    fn a_file_without_device_code_has_no_stubs() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(kernels_at(&own, &[0, 64, 4096]).is_empty());
        assert!(kernels_at(b"no file", &[0]).is_empty());
    }
}
