//! A comparison as text for people.
//!
//! Owns: [`write()`]. Because: what changed must fit a terminal and a mail. Does not: promise its layout to programs.

use std::io::{self, Write};

use super::{Comparison, Row};

/// Writes the functions and contexts with the largest changes, `limit` of each.
///
/// # Errors
/// Those of `out`.
pub fn write(comparison: &Comparison, limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let [before, after] = comparison.totals;
    writeln!(
        out,
        "share of {} by own value, {} values before and {} after",
        comparison.metric, before.count, after.count
    )?;
    writeln!(
        out,
        "± is what chance alone changes in 95 of 100 cases; `?` marks changes that chance may explain"
    )?;
    writeln!(out, "\nfunctions")?;
    rows(&comparison.functions(), limit, out)?;
    writeln!(out, "\ncontexts")?;
    rows(&comparison.contexts(), limit, out)
}

fn rows(rows: &[Row], limit: usize, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "  nothing differs");
    }
    writeln!(out, "{:>10} {:>8} {:>8} {:>8}", "change", "±", "before", "after")?;
    for row in rows.iter().take(limit) {
        let mark = if row.significant { ' ' } else { '?' };
        let percent = |share: f64| share * 100.0;
        let [before, after] = row.shares.map(percent);
        writeln!(
            out,
            "{:>+9.2}%{mark}{:>7.2}% {before:>7.2}% {after:>7.2}%  {}",
            percent(row.change()),
            percent(row.bound),
            row.path.join(";")
        )?;
    }
    match (rows.len().saturating_sub(limit), rows.iter().skip(limit).filter(|row| row.significant).count()) {
        (0, _) => Ok(()),
        (more, significant) => {
            writeln!(
                out,
                "{more} more differ, {significant} of them by more than chance (--limit shows more)"
            )
        }
    }
}
