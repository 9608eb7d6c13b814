//! Graphs: work with an order, launched as one.
//!
//! Owns: nodes and their numbers, through cloning and instantiation. Because: a launch of a graph is one call and many
//! kernels, and which call made which kernel follows from these numbers alone. Does not: run them.

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use super::context::announce_with;
use super::registry::{Registry, handle_of};
use super::stream::Stream;
use super::{MEMORY, copy, launch, module, next_number, stream};
use crate::api::{Code, HostFunction, In, Out, Raw, Status, api};
use crate::device::work::{Fill, HostCall, Region, Size, Work};
use crate::device::{Tags, log};

/// Maximum nodes of one graph: an endless capture must not fill the memory.
const NODES_MAX: usize = 1 << 20;

/// A node's identity.
#[derive(Debug)]
pub(crate) struct Node {
    /// CUPTI's number, with the graph's number in the upper half.
    pub(crate) number: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    node: Arc<Node>,
    work: Work,
    after: Vec<usize>,
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Graph {
    /// CUPTI's number.
    pub(crate) number: u32,
    entries: Mutex<Vec<Entry>>,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) number: u32,
    source: u32,
    /// In topological order.
    nodes: Vec<(Work, u64, u64, Vec<usize>)>,
}

pub(crate) static GRAPHS: Registry<Graph> = Registry::new();
pub(crate) static EXECS: Registry<Exec> = Registry::new();
pub(crate) static NODES: Registry<Node> = Registry::new();
static NUMBERS: AtomicU32 = AtomicU32::new(0);

/// Callback ids of the resource domain.
mod reported {
    pub(super) const GRAPH_CREATED: u32 = 9;
    pub(super) const GRAPH_DESTROY_STARTING: u32 = 10;
    pub(super) const GRAPH_CLONED: u32 = 11;
    pub(super) const NODE_CREATED: u32 = 13;
    pub(super) const EXEC_CREATED: u32 = 18;
    pub(super) const EXEC_DESTROY_STARTING: u32 = 19;
    pub(super) const NODE_CLONED: u32 = 20;
}

/// `CUpti_GraphData`.
#[repr(C)]
#[derive(Default)]
struct GraphData {
    graph: usize,
    original_graph: usize,
    node: usize,
    original_node: usize,
    node_type: u32,
    dependency: usize,
    exec: usize,
}

fn announce(id: u32, data: &GraphData) {
    let context = super::context::current().map_or(0, |context| context.handle());
    announce_with(id, context, 0, (&raw const *data).expose_provenance());
}

/// An empty graph.
pub(crate) fn create() -> Arc<Graph> {
    let graph = Arc::new(Graph { number: next_number(&NUMBERS), entries: Mutex::default() });
    let handle = GRAPHS.add(graph.clone());
    announce(reported::GRAPH_CREATED, &GraphData { graph: handle, ..GraphData::default() });
    graph
}

impl Graph {
    fn entries(&self) -> Vec<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn node_number(&self, index: usize) -> u64 {
        u64::from(self.number) << 32 | (index as u64 + 1)
    }

    /// Adds a node after others; returns its index.
    pub(crate) fn add(self: &Arc<Self>, work: Work, after: Vec<usize>) -> Result<usize, Code> {
        self.put(work, after, None)
    }

