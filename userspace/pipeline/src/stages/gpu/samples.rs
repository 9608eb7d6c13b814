//! Instruction samples: program counters of kernels with their stall reasons → instructions below kernels.
//!
//! Owns: the context in which a sample counts, and samples that wait for source lines. Because: where kernels run
//! concurrently, a sample identifies its kernel but not its launch; so its context is certain only if the kernel has
//! a single one. Does not: distribute samples over contexts: that would be a guess.
//!
//! | samples | stand |
//! |---|---|
//! | with a correlation id (serialized) | below the kernel of that launch |
//! | of a kernel that was launched in one context so far | there: whatever was sampled until now was launched before |
//! | of a kernel with several contexts, or of code that is no kernel | below `[all callers]` of the process |

use std::collections::VecDeque;
use std::num::NonZeroU32;

use deepctx_common::Plain;
use deepctx_common::activity::{probe, state};
use deepctx_common::call::Message;
use deepctx_common::samples::{Cubin, NoProducer, Sample, part};
use deepctx_profile::device::activity::GpuProcess;
use deepctx_profile::frame::{Frame, Origin};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::metric::Metric;
use deepctx_profile::producers::CANDIDATES_MAX;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::Gpu;
use super::counts::{Counts, Gap, INSTRUCTION_NOT_KNOWN, LAUNCH_NOT_SEEN};
use super::kernels::kernel_frame;
use super::names::REPORTED_MAX;
use super::work::WorkKind;
use crate::input::{CubinLines, UnreadCubin};

/// Stands between the process and kernels whose samples belong to several launches.
const ALL_CALLERS: &str = "[all callers]";
/// Stands for code whose name could not be read.
const NAMELESS: &str = "[unknown: name-not-reported]";
/// Prefixes of CUPTI's names of stall reasons; reasons of units other than warp schedulers have other prefixes.
const PREFIXES: [&str; 2] = ["smsp__pcsamp_warps_issue_stalled_", "smsp__pcsamp_warp_stall_"];
/// Reasons of instructions that wait for what others produce.
const WAITS_FOR_PRODUCER: [Metric; 2] = [Metric::StallLongScoreboard, Metric::StallShortScoreboard];
/// Reasons that are remembered.
const REASONS_MAX: usize = 1 << 12;
/// Kernels whose contexts are remembered. For any others it is unknown whether they have one.
const KERNELS_MAX: usize = 1 << 17;
/// Launches that are remembered after their activity came, for late samples.
const LAUNCHES_MAX: usize = 1 << 16;
/// Images whose lines are remembered.
const CUBINS_MAX: usize = 1 << 12;
/// Samples that wait for line tables, by context, instruction and reason.
const HELD_MAX: usize = 1 << 16;
/// How long they wait: reading an image takes milliseconds.
const HELD_NS: u64 = 5_000_000_000;
/// Upper bound of a function's size; the largest kernels have some megabytes.
const CODE_MAX: u64 = 1 << 30;

/// The contexts that launched a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaunchContexts {
    One(NodeId),
    Several,
}

/// State of an image.
#[derive(Debug)]
enum Image {
    /// Its lines are being read since then.
    Requested(u64),
    /// Its lines were read.
    Read(Box<CubinLines>),
}

/// The target of a sample, once its line is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SamplePoint {
    cubin: u64,
    /// The kernel as a context.
    kernel: NodeId,
    /// Its mangled function name.
    function: StrId,
    offset: u64,
    metric: Metric,
}

/// Sampling state of a process.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Metrics by the collector's number of the reason.
    reasons: FxHashMap<u32, Option<Metric>>,
    /// Mangled names, by the collector's id.
    names: FxHashMap<u64, StrId>,
    ran: FxHashMap<FrameId, LaunchContexts>,
    /// Launches of an unknown kernel.
    pub(super) unknown: u64,
    /// Kernels of completed launches by correlation id, and these ids in order.
    finished: (FxHashMap<u32, NodeId>, VecDeque<u32>),
    serialized: bool,
    cubins: FxHashMap<u64, Image>,
    held: FxHashMap<SamplePoint, u64>,
}

impl Samples {
    /// A context launches a kernel.
    pub(super) fn ran(&mut self, kernel: FrameId, node: NodeId) {
        if let Some(ran) = self.ran.get_mut(&kernel) {
            if *ran != LaunchContexts::One(node) {
                *ran = LaunchContexts::Several;
            }
        } else if self.ran.len() < KERNELS_MAX {
            self.ran.insert(kernel, LaunchContexts::One(node));
        }
    }

