//! Figures of a trace: ours, those of plain counting, those of HTA.
//!
//! Owns: which fields correspond, and the reasons for differences. Because: a difference without a reason is an error
//! of one of the two. Does not: run anything.

use serde_json::Value;

/// One figure beside HTA's.
pub(super) struct Row {
    pub(super) analysis: &'static str,
    pub(super) ours: String,
    pub(super) hta: String,
    pub(super) why: &'static str,
}

/// Our kinds of events, with the trace categories that they come from.
const KINDS: [(&str, &[&str]); 5] = [
    ("kernel", &["kernel"]),
    ("copy", &["gpu_memcpy", "memcpy"]),
    ("fill", &["gpu_memset", "memset"]),
    ("runtime-call", &["cuda_runtime", "runtime"]),
    ("synchronisation", &["cuda_sync"]),
];

/// Differences between our sums and plain counting, by rank.
pub(super) fn against_counting(ours: &Value, raw: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (rank, raw) in raw.as_object().into_iter().flatten() {
        let of_rank = |row: &&Value| row["rank"].as_u64().is_some_and(|of| of.to_string() == *rank);
        let mut check = |what: &str, ours: f64, theirs: f64, tolerance: f64| {
            if (ours - theirs).abs() > tolerance {
                wrong.push(format!("rank {rank}: {what}: {ours} instead of {theirs}"));
            }
        };
        let only = ours["traces"].as_array().map_or(0, Vec::len) == 1;
        let trace = rows(ours, "traces").find(|row| only || of_rank(row)).cloned().unwrap_or_default();
        for (kind, categories) in KINDS {
            let found = rows(&trace, "sums").find(|row| row["kind"] == kind).cloned().unwrap_or_default();
            let theirs = |field: &str| {
                categories.iter().map(|category| number(&raw["by_category"][*category][field])).sum::<f64>()
            };
            check(&format!("{kind}s"), number(&found["count"]), theirs("count"), 0.0);
            // Sums of the reference have three decimals.
            check(&format!("time of {kind}s, µs"), number(&found["time_ns"]) / 1e3, theirs("sum_us"), 0.001);
        }
        let devices: Vec<&Value> = rows(ours, "devices").filter(|row| only || of_rank(row)).collect();
        if let [device] = devices[..] {
            // The reference adds start times as floating-point numbers, each off by up to 0.12 ns in 10⁶ seconds.
            let tolerance = 0.001 + 0.0003 * number(&raw["gpu_events"]);
            check("span, µs", number(&device["span_ns"]) / 1e3, number(&raw["gpu_span_us"]), 0.001);
            check("busy, µs", number(&device["busy_ns"]) / 1e3, number(&raw["gpu_busy_us"]), tolerance);
        }
        let launches = rows(ours, "launches").find(|row| only || of_rank(row)).cloned().unwrap_or_default();
        check("launches", number(&launches["launches"]), number(&raw["gpu_events_with_launch"]), 0.0);
        let operators = rows(ours, "operators").find(|row| only || of_rank(row)).cloned().unwrap_or_default();
        let kernels = by_kernel(&operators);
        let all: f64 = kernels.values().map(|(count, _)| count).sum();
        check("operations by operator", all, number(&raw["gpu_events"]), 0.0);
        for kernel in rows(raw, "top_kernels") {
            let name = kernel["name"].as_str().unwrap_or_default();
            let (count, time_ns) = kernels.get(name).copied().unwrap_or_default();
            check(&format!("operators' {name}"), count, number(&kernel["count"]), 0.0);
            check(&format!("time of operators' {name}, µs"), time_ns / 1e3, number(&kernel["sum_us"]), 0.001);
        }
    }
    wrong
}

