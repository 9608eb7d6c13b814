//! Columns: the tables that are as large as the profile, written column by column.
//!
//! Owns: `nodes` and `metrics`. Because: a million contexts are a table within a fifth of a second only if each column
//! is one array, and each text is there once. Does not: merge or sort anything.
//!
//! The unit of a value stands last in the name of its column: `cpu_time_exclusive_ns`.

use std::sync::Arc;

use arrow_array::types::UInt32Type;
use arrow_array::{
    Array as _, ArrayRef, DictionaryArray, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema};
use deepctx_analysis::query;
use deepctx_profile::intern::StrId;
use deepctx_profile::metric::{Metric, Unit};
use rustc_hash::FxHashMap;

use crate::loaded::LoadedProfile;
use crate::node::{module_of, source_of};

/// Named columns.
struct Columns(Vec<(Field, ArrayRef)>);

impl Columns {
    fn push(&mut self, name: impl Into<String>, array: ArrayRef) {
        let field = Field::new(name, array.data_type().clone(), array.is_nullable());
        self.0.push((field, array));
    }

    fn batch(self) -> Result<RecordBatch, ArrowError> {
        let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = self.0.into_iter().unzip();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }
}

/// The unit suffix of a column name.
const fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
    }
}

/// One row per calling context, by number: its parent, its frame, and its value of each metric.
pub(crate) fn nodes(loaded: &LoadedProfile) -> Result<RecordBatch, ArrowError> {
    let tree = &loaded.profile().tree;
    let mut columns = Columns(Vec::new());
    columns.push("id", Arc::new(UInt32Array::from_iter_values(0..tree.len() as u32)));
    let parents = tree.nodes().enumerate().map(|(id, node)| (id > 0).then(|| node.parent.number()));
    columns.push("parent", Arc::new(parents.collect::<UInt32Array>()));
    let mut depths: Vec<u32> = Vec::with_capacity(tree.len());
    for (id, node) in tree.nodes().enumerate() {
        // Callers precede callees.
        let depth = if id == 0 { 0 } else { depths[node.parent.index()] + 1 };
        depths.push(depth);
    }
    columns.push("depth", Arc::new(UInt32Array::from(depths)));
    frames(loaded, &mut columns)?;
    for metric in tree.metrics() {
        values(loaded, metric, &mut columns);
    }
    columns.batch()
}

fn values(loaded: &LoadedProfile, metric: Metric, columns: &mut Columns) {
    let tree = &loaded.profile().tree;
    let (mut sums, mut counts) = (vec![0u64; tree.len()], vec![0u64; tree.len()]);
    for (node, cell) in tree.cells(metric) {
        (sums[node.index()], counts[node.index()]) = (cell.sum, cell.count);
    }
    let (name, unit) = (metric.name().replace(['-', ':'], "_"), suffix(metric.unit()));
    columns.push(format!("{name}_exclusive_{unit}"), Arc::new(UInt64Array::from(sums)));
    let inclusive = loaded.inclusive(metric).iter().copied();
    columns.push(format!("{name}_inclusive_{unit}"), Arc::new(UInt64Array::from_iter_values(inclusive)));
    columns.push(format!("{name}_values"), Arc::new(UInt64Array::from(counts)));
}

/// Distinct texts, and the text of each frame: a dictionary must not contain a text twice.
#[derive(Default)]
struct Texts {
    numbers: FxHashMap<String, u32>,
    of_frame: Vec<Option<u32>>,
}

impl Texts {
    /// The number of a text; the lookup does not copy it.
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn push(&mut self, text: Option<&str>) {
        let number = text.map(|text| self.number(text));
        self.of_frame.push(number);
    }

    /// The column: for each context, the text of its frame.
    fn column(&self, frames: &[u32]) -> Result<ArrayRef, ArrowError> {
        let of = |frame: &u32| self.of_frame.get(*frame as usize).copied().flatten();
        let keys: UInt32Array = frames.iter().map(of).collect();
        let mut texts = vec![""; self.numbers.len()];
        for (text, number) in &self.numbers {
            texts[*number as usize] = text;
        }
        let texts = Arc::new(StringArray::from(texts));
        Ok(Arc::new(DictionaryArray::<UInt32Type>::try_new(keys, texts)?))
    }
}

/// Adds columns for the frame of each context and its location.
fn frames(loaded: &LoadedProfile, columns: &mut Columns) -> Result<(), ArrowError> {
    let profile = loaded.profile();
    let text = |id: Option<StrId>| id.map(|id| profile.strings.get(id));
    let [mut kinds, mut names, mut modules, mut files] = std::array::from_fn(|_| Texts::default());
    let (mut lines, mut label) = (Vec::new(), String::new());
    for (_, frame) in profile.frames.iter() {
        let (file, line) = source_of(&frame);
        label.clear();
        frame.write_label(&profile.strings, false, &mut label);
        names.push(Some(&label));
        modules.push(text(module_of(&frame)));
        files.push(text(file));
        kinds.push(Some(query::kind_of(&frame)));
        lines.push(line);
    }
    let frames: Vec<u32> = profile.tree.nodes().map(|node| node.frame.number()).collect();
    columns.push("kind", kinds.column(&frames)?);
    columns.push("name", names.column(&frames)?);
    columns.push("module", modules.column(&frames)?);
    columns.push("file", files.column(&frames)?);
    let line = |frame: &u32| lines.get(*frame as usize).copied().flatten();
    columns.push("line", Arc::new(frames.iter().map(line).collect::<UInt32Array>()));
    Ok(())
}

/// One row per metric with values: totals of the whole profile, in the metric's unit.
pub(crate) fn metrics(loaded: &LoadedProfile) -> Result<RecordBatch, ArrowError> {
    let tree = &loaded.profile().tree;
    let metrics: Vec<Metric> = tree.metrics().collect();
    let totals: Vec<_> = metrics.iter().map(|metric| tree.total(*metric)).collect();
    let numbers = |of: fn(&deepctx_profile::metric::Cell) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(totals.iter().map(of)))
    };
    let figures = |of: fn(&deepctx_profile::metric::Cell) -> Option<f64>| -> ArrayRef {
        Arc::new(totals.iter().map(of).collect::<Float64Array>())
    };
    let mut columns = Columns(Vec::new());
    columns.push("metric", Arc::new(StringArray::from_iter_values(metrics.iter().map(|of| of.name()))));
    let units = metrics.iter().map(|of| suffix(of.unit()));
    columns.push("unit", Arc::new(StringArray::from_iter_values(units)));
    columns.push("values", numbers(|total| total.count));
    columns.push("sum", numbers(|total| total.sum));
    columns.push("min", numbers(|total| total.min));
    columns.push("max", numbers(|total| total.max));
    columns.push("mean", figures(|total| total.mean()));
    columns.push("deviation", figures(|total| total.deviation()));
    columns.batch()
}
