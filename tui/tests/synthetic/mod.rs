//! A made-up training run: a synthetic profile that grows with each step of a quarter of a second.
//!
//! Owns: the profile that the example shows and the tests draw. Because: a picture in a test should look like what
//! people see. Does not: use randomness or a clock.

use std::num::NonZeroU32;
use std::sync::Arc;

use deepctx_analysis::conclude;
use deepctx_profile::device::activity::{GpuProcess, JoinMethod, Tier};
use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::ledger::{Reason, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Limits, Meta, Profile};
use deepctx_profile::units::{Bytes, Nanos};
use deepctx_profile::view::snapshot::{Header, Overhead, Snapshot, SourceText};
use deepctx_profile::view::{GroupBy, Request, Resolution, Selection, TabRequest, Viewer};
use deepctx_profile::{FrameId, NodeId, StrId};

/// Paths with the weight at their end; the letter before each frame is its kind. Python functions have their line.
const PATHS: &[(&str, u64)] = &[
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:22;Ptrain.py:step:12;Omm::forward;Nat::native::addmm;Nmkl_blas_avx512_sgemm_kernel",
        410,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:22;Ptrain.py:step:12;Omm::forward;Nat::native::addmm;Nmkl_blas_avx512_sgemm_pack",
        61,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:22;Ptrain.py:step:14;Pautograd.py:backward:200;Ntorch::autograd::Engine::execute(torch::autograd::Edge const&, std::vector<at::Tensor>&)",
        120,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:22;Ptrain.py:step:13;AcuLaunchKernel;Gvoid cutlass::Kernel<cutlass_80_simt_sgemm_128x64>",
        75,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:21;Pdata.py:load:7;Nread;Kentry_SYSCALL_64;Kksys_read;Kvfs_read;Kext4_file_read_iter",
        90,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:21;Pdata.py:load:8;Pdata.py:数据预处理:3",
        42,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Ptrain.py:<module>:40;Ptrain.py:main:35;Ptrain.py:epoch:21;Pdata.py:load:8;?no-row",
        18,
    ),
    (
        "#python;~MainThread/4711;N_start;NPy_RunMain;Pimportlib.py:_find_and_load:1;Pimportlib.py:_find_and_load:2;Pimportlib.py:_find_and_load:2;Nmarshal_loads",
        9,
    ),
    (
        "#python;~pt_autograd_0/4720;Nclone3;Nstart_thread;Ntorch::autograd::Engine::thread_main;Nat::native::sum_kernel",
        150,
    ),
    ("#python;~pt_data_pin/4731;Nclone3;Nstart_thread;Npthread_cond_wait;Kentry_SYSCALL_64;Kdo_futex", 25),
];

/// Length of a turn.
const TURN: Nanos = Nanos(250_000_000);

/// Between two samples, nanoseconds.
const PERIOD: u64 = 10_000_000;

/// The usual request of the tests: threads apart.
pub(crate) fn request() -> Request {
    Request::select(Selection { group_by: GroupBy::Thread, ..Selection::of(Metric::CpuTime) })
}

/// The text of `train.py`.
#[allow(dead_code, reason = "the example shows files")]
pub(crate) fn text() -> Arc<SourceText> {
    let mut lines: Vec<String> = (1..=44).map(|line| format!("# line {line}")).collect();
    let code = [
        (10, "def step(model, batch, target):"),
        (11, "\t\"\"\"Forward, loss, backward.\"\"\""),
        (12, "\tout = model(batch)"),
        (13, "\tloss = criterion(out, target)"),
        (14, "\tloss.backward()"),
        (15, "\treturn loss  # \x1b[31mnot red\x1b[0m"),
        (20, "def epoch(model, loader):"),
        (21, "\tfor batch, target in loader:"),
        (22, "\t\tstep(model, batch, target)"),
        (35, "\tepoch(model, loader)"),
        (40, "main()"),
    ];
    for (line, text) in code {
        lines[line - 1] = text.to_owned();
    }
    Arc::new(SourceText::Lines { lines, changed: false })
}

