//! A whole walk on this machine: a thread that a signal interrupted while it handled another one, from its registers
//! to its start, using the rows of the files mapped by the test process itself, compared with the unwinder of the C
//! runtime.
//!
//! It is the only test that walks real stacks without kernel programs, so it also runs under an emulator.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::fs::File;

use deepctx_common::end::WalkEnd;
use deepctx_common::python::NO_PYTHON;
use deepctx_common::record::{USER_WORDS_MAX, word};
use deepctx_common::unwind::{Executable, Mapping, Rule, rule_kind};
use deepctx_symbolizer::elf::ElfFacts;
use deepctx_symbolizer::maps::{self, Backing, LineFilter};
use deepctx_symbolizer::unwind_rows::UnwindTable;
use deepctx_symbolizer::unwind_rows::sparse::SparseFile;
use deepctx_walk::interleave::{Flow, STEPS_MAX, Tables, Walk, WordBuffer, native_step};
use deepctx_walk::memory::{Memory, Slice};
use deepctx_walk::unwind_row::Registers;

/// What was seen in the innermost handler.
#[derive(Default)]
struct HandlerState {
    registers: Registers,
    stack: Vec<u8>,
    /// Frames by the unwinder of the C runtime, those of the handler first.
    expected: Vec<u64>,
}

thread_local! {
    static SEEN: RefCell<HandlerState> = RefCell::default();
    static STACK_END: Cell<u64> = const { Cell::new(0) };
}

#[cfg(target_arch = "x86_64")]
fn registers_of(context: &libc::ucontext_t) -> Registers {
    use libc::{
        REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX,
        REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
    };
    let by_dwarf = [
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10,
        REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    ];
    let of = |register: c_int| context.uc_mcontext.gregs[register as usize].cast_unsigned();
    Registers {
        pc: of(REG_RIP),
        sp: of(REG_RSP),
        bp: of(REG_RBP),
        general: by_dwarf.map(of),
        exact: 1,
        bp_known: 1,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers_of(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers {
        pc: machine.pc,
        sp: machine.sp,
        fp: machine.regs[29],
        general: machine.regs,
        address_mask: deepctx_walk::unwind_row::aarch64::address_mask(48),
        exact: 1,
        fp_known: 1,
        sp_known: 1,
        reserved: 0,
    }
}

extern "C" fn outer(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: a signal that this process handles.
    unsafe { libc::raise(libc::SIGUSR2) };
}

extern "C" fn inner(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what the kernel gives to handlers that ask for information.
    let registers = registers_of(unsafe { &*context.cast::<libc::ucontext_t>() });
    let mut frames = [std::ptr::null_mut(); 128];
    // SAFETY: room for as many frames as are stated.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int) };
    let bytes = (STACK_END.get() - registers.sp) as usize;
    // SAFETY: from the stack pointer to the end of its mapping, all of which is readable.
    let stack = unsafe { std::slice::from_raw_parts(registers.sp as *const u8, bytes) }.to_vec();
    let expected = frames[..count as usize].iter().map(|frame| *frame as u64).collect();
    SEEN.set(HandlerState { registers, stack, expected });
}

fn handle(signal: c_int, handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void)) {
    // SAFETY: a zeroed action is an empty one; the handler has the signature that the flag asks for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Some frames of different sizes.
#[inline(never)]
fn descend(depth: u32) -> u64 {
    let room = std::hint::black_box([u64::from(depth); 40]);
    let below = if depth == 0 {
        // SAFETY: a signal that this process handles.
        unsafe { libc::raise(libc::SIGUSR1) };
        0
    } else {
        descend(depth - 1)
    };
    room.iter().sum::<u64>() + below
}

/// This process, as it was in the handler.
struct OwnProcess<'s> {
    memory: Slice<'s>,
    mappings: Vec<(Mapping, Option<UnwindTable>)>,
}

impl Memory for OwnProcess<'_> {
    fn read_words(&self, address: u64, words: &mut [u64]) -> bool {
        self.memory.read_words(address, words)
    }
}

/// An emulator's return from signal handlers has no file: `mov x8, #139; svc #0`.
fn returns_from_signal(pc: u64) -> bool {
    const CODE: [u32; 2] = [0xd280_1168, 0xd400_0001];
    // SAFETY: a return address in an executable mapping.
    cfg!(target_arch = "aarch64") && unsafe { (pc as *const [u32; 2]).read_unaligned() } == CODE
}

