//! Threads that load data during training, whose time the data loader rules examine.
//!
//! Owns: [`LoadingTime`]. Because: workers wait most of their time, which must not count as a waiting training step.
//! Does not: apply thresholds.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Facts, Outcome};
use crate::findings::facts::Class;
use crate::findings::reason;
use crate::findings::share::{Share, Sum};

/// The time of the threads that load and use batches, without their waits for a CPU.
#[derive(Debug)]
pub(super) struct LoadingTime {
    /// Their part of loading with workers, in contexts of [`is_with_workers`]. Without the longest piece of a wait of
    /// each thread, a second at most: the first batch has to wait for the start of workers.
    pub(super) with_workers: Share,
    /// Their part of loading without workers.
    pub(super) by_itself: Share,
    /// Whether it includes off-CPU time.
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
            // A thread that waits for a CPU has its batch.
            let counts =
                |node| threads.contains(&facts.thread(node)) && !facts.classes(node).has(Class::CpuQueue);
            for (node, sum) in facts.values(metric).filter(|(node, _)| counts(*node)) {
                sums[1] += sum;
                if is_in(node) {
                    sums[0] += sum;
                }
            }
            sums
        };
        let share = |is_in: &dyn Fn(Metric, NodeId) -> bool| {
            let [part, whole] = sum(host, &|node| is_in(host, node));
            let exact = sum(Metric::OffCpuTime, &|node| is_in(Metric::OffCpuTime, node));
            Share { part, whole, sampled: Facts::is_sampled(host), exact }
        };
        let mut with_workers = share(&|metric, node| is_with_workers(facts, metric, node));
        with_workers.exact[0] = without(with_workers.exact[0], longest_waits(facts, &threads));
        Some(LoadingTime {
            with_workers,
            by_itself: share(&|metric, node| is_by_itself(facts, metric, node)),
            with_waits: facts.has(Metric::OffCpuTime) || !Facts::is_sampled(host),
            threads,
        })
    }

    /// All time of the threads, by one metric.
    pub(super) fn time(&self, metric: Metric) -> Sum {
        let Share { whole, exact: [_, waits], .. } = self.with_workers;
        if metric == Metric::OffCpuTime { waits } else { whole }
    }

    /// Whether one of the threads waits there for batches of workers.
    pub(super) fn is_wait(&self, facts: &Facts<'_>, metric: Metric, node: NodeId) -> bool {
        is_with_workers(facts, metric, node) && self.is_of_threads(facts, node)
    }

    /// Whether a context belongs to one of the threads.
    pub(super) fn is_of_threads(&self, facts: &Facts<'_>, node: NodeId) -> bool {
        self.threads.contains(&facts.thread(node))
    }
}

/// The outcome if no thread loads data.
pub(super) fn no_loading() -> Outcome {
    Outcome::missing(reason::NO_LOADER_THREAD)
}

/// A batch of workers is fetched, or waited for.
fn is_with_workers(facts: &Facts<'_>, metric: Metric, node: NodeId) -> bool {
    loads(facts, node) && !is_by_itself(facts, metric, node) && !facts.classes(node).has(Class::CpuQueue)
}

/// Traces of other tools have the range only.
fn loads(facts: &Facts<'_>, node: NodeId) -> bool {
    facts.phase(node) == Phase::Loading || facts.classes(node).has(Class::Loader)
}

/// The thread that uses a batch loads it itself.
pub(super) fn is_by_itself(facts: &Facts<'_>, metric: Metric, node: NodeId) -> bool {
    let classes = facts.classes(node);
    let in_loader = [Class::LoaderCode, Class::Loader].iter().any(|class| classes.has(*class));
    // Who is on a CPU in a range that loads, outside of PyTorch's loader, makes the batch.
    let makes = Facts::is_sampled(metric) && !in_loader;
    classes.has(Class::SingleProcessLoader)
        || (classes.has(Class::Fetch) || makes) && facts.phase(node) == Phase::Loading
}

/// A thread that only loads, pins memory or makes batches for others waits for its reader, not for data. It need not be
/// in its loop in every context: it starts and ends, and a wait may lack its stack.
fn loading_threads(facts: &Facts<'_>, host: Metric) -> FxHashSet<NodeId> {
    const LOADS: u8 = 1;
    const OTHERS: u8 = 2;
    const SERVES: u8 = 4;
    let mut threads: FxHashMap<NodeId, u8> = FxHashMap::default();
    for (node, _) in facts.values(host).chain(facts.values(Metric::OffCpuTime)) {
        let does = if serves(facts, node) {
            SERVES
        } else if is_by_itself(facts, host, node) || loads(facts, node) {
            LOADS
        } else {
            OTHERS
        };
        *threads.entry(facts.thread(node)).or_default() |= does;
    }
    threads.into_iter().filter(|(_, does)| *does == LOADS | OTHERS).map(|(thread, _)| thread).collect()
}

/// A worker, or the thread that pins memory.
fn serves(facts: &Facts<'_>, node: NodeId) -> bool {
    facts.phase(node) == Phase::LoadingWorker || facts.classes(node).has(Class::PinningLoop)
}

/// The longest wait of each thread for a batch of workers, or its longest piece: waits are recorded second by second.
fn longest_waits(facts: &Facts<'_>, threads: &FxHashSet<NodeId>) -> Sum {
    let mut longest: FxHashMap<NodeId, u64> = FxHashMap::default();
    for (node, cell) in facts.profile().tree.cells(Metric::OffCpuTime) {
        let thread = facts.thread(node);
        if threads.contains(&thread) && is_with_workers(facts, Metric::OffCpuTime, node) {
            let of_thread = longest.entry(thread).or_default();
            *of_thread = (*of_thread).max(cell.max);
        }
    }
    let value = longest.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    Sum { value, count: longest.len() as u64 }
}

fn without(sum: Sum, part: Sum) -> Sum {
    Sum { value: sum.value.saturating_sub(part.value), count: sum.count.saturating_sub(part.count) }
}
