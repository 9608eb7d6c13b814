//! Collectives: which rank the others wait for.
//!
//! Owns: [`Stragglers`]. Because: a collective ends for all when the last rank has arrived, so its length on one rank
//! says nothing about the network. Does not: match by time; by communicator and ordinal alone.
//!
//! Collectives of one communicator are numbered on each rank, and those of one number belong together. Where a trace
//! names no communicator, the streams of collectives stand for them, in the order of their first use: *inferred*. Ranks
//! that disagree on names or numbers are not matched, and the reason is given. If traces state the number of each
//! collective, as our own do, those that all ranks have count: a rank may have started recording later. A message
//! between two ranks of a larger group is no collective, since the others have no part in it: see [`super::Pipeline`].
//!
//! HTA picks the stream and name whose lengths differ most, and reports ranks that begin its last call late. Here every
//! collective counts, and all others waited for the latest rank of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use deepctx_common::reasons;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceOp, Job, KernelClass, RankTrace, Trace, TraceTime};
use deepctx_profile::units::Nanos;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::intervals::Intervals;
use super::pipeline::{Messages, is_message};
use super::rank_clocks::{self, ClockBasis, Ends, RankClock};
use super::window::{Steps, Window};

/// The ranks that others wait for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stragglers {
    /// Each collective that all its ranks have.
    pub collectives: Vec<Collective>,
    /// Lateness by rank.
    pub ranks: Vec<Lateness>,
    /// Communicators that could not be matched, and why.
    pub not_matched: Vec<NotMatched>,
    /// Whether communicators were inferred from streams.
    pub communicators_inferred: bool,
}

/// One collective on all its ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collective {
    /// The communicator.
    pub communicator: String,
    /// Its number in the communicator, from 0: the trace's own, or else its place in the trace.
    pub ordinal: u64,
    /// Name of the kernel.
    pub name: String,
    /// How many ranks took part.
    pub ranks: usize,
    /// The rank that began last.
    pub latest_rank: u32,
    /// Time from the first rank's begin to the last rank's.
    pub skew_ns: u64,
    /// Time that all other ranks together waited for the latest.
    pub waited_ns: u64,
    /// From the last begin to that rank's end: the time of the exchange itself.
    pub transfer_ns: u64,
    /// Time from the first rank's end to the last rank's: the remaining error of clocks and resolution.
    pub end_spread_ns: u64,
    /// Error of the skew by clocks: no more than the spread of the ends, and than the errors of its ranks' clocks
    /// together. Each rank's wait may be wrong by this much.
    pub clock_error_ns: u64,
}

/// Lateness of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lateness {
    /// The rank.
    pub rank: u32,
    /// Collectives in which it was the latest.
    pub times_latest: usize,
    /// Time that others waited for it in those.
    pub waited_for_ns: u64,
    /// Time that it waited for others.
    pub waited_ns: u64,
    /// The rank with whose clock its own is aligned: the first one, or, where no chain of collectives leads to that,
    /// the lowest one to which one does. Times of ranks with different references cannot be compared.
    pub clock_reference: u32,
    /// Offset of its clock ahead of the reference's, by the ends of collectives; subtracted from all figures. 0 if it
    /// was negligible.
    pub clock_offset_ns: i64,
    /// Error of the offset: the largest difference of a collective's end from it, added up over the ranks between it
    /// and the reference. `None` if there was none to compare.
    pub clock_uncertainty_ns: Option<u64>,
    /// Basis of the offset.
    pub clock: ClockBasis,
    /// Collectives whose ends were compared, with the reference's or with the next rank's on the way there.
    pub ends_compared: usize,
}

/// The results, and when each rank waited, on its own clock.
#[derive(Default)]
pub(super) struct Matches {
    pub(super) stragglers: Stragglers,
    waits: BTreeMap<u32, Vec<(TraceTime, TraceTime)>>,
}