    /// A launch got its activity: late samples of it may follow.
    pub(super) fn done(&mut self, correlation: u32, kernel: NodeId) {
        if !self.serialized || correlation == 0 {
            return;
        }
        let (by_id, order) = &mut self.finished;
        if by_id.insert(correlation, kernel).is_none() {
            order.push_back(correlation);
        }
        if order.len() > LAUNCHES_MAX
            && let Some(oldest) = order.pop_front()
        {
            by_id.remove(&oldest);
        }
    }

    /// A collector reported a name.
    pub(super) fn named(&mut self, id: u64, name: &[u8], profile: &mut Profile) {
        if self.names.len() < REPORTED_MAX {
            self.names.insert(id, profile.text(&String::from_utf8_lossy(name)));
        }
    }

    /// A collector's report on its sampling.
    pub(super) fn state(&mut self, [what, number, _]: [u64; 3], note: &mut String, counts: &mut Counts) {
        match what {
            state::SAMPLING => {
                self.serialized = number >> 32 & 1 == 1;
                let period = match number as u32 {
                    0 => "as often as CUPTI likes".to_owned(),
                    period => format!("every {} cycles", 1u64 << period.min(63)),
                };
                let mode = if self.serialized { ", kernels one after the other" } else { "" };
                add_note(note, &format!("instructions are sampled {period}{mode}"));
            }
            state::SAMPLING_REFUSED => {
                add_note(note, &format!("instructions are not sampled: {}", refusal(number)));
            }
            state::SAMPLES_DROPPED => counts.gap(Gap::SampleDropped, number),
            state::SAMPLES_ELSEWHERE => counts.gap(Gap::SampleElsewhere, number),
            state::SAMPLES_OVERRUN => counts.gap(Gap::SampleOverrun, number),
            _ => counts.gap(Gap::CubinLeft, number),
        }
    }

    fn reason(&mut self, number: u32, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        let short = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(&name);
        if self.reasons.len() < REASONS_MAX {
            self.reasons.insert(number, format!("stall:{short}").parse().ok());
        }
    }

    /// File and line of a place; `None` if unknown.
    fn line(&self, place: &SamplePoint, profile: &mut Profile) -> Option<(StrId, NonZeroU32)> {
        let Some(Image::Read(lines)) = self.cubins.get(&place.cubin) else { return None };
        let (file, line) = lines.at(profile.strings.get(place.function), place.offset)?;
        Some((profile.text(file), line))
    }

