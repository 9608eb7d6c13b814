//! The parts of the list: what is recorded, and which comparisons follow.
//!
//! Owns: one function for each part. Because: device time is short, so each can run alone. Does not: know how programs
//! are started.

use super::compare;
use super::reported::traced;
use super::row::Row;
use super::rust;
use super::slowdown;
use super::stage::Stage;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A part of the list.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(&Stage) -> Result<Vec<Row>>,
}

/// All parts, the shortest first.
pub(super) const PARTS: [Part; 9] = [
    Part { name: "doctor", about: "what `doctor` says of driver and counters", run: doctor },
    Part {
        name: "device",
        about: "name, UUID, architecture and size: the driver's own = the profile's",
        run: device,
    },
    Part { name: "launches", about: "launches by every road: own count = probes = CUPTI", run: launches },
    Part {
        name: "rust",
        about: "a Rust program on cudarc: own count = probes = CUPTI, times",
        run: rust::run,
    },
    Part { name: "memory", about: "allocations, copies, fills, waits: own count = profile", run: memory },
    Part { name: "times", about: "kernel times beside those of a profiler within the program", run: times },
    Part { name: "names", about: "names of kernels that were loaded before the profiler came", run: names },
    Part {
        name: "instructions",
        about: "samples of instructions, their reasons and lines",
        run: instructions,
    },
    Part {
        name: "slowdown",
        about: "a launch-bound loop: bare, T0, T2, a profiler within",
        run: slowdown::run,
    },
];

/// The programs to check, if available: PyTorch, and the driver alone.
fn programs(stage: &Stage) -> Vec<(&'static str, bool)> {
    let torch = stage.no_torch.is_none().then_some(("PyTorch", false));
    [Some(("driver", true)), torch].into_iter().flatten().collect()
}

fn torch_or_lacks(stage: &Stage, part: &'static str, rows: &mut Vec<Row>) {
    if let Some(because) = &stage.no_torch {
        rows.push(Row::lacks(part, "PyTorch and Triton", because));
    }
}

fn doctor(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "doctor";
    let said = stage.product(&["doctor"]).output().context("cannot start deepctx-bpf")?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut rows = Vec::new();
    for wanted in ["privileges", "uprobes", "GPU driver", "GPU counters"] {
        match text.lines().find(|line| line.contains(wanted)) {
            Some(line) => {
                rows.push(Row::figure(PART, wanted, line.split_whitespace().collect::<Vec<_>>().join(" ")))
            }
            None => rows.push(Row::holds(PART, wanted, "a line", "none", false)),
        }
    }
    if !stage.simulated {
        let driver = text.lines().find(|line| line.contains("GPU driver")).unwrap_or("");
        rows.push(Row::holds(
            PART,
            "the driver is found",
            "a version",
            driver.trim(),
            !driver.contains("none"),
        ));
    }
    Ok(rows)
}

