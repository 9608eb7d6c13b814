use rusqlite::{Connection, MAIN_DB};

use deepctx_profile::ledger::Stage;
use deepctx_profile::text::tree;
use deepctx_profile::trace::{Job, Links, Status, Trace};

use super::super::{ImportError, ImportedProfile, Kind, read as import, traces};

/// Tables as Nsight Systems 2026.2 writes them (export schema 3.25), without unread columns.
const SCHEMA: &str = "
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, systemClockNs INTEGER);
CREATE TABLE ANALYSIS_DETAILS (duration INTEGER NOT NULL, startTime INTEGER NOT NULL, stopTime INTEGER NOT NULL);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUPTI_SYNC_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  graphNodeId INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, deprecatedSyncType INTEGER, syncType INTEGER NOT NULL, eventId INTEGER NOT NULL,
  eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (timestamp INTEGER, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
  eventId INTEGER NOT NULL, eventSyncId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device');
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
  (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device');
INSERT INTO ENUM_CUPTI_SYNC_TYPE VALUES (2, 'CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT', ''),
  (3, 'CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE', '');
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm<float>'), (3, 'gemm'),
  (4, 'cudaMemcpyAsync_v3020'), (5, 'cudaStreamWaitEvent_v3020'), (6, 'cudaEventRecord_v3020'), (7, 'poll'),
  (8, 'forward'), (9, 'cuGraphLaunch'), (10, 'cudaStreamSynchronize_v3020');
";

/// A process on the first machine, as a global id.
const fn process(pid: u64) -> u64 {
    1 << 48 | pid << 24
}

const A: u64 = process(111);
const B: u64 = process(112);

/// The bytes of a database made by these statements.
fn database(statements: &str) -> Vec<u8> {
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(statements).unwrap();
    connection.serialize(MAIN_DB).unwrap().to_vec()
}

fn export(rows: &str) -> Vec<u8> {
    database(&format!("{SCHEMA}{rows}"))
}

/// Each event of a trace as a line, then the gaps.
fn shown(trace: &Trace) -> Vec<String> {
    let mut out = Vec::new();
    let stream = |id: deepctx_profile::intern::Id<deepctx_profile::trace::Stream>| {
        let of = trace.streams()[id.index()];
        format!("{}/{}", of.device, of.stream.map_or_else(|| "-".to_owned(), |stream| stream.to_string()))
    };
    for (_, op) in trace.host.iter() {
        let thread = trace.threads()[op.thread.index()];
        let thread = format!("{}/{}", trace.name(thread.process), trace.name(thread.thread));
        let status = match op.status {
            Status::Returned(number) => format!(" = {number}"),
            Status::Unknown => String::new(),
        };
        let (begin, length, name) = (op.begin.as_nanos(), op.duration.0, trace.name(op.name));
        out.push(format!("{:?} {thread} {begin}+{length} {name} #{}{status}", op.kind, op.correlation));
    }
    for (_, op) in trace.device.iter() {
        let (begin, length, name) = (op.begin.as_nanos(), op.duration.0, trace.name(op.name));
        let more = match (op.bytes.0, op.graph_node) {
            (0, 0) => String::new(),
            (bytes, node) => format!(" {bytes} B, node {node}"),
        };
        out.push(format!(
            "{:?} {} {begin}+{length} {name} #{}{more}",
            op.kind,
            stream(op.stream),
            op.correlation
        ));
    }
    for (_, sync) in trace.syncs.iter() {
        let (of, on) = (sync.stream.map(stream), sync.recorded_on.map(stream));
        out.push(format!("{:?} {of:?} #{} record {:?} on {on:?}", sync.kind, sync.correlation, sync.record));
    }
    out.extend(gaps(trace));
    out
}

fn gaps(trace: &Trace) -> Vec<String> {
    trace.ledger.stage(Stage::Decode).gaps.iter().map(|(reason, n)| format!("{n} {}", reason.key)).collect()
}

/// Every trace of a file, each below its process.
fn check(bytes: &[u8], expect: &[&str]) {
    let (traces, kind) = traces(bytes).unwrap();
    assert_eq!(kind, Kind::Nsys);
    let process = |pid: Option<u32>| format!("process {}", pid.unwrap());
    let found: Vec<String> =
        traces.iter().flat_map(|(pid, trace)| [process(*pid)].into_iter().chain(shown(trace))).collect();
    assert_eq!(found, expect);
}

fn refused(bytes: &[u8]) -> String {
    traces(bytes).unwrap_err().to_string()
}

const ALL: &str = "
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779630014975716426, 35255823190);
INSERT INTO ANALYSIS_DETAILS VALUES (9, 35255823190, 35255823199);";

/// Two processes with one correlation id, and a third without a device.
fn two_processes() -> Vec<u8> {
    export(&format!(
        "{ALL}
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 14, 0, {}, 7, 1, 0, NULL), (11, 16, 0, {}, 7, 1, 2, NULL);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (22, 30, 1, 2, NULL, 15, 7, {B}, 2, 3, NULL, NULL, NULL),
          (20, 28, 0, 1, NULL, 7, 7, {A}, 2, 3, NULL, NULL, NULL);
        INSERT INTO NVTX_EVENTS VALUES (5, 40, 59, NULL, 'aten::mm, op_id = 9', {}, NULL, NULL, 0),
          (6, 9, 59, NULL, NULL, {}, NULL, 8, 0), (7, NULL, 59, NULL, 'open', {A}, NULL, NULL, 0);
        INSERT INTO OSRT_API VALUES (1, 3, 27, {}, NULL, 7, 0);",
        A + 111,
        B + 112,
        A + 111,
        process(50) + 50,
        process(50) + 51,
    ))
}

