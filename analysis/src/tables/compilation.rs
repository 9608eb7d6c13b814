//! Compilations: compile time by stage and by the line of the program that triggered it.
//!
//! Owns: [`Compilations`], computed from the tree alone. Because: compile time hides below the first call of a
//! function. Does not: know how frames came into the tree; it reads their texts.

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::amount::{Amount, percent, total, value};
use crate::{Subset, Table};

/// Lines that triggered compilation, largest first.
pub type Compilations = Table<Compilation>;

/// Compilation triggered by one line of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compilation {
    /// The line.
    pub line: String,
    /// All stages together.
    #[serde(flatten, serialize_with = "total")]
    pub total: Amount,
    /// As a share of the whole profile.
    pub total_percent: f64,
    /// The stages with any time, in their order.
    pub stages: Vec<CompilationStage>,
}

/// One stage of a compilation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompilationStage {
    /// Its name.
    pub stage: &'static str,
    /// Its cost.
    #[serde(flatten, serialize_with = "value")]
    pub value: Amount,
}

/// Names of the stages, in their order.
const STAGES: [&str; 9] = [
    "dynamo",
    "aot-autograd",
    "inductor",
    "jax tracing",
    "jax lowering",
    "xla passes",
    "xla code generation",
    "loading code",
    "compilers",
];
const DYNAMO: usize = 0;
const AOT_AUTOGRAD: usize = 1;
const INDUCTOR: usize = 2;
const TRACING: usize = 3;
const LOWERING: usize = 4;
const XLA_PASSES: usize = 5;
const XLA_CODE: usize = 6;
const LOADING: usize = 7;
const COMPILERS: usize = 8;

type Sums = [u64; STAGES.len()];

/// Programs that compile for others, by their thread names in the kernel.
const PROGRAMS: [&str; 15] = [
    "c++",
    "cc1",
    "cc1plus",
    "as",
    "ld",
    "ld.lld",
    "collect2",
    "g++",
    "gcc",
    "clang",
    "clang++",
    "ptxas",
    "nvcc",
    "cicc",
    "fatbinary",
];

impl Compilations {
    /// Cost of compilation by the metric of the selection.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (profile, metric) = (subset.profile(), subset.metric());
        let whole = profile.tree.total(metric).sum;
        let mut rows: Vec<_> = sums_by_line(profile, metric)
            .into_iter()
            .map(|(line, sums)| compilation(line, sums, metric.unit(), whole))
            .collect();
        rows.sort_rows_by(|a, b| b.total.value.cmp(&a.total.value).then_with(|| a.line.cmp(&b.line)));
        Table::cut(rows, subset.selection().rows)
    }
}

fn compilation(line: String, sums: Sums, unit: Unit, whole: u64) -> Compilation {
    let total = sums.iter().fold(0u64, |all, sum| all.saturating_add(*sum));
    let stages = STAGES.into_iter().zip(sums).filter(|(_, sum)| *sum > 0);
    let stages = stages.map(|(stage, sum)| CompilationStage { stage, value: Amount::new(sum, unit) });
    Compilation {
        line,
        total: Amount::new(total, unit),
        total_percent: percent(total, whole),
        stages: stages.collect(),
    }
}

/// Role of a node in a compilation.
#[derive(Clone, Copy, Debug, Default)]
struct CompilationState {
    stage: Option<usize>,
    /// Its trigger.
    trigger: Option<FrameId>,
    /// The last line of the program so far, and the last of any code.
    own: Option<FrameId>,
    any: Option<FrameId>,
}

/// The exclusive sums of a metric in compilations, by the line of the program that triggered each.
fn sums_by_line(profile: &Profile, metric: Metric) -> FxHashMap<String, Sums> {
    let mut states: Vec<CompilationState> = Vec::with_capacity(profile.tree.len());
    let mut sums: FxHashMap<Option<FrameId>, Sums> = FxHashMap::default();
    for (number, node) in profile.tree.nodes().enumerate() {
        let mut state = states.get(node.parent.index()).copied().unwrap_or_default();
        let frame = profile.frames.get(node.frame);
        if let Some(stage) = stage(profile, &frame, state.stage) {
            if state.stage.is_none() {
                state.trigger = if stage == COMPILERS { Some(node.frame) } else { state.own.or(state.any) };
            }
            state.stage = Some(stage);
        }
        if let (Frame::Python { file, .. }, None) = (frame, state.stage) {
            state.any = Some(node.frame);
            if !is_library(profile.strings.get(file)) {
                state.own = Some(node.frame);
            }
        }
        states.push(state);
        let sum = profile.tree.exclusive(NodeId::from_number(number as u32), metric).sum;
        if let Some(stage) = state.stage.filter(|_| sum > 0) {
            let of_stage = &mut sums.entry(state.trigger).or_default()[stage];
            *of_stage = of_stage.saturating_add(sum);
        }
    }
    let mut by_line: FxHashMap<String, Sums> = FxHashMap::default();
    for (trigger, sums) in sums {
        let row = by_line.entry(trigger_label(profile, trigger)).or_default();
        row.iter_mut().zip(sums).for_each(|(row, sum)| *row = row.saturating_add(sum));
    }
    by_line
}

fn trigger_label(profile: &Profile, trigger: Option<FrameId>) -> String {
    match trigger.map(|frame| profile.frames.get(frame)) {
        // One row for all processes of a compiler, which has one per file.
        Some(Frame::Process { comm, .. }) => format!("processes of {}", clean(profile.strings.get(comm))),
        Some(frame) => frame.label(&profile.strings, true),
        None => "[no line: a thread of its own]".to_owned(),
    }
}

