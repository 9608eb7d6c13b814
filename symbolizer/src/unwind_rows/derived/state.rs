//! The abstract state at an instruction.
//!
//! Owns: the known values (registers relative to the CFA, where the caller's rbp is), how an operation changes them,
//! and the [`Rule`] that follows. Because: a rule is correct exactly when the state is. Does not: decode
//! instructions, or know their order.
//!
//! Two assumptions: an unknown stack pointer never rises above memory that is still in use, and code overwrites its
//! own saved registers only through addresses whose distance from them is known here.

use deepctx_common::unwind::{Rule, fp_kind, rule_detail, rule_kind};

use super::lower::{Op, RBP, RSP, Register};

/// General registers.
pub(super) const REGISTERS: usize = 16;
/// Most tracked slots in memory: the caller's rbp, rsp before an alignment, and copies of them.
const SLOTS_MAX: usize = 8;
/// Bytes below rsp that a function may use without moving it, and that signal handlers preserve (x86-64 psABI, 3.2.2).
const RED_ZONE: i32 = 128;
/// Largest tracked distance from the CFA: no stack is larger.
const DISTANCE_MAX: i32 = 1 << 30;
/// Registers that a function may change, by number: rax, rcx, rdx, rsi, rdi, r8 to r11 (x86-64 psABI, 3.2.1).
const CALL_CLOBBERED: u16 = 0b0000_1111_1100_0111;

/// Marks a [`Value::Fresh`] of a merge point. Functions have fewer bytes than that, see `GROUP_BYTES_MAX`.
const JOINED: u32 = 1 << 31;

/// The value of a register or a memory slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Not known.
    Unknown,
    /// The rbp of the caller.
    CallerRbp,
    /// CFA + offset.
    Cfa(i32),
    /// Offset from an unknown address: rsp after the instruction that ends at this offset in the function aligned it,
    /// subtracted a variable amount, or replaced it.
    Fresh(u32, i32),
}

impl Value {
    /// The address plus `more` bytes.
    fn plus(self, more: i32) -> Self {
        let sum =
            |offset: i32| offset.checked_add(more).filter(|to| (-DISTANCE_MAX..=DISTANCE_MAX).contains(to));
        match self {
            Self::Cfa(offset) => sum(offset).map_or(Self::Unknown, Self::Cfa),
            Self::Fresh(site, offset) => sum(offset).map_or(Self::Unknown, |sum| Self::Fresh(site, sum)),
            Self::CallerRbp if more == 0 => self,
            Self::CallerRbp | Self::Unknown => Self::Unknown,
        }
    }

    /// Bytes from `base` to this address, if both are relative to the same address.
    fn distance(self, base: Self) -> Option<i32> {
        match (self, base) {
            (Self::Cfa(to), Self::Cfa(from)) => to.checked_sub(from),
            (Self::Fresh(site, to), Self::Fresh(same, from)) if site == same => to.checked_sub(from),
            _ => None,
        }
    }
}

/// Eight bytes in memory with a known value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    at: Value,
    holds: Value,
}

/// The state before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    registers: [Value; REGISTERS],
    slots: [Option<Slot>; SLOTS_MAX],
    /// The return address is no longer at CFA - 8, or nothing is known.
    is_unknown: bool,
}

impl State {
    /// The state at the entry of a function: the return address was just pushed.
    pub(super) fn entry() -> Self {
        let mut state = Self::unknown();
        state.is_unknown = false;
        state.registers[RSP] = Value::Cfa(-8);
        state.registers[RBP] = Value::CallerRbp;
        state
    }

    /// The state in which nothing is known.
    pub(super) fn unknown() -> Self {
        Self { registers: [Value::Unknown; REGISTERS], slots: [None; SLOTS_MAX], is_unknown: true }
    }