#[test]
fn each_process_is_a_trace_of_its_own() {
    check(
        &two_processes(),
        &[
            "process 111",
            "RuntimeCall 111/111 10+4 cudaLaunchKernel #7 = 0",
            "Operator 111/111 5+35 aten::mm #0",
            "Annotation 50/50 6+3 forward #0",
            "Other 50/51 1+2 poll #0",
            "Kernel 0/7 20+8 gemm<float> #7",
            "1 no-end",
            "process 112",
            "RuntimeCall 112/112 11+5 cudaLaunchKernel #7 = 2",
            "Kernel 1/15 22+8 gemm<float> #7",
        ],
    );
}

#[test]
fn processes_of_a_file_have_one_clock() {
    let (traces, _) = traces(&two_processes()).unwrap();
    for (_, trace) in &traces {
        let clock = trace.clock;
        let expect = 1_779_630_014_975_716_426 - 35_255_823_190;
        assert_eq!((clock.epoch_ns, clock.resolution.0, clock.domain), (Some(expect), 1, Some(0)));
    }
}

#[test]
fn work_hangs_below_calls_of_its_own_process() {
    let ImportedProfile { profile, elapsed, .. } = import(&two_processes(), "x").unwrap();
    assert_eq!(elapsed.0, 39);
    let expect = "\
all
  process-111
    aten::mm  wall-time=31
      cudaLaunchKernel  wall-time=4 launch-time=4
        [device 0, stream 7]
          [gpu] gemm<float>  gpu-time=8 kernels=1 launch-delay=10
  process-112
    cudaLaunchKernel  wall-time=5 launch-time=5
      [device 1, stream 15]
        [gpu] gemm<float>  gpu-time=8 kernels=1 launch-delay=11
  process-50
    [range] forward  wall-time=3 range-time=3
    poll  wall-time=2
";
    assert_eq!(tree(&profile), expect);
}

#[test]
fn every_table_becomes_its_events() {
    let main = A + 111;
    let rows = format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 14, 0, {main}, 1, 4, 0, NULL),
          (15, 16, 1, {main}, 2, 9, 0, NULL);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (20, 28, 0, 1, 7, 1, {A}, 4096, 1, 0, 2, NULL),
          (30, 31, 0, 1, 7, NULL, {A}, 16, 8, NULL, NULL, 5);
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (32, 33, 0, 1, 7, 3, {A}, 0, 64, NULL, 2);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (40, 48, 0, 1, NULL, 7, 2, {A}, 2, 3, NULL, 12884901890, 3);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (50, 58, 0, 1, 7, 2, {A}, 3, 4);
        INSERT INTO NVTX_EVENTS VALUES (1, NULL, 75, NULL, 'NCCL', {main}, NULL, NULL, 3),
          (2, 3, 59, NULL, 'ncclAllReduce', {main}, NULL, NULL, 3), (4, NULL, 34, NULL, 'mark', {main}, NULL, NULL, 0),
          (5, 60, 60, 1, 'ProfilerStep#3', {main}, {main}, NULL, 0);"
    );
    check(
        &export(&rows),
        &[
            "process 111",
            "RuntimeCall 111/111 10+4 cudaMemcpyAsync #1 = 0",
            "DriverCall 111/111 15+1 cuGraphLaunch #2 = 0",
            "Annotation 111/111 2+1 NCCL:ncclAllReduce #0",
            "Annotation 111/111 4+0 mark #0",
            "Step 111/111 5+55 ProfilerStep#3 #0",
            "Kernel 0/7 40+8 gemm<float> #2 0 B, node 12884901890",
            "Kernel 0/7 50+8 [graph 3] #2",
            "Copy 0/7 20+8 Memcpy HtoD (Pageable -> Device) #1 4096 B, node 0",
            "Copy 0/7 30+1 Memcpy DtoD #0 16 B, node 5",
            "Fill 0/7 32+1 Memset (Device) #3 64 B, node 0",
        ],
    );
}

