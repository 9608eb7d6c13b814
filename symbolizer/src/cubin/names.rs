//! The names of the kernels that a process may have.
//!
//! Owns: the kernels of all examined device code, by name. Because: a string found in the memory of a process is the
//! name of a kernel only if the code of that kernel was found too. Does not: read the memory of processes.

use rustc_hash::FxHashMap;

use super::fatbin::{self, Kind};
use super::{Kernel, NAME_MAX, NoCubin, read};

/// Most names: several times those of the libraries of the largest frameworks.
const NAMES_MAX: usize = 1 << 19;
/// Most bytes of names.
const NAME_BYTES_MAX: usize = 64 << 20;

/// Facts from the code of a kernel. The same kernel may exist several times, for several architectures; a fact on
/// which they differ is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Architecture of the code: 80 for `sm_80`.
    pub arch: Option<u32>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block, in bytes.
    pub static_shared: Option<u64>,
}

impl KernelFacts {
    fn of(kernel: &Kernel, arch: u32) -> Self {
        Self { arch: Some(arch), registers: kernel.registers, static_shared: Some(kernel.static_shared) }
    }

    fn common(self, other: Self) -> Self {
        fn same<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<T> {
            if one == other { one } else { None }
        }
        Self {
            arch: same(self.arch, other.arch),
            registers: same(self.registers, other.registers),
            static_shared: same(self.static_shared, other.static_shared),
        }
    }
}

/// Kernels by name.
#[derive(Clone, Debug, Default)]
pub struct KernelNames {
    kernels: FxHashMap<Box<str>, KernelFacts>,
    bytes: usize,
    left_out: usize,
}

impl KernelNames {
    /// The kernels that a reader reports, and how many more there were: bounded as if they had been found here.
    pub(super) fn from_untrusted(
        kernels: impl Iterator<Item = (String, KernelFacts)>,
        left_out: usize,
    ) -> Self {
        let mut names = Self { left_out, ..Self::default() };
        for (name, facts) in kernels.filter(|(name, _)| !name.is_empty() && name.len() <= NAME_MAX) {
            names.add(&name, facts);
        }
        names
    }

    /// The kernels.
    pub(super) fn into_rows(self) -> impl Iterator<Item = (String, KernelFacts)> {
        self.kernels.into_iter().map(|(name, facts)| (name.into_string(), facts))
    }

    /// Adds the kernels of a cubin.
    ///
    /// # Errors
    /// [`NoCubin`].
    pub fn add_cubin(&mut self, bytes: &[u8]) -> Result<(), NoCubin> {
        let cubin = read(bytes)?;
        self.left_out += cubin.left_out;
        for kernel in &cubin.kernels {
            self.add(&kernel.name, KernelFacts::of(kernel, cubin.arch));
        }
        Ok(())
    }

    fn add(&mut self, name: &str, facts: KernelFacts) {
        if let Some(known) = self.kernels.get_mut(name) {
            *known = known.common(facts);
        } else if self.kernels.len() < NAMES_MAX && self.bytes + name.len() <= NAME_BYTES_MAX {
            self.bytes += name.len();
            self.kernels.insert(name.into(), facts);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds the kernels of all cubins in one or more fat binaries, while their decompressed size fits into `budget`
    /// bytes, which is reduced. Returns the number of images read, and of those not read.
    pub fn add_fat_binaries(&mut self, bytes: &[u8], budget: &mut u64) -> (usize, usize) {
        let (mut read, mut left) = (0, 0);
        for image in fatbin::images(bytes).filter(|image| image.kind == Kind::Cubin) {
            let Some(rest) = budget.checked_sub(image.decompressed_bytes()) else {
                left += 1;
                continue;
            };
            *budget = rest;
            match image.decompress() {
                Ok(cubin) if self.add_cubin(&cubin).is_ok() => read += 1,
                _ => left += 1,
            }
        }
        (read, left)
    }

    /// Adds the kernels of another set.
    pub fn merge(&mut self, other: Self) {
        self.left_out = self.left_out.saturating_add(other.left_out);
        for (name, facts) in other.kernels {
            self.add(&name, facts);
        }
    }

    /// The facts of the kernel with this name.
    pub fn get(&self, name: &str) -> Option<KernelFacts> {
        self.kernels.get(name).copied()
    }

    /// Number of kernels.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// True without kernels.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Kernels beyond the bounds.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZSTD: &[u8] = include_bytes!("../../tests/fixtures/cubin/zstd.fatbin");

    #[test]
    fn a_name_is_known_only_with_its_code() {
        let mut names = KernelNames::default();
        let twice = [ZSTD, &[0; 8 - ZSTD.len() % 8], ZSTD].concat();
        let mut budget = 1 << 20;
        assert_eq!(names.add_fat_binaries(&twice, &mut budget), (2, 0));
        assert!(budget < 1 << 20);
        assert_eq!((names.len(), names.left_out()), (2, 0));
        let facts = KernelFacts { arch: Some(80), registers: Some(10), static_shared: Some(1024) };
        assert_eq!(
            (names.get("_Z4gemmPfi"), names.get("_Z4gemmPf"), names.get("")),
            (Some(facts), None, None)
        );
        let mut all = KernelNames::default();
        all.merge(names);
        assert_eq!(all.get("_Z4gemmPfi"), Some(facts));
    }

    #[test]
    fn images_beyond_the_budget_are_skipped() {
        let mut names = KernelNames::default();
        assert_eq!(names.add_fat_binaries(ZSTD, &mut 100), (0, 1));
        assert!(names.is_empty());
    }

    #[test]
    fn differing_facts_of_a_kernel_are_unknown() {
        let one = KernelFacts { arch: Some(80), registers: Some(10), static_shared: Some(64) };
        let mut names = KernelNames::default();
        names.add("k", one);
        names.add("k", KernelFacts { arch: Some(90), registers: Some(12), ..one });
        assert_eq!(
            names.get("k"),
            Some(KernelFacts { arch: None, registers: None, static_shared: Some(64) })
        );
        names.add("k", one);
        assert_eq!(
            names.get("k"),
            Some(KernelFacts { arch: None, registers: None, static_shared: Some(64) })
        );
    }
}
