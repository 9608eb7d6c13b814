//! Tabs of the tables over time.
//!
//! Owns: their columns. Because: the page has room for every row, and its reader has no tool for more detail. Does not:
//! compute; names of phases and of limits of a path are those of the text.

use deepctx_profile::trace::counter_value_in_words;
use deepctx_profile::units::Bytes;
use deepctx_storage::export::html::{Column, Tab};

use super::cells::{first, numbers, share, time, without};
use super::{percent, work};
use crate::over_time::{Measurement, OverTime};
use crate::render::text::{
    bound_in_words, by_no_operator, clock_in_words, communicators_in_words, guessed_links_in_words,
    have_several_names, inferred_in_words, kinds_in_words, not_measured_in_words, operations_in_words,
    sequence_in_words, slowest_path_in_words, within_clocks_in_words,
};

/// Every table with rows.
pub(in crate::render) fn tabs(tables: &OverTime) -> impl Iterator<Item = Tab> {
    let tabs = [
        devices(tables),
        critical_paths(tables),
        idle(tables),
        launches(tables),
        operators(tables),
        sequences(tables),
        work::classes(tables),
        work::kernels(tables),
        work::gaps(tables),
        work::exposed(tables),
        work::annotations(tables),
        work::pacing(tables),
        copies(tables),
        bandwidth(tables),
        counters(tables),
        steps(tables),
        pipeline(tables),
        messages(tables),
        slowest(tables),
        imbalance(tables),
        ranks(tables),
        communicators(tables),
        parallelism(tables),
    ];
    tabs.into_iter().filter(|tab| !tab.rows.is_empty())
}

fn devices(tables: &OverTime) -> Tab {
    let columns = numbers([
        "Rank",
        "Device",
        "Span",
        "Idle",
        "Compute",
        "Communication",
        "Memory",
        "Communication overlapped",
        "Kernels",
    ]);
    let rows = tables.devices.iter().map(|row| {
        let parts = [row.idle_ns, row.compute_ns, row.communication_ns, row.memory_ns];
        let mut cells = vec![row.rank.to_string(), row.device.to_string(), time(row.span_ns)];
        cells.extend(parts.map(|part| share(part, row.span_ns)));
        cells.push(row.overlap_percent.map_or_else(String::new, percent));
        cells.push(row.kernels.to_string());
        cells
    });
    first("breakdown", "Devices over time", &columns, rows)
}

/// The parts of each path, and the work with most time on it.
fn critical_paths(tables: &OverTime) -> Tab {
    let columns = [numbers(["Rank", "Share", "Time", "Times"]), vec![Column::code("What")]].concat();
    let rows = tables.critical_paths.iter().flat_map(|path| {
        let row = |time_ns, count: Option<u64>, what: &str| {
            let count = count.map_or_else(String::new, |count| count.to_string());
            vec![path.rank.to_string(), share(time_ns, path.window_ns), time(time_ns), count, what.to_owned()]
        };
        let parts = path.parts.iter().map(move |part| row(part.time_ns, None, bound_in_words(part.bound)));
        let note =
            |what: String| vec![path.rank.to_string(), String::new(), String::new(), String::new(), what];
        let guessed = guessed_links_in_words(path).map(note);
        let within_clocks = within_clocks_in_words(path).map(note);
        let work = path.work.iter().map(move |of| row(of.time_ns, Some(of.count), &of.name));
        parts.chain(guessed).chain(within_clocks).chain(work).collect::<Vec<_>>()
    });
    let left_out = tables.critical_paths.iter().map(|path| path.work_left_out).sum();
    without(left_out, first("path", "Critical path", &columns, rows))
}

