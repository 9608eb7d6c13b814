//! One unwind step on x86-64 for each form of rule, on a stack written out word by word.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{Rule, fp_kind, ra_kind, rule_kind};
use deepctx_walk::memory::{Memory, Slice};
use deepctx_walk::unwind_row::x86_64::{Registers, dwarf, is_rare, rare_step, step};

/// Address of the first word of every stack in these tests.
const STACK: u64 = 0x7ffc_0000_1000;
const PC: u64 = 0x40_1000;
const CALLER: u64 = 0x40_2000;
const SAVED_BP: u64 = STACK + 0x800;

/// Registers with `sp` at the first word and `bp` at the word numbered `bp_word`.
fn leaf(bp_word: u64) -> Registers {
    Registers { pc: PC, sp: STACK, bp: STACK + 8 * bp_word, exact: 1, bp_known: 1, ..Registers::default() }
}

/// Registers of the caller: pc, sp as a word number, bp.
type Expect = Result<(u64, u64, Option<u64>), WalkEnd>;

fn check(what: &str, mut registers: Registers, rule: Rule, stack: &[u64], expect: Expect) {
    let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
    let memory = Slice { begin: STACK, bytes: &bytes };
    let stepped = if is_rare(&rule) {
        rare_step(&mut registers, &rule, &memory)
    } else {
        step(&mut registers, &rule, &memory)
    };
    let got = stepped.map(|()| {
        let bp = (registers.bp_known == 1).then_some(registers.bp);
        (registers.pc, registers.sp, bp)
    });
    let expect = expect.map(|(pc, sp_word, bp)| (pc, STACK + 8 * sp_word, bp));
    assert_eq!(got, expect, "{what}");
}

