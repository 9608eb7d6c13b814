//! Unwind rules from the state of a call frame program.
//!
//! Owns: converting the state of CFA, frame pointer and return address into a [`Rule`], and numbering rules. Because:
//! the supported forms are decided only here, in one file per architecture. Does not: decode call frame instructions,
//! or know addresses.

pub(super) mod aarch64;
pub(super) mod x86_64;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, rule_kind, unsupported};
use gimli::{Encoding, Expression, Format, Operation, Register, X86_64};
use rustc_hash::FxHashMap;

use super::{Bytes, NoTable};

/// How the canonical frame address is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cfa {
    /// Register + offset.
    Register(Register, i64),
    /// *(register + offset) + addend.
    Deref(Register, i64, i64),
    /// rsp + 8 + 8 × ((rip & 15) >= threshold), on x86-64.
    Plt(u8),
    /// Anything else.
    Other,
}

/// Where the caller's value of a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SavedRegister {
    /// Not specified.
    Unspecified,
    /// It cannot be recovered.
    Undefined,
    /// Still in the register.
    Same,
    /// In memory at CFA + offset.
    AtCfa(i64),
    /// In memory at register + offset.
    At(Register, i64),
    /// In another register.
    In(Register),
    /// Anything else.
    Other,
}

/// One row of a call frame program: the three columns that this unwinder uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) cfa: Cfa,
    pub(super) fp: SavedRegister,
    pub(super) ra: SavedRegister,
}

/// The rule of a signal frame.
pub(super) const SIGNAL: Rule = plain(rule_kind::SIGNAL, 0);
/// The rule of the outermost frame.
pub(super) const END: Rule = plain(rule_kind::END, 0);
/// The rule from where a program cannot be decoded.
pub(super) const BAD_PROGRAM: Rule = plain(rule_kind::UNSUPPORTED, unsupported::BAD_PROGRAM);

const fn plain(cfa: u8, detail: u8) -> Rule {
    Rule { cfa, fp: 0, ra: 0, detail, cfa_offset: 0, fp_offset: 0, addend: 0 }
}

impl State {
    /// Before the first instruction: nothing is known.
    pub(super) const EMPTY: State =
        State { cfa: Cfa::Other, fp: SavedRegister::Unspecified, ra: SavedRegister::Unspecified };

    /// The rule, or [`rule_kind::UNSUPPORTED`] with its reason.
    #[inline]
    pub(super) fn rule(&self, arch: Arch) -> Rule {
        let rule = match arch {
            Arch::X86_64 => x86_64::rule(self),
            Arch::Aarch64 => aarch64::rule(self),
        };
        rule.unwrap_or_else(|reason| plain(rule_kind::UNSUPPORTED, reason))
    }
}

/// An offset with the size that rules have.
fn offset(offset: i64) -> Result<i32, u8> {
    i32::try_from(offset).map_err(|_| unsupported::OFFSET_RANGE)
}

/// Most operations of a supported expression: a PLT entry has nine.
const OPERATIONS_MAX: usize = 9;

/// Decodes all operations into `buffer`; `None` when there are too many or they are malformed.
fn operations<'b, 'd>(
    expression: Expression<Bytes<'d>>,
    buffer: &'b mut [Operation<Bytes<'d>>; OPERATIONS_MAX],
) -> Option<&'b [Operation<Bytes<'d>>]> {
    let mut iter = expression.operations(Encoding { address_size: 8, format: Format::Dwarf32, version: 4 });
    let mut count = 0;
    while let Some(operation) = iter.next().ok()? {
        *buffer.get_mut(count)? = operation;
        count += 1;
    }
    Some(&buffer[..count])
}

/// The CFA given by `DW_CFA_def_cfa_expression`.
pub(super) fn cfa_expression(expression: Expression<Bytes<'_>>) -> Cfa {
    use Operation::{
        And, Deref, Ge, Plus, PlusConstant as Add, RegisterOffset as At, Shl, UnsignedConstant as Constant,
    };
    let mut buffer = [Operation::Nop; OPERATIONS_MAX];
    let Some(operations) = operations(expression, &mut buffer) else { return Cfa::Other };
    match *operations {
        [At { register, offset, .. }] => Cfa::Register(register, offset),
        [At { register, offset, .. }, Add { value }] => match sum(offset, value) {
            Some(offset) => Cfa::Register(register, offset),
            None => Cfa::Other,
        },
        [At { register, offset, .. }, Deref { size: 8, space: false, .. }, ref rest @ ..] => {
            match addend(rest) {
                Some(addend) => Cfa::Deref(register, offset, addend),
                None => Cfa::Other,
            }
        }
        // Linkers write this for a 16-byte PLT entry of x86-64: its second part runs with one more word on the stack.
        [
            At { register: X86_64::RSP, offset: 8, .. },
            At { register: X86_64::RA, offset: 0, .. },
            Constant { value: 15 },
            And,
            Constant { value: threshold @ 0..16 },
            Ge,
            Constant { value: 3 },
            Shl,
            Plus,
        ] => Cfa::Plt(threshold as u8),
        _ => Cfa::Other,
    }
}

