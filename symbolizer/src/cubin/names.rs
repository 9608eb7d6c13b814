//! Names: which kernels a process can have at all.
//!
//! Owns: the kernels of all device code that was looked at, by name. Because: a string found in a process's memory is the
//! name of a kernel only if the code of that kernel was found too. Does not: read memory of processes.

use rustc_hash::FxHashMap;

use super::fatbin::{self, Kind};
use super::{Kernel, NoCubin, read};

/// Most names: those of the largest frameworks' libraries several times.
const NAMES_MAX: usize = 1 << 19;
/// Longest name that is compared.
const NAME_MAX: usize = 8192;

/// Kernels by name. One that is compiled for several architectures is kept as it was met first.
#[derive(Clone, Debug, Default)]
pub struct KernelNames {
    kernels: FxHashMap<String, Kernel>,
    left_out: usize,
}

impl KernelNames {
    /// Adds the kernels of a cubin.
    ///
    /// # Errors
    /// [`NoCubin`].
    pub fn add_cubin(&mut self, bytes: &[u8]) -> Result<(), NoCubin> {
        let cubin = read(bytes)?;
        self.left_out += cubin.left_out;
        for kernel in cubin.kernels {
            if self.kernels.len() < NAMES_MAX {
                self.kernels.entry(kernel.name.clone()).or_insert(kernel);
            } else {
                self.left_out += 1;
            }
        }
        Ok(())
    }

    /// Adds the kernels of all cubins in a fat binary, or in a section of them. Gives how many images were read, and how
    /// many could not be.
    pub fn add_fat_binaries(&mut self, bytes: &[u8]) -> (usize, usize) {
        let (mut read, mut damaged) = (0, 0);
        for image in fatbin::images(bytes).filter(|image| image.kind == Kind::Cubin) {
            match image.unpack() {
                Ok(cubin) if self.add_cubin(&cubin).is_ok() => read += 1,
                _ => damaged += 1,
            }
        }
        (read, damaged)
    }

    /// The kernel whose name these bytes begin with, as a C string.
    pub fn named_at(&self, bytes: &[u8]) -> Option<&Kernel> {
        let end = bytes.iter().take(NAME_MAX).position(|byte| *byte == 0)?;
        self.kernels.get(str::from_utf8(&bytes[..end]).ok()?)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Kernels for which there was no room.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZSTD: &[u8] = include_bytes!("../../tests/fixtures/cubin/zstd.fatbin");

    #[test]
    fn a_string_is_a_kernel_only_if_its_code_is_there() {
        let mut names = KernelNames::default();
        assert_eq!(names.add_fat_binaries(&[ZSTD, &[0; 8 - ZSTD.len() % 8], ZSTD].concat()), (2, 0));
        assert_eq!((names.len(), names.left_out()), (2, 0));
        let found = |bytes: &[u8]| names.named_at(bytes).map(|kernel| kernel.registers);
        assert_eq!(found(b"_Z4gemmPfi\0and more"), Some(Some(10)));
        assert_eq!(found(b"_Z4gemmPfi"), None, "it does not end");
        assert_eq!(found(b"_Z4gemmPf\0"), None);
        assert_eq!(found(b"\0"), None);
    }
}
