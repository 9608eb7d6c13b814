//! Text of a comparison of two profiles.
//!
//! Owns: [`write()`]. Because: the changes must fit a terminal and a mail. Does not: guarantee its layout to programs.

use std::io::{self, Write};

use super::{DEPTH, counted};
use crate::diff::{ChangeTable, Changes};

/// Writes the functions and contexts with the largest changes.
///
/// # Errors
/// Those of `out`.
pub fn write(changes: &Changes, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = (counted(changes.before.values, "value"), changes.after.values);
    writeln!(out, "share of {} by own value, {before} before and {after} after", changes.metric)?;
    if let Some([before, after]) = changes.totals_from_zero() {
        writeln!(out, "total {before} before and {after} after")?;
    }
    if let Some(change) = changes.total.change {
        let (change, bound) = (change * 100.0, changes.total.bound * 100.0);
        writeln!(
            out,
            "total {change:+.2}% ±{bound:.2}% of what it was; runs of one program may differ by more"
        )?;
    }
    writeln!(
        out,
        "± is what chance alone changes in 95 of 100 cases; `?` marks changes that chance may explain"
    )?;
    for note in changes.notes() {
        writeln!(out, "note: {note}")?;
    }
    let tables = [&changes.functions, &changes.contexts];
    let short = changes.short_frames(&tables);
    for ((title, table), short) in ["functions", "contexts"].iter().zip(tables).zip(&short) {
        writeln!(out, "\n{title}")?;
        rows(table, short, out)?;
    }
    out.flush()
}

fn rows(table: &ChangeTable, short: &[Vec<String>], out: &mut dyn Write) -> io::Result<()> {
    if table.rows.is_empty() && table.left_out == 0 {
        return writeln!(out, "  nothing differs");
    }
    writeln!(out, "{:>10} {:>8} {:>8} {:>8}", "change", "±", "before", "after")?;
    for (row, frames) in table.rows.iter().zip(short) {
        let mark = if row.significant { ' ' } else { '?' };
        let percent = |share: f64| share * 100.0;
        let (change, bound) = (percent(row.change), percent(row.bound));
        let [before, after] = [row.before.share, row.after.share].map(percent);
        let path = path(frames);
        writeln!(out, "{change:>+9.2}%{mark}{bound:>7.2}% {before:>7.2}% {after:>7.2}%  {path}")?;
    }
    match (table.left_out, table.significant_left_out) {
        (0, _) => Ok(()),
        (more, significant) => {
            let differ = if more == 1 { "differs" } else { "differ" };
            writeln!(
                out,
                "{more} more {differ}, {significant} of them by more than chance (--limit shows more)"
            )
        }
    }
}

/// A path shortened in its middle: its begin and end matter most.
fn path(frames: &[String]) -> String {
    match frames {
        [outermost, .., _] if frames.len() > DEPTH => {
            format!("{outermost};…;{}", frames[frames.len() - (DEPTH - 1)..].join(";"))
        }
        frames => frames.join(";"),
    }
}