fn idle(tables: &OverTime) -> Tab {
    let columns = numbers([
        "Rank",
        "Device",
        "Stream",
        "Late launch",
        "Kernel wait",
        "Other",
        "Unknown",
        "Operations",
        "Queue, mean",
        "Queue, most",
    ]);
    let rows = tables.idle.iter().map(|row| {
        let same = |of: &&crate::over_time::Queue| {
            (of.rank, of.device, of.stream) == (row.rank, row.device, row.stream)
        };
        let queue = tables.queues.iter().find(same);
        let stream = row.stream.map_or_else(String::new, |stream| stream.to_string());
        let mut cells = vec![row.rank.to_string(), row.device.to_string(), stream];
        cells.extend([row.host_wait_ns, row.kernel_wait_ns, row.other_ns, row.unknown_ns].map(time));
        cells.push(row.operations.to_string());
        cells.push(queue.map_or_else(String::new, |queue| format!("{:.1}", queue.mean)));
        cells.push(queue.map_or_else(String::new, |queue| queue.max.to_string()));
        cells
    });
    first("idle", "Idle streams", &columns, rows)
}

fn launches(tables: &OverTime) -> Tab {
    let columns = numbers([
        "Rank",
        "Launches",
        "Delay, median",
        "Delay, most",
        "Delays > 100 µs",
        "Calls > 50 µs",
        "Shorter than their call",
        "Without a call",
    ]);
    let launching =
        tables.launches.iter().filter(|row| row.launches + row.before_trace + row.without_call > 0);
    let rows = launching.map(|row| {
        let counts =
            [row.long_delays, row.long_calls, row.short_operations, row.without_call + row.before_trace];
        let mut cells = vec![row.rank.to_string(), row.launches.to_string()];
        cells.extend([row.delay_median_ns, row.delay_max_ns].map(time));
        cells.extend(counts.map(|count| count.to_string()));
        cells
    });
    first("launches", "Launches", &columns, rows)
}

fn operators(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Device time", "", "Calls", "Kernels per call", "Host time"]),
        vec![Column::code("Operator"), Column::code("Most of its kernels' time")],
    ];
    let rows = tables.operators.iter().flat_map(|of| {
        let whole = of.device_ns();
        let launching = of.rows.iter().filter(|row| row.launched.count > 0);
        let rows = launching.map(move |row| {
            let kernel = row.launched.kernels.first();
            let device_ns = row.launched.device_ns;
            vec![
                of.rank.to_string(),
                time(device_ns),
                share(device_ns, whole),
                row.calls.map_or_else(String::new, |calls| calls.to_string()),
                row.kernels_per_call.map_or_else(String::new, |count| format!("{count:.1}")),
                row.host_ns.map_or_else(String::new, time),
                row.name.clone(),
                kernel.map_or_else(String::new, |kernel| format!("{} × {}", kernel.count, kernel.name)),
            ]
        });
        let outside = (of.outside.count > 0).then(|| {
            let what = by_no_operator(of.outside.count);
            let times = [time(of.outside.device_ns), share(of.outside.device_ns, whole)];
            let empty = [const { String::new() }; 3];
            [of.rank.to_string()].into_iter().chain(times).chain(empty).chain([what, String::new()]).collect()
        });
        rows.chain(outside).collect::<Vec<Vec<String>>>()
    });
    first("launched", "Operators and kernels", &columns.concat(), rows)
}

fn sequences(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Device time", "Calls", "Length"]),
        vec![Column::code("Operator"), Column::code("Kernels in order")],
    ];
    let rows = tables.sequences.iter().flat_map(|of| {
        let repeated = of.rows.iter().filter(|row| row.count > 1);
        repeated.map(|row| {
            let numbers =
                [of.rank.to_string(), time(row.device_ns), row.count.to_string(), row.length.to_string()];
            let names = [row.operator.clone(), sequence_in_words(&row.kernels, usize::MAX, |name| name)];
            numbers.into_iter().chain(names).collect()
        })
    });
    first("sequences", "Sequences", &columns.concat(), rows)
}

fn copies(tables: &OverTime) -> Tab {
    let columns = [numbers(["Rank", "Times", "Bytes", "Time", "GB/s"]), vec![Column::code("What")]].concat();
    let rows = tables.copies.iter().map(|row| {
        vec![
            row.rank.to_string(),
            row.count.to_string(),
            Bytes(row.bytes).to_string(),
            time(row.time_ns),
            row.gb_per_second.map_or_else(String::new, |speed| format!("{speed:.3}")),
            row.name.clone(),
        ]
    });
    first("copies", "Copies and fills", &columns, rows)
}