    /// Adds a node, possibly copied from another graph.
    fn put(
        self: &Arc<Self>,
        work: Work,
        after: Vec<usize>,
        of: Option<(usize, &Arc<Node>)>,
    ) -> Result<usize, Code> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let index = entries.len();
        if index >= NODES_MAX {
            return Err(Code::OUT_OF_MEMORY);
        }
        let node = Arc::new(Node { number: self.node_number(index) });
        let handle = NODES.add(node.clone());
        entries.push(Entry { node, work, after });
        drop(entries);
        let data = GraphData {
            graph: handle_of(self),
            node: handle,
            node_type: node_type(&work),
            original_graph: of.map_or(0, |(graph, _)| graph),
            original_node: of.map_or(0, |(_, node)| handle_of(node)),
            ..GraphData::default()
        };
        announce(if of.is_some() { reported::NODE_CLONED } else { reported::NODE_CREATED }, &data);
        Ok(index)
    }

    /// Adds a node after those with these handles; returns its handle.
    pub(crate) fn add_behind(
        self: &Arc<Self>,
        work: Work,
        after: In<Raw>,
        count: usize,
    ) -> Result<usize, Code> {
        let handles = after.list(count)?;
        let entries = self.entries();
        let index_of = |handle: usize| entries.iter().position(|entry| handle_of(&entry.node) == handle);
        let after = handles.into_iter().map(|handle| index_of(handle).ok_or(Code::INVALID_VALUE));
        let index = self.add(work, after.collect::<Result<_, _>>()?)?;
        self.entries().get(index).map(|entry| handle_of(&entry.node)).ok_or(Code::INVALID_VALUE)
    }

    /// Adds dependencies between nodes, pairwise.
    fn connect(&self, before: &[usize], after: &[usize]) -> Status {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let place = |entries: &[Entry], handle: usize| {
            entries.iter().position(|entry| handle_of(&entry.node) == handle).ok_or(Code::INVALID_VALUE)
        };
        for (&before, &after) in before.iter().zip(after) {
            let (before, after) = (place(&entries, before)?, place(&entries, after)?);
            entries.get_mut(after).ok_or(Code::INVALID_VALUE)?.after.push(before);
        }
        Ok(())
    }

    /// True when a node is in `tail` or precedes one of its nodes.
    pub(crate) fn leads_to(&self, node: usize, tail: &[usize]) -> bool {
        let entries = self.entries();
        let mut seen = vec![false; entries.len()];
        let mut open = tail.to_vec();
        while let Some(at) = open.pop() {
            if at == node {
                return true;
            }
            if let (Some(entry), Some(seen)) = (entries.get(at), seen.get_mut(at))
                && !std::mem::replace(seen, true)
            {
                open.extend(&entry.after);
            }
        }
        false
    }
}

/// `CUgraphNodeType`.
const fn node_type(work: &Work) -> u32 {
    match work {
        Work::Kernel(_) => 0,
        Work::Copy(_) => 1,
        Work::Fill(_) => 2,
        Work::Host(_) => 3,
        _ => 5,
    }
}

/// The nodes in topological order; `None` for a cycle.
fn ordered(entries: &[Entry]) -> Option<Vec<usize>> {
    let mut order = Vec::with_capacity(entries.len());
    let mut placed = vec![false; entries.len()];
    // Captured graphs are already ordered: one pass.
    while order.len() < entries.len() {
        let before = order.len();
        for (i, entry) in entries.iter().enumerate() {
            if !placed[i] && entry.after.iter().all(|&at| placed.get(at).copied().unwrap_or(true)) {
                placed[i] = true;
                order.push(i);
            }
        }
        if order.len() == before {
            return None;
        }
    }
    Some(order)
}

/// Instantiates a graph. The copy's nodes have new numbers, which callbacks report together with the originals. They
/// count backwards, since no order is guaranteed.
pub(crate) fn instantiate(graph: usize) -> Result<usize, Code> {
    let source = GRAPHS.get(graph)?;
    let entries = source.entries();
    let order = ordered(&entries).ok_or(Code::INVALID_VALUE)?;
    let number = next_number(&NUMBERS);
    let mut place = vec![0; entries.len()];
    let mut nodes = Vec::with_capacity(order.len());
    for (at, &index) in order.iter().enumerate() {
        place[index] = at;
        let Entry { node, work, after } = &entries[index];
        let after: Vec<usize> = after.iter().filter_map(|&before| place.get(before).copied()).collect();
        let copy = Arc::new(Node { number: u64::from(number) << 32 | (order.len() - at) as u64 });
        let handle = NODES.add(copy.clone());
        let data = GraphData {
            graph,
            original_graph: graph,
            node: handle,
            original_node: handle_of(node),
            node_type: node_type(work),
            ..GraphData::default()
        };
        announce(reported::NODE_CLONED, &data);
        // The handle cannot be obtained later.
        NODES.remove(handle)?;
        nodes.push((*work, copy.number, node.number, after));
    }
    for (_, node, _, after) in &nodes {
        let tags = Tags { graph: number, node: *node, ..Tags::default() };
        for before in after {
            log::write_edge(nodes[*before].1, &tags);
        }
    }
    let exec = EXECS.add(Arc::new(Exec { number, source: source.number, nodes }));
    announce(reported::EXEC_CREATED, &GraphData { graph, exec, ..GraphData::default() });
    Ok(exec)
}

