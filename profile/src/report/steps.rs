//! Steps: how long the named ranges of the program took, and the steps of training that follow from them.
//!
//! Owns: the two tables. Because: who trains counts in steps, and asks whether they are even. Does not: know what a name
//! means.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Extent, NAME_WIDTH, PLACE_WIDTH, amount, counted, without_middle, without_start};
use crate::frame::{Frame, clean};
use crate::metric::{Cell, Metric, Unit};
use crate::profile::Profile;
use crate::tree::NodeId;

/// The tables.
pub(super) fn write(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    table(
        profile,
        Metric::StepTime,
        "Steps, from the end of one to the end of the next",
        "steps",
        extent,
        out,
    )?;
    let title = "Ranges that the program names, without those within them";
    table(profile, Metric::RangeTime, title, "times", extent, out)
}

fn table(
    profile: &Profile,
    metric: Metric,
    title: &str,
    unit: &str,
    extent: Extent,
    out: &mut dyn Write,
) -> io::Result<()> {
    // One line of a program may lead there by several ways.
    let mut rows: BTreeMap<(String, String), Cell> = BTreeMap::new();
    for (node, cell) in profile.tree.cells(metric) {
        rows.entry(words(profile, node)).or_insert(Cell::EMPTY).merge(cell);
    }
    if rows.is_empty() {
        return Ok(());
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, cell)| Reverse(cell.sum));
    writeln!(out, "\n{title}")?;
    writeln!(out, "  {unit:>8}      mean   deviation       least        most  name and where it is entered")?;
    let time = |ns: f64| amount(Unit::Nanoseconds, ns as u64);
    for ((name, place), cell) in rows.iter().take(extent.rows) {
        writeln!(
            out,
            "  {:>8} {:>9}   {:>9}   {:>9}   {:>9}  {name}  {place}",
            cell.count,
            time(cell.mean().unwrap_or(0.0)),
            time(cell.deviation().unwrap_or(0.0)),
            amount(Unit::Nanoseconds, cell.min),
            amount(Unit::Nanoseconds, cell.max),
        )?;
    }
    match rows.len().saturating_sub(extent.rows) {
        0 => Ok(()),
        more => writeln!(out, "  … {}", counted(more as u64, "more place")),
    }
}

/// The name of a range, and the line that entered it: the program's own, where a framework's functions stand between.
fn words(profile: &Profile, node: NodeId) -> (String, String) {
    let stack = profile.tree.stack(node);
    let frames = || stack.iter().rev().map(|frame| profile.frames.get(*frame));
    let name = match frames().next() {
        Some(Frame::Range { name }) => clean(profile.strings.get(name)),
        _ => String::new(),
    };
    let of_program = |frame: &Frame| match frame {
        Frame::Python { file, .. } => !profile.strings.get(*file).contains("/torch/"),
        _ => false,
    };
    let caller = frames().find(of_program);
    let caller = caller.or_else(|| frames().find(|frame| matches!(frame, Frame::Python { .. })));
    let place = caller.map_or_else(String::new, |frame| frame.label(&profile.strings, true));
    (without_middle(&name, NAME_WIDTH), without_start(&place, PLACE_WIDTH))
}