/// Count and nanoseconds of each kernel, over all operators and kernels without one.
fn by_kernel(operators: &Value) -> std::collections::BTreeMap<&str, (f64, f64)> {
    let mut kernels = std::collections::BTreeMap::new();
    let owners = rows(operators, "rows").map(|row| &row["launched"]).chain([&operators["outside"]]);
    for kernel in owners.flat_map(|owner| rows(owner, "kernels")) {
        let row: &mut (f64, f64) = kernels.entry(kernel["name"].as_str().unwrap_or_default()).or_default();
        *row = (row.0 + number(&kernel["count"]), row.1 + number(&kernel["device_ns"]));
    }
    kernels
}

/// Our figures of the first rank next to HTA's.
pub(super) fn against_hta(ours: &Value, hta: &Value) -> Vec<Row> {
    let facts = Facts::of(ours, hta);
    let mut table = Vec::new();
    let device = rows(ours, "devices").next().cloned().unwrap_or_default();
    let breakdown = rows(hta, "temporal_breakdown").next().cloned().unwrap_or_default();
    for (analysis, field, theirs) in [
        ("idle, ms", "idle_ns", "idle_time(us)"),
        ("compute, ms", "compute_ns", "compute_time(us)"),
        ("neither, ms", "non_compute_ns", "non_compute_time(us)"),
    ] {
        let (ours, theirs) = (number(&device[field]) / 1e6, number(&breakdown[theirs]) / 1e3);
        table.push(row(analysis, ours, Some(theirs), facts.breakdown()));
    }
    let overlap = rows(hta, "comm_comp_overlap").next().cloned().unwrap_or_default();
    if let Some(percent) = device["overlap_percent"].as_f64() {
        table.push(row("overlap, %", percent, overlap["comp_comm_overlap_pctg"].as_f64(), facts.breakdown()));
    }
    for (analysis, field, category) in [
        ("late launches, ms", "host_wait_ns", "host_wait"),
        ("kernel waits, ms", "kernel_wait_ns", "kernel_wait"),
        ("other idle, ms", "other_ns", "other"),
    ] {
        let first = rows(ours, "idle").next().map(|row| row["rank"].clone());
        let of_rank = rows(ours, "idle").filter(|row| Some(&row["rank"]) == first.as_ref());
        let mine = of_rank.map(|row| number(&row[field])).sum::<f64>() / 1e6;
        let theirs = rows(hta, "idle_time_breakdown")
            .filter(|row| row["idle_category"] == category && row["rank"] == breakdown["rank"]);
        let theirs = theirs.map(|row| number(&row["idle_time"])).sum::<f64>() / 1e3;
        table.push(row(analysis, mine, Some(theirs), facts.idle()));
    }
    let launches = rows(ours, "launches").next().cloned().unwrap_or_default();
    let stats =
        hta["launch_stats"].as_object().and_then(|of| of.values().next()).cloned().unwrap_or_default();
    for (analysis, field, theirs, scale) in [
        ("launches", "launches", "launches", 1.0),
        ("mean delay, µs", "delay_mean_ns", "launch_delay_mean_us", 1e3),
        ("longest delay, µs", "delay_max_ns", "launch_delay_max_us", 1e3),
        ("calls > 50 µs", "long_calls", "runtime_over_50us", 1.0),
        ("shorter than their call", "short_operations", "short_kernels", 1.0),
        ("delays > 100 µs", "long_delays", "launch_delay_over_100us", 1.0),
    ] {
        table.push(row(analysis, number(&launches[field]) / scale, stats[theirs].as_f64(), LAUNCHES));
    }
    let of_rank = rows(ours, "queues").filter(|row| row["rank"] == device["rank"]);
    let busiest = of_rank.max_by_key(|row| row["changes"].as_u64()).cloned().unwrap_or_default();
    let same = |row: &&Value| row["stream"] == busiest["stream"] && row["rank"] == breakdown["rank"];
    let their_queue = rows(hta, "queue_length_summary").find(same).cloned();
    let theirs = their_queue.and_then(|row| row["queue_length.max"].as_f64());
    table.push(row("longest queue", number(&busiest["max"]), theirs, QUEUES));
    table.extend(classes(ours, hta, &facts));
    table.extend(bandwidth(ours, hta));
    table.extend(stragglers(ours, hta));
    table
}

