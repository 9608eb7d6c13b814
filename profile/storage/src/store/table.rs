//! Tables, to and from the bytes of Parquet files.
//!
//! Owns: encoding and decoding. Because: reading any file must end in rows or in one sentence that says why not. Does
//! not: know what the columns mean.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use deepctx_profile::units::counted;
use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::FileReader as _;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};

use super::batch::{Batch, Cells, Texts, Values};
use super::columns::{Column, ColumnEncoding, Kind, Table};

/// Rows in memory at once, besides the encoded bytes.
pub(super) const BATCH_ROWS: usize = 64 * 1024;
/// Bytes of a decimal of 38 digits.
const DECIMAL_BYTES: usize = 16;
/// Maximum text bytes of a column in one batch: otherwise a dictionary with one long text could expand without bound.
const TEXT_BYTES_MAX: usize = 1 << 30;

/// The schema of a table within its files.
fn schema(table: Table) -> Result<TypePtr, ParquetError> {
    static SCHEMAS: LazyLock<[Result<TypePtr, String>; Table::ALL.len()]> = LazyLock::new(|| {
        Table::ALL.map(|table| {
            let fields = table.columns().iter().map(|column| field(column).map(Arc::new));
            let fields = fields.collect::<Result<_, ParquetError>>();
            fields
                .and_then(|fields| Type::group_type_builder(table.name()).with_fields(fields).build())
                .map(Arc::new)
                .map_err(|error| error.to_string())
        })
    });
    SCHEMAS[table as usize].clone().map_err(ParquetError::General)
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
    let (physical, logical) = match column.kind {
        Kind::Bool => (Physical::BOOLEAN, None),
        Kind::U32 => (Physical::INT32, unsigned(32)),
        Kind::U64 => (Physical::INT64, unsigned(64)),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Decimal => (Physical::FIXED_LEN_BYTE_ARRAY, Some(LogicalType::decimal(0, 38))),
    };
    let builder = Type::primitive_type_builder(column.name, physical).with_logical_type(logical);
    let builder = match column.kind {
        Kind::Decimal => builder.with_length(DECIMAL_BYTES as i32).with_precision(38).with_scale(0),
        _ => builder,
    };
    builder.with_repetition(if column.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED }).build()
}

fn properties(table: Table) -> Result<WriterProperties, ParquetError> {
    // Events are most of a recording's bytes: a third less for twice the time, on a thread that waits for the disk.
    let level = if table == Table::Trace { 3 } else { 1 };
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(level)?))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for column in table.columns() {
        let encoding = match column.encode {
            ColumnEncoding::Repeated => continue,
            ColumnEncoding::Near => Encoding::DELTA_BINARY_PACKED,
            ColumnEncoding::Unique => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        };
        let path = ColumnPath::from(column.name);
        properties = properties.set_column_dictionary_enabled(path.clone(), false);
        properties = properties.set_column_encoding(path, encoding);
    }
    Ok(properties.build())
}

/// Encodes batches as one Parquet file. Small ones are joined: each row group has a cost of its own.
pub(super) fn encode(
    table: Table,
    batches: impl Iterator<Item = Result<Batch, String>>,
) -> Result<Vec<u8>, String> {
    let (schema, properties) = (schema(table).map_err(text)?, properties(table).map_err(text)?);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).map_err(text)?;
    let mut waiting = Batch::new(table);
    for batch in batches {
        let batch = batch?;
        if waiting.rows() + batch.rows() > BATCH_ROWS {
            write_rows(&mut writer, &std::mem::replace(&mut waiting, batch))?;
        } else {
            waiting.append(batch);
        }
    }
    write_rows(&mut writer, &waiting)?;
    writer.into_inner().map_err(text)
}

fn text(error: ParquetError) -> String {
    error.to_string()
}

fn write_rows(writer: &mut SerializedFileWriter<Vec<u8>>, batch: &Batch) -> Result<(), String> {
    batch.check()?;
    if batch.rows() == 0 {
        return Ok(());
    }
    let mut group = writer.next_row_group().map_err(text)?;
    for cells in batch.cells() {
        if let Some(mut column) = group.next_column().map_err(text)? {
            write_cells(&mut column, cells).and_then(|()| column.close()).map_err(text)?;
        }
    }
    group.close().map(|_| ()).map_err(text)
}

