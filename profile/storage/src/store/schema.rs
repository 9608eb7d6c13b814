//! Rows of the tables: what of a profile they hold.
//!
//! Owns: what a row means, in both directions. Because: a profile has handles and enums, and a file has numbers and
//! names. Does not: touch files, or know types of columns; see [`super::columns`].

use std::num::NonZeroU32;

use super::batch::{Batch, Row};
use super::columns::Table;
use super::reason::FRAME_KIND_UNKNOWN;
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::intern::{FrameId, StrId, Strings};
use deepctx_profile::metric::Cell;
use deepctx_profile::profile::Executable;
use deepctx_profile::units::Bytes;

/// The stored parts of a frame of any kind.
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

/// Adds a row of `frames`.
pub(super) fn push_frame(to: &mut Batch, strings: &Strings, id: FrameId, frame: &Frame) {
    let parts = Parts::of(strings, frame);
    let label = frame.label(strings, false);
    to.push([
        id.number().into(),
        parts.kind.into(),
        label.as_str().into(),
        parts.name.into(),
        parts.number.into(),
        parts.module.into(),
        parts.file.into(),
        parts.line.into(),
        parts.first_line.into(),
        parts.offset.into(),
        parts.inlined.into(),
        (parts.role == Role::Interpreter).into(),
        (parts.role == Role::Dispatch).into(),
        parts.reason.into(),
        parts.origin.into(),
    ]);
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
            Frame::Resource { name } => named("resource", name),
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

fn role(row: &Row<'_>) -> Role {
    match (row.bool("interpreter"), row.bool("dispatch")) {
        (true, _) => Role::Interpreter,
        (false, true) => Role::Dispatch,
        (false, false) => Role::Code,
    }
}

/// A row of `frames`. An unknown kind becomes an unresolved frame.
pub(super) fn frame(row: &Row<'_>, strings: &mut Strings) -> Option<(u32, Frame)> {
    let mut text = |column| strings.intern(row.text(column).unwrap_or(""));
    let line = |column| row.u32(column).and_then(NonZeroU32::new);
    let role = role(row);
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
        "resource" => Frame::Resource { name: text("name") },
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
        _ => Frame::Unresolved { reason: strings.intern(FRAME_KIND_UNKNOWN.key), origin: Origin::Native },
    };
    Some((row.u32("id")?, frame))
}

/// Adds a row of `nodes`.
pub(super) fn push_node(to: &mut Batch, id: u32, parent: u32, frame: FrameId) {
    to.push([id.into(), parent.into(), frame.number().into()]);
}

/// The interval of a row with values: nanoseconds since the capture began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// Adds a row of `values` for one time window.
pub(super) fn push_value(to: &mut Batch, window: Window, node: u32, metric: &str, cell: &Cell) {
    to.push([
        node.into(),
        metric.into(),
        window.from_ns.into(),
        window.to_ns.into(),
        cell.count.into(),
        cell.sum.into(),
        cell.min.into(),
        cell.max.into(),
        (cell.sum_squares.min(Cell::SUM_SQUARES_MAX) as i128).into(),
    ]);
}

/// A row of `values`: node, metric name, cell.
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

/// A stored row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerRow {
    pub(super) stage: String,
    pub(super) class: String,
    pub(super) reason: Option<String>,
    pub(super) sentence: Option<String>,
    pub(super) count: u64,
}

pub(super) fn ledger_batch(at_ns: u64, rows: &[LedgerRow]) -> Batch {
    let mut batch = Batch::new(Table::Ledger);
    for row in rows {
        batch.push([
            at_ns.into(),
            row.stage.as_str().into(),
            row.class.as_str().into(),
            row.reason.as_deref().into(),
            row.sentence.as_deref().into(),
            row.count.into(),
        ]);
    }
    batch
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

pub(super) fn executable_batch(executables: &[Executable]) -> Batch {
    let mut batch = Batch::new(Table::Executables);
    for Executable { path, build_id, size } in executables {
        batch.push([path.as_str().into(), build_id.as_str().into(), size.0.into()]);
    }
    batch
}

pub(super) fn executable(row: &Row<'_>) -> Option<Executable> {
    Some(Executable {
        path: row.text("path")?.to_owned(),
        build_id: row.text("build_id")?.to_owned(),
        size: Bytes(row.u64("size")?),
    })
}
