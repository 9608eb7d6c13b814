//! Requirements of a program on the machine that runs it.
//!
//! Owns: reading it from the program itself. Because: if a package declares an older C library than its program needs,
//! it installs but the program does not start. Does not: choose what to link.

use anyhow::{Context, Result, bail};
use object::elf::{EM_AARCH64, EM_X86_64, FileHeader64};
use object::read::elf::{FileHeader as _, Sym as _};
use object::{LittleEndian, elf};
use std::fmt;
use std::path::Path;

/// Libraries of every Linux with glibc (PEP 600).
const EVERYWHERE: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// A version of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glibc {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Requirements of a program.
#[derive(Debug)]
pub(super) struct Needs {
    /// In the form of `uname -m`.
    pub(super) machine: &'static str,
    /// Dynamically linked libraries.
    pub(super) libraries: Vec<String>,
    /// The newest glibc symbol version it uses; `None` if it loads no library, as with static musl.
    pub(super) glibc: Option<Glibc>,
}

impl Needs {
    /// Reads a program's requirements.
    pub(super) fn of(program: &Path) -> Result<Self> {
        let bytes = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        read(&bytes).with_context(|| format!("{} is no program for Linux", program.display()))
    }

    /// Debian's name of the machine.
    pub(super) fn debian_architecture(&self) -> &'static str {
        if self.machine == "aarch64" { "arm64" } else { "amd64" }
    }

    /// Libraries that some Linux systems lack.
    pub(super) fn others(&self) -> impl Iterator<Item = &str> {
        self.libraries.iter().map(String::as_str).filter(|library| !EVERYWHERE.contains(library))
    }

    /// Python's platform tag: any Linux from a glibc version on, any with musl, or systems like the build machine.
    pub(super) fn python_platform(&self) -> String {
        match self.glibc {
            _ if self.others().next().is_some() => format!("linux_{}", self.machine),
            Some(Glibc { major, minor }) => format!("manylinux_{major}_{minor}_{}", self.machine),
            // The linked C library does not matter, as the program loads nothing.
            None => format!("musllinux_1_1_{}", self.machine),
        }
    }
}

fn read(bytes: &[u8]) -> Result<Needs> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    let endian = LittleEndian;
    let machine = match header.e_machine(endian) {
        EM_X86_64 => "x86_64",
        EM_AARCH64 => "aarch64",
        other => bail!("machine {other} is not one of ours"),
    };
    let sections = header.sections(endian, bytes)?;
    let mut libraries = Vec::new();
    if let Some((dynamic, link)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, link)?;
        for entry in dynamic.iter().take_while(|entry| entry.d_tag.get(endian) != elf::DT_NULL) {
            if entry.d_tag.get(endian) == elf::DT_NEEDED {
                let name = strings.get(u32::try_from(entry.d_val.get(endian))?);
                libraries.push(String::from_utf8_lossy(name.unwrap_or_default()).into_owned());
            }
        }
    }
    if libraries.is_empty() {
        return Ok(Needs { machine, libraries, glibc: None });
    }
    let versions = sections.versions(endian, bytes)?.context("its symbols have no versions")?;
    let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
    let mut newest = Glibc { major: 2, minor: 0 };
    for (index, _) in symbols.enumerate().filter(|(_, symbol)| symbol.is_undefined(endian)) {
        let version = versions.version(versions.version_index(endian, index).into())?;
        if let Some(found) = version.and_then(|version| glibc(version.name())) {
            newest = newest.max(found);
        }
    }
    Ok(Needs { machine, libraries, glibc: Some(newest) })
}

/// The version in a name like `GLIBC_2.31`.
fn glibc(name: &[u8]) -> Option<Glibc> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    let mut numbers = text.split('.').map(str::parse);
    Some(Glibc { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let needs = Needs::of(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(needs.machine, std::env::consts::ARCH);
        assert!(needs.libraries.iter().any(|library| library == "libc.so.6"), "{needs:?}");
        assert!(needs.glibc >= Some(Glibc { major: 2, minor: 17 }), "{needs:?}");
        assert_eq!(needs.others().count(), 0, "{needs:?}");
    }

    #[test]
    fn versions_of_the_c_library_are_ordered() {
        let check = |name: &str, expect: Option<(u32, u32)>| {
            assert_eq!(glibc(name.as_bytes()).map(|found| (found.major, found.minor)), expect, "{name}");
        };
        check("GLIBC_2.31", Some((2, 31)));
        check("GLIBC_2.2.5", Some((2, 2)));
        check("GLIBC_PRIVATE", None);
        check("GCC_3.0", None);
    }
}
