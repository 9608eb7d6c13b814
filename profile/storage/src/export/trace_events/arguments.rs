//! What each event of a trace is called in the formats, and its arguments.
//!
//! Owns: names of categories and arguments, as PyTorch's profiler has them and as the importer reads them back.
//! Because: all formats have the same ones. Does not: place events in time.

use std::borrow::Cow;

use deepctx_profile::intern::Id;
use deepctx_profile::trace::{
    Basis, DeviceKind, DeviceOp, DeviceRange, HostKind, HostOp, MemoryEvent, Status, Stream, Sync, SyncKind,
    Trace, WakeUpEvent, Waker,
};

use super::{Argument, DrawnEvent, EventId, Events};
use crate::host_kind::host_kind;

/// Arrow numbers per rank: a trace has fewer than 2^32 events, and 2^12 ranks keep them exact in a script.
const FLOWS_OF_RANK: u64 = 1 << 32;

impl Events<'_> {
    /// An event in drawable form; `None` if it is not of this rank.
    pub(super) fn drawn(&self, rank: usize, id: EventId) -> Option<DrawnEvent<'_>> {
        let trace = &self.sides.get(rank)?.of.trace;
        Some(match id {
            EventId::Host(id) => self.host(rank, id, &trace.host.get(id)?),
            EventId::Device(id) => self.device(rank, id, &trace.device.get(id)?),
            EventId::Sync(id) => self.sync(rank, &trace.syncs.get(id)?),
            EventId::Range(id) => self.range(rank, &trace.device_ranges.get(id)?),
            EventId::Memory(id) => self.memory(rank, &trace.memory.get(id)?),
        })
    }

    fn host(&self, rank: usize, id: Id<HostOp>, op: &HostOp) -> DrawnEvent<'_> {
        let side = &self.sides[rank];
        let trace = &side.of.trace;
        let name = trace.name(op.name);
        let own_word = side.categories.get(&id).map(|of| trace.name(of.category));
        let category = own_word.unwrap_or(host_category(op.kind));
        let mut arguments = Vec::new();
        if host_kind(category, name) != Some(op.kind) {
            arguments.push(("deepctx kind", Argument::Text(op.kind.name().into())));
        }
        if op.correlation != 0 {
            arguments.push(("correlation", Argument::Number(op.correlation)));
        }
        if let Status::Returned(number) = op.status {
            arguments.push(("result code", Argument::Signed(number.into())));
        }
        if let Some(wake_ups) = side.wake_ups.get(&id) {
            arguments.push(("wake-ups", Argument::Text(wake_ups_text(trace, op, wake_ups).into())));
        }
        let launched = side.launched.get(&id).into_iter().flatten();
        DrawnEvent {
            row: self.rows.thread(rank, op.thread.index()),
            category,
            name,
            begin: op.begin,
            duration: Some(op.duration),
            arguments,
            flows_out: launched.map(|number| flow(rank, *number)).collect(),
            flow_in: None,
        }
    }

    fn device(&self, rank: usize, id: Id<DeviceOp>, op: &DeviceOp) -> DrawnEvent<'_> {
        let side = &self.sides[rank];
        let trace = &side.of.trace;
        let category = match op.kind {
            DeviceKind::Kernel => "kernel",
            DeviceKind::Copy => "gpu_memcpy",
            DeviceKind::Fill => "gpu_memset",
        };
        let mut arguments = stream_arguments(trace, Some(op.stream));
        let mut put = |name, number| arguments.push((name, Argument::Number(number)));
        put("External id", 0);
        if op.correlation != 0 {
            put("correlation", op.correlation);
        }
        if op.bytes.0 != 0 {
            put("bytes", op.bytes.0);
        }
        if op.graph_node != 0 {
            put("graph node id", op.graph_node);
        }
        match op.launched_by {
            Basis::Exact => {}
            Basis::ByOrder => arguments.push(("launched by", Argument::Text("by-order".into()))),
            Basis::Inferred => arguments.push(("launched by", Argument::Text("inferred".into()))),
        }
        if let Some(note) = side.collectives.get(&id) {
            arguments.extend([
                ("Collective name", Argument::Text(trace.name(note.operation).into())),
                ("Process Group Name", Argument::Text(trace.name(note.communicator).into())),
                ("Group size", Argument::Number(note.group_size.into())),
                ("In msg nelems", Argument::Number(note.elements_in)),
                ("dtype", Argument::Text(trace.name(note.element).into())),
            ]);
            let ranks = side.ranks.get(&note.communicator);
            arguments.extend(ranks.map(|list| ("Process Group Ranks", Argument::Text(list.as_str().into()))));
            arguments.extend(note.ordinal.map(|ordinal| ("Collective ordinal", Argument::Number(ordinal))));
            let peer = if trace.name(note.operation) == "send" { "Dst Rank" } else { "Src Rank" };
            arguments.extend(note.peer.map(|rank| (peer, Argument::Number(rank.into()))));
        }
        let is_launched = side.of.links.launch(id).call().is_some();
        DrawnEvent {
            row: self.rows.of_stream(rank, op.stream.index()),
            category,
            name: trace.name(op.name),
            begin: op.begin,
            duration: Some(op.duration),
            arguments,
            flows_out: Vec::new(),
            flow_in: is_launched.then(|| flow(rank, id.number())),
        }
    }

    fn sync(&self, rank: usize, sync: &Sync) -> DrawnEvent<'_> {
        let trace = &self.sides[rank].of.trace;
        let stream = |id: Option<Id<Stream>>| id.and_then(|id| trace.streams().get(id.index()));
        let on = stream(sync.recorded_on);
        let mut arguments = stream_arguments(trace, sync.stream);
        let device = stream(sync.stream).or(on).map_or(0, |of| of.device);
        if sync.stream.is_none() {
            arguments.insert(0, ("device", Argument::Number(device.into())));
        }
        arguments.push(("correlation", Argument::Number(sync.correlation)));
        if let Some(record) = sync.record {
            arguments.push(("wait_on_cuda_event_record_corr_id", Argument::Number(record)));
        }
        if let Some(number) = on.and_then(|of| of.stream) {
            arguments.push(("wait_on_stream", Argument::Number(number)));
        }
        if let Some(on) = on.filter(|on| on.device != device) {
            arguments.push(("wait_on_device", Argument::Number(on.device.into())));
        }
        DrawnEvent {
            row: match sync.stream {
                Some(stream) => self.rows.of_stream(rank, stream.index()),
                None => self.rows.device(rank, device),
            },
            category: "cuda_sync",
            name: match sync.kind {
                SyncKind::Stream => "Stream Sync",
                SyncKind::Event => "Event Sync",
                SyncKind::Context => "Context Sync",
                SyncKind::StreamWait => "Stream Wait Event",
            },
            begin: sync.begin,
            duration: Some(sync.duration),
            arguments,
            flows_out: Vec::new(),
            flow_in: None,
        }
    }

    fn range(&self, rank: usize, range: &DeviceRange) -> DrawnEvent<'_> {
        let trace = &self.sides[rank].of.trace;
        DrawnEvent {
            row: self.rows.of_stream(rank, range.stream.index()),
            category: "gpu_user_annotation",
            name: trace.name(range.name),
            begin: range.begin,
            duration: Some(range.duration),
            arguments: stream_arguments(trace, Some(range.stream)),
            flows_out: Vec::new(),
            flow_in: None,
        }
    }

    fn memory(&self, rank: usize, event: &MemoryEvent) -> DrawnEvent<'_> {
        let device = event.device.map_or(-1, i64::from);
        let mut arguments = vec![
            ("Device Type", Argument::Number(event.device.is_some().into())),
            ("Device Id", Argument::Signed(device)),
            ("Bytes", Argument::Signed(event.bytes)),
        ];
        let mut put = |name, number| arguments.push((name, Argument::Number(number)));
        if event.address != 0 {
            put("Addr", event.address);
        }
        if let Some(bytes) = event.allocated {
            put("Total Allocated", bytes.0);
        }
        if let Some(bytes) = event.reserved {
            put("Total Reserved", bytes.0);
        }
        DrawnEvent {
            row: self.rows.thread(rank, event.thread.index()),
            category: "cpu_instant_event",
            name: "[memory]",
            begin: event.at,
            duration: None,
            arguments,
            flows_out: Vec::new(),
            flow_in: None,
        }
    }
}