fn rsp(offset: i32) -> Rule {
    Rule { cfa: rule_kind::SP, cfa_offset: offset, ..Rule::default() }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of inputs and what is expected of them")]
fn the_caller_is_found_by_every_form_of_rule() {
    let bp = leaf(0).bp;
    check("a leaf that pushed nothing", leaf(0), rsp(8), &[CALLER], Ok((CALLER, 1, Some(bp))));
    check(
        "three words below the return address",
        leaf(0),
        rsp(32),
        &[0, 0, 0, CALLER],
        Ok((CALLER, 4, Some(bp))),
    );
    check(
        "rbp saved first, read together with the return address",
        leaf(0),
        Rule { fp: fp_kind::AT_CFA, fp_offset: -16, ..rsp(24) },
        &[0, SAVED_BP, CALLER],
        Ok((CALLER, 3, Some(SAVED_BP))),
    );
    check(
        "rbp saved elsewhere",
        leaf(0),
        Rule { fp: fp_kind::AT_CFA, fp_offset: -24, ..rsp(24) },
        &[SAVED_BP, 0, CALLER],
        Ok((CALLER, 3, Some(SAVED_BP))),
    );
    check(
        "a frame pointer",
        leaf(2),
        Rule { cfa: rule_kind::FP, cfa_offset: 16, fp: fp_kind::AT_CFA, fp_offset: -16, ..Rule::default() },
        &[0, 0, SAVED_BP, CALLER],
        Ok((CALLER, 4, Some(SAVED_BP))),
    );
    check(
        "no rows, so the frame pointer is believed",
        leaf(1),
        Rule { cfa: rule_kind::FRAME_POINTER, ..Rule::default() },
        &[0, SAVED_BP, CALLER],
        Ok((CALLER, 3, Some(SAVED_BP))),
    );
    check(
        "a realigned stack: the CFA itself was saved below rbp, rbp where rbp points",
        leaf(2),
        Rule {
            cfa: rule_kind::X86_FP_DEREF,
            cfa_offset: -8,
            fp: fp_kind::X86_AT_FP,
            fp_offset: 0,
            ..Rule::default()
        },
        &[0, STACK + 8 * 6, SAVED_BP, 0, 0, CALLER],
        Ok((CALLER, 6, Some(SAVED_BP))),
    );
    check(
        "the CFA saved above rsp, with an addend",
        leaf(0),
        Rule { cfa: rule_kind::X86_SP_DEREF, cfa_offset: 8, addend: 8, ..Rule::default() },
        &[0, STACK + 8 * 3, 0, CALLER],
        Ok((CALLER, 4, Some(bp))),
    );
    check(
        "the prologue of such a function: r10 holds the CFA",
        Registers { general: with(dwarf::R10, STACK + 16), ..leaf(0) },
        Rule { cfa: rule_kind::X86_R10, ..Rule::default() },
        &[0, CALLER],
        Ok((CALLER, 2, Some(bp))),
    );
    check(
        "any register by number",
        Registers { general: with(12, STACK + 8), ..leaf(0) },
        Rule { cfa: rule_kind::REGISTER, detail: 12, cfa_offset: 8, ..Rule::default() },
        &[0, CALLER],
        Ok((CALLER, 2, Some(bp))),
    );
    check(
        "vfork: the child may clobber the stack, so the return address is in rdi",
        Registers { general: with(dwarf::RDI, CALLER), ..leaf(0) },
        Rule { ra: ra_kind::X86_IN_RDI, ..rsp(8) },
        &[0xdead],
        Ok((CALLER, 1, Some(bp))),
    );
    check(
        "and behind its pop",
        Registers { general: with(dwarf::RDI, CALLER), ..leaf(0) },
        Rule { ra: ra_kind::X86_IN_RDI, ..rsp(0) },
        &[0xdead],
        Ok((CALLER, 0, Some(bp))),
    );
    check(
        "rbp cannot be recovered",
        leaf(0),
        Rule { fp: fp_kind::UNDEFINED, ..rsp(8) },
        &[CALLER],
        Ok((CALLER, 1, None)),
    );
}

#[test]
fn a_function_that_changed_stacks_leads_to_any_stack() {
    let switched = Rule {
        cfa: rule_kind::X86_SWITCHED,
        cfa_offset: 16,
        fp: fp_kind::AT_CFA,
        fp_offset: -16,
        ..Rule::default()
    };
    let on_another = Registers { sp: STACK + 0x10_0000, ..leaf(1) };
    let stack = [0, SAVED_BP, CALLER];
    check("a lower one", on_another, switched, &stack, Ok((CALLER, 3, Some(SAVED_BP))));
    check("the same", leaf(1), switched, &stack, Ok((CALLER, 3, Some(SAVED_BP))));
    let refused = |what, registers, end| check(what, registers, switched, &stack, Err(end));
    refused("rbp was lost", Registers { bp_known: 0, ..on_another }, WalkEnd::RegisterUnknown);
    refused("rbp is no frame", Registers { bp: STACK + 9, ..on_another }, WalkEnd::NoOtherStack);
    refused("rbp is small", Registers { bp: 8, ..on_another }, WalkEnd::NoOtherStack);
    refused("rbp is all ones", Registers { bp: u64::MAX - 7, ..on_another }, WalkEnd::NoOtherStack);
    refused("nothing is there", Registers { bp: STACK + 0x1000, ..on_another }, WalkEnd::StackUnreadable);
}

#[test]
fn a_call_of_c_leads_to_its_goroutine() {
    let calls = Rule {
        cfa: rule_kind::X86_GO_CALLS_C,
        detail: 16,
        cfa_offset: 8,
        addend: 0,
        fp: fp_kind::AT_CFA,
        fp_offset: -16,
        ..Rule::default()
    };
    // Words: the depth below the end of the goroutine's stack; the goroutine; its stack, from the fourth word on; the
    // goroutine itself.
    let goroutine = STACK + 8 * 6;
    let stack = |depth, goroutine| [depth, goroutine, 0, SAVED_BP, CALLER, 0, 0, STACK + 8 * 6];
    let at = |sp_word: u64| Registers { sp: STACK + 8 * sp_word, bp_known: 0, ..leaf(0) };
    let expect = Ok((CALLER, 5, Some(SAVED_BP)));
    check("of a goroutine", at(0), calls, &stack(24, goroutine), expect);
    check("on the thread's own stack", at(0), calls, &stack(STACK + 24, 0), expect);
    let refused = |what, stack: &[u64], end| check(what, at(0), calls, stack, Err(end));
    refused("no goroutine there", &stack(24, STACK + 0x1000), WalkEnd::NoOtherStack);
    refused("a depth between words", &stack(25, goroutine), WalkEnd::NoOtherStack);
    refused("deeper than its stack", &stack(STACK + 8 * 6, goroutine), WalkEnd::NoOtherStack);
    refused("nothing there", &[24], WalkEnd::StackUnreadable);
}

#[test]
fn a_realigned_frame_is_left_by_rbx_of_its_callee() {
    let rule = Rule { cfa: rule_kind::X86_SAVED_RBX, cfa_offset: -16, addend: 16, ..Rule::default() };
    let caller = Registers { sp: STACK + 8 * 3, exact: 0, ..leaf(0) };
    let stack = |rbx| [0, rbx, 0, 0, 0, CALLER];
    check("saved", caller, rule, &stack(STACK + 8 * 4), Ok((CALLER, 6, Some(caller.bp))));
    let refused = |what, registers, stack: &[u64], end| check(what, registers, rule, stack, Err(end));
    refused("not yet saved", caller, &stack(7), WalkEnd::RegisterUnknown);
    refused("further in", caller, &stack(STACK + 8 * 2), WalkEnd::RegisterUnknown);
    refused("far away", caller, &stack(STACK + 0x1_0000), WalkEnd::RegisterUnknown);
    refused("between words", caller, &stack(STACK + 8 * 4 + 1), WalkEnd::NoOtherStack);
    refused("the leaf", Registers { exact: 1, ..caller }, &stack(STACK + 8 * 4), WalkEnd::RegisterUnknown);
    refused("not there", Registers { sp: STACK, ..caller }, &stack(0), WalkEnd::StackUnreadable);
}

#[test]
fn a_handler_of_an_exception_is_entered_at_its_beginning() {
    let rule = |register: usize, cfa_offset| Rule {
        cfa: rule_kind::X86_HANDLER,
        detail: register as u8,
        cfa_offset,
        ..Rule::default()
    };
    // The second word is the address of the handler, in place of a return address.
    let context = Rule { fp: fp_kind::X86_AT_FP, fp_offset: 0, ..rule(dwarf::RBP, -8) };
    let stack = [STACK + 8 * 4, SAVED_BP, 0, CALLER];
    check("by the context", leaf(1), context, &stack, Ok((CALLER + 1, 4, Some(SAVED_BP))));
    let in_rcx = |value| Registers { general: with(dwarf::RCX, value), ..leaf(0) };
    let bp = Some(leaf(0).bp);
    check("by rcx", in_rcx(STACK + 8), rule(dwarf::RCX, 8), &[0, CALLER], Ok((CALLER + 1, 2, bp)));
    check("by rsp", leaf(0), rule(dwarf::RSP, 8), &[CALLER], Ok((CALLER + 1, 1, bp)));
    let taken = Rule { ra: ra_kind::X86_IN_RCX, ..rule(dwarf::RSP, 0) };
    check("taken from the stack", in_rcx(CALLER), taken, &[], Ok((CALLER + 1, 0, bp)));
    let refused = |what, registers, rule, stack: &[u64], end| check(what, registers, rule, stack, Err(end));
    refused("no handler", leaf(0), rule(dwarf::RSP, 8), &[0], WalkEnd::NullPc);
    refused("no context", leaf(0), context, &[], WalkEnd::StackUnreadable);
    refused("a frame further in", leaf(1), context, &[STACK - 8, 0], WalkEnd::StackNotGrowing);
    refused("another register", leaf(0), rule(dwarf::R13, 8), &[CALLER], WalkEnd::UnsupportedRule);
    let caller = Registers { exact: 0, ..leaf(0) };
    refused("not the leaf", caller, rule(dwarf::RSP, 8), &[CALLER], WalkEnd::RegisterUnknown);
}

#[test]
fn a_plt_stub_has_pushed_once_behind_its_push() {
    let plt = Rule { cfa: rule_kind::X86_PLT, detail: 11, ..Rule::default() };
    let bp = leaf(0).bp;
    check("before the push", Registers { pc: PC + 6, ..leaf(0) }, plt, &[CALLER], Ok((CALLER, 1, Some(bp))));
    check("behind it", Registers { pc: PC + 11, ..leaf(0) }, plt, &[0, CALLER], Ok((CALLER, 2, Some(bp))));
}

#[test]
fn signal_frame_restores_every_register_of_the_interrupted_frame() {
    let mut stack = vec![0u64; 5];
    // r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip
    stack.extend(100..108);
    stack.extend([108, 109, SAVED_BP, 111, 112, 113, 114, STACK + 0x400, CALLER]);
    let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
    let mut registers = Registers { exact: 0, ..leaf(0) };
    let rule = Rule { cfa: rule_kind::SIGNAL, ..Rule::default() };
    step(&mut registers, &rule, &Slice { begin: STACK, bytes: &bytes }).unwrap();
    assert_eq!((registers.pc, registers.sp, registers.bp), (CALLER, STACK + 0x400, SAVED_BP));
    assert_eq!((registers.exact, registers.lookup_pc()), (1, CALLER), "it was interrupted, it did not call");
    assert_eq!((registers.general[8], registers.general[15], registers.general[dwarf::RBX]), (100, 107, 111));
}

#[test]
fn a_step_that_cannot_be_made_says_why() {
    let caller = Registers { exact: 0, ..leaf(0) };
    let rule = |cfa| Rule { cfa, ..Rule::default() };
    check("the thread's first function", leaf(0), rule(rule_kind::END), &[], Err(WalkEnd::Complete));
    check("between functions", leaf(0), rule(rule_kind::NONE), &[], Err(WalkEnd::NoRow));
    check("an unusual form", leaf(0), rule(rule_kind::UNSUPPORTED), &[], Err(WalkEnd::UnsupportedRule));
    check("a number that is no form", leaf(0), rule(200), &[], Err(WalkEnd::UnsupportedRule));
    check("r10 of a caller", caller, rule(rule_kind::X86_R10), &[CALLER], Err(WalkEnd::RegisterUnknown));
    check(
        "vfork of a caller",
        caller,
        Rule { ra: ra_kind::X86_IN_RDI, ..rsp(8) },
        &[0],
        Err(WalkEnd::RegisterUnknown),
    );
    let lost = Registers { bp_known: 0, ..leaf(0) };
    check("rbp was lost", lost, rule(rule_kind::FP), &[CALLER], Err(WalkEnd::RegisterUnknown));
    check(
        "a register beyond the last",
        leaf(0),
        Rule { cfa: rule_kind::REGISTER, detail: 99, ..Rule::default() },
        &[],
        Err(WalkEnd::UnsupportedRule),
    );
    check("the stack is not mapped", leaf(0), rsp(64), &[CALLER], Err(WalkEnd::StackUnreadable));
    check("a CFA below the frame", leaf(0), rsp(-8), &[CALLER], Err(WalkEnd::StackNotGrowing));
    check("a return address of zero", leaf(0), rsp(8), &[0], Err(WalkEnd::NullPc));
    let chain = rule(rule_kind::FRAME_POINTER);
    check(
        "a frame pointer that points down",
        Registers { bp: 16, ..leaf(0) },
        chain,
        &[CALLER],
        Err(WalkEnd::FramePointerEnd),
    );
    check("the end of a chain", leaf(0), chain, &[0, 0], Err(WalkEnd::FramePointerEnd));
}

fn with(register: usize, value: u64) -> [u64; dwarf::COUNT] {
    let mut general = [0; dwarf::COUNT];
    general[register] = value;
    general
}

#[test]
fn recorded_memory_is_read_by_word_within_its_bounds() {
    let memory = Slice { begin: 0x1000, bytes: &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0x80] };
    assert_eq!(memory.read_u64(0x1000), Some(1));
    assert_eq!(memory.read_array(0x1000), Some([1, 0x8000_0000_0000_0002]));
    assert_eq!(memory.read_u64(0x1004), Some(2 << 32), "unaligned");
    for address in [0x0fff, 0x1009, u64::MAX, 0] {
        assert_eq!(memory.read_u64(address), None, "{address:#x}");
    }
}
