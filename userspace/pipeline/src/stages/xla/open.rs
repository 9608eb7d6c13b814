//! Open: the thunks that a thread began, and which of them its stack is in.
//!
//! Owns: what is certain about both. Because: ends are not reported, a loop runs other thunks within its own, and a
//! pool thread begins one thunk higher on its stack and the next one lower. Does not: know names or frames.
//!
//! | the stack shows | it is |
//! |---|---|
//! | innermost, a thunk that runs no others | the last one that began, if that is of this class |
//! | as many thunks of a class that runs others as may still be open | these, in order |
//! | otherwise | not known |
//!
//! A thunk that runs others has ended when one begins that is not below it on the stack, or whose callers are above
//! it and do not include it.

use crate::scopes::{ScopeId, ScopeLists};

/// Nested thunks that are followed.
const OPEN_MAX: usize = 32;

/// A function keeps its frame pointer right below its return address.
const FRAME: u64 = 8;

/// The number of a class of thunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class(pub(super) u16);

/// The number of a thunk of a module, never used for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ThunkId(pub(super) u32);

/// A thunk that began. `id` is `None` when its names could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thunk {
    pub(super) class: Class,
    pub(super) id: Option<ThunkId>,
}

/// A thunk that runs others.
#[derive(Clone, Copy, Debug)]
struct EnclosingThunk {
    thunk: Thunk,
    /// The stack pointer when it began.
    stack_pointer: u64,
    began_ns: u64,
}

/// A thread that has begun thunks.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// Those that run others and may still be open, outermost first.
    outer: Vec<EnclosingThunk>,
    /// The last one that began, and when.
    last: Option<(Thunk, u64)>,
    listed: Option<ScopeId>,
}

impl Thread {
    /// A thunk begins at this stack pointer, called by functions with these frames; one that runs others keeps its
    /// place in `outer_at`.
    pub(super) fn on_begin(
        &mut self,
        thunk: Thunk,
        began_ns: u64,
        outer_at: Option<u64>,
        callers: &[u64],
        stack_pointer: Option<u64>,
    ) {
        // Stacks grow downwards.
        self.outer.retain(|outer| {
            let is_below = stack_pointer.is_some_and(|at| at < outer.stack_pointer);
            let is_caller = callers.contains(&outer.stack_pointer.wrapping_sub(FRAME));
            is_below && (is_caller || callers.iter().all(|caller| *caller < outer.stack_pointer))
        });
        if self.outer.len() >= OPEN_MAX {
            self.outer.clear();
        }
        self.outer.extend(outer_at.map(|stack_pointer| EnclosingThunk { thunk, stack_pointer, began_ns }));
        self.last = Some((thunk, began_ns));
    }

    /// When the last one began.
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.last.map(|(_, began_ns)| began_ns)
    }

    /// When the outermost open one that runs others began.
    pub(super) fn outer_since_ns(&self) -> Option<u64> {
        self.outer.first().map(|outer| outer.began_ns)
    }

    /// Drops those that run others.
    pub(super) fn forget_outer(&mut self) {
        self.outer.clear();
    }

    /// Thunks that began by then are over.
    pub(super) fn over_by(&mut self, now_ns: u64) {
        self.outer.retain(|outer| outer.began_ns > now_ns);
        self.last = self.last.filter(|(_, began_ns)| *began_ns > now_ns);
    }

    /// Drops all.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Updates the number of the list of thunks that may be open.
    pub(super) fn list(&mut self, lists: &mut ScopeLists<Thunk>) {
        let thunks = self.outer.iter().map(|outer| outer.thunk).chain(self.last.map(|(thunk, _)| thunk));
        self.listed = lists.id(&thunks.collect::<Vec<_>>());
    }

    /// The number of the list of thunks that may be open, for [`shown`].
    pub(super) fn listed(&self) -> Option<ScopeId> {
        self.listed
    }
}

