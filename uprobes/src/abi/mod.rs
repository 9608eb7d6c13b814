//! Where arguments are at function entry.
//!
//! Owns: the System V calling convention for x86-64, as far as these interfaces use it. Because: errors in a
//! hand-written register table go unnoticed; one derived from declarations can be checked against the headers. Does
//! not: read anything.
//!
//! Source: "System V Application Binary Interface, AMD64 Architecture Processor Supplement", section 3.2.3.

mod register;
mod types;

use std::borrow::Cow;
use std::fmt;

use deepctx_events::Role;

pub use register::Register;
pub use types::{Scalar, Type};

/// A member of a structure that is read through a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The parameter with the pointer.
    pub through: Role,
    /// The meaning of the member.
    pub role: Role,
    /// How to read it.
    pub scalar: Scalar,
    /// Bytes from the start of the structure.
    pub offset: u16,
    /// `STRUCTURE.member` in the header.
    pub declared: &'static str,
}

/// Location of a value when the function is entered, before its first instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In a register, `shift` bits above the lowest bit.
    Register {
        /// The register.
        register: Register,
        /// Bits to shift right by: the parts of a `dim3` share a register.
        shift: u8,
    },
    /// On the stack: this many bytes above the stack pointer, where the return address is at 0.
    Stack(u16),
    /// In memory: `offset` bytes after the address in the register.
    BehindRegister {
        /// The register with the pointer.
        register: Register,
        /// Bytes after it; may be negative in a user's row.
        offset: i32,
    },
    /// In memory: `offset` bytes after the address that is stored `at` bytes after the address in the register.
    BehindPointer {
        /// The register with the first pointer.
        register: Register,
        /// Bytes after it.
        at: i16,
        /// Bytes after the second pointer.
        offset: i16,
    },
    /// In memory: `offset` bytes after the address that is on the stack.
    BehindStack {
        /// Bytes above the stack pointer.
        stack: u16,
        /// Bytes after the pointer.
        offset: i32,
    },
    /// In a thread-local variable, at this offset in the block of its module; the probe is on the call of
    /// `__tls_get_addr` for that module.
    ThreadLocal(i16),
    /// In a vector register, which probes cannot read.
    Unreadable,
}

impl Location {
    /// The whole register.
    pub const fn in_register(register: Register) -> Self {
        Self::Register { register, shift: 0 }
    }

    /// The register that must still have its value when the probe fires.
    pub const fn register(self) -> Option<Register> {
        match self {
            Self::Register { register, .. }
            | Self::BehindRegister { register, .. }
            | Self::BehindPointer { register, .. } => Some(register),
            Self::Stack(_) | Self::BehindStack { .. } | Self::ThreadLocal(_) | Self::Unreadable => None,
        }
    }

    /// True if it is addressed by the stack pointer.
    pub const fn is_on_stack(self) -> bool {
        matches!(self, Self::Stack(_) | Self::BehindStack { .. })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Register { register, shift: 0 } => f.write_str(register.name()),
            Self::Register { register, shift } => write!(f, "{}>>{shift}", register.name()),
            Self::Stack(bytes) => write!(f, "[rsp+{bytes}]"),
            Self::BehindRegister { register, offset } => write!(f, "[{}{offset:+}]", register.name()),
            Self::BehindPointer { register, at, offset } => {
                write!(f, "[[{}{at:+}]{offset:+}]", register.name())
            }
            Self::BehindStack { stack, offset } => write!(f, "[[rsp+{stack}]{offset:+}]"),
            Self::ThreadLocal(offset) => write!(f, "thread-local{offset:+}"),
            Self::Unreadable => f.write_str("vector register"),
        }
    }
}

/// An argument with a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its meaning.
    pub role: Role,
    /// Its name: the role's, or the user's.
    pub name: Cow<'static, str>,
    /// How to read it.
    pub scalar: Scalar,
    /// Its location.
    pub location: Location,
}

impl Argument {
    /// An argument named after its role.
    pub fn new(role: Role, scalar: Scalar, location: Location) -> Self {
        Self { role, name: Cow::Borrowed(role.name()), scalar, location }
    }

    /// An eight-byte argument.
    pub(crate) fn word(role: Role, location: Location) -> Self {
        Self::new(role, Scalar::U64, location)
    }
}

