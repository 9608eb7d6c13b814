//! Waiting calls: the kernel programs' state of a call until it returns, or until its correlation id arrives.
//!
//! Owns: removing entries of threads that ended within such a call. Because: the tables hold a few thousand calls of
//! all threads, and a stale entry would block a slot forever. Does not: follow threads over time: dead threads are
//! found when the table is scanned.

use std::path::Path;

use deepctx_common::Plain as _;
use libbpf_rs::{MapCore as _, MapHandle};

use crate::programs::in_first_pid_namespace;

/// The maps `IN_FLIGHT` and `LAUNCHED`.
pub(in super::super) struct WaitingCalls {
    /// By thread, in the upper half, and site.
    pub(in super::super) returns: MapHandle,
    /// By thread.
    pub(in super::super) ids: MapHandle,
}

impl WaitingCalls {
    /// Removes the entries of ended threads; returns how many there were. Threads are numbered as in the first pid
    /// namespace: in another one it is unknown which have ended.
    pub(super) fn sweep(&self) -> usize {
        if !in_first_pid_namespace() {
            return 0;
        }
        let of_return = |key: &[u8]| u64::read_from(key).map(|key| (key >> 32) as u32);
        let of_id = |key: &[u8]| u32::read_from(key);
        removed(&self.returns, of_return) + removed(&self.ids, of_id)
    }
}

fn removed(map: &MapHandle, thread_of: impl Fn(&[u8]) -> Option<u32>) -> usize {
    // All keys first: the iteration restarts at a removed key.
    let keys: Vec<Vec<u8>> = map.keys().collect();
    let gone = |key: &&Vec<u8>| thread_of(key).is_some_and(|thread| !is_there(thread));
    keys.iter().filter(gone).filter(|key| map.delete(key).is_ok()).count()
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