    /// Enters samples of one place.
    fn enter(&self, place: &SamplePoint, samples: u64, profile: &mut Profile) {
        let kernel = profile.frames.get(profile.tree.node(place.kernel).frame);
        let frame = match (place.offset, kernel) {
            (..CODE_MAX, Frame::GpuKernel { name }) => {
                let frame = self.instruction(place, name, profile);
                if WAITS_FOR_PRODUCER.contains(&place.metric) && frame != FrameId::TABLE_FULL {
                    self.enter_producers(place, name, frame, profile);
                }
                frame
            }
            _ => {
                let reason = profile.text(INSTRUCTION_NOT_KNOWN.key);
                profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu })
            }
        };
        let node = profile.tree.child(place.kernel, frame);
        profile.tree.add(node, place.metric, samples);
    }

    /// The frame of an instruction of a kernel with this name.
    fn instruction(&self, place: &SamplePoint, kernel: StrId, profile: &mut Profile) -> FrameId {
        let (file, line) = match self.line(place, profile) {
            Some((file, line)) => (file, Some(line)),
            None => (StrId::EMPTY, None),
        };
        profile.frame(Frame::Instruction { kernel, offset: place.offset, file, line })
    }

    /// Enters what the instruction of this frame waits for, as far as the code says so.
    fn enter_producers(&self, place: &SamplePoint, kernel: StrId, waiting: FrameId, profile: &mut Profile) {
        let Some(Image::Read(lines)) = self.cubins.get(&place.cubin) else { return };
        let function = profile.strings.get(place.function);
        let Some((_, offsets, unknown)) = lines.waits_at(function, place.offset) else { return };
        for offset in offsets.iter().take(CANDIDATES_MAX) {
            let producer = SamplePoint { offset: u64::from(*offset), ..*place };
            let producer = self.instruction(&producer, kernel, profile);
            profile.producers.add(waiting, producer);
        }
        if let Some(unknown) = NoProducer::from_number(*unknown) {
            let reason = profile.text(unknown.key());
            let producer = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
            profile.producers.add(waiting, producer);
        }
    }

    /// Enters the samples that wait for images selected by `is_due`.
    fn release(&mut self, is_due: impl Fn(u64) -> bool, profile: &mut Profile) {
        let mut due: Vec<(SamplePoint, u64)> = self.held.extract_if(|place, _| is_due(place.cubin)).collect();
        // Not by hash, so that a replay enters them in the same order.
        due.sort_unstable_by_key(|(place, _)| (place.cubin, place.kernel, place.offset, place.metric));
        for (place, samples) in due {
            self.enter(&place, samples, profile);
        }
    }

    fn add(&mut self, place: SamplePoint, samples: u64, profile: &mut Profile) {
        let waits = matches!(self.cubins.get(&place.cubin), Some(Image::Requested(_)));
        if waits && (self.held.len() < HELD_MAX || self.held.contains_key(&place)) {
            let held = self.held.entry(place).or_insert(0);
            *held = held.saturating_add(samples);
        } else {
            self.enter(&place, samples, profile);
        }
    }

    /// The only context that launched a kernel; `None` if there are several, or may be.
    fn only_context(&self, kernel: FrameId, process: &GpuProcess) -> Option<NodeId> {
        // Nodes of graphs, and launches of handles without a name, may be this kernel.
        let certain = self.unknown == 0 && process.captured == 0 && process.graph_launches == 0;
        match self.ran.get(&kernel) {
            Some(LaunchContexts::One(node)) if certain => Some(*node),
            _ => None,
        }
    }

    fn cubin_loaded(&mut self, crc: u64, now_ns: u64, counts: &mut Counts) {
        let cubins = &mut self.cubins;
        if cubins.len() < CUBINS_MAX {
            cubins.entry(crc).or_insert(Image::Requested(now_ns));
        } else if !cubins.contains_key(&crc) {
            counts.gap(Gap::CubinLeft, 1);
        }
    }

    fn lines_read(&mut self, lines: CubinLines, counts: &mut Counts, profile: &mut Profile) {
        if !lines.because.is_empty() {
            counts.gap(Gap::LinesUnread, 1);
        }
        counts.gap(Gap::ProducersLeft, lines.waits_left_out);
        let crc = lines.crc;
        let cubins = &mut self.cubins;
        if cubins.len() < CUBINS_MAX || cubins.contains_key(&crc) {
            cubins.insert(crc, Image::Read(Box::new(lines)));
        }
        self.release(|cubin| cubin == crc, profile);
    }

    /// Enters samples whose line tables did not come in time.
    pub(super) fn expire(&mut self, now_ns: u64, counts: &mut Counts, profile: &mut Profile) {
        if self.cubins.is_empty() {
            return;
        }
        let late = |image: &Image| matches!(image, Image::Requested(asked_ns) if now_ns.saturating_sub(*asked_ns) > HELD_NS);
        let mut late: Vec<u64> =
            self.cubins.iter().filter(|(_, image)| late(image)).map(|(crc, _)| *crc).collect();
        late.sort_unstable();
        for crc in late {
            // The table may still come; later samples will have lines.
            counts.gap(Gap::LinesUnread, u64::from(self.held.keys().any(|place| place.cubin == crc)));
            self.release(|cubin| cubin == crc, profile);
            self.cubins.insert(crc, Image::Read(Box::default()));
        }
    }
}

/// Appends to the note about a process, once.
fn add_note(note: &mut String, more: &str) {
    // A process with ever new messages must not fill memory.
    const NOTE_MAX: usize = 512;
    if !note.contains(more) && note.len() < NOTE_MAX {
        if !note.is_empty() {
            note.push_str(", ");
        }
        note.push_str(more);
    }
}

/// CUPTI's errors (`cupti_result.h`) that users can do something about.
fn refusal(number: u64) -> String {
    let because = match number {
        0xffff_fffe => "this CUPTI has no functions for it",
        26 => "another profiler has the counters (DCGM, Nsight Compute)",
        27 | 42 => "the device does not support it",
        33 => "the device is virtual",
        35 | 40 => "only administrators may (NVreg_RestrictProfilingToAdminUsers, see `doctor`)",
        38 => "the device is too old for it, or another profiling interface is in use",
        41 => "confidential computing forbids it",
        43 => "the device is a part of one (MIG)",
        _ => return format!("CUPTI's error {number}"),
    };
    because.to_owned()
}

