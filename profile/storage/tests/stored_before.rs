//! A profile that was written before, and must open forever: `fixtures/format-1.2`, a folder, and the same as one
//! file.
//!
//! The expected contents are built here once more, round by round as they were flushed, and compared without regard to
//! the numbers of handles. The files are never written again: a format that cannot read them has a new major version.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use deepctx_profile::device::activity::{
    Activity, ActivityKind, ClockOffset, GpuProcess, JoinMethod, Launch, Tier,
};
use deepctx_profile::device::memory::Pool;
use deepctx_profile::device::{Device, Instance};
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::ledger::{CheckTime, Reason, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Executable, Limits, Meta, Profile};
use deepctx_profile::text;
use deepctx_profile::units::{Bytes, Nanos, Time};
use deepctx_profile::{FrameId, NodeId, StrId};
use deepctx_storage::{OpenedProfile, open};

const START_NS: u64 = 1_000_000;
/// Flushes: enough for segments of two levels.
const ROUNDS: u32 = 10;
const SECOND_NS: u64 = 1_000_000_000;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn empty() -> Profile {
    let meta = Meta {
        target: "python train.py (pid 7)".to_owned(),
        host: "gpu-1".to_owned(),
        started: Time::from_nanos(1_700_000_000_000_000_000),
        started_monotonic: Time::from_nanos(START_NS),
        boot_id: String::new(),
        frequency_hz: 99,
        version: "0.1.0".to_owned(),
        options: vec![("freq".to_owned(), "99".to_owned()), ("gpu-activity".to_owned(), "on".to_owned())],
        allowed_cpus: None,
        kept: None,
    };
    Profile::new(meta, Limits::default())
}

/// A frame of each kind, with every field set in one of them and none in another.
fn frames(profile: &mut Profile) -> Vec<FrameId> {
    let mut s = |text: &str| profile.strings.intern(text);
    let (line, first_line) = (NonZeroU32::new(31), NonZeroU32::new(9));
    let (empty, module, source) = (StrId::EMPTY, s("/l/libx.so"), s("/src/x.cu"));
    let frames = [
        Frame::Process { comm: s("python3"), pid: 7 },
        Frame::Thread { name: s("pt;data"), tid: 8 },
        Frame::Python { function: s("M.f"), file: s("/a/b.py"), line, first_line, role: Role::Code },
        Frame::Python {
            function: s("g"),
            file: empty,
            line: None,
            first_line: None,
            role: Role::Interpreter,
        },
        Frame::Native { symbol: s("f(int)"), module, file: source, line, inlined: true, role: Role::Code },
        Frame::Native {
            symbol: s("_PyEval_EvalFrameDefault"),
            module: empty,
            file: empty,
            line: None,
            inlined: false,
            role: Role::Interpreter,
        },
        Frame::NativeUnnamed { module, offset: 5 << 40, reason: s("stripped"), role: Role::Dispatch },
        Frame::Kernel { symbol: s("vfs_read") },
        Frame::KernelUnnamed { reason: s("no-kallsyms") },
        Frame::Operator { name: s("aten::addmm") },
        Frame::Range { name: s("epoch 1") },
        Frame::Layer { path: s("GPT.h.0"), class: s("Block") },
        Frame::Wait { reason: s("futex") },
        Frame::GpuApi { name: s("cuLaunchKernel") },
        Frame::Stream { device: 1, stream: Some(7), name: s("H200 GPU-1234abcd") },
        Frame::Stream { device: 0, stream: None, name: empty },
        Frame::GpuKernel { name: s("gemm<float>") },
        Frame::Instruction { kernel: s("gemm<float>"), offset: 0x40, file: source, line },
        Frame::Unresolved { reason: s("code-changed"), origin: Origin::Python },
        Frame::Unresolved { reason: s("no-launch"), origin: Origin::Gpu },
        Frame::TreeFull,
    ];
    frames.into_iter().map(|frame| profile.frame(frame)).collect()
}

