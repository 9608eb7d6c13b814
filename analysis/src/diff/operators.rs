//! Operators of two profiles beside each other: kernels, times and memory of each.
//!
//! Owns: [`OperatorComparison`], and which operators of two frameworks are the same. Because: two frameworks, or two
//! vendors' devices, share no calling context but run the same operators. Does not: estimate noise: device times are
//! measured and calls are counted.
//!
//! Work counts for the innermost operator around it, so rows add up. The backward pass has a row of its own. Operators
//! are matched by name without namespace, overload and in-place suffix; an operator in only one profile is matched by
//! what it computes ([`family`]), such as `aten::mm` and JAX's `dot_general`.

use deepctx_profile::order::SortRows as _;
use std::collections::{BTreeMap, BTreeSet};

use deepctx_profile::context::phase::is_backward_node;
use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::metric::{Cell, Metric};
use deepctx_profile::operator::operand::has_operands;
use deepctx_profile::profile::Profile;
use serde::Serialize;

use super::families::family;
use crate::Table;
use crate::amount::percent;

/// Operators of two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorComparison {
    /// [`crate::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The metric of `share_percent`: `gpu-time` if both profiles have it, else time on the host, `host-time` if that
    /// is sampled in one and measured in the other.
    pub metric: &'static str,
    /// Figures of all operators of the profile that was compared with.
    pub before: OperatorFigures,
    /// The same of the profile that was compared.
    pub after: OperatorFigures,
    /// What ran in no operator, before and after.
    pub outside: [OperatorFigures; 2],
    /// The operators, largest share of either profile first.
    pub operators: Table<OperatorRow>,
    /// Rows beyond the requested number.
    pub operators_left_out: usize,
    /// Memory of tensors, device by device.
    pub memory: Vec<DeviceMemory>,
}

/// An operator in both profiles, or in one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorRow {
    /// Its name, or what it computes.
    pub operator: String,
    /// Whether it belongs to the backward pass.
    pub backward: bool,
    /// How both sides were matched.
    pub matched: OperatorMatch,
    /// In the profile that was compared with; `None` where it is not.
    pub before: Option<OperatorSide>,
    /// In the profile that was compared.
    pub after: Option<OperatorSide>,
}

/// How two operators match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorMatch {
    /// They have the same name.
    Name,
    /// They compute the same under different names.
    Family,
    /// Only one profile has it.
    OneSided,
}

/// An operator in one of the profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorSide {
    /// The operators by their full names.
    pub names: Vec<String>,
    /// Share of the metric of the whole profile.
    pub share_percent: f64,
    /// Its figures.
    #[serde(flatten)]
    pub figures: OperatorFigures,
}

/// Figures of operators; `None` if the profile has no such data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OperatorFigures {
    /// Calls, if they were counted or recorded singly.
    pub calls: Option<u64>,
    /// Time on the host: samples, or measured by a trace.
    pub host_ns: Option<u64>,
    /// Kernels that it launched.
    pub kernels: Option<u64>,
    /// For each call.
    pub kernels_per_call: Option<f64>,
    /// Time of these kernels on devices.
    pub gpu_ns: Option<u64>,
    /// For each kernel.
    pub ns_per_kernel: Option<f64>,
    /// Allocations of tensors.
    pub allocations: Option<u64>,
    /// Their bytes.
    pub allocated_bytes: Option<u64>,
}

/// Memory of tensors on the devices of one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceMemory {
    /// The device as the framework calls it: `cuda:0`.
    pub device: String,
    /// In the profile that was compared with; `None` where none was recorded.
    pub before: Option<MemorySide>,
    /// In the profile that was compared.
    pub after: Option<MemorySide>,
}

/// Memory of a device in one of the profiles, of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemorySide {
    /// Processes with memory on it.
    pub processes: u64,
    /// The highest peak of a process.
    pub peak_bytes: u64,
    /// Observed allocations.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
}

