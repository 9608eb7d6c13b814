//! Jobs: the traces of many ranks.
//!
//! Owns: [`Job`], and which trace is which rank's. Because: a rank's wait for another shows only when both are side
//! by side. Does not: align clocks or compare ranks; analyses do. Communicators of one name with different ranks get
//! names of their own ([`GroupRanks`](super::GroupRanks)).

use std::collections::HashSet;

use super::{Links, Trace, TraceTime, communicators};

/// One rank's trace.
#[derive(Clone, Debug)]
pub struct RankTrace {
    /// The rank: from the trace, otherwise from its file name, otherwise the first free number.
    pub rank: u32,
    /// Whether the trace itself states it.
    pub rank_is_recorded: bool,
    /// Name of the file.
    pub file: String,
    /// The trace.
    pub trace: Trace,
    /// Its links between events.
    pub links: Links,
    /// The first and the last moment of its events; `None` without any.
    pub span: Option<(TraceTime, TraceTime)>,
}

impl RankTrace {
    /// Begin of the first event: the origin of times in tables. The clock's zero without events.
    pub fn first_event(&self) -> TraceTime {
        self.span.map_or(TraceTime::default(), |(first, _)| first)
    }

    /// The time from the first event to the last, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.span.map_or(0, |(first, last)| (last - first).0)
    }
}

/// The traces of a job, by rank.
#[derive(Clone, Debug, Default)]
pub struct Job {
    ranks: Vec<RankTrace>,
    world_size: Option<u32>,
    /// As many ranks as the highest one that a trace or its file's name states says that there are; 0 if none does.
    stated_ranks: u32,
}

/// Two traces claim one rank.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{first}` and `{second}` are both of rank {rank}, where each rank has one trace")]
pub struct SameRank {
    /// The rank.
    pub rank: u32,
    /// A file.
    pub first: String,
    /// Another one.
    pub second: String,
}

impl Job {
    /// The job of these traces, with the names of their files.
    ///
    /// # Errors
    /// Two of them have the same rank.
    pub fn new(mut traces: Vec<(String, Trace)>) -> Result<Self, SameRank> {
        communicators::tell_apart(&mut traces);
        let mut ranks: Vec<RankTrace> = Vec::new();
        let named = |file: &str, trace: &Trace| trace.rank.rank.or_else(|| number_in(file));
        let world_size = traces.iter().filter_map(|(_, trace)| trace.rank.world_size).max();
        let taken: HashSet<u32> = traces.iter().filter_map(|(file, trace)| named(file, trace)).collect();
        let stated_ranks = taken.iter().max().map_or(0, |highest| highest.saturating_add(1));
        // Traces of no rank, such as a loader's process, get numbers after the ranks.
        let from = if taken.is_empty() { 0 } else { world_size.unwrap_or(0).max(stated_ranks) };
        let mut free = (from..).filter(|rank| !taken.contains(rank));
        for (file, trace) in traces {
            let rank = named(&file, &trace).or_else(|| free.next()).unwrap_or(u32::MAX);
            let (rank_is_recorded, links, span) =
                (trace.rank.rank.is_some(), Links::of(&trace), trace.span());
            ranks.push(RankTrace { rank, rank_is_recorded, file, trace, links, span });
        }
        ranks.sort_by_key(|of| of.rank);
        if let Some([a, b]) = ranks.array_windows::<2>().find(|[a, b]| a.rank == b.rank) {
            return Err(SameRank { rank: a.rank, first: a.file.clone(), second: b.file.clone() });
        }
        Ok(Job { ranks, world_size, stated_ranks })
    }

    /// The traces, by rank.
    pub fn ranks(&self) -> &[RankTrace] {
        &self.ranks
    }

    /// Ranks of the job, if a trace states it.
    pub fn world_size(&self) -> Option<u32> {
        self.world_size
    }

    /// Ranks of the job that have no trace here: of all, if a trace states how many there are, or else below the
    /// highest of several.
    pub fn missing(&self) -> Vec<u32> {
        let there: HashSet<u32> = self.ranks.iter().map(|of| of.rank).collect();
        let stated_ranks = if self.ranks.len() > 1 { self.stated_ranks } else { 0 };
        let ranks = self.world_size.unwrap_or(0).max(stated_ranks);
        // Nobody needs the missing ranks of a larger job.
        (0..ranks.min(1 << 16)).filter(|rank| !there.contains(rank)).collect()
    }
}

/// The number after `rank` or `worker` in a file's name.
fn number_in(file: &str) -> Option<u32> {
    let lower = file.to_ascii_lowercase();
    let rest = ["rank", "worker"].iter().find_map(|word| Some(&lower[lower.find(word)? + word.len()..]))?;
    let digits = rest.trim_start_matches(['_', '-', '.']);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::RankInfo;

    fn trace(rank: Option<u32>, world_size: Option<u32>) -> Trace {
        Trace { rank: RankInfo { rank, world_size }, ..Trace::new() }
    }

    #[test]
    fn ranks_come_from_traces_then_names_then_places() {
        let check = |files: &[(&str, Option<u32>)], expect: &[u32]| {
            let traces = files.iter().map(|(name, rank)| ((*name).to_owned(), trace(*rank, None))).collect();
            let found: Vec<u32> = Job::new(traces).unwrap().ranks().iter().map(|of| of.rank).collect();
            assert_eq!(found, expect, "{files:?}");
        };
        check(&[("a.json", Some(3)), ("b.json", Some(1))], &[1, 3]);
        check(&[("rank7.json.gz", None), ("worker_2.json", None)], &[2, 7]);
        check(&[("x.json", None)], &[0]);
        check(&[("a.json", Some(1)), ("process 7", None), ("b.json", Some(0))], &[0, 1, 2]);
        check(&[("process 5", None), ("process 7", None)], &[0, 1]);
    }

    #[test]
    fn a_missing_rank_is_named_and_a_double_one_refused() {
        let two =
            |a, b| vec![("a".to_owned(), trace(Some(a), Some(4))), ("b".to_owned(), trace(Some(b), None))];
        assert_eq!(Job::new(two(0, 2)).unwrap().missing(), [1, 3]);
        let unsaid = |ranks: &[Option<u32>]| {
            let of = |rank: &Option<u32>| ("a.json".to_owned(), trace(*rank, None));
            Job::new(ranks.iter().map(of).collect()).unwrap().missing()
        };
        // Nothing says how many ranks there are, but there are as many as the highest one says.
        assert_eq!(unsaid(&[Some(0), Some(1), Some(3)]), [2]);
        assert_eq!(unsaid(&[Some(0), Some(1)]), [0; 0]);
        // One file, of whichever rank, may be all that was asked for; processes without a rank have no order.
        assert_eq!(unsaid(&[Some(3)]), [0; 0]);
        assert_eq!(unsaid(&[None, None]), [0; 0]);
        let error = Job::new(two(1, 1)).unwrap_err();
        assert_eq!(error.to_string(), "`a` and `b` are both of rank 1, where each rank has one trace");
    }
}
