//! How fast the pipeline is on one core: `pipeline_rate RUNS SAMPLES DISTINCT [launches]`, one line
//! `samples seconds nodes` per run.
//!
//! Owns: a synthetic stream of samples with 60 frames (44 native, 16 Python), `DISTINCT` different stacks; or of as
//! many launches of kernels from there, each with its correlation id and what the device did. Because: the figure
//! must not hang on a machine's kernel. Does not: look up names anywhere; answers are made up, and what a real
//! symbolizer costs comes on top, once per address.

use deepctx_common::activity::{self, Activity};
use deepctx_common::call::{Call, Correlation, Message};
use deepctx_common::end::{Counter, KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, word};
use deepctx_events::{Event, Family, GpuCall, LaunchCall, Role};
use deepctx_pipeline::input::{Input, SiteInfo, SpaceUpdate};
use deepctx_pipeline::symbols::{
    CodeAddress, Name, NameReceiver, ProcessFacts, PythonReference, SpaceId, Symbols,
};
use deepctx_pipeline::{Config, Pipeline, encode};
use deepctx_profile::profile::Meta;
use std::process::ExitCode;
use std::time::Instant;

const PID: u32 = 4711;
/// Samples of one batch: what a reader drains at once.
const BATCH: u64 = 512;
/// One sample per 10 ms and CPU, 8 CPUs.
const STEP_NS: u64 = 10_000_000 / 8;

/// Makes names out of addresses.
struct SyntheticNames;

impl ProcessFacts for SyntheticNames {}

impl Symbols for SyntheticNames {
    type Space = ();

    fn space_changed(&mut self, _: SpaceUpdate<()>) {}
    fn forked(&mut self, _: &ProcessEvent) {}
    fn replaced(&mut self, _: &ProcessEvent) {}
    fn on_exit(&mut self, _: &ProcessEvent) {}
    fn retire(&mut self, _: u64) {}

    fn space(&mut self, pid: u32, _: u64) -> SpaceId {
        SpaceId(pid)
    }

    fn process_name(&mut self, _: u32, _: u64) -> Option<&str> {
        Some("synthetic")
    }

    fn user(&mut self, _: SpaceId, addresses: &[CodeAddress], _: &[u64], answer: &mut NameReceiver<'_>) {
        for (n, CodeAddress::Exact(pc) | CodeAddress::Return(pc)) in addresses.iter().enumerate() {
            let symbol = format!("made_up_{pc:x}");
            let module = "/usr/lib/libmade_up.so";
            answer(n, &[Name::Native { symbol: &symbol, module, file: "", line: 0, inlined: false }]);
        }
    }

    fn python(&mut self, _: SpaceId, frames: &[PythonReference], answer: &mut NameReceiver<'_>) {
        for (n, frame) in frames.iter().enumerate() {
            let function = format!("made_up_{:x}", frame.code);
            answer(n, &[Name::Python { function: &function, file: "made_up.py", line: 1, first_line: 1 }]);
        }
    }

    fn kernel(&mut self, addresses: &[CodeAddress], answer: &mut NameReceiver<'_>) {
        for n in 0..addresses.len() {
            answer(n, &[Name::Kernel { symbol: "made_up" }]);
        }
    }
}

/// The words of stack `which`, leaf first: stacks share their outer frames and differ towards the leaf.
fn stack(which: u64, words: &mut Vec<u64>) {
    words.clear();
    for depth in (0..60u64).rev() {
        // The outer 40 frames are common to all, then the paths fork every few frames.
        let fork = if depth < 40 { 0 } else { which >> ((59 - depth) / 2) };
        let address = 0x7f00_0000_0000 + (depth << 24) + (fork % 0xffff) * 16;
        if depth % 15 < 4 {
            words.push(word::tagged(word::PYTHON, address));
            words.push(word::python_detail(depth as u32, 2 * depth as u32));
        } else {
            words.push(word::tagged(if depth == 59 { word::EXACT } else { word::RETURN }, address));
        }
    }
}

