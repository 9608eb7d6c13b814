//! The report: the hottest functions and contexts of a profile, and what was lost, as text for people.
//!
//! Owns: [`write()`]. Because: `report`, and a demo without a terminal, must say in one page where the time went and
//! how far to believe it. Does not: promise its layout to programs; that is what `export` is for.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use crate::activity::{GpuProcess, Join, Shape, Tier};
use crate::frame::{Frame, clean};
use crate::ledger::{Stage, When};
use crate::metric::{Metric, Unit};
use crate::profile::Profile;
use crate::units::{Bytes, Nanos};
use crate::view::{Grain, Screen, Selection, losses};

/// How much to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Most functions and most contexts.
    pub rows: usize,
    /// Most frames of one context, counted from the leaf; the outermost one always shows.
    pub depth: usize,
}

impl Default for Extent {
    /// Ten of each, which fits a terminal.
    fn default() -> Self {
        Extent { rows: 10, depth: 8 }
    }
}

/// Widest function name in the table; longer ones lose their middle.
const NAME_WIDTH: usize = 56;
/// Widest place in the table; longer ones lose their beginning.
const PLACE_WIDTH: usize = 44;

/// Writes the report of a selection.
pub fn write(
    profile: &Profile,
    selection: &Selection,
    extent: Extent,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut screen = Screen::new(*selection);
    screen.refresh(profile);
    head(profile, selection, &screen, out)?;
    functions(selection, &screen, extent, out)?;
    contexts(selection, &screen, extent, out)?;
    devices(profile, extent, out)?;
    kernels(profile, extent, out)?;
    account(profile, out)?;
    out.flush()
}

fn head(profile: &Profile, selection: &Selection, screen: &Screen, out: &mut dyn Write) -> io::Result<()> {
    let meta = &profile.meta;
    let target = if meta.target.is_empty() { "an unnamed target" } else { meta.target.as_str() };
    let total = profile.tree.total(selection.metric);
    write!(out, "{} of {}", selection.metric, clean(target))?;
    if !meta.host.is_empty() {
        write!(out, " on {}", clean(&meta.host))?;
    }
    write!(
        out,
        "\n{} in {}",
        amount(selection.metric.unit(), screen.total()),
        counted(total.count, "value")
    )?;
    if meta.frequency_hz > 0 {
        write!(out, ", {} Hz per CPU", meta.frequency_hz)?;
    }
    writeln!(out, ", {}", counted(profile.tree.len() as u64 - 1, "calling context"))
}

