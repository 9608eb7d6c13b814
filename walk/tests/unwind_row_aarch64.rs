//! One unwind step on aarch64 for each form of rule, on a stack written out word by word.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};
use deepctx_walk::memory::{Memory, Slice};
use deepctx_walk::unwind_row::aarch64::{Registers, address_mask, dwarf, peek, step};
use proptest::prelude::*;

/// Address of the first word of every stack in these tests.
const STACK: u64 = 0xffff_c000_1000;
const PC: u64 = 0xaaaa_0000_1000;
const CALLER: u64 = 0xaaaa_0000_2000;
const SAVED_FP: u64 = STACK + 0x800;
/// Signature bits of pointer authentication with 48-bit addresses: bits 48 to 54.
const SIGNATURE: u64 = 0x0035_0000_0000_0000;

/// Registers with `sp` at the first word and x29 at the word numbered `fp_word`; x30 holds a return address.
fn leaf(fp_word: u64) -> Registers {
    let mut registers = Registers {
        pc: PC,
        sp: STACK,
        fp: STACK + 8 * fp_word,
        address_mask: address_mask(48),
        exact: 1,
        fp_known: 1,
        sp_known: 1,
        ..Registers::default()
    };
    registers.general[dwarf::FP] = registers.fp;
    registers.general[dwarf::LR] = CALLER;
    registers
}

fn caller(fp_word: u64) -> Registers {
    Registers { exact: 0, ..leaf(fp_word) }
}

/// Registers of the caller: pc, sp as a word number if known, x29 if known.
type Expect = Result<(u64, Option<u64>, Option<u64>), WalkEnd>;

fn stepped(registers: &mut Registers, rule: Rule, stack: &[u64]) -> Result<(), WalkEnd> {
    let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
    step(registers, &rule, &Slice { begin: STACK, bytes: &bytes })
}

fn check(what: &str, mut registers: Registers, rule: Rule, stack: &[u64], expect: Expect) {
    let got = stepped(&mut registers, rule, stack).map(|()| {
        assert_eq!(registers.exact, 0, "{what}: a caller");
        let sp = (registers.sp_known == 1).then_some(registers.sp);
        (registers.pc, sp, (registers.fp_known == 1).then_some(registers.fp))
    });
    let expect = expect.map(|(pc, sp, fp)| (pc, sp.map(|word| STACK + 8 * word), fp));
    assert_eq!(got, expect, "{what}");
}

/// CFA = sp + offset, return address in x30.
fn sp(cfa_offset: i32) -> Rule {
    Rule { cfa: rule_kind::SP, ra: ra_kind::AARCH64_IN_LR, cfa_offset, ..Rule::default() }
}

/// `rule` of a function that saved x29 and x30 side by side, x29 at CFA + offset.
fn with_record(fp_offset: i32, rule: Rule) -> Rule {
    Rule { fp: fp_kind::AT_CFA, fp_offset, ra: ra_kind::AT_CFA, addend: fp_offset + 8, ..rule }
}

#[test]
fn the_caller_is_found_by_every_form_of_rule() {
    let fp = leaf(0).fp;
    check("a leaf without a frame", leaf(0), sp(0), &[], Ok((CALLER, Some(0), Some(fp))));
    check("a leaf with locals", leaf(0), sp(32), &[0; 4], Ok((CALLER, Some(4), Some(fp))));
    check(
        "a frame record at the bottom of the frame (GCC)",
        caller(0),
        with_record(-32, sp(32)),
        &[SAVED_FP, CALLER, 0, 0],
        Ok((CALLER, Some(4), Some(SAVED_FP))),
    );
    check(
        "a frame record at its top, reached from x29 (LLVM)",
        caller(2),
        with_record(-16, Rule { cfa: rule_kind::FP, cfa_offset: 16, ..Rule::default() }),
        &[0, 0, SAVED_FP, CALLER],
        Ok((CALLER, Some(4), Some(SAVED_FP))),
    );
    check(
        "x30 saved alone",
        caller(0),
        Rule { ra: ra_kind::AT_CFA, addend: -16, ..sp(16) },
        &[CALLER, 0],
        Ok((CALLER, Some(2), Some(fp))),
    );
    check(
        "x29 and x30 saved apart",
        caller(0),
        Rule { addend: -8, ..with_record(-24, sp(24)) },
        &[SAVED_FP, 0, CALLER],
        Ok((CALLER, Some(3), Some(SAVED_FP))),
    );
    check(
        "a leaf that saved x29 alone, to use it",
        leaf(0),
        Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..sp(16) },
        &[SAVED_FP, 0],
        Ok((CALLER, Some(2), Some(SAVED_FP))),
    );
    let mut other = leaf(0);
    other.general[9] = STACK + 8;
    check(
        "any register by number",
        other,
        Rule { cfa: rule_kind::REGISTER, detail: 9, ..sp(8) },
        &[0, 0],
        Ok((CALLER, Some(2), Some(fp))),
    );
    check(
        "x29 cannot be recovered",
        leaf(0),
        Rule { fp: fp_kind::UNDEFINED, ..sp(0) },
        &[],
        Ok((CALLER, Some(0), None)),
    );
}

