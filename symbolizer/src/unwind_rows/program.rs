//! The interpreter of call frame programs.
//!
//! Owns: running the instructions of a CIE or an FDE for three columns: CFA, frame pointer, return address. Because:
//! general interpreters track every register, which takes most of the time and is not needed. Does not: decode bytes
//! (gimli does), or decide which forms are supported ([`super::rules`]).

use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::Rule;
use gimli::{CallFrameInstruction as Cfi, CallFrameInstructionIter, Register, UnwindSection};

use super::Bytes;
use super::rules::{
    BAD_PROGRAM, Cfa, SavedRegister, State, aarch64, cfa_expression, saved_expression, x86_64,
};

/// Deepest nesting of `DW_CFA_remember_state`: compilers nest once or twice; deeper programs are refused.
const REMEMBERED_MAX: usize = 64;
/// Most instructions of a CIE: compilers write three or four.
const INITIAL_MAX: usize = 4096;

/// The program cannot be decoded further.
#[derive(Clone, Copy, Debug)]
pub(super) struct UndecodableProgram;

/// The parts of a CIE that its FDEs need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cie {
    pub(super) initial: State,
    code_factor: u64,
    data_factor: i64,
    arch: Arch,
    fp: Register,
    ra: Register,
}

impl Cie {
    /// What its own instructions give one of the two registers.
    fn initial_of(&self, register: Register) -> SavedRegister {
        if register == self.fp { self.initial.fp } else { self.initial.ra }
    }
}

