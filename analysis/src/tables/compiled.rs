//! Compiled code: which operators of the program its time belongs to.
//!
//! Owns: [`CompiledCode`], computed from the tree alone. Because: compiled code runs on threads of its runtime, apart
//! from the lines that requested it. Does not: know how frames came into the tree; it reads their texts.

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::StrId;
use deepctx_profile::metric::Metric;
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::amount::{Amount, exclusive, left_out, percent, total};
use crate::{Subset, Table};

/// Time in compiled code by its origin, largest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompiledCode {
    /// In all compiled code.
    #[serde(flatten, serialize_with = "total")]
    pub total: Amount,
    /// Of this, in omitted rows.
    #[serde(flatten, serialize_with = "left_out")]
    pub left_out: Amount,
    /// Likewise, as a share of the whole profile.
    pub left_out_percent: f64,
    /// The rows.
    pub rows: Table<CompiledRow>,
}

/// Compiled code of one origin.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompiledRow {
    /// Its origin.
    #[serde(flatten)]
    pub origin: Origin,
    /// Its exclusive value.
    #[serde(flatten, serialize_with = "exclusive")]
    pub exclusive: Amount,
    /// As a share of the whole profile.
    pub exclusive_percent: f64,
}

/// Origin of compiled code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Origin {
    /// The compiler's unit (`xla jit_step`); empty if only the kind of thunk is known.
    pub unit: String,
    /// Operators of the program, or the kind of thunk.
    pub operators: String,
    /// File and line that requested them; empty if unknown.
    pub line: String,
    /// The compiled function; empty if it has no name.
    pub function: String,
}

impl Origin {
    /// The function, or the best known substitute.
    pub(crate) fn name(&self) -> &str {
        let names = [&self.function, &self.operators, &self.unit];
        names.into_iter().find(|name| !name.is_empty()).map_or("[no name]", String::as_str)
    }
}

impl CompiledCode {
    /// Time in compiled code by the metric of the selection.
    pub fn compute(subset: &Subset<'_>) -> Self {
        let (profile, metric) = (subset.profile(), subset.metric());
        let (unit, whole) = (metric.unit(), profile.tree.total(metric).sum);
        let sums = sums(profile, metric);
        let sum = |rows: &[(Origin, u64)]| rows.iter().fold(0u64, |all, (_, sum)| all.saturating_add(*sum));
        let left_out = sum(sums.get(subset.selection().rows..).unwrap_or_default());
        let row = |(origin, sum): (Origin, u64)| CompiledRow {
            origin,
            exclusive: Amount::new(sum, unit),
            exclusive_percent: percent(sum, whole),
        };
        CompiledCode {
            total: Amount::new(sum(&sums), unit),
            left_out: Amount::new(left_out, unit),
            left_out_percent: percent(left_out, whole),
            rows: Table::cut(sums.into_iter().map(row).collect(), subset.selection().rows),
        }
    }
}

/// Position of a node below a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UnitPart {
    /// Below no unit.
    #[default]
    Outside,
    /// Among the lines that requested it.
    Lines,
    /// Below its operators.
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
    function: StrId,
}

impl Key {
    /// In code that was not compiled.
    const NONE: Key = Key {
        unit: StrId::EMPTY,
        operators: StrId::EMPTY,
        file: StrId::EMPTY,
        line: 0,
        function: StrId::EMPTY,
    };
}

/// The exclusive sums of a metric in compiled code, largest first.
fn sums(profile: &Profile, metric: Metric) -> Vec<(Origin, u64)> {
    let text = |id| profile.strings.get(id);
    let mut states: Vec<(UnitPart, Key)> = Vec::with_capacity(profile.tree.len());
    let mut sums: FxHashMap<Key, u64> = FxHashMap::default();
    for (number, node) in profile.tree.nodes().enumerate() {
        let (part, key) = states.get(node.parent.index()).copied().unwrap_or((UnitPart::Outside, Key::NONE));
        let (part, key) = below(profile, &profile.frames.get(node.frame), part, key);
        states.push((part, key));
        let sum = profile.tree.exclusive(NodeId::from_number(number as u32), metric).sum;
        if sum > 0 && key != Key::NONE {
            let of_key = sums.entry(key).or_default();
            *of_key = of_key.saturating_add(sum);
        }
    }
    let origin = |key: &Key| Origin {
        unit: clean(text(key.unit).trim_matches(['[', ']'])),
        operators: clean(text(key.operators)),
        line: match key.line {
            0 => String::new(),
            line => format!("{}:{line}", clean(text(key.file))),
        },
        function: clean(text(key.function)),
    };
    let mut rows: Vec<_> = sums.iter().map(|(key, sum)| (origin(key), *sum)).collect();
    rows.sort_rows_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
    rows
}

