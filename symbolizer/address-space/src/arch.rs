//! Which machine's code a file holds.
//!
//! Owns: [`Arch`], how ELF files and people call each. Because: a file of another machine must be refused with a
//! reason, and whatever is true of one machine only asks for it here. Does not: know registers or instructions; each
//! reader keeps those of every machine in a file of its own.

use std::fmt;

/// A machine whose stacks can be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// 64-bit Intel and AMD.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
}

impl Arch {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The machine that this was compiled for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The machine that this was compiled for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;

    /// `e_machine` in an ELF header.
    pub const fn elf_machine(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// The machine with this `e_machine`, if it is known.
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