/// What one flush added: something to every table.
fn grow(profile: &mut Profile, round: u32) {
    let frames = frames(profile);
    let number = u64::from(round);
    // Metrics as of that version, each with values in several rounds.
    for place in 0..47usize {
        let depth = 1 + (place + round as usize) % frames.len();
        profile.add(&frames[..depth], Metric::ALL[place], 1000 * number + place as u64);
    }
    let kernel = profile.add(&[frames[0], frames[13], frames[14], frames[16]], Metric::Kernels, 1);
    profile.timeline.add(kernel, Metric::GpuTime, Nanos(number * SECOND_NS), 70_000_000 + number);
    profile.timeline.add(kernel, Metric::LiveBytes, Nanos(number * SECOND_NS / 2), 4096 * number);
    profile.gpu.activities.push(Activity {
        node: kernel,
        kind: ActivityKind::ALL[round as usize % ActivityKind::ALL.len()],
        pid: 7,
        device: 1,
        context: 2,
        stream: 7,
        correlation: round,
        start: Nanos(number * SECOND_NS),
        end: Nanos(number * SECOND_NS + 500),
        launched: (!round.is_multiple_of(3)).then_some(Nanos(number * SECOND_NS - 100)),
        bytes: 4096 * number,
    });
    profile.gpu.shape(
        kernel,
        &Launch {
            grid: [round, 2, 1],
            block: [64, 1 + round, 1],
            dynamic_shared: 1 << round,
            static_shared: (round > 2).then_some(512),
            registers: (round > 3).then_some(32),
            arch: (round > 4).then_some(80),
            device_arch: (round > 5).then_some(90),
        },
    );
    for stage in [Stage::Kernel, Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute] {
        profile.ledger.stage_mut(stage).pass(10 + number);
    }
    profile.ledger.stage_mut(Stage::Kernel).received += 1;
    profile.ledger.dropped(Stage::Kernel, Reason::new("ring-full", "the ring buffer was full"), 1);
    profile.ledger.gap(Stage::Resolve, Reason::new("no-row", "the unwind table has no row for this PC"), 3);
    if round % 4 == 1 {
        profile.executables.push(Executable {
            path: format!("/l/lib{round}.so"),
            build_id: if round == 1 { "ab12".to_owned() } else { String::new() },
            size: Bytes(number << 20),
        });
    }
}

/// What was known at the end only.
fn finish(profile: &mut Profile) {
    profile.gpu.processes = vec![
        GpuProcess { pid: 9, launches: 3, busy_at_most: Nanos(5_000_000), ..GpuProcess::default() },
        GpuProcess {
            pid: 7,
            joined_processes: 0,
            tier: Tier::Collected,
            join: JoinMethod::Exact,
            note: "activities by CUPTI 13".to_owned(),
            launches: 12,
            launches_without_stack: 1,
            captured: 2,
            graph_launches: 3,
            transfers: 4,
            transfers_collected: 3,
            launches_collected: 10,
            kernels: 9,
            graph_kernels: 5,
            joined: 13,
            overhead: Nanos(1_000),
            busy_at_most: Nanos(0),
            clock: Some(ClockOffset { offset_ns: -5, uncertainty: Nanos(1_500), drift_ns: -20, readings: 7 }),
            devices: vec![Device {
                number: 1,
                name: "NVIDIA H200".to_owned(),
                uuid: "GPU-1234abcd-0001-0002-0003-000000000004".to_owned(),
                capability: [9, 0],
                multiprocessors: 132,
                clock_khz: 1_980_000,
                memory_bytes: 140 << 30,
                divided: true,
                instance: Some(Instance { gpu: 7, compute: 0, uuid: "MIG-ffffffff".to_owned() }),
            }],
        },
    ];
    profile.memory.push(Pool {
        pid: 7,
        device: "cuda:1".to_owned(),
        allocations: 12,
        allocated_bytes: 1 << 30,
        returned_bytes: 1 << 29,
        peak_bytes: 600 << 20,
        peak_at: Nanos(3_200_000_000),
        peak_unseen_bytes: 100 << 20,
        peak_reserved_bytes: Some(800 << 20),
        most_reserved_bytes: Some(900 << 20),
        most_unused_bytes: None,
        most_unused_at: Nanos(4_000_000_000),
        asked_bytes: 1000,
        given_bytes: 1024,
    });
}

