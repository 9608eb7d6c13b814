//! Nesting: which operators are open when another one begins, derived from their stack pointers.
//!
//! Owns: the operators of a thread that may be open, and what stacks have shown of such positions. Because: only
//! starts are probed (a return probe would break exceptions, which pass through operators every day), and a stack for
//! each is expensive. Does not: guess: an operator that begins deeper than another may be within it or after it; if
//! no stack has shown the same two positions, or stacks have shown both cases, the answer is unknown.
//!
//! Certain: an operator has ended when one begins that is not below it on the stack. Learned: from the frame of one
//! operator, at exactly this distance, the call of the other was seen within (or outside of) it.

use deepctx_profile::intern::FrameId;
use deepctx_profile::tree::NodeId;

use crate::by_process::ByProcess;

/// Operators that may be open at a time. More than a few dozen is a recursion.
const OPEN_MAX: usize = 128;
/// Cached pairs of places: those of a large model, at some 50 bytes each.
const SEEN_MAX: usize = 1 << 16;

/// An operator that began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenOperator {
    /// The stack pointer where it asked whether a profiler listens.
    pub(super) stack_pointer: u64,
    /// The return address of that call: identifies the operator's function.
    pub(super) code: u64,
    /// Its frame.
    pub(super) frame: FrameId,
    /// Its context.
    pub(super) node: NodeId,
}

/// One operator's place relative to another, in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Places {
    outer: u64,
    inner: u64,
    distance: u64,
}

/// Evidence of stacks about two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NestingEvidence {
    /// The outer one was open.
    Inside,
    /// It was over.
    Behind,
    /// Both were seen.
    Both,
}

/// Evidence of stacks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    seen: ByProcess<Places, NestingEvidence, SEEN_MAX>,
    /// How often a stack contradicted earlier ones.
    pub(super) contradicted: u64,
}

/// The operator in which another one began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parent {
    /// None of those that were seen to begin.
    None,
    /// This one.
    In(OpenOperator),
    /// Unknown.
    Unknown,
}

impl Memory {
    /// Drops a process: its addresses may change meaning.
    pub(super) fn forget(&mut self, process: u32) {
        self.seen.remove(process);
    }

    fn learn(&mut self, process: u32, places: Places, now: NestingEvidence) {
        let known = self.seen.get_or_insert_with(process, places, || now);
        if *known != now {
            self.contradicted += 1;
            *known = NestingEvidence::Both;
        }
    }
}

/// The operators of a thread that may be open, outermost first.
#[derive(Debug, Default)]
pub(super) struct Thread {
    open: Vec<OpenOperator>,
}

impl Thread {
    /// Ends those that a stack pointer shows to be over.
    pub(super) fn reach(&mut self, stack_pointer: u64) {
        while self.open.last().is_some_and(|open| open.stack_pointer <= stack_pointer) {
            self.open.pop();
        }
    }

    /// Adds one that began, within those that are still open.
    pub(super) fn begin(&mut self, open: OpenOperator) {
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(open);
    }

    /// A stack at the beginning of an operator: its operators, outermost first, without the one that begins. Open
    /// operators missing in it are over.
    pub(super) fn shown(
        &mut self,
        process: u32,
        code: u64,
        stack_pointer: u64,
        within: &[FrameId],
        memory: &mut Memory,
    ) {
        self.reach(stack_pointer);
        let places = |outer: &OpenOperator| Places {
            outer: outer.code,
            inner: code,
            distance: outer.stack_pointer.wrapping_sub(stack_pointer),
        };
        let mut rest = within;
        let mut innermost = true;
        let mut left = Vec::new();
        for open in self.open.iter().rev() {
            match rest.iter().rposition(|frame| *frame == open.frame) {
                Some(at) => {
                    if std::mem::take(&mut innermost) {
                        memory.learn(process, places(open), NestingEvidence::Inside);
                    }
                    left.push(*open);
                    rest = &rest[..at];
                }
                None if innermost => memory.learn(process, places(open), NestingEvidence::Behind),
                None => {}
            }
        }
        left.reverse();
        self.open = left;
    }

    /// The operator in which one begins without a stack. Those known to be over end.
    pub(super) fn parent(&mut self, process: u32, code: u64, stack_pointer: u64, memory: &Memory) -> Parent {
        self.reach(stack_pointer);
        while let Some(outer) = self.open.last() {
            let distance = outer.stack_pointer.wrapping_sub(stack_pointer);
            let places = Places { outer: outer.code, inner: code, distance };
            match memory.seen.get(process, &places) {
                Some(NestingEvidence::Inside) => return Parent::In(*outer),
                Some(NestingEvidence::Behind) => drop(self.open.pop()),
                Some(NestingEvidence::Both) | None => return Parent::Unknown,
            }
        }
        Parent::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64) -> FrameId {
        FrameId::from_number(number as u32)
    }

    fn open(code: u64, stack_pointer: u64) -> OpenOperator {
        OpenOperator { stack_pointer, code, frame: frame(code), node: NodeId::from_number(code as u32) }
    }

    /// `CODE@POINTER` begins without a stack, `CODE@POINTER(A B)` with one that shows A and B; the result for the last.
    #[track_caller]
    fn check(events: &str, expect: &str) {
        let (mut thread, mut memory) = (Thread::default(), Memory::default());
        let mut last = String::new();
        for event in events.split(", ") {
            let (what, stack) =
                event.split_once('(').map_or((event, None), |(what, rest)| (what, Some(rest)));
            let (code, pointer) = what.split_once('@').unwrap();
            let (code, pointer) = (code.parse().unwrap(), pointer.parse().unwrap());
            match stack {
                Some(stack) => {
                    let words = stack.trim_end_matches(')').split_whitespace();
                    let within: Vec<FrameId> = words.map(|word| frame(word.parse().unwrap())).collect();
                    thread.shown(1, code, pointer, &within, &mut memory);
                }
                None => {
                    last = match thread.parent(1, code, pointer, &memory) {
                        Parent::None => "none".into(),
                        Parent::In(outer) => format!("in {}", outer.code),
                        Parent::Unknown => "unknown".into(),
                    };
                }
            }
            thread.begin(open(code, pointer));
        }
        assert_eq!(last, expect, "{events}");
    }

    #[test]
    fn operator_not_below_another_on_the_stack_is_not_nested() {
        check("1@900, 2@900", "none");
        check("1@900, 2@950", "none");
        check("1@900, 2@800, 3@900", "none");
    }

    #[test]
    fn operator_below_another_nests_as_earlier_stacks_have_shown() {
        check("1@900, 2@800", "unknown");
        check("1@900, 2@800(1), 1@900, 2@800", "in 1");
        check("1@900, 2@800(), 1@900, 2@800", "none");
        // At another depth, of the same two.
        check("1@900, 2@800(1), 1@500, 2@400", "in 1");
        check("1@900, 2@800(1), 1@900, 2@790", "unknown");
        // Once inside and once behind.
        check("1@900, 2@800(1), 1@900, 2@800(), 1@900, 2@800", "unknown");
    }

    #[test]
    fn intermediate_operators_end_when_a_stack_omits_them() {
        // 2 ended before 3 began, both within 1.
        check("1@900, 2@800, 3@700(1), 1@900, 2@800(1), 3@700", "in 1");
        check("1@900, 2@800(1), 3@700(1 2), 1@900, 2@800, 3@700", "in 2");
        // Frames that are not operators seen to begin, such as autograd nodes, are skipped.
        check("1@900, 2@800(7 1 8), 1@900, 2@800", "in 1");
    }
}
