//! The types of the kernel programs (BTF): whether every function in them has a name that kernels accept.
//!
//! Owns: reading the names of functions. Because: a kernel that rejects one name rejects the types of the whole object,
//! and the loader silently continues without them. Does not: check the types themselves.

use anyhow::{Context, Result, bail};
use object::{Object as _, ObjectSection as _};

/// Size of the part of `struct btf_header` (include/uapi/linux/btf.h) that is read.
const HEADER: usize = 24;
const MAGIC: u16 = 0xeb9f;
/// `BTF_KIND_FUNC`
const FUNC: u32 = 12;

/// Rejects an object with a function left over from a closure: it is a separate function only if it was not inlined.
pub(crate) fn check(object: &[u8]) -> Result<()> {
    let object = object::File::parse(object).context("the linked object is not an ELF file")?;
    let section = object.section_by_name(".BTF").context("the object has no types")?;
    let functions = functions(section.data()?).context("the object's types cannot be read")?;
    if let Some(name) = functions.iter().find(|name| name.contains("closure")) {
        bail!(
            "the kernel programs have a function '{name}', which kernels refuse with all types: the compiler did not inline a closure\nhint: make it a function with `#[inline(always)]`, or write its body where it is used"
        );
    }
    Ok(())
}

/// Names of all functions; `None` when the bytes are no valid BTF.
fn functions(btf: &[u8]) -> Option<Vec<&str>> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(btf.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let magic = u16::from_le_bytes(btf.get(..2)?.try_into().ok()?);
    let header = u32_at(4)? as usize;
    if magic != MAGIC || header < HEADER {
        return None;
    }
    let [types, types_len, names] = [u32_at(8)?, u32_at(12)?, u32_at(16)?].map(|n| n as usize);
    let end = header.checked_add(types)?.checked_add(types_len)?;
    let names = btf.get(header.checked_add(names)?..)?;
    let mut found = Vec::new();
    let mut at = header + types;
    while at < end {
        let (name, info) = (u32_at(at)? as usize, u32_at(at + 4)?);
        let (kind, members) = (info >> 24 & 31, (info & 0xffff) as usize);
        if kind == FUNC {
            let name = names.get(name..)?.split(|byte| *byte == 0).next()?;
            found.push(std::str::from_utf8(name).ok()?);
        }
        at += 12 + behind(kind, members)?;
    }
    Some(found)
}

/// The registry folder at the start of this path, in cargo's form: `HOST-0123456789abcdef`.
pub(crate) fn registry(path: &[u8]) -> Option<&[u8]> {
    let folder = path.split(|byte| *byte == b'/').next().filter(|folder| folder.len() < path.len())?;
    let (_, end) = folder.split_at_checked(folder.len().checked_sub(17)?)?;
    let hash = end.strip_prefix(b"-")?;
    hash.iter().all(u8::is_ascii_hexdigit).then_some(folder)
}

/// Removes the registry folder from each path that starts with one. A string keeps its position, since offsets refer to
/// it, and becomes shorter. `None` when the bytes are no valid BTF.
pub(crate) fn shorten(btf: &mut [u8]) -> Option<()> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(btf.get(at..at + 4)?.try_into().ok()?) as usize);
    let from = u32_at(4)?.checked_add(u32_at(16)?)?;
    let strings = btf.get_mut(from..from.checked_add(u32_at(20)?)?)?;
    for string in strings.split_mut(|byte| *byte == 0) {
        if let Some(len) = registry(string).map(|folder| folder.len() + 1) {
            string.rotate_left(len);
            let rest = string.len() - len;
            string[rest..].fill(0);
        }
    }
    Some(())
}

/// Bytes after the header of a type of this kind (Documentation/bpf/btf.rst).
fn behind(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections, 64-bit enumerations.
        4 | 5 | 15 | 19 => 12 * members,
        // Enumerations, prototypes.
        6 | 13 => 8 * members,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with one function of this name after a structure of two members.
    fn types(name: &str) -> Vec<u8> {
        let word = |n: u32| n.to_le_bytes();
        let names = [b"\0S\0a\0", name.as_bytes(), b"\0"].concat();
        let structure = [word(1), word(4 << 24 | 2), word(8)].concat();
        let members = [[3, 1, 0], [3, 1, 32]].concat().into_iter().flat_map(word).collect();
        let function = [word(5), word(FUNC << 24), word(1)].concat();
        let types: Vec<u8> = [structure, members, function].concat();
        let len = |bytes: &[u8]| word(bytes.len() as u32);
        let head = [
            &MAGIC.to_le_bytes()[..],
            &[1, 0],
            &word(24),
            &word(0),
            &len(&types),
            &len(&types),
            &len(&names),
        ];
        [head.concat(), types, names].concat()
    }

    /// An object that contains it.
    fn object_with(types: &[u8]) -> Vec<u8> {
        let (format, arch) = (object::BinaryFormat::Elf, object::Architecture::Bpf);
        let mut object = object::write::Object::new(format, arch, object::Endianness::Little);
        let section = object.add_section(Vec::new(), b".BTF".to_vec(), object::SectionKind::Other);
        object.append_section_data(section, types, 4);
        object.write().expect("an object can be written")
    }

    #[test]
    fn closure_that_was_not_inlined_is_refused_by_name() {
        assert!(check(&object_with(&types("walk_user"))).is_ok());
        let error = check(&object_with(&types("closure_env_0"))).expect_err("it has a closure");
        assert!(error.to_string().contains("'closure_env_0'"), "{error}");
    }

    #[test]
    fn paths_lose_their_registry_and_stay_where_they_are() {
        let mut types = types("host-0123456789abcdef/b-0.2/src/lib.rs");
        let len = types.len();
        shorten(&mut types).expect("these are types");
        assert_eq!(types.len(), len);
        assert_eq!(functions(&types), Some(vec!["b-0.2/src/lib.rs"]));
    }

    #[test]
    fn types_that_are_cut_off_are_none() {
        let whole = types("walk_user");
        assert_eq!(functions(&whole), Some(vec!["walk_user"]));
        // All but the final NUL: the string section must end with a name's NUL.
        for len in 0..whole.len() - "walk_user\0".len() {
            let found = functions(&whole[..len]);
            assert!(found.is_none_or(|names| names == [""]), "{len}");
        }
    }

    #[test]
    fn the_committed_objects_have_no_closures() {
        for arch in ["x86_64", "aarch64"] {
            let path = crate::sh::root().join(format!("ebpf/prebuilt/deepctx-{arch}.bpf.o"));
            let object = std::fs::read(path).expect("the object is committed");
            check(&object).expect("its functions have names that kernels take");
            let file = object::File::parse(&*object).expect("it is an ELF file");
            let section = file.section_by_name(".BTF").expect("it has types");
            let data = section.data().expect("they can be read");
            assert!(functions(data).is_some_and(|names| names.contains(&"sample")), "{arch}");
        }
    }
}
