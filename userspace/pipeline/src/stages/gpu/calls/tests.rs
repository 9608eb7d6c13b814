use deepctx_common::call::{Call, Return, return_flag};
use deepctx_common::record::RecordHeader;
use deepctx_events::{
    ContextCall, Direction, Event, Family, GpuCall, GraphCall, LaunchCall, Role, SyncScope, Timing,
    TransferCall,
};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::super::graphs::{NodeKind, RecordedNode};
use super::super::process::Process;
use super::super::{Gpu, TimedCall};
use crate::config::Config;
use crate::decode::{Arguments, Words};
use crate::input::SiteInfo;
use crate::stage::Stage as _;

/// Process 7, and its calls so far.
struct Program {
    gpu: Gpu,
    profile: Profile,
    calls: u64,
}

impl Program {
    fn new() -> Self {
        let mut gpu = Gpu::new(&Config::default());
        gpu.processes.follow(7, 0, 1);
        Self { gpu, profile: Profile::new(Default::default(), Default::default()), calls: 0 }
    }

    fn process(&mut self) -> &mut Process {
        self.gpu.processes.get_mut(7).unwrap()
    }

    /// A thread makes a call, ten nanoseconds after the call before.
    fn call(&mut self, tid: u32, family: Family, gpu: GpuCall, given: &[(Role, u64)]) {
        self.calls += 1;
        let (event, site) = (Event::Gpu(gpu), self.calls as u32);
        let roles = given.iter().map(|(role, _)| *role).collect();
        self.gpu.learn(vec![SiteInfo { site, event, symbol: "f".into(), family, roles }]);
        let arguments = given.len() as u16;
        let call = Call { site, event: event.number(), arguments, ..Call::default() };
        let bytes: Vec<u8> = given.iter().flat_map(|(_, value)| value.to_ne_bytes()).collect();
        let at = TimedCall {
            number: self.calls,
            time_ns: self.calls * 10,
            pid: 7,
            tid,
            thread: NodeId::ROOT,
            node: NodeId::ROOT,
            has_stack: true,
            arguments: Arguments { call, values: Words::of(&bytes), text: b"" },
        };
        self.gpu.call(&at, &mut self.profile);
    }

    fn graph(&mut self, graph: GraphCall, given: &[(Role, u64)]) {
        self.call(7, Family::CudaDriver, GpuCall::Graph(graph), given);
    }

    /// The last call returns, after five nanoseconds.
    fn returns(&mut self, result: u64, out: u64) {
        let header = RecordHeader { time_ns: self.calls * 10 + 5, ..RecordHeader::default() };
        let (call, flags) = (self.calls, return_flag::OUT);
        let record = Return { header, pid: 7, call, result, out, flags, ..Return::default() };
        self.gpu.returned(&record, &mut self.profile);
    }
}

fn recorded(number: u32) -> RecordedNode {
    let (node, frame) = (NodeId::ROOT, FrameId::from_number(number));
    RecordedNode { node, frame, what: NodeKind::Kernel, bytes: 0, order: number.into() }
}

#[test]
fn a_prefetch_awaits_no_activity() {
    let mut program = Program::new();
    program.process().collecting = true;
    let copy = TransferCall::Copy(Direction::HostToDevice, Timing::Async);
    let mut waiting = Vec::new();
    for transfer in [copy, TransferCall::Prefetch] {
        program.call(7, Family::CudaDriver, GpuCall::Transfer(transfer), &[(Role::Bytes, 64)]);
        waiting.push(program.gpu.work.len());
    }
    let info = &program.process().info;
    assert_eq!((waiting, info.transfers, info.transfers_collected), (vec![1, 1], 2, 1));
}

#[test]
fn hip_waits_are_for_the_device_of_their_thread() {
    let mut program = Program::new();
    // Thread 7 chooses no device: it has the first.
    program.process().from_start = true;
    program.call(8, Family::Hip, GpuCall::Context(ContextCall::Device), &[(Role::Device, 1)]);
    for (tid, stream) in [(7, 5), (8, 6)] {
        program.call(tid, Family::Hip, GpuCall::Launch(LaunchCall::Kernel), &[(Role::Stream, stream)]);
    }
    // The launches were at 20 and 30, the waits end at 45 and 55.
    for (tid, bounds) in [(8, (1, 15)), (7, (2, 15 + 35))] {
        program.call(tid, Family::Hip, GpuCall::Sync(SyncScope::Device), &[]);
        program.returns(0, 0);
        let bounded = program.profile.tree.total(Metric::GpuTimeBound);
        assert_eq!((bounded.count, bounded.sum), bounds, "thread {tid}");
    }
}

#[test]
fn a_device_chosen_before_the_capture_is_unknown() {
    let mut program = Program::new();
    program.call(8, Family::Hip, GpuCall::Context(ContextCall::Device), &[(Role::Device, 0)]);
    for (tid, stream) in [(7, 5), (8, 6)] {
        program.call(tid, Family::Hip, GpuCall::Launch(LaunchCall::Kernel), &[(Role::Stream, stream)]);
    }
    program.call(7, Family::Hip, GpuCall::Sync(SyncScope::Device), &[]);
    program.returns(0, 0);
    assert_eq!(program.profile.tree.total(Metric::GpuTimeBound).count, 0);
}

#[test]
fn a_destroyed_graph_leaves_its_handle_empty() {
    let mut program = Program::new();
    program.process().graphs.add(0x70, recorded(3));
    program.process().graphs.instantiated(0x80, 0x70);
    program.graph(GraphCall::Release, &[(Role::Graph, 0x70)]);
    assert!(program.process().graphs.orders(0x70).is_empty());
    // It can still be launched.
    assert!(program.process().graphs.launchable(0x80).is_some());
    program.graph(GraphCall::Release, &[(Role::GraphExec, 0x80)]);
    assert!(program.process().graphs.launchable(0x80).is_none());
}

#[test]
fn an_update_that_fails_changes_nothing() {
    let mut program = Program::new();
    program.process().graphs.add(0x70, recorded(3));
    program.process().graphs.add(0x71, recorded(4));
    program.process().graphs.instantiated(0x80, 0x70);
    for (result, frame) in [(1, 3), (0, 4)] {
        program.graph(GraphCall::Update, &[(Role::GraphExec, 0x80), (Role::Graph, 0x71)]);
        program.returns(result, 0);
        let nodes = program.process().graphs.launchable(0x80).unwrap().nodes();
        assert_eq!(nodes[0].frame.number(), frame, "result {result}");
    }
}

#[test]
fn a_graph_launched_into_a_capture_does_not_run() {
    let mut program = Program::new();
    program.process().collecting = true;
    program.process().graphs.add(0x70, recorded(3));
    program.process().graphs.instantiated(0x80, 0x70);
    let launch = [(Role::GraphExec, 0x80), (Role::Stream, 5)];
    program.graph(GraphCall::CaptureBegin, &[(Role::Stream, 5)]);
    program.graph(GraphCall::Launch, &launch);
    let info = &program.process().info;
    assert_eq!((info.captured, info.graph_launches), (1, 0));
    program.graph(GraphCall::CaptureEnd, &[(Role::Stream, 5)]);
    program.returns(0, 0x71);
    // Its nodes are part of the captured graph, without an order.
    assert_eq!(program.process().graphs.orders(0x71), [0]);
    program.graph(GraphCall::Launch, &launch);
    let info = &program.process().info;
    assert_eq!((info.captured, info.graph_launches), (1, 1));
}
