//! Text of two traces compared event by event.
//!
//! Owns: its tables. Because: changes on a device and changes on the host are two questions. Does not: compare; JSON
//! has every row.

use std::io::{self, Write};

use deepctx_profile::frame::FrameKind;
use deepctx_profile::units::Nanos;

use super::{counted, more, short_column};
use crate::over_time::{CountChange, EventChange, EventDifference, EventSide};

/// Widest name.
const NAME_WIDTH: usize = 60;
/// Kinds of events that a device has; all others are the host's.
const OF_DEVICE: [&str; 3] = ["kernel", "copy", "fill"];

/// Writes the largest changes of both sides.
///
/// # Errors
/// Those of `out`.
pub fn write(difference: &EventDifference, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    for (name, side) in [("before", &difference.before), ("after", &difference.after)] {
        let EventSide { files, steps, events } = side;
        let first = files.first().map_or("nothing", String::as_str);
        let others = match files.len() {
            0 | 1 => String::new(),
            all => format!(" and {}", counted(all as u64 - 1, "more file")),
        };
        let (events, steps) = (counted(*events, "event"), counted(*steps, "step"));
        writeln!(out, "{name:6}  {first}{others}: {events}, {steps}")?;
    }
    let (before, after) = (&difference.before, &difference.after);
    if (before.files.len(), before.steps) != (after.files.len(), after.steps) {
        writeln!(
            out,
            "        the sides have unlike numbers of ranks or steps: figures are sums, not scaled"
        )?;
    }
    let named = |change, word: &str| format!("{} {word}", difference.count(change));
    writeln!(
        out,
        "names   {}, {}, {}, {}, {}",
        named(CountChange::Added, "added"),
        named(CountChange::Removed, "removed"),
        named(CountChange::More, "with more events"),
        named(CountChange::Fewer, "with fewer"),
        named(CountChange::Same, "with as many"),
    )?;
    for (title, of_device) in [("Work of devices", true), ("Operators and calls", false)] {
        writeln!(out, "\n{title}, largest change of time first")?;
        let all: Vec<_> = difference
            .rows
            .iter()
            .filter(|row| OF_DEVICE.contains(&row.kind) == of_device)
            .filter(|row| row.change != CountChange::Same || row.time_change_ns() != 0)
            .collect();
        if all.is_empty() {
            writeln!(out, "  nothing differs")?;
            continue;
        }
        writeln!(out, "      change     before      after         count           name")?;
        let shown = all.iter().take(rows);
        for (row, name) in shown.clone().zip(names(shown.copied())) {
            one(row, &name, out)?;
        }
        more(all.len(), rows, "name", out)?;
    }
    out.flush()
}

/// Kernels have short names; all others are only cut.
fn names<'r>(rows: impl Iterator<Item = &'r EventChange>) -> Vec<String> {
    let kind = |row: &EventChange| match row.kind {
        "kernel" => FrameKind::GpuKernel,
        _ => FrameKind::Operator,
    };
    short_column(rows.map(|row| (kind(row), row.name.as_str())), NAME_WIDTH)
}

fn one(row: &EventChange, name: &str, out: &mut dyn Write) -> io::Result<()> {
    let by = row.time_change_ns();
    let sign = if by < 0 { "-" } else { "+" };
    let change = format!("{sign}{}", Nanos(by.unsigned_abs()));
    let [before, after] = [row.before, row.after].map(|sum| Nanos(sum.time_ns).to_string());
    let counts = format!("{} → {}", row.before.count, row.after.count);
    let word = match row.change {
        CountChange::Added => "added   ",
        CountChange::Removed => "removed ",
        CountChange::More => "more    ",
        CountChange::Fewer => "fewer   ",
        CountChange::Same => "",
    };
    writeln!(out, "  {change:>10} {before:>10} {after:>10}  {counts:>18}  {word}{name}")
}