impl Gpu {
    /// Device code was loaded, and a copy of it exists: reported at once, since the process may end any time.
    pub(crate) fn note_cubin(&mut self, message: &Message, bytes: &[u8]) {
        let Some(cubin) = Cubin::read_from(bytes).filter(|_| is_cubin(message)) else { return };
        let unread = UnreadCubin {
            pid: message.pid,
            crc: cubin.crc,
            address: cubin.address,
            bytes: cubin.bytes,
            asked_ns: message.header.time_ns,
        };
        if self.unread.len() < CUBINS_MAX {
            self.unread.push(unread);
        }
    }

    /// Images whose lines are wanted, since the last call.
    pub(crate) fn unread_cubins(&mut self) -> Vec<UnreadCubin> {
        std::mem::take(&mut self.unread)
    }

    /// Lines were read; those of an image not reported yet wait for its report.
    pub(crate) fn lines_read(&mut self, lines: Vec<CubinLines>, profile: &mut Profile) {
        for lines in lines {
            let Some(process) = self.processes.get_mut(lines.pid) else {
                if self.lines_ahead.len() < CUBINS_MAX {
                    self.lines_ahead.push((None, lines));
                }
                continue;
            };
            process.samples.lines_read(lines, &mut self.counts, profile);
        }
    }

    /// A message of samples, or of what they refer to.
    pub(super) fn sampled(
        &mut self,
        message: &Message,
        bytes: &[u8],
        profile: &mut Profile,
        process_node: &mut dyn FnMut(&mut Profile) -> NodeId,
    ) {
        let Some(process) = self.processes.get_mut(message.pid) else { return };
        let (what, number) = ((message.values[0] >> 32) as u32, message.values[0] as u32);
        match what {
            part::REASON => process.samples.reason(number, bytes),
            part::CUBIN => {
                let Some(cubin) = Cubin::read_from(bytes) else {
                    return self.counts.gap(Gap::Malformed, 1);
                };
                process.samples.cubin_loaded(cubin.crc, message.header.time_ns, &mut self.counts);
                let mut early = std::mem::take(&mut self.lines_ahead);
                let of_process = early.extract_if(.., |(_, lines)| lines.pid == message.pid);
                of_process
                    .for_each(|(_, lines)| process.samples.lines_read(lines, &mut self.counts, profile));
                self.lines_ahead = early;
            }
            part::BATCH => {
                if !bytes.len().is_multiple_of(size_of::<Sample>()) {
                    self.counts.gap(Gap::Malformed, 1);
                }
                let node = *process.node.get_or_insert_with(|| process_node(profile));
                for sample in bytes.chunks_exact(size_of::<Sample>()).filter_map(Sample::read_from) {
                    self.sample(message.pid, node, &sample, profile);
                }
            }
            _ => self.counts.gap(Gap::Malformed, 1),
        }
    }

    fn sample(&mut self, pid: u32, process_node: NodeId, sample: &Sample, profile: &mut Profile) {
        let Self { processes, work, ids, counts, .. } = self;
        let Some(process) = processes.get_mut(pid) else { return };
        let frame = process.reported_kernels.get(&sample.function).copied();
        let frame = frame.unwrap_or_else(|| kernel_frame(NAMELESS, profile));
        let samples = u64::from(sample.samples);
        let kernel = if sample.correlation != 0 {
            let waiting = ids.get(&(pid, sample.correlation)).and_then(|call| work.get_mut(*call));
            let launched = match waiting {
                Some(work) if matches!(work.kind, WorkKind::Kernel) && work.held.is_none() => Some(work.node),
                // The kernel is reported later, or is one of several: the launch itself is certain.
                Some(work) => Some(profile.tree.child(work.api, frame)),
                None => process.samples.finished.0.get(&sample.correlation).copied(),
            };
            launched.unwrap_or_else(|| {
                counts.gap(Gap::SampleWithoutLaunch, samples);
                let reason = profile.text(LAUNCH_NOT_SEEN.key);
                let unseen = profile.frame(Frame::Unresolved { reason, origin: Origin::Gpu });
                profile.tree.path(process_node, [unseen, frame])
            })
        } else {
            match process.samples.only_context(frame, &process.info) {
                Some(node) => node,
                None => {
                    counts.gap(Gap::SampleShared, samples);
                    let name = profile.text(ALL_CALLERS);
                    let all = profile.frame(Frame::GpuApi { name });
                    profile.tree.path(process_node, [all, frame])
                }
            }
        };
        let metric = match process.samples.reasons.get(&sample.reason) {
            Some(Some(metric)) => *metric,
            _ => {
                counts.gap(Gap::ReasonUnknown, samples);
                Metric::StallMisc
            }
        };
        if sample.offset >= CODE_MAX {
            counts.gap(Gap::InstructionUnknown, samples);
        }
        let function = process.samples.names.get(&sample.function).copied().unwrap_or(StrId::EMPTY);
        let place = SamplePoint { cubin: sample.cubin, kernel, function, offset: sample.offset, metric };
        process.samples.add(place, samples, profile);
    }

