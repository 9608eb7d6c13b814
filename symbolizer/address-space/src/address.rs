//! Typed addresses: four meanings of a 64-bit number, and the only conversions between them.
//!
//! Owns: [`Avma`], [`Svma`], [`FileOffset`], [`KernelAddr`] and the rule for return addresses ([`Lookup`]). Because:
//! most wrong names in profilers come from using one kind of address as another. Does not: know files or processes;
//! conversions that need a program header are in [`crate::elf::Segment`].

use std::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// Actual virtual memory address: the address of something in a running process.
    Avma
}
address! {
    /// Stated virtual memory address: the address in the ELF file (`p_vaddr`, `st_value`, DWARF).
    Svma
}
address! {
    /// Bytes from the start of a file.
    FileOffset
}
address! {
    /// Address in the kernel, as `/proc/kallsyms` states it.
    KernelAddr
}

impl Avma {
    /// The address in the file, given the bias of the mapping (AVMA − SVMA, modulo 2⁶⁴).
    pub const fn to_svma(self, bias: u64) -> Svma {
        Svma(self.0.wrapping_sub(bias))
    }
}

impl Svma {
    /// The address in the process, given the bias of the mapping (AVMA − SVMA, modulo 2⁶⁴).
    pub const fn to_avma(self, bias: u64) -> Avma {
        Avma(self.0.wrapping_add(bias))
    }
}

/// The meaning of a code address, which determines the byte to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// An instruction that was about to run: the interrupted leaf, or the frame below a signal frame.
    Exact,
    /// A return address: the call instruction ends one byte before it. After a call that never returns, the address
    /// itself may already belong to the next function.
    Return,
}

impl Lookup {
    /// The address to look up.
    pub const fn address(self, address: u64) -> u64 {
        match self {
            Self::Exact => address,
            Self::Return => address.saturating_sub(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_converts_both_ways_even_for_prelinked_files() {
        for (avma, svma) in
            [(0x5555_0000_1234_u64, 0x1234_u64), (0x40_1000, 0x40_1000), (0x1000, 0x7f00_0000_0000)]
        {
            let bias = avma.wrapping_sub(svma);
            assert_eq!(Avma(avma).to_svma(bias), Svma(svma));
            assert_eq!(Svma(svma).to_avma(bias), Avma(avma));
        }
    }

    #[test]
    fn a_return_address_is_looked_up_inside_its_call() {
        assert_eq!(Lookup::Return.address(0x1005), 0x1004);
        assert_eq!(Lookup::Exact.address(0x1005), 0x1005);
        assert_eq!(Lookup::Return.address(0), 0);
    }
}
