//! What threads did, as Nsight Systems' tables have it.
//!
//! Owns: calls, ranges and the calls of other libraries. Because: all of them are of a thread, with begin and end.
//! Does not: nest them; readers of the trace do.

use rusqlite::Result;
use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_profile::intern::StrId;
use deepctx_profile::trace::{HostKind, HostOp, Status};
use deepctx_profile::tree::NodeId;

use super::database::Row;
use super::processes::{GlobalId, Processes, span};
use super::{Reader, names};
use crate::import::{NO_END, NOT_UNDERSTOOD};

/// Columns of all events of threads.
const EVENT: [&str; 3] = ["start", "end", "globalTid"];

/// Kinds of rows in `NVTX_EVENTS` (`ENUM_NSYS_EVENT_TYPE`); `Nvtxt` ones were read from text files.
const MARKS: [i64; 2] = [34, 65];
const RANGES: [i64; 4] = [59, 60, 70, 71];
const DOMAIN: i64 = 75;
/// Maximum names of domains: a library has one.
const DOMAINS_MAX: usize = 4096;

impl Reader<'_> {
    /// Reads CUDA calls.
    pub(super) fn calls(&mut self) -> Result<()> {
        let columns = [&EVENT[..], &["correlationId", "nameId", "returnValue"]].concat();
        self.table("CUPTI_ACTIVITY_KIND_RUNTIME", &columns, |processes, row| {
            let id = GlobalId(row.number(2).ok_or(NOT_UNDERSTOOD)?);
            let number = processes.user(Some(id.0))?;
            let name = processes.name(number, row.integer(4).ok_or(NOT_UNDERSTOOD)?, names::call);
            let kind = names::kind_of_call(processes.get(number).trace.name(name));
            let status = row.integer(5).and_then(|result| i32::try_from(result).ok());
            let of = Event {
                kind,
                name,
                correlation: row.number(3).unwrap_or(0),
                status: status.map_or(Status::Unknown, Status::Returned),
            };
            event(processes, number, id, row.integer(0), row.integer(1), of)
        })
    }

    /// Reads NVTX ranges.
    pub(super) fn ranges(&mut self) -> Result<()> {
        let domains = self.domains()?;
        let columns = [&EVENT[..], &["eventType", "domainId", "text", "textId"]].concat();
        self.table("NVTX_EVENTS", &columns, |processes, row| {
            let (begin, end) = match row.integer(3) {
                Some(mark) if MARKS.contains(&mark) => (row.integer(0), row.integer(0)),
                Some(range) if RANGES.contains(&range) => {
                    (row.integer(0), Some(row.integer(1).ok_or(NO_END)?))
                }
                // Names of categories, threads and devices.
                Some(_) => return Ok(()),
                None => return Err(NOT_UNDERSTOOD),
            };
            let id = GlobalId(row.number(2).ok_or(NOT_UNDERSTOOD)?);
            let number = processes.home(id)?;
            let text = text(processes, row, 5).unwrap_or_else(|| "[no name]".to_owned());
            let (kind, name) = names::range(&text);
            let trace = &mut processes.get(number).trace;
            // Each process numbers its own; a row that names none is of any.
            let of_row = |domain| domains.get(&(Some(id.key()), domain)).or(domains.get(&(None, domain)));
            let name = match row.integer(4).and_then(of_row) {
                Some(domain) => trace.text(&format!("{domain}:{name}")),
                None => trace.text(name),
            };
            let of = Event { kind, name, correlation: 0, status: Status::Unknown };
            event(processes, number, id, begin, end, of)
        })
    }

    /// Names of NVTX domains, by process and number.
    fn domains(&mut self) -> Result<FxHashMap<(Option<u64>, i64), String>> {
        let mut domains = FxHashMap::default();
        let columns = ["eventType", "domainId", "text", "textId", "globalTid"];
        self.table("NVTX_EVENTS", &columns, |processes, row| {
            if row.integer(0) == Some(DOMAIN)
                && domains.len() < DOMAINS_MAX
                && let (Some(id), Some(text)) = (row.integer(1), text(processes, row, 2))
            {
                let process = row.number(4).map(|thread| GlobalId(thread).key());
                domains.insert((process, id), text);
            }
            Ok(())
        })?;
        Ok(domains)
    }

    /// Reads calls of system and NVIDIA libraries.
    pub(super) fn other_calls(&mut self) -> Result<()> {
        let columns = [&EVENT[..], &["nameId"]].concat();
        for table in ["OSRT_API", "CUBLAS_EVENTS", "CUDNN_EVENTS"] {
            self.table(table, &columns, |processes, row| {
                let id = GlobalId(row.number(2).ok_or(NOT_UNDERSTOOD)?);
                let number = processes.home(id)?;
                let name = processes.name(number, row.integer(3).ok_or(NOT_UNDERSTOOD)?, |name| name);
                let of = Event { kind: HostKind::Other, name, correlation: 0, status: Status::Unknown };
                event(processes, number, id, row.integer(0), row.integer(1), of)
            })?;
        }
        Ok(())
    }
}

/// Specifics of one kind of event.
struct Event {
    kind: HostKind,
    name: StrId,
    correlation: u64,
    status: Status,
}

fn event(
    processes: &mut Processes<'_>,
    number: usize,
    id: GlobalId,
    begin: Option<i64>,
    end: Option<i64>,
    of: Event,
) -> Result<(), &'static Reason> {
    let (begin, duration) = span(begin, end)?;
    let Event { kind, name, correlation, status } = of;
    let process = processes.get(number);
    let thread = process.thread(id);
    let op = HostOp { thread, kind, begin, duration, name, correlation, status, context: NodeId::ROOT };
    let op = process.trace.host.push(op);
    processes.added(op).map(drop)
}

/// A text in the row itself, or found by its number.
fn text(processes: &mut Processes<'_>, row: &Row<'_>, at: usize) -> Option<String> {
    match row.text(at) {
        Some(text) => Some(text.into_owned()),
        None => processes.text(row.integer(at + 1)?),
    }
}