/// All batches of a run, made beforehand so that only the pipeline is timed.
#[expect(clippy::too_many_lines, reason = "records written out field by field")]
fn batches(samples: u64, distinct: u64, launches: bool) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut activities = Vec::new();
    let mut sequences = [0u64; 8];
    let starts = (0..samples).step_by(BATCH as usize);
    starts
        .map(|start| {
            let mut batch = Vec::new();
            for number in start..samples.min(start + BATCH) {
                let cpu = (number % 8) as usize;
                sequences[cpu] += 1;
                // A multiplier without common factors visits every stack, in no order that a cache would like.
                stack(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % distinct, &mut words);
                let header = RecordHeader {
                    cpu: cpu as u16,
                    sequence: sequences[cpu],
                    time_ns: 1_000_000_000 + number * STEP_NS,
                    ..RecordHeader::default()
                };
                let sample = StackSample {
                    header,
                    pid: PID,
                    tid: PID + (number % 4) as u32,
                    period: 10_000_000,
                    comm: encode::comm("synthetic"),
                    native_end: WalkEnd::Complete as u8,
                    python_end: PythonEnd::Complete as u8,
                    kernel_end: KernelEnd::Complete as u8,
                    native_frames: 44,
                    python_frames: 16,
                    generation: 1,
                    ..StackSample::default()
                };
                if !launches {
                    encode::sample(&mut batch, &sample, &[], &words);
                    continue;
                }
                let sample = StackSample { period: number + 1, ..sample };
                let call = Call {
                    site: 0,
                    event: Event::Gpu(GpuCall::Launch(LaunchCall::Kernel)).number(),
                    ..Call::default()
                };
                let arguments = [number % 500, 80, 1, 1, 256, 1, 1, 0, 5 + number % 4];
                encode::call(&mut batch, &sample, &[], &words, &call, &arguments, &[]);
                let mut next = || {
                    sequences[cpu] += 1;
                    RecordHeader { sequence: sequences[cpu], time_ns: header.time_ns + 1, ..header }
                };
                let (correlation, call) = (number as u32 + 1, number + 1);
                let (pid, tid) = (sample.pid, sample.tid);
                let record = Correlation { header: next(), pid, tid, call, correlation, api: 0 };
                encode::correlation(&mut batch, &record);
                activities.push(Activity {
                    kind: activity::kind::KERNEL,
                    correlation,
                    start_ns: header.time_ns,
                    end_ns: header.time_ns + 5000,
                    name: number % 500,
                    ..Activity::default()
                });
                if activities.len() == activity::BATCH_MAX || number + 1 == samples {
                    let head = Message { header: next(), pid, tid, ..Message::default() };
                    encode::activities(&mut batch, &head, &std::mem::take(&mut activities));
                }
            }
            batch
        })
        .collect()
}

/// The probe that all launches come from.
fn launch_site() -> SiteInfo {
    use Role::{BlockX, BlockY, BlockZ, Function, GridX, GridY, GridZ, SharedBytes, Stream};
    SiteInfo {
        site: 0,
        event: Event::Gpu(GpuCall::Launch(LaunchCall::Kernel)),
        symbol: "cuLaunchKernel".to_owned(),
        family: Family::CudaDriver,
        roles: vec![Function, GridX, GridY, GridZ, BlockX, BlockY, BlockZ, SharedBytes, Stream],
    }
}

/// What a collector says before anything runs.
fn collection_begins() -> Vec<u8> {
    let mut batch = Vec::new();
    let mut say = |number: u64, what, values, text: &[u8]| {
        let header = RecordHeader { cpu: 9, sequence: number + 1, time_ns: 1, ..RecordHeader::default() };
        encode::message(
            &mut batch,
            &Message { header, pid: PID, tid: PID, what, values, ..Message::default() },
            text,
        );
    };
    say(0, activity::probe::STATE, [activity::state::COLLECTING, 26, 0], &[]);
    say(1, activity::probe::CLOCK, [1_000_000_000, 1_000_000_000, 1_000_000_100], &[]);
    for name in 0..500 {
        let text = format!("_Z{}kernel_{name:03}Pf", 10);
        say(2 + name, activity::probe::NAME, [name, 0, 0], text.as_bytes());
    }
    batch
}

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).map_while(|word| word.parse().ok()).collect();
    let launches = std::env::args().nth(4).is_some_and(|word| word == "launches");
    let &[runs, samples, distinct] = numbers.as_slice() else {
        eprintln!("usage: pipeline_rate RUNS SAMPLES DISTINCT [launches]");
        return ExitCode::from(2);
    };
    for _ in 0..runs {
        let batches = batches(samples, distinct.max(1), launches);
        let mut pipeline = Pipeline::new(SyntheticNames, Meta::default(), Config::default());
        if launches {
            pipeline.feed(Input::Sites(vec![launch_site()]));
            pipeline.feed(Input::Records(collection_begins()));
        }
        let start = Instant::now();
        for batch in batches {
            pipeline.feed(Input::Records(batch));
            pipeline.advance(pipeline.newest_ns());
        }
        let mut counters = [0; Counter::ALL.len()];
        counters[Counter::SamplesSeen as usize] = samples;
        counters[Counter::RecordsEmitted as usize] = samples;
        if !launches {
            pipeline.feed(Input::Counters(counters));
        }
        let profile = pipeline.into_profile();
        let seconds = start.elapsed().as_secs_f64();
        if let Err(imbalance) = profile.ledger.check(deepctx_profile::ledger::CheckTime::Finished) {
            eprintln!("pipeline_rate: the ledger does not add up: {imbalance}");
            return ExitCode::FAILURE;
        }
        println!("{samples} {seconds} {}", profile.tree.len());
    }
    ExitCode::SUCCESS
}