/// Launches an executable graph.
pub(crate) fn launch_exec(exec: usize, stream: &Stream) -> Status {
    super::context::started()?;
    let exec = EXECS.get(exec)?;
    if stream.capture.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    let tags = Tags { graph: exec.number, source_graph: exec.source, ..stream.tags() };
    let nodes = exec.nodes.iter().map(|(work, node, source_node, after)| {
        (*work, Tags { node: *node, source_node: *source_node, ..tags }, after.clone())
    });
    stream.context.device.submit_graph(stream.lane, nodes.collect(), tags);
    Ok(())
}

/// A copy of a graph.
pub(crate) fn clone(graph: usize) -> Result<usize, Code> {
    let source = GRAPHS.get(graph)?;
    let copy = create();
    for entry in source.entries() {
        copy.put(entry.work, entry.after, Some((graph, &entry.node)))?;
    }
    let handle = handle_of(&copy);
    announce(
        reported::GRAPH_CLONED,
        &GraphData { graph: handle, original_graph: graph, ..GraphData::default() },
    );
    Ok(handle)
}

/// Destroys a graph; its instances stay.
pub(crate) fn destroy(graph: usize) -> Status {
    announce(reported::GRAPH_DESTROY_STARTING, &GraphData { graph, ..GraphData::default() });
    for entry in GRAPHS.remove(graph)?.entries() {
        NODES.remove(handle_of(&entry.node))?;
    }
    Ok(())
}

/// Destroys an executable graph.
pub(crate) fn destroy_exec(exec: usize) -> Status {
    announce(reported::EXEC_DESTROY_STARTING, &GraphData { exec, ..GraphData::default() });
    EXECS.remove(exec).map(drop)
}

/// `CUDA_KERNEL_NODE_PARAMS`, the part common to both versions.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParameters {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    arguments: usize,
    extra: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FillParameters {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostParameters {
    function: Option<HostFunction>,
    data: usize,
}

/// The kernel part of `CUgraphNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NodeParameters {
    kind: u32,
    reserved: [u32; 3],
    kernel: KernelParameters,
}

/// Adds a node of a kind (`CUgraphNodeType`): a kernel, or an empty one.
fn add_node(
    graph: usize,
    after: In<Raw>,
    count: usize,
    parameters: In<NodeParameters>,
) -> Result<usize, Code> {
    let NodeParameters { kind, kernel, .. } = parameters.get()?;
    let work = match kind {
        0 => {
            let function = module::function(kernel.function)?;
            Work::Kernel(launch::kernel(&function, kernel.grid, kernel.block, kernel.shared)?)
        }
        5 => Work::Marker,
        _ => return Err(Code::INVALID_VALUE),
    };
    GRAPHS.get(graph)?.add_behind(work, after, count)
}

fn fill_of(parameters: &FillParameters) -> Work {
    Work::Fill(Fill {
        to: Region { address: parameters.to, pitch: parameters.pitch, plane: 0 },
        size: Size(parameters.width * parameters.element as usize, parameters.height, 1),
        value: parameters.value,
        value_bytes: parameters.element as usize,
        place: MEMORY.place(parameters.to),
        is_async: true,
    })
}