/// Words read from a structure: for an NCCL id, a random number and an address.
const STRUCTURE_WORDS: usize = 3;

/// Elements read from an array of nodes: as many as fit in addition to a node's own parameters.
const ARRAY_ELEMENTS: i32 = 12;

/// The meaning of one element of an array.
const fn element_of(role: Role) -> Option<Role> {
    match role {
        Role::Dependencies => Some(Role::Dependency),
        Role::Dependents => Some(Role::Dependent),
        _ => None,
    }
}

/// Assigns registers and stack slots in declaration order.
#[derive(Debug, Default)]
struct Assigner {
    registers: usize,
    stack: u16,
}

impl Assigner {
    /// Registers for the eight-byte pieces of an integer value; `None` if they do not all fit, and go to the stack.
    fn integer(&mut self, pieces: usize) -> Option<&'static [Register]> {
        let registers = Register::ARGUMENTS.get(self.registers..self.registers + pieces)?;
        self.registers += pieces;
        Some(registers)
    }

    /// Bytes above the stack pointer of a value in memory.
    fn memory(&mut self, bytes: u16) -> u16 {
        let at = 8 + self.stack;
        self.stack += bytes.next_multiple_of(8);
        at
    }

    fn scalar(&mut self) -> Location {
        match self.integer(1) {
            Some(registers) => Location::Register { register: registers[0], shift: 0 },
            None => Location::Stack(self.memory(8)),
        }
    }

    /// Three 32-bit values: two registers, of which y shares one with x, or twelve bytes on the stack.
    fn dim3(&mut self, role: Role) -> Vec<Argument> {
        let locations = match self.integer(2) {
            Some(&[low, high]) => [(low, 0), (low, 32), (high, 0)]
                .map(|(register, shift)| Location::Register { register, shift }),
            _ => {
                let at = self.memory(12);
                [at, at + 4, at + 8].map(Location::Stack)
            }
        };
        let values = dimensions(role).into_iter().zip(locations);
        values.map(|(role, location)| Argument::new(role, Scalar::U32, location)).collect()
    }

    /// Three 64-bit values, always on the stack.
    fn extent(&mut self) -> Vec<Argument> {
        let at = self.memory(24);
        [(Role::Width, 0), (Role::Height, 8), (Role::Depth, 16)]
            .map(|(role, offset)| Argument::new(role, Scalar::U64, Location::Stack(at + offset)))
            .into()
    }

    /// A structure by value: its first words, if it has a meaning and is large enough to be on the stack.
    fn structure(&mut self, role: Role, bytes: u16) -> Vec<Argument> {
        let pieces = usize::from(bytes).div_ceil(8);
        if pieces <= 2 && self.integer(pieces).is_some() {
            return Vec::new();
        }
        let at = self.memory(bytes);
        let words = (0..bytes / 8).take(STRUCTURE_WORDS);
        words.map(|word| Argument::word(role, Location::Stack(at + 8 * word))).collect()
    }

    /// A number, and the fields read through it if it is a pointer.
    fn number(&mut self, role: Role, kind: Type, fields: &[Field]) -> Vec<Argument> {
        let location = self.scalar();
        let Some(scalar) = kind.scalar() else { return Vec::new() };
        let behind = |offset| match location {
            Location::Register { register, .. } => Location::BehindRegister { register, offset },
            Location::Stack(stack) => Location::BehindStack { stack, offset },
            other => other,
        };
        let members = fields.iter().filter(|field| field.through == role);
        let members = members.map(|field| (field.role, field.scalar, i32::from(field.offset)));
        let elements = element_of(role).into_iter().flat_map(|element| {
            (0..ARRAY_ELEMENTS).map(move |number| (element, Scalar::POINTER, 8 * number))
        });
        let read = members.chain(elements);
        let read = read.map(|(role, scalar, offset)| Argument::new(role, scalar, behind(offset)));
        std::iter::once(Argument::new(role, scalar, location)).chain(read).collect()
    }
}

