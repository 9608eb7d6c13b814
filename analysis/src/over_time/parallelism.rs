//! Parallelism: what each communicator costs, and which kind of parallelism it serves.
//!
//! Owns: [`Parallelism`]. Because: a job has several kinds of parallelism, and exposed communication of each needs
//! another fix. Does not: match collectives over ranks, or read names of kernels: these are one framework's.
//!
//! The signature of a communicator is what traces state of it: its ranks and their stride, and its operations with
//! their counts and sizes. Its kinds are *named* if the program's description of the group says them (`3 mesh_tp`).
//! Otherwise those that its operations fit are *inferred*: one of them may be right. A group with operations of several
//! patterns, such as the default one, has none.

use deepctx_profile::order::SortRows as _;
use std::collections::{BTreeMap, BTreeSet};

use deepctx_profile::frame::clean;
use deepctx_profile::intern::{Id, StrId};
use deepctx_profile::trace::{DeviceOp, KernelClass, TraceTime};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::intervals::Intervals;
use super::pipeline::is_message;
use super::window::Window;

/// The communicators of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parallelism {
    /// Those that traces name, except groups of one rank; most exposed time first.
    pub groups: Vec<GroupSignature>,
    /// Operations that communicate, and of which the trace does not name the communicator: they are in no row.
    pub operations_without_communicator: usize,
}

/// What one communicator does on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupSignature {
    /// The communicator.
    pub communicator: String,
    /// Its ranks that have a trace here.
    pub ranks: Vec<u32>,
    /// How many ranks traces say that it has.
    pub group_size: Option<u32>,
    /// The distance of neighbouring ranks. `None` if it varies, a rank has no trace here, or a trace does not state its
    /// rank.
    pub stride: Option<u32>,
    /// Time in which at least one of its operations runs on a device, added up over devices of all ranks.
    pub time_ns: u64,
    /// Part of it in which the device runs nothing else, not even another communicator's operations.
    pub exposed_ns: u64,
    /// Its kinds of parallelism: all that its description says, or those that its operations fit, of which one may be
    /// right.
    pub kinds: Vec<ParallelKind>,
    /// How these are known.
    pub kinds_basis: KindBasis,
    /// Its operations, the most frequent first.
    pub operations: Vec<GroupOperation>,
}

/// Operations of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupOperation {
    /// The name, as the trace has it.
    pub name: String,
    /// How many, over all ranks.
    pub count: u64,
    /// Their input elements, over all ranks.
    pub elements_in: u64,
    /// How many different numbers of input elements they have.
    pub sizes: usize,
}

/// What is split over the ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParallelKind {
    /// The tokens of a sequence: context parallelism, and sequence parallelism by all-to-alls.
    Context,
    /// The batch, with or without the weights (FSDP, ZeRO).
    Data,
    /// The experts of a layer.
    Expert,
    /// The layers of a model.
    Pipeline,
    /// The weights of a layer, with the activations beside them.
    Tensor,
}

impl ParallelKind {
    /// In words.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ParallelKind::Context => "context",
            ParallelKind::Data => "data",
            ParallelKind::Expert => "expert",
            ParallelKind::Pipeline => "pipeline",
            ParallelKind::Tensor => "tensor",
        }
    }
}

/// How the kinds of a communicator are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindBasis {
    /// The program's description of the group says them.
    Named,
    /// Its operations fit them.
    Inferred,
    /// Neither.
    Unknown,
}

/// Words of descriptions in lower case, as Megatron, `DeviceMesh`, DeepSpeed and vLLM use them.
const WORDS: [(&str, ParallelKind); 18] = [
    ("context", ParallelKind::Context),
    ("cp", ParallelKind::Context),
    ("sequence", ParallelKind::Context),
    ("sp", ParallelKind::Context),
    ("ulysses", ParallelKind::Context),
    ("data", ParallelKind::Data),
    ("ddp", ParallelKind::Data),
    ("dp", ParallelKind::Data),
    ("fsdp", ParallelKind::Data),
    ("hsdp", ParallelKind::Data),
    ("ep", ParallelKind::Expert),
    ("expert", ParallelKind::Expert),
    ("experts", ParallelKind::Expert),
    ("pipe", ParallelKind::Pipeline),
    ("pipeline", ParallelKind::Pipeline),
    ("pp", ParallelKind::Pipeline),
    ("tensor", ParallelKind::Tensor),
    ("tp", ParallelKind::Tensor),
];

/// Kinds that a communicator's text says, each once.
fn named(communicator: &str) -> Vec<ParallelKind> {
    let lower = communicator.to_ascii_lowercase();
    // Groups of one kind are numbered: `tp0`.
    let words = lower.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words = words.map(|word| word.trim_end_matches(|letter: char| letter.is_ascii_digit()));
    let of_word = |word: &str| WORDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind);
    words.filter_map(of_word).collect::<BTreeSet<_>>().into_iter().collect()
}

