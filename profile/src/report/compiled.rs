//! Compiled code in the report: which operators of the program its time belongs to, and what compiling it took.
//!
//! Owns: two tables, made from the tree alone. Because: compiled code runs on threads of its runtime, apart from the lines that
//! asked for it, and compiling hides below the first call of a function. Does not: know how frames came into the tree;
//! it reads their texts.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Extent, NAME_WIDTH, PLACE_WIDTH, amount, share, without_middle, without_start};
use crate::frame::{Frame, clean};
use crate::intern::{FrameId, StrId};
use crate::metric::Metric;
use crate::profile::Profile;
use crate::tree::NodeId;

/// What some time of compiled code belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    /// The compiler's unit (`xla jit_step`); empty when only the kind of step is known.
    pub unit: String,
    /// Operators of the program, or the kind of step.
    pub operators: String,
    /// File and line that asked for them; empty when not known.
    pub line: String,
    /// The function that was compiled; empty when it has no name.
    pub kernel: String,
}

/// Where below a unit a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Not below any.
    #[default]
    Outside,
    /// Among the lines that asked for it.
    Lines,
    /// Behind its operators.
    Operators,
    /// In its code.
    Code,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    unit: StrId,
    operators: StrId,
    file: StrId,
    line: u32,
    kernel: StrId,
}

impl Key {
    /// Of code that was not compiled.
    const NONE: Key = Key {
        unit: StrId::EMPTY,
        operators: StrId::EMPTY,
        file: StrId::EMPTY,
        line: 0,
        kernel: StrId::EMPTY,
    };
}

/// The exclusive sums of a metric in compiled code, by what it was compiled from; largest first.
pub fn units(profile: &Profile, metric: Metric) -> Vec<(Unit, u64)> {
    let text = |id| profile.strings.get(id);
    let mut states: Vec<(Phase, Key)> = Vec::with_capacity(profile.tree.len());
    let mut sums: FxHashMap<Key, u64> = FxHashMap::default();
    for (number, node) in profile.tree.nodes().enumerate() {
        let (mut phase, mut key) =
            states.get(node.parent.index()).copied().unwrap_or((Phase::Outside, Key::NONE));
        match (profile.frames.get(node.frame), phase) {
            (Frame::Operator { name }, _) if is_unit(text(name)) => {
                (phase, key) = (Phase::Lines, Key { unit: name, ..Key::NONE });
            }
            (Frame::Operator { name }, Phase::Outside) if text(name).starts_with("xla::") => {
                key.operators = name;
            }
            (Frame::Operator { name }, Phase::Lines) => {
                phase = Phase::Operators;
                key.operators = name;
            }
            // A step that calls a library: its name, or its kind.
            (Frame::Operator { name }, Phase::Operators) if key.kernel == StrId::EMPTY => key.kernel = name,
            (Frame::Python { file, line, .. }, Phase::Lines) => {
                (key.file, key.line) = (file, line.map_or(0, |line| line.get()));
            }
            (
                Frame::Native { symbol, .. } | Frame::GpuKernel { name: symbol },
                Phase::Lines | Phase::Operators,
            ) => {
                phase = Phase::Code;
                if key.kernel == StrId::EMPTY {
                    key.kernel = symbol;
                }
            }
            _ => {}
        }
        states.push((phase, key));
        let sum = profile.tree.exclusive(NodeId::from_number(number as u32), metric).sum;
        if sum > 0 && key != Key::NONE {
            *sums.entry(key).or_default() += sum;
        }
    }
    let row = |key: &Key| Unit {
        unit: clean(text(key.unit).trim_matches(['[', ']'])),
        operators: clean(text(key.operators)),
        line: match key.line {
            0 => String::new(),
            line => format!("{}:{line}", clean(text(key.file))),
        },
        kernel: clean(text(key.kernel)),
    };
    let mut rows: Vec<_> = sums.iter().map(|(key, sum)| (row(key), *sum)).collect();
    rows.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
    rows
}

fn is_unit(name: &str) -> bool {
    ["[xla ", "[inductor ", "[triton "].iter().any(|begin| name.starts_with(begin)) && name.ends_with(']')
}

/// Stages of compilation, in the order in which they follow each other.
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
const INDUCTOR: usize = 2;
const XLA: usize = 6;
const LOADING: usize = 7;
const COMPILERS: usize = 8;

/// Programs that compile for others, by what the kernel calls them.
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

