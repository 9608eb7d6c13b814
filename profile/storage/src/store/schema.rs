//! Tables, and profile rows to and from their columns.
//!
//! Owns: column names and types, and what a row means. Because: the documented format and the code must have one
//! place where they meet. Does not: touch files.

use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BooleanBuilder, Decimal128Builder, StringBuilder, UInt32Builder, UInt64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::table::{Encode, Row, Rows};
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::id::Id;
use deepctx_profile::intern::{FrameId, StrId, Strings};
use deepctx_profile::metric::Cell;
use deepctx_profile::profile::Executable;
use deepctx_profile::units::Bytes;

/// A table of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Frames,
    Nodes,
    Values,
    Timeline,
    Activities,
    Shapes,
    Ledger,
    Executables,
}

impl Table {
    /// In the order in which they can be read: each refers only to earlier ones.
    pub(super) const ALL: [Table; 8] = [
        Table::Frames,
        Table::Nodes,
        Table::Values,
        Table::Timeline,
        Table::Activities,
        Table::Shapes,
        Table::Ledger,
        Table::Executables,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Table::Frames => "frames",
            Table::Nodes => "nodes",
            Table::Values => "values",
            Table::Timeline => "timeline",
            Table::Activities => "activities",
            Table::Shapes => "shapes",
            Table::Ledger => "ledger",
            Table::Executables => "executables",
        }
    }

    pub(super) fn schema(self) -> SchemaRef {
        static SCHEMAS: LazyLock<[SchemaRef; 8]> =
            LazyLock::new(|| Table::ALL.map(|table| Arc::new(table.make_schema())));
        Arc::clone(&SCHEMAS[self as usize])
    }

    /// Columns whose values a dictionary would not suit.
    pub(super) fn encodings(self) -> &'static [(&'static str, Encode)] {
        match self {
            Table::Frames => &[
                ("id", Encode::Near),
                ("label", Encode::Unique),
                ("name", Encode::Unique),
                ("offset", Encode::Near),
            ],
            Table::Nodes => &[("id", Encode::Near), ("parent", Encode::Near)],
            Table::Values => &[("node", Encode::Near)],
            Table::Executables => &[("path", Encode::Unique), ("build_id", Encode::Unique)],
            Table::Timeline => &[("node", Encode::Near), ("from_ns", Encode::Near), ("to_ns", Encode::Near)],
            Table::Activities => &[
                ("node", Encode::Near),
                ("correlation", Encode::Near),
                ("start_ns", Encode::Near),
                ("end_ns", Encode::Near),
                ("launched_ns", Encode::Near),
            ],
            Table::Shapes => &[("node", Encode::Near)],
            Table::Ledger => &[],
        }
    }

    fn make_schema(self) -> Schema {
        use DataType::{Boolean, Decimal128, UInt32, UInt64, Utf8};
        let field = |name, kind| Field::new(name, kind, false);
        let maybe = |name, kind| Field::new(name, kind, true);
        Schema::new(match self {
            Table::Frames => vec![
                field("id", UInt32),
                field("kind", Utf8),
                field("label", Utf8),
                maybe("name", Utf8),
                maybe("number", UInt32),
                maybe("module", Utf8),
                maybe("file", Utf8),
                maybe("line", UInt32),
                maybe("first_line", UInt32),
                maybe("offset", UInt64),
                field("inlined", Boolean),
                field("interpreter", Boolean),
                field("dispatch", Boolean),
                maybe("reason", Utf8),
                maybe("origin", Utf8),
            ],
            Table::Nodes => vec![field("id", UInt32), field("parent", UInt32), field("frame", UInt32)],
            Table::Values => vec![
                field("node", UInt32),
                field("metric", Utf8),
                field("from_ns", UInt64),
                field("to_ns", UInt64),
                field("count", UInt64),
                field("sum", UInt64),
                field("min", UInt64),
                field("max", UInt64),
                field("sum_squares", Decimal128(38, 0)),
            ],
            Table::Timeline => vec![
                field("node", UInt32),
                field("metric", Utf8),
                field("from_ns", UInt64),
                field("to_ns", UInt64),
                field("sum", UInt64),
            ],
            Table::Activities => vec![
                field("kind", Utf8),
                field("node", UInt32),
                field("pid", UInt32),
                field("device", UInt32),
                field("context", UInt32),
                field("stream", UInt32),
                field("correlation", UInt32),
                field("start_ns", UInt64),
                field("end_ns", UInt64),
                maybe("launched_ns", UInt64),
                field("bytes", UInt64),
            ],
            Table::Shapes => vec![
                field("node", UInt32),
                field("what", Utf8),
                field("min", UInt32),
                field("max", UInt32),
                field("last", UInt32),
            ],
            Table::Ledger => vec![
                field("at_ns", UInt64),
                field("stage", Utf8),
                field("class", Utf8),
                maybe("reason", Utf8),
                maybe("sentence", Utf8),
                field("count", UInt64),
            ],
            Table::Executables => vec![field("path", Utf8), field("build_id", Utf8), field("size", UInt64)],
        })
    }
}