#[test]
fn domains_of_ranges_are_those_of_their_process() {
    let (main, other) = (A + 111, B + 112);
    let rows = format!(
        "INSERT INTO NVTX_EVENTS VALUES (1, NULL, 75, NULL, 'NCCL', {main}, NULL, NULL, 3),
          (1, NULL, 75, NULL, 'Loader', {other}, NULL, NULL, 3), (1, NULL, 75, NULL, 'Any', NULL, NULL, NULL, 4),
          (2, 3, 59, NULL, 'x', {main}, NULL, NULL, 3), (4, 5, 59, NULL, 'y', {other}, NULL, NULL, 3),
          (6, 7, 59, NULL, 'z', {other}, NULL, NULL, 4);"
    );
    check(
        &export(&rows),
        &[
            "process 111",
            "Annotation 111/111 2+1 NCCL:x #0",
            "Annotation 112/112 4+1 Loader:y #0",
            "Annotation 112/112 6+1 Any:z #0",
        ],
    );
}

#[test]
fn waits_name_the_record_of_their_event() {
    let main = A + 111;
    let rows = |event: &str| {
        export(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 2, 0, {main}, 1, 1, 0, NULL),
              (3, 4, 0, {main}, 2, 6, 0, NULL), (5, 6, 0, {main}, 3, 5, 0, NULL), (7, 8, 0, {main}, 4, 1, 0, NULL),
              (9, 30, 0, {main}, 5, 10, 0, NULL);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (3, 10, 1, 2, NULL, 15, 1, {A}, 2, 3, NULL, NULL, NULL),
              (11, 20, 1, 2, NULL, 30, 4, {A}, 3, 3, NULL, NULL, NULL);
            {event}
            INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (5, 6, 0, 2, 30, 3, {A}, NULL, 2, 7197, 21619),
              (9, 30, 0, 2, 30, 5, {A}, NULL, 3, 4294967295, 0), (9, 30, 0, 2, 30, 5, {A}, NULL, 77, 0, 0);"
        ))
    };
    let waits = |bytes: &[u8]| {
        let (traces, _) = traces(bytes).unwrap();
        let [(_, trace)] = &traces[..] else { panic!("one process") };
        let name = |id| trace.name(trace.device.get(id).unwrap().name);
        let mut waits: Vec<String> = Links::of(trace)
            .waits()
            .map(|wait| format!("{:?} waits for {} {:?}", wait.waiter, name(wait.on), wait.basis))
            .collect();
        waits.sort();
        let syncs = shown(trace).into_iter().filter(|line| line.contains("record") || line.contains("under"));
        syncs.chain(waits).collect::<Vec<_>>()
    };
    // The row of a wait names device 0, but its context has device 1.
    let event =
        format!("INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (0, 1, 2, 15, 2, {A}, 7197, 21619);");
    let stream_sync = "Stream Some(\"1/30\") #5 record None on None";
    let host = "Host(#4) waits for gemm Exact";
    let found = waits(&rows(&event));
    assert_eq!(
        found,
        [
            "StreamWait Some(\"1/30\") #3 record Some(2) on Some(\"1/15\")",
            stream_sync,
            "1 not-understood",
            "Device(#1) waits for gemm<float> Exact",
            host,
        ]
    );
    // Without the table of events, the result is marked as a guess.
    let found = waits(&rows(""));
    assert_eq!(
        found,
        [
            "StreamWait Some(\"1/30\") #3 record None on None",
            stream_sync,
            "1 not-understood",
            "Device(#1) waits for gemm<float> Inferred",
            host,
        ]
    );
}