fn write_cells(column: &mut SerializedColumnWriter<'_>, cells: &Cells) -> Result<(), ParquetError> {
    match &cells.values {
        Values::Bool(values) => write::<BoolType>(column, cells, values.iter().copied()),
        // Parquet stores unsigned numbers as the signed ones with the same bits.
        Values::U32(values) => write::<Int32Type>(column, cells, values.iter().map(|&value| value as i32)),
        Values::U64(values) => write::<Int64Type>(column, cells, values.iter().map(|&value| value as i64)),
        Values::Decimal(values) => {
            let all = Bytes::from(values.iter().flat_map(|value| value.to_be_bytes()).collect::<Vec<u8>>());
            let one = |place| ByteArray::from(all.slice(place * DECIMAL_BYTES..(place + 1) * DECIMAL_BYTES));
            let values = (0..values.len()).map(|place| FixedLenByteArray::from(one(place)));
            write::<FixedLenByteArrayType>(column, cells, values)
        }
        Values::Text(texts) => {
            let all = Bytes::copy_from_slice(texts.all().as_bytes());
            let values = texts.ranges().map(|range| ByteArray::from(all.slice(range)));
            write::<ByteArrayType>(column, cells, values)
        }
    }
}

/// Writes the existing values.
fn write<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    cells: &Cells,
    values: impl Iterator<Item = T::T>,
) -> Result<(), ParquetError> {
    let column = column.typed::<T>();
    if cells.levels.is_empty() {
        column.write_batch(&values.collect::<Vec<_>>(), None, None)?;
    } else {
        let given = values.zip(&cells.levels).filter(|(_, level)| **level > 0).map(|(value, _)| value);
        column.write_batch(&given.collect::<Vec<_>>(), Some(&cells.levels), None)?;
    }
    Ok(())
}

/// The rows of a Parquet file, batch by batch.
///
/// The bytes may be anything. The Parquet reader may panic on some of it, which ends only this file.
pub(super) struct Batches {
    reader: SerializedFileReader<Bytes>,
    table: Table,
    /// Columns of the table by index in the file; `None` for those that an older file lacks.
    places: Vec<Option<usize>>,
    /// Readers of the columns of the current row group, and how many of its rows are left.
    columns: Vec<Option<ColumnReader>>,
    left: usize,
    next_group: usize,
    batch_rows: usize,
    rows: u64,
    seen: u64,
}

impl Batches {
    /// Reads a file of exactly `rows` rows, in batches of at most `batch_rows`.
    pub(super) fn of(table: Table, bytes: Vec<u8>, rows: u64, batch_rows: usize) -> Result<Self, String> {
        let reader = guarded(|| SerializedFileReader::new(Bytes::from(bytes)).map_err(text))?;
        let file = reader.metadata().file_metadata();
        if u64::try_from(file.num_rows()) != Ok(rows) {
            return Err(format!("its number of rows is {} instead of {rows}", file.num_rows()));
        }
        let is_there = |column: &&Column| !(column.added && lacks(&reader, column));
        let places = table
            .columns()
            .iter()
            .map(|column| Some(column).filter(is_there).map(|column| find(&reader, column)).transpose());
        let places = places.collect::<Result<_, _>>()?;
        let columns = Vec::new();
        Ok(Batches { reader, table, places, columns, left: 0, next_group: 0, batch_rows, rows, seen: 0 })
    }

