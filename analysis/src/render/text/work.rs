//! Text of the tables on device work.
//!
//! Owns: their columns. Because: each of them has hundreds of rows, and a screen has room for the first. Does not:
//! compute; JSON has every row.

use deepctx_profile::order::SortRows as _;
use std::io::{self, Write};

use deepctx_profile::frame::FrameKind;
use deepctx_profile::units::Nanos;

use super::{more, short_column, short_kernels};
use crate::over_time::{
    Annotations, ClassOverlap, DeviceGaps, ExposedWork, KernelClasses, OverTime, Pace, PacedKind,
};

/// Widest name of a kernel, a range or a call.
const NAME_WIDTH: usize = 48;

/// Writes the tables on the work of devices.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(tables: &OverTime, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    classes(&tables.kernel_classes, rows, out)?;
    gaps(&tables.gaps, rows, out)?;
    exposed(&tables.exposed, rows, out)?;
    annotations(&tables.annotations, rows, out)?;
    pacing(&tables.pacing, tables.pacing_left_out, rows, out)
}

/// Names of ranges, calls and device work, among which are such with no parts: they are only cut.
fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    short_column(names.into_iter().map(|name| (FrameKind::Operator, name)), NAME_WIDTH)
}

/// The running classes, in words.
pub(in crate::render) fn together_in_words(part: &ClassOverlap) -> String {
    part.classes.join(" + ")
}

fn classes(all: &[KernelClasses], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWork by class, each moment by what runs then")?;
    for of in all.iter().take(rows) {
        let part = |part: &ClassOverlap| format!("{} {:.1}%", together_in_words(part), part.percent);
        let parts: Vec<String> = of.together.iter().map(part).collect();
        writeln!(out, "  rank {} device {}: {}", of.rank, of.device, parts.join(", "))?;
        let kernels = of.classes.iter().flat_map(|class| &class.kernels);
        let mut kernels: Vec<_> = kernels.collect();
        kernels.sort_rows_by_key(|kernel| std::cmp::Reverse(kernel.lengths.sum_ns));
        let listed = kernels.iter().take(if all.len() > 1 { 0 } else { rows });
        let names = short_kernels(listed.clone().map(|kernel| &kernel.name), NAME_WIDTH);
        for (kernel, name) in listed.zip(names) {
            let lengths = &kernel.lengths;
            let [sum, least, most] =
                [lengths.sum_ns, lengths.min_ns, lengths.max_ns].map(|ns| Nanos(ns).to_string());
            writeln!(out, "    {sum:>8}  {:>7} × {name}, {least} to {most}", lengths.count)?;
        }
        if all.len() == 1 {
            let left_out = of.classes.iter().map(|class| class.left_out).sum::<usize>();
            more(kernels.len() + left_out, rows.min(kernels.len()), "kernel", out)?;
        }
    }
    more(all.len(), rows, "device", out)
}

fn gaps(all: &[DeviceGaps], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut longest: Vec<_> =
        all.iter().flat_map(|of| of.longest.iter().map(move |gap| (of.rank, of.device, gap))).collect();
    if longest.is_empty() {
        return Ok(());
    }
    longest.sort_rows_by_key(|(rank, device, gap)| (std::cmp::Reverse(gap.length_ns), *rank, *device));
    writeln!(out, "\nLongest gaps of devices")?;
    writeln!(
        out,
        "  rank device     begin    length  launched after  until; meanwhile on the launching thread"
    )?;
    let shown = longest.iter().take(rows);
    let behind = names(shown.clone().map(|(_, _, gap)| gap.behind.as_str()));
    let hosts = names(shown.clone().map(|(_, _, gap)| gap.host.as_deref().unwrap_or_default()));
    for ((rank, device, gap), (behind, host)) in shown.zip(behind.iter().zip(hosts)) {
        let [begin, length] = [gap.begin_ns, gap.length_ns].map(|ns| Nanos(ns).to_string());
        let until = gap.until_launch_ns.map_or_else(|| "–".to_owned(), |ns| Nanos(ns).to_string());
        let host = match gap.host {
            Some(_) => format!("; {} {host}", Nanos(gap.host_ns)),
            None => String::new(),
        };
        writeln!(out, "  {rank:>4} {device:>6} {begin:>9} {length:>9} {until:>15}  {behind}{host}")?;
    }
    // The table has the longest ones, and the number of all.
    let gaps = all.iter().map(|of| of.count).sum::<u64>() as usize;
    more(gaps, rows.min(longest.len()), "gap", out)
}