/// Position of a frame within compiled code, from its caller's.
fn below(profile: &Profile, frame: &Frame, part: UnitPart, mut key: Key) -> (UnitPart, Key) {
    let text = |id| profile.strings.get(id);
    match (*frame, part) {
        (Frame::Operator { name }, _) if is_unit(text(name)) => {
            (UnitPart::Lines, Key { unit: name, ..Key::NONE })
        }
        (Frame::Operator { name }, UnitPart::Outside) if text(name).starts_with("xla::") => {
            (part, Key { operators: name, ..key })
        }
        (Frame::Operator { name }, UnitPart::Lines) => (UnitPart::Operators, Key { operators: name, ..key }),
        // A thunk that calls a library: its name, or its kind.
        (Frame::Operator { name }, UnitPart::Operators) if key.function == StrId::EMPTY => {
            (part, Key { function: name, ..key })
        }
        (Frame::Python { file, line, .. }, UnitPart::Lines) => {
            (part, Key { file, line: line.map_or(0, |line| line.get()), ..key })
        }
        (
            Frame::Native { symbol, .. } | Frame::GpuKernel { name: symbol },
            UnitPart::Lines | UnitPart::Operators,
        ) => {
            if key.function == StrId::EMPTY {
                key.function = symbol;
            }
            (UnitPart::Code, key)
        }
        _ => (part, key),
    }
}

fn is_unit(name: &str) -> bool {
    ["[xla ", "[inductor ", "[triton "].iter().any(|begin| name.starts_with(begin)) && name.ends_with(']')
}

#[cfg(test)]
pub(crate) mod tests {
    use deepctx_profile::text;

    use super::*;
    use crate::Selection;

    pub(crate) const RUN: &str = "
        P python-7 / T a/8 / o xla::cpu::KernelThunk / n Call / o [xla jit_step] / y /a/net.py:loss:13 / y /a/net.py:layer:8 / o jit(step)/mul [fused: exp] / n fusion.1 400
        P python-7 / T a/9 / n Parallelize / o [xla jit_step] / y /a/net.py:loss:13 / y /a/net.py:layer:8 / o jit(step)/mul [fused: exp] / n fusion.1 / n memcpy 100
        P python-7 / T a/9 / n Parallelize / o [xla jit_eval] / n fusion.1 10
        P python-7 / T a/8 / o xla::cpu::DotThunk / n gemm 300
        P python-7 / T a/7 / y /a/net.py:main:30 / o [inductor cpp_fused_add_0] / o aten::add net.py:3 / n kernel / n omp 50
        P python-7 / T a/7 / y /a/net.py:main:30 / n write 40
    ";

    #[test]
    fn time_of_compiled_code_belongs_to_operators_and_lines() {
        let profile = text::parse(RUN).unwrap();
        let code = CompiledCode::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime)));
        let rows: Vec<_> = code
            .rows
            .rows
            .iter()
            .map(|row| {
                let Origin { unit, operators, line, function } = &row.origin;
                format!("{} {unit}|{operators}|{line}|{function}", row.exclusive.value)
            })
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
        assert_eq!((code.total.value, code.left_out.value), (860, 0));
    }

    #[test]
    fn huge_values_of_compiled_code_saturate() {
        let lines = format!("n a / o xla::cpu::DotThunk {0}\n n b / o xla::cpu::DotThunk {0}", u64::MAX);
        let profile = text::parse(&lines).unwrap();
        let code = CompiledCode::compute(&Subset::new(&profile, &Selection::of(Metric::CpuTime)));
        assert_eq!(code.rows.rows[0].exclusive.value, u64::MAX);
    }
}
