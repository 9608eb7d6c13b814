//! Waiting calls: the kernel programs' state of a call until it returns, or until its correlation id arrives.
//!
//! Owns: removing entries of threads that ended within such a call, and those above their user's share. Because: the
//! tables hold a few thousand calls of all threads, and a stale entry would block a slot forever. Does not: follow
//! threads over time: dead threads are found when the table is scanned.

use std::path::Path;

use deepctx_common::Plain as _;
use deepctx_symbolizer::{GONE_USER, accountable_user};
use libbpf_rs::{MapCore as _, MapHandle};

use crate::programs::in_first_pid_namespace;
use crate::thread_shares::{keys, may_be_unfair, over_share};

/// The maps `IN_FLIGHT` and `LAUNCHED`.
pub(in super::super) struct WaitingCalls {
    /// By thread, in the upper half, and site.
    pub(in super::super) returns: MapHandle,
    /// By thread.
    pub(in super::super) ids: MapHandle,
}

/// Entries that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SweptCalls {
    /// Of threads that ended.
    pub(super) ended: usize,
    /// Above their users' shares.
    pub(super) over_share: usize,
}

impl WaitingCalls {
    /// Removes the entries of ended threads, and of a nearly full table those above their users' shares. Threads are
    /// numbered as in the first pid namespace: in another one it is unknown which have ended, and whose they are.
    pub(super) fn sweep(&self) -> SweptCalls {
        if !in_first_pid_namespace() {
            return SweptCalls::default();
        }
        let returns = swept(&self.returns, |key| u64::read_from(key).map(|key| (key >> 32) as u32));
        let ids = swept(&self.ids, u32::read_from);
        SweptCalls { ended: returns.ended + ids.ended, over_share: returns.over_share + ids.over_share }
    }
}

fn swept(map: &MapHandle, thread_of: impl Fn(&[u8]) -> Option<u32>) -> SweptCalls {
    let room = map.max_entries() as usize;
    let keys = keys(map);
    // Users are read only then: each takes some ten microseconds.
    let checks_shares = may_be_unfair(keys.len(), room);
    let (mut ended, mut live) = (0, Vec::new());
    for key in &keys {
        let Some(thread) = thread_of(key) else { continue };
        if !is_there(thread) {
            ended += usize::from(map.delete(key).is_ok());
        } else if checks_shares {
            live.push((key, accountable_user(thread).unwrap_or(GONE_USER)));
        }
    }
    let over_share = over_share(&live, room).into_iter().filter(|key| map.delete(key).is_ok()).count();
    SweptCalls { ended, over_share }
}

/// Whether a thread exists; `/proc` finds threads by number, though it does not list them.
fn is_there(thread: u32) -> bool {
    Path::new(&format!("/proc/{thread}")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_there_until_it_ends() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            let _ = ended.recv();
        });
        let number = receiver.recv().unwrap();
        assert_ne!(number, std::process::id());
        assert!(is_there(number));
        drop(end);
        thread.join().unwrap();
        // The kernel releases it a moment after it was joined.
        while is_there(number) {
            std::thread::yield_now();
        }
    }
}
