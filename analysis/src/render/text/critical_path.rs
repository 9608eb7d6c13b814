//! Text of critical paths: what the end of a window waited for.
//!
//! Owns: the words for the parts and links of a path. Because: the tables of a window, of the slowest rank and of the
//! page say the same. Does not: compute a path.

use std::io::{self, Write};

use deepctx_profile::units::Nanos;

use super::{counted, cut_names, more};
use crate::over_time::{Bound, CriticalPath};

/// Widest name of an operation.
const NAME_WIDTH: usize = 60;
/// Minimum share of a named part of a critical path, in percent, and the maximum number of these: a line has no room
/// for more.
const SHARE_MIN: f64 = 0.5;
const PARTS: usize = 5;

/// Writes the path of each rank, cut to `rows`.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(paths: &[CriticalPath], rows: usize, out: &mut dyn Write) -> io::Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nCritical path: what the end of the window waited for, back to its begin")?;
    for path in paths.iter().take(rows) {
        writeln!(
            out,
            "  rank {:<3} {:>8}  {}",
            path.rank,
            Nanos(path.window_ns).to_string(),
            path_in_words(path, PARTS)
        )?;
        // With many ranks, JSON has it for each.
        if let Some(said) = guessed_links_in_words(path).filter(|_| paths.len() == 1) {
            writeln!(out, "                     {said}")?;
        }
        if let Some(said) = within_clocks_in_words(path).filter(|_| paths.len() == 1) {
            writeln!(out, "                     {said}")?;
        }
        let names = if paths.len() > 1 { 0 } else { 3 };
        let shown = path.work.iter().take(names);
        let short = cut_names(shown.clone().map(|row| &row.name), NAME_WIDTH);
        for (row, name) in shown.zip(short) {
            let time = Nanos(row.time_ns).to_string();
            writeln!(out, "           {time:>8}  {} × {name}", row.count)?;
        }
        if paths.len() == 1 {
            more(path.work.len() + path.work_left_out, names.min(path.work.len()), "name", out)?;
        }
    }
    more(paths.len(), rows, "rank", out)
}

/// The largest parts of a path, at most so many, and the rest.
pub(in crate::render) fn path_in_words(path: &CriticalPath, most: usize) -> String {
    let shown = path.parts.iter().filter(|part| part.percent >= SHARE_MIN).take(most);
    let mut parts: Vec<String> =
        shown.clone().map(|part| format!("{} {:.1}%", bound_in_words(part.bound), part.percent)).collect();
    let rest = 100.0 - shown.map(|part| part.percent).sum::<f64>();
    if rest >= 0.05 {
        parts.push(format!("rest {rest:.1}%"));
    }
    parts.join(", ")
}

/// Number of guessed links of a path; `None` if there are none.
pub(in crate::render) fn guessed_links_in_words(path: &CriticalPath) -> Option<String> {
    let (guessed, all) = (path.inferred_links, path.inferred_links + path.sure_links);
    let verb = if guessed == 1 { "is" } else { "are" };
    (guessed > 0).then(|| format!("{guessed} of {} {verb} guessed", counted(all, "link")))
}

/// Number of transitions of a path within the clock error; `None` if there are none, or the error is unknown.
pub(in crate::render) fn within_clocks_in_words(path: &CriticalPath) -> Option<String> {
    let within = path.within_clocks.filter(|within| *within > 0)?;
    let all = counted(path.between_clocks, "transition");
    let verb = if within == 1 { "is" } else { "are" };
    Some(format!(
        "{within} of {all} between threads and devices {verb} not longer than the error of the clocks"
    ))
}

/// Limit of a part of a critical path.
pub(in crate::render) fn bound_in_words(bound: Bound) -> &'static str {
    match bound {
        Bound::Cpu => "CPU",
        Bound::DataLoader => "data loader",
        Bound::ApiCall => "API calls",
        Bound::Launch => "launch to begin",
        Bound::BetweenKernels => "between kernels",
        Bound::DeviceWait => "unnamed waits of the device",
        Bound::Compute => "compute",
        Bound::Communication => "communication",
        Bound::Memory => "copies",
        Bound::SyncReturn => "return from waits",
        Bound::CpuQueue => "waiting for a CPU",
        Bound::OffCpu => "off the CPU",
        Bound::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::{OverTime, Steps};

    #[test]
    fn one_guessed_link_is_singular() {
        let trace = text::parse("kernel 0/7 0..10 a\nkernel 0/7 10..20 b").unwrap();
        let tables =
            OverTime::compute(&Job::new(vec![("a.json".to_owned(), trace)]).unwrap(), Steps::default());
        let said = |inferred_links: u64, sure_links: u64| {
            let path = tables.critical_paths[0].clone();
            guessed_links_in_words(&CriticalPath { inferred_links, sure_links, ..path })
        };
        assert_eq!(said(0, 3), None);
        assert_eq!(said(1, 0).unwrap(), "1 of 1 link is guessed");
        assert_eq!(said(2, 1).unwrap(), "2 of 3 links are guessed");
    }

    #[test]
    fn names_that_a_path_does_not_list_are_counted() {
        // Of these 12 kernels, one after the other, the table has 10, and the screen 3.
        let kernel = |n: u64| format!("kernel 0/7 {}..{} k{n}\n", 10 * n, 10 * n + 10);
        let trace = text::parse(&(0..12).map(kernel).collect::<String>()).unwrap();
        let tables =
            OverTime::compute(&Job::new(vec![("a.json".to_owned(), trace)]).unwrap(), Steps::default());
        assert_eq!((tables.critical_paths[0].work.len(), tables.critical_paths[0].work_left_out), (10, 2));
        let mut out = Vec::new();
        write(&tables.critical_paths, 9, &mut out).unwrap();
        let shown = String::from_utf8(out).unwrap();
        assert!(shown.ends_with("… 9 names more\n"), "{shown}");
    }
}