fn bandwidth(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Peak GB/s", "Busiest hundredth, GB/s", "At"]),
        vec![Column::code("What"), Column::strip("By time")],
    ];
    let rows = tables.bandwidth.iter().map(|row| {
        let (at_ns, most) = row.busiest_part();
        let digits = row.shares().filter_map(|share| char::from_digit((share * 9.0).round() as u32, 10));
        vec![
            row.rank.to_string(),
            format!("{:.3}", row.peak_gb_per_second),
            format!("{most:.3}"),
            time(at_ns),
            row.name.clone(),
            digits.collect(),
        ]
    });
    first("bandwidth", "Bandwidth over time", &columns.concat(), rows)
}

/// Like the text, without counters that are always 0.
fn counters(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Mean", "Least", "Most", "Values"]),
        vec![Column::code("Process"), Column::code("Counter")],
    ];
    let rows = tables.counters.iter().filter(|row| row.most > 0.0).map(|row| {
        let values = [row.mean, row.least, row.most].map(|value| counter_value_in_words(row.unit(), value));
        let name = row.unit().map_or_else(|| format!("{} {}", row.name, row.series), |_| row.name.clone());
        let last = [row.values.to_string(), row.process.clone(), name];
        [row.rank.to_string()].into_iter().chain(values).chain(last).collect()
    });
    first("counters", "Counters", &columns.concat(), rows)
}

fn steps(tables: &OverTime) -> Tab {
    let columns = numbers([
        "Rank",
        "Step",
        "Length",
        "Kernels",
        "Copies",
        "Communication",
        "API calls",
        "Data loader",
        "Operators",
        "Nothing",
    ]);
    let figures = columns.len();
    let has_names = have_several_names(tables.steps.iter().map(|row| &row.name));
    let name = has_names.then(|| Column::code("Name"));
    let has_lost = tables.steps.iter().any(|row| row.split.not_measured().is_some());
    let why = has_lost.then(|| Column::text("Why not"));
    let columns: Vec<Column> = columns.into_iter().chain(name).chain(why).collect();
    let rows = tables.steps.iter().map(|row| {
        let mut cells = vec![row.rank.to_string(), row.step.to_string()];
        if let Measurement::Yes(of) = &row.split {
            let device = [of.kernel_ns, of.copy_ns + of.fill_ns, of.communication_ns];
            let host = [of.api_call_ns, of.data_loader_ns, of.operator_ns, of.other_ns];
            cells.push(time(of.length_ns));
            cells.extend(device.into_iter().chain(host).map(|part| share(part, of.length_ns)));
        }
        cells.resize(figures, String::new());
        cells.extend(has_names.then(|| row.name.clone()));
        let because = || row.split.not_measured().map_or_else(String::new, not_measured_in_words);
        cells.extend(has_lost.then(because));
        cells
    });
    first("split", "Steps over time", &columns, rows)
}

/// Waits of stages are bounds: the transfer of their messages is part of them.
fn pipeline(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Step", "Length", "Messages", "Their time", "Waits at most", "Share"]),
        vec![Column::text("Communicators, or why it is not known")],
    ];
    let found = &tables.pipeline;
    let steps = found.stages.iter().flat_map(|stage| stage.steps.iter().map(move |step| (stage, step)));
    let known = steps.map(|(stage, step)| {
        let mut cells = vec![stage.rank.to_string(), step.step.to_string()];
        match &step.waits {
            Measurement::Yes(of) => {
                cells.extend([time(of.length_ns), of.messages.to_string(), time(of.message_ns)]);
                cells.extend([time(of.waiting_at_most_ns), share(of.waiting_at_most_ns, of.length_ns)]);
                cells.push(communicators_in_words(&stage.communicators));
            }
            Measurement::No { not_measured } => {
                cells.resize(7, String::new());
                cells.push(not_measured_in_words(not_measured));
            }
        }
        cells
    });
    let refused = found.refused.iter().map(|of| {
        let mut cells = vec![of.rank.to_string()];
        cells.resize(7, String::new());
        cells.push(of.because.sentence.to_owned());
        cells
    });
    first("pipeline", "Pipeline", &columns.concat(), known.chain(refused))
}