/// A run, and who looks at it.
#[derive(Clone)]
pub(crate) struct Training {
    profile: Profile,
    turn: u64,
    viewer: Viewer,
    /// Reading takes four times as long.
    pub(crate) slow_disk: bool,
    /// What the device did is known too.
    pub(crate) device: bool,
}

impl Training {
    pub(crate) fn new() -> Self {
        let profile = Profile::new(Meta::default(), Limits::default());
        Self { profile, turn: 0, viewer: Viewer::new(), slow_disk: false, device: false }
    }

    /// The profile after some turns.
    pub(crate) fn at(turn: u64) -> Self {
        let mut training = Self::new();
        training.go_on(turn);
        training
    }

    /// The profile after some turns on a device.
    #[allow(dead_code, reason = "the example has none")]
    pub(crate) fn on_device(turn: u64) -> Self {
        let mut training = Self { device: true, ..Self::new() };
        training.go_on(turn);
        training
    }

    /// Some more turns.
    pub(crate) fn go_on(&mut self, turns: u64) {
        for _ in 0..turns {
            self.turn += 1;
            for (index, (path, weight)) in (0u64..).zip(PATHS) {
                let slow = if self.slow_disk && path.contains("ext4") { 4 } else { 1 };
                let path: Vec<&str> = path.split(';').collect();
                self.add(&path, slow * weight * 20_000 * (10 + (self.turn + index * 7) % 5));
            }
            // Many small functions, as a real profile has.
            for index in 0..40 {
                let small = format!("Nsmall_{index:02}");
                self.add(&["#python", "~MainThread/4711", "N_start", "NPy_RunMain", &small], 9_000);
            }
        }
        let profile = &mut self.profile;
        let lost = self.turn.saturating_sub(40);
        let mut ledger = deepctx_profile::Ledger::default();
        ledger.stage_mut(Stage::Kernel).pass(self.turn * 99 + lost);
        ledger.stage_mut(Stage::Kernel).kept = self.turn * 99;
        ledger.dropped(
            Stage::Kernel,
            Reason::new("ring-full", "the ring was full: the reader did not keep up"),
            lost,
        );
        ledger.gap(Stage::Resolve, Reason::new("no-row", "no unwind row covers this address"), self.turn * 3);
        ledger.stage_mut(Stage::Resolve).pass(self.turn * 99);
        profile.ledger = ledger;
    }

    fn add(&mut self, path: &[&str], value: u64) {
        let frames: Vec<Frame> = path.iter().map(|text| frame(&mut self.profile, text)).collect();
        let frames: Vec<_> = frames.into_iter().map(|frame| self.profile.frame(frame)).collect();
        let node = self.profile.add(&frames, Metric::CpuTime, value);
        for _ in 0..(value / PERIOD).max(u64::from(value > PERIOD / 2)) {
            self.profile.tree.add(node, Metric::Samples, 1);
        }
        let thread = self.profile.tree.path(NodeId::ROOT, frames[..2].iter().copied());
        let begin = Nanos((self.turn - 1) * TURN.0);
        if path.last().is_some_and(|leaf| *leaf == "Kdo_futex") {
            let wait = TURN.0 - value;
            self.profile.tree.add(node, Metric::OffCpuTime, wait);
            let end = Nanos(begin.0 + wait);
            self.profile.timeline.add_span(thread, Metric::OffCpuTime, begin, end, wait);
        }
        self.profile.timeline.add(thread, Metric::CpuTime, begin, value);
        if self.device && path.last().is_some_and(|leaf| leaf.starts_with('G')) {
            self.work(node, frames[0], begin);
        }
    }