/// The arguments with a meaning, for a function with these parameters.
pub(crate) fn arguments(parameters: &[(Role, Type)], fields: &[Field]) -> Vec<Argument> {
    let mut assigner = Assigner::default();
    let mut out = Vec::new();
    for &(role, kind) in parameters {
        let values = match kind {
            Type::Dim3 => assigner.dim3(role),
            Type::Extent => assigner.extent(),
            Type::PitchedPointer => {
                vec![Argument::new(role, Scalar::POINTER, Location::Stack(assigner.memory(32)))]
            }
            Type::Struct(bytes) => assigner.structure(role, bytes),
            Type::Float => vec![Argument::new(role, Scalar::U64, Location::Unreadable)],
            _ => assigner.number(role, kind, fields),
        };
        out.extend(values.into_iter().filter(|argument| argument.role != Role::Other));
    }
    out
}

/// The three parts of a `dim3`.
const fn dimensions(role: Role) -> [Role; 3] {
    match role {
        Role::Block => [Role::BlockX, Role::BlockY, Role::BlockZ],
        _ => [Role::GridX, Role::GridY, Role::GridZ],
    }
}

#[cfg(test)]
mod tests {
    use deepctx_events::{Family, Role};

    use crate::catalogue::rows;

    fn check(family: Family, symbol: &str, expect: &[(Role, &str)]) {
        let row = rows()
            .iter()
            .find(|row| row.family == family && row.names.iter().any(|name| name.symbol == symbol))
            .unwrap();
        let found: Vec<_> = row.arguments().iter().map(|a| (a.role, a.location.to_string())).collect();
        for (role, place) in expect {
            assert!(found.contains(&(*role, (*place).to_owned())), "{symbol}: {role:?} {place}: {found:?}");
        }
    }

    #[test]
    fn a_large_structure_is_on_the_stack() {
        check(
            Family::Nccl,
            "ncclCommInitRank",
            &[
                (Role::Out, "rdi"),
                (Role::Ranks, "rsi"),
                (Role::UniqueId, "[rsp+8]"),
                (Role::UniqueId, "[rsp+16]"),
                (Role::UniqueId, "[rsp+24]"),
                // It takes no register.
                (Role::Rank, "rdx"),
            ],
        );
    }

    #[test]
    fn the_seventh_number_is_on_the_stack() {
        check(
            Family::CudaDriver,
            "cuLaunchKernel_ptsz",
            &[
                (Role::Function, "rdi"),
                (Role::BlockY, "r9"),
                (Role::BlockZ, "[rsp+8]"),
                (Role::SharedBytes, "[rsp+16]"),
                (Role::Stream, "[rsp+24]"),
            ],
        );
    }

    #[test]
    fn dim3_takes_two_registers_with_x_and_y_sharing_one() {
        check(
            Family::CudaRuntime,
            "cudaLaunchKernel",
            &[
                (Role::Function, "rdi"),
                (Role::GridX, "rsi"),
                (Role::GridY, "rsi>>32"),
                (Role::GridZ, "rdx"),
                (Role::BlockX, "rcx"),
                (Role::BlockZ, "r8"),
                (Role::SharedBytes, "[rsp+8]"),
                (Role::Stream, "[rsp+16]"),
            ],
        );
    }

    #[test]
    fn large_structures_leave_registers_to_later_parameters() {
        // An ncclUniqueId has 128 bytes; the rank after it is in the third register.
        check(Family::Nccl, "ncclCommInitRank", &[(Role::Out, "rdi"), (Role::Rank, "rdx")]);
        check(Family::Nccl, "ncclCommInitRankConfig", &[(Role::Config, "rcx")]);
        check(
            Family::CudaRuntime,
            "cudaMemset3DAsync",
            &[
                (Role::Destination, "[rsp+8]"),
                (Role::Value, "rdi"),
                (Role::Width, "[rsp+40]"),
                (Role::Depth, "[rsp+56]"),
                (Role::Stream, "rsi"),
            ],
        );
    }

    #[test]
    fn launch_configurations_are_read_through_their_pointer() {
        check(
            Family::CudaDriver,
            "cuLaunchKernelEx",
            &[(Role::GridX, "[rdi+0]"), (Role::BlockZ, "[rdi+20]"), (Role::Stream, "[rdi+32]")],
        );
    }

    #[test]
    fn a_small_structure_takes_one_register() {
        check(
            Family::CudaDriver,
            "cuMemPrefetchAsync_v2",
            &[(Role::Address, "rdi"), (Role::Bytes, "rsi"), (Role::Flags, "rcx"), (Role::Stream, "r8")],
        );
    }
}
