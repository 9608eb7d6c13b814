//! Text of counters over time.
//!
//! Owns: their columns. Because: a machine has more counters than a screen has lines, and most of them are always 0.
//! Does not: compute; JSON has every one.

use std::io::{self, Write};

use deepctx_profile::trace::counter_value_in_words;

use super::{more, without_middle};
use crate::over_time::CounterSummary;

/// Widest name of a counter.
const NAME_WIDTH: usize = 48;

/// Writes the counters that are ever above 0, those of processes first.
pub(super) fn write(all: &[CounterSummary], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let shown: Vec<&CounterSummary> = all.iter().filter(|row| row.most > 0.0).collect();
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nCounters\n  rank {:<8} {:<NAME_WIDTH$} {:>11} {:>11} {:>11}  values",
        "process", "counter", "mean", "least", "most"
    )?;
    for row in shown.iter().take(rows) {
        let [mean, least, most] =
            [row.mean, row.least, row.most].map(|value| counter_value_in_words(row.unit(), value));
        let name = match row.unit() {
            Some(_) => row.name.clone(),
            None => format!("{} {}", row.name, row.series),
        };
        let name = without_middle(&name, NAME_WIDTH);
        writeln!(
            out,
            "  {:>4} {:<8} {name:<NAME_WIDTH$} {mean:>11} {least:>11} {most:>11}  {:>6}",
            row.rank, row.process, row.values
        )?;
    }
    more(shown.len(), rows, "counter", out)
}
