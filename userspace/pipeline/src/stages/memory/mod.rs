//! Tensors: memory that a framework's allocators hand out and take back → figures in the tree, by allocating context.
//!
//! Owns: the live allocations of each process on each device ([`pool`], [`processes`]), and the meaning of allocator
//! calls. Because:
//! a free passes only an address, while the context to charge is kept with the allocation; and a device's peak is
//! recognized only when usage falls again. Does not: guess: a free without a known allocation is counted, and
//! subtracted from no context.
//!
//! ```text
//!  allocation ─▶ …callers ▸ [memory] cuda:0   tensor-bytes               at once
//!  free ───────▶ the same place               tensor-returned-bytes      when it is freed, wherever that is
//!                the same place               peak-bytes, live-bytes     at the end
//!  both ───────▶ process ▸ [memory] cuda:0    live-bytes, reserved-bytes by time
//! ```
//!
//! Two sources may report one device allocation: the allocator's own report, and the mark at the request
//! ([`TensorEvent::Request`]). The report counts; the mark adds the requested size. Only without reports (caching is
//! switched off, another build of the library) an allocation is known by its mark alone. The source that reported an
//! allocation also reports its free.

mod pool;
mod processes;

use deepctx_common::call::call_flag;
use deepctx_common::reasons;
use deepctx_common::record::StackSample;
use deepctx_events::{Event, Family, Role, TensorEvent};
use deepctx_profile::device::memory::TENSOR_ROWS_LEFT_OUT;
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::FrameId;
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use crate::attribute;
use crate::config::Config;
use crate::decode::Arguments;
use crate::input::SiteInfo;
use crate::reason::{STACK_LIMITED, STACK_NOT_TAKEN};
use crate::sites::Sites;
use crate::spans::{CounterValue, RecordBuffer, SingleEvent};
use crate::stage::{
    CallAccounting, CallContext, CallRecord, CallStack, ProcessChange, SiteTable, Stage, StageGap,
};
use crate::trace_window::TraceLevel;
use pool::{AllocationOutcome, FreeOutcome, Levels, Reporter};
use processes::Processes;

reasons! {
    class Gap, page "memory.md";
    const TENSOR_FREE_UNKNOWN = "tensor-free-unknown",
        "tensors were freed whose allocation was not seen: it was before the capture began, or between two duty windows";
    const TENSOR_NOT_WATCHED = "tensor-not-watched",
        "tensors were live when the duty window of their probes ended: when they are freed is not seen";
    const TENSOR_FREE_MISSED = "tensor-free-missed",
        "tensors were allocated where others were: that those were freed was not seen";
    const TENSOR_FREE_DIFFERS = "tensor-free-differs",
        "tensors were freed with another size than they were allocated with";
    const TENSORS_FULL = "tensors-full",
        "allocations of tensors were not followed: more are live, or on more devices, than are remembered";
    const TENSOR_WITHOUT_STACK = "tensor-without-stack",
        "allocations of tensors have no stack of their own: stacks are limited, or no scratch memory was free";
    const TENSOR_UNREADABLE = "tensor-unreadable",
        "calls of allocators had arguments that could not be read";
    const TENSOR_CALL_LOST = "tensor-call-lost",
        "allocations and frees of tensors were counted by their probe and never came";
}

/// An allocation that was reported.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    address: u64,
    bytes: u64,
    reporter: Reporter,
}

/// Kinds of devices, by number (`c10::DeviceType`, c10/core/DeviceType.h).
const KINDS: [&str; 21] = [
    "cpu",
    "cuda",
    "mkldnn",
    "opengl",
    "opencl",
    "ideep",
    "hip",
    "fpga",
    "maia",
    "xla",
    "vulkan",
    "metal",
    "xpu",
    "mps",
    "meta",
    "hpu",
    "ve",
    "lazy",
    "ipu",
    "mtia",
    "privateuseone",
];

/// A device as the framework counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    kind: u8,
    /// Negative when there is only one.
    number: i8,
}

impl Device {
    const CPU: Self = Self { kind: 0, number: -1 };

    fn packed(value: u64) -> Self {
        let device = Self { kind: value as u8, number: (value >> 8) as i8 };
        if device.kind == Self::CPU.kind { Self::CPU } else { device }
    }

    fn cuda(number: u64) -> Self {
        Self { kind: 1, number: number as i8 }
    }

