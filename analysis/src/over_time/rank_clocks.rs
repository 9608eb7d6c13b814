//! Clocks of ranks: how far each is ahead of another's, by the ends of collectives.
//!
//! Owns: [`align`]. Because: a job of several hosts has several clocks, and in a mesh of groups only some ranks have a
//! collective in common with the first one. Does not: match collectives.
//!
//! Clocks are the nodes of a graph, and common collectives are its edges. From the lowest rank of each connected part,
//! a spanning tree with the fewest edges gives the offset of every other clock of that part; the errors of its edges
//! add up. Between two parts nothing is known, so each part keeps the clock of its lowest rank.

use std::collections::BTreeMap;

use serde::Serialize;

/// Smaller offsets are not corrected: ranks of one host have one clock, and collectives end within some microseconds.
const OFFSET_MIN_NS: i64 = 100_000;

/// How the clock of a rank was aligned with its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockBasis {
    /// It is the reference: the first rank's clock, or that of the lowest rank of a part that has no collective in
    /// common with the first rank's.
    Reference,
    /// One clock: both are of one capture, or of captures of one boot of a host.
    Common,
    /// The traces' own clocks are used: ends of collectives agree with them.
    AsTraced,
    /// Aligned by the ends of collectives: measured, with an uncertainty.
    CollectiveEnds,
    /// The trace's own clock, unchecked: the rank has no collective in common with any other.
    Unchecked,
}

/// The clock of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RankClock {
    /// The rank whose clock it is aligned with.
    pub(super) reference: u32,
    /// How far it is ahead; 0 if that was negligible.
    pub(super) ahead_ns: i64,
    /// Error of the offset; `None` if there was nothing to compare.
    pub(super) uncertainty_ns: Option<u64>,
    pub(super) basis: ClockBasis,
    /// Collectives whose ends were compared.
    pub(super) compared: usize,
}

/// Ends of the collectives of one communicator on each rank, in the same order.
pub(super) type Ends = Vec<(u32, Vec<i64>)>;

/// A clock, which several ranks may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Clock {
    OfDomain(u32),
    OfRank(u32),
}

/// The offset of a clock.
#[derive(Clone, Copy, Debug)]
struct Offset {
    reference: u32,
    ahead_ns: i64,
    uncertainty_ns: u64,
    is_shifted: bool,
    compared: usize,
}

impl Offset {
    /// The offset of a clock whose ends of collectives differ from this clock's by these times: their median, if it
    /// exceeds noise and resolution.
    fn then(self, mut differences: Vec<i64>) -> Offset {
        differences.sort_unstable();
        let median = differences.get(differences.len() / 2).copied().unwrap_or(0);
        let around = |middle: i64| differences.iter().map(|one| one.abs_diff(middle)).max().unwrap_or(0);
        let matters = median.abs() > OFFSET_MIN_NS && median.unsigned_abs() > around(median);
        let ahead_ns = if matters { median } else { 0 };
        Offset {
            ahead_ns: self.ahead_ns.saturating_add(ahead_ns),
            uncertainty_ns: self.uncertainty_ns.saturating_add(around(ahead_ns)),
            is_shifted: self.is_shifted || matters,
            compared: differences.len(),
            ..self
        }
    }
}

/// The clock of each rank. `domains` has the ranks, with the domain of their clocks if it is known.
pub(super) fn align(
    domains: &BTreeMap<u32, Option<u32>>,
    communicators: &[Ends],
) -> BTreeMap<u32, RankClock> {
    let clock_of =
        |(rank, domain): (&u32, &Option<u32>)| (*rank, domain.map_or(Clock::OfRank(*rank), Clock::OfDomain));
    let clocks: BTreeMap<u32, Clock> = domains.iter().map(clock_of).collect();
    let mut known: BTreeMap<Clock, Offset> = BTreeMap::new();
    for (rank, clock) in &clocks {
        if known.contains_key(clock) {
            continue;
        }
        let of = Offset { reference: *rank, ahead_ns: 0, uncertainty_ns: 0, is_shifted: false, compared: 0 };
        known.insert(*clock, of);
        loop {
            let next = neighbours(&clocks, communicators, &known);
            if next.is_empty() {
                break;
            }
            known.extend(next);
        }
    }
    let first = clocks.keys().next().copied();
    let in_part = |reference: u32| {
        let is_of = |clock: &&Clock| known.get(clock).is_some_and(|of| of.reference == reference);
        clocks.values().filter(is_of).count()
    };
    let of_rank = |(rank, clock): (&u32, &Clock)| {
        let of = known.get(clock)?;
        let basis = match of.reference {
            reference if reference == *rank && first != Some(*rank) && in_part(reference) == 1 => {
                ClockBasis::Unchecked
            }
            reference if reference == *rank => ClockBasis::Reference,
            reference if clocks.get(&reference) == Some(clock) => ClockBasis::Common,
            _ if of.is_shifted => ClockBasis::CollectiveEnds,
            _ => ClockBasis::AsTraced,
        };
        let uncertainty_ns = (basis != ClockBasis::Unchecked).then_some(of.uncertainty_ns);
        let Offset { reference, ahead_ns, compared, .. } = *of;
        Some((*rank, RankClock { reference, ahead_ns, uncertainty_ns, basis, compared }))
    };
    clocks.iter().filter_map(of_rank).collect()
}