fn functions(selection: &Selection, screen: &Screen, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nHottest functions")?;
    let rows = screen.table(Grain { rows: extent.rows, ..Grain::default() });
    if rows.is_empty() {
        return writeln!(out, "  there are no values of {}", selection.metric);
    }
    let names: Vec<String> = rows.iter().map(|row| without_middle(&row.label, NAME_WIDTH)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("function".len());
    writeln!(out, "    self   total  {:width$}  where", "function")?;
    for (row, name) in rows.iter().zip(&names) {
        let [own, all] = [row.exclusive, row.inclusive].map(|value| share(value, screen.total()));
        let line = format!("  {own}  {all}  {name:width$}  {}", without_start(&row.detail, PLACE_WIDTH));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn contexts(selection: &Selection, screen: &Screen, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let contexts = screen.hottest(extent.rows);
    if contexts.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nHottest contexts, innermost call first")?;
    for (value, stack) in contexts {
        let (share, value) = (share(value, screen.total()), amount(selection.metric.unit(), value));
        let mut frames = stack.iter().rev();
        let leaf = frames.next().map_or("all", |leaf| leaf);
        writeln!(out, "  {share}  {value:>7}  {}", without_middle(leaf, 2 * NAME_WIDTH))?;
        let callers: Vec<&&str> = frames.collect();
        // A line that says "one more frame" could as well show it.
        let hidden = match callers.len().saturating_sub(extent.depth.max(1)) {
            1 => 0,
            hidden => hidden,
        };
        for (place, caller) in callers.iter().enumerate() {
            // The last one is the outermost: the process.
            if hidden > 0 && place + 1 < callers.len() && place + 1 >= callers.len() - hidden {
                if place + 1 == callers.len() - hidden {
                    writeln!(out, "{:21}… {}", "", counted(hidden as u64, "more frame"))?;
                }
                continue;
            }
            writeln!(out, "{:21}{}", "", without_middle(caller, 2 * NAME_WIDTH))?;
        }
    }
    Ok(())
}

/// From where the times of devices come, and whether both sides saw the same.
fn devices(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let processes = &profile.gpu.processes;
    if processes.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nDevices")?;
    for process in processes.iter().take(extent.rows) {
        write!(out, "  process {}: {}", process.pid, process.tier)?;
        if !process.note.is_empty() {
            write!(out, " ({})", clean(&process.note))?;
        }
        writeln!(out)?;
        for line in device_lines(process) {
            writeln!(out, "    {line}")?;
        }
    }
    match processes.len().saturating_sub(extent.rows) {
        0 => Ok(()),
        more => writeln!(
            out,
            "  … {}",
            if more == 1 { "1 more process".to_owned() } else { format!("{more} more processes") }
        ),
    }
}

/// What kernels need to run, and how many of their blocks that lets run at once: those that were launched most.
fn kernels(profile: &Profile, extent: Extent, out: &mut dyn Write) -> io::Result<()> {
    let mut known: FxHashMap<&str, (u64, Shape)> = FxHashMap::default();
    for (node, shape) in profile.gpu.shapes().filter(|(_, shape)| shape.registers.is_some()) {
        let Frame::GpuKernel { name } = profile.frames.get(profile.tree.node(node).frame) else { continue };
        let launches = profile.tree.exclusive(node, Metric::Kernels).sum;
        let known = known.entry(profile.strings.get(name)).or_insert((0, *shape));
        if launches > known.0 {
            known.1 = *shape;
        }
        known.0 += launches;
    }
    if known.is_empty() {
        return Ok(());
    }
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_by(|(name, (n, _)), (other, (m, _))| m.cmp(n).then_with(|| name.cmp(other)));
    writeln!(out, "\nKernels launched most, and what a block of them takes")?;
    writeln!(out, "  launches  threads  registers     shared  at once on a multiprocessor")?;
    for (name, (launches, shape)) in known.into_iter().take(extent.rows) {
        let threads = shape.block.iter().fold(1u32, |threads, of| threads.saturating_mul(of.last));
        let registers = shape.registers.map_or_else(String::new, |of| of.last.to_string());
        let shared = shape.shared().map_or_else(String::new, |bytes| Bytes(bytes.into()).to_string());
        let fits = match (shape.occupancy(), shape.arch) {
            (Some(fits), Some(arch)) => format!(
                "{}: {:.0}% of warps, as many as {} of sm_{} allow",
                counted(fits.blocks.into(), "block"),
                f64::from(fits.warps) * 100.0 / f64::from(fits.warps_max),
                fits.limit,
                arch.last
            ),
            _ => "not known".to_owned(),
        };
        writeln!(out, "  {launches:>8}  {threads:>7}  {registers:>9}  {shared:>9}  {fits}")?;
        writeln!(out, "            {}", without_middle(&clean(name), 2 * NAME_WIDTH))?;
    }
    Ok(())
}

/// What is known of the device work of a process, in lines for people: `report` and the live view say the same.
pub fn device_lines(process: &GpuProcess) -> Vec<String> {
    let mut lines = Vec::new();
    let seen = [
        (process.launches, "kernel launch", "kernel launches"),
        (process.graph_launches, "graph launch", "graph launches"),
        (process.transfers, "copy or fill", "copies and fills"),
        (process.captured, "launch into a graph", "launches into graphs"),
    ];
    let seen: Vec<_> = seen
        .into_iter()
        .filter(|(n, ..)| *n > 0)
        .map(|(n, one, many)| format!("{n} {}", if n == 1 { one } else { many }))
        .collect();
    if !seen.is_empty() {
        lines.push(seen.join(", "));
    }
    if process.launches_without_stack > 0 {
        let share = process.launches_without_stack as f64 * 100.0 / process.launches.max(1) as f64;
        let n = process.launches_without_stack;
        lines.push(format!(
            "stacks are sampled: {n} launches ({share:.1}%) have none; counts and times are exact"
        ));
    }
    match process.tier {
        Tier::Observed if process.busy_at_most_ns > 0 => lines.push(format!(
            "device time is not measured; devices were busy at most {} between launches and waits",
            Nanos(process.busy_at_most_ns)
        )),
        Tier::Observed => lines.push("device time is not measured".to_owned()),
        Tier::Borrowed | Tier::Collected => {
            let how = match process.join {
                Join::Exact => "by correlation id",
                Join::Estimated => "by order, an estimate",
                Join::None => "not at all",
            };
            let told = process.kernels + process.graph_kernels;
            lines.push(format!(
                "{} told, {} joined with launches {how}",
                counted(told, "kernel"),
                process.joined
            ));
            lines.push(format!(
                "{} by probes, {} by activities: difference {}",
                match process.launches_collected {
                    1 => "1 launch".to_owned(),
                    n => format!("{n} launches"),
                },
                counted(process.kernels, "kernel"),
                process.difference()
            ));
        }
    }
    if let Some(clock) = process.clock {
        let drift = Nanos(clock.drift_ns.unsigned_abs());
        lines.push(format!(
            "device clock known to {}, moved by {drift} over {}",
            Nanos(clock.uncertainty_ns),
            counted(clock.readings, "reading")
        ));
    }
    if process.overhead_ns > 0 {
        lines.push(format!("the profiling interface itself took {}", Nanos(process.overhead_ns)));
    }
    lines
}

/// What became of the records: the ledger, the losses and gaps, and whether it all adds up.
fn account(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let ledger = &profile.ledger;
    writeln!(out, "\nLosses and gaps")?;
    match ledger.lost_share() {
        None => writeln!(out, "  no records were counted")?,
        Some(share) => writeln!(
            out,
            "  {} of {} lost ({:.2}%)",
            ledger.lost(),
            counted(ledger.received(), "record"),
            share * 100.0
        )?,
    }
    for row in losses(profile) {
        let what = if row.lost { "lost" } else { "gap" };
        let (reason, sentence) = (clean(&row.reason), clean(&row.sentence));
        writeln!(out, "  {:10} {reason:22} {:>9}  {what:4}  {sentence}", row.stage, row.count)?;
    }
    // A profile that is cut short in the middle has records under way, which is no error.
    let unfinished = ledger.stage(Stage::Store).gaps.count("not-finished") > 0;
    let when = if unfinished { When::Running } else { When::Finished };
    if let Err(imbalance) = ledger.check(when) {
        writeln!(out, "  THE LEDGER DOES NOT ADD UP: {imbalance}")?;
    }
    Ok(())
}

fn amount(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Nanoseconds => Nanos(value).to_string(),
        Unit::Bytes => Bytes(value).to_string(),
        Unit::Count => value.to_string(),
    }
}

fn counted(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A share in percent, six columns wide.
fn share(part: u64, whole: u64) -> String {
    format!("{:5.1}%", if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 })
}

fn without_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let (head, tail) = ((width - 1) / 2, width - 1 - (width - 1) / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

fn without_start(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    ['…'].into_iter().chain(text.chars().skip(length + 1 - width)).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::activity::ClockOffset;
    use crate::ledger::Reason;
    use crate::view::tests::profile;

    fn check(profile: &Profile, expect: Expect) {
        let mut out = Vec::new();
        let extent = Extent { rows: 3, depth: 3 };
        write(profile, &Selection::of(Metric::CpuTime), extent, &mut out).unwrap();
        expect.assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn a_page_tells_where_the_time_went_and_what_was_lost() {
        let mut profile = profile(
            "P python3-7 / n _start@python3 / y /srv/a/very/long/path/to/some/where/in/the/tree/train.py:main:9 / y /a/train.py:step:30 / o aten::addmm / n gemm@/l/libmkl.so 5000000000
             P python3-7 / n _start@python3 / y /srv/a/very/long/path/to/some/where/in/the/tree/train.py:main:9 / n read@/l/libc.so / k vfs_read 40000000
             P python3-7 / n std::vector<std::pair<std::string, std::map<int, std::string>>>::emplace_back<std::string> 7000000",
        );
        profile.meta.host = "gpu-1".to_owned();
        for stage in [Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute] {
            profile.ledger.stage_mut(stage).pass(3);
        }
        profile.ledger.stage_mut(Stage::Decode).received += 1;
        profile.ledger.dropped(Stage::Decode, Reason::new("short-record", "the record is too short"), 1);
        profile.ledger.gap(
            Stage::Resolve,
            Reason::new("no-row", "the unwind table has no row for this PC"),
            1,
        );
        check(
            &profile,
            expect![[r#"
                cpu-time of python train.py (pid 7) on gpu-1
                5.05 s in 3 values, 99 Hz per CPU, 9 calling contexts

                Hottest functions
                    self   total  function                                                  where
                   99.1%   99.1%  gemm                                                      /l/libmkl.so
                    0.8%    0.8%  vfs_read_[k]
                    0.1%    0.1%  std::vector<std::pair<std::…>::emplace_back<std::string>

                Hottest contexts, innermost call first
                   99.1%   5.00 s  gemm
                                     aten::addmm
                                     train.py:step
                                     … 2 more frames
                                     python3-7
                    0.8%  40.0 ms  vfs_read_[k]
                                     read
                                     train.py:main
                                     _start
                                     python3-7
                    0.1%  7.00 ms  std::vector<std::pair<std::string, std::map<int, std::string>>>::emplace_back<std::string>
                                     python3-7

                Losses and gaps
                  1 of 4 records lost (25.00%)
                  decode     short-record                   1  lost  the record is too short
                  resolve    no-row                         1  gap   the unwind table has no row for this PC
            "#]],
        );
    }

    #[test]
    fn devices_say_from_where_their_times_come() {
        let check = |process: GpuProcess, expect: &[&str]| assert_eq!(device_lines(&process), expect);
        check(
            GpuProcess {
                launches: 4,
                launches_without_stack: 1,
                graph_launches: 1,
                busy_at_most_ns: 5_000_000,
                ..GpuProcess::default()
            },
            &[
                "4 kernel launches, 1 graph launch",
                "stacks are sampled: 1 launches (25.0%) have none; counts and times are exact",
                "device time is not measured; devices were busy at most 5.00 ms between launches and waits",
            ],
        );
        check(
            GpuProcess {
                tier: Tier::Collected,
                join: Join::Exact,
                launches: 12,
                launches_collected: 10,
                kernels: 8,
                graph_kernels: 5,
                joined: 13,
                clock: Some(ClockOffset { offset_ns: 1, uncertainty_ns: 1500, drift_ns: -20, readings: 7 }),
                ..GpuProcess::default()
            },
            &[
                "12 kernel launches",
                "13 kernels told, 13 joined with launches by correlation id",
                "10 launches by probes, 8 kernels by activities: difference 2",
                "device clock known to 1.50 µs, moved by 20 ns over 7 readings",
            ],
        );
    }

    #[test]
    fn an_empty_profile_says_so() {
        check(
            &profile(""),
            expect![[r#"
            cpu-time of python train.py (pid 7)
            0 ns in 0 values, 99 Hz per CPU, 0 calling contexts

            Hottest functions
              there are no values of cpu-time

            Losses and gaps
              no records were counted
        "#]],
        );
    }

    #[test]
    fn a_ledger_that_does_not_add_up_is_told() {
        let mut profile = profile("P a-1 / n f 1");
        profile.ledger.stage_mut(Stage::Decode).received = 2;
        let mut out = Vec::new();
        write(&profile, &Selection::of(Metric::CpuTime), Extent::default(), &mut out).unwrap();
        assert!(
            String::from_utf8(out).unwrap().contains("THE LEDGER DOES NOT ADD UP: stage decode: received 2")
        );
    }

    #[test]
    fn long_texts_keep_what_tells_them_apart() {
        assert_eq!(without_middle("abcdefghij", 7), "abc…hij");
        assert_eq!(without_start("/a/b/train.py:12", 12), "…train.py:12");
        assert_eq!(without_start("ééé", 3), "ééé");
    }
}