    fn name(self) -> String {
        let kind =
            KINDS.get(usize::from(self.kind)).map_or_else(|| format!("device-{}", self.kind), |&k| k.into());
        if self.number < 0 { kind } else { format!("{kind}:{}", self.number) }
    }
}

/// The stage's state.
#[derive(Debug, Default)]
pub(crate) struct TensorMemory {
    /// By number of the probe.
    sites: Sites<Site>,
    processes: Processes,
    counts: Counts,
    /// Levels of devices, for a trace.
    pub(crate) counters: RecordBuffer<CounterValue>,
}

#[derive(Debug)]
struct Site {
    event: TensorEvent,
    /// It is a mark within a function, not a function's entry.
    marked: bool,
}

/// Outcomes of allocations and frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Frees of memory whose allocation was not seen.
    free_unknown: u64,
    /// Frees of a different number of bytes than was allocated.
    free_differs: u64,
    /// Allocations at a live address: the free was not seen.
    free_missed: u64,
    /// Allocations that their pool has no room for.
    full: u64,
    /// Allocations without a stack of their own.
    without_stack: u64,
    /// Arguments that could not be read.
    unreadable: u64,
    /// Live allocations when a duty window ended.
    not_watched: u64,
}

impl TensorMemory {
    /// Whether a report is of an allocation that no other probe reports.
    fn is_allocation(&self, arguments: &Arguments<'_>) -> bool {
        self.sites.argument(arguments, Role::Bytes).is_some_and(|bytes| bytes.cast_signed() > 0)
            && self.sites.argument(arguments, Role::PackedDevice).map(Device::packed) != Some(Device::CPU)
    }

    /// A call of an allocator. `node`: its caller's context, `None` without a stack. `thread`: its thread's node.
    fn called(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        thread: NodeId,
        node: Option<NodeId>,
        profile: &mut Profile,
    ) {
        let now_ns = who.header.time_ns;
        let Some(&Site { event, marked: is_mark }) = self.sites.record(&arguments.call) else { return };
        let Some(address) = self.sites.argument(arguments, Role::Address) else {
            self.counts.unreadable += 1;
            return;
        };
        let bytes = self.sites.argument(arguments, Role::Bytes);
        let caller = Caller { thread, node, flags: arguments.call.flags };
        match (event, bytes) {
            (TensorEvent::Free, _) => self.freed(who.pid, address, now_ns, profile),
            (TensorEvent::Alloc | TensorEvent::Request, Some(bytes)) => {
                let marked = self.sites.argument(arguments, Role::Device).map(Device::cuda);
                // A mark states its device: without one, it is of an unknown device and not of the host.
                if is_mark && marked.is_none() {
                    self.counts.unreadable += 1;
                    return;
                }
                let Some(pool) =
                    self.processes.pool(who.pid, marked.unwrap_or(Device::CPU), thread, now_ns, profile)
                else {
                    return;
                };
                if marked.is_some() && pool.on_request(address, bytes) {
                    return;
                }
                let reporter = if marked.is_some() { Reporter::Mark } else { Reporter::Report };
                self.allocated(
                    who.pid,
                    marked.unwrap_or(Device::CPU),
                    Allocation { address, bytes, reporter },
                    caller,
                    now_ns,
                    profile,
                );
            }
            (TensorEvent::Report, Some(bytes)) => {
                self.reported(who, arguments, address, bytes.cast_signed(), caller, profile);
            }
            _ => self.counts.unreadable += 1,
        }
    }

    /// An allocator reported that this many bytes were allocated at an address, or, if negative, freed.
    fn reported(
        &mut self,
        who: &StackSample,
        arguments: &Arguments<'_>,
        address: u64,
        change: i64,
        caller: Caller,
        profile: &mut Profile,
    ) {
        let now_ns = who.header.time_ns;
        let device = match self.sites.argument(arguments, Role::PackedDevice).map(Device::packed) {
            Some(device) => device,
            None => return self.counts.unreadable += 1,
        };
        // The host's allocator reports only to profilers, and its calls are probed anyway.
        if device == Device::CPU {
            return;
        }
        let totals = self
            .sites
            .argument(arguments, Role::TotalAllocated)
            .zip(self.sites.argument(arguments, Role::TotalReserved));
        let Some(pool) = self.processes.pool(who.pid, device, caller.thread, now_ns, profile) else { return };
        pool.report(totals);
        if change > 0 {
            let bytes = change.unsigned_abs();
            let allocation = Allocation { address, bytes, reporter: Reporter::Report };
            self.allocated(who.pid, device, allocation, caller, now_ns, profile);
        } else {
            let taken = pool.take(address, Reporter::Report, profile);
            let differs = matches!(taken, FreeOutcome::Bytes(was) if was != change.unsigned_abs());
            let levels = pool.changed(now_ns, profile);
            self.record(who.pid, levels);
            self.counts.free_differs += u64::from(differs);
            self.counts.free_unknown += u64::from(taken == FreeOutcome::Unknown);
        }
    }

