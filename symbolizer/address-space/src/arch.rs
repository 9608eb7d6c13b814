//! The machine architectures whose code can be profiled.
//!
//! Owns: [`Arch`], with its ELF number and its name. Because: a file of another architecture must be refused with a
//! reason, and code that depends on the architecture matches on this type. Does not: know registers or instructions;
//! each reader has one file per architecture.

use std::fmt;

/// An architecture whose stacks can be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit Intel and AMD.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The architecture that this was compiled for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The architecture that this was compiled for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    /// `e_machine` in an ELF header.
    pub const fn elf_machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// The architecture with this `e_machine`, if it is supported.
    pub fn of_elf_machine(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.elf_machine() == number)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "aarch64",
        })
    }
}
