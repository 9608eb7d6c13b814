//! The device's own account of what it did.
//!
//! Owns: the file that `DEEPCTX_SIM_LOG` names (`%p` in it becomes the process id). Because: what a profiler says is
//! compared with it. Does not: know whether anybody profiles.
//!
//! One line each, fields separated by tabs; the first line has their names. An `edge` of a graph is written when that
//! is made ready to be launched: its node comes after the one whose number stands for its name. `start` and `end` are
//! of the device's clock, the same numbers that activity records carry; `submitted` is of `CLOCK_MONOTONIC`, within the
//! call. A `sync` has its begin on both clocks, as `submitted` and as `start`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::FinishedWork;
use super::work::Work;

/// The columns.
const HEAD: &str =
    "what\tpid\ttid\tcorrelation\tdevice\tcontext\tstream\tsubmitted\tstart\tend\tbytes\tgraph\tnode\tname\n";

fn file() -> Option<&'static Mutex<BufWriter<File>>> {
    static FILE: OnceLock<Option<Mutex<BufWriter<File>>>> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = std::env::var("DEEPCTX_SIM_LOG").ok().filter(|path| !path.is_empty())?;
        let mut file = File::create(path.replace("%p", &std::process::id().to_string())).ok()?;
        file.write_all(HEAD.as_bytes()).ok()?;
        Some(Mutex::new(BufWriter::with_capacity(1 << 16, file)))
    })
    .as_ref()
}

/// Opens the file, so that it exists before the first work and is complete after the last.
pub(crate) fn open() {
    extern "C" fn at_exit() {
        flush();
    }
    if file().is_some() {
        // SAFETY: the function lives as long as the process: the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Writes buffered lines.
pub(crate) fn flush() {
    if let Some(file) = file() {
        // A full disk loses the log, not the program.
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

/// Writes one piece of work; `start` and `end` use the device's clock.
pub(crate) fn write(done: &FinishedWork, start: u64, end: u64) {
    let (what, name, bytes) = match done.work {
        Work::Kernel(kernel) => ("kernel", kernel.name.to_str().unwrap_or("?"), 0),
        Work::Copy(copy) => {
            ("copy", copy_name(copy.from_place as u8, copy.to_place as u8), copy.size.bytes())
        }
        Work::Fill(fill) => ("fill", "", fill.size.bytes()),
        Work::Host(_) => ("host", "", 0),
        Work::GraphEnd => ("graph", "", 0),
        Work::Marker | Work::Write(..) => return,
    };
    line(what, &done.tags, done.submitted_ns, (start, end), bytes, name);
}

/// Writes an edge of an executable graph: its second node follows the first.
pub(crate) fn write_edge(from: u64, tags: &super::Tags) {
    line("edge", tags, 0, (0, 0), 0, &from.to_string());
}

/// Writes a wait of the host.
pub(crate) fn write_wait(tags: &super::Tags, submitted: u64, times: (u64, u64), name: &str) {
    line("sync", tags, submitted, times, 0, name);
    // The waiting thread may read the log next.
    flush();
}

fn line(what: &str, tags: &super::Tags, submitted: u64, (start, end): (u64, u64), bytes: u64, name: &str) {
    let Some(file) = file() else { return };
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    // As in `flush`.
    let _ = writeln!(
        file,
        "{what}\t{pid}\t{}\t{}\t{}\t{}\t{}\t{submitted}\t{start}\t{end}\t{bytes}\t{}\t{}\t{name}",
        tags.thread, tags.correlation, tags.device, tags.context, tags.stream, tags.graph, tags.node,
    );
}

/// `HtoD` and similar, by kinds of memory.
const fn copy_name(from: u8, to: u8) -> &'static str {
    match (from, to) {
        (1 | 2, 3..) => "HtoD",
        (3.., 1 | 2) => "DtoH",
        (3.., 3..) => "DtoD",
        (1 | 2, 1 | 2) => "HtoH",
        _ => "?",
    }
}