    fn allocated(
        &mut self,
        pid: u32,
        device: Device,
        allocation: Allocation,
        caller: Caller,
        now_ns: u64,
        profile: &mut Profile,
    ) {
        let Allocation { address, bytes, reporter } = allocation;
        // An empty allocation has no memory, and nobody will free it.
        if bytes == 0 {
            return;
        }
        let caller = self.node_of(caller, profile);
        let Some(pool) = self.processes.pool(pid, device, caller, now_ns, profile) else { return };
        let outcome = pool.give(address, bytes, reporter, caller, profile);
        let levels = pool.changed(now_ns, profile);
        self.record(pid, levels);
        match outcome {
            AllocationOutcome::New => {}
            AllocationOutcome::Replaced => self.counts.free_missed += 1,
            AllocationOutcome::Full => self.counts.full += 1,
        }
    }

    /// Records the levels of a device if they changed.
    fn record(&mut self, pid: u32, levels: Option<Levels>) {
        levels.into_iter().flat_map(|of| of.counters(pid)).for_each(|value| self.counters.add(value));
    }

    /// The context of the caller, or the reason why there is none.
    fn node_of(&mut self, caller: Caller, profile: &mut Profile) -> NodeId {
        let limited = caller.flags & call_flag::STACK_LIMITED != 0;
        match caller.node.filter(|_| !limited) {
            Some(node) => node,
            None => {
                self.counts.without_stack += 1;
                let reason = profile.text(if limited { STACK_LIMITED.key } else { STACK_NOT_TAKEN.key });
                let frame = profile.frame(Frame::Unresolved { reason, origin: Origin::Native });
                profile.tree.child(caller.thread, frame)
            }
        }
    }

    /// Memory is freed by address alone: on the host, or at a mark.
    fn freed(&mut self, pid: u32, address: u64, now_ns: u64, profile: &mut Profile) {
        let mut by_report = false;
        for (device, pool) in self.processes.of(pid) {
            let said = if *device == Device::CPU { Reporter::Report } else { Reporter::Mark };
            match pool.take(address, said, profile) {
                FreeOutcome::Bytes(_) => {
                    let levels = pool.changed(now_ns, profile);
                    return self.record(pid, levels);
                }
                FreeOutcome::BySomeoneElse => by_report = true,
                // Its own report has come, or will.
                FreeOutcome::Unknown => by_report |= *device != Device::CPU && pool.reports(),
            }
        }
        // The host's own frees have no other report.
        self.counts.free_unknown += u64::from(!by_report);
    }
}

/// The caller of an allocator.
#[derive(Clone, Copy, Debug)]
struct Caller {
    thread: NodeId,
    node: Option<NodeId>,
    flags: u16,
}

impl Stage for TensorMemory {
    type Scope = ();
    type Note = ();

    const ACCOUNTED_AS: CallAccounting = CallAccounting::Call;

    fn new(_config: &Config) -> Self {
        Self::default()
    }

    fn claims(&self, site: &SiteInfo) -> bool {
        matches!(site.event, Event::Tensor(_))
    }

    fn learn(&mut self, sites: Vec<SiteInfo>) {
        self.sites.learn(sites, |info| {
            let Event::Tensor(event) = info.event else { return None };
            Some(Site { event, marked: info.family == Family::C10Cuda })
        });
    }

    fn sites(&mut self) -> Option<&mut dyn SiteTable> {
        Some(&mut self.sites)
    }

    #[inline]
    fn needs_stack(&self, call: &Arguments<'_>) -> bool {
        match self.sites.what(&call.call).map(|site| site.event) {
            None | Some(TensorEvent::Alloc) => true,
            Some(TensorEvent::Report) => self.is_allocation(call),
            Some(TensorEvent::Free | TensorEvent::Request) => false,
        }
    }