/// The offsets of all clocks that have a collective in common with a known one, through the one that leaves the least
/// uncertainty.
fn neighbours(
    clocks: &BTreeMap<u32, Clock>,
    communicators: &[Ends],
    known: &BTreeMap<Clock, Offset>,
) -> BTreeMap<Clock, Offset> {
    let mut edges: BTreeMap<(Clock, Clock), Vec<i64>> = BTreeMap::new();
    for parts in communicators {
        let offset = |rank: &u32| Some((known.get(clocks.get(rank)?)?.uncertainty_ns, *rank));
        let between = parts.iter().filter_map(|(rank, ends)| Some((offset(rank)?, ends)));
        let Some(((_, through), model)) = between.min_by_key(|(order, _)| *order) else { continue };
        for (rank, ends) in parts {
            let (Some(clock), Some(through)) = (clocks.get(rank), clocks.get(&through)) else { continue };
            if !known.contains_key(clock) && !ends.is_empty() {
                let differences = model.iter().zip(ends).map(|(a, b)| b.saturating_sub(*a));
                edges.entry((*clock, *through)).or_default().extend(differences);
            }
        }
    }
    let mut found: BTreeMap<Clock, Offset> = BTreeMap::new();
    for ((clock, through), differences) in edges {
        let Some(of) = known.get(&through).map(|through| through.then(differences)) else { continue };
        let best = found.entry(clock).or_insert(of);
        if of.uncertainty_ns < best.uncertainty_ns {
            *best = of;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference, offset and error in µs, and basis of each rank; the ends are in µs.
    fn check(domains: &[Option<u32>], communicators: &[&[(u32, &[i64])]], expect: &[&str]) {
        let domains = (0..).zip(domains.iter().copied()).collect();
        let ends = |of: &(u32, &[i64])| (of.0, of.1.iter().map(|us| us * 1000).collect());
        let groups: Vec<Ends> = communicators.iter().map(|of| of.iter().map(ends).collect()).collect();
        let shown = |(rank, of): (&u32, &RankClock)| {
            let error = of.uncertainty_ns.map_or_else(|| "?".to_owned(), |ns| (ns / 1000).to_string());
            format!("{rank} to {}: {} ± {error} {:?}", of.reference, of.ahead_ns / 1000, of.basis)
        };
        let found: Vec<String> = align(&domains, &groups).iter().map(shown).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn errors_add_up_along_a_chain_of_ranks() {
        check(
            &[None; 4],
            &[
                &[(0, &[10, 20, 30]), (1, &[10, 21, 30])],
                &[(1, &[50, 60, 70]), (2, &[5050, 5060, 5072])],
                &[(2, &[5100]), (3, &[5100])],
            ],
            &[
                "0 to 0: 0 ± 0 Reference",
                "1 to 0: 0 ± 1 AsTraced",
                "2 to 0: 5000 ± 3 CollectiveEnds",
                "3 to 0: 5000 ± 3 CollectiveEnds",
            ],
        );
    }

    #[test]
    fn the_shortest_then_least_uncertain_way_counts() {
        check(
            &[None; 4],
            &[
                &[(0, &[10, 20, 30]), (1, &[10, 29, 30]), (2, &[10, 21, 30])],
                &[(1, &[100]), (3, &[8100])],
                &[(2, &[200]), (3, &[8202])],
            ],
            &[
                "0 to 0: 0 ± 0 Reference",
                "1 to 0: 0 ± 9 AsTraced",
                "2 to 0: 0 ± 1 AsTraced",
                "3 to 0: 8002 ± 1 CollectiveEnds",
            ],
        );
    }

    #[test]
    fn parts_without_a_common_collective_have_references_of_their_own() {
        check(
            &[None; 6],
            &[&[(0, &[10]), (2, &[10])], &[(1, &[10]), (4, &[7010])], &[(3, &[]), (5, &[])]],
            &[
                "0 to 0: 0 ± 0 Reference",
                "1 to 1: 0 ± 0 Reference",
                "2 to 0: 0 ± 0 AsTraced",
                "3 to 3: 0 ± ? Unchecked",
                "4 to 1: 7000 ± 0 CollectiveEnds",
                "5 to 5: 0 ± ? Unchecked",
            ],
        );
    }

    #[test]
    fn ranks_with_one_clock_are_shifted_together() {
        check(
            &[Some(1), Some(1), Some(2), Some(2)],
            // Rank 3 has no collective in common with a rank of the other clock.
            &[&[(1, &[10, 20]), (2, &[9010, 9020])], &[(2, &[9100]), (3, &[9100])]],
            &[
                "0 to 0: 0 ± 0 Reference",
                "1 to 0: 0 ± 0 Common",
                "2 to 0: 9000 ± 0 CollectiveEnds",
                "3 to 0: 9000 ± 0 CollectiveEnds",
            ],
        );
    }
}