fn flow(rank: usize, number: u32) -> u64 {
    rank as u64 * FLOWS_OF_RANK + u64::from(number) + 1
}

fn host_category(kind: HostKind) -> &'static str {
    match kind {
        HostKind::Operator => "cpu_op",
        HostKind::RuntimeCall => "cuda_runtime",
        HostKind::DriverCall => "cuda_driver",
        HostKind::Python => "python_function",
        HostKind::Layer => "layer",
        HostKind::Annotation | HostKind::Step => "user_annotation",
        HostKind::Process => "process",
        HostKind::OffCpu => "off_cpu",
        HostKind::Other | HostKind::UnknownCategory => "",
    }
}

/// Device and stream; `-1` for none, like CUPTI's number for none in some versions.
fn stream_arguments<'e>(trace: &Trace, stream: Option<Id<Stream>>) -> Vec<(&'static str, Argument<'e>)> {
    let of = stream.and_then(|stream| trace.streams().get(stream.index()));
    let device = of.map(|of| ("device", Argument::Number(of.device.into())));
    let number = match of.and_then(|of| of.stream) {
        Some(number) => Argument::Number(number),
        None => Argument::Signed(-1),
    };
    device.into_iter().chain([("stream", number)]).collect()
}

/// What ended an off-CPU time, and how long after its start.
fn wake_ups_text(trace: &Trace, op: &HostOp, wake_ups: &[WakeUpEvent]) -> String {
    let row = |event: &WakeUpEvent| {
        let after = i128::from(event.at.as_nanos()) - i128::from(op.begin.as_nanos());
        let by: Vec<Cow<'_, str>> = match event.by {
            Waker::Thread(thread) => {
                let of = trace.threads().get(thread.index());
                let (process, thread) =
                    of.map_or(("", ""), |of| (trace.name(of.process), trace.name(of.thread)));
                vec!["thread".into(), process.into(), thread.into()]
            }
            Waker::OtherProcess { pid, tid } => {
                vec!["other".into(), pid.to_string().into(), tid.to_string().into()]
            }
            Waker::Outside => vec!["outside".into()],
            Waker::Interrupt => vec!["interrupt".into()],
        };
        serde_json::json!([after as i64, by])
    };
    serde_json::Value::from_iter(wake_ups.iter().map(row)).to_string()
}