/// Columns of frames.
#[derive(Default)]
pub(super) struct FrameColumns {
    id: UInt32Builder,
    kind: StringBuilder,
    label: StringBuilder,
    name: StringBuilder,
    number: UInt32Builder,
    module: StringBuilder,
    file: StringBuilder,
    line: UInt32Builder,
    first_line: UInt32Builder,
    offset: UInt64Builder,
    inlined: BooleanBuilder,
    interpreter: BooleanBuilder,
    dispatch: BooleanBuilder,
    reason: StringBuilder,
    origin: StringBuilder,
}

/// The parts of a frame that are stored, whatever its kind.
#[derive(Default)]
struct Parts<'a> {
    kind: &'a str,
    name: Option<&'a str>,
    number: Option<u32>,
    module: Option<&'a str>,
    file: Option<&'a str>,
    line: Option<u32>,
    first_line: Option<u32>,
    offset: Option<u64>,
    inlined: bool,
    role: Role,
    reason: Option<&'a str>,
    origin: Option<&'a str>,
}

impl FrameColumns {
    pub(super) fn push(&mut self, strings: &Strings, id: FrameId, frame: &Frame) {
        let parts = Parts::of(strings, frame);
        self.id.append_value(id.number());
        self.kind.append_value(parts.kind);
        self.label.append_value(frame.label(strings, false));
        self.name.append_option(parts.name);
        self.number.append_option(parts.number);
        self.module.append_option(parts.module);
        self.file.append_option(parts.file);
        self.line.append_option(parts.line);
        self.first_line.append_option(parts.first_line);
        self.offset.append_option(parts.offset);
        self.inlined.append_value(parts.inlined);
        self.interpreter.append_value(parts.role == Role::Interpreter);
        self.dispatch.append_value(parts.role == Role::Dispatch);
        self.reason.append_option(parts.reason);
        self.origin.append_option(parts.origin);
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.id.finish()),
            Arc::new(self.kind.finish()),
            Arc::new(self.label.finish()),
            Arc::new(self.name.finish()),
            Arc::new(self.number.finish()),
            Arc::new(self.module.finish()),
            Arc::new(self.file.finish()),
            Arc::new(self.line.finish()),
            Arc::new(self.first_line.finish()),
            Arc::new(self.offset.finish()),
            Arc::new(self.inlined.finish()),
            Arc::new(self.interpreter.finish()),
            Arc::new(self.dispatch.finish()),
            Arc::new(self.reason.finish()),
            Arc::new(self.origin.finish()),
        ];
        RecordBatch::try_new(Table::Frames.schema(), columns)
    }
}

impl<'a> Parts<'a> {
    fn of(strings: &'a Strings, frame: &Frame) -> Self {
        let text = |id: StrId| Some(strings.get(id));
        let known = |id: StrId| text(id).filter(|text| !text.is_empty());
        let number = |line: Option<NonZeroU32>| line.map(NonZeroU32::get);
        let kind = |kind| Parts { kind, ..Parts::default() };
        let named = |kind, name| Parts { kind, name: text(name), ..Parts::default() };
        match *frame {
            Frame::Root => kind("root"),
            Frame::TreeFull => kind("tree-full"),
            Frame::TableFull => kind("table-full"),
            Frame::Process { comm, pid } => Parts { number: Some(pid), ..named("process", comm) },
            Frame::Thread { name, tid } => Parts { number: Some(tid), ..named("thread", name) },
            Frame::Python { function, file, line, first_line, role } => Parts {
                role,
                file: known(file),
                line: number(line),
                first_line: number(first_line),
                ..named("python", function)
            },
            Frame::Native { symbol, module, file, line, inlined, role } => Parts {
                module: known(module),
                file: known(file),
                line: number(line),
                inlined,
                role,
                ..named("native", symbol)
            },
            Frame::NativeUnnamed { module, offset, reason, role } => Parts {
                module: known(module),
                offset: Some(offset),
                reason: known(reason),
                role,
                ..kind("native-unnamed")
            },
            Frame::Kernel { symbol } => named("kernel", symbol),
            Frame::KernelUnnamed { reason } => Parts { reason: known(reason), ..kind("kernel-unnamed") },
            Frame::Operator { name } => named("operator", name),
            Frame::Range { name } => named("range", name),
            Frame::Layer { path, class } => Parts { module: known(path), ..named("layer", class) },
            Frame::Wait { reason } => named("wait", reason),
            Frame::GpuApi { name } => named("gpu-api", name),
            Frame::GpuKernel { name } => named("gpu-kernel", name),
            Frame::Instruction { kernel, offset, file, line } => Parts {
                offset: Some(offset),
                file: known(file),
                line: number(line),
                ..named("instruction", kernel)
            },
            Frame::Stream { device, stream, name } => {
                let name = if name == StrId::EMPTY { kind("stream") } else { named("stream", name) };
                Parts { number: stream, offset: Some(u64::from(device)), ..name }
            }
            Frame::Unresolved { reason, origin } => {
                Parts { reason: known(reason), origin: Some(origin_name(origin)), ..kind("unresolved") }
            }
        }
    }
}

