//! The parts of a stored profile that the checks compare.
//!
//! Owns: reading the exports of the program. Because: checks must use what users see. Does not: judge.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// Values of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    /// Launches that probes counted.
    pub(super) launches: u64,
    /// Runs with a reported time.
    pub(super) timed: u64,
    /// Total time of these runs, nanoseconds.
    pub(super) ns: u64,
}

/// Count and sum of an entered quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EntrySum {
    pub(super) times: u64,
    pub(super) sum: u64,
}

/// Samples at one instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) kernel: String,
    /// `kernel+0x120 (file:7)`
    pub(super) label: String,
    pub(super) samples: u64,
}

/// A profile.
#[derive(Debug, Default)]
pub(super) struct ReportedProfile {
    pub(super) kernels: BTreeMap<String, Kernel>,
    /// By function and metric: values in calls and below.
    pub(super) calls: BTreeMap<String, BTreeMap<String, EntrySum>>,
    pub(super) instructions: Vec<Instruction>,
    /// The process with most device use, from the manifest.
    pub(super) process: Value,
    /// By reason of the ledger.
    pub(super) losses: BTreeMap<String, u64>,
}

/// Prefix of kernel names; instructions have none.
const KERNEL: &str = "[gpu] ";

fn is_instruction(frame: &Value) -> bool {
    frame["kind"] == "gpu_kernel" && frame["name"].as_str().is_some_and(|name| !name.starts_with(KERNEL))
}

fn plain(name: &str) -> &str {
    name.strip_prefix(KERNEL).unwrap_or(name)
}

/// Contexts of a whole export, by number.
struct Contexts<'a> {
    frames: &'a [Value],
    contexts: &'a [Value],
}

impl Contexts<'_> {
    /// The frame of a context, and its caller's number.
    fn at(&self, number: usize) -> Option<(&Value, Option<usize>)> {
        let context = self.contexts.get(number)?;
        let frame = self.frames.get(usize::try_from(context["frame"].as_u64()?).ok()?)?;
        Some((frame, context["parent"].as_u64().and_then(|parent| usize::try_from(parent).ok())))
    }

    /// The name of the nearest frame of this kind, from a context outwards.
    fn nearest(&self, kind: &str, mut number: usize) -> Option<&str> {
        loop {
            let (frame, parent) = self.at(number)?;
            if frame["kind"] == kind && !is_instruction(frame) {
                return frame["name"].as_str().map(plain);
            }
            number = parent.filter(|parent| *parent < number)?;
        }
    }
}

impl ReportedProfile {
    /// Reads the export in JSON (`export --format json --lines`) and the manifest.
    pub(super) fn read(export: &str, manifest: &str) -> Result<Self> {
        let export: Value = serde_json::from_str(export).context("the export is no JSON")?;
        let manifest: Value = serde_json::from_str(manifest).context("the manifest is no JSON")?;
        let list = |name: &str| export[name].as_array().map(Vec::as_slice).context("the export lacks a list");
        let all = Contexts { frames: list("frames")?, contexts: list("contexts")? };
        let mut reported = Self::default();
        for (number, context) in all.contexts.iter().enumerate() {
            let (Some(values), Some((frame, _))) = (context["values"].as_object(), all.at(number)) else {
                continue;
            };
            for (metric, value) in values {
                let entered =
                    EntrySum { times: value[0].as_u64().unwrap_or(0), sum: value[1].as_u64().unwrap_or(0) };
                reported.take(&all, number, frame, metric, entered);
            }
        }
        let most = |process: &&Value| {
            process["launches"].as_u64().unwrap_or(0) + process["transfers"].as_u64().unwrap_or(0)
        };
        if let Some(process) = manifest["gpu"].as_array().and_then(|all| all.iter().max_by_key(most)) {
            reported.process = process.clone();
        }
        for loss in list("losses")? {
            if let (Some(reason), Some(count)) = (loss["reason"].as_str(), loss["count"].as_u64()) {
                *reported.losses.entry(reason.to_owned()).or_default() += count;
            }
        }
        Ok(reported)
    }

