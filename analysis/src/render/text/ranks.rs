//! Text of many ranks: slow ranks, ranks that others wait for, and the accuracy of clocks.
//!
//! Owns: the columns of these tables. Because: of eight ranks and a hundred collectives, a user wants one name. Does
//! not: compute; JSON has every row.

use deepctx_profile::order::SortRows as _;
use std::io::{self, Write};

use deepctx_profile::units::Nanos;

use super::{
    counted, guessed_links_in_words, have_several_names, more, not_measured_in_words, path_in_words,
    without_middle,
};
use crate::over_time::{
    ClockBasis, CriticalPath, Lateness, Measurement, OverTime, Phase, SlowestRank, Stragglers,
};

/// Widest name of a kernel or a communicator.
const NAME_WIDTH: usize = 60;
/// Maximum number of named collectives: those with most waiting.
const COLLECTIVES: usize = 3;
/// Maximum number of reasons for a slow rank.
const REASONS: usize = 3;
/// Maximum number of named parts of its critical path.
const PATH_PARTS: usize = 3;

/// Writes the comparison of ranks; nothing for one rank.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    slowest(&tables.slowest, rows, out)?;
    without_path(tables.slowest_paths_left_out, out)?;
    imbalance(tables, out)?;
    stragglers(&tables.stragglers, rows, out)?;
    communicators(tables, rows, out)
}

fn slowest(steps: &[SlowestRank], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if steps.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nSlowest rank of each step, by its own time: without waiting for others")?;
    let have_names = have_several_names(steps.iter().map(|row| &row.name));
    for row in steps.iter().take(rows) {
        let step = match have_names {
            true => format!("{} of {}", row.step, without_middle(&row.name, NAME_WIDTH)),
            false => row.step.to_string(),
        };
        let found = match &row.found {
            Measurement::Yes(found) => found,
            Measurement::No { not_measured } => {
                writeln!(out, "  step {step}: {}", not_measured_in_words(not_measured))?;
                continue;
            }
        };
        let [own, median] = [found.own_ns, found.median_own_ns].map(Nanos);
        let reason = |(phase, more_ns): (Phase, u64)| format!("{} +{}", phase.name(), Nanos(more_ns));
        let reasons = found.because.iter().take(REASONS).map(|of| (of.phase, of.slowest_ns - of.median_ns));
        let reasons: Vec<String> = reasons.map(reason).collect();
        let because = match reasons.as_slice() {
            [] => "no phase is longer than in the median".to_owned(),
            reasons => format!("by {}", reasons.join(", ")),
        };
        writeln!(
            out,
            "  step {step}: rank {}, {own} (median of {} {median}), {because}",
            found.slowest_rank,
            counted(row.ranks as u64, "rank")
        )?;
        if let Some(path) = &found.path {
            writeln!(out, "      critical path: {}", slowest_path_in_words(path))?;
        }
    }
    more(steps.len(), rows, "step", out)
}

/// The largest parts of the slowest rank's path, and how much of it is guessed.
pub(in crate::render) fn slowest_path_in_words(path: &CriticalPath) -> String {
    let guessed = guessed_links_in_words(path).map_or_else(String::new, |said| format!("; {said}"));
    format!("{} in {}{guessed}", path_in_words(path, PATH_PARTS), Nanos(path.window_ns))
}

fn without_path(left_out: usize, out: &mut dyn Write) -> io::Result<()> {
    match left_out {
        0 => Ok(()),
        left_out => writeln!(
            out,
            "  no critical path of {}: those least behind; `--steps` has it for each",
            counted(left_out as u64, "step")
        ),
    }
}

fn imbalance(tables: &OverTime, out: &mut dyn Write) -> io::Result<()> {
    let shown: Vec<_> = tables.imbalance.iter().filter(|row| row.imbalance_percent.is_some()).collect();
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPhases of the steps over ranks")?;
    if let Some(left_out @ 1..) = shown.first().map(|row| row.steps_not_measured) {
        writeln!(out, "  without {} that not every rank measured", counted(left_out as u64, "step"))?;
    }
    writeln!(out, "      mean           most          least  above mean  phase")?;
    for row in shown {
        let [most, least] = [(row.most_ns, row.most_rank), (row.least_ns, row.least_rank)]
            .map(|(ns, rank)| format!("{} ({rank})", Nanos(ns)));
        let mean = Nanos(row.mean_ns as u64).to_string();
        let percent = row.imbalance_percent.unwrap_or(0.0);
        writeln!(out, "  {mean:>8}  {most:>13}  {least:>13}  {percent:>9.1}%  {}", row.phase.name())?;
    }
    Ok(())
}

