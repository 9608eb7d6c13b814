//! `libcuda.so.1`: the driver.
//!
//! Owns: its state (devices, contexts, handles), and what becomes of finished work. Because: the functions in the
//! modules below, HIP's and the other libraries' all lead here. Does not: lay out activity records; CUPTI does that.

pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod fill;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod procedures;
pub(crate) mod registry;
pub(crate) mod stream;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::device::memory::Memory;
use crate::device::work::{MemoryKind, Work};
use crate::device::{FinishedWork, log, monotonic_ns};
use crate::link::{self, Masks, Record, Table, ask, kind};

mod rest {
    //! Functions of the catalogue that have no behaviour.
    include!(concat!(env!("OUT_DIR"), "/cuda.rs"));
}
pub(crate) use rest::CATALOGUE;

/// Requests of tools.
pub(crate) static MASKS: Masks = Masks::new();
/// All memory.
pub(crate) static MEMORY: Memory = Memory::new();

/// Table for the other libraries.
pub(crate) static TABLE: Table = Table {
    size: size_of::<Table>(),
    enter: link::enter,
    exit: link::exit,
    masks: &raw const MASKS,
    now: now_for_tools,
    number,
    settle,
};

/// Nanoseconds by which the device's clock is ahead of `CLOCK_MONOTONIC`: `DEEPCTX_SIM_CLOCK_OFFSET_NS`, or the wall
/// clock's. Real devices count from an arbitrary start.
pub(crate) fn clock_offset_ns() -> u64 {
    static OFFSET: OnceLock<u64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let asked = std::env::var("DEEPCTX_SIM_CLOCK_OFFSET_NS").ok().and_then(|text| text.parse().ok());
        asked.unwrap_or_else(|| {
            let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            (wall.as_nanos() as u64).saturating_sub(monotonic_ns())
        })
    })
}

/// The current time of the device's clock.
pub(crate) fn now() -> u64 {
    monotonic_ns() + clock_offset_ns()
}

extern "C" fn now_for_tools() -> u64 {
    now()
}

/// Context and its number, for callback data.
pub(crate) fn current_for_callbacks() -> (usize, u32) {
    context::current().map_or((0, 0), |context| (context.handle(), context.number))
}

extern "C" fn settle() {
    context::settle();
}

extern "C" fn number(what: u32, handle: usize) -> u64 {
    let found = match what {
        ask::CONTEXT => context::CONTEXTS.get(handle).map(|context| u64::from(context.number)),
        ask::DEVICE_OF_CONTEXT => {
            context::CONTEXTS.get(handle).map(|context| u64::from(context.device.number) + 1)
        }
        ask::DEVICES => Ok(context::devices().into()),
        ask::STARTING => Ok(context::is_starting().into()),
        ask::CURRENT_CONTEXT => context::current().map(|context| context.handle() as u64),
        ask::STREAM => stream::find(handle, false).map(|stream| u64::from(stream.lane.0)),
        ask::THREAD_STREAM => stream::find(handle, true).map(|stream| u64::from(stream.lane.0)),
        ask::GRAPH => graph::GRAPHS.get(handle).map(|graph| u64::from(graph.number)),
        ask::GRAPH_EXEC => graph::EXECS.get(handle).map(|exec| u64::from(exec.number)),
        ask::NODE => graph::NODES.get(handle).map(|node| node.number),
        ask::EVENT => stream::EVENTS.get(handle).map(|event| u64::from(event.number)),
        _ => return 0,
    };
    found.unwrap_or(0)
}

/// Numbers that are unique within the process.
pub(crate) fn next_number(counter: &AtomicU32) -> u32 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

/// CUPTI's number of a copy, by the kinds of memory.
pub(crate) const fn copy_kind(from: MemoryKind, to: MemoryKind) -> u32 {
    match (from.is_host(), to.is_host()) {
        (true, true) => 9,
        (true, false) => 1,
        (false, true) => 2,
        (false, false) => 8,
    }
}

/// Reports finished work: a line in the log, and a record for subscribers.
#[expect(clippy::too_many_lines, reason = "one match with an arm for each kind of work")]
pub(crate) fn tell(done: &FinishedWork) {
    let (start_ns, end_ns) = (done.start_ns + clock_offset_ns(), done.end_ns + clock_offset_ns());
    log::write(done, start_ns, end_ns);
    let tags = done.tags;
    let record = Record {
        correlation: tags.correlation,
        device: tags.device,
        context: tags.context,
        stream: tags.stream,
        graph: tags.graph,
        source_graph: tags.source_graph,
        node: tags.node,
        source_node: tags.source_node,
        thread: tags.thread,
        start_ns,
        end_ns,
        ..Record::default()
    };
    // Graphs are reported either as a whole or by node.
    if tags.node != 0 && MASKS.wants_kind(kind::GRAPH) {
        return;
    }
    match done.work {
        Work::Kernel(kernel) => MASKS.record(&Record {
            kind: if MASKS.wants_kind(kind::CONCURRENT_KERNEL) {
                kind::CONCURRENT_KERNEL
            } else {
                kind::KERNEL
            },
            name: kernel.name.as_ptr(),
            grid: kernel.grid,
            block: kernel.block,
            registers: kernel.registers,
            static_shared: kernel.static_shared,
            dynamic_shared: kernel.dynamic_shared,
            code: kernel.code,
            ..record
        }),
        Work::Copy(copy) => MASKS.record(&Record {
            kind: if copy.peer.is_some() { kind::PEER_COPY } else { kind::COPY },
            detail: if copy.peer.is_some() { 10 } else { copy_kind(copy.from_place, copy.to_place) },
            bytes: copy.size.bytes(),
            from: copy.from_place as u8,
            to: copy.to_place as u8,
            is_async: copy.is_async.into(),
            peer: copy.peer.unwrap_or(tags.device),
            ..record
        }),
        Work::Fill(fill) => MASKS.record(&Record {
            kind: kind::FILL,
            bytes: fill.size.bytes(),
            to: fill.place as u8,
            value: fill.value,
            is_async: fill.is_async.into(),
            ..record
        }),
        Work::GraphEnd => {
            MASKS.record(&Record {
                kind: kind::GRAPH,
                start_ns: done.submitted_ns + clock_offset_ns(),
                ..record
            });
        }
        Work::Host(_) | Work::Marker | Work::Write(..) => {}
    }
}