impl Matches {
    /// When a rank waited for others.
    pub(super) fn waits_of(&self, rank: u32) -> Intervals {
        Intervals::of(self.waits.get(&rank).into_iter().flatten().copied())
    }
}

/// A communicator whose collectives do not match. Serialized, `reason` is the key and `because` the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotMatched {
    /// The communicator.
    pub communicator: String,
    /// Why.
    pub because: Mismatch,
}

/// How two ranks of a communicator differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// One has more collectives.
    Counts {
        /// Two ranks.
        ranks: [u32; 2],
        /// How many each has.
        counts: [usize; 2],
    },
    /// A collective is another kernel on each.
    Kernels {
        /// Two ranks.
        ranks: [u32; 2],
        /// Number of the collective.
        ordinal: usize,
    },
}

impl Mismatch {
    reasons! {
        class Gap, page "traces.md";
        /// The reason.
        pub fn reason(self) {
            Self::Counts { .. } => "collective-counts-differ", "ranks have different numbers of collectives";
            Self::Kernels { .. } => "collective-kernels-differ", "ranks run different kernels as the same collective";
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Counts { ranks: [first, other], counts: [of_first, of_other] } => {
                write!(f, "rank {first} has {of_first} collectives, rank {other} has {of_other}")
            }
            Mismatch::Kernels { ranks: [first, other], ordinal } => {
                write!(f, "ranks {first} and {other} run different kernels as number {ordinal}")
            }
        }
    }
}

impl Serialize for NotMatched {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut fields = to.serialize_struct("NotMatched", 3)?;
        fields.serialize_field("communicator", &self.communicator)?;
        fields.serialize_field("reason", self.because.reason().key)?;
        fields.serialize_field("because", &format_args!("{}", self.because))?;
        fields.end()
    }
}

/// One rank's part of a collective, in Unix time if the trace has it.
#[derive(Clone, Copy, Debug)]
struct RankPart {
    name: deepctx_profile::StrId,
    begin: i64,
    end: i64,
    /// The begin on the rank's own clock.
    own: TraceTime,
    /// Its number in the communicator, if the trace has it.
    ordinal: Option<u64>,
}

/// The parts of a communicator, by rank.
type Communicators = BTreeMap<String, BTreeMap<u32, Vec<RankPart>>>;
/// A communicator whose ranks agree, with the parts of each rank.
type MatchedCommunicator = (String, Vec<(u32, Vec<RankPart>)>);

pub(super) fn compute(job: &Job, steps: Steps) -> Matches {
    let mut found = Matches::default();
    if job.ranks().len() < 2 {
        return found;
    }
    let result = &mut found.stragglers;
    let mut communicators = Communicators::new();
    for of in job.ranks() {
        let window = Window::new(of, steps);
        // What two ranks send each other is matched like a collective of both.
        let messages = Messages::of(&window).ok().filter(|_| job.ranks().len() > 2);
        let messages = messages.map_or_else(FxHashSet::default, |found| found.inferred);
        result.communicators_inferred |= collect(&window, &messages, &mut communicators);
    }
    let mut matched: Vec<MatchedCommunicator> = Vec::new();
    for (communicator, mut parts) in communicators {
        by_ordinal(&mut parts);
        match agree(job, &parts) {
            Ok(()) if parts.len() > 1 => matched.push((communicator, parts.into_iter().collect())),
            // A group of one waits for nobody.
            Ok(()) => {}
            Err(because) => result.not_matched.push(NotMatched { communicator, because }),
        }
    }
    let clocks = clocks(job, &matched);
    result.ranks = clocks.iter().map(|(rank, clock)| lateness(*rank, clock)).collect();
    for (communicator, parts) in &matched {
        let count = parts.first().map_or(0, |(_, parts)| parts.len());
        for place in 0..count {
            let row = one(job, communicator, place, parts, &clocks, &mut found);
            found.stragglers.collectives.extend(row);
        }
    }
    found
}

