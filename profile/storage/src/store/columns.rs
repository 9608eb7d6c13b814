//! Columns: what the tables of a stored profile consist of.
//!
//! Owns: tables, names, types, encodings and meanings of their columns. Because: what is written, what is read and
//! docs/formats.md are all made from this one list. Does not: know what a row stands for in a profile.

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
    Trace,
    TraceLanes,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Whether rows may have no value.
    pub(super) optional: bool,
    /// Whether files of older versions lack it: their rows then have no value.
    pub(super) added: bool,
    pub(super) encode: ColumnEncoding,
    /// For docs/formats.md.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test makes the document from it"))]
    pub(super) meaning: &'static str,
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    U32,
    U64,
    /// A number of up to 38 digits.
    Decimal,
    Text,
}

/// Locality of a column's values, which determines their encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnEncoding {
    /// Few distinct values: a dictionary.
    Repeated,
    /// Numbers that grow, or are close to the previous one.
    Near,
    /// Unique texts: a dictionary would only be another copy.
    Unique,
}

use Kind::{Bool, Decimal, Text, U32, U64};

const fn column(name: &'static str, kind: Kind, meaning: &'static str) -> Column {
    Column { name, kind, optional: false, added: false, encode: ColumnEncoding::Repeated, meaning }
}

impl Column {
    const fn or_none(self) -> Self {
        Column { optional: true, ..self }
    }

    /// A column that files of older versions lack.
    const fn added(self) -> Self {
        Column { optional: true, added: true, ..self }
    }

    const fn near(self) -> Self {
        Column { encode: ColumnEncoding::Near, ..self }
    }

    const fn unique(self) -> Self {
        Column { encode: ColumnEncoding::Unique, ..self }
    }
}

const FRAMES: &[Column] = &[
    column("id", U32, "number of the frame").near(),
    column(
        "kind",
        Text,
        "`process` `thread` `python` `native` `native-unnamed` `kernel` `kernel-unnamed` `operator` `range` `layer` `wait` \
         `gpu-api` `stream` `gpu-kernel` `instruction` `resource` `unresolved`, and the stand-ins `root` `tree-full` `table-full`",
    ),
    column("label", Text, "text of the frame, as in folded stacks").unique(),
    column(
        "name",
        Text,
        "name of the process or thread, qualified name of the function, symbol, operator, range, class of the layer; \
         part of the machine; reason of a wait; which device a stream is of",
    )
    .or_none()
    .unique(),
    column("number", U32, "process or thread id, 4294967295 for all others of that name; number of a stream").or_none(),
    column("module", Text, "path of the executable or library; path of a layer in its model").or_none(),
    column("file", Text, "path of the source file").or_none(),
    column("line", U32, "line being executed").or_none(),
    column("first_line", U32, "line of the definition").or_none(),
    column("offset", U64, "address in the module, of native code without a name; in the kernel, of an instruction; device of a stream")
        .or_none()
        .near(),
    column("inlined", Bool, "native code that was inlined into its caller"),
    column("interpreter", Bool, "native code that is an interpreter's evaluation loop"),
    column("dispatch", Bool, "native code that is a framework's dispatch within an operator"),
    column("reason", Text, "why there is no name").or_none(),
    column("origin", Text, "kind of code that an `unresolved` frame stands for: `native` `python` `kernel` `gpu`").or_none(),
];

const NODES: &[Column] = &[
    column("id", U32, "number of the calling context; 0, the root, is not listed").near(),
    column("parent", U32, "the caller's context; always smaller than `id`").near(),
    column("frame", U32, "what is called"),
];

const VALUES: &[Column] = &[
    column("node", U32, "calling context").near(),
    column("metric", Text, "`cpu-time`, … (nanoseconds, bytes or counts)"),
    column("from_ns", U64, "begin of a window of time, since the capture began"),
    column("to_ns", U64, "end of the window; windows of older rows are wider"),
    column("count", U64, "values in the window"),
    column("sum", U64, "sum of the values in the window"),
    column("min", U64, "smallest value from the start of the capture to the end of the window"),
    column("max", U64, "largest value from the start of the capture to the end of the window"),
    column("sum_squares", Decimal, "sum of the squares of the values in the window"),
];

const TIMELINE: &[Column] = &[
    column("node", U32, "calling context, of a thread for instance, with all below it").near(),
    column("metric", Text, "`cpu-time`, …"),
    column(
        "from_ns",
        U64,
        "begin of a window of time, since the capture began; finer than those of `values`",
    )
    .near(),
    column("to_ns", U64, "end of the window").near(),
    column("sum", U64, "of the values in the window"),
];

