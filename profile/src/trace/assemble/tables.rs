//! Tables: adding rows to the tables of a trace during assembly.
//!
//! Owns: threads by their kernel thread ids, and the count of rows that did not fit into a table. Because: every kind
//! of event needs both. Does not: know kinds of events.

use super::super::Trace;
use super::super::event::Thread;
use super::super::recorded::NotTraced;
use crate::intern::Id;
use crate::ledger::Stage;

/// A thread by its kernel ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ThreadKey {
    pub(super) pid: u32,
    pub(super) tid: u32,
}

impl ThreadKey {
    /// Its number in a trace.
    pub(super) fn add_to(self, trace: &mut Trace) -> Id<Thread> {
        trace.thread(&self.pid.to_string(), &self.tid.to_string())
    }
}

/// Counts rows without room.
pub(super) fn count_pushed<T>(trace: &mut Trace, pushed: Option<T>) -> Option<T> {
    if pushed.is_none() {
        trace.ledger.dropped(Stage::Store, NotTraced::QueueFull.reason(), 1);
    }
    pushed
}