/// Compares the operators of two profiles, with a maximum number of rows.
pub fn compare_operators(before: &Profile, after: &Profile, rows: usize) -> OperatorComparison {
    let sides = [Operators::of(before), Operators::of(after)];
    let by_device = sides.iter().all(|side| side.has.gpu);
    let share = |side: &Operators, sums: &Sums| match by_device {
        true => percent(sums.gpu_ns, side.all.gpu_ns.saturating_add(side.outside.gpu_ns)),
        false => percent(sums.host_ns, side.all.host_ns.saturating_add(side.outside.host_ns)),
    };
    let mut all: Vec<OperatorRow> = matched(&sides)
        .into_iter()
        .map(|((operator, backward, by), parts)| {
            let side = |at: usize| {
                let part = parts[at].as_ref()?;
                Some(OperatorSide {
                    names: part.names.iter().cloned().collect(),
                    share_percent: share(&sides[at], &part.sums),
                    figures: part.sums.figures(&sides[at].has),
                })
            };
            OperatorRow { operator, backward, matched: by, before: side(0), after: side(1) }
        })
        .collect();
    let most = |row: &OperatorRow| {
        let share = |side: &Option<OperatorSide>| side.as_ref().map_or(0.0, |side| side.share_percent);
        share(&row.before).max(share(&row.after))
    };
    // Stable: rows are in the order of their names.
    all.sort_rows_by(|a, b| most(b).total_cmp(&most(a)));
    let operators = Table::cut(all, rows);
    // A trace has other times of the host than samples.
    let host = match [sides[0].has.host, sides[1].has.host] {
        [Some(before), Some(after)] if before != after => "host-time",
        [before, after] => after.or(before).unwrap_or(Metric::CpuTime).name(),
    };
    let figures =
        |of: fn(&Operators) -> &Sums| [0, 1].map(|at: usize| of(&sides[at]).figures(&sides[at].has));
    let [total_before, total_after] = figures(|side| &side.all);
    OperatorComparison {
        schema_version: crate::SCHEMA_VERSION,
        metric: if by_device { Metric::GpuTime.name() } else { host },
        before: total_before,
        after: total_after,
        outside: figures(|side| &side.outside),
        operators_left_out: operators.left_out,
        operators,
        memory: memory([before, after]),
    }
}

/// Name of a row, whether it belongs to the backward pass, and how its sides were matched.
type RowKey = (String, bool, OperatorMatch);

/// The operators of both sides, matching ones together.
fn matched(sides: &[Operators; 2]) -> BTreeMap<RowKey, [Option<Part>; 2]> {
    let [before, after] = sides;
    // Operators of one side only are matched by what they compute.
    let families = |of: &Operators, other: &Operators| -> BTreeSet<(&'static str, bool)> {
        let alone = of.by_name.keys().filter(|key| !other.by_name.contains_key(*key));
        alone.filter_map(|(name, backward)| Some((family(name)?, *backward))).collect()
    };
    let [of_before, of_after] = [families(before, after), families(after, before)];
    let in_both = |of: &(&'static str, bool)| of_before.contains(of) && of_after.contains(of);
    let mut rows: BTreeMap<RowKey, [Option<Part>; 2]> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        for (key, part) in &side.by_name {
            let (name, backward) = key;
            let by_family = family(name).filter(|of| in_both(&(of, *backward)));
            let row = match (before.by_name.get(key).filter(|_| after.by_name.contains_key(key)), by_family) {
                // One name for both sides: overloads and namespaces may differ.
                (Some(first), _) => (first.shown(name), *backward, OperatorMatch::Name),
                (None, Some(family)) => (family.to_owned(), *backward, OperatorMatch::Family),
                (None, None) => (part.shown(name), *backward, OperatorMatch::OneSided),
            };
            rows.entry(row).or_default()[at].get_or_insert_default().add(part);
        }
    }
    rows
}

/// An operator in one profile.
#[derive(Clone, Debug, Default)]
struct Part {
    names: BTreeSet<String>,
    sums: Sums,
}

impl Part {
    fn add(&mut self, other: &Part) {
        self.names.extend(other.names.iter().cloned());
        self.sums.add(&other.sums);
    }

    /// Its full name, if it has only one.
    fn shown(&self, plain: &str) -> String {
        match (self.names.len(), self.names.first()) {
            (1, Some(name)) => name.clone(),
            _ => plain.to_owned(),
        }
    }
}

/// The operators of a profile.
#[derive(Debug, Default)]
struct Operators {
    /// By plain name and pass.
    by_name: BTreeMap<(String, bool), Part>,
    all: Sums,
    outside: Sums,
    has: ProfileFigures,
}

