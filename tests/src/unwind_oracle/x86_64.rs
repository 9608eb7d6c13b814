//! Owns: the expected rules for readelf's x86-64 output. Because: they are derived from that output alone,
//! independently of the builder. Does not: run readelf, compare.

use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};

use super::readelf::{Details, Row, Words};
use super::{at_cfa, register_and_offset, unsupported};

/// readelf's names of the relevant registers.
pub(super) const WORDS: Words = Words { fp: "rbp", fp_operand: "r6 (rbp)", ra_operand: "r16 (rip)" };

/// Register names of readelf by DWARF number.
const REGISTERS: [&str; 16] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

/// `DW_OP_breg7 (rsp): 40` → (7, 40).
fn breg(operation: &str) -> Option<(usize, i32)> {
    let (register, rest) = operation.strip_prefix("DW_OP_breg")?.split_once(' ')?;
    Some((register.parse().ok()?, rest.split_once(": ")?.1.parse().ok()?))
}

fn operations(expression: &str) -> Vec<&str> {
    expression.trim_start_matches('(').trim_end_matches(')').split("; ").collect()
}

fn with_base(register: usize, offset: i32) -> Option<Rule> {
    let (cfa, detail) = match register {
        7 => (rule_kind::SP, 0),
        6 => (rule_kind::FP, 0),
        10 => (rule_kind::X86_R10, 0),
        13 => (rule_kind::X86_R13, 0),
        3 => (rule_kind::X86_RBX, 0),
        0..16 => (rule_kind::REGISTER, register as u8),
        _ => return None,
    };
    Some(Rule { cfa, detail, cfa_offset: offset, ..Rule::default() })
}

/// The CFA part of a rule, from an expression's text.
fn cfa_of_expression(expression: &str) -> Option<Rule> {
    match operations(expression)[..] {
        [base] => breg(base).and_then(|(register, offset)| with_base(register, offset)),
        [base, "DW_OP_deref", ref rest @ ..] => {
            let (register, cfa_offset) = breg(base)?;
            let cfa = match register {
                7 => rule_kind::X86_SP_DEREF,
                6 => rule_kind::X86_FP_DEREF,
                _ => return None,
            };
            let addend = match *rest {
                [] => 0,
                [add] => add.strip_prefix("DW_OP_plus_uconst: ")?.parse().ok()?,
                [constant, "DW_OP_plus"] => constant.strip_prefix("DW_OP_lit")?.parse().ok()?,
                _ => return None,
            };
            Some(Rule { cfa, cfa_offset, addend, ..Rule::default() })
        }
        [
            "DW_OP_breg7 (rsp): 8",
            "DW_OP_breg16 (rip): 0",
            "DW_OP_lit15",
            "DW_OP_and",
            threshold,
            "DW_OP_ge",
            "DW_OP_lit3",
            "DW_OP_shl",
            "DW_OP_plus",
        ] => {
            let detail = threshold.strip_prefix("DW_OP_lit")?.parse().ok()?;
            Some(Rule { cfa: rule_kind::X86_PLT, detail, ..Rule::default() })
        }
        _ => None,
    }
}

/// The rule expected for a printed row, or an unsupported form as text.
pub(super) fn expected(row: &Row, details: &Details) -> Result<Rule, String> {
    if matches!(&*row.ra, "u" | "") {
        return Ok(Rule { cfa: rule_kind::END, ..Rule::default() });
    }
    let cfa = if &*row.cfa == "exp" {
        let words = details.cfa.as_deref().unwrap_or("exp without words");
        cfa_of_expression(words).ok_or(words)
    } else {
        register_and_offset(&row.cfa)
            .and_then(|(register, offset)| {
                with_base(REGISTERS.iter().position(|name| *name == register)?, offset)
            })
            .ok_or(&*row.cfa)
    };
    let mut rule = match cfa {
        Ok(rule) => rule,
        Err(form) => return Err(unsupported("CFA", form)),
    };
    rule.ra = match &*row.ra {
        "c-8" => ra_kind::X86_AT_CFA_MINUS_8,
        "r5" => ra_kind::X86_IN_RDI,
        form => return Err(unsupported("return address", form)),
    };
    (rule.fp, rule.fp_offset) = match &*row.fp {
        "u" if details.fp_undefined => (fp_kind::UNDEFINED, 0),
        "" | "u" | "s" | "r6" => (fp_kind::SAME, 0),
        "exp" => {
            let words = details.fp.as_deref().unwrap_or("exp without words");
            match operations(words)[..] {
                [base] => match breg(base) {
                    Some((6, offset)) => (fp_kind::X86_AT_FP, offset),
                    Some((7, offset)) => (fp_kind::X86_AT_SP, offset),
                    _ => return Err(unsupported("rbp", words)),
                },
                _ => return Err(unsupported("rbp", words)),
            }
        }
        form => match at_cfa(form) {
            Some(offset) => (fp_kind::AT_CFA, offset),
            None => return Err(unsupported("rbp", form)),
        },
    };
    Ok(rule)
}
