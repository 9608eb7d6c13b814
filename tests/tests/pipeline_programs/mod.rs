//! Randomly generated programs with backward passes, their true state, and the allowed results of a capture.
//!
//! Owns: threads that create autograd nodes, run them in any order, nested, and are sampled, while records are lost or
//! probes attach late. Because: a result for a node must be either right or missing and counted. Does not: know how
//! results are computed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use deepctx_profile::ledger::{CheckTime, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::view::Selection;
use proptest::prelude::*;

use super::pipeline_support::{folded, folded_as, run};

/// A thread's next action, if possible.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// An operator creates a node.
    Make,
    /// A backward pass begins.
    Pass,
    /// One of the created nodes begins in the pass. Any earlier node has ended.
    Node(prop::sample::Index),
    /// A node without an operator begins.
    Accumulate,
    /// The innermost node, or else the innermost pass, ends.
    End,
    Sample,
}

/// An action of a thread; whether its record is lost, and whether its stack is truncated at the root.
#[derive(Clone, Copy, Debug)]
struct Event {
    thread: usize,
    action: Action,
    lost: bool,
    cut: bool,
}

/// A program, and the event numbers before which its probes are attached.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    events: Vec<Event>,
    made_from: usize,
    nodes_from: usize,
    pass_from: usize,
}

const THREADS: usize = 3;

/// Programs of every kind: half of them lose nothing, and half are captured from the start.
pub(crate) fn programs() -> impl Strategy<Value = Program> {
    let action = prop_oneof![
        4 => Just(Action::Make),
        2 => Just(Action::Pass),
        6 => any::<prop::sample::Index>().prop_map(Action::Node),
        1 => Just(Action::Accumulate),
        2 => Just(Action::End),
        6 => Just(Action::Sample),
    ];
    let events = |lost: f64| {
        let event = (0..THREADS, action.clone(), prop::bool::weighted(lost), prop::bool::weighted(lost));
        let event = event.prop_map(|(thread, action, lost, cut)| Event { thread, action, lost, cut });
        prop::collection::vec(event, 1..150)
    };
    let events = prop_oneof![events(0.0), events(0.05)];
    let late = prop_oneof![Just([0; 3]), prop::array::uniform3(0usize..20)];
    (events, late).prop_map(|(events, [made, node, pass])| Program {
        events,
        made_from: made,
        nodes_from: made + node,
        pass_from: made + node + pass,
    })
}

/// A created node, from a function named `m` plus its number, within the other node.
#[derive(Clone, Copy, Debug)]
struct GeneratedNode {
    thread: usize,
    sequence: u64,
    within: Option<usize>,
}

/// A nesting level of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Pass { stack_pointer: u64 },
    Node { made: Option<usize> },
}

/// A run of a program: the page of its records, and the ground truth.
#[derive(Debug, Default)]
struct Run {
    page: String,
    made: Vec<GeneratedNode>,
    levels: [Vec<Level>; THREADS],
    sequences: [u64; THREADS],
    /// Nodes whose start is recorded, with and without an operator.
    began: [u64; 2],
    calls: u64,
    lost: bool,
}

impl Run {
    /// The frames for a thread's nesting, leaf first.
    fn frames(&self, thread: usize) -> String {
        let mut frames = String::from("main");
        for level in &self.levels[thread] {
            if matches!(level, Level::Node { .. }) {
                frames.insert_str(0, "e. back ");
            }
        }
        frames
    }

    /// The innermost node of a thread.
    fn node(&self, thread: usize) -> Option<usize> {
        let made = |level: &Level| match level {
            Level::Node { made } => Some(*made),
            Level::Pass { .. } => None,
        };
        self.levels[thread].iter().rev().find_map(made).flatten()
    }

    fn call(&mut self, time: usize, what: &str, thread: usize, values: &str, stack: &str, lost: bool) {
        if lost {
            self.lost = true;
            self.page += "lose 0 1\n";
            return;
        }
        self.calls += 1;
        let (call, tid) = (self.calls, thread + 10);
        writeln!(self.page, "{time} call {call} {what} 7/{tid} app {values}{stack}").unwrap();
    }

    fn happens(&mut self, at: usize, event: Event, program: &Program) {
        let (thread, time) = (event.thread, at + 10);
        let in_pass = matches!(self.levels[thread].last(), Some(Level::Pass { .. }));
        let frames = self.frames(thread);
        let stack = |frames: &str| if event.cut { "gap:no-row".into() } else { frames.to_owned() };
        match event.action {
            Action::Make if !in_pass => {
                let (number, within) = (self.made.len(), self.node(thread));
                let sequence = self.sequences[thread];
                self.sequences[thread] += 1;
                self.made.push(GeneratedNode { thread, sequence, within });
                if at >= program.made_from {
                    let values = format!("sequence={sequence} forward-thread={}", thread + 1);
                    let stack = format!(" : ! o.mm m{number} {}", stack(&frames));
                    self.call(time, "made", thread, &values, &stack, event.lost);
                }
            }
            Action::Pass if !in_pass => {
                let stack_pointer = 100_000 - 1000 * self.levels[thread].len() as u64;
                self.levels[thread].push(Level::Pass { stack_pointer });
                if at >= program.pass_from {
                    let values = format!("stack-pointer={stack_pointer}");
                    let stack = format!(" : ! back {}", stack(&frames));
                    self.call(time, "pass", thread, &values, &stack, event.lost);
                }
            }
            Action::Node(_) | Action::Accumulate => self.begins(at, event, program),
            Action::End => drop(self.levels[thread].pop()),
            Action::Sample if event.lost => {
                self.lost = true;
                self.page += "lose 0 1\n";
            }
            Action::Sample => {
                let leaf = self.node(thread).map_or("x".to_owned(), |made| format!("x{made}"));
                let end = if event.cut { " native=no-row" } else { "" };
                let within = if in_pass { "back " } else { "" };
                let (tid, rest) = (thread + 10, stack(&format!("{within}{frames}")));
                writeln!(self.page, "{time} sample 7/{tid} app {leaf}! {rest}{end}").unwrap();
            }
            Action::Make | Action::Pass => {}
        }
    }