#[test]
fn a_signed_return_address_loses_its_signature_wherever_it_was() {
    let mut signed = leaf(0);
    signed.general[dwarf::LR] = CALLER | SIGNATURE;
    check("in x30", signed, sp(0), &[], Ok((CALLER, Some(0), Some(signed.fp))));
    check(
        "in a frame record",
        caller(0),
        with_record(-16, sp(16)),
        &[SAVED_FP, CALLER | SIGNATURE],
        Ok((CALLER, Some(2), Some(SAVED_FP))),
    );
    check(
        "without rows",
        caller(0),
        Rule { cfa: rule_kind::FRAME_POINTER, ..Rule::default() },
        &[SAVED_FP, CALLER | SIGNATURE],
        Ok((CALLER, None, Some(SAVED_FP))),
    );
    for (bits, mask) in [(48, 0xffff_ffff_ffff), (39, 0x7f_ffff_ffff), (64, u64::MAX), (0, u64::MAX)] {
        assert_eq!(address_mask(bits), mask, "{bits} bits");
    }
}

#[test]
fn frame_record_leaves_sp_unknown_until_a_rule_restores_it() {
    let record = Rule { cfa: rule_kind::FRAME_POINTER, ..Rule::default() };
    // Two frames without rows, then a GCC frame whose record, at the bottom of that frame, lies above locals of its
    // callees.
    let stack = [STACK + 16, CALLER, STACK + 8 * 6, CALLER + 4, 0, 0, SAVED_FP, CALLER + 8, 0, 0];
    let mut registers = caller(0);
    stepped(&mut registers, record, &stack).unwrap();
    stepped(&mut registers, record, &stack).unwrap();
    assert_eq!((registers.pc, registers.fp, registers.sp_known), (CALLER + 4, STACK + 8 * 6, 0));
    assert!(registers.sp < STACK + 8 * 6, "a lower bound");
    assert_eq!(stepped(&mut registers.clone(), sp(32), &stack), Err(WalkEnd::RegisterUnknown));
    let signal = Rule { cfa: rule_kind::SIGNAL, ..Rule::default() };
    assert_eq!(stepped(&mut registers.clone(), signal, &stack), Err(WalkEnd::RegisterUnknown));
    let gcc = with_record(-32, sp(32));
    check(
        "its record says where its frame ends",
        registers,
        gcc,
        &stack,
        Ok((CALLER + 8, Some(10), Some(SAVED_FP))),
    );
}

#[test]
fn signal_frame_restores_every_register_of_the_interrupted_frame() {
    // siginfo, ucontext up to the faulting address; then x0 to x30, sp, pc.
    let mut stack = vec![0u64; 16 + 22 + 1];
    stack.extend((0..31).map(|number| 100 + number));
    stack.extend([STACK + 0x2000, CALLER]);
    let mut registers = caller(0);
    stepped(&mut registers, Rule { cfa: rule_kind::SIGNAL, ..Rule::default() }, &stack).unwrap();
    assert_eq!((registers.pc, registers.sp, registers.fp), (CALLER, STACK + 0x2000, 129));
    assert_eq!((registers.exact, registers.lookup_pc()), (1, CALLER), "it was interrupted, it did not call");
    assert_eq!((registers.general[0], registers.general[dwarf::LR]), (100, 130));
}

