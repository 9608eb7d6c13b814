//! A synthetic process (memory as words, rules by address, an interpreter), and the text form of a walk of it.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;

use deepctx_common::end::{PythonEnd, WalkEnd};
use deepctx_common::process::Process;
use deepctx_common::python::{
    CalledFunction, NO_CFRAME, NO_FIELD, NO_PYTHON, PythonLayout, PythonProcess, entry_rule,
    instruction_kind, thread_state,
};
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, executable_flag, ra_kind, rule_kind};
use deepctx_walk::interleave::{Flow, STEPS_MAX, Tables, Walk, WordBuffer, native_step, phase, python_step};
use deepctx_walk::memory::Memory;
use deepctx_walk::short::state;
use deepctx_walk::unwind_row::Registers;
use proptest::prelude::*;

/// Memory as words, rules by address, one mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) memory: BTreeMap<u64, u64>,
    /// First address → rule in force from there.
    pub(crate) rules: BTreeMap<u64, Rule>,
    pub(crate) text: (u64, u64),
    pub(crate) flags: u32,
    pub(crate) layout: PythonLayout,
    /// Stack pointers of the native frames of the evaluation loop, innermost first.
    pub(crate) evaluations: Vec<u64>,
    /// `PythonProcess::resume` and `resume_base`.
    pub(crate) resume: (u32, i32),
    /// `PythonProcess::entered`.
    pub(crate) entered: u16,
    /// The interpreter-generated code is in no known mapping.
    pub(crate) unknown: bool,
    /// The function whose calls report their object.
    pub(crate) called: CalledFunction,
    /// Frame pointer of the interrupted thread; 0 stands for an invalid one.
    pub(crate) frame_pointer: u64,
}

impl Memory for World {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        words.iter_mut().enumerate().all(|(i, word)| {
            let found = self.memory.get(&address.wrapping_add(8 * i as u64));
            *word = found.copied().unwrap_or(0);
            found.is_some()
        })
    }
}

impl Tables for World {
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        if (GENERATED..GENERATED + 0x1000).contains(&pc) && !self.unknown {
            let flags = executable_flag::ANONYMOUS | executable_flag::FRAME_POINTERS;
            walk.mapping =
                Mapping { begin: GENERATED, end: GENERATED + 0x1000, bias: 0, executable: 2, flags };
            walk.executable = Executable::default();
            return Ok(());
        }
        if !(self.text.0..self.text.1).contains(&pc) {
            return Err(WalkEnd::NoMapping);
        }
        walk.mapping =
            Mapping { begin: self.text.0, end: self.text.1, bias: 0, executable: 1, flags: self.flags };
        walk.executable = Executable { pages: 1, ..Executable::default() };
        Ok(())
    }

    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        let (_, rule) = self.rules.range(..=svma).next_back().ok_or(WalkEnd::NoRow)?;
        walk.rule = *rule;
        if rule.cfa == rule_kind::NONE { Err(WalkEnd::NoRow) } else { Ok(()) }
    }

    fn find_layout(&self, walk: &mut Walk) -> bool {
        walk.layout = self.layout;
        true
    }
}

pub(crate) const TEXT: u64 = 0x40_0000;
/// Address of interpreter-generated code.
pub(crate) const GENERATED: u64 = TEXT + 0x2000;
pub(crate) const STACK: u64 = 0x7ffc_0000_0000;
pub(crate) const THREAD: u64 = 0x7f00_0000_0000;
pub(crate) const STATE: u64 = 0x5000_0000;
pub(crate) const EVAL: [u64; 2] = [TEXT + 0x100, TEXT + 0x200];

/// Size of a native frame of the evaluation loop, bytes: has room for an interpreter frame below the return address.
pub(crate) const EVAL_FRAME: u64 = 0x100;

/// Unwind rule of a one-word frame (its return address) on this machine.
#[cfg(target_arch = "aarch64")]
pub(crate) const ONE_WORD: Rule = Rule {
    cfa: rule_kind::SP,
    fp: 0,
    ra: ra_kind::AT_CFA,
    detail: 0,
    cfa_offset: 8,
    fp_offset: 0,
    addend: -8,
};
/// Unwind rule of a one-word frame (its return address) on this machine.
#[cfg(target_arch = "x86_64")]
pub(crate) const ONE_WORD: Rule = Rule {
    cfa: rule_kind::SP,
    fp: 0,
    ra: ra_kind::X86_AT_CFA_MINUS_8,
    detail: 0,
    cfa_offset: 8,
    fp_offset: 0,
    addend: 0,
};

/// Registers of a thread that was interrupted at `pc`.
pub(crate) fn interrupted(pc: u64, fp: u64) -> Registers {
    let registers = Registers { pc, sp: STACK, exact: 1, ..Registers::default() };
    #[cfg(target_arch = "aarch64")]
    return Registers { fp, fp_known: 1, sp_known: 1, address_mask: u64::MAX, ..registers };
    #[cfg(target_arch = "x86_64")]
    return Registers { bp: fp, bp_known: 1, ..registers };
}

