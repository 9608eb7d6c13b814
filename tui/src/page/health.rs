//! Health page: what is missing or has a gap, why, and what profiling costs, in lines.
//!
//! Owns: the lines of the page. Because: a profile that hides what it lost, or what it did not measure, cannot be
//! trusted otherwise. Does not: judge how much is too much, or draw.

use deepctx_profile::units::Bytes;
use deepctx_profile::view::snapshot::{LossRow, Overhead, Snapshot, StageRow};

use crate::text;

/// Emphasis of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Quiet,
    Alarm,
}

/// A line of the page.
pub(crate) enum HealthLine<'a> {
    Blank,
    Title(String),
    Text(String, Tone),
    /// Titles of the columns of [`HealthLine::Stage`].
    Stages,
    Stage(&'a StageRow),
    Row(&'a LossRow),
}

/// Every line of the page.
pub(crate) fn lines(snapshot: &Snapshot) -> Vec<HealthLine<'_>> {
    let header = &snapshot.header;
    let all = header.samples.saturating_add(header.lost);
    let kept = format!(
        "{} of {} kept ({})",
        text::count(header.samples),
        text::counted(all, "sample"),
        text::percent(header.samples, all)
    );
    let tone = if header.lost > 0 { Tone::Alarm } else { Tone::Plain };
    let mut out = vec![HealthLine::Title("Samples".to_owned()), HealthLine::Text(kept, tone)];
    if let Some(share) = header.complete_share {
        let complete = format!("{} of stacks have no gap in their native part", text::share(share));
        out.push(HealthLine::Text(complete, Tone::Plain));
    }
    let cost = match header.overhead {
        Some(Overhead { cpu_share, memory }) => {
            let share = if cpu_share.is_finite() { cpu_share.max(0.0) } else { 0.0 };
            (format!("{:.1}% of one CPU, {} of memory", share * 100.0, text::bytes(memory)), Tone::Plain)
        }
        None => ("not known: profiles do not store it".to_owned(), Tone::Quiet),
    };
    out.extend([
        HealthLine::Blank,
        HealthLine::Title("Profiler overhead".to_owned()),
        HealthLine::Text(cost.0, cost.1),
    ]);
    out.extend(header.memory.iter().map(|held| {
        let bytes = text::bytes(Bytes(held.bytes));
        HealthLine::Text(format!("{bytes:>10}  {}", held.by), Tone::Quiet)
    }));
    for device in &snapshot.devices {
        let title = match device.note.as_str() {
            "" => format!("Devices of {}: {}", device.process, device.tier),
            note => format!("Devices of {}: {} ({note})", device.process, device.tier),
        };
        out.extend([HealthLine::Blank, HealthLine::Title(title)]);
        out.extend(device.lines.iter().map(|line| HealthLine::Text(line.clone(), Tone::Plain)));
    }
    let parts = [("Lost", true, "nothing was lost"), ("Incomplete stacks", false, "no gaps")];
    for (title, lost, none) in parts {
        out.extend([HealthLine::Blank, HealthLine::Title(title.to_owned())]);
        let before = out.len();
        out.extend(snapshot.losses.iter().filter(|row| row.lost == lost).map(HealthLine::Row));
        if out.len() == before {
            out.push(HealthLine::Text(none.to_owned(), Tone::Quiet));
        }
    }
    if !snapshot.stages.is_empty() {
        out.extend([
            HealthLine::Blank,
            HealthLine::Title("Records by stage: received = kept + merged + lost + in flight".to_owned()),
            HealthLine::Stages,
        ]);
        out.extend(snapshot.stages.iter().map(HealthLine::Stage));
    }
    out
}

#[cfg(test)]
mod tests {
    use deepctx_profile::view::snapshot::{Header, MemoryUse};

    use super::*;

    #[test]
    fn own_memory_is_listed_by_owner() {
        let held = [("kernel: unwind rows", 17 << 20), ("names", 100 << 10)];
        let memory = held.into_iter().map(|(by, bytes)| MemoryUse { by, bytes }).collect();
        let overhead = Some(Overhead { cpu_share: 0.01, memory: Bytes(18 << 20) });
        let snapshot =
            Snapshot { header: Header { overhead, memory, ..Header::default() }, ..Snapshot::default() };
        let texts: Vec<String> = lines(&snapshot)
            .into_iter()
            .skip_while(|line| !matches!(line, HealthLine::Title(title) if title == "Profiler overhead"))
            .map_while(|line| match line {
                HealthLine::Title(text) | HealthLine::Text(text, _) => Some(text),
                _ => None,
            })
            .collect();
        let expect = [
            "Profiler overhead",
            "1.0% of one CPU, 18.0 MiB of memory",
            "  17.0 MiB  kernel: unwind rows",
            "   100 KiB  names",
        ];
        assert_eq!(texts, expect);
    }
}
