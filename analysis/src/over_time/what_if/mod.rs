//! What-if: how long a window would have taken if parts of it had been shorter.
//!
//! Owns: [`Edit`], [`WhatIf`] and its refusals. Because: work on the critical path can shorten the window, but the gain
//! depends on what limits it then. Does not: measure; every figure here is modelled, and a model that does not explain
//! the trace gives none.
//!
//! The events and edges are in `model.rs`. HTA lets users change weights of its graph and takes the longest path again;
//! gaps of threads have no weight there, so a shorter kernel can seem to save time that the host needs anyway.

mod model;

use std::fmt;
use std::str::FromStr;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::Job;
use serde::Serialize;

use super::steps::RefusedStep;
use super::window::{Steps, Window};
use model::Model;

/// Unexplained lateness as a share of the window in percent: above it there is no figure, and above the lower bound a
/// warning. Traces whose replay is accurate to 2 % have at most 1.3 %; those that are 10 % off have 8.8 % and more.
const REFUSED_PERCENT: f64 = 5.0;
const DOUBTFUL_PERCENT: f64 = 3.0;

/// A change of times, or an omission.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// `kernel:TEXT=FACTOR`: device work whose name contains this text.
    Kernel(String, f64),
    /// `host:TEXT=FACTOR`: threads while in operators, ranges or functions whose name contains this text.
    Host(String, f64),
    /// `operator:TEXT=FACTOR`: the same, and the work launched there.
    Operator(String, f64),
    /// `launch-delay=FACTOR`: from each launch to the begin of its work, where nothing else is waited for.
    LaunchDelay(f64),
    /// `no-wait:TEXT`: calls whose name contains this text wait for no device.
    NoWait(String),
}

impl FromStr for Edit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected kernel:TEXT=FACTOR, operator:TEXT=FACTOR, host:TEXT=FACTOR, launch-delay=FACTOR or \
                 no-wait:TEXT, found `{}`",
                clean(text)
            )
        };
        if let Some(name) = text.strip_prefix("no-wait:").filter(|name| !name.is_empty()) {
            return Ok(Edit::NoWait(name.to_owned()));
        }
        let (what, factor) = text.rsplit_once('=').ok_or_else(expected)?;
        let factor: f64 = factor.parse().map_err(|_| expected())?;
        if !(0.0..=1000.0).contains(&factor) {
            return Err(format!("a factor is between 0 and 1000, found `{factor}`"));
        }
        match what.split_once(':') {
            Some(("kernel", name)) if !name.is_empty() => Ok(Edit::Kernel(name.to_owned(), factor)),
            Some(("host", name)) if !name.is_empty() => Ok(Edit::Host(name.to_owned(), factor)),
            Some(("operator", name)) if !name.is_empty() => Ok(Edit::Operator(name.to_owned(), factor)),
            None if what == "launch-delay" => Ok(Edit::LaunchDelay(factor)),
            _ => Err(expected()),
        }
    }
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Kernel(name, factor) => write!(f, "kernel:{}={factor}", clean(name)),
            Edit::Host(name, factor) => write!(f, "host:{}={factor}", clean(name)),
            Edit::Operator(name, factor) => write!(f, "operator:{}={factor}", clean(name)),
            Edit::LaunchDelay(factor) => write!(f, "launch-delay={factor}"),
            Edit::NoWait(name) => write!(f, "no-wait:{}", clean(name)),
        }
    }
}

/// Whether the figure can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// The model explains the trace.
    Modelled,
    /// It leaves a part unexplained.
    Doubtful,
    /// It leaves too much unexplained: there is no figure.
    Refused,
    /// The edits change nothing: no name in the window matches.
    NothingEdited,
}

/// Modelled length of a rank's window.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The rank. Others are assumed unchanged.
    pub rank: u32,
    /// The edits, all applied at once.
    pub edits: Vec<String>,
    /// Measured length of the window.
    pub measured_ns: u64,
    /// The same with the edits, by the model; `None` if it is refused.
    pub modelled_ns: Option<u64>,
    /// Reduction in percent of the measured length; negative if longer.
    pub gain_percent: Option<f64>,
    /// Whether the figure can be believed.
    pub trust: Confidence,
    /// Unexplained lateness of device work, as a share of the window.
    pub unexplained_percent: f64,
    /// Number of changed parts of the model.
    pub edited: u64,
    /// Number of guessed handoffs between threads.
    pub guessed_handoffs: u64,
    /// Whether a program with these edits may be incorrect: a wait is left out.
    pub if_independent: bool,
}

