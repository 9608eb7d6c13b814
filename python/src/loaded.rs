//! Loaded: an opened profile with what is computed from it once.
//!
//! Owns: children, inclusive values and phases of contexts, and the choice of a metric. Because: a tree stores parents
//! and exclusive values, while a script asks each context for its children and its inclusive value. Does not: know
//! Python.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use deepctx_analysis::{Selection, Subset, usual_metric};
use deepctx_profile::context::phase::{Phase, phases};
use deepctx_profile::trace::Job;
use deepctx_profile::{Metric, NodeId, Profile};
use deepctx_storage::OpenedProfile;

/// An opened profile.
pub(crate) struct LoadedProfile {
    pub(crate) opened: OpenedProfile,
    /// Default metric.
    pub(crate) metric: Metric,
    children: OnceLock<Children>,
    inclusive: Vec<OnceLock<Vec<u64>>>,
    /// By context.
    phases: OnceLock<Vec<Phase>>,
    events: Arc<Events>,
}

/// Individual events of a profile, read on first use: events of many ranks take seconds.
struct Events {
    /// Where events of several ranks may be.
    path: Option<PathBuf>,
    job: OnceLock<Option<Job>>,
}

/// The children of all contexts, concatenated.
struct Children {
    /// By context: where its children start; plus one entry for the end of the last.
    begins: Vec<u32>,
    nodes: Vec<NodeId>,
}

impl LoadedProfile {
    pub(crate) fn new(path: &Path, opened: OpenedProfile) -> Self {
        let metric = usual_metric(&[&opened.profile]);
        // The working folder may have changed by the time events are needed.
        let path = std::path::absolute(path).ok().filter(|path| deepctx_storage::may_have_ranks(path));
        LoadedProfile::by(metric, opened, Arc::new(Events { path, job: OnceLock::new() }))
    }

    fn by(metric: Metric, opened: OpenedProfile, events: Arc<Events>) -> Self {
        let inclusive = Metric::ALL.iter().map(|_| OnceLock::new()).collect();
        LoadedProfile {
            opened,
            metric,
            children: OnceLock::new(),
            inclusive,
            phases: OnceLock::new(),
            events,
        }
    }

    /// The selected part, with the selection's metric as the default.
    pub(crate) fn part(&self, selection: &Selection) -> LoadedProfile {
        let OpenedProfile { profile, elapsed, format, notes } = &self.opened;
        let profile = selection.part_of(profile).into_owned();
        let opened = OpenedProfile { profile, elapsed: *elapsed, format: *format, notes: notes.clone() };
        LoadedProfile::by(selection.shown.metric, opened, Arc::clone(&self.events))
    }

    /// Individual events by rank, if there may be several ranks. Includes all events, whatever the selection.
    pub(crate) fn events(&self) -> Option<&Job> {
        let Events { path, job } = &*self.events;
        let read = || deepctx_storage::open_traces(std::slice::from_ref(path.as_ref()?)).ok();
        job.get_or_init(read).as_ref()
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.opened.profile
    }

    /// The metric with a name, or the default one.
    ///
    /// # Errors
    /// There is no such metric, or the profile has no values of it: a message that lists its metrics.
    pub(crate) fn metric(&self, name: Option<&str>) -> Result<Metric, String> {
        let Some(name) = name else { return Ok(self.metric) };
        let metric: Metric =
            name.parse().map_err(|error: deepctx_profile::metric::UnknownMetric| error.to_string())?;
        let tree = &self.profile().tree;
        if tree.metrics().any(|known| known == metric) {
            return Ok(metric);
        }
        let known: Vec<&str> = tree.metrics().map(Metric::name).collect();
        Err(match known.is_empty() {
            true => format!("the profile has no values of `{metric}`: it has no values at all"),
            false => format!("the profile has no values of `{metric}`: it has {}", known.join(", ")),
        })
    }

    /// The profile in the form that tables use, by one metric and with a row limit.
    pub(crate) fn subset(&self, metric: Metric, rows: usize) -> Subset<'_> {
        Subset::new(self.profile(), &Selection { rows, ..Selection::of(metric) })
    }

    /// The callees of a context, in the order of appearance.
    pub(crate) fn children(&self, node: NodeId) -> &[NodeId] {
        let Children { begins, nodes } = self.children.get_or_init(|| Children::of(self.profile()));
        let bound = |index: usize| begins.get(index).map_or(nodes.len(), |begin| *begin as usize);
        nodes.get(bound(node.index())..bound(node.index() + 1)).unwrap_or_default()
    }

    /// The phase of a context.
    pub(crate) fn phase(&self, node: NodeId) -> Phase {
        let phases = self.phases.get_or_init(|| phases(self.profile()));
        phases.get(node.index()).copied().unwrap_or_default()
    }

    /// By context: the inclusive sum of the metric.
    pub(crate) fn inclusive(&self, metric: Metric) -> &[u64] {
        self.inclusive[metric.index()].get_or_init(|| self.profile().tree.inclusive(metric))
    }
}

impl Children {
    /// Two passes over the parents, for counts and positions, whatever the shape of the tree.
    fn of(profile: &Profile) -> Self {
        let tree = &profile.tree;
        let mut begins = vec![0u32; tree.len() + 1];
        for node in tree.nodes().skip(1) {
            begins[node.parent.index() + 1] += 1;
        }
        for index in 1..begins.len() {
            begins[index] += begins[index - 1];
        }
        let mut next = begins.clone();
        let mut nodes = vec![NodeId::ROOT; tree.len() - 1];
        for (number, node) in (0u32..).zip(tree.nodes()).skip(1) {
            let place = &mut next[node.parent.index()];
            nodes[*place as usize] = NodeId::from_number(number);
            *place += 1;
        }
        Children { begins, nodes }
    }
}
