//! Rules of x86-64.
//!
//! Owns: which rows of x86-64 are supported. Because: calls push their return address, and compilers that realign the
//! stack keep the CFA in memory or in a register. Does not: unwind by rules (`walk` does).

use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind, unsupported};
use gimli::{Register, X86_64};

use super::{Cfa, END, SavedRegister, State, offset};

/// The frame pointer.
pub(in crate::unwind_rows) const FP: Register = X86_64::RBP;

/// The rule of a row, or the number of the reason why it has none: one match for each of its three columns.
#[inline]
pub(super) fn rule(state: &State) -> Result<Rule, u8> {
    let ra = match state.ra {
        SavedRegister::AtCfa(-8) => ra_kind::X86_AT_CFA_MINUS_8,
        SavedRegister::Undefined => return Ok(END),
        SavedRegister::In(X86_64::RDI) => ra_kind::X86_IN_RDI,
        _ => return Err(unsupported::RA_RULE),
    };
    let mut rule = Rule { ra, ..Rule::default() };
    match state.cfa {
        Cfa::Register(register, value) => {
            rule.cfa_offset = offset(value)?;
            rule.cfa = match register {
                X86_64::RSP => rule_kind::SP,
                X86_64::RBP => rule_kind::FP,
                X86_64::R10 => rule_kind::X86_R10,
                X86_64::R13 => rule_kind::X86_R13,
                X86_64::RBX => rule_kind::X86_RBX,
                Register(number @ 0..16) => {
                    rule.detail = number as u8;
                    rule_kind::REGISTER
                }
                _ => return Err(unsupported::CFA_REGISTER),
            };
        }
        Cfa::Deref(register, value, addend) => {
            rule.cfa_offset = offset(value)?;
            rule.addend = offset(addend)?;
            rule.cfa = match register {
                X86_64::RSP => rule_kind::X86_SP_DEREF,
                X86_64::RBP => rule_kind::X86_FP_DEREF,
                _ => return Err(unsupported::CFA_EXPRESSION),
            };
        }
        Cfa::Plt(threshold) => {
            rule.cfa = rule_kind::X86_PLT;
            rule.detail = threshold;
        }
        Cfa::Other => return Err(unsupported::CFA_EXPRESSION),
    }
    rule.fp = match state.fp {
        SavedRegister::Unspecified | SavedRegister::Same => fp_kind::SAME,
        SavedRegister::Undefined => fp_kind::UNDEFINED,
        SavedRegister::AtCfa(value) => {
            rule.fp_offset = offset(value)?;
            fp_kind::AT_CFA
        }
        SavedRegister::At(X86_64::RBP, value) => {
            rule.fp_offset = offset(value)?;
            fp_kind::X86_AT_FP
        }
        SavedRegister::At(X86_64::RSP, value) => {
            rule.fp_offset = offset(value)?;
            fp_kind::X86_AT_SP
        }
        SavedRegister::In(X86_64::RBP) => fp_kind::SAME,
        SavedRegister::At(..) | SavedRegister::In(_) | SavedRegister::Other => {
            return Err(unsupported::FP_RULE);
        }
    };
    Ok(rule)
}
