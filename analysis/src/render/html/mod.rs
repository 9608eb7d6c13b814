//! HTML: the page of the exports, with a further tab for every table that has rows.
//!
//! Owns: the columns of the tabs. Because: a reader who gets the page by mail has no tool for more detail. Does not:
//! draw; the page does, and already has flame graphs, functions and losses.

mod cells;
mod findings;
mod model;
pub(super) mod over_time;
mod work;

use std::io::{self, Write};

use deepctx_profile::device::device_lines;
use deepctx_profile::frame::clean;
use deepctx_profile::trace::EventLanes;
use deepctx_profile::units::{Bytes, Nanos};
use deepctx_storage::export::Source;
use deepctx_storage::export::html::{Column, Form, PageExtras, Tab, write_with};

use crate::findings::Findings;
use crate::over_time::OverTime;
use crate::render::text::accelerators::{occupancy, pool_lines, producer_text};
use crate::tables::ranges::Ranges;
use crate::tables::system::{SystemMetric, SystemUnit};
use crate::{ModelTables, Report};

/// Maximum number of time spans drawn in a cell.
const STRIP: usize = 200;

/// Single events of a profile, and the tables over them.
#[derive(Clone, Copy, Debug)]
pub struct Events<'e> {
    /// The events.
    pub lanes: &'e EventLanes,
    /// The tables.
    pub tables: &'e OverTime,
}

/// Writes the page of a profile with the tables of its report and of its model, and with its single events, if any.
///
/// # Errors
/// Those of `out`, and `InvalidData` when the profile has no values at all.
pub fn write(
    source: &Source<'_>,
    report: &Report,
    model: &ModelTables,
    events: Option<Events<'_>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut tabs = tabs(report);
    tabs.extend(model::tabs(model));
    tabs.extend(events.into_iter().flat_map(|events| over_time::tabs(events.tables)));
    write_with(source, PageExtras { tabs: &tabs, events: events.map(|events| events.lanes) }, out)
}

/// Writes the page of a profile with its findings.
///
/// # Errors
/// As of [`write()`].
pub fn write_findings(source: &Source<'_>, found: &Findings, out: &mut dyn Write) -> io::Result<()> {
    write_with(source, PageExtras { tabs: &[findings::tab(found)], events: None }, out)
}

/// Every table with rows, except functions and losses, which every page has.
fn tabs(report: &Report) -> Vec<Tab> {
    let tabs = [
        findings::tab(&report.findings),
        contexts(report),
        phases(report),
        ranges(&report.training_steps, "steps", "Training steps"),
        ranges(&report.ranges, "ranges", "Ranges"),
        layers(report),
        compiled_code(report),
        compilations(report),
        devices(report),
        kernels(report),
        instructions(report),
        memory(report),
        system(report),
    ];
    tabs.into_iter().filter(|tab| !tab.rows.is_empty()).collect()
}

fn percent(share: f64) -> String {
    format!("{share:.1}%")
}

fn tab(id: &str, title: &str, columns: &[Column], left_out: usize, rows: Vec<Vec<String>>) -> Tab {
    let (id, title, columns) = (id.to_owned(), title.to_owned(), columns.to_vec());
    Tab { id, title, columns, rows, left_out, form: Form::Table }
}

fn contexts(report: &Report) -> Tab {
    let columns = [Column::number("Self"), Column::number(""), Column::code("Frames, innermost first")];
    let row = |row: &crate::tables::contexts::Context| {
        let frames: Vec<&str> = row.frames.iter().rev().map(String::as_str).collect();
        vec![percent(row.exclusive_percent), row.exclusive.to_string(), frames.join(" ◂ ")]
    };
    tab(
        "contexts",
        "Contexts",
        &columns,
        report.contexts.left_out,
        report.contexts.rows.iter().map(row).collect(),
    )
}

fn phases(report: &Report) -> Tab {
    let mut columns = vec![Column::text("Phase")];
    for value in report.phases.rows.iter().take(1).flat_map(|row| &row.values) {
        columns.extend([Column::number(value.metric), Column::number("")]);
    }
    let row = |row: &crate::tables::phases::PhaseRow| {
        let values = row.values.iter().flat_map(|of| [of.value.to_string(), percent(of.share_percent)]);
        std::iter::once(row.phase.to_owned()).chain(values).collect()
    };
    tab("phases", "Phases", &columns, 0, report.phases.rows.iter().map(row).collect())
}