const ORIGINS: [Origin; 4] = [Origin::Native, Origin::Python, Origin::Kernel, Origin::Gpu];

fn origin_name(origin: Origin) -> &'static str {
    match origin {
        Origin::Native => "native",
        Origin::Python => "python",
        Origin::Kernel => "kernel",
        Origin::Gpu => "gpu",
    }
}

/// A row of `frames`. A kind that this version does not know becomes an unresolved frame.
pub(super) fn frame(row: &Row<'_>, strings: &mut Strings) -> Option<(u32, Frame)> {
    let mut text = |column| strings.intern(row.text(column).unwrap_or(""));
    let line = |column| row.u32(column).and_then(NonZeroU32::new);
    let role = match (row.bool("interpreter"), row.bool("dispatch")) {
        (true, _) => Role::Interpreter,
        (false, true) => Role::Dispatch,
        (false, false) => Role::Code,
    };
    let number = row.u32("number").unwrap_or(0);
    let frame = match row.text("kind")? {
        "root" => Frame::Root,
        "tree-full" => Frame::TreeFull,
        "table-full" => Frame::TableFull,
        "process" => Frame::Process { comm: text("name"), pid: number },
        "thread" => Frame::Thread { name: text("name"), tid: number },
        "python" => Frame::Python {
            function: text("name"),
            file: text("file"),
            line: line("line"),
            first_line: line("first_line"),
            role,
        },
        "native" => Frame::Native {
            symbol: text("name"),
            module: text("module"),
            file: text("file"),
            line: line("line"),
            inlined: row.bool("inlined"),
            role,
        },
        "native-unnamed" => Frame::NativeUnnamed {
            module: text("module"),
            offset: row.u64("offset").unwrap_or(0),
            reason: text("reason"),
            role,
        },
        "kernel" => Frame::Kernel { symbol: text("name") },
        "kernel-unnamed" => Frame::KernelUnnamed { reason: text("reason") },
        "operator" => Frame::Operator { name: text("name") },
        "range" => Frame::Range { name: text("name") },
        "layer" => Frame::Layer { path: text("module"), class: text("name") },
        "wait" => Frame::Wait { reason: text("name") },
        "gpu-api" => Frame::GpuApi { name: text("name") },
        "gpu-kernel" => Frame::GpuKernel { name: text("name") },
        "instruction" => Frame::Instruction {
            kernel: text("name"),
            offset: row.u64("offset").unwrap_or(0),
            file: text("file"),
            line: line("line"),
        },
        "stream" => {
            let device = row.u64("offset").and_then(|device| u32::try_from(device).ok());
            Frame::Stream { device: device.unwrap_or(0), stream: row.u32("number"), name: text("name") }
        }
        "unresolved" => {
            let origin =
                row.text("origin").and_then(|name| ORIGINS.into_iter().find(|&o| origin_name(o) == name));
            Frame::Unresolved { reason: text("reason"), origin: origin.unwrap_or_default() }
        }
        _ => Frame::Unresolved { reason: strings.intern("unknown-kind"), origin: Origin::Native },
    };
    Some((row.u32("id")?, frame))
}

/// Columns of nodes.
#[derive(Default)]
pub(super) struct NodeColumns {
    id: UInt32Builder,
    parent: UInt32Builder,
    frame: UInt32Builder,
}

impl NodeColumns {
    pub(super) fn push(&mut self, id: u32, parent: u32, frame: FrameId) {
        self.id.append_value(id);
        self.parent.append_value(parent);
        self.frame.append_value(frame.number());
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Vec<ArrayRef> =
            vec![Arc::new(self.id.finish()), Arc::new(self.parent.finish()), Arc::new(self.frame.finish())];
        RecordBatch::try_new(Table::Nodes.schema(), columns)
    }
}

/// Columns of values.
pub(super) struct ValueColumns {
    from_ns: u64,
    to_ns: u64,
    rows: usize,
    node: UInt32Builder,
    metric: StringBuilder,
    count: UInt64Builder,
    sum: UInt64Builder,
    min: UInt64Builder,
    max: UInt64Builder,
    sum_squares: Decimal128Builder,
}