fn device(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "device";
    let commands = ["attended", "facts", "roads 5"];
    let run = stage.record("device", &["--gpu-activity"], true, &commands)?;
    let own = &run.account[1];
    let reported = run.reported.process["devices"]
        .as_array()
        .and_then(|all| all.iter().find(|device| device["number"] == 0));
    let Some(reported) = reported else {
        return Ok(vec![Row::holds(PART, "devices", "reported", "none", false)]);
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let digits = |value: &Value| text(value).trim_start_matches("GPU-").replace('-', "");
    let mut rows = vec![
        Row::equal(PART, "name", text(&own["name"]), text(&reported["name"])),
        Row::equal(PART, "UUID", digits(&own["uuid"]), digits(&reported["uuid"])),
        Row::equal(
            PART,
            "compute capability",
            own["capability"].to_string(),
            reported["capability"].to_string(),
        ),
        Row::equal(
            PART,
            "multiprocessors",
            text(&own["multiprocessors"]),
            text(&reported["multiprocessors"]),
        ),
    ];
    // CUPTI may or may not count the driver's own memory.
    let bytes = |value: &Value| value.as_f64().unwrap_or(0.0);
    let (memory, of) = (bytes(&reported["memory_bytes"]), bytes(&own["memory"]));
    let holds = of > 0.0 && (memory / of - 1.0).abs() < 0.05;
    rows.push(Row::holds(
        PART,
        "memory, bytes",
        format!("{of:.0} within 5 %"),
        format!("{memory:.0}"),
        holds,
    ));
    if let Some(instance) = reported.get("instance").filter(|instance| !instance.is_null()) {
        rows.push(Row::figure(PART, "instance", instance.to_string()));
    }
    rows.push(Row::figure(PART, "CUPTI", text(&run.reported.process["note"])));
    Ok(rows)
}

fn launches(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "launches";
    let mut rows = Vec::new();
    for (program, bare) in programs(stage) {
        let commands =
            ["attended", "roads 200", "graphs 50", "operators 500", "compiled 300", "train 20", "loop 5000"];
        // The driver alone has no operators.
        let commands: Vec<&str> =
            commands.into_iter().filter(|command| !bare || !command.starts_with("operators")).collect();
        for (tier, words) in [("T0", &[][..]), ("T2", &["--gpu-activity"])] {
            let run = stage.record(&format!("launches-{program}-{tier}"), words, bare, &commands)?;
            let named = |row: Row| Row { what: format!("{program} {tier}: {}", row.what), ..row };
            // Detects kernels that a late attach or an unusual call path leaves without a name: they are missing below
            // theirs.
            rows.extend(
                compare::counts(PART, &run.account, &run.reported, tier == "T2").into_iter().map(named),
            );
            if tier == "T2" {
                rows.extend(compare::both_sides(PART, &run.reported).into_iter().map(named));
            }
            let missing = run.account.iter().filter_map(|said| said["lacks"].as_str());
            rows.extend(missing.map(|what| Row::lacks(PART, format!("{program} {tier}"), what)));
            let seen = format!(
                "{} launches, {} in graphs",
                run.reported.number("launches"),
                run.reported.number("captured")
            );
            rows.push(Row::figure(PART, format!("{program} {tier}: all"), seen));
        }
    }
    torch_or_lacks(stage, PART, &mut rows);
    Ok(rows)
}

fn memory(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "memory";
    let run = stage.record("memory", &["--gpu-activity"], true, &["attended", "memory 100"])?;
    let mut rows = compare::calls(PART, &run.account, &run.reported);
    let reported = run.reported.number("transfers_collected");
    rows.push(Row::equal(PART, "copies and fills while collected", 500, reported));
    let timed: u64 = run
        .reported
        .calls
        .values()
        .filter_map(|metrics| metrics.get("copy-time"))
        .map(|entered| entered.times)
        .sum();
    rows.push(Row::equal(PART, "copies and fills with a time", reported, timed));
    Ok(rows)
}

fn times(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "times";
    let mut rows = Vec::new();
    for (program, bare) in programs(stage) {
        let trace = stage.file(&format!("{program}.trace.json"));
        let profiled = format!("profiled {} train 30", trace.display());
        let named = |row: Row| Row { what: format!("{program}: {}", row.what), ..row };
        let commands = ["attended", &profiled, "pause 500"];
        let run = stage.record(&format!("times-{program}-T1"), &[], bare, &commands)?;
        let theirs = traced(&std::fs::read_to_string(&trace).context("the program wrote no trace")?)?;
        rows.push(named(Row::equal(
            PART,
            "records are read along",
            "borrowed",
            run.reported.process["tier"].as_str().unwrap_or("none"),
        )));
        rows.push(named(compare::totals(PART, &theirs, &run.reported)));
        let ours = traced(&stage.trace(&run)?)?;
        rows.extend(compare::same_run(PART, &theirs, &ours).into_iter().map(named));
        let commands = ["attended", "train 30", "pause 500"];
        let run = stage.record(&format!("times-{program}-T2"), &["--gpu-activity"], bare, &commands)?;
        rows.push(named(compare::two_runs(PART, &theirs, &traced(&stage.trace(&run)?)?)));
    }
    torch_or_lacks(stage, PART, &mut rows);
    Ok(rows)
}

fn names(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "names";
    let mut rows = Vec::new();
    for (program, bare) in programs(stage) {
        let mut running = stage.start(bare, false)?;
        let said = running.tell("names")?;
        let step = said["step"].as_object().context("the program knows no names")?;
        let step: BTreeMap<String, u64> =
            step.iter().map(|(name, times)| (name.clone(), times.as_u64().unwrap_or(0))).collect();
        running.tell("train 3")?;
        let attached = stage.attach(&format!("names-{program}"), &mut running, &[])?;
        // Names are recovered once handles without names were launched.
        for _ in 0..if stage.simulated { 3 } else { 6 } {
            running.tell("train 20")?;
            std::thread::sleep(Duration::from_millis(700));
        }
        let reported = stage.detach(attached)?;
        let found = compare::recovered(&step, &reported);
        let got = format!("{} right, {} unnamed, {} wrong", found.right, found.unnamed, found.wrong);
        let any = found.right + found.unnamed > 0;
        rows.push(Row::holds(
            PART,
            format!("{program}: names found late"),
            "none wrong",
            got,
            any && found.wrong == 0,
        ));
        let kernels = reported.kernels.keys().filter(|name| !name.contains("[unknown")).count();
        rows.push(Row::figure(
            PART,
            format!("{program}: kernels named"),
            format!("{kernels} of {}", step.len()),
        ));
    }
    torch_or_lacks(stage, PART, &mut rows);
    Ok(rows)
}

fn instructions(stage: &Stage) -> Result<Vec<Row>> {
    const PART: &str = "instructions";
    let bare = stage.no_torch.is_some();
    // An existing context is sampled from its next launch on.
    let commands = ["sampled", "compiled 1", "pause 500", "compiled 2000", "pause 500"];
    let run = stage.record("instructions", &["--pc-sampling"], bare, &commands)?;
    let said = &run.account[1];
    if let Some(lacks) = said["lacks"].as_str() {
        return Ok(vec![Row::lacks(PART, "samples of a kernel with lines", lacks)]);
    }
    let (kernel, file) = (said["kernel"].as_str().unwrap_or(""), said["file"].as_str().unwrap_or(""));
    let all: u64 = run.reported.instructions.iter().map(|instruction| instruction.samples).sum();
    let of_kernel: Vec<_> =
        run.reported.instructions.iter().filter(|instruction| instruction.kernel.contains(kernel)).collect();
    let samples: u64 = of_kernel.iter().map(|instruction| instruction.samples).sum();
    let with_lines: u64 =
        of_kernel.iter().filter(|instruction| instruction.label.contains(file)).map(|one| one.samples).sum();
    let note = run.reported.process["note"].as_str().unwrap_or("").to_owned();
    let mut rows = vec![
        Row::figure(PART, "how", note),
        Row::holds(PART, format!("samples of {kernel}"), "some", format!("{samples} of {all}"), samples > 0),
        Row::holds(
            PART,
            format!("of these, at lines of {file}"),
            "more than half",
            with_lines.to_string(),
            2 * with_lines > samples,
        ),
    ];
    for gap in
        ["pc-sample-dropped", "pc-buffer-full", "pc-out-of-range", "stall-reason-unknown", "pc-lines-unread"]
    {
        let count = run.reported.losses.get(gap).copied().unwrap_or(0);
        rows.push(Row::figure(PART, gap, count.to_string()));
    }
    Ok(rows)
}