impl Tables for OwnProcess<'_> {
    fn find_mapping(&self, walk: &mut Walk, pc: u64) -> Result<(), WalkEnd> {
        let found = self.mappings.iter().find(|(mapping, _)| (mapping.begin..mapping.end).contains(&pc));
        walk.mapping = found.ok_or(WalkEnd::NoMapping)?.0;
        walk.executable = Executable { pages: 1, ..Executable::default() };
        Ok(())
    }

    fn find_rule(&self, walk: &mut Walk, svma: u64) -> Result<(), WalkEnd> {
        let (_, table) = &self.mappings[walk.mapping.executable as usize];
        walk.rule = match table {
            Some(table) => table.lookup(svma).unwrap_or_default(),
            None if returns_from_signal(walk.registers.pc) => {
                Rule { cfa: rule_kind::SIGNAL, ..Rule::default() }
            }
            None => return Err(WalkEnd::NoTable),
        };
        if walk.rule.cfa == rule_kind::NONE { Err(WalkEnd::NoRow) } else { Ok(()) }
    }

    fn find_layout(&self, _: &mut Walk) -> bool {
        false
    }
}

/// Where the file of a mapping states its first byte to be, and its rows.
fn table(mapping: &maps::Mapping) -> Option<(u64, UnwindTable)> {
    match mapping.backing {
        Backing::Vdso => Some((0, UnwindTable::from_elf(maps::vdso(mapping).ok()?).ok()?)),
        Backing::File => {
            let file = File::open(mapping.path()).ok()?;
            let svma = ElfFacts::read(&file).ok()?.segment_at(mapping.offset)?.svma_of(mapping.offset).0;
            Some((svma, SparseFile::frames_of(&file).ok()?.unwind_table().ok()?))
        }
        _ => None,
    }
}

fn mappings() -> Vec<(Mapping, Option<UnwindTable>)> {
    let all = maps::read(std::process::id(), LineFilter::Executable).unwrap().mappings;
    let with_table = |(number, mapping): (usize, &maps::Mapping)| {
        let (svma, table) = table(mapping).unzip();
        let (begin, end) = (mapping.begin.0, mapping.end.0);
        let bias = begin.wrapping_sub(svma.unwrap_or(begin));
        (Mapping { begin, end, bias, executable: number as u32, flags: 0 }, table)
    };
    all.iter().enumerate().map(with_table).collect()
}

/// Where the mapping of the running thread's stack ends.
fn stack_end() -> u64 {
    let local = 0u8;
    let here = std::hint::black_box(&raw const local) as u64;
    let all = maps::read(std::process::id(), LineFilter::All).unwrap().mappings;
    all.iter().find(|mapping| (mapping.begin.0..mapping.end.0).contains(&here)).unwrap().end.0
}

#[test]
fn walk_of_a_twice_interrupted_thread_matches_the_c_runtime() {
    handle(libc::SIGUSR1, outer);
    handle(libc::SIGUSR2, inner);
    let seen = std::thread::spawn(|| {
        STACK_END.set(stack_end());
        std::hint::black_box(descend(5));
        SEEN.take()
    })
    .join()
    .unwrap();

    let own =
        OwnProcess { memory: Slice { begin: seen.registers.sp, bytes: &seen.stack }, mappings: mappings() };
    // SAFETY: a walk is plain data: integers and arrays of them.
    let mut walk: Walk = unsafe { std::mem::zeroed() };
    walk.registers = seen.registers;
    walk.process.python.layout = NO_PYTHON;
    walk.begin(0, 512);
    let mut buffer = vec![0; USER_WORDS_MAX];
    for _ in 0..STEPS_MAX {
        if native_step(&mut walk, &mut WordBuffer(&mut buffer), &own) == Flow::Stop {
            break;
        }
    }
    let words = &buffer[..walk.words as usize];
    let end = WalkEnd::from_number(walk.native_end as u8).unwrap();
    let text: Vec<String> = words.iter().map(|word| format!("{word:#x}")).collect();
    assert_eq!(end, WalkEnd::Complete, "{text:?}, expected {:x?}", seen.expected);
    let interrupted = words.iter().filter(|w| word::tag(**w) == word::EXACT).count();
    assert_eq!(interrupted, 2, "the leaf, and what the first signal interrupted: {text:?}");
    let walked: Vec<u64> = words.iter().map(|word| word & word::PAYLOAD).collect();
    // The runtime's list begins in the handler.
    let from = seen.expected.iter().position(|pc| *pc == walked[0]);
    let expected = &seen.expected[from.expect("the interrupted address is in both lists")..];
    assert!(expected.len() > 10, "{expected:x?}");
    assert_eq!(walked[..expected.len().min(walked.len())], *expected);
}