const ACTIVITIES: &[Column] = &[
    column("kind", Text, "`kernel` `copy` `fill` `graph` `sync`: a row is one thing that a device did"),
    column("node", U32, "calling context that it belongs to").near(),
    column("pid", U32, "process that it ran for"),
    column("device", U32, "number of the device in that process"),
    column("context", U32, "context of the device"),
    column("stream", U32, "stream of the context"),
    column("correlation", U32, "id of the call that asked for it; 0 for none").near(),
    column("start_ns", U64, "since the capture began").near(),
    column("end_ns", U64, "since the capture began").near(),
    column("launched_ns", U64, "when the host called for it").or_none().near(),
    column("bytes", U64, "copied or filled"),
];

const SHAPES: &[Column] = &[
    column("node", U32, "calling context of kernels; the newest rows of a node count").near(),
    column(
        "what",
        Text,
        "`grid.x` `grid.y` `grid.z` `block.x` `block.y` `block.z`, `dynamic-shared` `static-shared` (bytes of a block), \
         `registers` (of a thread), `architecture` of the code (80: `sm_80`), `device-architecture`",
    ),
    column("min", U32, "smallest of the launches in that context"),
    column("max", U32, "largest of them"),
    column("last", U32, "that of the last one"),
];

const LEDGER: &[Column] = &[
    column(
        "at_ns",
        U64,
        "since the capture began; the newest rows hold the totals, older ones how they grew",
    ),
    column("stage", Text, "`kernel` `decode` `order` `resolve` `correlate` `attribute` `store`"),
    column("class", Text, "`received` `kept` `merged` `dropped` `gap`"),
    column("reason", Text, "stable name of why, for `dropped` and `gap`").or_none(),
    column("sentence", Text, "the reason in words").or_none(),
    column("count", U64, "records (or frames, for gaps) from the start of the capture"),
];

const EXECUTABLES: &[Column] = &[
    column("path", Text, "as the target sees it").unique(),
    column("build_id", Text, "in hex, or empty").unique(),
    column("size", U64, "bytes"),
];

const TRACE: &[Column] = &[
    column(
        "kind",
        Text,
        "of `record --trace`, one event of the window. Calls: `launch` `transfer` `record` `stream-wait` `stream-sync` \
         `event-sync` `context-sync` `collective`, any other `call`; an `operator` that begins; work of devices: \
         `kernel` `copy` `fill` `graph`; `graph-edge`: a node of a graph comes after another one; `range` `step` of the \
         program; `off-cpu`: a thread did not run; `counter`: a value; `gap`: events of this lane and time were lost",
    ),
    column("lane", U32, "row of `trace-lanes`"),
    column("start_ns", U64, "since the capture began").near(),
    column("duration_ns", U64, "0 when the end is not known"),
    column("end", Text, "`known` `return-lost` `not-watched` `not-returned`"),
    column("node", U32, "calling context"),
    column("id", U64, "number of a call").or_none().near(),
    column(
        "cause",
        U64,
        "`id` of the launch of work, of the record that a wait for an event waits for, of the last launch before a wait \
         for a stream",
    )
    .or_none()
    .near(),
    column("cause_kind", Text, "`exact` `by-order` `inferred` `none`"),
    column(
        "correlation",
        U32,
        "of work: the driver's number of its call; of `off-cpu`: 1 woken by a thread, 2 by one of another pid namespace, \
         3 by an interrupt; of `counter`: values of the same millisecond that it stands for",
    )
    .or_none()
    .near(),
    column("stream", U64, "of a call: handle of its stream; 1 the default stream, 2 the thread's own").or_none(),
    column(
        "object",
        U64,
        "of a call: handle of its event or launchable graph; of `collective`: id of its communicator, the same on all \
         ranks; of `off-cpu`: process and thread that woke it, 32 bits each",
    )
    .or_none(),
    column(
        "position",
        U64,
        "of a call: launches and records in its stream up to and with it; of `collective`: how many its communicator \
         had before; of work of a graph: number of the recorded node; of `graph-edge`: that of the node before, none when \
         it is the first; of a step: its number at its place; of a gap: events that were lost; of `off-cpu`: nanoseconds \
         until it was woken; of `counter`: its value, or by how much it grew in `duration_ns`",
    )
    .or_none()
    .near(),
    column("bytes", U64, "copied or filled by work, or given into a `collective`").or_none(),
    column(
        "graph_node",
        U64,
        "of work and of `graph-edge`: node of the graph; of `collective`: ranks and the own rank, 32 bits each",
    )
    .or_none(),
];

