//! Queries: patterns over call paths, such as `python:train_step ** operator:aten::* ** gpu-kernel:*nccl*`.
//!
//! Owns: [`Query`], what it matches in a profile ([`Matches`]), and the part of a profile that matches. Because: a
//! regular expression over one frame cannot express "this kernel, but only below that function", which users and rules
//! both need. Does not: sum values, or know a rule.
//!
//! `docs/query.md` describes the language. A query is a sequence of steps. Each step matches one frame, from the root
//! of a stack to its leaf; a gap between steps matches any number of frames.
//!
//! All possible matches are tracked at once. The state of a context is a set of numbers in one word: bit *i* means that
//! the first *i* steps match the stack so far. A frame moves the bits of the steps that it matches up by one and keeps
//! the bits at gaps. So one pass over the tree suffices for any query: a step is tested once per distinct frame, and
//! each context costs a few instructions and four bytes. Phases are of contexts, not of frames: a query with one takes
//! a further pass, and tests a step once per phase.

mod frame;
mod parse;

use std::fmt;
use std::sync::Arc;

use deepctx_profile::context::phase::{Phase, phases};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use deepctx_profile::view;

use frame::QueryStep;
pub use frame::kind_of;

/// Maximum number of steps of a query: their states and one flag fit in 32 bits.
pub const STEPS_MAX: usize = 30;
/// Maximum bytes of a query: more than users type.
pub const BYTES_MAX: usize = 1000;

/// Bit of a frame that queries ignore: views fold it into its neighbor.
const FOLDED: u32 = 1 << 31;

/// A pattern over call paths.
#[derive(Clone)]
pub struct Query {
    text: Arc<str>,
    steps: Arc<[QueryStep]>,
    /// Bit *i*: any number of frames may follow the first *i* steps.
    gaps: u32,
    inverted: bool,
}

/// An invalid query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadQuery {
    text: String,
    column: usize,
    message: String,
}

impl BadQuery {
    /// Position of the error: a character of the query, counted from 1.
    pub fn column(&self) -> usize {
        self.column
    }

    /// The error, in a few words.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for BadQuery {
    /// The message with its column, followed by the query and a mark at that column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadQuery { text, column, message } = self;
        write!(f, "column {column}: {message}")?;
        if text.chars().count() > BYTES_MAX {
            return Ok(());
        }
        let text = text.replace(char::is_control, " ");
        write!(f, "\n  {text}\n  {:>column$}", '^')
    }
}

impl std::error::Error for BadQuery {}

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// It is invalid: the error has the column.
    pub fn parse(text: &str) -> Result<Self, BadQuery> {
        let parsed = parse::parse(text).map_err(|wrong| BadQuery {
            text: text.to_owned(),
            column: text.get(..wrong.at).map_or(0, |before| before.chars().count()) + 1,
            message: wrong.message,
        })?;
        Ok(Query {
            text: text.into(),
            steps: parsed.steps.into(),
            gaps: parsed.gaps,
            inverted: parsed.inverted,
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What it matches in a profile.
    pub fn matches(&self, profile: &Profile) -> Matches {
        let frames: Vec<u32> = profile
            .frames
            .iter()
            .map(|(_, frame)| match frame::is_folded(&frame) {
                true => FOLDED,
                false => self.steps_of(|step| step.matches(&frame, &profile.strings)),
            })
            .collect();
        let accepted = 1u32 << self.steps.len();
        let phases = self.phase_steps(profile);
        let steps = frames.iter().filter(|bits| **bits != FOLDED).chain(&phases);
        let matched = steps.fold(0u32, |all, bits| all | *bits);
        // A step that no frame and no phase matches: no context takes all of them, and none need be walked.
        if matched != accepted - 1 {
            return Matches { states: Vec::new(), accepted, inverted: self.inverted };
        }
        let mut states: Vec<u32> = Vec::with_capacity(profile.tree.len());
        states.push(1);
        // Callers precede callees.
        for (number, node) in profile.tree.nodes().enumerate().skip(1) {
            let above = states.get(node.parent.index()).copied().unwrap_or(0);
            let frame = frames.get(node.frame.index()).copied().unwrap_or(0);
            let phase = phases.get(number).copied().unwrap_or(0);
            states.push(match frame {
                FOLDED => above,
                _ => ((above & (frame | phase)) << 1) | (above & self.gaps),
            });
        }
        Matches { states, accepted, inverted: self.inverted }
    }

    /// The part of a profile that matches: its contexts with values, and their callers. It has no timeline, which is by
    /// thread and has no stacks.
    pub fn part_of(&self, profile: &Profile) -> Profile {
        let matches = self.matches(profile);
        view::only_contexts(profile, |node| matches.has(node))
    }

    /// By node: the steps that its phase matches. Empty if no step is a phase: phases take a walk.
    fn phase_steps(&self, profile: &Profile) -> Vec<u32> {
        if !self.steps.iter().any(QueryStep::is_phase) {
            return Vec::new();
        }
        let of_phase = Phase::ALL.map(|phase| self.steps_of(|step| step.matches_phase(phase)));
        phases(profile).into_iter().map(|phase| of_phase[phase as usize]).collect()
    }

    fn steps_of(&self, mut is_in: impl FnMut(&QueryStep) -> bool) -> u32 {
        self.steps
            .iter()
            .enumerate()
            .fold(0, |bits, (number, step)| if is_in(step) { bits | 1 << number } else { bits })
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Query").field(&self.text).finish()
    }
}

impl PartialEq for Query {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for Query {}

impl std::str::FromStr for Query {
    type Err = BadQuery;

    fn from_str(text: &str) -> Result<Self, BadQuery> {
        Query::parse(text)
    }
}

/// The contexts of one profile that match a query.
#[derive(Clone, Debug)]
pub struct Matches {
    /// By node: the steps that match the stack so far. Empty if no stack can match all.
    states: Vec<u32>,
    /// The bit of all steps.
    accepted: u32,
    inverted: bool,
}

impl Matches {
    /// Whether a context matches.
    pub fn has(&self, node: NodeId) -> bool {
        let state = self.states.get(node.index()).copied().unwrap_or(0);
        (state & self.accepted != 0) != self.inverted
    }

    /// Whether it is certain, without a look at any context, that none matches.
    pub(crate) fn is_none(&self) -> bool {
        self.states.is_empty() && !self.inverted
    }
}