fn exposed(all: &[ExposedWork], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCopies and communication: alone on the device, and waited for")?;
    writeln!(out, "  rank device     count      time   exposed  blocking      both  what")?;
    let shown = all.iter().take(rows);
    for (row, name) in shown.clone().zip(names(shown.map(|row| row.name.as_str()))) {
        let times = [row.time_ns, row.exposed_ns, row.blocking_ns, row.exposed_and_blocking_ns];
        let [time, exposed, blocking, both] = times.map(|ns| Nanos(ns).to_string());
        let (rank, device, count) = (row.rank, row.device, row.count);
        // If clocks account for more than a twentieth of it.
        let is_much = |within_ns: &u64| row.blocking_ns > 0 && within_ns.saturating_mul(20) > row.blocking_ns;
        let within = row.blocking_within_ns.filter(is_much);
        let within = within.map_or_else(String::new, |ns| format!("  (blocking ± {})", Nanos(ns)));
        writeln!(
            out,
            "  {rank:>4} {device:>6} {count:>9} {time:>9} {exposed:>9} {blocking:>9} {both:>9}  {name}{within}"
        )?;
    }
    more(all.len(), rows, "row", out)
}

fn annotations(all: &[Annotations], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    let listed: Vec<_> = all.iter().flat_map(|of| &of.rows).collect();
    if listed.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nRanges of the program, with what was launched within them")?;
    writeln!(out, "  rank     count      host    device  operations  name")?;
    let shown = listed.iter().take(rows);
    for (row, name) in shown.clone().zip(names(shown.map(|row| row.name.as_str()))) {
        let lengths = row.host.or(row.projected);
        let (count, host) = lengths.map_or((0, 0), |lengths| (lengths.count, lengths.sum_ns));
        let [host, device] = [host, row.device_ns].map(|ns| Nanos(ns).to_string());
        let rank = row.rank;
        writeln!(out, "  {rank:>4} {count:>9} {host:>9} {device:>9} {:>11}  {name}", row.launched)?;
    }
    let left_out = all.iter().map(|of| of.left_out).sum::<usize>();
    more(listed.len() + left_out, rows.min(listed.len()), "name", out)
}

/// What recurs, in words.
pub(in crate::render) fn paced_in_words(row: &Pace) -> String {
    match row.kind {
        PacedKind::Step => format!("step {}", row.name),
        PacedKind::Range => format!("range {}", row.name),
        PacedKind::Kernel => row.name.clone(),
    }
}

fn pacing(all: &[Pace], left_out: usize, rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPacing: from one begin to the next")?;
    writeln!(out, "  rank     count      mean     least      most  deviation  pauses, mean  what")?;
    let paced: Vec<String> = all.iter().take(rows).map(paced_in_words).collect();
    for (row, name) in all.iter().zip(names(paced.iter().map(String::as_str))) {
        let again = &row.begin_to_begin;
        let [mean, deviation, pauses] =
            [again.mean_ns, again.deviation_ns, row.between.mean_ns].map(|ns| Nanos(ns as u64).to_string());
        let [least, most] = [again.min_ns, again.max_ns].map(|ns| Nanos(ns).to_string());
        let (rank, count) = (row.rank, row.lengths.count);
        writeln!(
            out,
            "  {rank:>4} {count:>9} {mean:>9} {least:>9} {most:>9} {deviation:>10} {pauses:>13}  {name}"
        )?;
    }
    more(all.len() + left_out, rows.min(all.len()), "row", out)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::Steps;

    #[test]
    fn rows_that_tables_leave_out_are_counted() {
        // Of these 29 gaps the table has 20, of the 600 ranges 500.
        let kernel = |n: u64| format!("kernel 0/7 {}..{} k{n}\n", 10 * n, 10 * n + 5);
        let range = |n: u64| format!("range m {n}..{n}.5 r{n}\n");
        let input: String = (0..30).map(kernel).chain((0..600).map(range)).collect();
        let job = Job::new(vec![("a.json".to_owned(), text::parse(&input).unwrap())]).unwrap();
        let tables = OverTime::compute(&job, Steps::default());
        let mut out = Vec::new();
        write(&tables, 25, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        for said in ["… 5 kernels more\n", "… 9 gaps more\n", "… 575 names more\n"] {
            assert!(shown.contains(said), "no {said} in {shown}");
        }
    }

    #[test]
    fn names_that_pacing_leaves_out_are_counted() {
        // Of these 23 kernels, each of which comes three times, the table has 20.
        let kernel = |n: u64| format!("kernel 0/7 {}..{} k{}\n", 10 * n, 10 * n + 5, n % 23);
        let trace = text::parse(&(0..69).map(kernel).collect::<String>()).unwrap();
        let tables =
            OverTime::compute(&Job::new(vec![("a.json".to_owned(), trace)]).unwrap(), Steps::default());
        let mut out = Vec::new();
        pacing(&tables.pacing, tables.pacing_left_out, 5, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.ends_with("… 18 rows more\n"), "{shown}");
    }
}
