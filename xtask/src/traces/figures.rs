//! Figures of a trace: ours, those of plain counting, those of HTA.
//!
//! Owns: which field of one answers which of the other, and the reasons for differences. Because: a difference without
//! a reason is an error of one of the two. Does not: run anything.

use serde_json::Value;

/// One figure beside HTA's.
pub(super) struct Row {
    pub(super) analysis: &'static str,
    pub(super) ours: String,
    pub(super) hta: String,
    pub(super) why: &'static str,
}

/// Kinds of events here, and the categories of the traces that they come from.
const KINDS: [(&str, &[&str]); 5] = [
    ("kernel", &["kernel"]),
    ("copy", &["gpu_memcpy", "memcpy"]),
    ("fill", &["gpu_memset", "memset"]),
    ("runtime-call", &["cuda_runtime", "runtime"]),
    ("synchronisation", &["cuda_sync"]),
];

/// Where our sums are not those of plain counting, by rank.
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
            // The reference adds begins as floating-point numbers, each off by up to 0.12 ns in 10⁶ seconds.
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

/// Count and nanoseconds of each kernel, over all operators and what none launched.
fn by_kernel(operators: &Value) -> std::collections::BTreeMap<&str, (f64, f64)> {
    let mut kernels = std::collections::BTreeMap::new();
    let owners = rows(operators, "rows").map(|row| &row["launched"]).chain([&operators["outside"]]);
    for kernel in owners.flat_map(|owner| rows(owner, "kernels")) {
        let row: &mut (f64, f64) = kernels.entry(kernel["name"].as_str().unwrap_or_default()).or_default();
        *row = (row.0 + number(&kernel["count"]), row.1 + number(&kernel["device_ns"]));
    }
    kernels
}

/// Our figures of the first rank beside HTA's.
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
    table
}

fn row(analysis: &'static str, ours: f64, hta: Option<f64>, why: &'static str) -> Row {
    let show = |figure: f64| if figure.fract() == 0.0 { format!("{figure}") } else { format!("{figure:.3}") };
    // HTA's percentages have two decimals, its times are whole microseconds where the trace's are.
    let rounding = if analysis.ends_with(", ms") { 0.000_6_f64 } else { 0.006 };
    let same = hta.is_some_and(|hta| (hta - ours).abs() <= rounding.max(ours.abs() * 1e-6));
    let why = if same { "" } else { why };
    Row { analysis, ours: show(ours), hta: hta.map_or_else(|| "–".to_owned(), show), why }
}

/// What decides why a figure differs.
struct Facts {
    synchronisations: bool,
    /// HTA counts more work than there is: host events with a stream.
    surplus: bool,
    lost_launches: bool,
}

impl Facts {
    fn of(ours: &Value, hta: &Value) -> Self {
        let launches = rows(ours, "launches").next().cloned().unwrap_or_default();
        let trace = rows(ours, "traces").next().cloned().unwrap_or_default();
        let device = rows(ours, "devices").next().cloned().unwrap_or_default();
        let breakdown = rows(hta, "temporal_breakdown").next().cloned().unwrap_or_default();
        Facts {
            synchronisations: number(&trace["sync_events"]) > 0.0,
            surplus: number(&breakdown["compute_time(us)"]) * 1e3 > number(&device["compute_ns"]) + 1e3,
            lost_launches: number(&launches["before_trace"]) + number(&launches["without_call"]) > 0.0,
        }
    }

    fn breakdown(&self) -> &'static str {
        match self {
            Facts { synchronisations: true, .. } => "HTA counts synchronisations as work",
            Facts { surplus: true, .. } => "HTA counts host events with a `stream` argument as work",
            _ => "names with `Memcpy` or `Sync` have no class in HTA",
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

/// Why figures of launches and of queues differ.
const LAUNCHES: &str = "HTA knows five calls by name, without those of graphs, HIP and the driver";
const QUEUES: &str = "HTA knows eleven calls by name, without those of graphs and modules";

fn rows<'v>(of: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    of[field].as_array().into_iter().flatten()
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or(0.0)
}
