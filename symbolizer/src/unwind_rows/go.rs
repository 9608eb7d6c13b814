//! Rows of Go programs.
//!
//! Owns: rows from the stack depths that Go records for its functions, with where each saves its caller's frame
//! pointer; which of its functions begin a stack, return from a signal, or switch stacks. Because: Go's FDEs do not
//! describe the frame pointer, the only link from one stack to the other, and promise a caller where there is none.
//! Does not: read Go's table ([`crate::pclntab`]) or instructions ([`super::go_code`]), or form pages
//! ([`super::assemble`]).
//!
//! The functions that begin a stack are those at which Go's own traceback stops (`topofstack` in
//! `runtime/traceback.go`). Like `_start`, they are outermost at all of their instructions: the few before the stack
//! switch have a caller too, but it is not shown.
//!
//! ```text
//!   goroutine's stack                          the thread's own stack
//!   main.work
//!   runtime.systemstack ◀── rbp ─────────────  runtime.gcStart.func1
//!   main.call
//!   runtime.asmcgocall ◀── goroutine, depth ─  C, which calls
//!   main.called                                runtime.cgocallback ◀── rbp of main.called's callers
//! ```

use std::borrow::Cow;
use std::ops::Range;

use deepctx_address_space::Arch;
use deepctx_common::unwind::{Rule, fp_kind, rule_kind};

use super::Limits;
use super::elf::Image;
use super::frames::{ADDRESS_MAX, Slice};
use super::go_code::{self, FramePointer};
use super::new_rows::Rows;
use super::rules::{END, SIGNAL};
use super::sections::Sections;
use super::stats::{BuildStats, Count};
use super::uncovered::ReadAt;
use crate::pclntab::{Function, Pclntab};

/// Functions whose callees have no caller on their stack. Assembler functions may have the suffix `.abi0`.
const OUTERMOST: [&[u8]; 6] = [
    b"runtime.goexit",
    b"runtime.mstart",
    b"runtime.mcall",
    b"runtime.morestack",
    b"runtime.rt0_go",
    b"runtime.systemstack",
];
/// Return addresses of signal handlers.
const SIGNAL_RETURN: [&[u8]; 2] = [b"runtime.sigreturn", b"runtime.sigreturn__sigaction"];
/// Functions that switch to the thread's own stack, or back to the goroutine's, and keep rbp meanwhile: for the clocks
/// of the vdso, for the runtime itself, and for C.
const SWITCHING: [&[u8]; 6] = [
    b"runtime.nanotime1",
    b"runtime.walltime",
    b"time.now",
    b"runtime.systemstack",
    b"runtime.asmcgocall",
    b"runtime.cgocallback",
];
/// Calls C, and saves the goroutine's stack pointer as a depth: the stack may move before C returns.
const CALLS_C: &[u8] = b"runtime.asmcgocall";
/// Functions that jump to a goroutine, after switching to its stack.
const RESUMING: [&[u8]; 2] = [b"gogo", b"runtime.gogo"];
/// Most bytes of code that are read: Kubernetes' largest program has 50 MiB.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// A rule and its range.
pub(super) type RangeRule = (Range<u64>, Rule);

/// The slot of rbp in functions with a stack frame: all of them save it.
const SAVED: (u8, i32) = (fp_kind::AT_CFA, -16);

/// Rows of a Go program.
#[derive(Debug, Default)]
pub(super) struct GoRows {
    /// Functions whose rows override frame descriptions.
    pub(super) marked: Option<Slice>,
    /// Rows that only fill gaps of frame descriptions.
    pub(super) stated: Option<Slice>,
}

/// The rows of a Go program. `headers`: the bytes of the file's headers; `file`: all others.
pub(super) fn rows(
    table: &Pclntab<'_>,
    headers: &[u8],
    file: &dyn ReadAt,
    image: &Image<'_>,
    limits: &Limits,
    stats: &mut BuildStats,
) -> GoRows {
    let code = Code::of(table, headers, file);
    let (mut marked, mut stated) = (Rows::new(), Rows::new());
    let mut before = 0;
    for function in table.functions() {
        let range = function.range.clone();
        let inside = image.text_end(range.start).is_some_and(|end| range.end <= end.min(ADDRESS_MAX));
        // Functions ascend; one that does not is corrupt.
        if !inside || range.start < before {
            continue;
        }
        before = range.end;
        let code = code.at(&range).filter(|_| image.arch == Arch::X86_64);
        let switching = code.and_then(|code| switching(&function, code));
        if let Some(rule) = rule_of(function.name).filter(|_| switching.is_none()) {
            // The kernel pushes the address of the function itself, which is looked up as a return address.
            let begin = range.start.saturating_sub(u64::from(rule == SIGNAL));
            marked.push(begin, range.end, rule);
            stats.add(Count::OutermostMarked, u64::from(rule == END));
        } else if image.arch == Arch::X86_64 && marked.count() + stated.count() < limits.rows {
            let frame_pointer = code.and_then(|code| frame_pointer(table, &function, code));
            // Frame descriptions do not describe rbp, so it counts as unchanged.
            let rows = if frame_pointer.is_some() { &mut marked } else { &mut stated };
            let usual = usual(table, &function, frame_pointer.unwrap_or(FramePointer::Unknown));
            let all = overlay(usual, &switching.unwrap_or_default());
            stats.add(Count::GoRows, all.len() as u64);
            let _ = all.into_iter().all(|(range, rule)| rows.push(range.start, range.end, rule));
        }
    }
    GoRows { marked: marked.finish(), stated: stated.finish() }
}

