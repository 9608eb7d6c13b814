//! Rules of aarch64.
//!
//! Owns: which rows of aarch64 are supported. Because: calls put their return address into x30, which is in memory
//! only if a function saved it. Does not: unwind by rules, or remove signatures from return addresses (`walk` does).

use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind, unsupported};
use gimli::{AArch64, Register};

use super::{Cfa, END, SavedRegister, State, offset};

/// The frame pointer.
pub(in crate::unwind_rows) const FP: Register = AArch64::X29;

/// The rule of a row, or the number of the reason why it has none.
#[inline]
pub(super) fn rule(state: &State) -> Result<Rule, u8> {
    let mut rule = Rule::default();
    rule.ra = match state.ra {
        SavedRegister::AtCfa(value) => {
            rule.addend = offset(value)?;
            ra_kind::AT_CFA
        }
        SavedRegister::Unspecified | SavedRegister::Same | SavedRegister::In(AArch64::X30) => {
            ra_kind::AARCH64_IN_LR
        }
        SavedRegister::Undefined => return Ok(END),
        SavedRegister::In(_) | SavedRegister::At(..) | SavedRegister::Other => {
            return Err(unsupported::RA_RULE);
        }
    };
    match state.cfa {
        Cfa::Register(register, value) => {
            rule.cfa_offset = offset(value)?;
            rule.cfa = match register {
                AArch64::SP => rule_kind::SP,
                AArch64::X29 => rule_kind::FP,
                Register(number @ 0..31) => {
                    rule.detail = number as u8;
                    rule_kind::REGISTER
                }
                _ => return Err(unsupported::CFA_REGISTER),
            };
        }
        // The size of frames with scalable vectors is known only at run time.
        Cfa::Deref(..) | Cfa::Plt(_) | Cfa::Other => return Err(unsupported::CFA_EXPRESSION),
    }
    rule.fp = match state.fp {
        SavedRegister::Unspecified | SavedRegister::Same | SavedRegister::In(AArch64::X29) => fp_kind::SAME,
        SavedRegister::Undefined => fp_kind::UNDEFINED,
        SavedRegister::AtCfa(value) => {
            rule.fp_offset = offset(value)?;
            fp_kind::AT_CFA
        }
        SavedRegister::At(..) | SavedRegister::In(_) | SavedRegister::Other => {
            return Err(unsupported::FP_RULE);
        }
    };
    Ok(rule)
}
