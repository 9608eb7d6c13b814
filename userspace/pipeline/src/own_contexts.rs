//! Own contexts: which processes and threads get a node of their own, and which share one.
//!
//! Owns: the share of each name, and the total bound. Because: a machine that starts a hundred processes a second
//! would add a hundred contexts a second to the tree, each with its own stacks, for programs that ran once for a
//! millisecond. Does not: know records, or where names come from.
//!
//! The first processes of a name get a node each, and so does any process that is still alive after some seconds. All
//! other short-lived processes of that name share one node (`cc1-[others]`). The same holds for the threads of a
//! process, with a higher limit per name: a pool has one thread per CPU.

use deepctx_common::memory::table_bytes;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::StrId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use crate::by_process::ByProcess;

/// Processes of one name that get a node at once: as many as a job has workers. One that ends soon still adds sixty
/// contexts.
pub(crate) const PROCESSES_AT_ONCE: u32 = 64;
/// Threads of one name and process that get a node at once.
pub(crate) const THREADS_AT_ONCE: u32 = OF_NAME_MAX;
/// The same below a shared process node, whose threads come and go with the processes.
pub(crate) const THREADS_OF_OTHERS: u32 = 1;
/// Any other process or thread gets a node once it is seen again after this long.
const AFTER_NS: u64 = 10_000_000_000;
/// Nodes of one name in all.
const OF_NAME_MAX: u32 = 1024;
/// Nodes of all names. A node of a process comes with its stacks: these are a tenth of the contexts of a full tree.
const ALL_MAX: usize = 1 << 14;
/// Processes and threads without a node of their own that are remembered while they run; when full, the table is
/// cleared. Up to 7 MiB if each is of another process.
const YOUNG_MAX: usize = 1 << 15;
/// Name of a shared node if no node has its members' name.
const OTHERS: &str = "[others]";

/// The process or thread: its parent node, its name, its number.
type Key = (NodeId, StrId, u32);

/// The node of a process or a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerContext {
    pub(crate) node: NodeId,
    /// When to look it up again, `CLOCK_MONOTONIC` nanoseconds.
    pub(crate) until_ns: u64,
}

/// Which processes and threads have a node.
#[derive(Debug, Default)]
pub(crate) struct OwnContexts {
    own: FxHashMap<Key, NodeId>,
    of_name: FxHashMap<(NodeId, StrId), u32>,
    /// When each process or thread without a node was first seen, by process.
    young: ByProcess<Key, u64, YOUNG_MAX>,
    /// Times that a shared node got a new member.
    shared: u64,
}

impl OwnContexts {
    /// The node of the process `pid`, or of a thread of it, created if needed; the first `at_once` of a name get their
    /// own immediately. `frame` makes a frame of a name and a number.
    pub(crate) fn node(
        &mut self,
        pid: u32,
        key: Key,
        at_once: u32,
        time_ns: u64,
        profile: &mut Profile,
        frame: fn(StrId, u32) -> Frame,
    ) -> OwnerContext {
        let (parent, name, number) = key;
        if let Some(node) = self.own.get(&key) {
            return OwnerContext { node: *node, until_ns: u64::MAX };
        }
        let count = self.of_name.get(&(parent, name)).copied().unwrap_or(0);
        let since = self.young.get(pid, &key).copied();
        let lasts = since.is_some_and(|since| time_ns >= since.saturating_add(AFTER_NS));
        if self.own.len() < ALL_MAX && (count < at_once || (lasts && count < OF_NAME_MAX)) {
            self.young.take(pid, &key);
            self.of_name.insert((parent, name), count + 1);
            let frame = profile.frame(frame(name, number));
            let node = profile.tree.child(parent, frame);
            self.own.insert(key, node);
            return OwnerContext { node, until_ns: u64::MAX };
        }
        if since.is_none() {
            self.shared += 1;
            self.young.get_or_insert_with(pid, key, || time_ns);
        }
        // The number of names is bounded by that of their nodes.
        let name = if count > 0 { name } else { profile.text(OTHERS) };
        let frame = profile.frame(frame(name, Frame::OTHERS));
        let node = profile.tree.child(parent, frame);
        let until_ns = since.filter(|_| !lasts).unwrap_or(time_ns).saturating_add(AFTER_NS);
        OwnerContext { node, until_ns }
    }

