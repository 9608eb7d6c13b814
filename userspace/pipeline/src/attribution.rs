//! Attribution: a resolved stack → a node of the tree, and the record's weight → figures at that node.
//!
//! Owns: the path from stack to node, for samples, waits and calls alike. Because: a cached stack and a new one must
//! end up at the same node. Does not: keep state, or know single stages: the stages place a stack together.

use deepctx_common::record::kind;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use crate::account::Accounts;
use crate::arena::{RecordArena, RecordRef};
use crate::attribute::{self, Tick};
use crate::config::Config;
use crate::decode::{Arguments, Event, Sample, decode};
use crate::native_omitted;
use crate::resolve::CallPath;
use crate::stack_cache::{CachedStack, StackKey};
use crate::stage::{CallAccounting, CallRecord, CallStack, Placement};
use crate::stages::Stages;
use crate::stages::off_cpu::{Context, WaitId};
use crate::symbols::Symbols;

/// What a record is attributed with.
pub(crate) struct Attribution<'a> {
    pub(crate) config: &'a Config,
    pub(crate) stages: &'a mut Stages,
    pub(crate) accounts: &'a mut Accounts,
    pub(crate) profile: &'a mut Profile,
}

impl Attribution<'_> {
    /// The context of a path, and each stage's conclusions from it.
    #[inline]
    pub(crate) fn place(
        &mut self,
        key: &StackKey,
        sample: &Sample<'_>,
        call: Option<&Arguments<'_>>,
        path: &CallPath<'_>,
    ) -> CachedStack {
        let Self { stages, accounts, profile, .. } = self;
        let mut placement = Placement::new(sample, key.thread, path.frames);
        let notes = stages.place(key.scopes, call, &mut placement, profile);
        accounts.malformed_words(path.malformed);
        CachedStack { node: node_of(&placement, profile), missing: path.missing, notes }
    }

    /// Attributes a sample, the beginning of a wait, or a call to its context.
    #[inline]
    pub(crate) fn attribute<S: Symbols>(
        &mut self,
        thread: NodeId,
        sample: &Sample<'_>,
        call: Option<&Arguments<'_>>,
        stack: CachedStack,
        symbols: &mut S,
    ) {
        self.stages.on_stack(&sample.fixed, &stack.notes);
        let Some(arguments) = call else { return self.attribute_sample(thread, sample, stack) };
        let owner = self.stages.owner(&arguments.call);
        match owner.accounted_as() {
            CallAccounting::ScopeChange => self.accounts.scope_change(),
            CallAccounting::Call => self.accounts.call(sample, stack.missing),
        }
        let call = CallRecord { sample: &sample.fixed, arguments, thread };
        let has_frames = !sample.words.is_empty();
        let stack = CallStack { node: stack.node, note: stack.notes, has_frames };
        self.stages.on_call(owner, &call, Some(stack), self.profile, symbols);
    }

    /// Adds a sample's weight to its context, or begins a wait there.
    pub(crate) fn attribute_sample(&mut self, thread: NodeId, sample: &Sample<'_>, stack: CachedStack) {
        let Self { config, stages, accounts, profile } = self;
        match wait_of(sample) {
            Some(wait) => {
                stages.set.off_cpu.resolved(wait, Context { node: stack.node, thread }, profile);
                accounts.block(sample, stack.missing);
            }
            None => {
                let tick = Tick { time_ns: sample.fixed.header.time_ns, period: sample.fixed.period };
                attribute::add(profile, thread, stack.node, tick, config.timer, config.off_cpu);
                accounts.sample(sample, stack.missing);
            }
        }
    }
}

/// The node of a placement, created if needed.
fn node_of(placement: &Placement<'_>, profile: &mut Profile) -> NodeId {
    let (root, stood_for) = placement.root.map_or((placement.thread, 0), |root| (root.node, root.frames));
    let mut frames = &placement.frames[stood_for..];
    if placement.ends_at_operator {
        frames = &frames[..attribute::operator_path(frames, profile)];
    }
    let node = if native_omitted::operators_alone(placement.sample) {
        let shown = native_omitted::without_native(frames, profile);
        attribute::node(&mut profile.tree, root, &shown)
    } else {
        attribute::node(&mut profile.tree, root, frames)
    };
    placement.leaf.map_or(node, |leaf| profile.tree.child(node, leaf))
}

/// The wait that a record begins; `None` for a timer sample.
#[inline]
pub(crate) fn wait_of(sample: &Sample<'_>) -> Option<WaitId> {
    let fixed = &sample.fixed;
    (fixed.header.kind == kind::BLOCK).then_some(WaitId { tid: fixed.tid, began_ns: fixed.period })
}

/// The sample or call at a place. It was found there when its batch was decoded.
pub(crate) fn sample_at(
    arena: &RecordArena,
    record: RecordRef,
) -> Option<(Sample<'_>, Option<Arguments<'_>>)> {
    match decode(arena.record(record)) {
        Ok(Event::Sample(sample) | Event::Block(sample)) => Some((sample, None)),
        Ok(Event::Call(sample, arguments)) => Some((sample, Some(arguments))),
        _ => None,
    }
}