    /// The next batch; `None` after the last row.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, String> {
        while self.left == 0 {
            if self.next_group == self.reader.metadata().num_row_groups() {
                return match self.seen == self.rows {
                    true => Ok(None),
                    false => Err(format!("it ended after {} of {}", self.seen, counted(self.rows, "row"))),
                };
            }
            guarded(|| self.open_group())?;
        }
        let rows = self.left.min(self.batch_rows);
        let batch = guarded(|| self.read(rows))?;
        self.left -= rows;
        self.seen += rows as u64;
        Ok(Some(batch))
    }

    fn open_group(&mut self) -> Result<(), String> {
        let group = self.reader.get_row_group(self.next_group).map_err(text)?;
        let rows = group.metadata().num_rows();
        let reader = |place: &Option<usize>| place.map(|place| group.get_column_reader(place)).transpose();
        let columns = self.places.iter().map(reader);
        let columns = columns.collect::<Result<_, _>>().map_err(text)?;
        drop(group);
        (self.columns, self.next_group) = (columns, self.next_group + 1);
        let fits = usize::try_from(rows).ok().filter(|rows| *rows as u64 <= self.rows - self.seen);
        self.left = fits.ok_or_else(|| format!("a part of it claims too many rows: {rows}"))?;
        Ok(())
    }

    fn read(&mut self, rows: usize) -> Result<Batch, String> {
        let columns = self.table.columns().iter().zip(&mut self.columns);
        let cells = columns.map(|(column, reader)| {
            let Some(reader) = reader else { return Ok(Cells::none(column.kind, rows)) };
            read_cells(column, reader, rows).map_err(|because| format!("column `{}`: {because}", column.name))
        });
        Batch::of(self.table, cells.collect::<Result<_, _>>()?, rows)
    }
}

/// Whether a file is older than a column.
fn lacks(reader: &SerializedFileReader<Bytes>, column: &Column) -> bool {
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    columns.iter().all(|found| found.path().parts() != [column.name])
}

/// Index of a column in a file. Unknown columns are skipped.
fn find(reader: &SerializedFileReader<Bytes>, column: &Column) -> Result<usize, String> {
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let name = column.name;
    let place = columns.iter().position(|found| found.path().parts() == [name]);
    let place = place.ok_or_else(|| format!("it has no column `{name}`"))?;
    let (found, expected) = (&columns[place], field(column).map_err(text)?);
    let same_type = found.physical_type() == expected.get_physical_type()
        && found.converted_type() == expected.get_basic_info().converted_type();
    let same_digits = column.kind != Kind::Decimal
        || (found.type_length(), found.type_precision(), found.type_scale()) == (DECIMAL_BYTES as i32, 38, 0);
    if !same_type || !same_digits || found.max_rep_level() > 0 || found.max_def_level() > 1 {
        return Err(format!("column `{name}` has another type: {:?}", found.self_type()));
    }
    Ok(place)
}

fn read_cells(column: &Column, reader: &mut ColumnReader, rows: usize) -> Result<Cells, String> {
    let (values, levels) = match (column.kind, reader) {
        (Kind::Bool, ColumnReader::BoolColumnReader(reader)) => {
            let (values, levels) = read(reader, rows)?;
            (Values::Bool(spread(values, &levels)), levels)
        }
        (Kind::U32, ColumnReader::Int32ColumnReader(reader)) => {
            let (values, levels) = read(reader, rows)?;
            (Values::U32(spread(values, &levels).into_iter().map(|value| value as u32).collect()), levels)
        }
        (Kind::U64, ColumnReader::Int64ColumnReader(reader)) => {
            let (values, levels) = read(reader, rows)?;
            (Values::U64(spread(values, &levels).into_iter().map(|value| value as u64).collect()), levels)
        }
        (Kind::Decimal, ColumnReader::FixedLenByteArrayColumnReader(reader)) => {
            let (values, levels) = read(reader, rows)?;
            (Values::Decimal(spread(decimals(&values)?, &levels)), levels)
        }
        (Kind::Text, ColumnReader::ByteArrayColumnReader(reader)) => {
            let (values, levels) = read(reader, rows)?;
            let values = values.iter().map(ByteArray::data).collect();
            (Values::Text(texts(&spread(values, &levels))?), levels)
        }
        _ => return Err("it has another type".to_owned()),
    };
    if column.optional {
        let all = |levels: Vec<i16>| if levels.is_empty() { vec![1; rows] } else { levels };
        return Ok(Cells { values, levels: all(levels) });
    }
    if levels.contains(&0) {
        return Err("rows have no value".to_owned());
    }
    Ok(Cells { values, levels: Vec::new() })
}

