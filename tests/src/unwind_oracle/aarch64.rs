//! Owns: the expected rules for readelf's aarch64 output. Because: they are derived from that output alone,
//! independently of the builder. Does not: run readelf, compare.

use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};

use super::readelf::{Details, Row, Words};
use super::{at_cfa, register_and_offset, unsupported};

/// readelf's names of the relevant registers.
pub(super) const WORDS: Words = Words { fp: "x29", fp_operand: "r29 (x29)", ra_operand: "r30 (x30)" };

/// The rule expected for a printed row, or an unsupported form as text.
pub(super) fn expected(row: &Row, details: &Details) -> Result<Rule, String> {
    if details.ra_undefined {
        return Ok(Rule { cfa: rule_kind::END, ..Rule::default() });
    }
    let (register, cfa_offset) = register_and_offset(&row.cfa).ok_or_else(|| {
        let words = details.cfa.as_deref().unwrap_or("exp without words");
        unsupported("CFA", if &*row.cfa == "exp" { words } else { &row.cfa })
    })?;
    let (cfa, detail) = match register {
        "sp" => (rule_kind::SP, 0),
        "x29" => (rule_kind::FP, 0),
        other => match other.strip_prefix('x').and_then(|number| number.parse().ok()) {
            Some(number @ 0..31) => (rule_kind::REGISTER, number),
            _ => return Err(unsupported("CFA", &row.cfa)),
        },
    };
    let (ra, addend) = match &*row.ra {
        // An unmentioned register has its value from before the call.
        "" | "u" | "s" => (ra_kind::AARCH64_IN_LR, 0),
        form => (ra_kind::AT_CFA, at_cfa(form).ok_or_else(|| unsupported("return address", form))?),
    };
    let (fp, fp_offset) = match &*row.fp {
        "u" if details.fp_undefined => (fp_kind::UNDEFINED, 0),
        "" | "u" | "s" => (fp_kind::SAME, 0),
        form => (fp_kind::AT_CFA, at_cfa(form).ok_or_else(|| unsupported("x29", form))?),
    };
    Ok(Rule { cfa, fp, ra, detail, cfa_offset, fp_offset, addend })
}