/// What operations do with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pattern {
    AllReduce,
    /// Parts become the whole, or sums become parts.
    GatherOrScatter,
    AllToAll,
    Message,
}

/// Parts of names of operations, in lower case and without underscores.
const PATTERNS: [(&str, Pattern); 5] = [
    ("alltoall", Pattern::AllToAll),
    ("all2all", Pattern::AllToAll),
    ("allreduce", Pattern::AllReduce),
    ("allgather", Pattern::GatherOrScatter),
    ("reducescatter", Pattern::GatherOrScatter),
];

impl Pattern {
    /// `None` for those that every kind of parallelism may have, such as broadcasts and barriers.
    fn of(operation: &str) -> Option<Self> {
        if is_message(operation) {
            return Some(Pattern::Message);
        }
        let name = operation.to_ascii_lowercase().replace('_', "");
        PATTERNS.iter().find(|(part, _)| name.contains(*part)).map(|(_, pattern)| *pattern)
    }
}

/// Kinds that these operations fit.
fn inferred<'n>(operations: impl Iterator<Item = &'n String>) -> &'static [ParallelKind] {
    use ParallelKind::{Context, Data, Expert, Pipeline, Tensor};
    let patterns: BTreeSet<Pattern> = operations.filter_map(|name| Pattern::of(name)).collect();
    let patterns: Vec<Pattern> = patterns.into_iter().collect();
    match patterns.as_slice() {
        [Pattern::AllReduce] => &[Data, Tensor],
        // Sharded weights and norms of gradients, sharded activations, or keys and values of other tokens.
        [Pattern::GatherOrScatter] | [Pattern::AllReduce, Pattern::GatherOrScatter] => {
            &[Context, Data, Tensor]
        }
        [Pattern::AllToAll] => &[Context, Expert],
        // Stages, or a ring of ranks.
        [Pattern::Message] => &[Context, Pipeline],
        _ => &[],
    }
}

/// Operations of one name so far.
#[derive(Default)]
struct Calls {
    count: u64,
    elements_in: u64,
    sizes: FxHashSet<u64>,
}

impl Calls {
    fn add(&mut self, other: Calls) {
        self.count += other.count;
        self.elements_in = self.elements_in.saturating_add(other.elements_in);
        self.sizes.extend(other.sizes);
    }
}

/// A communicator so far.
#[derive(Default)]
struct Group {
    ranks: BTreeSet<u32>,
    /// A trace does not state its rank.
    has_guessed_rank: bool,
    /// 0 if unknown.
    size: u32,
    operations: BTreeMap<String, Calls>,
    time_ns: u64,
    exposed_ns: u64,
}

impl Group {
    fn stride(&self) -> Option<u32> {
        if self.has_guessed_rank || self.ranks.len() != self.size as usize {
            return None;
        }
        let mut distances = self.ranks.iter().zip(self.ranks.iter().skip(1)).map(|(a, b)| b - a);
        let first = distances.next()?;
        distances.all(|distance| distance == first).then_some(first)
    }

    fn signature(self, communicator: String) -> GroupSignature {
        let stride = self.stride();
        let mut kinds = named(&communicator);
        let is_named = !kinds.is_empty();
        if !is_named {
            kinds = inferred(self.operations.keys()).to_vec();
        }
        let kinds_basis = match (is_named, kinds.is_empty()) {
            (true, _) => KindBasis::Named,
            (false, false) => KindBasis::Inferred,
            (false, true) => KindBasis::Unknown,
        };
        let operation = |(name, calls): (String, Calls)| {
            let Calls { count, elements_in, sizes } = calls;
            GroupOperation { name, count, elements_in, sizes: sizes.len() }
        };
        let mut operations: Vec<GroupOperation> = self.operations.into_iter().map(operation).collect();
        operations.sort_rows_by_key(|row| std::cmp::Reverse(row.count));
        GroupSignature {
            communicator,
            ranks: self.ranks.into_iter().collect(),
            group_size: (self.size > 0).then_some(self.size),
            stride,
            time_ns: self.time_ns,
            exposed_ns: self.exposed_ns,
            kinds,
            kinds_basis,
            operations,
        }
    }
}