fn ranges(ranges: &Ranges, id: &str, title: &str) -> Tab {
    let mut columns = vec![Column::number("Times"), Column::number("Mean"), Column::number("Deviation")];
    // Those of ranges are not known, nor are those of steps in older profiles.
    let has_percentiles = ranges.rows.iter().any(|row| row.p50_ns.is_some());
    if has_percentiles {
        columns.extend(["Median", "95 %"].map(Column::number));
    }
    columns.extend(["Least", "Most", "Total"].map(Column::number));
    columns.extend([Column::code("Name"), Column::place("Entered at")]);
    let row = |row: &crate::tables::ranges::Range| {
        let time = |ns: u64| Nanos(ns).to_string();
        let mut cells = vec![row.count.to_string(), time(row.mean_ns as u64), time(row.deviation_ns as u64)];
        if has_percentiles {
            cells.extend([row.p50_ns, row.p95_ns].map(|ns| ns.map_or_else(String::new, time)));
        }
        cells.extend([row.min_ns, row.max_ns, row.total_ns].map(time));
        cells.extend([row.name.clone(), row.entered_at.clone()]);
        cells
    };
    tab(id, title, &columns, ranges.left_out, ranges.rows.iter().map(row).collect())
}

fn layers(report: &Report) -> Tab {
    let mut columns = vec![Column::code("Layer"), Column::number("Self"), Column::number("")];
    columns.extend([Column::number("Total"), Column::number("")]);
    let others = report.layers.rows.iter().take(1).flat_map(|row| &row.others);
    columns.extend(others.map(|other| Column::number(other.metric)));
    let row = |row: &crate::tables::layers::Layer| {
        let own = [row.layer.clone(), percent(row.exclusive_percent), row.exclusive.to_string()];
        let all = [percent(row.inclusive_percent), row.inclusive.to_string()];
        let others = row.others.iter().map(|of| of.value.to_string());
        own.into_iter().chain(all).chain(others).collect()
    };
    tab("layers", "Layers", &columns, report.layers.left_out, report.layers.rows.iter().map(row).collect())
}

fn compiled_code(report: &Report) -> Tab {
    let columns = [
        Column::number("Self"),
        Column::number(""),
        Column::text("Module"),
        Column::code("Operators"),
        Column::code("Function"),
        Column::place("Line"),
    ];
    let row = |row: &crate::tables::compiled::CompiledRow| {
        let crate::tables::compiled::Origin { unit, operators, line, function } = row.origin.clone();
        vec![percent(row.exclusive_percent), row.exclusive.to_string(), unit, operators, function, line]
    };
    let rows = &report.compiled_code.rows;
    tab("compiled", "Compiled code", &columns, rows.left_out, rows.rows.iter().map(row).collect())
}

fn compilations(report: &Report) -> Tab {
    let columns =
        [Column::number("Total"), Column::number(""), Column::code("Begun by"), Column::text("Stages")];
    let row = |row: &crate::tables::compilation::Compilation| {
        let stages: Vec<_> = row.stages.iter().map(|of| format!("{} {}", of.stage, of.value)).collect();
        vec![percent(row.total_percent), row.total.to_string(), row.line.clone(), stages.join(", ")]
    };
    let table = &report.compilations;
    tab("compiling", "Compiling", &columns, table.left_out, table.rows.iter().map(row).collect())
}

fn devices(report: &Report) -> Tab {
    let columns = [Column::number("Process"), Column::text("Times"), Column::text("What is known")];
    let rows = report.devices.rows.iter().map(|process| {
        let note = Some(clean(&process.note)).filter(|note| !note.is_empty());
        let lines: Vec<String> = note.into_iter().chain(device_lines(process)).collect();
        let of = if process.joined_processes == 0 { process.pid.to_string() } else { process.label() };
        vec![of, process.tier.to_string(), lines.join("\n")]
    });
    tab("devices", "Devices", &columns, report.devices.left_out, rows.collect())
}

fn system(report: &Report) -> Tab {
    let numbers = ["Mean", "Median", "95 %", "99 %", "Most"].map(Column::number);
    let texts = [Column::code("Part of the machine"), Column::label("Figure")];
    let columns = texts.into_iter().chain(numbers).chain([Column::strip("By time")]);
    let row = |row: &SystemMetric| {
        let values = [row.mean, row.p50, row.p95, row.p99, row.max].map(|value| row.unit.written(value));
        [row.resource.clone(), row.figure.to_owned()].into_iter().chain(values).chain([strip(row)]).collect()
    };
    let happened = report.system.rows.iter().filter(|row| row.mean > 0.0);
    let rows = happened.map(row).collect();
    tab("system", "Machine", &columns.collect::<Vec<_>>(), report.system.left_out, rows)
}

/// A digit for each time span: shares from 0 to 100 %, everything else from 0 to the maximum.
fn strip(row: &SystemMetric) -> String {
    let most = if row.unit == SystemUnit::Percent { 100.0 } else { row.max };
    let joined = row.by_time.chunks(row.by_time.len().div_ceil(STRIP).max(1));
    let highest = joined.map(|values| values.iter().copied().fold(0.0, f64::max));
    let digit = |value: f64| if most > 0.0 { (value / most * 9.0).round().clamp(0.0, 9.0) as u32 } else { 0 };
    highest.filter_map(|value| char::from_digit(digit(value), 10)).collect()
}

