//! Named targets: processes that were selected when the capture began, until the pipeline knows that they have ended.
//!
//! Owns: which of them run, and the messages about those that do not. Because: a capture of named processes ends with
//! the last of them, so that neither a full channel nor a full ring may hide an end. Does not: end the capture.

use std::path::Path;

use crossbeam_channel::Sender;
use deepctx_symbolizer::start_ticks;

use super::message::Message;

/// Processes whose end is reported.
#[derive(Debug, Default)]
pub(super) struct NamedTargets {
    running: Vec<Running>,
    /// Ends for which the channel had no room yet.
    unsent: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    pid: u32,
    /// When it started, if that could be read: its number may be used again.
    started: Option<u64>,
}

impl Running {
    fn is_gone(&self) -> bool {
        let is_other = |(started, now): (u64, u64)| started != now;
        !Path::new(&format!("/proc/{}", self.pid)).exists()
            || self.started.zip(start_ticks(self.pid)).is_some_and(is_other)
    }
}

impl NamedTargets {
    /// These processes run.
    pub(super) fn new(running: Vec<u32>) -> Self {
        let running = running.into_iter().map(|pid| Running { pid, started: start_ticks(pid) });
        Self { running: running.collect(), unsent: Vec::new() }
    }

    /// A record says that a process has ended.
    pub(super) fn ended(&mut self, pid: u32) {
        if let Some(at) = self.running.iter().position(|running| running.pid == pid) {
            self.unsent.push(self.running.swap_remove(at).pid);
        }
    }

    /// Looks for processes that are gone without a record, for which the ring had no room.
    pub(super) fn look(&mut self) {
        let gone = self.running.extract_if(.., |running| running.is_gone());
        self.unsent.extend(gone.map(|running| running.pid));
    }

    /// Reports ends, as long as there is room.
    pub(super) fn send(&mut self, messages: &Sender<Message>) {
        self.unsent.retain(|pid| messages.try_send(Message::TargetGone { pid: *pid }).is_err());
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn an_end_that_finds_no_room_is_reported_later() {
        let (sender, messages) = bounded(1);
        let mut named = NamedTargets::new(vec![7, 8]);
        sender.send(Message::CallsEnd(0)).unwrap();
        named.ended(7);
        named.ended(9);
        named.send(&sender);
        assert!(matches!(messages.try_recv(), Ok(Message::CallsEnd(0))) && messages.is_empty());
        named.send(&sender);
        assert!(matches!(messages.try_recv(), Ok(Message::TargetGone { pid: 7 })));
        named.send(&sender);
        assert!(messages.is_empty(), "once");
    }

    #[test]
    fn an_end_without_a_record_is_reported() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (sender, messages) = bounded(2);
        let mut named = NamedTargets::new(vec![std::process::id(), child.id()]);
        named.look();
        named.send(&sender);
        assert!(matches!(messages.try_recv(), Ok(Message::TargetGone { pid }) if pid == child.id()));
        assert!(messages.is_empty(), "this process runs");
    }

    #[test]
    fn a_number_that_is_used_again_hides_no_end() {
        let (sender, messages) = bounded(1);
        let before = Running { pid: std::process::id(), started: Some(1) };
        let mut named = NamedTargets { running: vec![before], unsent: Vec::new() };
        named.look();
        named.send(&sender);
        assert!(matches!(messages.try_recv(), Ok(Message::TargetGone { pid }) if pid == before.pid));
    }
}