fn messages(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["From", "To", "Messages", "Receiver waits", "Sender waits", "Transfer", "Error of each"]),
        vec![Column::code("Communicator"), Column::text("Not matched, or inferred")],
    ];
    let matched = tables.messages.pairs.iter().map(|row| {
        let mut cells = vec![row.from.to_string(), row.to.to_string(), row.messages.to_string()];
        let times = [row.receiver_waited_ns, row.sender_waited_ns, row.transfer_ns, row.clock_error_ns];
        cells.extend(times.map(time));
        cells.extend([row.communicator.clone(), inferred_in_words(row)]);
        cells
    });
    let others = tables.messages.not_matched.iter().map(|of| {
        let mut cells = vec![of.from.to_string(), of.to.to_string()];
        cells.resize(7, String::new());
        cells.extend([of.communicator.clone(), of.because.sentence.to_owned()]);
        cells
    });
    first("messages", "Messages", &columns.concat(), matched.chain(others))
}

fn slowest(tables: &OverTime) -> Tab {
    let has_names = have_several_names(tables.slowest.iter().map(|row| &row.name));
    let columns = [
        numbers(["Step", "Slowest rank", "Its own time", "Median", "Ranks"]),
        vec![Column::text("Because of")],
        has_names.then(|| Column::code("Name")).into_iter().collect(),
        vec![Column::text("Its critical path")],
    ];
    let without_path = match tables.slowest_paths_left_out {
        0 => "",
        _ => "not computed: the slowest rank of other steps is further behind",
    };
    let rows = tables.slowest.iter().map(|row| -> Vec<String> {
        let name = has_names.then(|| row.name.clone());
        let found = match &row.found {
            Measurement::Yes(found) => found,
            Measurement::No { not_measured } => {
                let none = [const { String::new() }; 3];
                let step = [row.step.to_string()].into_iter().chain(none);
                let cells = step.chain([row.ranks.to_string(), not_measured_in_words(not_measured)]);
                return cells.chain(name).chain([String::new()]).collect();
            }
        };
        let because = found
            .because
            .iter()
            .map(|of| format!("{} +{}", of.phase.name(), time(of.slowest_ns.saturating_sub(of.median_ns))));
        let cells = [
            row.step.to_string(),
            found.slowest_rank.to_string(),
            time(found.own_ns),
            time(found.median_own_ns),
            row.ranks.to_string(),
            because.collect::<Vec<_>>().join(", "),
        ];
        let path = found.path.as_ref().map_or_else(|| without_path.to_owned(), slowest_path_in_words);
        cells.into_iter().chain(name).chain([path]).collect()
    });
    first("slowest", "Slowest rank", &columns.concat(), rows)
}

fn imbalance(tables: &OverTime) -> Tab {
    let columns = [
        vec![Column::text("Phase")],
        numbers(["Mean", "Most", "Rank", "Least", "Rank", "Above mean", "Steps left out"]),
    ];
    let rows = tables.imbalance.iter().filter_map(|row| {
        let above = percent(row.imbalance_percent?);
        Some(vec![
            row.phase.name().to_owned(),
            time(row.mean_ns as u64),
            time(row.most_ns),
            row.most_rank.to_string(),
            time(row.least_ns),
            row.least_rank.to_string(),
            above,
            row.steps_not_measured.to_string(),
        ])
    });
    first("imbalance", "Phases over ranks", &columns.concat(), rows)
}

fn ranks(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Rank", "Latest in", "Others waited", "It waited"]),
        vec![Column::text("Offset of its clock")],
    ];
    let first_rank = tables.stragglers.ranks.first().map_or(0, |row| row.rank);
    let rows = tables.stragglers.ranks.iter().map(|row| {
        vec![
            row.rank.to_string(),
            row.times_latest.to_string(),
            time(row.waited_for_ns),
            time(row.waited_ns),
            clock_in_words(row, first_rank),
        ]
    });
    first("stragglers", "Stragglers", &columns.concat(), rows)
}

fn communicators(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Ranks", "Collectives", "Waited", "Transfer", "Latest most often", "Times"]),
        vec![Column::code("Communicator")],
    ];
    let rows = tables.communicators.iter().map(|row| {
        vec![
            row.ranks.to_string(),
            row.collectives.to_string(),
            time(row.waited_ns),
            time(row.transfer_ns),
            row.latest_rank.to_string(),
            row.times_latest.to_string(),
            row.communicator.clone(),
        ]
    });
    first("communicators", "Communicators", &columns.concat(), rows)
}