impl ValueColumns {
    pub(super) fn new(from_ns: u64, to_ns: u64) -> Self {
        ValueColumns {
            from_ns,
            to_ns,
            rows: 0,
            node: UInt32Builder::new(),
            metric: StringBuilder::new(),
            count: UInt64Builder::new(),
            sum: UInt64Builder::new(),
            min: UInt64Builder::new(),
            max: UInt64Builder::new(),
            sum_squares: Decimal128Builder::new(),
        }
    }

    pub(super) fn push<T>(&mut self, node: Id<T>, metric: &str, cell: &Cell) {
        self.rows += 1;
        self.node.append_value(node.number());
        self.metric.append_value(metric);
        self.count.append_value(cell.count);
        self.sum.append_value(cell.sum);
        self.min.append_value(cell.min);
        self.max.append_value(cell.max);
        self.sum_squares.append_value(cell.sum_squares.min(Cell::SUM_SQUARES_MAX) as i128);
    }

    pub(super) fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let constant = |value| Arc::new(arrow_array::UInt64Array::from_value(value, self.rows));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.node.finish()),
            Arc::new(self.metric.finish()),
            constant(self.from_ns),
            constant(self.to_ns),
            Arc::new(self.count.finish()),
            Arc::new(self.sum.finish()),
            Arc::new(self.min.finish()),
            Arc::new(self.max.finish()),
            Arc::new(self.sum_squares.finish().with_precision_and_scale(38, 0)?),
        ];
        RecordBatch::try_new(Table::Values.schema(), columns)
    }
}

/// A row of `values`: node, name of the metric, figures.
pub(super) fn value<'a>(row: &Row<'a>) -> Option<(u32, &'a str, Cell)> {
    let cell = Cell {
        count: row.u64("count")?,
        sum: row.u64("sum")?,
        min: row.u64("min")?,
        max: row.u64("max")?,
        sum_squares: u128::try_from(row.decimal("sum_squares")?).ok()?,
    };
    Some((row.u32("node")?, row.text("metric")?, cell))
}

/// One line of the ledger as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerRow {
    pub(super) stage: String,
    pub(super) class: String,
    pub(super) reason: Option<String>,
    pub(super) sentence: Option<String>,
    pub(super) count: u64,
}

pub(super) fn ledger_batch(at_ns: u64, rows: &[LedgerRow]) -> Result<RecordBatch, ArrowError> {
    let mut texts = [(); 4].map(|()| StringBuilder::new());
    let mut count = UInt64Builder::new();
    for row in rows {
        texts[0].append_value(&row.stage);
        texts[1].append_value(&row.class);
        texts[2].append_option(row.reason.as_deref());
        texts[3].append_option(row.sentence.as_deref());
        count.append_value(row.count);
    }
    let mut columns: Vec<ArrayRef> = vec![Arc::new(arrow_array::UInt64Array::from_value(at_ns, rows.len()))];
    columns.extend(texts.map(|mut text| Arc::new(text.finish()) as ArrayRef));
    columns.push(Arc::new(count.finish()));
    RecordBatch::try_new(Table::Ledger.schema(), columns)
}

pub(super) fn ledger_row(row: &Row<'_>) -> Option<LedgerRow> {
    Some(LedgerRow {
        stage: row.text("stage")?.to_owned(),
        class: row.text("class")?.to_owned(),
        reason: row.text("reason").map(str::to_owned),
        sentence: row.text("sentence").map(str::to_owned),
        count: row.u64("count")?,
    })
}

pub(super) fn executable_batch(executables: &[Executable]) -> Result<RecordBatch, ArrowError> {
    let (mut path, mut build_id, mut size) =
        (StringBuilder::new(), StringBuilder::new(), UInt64Builder::new());
    for executable in executables {
        path.append_value(&executable.path);
        build_id.append_value(&executable.build_id);
        size.append_value(executable.size.0);
    }
    let columns: Vec<ArrayRef> =
        vec![Arc::new(path.finish()), Arc::new(build_id.finish()), Arc::new(size.finish())];
    RecordBatch::try_new(Table::Executables.schema(), columns)
}

pub(super) fn executable(row: &Row<'_>) -> Option<Executable> {
    Some(Executable {
        path: row.text("path")?.to_owned(),
        build_id: row.text("build_id")?.to_owned(),
        size: Bytes(row.u64("size")?),
    })
}

/// Rows of a table in one batch.
pub(super) fn rows(table: Table, batch: &RecordBatch) -> Result<Rows<'_>, String> {
    Rows::new(&table.schema(), batch)
}
