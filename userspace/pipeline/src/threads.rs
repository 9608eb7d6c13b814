//! Threads: the running thread of a record → its node in the tree (`process`, then `thread`).
//!
//! Owns: a bounded cache by thread id, how a process gets its name, and when one that ended is forgotten. Because:
//! every stack begins with these two frames, and looking them up by name for each sample would cost more than the rest.
//! Does not: decide which processes get a node ([`crate::own_contexts`]).

use deepctx_common::memory::table_bytes;
use deepctx_common::record::StackSample;
use deepctx_profile::frame::Frame;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use crate::due_queue::DueQueue;
use crate::own_contexts::{OwnContexts, OwnerContext, PROCESSES_AT_ONCE, THREADS_AT_ONCE, THREADS_OF_OTHERS};
use crate::symbols::{SpaceId, Symbols};

/// Cached threads: more than run at a time on most hosts; when full, the cache is cleared and refilled from the tree.
const THREADS_MAX: usize = 1 << 14;
/// How long after its recorded end a process may still be sampled: the kernel takes its memory apart then.
const ENDS_NS: u64 = 1_000_000_000;
/// Ends that wait for their time. Beyond it, the oldest is not used: what is known of that process stays for longer.
const ENDED_MAX: usize = 1 << 16;

/// The threads seen so far.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    known: FxHashMap<ThreadKey, NamedThread>,
    contexts: OwnContexts,
    /// Processes that ended, until no sample of them can come.
    ended: DueQueue<u32, ENDED_MAX>,
}

/// A thread, valid while its process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ThreadKey {
    pid: u32,
    tid: u32,
}

#[derive(Debug)]
struct NamedThread {
    space: SpaceId,
    comm: [u8; 16],
    given: OwnerContext,
}

impl Threads {
    /// The node of the thread of a sample, created if needed. A renamed thread gets a new one.
    #[inline]
    pub(crate) fn node<S: Symbols>(
        &mut self,
        sample: &StackSample,
        space: SpaceId,
        symbols: &mut S,
        profile: &mut Profile,
    ) -> NodeId {
        let key = ThreadKey { pid: sample.pid, tid: sample.tid };
        match self.known.get(&key) {
            Some(known)
                if known.space == space
                    && known.comm == sample.comm
                    && sample.header.time_ns < known.given.until_ns =>
            {
                known.given.node
            }
            _ => self.learn(key, sample, space, symbols, profile),
        }
    }

    fn learn<S: Symbols>(
        &mut self,
        key: ThreadKey,
        sample: &StackSample,
        space: SpaceId,
        symbols: &mut S,
        profile: &mut Profile,
    ) -> NodeId {
        let ThreadKey { pid, tid } = key;
        let thread_name = text(&sample.comm);
        let time_ns = sample.header.time_ns;
        // Without a process name, use the thread's; for the main thread it is the same.
        let process = self.process(pid, time_ns, &thread_name, symbols, profile);
        let name = profile.text(&thread_name);
        let frame = |name, tid| Frame::Thread { name, tid };
        let at_once = if process.until_ns == u64::MAX { THREADS_AT_ONCE } else { THREADS_OF_OTHERS };
        let thread = self.contexts.node(pid, (process.node, name, tid), at_once, time_ns, profile, frame);
        let given = OwnerContext { until_ns: thread.until_ns.min(process.until_ns), ..thread };
        if self.known.len() >= THREADS_MAX {
            self.known.clear();
        }
        self.known.insert(key, NamedThread { space, comm: sample.comm, given });
        given.node
    }

    /// A process begins: the one that had its number before is gone.
    pub(crate) fn begins(&mut self, pid: u32) {
        self.contexts.forget(pid);
    }

    /// A process ends at a time that the samples have not reached.
    pub(crate) fn ends(&mut self, pid: u32, time_ns: u64) {
        self.ended.add(time_ns.saturating_add(ENDS_NS), pid);
    }

    /// Forgets the processes that ended. No sample from before this time will follow.
    pub(crate) fn retire(&mut self, before_ns: u64) {
        while let Some((_, pid)) = self.ended.reached(before_ns) {
            self.known.remove(&ThreadKey { pid, tid: pid });
            self.contexts.forget(pid);
        }
    }

    /// The node of a process, created if needed; `otherwise` is its name if no other is known.
    pub(crate) fn process_node<S: Symbols>(
        &mut self,
        pid: u32,
        time_ns: u64,
        otherwise: &str,
        symbols: &mut S,
        profile: &mut Profile,
    ) -> NodeId {
        self.process(pid, time_ns, otherwise, symbols, profile).node
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        table_bytes(self.known.capacity(), size_of::<(ThreadKey, NamedThread)>())
            + self.contexts.held_bytes()
            + self.ended.held_bytes()
    }

    /// Processes and threads that shared a node, at least for some time.
    pub(crate) fn shared(&self) -> u64 {
        self.contexts.shared()
    }

    fn process<S: Symbols>(
        &mut self,
        pid: u32,
        time_ns: u64,
        otherwise: &str,
        symbols: &mut S,
        profile: &mut Profile,
    ) -> OwnerContext {
        let comm = match symbols.process_name(pid, time_ns) {
            Some(name) if !name.is_empty() => profile.text(name),
            _ => profile.text(otherwise),
        };
        let frame = |comm, pid| Frame::Process { comm, pid };
        self.contexts.node(pid, (NodeId::ROOT, comm, pid), PROCESSES_AT_ONCE, time_ns, profile, frame)
    }
}

/// The text of a NUL-padded name; invalid UTF-8 is replaced.
pub fn text(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..end]).into_owned()
}
