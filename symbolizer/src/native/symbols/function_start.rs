//! Where functions without a symbol begin.
//!
//! Owns: [`function_starts`]. Because: a stripped file still has call frame information, which states the bounds of
//! each function, and all addresses of a function should be one row. Does not: name functions.

use std::fs::File;

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection as _};
use object::elf::FileHeader64;
use object::read::elf::ElfFile;
use object::{Object as _, ObjectSection as _};

use crate::guard;

/// Beginning of the function around each address, from the search table in `.eh_frame_hdr`; `None` if no function
/// covers it. A split-off cold part is a separate function there.
pub(super) fn function_starts(file: &File, addresses: &[u64]) -> Vec<Option<u64>> {
    // SAFETY: the file may change under the mapping; it is read as plain bytes by checked parsers, and `catch_faults`
    // turns missing pages into an error.
    let map = unsafe { memmap2::Mmap::map(file) };
    let found = map.ok().and_then(|map| guard::catch_faults(|| in_file(&map, addresses)).ok().flatten());
    found.unwrap_or_else(|| vec![None; addresses.len()])
}

fn in_file(data: &[u8], addresses: &[u64]) -> Option<Vec<Option<u64>>> {
    let elf = ElfFile::<FileHeader64<object::LittleEndian>>::parse(data).ok()?;
    let (index, frames) = (elf.section_by_name(".eh_frame_hdr")?, elf.section_by_name(".eh_frame")?);
    let text = elf.section_by_name(".text").map_or(0, |text| text.address());
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(index.address())
        .set_eh_frame(frames.address())
        .set_text(text);
    let index =
        EhFrameHdr::new(index.data().ok()?, LittleEndian).parse(&bases, size_of::<u64>() as u8).ok()?;
    let table = index.table()?;
    let frames = EhFrame::new(frames.data().ok()?, LittleEndian);
    let start = |&address: &u64| {
        let description = table.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok()?;
        Some(description.initial_address())
    };
    Some(addresses.iter().map(start).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn all_addresses_of_a_function_have_one_start() {
        // This program knows its own functions.
        let program = File::open("/proc/self/exe").unwrap();
        let data = std::fs::read("/proc/self/exe").unwrap();
        let elf = ElfFile::<FileHeader64<object::LittleEndian>>::parse(&*data).unwrap();
        let entry = elf.entry();
        let first = function_starts(&program, &[entry, 1]);
        assert_eq!(first, [Some(entry), None]);
        assert_eq!(function_starts(&program, &[entry + 1, entry + 2]), [Some(entry); 2]);
    }

    #[test]
    fn a_file_that_is_no_program_states_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(function_starts(&file, &[1]), [None]);
        file.write_all(b"\x7fELF\x02\x01\x01 and no more").unwrap();
        assert_eq!(function_starts(&file, &[1, 2]), [None, None]);
    }
}