#[test]
fn older_exports_are_read_with_what_they_have() {
    let main = A + 111;
    let tables = |kernel: &str| {
        database(&format!(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (8, 'b'), (9, 'cudaLaunchKernel_v7000'), (3, 'gemm');
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
              correlationId INTEGER, nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 14, {main}, 7, 9);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
              globalPid INTEGER, streamId INTEGER, correlationId INTEGER, bytes INTEGER, copyKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (15, 16, 0, {A}, 7, 8, 4, 2);
            {kernel}"
        ))
    };
    let expect = |kernel: &str| {
        [
            "process 111".to_owned(),
            "RuntimeCall 111/111 10+4 cudaLaunchKernel #7".to_owned(),
            format!("Kernel 0/7 20+8 {kernel} #7"),
            "Copy 0/7 15+1 Memcpy DtoH #8 4 B, node 0".to_owned(),
        ]
    };
    let compare = |kernel: &str, name: &str| {
        let expect = expect(name);
        check(&tables(kernel), &expect.iter().map(String::as_str).collect::<Vec<_>>());
    };
    let table = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
        streamId INTEGER, correlationId INTEGER, globalPid INTEGER,";
    compare(
        &format!(
            "{table} shortName INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 28, 0, 7, 7, {A}, 3);"
        ),
        "gemm",
    );
    compare(
        &format!(
            "{table} demangledName TEXT);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 28, 0, 7, 7, {A}, 'gemm<int>');"
        ),
        "gemm<int>",
    );
    compare(
        &format!(
            "{table} demangledName INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (20, 28, 0, 7, 7, {A}, 77);"
        ),
        "[name 77]",
    );
}

#[test]
fn a_database_in_wal_mode_is_read() {
    let mut bytes = two_processes();
    let expect: Vec<_> = traces(&bytes).unwrap().0.iter().flat_map(|(_, trace)| shown(trace)).collect();
    bytes[18..20].fill(2);
    let found: Vec<_> = traces(&bytes).unwrap().0.iter().flat_map(|(_, trace)| shown(trace)).collect();
    assert_eq!(found, expect);
    assert!(!found.is_empty());
}

#[test]
fn rows_that_make_no_sense_are_left_out_and_counted() {
    let kept =
        format!("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 14, 0, {}, 7, 1, 0, NULL);", A + 1);
    let with = |row: &str, expect: &[&str]| {
        let row = format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({row});");
        let expect = [&["process 111", "RuntimeCall 111/1 10+4 cudaLaunchKernel #7 = 0"], expect].concat();
        check(&export(&format!("{kept}{row}")), &expect);
    };
    let of =
        |begin: &str, device: &str| format!("{begin}, {device}, 1, NULL, 7, 7, {A}, 2, 2, NULL, NULL, NULL");
    with(&of("30, 20", "0"), &["1 end-before-begin"]);
    with(&of("-3, 20", "0"), &["1 out-of-range"]);
    with(&of("0, 9223372036854775807", "0"), &["1 too-long"]);
    with(&of("'soon', 20", "0"), &["1 not-understood"]);
    with(&of("1.5, 20", "0"), &["1 not-understood"]);
    with(&of("20, 30", "x'00'"), &["1 not-understood"]);
    with(&of("20, 30", "-1"), &["1 not-understood"]);
    with(&of("20, 30", "4294967296"), &["1 not-understood"]);
}

#[test]
fn other_databases_are_refused_by_name() {
    let check = |statements: &str, expect: &str| assert_eq!(refused(&database(statements)), expect);
    check(
        "CREATE TABLE t (a)",
        "it is an SQLite database, which is not read: it has no table of Nsight Systems",
    );
    check(
        "CREATE TABLE rocpd_kernel (a)",
        "it is a rocpd database of rocprofv3, which is not read: write JSON with `rocprofv3 --output-format json`",
    );
    check(
        "CREATE TABLE StringTable (a); CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (a)",
        "it is a database of nvprof, which is not read: record with Nsight Systems, which follows it",
    );
    assert_eq!(
        refused(&export("")),
        "there is nothing to show in this Nsight Systems export: it has no event"
    );
    assert_eq!(refused(b"SQLite format 3\0"), "it is no valid Nsight Systems export: file is not a database");
}

/// An export whose kernel table takes many pages, and the first page of that table.
fn many_kernels() -> (Vec<u8>, usize) {
    let rows = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
          SELECT 10 * i, 10 * i + 5, 0, 1, NULL, 7, i, {A}, 2, 3, NULL, NULL, NULL FROM n;"
    );
    let mut connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(&format!("{SCHEMA}{rows}")).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'";
    let root: u32 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    (connection.serialize(MAIN_DB).unwrap().to_vec(), root as usize)
}

