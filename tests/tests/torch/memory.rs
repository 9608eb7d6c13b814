//! Tensor memory seen from outside, beside the programs' and PyTorch's own account.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

use crate::cli_support::{expect_code, folded};
use crate::frameworks::{can_capture_arguments, record_through, stacks, with_torch, workload};
use deepctx_events::{Event as Probed, Role, TensorEvent};
use deepctx_pipeline::decode::{Event, records};
use deepctx_pipeline::input::{Input, SiteInfo, Source as _};
use deepctx_session::RawReader;

/// Sums of a metric by the innermost of these functions on a stack.
fn by_function(file: &str, metric: &str, functions: &[&str]) -> BTreeMap<String, u64> {
    let folded = folded(file, metric, &[]);
    let mut sums = BTreeMap::new();
    for line in folded.lines() {
        let (stack, bytes) = line.rsplit_once(' ').unwrap();
        let (stack, device) = stack.rsplit_once(";[memory] ").unwrap();
        let named =
            |frame: &str| functions.iter().find(|name| frame.contains(&format!("::{name}("))).copied();
        let function = stack.split(';').rev().find_map(named).unwrap_or(stack);
        *sums.entry(format!("{device} {function}")).or_insert(0) += bytes.parse::<u64>().unwrap();
    }
    sums
}

#[test]
fn memory_is_reported_by_allocating_stack_and_at_peak() {
    if !can_capture_arguments() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let compile = |arguments: &[&str], to: &str| {
        let search = format!("-L{}", folder.path().display());
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O2", "-fomit-frame-pointer", "-o"]).arg(folder.path().join(to));
        compiler.arg(workload("torch_memory.cpp")).args(arguments).args([&search, "-Wl,-rpath,$ORIGIN"]);
        assert!(compiler.status().unwrap().success());
    };
    compile(&["-fPIC", "-shared", "-DC10"], "libc10.so");
    compile(&["-fPIC", "-shared", "-DC10_CUDA", "-lc10"], "libc10_cuda.so");
    compile(&["-pthread", "-lc10_cuda", "-lc10"], "program");

    let mut program = Command::new(folder.path().join("program"));
    let (_folder, file) = record_through(&mut program, &["--context", "native", "--probe", "memory"]);
    assert_eq!(reported(&file), expected());
}

type Sums = Vec<(String, u64)>;

/// The program's actions, by metric, device and function; then lines of the report.
fn expected() -> (Sums, Vec<String>) {
    let mut sums = Sums::new();
    let mut add = |metric: &str, of: &[(&str, u64)]| {
        sums.extend(of.iter().map(|(who, bytes)| (format!("{metric} {who}"), *bytes)));
    };
    let (model, step) = (("cpu model", 3 * 1000), 4096);
    let (weights, activations) = (("cuda:0 weights", 2 * 1024), ("cuda:0 activations", 50 * 2048));
    add("tensor-bytes", &[model, ("cpu step", 100 * step), activations, weights]);
    add("tensor-returned-bytes", &[("cpu step", 100 * step), activations]);
    add("peak-bytes", &[model, ("cpu step", step), activations, weights]);
    add("live-bytes", &[model, weights]);
    let lines = [
        "most at a time, of 2.00 MiB that the allocator held (95.0% unused); 52 allocations of 102 KiB in all",
        "2.4% more were given out than asked for",
        "most at a time; 103 allocations of 403 KiB in all",
        "tensor-free-unknown 1 gap",
    ];
    (sums, lines.map(str::to_owned).into())
}

fn reported(file: &str) -> (Sums, Vec<String>) {
    const FUNCTIONS: [&str; 4] = ["model", "step", "weights", "activations"];
    let mut sums = Sums::new();
    for metric in ["tensor-bytes", "tensor-returned-bytes", "peak-bytes", "live-bytes"] {
        let of = by_function(file, metric, &FUNCTIONS);
        sums.extend(of.into_iter().map(|(who, bytes)| (format!("{metric} {who}"), bytes)));
    }
    let report = expect_code(0, &["report", file, "--all"]);
    let said = report.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = said.filter_map(|line| {
        let (peak, gap) = (line.find("most at a time"), line.find("tensor-free"));
        let from = peak.or(gap).or_else(|| line.find("asked for").map(|_| 0))?;
        let gap = gap.map(|_| line[from..].split(' ').take(3).collect::<Vec<_>>().join(" "));
        Some(gap.unwrap_or_else(|| line[from..].to_owned()))
    });
    (sums, lines.collect())
}

/// An allocation (bytes above 0) or a free, in order.
type Change = (u64, i64);

