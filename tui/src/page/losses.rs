//! Losses page: what is missing or has a gap, why, and what profiling costs, in lines.
//!
//! Owns: the lines of the page. Because: a profile that hides what it lost, or what it did not measure, cannot be
//! trusted otherwise. Does not: judge how much is too much, or draw.

use deepctx_profile::snapshot::{LossRow, Snapshot, StageRow};

use crate::text;

/// How a text stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Quiet,
    Alarm,
}

/// A line of the page.
pub(crate) enum LossLine<'a> {
    Blank,
    Title(String),
    Text(String, Tone),
    /// Titles of the columns of [`LossLine::Stage`].
    Stages,
    Stage(&'a StageRow),
    Row(&'a LossRow),
}

/// Every line of the page.
pub(crate) fn lines(snapshot: &Snapshot) -> Vec<LossLine<'_>> {
    let header = &snapshot.header;
    let all = header.samples.saturating_add(header.lost);
    let kept = format!(
        "{} of {} samples kept ({})",
        text::count(header.samples),
        text::count(all),
        text::percent(header.samples, all)
    );
    let tone = if header.lost > 0 { Tone::Alarm } else { Tone::Plain };
    let mut out = vec![LossLine::Title("Samples".to_owned()), LossLine::Text(kept, tone)];
    if let Some(share) = header.complete_share {
        let complete =
            format!("{} of native stacks are complete to the start of the thread", text::share(share));
        out.push(LossLine::Text(complete, Tone::Plain));
    }
    let share = if header.own_cpu_share.is_finite() { header.own_cpu_share.max(0.0) } else { 0.0 };
    let cost = format!("{:.1}% of one CPU, {} of memory", share * 100.0, text::bytes(header.own_memory));
    out.extend([
        LossLine::Blank,
        LossLine::Title("Profiler overhead".to_owned()),
        LossLine::Text(cost, Tone::Plain),
    ]);
    for device in &snapshot.devices {
        let title = match device.note.as_str() {
            "" => format!("Devices of {}: {}", device.process, device.tier),
            note => format!("Devices of {}: {} ({note})", device.process, device.tier),
        };
        out.extend([LossLine::Blank, LossLine::Title(title)]);
        out.extend(device.lines.iter().map(|line| LossLine::Text(line.clone(), Tone::Plain)));
    }
    let parts = [("Lost", true, "nothing was lost"), ("Kept with a gap", false, "no gaps")];
    for (title, lost, none) in parts {
        out.extend([LossLine::Blank, LossLine::Title(title.to_owned())]);
        let before = out.len();
        out.extend(snapshot.losses.iter().filter(|row| row.lost == lost).map(LossLine::Row));
        if out.len() == before {
            out.push(LossLine::Text(none.to_owned(), Tone::Quiet));
        }
    }
    if !snapshot.stages.is_empty() {
        out.extend([
            LossLine::Blank,
            LossLine::Title("Records by stage: received = kept + merged + lost".to_owned()),
            LossLine::Stages,
        ]);
        out.extend(snapshot.stages.iter().map(LossLine::Stage));
    }
    out
}