/// Runs programs. It is reused, so that nothing is allocated per frame.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    /// The last CFA of the form register + offset: `DW_CFA_def_cfa_register` and `DW_CFA_def_cfa_offset` change one
    /// half of it, even after an expression (as in libgcc). Without one, they have no effect.
    base: Option<(Register, i64)>,
    remembered: Vec<(State, Option<(Register, i64)>)>,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { state: State::EMPTY, base: None, remembered: Vec::with_capacity(REMEMBERED_MAX) }
    }

    /// Runs the initial instructions of a CIE.
    pub(super) fn initial<'d, S: UnwindSection<Bytes<'d>>>(
        &mut self,
        cie: &gimli::CommonInformationEntry<Bytes<'d>>,
        section: &S,
        bases: &gimli::BaseAddresses,
        arch: Arch,
    ) -> Result<Cie, UndecodableProgram> {
        let mut parts = Cie {
            initial: State::EMPTY,
            code_factor: cie.code_alignment_factor(),
            data_factor: cie.data_alignment_factor(),
            arch,
            fp: match arch {
                Arch::X86_64 => x86_64::FP,
                Arch::Aarch64 => aarch64::FP,
            },
            ra: cie.return_address_register(),
        };
        self.start(State::EMPTY);
        let mut instructions = cie.instructions(section, bases);
        for _ in 0..INITIAL_MAX {
            match instructions.next() {
                Err(_) | Ok(Some(Cfi::AdvanceLoc { .. } | Cfi::SetLoc { .. })) => {
                    return Err(UndecodableProgram);
                }
                Ok(Some(instruction)) => self.apply(instruction, &parts, section)?,
                Ok(None) => {
                    parts.initial = self.state;
                    return Ok(parts);
                }
            };
        }
        Err(UndecodableProgram)
    }

    /// Runs the program of an FDE for a range of addresses and emits each change as (address, rule), addresses
    /// ascending. A corrupt program ends with [`BAD_PROGRAM`].
    #[inline]
    pub(super) fn rows<'d, S: UnwindSection<Bytes<'d>>, E>(
        &mut self,
        mut instructions: CallFrameInstructionIter<'_, Bytes<'d>>,
        section: &S,
        cie: &Cie,
        range: Range<u64>,
        mut emit: impl FnMut(u64, Rule) -> Result<(), E>,
    ) -> Result<(), E> {
        self.start(cie.initial);
        let mut at = range.start;
        let mut changed = true;
        loop {
            let next = match instructions.next() {
                Ok(None) => break,
                Err(_) => return emit(at, BAD_PROGRAM),
                Ok(Some(Cfi::AdvanceLoc { delta })) => {
                    u64::from(delta).checked_mul(cie.code_factor).and_then(|delta| at.checked_add(delta))
                }
                Ok(Some(Cfi::SetLoc { address })) => (address >= at).then_some(address),
                Ok(Some(instruction)) => {
                    match self.apply(instruction, cie, section) {
                        Ok(touched) => changed |= touched,
                        Err(UndecodableProgram) => return emit(at, BAD_PROGRAM),
                    }
                    continue;
                }
            };
            let Some(next) = next else { return emit(at, BAD_PROGRAM) };
            if changed && next > at {
                emit(at, self.state.rule(cie.arch))?;
                changed = false;
            }
            if next >= range.end {
                return Ok(());
            }
            at = next;
        }
        if changed { emit(at, self.state.rule(cie.arch)) } else { Ok(()) }
    }

    fn start(&mut self, state: State) {
        self.state = state;
        self.remembered.clear();
        self.base = match state.cfa {
            Cfa::Register(register, offset) => Some((register, offset)),
            _ => None,
        };
    }

    /// Sets the CFA to register + offset. If a part is missing (a forged offset that does not fit, or one half
    /// without the other), the CFA becomes unsupported.
    fn set_cfa(&mut self, register: Option<Register>, offset: Option<i64>) -> bool {
        self.state.cfa = match (register, offset) {
            (Some(register), Some(offset)) => {
                self.base = Some((register, offset));
                Cfa::Register(register, offset)
            }
            _ => Cfa::Other,
        };
        true
    }

    fn set(&mut self, register: Register, cie: &Cie, saved: SavedRegister) -> bool {
        if register == cie.fp {
            self.state.fp = saved;
        } else if register == cie.ra {
            self.state.ra = saved;
        } else {
            return false;
        }
        true
    }

    fn remember(&mut self) -> Result<(), UndecodableProgram> {
        if self.remembered.len() == REMEMBERED_MAX {
            return Err(UndecodableProgram);
        }
        self.remembered.push((self.state, self.base));
        Ok(())
    }

    /// Applies one instruction that does not advance the location. Returns whether a column may have changed. One match
    /// over all instructions, so that each is named once.
    #[inline]
    fn apply<'d, S: UnwindSection<Bytes<'d>>>(
        &mut self,
        instruction: Cfi<usize>,
        cie: &Cie,
        section: &S,
    ) -> Result<bool, UndecodableProgram> {
        let factored = |offset: i64| offset.checked_mul(cie.data_factor);
        let at_cfa = |offset: Option<i64>| {
            offset.and_then(factored).map_or(SavedRegister::Other, SavedRegister::AtCfa)
        };
        Ok(match instruction {
            Cfi::DefCfa { register, offset } => self.set_cfa(Some(register), i64::try_from(offset).ok()),
            Cfi::DefCfaOffset { offset } => {
                self.set_cfa(self.base.map(|(register, _)| register), i64::try_from(offset).ok())
            }
            Cfi::Offset { register, factored_offset } => {
                self.set(register, cie, at_cfa(i64::try_from(factored_offset).ok()))
            }
            Cfi::DefCfaRegister { register } => {
                self.set_cfa(Some(register), self.base.map(|(_, offset)| offset))
            }
            Cfi::DefCfaSf { register, factored_offset } => {
                self.set_cfa(Some(register), factored(factored_offset))
            }
            Cfi::DefCfaOffsetSf { factored_offset } => {
                self.set_cfa(self.base.map(|(register, _)| register), factored(factored_offset))
            }
            Cfi::DefCfaExpression { expression } => {
                self.state.cfa = cfa_expression(expression.get(section).map_err(|_| UndecodableProgram)?);
                true
            }
            Cfi::RememberState => {
                self.remember()?;
                false
            }
            Cfi::RestoreState => {
                (self.state, self.base) = self.remembered.pop().ok_or(UndecodableProgram)?;
                true
            }
            Cfi::Restore { register } => self.set(register, cie, cie.initial_of(register)),
            Cfi::Undefined { register } => self.set(register, cie, SavedRegister::Undefined),
            Cfi::SameValue { register } => self.set(register, cie, SavedRegister::Same),
            Cfi::OffsetExtendedSf { register, factored_offset } => {
                self.set(register, cie, at_cfa(Some(factored_offset)))
            }
            Cfi::Register { dest_register, src_register } => {
                self.set(dest_register, cie, SavedRegister::In(src_register))
            }
            Cfi::Expression { register, expression } => {
                if register != cie.fp && register != cie.ra {
                    return Ok(false);
                }
                let saved = saved_expression(expression.get(section).map_err(|_| UndecodableProgram)?);
                self.set(register, cie, saved)
            }
            Cfi::ValOffset { register, .. }
            | Cfi::ValOffsetSf { register, .. }
            | Cfi::ValExpression { register, .. } => self.set(register, cie, SavedRegister::Other),
            // Sizes of pushed arguments, padding, and instructions of other architectures change none of the columns.
            _ => false,
        })
    }
}