impl WhatIf {
    /// The edits each alone, and then all together, for each rank.
    pub fn compute(job: &Job, of: Steps, edits: &[Edit]) -> Vec<WhatIf> {
        let mut rows = Vec::new();
        for rank in job.ranks() {
            let window = Window::new(rank, of);
            let refused = RefusedStep::of(&window).is_some();
            let Some(model) = Model::of(&window).filter(|_| !refused) else { continue };
            rows.extend(edits.iter().map(|edit| row(&model, std::slice::from_ref(edit))));
            if edits.len() > 1 {
                rows.push(row(&model, edits));
            }
        }
        rows
    }
}

fn row(model: &Model<'_>, edits: &[Edit]) -> WhatIf {
    let measured_ns = model.measured_ns();
    let unexplained_percent = model.unexplained_ns() as f64 * 100.0 / measured_ns.max(1) as f64;
    let (modelled_ns, edited) = model.run(edits);
    let trust = match unexplained_percent {
        _ if edited == 0 => Confidence::NothingEdited,
        share if share > REFUSED_PERCENT => Confidence::Refused,
        share if share > DOUBTFUL_PERCENT => Confidence::Doubtful,
        _ => Confidence::Modelled,
    };
    let modelled_ns = matches!(trust, Confidence::Modelled | Confidence::Doubtful).then_some(modelled_ns);
    let gain = |modelled: u64| (measured_ns as f64 - modelled as f64) * 100.0 / measured_ns.max(1) as f64;
    WhatIf {
        rank: model.rank(),
        edits: edits.iter().map(Edit::to_string).collect(),
        measured_ns,
        modelled_ns,
        gain_percent: modelled_ns.map(gain),
        trust,
        unexplained_percent,
        edited,
        guessed_handoffs: model.guessed_handoffs(),
        if_independent: edits.iter().any(|edit| matches!(edit, Edit::NoWait(_))),
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::text;

    use super::*;

    fn rows(input: &str, edits: &[&str]) -> Vec<WhatIf> {
        let job = Job::new(vec![("t.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        let edits: Vec<Edit> = edits.iter().map(|edit| edit.parse().unwrap()).collect();
        WhatIf::compute(&job, Steps::default(), &edits)
    }

    /// Length of the window with an edit, in microseconds.
    fn check(input: &str, edit: &str, expect: u64) {
        let row = rows(input, &[edit]).remove(0);
        assert_eq!(row.modelled_ns.map(|ns| ns / 1000), Some(expect), "{edit}: {row:?}");
    }

    /// The host launches three kernels and waits for them; launches take 10 µs, and the first gap belongs to the host.
    const BOUND_BY_DEVICE: &str = "
        op m 0..10 prepare
        call m 10..12 cudaLaunchKernel #1
        call m 13..15 cudaLaunchKernel #2
        call m 16..18 cudaLaunchKernel #3
        call m 19..114 cudaStreamSynchronize #4
        kernel 0/7 20..50 gemm #1
        kernel 0/7 51..80 relu #2
        kernel 0/7 81..110 gemm #3
        sync stream 0/7 19..112 #4";

    #[test]
    fn a_window_without_changes_is_as_measured() {
        check(BOUND_BY_DEVICE, "kernel:gemm=1", 114);
        check(BOUND_BY_DEVICE, "launch-delay=1", 114);
    }

    #[test]
    fn what_is_waited_for_makes_the_window_shorter() {
        // The second kernel begins 10 µs after its launch then, runs 29 µs, and the host takes 4 µs to return.
        check(BOUND_BY_DEVICE, "kernel:gemm=0", 13 + 10 + 29 + 1 + 4);
        check(BOUND_BY_DEVICE, "kernel:relu=0.5", 99);
        // Only the first launch counts: the others overlap.
        check(BOUND_BY_DEVICE, "launch-delay=0", 104);
        check(BOUND_BY_DEVICE, "launch-delay=0.5", 109);
        check(BOUND_BY_DEVICE, "host:prepare=0", 104);
        // A longer time is possible, too.
        check(BOUND_BY_DEVICE, "kernel:relu=2", 143);
        // Without its wait the host is done at 24, and the device still at 110.
        check(BOUND_BY_DEVICE, "no-wait:StreamSync", 110);
        assert!(rows(BOUND_BY_DEVICE, &["no-wait:StreamSync"])[0].if_independent);
    }

    #[test]
    fn a_row_without_calls_bounds_nothing() {
        let with_row = format!("op profiler 0..114 Trace\n{BOUND_BY_DEVICE}");
        check(&with_row, "kernel:gemm=0", 13 + 10 + 29 + 1 + 4);
    }

    #[test]
    fn gaps_of_the_host_hide_kernels() {
        // The second launch comes late: a shorter first kernel gains nothing.
        let bound_by_host = "
            call m 0..2 cudaLaunchKernel #1
            op m 3..90 aten::item
            call m 90..92 cudaLaunchKernel #2
            kernel 0/7 10..30 gemm #1
            kernel 0/7 100..110 relu #2";
        check(bound_by_host, "kernel:gemm=0", 110);
        check(bound_by_host, "kernel:relu=0", 100);
        // 87 of the 88 µs between the launches are the operator's; then the device waits for the first kernel.
        check(bound_by_host, "host:aten::item=0", 31 + 10);
        check(bound_by_host, "host:aten::item=0.5", 66);
    }

    #[test]
    fn an_operator_is_its_host_time_and_its_work() {
        let input = "
            op m 0..20 aten::mm
            call m 10..12 cudaLaunchKernel #1
            call m 30..32 cudaLaunchKernel #2
            call m 33..92 cudaDeviceSynchronize #3
            kernel 0/7 20..60 gemm #1
            kernel 0/7 61..90 relu #2";
        check(input, "kernel:gemm=0.5", 72);
        // The 20 µs of the operator are gone and so is its kernel: the second launch comes at 10, its kernel at 20.
        check(input, "operator:aten::mm=0", 20 + 29 + 2);
    }

    #[test]
    fn waits_of_streams_and_graphs_hold() {
        let streams = "
            call m 0..1 cudaLaunchKernel #1
            call m 2..3 cudaEventRecord #2
            call m 4..5 cudaStreamWaitEvent #3
            call m 6..7 cudaLaunchKernel #4
            kernel 0/7 10..60 first #1
            kernel 0/8 61..80 second #4
            sync wait 0/8 4..4 #3 record=2 on=0/7";
        check(streams, "kernel:first=0.2", 40);
        let graph = "
            call m 0..2 cudaGraphLaunch #1
            kernel 0/7 10..20 first #1 node=1
            kernel 0/7 21..60 long #1 node=2
            kernel 0/7 21..30 short #1 node=3
            kernel 0/7 61..70 last #1 node=4
            edge 0 1\n edge 1 2\n edge 1 3\n edge 2 4\n edge 3 4";
        check(graph, "kernel:short=0", 70);
        check(graph, "kernel:long=0", 40);
    }

    #[test]
    fn edits_count_alone_and_together() {
        let found = rows(BOUND_BY_DEVICE, &["kernel:relu=0", "launch-delay=0", "kernel:nothing=0"]);
        let shown: Vec<_> = found.iter().map(|row| (row.modelled_ns, row.trust, row.edits.len())).collect();
        let expect = [
            (Some(85_000), Confidence::Modelled, 1),
            (Some(104_000), Confidence::Modelled, 1),
            (None, Confidence::NothingEdited, 1),
            (Some(75_000), Confidence::Modelled, 3),
        ];
        assert_eq!(shown, expect);
    }

    #[test]
    fn what_the_model_does_not_explain_is_refused() {
        // The second kernel was queued, and began 900 µs later than anything explains.
        let input = "
            call m 0..2 cudaLaunchKernel #1
            call m 3..5 cudaLaunchKernel #2
            kernel 0/7 10..20 a #1
            kernel 0/7 920..930 b #2
            call m 1000..1002 cudaLaunchKernel #3
            call m 1003..1005 cudaLaunchKernel #4
            kernel 0/7 1010..1020 a #3
            kernel 0/7 1021..1030 b #4
            call m 1100..1102 cudaLaunchKernel #5
            call m 1103..1105 cudaLaunchKernel #6
            kernel 0/7 1110..1120 a #5
            kernel 0/7 1121..1130 b #6";
        let row = rows(input, &["kernel:a=0"]).remove(0);
        assert_eq!(
            (row.modelled_ns, row.gain_percent, row.trust),
            (None, None, Confidence::Refused),
            "{row:?}"
        );
        assert!((79.0..80.0).contains(&row.unexplained_percent), "{row:?}");
    }

    #[test]
    fn edits_are_read_or_refused_with_what_is_expected() {
        let read = |text: &str| text.parse::<Edit>().map(|edit| edit.to_string());
        for text in ["kernel:a=b=0.5", "operator:aten::mm=0", "host:x=2", "launch-delay=0", "no-wait:Event"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        for text in
            ["", "kernel", "kernel:=1", "kernel:a", "speed=2", "no-wait:", "kernel:a=x", "launch-delay"]
        {
            assert!(read(text).is_err_and(|why| why.starts_with("expected kernel:TEXT=FACTOR")), "{text}");
        }
        for text in ["kernel:a=-1", "kernel:a=NaN", "kernel:a=inf"] {
            assert!(read(text).is_err_and(|why| why.starts_with("a factor is between")), "{text}");
        }
    }
}
