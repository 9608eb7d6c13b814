//! Rows: the tables of a report, from their serialized rows.
//!
//! Owns: [`NAMES`], and how rows become columns. Because: every table of `report --format json` must be there, and each
//! of `report --table`, with the same names of fields, also one that is added tomorrow. Does not: compute a table.
//!
//! A field is a column. One that holds an object is a column for each of its fields (`occupancy.blocks`), one that
//! holds a list is its JSON text. A field that some rows lack is null there. A table without rows has no columns, since
//! nothing says what they would be.

use std::sync::Arc;

use arrow_array::{
    Array as _, ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, RecordBatch, RecordBatchOptions,
    StringArray, UInt64Array,
};
use arrow_schema::{ArrowError, Field, Schema};
use deepctx_analysis::findings::{Findings, Settings};
use deepctx_analysis::model::MemoryCurves;
use deepctx_analysis::tables::compilation::Compilations;
use deepctx_analysis::tables::compiled::CompiledCode;
use deepctx_analysis::tables::devices::Devices;
use deepctx_analysis::tables::instructions::Instructions;
use deepctx_analysis::tables::kernels::Kernels;
use deepctx_analysis::tables::layers::Layers;
use deepctx_analysis::tables::memory::PeakMemory;
use deepctx_analysis::tables::phases::Phases;
use deepctx_analysis::tables::ranges::Ranges;
use deepctx_analysis::tables::system::SystemMetrics;
use deepctx_analysis::{Contexts, Functions, Losses, ModelTables, Subset};
use deepctx_profile::Nanos;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

macro_rules! tables {
    ($($name:literal => $compute:expr;)*) => {
        /// Names of the tables.
        pub(crate) const NAMES: &[&str] = &[$($name),*];

        /// The rows of the table with this name; `None` if there is none.
        pub(crate) fn of(name: &str, subset: &Subset<'_>, elapsed: Nanos) -> Option<serde_json::Result<Value>> {
            Some(match name {
                $($name => {
                    let compute: fn(&Subset<'_>, Nanos) -> _ = $compute;
                    serde_json::to_value(compute(subset, elapsed))
                })*
                _ => return None,
            })
        }
    };
}

tables! {
    "functions" => |subset, _| Functions::compute(subset);
    "contexts" => |subset, _| Contexts::compute(subset);
    "phases" => |subset, _| Phases::compute(subset);
    "training_steps" => |subset, _| Ranges::training_steps(subset);
    "ranges" => |subset, _| Ranges::compute(subset);
    "layers" => |subset, _| Layers::compute(subset);
    "compiled_code" => |subset, _| CompiledCode::compute(subset);
    "compilations" => |subset, _| Compilations::compute(subset);
    "devices" => |subset, _| Devices::compute(subset);
    "kernels" => |subset, _| Kernels::compute(subset);
    "instructions" => |subset, _| Instructions::compute(subset);
    "memory" => |subset, _| PeakMemory::compute(subset);
    "system" => |subset, elapsed| SystemMetrics::compute(subset, elapsed);
    "findings" => |subset, elapsed| Findings::compute(subset, elapsed, &Settings::default()).findings;
    "checks" => |subset, elapsed| Findings::compute(subset, elapsed, &Settings::default()).checks;
    "losses" => |subset, _| Losses::compute(subset.profile()).losses;
    "ledger" => |subset, _| Losses::compute(subset.profile()).ledger;
    "model_basis" => |subset, elapsed| model(subset, elapsed).basis;
    "model_totals" => |subset, elapsed| [model(subset, elapsed).totals];
    "model_layers" => |subset, elapsed| model(subset, elapsed).layers;
    "model_layer_types" => |subset, elapsed| model(subset, elapsed).layer_types;
    "model_stages" => |subset, elapsed| model(subset, elapsed).stages;
    "model_kernels" => |subset, elapsed| model(subset, elapsed).kernels;
    "model_kernel_names" => |subset, elapsed| model(subset, elapsed).kernel_names;
    "model_kernel_frequency" => |subset, elapsed| model(subset, elapsed).kernel_frequency;
    "model_extreme_kernels" => |subset, elapsed| model(subset, elapsed).extreme_kernels;
    "model_memory_curves" => |subset, elapsed| by_window(&model(subset, elapsed).memory_curves);
}

fn model(subset: &Subset<'_>, elapsed: Nanos) -> ModelTables {
    ModelTables::compute(subset, elapsed, None, None)
}

/// A row for each window of each device.
fn by_window(curves: &MemoryCurves) -> Vec<Value> {
    let row = |process: &str, device: &str, window: u64, bytes: u64| {
        let begin_ns = window.saturating_mul(curves.window_ns);
        json!({ "process": process, "device": device, "begin_ns": begin_ns, "live_bytes": bytes })
    };
    let mut rows = Vec::new();
    for curve in &curves.curves {
        let windows = (0u64..).zip(&curve.live_bytes);
        rows.extend(windows.map(|(window, bytes)| row(&curve.process, &curve.device, window, *bytes)));
    }
    rows
}

/// Tables of what rules conclude. Those on ranks look at single events.
pub(crate) const OF_RULES: [&str; 2] = ["findings", "checks"];

/// The rows as columns.
pub(crate) fn batch(table: &Value) -> Result<RecordBatch, ArrowError> {
    let rows: &[Value] = match table {
        Value::Array(rows) => rows,
        // Some tables have a total in addition to their rows.
        other => other.get("rows").and_then(Value::as_array).map_or(&[], Vec::as_slice),
    };
    let mut columns = Columns { places: FxHashMap::default(), names: Vec::new(), cells: Vec::new() };
    for (number, row) in rows.iter().enumerate() {
        columns.take("", row, number, rows.len());
    }
    let arrays: Vec<ArrayRef> = columns.cells.iter().map(|cells| array(cells)).collect();
    let field = |(name, array): (&String, &ArrayRef)| Field::new(name, array.data_type().clone(), true);
    let schema = Schema::new(columns.names.iter().zip(&arrays).map(field).collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)
}

/// Cells by column, in the order of first appearance.
struct Columns<'v> {
    places: FxHashMap<String, usize>,
    names: Vec<String>,
    cells: Vec<Vec<Option<&'v Value>>>,
}