/// What communicators do on all ranks; what no trace states is empty.
fn parallelism(tables: &OverTime) -> Tab {
    let columns = [
        numbers(["Ranks", "Group size", "Stride", "Time", "Exposed", "Share"]),
        vec![Column::text("Kind"), Column::code("Communicator"), Column::text("Operations")],
    ];
    let rows = tables.parallelism.groups.iter().map(|row| {
        let stated = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
        vec![
            row.ranks.len().to_string(),
            stated(row.group_size),
            stated(row.stride),
            time(row.time_ns),
            time(row.exposed_ns),
            share(row.exposed_ns, row.time_ns),
            kinds_in_words(row),
            row.communicator.clone(),
            operations_in_words(row),
        ]
    });
    first("parallelism", "Parallelism", &columns.concat(), rows)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::{GroupSignature, KindBasis, ParallelKind, Steps};

    fn tables(ranks: &[&str]) -> OverTime {
        let parse = |lines: &&str| ("process".to_owned(), text::parse(lines).unwrap());
        OverTime::compute(&Job::new(ranks.iter().map(parse).collect()).unwrap(), Steps::default())
    }

    #[test]
    fn names_that_a_path_does_not_list_are_counted() {
        // Of these 12 kernels, one after the other, the table has 10.
        let kernel = |n: u64| format!("kernel 0/7 {}..{} k{n}\n", 10 * n, 10 * n + 10);
        let tab = critical_paths(&tables(&[&(0..12).map(kernel).collect::<String>()]));
        assert_eq!(tab.left_out, 2);
    }

    #[test]
    fn bandwidth_and_counters_have_a_tab() {
        let lines = "kernel 0/7 0..1000 a\n copy 0/7 100..200 Memcpy HtoD 1000000B
            counter 7 0 bytes=2048 live-bytes\n counter 7 0 bytes=0 reserved-bytes";
        let of_page: Vec<Tab> = tabs(&tables(&[lines])).collect();
        let row = |id: &str| {
            let tab = of_page.iter().find(|tab| tab.id == id).unwrap();
            assert_eq!((tab.rows.len(), tab.rows[0].len()), (1, tab.columns.len()));
            tab.rows[0].clone()
        };
        let by_time = ["0".repeat(10), "9".repeat(10), "0".repeat(80)].concat();
        let bandwidth = row("bandwidth");
        assert_eq!([&bandwidth[1], &bandwidth[2], &bandwidth[5]], ["10.000", "10.000", &by_time]);
        assert_eq!(row("counters")[5..], ["7", "live-bytes"]);
    }

    #[test]
    fn a_communicator_has_a_cell_in_each_column() {
        let mut tables = tables(&["kernel 0/7 0..10 gemm"]);
        tables.parallelism.groups.push(GroupSignature {
            communicator: "3".to_owned(),
            ranks: vec![0],
            group_size: Some(4),
            stride: None,
            time_ns: 2_000,
            exposed_ns: 1_000,
            kinds: vec![ParallelKind::Context, ParallelKind::Expert],
            kinds_basis: KindBasis::Inferred,
            operations: Vec::new(),
        });
        let tab = parallelism(&tables);
        let row = &tab.rows[0];
        assert_eq!((row.len(), &*row[1], &*row[2], &*row[7]), (tab.columns.len(), "4", "", "3"));
        assert_eq!(row[6], "context or expert (inferred)");
    }

    #[test]
    fn steps_are_named_where_there_are_several_names() {
        let both = "step m 0..10 train#1\n step m 10..20 eval#1";
        let lost = format!("{both}\n lost t8 12..13 1");
        let tables = tables(&[both, &lost]);
        for (tab, name) in [(steps(&tables), 10), (slowest(&tables), 6)] {
            let mut names: Vec<&str> = tab.rows.iter().map(|row| row[name].as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names, ["eval", "train"], "{}", tab.title);
            assert!(tab.rows.iter().all(|row| row.len() == tab.columns.len()), "{}", tab.title);
        }
    }
}
