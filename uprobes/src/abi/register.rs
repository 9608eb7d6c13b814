//! General registers of x86-64.
//!
//! Owns: [`Register`], its name, and the same register for the decoder. Because: rows, notes of USDT probes and
//! instructions all name registers differently. Does not: know which register passes which argument, beyond their
//! order.

use iced_x86::Register as Iced;

/// A general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the name of a register")]
pub enum Register {
    Rax,
    Rbx,
    Rcx,
    Rdx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

/// Each register, its name, and the decoder's constant.
const REGISTERS: [(Register, &str, Iced); 16] = [
    (Register::Rax, "rax", Iced::RAX),
    (Register::Rbx, "rbx", Iced::RBX),
    (Register::Rcx, "rcx", Iced::RCX),
    (Register::Rdx, "rdx", Iced::RDX),
    (Register::Rsi, "rsi", Iced::RSI),
    (Register::Rdi, "rdi", Iced::RDI),
    (Register::Rbp, "rbp", Iced::RBP),
    (Register::Rsp, "rsp", Iced::RSP),
    (Register::R8, "r8", Iced::R8),
    (Register::R9, "r9", Iced::R9),
    (Register::R10, "r10", Iced::R10),
    (Register::R11, "r11", Iced::R11),
    (Register::R12, "r12", Iced::R12),
    (Register::R13, "r13", Iced::R13),
    (Register::R14, "r14", Iced::R14),
    (Register::R15, "r15", Iced::R15),
];

impl Register {
    /// Registers of integer arguments, in order.
    pub const ARGUMENTS: [Self; 6] = [Self::Rdi, Self::Rsi, Self::Rdx, Self::Rcx, Self::R8, Self::R9];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        REGISTERS[self as usize].1
    }

    /// The register of this name.
    pub fn named(name: &str) -> Option<Self> {
        REGISTERS.iter().find(|(_, known, _)| *known == name).map(|(register, ..)| *register)
    }

    /// The decoder's constant for it.
    pub(crate) const fn iced(self) -> Iced {
        REGISTERS[self as usize].2
    }

    /// Every register, in numeric order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        REGISTERS.iter().map(|(register, ..)| *register)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_listed_in_numeric_order() {
        for (at, (register, name, iced)) in REGISTERS.iter().enumerate() {
            assert_eq!(*register as usize, at);
            assert_eq!(format!("{iced:?}").to_lowercase(), *name);
            assert_eq!(Register::named(name), Some(*register));
        }
    }
}
