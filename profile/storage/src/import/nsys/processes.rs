//! Processes of an export: a trace for each, while tables are read.
//!
//! Owns: [`Processes`], and the bounds on them. Because: one table holds the rows of all processes, while ids, names
//! and lanes belong to one process each. Does not: know a table.

use deepctx_profile::order::SortRows as _;
use rusqlite::Result;
use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_profile::intern::{Id, StrId};
use deepctx_profile::ledger::{Ledger, Stage};
use deepctx_profile::trace::{Duration, Stream, Thread, Trace, TraceTime};
use deepctx_profile::units::Nanos;

use super::database::{Database, Lookup};
use crate::import::{
    END_BEFORE_BEGIN, EVENTS_MAX, NOT_UNDERSTOOD, OUT_OF_RANGE, TOO_LONG, TOO_MANY_PROCESSES,
};

/// Maximum processes that used a device: a job on one machine has a few dozen.
const PROCESSES_MAX: usize = 1024;
/// An event that lasts longer has an end on another clock.
const DURATION_MAX: u64 = 366 * 24 * 3600 * 1_000_000_000;
/// Bits of a thread's number in a global id; a process's number has as many, and the machine is above.
const THREAD_BITS: u32 = 24;
/// CUPTI's number for "none".
const NONE: u64 = u32::MAX as u64;

/// The traces of a file.
pub(super) struct Processes<'d> {
    strings: Option<Lookup<'d>>,
    all: Vec<Process>,
    numbers: FxHashMap<u64, usize>,
    /// Gaps, until the first trace is known.
    gaps: Ledger,
    events: usize,
}

/// One process.
pub(super) struct Process {
    /// The upper bits of its global ids.
    key: u64,
    /// Its events.
    pub(super) trace: Trace,
    /// The device of each context.
    pub(super) contexts: FxHashMap<u64, u32>,
    threads: FxHashMap<u64, Id<Thread>>,
    names: FxHashMap<i64, StrId>,
}

/// A process or a thread, as one number.
#[derive(Clone, Copy)]
pub(super) struct GlobalId(pub(super) u64);

impl GlobalId {
    /// The process, with its machine.
    pub(super) fn key(self) -> u64 {
        self.0 >> THREAD_BITS
    }

    fn tid(self) -> u64 {
        self.0 & ((1 << THREAD_BITS) - 1)
    }
}

fn pid(key: u64) -> u32 {
    (key & ((1 << THREAD_BITS) - 1)) as u32
}

impl<'d> Processes<'d> {
    /// No processes yet, with the names of a file.
    pub(super) fn of(database: &'d Database<'d>) -> Result<Self> {
        Ok(Processes {
            strings: database.lookup("StringIds", "id", "value")?,
            all: Vec::new(),
            numbers: FxHashMap::default(),
            gaps: Ledger::default(),
            events: 0,
        })
    }

    /// Counts a gap.
    pub(super) fn gap(&mut self, reason: &'static Reason) {
        self.gaps.gap(Stage::Decode, reason, 1);
    }

    /// Whether the event limit is reached.
    pub(super) fn is_full(&self) -> bool {
        self.events > EVENTS_MAX
    }

    /// Counts an event that was added, or returns why it was not.
    pub(super) fn added<R>(&mut self, row: Option<Id<R>>) -> Result<Id<R>, &'static Reason> {
        self.events += 1;
        row.ok_or(NOT_UNDERSTOOD)
    }

    /// The process that used a device. Rows of old versions do not name it: then it is the only one.
    pub(super) fn user(&mut self, id: Option<u64>) -> Result<usize, &'static Reason> {
        let key = match (id, &self.all[..]) {
            (Some(id), _) => GlobalId(id).key(),
            (None, [first, ..]) => first.key,
            (None, []) => 0,
        };
        if let Some(number) = self.numbers.get(&key) {
            return Ok(*number);
        }
        if self.all.len() >= PROCESSES_MAX {
            return Err(TOO_MANY_PROCESSES);
        }
        self.all.push(Process::new(key));
        self.numbers.insert(key, self.all.len() - 1);
        Ok(self.all.len() - 1)
    }

    /// The trace of a process that may have used no device: its own, or the first.
    pub(super) fn home(&mut self, id: GlobalId) -> Result<usize, &'static Reason> {
        match (self.numbers.get(&id.key()), self.all.is_empty()) {
            (Some(number), _) => Ok(*number),
            (None, false) => Ok(0),
            (None, true) => self.user(Some(id.0)),
        }
    }

    /// Sorts processes by id.
    pub(super) fn sort(&mut self) {
        self.all.sort_rows_by_key(|process| process.key);
        self.numbers = self.all.iter().zip(0..).map(|(process, number)| (process.key, number)).collect();
    }

    /// A process by index.
    pub(super) fn get(&mut self, number: usize) -> &mut Process {
        &mut self.all[number]
    }

    /// The name with an id, converted by `shown` to the form of other traces. Ids are unique within one kind of name.
    pub(super) fn name(&mut self, process: usize, id: i64, shown: impl FnOnce(&str) -> &str) -> StrId {
        let Processes { strings, all, .. } = self;
        let Process { names, trace, .. } = &mut all[process];
        *names.entry(id).or_insert_with(|| {
            let text = strings.as_mut().and_then(|strings| strings.text(id));
            match text {
                Some(text) => trace.text(shown(&text)),
                None => trace.text(&format!("[name {id}]")),
            }
        })
    }

    /// The text with an id.
    pub(super) fn text(&mut self, id: i64) -> Option<String> {
        self.strings.as_mut()?.text(id)
    }

    /// The traces with events, by process. Gaps of the file are counted in the first.
    pub(super) fn finish(mut self) -> Vec<(u32, Trace)> {
        let count: u64 = self.gaps.stage(Stage::Decode).gaps.iter().map(|(_, n)| n).sum();
        self.all.retain(|process| !process.trace.is_empty());
        if self.all.is_empty() && count > 0 {
            self.all.push(Process::new(0));
        }
        if let Some(first) = self.all.first_mut() {
            first.trace.ledger = self.gaps;
        }
        self.all.into_iter().map(|process| (pid(process.key), process.trace)).collect()
    }
}

impl Process {
    fn new(key: u64) -> Self {
        Process {
            key,
            trace: Trace::new(),
            contexts: FxHashMap::default(),
            threads: FxHashMap::default(),
            names: FxHashMap::default(),
        }
    }

    /// The thread of a global id.
    pub(super) fn thread(&mut self, id: GlobalId) -> Id<Thread> {
        let Process { threads, trace, .. } = self;
        *threads
            .entry(id.0)
            .or_insert_with(|| trace.thread(&pid(id.key()).to_string(), &id.tid().to_string()))
    }

    /// A stream. `None` means none, as does CUPTI's number for that.
    pub(super) fn stream(&mut self, device: u32, stream: Option<u64>) -> Id<Stream> {
        self.trace.stream(device, stream.filter(|number| *number != NONE))
    }
}

/// Start and length of an event.
pub(super) fn span(begin: Option<i64>, end: Option<i64>) -> Result<(TraceTime, Duration), &'static Reason> {
    let (Some(begin), Some(end)) = (begin, end) else { return Err(NOT_UNDERSTOOD) };
    let Ok(from) = u64::try_from(begin) else { return Err(OUT_OF_RANGE) };
    let Some(length) = u64::try_from(end).ok().and_then(|end| end.checked_sub(from)) else {
        return Err(END_BEFORE_BEGIN);
    };
    if length > DURATION_MAX {
        return Err(TOO_LONG);
    }
    Ok((TraceTime::from_nanos(from), Nanos(length)))
}