/// The code of all functions.
struct Code<'f> {
    begin: u64,
    bytes: Cow<'f, [u8]>,
}

impl<'f> Code<'f> {
    /// Empty if it cannot be read.
    fn of(table: &Pclntab<'_>, headers: &[u8], file: &'f dyn ReadAt) -> Self {
        let read = || {
            let range = table
                .functions()
                .map(|function| function.range)
                .reduce(|all, next| all.start.min(next.start)..all.end.max(next.end))?;
            let bytes = (range.end - range.start <= TEXT_BYTES_MAX)
                .then(|| Sections::of(headers)?.code_at(&range, file))??;
            Some(Self { begin: range.start, bytes })
        };
        read().unwrap_or(Self { begin: 0, bytes: Cow::Borrowed(&[]) })
    }

    fn at(&self, range: &Range<u64>) -> Option<&[u8]> {
        let begin = usize::try_from(range.start.checked_sub(self.begin)?).ok()?;
        self.bytes.get(begin..)?.get(..usize::try_from(range.end - range.start).ok()?)
    }
}

/// A name without the suffix of its calling convention.
fn plain(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".abi0").unwrap_or(name)
}

/// The rule for all of a function with this name, if it is a special one.
fn rule_of(name: &[u8]) -> Option<Rule> {
    if OUTERMOST.contains(&plain(name)) {
        Some(END)
    } else if SIGNAL_RETURN.contains(&plain(name)) {
        Some(SIGNAL)
    } else {
        None
    }
}

/// Rules for the time that the function is on another stack than its caller, if it is known to switch stacks, and if
/// its instructions show the way back.
fn switching(function: &Function<'_>, code: &[u8]) -> Option<Vec<RangeRule>> {
    let (name, begin) = (plain(function.name), function.range.start);
    if RESUMING.contains(&name) {
        let taken = go_code::takes_stack(code, begin)?;
        return Some(vec![(taken..function.range.end, END)]);
    }
    if !SWITCHING.contains(&name) {
        return None;
    }
    let (fp, fp_offset) = SAVED;
    let by_rbp = Rule { cfa: rule_kind::X86_SWITCHED, cfa_offset: 16, fp, fp_offset, ..Rule::default() };
    let framed = go_code::keeps_frame(code, begin).unwrap_or_default();
    let rules: Vec<_> = framed.iter().map(|range| (range.clone(), by_rbp)).collect();
    let calls = (name == CALLS_C).then(|| go_code::calls_c(code, begin)).flatten();
    let Some(calls) = calls else { return (name != CALLS_C && !rules.is_empty()).then_some(rules) };
    let taken = if framed.is_empty() { 0 } else { 8 };
    let by_goroutine = Rule {
        cfa: rule_kind::X86_GO_CALLS_C,
        detail: taken + 8,
        cfa_offset: calls.goroutine,
        addend: calls.depth,
        fp: if framed.is_empty() { fp_kind::UNDEFINED } else { fp },
        fp_offset: if framed.is_empty() { 0 } else { fp_offset },
        ..Rule::default()
    };
    Some(overlay(rules, &calls.ranges.map(|range| (range, by_goroutine))))
}

/// Ascending `rows`, overridden by `over`.
fn overlay(rows: Vec<RangeRule>, over: &[RangeRule]) -> Vec<RangeRule> {
    if over.is_empty() {
        return rows;
    }
    let mut out = over.to_vec();
    for (range, rule) in rows {
        let mut at = range.start;
        for (over, _) in over.iter().filter(|(over, _)| over.start < range.end && range.start < over.end) {
            if at < over.start {
                out.push((at..over.start, rule));
            }
            at = over.end;
        }
        if at < range.end {
            out.push((at..range.end, rule));
        }
    }
    out.sort_unstable_by_key(|(range, _)| range.start);
    out
}

/// Where a function saves its caller's frame pointer.
fn frame_pointer(table: &Pclntab<'_>, function: &Function<'_>, code: &[u8]) -> Option<FramePointer> {
    let Some((range, depth)) = table.depths(function).find(|&(_, depth)| depth > 0) else {
        return Some(FramePointer::Unchanged);
    };
    let at = usize::try_from(range.start - function.range.start).ok()?;
    Some(go_code::frame_pointer(code, function.range.start, at, depth))
}

/// Rows of a function from its stack depths.
fn usual(table: &Pclntab<'_>, function: &Function<'_>, frame_pointer: FramePointer) -> Vec<RangeRule> {
    let mut rows = Vec::new();
    for (range, depth) in table.depths(function) {
        let Some(cfa_offset) = i32::try_from(depth).ok().and_then(|depth| depth.checked_add(8)) else {
            break;
        };
        let with = |fp, fp_offset| Rule { cfa: rule_kind::SP, fp, cfa_offset, fp_offset, ..Rule::default() };
        let same = with(fp_kind::SAME, 0);
        match frame_pointer {
            _ if depth == 0 => rows.push((range, same)),
            FramePointer::Unchanged => rows.push((range, same)),
            FramePointer::Unknown => rows.push((range, with(fp_kind::UNDEFINED, 0))),
            FramePointer::SavedFrom(from) => {
                let from = from.clamp(range.start, range.end);
                let (fp, fp_offset) = SAVED;
                rows.extend([(range.start..from, same), (from..range.end, with(fp, fp_offset))]);
            }
        }
    }
    rows.retain(|(range, _)| !range.is_empty());
    rows
}
