//! The quick step: an ordinary frame whose mapping, rule and stack words are all at hand.
//!
//! Owns: the one path that most frames take. Because: it is so short that a loop over it is cheap to verify and to run,
//! where a call of the whole step costs as much as a frame. Does not: decide anything: whatever is unusual is left, as
//! it was, to [`crate::interleave::native_step`], which does the same for these frames (a property test says so).

use deepctx_common::python::NO_PYTHON;
use deepctx_common::unwind::{ra_kind, rbp_kind, rule_kind};

use crate::interleave::{Tables, Walk, Words};
use crate::memory::Memory;

/// Emits the current native frame and steps to its caller, if that takes no search and no read; else changes nothing and
/// gives false.
#[inline(always)]
pub fn native_step<E: Memory + Tables, W: Words>(walk: &mut Walk, words: &mut W, env: &E) -> bool {
    let pc = walk.registers.lookup_pc();
    if pc < walk.mapping.begin || pc >= walk.mapping.end || walk.native_frames >= walk.frames_max {
        return false;
    }
    if walk.executable.pages == 0
        || walk.process.python.layout != NO_PYTHON && walk.in_eval_loop(pc)
        || !env.next_rule(walk, pc.wrapping_sub(walk.mapping.bias))
    {
        return false;
    }
    let (registers, rule) = (&walk.registers, &walk.rule);
    let base = match rule.cfa {
        rule_kind::RSP => registers.sp,
        rule_kind::RBP if registers.bp_known != 0 => registers.bp,
        _ => return false,
    };
    let cfa = base.wrapping_add_signed(i64::from(rule.cfa_offset));
    if cfa <= registers.sp || rule.ra != ra_kind::AT_CFA_MINUS_8 {
        return false;
    }
    let (bp, bp_known) = match rule.rbp {
        rbp_kind::SAME => (registers.bp, registers.bp_known),
        rbp_kind::AT_CFA => match env.peek_stack(cfa.wrapping_add_signed(i64::from(rule.rbp_offset))) {
            Some(bp) => (bp, 1),
            None => return false,
        },
        _ => return false,
    };
    let Some(pc) = env.peek_stack(cfa.wrapping_sub(8)) else { return false };
    if pc == 0 || !walk.push_native(words, walk.native_word()) {
        return false;
    }
    let registers = &mut walk.registers;
    registers.pc = pc;
    registers.sp = cfa;
    registers.bp = bp;
    registers.bp_known = bp_known;
    registers.exact = 0;
    walk.cursor += 1;
    true
}