/// The constant added after a load: none, `plus_uconst`, or a constant and `plus` or `minus`.
fn addend(operations: &[Operation<Bytes<'_>>]) -> Option<i64> {
    use Operation::{Minus, Plus, PlusConstant, SignedConstant, UnsignedConstant};
    match *operations {
        [] => Some(0),
        [PlusConstant { value }] | [UnsignedConstant { value }, Plus] => i64::try_from(value).ok(),
        [UnsignedConstant { value }, Minus] => i64::try_from(value).ok()?.checked_neg(),
        [SignedConstant { value }, Plus] => Some(value),
        [SignedConstant { value }, Minus] => value.checked_neg(),
        _ => None,
    }
}

fn sum(offset: i64, more: u64) -> Option<i64> {
    offset.checked_add(i64::try_from(more).ok()?)
}

/// Where a register is saved according to `DW_CFA_expression`, which starts with the CFA on its stack.
pub(super) fn saved_expression(expression: Expression<Bytes<'_>>) -> SavedRegister {
    use Operation::{PlusConstant, RegisterOffset};
    let mut buffer = [Operation::Nop; OPERATIONS_MAX];
    let Some(operations) = operations(expression, &mut buffer) else { return SavedRegister::Other };
    match *operations {
        [] => SavedRegister::AtCfa(0),
        [RegisterOffset { register, offset, .. }] => SavedRegister::At(register, offset),
        [RegisterOffset { register, offset, .. }, PlusConstant { value }] => match sum(offset, value) {
            Some(offset) => SavedRegister::At(register, offset),
            None => SavedRegister::Other,
        },
        ref rest => addend(rest).map_or(SavedRegister::Other, SavedRegister::AtCfa),
    }
}

/// Slots of the cache in front of the hash map: real files use few rules at a time, so that it nearly always hits.
const RECENT: usize = 512;

/// Numbers rules from 0; rule 0 is [`rule_kind::NONE`].
pub(super) struct Interner {
    rules: Vec<Rule>,
    index: FxHashMap<Rule, u16>,
    recent: Box<[u16; RECENT]>,
    max: usize,
}

/// Number of the rule of addresses without a frame.
pub(super) const NONE: u16 = 0;

impl Interner {
    /// For at most `max` rules, and never more than a row can refer to.
    pub(super) fn new(max: usize) -> Self {
        let none = Rule::default();
        Self {
            rules: vec![none],
            index: FxHashMap::from_iter([(none, NONE)]),
            recent: Box::new([NONE; RECENT]),
            max: max.clamp(1, usize::from(u16::MAX)),
        }
    }

    /// The number of `rule`.
    #[inline]
    pub(super) fn number(&mut self, rule: Rule) -> Result<u16, NoTable> {
        let kinds = u32::from_le_bytes([rule.cfa, rule.fp, rule.ra, rule.detail]);
        let mixed =
            (rule.cfa_offset as u32 ^ (rule.fp_offset as u32).rotate_left(12) ^ kinds.rotate_left(22))
                .wrapping_mul(0x9e37_79b1);
        let slot = (mixed >> 23) as usize % RECENT;
        let number = self.recent[slot];
        if self.rules[usize::from(number)] == rule {
            return Ok(number);
        }
        let number = self.number_by_map(rule)?;
        self.recent[slot] = number;
        Ok(number)
    }

    #[cold]
    fn number_by_map(&mut self, rule: Rule) -> Result<u16, NoTable> {
        if let Some(&number) = self.index.get(&rule) {
            return Ok(number);
        }
        let too_many = NoTable::TooManyRules(self.max);
        if self.rules.len() >= self.max {
            return Err(too_many);
        }
        let number = u16::try_from(self.rules.len()).map_err(|_| too_many)?;
        self.rules.push(rule);
        self.index.insert(rule, number);
        Ok(number)
    }

    /// All rules, by number.
    pub(super) fn into_rules(self) -> Vec<Rule> {
        self.rules
    }
}