fn stragglers(found: &Stragglers, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let Stragglers { collectives, ranks, not_matched, communicators_inferred } = found;
    if ranks.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCollectives: whom the others wait for")?;
    if collectives.is_empty() && not_matched.is_empty() {
        writeln!(out, "  ranks have no collective in common")?;
    }
    if *communicators_inferred {
        writeln!(
            out,
            "  the traces name no communicator: the streams of collectives stand for them (guessed)"
        )?;
    }
    for row in not_matched.iter().take(rows) {
        writeln!(out, "  {}: not matched: {}", row.communicator, row.because)?;
    }
    more(not_matched.len(), rows, "communicator", out)?;
    writeln!(out, "  rank  latest in  others waited  it waited  clock offset")?;
    let first = ranks.first().map_or(0, |row| row.rank);
    for row in ranks.iter().take(rows) {
        let [others, own] = [row.waited_for_ns, row.waited_ns].map(|ns| Nanos(ns).to_string());
        let (rank, times) = (row.rank, row.times_latest);
        writeln!(out, "  {rank:>4}  {times:>9}  {others:>13}  {own:>9}  {}", clock_in_words(row, first))?;
    }
    more(ranks.len(), rows, "rank", out)?;
    if collectives.is_empty() {
        return Ok(());
    }
    let mut all: Vec<_> = collectives.iter().collect();
    all.sort_rows_by_key(|row| std::cmp::Reverse(row.waited_ns));
    writeln!(out, "      skew  transfer  latest  collective")?;
    for row in all.iter().take(rows.min(COLLECTIVES)) {
        let [skew, transfer] = [row.skew_ns, row.transfer_ns].map(|ns| Nanos(ns).to_string());
        let name = without_middle(&row.name, NAME_WIDTH);
        writeln!(out, "  {skew:>8}  {transfer:>8}  {:>6}  #{} {name}", row.latest_rank, row.ordinal)?;
    }
    more(all.len(), rows.min(COLLECTIVES), "collective", out)
}

/// Alignment of a rank's clock; `first` is the first rank.
pub(in crate::render) fn clock_in_words(row: &Lateness, first: u32) -> String {
    let sign = if row.clock_offset_ns < 0 { "-" } else { "" };
    let offset = Nanos(row.clock_offset_ns.unsigned_abs());
    let to = match row.clock_reference {
        reference if reference == first => String::new(),
        reference => format!(", to the clock of rank {reference}"),
    };
    match (row.clock, row.clock_uncertainty_ns) {
        (ClockBasis::Reference, _) if row.rank == first => "the others' reference".to_owned(),
        (ClockBasis::Reference, _) => {
            format!("not aligned: no chain of collectives to rank {first}; the reference of its part")
        }
        (ClockBasis::Common, _) if row.clock_reference == first => {
            "the first rank's own: one host has one clock".to_owned()
        }
        (ClockBasis::Common, _) => format!("that of rank {}: one host has one clock", row.clock_reference),
        (ClockBasis::Unchecked, _) | (_, None) => {
            "not aligned: no collective in common with another rank".to_owned()
        }
        (ClockBasis::AsTraced, Some(by)) => format!("none, ± {}{to}", Nanos(by)),
        (ClockBasis::CollectiveEnds, Some(by)) => {
            format!("{sign}{offset} ± {}, by {} ends of collectives{to}", Nanos(by), row.ends_compared)
        }
    }
}

fn communicators(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    // With one communicator, the table of ranks has everything.
    if tables.communicators.len() < 2 {
        return Ok(());
    }
    writeln!(out, "  ranks  collectives     waited  transfer  latest most  communicator")?;
    for row in tables.communicators.iter().take(rows) {
        let [waited, transfer] = [row.waited_ns, row.transfer_ns].map(|ns| Nanos(ns).to_string());
        let latest = format!("{} ({}×)", row.latest_rank, row.times_latest);
        let name = without_middle(&row.communicator, NAME_WIDTH);
        let (ranks, count) = (row.ranks, row.collectives);
        writeln!(out, "  {ranks:>5}  {count:>11}  {waited:>9}  {transfer:>8}  {latest:>11}  {name}")?;
    }
    more(tables.communicators.len(), rows, "communicator", out)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::Steps;

    #[test]
    fn a_slow_rank_has_a_path_or_says_why() {
        let steps = |length: u64| {
            let step = |n: u64| format!("step m {}..{} s#{n}\n", n * length, (n + 1) * length);
            text::parse(&(0..17).map(step).collect::<String>()).unwrap()
        };
        let ranks = [("0.json".to_owned(), steps(10)), ("1.json".to_owned(), steps(20))];
        let job = Job::new(ranks.into()).unwrap();
        let mut out = Vec::new();
        write(&OverTime::compute(&job, Steps::default()), 2, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        let path = format!("      critical path: CPU 100.0% in {}\n", Nanos(20_000));
        assert!(shown.contains(&path), "no {path} in {shown}");
        assert!(shown.contains("\n  no critical path of 1 step: those least behind;"), "{shown}");
    }

    #[test]
    fn steps_are_named_where_there_are_several_names() {
        let check = |second: &str, expect: &str| {
            let rank = |number: u32| {
                let steps = format!("rank {number} of 2\n step m 0..10 train#1\n step m 10..20 {second}");
                (format!("{number}.json"), text::parse(&steps).unwrap())
            };
            let job = Job::new(vec![rank(0), rank(1)]).unwrap();
            let mut out = Vec::new();
            write(&OverTime::compute(&job, Steps::default()), 9, &mut out).unwrap();
            let shown = String::from_utf8(out).unwrap();
            assert!(shown.contains(expect), "no {expect} in {shown}");
        };
        check("eval#1", "\n  step 1 of eval: rank 0, 10.0 µs");
        check("train#2", "\n  step 1: rank 0, 10.0 µs");
    }
}
