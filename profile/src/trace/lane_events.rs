//! Events of lanes: each event of a thread or a stream as a whole, with what caused it.
//!
//! Owns: [`LaneEvent`] and [`EventLanes::events`]. Because: segments show the innermost event at each moment, but
//! drawing nested events in rows, or an arrow from a launch to its work, needs whole events. Does not: draw, or align
//! clocks.

use super::lanes::{Event, EventClass, EventLane, EventLanes};
use super::{HostKind, RankTrace};
use crate::intern::Id;
use crate::units::{Bytes, Nanos};

/// An event as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneEvent<'l> {
    /// Its place in its rank's trace.
    pub event: Event,
    /// Its name in the trace.
    pub name: &'l str,
    /// Its class.
    pub class: EventClass,
    /// Whether it is a training step.
    pub is_step: bool,
    /// Begin, since the first event of the job.
    pub begin: Nanos,
    /// Length.
    pub duration: Nanos,
    /// Bytes of a copy or a fill; 0 for anything else.
    pub bytes: Bytes,
    /// Number that connects work with its launch; 0 for none, and for an event of a thread.
    pub correlation: u64,
    /// The call that launched it, or for a call the work that it waited for, of the same rank.
    pub cause: Option<Event>,
}

impl EventLanes {
    /// The events of a lane by begin; of a thread's events that begin together, the longer one first.
    pub fn events<'l>(&'l self, lane: &'l EventLane) -> Box<dyn Iterator<Item = LaneEvent<'l>> + 'l> {
        let Some(of) = self.job.ranks().get(lane.rank) else { return Box::new(std::iter::empty()) };
        if lane.is_stream {
            let ids = of.links.streams().get(lane.number).map_or(&[][..], Vec::as_slice);
            Box::new(ids.iter().filter_map(move |id| device(of, lane, *id)))
        } else {
            let ids = of.links.threads().get(lane.number).map_or(&[][..], Vec::as_slice);
            Box::new(ids.iter().filter_map(move |id| host(of, lane, *id)))
        }
    }

    /// Number of a lane's rank, and its device if it is a stream.
    pub fn rank_and_device(&self, lane: &EventLane) -> (u32, Option<u32>) {
        let Some(of) = self.job.ranks().get(lane.rank) else { return (0, None) };
        let stream = of.trace.streams().get(lane.number).filter(|_| lane.is_stream);
        (of.rank, stream.map(|stream| stream.device))
    }
}

fn device<'l>(of: &'l RankTrace, lane: &EventLane, id: Id<super::DeviceOp>) -> Option<LaneEvent<'l>> {
    let op = of.trace.device.get(id)?;
    let name = of.trace.name(op.name);
    Some(LaneEvent {
        event: Event::Device(id),
        name,
        class: EventClass::of_device(op.kind, name),
        is_step: false,
        begin: lane.at(op.begin),
        duration: op.duration,
        bytes: op.bytes,
        correlation: op.correlation,
        cause: of.links.launch(id).call().map(Event::Host),
    })
}

fn host<'l>(of: &'l RankTrace, lane: &EventLane, id: Id<super::HostOp>) -> Option<LaneEvent<'l>> {
    // The whole process is not an event of a thread.
    let op = of.trace.host.get(id).filter(|op| op.kind != HostKind::Process)?;
    Some(LaneEvent {
        event: Event::Host(id),
        name: of.trace.name(op.name),
        class: EventClass::of_host(op.kind),
        is_step: op.kind == HostKind::Step,
        begin: lane.at(op.begin),
        duration: op.duration,
        bytes: Bytes(0),
        correlation: 0,
        cause: of.links.host_wait(id).map(|wait| Event::Device(wait.on)),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::trace::{Event, EventLanes, Job, text};

    #[test]
    fn events_come_whole_with_what_caused_them() {
        let input = "op main 0..100 outer\ncall main 10..20 cudaLaunchKernel #1\nkernel 0/7 30..50 gemm #1";
        let job = Job::new(vec![("a.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        let lanes = EventLanes::new(Arc::new(job), |_| 0);
        let shown: Vec<String> = lanes
            .lanes()
            .iter()
            .flat_map(|lane| lanes.events(lane))
            .map(|of| {
                let cause = if matches!(of.cause, Some(Event::Host(_))) { " launched" } else { "" };
                format!("{} {}+{} #{}{cause}", of.name, of.begin.0, of.duration.0, of.correlation)
            })
            .collect();
        let expect = ["gemm 30000+20000 #1 launched", "outer 0+100000 #0", "cudaLaunchKernel 10000+10000 #0"];
        assert_eq!(shown, expect);
        let of = lanes.lanes().iter().map(|lane| lanes.rank_and_device(lane)).collect::<Vec<_>>();
        assert_eq!(of, [(0, Some(0)), (0, None)]);
    }
}