fn kernels(report: &Report) -> Tab {
    let columns = [
        Column::number("Launches"),
        Column::number("Threads per block"),
        Column::number("Registers"),
        Column::number("Shared memory"),
        Column::text("At once on a multiprocessor"),
        Column::kernel("Kernel"),
    ];
    let rows = report.kernels.rows.iter().map(|row| {
        vec![
            row.launches.to_string(),
            row.threads_per_block.to_string(),
            row.registers_per_thread.map_or_else(String::new, |registers| registers.to_string()),
            row.shared_bytes_per_block.map_or_else(String::new, |bytes| Bytes(bytes.into()).to_string()),
            occupancy(row),
            row.kernel.clone(),
        ]
    });
    tab("kernels", "Kernels", &columns, report.kernels.left_out, rows.collect())
}

fn instructions(report: &Report) -> Tab {
    let columns = [
        Column::kernel("Kernel"),
        Column::number("Samples"),
        Column::number(""),
        Column::code("Instruction"),
        Column::text("Waited for"),
        Column::place("Line"),
        Column::code("Produced by (modelled)"),
    ];
    let rows = report.instructions.rows.iter().flat_map(|kernel| {
        kernel.instructions.rows.iter().map(|row| {
            let reason = |of: &crate::tables::instructions::Stall| {
                format!("{} {}", of.reason, percent(of.samples_percent))
            };
            let reasons: Vec<_> = row.reasons.iter().map(reason).collect();
            vec![
                kernel.kernel.clone(),
                row.samples.to_string(),
                percent(row.samples_percent),
                row.at.clone(),
                reasons.join(", "),
                row.line.clone(),
                row.waits_for.iter().map(producer_text).collect::<Vec<_>>().join(", "),
            ]
        })
    });
    let of_kernels: usize = report.instructions.rows.iter().map(|kernel| kernel.instructions.left_out).sum();
    let left_out = report.instructions.left_out + of_kernels;
    tab("instructions", "Instructions", &columns, left_out, rows.collect())
}

fn memory(report: &Report) -> Tab {
    let columns = [
        Column::text("Process and device"),
        Column::number("At the peak"),
        Column::number(""),
        Column::code("Held by"),
    ];
    let rows = report.memory.rows.iter().flat_map(|row| {
        let device = format!("process {}, {}", row.pool.pid, clean(&row.pool.device));
        let whole =
            [Bytes(row.pool.peak_bytes).to_string(), "100.0%".to_owned(), pool_lines(&row.pool).join("\n")];
        let whole = std::iter::once(device.clone()).chain(whole).collect();
        let holders = row.holders.rows.iter().map(move |of| {
            let bytes = Bytes(of.bytes).to_string();
            vec![device.clone(), bytes, percent(of.bytes_percent), of.place.clone()]
        });
        std::iter::once(whole).chain(holders).collect::<Vec<Vec<String>>>()
    });
    let holders: usize = report.memory.rows.iter().map(|row| row.holders.left_out).sum();
    tab("memory", "Memory at its peak", &columns, report.memory.left_out + holders, rows.collect())
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::Profile;

    use super::*;
    use crate::{Selection, Subset};

    #[test]
    fn rows_within_rows_are_counted_when_left_out() {
        let check = |profile: &Profile, id: &str, expect: usize| {
            let selection = Selection { rows: 1, ..Selection::of(Metric::CpuTime) };
            let report = Report::compute(&Subset::new(profile, &selection), Nanos(0));
            let tabs = tabs(&report);
            let tab = tabs.iter().find(|tab| tab.id == id).unwrap();
            assert_eq!(tab.left_out, expect, "{id}");
        };
        check(&crate::tables::instructions::tests::sampled(), "instructions", 1);
        check(&crate::tables::memory::tests::profile(), "memory", 2);
    }

    #[test]
    fn percentiles_of_steps_have_columns_where_they_are_known() {
        let mut profile = deepctx_profile::text::parse("P a-1 / y t.py:main:9 / r step 1").unwrap();
        let (node, _) = profile.tree.cells(Metric::CpuTime).next().unwrap();
        profile.tree.add(node, Metric::RangeTime, 7);
        profile.add_step(node, Nanos(10));
        let report = Report::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime)), Nanos(0));
        let tabs = tabs(&report);
        let tab = |id: &str| tabs.iter().find(|tab| tab.id == id).unwrap();
        assert_eq!(tab("steps").rows[0][..5], ["1", "10 ns", "0 ns", "10 ns", "10 ns"]);
        assert_eq!((tab("steps").rows[0].len(), tab("steps").columns.len()), (10, 10));
        assert_eq!((tab("ranges").rows[0].len(), tab("ranges").columns.len()), (8, 8));
    }
}