const PAGE: usize = 4096;

/// Kernels of a file, and its gaps.
fn kernels(bytes: &[u8]) -> (usize, Vec<String>) {
    let (traces, _) = traces(bytes).unwrap();
    let [(_, trace)] = &traces[..] else { panic!("one process") };
    (trace.device.len(), gaps(trace))
}

/// The children of a page of a table, as offsets of their numbers.
fn children(bytes: &[u8], page: usize) -> Vec<usize> {
    let at = (page - 1) * PAGE;
    assert_eq!(bytes[at], 5, "a page with children");
    let count = usize::from(u16::from_be_bytes([bytes[at + 3], bytes[at + 4]]));
    let cell =
        |n: usize| at + usize::from(u16::from_be_bytes([bytes[at + 12 + 2 * n], bytes[at + 13 + 2 * n]]));
    (0..count).map(cell).collect()
}

#[test]
fn a_truncated_file_is_refused_with_its_size() {
    let (bytes, _) = many_kernels();
    assert_eq!(kernels(&bytes), (20_000, vec![]));
    for pages in [1, 2, bytes.len() / PAGE - 1] {
        let (whole, left) = (bytes.len(), pages * PAGE);
        let expect = format!("it is no valid Nsight Systems export: it ends after {left} of {whole} bytes");
        assert_eq!(refused(&bytes[..left]), expect);
    }
}

#[test]
fn pages_in_a_circle_end_a_table() {
    let (whole, root) = many_kernels();
    let cells = children(&whole, root);
    let child = |bytes: &[u8], at: usize| <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap();
    // Every child is the first one.
    let mut bytes = whole.clone();
    let first = child(&bytes, cells[0]);
    cells.iter().for_each(|at| bytes[*at..*at + 4].copy_from_slice(&first));
    let (read, missing) = kernels(&bytes);
    assert!(read > 0 && read < 1000, "{read}");
    assert_eq!(missing, ["1 table-damaged"]);
    // The first child is the page itself.
    let mut bytes = whole;
    bytes[cells[0]..cells[0] + 4].copy_from_slice(&u32::try_from(root).unwrap().to_be_bytes());
    assert!(refused(&bytes).contains("has no event"), "{}", refused(&bytes));
}

#[test]
fn pages_of_noise_are_a_gap_or_an_error() {
    let (whole, root) = many_kernels();
    let mut state = 1u64;
    for page in (root - 1)..(root + 30) {
        let mut bytes = whole.clone();
        for byte in &mut bytes[page * PAGE..(page + 1) * PAGE] {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 33) as u8;
        }
        match traces(&bytes) {
            Ok((traces, _)) => {
                let gaps = gaps(&traces[0].1);
                let is_told = gaps.len() == 1 && gaps[0].ends_with(" table-damaged");
                assert!(is_told, "page {page}: {gaps:?}");
            }
            Err(error) => assert!(
                matches!(error, ImportError::Damaged { .. } | ImportError::Empty { .. }),
                "page {page}: {error}"
            ),
        }
    }
}

#[test]
fn nothing_of_the_schema_is_run() {
    // A view and a generated column with expected names, and a table that no program wrote.
    let view = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS SELECT 1 AS start";
    assert!(refused(&database(view)).starts_with("it is an SQLite database"));
    let main = A + 111;
    let generated = format!(
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER AS (start + 1),
          globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, globalTid, correlationId, nameId) VALUES (1, {main}, 1, 1);
        CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);
        INSERT INTO OSRT_API VALUES (1, 2, {main}, 1);"
    );
    check(&database(&generated), &["process 111", "Other 111/111 1+1 [name 1] #0", "1 not-understood"]);
}

#[test]
fn a_file_of_many_processes_is_bounded() {
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
          SELECT 10, 15, 0, 1, NULL, 7, i, i << 24, 2, 3, NULL, NULL, NULL FROM n;";
    let (traces, _) = traces(&export(rows)).unwrap();
    assert_eq!(traces.len(), 1024);
    assert_eq!(gaps(&traces[0].1), ["1976 too-many-processes"]);
    let job = Job::new(traces.into_iter().map(|(_, trace)| ("a".to_owned(), trace)).collect()).unwrap();
    assert_eq!(job.ranks().len(), 1024);
}