/// Functions are 0x100 bytes and push nothing, so every frame is one word, except those of the evaluation loop. The
/// last function is the start of the thread.
pub(crate) fn world(returns: &[u64]) -> World {
    world_from(TEXT + 0x10, returns)
}

/// Like [`world`], interrupted at `leaf`.
pub(crate) fn world_from(leaf: u64, returns: &[u64]) -> World {
    let mut world = World { text: (TEXT, TEXT + 0x1000), ..World::default() };
    world.rules.insert(TEXT, ONE_WORD);
    world.rules.insert(EVAL[0], Rule { cfa_offset: EVAL_FRAME as i32, ..ONE_WORD });
    world.rules.insert(EVAL[1], ONE_WORD);
    world.rules.insert(TEXT + 0xf00, Rule { cfa: rule_kind::END, ..Rule::default() });
    let (mut sp, mut pc) = (STACK, leaf);
    for next in returns {
        let is_eval = (EVAL[0]..EVAL[1]).contains(&pc);
        if is_eval {
            world.evaluations.push(sp);
        }
        sp += if is_eval { EVAL_FRAME } else { 8 };
        world.memory.insert(sp - 8, *next);
        pc = *next;
    }
    world
}

/// An interpreter with frames 112 bytes apart: `frames` as (code object, entry mark). The sentinels are in the native
/// frames of the evaluation loop, the innermost sentinel in the innermost frame.
pub(crate) fn with_python(world: World, rule: u8, value: u8, frames: &[(u64, u8)]) -> World {
    let stack = world.evaluations.clone();
    hung_at(world, rule, value, frames, &stack)
}

/// Like [`with_python`], with the sentinels in the native frames at `stack`.
pub(crate) fn hung_at(mut world: World, rule: u8, value: u8, frames: &[(u64, u8)], stack: &[u64]) -> World {
    const FRAMES: u64 = 0x6000_0000;
    let mut stack = stack.iter();
    let places: Vec<u64> = (0..)
        .zip(frames)
        .map(|(i, (_, mark))| {
            let sentinel = rule == entry_rule::SENTINEL && *mark == value;
            let hung = if sentinel { stack.next().map(|sp| sp + 0x10) } else { None };
            hung.unwrap_or(FRAMES + 112 * i)
        })
        .collect();
    world.layout = PythonLayout {
        tstate_frame: 8,
        cframe_current_frame: NO_CFRAME,
        tstate_thread_id: 0,
        frame_code: 32,
        frame_previous: 48,
        frame_instruction: 56,
        frame_entry_mark: 68,
        code_identity: 48,
        code_identity_words: 6,
        code_bytecode: 184,
        frame_tlbc_index: NO_FIELD,
        code_tlbc: NO_FIELD,
        instruction_kind: instruction_kind::POINTER,
        entry_rule: rule,
        entry_value: value,
        code_tag_mask: 0,
        frame_owner: 0,
        code_name: 0,
    };
    world.memory.insert(THREAD + 0x10, STATE);
    world.memory.insert(STATE, THREAD);
    world.memory.insert(STATE + 8, places.first().copied().unwrap_or(0));
    for (i, (code, mark)) in frames.iter().enumerate() {
        let at = places[i];
        for offset in (0..112).step_by(8) {
            world.memory.insert(at + offset, 0);
        }
        world.memory.insert(at + 32, *code);
        world.memory.insert(at + 48, places.get(i + 1).copied().unwrap_or(0));
        world.memory.insert(at + 56, code + 184 + 6);
        world.memory.insert(at + 64, u64::from(*mark) << 32);
        for offset in (0..168).step_by(8) {
            world.memory.insert(code + offset, 0);
        }
    }
    world
}

pub(crate) fn walk(world: &World, pc: u64, python: bool) -> (Vec<u64>, WalkEnd, PythonEnd) {
    walk_as(world, pc, python, state::WHOLE)
}

/// Like [`walk`], with native frames as far as `short` (one of [`state`]) asks.
pub(crate) fn walk_as(world: &World, pc: u64, python: bool, short: u32) -> (Vec<u64>, WalkEnd, PythonEnd) {
    walk_in(world, world, pc, python, short, |_, _| {})
}