    /// A process ended, or a new one has its number: what has these numbers from now on was not seen before.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.young.remove(pid);
    }

    /// Bytes in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        table_bytes(self.own.capacity(), size_of::<(Key, NodeId)>())
            + table_bytes(self.of_name.capacity(), size_of::<((NodeId, StrId), u32)>())
            + self.young.held_bytes()
    }

    /// Processes and threads that shared a node, at least for some time.
    pub(crate) fn shared(&self) -> u64 {
        self.shared
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::profile::{Limits, Meta};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn process(comm: StrId, pid: u32) -> Frame {
        Frame::Process { comm, pid }
    }

    struct Machine {
        contexts: OwnContexts,
        profile: Profile,
    }

    impl Machine {
        fn new() -> Self {
            Self {
                contexts: OwnContexts::default(),
                profile: Profile::new(Meta::default(), Limits::default()),
            }
        }

        /// The label of a process's node, and until when it is valid.
        fn runs(&mut self, name: &str, pid: u32, time_ns: u64) -> (String, u64) {
            let name = self.profile.text(name);
            let key = (NodeId::ROOT, name, pid);
            let given = self.contexts.node(pid, key, PROCESSES_AT_ONCE, time_ns, &mut self.profile, process);
            let frame = self.profile.frames.get(self.profile.tree.node(given.node).frame);
            (frame.label(&self.profile.strings, true), given.until_ns)
        }
    }

    #[test]
    fn processes_that_come_and_go_share_a_context() {
        let mut machine = Machine::new();
        for pid in 0..PROCESSES_AT_ONCE {
            assert_eq!(machine.runs("cc1", pid, SECOND), (format!("cc1-{pid}"), u64::MAX));
        }
        let before = machine.profile.tree.len();
        for pid in 1_000..51_000 {
            let (label, until_ns) = machine.runs("cc1", pid, SECOND);
            assert_eq!((label.as_str(), until_ns), ("cc1-[others]", SECOND + AFTER_NS));
        }
        assert_eq!((machine.profile.tree.len(), machine.contexts.shared()), (before + 1, 50_000));
        assert_eq!(machine.runs("python", 7, SECOND).0, "python-7", "other names have their own share");
        assert_eq!(machine.runs("cc1", 3, 90 * SECOND).0, "cc1-3", "who has one keeps it");
    }

    #[test]
    fn a_process_that_stays_gets_its_own_context() {
        let mut machine = Machine::new();
        (0..PROCESSES_AT_ONCE).for_each(|pid| _ = machine.runs("python", pid, 0));
        assert_eq!(machine.runs("python", 4711, SECOND), ("python-[others]".to_owned(), 11 * SECOND));
        assert_eq!(machine.runs("python", 4711, 5 * SECOND), ("python-[others]".to_owned(), 11 * SECOND));
        assert_eq!(machine.runs("python", 4711, 11 * SECOND), ("python-4711".to_owned(), u64::MAX));
        // It was counted once.
        assert_eq!(machine.contexts.shared(), 1);
    }

    #[test]
    fn a_number_used_again_is_that_of_another_process() {
        let mut machine = Machine::new();
        (0..PROCESSES_AT_ONCE).for_each(|pid| _ = machine.runs("true", pid, 0));
        let held_bytes = machine.contexts.held_bytes();
        for minute in 1..=30 {
            let now_ns = 60 * minute * SECOND;
            assert_eq!(machine.runs("true", 4711, now_ns), ("true-[others]".to_owned(), now_ns + AFTER_NS));
            machine.contexts.forget(4711);
        }
        assert_eq!(machine.contexts.shared(), 30);
        assert!(machine.contexts.held_bytes() < held_bytes + 256, "those that ended take no memory");
        machine.runs("true", 4711, 0);
        assert_eq!(machine.runs("true", 4711, AFTER_NS).0, "true-4711", "one that stays");
    }

    #[test]
    fn names_cannot_take_more_contexts_than_there_are() {
        let mut machine = Machine::new();
        let names = u32::try_from(ALL_MAX).unwrap() + 1_000;
        for n in 0..names {
            machine.runs(&format!("name{n}"), n, 0);
        }
        assert_eq!(machine.runs("one more", 1, 0).0, "[others]-[others]");
        assert_eq!(machine.runs("name5", 1_000_000, 0).0, "name5-[others]");
        // The root, the reserved node, one for each process or thread that has its own, and the two shared ones.
        assert!(machine.profile.tree.len() <= ALL_MAX + 4, "{}", machine.profile.tree.len());
    }
}