pub(super) fn compute(windows: &[Window<'_>]) -> Parallelism {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut operations_without_communicator = 0;
    for window in windows {
        let of_work = add_operations(window, &mut groups);
        operations_without_communicator += add_times(window, &of_work, &mut groups);
    }
    let mut groups: Vec<GroupSignature> =
        groups.into_iter().map(|(communicator, group)| group.signature(communicator)).collect();
    groups.sort_rows_by_key(|row| std::cmp::Reverse(row.exposed_ns));
    Parallelism { groups, operations_without_communicator }
}

/// The communicators of each operation on a device; none for a group of one rank.
type OfWork = FxHashMap<Id<DeviceOp>, Vec<StrId>>;

/// Adds the operations of a rank.
fn add_operations(window: &Window<'_>, groups: &mut BTreeMap<String, Group>) -> OfWork {
    let trace = &window.of.trace;
    let mut of_work = OfWork::default();
    // By communicator and name: the stated size of the group, and its operations.
    let mut of_rank: FxHashMap<(StrId, StrId), (u32, Calls)> = FxHashMap::default();
    for (_, note) in trace.collectives.iter().filter(|(_, note)| window.has_device(note.op)) {
        let is_unnamed = [StrId::EMPTY, StrId::FULL].contains(&note.communicator);
        if is_unnamed {
            continue;
        }
        let communicators = of_work.entry(note.op).or_default();
        if note.group_size == 1 {
            continue;
        }
        communicators.push(note.communicator);
        let (size, calls) = of_rank.entry((note.communicator, note.operation)).or_default();
        *size = note.group_size.max(*size);
        calls.count += 1;
        calls.elements_in = calls.elements_in.saturating_add(note.elements_in);
        calls.sizes.insert(note.elements_in);
    }
    for ((communicator, operation), (size, calls)) in of_rank {
        let group = groups.entry(clean(trace.name(communicator))).or_default();
        group.ranks.insert(window.of.rank);
        group.has_guessed_rank |= !window.of.rank_is_recorded;
        group.size = size.max(group.size);
        group.operations.entry(clean(trace.name(operation))).or_default().add(calls);
    }
    of_work
}

/// Times of operations.
type Times = Vec<(TraceTime, TraceTime)>;

/// Adds when the communicators of a rank run. Returns how many operations have none.
fn add_times(window: &Window<'_>, of_work: &OfWork, groups: &mut BTreeMap<String, Group>) -> usize {
    let trace = &window.of.trace;
    // By device: other work, and that of each communicator.
    let mut devices: FxHashMap<u32, (Times, FxHashMap<StrId, Times>)> = FxHashMap::default();
    let mut without_communicator = 0;
    for (id, op) in window.device() {
        let communicators = of_work.get(&id);
        let is_unnamed = communicators.is_none()
            && KernelClass::of(op.kind, window.name(&op)) == KernelClass::Communication;
        without_communicator += usize::from(is_unnamed);
        let Some(stream) = trace.streams().get(op.stream.index()) else { continue };
        let (others, of_groups) = devices.entry(stream.device).or_default();
        let communicators = communicators.map(Vec::as_slice).unwrap_or_default();
        if communicators.is_empty() {
            others.push((op.begin, op.end()));
        }
        for communicator in communicators {
            of_groups.entry(*communicator).or_default().push((op.begin, op.end()));
        }
    }
    for (others, of_groups) in devices.into_values() {
        let others = Intervals::of(others);
        let of_groups: Vec<(StrId, Intervals)> =
            of_groups.into_iter().map(|(communicator, times)| (communicator, Intervals::of(times))).collect();
        let alone = Intervals::lengths_alone(of_groups.iter().map(|(_, times)| times).chain([&others]));
        for ((communicator, times), alone_ns) in of_groups.iter().zip(alone) {
            let Some(group) = groups.get_mut(&clean(trace.name(*communicator))) else { continue };
            group.time_ns = group.time_ns.saturating_add(times.length());
            group.exposed_ns = group.exposed_ns.saturating_add(alone_ns);
        }
    }
    without_communicator
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{CollectiveNote, Job, Trace, text};

    use super::super::{OverTime, Steps};
    use super::*;

    /// A trace whose kernels have these notes: place of the kernel, operation, communicator, size of the group and
    /// number of elements.
    fn noted(lines: &str, notes: &[(usize, &str, &str, u32, u64)]) -> Trace {
        let mut trace = text::parse(lines).unwrap();
        let ops: Vec<_> = trace.device.iter().map(|(id, _)| id).collect();
        for (place, operation, communicator, group_size, elements_in) in notes {
            let [operation, communicator, element] =
                [*operation, *communicator, "Float"].map(|word| trace.text(word));
            let note = CollectiveNote {
                op: ops[*place],
                operation,
                communicator,
                group_size: *group_size,
                elements_in: *elements_in,
                element,
                ordinal: None,
                peer: None,
            };
            trace.collectives.push(note).unwrap();
        }
        trace
    }

    fn found(traces: impl IntoIterator<Item = Trace>) -> Parallelism {
        let files = (0..).zip(traces).map(|(n, trace)| (format!("{n}.json"), trace)).collect();
        OverTime::compute(&Job::new(files).unwrap(), Steps::default()).parallelism
    }

    /// The kinds of a communicator with these operations, and how they are known.
    fn kinds(communicator: &str, operations: &[&str]) -> (Vec<&'static str>, KindBasis) {
        let notes: Vec<_> = operations.iter().map(|name| (0, *name, communicator, 4, 8)).collect();
        let row = found([noted("kernel 0/9 0..10 ncclKernel", &notes)]).groups.remove(0);
        (row.kinds.iter().map(|kind| kind.name()).collect(), row.kinds_basis)
    }

    #[test]
    fn descriptions_of_groups_name_kinds() {
        let check = |communicator: &str, expect: &[&str]| {
            let found = kinds(communicator, &["send"]);
            assert_eq!(found, (expect.to_vec(), KindBasis::Named), "{communicator}");
        };
        check("3 mesh_tp", &["tensor"]);
        check("tp:0", &["tensor"]);
        check("dp12", &["data"]);
        check("7 PIPELINE_MODEL_PARALLEL_GROUP", &["pipeline"]);
        check("8 DATA_PARALLEL_GROUP_WITH_CP", &["context", "data"]);
        check("9 EXPERT_DATA_PARALLEL_GROUP", &["data", "expert"]);
    }

    #[test]
    fn kinds_without_a_description_are_inferred_from_operations() {
        let check = |operations: &[&str], expect: &[&str]| {
            let basis = if expect.is_empty() { KindBasis::Unknown } else { KindBasis::Inferred };
            assert_eq!(kinds("0 default_pg", operations), (expect.to_vec(), basis), "{operations:?}");
        };
        check(&["allreduce", "broadcast", "barrier"], &["data", "tensor"]);
        check(&["_allgather_base", "reduce_scatter", "allreduce_coalesced"], &["context", "data", "tensor"]);
        check(&["all_to_allv"], &["context", "expert"]);
        check(&["send", "recv"], &["context", "pipeline"]);
        // One group for everything, and operations of every kind.
        check(&["all_to_allv", "allreduce"], &[]);
        check(&["send", "allreduce"], &[]);
        check(&["broadcast"], &[]);
    }

    #[test]
    fn work_is_exposed_while_nothing_else_runs() {
        let lines = "
            kernel 0/7 0..30 gemm
            kernel 0/8 20..50 ncclKernel
            kernel 0/9 40..60 ncclKernel
            kernel 1/9 0..10 ncclKernel";
        let notes = [
            (1, "allreduce", "1 tp", 2, 8),
            (2, "allreduce", "2 dp", 2, 8),
            (2, "allreduce", "2 dp", 2, 16),
            (3, "allreduce", "2 dp", 2, 16),
        ];
        let found = found([noted(lines, &notes)]);
        let times: Vec<_> =
            found.groups.iter().map(|row| (&*row.communicator, row.time_ns, row.exposed_ns)).collect();
        assert_eq!(times, [("2 dp", 30_000, 20_000), ("1 tp", 30_000, 10_000)]);
        let of_data = GroupOperation { name: "allreduce".to_owned(), count: 3, elements_in: 40, sizes: 2 };
        assert_eq!(found.groups[0].operations, [of_data]);
    }

    #[test]
    fn a_stride_needs_every_rank_of_the_group() {
        let rank = |number: u32, states_rank: bool, size: u32| {
            let rank = if states_rank { format!("rank {number} of 8\n") } else { String::new() };
            let lines = format!("{rank}kernel 0/9 0..10 ncclKernel");
            (format!("rank{number}.json"), noted(&lines, &[(0, "allreduce", "g", size, 8)]))
        };
        let check = |ranks: &[(u32, bool)], size: u32, expect: Option<u32>| {
            let files = ranks.iter().map(|(number, states_rank)| rank(*number, *states_rank, size)).collect();
            let tables = OverTime::compute(&Job::new(files).unwrap(), Steps::default());
            let row = &tables.parallelism.groups[0];
            let numbers: Vec<u32> = ranks.iter().map(|(number, _)| *number).collect();
            assert_eq!((&row.ranks, row.group_size, row.stride), (&numbers, Some(size), expect), "{ranks:?}");
        };
        check(&[(1, true), (3, true), (5, true)], 3, Some(2));
        check(&[(1, true), (3, true), (4, true)], 3, None);
        check(&[(1, true), (3, true)], 3, None);
        check(&[(1, true), (3, false)], 2, None);
    }

    #[test]
    fn operations_without_a_communicator_are_counted() {
        let lines = "
            kernel 0/9 0..10 ncclKernel
            kernel 0/9 10..20 ncclKernel
            kernel 0/9 20..30 ncclKernel
            kernel 0/7 30..40 gemm";
        let found = found([noted(lines, &[(0, "allreduce", "", 2, 8), (1, "allreduce", "1", 1, 8)])]);
        // A group of one rank exchanges nothing.
        assert_eq!((found.groups.len(), found.operations_without_communicator), (0, 2));
    }
}
