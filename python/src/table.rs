//! Table: rows and columns for pandas, polars and DuckDB, without a copy.
//!
//! Owns: [`Table`], its form in a notebook, and the capsule of Arrow's C stream interface. Because: that interface is
//! what all of them read, and neither side has to link the other. Does not: fill a table; see `columns` and `rows`.

use arrow_array::cast::AsArray as _;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use deepctx_profile::units::counted;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::failed;

/// Rows in a notebook.
const SHOWN: usize = 10;

/// A table of a profile.
///
/// Whatever reads Arrow's C stream interface takes it without a copy: `pyarrow.table(t)`, `polars.DataFrame(t)`,
/// `duckdb.from_arrow(pyarrow.table(t))`. It may be read any number of times.
#[pyclass(frozen, module = "deepctx")]
pub(crate) struct Table {
    name: String,
    batch: RecordBatch,
}

impl Table {
    pub(crate) fn new(name: &str, batch: RecordBatch) -> Self {
        Table { name: name.to_owned(), batch }
    }
}

#[pymethods]
impl Table {
    /// Name of the table.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Names of the columns, in their order.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// How many rows and columns there are: `(rows, columns)`.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.batch.num_rows(), self.batch.num_columns())
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    fn __repr__(&self) -> String {
        let (rows, columns) = (self.batch.num_rows() as u64, self.batch.num_columns() as u64);
        format!("<Table {}: {}, {}>", self.name, counted(rows, "row"), counted(columns, "column"))
    }

    /// The first rows, for notebooks.
    fn _repr_html_(&self) -> String {
        let schema = self.batch.schema();
        let titles: String =
            schema.fields().iter().map(|field| format!("<th>{}</th>", escaped(field.name()))).collect();
        let row = |row: usize| {
            let cells = self.batch.columns().iter().map(|column| cell(column, row));
            let cells: String = cells.map(|text| format!("<td>{}</td>", escaped(&text))).collect();
            format!("<tr>{cells}</tr>")
        };
        let rows: String = (0..self.batch.num_rows().min(SHOWN)).map(row).collect();
        format!("<p>{}</p><table><tr>{titles}</tr>{rows}</table>", escaped(&self.__repr__()))
    }

    /// The schema as a capsule of Arrow's C data interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The rows as a capsule of Arrow's C stream interface. A schema that is asked for is not converted to, as the
    /// interface allows.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }
}

/// The text of a cell; empty if it is null.
fn cell(column: &dyn Array, row: usize) -> String {
    if column.is_null(row) {
        return String::new();
    }
    if let Some(texts) = column.as_dictionary_opt::<UInt32Type>() {
        return texts.key(row).map_or_else(String::new, |key| cell(texts.values(), key));
    }
    let text = column.as_string_opt::<i32>().map(|of| of.value(row).to_owned());
    text.or_else(|| column.as_primitive_opt::<UInt64Type>().map(|of| of.value(row).to_string()))
        .or_else(|| column.as_primitive_opt::<UInt32Type>().map(|of| of.value(row).to_string()))
        .or_else(|| column.as_primitive_opt::<Int64Type>().map(|of| of.value(row).to_string()))
        .or_else(|| column.as_primitive_opt::<Float64Type>().map(|of| format!("{:.3}", of.value(row))))
        .or_else(|| column.as_boolean_opt().map(|of| of.value(row).to_string()))
        .unwrap_or_default()
}

/// A text as HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