fn expected() -> Profile {
    let mut profile = empty();
    (1..=ROUNDS).for_each(|round| grow(&mut profile, round));
    finish(&mut profile);
    profile
}

/// A frame with its texts instead of their handles.
fn describe(profile: &Profile, frame: FrameId) -> String {
    let mut texts = Vec::new();
    let shape = profile.frames.get(frame).map_texts(|id| {
        texts.push(profile.strings.get(id).to_owned());
        StrId::EMPTY
    });
    format!("{shape:?} {texts:?}")
}

/// All that a profile says, in a form that does not depend on the numbers of its handles.
fn contents(profile: &Profile) -> String {
    let stack = |node: NodeId| -> Vec<String> {
        profile.tree.stack(node).into_iter().map(|frame| describe(profile, frame)).collect()
    };
    let mut lines = Vec::new();
    for metric in profile.tree.metrics() {
        lines.extend(
            profile.tree.cells(metric).map(|(node, cell)| format!("{metric} {cell:?} {:?}", stack(node))),
        );
    }
    lines.extend(profile.timeline.lanes().iter().map(|lane| {
        let last = lane.values.iter().rposition(|value| *value > 0).map_or(0, |last| last + 1);
        format!("{} {:?} {:?}", lane.metric, &lane.values[..last], stack(lane.node))
    }));
    lines.extend(profile.gpu.shapes().map(|(node, shape)| format!("{shape:?} {:?}", stack(node))));
    lines.extend(profile.gpu.activities.iter().map(|activity| {
        format!("{:?} {:?}", Activity { node: NodeId::ROOT, ..*activity }, stack(activity.node))
    }));
    lines.extend(profile.gpu.processes.iter().map(|process| format!("{process:?}")));
    lines.extend(profile.memory.iter().map(|pool| format!("{pool:?}")));
    lines.extend(profile.executables.iter().map(|executable| format!("{executable:?}")));
    lines.sort();
    format!("{:?}\n{:?}\n{}\n{}", profile.meta, profile.ledger, text::tree(profile), lines.join("\n"))
}

fn check(opened: &OpenedProfile) {
    assert!(opened.is_complete(), "{:?}", opened.notes);
    assert_eq!(opened.elapsed, Nanos(u64::from(ROUNDS) * SECOND_NS));
    assert_eq!(opened.profile.ledger.check(CheckTime::Finished), Ok(()));
    assert_eq!(contents(&opened.profile), contents(&expected()));
}

#[test]
fn a_folder_written_by_format_1_2_opens_whole() {
    check(&open(fixture("format-1.2")).unwrap());
}

#[test]
fn a_packed_file_written_by_format_1_2_opens_whole() {
    check(&open(fixture("format-1.2.dctx")).unwrap());
}

/// Figures of the rows of `fixtures/trace-2`, as pyarrow reads them.
#[test]
fn a_trace_written_by_version_2_has_all_its_events() {
    let job = deepctx_storage::open_traces(&[fixture("trace-2")]).unwrap();
    let trace = &job.ranks()[0].trace;
    let calls: u64 = trace.host.iter().map(|(_, call)| call.duration.0).sum();
    assert_eq!((trace.host.len(), calls), (194 + 12, 956_543 + 778_179));
    let kernels: u64 = trace.device.iter().map(|(_, kernel)| kernel.duration.0).sum();
    assert_eq!((trace.device.len(), kernels), (194, 2_398_363));
    let launched = |kernel: u64| trace.host.iter().any(|(_, call)| call.correlation == kernel);
    assert!(trace.device.iter().all(|(_, kernel)| launched(kernel.correlation)));
}
