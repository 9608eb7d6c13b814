//! Health page: what is missing or has a gap, why, and what profiling costs, in lines.
//!
//! Owns: the lines of the page. Because: a profile that hides what it lost, or what it did not measure, cannot be
//! trusted otherwise. Does not: judge how much is too much, or draw.

use deepctx_profile::units::Bytes;
use deepctx_profile::view::Level;
use deepctx_profile::view::snapshot::{LossRow, Overhead, Snapshot, StageRow};

use crate::text;

/// Columns before an advice, from the left of texts: it begins below the stage.
const INDENT: usize = 12;
/// Maximum lines of an advice; with 80 columns, none needs more.
const ADVICE_LINES: usize = 4;
/// Text where records were lost, but too few to act on.
const FEW_LOST: &str = "less than 0.1% was lost for any reason: see below";

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

/// Every line of the page, at this width.
pub(crate) fn lines(snapshot: &Snapshot, columns: usize) -> Vec<HealthLine<'_>> {
    let header = &snapshot.header;
    let all = header.samples.saturating_add(header.lost);
    let kept = format!(
        "{} of {} kept ({})",
        text::count(header.samples),
        text::counted(all, "sample"),
        text::percent(header.samples, all)
    );
    let is_large = snapshot.losses.iter().any(LossRow::asks_for_action);
    let tone = if is_large { Tone::Alarm } else { Tone::Plain };
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
    out.extend(Level::ALL.into_iter().flat_map(|level| of_level(level, &snapshot.losses, columns)));
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

/// The losses and gaps of a level, each with its advice. A level without any says so, if one may look for them.
fn of_level(level: Level, losses: &[LossRow], columns: usize) -> Vec<HealthLine<'_>> {
    let rows: Vec<&LossRow> = losses.iter().filter(|row| row.level() == level).collect();
    let none = match level {
        Level::Act if losses.iter().any(|row| row.lost) => FEW_LOST,
        Level::Act => "nothing was lost",
        Level::WorthKnowing => "no gaps",
        Level::Fine if rows.is_empty() => return Vec::new(),
        Level::Fine => "",
    };
    let mut out = vec![HealthLine::Blank, HealthLine::Title(level.title().to_owned())];
    if rows.is_empty() {
        out.push(HealthLine::Text(none.to_owned(), Tone::Quiet));
    }
    for row in rows {
        out.push(HealthLine::Row(row));
        out.extend(advice(row, columns));
    }
    out
}

/// What helps, below a row and behind its number.
fn advice(row: &LossRow, columns: usize) -> impl Iterator<Item = HealthLine<'_>> {
    let indent = INDENT.min(columns / 5);
    // Lines of text begin in the third column; the arrow takes two.
    let room = columns.saturating_sub(indent + 4);
    let lines = text::wrap(row.advice().unwrap_or_default(), room, ADVICE_LINES);
    let arrows = std::iter::once("→").chain(std::iter::repeat(" "));
    arrows
        .zip(lines)
        .map(move |(arrow, line)| HealthLine::Text(format!("{:indent$}{arrow} {line}", ""), Tone::Plain))
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
        let texts: Vec<String> = lines(&snapshot, 80)
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

    fn loss(stage: &str, reason: &str, lost: bool) -> LossRow {
        let [stage, reason, sentence] = [stage, reason, "so it is"].map(str::to_owned);
        LossRow { stage, reason, sentence, count: 7, received: 10, lost }
    }

    /// The lines from the first level on.
    fn levels(losses: Vec<LossRow>, columns: usize) -> Vec<String> {
        let snapshot = Snapshot { losses, ..Snapshot::default() };
        let lines = lines(&snapshot, columns).into_iter();
        let texts = lines.map(|line| match line {
            HealthLine::Title(text) | HealthLine::Text(text, _) => text,
            HealthLine::Row(row) => format!("{} {}", row.stage, row.reason),
            HealthLine::Blank | HealthLine::Stages | HealthLine::Stage(_) => String::new(),
        });
        texts.skip_while(|text| !text.starts_with("Act")).filter(|text| !text.is_empty()).collect()
    }

    #[test]
    fn rows_stand_below_their_level_with_advice() {
        let losses = vec![
            loss("kernel", "ring-full", true),
            loss("resolve", "no-symbol", false),
            loss("resolve", "no-row", false),
            loss("resolve", "of-another-version", false),
            loss("attribute", "of-another-version", true),
        ];
        let expect = [
            "Act: lost records",
            "kernel ring-full",
            "            → a lower `--freq`: the reader did not get the CPU for long enough",
            "attribute of-another-version",
            "Worth knowing: incomplete records, small losses",
            "resolve no-row",
            "            → hand-written assembler without CFI, or code made at run time",
            "resolve of-another-version",
            "Fine: at most names are missing",
            "resolve no-symbol",
        ];
        assert_eq!(levels(losses, 80), expect);
        let [act, worth_knowing] = [Level::Act, Level::WorthKnowing].map(Level::title);
        assert_eq!(levels(Vec::new(), 80), [act, "nothing was lost", worth_knowing, "no gaps"]);
    }

    #[test]
    fn a_small_loss_is_below_worth_knowing() {
        let [act, worth_knowing] = [Level::Act, Level::WorthKnowing].map(Level::title);
        let small = LossRow { received: 1_000_000, ..loss("kernel", "ring-full", true) };
        let found = levels(vec![small], 80);
        assert_eq!(found[..4], [act, FEW_LOST, worth_knowing, "kernel ring-full"]);
    }

    #[test]
    fn advice_is_wrapped_at_the_width_of_the_screen() {
        let found = levels(vec![loss("kernel", "ring-full", true)], 40);
        let expect = [
            "        → a lower `--freq`: the reader",
            "          did not get the CPU for long",
            "          enough",
        ];
        assert_eq!(found[2..5], expect);
        for columns in 0..200 {
            let found = levels(vec![loss("resolve", "code-too-new", false)], columns);
            let mut advice = found.iter().filter(|line| line.starts_with(' '));
            assert!(advice.all(|line| text::width(line) + 2 <= columns), "{columns}: {found:?}");
        }
        let whole = levels(vec![loss("resolve", "code-too-new", false)], 80);
        assert!(whole.iter().any(|line| line.ends_with("its mappings")), "{whole:?}");
    }
}
