//! A crafted profile that no capture would write.
//!
//! Owns: tables of any content in the format that readers accept, with correct checksums. Because: an attacker's
//! profile passes every check before it is read. Does not: know what a reader does with it.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use deepctx_storage::FormatVersion;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::json;

/// The cells of one column.
pub(super) enum Cells<'t> {
    U32(Vec<u32>),
    U64(Vec<u64>),
    Decimal(Vec<i128>),
    Text(Vec<&'t str>),
}

impl Cells<'_> {
    fn rows(&self) -> usize {
        match self {
            Cells::U32(values) => values.len(),
            Cells::U64(values) => values.len(),
            Cells::Decimal(values) => values.len(),
            Cells::Text(values) => values.len(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Cells::U32(_) => "int32 NAME (INTEGER(32,false))",
            Cells::U64(_) => "int64 NAME (INTEGER(64,false))",
            Cells::Decimal(_) => "fixed_len_byte_array(16) NAME (DECIMAL(38,0))",
            Cells::Text(_) => "binary NAME (STRING)",
        }
    }

    fn write(&self, column: &mut SerializedColumnWriter<'_>) {
        match self {
            Cells::U32(values) => {
                let values: Vec<i32> = values.iter().map(|value| *value as i32).collect();
                column.typed::<Int32Type>().write_batch(&values, None, None).unwrap()
            }
            Cells::U64(values) => {
                let values: Vec<i64> = values.iter().map(|value| *value as i64).collect();
                column.typed::<Int64Type>().write_batch(&values, None, None).unwrap()
            }
            Cells::Decimal(values) => {
                let bytes = |value: &i128| FixedLenByteArray::from(value.to_be_bytes().to_vec());
                let values: Vec<_> = values.iter().map(bytes).collect();
                column.typed::<FixedLenByteArrayType>().write_batch(&values, None, None).unwrap()
            }
            Cells::Text(values) => {
                let values: Vec<ByteArray> = values.iter().map(|value| ByteArray::from(*value)).collect();
                column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap()
            }
        };
    }
}

/// A table as a file.
fn parquet(table: &str, columns: &[(&str, Cells<'_>)]) -> Vec<u8> {
    let fields =
        columns.iter().map(|(name, cells)| format!("required {};", cells.kind().replace("NAME", name)));
    let message = format!("message {table} {{ {} }}", fields.collect::<String>());
    let schema = Arc::new(parse_message_type(&message).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).unwrap()))
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::PLAIN);
    let numbers = columns.iter().filter(|(_, cells)| matches!(cells, Cells::U32(_) | Cells::U64(_)));
    let properties = numbers.fold(properties, |all, (name, _)| {
        all.set_column_encoding((*name).into(), Encoding::DELTA_BINARY_PACKED)
    });
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, cells) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        cells.write(&mut column);
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// A table with its row count in the manifest.
#[derive(Clone)]
struct Segment {
    table: String,
    rows: u64,
    bytes: Arc<Vec<u8>>,
}

/// An unwritten profile.
#[derive(Clone, Default)]
pub(super) struct CraftedProfile {
    segments: Vec<Segment>,
    values: Vec<(u32, u64)>,
}

/// A profile on disk, removed on drop.
pub(super) struct WrittenProfile(tempfile::TempDir);

impl std::ops::Deref for WrittenProfile {
    type Target = std::path::Path;

    fn deref(&self) -> &Self::Target {
        self.0.path()
    }
}

impl CraftedProfile {
    /// An empty profile.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds contexts with these numbers and with callers from this function.
    pub(super) fn nodes(self, numbers: Range<u32>, caller: impl Fn(u32) -> u32) -> Self {
        let callers = numbers.clone().map(caller).collect();
        let frames = numbers.clone().map(|_| 0).collect();
        let columns = [
            ("id", Cells::U32(numbers.collect())),
            ("parent", Cells::U32(callers)),
            ("frame", Cells::U32(frames)),
        ];
        self.table("nodes", &columns)
    }

    /// Adds samples of a context, over the whole time range.
    pub(super) fn value(mut self, node: u32, samples: u64) -> Self {
        self.values.push((node, samples));
        self
    }

    /// Adds rows of a table.
    pub(super) fn table(mut self, table: &str, columns: &[(&str, Cells<'_>)]) -> Self {
        let rows = columns[0].1.rows() as u64;
        self.segments.push(Segment {
            table: table.to_owned(),
            rows,
            bytes: Arc::new(parquet(table, columns)),
        });
        self
    }

    /// Makes the manifest claim this number of rows for each table.
    pub(super) fn claiming(mut self, rows: u64) -> Self {
        self = self.with_values();
        self.segments.iter_mut().for_each(|segment| segment.rows = rows);
        self
    }

    fn with_values(mut self) -> Self {
        let values = std::mem::take(&mut self.values);
        if values.is_empty() {
            return self;
        }
        let of = |number: u64| Cells::U64(vec![number; values.len()]);
        let samples = || Cells::U64(values.iter().map(|(_, samples)| *samples).collect());
        let columns = [
            ("node", Cells::U32(values.iter().map(|(node, _)| *node).collect())),
            ("metric", Cells::Text(vec!["samples"; values.len()])),
            ("from_ns", of(0)),
            ("to_ns", of(u64::MAX)),
            ("count", samples()),
            ("sum", samples()),
            ("min", of(1)),
            ("max", of(u64::MAX)),
            ("sum_squares", Cells::Decimal(vec![10_i128.pow(38) - 1; values.len()])),
        ];
        self.table("values", &columns)
    }

    /// Writes the profile.
    pub(super) fn written(self) -> WrittenProfile {
        let folder = tempfile::tempdir().unwrap();
        let segments: Vec<_> = self.with_values().segments;
        let listed: Vec<_> = segments
            .iter()
            .map(|Segment { table, rows, bytes }| {
                fs::write(folder.path().join(table), &**bytes).unwrap();
                json!({
                    "table": table, "file": table, "rows": rows, "bytes": bytes.len(),
                    "crc32": crc32fast::hash(bytes),
                })
            })
            .collect();
        let manifest = json!({
            "format": "deepctx-profile",
            "version": FormatVersion::CURRENT.major,
            "minor": FormatVersion::CURRENT.minor,
            "complete": true,
            "end_ns": u64::MAX,
            "segments": listed,
        });
        let path: PathBuf = folder.path().join("manifest.json");
        fs::write(path, manifest.to_string()).unwrap();
        WrittenProfile(folder)
    }
}