/// What a node is to a compilation.
#[derive(Clone, Copy, Debug, Default)]
struct Compiling {
    stage: Option<usize>,
    /// What began it.
    trigger: Option<FrameId>,
    /// The last line so far that is the program's own, and the last of any.
    own: Option<FrameId>,
    any: Option<FrameId>,
}

/// A line that made something compile: its label, and the sum of each stage.
pub type Trigger = (String, Vec<(&'static str, u64)>);

/// The exclusive sums of a metric in compilations, by the line of the program that began each; largest first.
pub fn compiling(profile: &Profile, metric: Metric) -> Vec<Trigger> {
    let mut states: Vec<Compiling> = Vec::with_capacity(profile.tree.len());
    let mut sums: FxHashMap<Option<FrameId>, [u64; STAGES.len()]> = FxHashMap::default();
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
            sums.entry(state.trigger).or_default()[stage] += sum;
        }
    }
    let label = |frame: Option<FrameId>| match frame.map(|frame| profile.frames.get(frame)) {
        // One row for all processes of a compiler: there is one for each file.
        Some(Frame::Process { comm, .. }) => format!("processes of {}", clean(profile.strings.get(comm))),
        Some(frame) => frame.label(&profile.strings, true),
        None => "[no line: a thread of its own]".to_owned(),
    };
    let mut by_label: FxHashMap<String, [u64; STAGES.len()]> = FxHashMap::default();
    for (trigger, sums) in sums {
        let row = by_label.entry(label(trigger)).or_default();
        row.iter_mut().zip(sums).for_each(|(row, sum)| *row += sum);
    }
    let stages = |sums: [u64; STAGES.len()]| STAGES.iter().copied().zip(sums).filter(|(_, sum)| *sum > 0);
    let mut rows: Vec<Trigger> =
        by_label.into_iter().map(|(label, sums)| (label, stages(sums).collect())).collect();
    rows.sort_by(|a, b| total(b).cmp(&total(a)).then_with(|| a.0.cmp(&b.0)));
    rows
}

fn total((_, stages): &Trigger) -> u64 {
    stages.iter().map(|(_, sum)| sum).sum()
}

/// The stage that begins with a frame, or goes on in it. Some functions of compilers run compiled code too: only those that
/// never do begin a compilation.
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
            "xla passes" => Some(XLA - 1),
            _ => Some(XLA),
        },
        Frame::Python { file, function, .. } => {
            let (file, function) = (text(file), text(function));
            let is_in = |part: &str| file.contains(part);
            if is_in("torch/_dynamo/convert_frame.py") {
                return Some(0);
            }
            if is_in("torch/_inductor/") && (within.is_some() || compiles(file, function)) {
                return Some(INDUCTOR);
            }
            if is_in("torch/_functorch/") && within.is_some() {
                return Some(INDUCTOR - 1);
            }
            if is_in("jax/_src/") && function.starts_with("trace_to_jaxpr") {
                return Some(3);
            }
            if is_in("jax/_src/interpreters/mlir.py") && function != "<module>" {
                return Some(4);
            }
            let backend =
                function.starts_with("backend_compile") || function.starts_with("compile_or_get_cached");
            (is_in("jax/_src/compiler.py") && backend).then_some(XLA)
        }
        _ => None,
    }
}

/// Whether a function of `compile_fx.py` compiles: those that run what was compiled are in the same file.
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

/// Writes both tables, each if it has rows.
pub(super) fn write(
    profile: &Profile,
    metric: Metric,
    extent: Extent,
    out: &mut dyn Write,
) -> io::Result<()> {
    let whole = profile.tree.total(metric).sum;
    let rows = units(profile, metric);
    if !rows.is_empty() {
        writeln!(out, "\nCompiled code, by what it was compiled from")?;
        for (unit, sum) in rows.iter().take(extent.rows) {
            let name = if unit.unit.is_empty() { "[no module]" } else { &unit.unit };
            let place = without_start(&unit.line, PLACE_WIDTH);
            let kernel = without_middle(&unit.kernel, NAME_WIDTH);
            writeln!(out, "{}", format!("  {}  {name}  {kernel}  {place}", share(*sum, whole)).trim_end())?;
            // A fusion may have many operators: all of them are told.
            for part in wrapped(&unit.operators, 2 * NAME_WIDTH) {
                writeln!(out, "          {part}")?;
            }
        }
        let rest: u64 = rows.iter().skip(extent.rows).map(|(_, sum)| sum).sum();
        if rest > 0 {
            writeln!(out, "  {}  … {} more", share(rest, whole), rows.len() - extent.rows)?;
        }
    }
    let rows = compiling(profile, metric);
    if !rows.is_empty() {
        writeln!(out, "\nTime spent compiling, by the line that began it")?;
        for row in rows.iter().take(extent.rows) {
            let stages: Vec<_> =
                row.1.iter().map(|(stage, sum)| format!("{stage} {}", amount(metric.unit(), *sum))).collect();
            let (all, line) = (total(row), without_middle(&row.0, NAME_WIDTH));
            writeln!(out, "  {}  {:>7}  {line}", share(all, whole), amount(metric.unit(), all))?;
            writeln!(out, "                   {}", stages.join(", "))?;
        }
    }
    Ok(())
}