#[test]
fn a_step_that_cannot_be_made_says_why() {
    let rule = |cfa| Rule { cfa, ..Rule::default() };
    check("the thread's first function", leaf(0), rule(rule_kind::END), &[], Err(WalkEnd::Complete));
    check("between functions", leaf(0), rule(rule_kind::NONE), &[], Err(WalkEnd::NoRow));
    for other in
        [rule_kind::UNSUPPORTED, rule_kind::X86_PLT, rule_kind::X86_FP_DEREF, rule_kind::X86_R10, 200]
    {
        check("a form of another machine", leaf(0), rule(other), &[], Err(WalkEnd::UnsupportedRule));
    }
    let pushed = Rule { ra: ra_kind::X86_AT_CFA_MINUS_8, ..sp(8) };
    check("a call that pushes", leaf(0), pushed, &[CALLER], Err(WalkEnd::UnsupportedRule));
    let from_fp = Rule { fp: fp_kind::X86_AT_FP, ..sp(0) };
    check("x29 by another machine's form", leaf(0), from_fp, &[], Err(WalkEnd::UnsupportedRule));
    check("x30 of a caller", caller(0), sp(16), &[0, 0], Err(WalkEnd::RegisterUnknown));
    let number = Rule { cfa: rule_kind::REGISTER, detail: 9, ..sp(0) };
    check("x9 of a caller", caller(0), number, &[], Err(WalkEnd::RegisterUnknown));
    let beyond = Rule { detail: 99, ..number };
    check("a register beyond the last", leaf(0), beyond, &[], Err(WalkEnd::RegisterUnknown));
    let lost = Registers { fp_known: 0, ..leaf(0) };
    check("x29 was lost", lost, rule(rule_kind::FP), &[], Err(WalkEnd::RegisterUnknown));
    check("and there are no rows", lost, rule(rule_kind::FRAME_POINTER), &[], Err(WalkEnd::RegisterUnknown));
    check("the stack is not mapped", leaf(0), with_record(-16, sp(64)), &[0], Err(WalkEnd::StackUnreadable));
    check("a CFA below the frame", leaf(0), sp(-16), &[], Err(WalkEnd::StackNotGrowing));
    check(
        "a caller without a frame",
        caller(0),
        with_record(0, sp(0)),
        &[0, 0],
        Err(WalkEnd::StackNotGrowing),
    );
    check("a return address of zero", caller(0), with_record(-16, sp(16)), &[0, 0], Err(WalkEnd::NullPc));
    let chain = rule(rule_kind::FRAME_POINTER);
    let down = Registers { fp: 16, ..leaf(0) };
    check("a frame pointer that points down", down, chain, &[CALLER], Err(WalkEnd::FramePointerEnd));
    check("the end of a chain", leaf(0), chain, &[0, 0], Err(WalkEnd::FramePointerEnd));
}

/// A stack that is read ahead as a whole.
struct StackWords<'s>(Slice<'s>);

impl Memory for StackWords<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        self.0.read_words(address, words)
    }

    fn peek_stack(&self, address: u64) -> Option<u64> {
        self.0.read_u64(address)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn peeked_caller_equals_the_one_a_step_reaches(
        kinds in (0u8..14, 0u8..5, 0u8..6),
        offsets in ((-4i32..20), (-4i32..20), (-4i32..20)).prop_map(|(a, b, c)| [8 * a, 8 * b, 8 * c]),
        stack in prop::collection::vec(prop_oneof![Just(CALLER), Just(CALLER | SIGNATURE), Just(0)], 24),
        fp_word in 0u64..24,
        known in (0u32..2, 0u32..2, 0u32..2),
    ) {
        let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = StackWords(Slice { begin: STACK, bytes: &bytes });
        let rule = Rule {
            cfa: kinds.0,
            fp: kinds.1,
            ra: kinds.2,
            detail: 0,
            cfa_offset: offsets[0],
            fp_offset: offsets[1],
            addend: offsets[2],
        };
        let mut whole = Registers { exact: known.0, fp_known: known.1, sp_known: known.2, ..leaf(fp_word) };
        let mut quick = whole;
        if let Some(caller) = peek(&quick, &rule, &memory) {
            caller.enter(&mut quick);
            prop_assert_eq!(step(&mut whole, &rule, &memory), Ok(()));
            prop_assert_eq!(quick, whole);
        }
    }
}