/// Like [`walk_as`], reading through `env`, with `quick` called before each step.
pub(crate) fn walk_in<E: Memory + Tables>(
    env: &E,
    world: &World,
    pc: u64,
    python: bool,
    short: u32,
    quick: impl Fn(&mut Walk, &mut WordBuffer),
) -> (Vec<u64>, WalkEnd, PythonEnd) {
    let mut walk = zeroed();
    walk.registers = interrupted(pc, world.frame_pointer.max(1));
    walk.thread_pointer = THREAD;
    let mut process = PythonProcess { layout: NO_PYTHON, ..PythonProcess::default() };
    if python {
        process.layout = 0;
        process.eval[0] = EVAL;
        // The first 16 bytes of code are those where a structure is linked but not filled in.
        process.unset_length = 16;
        process.bound_kind = thread_state::THREAD_POINTER;
        process.bound = 0x10;
        (process.resume, process.resume_base) = world.resume;
        process.entered = world.entered;
    }
    walk.process = Process { python: process, ..Process::default() };
    walk.called = world.called;
    walk.begin(0, 512);
    walk.short = short;
    let mut buffer = vec![0; USER_WORDS_MAX];
    let mut words = WordBuffer(&mut buffer);
    let mut steps = 0;
    loop {
        quick(&mut walk, &mut words);
        let flow = if walk.phase == phase::NATIVE {
            native_step(&mut walk, &mut words, env)
        } else {
            python_step(&mut walk, &mut words, env)
        };
        steps += 1;
        if flow == Flow::Stop || steps == STEPS_MAX {
            break;
        }
    }
    buffer.truncate(walk.words as usize);
    let native = WalkEnd::from_number(walk.native_end as u8).unwrap();
    let python = PythonEnd::from_number(walk.python_end as u8).unwrap();
    (buffer, native, python)
}

pub(crate) fn zeroed() -> Walk {
    // SAFETY: a walk is plain data: integers and arrays of them.
    unsafe { std::mem::zeroed() }
}

/// Words as text: `!pc` exact, `pc` return address, `py:code@offset`, `gap:reason`.
pub(crate) fn text(words: &[u64]) -> String {
    let mut out = Vec::new();
    let mut words = words.iter();
    while let Some(w) = words.next() {
        let payload = w & word::PAYLOAD;
        out.push(match word::tag(*w) {
            word::EXACT => format!("!{:x}", payload - TEXT),
            word::RETURN => format!("{:x}", payload.wrapping_sub(TEXT)),
            word::PYTHON => format!("py:{payload:x}@{}", *words.next().unwrap() as u32),
            word::COROUTINE => format!("co:{payload:x}"),
            word::OBJECT => format!("on:{payload:x}/{:x}", words.next().unwrap()),
            _ if payload == word::PYTHON_GAP => continue,
            _ if payload & word::PYTHON_GAP != 0 => {
                format!("gap:{}", PythonEnd::from_number(payload as u8).unwrap().key())
            }
            _ => format!("gap:{}", WalkEnd::from_number(payload as u8).unwrap().key()),
        });
    }
    out.join(" ")
}

/// Key of the end of a Python walk, without the common prefix.
pub(crate) fn ended(python: PythonEnd) -> &'static str {
    python.key().trim_start_matches("python-")
}

pub(crate) fn check(what: &str, world: &World, python: bool, expect: &str) {
    check_from(TEXT + 0x10, what, world, python, expect);
}

pub(crate) fn check_at(pc: u64, what: &str, world: &World, expect: &str) {
    check_from(pc, what, world, true, expect);
}

pub(crate) fn check_from(pc: u64, what: &str, world: &World, python: bool, expect: &str) {
    let (words, native, python_end) = walk(world, pc, python);
    let got = format!("{} | {} {}", text(&words), native.key(), ended(python_end));
    assert_eq!(got, expect, "{what}");
}

/// Adds a `_PyCFrame` to the stack of each evaluation, as in 3.11; with `left_over`, the innermost one holds these two
/// words of an earlier call.
pub(crate) fn with_cframes(mut world: World, frames: &[(u64, u8)], left_over: Option<[u64; 2]>) -> World {
    world = with_python(world, entry_rule::LAST_REAL, 1, frames);
    world.layout.cframe_current_frame = 8;
    let cframes: Vec<u64> = world.evaluations.iter().map(|sp| sp + 0x20).collect();
    world.memory.insert(STATE + 8, cframes[0]);
    let unset = usize::from(left_over.is_some());
    for (i, at) in cframes.iter().enumerate() {
        let frame = 0x6000_0000 + 112 * i.saturating_sub(unset) as u64;
        world.memory.insert(at + 8, if i < unset + frames.len() { frame } else { 0 });
        world.memory.insert(at + 16, cframes.get(i + 1).copied().unwrap_or(0));
    }
    if let Some([current, previous]) = left_over {
        world.memory.insert(cframes[0] + 8, current);
        world.memory.insert(cframes[0] + 16, previous);
    }
    world
}

pub(crate) fn arbitrary_rule() -> impl Strategy<Value = Rule> {
    (0u8..16, 0u8..6, 0u8..6, any::<u8>(), -64i32..256, -64i32..64, -64i32..64).prop_map(
        |(cfa, fp, ra, detail, cfa_offset, fp_offset, addend)| Rule {
            cfa,
            fp,
            ra,
            detail,
            cfa_offset,
            fp_offset,
            addend,
        },
    )
}