    /// Omits the kernel frames, which run our own program. A mark lies within the caller.
    fn caller<'a>(
        &mut self,
        call: &Arguments<'_>,
        frames: &'a [FrameId],
        profile: &Profile,
    ) -> &'a [FrameId] {
        let itself = self.sites.what(&call.call).is_some_and(|site| !site.marked);
        attribute::without_probed(profile, frames, itself)
    }

    fn on_call(
        &mut self,
        call: &CallRecord<'_>,
        stack: Option<&CallStack<()>>,
        context: &mut CallContext<'_>,
    ) {
        let node = stack.and_then(CallStack::caller);
        let StackSample { pid, header, .. } = call.sample;
        self.processes.admit(*pid, header.time_ns, context.facts, context.profile);
        self.called(call.sample, call.arguments, call.thread, node, context.profile);
    }

    fn on_process(&mut self, change: ProcessChange, profile: &mut Profile) {
        self.processes.changed(change.pid, change.time_ns, profile);
    }

    fn on_duty_edge(&mut self, time_ns: u64, profile: &mut Profile) {
        let pools = self.processes.pools_mut();
        self.counts.not_watched += pools.map(|pool| pool.forget(time_ns, profile)).sum::<u64>();
    }

    fn advance(&mut self, until_ns: u64, profile: &mut Profile) {
        self.processes.pools_mut().for_each(|pool| pool.hold_until(until_ns, profile));
    }

    fn finish(&mut self, now_ns: u64, profile: &mut Profile) {
        self.processes.pools_mut().for_each(|pool| pool.end(now_ns, profile));
    }

    fn keep_events(&mut self, _level: TraceLevel) {
        self.counters.want();
    }

    #[inline]
    fn take_events(&mut self, events: &mut Vec<SingleEvent>) {
        events.extend(self.counters.take().map(SingleEvent::Counter));
    }

    fn gaps(&self) -> Vec<StageGap> {
        vec![
            StageGap { reason: TENSOR_FREE_UNKNOWN, count: self.counts.free_unknown },
            StageGap { reason: TENSOR_NOT_WATCHED, count: self.counts.not_watched },
            StageGap { reason: TENSOR_FREE_MISSED, count: self.counts.free_missed },
            StageGap { reason: TENSOR_FREE_DIFFERS, count: self.counts.free_differs },
            StageGap { reason: TENSORS_FULL, count: self.counts.full + self.processes.without_pool },
            StageGap { reason: TENSOR_ROWS_LEFT_OUT, count: self.processes.rows_left_out() },
            StageGap { reason: TENSOR_WITHOUT_STACK, count: self.counts.without_stack },
            StageGap { reason: TENSOR_UNREADABLE, count: self.counts.unreadable },
            StageGap { reason: TENSOR_CALL_LOST, count: self.sites.lost() },
        ]
    }

    fn write_to(&self, profile: &mut Profile) {
        let mut pools = self.processes.rows();
        pools.sort_rows_by(|a, b| (a.pid, &a.device).cmp(&(b.pid, &b.device)));
        profile.memory = pools;
    }
}

#[cfg(test)]
mod tests {
    use deepctx_common::call::Call;

    use super::*;
    use crate::decode::Words;

    #[test]
    fn a_device_is_called_as_the_framework_calls_it() {
        for (packed, name) in [
            (0xff00, "cpu"),
            (0x0000, "cpu"),
            (0x0001, "cuda:0"),
            (0x0701, "cuda:7"),
            (0xff0c, "xpu"),
            (0x0114, "privateuseone:1"),
            (0x0063, "device-99:0"),
            (0xffff_ff00, "cpu"),
        ] {
            assert_eq!(Device::packed(packed).name(), name, "{packed:#x}");
        }
        assert_eq!(Device::cuda(u64::from(3u8)), Device::packed(0x0301));
    }

    #[test]
    fn a_mark_without_a_readable_device_is_not_the_hosts() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut memory = TensorMemory::default();
        memory.learn(vec![SiteInfo {
            site: 0,
            event: Event::Tensor(TensorEvent::Request),
            symbol: "pytorch:malloc".into(),
            family: Family::C10Cuda,
            roles: vec![Role::Address, Role::Device, Role::Bytes],
        }]);
        let values: Vec<u8> = [64_u64, 0, 100].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let call = Call { arguments: 3, unread: 0b10, ..Call::default() };
        let arguments = Arguments { call, values: Words::of(&values), text: &[] };
        memory.called(&StackSample::default(), &arguments, NodeId::ROOT, None, &mut profile);
        assert_eq!(memory.counts, Counts { unreadable: 1, ..Counts::default() });
        assert_eq!(memory.processes.without_pool, 0);
    }
}
