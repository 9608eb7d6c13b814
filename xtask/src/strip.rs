//! Stripping the linked kernel programs: keep what a loader needs, drop the DWARF.
//!
//! Owns: which sections stay. Because: the committed object must be small, identical on every machine, and free of
//! build paths. Does not: build anything.

use crate::btf;
use anyhow::{Context, Result};
use object::build::elf::{Builder, SectionData};
use object::elf;

/// The same object without debug sections, their relocations and the symbols used only by them, and without registry
/// names in source paths.
pub(crate) fn strip(object: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(object).context("the linked object is not an ELF file")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        let of_debug = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
        section.delete |= of_debug || name == b".llvm_addrsig" || name == b".comment";
        if name == b".BTF"
            && let SectionData::Data(types) = &section.data
        {
            let mut types = types.to_vec();
            btf::shorten(&mut types).context("the object's types cannot be read")?;
            section.data = SectionData::Data(types.into());
        }
    }
    builder.delete_orphans();
    // LLVM puts section and symbol names in one table; the writer needs separate ones.
    if !builder.sections.iter().any(|section| matches!(section.data, SectionData::SectionString)) {
        let names = builder.sections.add();
        names.name = b".shstrtab"[..].into();
        names.sh_type = elf::SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
    builder.set_section_sizes();
    let mut stripped = Vec::new();
    builder.write(&mut stripped).context("cannot write the stripped object")?;
    Ok(stripped)
}