/// The probes' reports of the host allocator between two allocations of these sizes, both included.
fn seen(raw: &Path, (first, last): (i64, i64)) -> Vec<Change> {
    let mut reader = RawReader::new(BufReader::new(File::open(raw).unwrap())).unwrap();
    let mut sites: BTreeMap<u32, SiteInfo> = BTreeMap::new();
    let mut calls: Vec<((u64, u16, u64), Change)> = Vec::new();
    while let Some(input) = reader.next_input().unwrap() {
        let bytes = match input {
            Input::Sites(new) => {
                sites.extend(new.into_iter().map(|site| (site.site, site)));
                continue;
            }
            Input::Records(bytes) => bytes,
            _ => continue,
        };
        for slot in records(&bytes) {
            let Ok(Event::Call(sample, arguments)) = slot.event else { continue };
            let Some(site) = sites.get(&arguments.call.site) else { continue };
            let argument = |role| {
                let at = site.roles.iter().position(|other| *other == role)?;
                arguments.values.iter().nth(at)
            };
            let change = match site.event {
                Probed::Tensor(TensorEvent::Alloc) => {
                    (argument(Role::Address).unwrap(), argument(Role::Bytes).unwrap() as i64)
                }
                Probed::Tensor(TensorEvent::Free) => (argument(Role::Address).unwrap(), 0),
                _ => continue,
            };
            let header = sample.fixed.header;
            calls.push(((header.time_ns, header.cpu, header.sequence), change));
        }
    }
    calls.sort_unstable();
    let changes = calls.into_iter().map(|(_, change)| change);
    let changes: Vec<Change> = changes.skip_while(|(_, bytes)| *bytes != first).collect();
    let end = changes.iter().position(|(_, bytes)| *bytes == last).map_or(changes.len(), |at| at + 1);
    followed(&changes[..end])
}

/// Gives frees the size of their allocation; frees of older memory are skipped, as in PyTorch.
fn followed(changes: &[Change]) -> Vec<Change> {
    let mut live: BTreeMap<u64, i64> = BTreeMap::new();
    let changes = changes.iter().filter_map(|(address, bytes)| match bytes {
        0 => Some((*address, -live.remove(address)?)),
        bytes => {
            live.insert(*address, *bytes);
            Some((*address, *bytes))
        }
    });
    changes.collect()
}

/// The records of PyTorch's profiler in the same program.
fn noted(trace: &Path, (first, last): (i64, i64)) -> Vec<Change> {
    let trace: serde_json::Value =
        serde_json::from_reader(BufReader::new(File::open(trace).unwrap())).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let changes = events.iter().filter(|event| event["name"] == "[memory]").map(|event| {
        let arguments = &event["args"];
        (arguments["Addr"].as_u64().unwrap(), arguments["Bytes"].as_i64().unwrap())
    });
    let changes: Vec<Change> = changes.skip_while(|(_, bytes)| *bytes != first).collect();
    let end = changes.iter().position(|(_, bytes)| *bytes == last).map_or(changes.len(), |at| at + 1);
    changes[..end].to_vec()
}

#[test]
fn allocations_and_frees_match_torchs_own_profiler() {
    const MARKS: (i64, i64) = (1_234_567, 1_234_569);
    let Some(mut command) = with_torch("torch_memory.py") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [trace, lines, raw] = ["trace", "lines", "raw"].map(|name| folder.path().join(name));
    command.arg(&trace).arg(&lines);
    let raw_text = raw.display().to_string();
    let options = ["--context", "python,native", "--probe", "memory", "--raw", &raw_text];
    let (_folder, file) = record_through(&mut command, &options);

    let (expect, found) = (noted(&trace, MARKS), seen(&raw, MARKS));
    let said = std::fs::read_to_string(&lines).unwrap();
    let said: BTreeMap<&str, u64> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(place, bytes)| (place, bytes.parse().unwrap()))
        .collect();
    let by_line = by_line(&file);
    let of_lines: BTreeMap<&str, u64> =
        said.keys().map(|place| (*place, by_line.get(*place).copied().unwrap_or(0))).collect();
    println!("| {} allocations and frees, {} lines", expect.len(), said.len());
    let difference = expect.iter().zip(&found).position(|(a, b)| a != b);
    assert!(expect == found, "{} noted, {} seen, differ at {difference:?}", expect.len(), found.len());
    assert_eq!(said, of_lines);
    assert!(expect.len() > 1000 && said.len() == 5, "{said:?}");
}

/// Tensor bytes by the allocating Python line.
fn by_line(file: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (stack, bytes) in stacks(file, "tensor-bytes") {
        let python = stack.split(';').rfind(|frame| frame.contains(".py:"));
        if let Some((file, rest)) = python.and_then(|frame| frame.split_once(".py:")) {
            let line = rest.rsplit(':').next().unwrap_or(rest);
            *sums.entry(format!("{file}.py:{line}")).or_insert(0) += bytes;
        }
    }
    sums
}
