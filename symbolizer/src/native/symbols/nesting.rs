//! The nesting depth of debug information.
//!
//! Owns: checking the depth of a file's debug information before addr2line reads it. Because: addr2line recurses once
//! per level, two bytes of a file are enough for a level, and a stack overflow kills the process. Does not: interpret
//! the entries.

use gimli::{DebugAbbrev, DebugInfo, EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _};

/// Most nesting levels. Compilers stay below a hundred, even for deeply inlined code.
const DEPTH_MAX: isize = 1024;

/// True when no entry of the debug information nests too deeply. `bytes` is an ELF file.
pub(super) fn is_bounded(bytes: &[u8]) -> bool {
    let Ok(file) = object::File::parse(bytes) else { return false };
    let section =
        |name: &str| file.section_by_name(name).and_then(|section| section.uncompressed_data().ok());
    let (Some(info), Some(abbreviations)) = (section(".debug_info"), section(".debug_abbrev")) else {
        return false;
    };
    let info = DebugInfo::from(EndianSlice::new(&info, LittleEndian));
    let abbreviations = DebugAbbrev::from(EndianSlice::new(&abbreviations, LittleEndian));
    let mut units = info.units();
    while let Ok(Some(unit)) = units.next() {
        // An entry that cannot be read ends addr2line's recursion as it ends this loop.
        let Ok(abbreviations) = unit.abbreviations(&abbreviations) else { continue };
        let Ok(mut entries) = unit.entries_raw(&abbreviations, None) else { continue };
        while !entries.is_empty() {
            if entries.next_depth() > DEPTH_MAX {
                return false;
            }
            let skipped = match entries.read_abbreviation() {
                Ok(Some(abbreviation)) => entries.skip_attributes(abbreviation.attributes()),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if skipped.is_err() {
                break;
            }
        }
    }
    true
}
