//! Graphs.
//!
//! Owns: their functions. Because: frameworks capture and replay through the runtime. Does not: keep any state.

use super::driver::check;
use super::{kernels, ready};
use crate::api::{Code, Dim3, In, Out, Raw, api};

fn instantiate(graph: Raw, flags: u64) -> Result<usize, Code> {
    let mut exec = 0;
    check((ready()?.cuGraphInstantiateWithFlags)(&raw mut exec, graph, flags))?;
    Ok(exec)
}

/// `cudaKernelNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParameters {
    function: usize,
    grid: Dim3,
    block: Dim3,
    shared: u32,
    arguments: usize,
    extra: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS`: the same, plus members of the driver.
#[repr(C)]
struct DriverKernelParameters {
    runtime: KernelParameters,
    kernel: usize,
    context: usize,
}

api! { Runtime;
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz(stream: Raw, mode: u32) {
        check((ready()?.cuStreamBeginCapture[usize::from(PER_THREAD)])(stream, mode))
    }
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz(stream: Raw, graph: Out<Raw>) {
        let mut found = 0;
        let result = (ready()?.cuStreamEndCapture[usize::from(PER_THREAD)])(stream, &raw mut found);
        graph.put_if_wanted(found);
        check(result)
    }
    fn cudaStreamIsCapturing | cudaStreamIsCapturing_ptsz(stream: Raw, status: Out<u32>) {
        let mut found = 0;
        check((ready()?.cuStreamIsCapturing[usize::from(PER_THREAD)])(stream, &raw mut found))?;
        status.put(found)
    }
    fn cudaGraphCreate(graph: Out<Raw>, flags: u32) {
        let mut found = 0;
        check((ready()?.cuGraphCreate)(&raw mut found, flags))?;
        graph.put(found)
    }
    fn cudaGraphDestroy(graph: Raw) { check((ready()?.cuGraphDestroy)(graph)) }
    fn cudaGraphInstantiate(exec: Out<Raw>, graph: Raw, flags: u64) { exec.put(instantiate(graph, flags)?) }
    fn cudaGraphInstantiateWithFlags(exec: Out<Raw>, graph: Raw, flags: u64) { exec.put(instantiate(graph, flags)?) }
    fn cudaGraphLaunch | cudaGraphLaunch_ptsz(exec: Raw, stream: Raw) {
        check((ready()?.cuGraphLaunch[usize::from(PER_THREAD)])(exec, stream))
    }
    fn cudaGraphUpload | cudaGraphUpload_ptsz(exec: Raw, stream: Raw) {
        check((ready()?.cuGraphUpload[usize::from(PER_THREAD)])(exec, stream))
    }
    fn cudaGraphExecDestroy(exec: Raw) { check((ready()?.cuGraphExecDestroy)(exec)) }
    fn cudaGraphAddKernelNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<KernelParameters>) {
        let mut runtime = parameters.get()?;
        runtime.function = kernels::function(runtime.function)?;
        let parameters = DriverKernelParameters { runtime, kernel: 0, context: 0 };
        let after = after.list(count)?;
        let mut found = 0;
        let add = ready()?.cuGraphAddKernelNode;
        check(add(&raw mut found, graph, after.as_ptr(), count, (&raw const parameters).cast()))?;
        node.put(found)
    }
}