    /// A turn of a device: kernels on one stream, copies on another.
    fn work(&mut self, node: NodeId, process: FrameId, begin: Nanos) {
        let part = |eighths: u64| Nanos(TURN.0 / 8 * eighths);
        for (metric, stream, value) in [
            (Metric::GpuTime, Some(7), part(5).0),
            (Metric::Kernels, None, 1),
            (Metric::LaunchDelay, Some(7), 12_000 + self.turn % 7 * 1_000),
            (Metric::CopyTime, Some(13), part(2).0),
            (Metric::CopyBytes, None, 48 << 20),
        ] {
            let kernel = self.profile.tree.node(node);
            let node = match stream.map(|stream| Frame::Stream {
                device: 0,
                stream: Some(stream),
                name: StrId::EMPTY,
            }) {
                Some(frame) => {
                    let frame = self.profile.frame(frame);
                    let stream = self.profile.tree.child(kernel.parent, frame);
                    self.profile.tree.child(stream, kernel.frame)
                }
                None => node,
            };
            self.profile.tree.add(node, metric, value);
        }
        self.profile.gpu.processes = vec![GpuProcess {
            pid: 4711,
            tier: Tier::Collected,
            join: JoinMethod::Exact,
            note: "CUPTI 26".to_owned(),
            launches: self.turn,
            launches_collected: self.turn,
            kernels: self.turn,
            joined: self.turn,
            ..GpuProcess::default()
        }];
        let end = |from: Nanos, length: Nanos| Nanos(from.0 + length.0);
        for (name, metric, from, length) in [
            ("[device 0] stream 7", Metric::GpuTime, end(begin, part(1)), part(5)),
            ("[device 0] stream 13", Metric::CopyTime, begin, part(2)),
        ] {
            let name = self.profile.text(name);
            let stream = self.profile.frame(Frame::GpuApi { name });
            let lane = self.profile.tree.path(NodeId::ROOT, [process, stream]);
            self.profile.timeline.add_span(lane, metric, from, end(from, length), length.0);
        }
    }

    /// What a screen is shown that asks for it.
    pub(crate) fn snapshot(&mut self, request: &Request) -> Snapshot {
        let turn = self.turn;
        let header = Header {
            target: "python train.py --epochs 3 (pid 4711)".to_owned(),
            elapsed: Nanos(turn * TURN.0),
            frequency_hz: 99,
            samples: turn * 99,
            samples_per_second: 396.2,
            lost: self.profile.ledger.lost(),
            complete_share: Some(0.9993),
            overhead: Some(Overhead { cpu_share: 0.0082, memory: Bytes(43 << 20) }),
            memory: Vec::new(),
            metric: request.selection.metric.name(),
            unit: request.selection.metric.unit(),
            auto_probes: Vec::new(),
            notice: (turn % 20 < 8).then(|| "symbolizing libtorch_cpu.so …".to_owned()),
        };
        let elapsed = header.elapsed;
        let mut snapshot = self.viewer.snapshot(&self.profile, request, header, Resolution::default());
        if request.part == TabRequest::Overview {
            snapshot.conclude(Arc::new(conclude(
                &self.profile,
                elapsed,
                &deepctx_analysis::findings::Settings::default(),
            )));
        }
        snapshot
    }
}

fn frame(profile: &mut Profile, text: &str) -> Frame {
    let (kind, text) = text.split_at(1);
    let module = if text.starts_with("mkl") { "/opt/libmkl_rt.so" } else { "/opt/libtorch_cpu.so" };
    let mut string = |text: &str| profile.text(text);
    match kind {
        "#" => Frame::Process { comm: string(text), pid: 4711 },
        "~" => {
            let (name, tid) = text.split_once('/').unwrap_or((text, "0"));
            Frame::Thread { name: string(name), tid: tid.parse().unwrap_or(0) }
        }
        "P" => {
            let mut parts = text.split(':');
            let mut next = || parts.next().unwrap_or_default();
            let (file, function, line) = (next(), next(), next());
            let line = line.parse().ok().and_then(NonZeroU32::new);
            // Functions begin at the ten below.
            let first_line = line.and_then(|line| NonZeroU32::new((line.get() / 10 * 10).max(1)));
            let (file, function) = (string(&format!("/srv/{file}")), string(function));
            Frame::Python { function, file, line, first_line, role: Role::Code }
        }
        "O" => Frame::Operator { name: string(text) },
        "K" => Frame::Kernel { symbol: string(text) },
        "A" => Frame::GpuApi { name: string(text) },
        "G" => Frame::GpuKernel { name: string(text) },
        "?" => Frame::Unresolved { reason: string(text), origin: Origin::Native },
        _ => {
            let (symbol, module) = (string(text), string(module));
            Frame::Native { symbol, module, file: StrId::EMPTY, line: None, inlined: false, role: Role::Code }
        }
    }
}