    /// Enters samples without lines once they have waited long enough; `u64::MAX`: all of them.
    pub(super) fn expire_samples(&mut self, now_ns: u64, profile: &mut Profile) {
        for process in self.processes.followed.values_mut() {
            process.samples.expire(now_ns, &mut self.counts, profile);
        }
        // Lines that nobody took by now came too late: their process has ended.
        self.lines_ahead
            .retain_mut(|(since_ns, _)| now_ns.saturating_sub(*since_ns.get_or_insert(now_ns)) <= HELD_NS);
    }
}

/// Whether a message reports device code.
fn is_cubin(message: &Message) -> bool {
    message.what == probe::SAMPLES && (message.values[0] >> 32) as u32 == part::CUBIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::stage::Stage as _;

    #[test]
    fn lines_of_a_process_that_ended_are_dropped() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut gpu = Gpu::new(&Config::default());
        gpu.lines_read(vec![CubinLines { pid: 7, ..CubinLines::default() }], &mut profile);
        let mut left = Vec::new();
        for now_ns in [100, 100 + HELD_NS, 101 + HELD_NS] {
            gpu.expire_samples(now_ns, &mut profile);
            left.push(gpu.lines_ahead.len());
        }
        assert_eq!(left, [1, 1, 0]);
    }

    #[test]
    fn reasons_are_known_by_name_whatever_their_number() {
        let mut samples = Samples::default();
        samples.reason(7, b"smsp__pcsamp_warps_issue_stalled_long_scoreboard");
        samples.reason(1, b"smsp__pcsamp_warp_stall_warpgroup_arrive");
        samples.reason(2, b"wait");
        samples.reason(3, b"smsp__pcsamp_warps_issue_stalled_of_the_future");
        samples.reason(4, b"\xff\xfe");
        let of = |number| samples.reasons[&number];
        assert_eq!(of(7), Some(Metric::StallLongScoreboard));
        assert_eq!(of(1), Some(Metric::StallWarpgroupArrive));
        assert_eq!((of(2), of(3), of(4)), (Some(Metric::StallWait), None, None));
    }

    #[test]
    fn kernel_has_a_single_context_until_launched_from_another() {
        let (mut samples, process) = (Samples::default(), GpuProcess::default());
        let mut profile = Profile::new(Default::default(), Default::default());
        let [gemm, relu] = ["gemm", "relu"].map(|name| kernel_frame(name, &mut profile));
        let root = profile.tree.child(NodeId::ROOT, relu);
        let other = profile.tree.child(root, gemm);
        samples.ran(gemm, root);
        samples.ran(gemm, root);
        let only = |samples: &Samples, kernel| samples.only_context(kernel, &process);
        assert_eq!((only(&samples, gemm), only(&samples, relu)), (Some(root), None));
        samples.unknown = 1;
        assert_eq!(only(&samples, gemm), None, "another launch may be of it");
        samples.unknown = 0;
        samples.ran(gemm, other);
        samples.ran(gemm, root);
        assert_eq!(only(&samples, gemm), None);
    }

    #[test]
    fn a_refusal_says_what_can_be_done() {
        assert!(refusal(35).contains("NVreg_RestrictProfilingToAdminUsers"));
        assert_eq!(refusal(999), "CUPTI's error 999");
        let mut note = "CUPTI 28".to_owned();
        add_note(&mut note, "x");
        add_note(&mut note, "x");
        assert_eq!(note, "CUPTI 28, x");
    }
}