/// The figures that a profile has.
#[derive(Clone, Copy, Debug, Default)]
struct ProfileFigures {
    host: Option<Metric>,
    calls: bool,
    kernels: bool,
    gpu: bool,
    allocations: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    calls: u64,
    host_ns: u64,
    kernels: u64,
    gpu_ns: u64,
    allocations: u64,
    allocated_bytes: u64,
}

impl Sums {
    /// The values of one metric in one context.
    fn of(metric: Metric, cell: &Cell, is_itself: bool, of_trace: bool) -> Self {
        let mut sums = Sums::default();
        match metric {
            Metric::Calls if is_itself => sums.calls = cell.sum,
            Metric::Calls => {}
            Metric::Kernels => sums.kernels = cell.sum,
            Metric::GpuTime => sums.gpu_ns = cell.sum,
            Metric::TensorBytes => (sums.allocations, sums.allocated_bytes) = (cell.count, cell.sum),
            _ => {
                sums.host_ns = cell.sum;
                sums.calls = if of_trace && is_itself { cell.count } else { 0 };
            }
        }
        sums
    }

    fn add(&mut self, other: &Sums) {
        for (mine, more) in [
            (&mut self.calls, other.calls),
            (&mut self.host_ns, other.host_ns),
            (&mut self.kernels, other.kernels),
            (&mut self.gpu_ns, other.gpu_ns),
            (&mut self.allocations, other.allocations),
            (&mut self.allocated_bytes, other.allocated_bytes),
        ] {
            *mine = mine.saturating_add(more);
        }
    }

    fn figures(&self, has: &ProfileFigures) -> OperatorFigures {
        let some = |is: bool, value: u64| is.then_some(value);
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        OperatorFigures {
            calls: some(has.calls, self.calls),
            host_ns: some(has.host.is_some(), self.host_ns),
            kernels: some(has.kernels, self.kernels),
            kernels_per_call: ratio(self.kernels, self.calls).filter(|_| has.calls && has.kernels),
            gpu_ns: some(has.gpu, self.gpu_ns),
            ns_per_kernel: ratio(self.gpu_ns, self.kernels).filter(|_| has.gpu && has.kernels),
            allocations: some(has.allocations, self.allocations),
            allocated_bytes: some(has.allocations, self.allocated_bytes),
        }
    }
}

/// Meaning of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Meaning {
    #[default]
    Other,
    /// An operator, by its place in [`FrameNames::names`].
    Operator { name: u32, backward: bool },
    /// Operands of the operator above.
    Operands,
    /// The backward pass of the operator above.
    Backward,
}

/// Meanings of frames, and the names of operators.
#[derive(Debug, Default)]
struct FrameNames {
    meanings: Vec<Meaning>,
    /// Full name and plain name.
    names: Vec<(String, String)>,
}

impl FrameNames {
    fn of(profile: &Profile) -> Self {
        let mut found = FrameNames::default();
        for (_, frame) in profile.frames.iter() {
            let meaning = match frame {
                Frame::Operator { name } => found.operator(profile.strings.get(name)),
                _ => Meaning::Other,
            };
            found.meanings.push(meaning);
        }
        found
    }

    fn operator(&mut self, name: &str) -> Meaning {
        match name {
            "[backward]" => Meaning::Backward,
            name if name.starts_with('[') => Meaning::Other,
            name if has_operands(name) => Meaning::Operands,
            name => {
                // What else was fused does not belong to the path.
                let (path, note) = name.split_at(name.find(" [").unwrap_or(name.len()));
                // JAX has a path of transformations and the operator at its end; the transposed part is the backward
                // pass. PyTorch's traces have the engine's call around it.
                let backward = name.starts_with("autograd::engine::evaluate_function")
                    || is_backward_node(name)
                    || path.split('/').any(|part| part.starts_with("transpose("));
                let last = path.rsplit('/').next().unwrap_or(path);
                self.names.push((clean(&format!("{last}{note}")), plain(path)));
                Meaning::Operator { name: self.names.len() as u32 - 1, backward }
            }
        }
    }
}

/// Properties of a context that follow from its path.
#[derive(Clone, Copy, Debug, Default)]
struct OperatorContext {
    /// Place of the innermost operator's name.
    operator: Option<u32>,
    backward: bool,
    /// The context is that operator, its operands or its backward pass: calls there are those of the operator.
    is_itself: bool,
}