/// A text in lines of about this width, broken behind commas and within words that are longer.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(", ") {
        match lines.last_mut().filter(|line| line.chars().count() + part.trim_end().chars().count() <= width)
        {
            Some(line) => line.push_str(part),
            None => lines.push(without_middle(part, width)),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::profile;

    const RUN: &str = "
        P python-7 / T a/8 / o xla::cpu::KernelThunk / n Call / o [xla jit_step] / y /a/net.py:loss:13 / y /a/net.py:layer:8 / o jit(step)/mul [fused: exp] / n fusion.1 400
        P python-7 / T a/9 / n Parallelize / o [xla jit_step] / y /a/net.py:loss:13 / y /a/net.py:layer:8 / o jit(step)/mul [fused: exp] / n fusion.1 / n memcpy 100
        P python-7 / T a/9 / n Parallelize / o [xla jit_eval] / n fusion.1 10
        P python-7 / T a/8 / o xla::cpu::DotThunk / n gemm 300
        P python-7 / T a/7 / y /a/net.py:main:30 / o [inductor cpp_fused_add_0] / o aten::add net.py:3 / n kernel / n omp 50
        P python-7 / T a/7 / y /a/net.py:main:30 / n write 40
    ";

    #[test]
    fn time_of_compiled_code_belongs_to_operators_and_lines() {
        let rows = units(&profile(RUN), Metric::CpuTime);
        let rows: Vec<_> = rows
            .iter()
            .map(|(u, sum)| format!("{sum} {}|{}|{}|{}", u.unit, u.operators, u.line, u.kernel))
            .collect();
        assert_eq!(
            rows,
            [
                "500 xla jit_step|jit(step)/mul [fused: exp]|/a/net.py:8|fusion.1",
                "300 |xla::cpu::DotThunk||",
                "50 inductor cpp_fused_add_0|aten::add net.py:3||kernel",
                "10 xla jit_eval|||fusion.1",
            ]
        );
    }

    #[test]
    fn compilations_are_told_by_stage_and_by_the_line_that_began_them() {
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
        let rows: Vec<_> = compiling(&profile(&lines), Metric::CpuTime)
            .iter()
            .map(|(line, stages)| {
                let stages: Vec<_> = stages.iter().map(|(stage, sum)| format!("{stage} {sum}")).collect();
                format!("{line}: {}", stages.join(", "))
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
    fn tables_show_all_operators_of_a_fusion() {
        let mut out = Vec::new();
        write(&profile(RUN), Metric::CpuTime, Extent { rows: 2, depth: 3 }, &mut out).unwrap();
        expect![[r#"

            Compiled code, by what it was compiled from
               55.6%  xla jit_step  fusion.1  /a/net.py:8
                      jit(step)/mul [fused: exp]
               33.3%  [no module]
                      xla::cpu::DotThunk
                6.7%  … 2 more
        "#]]
        .assert_eq(&String::from_utf8(out).unwrap());
    }

    #[test]
    fn a_profile_without_compiled_code_has_no_tables() {
        let mut out = Vec::new();
        write(&profile("P a-1 / n f 1"), Metric::CpuTime, Extent::default(), &mut out).unwrap();
        assert!(out.is_empty());
    }

    #[test]
    fn long_lists_are_broken_behind_commas() {
        assert_eq!(wrapped("aa, bb, cc", 7), ["aa, bb,", "cc"]);
        assert_eq!(wrapped("abcdefghij", 7), ["abc…hij"]);
    }
}
