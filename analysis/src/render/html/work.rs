//! Tabs of the tables on device work.
//!
//! Owns: their columns. Because: they are as many as all other tables over time. Does not: compute.

use deepctx_storage::export::html::{Column, Tab};

use super::cells::{first, numbers, share, time, without};
use super::percent;
use crate::over_time::OverTime;
use crate::render::text::{paced_in_words, together_in_words};

/// Time by the set of running classes.
pub(super) fn classes(tables: &OverTime) -> Tab {
    let columns = [numbers(["Rank", "Device", "Share", "Time"]), vec![Column::text("What runs")]].concat();
    let rows = tables.kernel_classes.iter().flat_map(|of| {
        of.together.iter().map(|part| {
            let of = [of.rank.to_string(), of.device.to_string()];
            let cells = [percent(part.percent), time(part.time_ns), together_in_words(part)];
            of.into_iter().chain(cells).collect()
        })
    });
    first("classes", "Work by class", &columns, rows)
}

/// Kernels, copies and fills by name, with their lengths.
pub(super) fn kernels(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Device", "Time", "Share", "Count", "Mean", "Least", "Most", "Deviation"]),
        vec![Column::text("Class"), Column::kernel("Name")],
    ];
    let rows = tables.kernel_classes.iter().flat_map(|of| {
        let whole = of.classes.iter().map(|class| class.lengths.sum_ns).fold(0, u64::saturating_add);
        of.classes.iter().flat_map(move |class| {
            class.kernels.iter().map(move |kernel| {
                let lengths = &kernel.lengths;
                let mut cells = vec![of.rank.to_string(), of.device.to_string(), time(lengths.sum_ns)];
                cells.extend([share(lengths.sum_ns, whole), lengths.count.to_string()]);
                let times =
                    [lengths.mean_ns as u64, lengths.min_ns, lengths.max_ns, lengths.deviation_ns as u64];
                cells.extend(times.map(time));
                cells.extend([class.class.to_owned(), kernel.name.clone()]);
                cells
            })
        })
    });
    let left_out = tables.kernel_classes.iter().flat_map(|of| &of.classes).map(|class| class.left_out).sum();
    without(left_out, first("lengths", "Lengths of kernels", &columns.concat(), rows))
}

/// The longest gaps of devices.
pub(super) fn gaps(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Device", "Begin", "Length", "Launched after", "Of it, on the launching thread"]),
        vec![Column::code("What stood there"), Column::code("Work before"), Column::code("Work behind")],
    ];
    let rows = tables.gaps.iter().flat_map(|of| {
        of.longest.iter().map(|gap| {
            let mut cells = vec![of.rank.to_string(), of.device.to_string()];
            cells.extend([gap.begin_ns, gap.length_ns].map(time));
            cells.push(gap.until_launch_ns.map_or_else(String::new, time));
            cells.push(if gap.host.is_some() { time(gap.host_ns) } else { String::new() });
            cells.extend([gap.host.clone().unwrap_or_default(), gap.before.clone(), gap.behind.clone()]);
            cells
        })
    });
    let left_out = tables.gaps.iter().map(|of| (of.count as usize).saturating_sub(of.longest.len())).sum();
    without(left_out, first("gaps", "Gaps of devices", &columns.concat(), rows))
}

/// Exposed and blocking work.
pub(super) fn exposed(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Device", "Count", "Time", "Exposed", "Blocking", "Both", "Waits", "Guessed"]),
        vec![Column::code("What")],
    ];
    let rows = tables.exposed.iter().map(|row| {
        let mut cells = vec![row.rank.to_string(), row.device.to_string(), row.count.to_string()];
        let times = [row.time_ns, row.exposed_ns, row.blocking_ns, row.exposed_and_blocking_ns];
        cells.extend(times.map(time));
        cells.extend([row.waited_for.to_string(), row.guessed_waits.to_string(), row.name.clone()]);
        cells
    });
    first("exposed", "Exposed and blocking", &columns.concat(), rows)
}

/// Ranges of the program.
pub(super) fn annotations(tables: &OverTime) -> Tab {
    let columns = [
        numbers([
            "Rank",
            "Count",
            "Host time",
            "Mean",
            "Most",
            "On the device's rows",
            "Operations",
            "Device time",
        ]),
        vec![Column::code("Name")],
    ];
    let rows = tables.annotations.iter().flat_map(|of| &of.rows).map(|row| {
        let of_host = |cell: fn(&crate::over_time::Statistics) -> String| {
            row.host.as_ref().map_or_else(String::new, cell)
        };
        vec![
            row.rank.to_string(),
            row.host.or(row.projected).map_or_else(String::new, |of| of.count.to_string()),
            of_host(|host| time(host.sum_ns)),
            of_host(|host| time(host.mean_ns as u64)),
            of_host(|host| time(host.max_ns)),
            row.projected.map_or_else(String::new, |of| time(of.sum_ns)),
            row.launched.to_string(),
            time(row.device_ns),
            row.name.clone(),
        ]
    });
    let left_out = tables.annotations.iter().map(|of| of.left_out).sum();
    without(left_out, first("annotations", "Ranges over time", &columns.concat(), rows))
}

/// How regularly training steps, ranges and kernels recur.
pub(super) fn pacing(tables: &OverTime) -> Tab {
    let columns = [
        numbers([
            "Rank",
            "Count",
            "Begin to begin, mean",
            "Least",
            "Most",
            "Deviation",
            "Pauses, mean",
            "Slowest at",
        ]),
        vec![Column::code("What")],
    ];
    let rows = tables.pacing.iter().map(|row| {
        let again = &row.begin_to_begin;
        let mut cells = vec![row.rank.to_string(), row.lengths.count.to_string()];
        let times = [again.mean_ns as u64, again.min_ns, again.max_ns, again.deviation_ns as u64];
        cells.extend(times.map(time));
        cells.extend([time(row.between.mean_ns as u64), time(row.slowest_at_ns), paced_in_words(row)]);
        cells
    });
    without(tables.pacing_left_out, first("pacing", "Pacing", &columns.concat(), rows))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::Steps;

    #[test]
    fn rows_that_tables_leave_out_are_counted() {
        let tables = |kernel: fn(u64) -> String, count: u64| {
            let trace = text::parse(&(0..count).map(kernel).collect::<String>()).unwrap();
            OverTime::compute(&Job::new(vec![("a.json".to_owned(), trace)]).unwrap(), Steps::default())
        };
        // Of these 129 gaps the table has 20, of the 130 names 100.
        let each = tables(|n| format!("kernel 0/7 {}..{} k{n}\n", 10 * n, 10 * n + 5), 130);
        let shown = [gaps(&each), kernels(&each)].map(|tab| (tab.rows.len(), tab.left_out));
        assert_eq!(shown, [(20, 109), (100, 30)]);
        // Of these 23 names that recur, 20.
        let again = tables(|n| format!("kernel 0/7 {}..{} k{}\n", 10 * n, 10 * n + 5, n % 23), 69);
        let shown = pacing(&again);
        assert_eq!((shown.rows.len(), shown.left_out), (20, 3));
    }
}
