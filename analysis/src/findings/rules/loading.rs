//! Threads that load data within their training: whose time the rules on data loaders look at.
//!
//! Owns: [`LoadingTime`]. Because: workers wait most of their time, and must not count as a step that waits. Does not:
//! judge.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Facts;
use crate::findings::facts::Class;
use crate::findings::share::{Share, Sum};

/// The time of the threads that load batches and do something with them.
#[derive(Debug)]
pub(super) struct LoadingTime {
    /// Their part of loading with workers, in contexts that [`is_with_workers`] names.
    pub(super) with_workers: Share,
    /// Their part of loading by themselves.
    pub(super) by_itself: Share,
    /// Whether time off the CPU is in it.
    pub(super) with_waits: bool,
    threads: FxHashSet<NodeId>,
}

impl LoadingTime {
    /// `None` when no thread loads data.
    pub(super) fn of(facts: &Facts<'_>, host: Metric) -> Option<Self> {
        let threads = loading_threads(facts, host);
        if threads.is_empty() {
            return None;
        }
        let sum = |metric: Metric, is_in: &dyn Fn(NodeId) -> bool| {
            let mut sums = [Sum::default(); 2];
            for (node, sum) in facts.values(metric).filter(|(node, _)| threads.contains(&facts.thread(*node)))
            {
                sums[1] += sum;
                if is_in(node) {
                    sums[0] += sum;
                }
            }
            sums
        };
        let share = |is_in: &dyn Fn(NodeId) -> bool| {
            let [part, whole] = sum(host, is_in);
            let exact = sum(Metric::OffCpuTime, is_in);
            Share { part, whole, sampled: Facts::is_sampled(host), exact }
        };
        Some(LoadingTime {
            with_workers: share(&|node| is_with_workers(facts, node)),
            by_itself: share(&|node| is_by_itself(facts, node)),
            with_waits: facts.has(Metric::OffCpuTime) || !Facts::is_sampled(host),
            threads,
        })
    }

    /// Whether a context is of one of the threads.
    pub(super) fn is_of_threads(&self, facts: &Facts<'_>, node: NodeId) -> bool {
        self.threads.contains(&facts.thread(node))
    }
}

/// A batch of workers is fetched.
pub(super) fn is_with_workers(facts: &Facts<'_>, node: NodeId) -> bool {
    loads(facts, node) && !is_by_itself(facts, node)
}

/// Traces of other tools have the range only.
fn loads(facts: &Facts<'_>, node: NodeId) -> bool {
    facts.phase(node) == Phase::Loading || facts.classes(node).has(Class::Loader)
}

/// A batch is made by the thread that wants it.
pub(super) fn is_by_itself(facts: &Facts<'_>, node: NodeId) -> bool {
    let classes = facts.classes(node);
    classes.has(Class::SingleProcessLoader)
        || classes.has(Class::Fetch) && facts.phase(node) == Phase::Loading
}

/// A thread that only loads (pins memory, for instance) waits for its reader, not for data.
fn loading_threads(facts: &Facts<'_>, host: Metric) -> FxHashSet<NodeId> {
    const LOADS: u8 = 1;
    const OTHERS: u8 = 2;
    let mut threads: FxHashMap<NodeId, u8> = FxHashMap::default();
    for (node, _) in facts.values(host).chain(facts.values(Metric::OffCpuTime)) {
        let loads = is_by_itself(facts, node) || loads(facts, node);
        *threads.entry(facts.thread(node)).or_default() |= if loads { LOADS } else { OTHERS };
    }
    threads.into_iter().filter(|(_, does)| *does == LOADS | OTHERS).map(|(thread, _)| thread).collect()
}