/// The thunks that a stack shows, outermost first, by their classes. `thunks`: those that run others, and the last one;
/// `nests`: the innermost that the stack shows may run others.
pub(super) fn shown(thunks: &[Thunk], classes: &[Class], nests: bool) -> Vec<Option<ThunkId>> {
    let Some((last, outer)) = thunks.split_last() else { return vec![None; classes.len()] };
    let innermost = classes.len().wrapping_sub(1);
    let of_open = |at: usize, class: Class| {
        let open: Vec<&Thunk> = outer.iter().filter(|thunk| thunk.class == class).collect();
        let of_class = |classes: &[Class]| classes.iter().filter(|other| **other == class).count();
        (open.len() == of_class(classes)).then(|| open.get(of_class(&classes[..at]))?.id)?
    };
    let one = |(at, class): (usize, &Class)| {
        if at == innermost && !nests {
            return last.id.filter(|_| last.class == *class);
        }
        of_open(at, *class)
    };
    classes.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHILE: u16 = 0;
    const DOT: u16 = 1;

    /// `wN@S` a loop begins at S, `dN@S` a product, each with its caller's frame 8 above and those of further callers
    /// after `^`; then the classes on the stack.
    #[track_caller]
    fn check(events: &str, stack: &str, expect: &[Option<u32>]) {
        let mut thread = Thread::default();
        for (now, event) in (0..).zip(events.split_ascii_whitespace()) {
            let (number, at) = event[1..].split_once('@').unwrap();
            let mut places = at.split('^').map(|at| at.parse::<u64>().unwrap());
            let at = places.next().unwrap();
            let callers: Vec<u64> = [at + 8].into_iter().chain(places).collect();
            let nests = event.starts_with('w');
            let class = Class(if nests { WHILE } else { DOT });
            let thunk = Thunk { class, id: Some(ThunkId(number.parse().unwrap())) };
            thread.on_begin(thunk, now, nests.then_some(at), &callers, Some(at));
        }
        let mut lists = ScopeLists::default();
        thread.list(&mut lists);
        let classes: Vec<Class> = stack.chars().map(|c| Class(if c == 'w' { WHILE } else { DOT })).collect();
        let thunks = thread.listed().and_then(|listed| lists.get(listed)).unwrap_or_default();
        let shown = shown(thunks, &classes, stack.ends_with('w'));
        let numbers: Vec<_> = shown.into_iter().map(|id| id.map(|id| id.0)).collect();
        assert_eq!(numbers, expect, "{events}: {stack}");
    }

    #[test]
    fn leaf_thunk_is_the_last_one_that_began() {
        check("d1@100", "d", &[Some(1)]);
        check("d1@100 d2@100", "d", &[Some(2)]);
        // Whatever the relative depth of the stacks.
        check("d1@100 d2@50", "d", &[Some(2)]);
        check("d1@50 d2@100", "d", &[Some(2)]);
        check("", "d", &[None]);
        check("w1@100", "d", &[None]);
    }

    #[test]
    fn a_loop_is_open_while_what_begins_is_below_it() {
        check("w1@100 d2@50", "wd", &[Some(1), Some(2)]);
        check("w1@100 d2@50", "w", &[Some(1)]);
        check("w1@100 w2@50 d3@20", "wwd", &[Some(1), Some(2), Some(3)]);
        check("w1@100 d2@50 d3@100 d4@50", "d", &[Some(4)]);
        check("w1@100 w2@100", "w", &[Some(2)]);
    }

    #[test]
    fn loop_thunk_is_unknown_when_either_may_be_running() {
        check("w1@100 w2@50", "w", &[None]);
        // Its caller is above the first one, which must be over.
        check("w1@100 w2@50^120", "w", &[Some(2)]);
        check("w1@100 w2@50 d3@20", "wd", &[None, Some(3)]);
        // The first one is among the callers, and goes on.
        check("w1@100 w2@50^92^120", "ww", &[Some(1), Some(2)]);
        check("w1@100 w2@50^92^120", "w", &[None]);
    }
}
