//! Nsight Systems' exports in SQLite (`nsys export --type sqlite`) to traces, one for each process.
//!
//! Owns: [`read`], the order in which tables are read, and the clock. Because: it is what NVIDIA's own profiler hands
//! out. Does not: open databases ([`database`]), or conclude what belongs together
//! ([`Links`](deepctx_profile::trace::Links)).
//!
//! | table | becomes |
//! |---|---|
//! | `CUPTI_ACTIVITY_KIND_KERNEL`, `…_MEMCPY`, `…_MEMSET` | work of a stream, with the node of its graph |
//! | `CUPTI_ACTIVITY_KIND_GRAPH_TRACE` | a graph that was traced as a whole: one kernel `[graph N]` |
//! | `CUPTI_ACTIVITY_KIND_SYNCHRONIZATION`, `…_CUDA_EVENT` | synchronisations; the record of an event by its `eventSyncId` |
//! | `CUPTI_ACTIVITY_KIND_RUNTIME` | calls of runtime and driver, with their result |
//! | `NVTX_EVENTS` | ranges; operators, where PyTorch wrote them; marks are ranges without length |
//! | `OSRT_API`, `CUBLAS_EVENTS`, `CUDNN_EVENTS` | other calls |
//!
//! Columns came and went with versions; one that is missing reads as null. Ids of CUPTI are those of one process, so
//! each process that used a device is a trace of its own, on one clock. What other processes did stands in the first of
//! these. Not read: samples, the scheduler's events, counters of devices, memory use, communication libraries' tables.

mod database;
mod device;
mod host;
mod names;
mod processes;

use rusqlite::Result;

use deepctx_common::reason::Reason;
use deepctx_profile::trace::{ClockInfo, Trace};
use deepctx_profile::units::Nanos;

use self::database::{Database, End, Row};
use self::processes::Processes;
use super::{EVENTS_MAX, ImportError, Kind, TABLE_DAMAGED};

/// Reads the traces of a file, with process ids.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(u32, Trace)>, ImportError> {
    let damaged = |error: rusqlite::Error| {
        let because = match database::length(bytes) {
            Some(whole) if whole > bytes.len() => format!("it ends after {} of {whole} bytes", bytes.len()),
            _ => error.to_string(),
        };
        ImportError::damaged(Kind::Nsys, because)
    };
    let bytes = database::without_log(bytes);
    let database = Database::open(&bytes).map_err(damaged)?;
    known(&database)?;
    let mut reader = Reader { processes: Processes::of(&database).map_err(damaged)?, database: &database };
    reader.all().map_err(damaged)?;
    let Reader { processes, .. } = reader;
    if processes.is_full() {
        return Err(ImportError::TooLarge { most: EVENTS_MAX, what: "events of a trace" });
    }
    let clock = clock(&database).map_err(damaged)?;
    let mut traces = processes.finish();
    traces.iter_mut().for_each(|(_, trace)| trace.clock = clock);
    Ok(traces)
}

/// Checks that a database is an export of Nsight Systems; otherwise reports whose it is.
fn known(database: &Database<'_>) -> Result<(), ImportError> {
    let (format, because) = match () {
        () if database.has("StringIds")
            || database.has_some("CUPTI_ACTIVITY_KIND_") && !database.has("StringTable") =>
        {
            return Ok(());
        }
        () if database.has("StringTable") => {
            ("a database of nvprof", "record with Nsight Systems, which follows it")
        }
        () if database.has_some("rocpd_") => {
            ("a rocpd database of rocprofv3", "write JSON with `rocprofv3 --output-format json`")
        }
        () => ("an SQLite database", "it has no table of Nsight Systems"),
    };
    Err(ImportError::NotRead { format, because })
}

/// Zero of the times. A capture begins at one moment on the machine's clock, which events use, and on the wall clock;
/// versions before 2022 have only the second, and count from the begin.
fn clock(database: &Database<'_>) -> Result<ClockInfo> {
    let (mut world, mut begin) = (None, None);
    database.rows("TARGET_INFO_SESSION_START_TIME", &["utcEpochNs"], |row| {
        world = world.or(row.number(0));
        world.is_none()
    })?;
    database.rows("ANALYSIS_DETAILS", &["startTime"], |row| {
        begin = begin.or(row.number(0));
        begin.is_none()
    })?;
    let epoch_ns = world.and_then(|world| world.checked_sub(begin.unwrap_or(0)));
    Ok(ClockInfo { epoch_ns, resolution: Nanos(1), domain: Some(0), ..ClockInfo::default() })
}

/// A file being read.
struct Reader<'d> {
    database: &'d Database<'d>,
    processes: Processes<'d>,
}

impl Reader<'_> {
    fn all(&mut self) -> Result<()> {
        // Users of devices first: they determine the traces of everything else.
        self.devices()?;
        self.synchronisations()?;
        self.calls()?;
        self.processes.sort();
        self.ranges()?;
        self.other_calls()
    }

    /// Passes each row of a table to `take`, and counts a table that ends in the middle.
    fn table(
        &mut self,
        table: &str,
        columns: &[&str],
        mut take: impl FnMut(&mut Processes<'_>, &Row<'_>) -> Result<(), &'static Reason>,
    ) -> Result<()> {
        let (database, processes) = (self.database, &mut self.processes);
        let end = database.rows(table, columns, |row| {
            if let Err(reason) = take(processes, row) {
                processes.gap(reason);
            }
            !processes.is_full()
        })?;
        if end == End::Damaged {
            self.processes.gap(TABLE_DAMAGED);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