fn contexts(profile: &Profile, frames: &FrameNames) -> Vec<OperatorContext> {
    let mut within: Vec<OperatorContext> = Vec::with_capacity(profile.tree.len());
    within.push(OperatorContext::default());
    // Callers precede callees.
    for node in profile.tree.nodes().skip(1) {
        let above = within.get(node.parent.index()).copied().unwrap_or_default();
        let mut at = OperatorContext { is_itself: false, ..above };
        match frames.meanings.get(node.frame.index()).copied().unwrap_or_default() {
            Meaning::Other => {}
            Meaning::Operands => at.is_itself = above.is_itself,
            // Calls there are nodes of the operator's backward pass.
            Meaning::Backward => (at.backward, at.is_itself) = (true, above.is_itself),
            Meaning::Operator { name, backward } => {
                at = OperatorContext {
                    operator: Some(name),
                    backward: above.backward || backward,
                    is_itself: true,
                };
            }
        }
        within.push(at);
    }
    within
}

impl Operators {
    fn of(profile: &Profile) -> Self {
        let has_values = |metric: Metric| profile.tree.total(metric).sum > 0;
        let host = [Metric::CpuTime, Metric::WallTime].into_iter().find(|metric| has_values(*metric));
        // Each value of a trace is a call.
        let of_trace = host == Some(Metric::WallTime) && !has_values(Metric::Calls);
        let mut found = Operators {
            has: ProfileFigures {
                host,
                calls: has_values(Metric::Calls) || of_trace,
                kernels: has_values(Metric::Kernels),
                gpu: has_values(Metric::GpuTime),
                allocations: has_values(Metric::TensorBytes),
            },
            ..Operators::default()
        };
        let frames = FrameNames::of(profile);
        let within = contexts(profile, &frames);
        // By name and pass.
        let mut sums = vec![[Sums::default(); 2]; frames.names.len()];
        let metrics = [Metric::Calls, Metric::Kernels, Metric::GpuTime, Metric::TensorBytes];
        for metric in host.into_iter().chain(metrics) {
            for (node, cell) in profile.tree.cells(metric) {
                let at = within.get(node.index()).copied().unwrap_or_default();
                let more = Sums::of(metric, &cell, at.is_itself, of_trace);
                match at.operator.and_then(|name| sums.get_mut(name as usize)) {
                    Some(sums) => sums[usize::from(at.backward)].add(&more),
                    None => found.outside.add(&more),
                }
            }
        }
        for ((full, plain), passes) in frames.names.into_iter().zip(sums) {
            for (sums, backward) in
                passes.iter().zip([false, true]).filter(|(sums, _)| **sums != Sums::default())
            {
                found.all.add(sums);
                let part = found.by_name.entry((plain.clone(), backward)).or_default();
                part.add(&Part { names: BTreeSet::from([full.clone()]), sums: *sums });
            }
        }
        found
    }
}

/// A name without namespace, overload and in-place suffix: `aten::add_.Tensor` is `add`.
fn plain(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    let own = last.strip_prefix("aten::").unwrap_or(last);
    let base = if own.contains("::") { own } else { own.split('.').next().unwrap_or(own) };
    let plain =
        base.strip_suffix('_').filter(|plain| !plain.is_empty() && !plain.ends_with('_')).unwrap_or(base);
    clean(plain)
}

/// Memory of tensors by device, in the order of their names.
fn memory(profiles: [&Profile; 2]) -> Vec<DeviceMemory> {
    let mut devices: BTreeMap<&str, [Option<MemorySide>; 2]> = BTreeMap::new();
    for (at, profile) in profiles.into_iter().enumerate() {
        for pool in &profile.memory {
            let side = devices.entry(&pool.device).or_default()[at].get_or_insert_default();
            side.processes += 1;
            side.peak_bytes = side.peak_bytes.max(pool.peak_bytes);
            side.allocations = side.allocations.saturating_add(pool.allocations);
            side.allocated_bytes = side.allocated_bytes.saturating_add(pool.allocated_bytes);
        }
    }
    let row = |(device, [before, after]): (&str, [Option<MemorySide>; 2])| DeviceMemory {
        device: clean(device),
        before,
        after,
    };
    devices.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests;