/// Reads the cells of some rows in a column: the values, and for an optional column whether each row has one.
fn read<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> Result<(Vec<T::T>, Vec<i16>), String> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (records, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values).map_err(text)?;
    let given = levels.iter().filter(|level| **level > 0).count();
    let whole = match levels.is_empty() {
        true => values.len() == rows,
        false => levels.len() == rows && values.len() == given,
    };
    match records == rows && whole {
        true => Ok((values, levels)),
        false => Err(format!("it ends {} early", counted(rows.saturating_sub(records) as u64, "row"))),
    }
}

/// A value for each row; the default for a row without one.
fn spread<T: Clone + Default>(values: Vec<T>, levels: &[i16]) -> Vec<T> {
    if !levels.contains(&0) {
        return values;
    }
    let mut values = values.into_iter();
    let value = |level: &i16| if *level > 0 { values.next() } else { None };
    levels.iter().map(value).map(Option::unwrap_or_default).collect()
}

fn decimals(values: &[FixedLenByteArray]) -> Result<Vec<i128>, String> {
    let one = |value: &FixedLenByteArray| value.data().try_into().map(i128::from_be_bytes);
    values.iter().map(one).collect::<Result<_, _>>().map_err(|_| "a number has a wrong length".to_owned())
}

fn texts(values: &[&[u8]]) -> Result<Texts, String> {
    let mut texts = Texts::default();
    for bytes in values {
        let text = std::str::from_utf8(bytes).map_err(|_| "a text is no UTF-8")?;
        if texts.all().len() + text.len() > TEXT_BYTES_MAX {
            return Err("its texts are too long".to_owned());
        }
        texts.push(text);
    }
    Ok(texts)
}

/// Decodes a Parquet file of exactly `rows` rows.
pub(super) fn decode(
    table: Table,
    bytes: Vec<u8>,
    rows: u64,
    mut take: impl FnMut(&Batch) -> Result<(), String>,
) -> Result<(), String> {
    let mut batches = Batches::of(table, bytes, rows, BATCH_ROWS)?;
    while let Some(batch) = batches.next()? {
        take(&batch)?;
    }
    Ok(())
}

fn guarded<T>(read: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    // Nothing is used again after a panic: the caller drops the whole file.
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result,
        Err(_) => Err("the Parquet reader gave up on it".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of lanes from before the version with counters: rows of a lane and its process.
    fn older_file(lanes: &[(u32, u32)]) -> Vec<u8> {
        let is_old = |column: &&Column| !column.added;
        let columns: Vec<&Column> = Table::TraceLanes.columns().iter().filter(is_old).collect();
        let fields = columns.iter().map(|column| Arc::new(field(column).unwrap())).collect();
        let schema = Type::group_type_builder("trace-lanes").with_fields(fields).build().unwrap();
        let properties = Arc::new(properties(Table::TraceLanes).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties).unwrap();
        let mut rows = Batch::new(Table::TraceLanes);
        for (lane, pid) in lanes {
            let none = || Option::<u32>::None.into();
            let text = Option::<&str>::None.into();
            rows.push([(*lane).into(), (*pid).into(), (*pid).into(), none(), none(), none(), text, none()]);
        }
        let mut group = writer.next_row_group().unwrap();
        for cells in &rows.cells()[..columns.len()] {
            let mut column = group.next_column().unwrap().unwrap();
            write_cells(&mut column, cells).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn columns_that_an_older_file_lacks_have_no_values() {
        let mut batches = Batches::of(Table::TraceLanes, older_file(&[(0, 7), (1, 9)]), 2, 100).unwrap();
        let batch = batches.next().unwrap().unwrap();
        let rows: Vec<_> = batch
            .iter()
            .map(|row| (row.u32("lane"), row.u32("tid"), row.text("metric"), row.u32("node")))
            .collect();
        assert_eq!(rows, [(Some(0), Some(7), None, None), (Some(1), Some(9), None, None)]);
        assert!(batches.next().unwrap().is_none());
        // Other tables have had all of their columns from the start.
        let error = Batches::of(Table::Trace, older_file(&[(0, 7)]), 1, 100).err().unwrap();
        assert_eq!(error, "it has no column `kind`");
    }
}