api! { Driver;
    fn cuGraphCreate(graph: Out<Raw>, _flags: u32) { graph.put(handle_of(&create())) }
    fn cuGraphDestroy(graph: Raw) { destroy(graph) }
    fn cuGraphClone(out: Out<Raw>, graph: Raw) { out.put(clone(graph)?) }
    fn cuGraphAddKernelNode | cuGraphAddKernelNode_v2(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<KernelParameters>) {
        let parameters = parameters.get()?;
        let function = module::function(parameters.function)?;
        let work = launch::kernel(&function, parameters.grid, parameters.block, parameters.shared)?;
        node.put(GRAPHS.get(graph)?.add_behind(Work::Kernel(work), after, count)?)
    }
    fn cuGraphAddMemsetNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<FillParameters>, _context: Raw) {
        let work = fill_of(&parameters.get()?);
        node.put(GRAPHS.get(graph)?.add_behind(work, after, count)?)
    }
    fn cuGraphAddMemcpyNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<copy::Parameters3>, _context: Raw) {
        let work = Work::Copy(parameters.get()?.copy(true));
        node.put(GRAPHS.get(graph)?.add_behind(work, after, count)?)
    }
    fn cuGraphAddHostNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<HostParameters>) {
        let parameters = parameters.get()?;
        let function = parameters.function.ok_or(Code::INVALID_VALUE)?;
        let work = Work::Host(HostCall::Plain(function, parameters.data));
        node.put(GRAPHS.get(graph)?.add_behind(work, after, count)?)
    }
    fn cuGraphAddEmptyNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize) {
        node.put(GRAPHS.get(graph)?.add_behind(Work::Marker, after, count)?)
    }
    fn cuGraphAddNode(node: Out<Raw>, graph: Raw, after: In<Raw>, count: usize, parameters: In<NodeParameters>) {
        node.put(add_node(graph, after, count, parameters)?)
    }
    fn cuGraphAddNode_v2(node: Out<Raw>, graph: Raw, after: In<Raw>, _edges: Raw, count: usize, parameters: In<NodeParameters>) {
        node.put(add_node(graph, after, count, parameters)?)
    }
    fn cuGraphAddDependencies(graph: Raw, before: In<Raw>, after: In<Raw>, count: usize) {
        GRAPHS.get(graph)?.connect(&before.list(count)?, &after.list(count)?)
    }
    fn cuGraphAddDependencies_v2(graph: Raw, before: In<Raw>, after: In<Raw>, _edges: Raw, count: usize) {
        GRAPHS.get(graph)?.connect(&before.list(count)?, &after.list(count)?)
    }
    fn cuGraphGetNodes(graph: Raw, nodes: Out<Raw>, count: Out<usize>) {
        let entries = GRAPHS.get(graph)?.entries();
        if !nodes.is_null() {
            for (i, entry) in entries.iter().enumerate().take(count.get()?) {
                nodes.put_at(i, handle_of(&entry.node))?;
            }
        }
        count.put(entries.len())
    }
    fn cuGraphInstantiate | cuGraphInstantiate_v2(exec: Out<Raw>, graph: Raw, _error: Raw, _log: Raw, _room: usize) {
        exec.put(instantiate(graph)?)
    }
    fn cuGraphInstantiateWithFlags(exec: Out<Raw>, graph: Raw, _flags: u64) { exec.put(instantiate(graph)?) }
    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz(exec: Out<Raw>, graph: Raw, _parameters: Raw) {
        exec.put(instantiate(graph)?)
    }
    fn cuGraphLaunch | cuGraphLaunch_ptsz(exec: Raw, stream: Raw) { launch_exec(exec, &*stream::find(stream, PER_THREAD)?) }
    fn cuGraphUpload | cuGraphUpload_ptsz(exec: Raw, _stream: Raw) { EXECS.get(exec).map(drop) }
    fn cuGraphExecDestroy(exec: Raw) { destroy_exec(exec) }
}