/// The stage that begins with a frame, or continues in it. Some functions of compilers also run compiled code: only
/// those that never do begin a compilation.
fn stage(profile: &Profile, frame: &Frame, within: Option<usize>) -> Option<usize> {
    let text = |id| profile.strings.get(id);
    match *frame {
        Frame::Process { comm, .. } => PROGRAMS.contains(&text(comm)).then_some(COMPILERS),
        Frame::GpuApi { name } => {
            let name = text(name);
            let loads = ["cuModuleLoad", "cuLibraryLoad", "hipModuleLoad"];
            loads.iter().any(|begin| name.starts_with(begin)).then_some(LOADING)
        }
        Frame::Operator { name } => match text(name).strip_prefix("[compile] ")? {
            "xla passes" => Some(XLA_PASSES),
            _ => Some(XLA_CODE),
        },
        Frame::Python { file, function, .. } => stage_of_python(text(file), text(function), within),
        _ => None,
    }
}

fn stage_of_python(file: &str, function: &str, within: Option<usize>) -> Option<usize> {
    let is_in = |part: &str| file.contains(part);
    // Importing a compiler is not compiling.
    if function == "<module>" {
        return None;
    }
    if is_in("torch/_dynamo/convert_frame.py") {
        return Some(DYNAMO);
    }
    if is_in("torch/_inductor/") && (within.is_some() || compiles(file, function)) {
        return Some(INDUCTOR);
    }
    if is_in("torch/_functorch/") && within.is_some() {
        return Some(AOT_AUTOGRAD);
    }
    if is_in("jax/_src/") && function.starts_with("trace_to_jaxpr") {
        return Some(TRACING);
    }
    if is_in("jax/_src/interpreters/mlir.py") {
        return Some(LOWERING);
    }
    let backend = function.starts_with("backend_compile") || function.starts_with("compile_or_get_cached");
    (is_in("jax/_src/compiler.py") && backend).then_some(XLA_CODE)
}

/// Whether a function of `compile_fx.py` compiles: functions that run compiled code are in the same file.
fn compiles(file: &str, function: &str) -> bool {
    let name = function.rsplit('.').next().unwrap_or_default();
    file.ends_with("compile_fx.py") && (name.contains("compile_fx") || name.ends_with("_compiler_base"))
}

fn is_library(file: &str) -> bool {
    file.contains("/site-packages/")
        || file.contains("/dist-packages/")
        || file.contains("/lib/python")
        || file.starts_with('<')
}

#[cfg(test)]
mod tests {
    use deepctx_profile::text;

    use super::*;
    use crate::Selection;

    #[test]
    fn compilations_are_split_by_stage_and_by_their_line() {
        let torch = "/v/lib/python3.11/site-packages/torch";
        let jax = "/v/lib/python3.11/site-packages/jax/_src";
        let lines = format!(
            "P python-7 / y /a/net.py:main:30 / y {torch}/_dynamo/eval_frame.py:wrap / y {torch}/_dynamo/convert_frame.py:_compile 5
             P python-7 / y /a/net.py:main:30 / y {torch}/_dynamo/convert_frame.py:_compile / y {torch}/_inductor/graph.py:run / n x 7
             P python-7 / y /a/net.py:main:30 / y {torch}/_dynamo/convert_frame.py:_compile / y {torch}/_functorch/aot_autograd.py:f 1
             P python-7 / y /a/net.py:main:31 / y {torch}/_functorch/aot_autograd.py:f / y {torch}/_inductor/compile_fx.py:run / y /tmp/x.py:call 9
             P python-7 / y /a/net.py:main:40 / y {torch}/_inductor/compile_fx.py:compile_fx_inner 2
             P python-7 / y /a/jx.py:main:3 / y {jax}/pjit.py:cache_miss / y {jax}/interpreters/mlir.py:lower 4
             P python-7 / y /a/jx.py:main:3 / y {jax}/compiler.py:backend_compile_and_load / o [compile] xla passes / n x 6
             P python-7 / y /a/jx.py:main:3 / y {jax}/compiler.py:backend_compile_and_load / o [compile] xla code generation / n x 8
             P cc1plus-9 / n main 30
             P cc1plus-10 / n main 20
             P python-7 / a cuModuleLoadData 3"
        );
        let profile = text::parse(&lines).unwrap();
        let rows: Vec<_> = Compilations::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime)))
            .rows
            .iter()
            .map(|row| {
                let stages: Vec<_> =
                    row.stages.iter().map(|it| format!("{} {}", it.stage, it.value.value)).collect();
                format!("{}: {}", row.line, stages.join(", "))
            })
            .collect();
        assert_eq!(
            rows,
            [
                "processes of cc1plus: compilers 50",
                "jx.py:main:3: jax lowering 4, xla passes 6, xla code generation 8",
                "net.py:main:30: dynamo 5, aot-autograd 1, inductor 7",
                "[no line: a thread of its own]: loading code 3",
                "net.py:main:40: inductor 2",
            ]
        );
    }

    #[test]
    fn huge_values_of_compilers_saturate() {
        let lines = format!("P cc1-9 / n a {0}\n P cc1-9 / n b {0}\n P cc1-10 / n a {0}", u64::MAX);
        let profile = text::parse(&lines).unwrap();
        let rows = Compilations::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime))).rows;
        assert_eq!((rows[0].line.as_str(), rows[0].total.value), ("processes of cc1", u64::MAX));
    }
}
