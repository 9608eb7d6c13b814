//! Streams, events and graphs.
//!
//! Owns: HIP's functions for them. Because: programs wait, capture and replay by them. Does not: keep any state.

use super::{find, ready};
use crate::api::{Code, Dim3, In, Out, Raw, api};
use crate::cuda::registry::handle_of;
use crate::cuda::stream::{self, EVENTS};
use crate::cuda::{capture, graph};
use crate::device::work::Work;

/// `hipKernelNodeParams`: in a different order than CUDA's.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParameters {
    block: Dim3,
    extra: usize,
    function: usize,
    grid: Dim3,
    arguments: usize,
    shared: u32,
}

const _: () = assert!(std::mem::offset_of!(KernelParameters, function) == 24);
const _: () = assert!(std::mem::offset_of!(KernelParameters, shared) == 56);

api! { Hip;
    fn hipStreamCreate(out: Out<Raw>) { ready()?; out.put(stream::create(0, 0)?) }
    fn hipStreamCreateWithFlags(out: Out<Raw>, flags: u32) { ready()?; out.put(stream::create(flags, 0)?) }
    fn hipStreamCreateWithPriority(out: Out<Raw>, flags: u32, priority: i32) { ready()?; out.put(stream::create(flags, priority)?) }
    fn hipStreamDestroy(stream: Raw) { stream::destroy(stream) }
    fn hipStreamSynchronize | hipStreamSynchronize_spt(stream: Raw) { find(stream, PER_THREAD)?.synchronize() }
    fn hipStreamQuery | hipStreamQuery_spt(stream: Raw) {
        let stream = find(stream, PER_THREAD)?;
        if stream.context.device.tail(stream.lane).is_done() { Ok(()) } else { Err(Code::NOT_READY) }
    }
    fn hipStreamWaitEvent | hipStreamWaitEvent_spt(stream: Raw, event: Raw, _flags: u32) {
        EVENTS.get(event)?.hold(&*find(stream, PER_THREAD)?)
    }
    fn hipStreamWriteValue32(stream: Raw, address: u64, value: u32, _flags: u32) {
        find(stream, PER_THREAD)?.put(Work::Write(address, value.into(), 4)).map(drop)
    }
    fn hipStreamWriteValue64(stream: Raw, address: u64, value: u64, _flags: u32) {
        find(stream, PER_THREAD)?.put(Work::Write(address, value, 8)).map(drop)
    }
    fn hipEventCreate(out: Out<Raw>) { ready()?; out.put(stream::create_event(0)?) }
    fn hipEventCreateWithFlags(out: Out<Raw>, flags: u32) { ready()?; out.put(stream::create_event(flags)?) }
    fn hipEventDestroy(event: Raw) { EVENTS.remove(event).map(drop) }
    fn hipEventRecord | hipEventRecord_spt(event: Raw, stream: Raw) { EVENTS.get(event)?.record(&*find(stream, PER_THREAD)?) }
    fn hipEventRecordWithFlags(event: Raw, stream: Raw, _flags: u32) { EVENTS.get(event)?.record(&*find(stream, PER_THREAD)?) }
    fn hipEventQuery(event: Raw) { EVENTS.get(event)?.query() }
    fn hipEventSynchronize(event: Raw) { ready()?; EVENTS.get(event)?.synchronize() }
    fn hipEventElapsedTime(milliseconds: Out<f32>, start: Raw, end: Raw) {
        milliseconds.put(EVENTS.get(end)?.since(&*EVENTS.get(start)?)?)
    }
    fn hipStreamBeginCapture | hipStreamBeginCapture_spt(stream: Raw, _mode: u32) {
        capture::begin(&*find(stream, PER_THREAD)?, graph::create())
    }
    fn hipStreamEndCapture | hipStreamEndCapture_spt(stream: Raw, out: Out<Raw>) {
        let ended = capture::end(&*find(stream, PER_THREAD)?);
        out.put_if_wanted(ended.as_ref().map_or(0, handle_of));
        ended.map(drop)
    }
    fn hipGraphCreate(out: Out<Raw>, _flags: u32) { ready()?; out.put(handle_of(&graph::create())) }
    fn hipGraphDestroy(graph: Raw) { graph::destroy(graph) }
    fn hipGraphClone(out: Out<Raw>, graph: Raw) { out.put(graph::clone(graph)?) }
    fn hipGraphAddKernelNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<KernelParameters>) {
        let KernelParameters { block, function, grid, shared, .. } = parameters.get()?;
        let work = crate::cuda::launch::kernel(&*super::kernels::kernel(function)?, grid.into(), block.into(), shared)?;
        node.put(graph::GRAPHS.get(graph)?.add_behind(Work::Kernel(work), after, count)?)
    }
    fn hipGraphInstantiate(exec: Out<Raw>, graph: Raw, _error: Raw, _log: Raw, _room: usize) { exec.put(graph::instantiate(graph)?) }
    fn hipGraphInstantiateWithFlags(exec: Out<Raw>, graph: Raw, _flags: u64) { exec.put(graph::instantiate(graph)?) }
    fn hipGraphLaunch | hipGraphLaunch_spt(exec: Raw, stream: Raw) { graph::launch_exec(exec, &*find(stream, PER_THREAD)?) }
    fn hipGraphExecDestroy(exec: Raw) { graph::destroy_exec(exec) }
}