    /// A node begins.
    fn begins(&mut self, at: usize, event: Event, program: &Program) {
        let levels = &mut self.levels[event.thread];
        levels.pop_if(|level| matches!(level, Level::Node { .. }));
        let Some(Level::Pass { stack_pointer }) = levels.last().copied() else { return };
        let made = match event.action {
            Action::Node(which) if !self.made.is_empty() => Some(which.index(self.made.len())),
            Action::Node(_) => return,
            _ => None,
        };
        levels.push(Level::Node { made });
        let (sequence, thread) = match made.map(|made| self.made[made]) {
            Some(made) => (made.sequence, made.thread),
            None => (u64::MAX, event.thread),
        };
        if at < program.nodes_from {
            return;
        }
        self.began[usize::from(made.is_none())] += u64::from(!event.lost);
        let pointer = stack_pointer - 500;
        let values = format!("sequence={sequence} forward-thread={} stack-pointer={pointer}", thread + 1);
        self.call(at + 10, "node", event.thread, &values, "", event.lost);
    }
}

/// Runs a program, and compares the pipeline's result with the ground truth.
#[track_caller]
pub(crate) fn check(program: &Program) {
    let mut of = Run::default();
    // Probes precede their records.
    of.page += "1 call 0 made 7/9 app sequence=0 forward-thread=99 : ! o.mm main\n";
    for (at, event) in program.events.iter().enumerate() {
        of.happens(at, *event, program);
    }
    let mut pipeline = run(&of.page);
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).unwrap();
    let gaps = &profile.ledger.stage(Stage::Attribute).gaps;
    let counted = |key: &str| gaps.count(key);

    // Each node once: below its operator, or with a reason.
    let calls = folded_as(profile, Selection { interpreter: true, ..Selection::of(Metric::Calls) });
    let (mut paired, mut misplaced, mut unsure) = (0, 0, 0);
    for line in calls.lines() {
        let (stack, n) = line.rsplit_once(' ').unwrap();
        let Some(stack) = stack.strip_suffix(";[backward]") else { panic!("{line} in {of:?}") };
        let n: u64 = n.parse().unwrap();
        paired += n;
        match is_right(stack, &of) {
            Some(true) => {}
            Some(false) => misplaced += n,
            None => unsure += n,
        }
    }
    let reported = counted("forward-unknown") + counted("backward-nested");
    assert_eq!(of.began[0], paired + reported, "{of:?}");
    let reported = counted("forward-uncertain");
    assert!(
        misplaced <= reported && reported <= misplaced + unsure,
        "{misplaced} and {unsure} of {reported}: {calls}{of:?}"
    );

    // Each stack in a node below the right one, or where it ran.
    let samples = folded(profile);
    let mut elsewhere = BTreeMap::new();
    for line in samples.lines() {
        let (stack, _) = line.rsplit_once(' ').unwrap();
        let leaf = stack.rsplit_once(";x").map_or("", |(_, leaf)| leaf);
        match stack.rsplit_once(";[backward]") {
            Some((operator, _)) => {
                assert!(operator.ends_with(&format!(";m{leaf};aten::mm")), "{line} in {of:?}")
            }
            None if !leaf.is_empty() => drop(elsewhere.insert(stack, line)),
            None => {}
        }
    }
    let whole = !of.lost && program.events.iter().all(|event| !event.cut);
    if whole && program.pass_from == 0 {
        assert_eq!(counted("forward-unknown") + counted("backward-uncertain"), 0, "{of:?}");
        assert!(counted("backward-nested") > 0 || misplaced == 0 && elsewhere.is_empty(), "{samples}{of:?}");
    }
}

/// Whether the operator at the end of a stack is below the node that it ran in. `None` for an operator in a node
/// without a creator: its place is right, but may not be certain.
fn is_right(stack: &str, of: &Run) -> Option<bool> {
    let number =
        |stack: &str| stack.strip_suffix(";aten::mm").unwrap().rsplit_once(";m").unwrap().1.to_owned();
    let made: usize = number(stack).parse().unwrap();
    let before = stack.rsplit_once(";m").unwrap().0;
    let below = before.strip_suffix(";[backward]").map(number);
    match (of.made[made].within, below) {
        (Some(within), Some(below)) => {
            assert_eq!(within.to_string(), below, "{stack} in {of:?}");
            Some(true)
        }
        (within, below) => {
            assert!(below.is_none(), "{stack} in {of:?}");
            let in_node = before.contains("evaluate_function");
            // A truncated stack may be in a node or not.
            (within.is_some() || !in_node).then(|| within.is_none() && before.contains("main"))
        }
    }
}
