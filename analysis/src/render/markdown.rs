//! Markdown of a comparison of two profiles.
//!
//! Owns: [`write_comparison`]. Because: a CI pipeline shows it beside the change that it checked. Does not: decide
//! whether the pipeline fails.

use std::io::{self, Write};

use deepctx_profile::frame::is_printable;
use deepctx_profile::units::{counted, counted_as};

use crate::diff::Changes;

/// Writes the functions that changed by more than noise, as a table in GitHub's Markdown.
///
/// # Errors
/// Those of `out`.
pub fn write_comparison(changes: &Changes, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = (counted(changes.before.values, "value"), changes.after.values);
    writeln!(out, "### Share of {}, {before} before and {after} after\n", changes.metric)?;
    if let Some([before, after]) = changes.totals_from_zero() {
        writeln!(out, "The total was {before} before and {after} after.\n")?;
    }
    if let Some(change) = changes.total.change {
        let (change, bound) = (change * 100.0, changes.total.bound * 100.0);
        writeln!(out, "The total changed by {change:+.2} % (±{bound:.2} % by chance).\n")?;
    }
    for note in changes.notes() {
        writeln!(out, "> {}\n", plain(&note))?;
    }
    let short = changes.short_frames(&[&changes.functions]).concat();
    let rows = changes.functions.rows.iter().zip(&short);
    let rows: Vec<_> = rows.filter(|(row, _)| row.significant).collect();
    if rows.is_empty() {
        writeln!(out, "No function changed by more than chance explains.")?;
        return out.flush();
    }
    writeln!(out, "| change | ± | before | after | function |\n|---:|---:|---:|---:|---|")?;
    for (row, frames) in &rows {
        let [change, bound, before, after] =
            [row.change, row.bound, row.before.share, row.after.share].map(|share| share * 100.0);
        let name = code(&frames.join(";"));
        writeln!(out, "| {change:+.2} % | {bound:.2} % | {before:.2} % | {after:.2} % | {name} |")?;
    }
    let more = changes.functions.significant_left_out;
    if more > 0 {
        let more = counted_as(more as u64, "more function", "more functions");
        writeln!(out, "\n{more} changed by more than chance explains.")?;
    }
    out.flush()
}

/// Escapes Markdown: a profile may contain any option values.
fn plain(text: &str) -> String {
    let escaped = |c: char| {
        let sign = c.is_ascii_punctuation() && !"-,.:%".contains(c);
        sign.then_some('\\').into_iter().chain(Some(c).filter(|c| is_printable(*c)))
    };
    text.chars().flat_map(escaped).collect()
}

/// A name as code within a cell, escaped so that it ends neither.
fn code(name: &str) -> String {
    let cleaned: String = name.chars().map(|c| if is_printable(c) && c != '`' { c } else { '\'' }).collect();
    format!("`{}`", cleaned.replace('|', "\\|"))
}