/// Time by the classes of concurrent kernels, and totals by class.
fn classes(ours: &Value, hta: &Value, facts: &Facts) -> Vec<Row> {
    let mine = rows(ours, "kernel_classes").next().cloned().unwrap_or_default();
    let theirs = &hta["kernel_breakdown"];
    let together = |classes: &[&str]| {
        let same = |row: &&Value| {
            let names: Vec<&str> =
                row["classes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            names == classes
        };
        rows(&mine, "together").find(same).map_or(0.0, |row| number(&row["time_ns"])) / 1e6
    };
    let kind = |name: &str| {
        let found = rows(theirs, "kinds").find(|row| row["kernel_type"] == name);
        found.map_or(0.0, |row| number(&row["sum"])) / 1e3
    };
    let mut table = Vec::new();
    for (analysis, ours, theirs) in [
        ("compute alone, ms", &["compute"][..], "COMPUTATION"),
        ("communication alone, ms", &["communication"], "COMMUNICATION"),
        ("memory alone, ms", &["memory"], "MEMORY"),
        (
            "compute beside communication, ms",
            &["compute", "communication"],
            "COMPUTATION overlapping COMMUNICATION",
        ),
    ] {
        let (ours, theirs) = (together(ours), kind(theirs));
        // Most traces have one device and no communication.
        if ours > 0.0 || theirs > 0.0 {
            let why = facts.classes(ours > theirs, analysis.starts_with("memory"));
            table.push(row(analysis, ours, Some(theirs), why));
        }
    }
    for (analysis, class, kind) in [
        ("sum of communication, ms", "communication", "COMMUNICATION"),
        ("sum of copies and fills, ms", "memory", "MEMORY"),
    ] {
        let found = rows(&mine, "classes").find(|row| row["class"] == class);
        let ours = found.map_or(0.0, |row| number(&row["lengths"]["sum_ns"])) / 1e6;
        let of_kind = rows(theirs, "kernels").filter(|row| row["kernel_type"] == kind && is_first(row, hta));
        let theirs: f64 = of_kind.map(|row| number(&row["sum (us)"])).sum::<f64>() / 1e3;
        if ours > 0.0 || theirs > 0.0 {
            table.push(row(analysis, ours, Some(theirs), facts.breakdown()));
        }
    }
    table
}

/// Whether a row of HTA belongs to the shown rank.
fn is_first(row: &Value, hta: &Value) -> bool {
    let shown = rows(hta, "temporal_breakdown").next().map(|row| &row["rank"]);
    shown.is_none_or(|rank| *rank == row["rank"])
}

/// The highest bandwidth of each direction.
fn bandwidth(ours: &Value, hta: &Value) -> Vec<Row> {
    let first = rows(ours, "devices").next().map(|row| row["rank"].clone());
    let theirs = rows(hta, "memory_bw_summary").filter(|row| is_first(row, hta));
    let peak = |theirs: &Value| {
        let name = theirs["name"].as_str()?;
        // HTA merges names that differ only in brackets.
        let same = |row: &&Value| {
            let mine = row["name"].as_str().unwrap_or_default();
            Some(&row["rank"]) == first.as_ref() && mine.split(" (").next() == Some(name)
        };
        let mine = rows(ours, "bandwidth").filter(same).map(|row| number(&row["peak_gb_per_second"]));
        let analysis = match name {
            "Memcpy HtoD" => "peak to the device, GB/s",
            "Memcpy DtoH" => "peak from the device, GB/s",
            "Memcpy DtoD" => "peak within the device, GB/s",
            _ => return None,
        };
        Some(row(analysis, mine.fold(0.0, f64::max), theirs["memory_bw_gbps.max"].as_f64(), BANDWIDTH))
    };
    theirs.filter_map(peak).collect()
}

/// What a critical path of HTA covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathOf {
    /// The training step with this number.
    Step(u64),
    Trace,
    /// A range of the program.
    Range,
}