/// Adds the collectives of a rank, without these messages. Returns whether communicators had to be inferred.
fn collect(
    window: &Window<'_>,
    messages: &FxHashSet<Id<DeviceOp>>,
    communicators: &mut Communicators,
) -> bool {
    let trace = &window.of.trace;
    // A kernel may run several collectives.
    let mut recorded: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (_, note) in trace.collectives.iter() {
        let of_op = recorded.entry(note.op).or_default();
        if note.group_size == 2 || !is_message(trace.name(note.operation)) {
            of_op.push((note.communicator, note.ordinal));
        }
    }
    let mut ops: Vec<_> = window.device().collect();
    ops.retain(|(_, op)| KernelClass::of(op.kind, window.name(op)) == KernelClass::Communication);
    ops.sort_by_key(|(id, op)| (op.begin, *id));
    // In the order of their first use.
    let mut streams = FxHashMap::default();
    for (id, op) in ops {
        let mut add = |communicator: String, ordinal| {
            let parts = communicators.entry(communicator).or_default().entry(window.of.rank).or_default();
            parts.push(part(window, &op, ordinal));
        };
        if let Some(notes) = recorded.get(&id) {
            notes.iter().for_each(|(name, ordinal)| add(format!("group {}", trace.name(*name)), *ordinal));
            continue;
        }
        if messages.contains(&id) {
            continue;
        }
        let next = streams.len() + 1;
        let number = *streams.entry(op.stream).or_insert(next);
        add(format!("stream {number} of collectives"), None);
    }
    !streams.is_empty()
}

/// Keeps the collectives that all ranks have, in the order of their numbers, if traces state these.
fn by_ordinal(parts: &mut BTreeMap<u32, Vec<RankPart>>) {
    if parts.values().flatten().any(|part| part.ordinal.is_none()) {
        return;
    }
    let numbers = |parts: &Vec<RankPart>| parts.iter().map(|part| part.ordinal).collect::<BTreeSet<_>>();
    let common = parts.values().map(numbers).reduce(|a, b| &a & &b).unwrap_or_default();
    for of in parts.values_mut() {
        of.retain(|part| common.contains(&part.ordinal));
        of.sort_by_key(|part| part.ordinal);
        // A graph that is launched again reruns collectives that were recorded once.
        of.dedup_by_key(|part| part.ordinal);
    }
}

/// A time of a trace, in Unix time if the trace has it.
pub(super) fn unix_ns(trace: &Trace, at: TraceTime) -> i64 {
    let epoch_ns = trace.clock.epoch_ns.unwrap_or(0);
    i64::try_from(epoch_ns.saturating_add(at.as_nanos())).unwrap_or(i64::MAX)
}

fn part(window: &Window<'_>, op: &DeviceOp, ordinal: Option<u64>) -> RankPart {
    let [begin, end] = [op.begin, op.end()].map(|at| unix_ns(&window.of.trace, at));
    RankPart { name: op.name, begin, end, own: op.begin, ordinal }
}

/// The trace of a rank. There may be a thousand ranks; a job has them sorted.
fn trace_of(job: &Job, rank: u32) -> Option<&RankTrace> {
    let place = job.ranks().binary_search_by_key(&rank, |of| of.rank).ok()?;
    job.ranks().get(place)
}

/// Whether all ranks have the same collectives.
fn agree(job: &Job, parts: &BTreeMap<u32, Vec<RankPart>>) -> Result<(), Mismatch> {
    fn name<'t>(of: Option<&'t RankTrace>, part: &RankPart) -> &'t str {
        of.map_or("", |of| of.trace.name(part.name))
    }
    let Some((first, model)) = parts.first_key_value() else { return Ok(()) };
    let of_first = trace_of(job, *first);
    for (rank, other) in parts {
        // Searched once for each rank, not for each of its thousands of collectives.
        let of_other = trace_of(job, *rank);
        if other.len() != model.len() {
            return Err(Mismatch::Counts { ranks: [*first, *rank], counts: [model.len(), other.len()] });
        }
        let differs = |(a, b): (&RankPart, &RankPart)| name(of_first, a) != name(of_other, b);
        if let Some(at) = model.iter().zip(other).position(differs) {
            return Err(Mismatch::Kernels { ranks: [*first, *rank], ordinal: at });
        }
    }
    Ok(())
}