const TRACE_LANES: &[Column] = &[
    column("lane", U32, "number of the lane").near(),
    column("pid", U32, "process"),
    column("tid", U32, "of a lane of calls: the thread").or_none(),
    column("device", U32, "of a lane of work: number of the device in the process").or_none(),
    column("context", U32, "of a lane of work: context of the device").or_none(),
    column("stream", U32, "of a lane of work: stream of the context").or_none(),
    column("metric", Text, "of a counter (version 6): what is counted; of the machine, `pid` is 0").added(),
    column(
        "node",
        U32,
        "of a counter (version 6): context of a part of the machine, or of the memory of a device",
    )
    .added(),
];

impl Table {
    /// Every table, profile tables first.
    pub(super) const ALL: [Table; 10] = [
        Table::Frames,
        Table::Nodes,
        Table::Values,
        Table::Timeline,
        Table::Activities,
        Table::Shapes,
        Table::Ledger,
        Table::Executables,
        Table::Trace,
        Table::TraceLanes,
    ];

    /// The tables listed in the manifest, in reading order: each refers only to earlier ones.
    pub(super) const OF_PROFILE: &'static [Table] = Self::ALL.split_at(8).0;

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
            Table::Trace => "trace",
            Table::TraceLanes => "trace-lanes",
        }
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Table::Frames => FRAMES,
            Table::Nodes => NODES,
            Table::Values => VALUES,
            Table::Timeline => TIMELINE,
            Table::Activities => ACTIVITIES,
            Table::Shapes => SHAPES,
            Table::Ledger => LEDGER,
            Table::Executables => EXECUTABLES,
            Table::Trace => TRACE,
            Table::TraceLanes => TRACE_LANES,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use expect_test::expect_file;

    use super::super::devices::SHAPE;
    use super::*;
    use deepctx_profile::device::activity::ActivityKind;
    use deepctx_profile::ledger::Stage;
    use deepctx_profile::trace::RecordedKind;

    const BEGIN: &str = "<!-- columns: begin -->\n";
    const END: &str = "<!-- columns: end -->";

    /// The columns of all tables, as docs/formats.md shows them.
    fn markdown() -> String {
        let mut out = String::from("| table | column | type | meaning |\n|---|---|---|---|\n");
        for table in Table::ALL {
            for (place, column) in table.columns().iter().enumerate() {
                let table = if place == 0 { format!("`{}`", table.name()) } else { String::new() };
                let kind = match column.kind {
                    Bool => "bool",
                    U32 => "u32",
                    U64 => "u64",
                    Decimal => "decimal(38, 0)",
                    Text => "string",
                };
                let or_null = if column.optional { "?" } else { "" };
                let Column { name, meaning, .. } = column;
                writeln!(out, "| {table} | `{name}` | {kind}{or_null} | {meaning} |").unwrap();
            }
        }
        out
    }

    /// `UPDATE_EXPECT=1` writes the table to the document.
    #[test]
    fn the_document_has_the_columns_of_the_schema() {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
        let text = std::fs::read_to_string(document).unwrap();
        let (before, rest) = text.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let expected = [before, BEGIN, &markdown(), END, after].concat();
        expect_file!["../../../../docs/formats.md"].assert_eq(&expected);
    }

    /// The meaning of a column lists all its values, so that the document names them.
    #[test]
    fn meanings_name_the_values_that_columns_have() {
        let check = |table: Table, name: &str, values: &mut dyn Iterator<Item = &'static str>| {
            let column = table.columns().iter().find(|column| column.name == name).unwrap();
            for value in values {
                assert!(column.meaning.contains(&format!("`{value}`")), "{name}: {value}");
            }
        };
        check(Table::Ledger, "stage", &mut Stage::ALL.iter().map(|stage| stage.name()));
        check(Table::Activities, "kind", &mut ActivityKind::ALL.into_iter().map(ActivityKind::name));
        check(Table::Trace, "kind", &mut RecordedKind::ALL.into_iter().map(RecordedKind::name));
        check(Table::Shapes, "what", &mut SHAPE.into_iter());
        check(Table::Frames, "origin", &mut ["native", "python", "kernel", "gpu"].into_iter());
    }

    #[test]
    fn columns_have_different_names_that_need_no_quotes() {
        for table in Table::ALL {
            let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
            for (place, name) in names.iter().enumerate() {
                assert!(!names[..place].contains(name), "{name}");
                assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            }
        }
    }
}
