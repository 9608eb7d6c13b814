//! Rows of tables, to and from Parquet bytes.
//!
//! Owns: encoding, decoding, and typed access to the columns of a row. Because: whatever a file holds, reading it
//! must end in rows or in one sentence that says why not. Does not: know what the columns mean.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

/// Rows that are in memory at once, beside the encoded bytes.
pub(super) const BATCH_ROWS: usize = 64 * 1024;

/// How the values of a column lie beside each other, which decides how they are encoded. Columns that are not named have few
/// values that repeat, for which a dictionary is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encode {
    /// Numbers that grow, or are near the one before.
    Near,
    /// Texts that are all different: a dictionary of them would be one more copy.
    Unique,
}

/// Encodes batches as one Parquet file.
pub(super) fn encode(
    schema: SchemaRef,
    columns: &[(&'static str, Encode)],
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>,
) -> Result<Vec<u8>, ParquetError> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for &(column, how) in columns {
        let path = ColumnPath::from(column);
        properties = properties.set_column_dictionary_enabled(path.clone(), false);
        let encoding = match how {
            Encode::Near => Encoding::DELTA_BINARY_PACKED,
            Encode::Unique => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        };
        properties = properties.set_column_encoding(path, encoding);
    }
    let properties = properties.build();
    // The Parquet types say it all; without Arrow's own copy of the schema there is one description, not two.
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(Vec::new(), schema, options)?;
    for batch in batches {
        writer.write(&batch?)?;
    }
    writer.into_inner()
}

/// The rows of a Parquet file, one batch after the other.
///
/// The bytes may be anything. The Parquet reader is not proof against all of it, so a panic in there ends this file
/// and nothing else.
pub(super) struct Batches {
    reader: ParquetRecordBatchReader,
    rows: u64,
    seen: u64,
}

impl Batches {
    /// A file of exactly `rows` rows, in batches of at most `batch_rows`.
    pub(super) fn of(bytes: Vec<u8>, rows: u64, batch_rows: usize) -> Result<Self, String> {
        let reader = guarded(|| {
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(Bytes::from(bytes), options)?;
            let found = reader.metadata().file_metadata().num_rows();
            if u64::try_from(found) != Ok(rows) {
                return Err(ParquetError::General(format!("it has {found} rows instead of {rows}")));
            }
            reader.with_batch_size(batch_rows).build()
        })?;
        Ok(Batches { reader, rows, seen: 0 })
    }

    /// The next batch; none behind the last row.
    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        match guarded(|| self.reader.next().transpose().map_err(ParquetError::from))? {
            Some(batch) => {
                self.seen += batch.num_rows() as u64;
                Ok(Some(batch))
            }
            None if self.seen == self.rows => Ok(None),
            None => Err(format!("it ended after {} of {} rows", self.seen, self.rows)),
        }
    }
}

/// Decodes a Parquet file of exactly `rows` rows.
pub(super) fn decode(
    bytes: Vec<u8>,
    rows: u64,
    mut take: impl FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), String> {
    let mut batches = Batches::of(bytes, rows, BATCH_ROWS)?;
    while let Some(batch) = batches.next()? {
        take(&batch)?;
    }
    Ok(())
}

fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    // Nothing is used again after a panic: the caller gives the whole file up.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the Parquet reader gave up on it".to_owned()),
    }
}

/// The rows of one batch, checked to have the columns of a schema. Columns beyond those are ignored.
pub(super) struct Rows<'a> {
    batch: &'a RecordBatch,
}

impl<'a> Rows<'a> {
    pub(super) fn new(schema: &Schema, batch: &'a RecordBatch) -> Result<Self, String> {
        for field in schema.fields() {
            let name = field.name();
            let Some(column) = batch.column_by_name(name) else {
                return Err(format!("it has no column `{name}`"));
            };
            if column.data_type() != field.data_type() {
                return Err(format!(
                    "column `{name}` has the type {} instead of {}",
                    column.data_type(),
                    field.data_type()
                ));
            }
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(format!("column `{name}` has rows without a value"));
            }
        }
        Ok(Rows { batch })
    }

    /// A whole column: for tables of a million rows, where finding the column for each row would show.
    pub(super) fn u32s(&self, name: &str) -> Result<&'a [u32], String> {
        let column =
            self.batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<UInt32Type>());
        column.map(|column| &column.values()[..]).ok_or_else(|| format!("it has no numbers in `{name}`"))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Row<'a>> {
        let batch = self.batch;
        (0..batch.num_rows()).map(move |at| Row { batch, at })
    }
}

/// One row. A column that is null, missing or of another type has no value.
pub(super) struct Row<'a> {
    batch: &'a RecordBatch,
    at: usize,
}

impl<'a> Row<'a> {
    /// Place in its batch.
    pub(super) fn number(&self) -> usize {
        self.at
    }

    fn column(&self, name: &str) -> Option<&'a dyn Array> {
        self.batch.column_by_name(name).filter(|column| column.is_valid(self.at)).map(AsRef::as_ref)
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        Some(self.column(name)?.as_string_opt::<i32>()?.value(self.at))
    }

    pub(super) fn u32(&self, name: &str) -> Option<u32> {
        Some(self.column(name)?.as_primitive_opt::<UInt32Type>()?.value(self.at))
    }

    pub(super) fn u64(&self, name: &str) -> Option<u64> {
        Some(self.column(name)?.as_primitive_opt::<UInt64Type>()?.value(self.at))
    }

    pub(super) fn decimal(&self, name: &str) -> Option<i128> {
        Some(self.column(name)?.as_primitive_opt::<Decimal128Type>()?.value(self.at))
    }

    pub(super) fn bool(&self, name: &str) -> bool {
        self.column(name)
            .and_then(|column| column.as_boolean_opt())
            .is_some_and(|column| column.value(self.at))
    }
}
