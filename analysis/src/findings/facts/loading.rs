//! Threads that load data during training, whose time the data loader rules examine.
//!
//! Owns: [`LoadingTime`]. Because: workers wait most of their time, which must not count as a waiting training step;
//! and five rules read the same sums, which take several walks. Does not: apply thresholds.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Class, Facts};
use crate::findings::share::{Share, Sum};

/// The time of the threads that load and use batches, without their waits for a CPU.
#[derive(Debug)]
pub(crate) struct LoadingTime {
    /// Their part of loading with workers, in contexts of [`is_with_workers`]. Without the longest piece of a wait of
    /// each thread, a second at most: the first batch has to wait for the start of workers.
    pub(crate) with_workers: Share,
    /// Their part of loading without workers.
    pub(crate) by_itself: Share,
    /// Whether it includes off-CPU time.
    pub(crate) with_waits: bool,
    threads: FxHashSet<NodeId>,
}

impl LoadingTime {
    /// `None` when no thread loads data.
    pub(super) fn of(facts: &Facts<'_>, host: Metric) -> Option<Self> {
        if !may_load(facts) {
            return None;
        }
        let threads = loading_threads(facts, host);
        if threads.is_empty() {
            return None;
        }
        let on_cpu = LoadingSums::of(facts, host, &threads);
        let off_cpu = LoadingSums::of(facts, Metric::OffCpuTime, &threads);
        let share = |part, exact| Share {
            part,
            whole: on_cpu.whole,
            sampled: Facts::is_sampled(host),
            exact: [exact, off_cpu.whole],
        };
        let waits = without(off_cpu.with_workers, longest_waits(facts, &threads));
        Some(LoadingTime {
            with_workers: share(on_cpu.with_workers, waits),
            by_itself: share(on_cpu.by_itself, off_cpu.by_itself),
            with_waits: facts.has(Metric::OffCpuTime) || !Facts::is_sampled(host),
            threads,
        })
    }

    /// All time of the threads, by one metric.
    pub(crate) fn time(&self, metric: Metric) -> Sum {
        let Share { whole, exact: [_, waits], .. } = self.with_workers;
        if metric == Metric::OffCpuTime { waits } else { whole }
    }

    /// Whether one of the threads waits there for batches of workers.
    pub(crate) fn is_wait(&self, facts: &Facts<'_>, metric: Metric, node: NodeId) -> bool {
        is_with_workers(facts, metric, node) && self.is_of_threads(facts, node)
    }

    /// Whether a context belongs to one of the threads.
    pub(crate) fn is_of_threads(&self, facts: &Facts<'_>, node: NodeId) -> bool {
        self.threads.contains(&facts.thread(node))
    }
}

/// Sums of one metric over the threads that load.
#[derive(Clone, Copy, Debug, Default)]
struct LoadingSums {
    with_workers: Sum,
    by_itself: Sum,
    whole: Sum,
}

impl LoadingSums {
    fn of(facts: &Facts<'_>, metric: Metric, threads: &FxHashSet<NodeId>) -> Self {
        let mut sums = LoadingSums::default();
        // A thread that waits for a CPU has its batch.
        let counts =
            |node| threads.contains(&facts.thread(node)) && !facts.classes(node).has(Class::CpuQueue);
        for (node, sum) in facts.values(metric).filter(|(node, _)| counts(*node)) {
            sums.whole += sum;
            if is_by_itself(facts, metric, node) {
                sums.by_itself += sum;
            } else if is_with_workers(facts, metric, node) {
                sums.with_workers += sum;
            }
        }
        sums
    }
}

/// A batch of workers is fetched, or waited for.
fn is_with_workers(facts: &Facts<'_>, metric: Metric, node: NodeId) -> bool {
    loads(facts, node) && !is_by_itself(facts, metric, node) && !facts.classes(node).has(Class::CpuQueue)
}

/// Traces of other tools have the range only.
fn loads(facts: &Facts<'_>, node: NodeId) -> bool {
    facts.phase(node) == Phase::Loading || facts.classes(node).has(Class::Loader)
}

/// Whether any context may load: most programs have neither a loader nor the phase.
fn may_load(facts: &Facts<'_>) -> bool {
    let is_loader = [Class::Loader, Class::SingleProcessLoader].iter().any(|class| facts.has_class(*class));
    is_loader || facts.has_phase(Phase::Loading)
}

/// The thread that uses a batch loads it itself.
pub(crate) fn is_by_itself(facts: &Facts<'_>, metric: Metric, node: NodeId) -> bool {
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