impl PathOf {
    /// The same events for `timeline --steps`; `None`: all of the trace.
    pub(super) fn steps(self) -> Option<String> {
        match self {
            PathOf::Step(step) => Some(format!("{step}..{}", step + 1)),
            PathOf::Trace | PathOf::Range => None,
        }
    }
}

/// HTA's critical paths, in microseconds; of several ranges of a trace, the first one.
pub(super) fn their_paths(hta: &Value) -> Vec<(PathOf, f64)> {
    let path = |(name, path): (&String, &Value)| {
        let length_us = path["path_us"].as_f64().filter(|_| path["succeeded"] == true)?;
        let (_, of) = name.strip_prefix("rank ")?.split_once(' ')?;
        let step = of.strip_prefix("ProfilerStep#").and_then(|number| number.parse().ok());
        let whole = if of.is_empty() { PathOf::Trace } else { PathOf::Range };
        Some((step.map_or(whole, PathOf::Step), length_us))
    };
    let paths = hta["critical_path"].as_object().into_iter().flatten();
    let mut paths: Vec<_> = paths.filter_map(path).collect();
    paths.dedup_by_key(|(of, _)| *of);
    paths
}

/// The critical path of the first rank, beside HTA's of the same events.
pub(super) fn path(ours: &Value, of: PathOf, theirs_us: f64) -> Option<Row> {
    let mine = number(&rows(ours, "critical_paths").next()?["window_ns"]) / 1e6;
    let theirs_ms = theirs_us / 1e3;
    Some(match of {
        PathOf::Step(_) => row("critical path of a step, ms", mine, Some(theirs_ms), PATH),
        PathOf::Trace => row("critical path, ms", mine, Some(theirs_ms), PATH),
        PathOf::Range => row("critical path, ms", mine, None, PATH_OF_RANGE),
    })
}

/// The rank that others wait for most often.
fn stragglers(ours: &Value, hta: &Value) -> Option<Row> {
    let latest = rows(&ours["stragglers"], "ranks").max_by_key(|row| row["times_latest"].as_u64())?;
    let theirs = hta["potential_stragglers"].as_array();
    let listed = theirs.map(|ranks| ranks.iter().map(Value::to_string).collect::<Vec<_>>().join(", "));
    let ours = latest["rank"].to_string();
    let why = if listed.as_ref() == Some(&ours) { "" } else { STRAGGLERS };
    Some(Row { analysis: "latest rank", ours, hta: listed.unwrap_or_else(|| "–".to_owned()), why })
}

fn row(analysis: &'static str, ours: f64, hta: Option<f64>, why: &'static str) -> Row {
    let show = |figure: f64| if figure.fract() == 0.0 { format!("{figure}") } else { format!("{figure:.3}") };
    // HTA's percentages have two decimals; its times are whole microseconds if the trace's are.
    let rounding = if analysis.ends_with(", ms") { 0.000_6_f64 } else { 0.006 };
    let same = hta.is_some_and(|hta| (hta - ours).abs() <= rounding.max(ours.abs() * 1e-6));
    let why = if same { "" } else { why };
    Row { analysis, ours: show(ours), hta: hta.map_or_else(|| "–".to_owned(), show), why }
}

/// Facts that explain differences.
struct Facts {
    synchronisations: bool,
    /// HTA counts extra work: host events with a stream.
    surplus: bool,
    /// Kernels communicate that are not named `nccl…`.
    unnamed: bool,
    lost_launches: bool,
    several_ranks: bool,
    /// Times have fractions of a microsecond.
    fine: bool,
}