impl<'v> Columns<'v> {
    fn take(&mut self, name: &str, value: &'v Value, row: usize, rows: usize) {
        if let Value::Object(fields) = value {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                self.take(&name, value, row, rows);
            }
            return;
        }
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => {
                self.places.insert(name.to_owned(), self.names.len());
                self.names.push(name.to_owned());
                self.cells.push(vec![None; rows]);
                self.names.len() - 1
            }
        };
        self.cells[place][row] = Some(value).filter(|value| !value.is_null());
    }
}

/// The narrowest type that holds every cell of a column; text if they have no common type.
fn array(cells: &[Option<&Value>]) -> ArrayRef {
    let all = |is: fn(&Value) -> bool| cells.iter().flatten().all(|cell| is(cell));
    if cells.iter().all(Option::is_none) {
        Arc::new(NullArray::new(cells.len()))
    } else if all(Value::is_boolean) {
        Arc::new(cells.iter().map(|cell| cell.and_then(Value::as_bool)).collect::<BooleanArray>())
    } else if all(Value::is_u64) {
        Arc::new(cells.iter().map(|cell| cell.and_then(Value::as_u64)).collect::<UInt64Array>())
    } else if all(Value::is_i64) {
        Arc::new(cells.iter().map(|cell| cell.and_then(Value::as_i64)).collect::<Int64Array>())
    } else if all(Value::is_number) {
        Arc::new(cells.iter().map(|cell| cell.and_then(Value::as_f64)).collect::<Float64Array>())
    } else {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Arc::new(cells.iter().map(|cell| cell.map(text)).collect::<StringArray>())
    }
}
