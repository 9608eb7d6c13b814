//! The folders where the compilers of a process write their files.
//!
//! Owns: reading the current environment of the process. Because: programs set these variables before they import a
//! framework, and `/proc` has only the initial environment. Does not: see settings other than environment variables.

use std::path::PathBuf;

use deepctx_address_space::reader::{self, Subject};

use crate::memory::TargetMemory;

/// Most bytes read of an environment: the kernel's usual limit for arguments and environment is 2 MiB.
const ENVIRONMENT_BYTES_MAX: u64 = 2 << 20;
/// Most variables read.
const VARIABLES_MAX: usize = 4096;
/// Longest variable read.
const VARIABLE_BYTES_MAX: usize = 4096;

/// The folders of the compilers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Folder of XLA's dump.
    pub(crate) dump: Option<PathBuf>,
    /// Folder of JAX's compilation cache.
    pub(crate) cache: Option<PathBuf>,
    /// Folder of Triton's cache.
    pub(crate) triton: Option<PathBuf>,
}

impl Settings {
    /// Reads the settings of a process. `environ` is the address of the C library's variable of that name, if known.
    pub(crate) fn read(pid: u32, memory: Option<&dyn TargetMemory>, environ: Option<u64>) -> Self {
        let current = memory.zip(environ).map(|(memory, at)| variables(memory, at));
        if let Some(current) = current.filter(|variables| !variables.is_empty()) {
            return Self::parse(&current);
        }
        let Ok(bytes) = reader::read_proc(&Subject::of(pid), "environ", ENVIRONMENT_BYTES_MAX) else {
            return Self::default();
        };
        Self::parse(&bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect::<Vec<_>>())
    }

    fn parse(variables: &[Vec<u8>]) -> Self {
        let value = |name: &str| {
            let value = variables.iter().find_map(|variable| {
                variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="))
            });
            value.and_then(|value| str::from_utf8(value).ok()).filter(|value| !value.is_empty())
        };
        let flags = value("XLA_FLAGS").unwrap_or_default();
        // The last flag counts, as in XLA.
        let dump = flags.split_ascii_whitespace().rev().find_map(|flag| flag.strip_prefix("--xla_dump_to="));
        let local = |path: &&str| !path.is_empty() && !path.contains("://");
        let below = |home: &str| Some(PathBuf::from(home).join(".triton/cache"));
        let triton = value("TRITON_CACHE_DIR").filter(local).map(PathBuf::from);
        let triton = triton.or_else(|| below(value("TRITON_HOME").or(value("HOME"))?));
        Self {
            triton,
            dump: dump.filter(local).map(PathBuf::from),
            cache: value("JAX_COMPILATION_CACHE_DIR").filter(local).map(PathBuf::from),
        }
    }
}

/// The variables of a process from its C library.
fn variables(memory: &dyn TargetMemory, environ: u64) -> Vec<Vec<u8>> {
    let Ok(table) = memory.read_u64(environ) else { return Vec::new() };
    let mut variables = Vec::new();
    for n in 0..VARIABLES_MAX as u64 {
        match memory.read_u64(table.wrapping_add(n * 8)) {
            Ok(0) | Err(_) => break,
            Ok(at) => variables.extend(text(memory, at)),
        }
    }
    variables
}

/// A C string, read in aligned pieces, so that no page is accessed unnecessarily.
fn text(memory: &dyn TargetMemory, mut at: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < VARIABLE_BYTES_MAX {
        let piece = memory.read_vec(at, (256 - (at & 255)) as usize).ok()?;
        let end = piece.iter().position(|b| *b == 0);
        text.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
        if end.is_some() {
            return Some(text);
        }
        at = at.checked_add(piece.len() as u64)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_triton_cache_folder_is_the_default_or_set() {
        let check = |variables: &[&str], expect: Option<&str>| {
            let variables: Vec<_> = variables.iter().map(|text| text.as_bytes().to_vec()).collect();
            assert_eq!(Settings::parse(&variables).triton, expect.map(PathBuf::from), "{variables:?}");
        };
        check(&[], None);
        check(&["HOME=/h"], Some("/h/.triton/cache"));
        check(&["HOME=/home/me", "TRITON_HOME=/srv"], Some("/srv/.triton/cache"));
        check(&["HOME=/home/me", "TRITON_HOME=/srv", "TRITON_CACHE_DIR=/tmp/c"], Some("/tmp/c"));
    }

    fn check(variables: &[&str], dump: Option<&str>, cache: Option<&str>) {
        let variables: Vec<_> = variables.iter().map(|text| text.as_bytes().to_vec()).collect();
        let expect =
            Settings { dump: dump.map(PathBuf::from), cache: cache.map(PathBuf::from), triton: None };
        assert_eq!(Settings::parse(&variables), expect);
    }

    #[test]
    fn folders_are_taken_from_variables() {
        check(&["HOMES=/root", "XLA_FLAGSX=--xla_dump_to=/x"], None, None);
        check(&["XLA_FLAGS=--xla_cpu=1 --xla_dump_to=/a --xla_dump_to=out"], Some("out"), None);
        check(&["XLA_FLAGS=--xla_dump_to=", "JAX_COMPILATION_CACHE_DIR="], None, None);
        check(&["JAX_COMPILATION_CACHE_DIR=/c", "XLA_FLAGS=--xla_dump_to=sponge://"], None, Some("/c"));
        check(&["JAX_COMPILATION_CACHE_DIR=gs://bucket/c"], None, None);
    }

    #[test]
    fn variables_are_read_from_process_memory() {
        let mut memory = crate::memory::RecordedMemory::default();
        memory.insert(0x1000, 0x2000_u64.to_le_bytes().to_vec());
        let pointers = [0x3000_u64, 0x4000, 0x6000, 0];
        memory.insert(0x2000, pointers.iter().flat_map(|word| word.to_le_bytes()).collect());
        let padded = |text: &str, length: usize| {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(length, 0);
            bytes
        };
        memory.insert(0x3000, padded("A=1", 256));
        memory.insert(0x4000, padded(&format!("B={}", "b".repeat(300)), 512));
        // A string without end and an unmapped one are skipped.
        memory.insert(0x6000, vec![b'x'; 2 * VARIABLE_BYTES_MAX]);
        let read = variables(&memory, 0x1000);
        assert_eq!(read, [b"A=1".to_vec(), format!("B={}", "b".repeat(300)).into_bytes()]);
        assert!(variables(&memory, 0x9000).is_empty());
    }
}