    fn take(&mut self, all: &Contexts<'_>, number: usize, frame: &Value, metric: &str, entered: EntrySum) {
        if metric.starts_with("stall:") {
            if let Some(kernel) = all.nearest("gpu_kernel", number) {
                self.instructions.push(Instruction {
                    kernel: kernel.to_owned(),
                    label: format!(
                        "{} {}",
                        frame["name"].as_str().unwrap_or(""),
                        frame["where"].as_str().unwrap_or("")
                    ),
                    samples: entered.sum,
                });
            }
            return;
        }
        if frame["kind"] == "gpu_kernel" && matches!(metric, "kernels" | "gpu-time") {
            let kernel =
                self.kernels.entry(plain(frame["name"].as_str().unwrap_or("")).to_owned()).or_default();
            match metric {
                "kernels" => kernel.launches += entered.sum,
                _ => (kernel.timed, kernel.ns) = (kernel.timed + entered.times, kernel.ns + entered.sum),
            }
        }
        if let Some(function) = all.nearest("gpu_api", number) {
            let metrics = self.calls.entry(function.to_owned()).or_default();
            let known = metrics.entry(metric.to_owned()).or_default();
            (known.times, known.sum) = (known.times + entered.times, known.sum + entered.sum);
        }
    }

    /// A number of the process.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.process[name].as_u64().unwrap_or(0)
    }

    /// Sum over kernels whose name contains this.
    pub(super) fn containing(&self, part: &str) -> Kernel {
        self.kernels.iter().filter(|(name, _)| name.contains(part)).fold(Kernel::default(), |sum, (_, of)| {
            Kernel { launches: sum.launches + of.launches, timed: sum.timed + of.timed, ns: sum.ns + of.ns }
        })
    }
}

/// One kernel of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TracedKernel {
    pub(super) name: String,
    pub(super) correlation: u64,
    /// Microseconds.
    pub(super) took: f64,
}

/// The kernels of a Chrome trace, as written by PyTorch's profiler and our export.
pub(super) fn traced(text: &str) -> Result<Vec<TracedKernel>> {
    let trace: Value = serde_json::from_str(text).context("the trace is no JSON")?;
    let events =
        trace["traceEvents"].as_array().or_else(|| trace.as_array()).context("the trace has no events")?;
    let kernels = events.iter().filter(|event| event["cat"] == "kernel" && event["ph"] == "X");
    let traced = |event: &Value| {
        Some(TracedKernel {
            name: event["name"].as_str()?.to_owned(),
            correlation: event["args"]["correlation"].as_u64()?,
            took: event["dur"].as_f64()?,
        })
    };
    Ok(kernels.filter_map(traced).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_below_a_call_is_the_calls() {
        let export = r#"{"frames":[{"kind":"root","name":"all"},{"kind":"gpu_api","name":"cuLaunchKernel"},
            {"kind":"gpu_kernel","name":"[gpu] gemm"},{"kind":"gpu_kernel","name":"gemm+0x10","where":"a.cu:7"}],
            "contexts":[{"frame":0,"parent":null,"values":{}},{"frame":1,"parent":0,"values":{"launch-time":[2,9]}},
            {"frame":2,"parent":1,"values":{"kernels":[2,2],"gpu-time":[1,5000]}},
            {"frame":3,"parent":2,"values":{"stall:wait":[1,40]}}],
            "losses":[{"reason":"late","count":3},{"reason":"late","count":1}]}"#;
        let manifest = r#"{"gpu":[{"pid":1,"launches":0},{"pid":2,"launches":2}]}"#;
        let reported = ReportedProfile::read(export, manifest).unwrap();
        assert_eq!(reported.kernels["gemm"], Kernel { launches: 2, timed: 1, ns: 5000 });
        assert_eq!(reported.calls["cuLaunchKernel"]["launch-time"], EntrySum { times: 2, sum: 9 });
        assert_eq!(reported.calls["cuLaunchKernel"]["kernels"], EntrySum { times: 2, sum: 2 });
        assert_eq!(reported.instructions[0].label, "gemm+0x10 a.cu:7");
        assert_eq!((reported.number("pid"), reported.losses["late"]), (2, 4));
        assert!(
            ReportedProfile::read("{}", manifest).is_err() && ReportedProfile::read(export, "no").is_err()
        );
    }

    #[test]
    fn kernels_of_a_trace_are_those_of_the_category() {
        let text = r#"{"traceEvents":[{"ph":"X","cat":"kernel","name":"a","dur":2.5,"args":{"correlation":7}},
            {"ph":"X","cat":"cpu_op","name":"b","dur":1},{"ph":"s","cat":"kernel"}]}"#;
        let expect = TracedKernel { name: "a".to_owned(), correlation: 7, took: 2.5 };
        assert_eq!(traced(text).unwrap(), [expect]);
        assert!(traced("{}").is_err());
    }
}