/// The clock of each rank.
fn clocks(job: &Job, matched: &[MatchedCommunicator]) -> BTreeMap<u32, RankClock> {
    let domains = job.ranks().iter().map(|of| (of.rank, of.trace.clock.domain)).collect();
    let ends = |(rank, parts): &(u32, Vec<RankPart>)| (*rank, parts.iter().map(|part| part.end).collect());
    let communicators: Vec<Ends> = matched.iter().map(|(_, of)| of.iter().map(ends).collect()).collect();
    rank_clocks::align(&domains, &communicators)
}

fn lateness(rank: u32, clock: &RankClock) -> Lateness {
    Lateness {
        rank,
        times_latest: 0,
        waited_for_ns: 0,
        waited_ns: 0,
        clock_reference: clock.reference,
        clock_offset_ns: clock.ahead_ns,
        clock_uncertainty_ns: clock.uncertainty_ns,
        clock: clock.basis,
        ends_compared: clock.compared,
    }
}

fn one(
    job: &Job,
    communicator: &str,
    place: usize,
    parts: &[(u32, Vec<RankPart>)],
    clocks: &BTreeMap<u32, RankClock>,
    found: &mut Matches,
) -> Option<Collective> {
    let aligned = |(rank, parts): &(u32, Vec<RankPart>)| {
        let (part, offset) = (parts.get(place)?, clocks.get(rank)?.ahead_ns);
        let aligned = |at: i64| at.saturating_sub(offset);
        Some((*rank, RankPart { begin: aligned(part.begin), end: aligned(part.end), ..*part }))
    };
    let parts: Vec<(u32, RankPart)> = parts.iter().filter_map(aligned).collect();
    let (latest_rank, latest) = *parts.iter().max_by_key(|(_, part)| part.begin)?;
    let waited =
        |part: &RankPart| part.end.min(latest.begin).saturating_sub(part.begin).max(0).unsigned_abs();
    let waited_ns = parts.iter().fold(0, |sum: u64, (_, part)| sum.saturating_add(waited(part)));
    // Rows are sorted by rank.
    let rows = &mut found.stragglers.ranks;
    for (rank, part) in &parts {
        let until = part.own + Nanos(waited(part));
        found.waits.entry(*rank).or_default().push((part.own, until));
        let Ok(place) = rows.binary_search_by_key(rank, |row| row.rank) else { continue };
        rows[place].waited_ns = rows[place].waited_ns.saturating_add(waited(part));
        if *rank == latest_rank {
            rows[place].times_latest += 1;
            rows[place].waited_for_ns = rows[place].waited_for_ns.saturating_add(waited_ns);
        }
    }
    let earliest = parts.iter().map(|(_, part)| part.begin).min()?;
    let ends = parts.iter().map(|(_, part)| part.end);
    let end_spread_ns = ends.clone().max()?.abs_diff(ends.min()?);
    let error = |rank: &u32| clocks.get(rank).and_then(|clock| clock.uncertainty_ns).unwrap_or(u64::MAX);
    let of_others = parts.iter().map(|(rank, _)| rank).filter(|rank| **rank != latest_rank).map(error).max();
    let trace = &trace_of(job, latest_rank)?.trace;
    Some(Collective {
        communicator: communicator.to_owned(),
        ordinal: latest.ordinal.unwrap_or(place as u64),
        name: deepctx_profile::frame::clean(trace.name(latest.name)),
        ranks: parts.len(),
        latest_rank,
        skew_ns: latest.begin.abs_diff(earliest),
        waited_ns,
        transfer_ns: latest.end.abs_diff(latest.begin),
        end_spread_ns,
        clock_error_ns: end_spread_ns.min(error(&latest_rank).saturating_add(of_others.unwrap_or(0))),
    })
}