    /// Keeps the facts that hold in both states; true when some were dropped. Each register and slot is dropped at
    /// most once, which bounds the number of visits.
    ///
    /// Where the stack pointers differ, rsp at this offset `site` becomes a fresh address, the same one at every visit.
    pub(super) fn join(&mut self, other: &Self, site: u32) -> bool {
        let mut changed = other.is_unknown && !self.is_unknown;
        self.is_unknown |= other.is_unknown;
        let here = Value::Fresh(site | JOINED, 0);
        if self.registers[RSP] != other.registers[RSP] && self.registers[RSP] != here {
            self.registers[RSP] = here;
            changed = true;
        }
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            if *mine != *theirs && *mine != Value::Unknown && *mine != here {
                *mine = Value::Unknown;
                changed = true;
            }
        }
        for mine in &mut self.slots {
            if mine.is_some() && !other.slots.contains(mine) {
                *mine = None;
                changed = true;
            }
        }
        changed
    }

    /// This state with rsp as a fresh address of the merge point at offset `site`.
    pub(super) fn at_merge_point(&self, site: u32) -> Self {
        let mut state = self.clone();
        if !state.is_unknown {
            state.rebase(RSP, site | JOINED);
        }
        state
    }

    /// Whether rsp is a fresh address of a merge point at offset `site`.
    pub(super) fn is_merge_point(&self, site: u32) -> bool {
        !self.is_unknown && self.registers[RSP] == Value::Fresh(site | JOINED, 0)
    }

    /// Whether rsp and rbp are as at the entry of a function, or before its return.
    pub(super) fn is_at_edge(&self) -> bool {
        !self.is_unknown && self.registers[RSP] == Value::Cfa(-8) && self.registers[RBP] == Value::CallerRbp
    }

    /// Whether a return here would contradict the state: then some derived fact is wrong.
    pub(super) fn contradicts_return(&self) -> bool {
        !self.is_unknown
            && (matches!(self.registers[RSP], Value::Cfa(offset) if offset != -8)
                || matches!(self.registers[RBP], Value::Cfa(_)))
    }

    /// Applies `op`, the instruction that ends at offset `site`.
    pub(super) fn apply(&mut self, op: &Op, site: u32) {
        match *op {
            Op::Copy { to, from, add } => self.set(to, self.registers[from].plus(add)),
            Op::Clobber { mask } => self.clobber(mask),
            Op::Rebase { register } => self.rebase(register, site),
            Op::Push { from, bytes } => {
                let value = from.map_or(Value::Unknown, |from| self.registers[from]);
                self.set(RSP, self.registers[RSP].plus(-bytes));
                self.store(self.registers[RSP], bytes, value);
            }
            Op::Pop { to, bytes } => {
                let value = if bytes == 8 { self.load(self.registers[RSP]) } else { Value::Unknown };
                self.set(RSP, self.registers[RSP].plus(bytes));
                if let Some(to) = to {
                    self.set(to, value);
                }
            }
            Op::Load { to, base, add } => {
                let value = self.load(self.registers[base].plus(add));
                self.set(to, value);
            }
            Op::Store { base, add, bytes, from } => {
                let value = from.map_or(Value::Unknown, |from| self.registers[from]);
                let at = self.registers[base].plus(add);
                self.store(at, bytes, value);
            }
            Op::Call { local } => {
                let sp = self.registers[RSP];
                self.retain(|slot| slot.at.distance(sp).is_none_or(|above| above >= 0));
                // Calls within a function follow no convention.
                self.clobber(if local { !(1 << RSP) } else { CALL_CLOBBERED });
            }
            Op::Branch { .. } | Op::Jump { .. } | Op::Exit { .. } | Op::Return | Op::Stop => {}
        }
        // rsp is unknown now, but later slots can be tracked relative to it.
        if self.registers[RSP] == Value::Unknown && !self.is_unknown {
            self.rebase(RSP, site);
        }
    }

    fn set(&mut self, register: Register, value: Value) {
        self.registers[register] = value;
        if register == RSP {
            self.retain(|slot| slot.at.distance(value).is_none_or(|above| above >= -RED_ZONE));
        }
    }

    fn clobber(&mut self, mask: u16) {
        for (number, value) in self.registers.iter_mut().enumerate() {
            if mask >> number & 1 != 0 {
                *value = Value::Unknown;
            }
        }
    }

    /// `register` becomes a fresh address. Values relative to the address of an earlier execution of the same
    /// instruction are dropped.
    fn rebase(&mut self, register: Register, site: u32) {
        let is_stale = |value: Value| matches!(value, Value::Fresh(of, _) if of == site);
        // rsp, and other addresses on the stack.
        let is_address =
            register == RSP || !matches!(self.registers[register], Value::Unknown | Value::CallerRbp);
        for value in &mut self.registers {
            if is_stale(*value) {
                *value = Value::Unknown;
            }
        }
        self.retain(|slot| !is_stale(slot.at) && !is_stale(slot.holds));
        if register == RSP {
            let before = self.registers[RSP];
            self.retain(|slot| slot.at.distance(before).is_none_or(|above| above >= 0));
        }
        self.registers[register] = if is_address { Value::Fresh(site, 0) } else { Value::Unknown };
    }

    fn retain(&mut self, keep: impl Fn(&Slot) -> bool) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|slot| !keep(slot)) {
                *slot = None;
            }
        }
    }

    fn load(&self, at: Value) -> Value {
        let is_here = |slot: &&Slot| slot.at == at;
        self.slots.iter().flatten().find(is_here).map_or(Value::Unknown, |slot| slot.holds)
    }

    fn store(&mut self, at: Value, bytes: i32, value: Value) {
        if let Value::Cfa(offset) = at
            && offset < 0
            && offset + bytes > -8
        {
            self.is_unknown = true;
        }
        self.retain(|slot| match slot.at.distance(at) {
            Some(above) => above >= bytes || above <= -8,
            None => true,
        });
        let is_address = matches!(at, Value::Cfa(_) | Value::Fresh(..));
        if bytes == 8
            && is_address
            && value != Value::Unknown
            && let Some(free) = self.slots.iter_mut().find(|slot| slot.is_none())
        {
            *free = Some(Slot { at, holds: value });
        }
    }

    /// The rule that follows, or `None` when the CFA is not known.
    pub(super) fn rule(&self) -> Option<Rule> {
        if self.is_unknown {
            return None;
        }
        let (sp, bp) = (self.registers[RSP], self.registers[RBP]);
        let mut rule = Rule { detail: rule_detail::DERIVED, ..Rule::default() };
        // Prefer rsp: it is known in every frame, rbp only while all callees recorded where they saved it.
        if let Value::Cfa(offset) = sp {
            (rule.cfa, rule.cfa_offset) = (rule_kind::SP, -offset);
        } else if let Value::Cfa(offset) = bp {
            (rule.cfa, rule.cfa_offset) = (rule_kind::FP, -offset);
        } else if let Some((offset, addend)) = self.stored_cfa(sp) {
            (rule.cfa, rule.cfa_offset, rule.addend) = (rule_kind::X86_SP_DEREF, offset, addend);
        } else if let Some((offset, addend)) = self.stored_cfa(bp) {
            (rule.cfa, rule.cfa_offset, rule.addend) = (rule_kind::X86_FP_DEREF, offset, addend);
        } else {
            let other = |(number, value): (usize, &Value)| match *value {
                Value::Cfa(offset) => Some((number, -offset)),
                _ => None,
            };
            let (number, offset) = self.registers.iter().enumerate().find_map(other)?;
            (rule.cfa, rule.detail, rule.cfa_offset) = (rule_kind::REGISTER, DWARF[number], offset);
        }
        (rule.fp, rule.fp_offset) = self.caller_rbp(sp, bp);
        Some(rule)
    }

    /// Offset from `base` of a slot that holds an address, and what to add to that address for the CFA.
    fn stored_cfa(&self, base: Value) -> Option<(i32, i32)> {
        self.slots.iter().flatten().find_map(|slot| match slot.holds {
            Value::Cfa(offset) => Some((slot.at.distance(base)?, -offset)),
            _ => None,
        })
    }

    /// The rule of the frame pointer and its offset.
    fn caller_rbp(&self, sp: Value, bp: Value) -> (u8, i32) {
        if bp == Value::CallerRbp {
            return (fp_kind::SAME, 0);
        }
        let saved = || self.slots.iter().flatten().filter(|slot| slot.holds == Value::CallerRbp);
        let at = |kind: u8, base: Value| saved().find_map(|slot| Some((kind, slot.at.distance(base)?)));
        at(fp_kind::AT_CFA, Value::Cfa(0))
            .or_else(|| at(fp_kind::X86_AT_SP, sp))
            .or_else(|| at(fp_kind::X86_AT_FP, bp))
            .unwrap_or((fp_kind::UNDEFINED, 0))
    }

    /// The CFA by `rule`, relative to the CFA of this state; `None` when it is not known.
    #[cfg(test)]
    pub(super) fn cfa_of(&self, rule: &Rule) -> Option<Result<i32, Value>> {
        let register = |number: usize| self.registers[number].plus(rule.cfa_offset);
        let value = match rule.cfa {
            rule_kind::SP => register(RSP),
            rule_kind::FP => register(RBP),
            rule_kind::X86_R10 => register(10),
            rule_kind::X86_R13 => register(13),
            rule_kind::X86_RBX => register(3),
            rule_kind::REGISTER => register(DWARF.iter().position(|&dwarf| dwarf == rule.detail)?),
            rule_kind::X86_SP_DEREF => self.load(register(RSP)).plus(rule.addend),
            rule_kind::X86_FP_DEREF => self.load(register(RBP)).plus(rule.addend),
            _ => return None,
        };
        match value {
            Value::Unknown => None,
            Value::Cfa(offset) => Some(Ok(offset)),
            other => Some(Err(other)),
        }
    }

    /// The caller's rbp by `rule`; `None` when it is not known.
    #[cfg(test)]
    pub(super) fn rbp_of(&self, rule: &Rule) -> Option<Value> {
        let value = match rule.fp {
            fp_kind::SAME => self.registers[RBP],
            fp_kind::AT_CFA => self.load(Value::Cfa(rule.fp_offset)),
            fp_kind::X86_AT_FP => self.load(self.registers[RBP].plus(rule.fp_offset)),
            fp_kind::X86_AT_SP => self.load(self.registers[RSP].plus(rule.fp_offset)),
            _ => return None,
        };
        (value != Value::Unknown).then_some(value)
    }
}

/// DWARF numbers of registers by their numbers in instructions (x86-64 psABI, 3.6.2).
const DWARF: [u8; REGISTERS] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