impl Facts {
    fn of(ours: &Value, hta: &Value) -> Self {
        let launches = rows(ours, "launches").next().cloned().unwrap_or_default();
        let trace = rows(ours, "traces").next().cloned().unwrap_or_default();
        let device = rows(ours, "devices").next().cloned().unwrap_or_default();
        let breakdown = rows(hta, "temporal_breakdown").next().cloned().unwrap_or_default();
        let classes = rows(ours, "kernel_classes").flat_map(|row| rows(row, "classes"));
        let communication = classes.filter(|row| row["class"] == "communication");
        let mut names =
            communication.flat_map(|row| rows(row, "kernels")).filter_map(|row| row["name"].as_str());
        Facts {
            unnamed: names.any(|name| !name.starts_with("nccl")),
            synchronisations: number(&trace["sync_events"]) > 0.0,
            surplus: number(&breakdown["compute_time(us)"]) * 1e3 > number(&device["compute_ns"]) + 1e3,
            several_ranks: rows(ours, "traces").count() > 1,
            fine: number(&trace["resolution_ns"]) < 1e3,
            lost_launches: number(&launches["before_trace"]) + number(&launches["without_call"]) > 0.0,
        }
    }

    fn breakdown(&self) -> &'static str {
        match self {
            Facts { synchronisations: true, .. } => "HTA counts synchronisations as work",
            Facts { surplus: true, unnamed: true, .. } => {
                "HTA counts host events with a `stream` argument as work, and knows communication by `nccl` only"
            }
            Facts { unnamed: true, .. } => "HTA knows communication by `nccl` only",
            Facts { surplus: true, .. } => "HTA counts host events with a `stream` argument as work",
            _ => "names with `Memcpy` or `Sync` have no class in HTA",
        }
    }

    /// Why time by classes differs; `less`: HTA has less.
    fn classes(&self, less: bool, of_memory: bool) -> &'static str {
        match self {
            Facts { several_ranks: true, .. } => "HTA adds up all ranks",
            Facts { fine: true, unnamed, .. } if less && (of_memory || !unnamed) => {
                "HTA cuts the times of this table to whole microseconds"
            }
            _ => self.breakdown(),
        }
    }

    fn idle(&self) -> &'static str {
        match self {
            Facts { lost_launches: true, .. } => {
                "HTA takes the first event of the trace for an unknown launch"
            }
            _ => "HTA's gaps are negative where work of a stream overlaps",
        }
    }
}

/// Why launch and queue figures differ.
const LAUNCHES: &str = "HTA knows five calls by name, without those of graphs, HIP and the driver";
const QUEUES: &str = "HTA knows eleven calls by name, without those of graphs and modules";
const BANDWIDTH: &str =
    "HTA adds bandwidths that traces state, of lengths before rounding, also of copies that only touch";
const PATH: &str = "HTA's longest path need not fill the window; ours is a partition of it";
const PATH_OF_RANGE: &str = "HTA's are of ranges; without training steps, ours is of the whole trace";
const STRAGGLERS: &str = "HTA looks at the last call of one collective, ours at every one";

fn rows<'v>(of: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    of[field].as_array().into_iter().flatten()
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn critical_paths_are_compared_over_the_same_events() {
        let check = |name: &str, of: PathOf, steps: Option<&str>| {
            let hta = json!({"critical_path": {name: {"succeeded": true, "path_us": 7.0}}});
            assert_eq!(their_paths(&hta), [(of, 7.0)]);
            assert_eq!(of.steps().as_deref(), steps);
        };
        check("rank 0 ProfilerStep#551", PathOf::Step(551), Some("551..552"));
        check("rank 0 ", PathOf::Trace, None);
        check("rank 0 [param|cuda]", PathOf::Range, None);
        let none = |paths: Value| assert!(their_paths(&json!({"critical_path": paths})).is_empty());
        none(json!({"error": "AssertionError"}));
        none(json!({"rank 0 ": {"succeeded": false, "path_us": 7.0}}));
    }

    #[test]
    fn a_path_of_a_range_has_no_figure_beside_it() {
        let ours = json!({"critical_paths": [{"window_ns": 5_000_000}]});
        let shown = |of| path(&ours, of, 7000.0).map(|row| (row.ours, row.hta, row.why));
        let of = |hta: &str, why| Some(("5".to_owned(), hta.to_owned(), why));
        assert_eq!(shown(PathOf::Step(3)), of("7", PATH));
        assert_eq!(shown(PathOf::Trace), of("7", PATH));
        assert_eq!(shown(PathOf::Range), of("–", PATH_OF_RANGE));
    }
}
