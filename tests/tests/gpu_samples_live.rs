//! Instruction samples on the simulated device, compared with its own account of them.
//!
//! Owns: the tests from a sampled instruction to the stored profile. Because: each sample must be under its kernel, its
//! instruction and its line, or be counted as lost. Does not: test a single stage. Needs root and BPF.
//!
//! It is a separate test program: a request for samples applies to every process with the same collector file, so
//! concurrent captures would get samples that they did not request.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
mod simulated;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use deepctx_profile::device::activity::Tier;
use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::view::losses;

use simulated::{Capture, Setting, record, record_and_wait, sampled};

/// From real device code: function, offset, file, line (`symbolizer/tests/fixtures/cubin/lines.tsv`).
const LINES: &str = include_str!("../../symbolizer/tests/fixtures/cubin/lines.tsv");
/// Kernel names of the device and of the profile.
const KERNELS: [(&str, &str); 2] = [("_Z5scalePfi", "scale(float*, int)"), ("_Z3sumPf", "sum(float*)")];

/// A sampled instruction in the profile: the functions above its kernel; file and line.
struct ReportedSample {
    above: Vec<String>,
    place: (String, u64, String),
    source: Option<(String, u32)>,
    samples: u64,
}

fn reported(capture: &Capture) -> Vec<ReportedSample> {
    let (tree, frames, strings) = (&capture.profile.tree, &capture.profile.frames, &capture.profile.strings);
    let mut all = Vec::new();
    for metric in Metric::ALL.iter().filter(|metric| metric.name().starts_with("stall:")) {
        for (node, cell) in tree.cells(*metric) {
            let stack: Vec<Frame> = tree.stack(node).into_iter().map(|id| frames.get(id)).collect();
            let [above @ .., kernel, at] = &stack[..] else { panic!("{stack:?}") };
            let Frame::GpuKernel { name: kernel } = *kernel else { panic!("{stack:?}") };
            let reason = metric.name().trim_start_matches("stall:").to_owned();
            let (offset, source) = match *at {
                Frame::Instruction { offset, file, line, kernel: of } if of == kernel => {
                    (offset, line.map(|line| (strings.get(file).to_owned(), line.get())))
                }
                _ => (u64::MAX, None),
            };
            let place = (strings.get(kernel).to_owned(), offset, reason);
            let above = above.iter().map(|frame| capture.text(*frame)).collect();
            all.push(ReportedSample { above, place, source, samples: cell.sum });
        }
    }
    all
}

/// One capture at a time, for the same reason.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture of the program, which runs until the lines of its code have been read.
fn sample(setting: Setting, words: &[&str]) -> Option<Capture> {
    // Without samples, no lines are read.
    let logged = (!setting.misbehaves.starts_with("unsampled")).then_some("lines of device code");
    let capture = record_and_wait(setting, &sampled()?, words, logged)?;
    capture.adds_up();
    let process = capture.process();
    assert_eq!((process.tier, process.difference()), (Tier::Collected, 0), "{process:?}");
    Some(capture)
}

fn lost(capture: &Capture, reason: &str) -> u64 {
    losses(&capture.profile).iter().filter(|row| row.reason == reason).map(|row| row.count).sum()
}

/// Every sample of the device is under its kernel, instruction, reason and line, and there are no others.
fn compare(capture: &Capture) {
    let mut done = BTreeMap::new();
    for ((kernel, offset, reason), samples) in &capture.samples {
        if let Some((_, name)) = KERNELS.iter().find(|(mangled, _)| mangled == kernel) {
            done.insert((name.to_string(), *offset, reason.clone()), *samples);
        }
    }
    assert!(done.values().sum::<u64>() > 100, "{:?}", capture.samples);
    let reported = reported(capture);
    let mut sums = BTreeMap::new();
    for reported in &reported {
        *sums.entry(reported.place.clone()).or_insert(0) += reported.samples;
        let (mangled, _) = KERNELS.iter().find(|(_, name)| *name == reported.place.0).unwrap();
        let row = format!("lines13\t{mangled}\t{}\t", reported.place.1);
        let known = LINES.lines().find_map(|line| line.strip_prefix(&row)?.split_once('\t'));
        let known = known.map(|(file, line)| (file.to_owned(), line.parse().unwrap()));
        assert_eq!(reported.source, known, "{:?}", reported.place);
    }
    assert_eq!(sums, done);
    let of = |what: &str| capture.samples.get(&(String::new(), 0, what.to_owned())).copied().unwrap_or(0);
    assert_eq!(lost(capture, "pc-sample-elsewhere"), of("elsewhere"));
    assert_eq!(lost(capture, "pc-sample-dropped"), of("dropped"));
    assert_eq!(of("discarded"), 0);
}

/// Samples of a kernel below a function; without one, below `[all callers]`.
fn below(reported: &[ReportedSample], kernel: &str, function: &str) -> u64 {
    let is_it = |reported: &&ReportedSample| {
        reported.place.0 == kernel && reported.above.iter().any(|frame| frame == function)
    };
    reported.iter().filter(is_it).map(|reported| reported.samples).sum()
}

#[test]
fn every_sample_appears_under_its_kernel_instruction_and_line() {
    let _turn = turn();
    for (libraries, words) in [("cuda12", &[][..]), ("cuda13", &["--early"])] {
        let setting = Setting { libraries, collector: true, words: &["--pc-sampling"], ..Setting::default() };
        let Some(capture) = sample(setting, words) else { return };
        compare(&capture);
        let reported = reported(&capture);
        let [scale, sum] = KERNELS.map(|(_, name)| name);
        // One was launched from one place, the other from two, which its samples cannot distinguish.
        let all: u64 = reported.iter().map(|reported| reported.samples).sum();
        let (sums, scales) = (below(&reported, sum, "launch_sum"), below(&reported, scale, "[all callers]"));
        // Until each launch's kernel was known, any of them may have run this one.
        let early = below(&reported, sum, "[all callers]");
        assert_eq!(sums + scales + early, all);
        assert!(early * 2 < sums, "{early} of {sums}");
        assert_eq!(lost(&capture, "pc-sample-shared"), scales + early);
        assert!(capture.process().note.contains("sampled every 1024 cycles"), "{:?}", capture.process());
    }
}

#[test]
fn where_kernels_are_serialized_each_sample_is_under_its_launch() {
    let _turn = turn();
    let words = &["--pc-sampling", "9", "--pc-sampling-mode", "serialized"];
    let setting = Setting { libraries: "cuda13", collector: true, words, ..Setting::default() };
    let Some(capture) = sample(setting, &[]) else { return };
    compare(&capture);
    let reported = reported(&capture);
    let [here, there] =
        ["launch_here", "launch_there"].map(|function| below(&reported, KERNELS[0].1, function));
    assert!(here > 0, "{:?}", capture.process());
    assert_eq!(here, there, "the same kernel as often for as long");
    assert_eq!(below(&reported, KERNELS[0].1, "[all callers]"), 0);
    assert!(capture.process().note.contains("every 512 cycles, kernels one after the other"));
}

#[test]
fn sampling_errors_are_reported_and_the_program_keeps_running() {
    let _turn = turn();
    let of = |misbehaves| {
        let words = &["--pc-sampling"];
        sample(Setting { libraries: "cuda13", collector: true, misbehaves, words, variables: &[] }, &[])
    };
    for (misbehaves, says) in
        [("unsampled=35", "NVreg_RestrictProfilingToAdminUsers"), ("unsampled=26", "another profiler")]
    {
        let Some(capture) = of(misbehaves) else { return };
        assert!(reported(&capture).is_empty() && capture.samples.is_empty());
        assert!(capture.process().note.contains(says), "{:?}", capture.process());
    }
    let Some(capture) = of("drop=7") else { return };
    compare(&capture);
    assert!(lost(&capture, "pc-sample-dropped") > 0);
    let Some(capture) = of("overrun=3") else { return };
    let of_device =
        |what: &str| capture.samples.get(&(String::new(), 0, what.to_owned())).copied().unwrap_or(0);
    // Samples in a full buffer are discarded when sampling ends.
    let (full, discarded) = (of_device("overrun"), of_device("discarded"));
    let taken: u64 =
        capture.samples.iter().filter(|((kernel, ..), _)| !kernel.is_empty()).map(|(_, n)| n).sum();
    let reported_of: u64 = reported(&capture).iter().map(|reported| reported.samples).sum();
    assert!(full > 0 && lost(&capture, "pc-buffer-full") > 0, "{:?}", capture.samples);
    assert_eq!(
        reported_of + full + discarded,
        taken,
        "{:?}\n{:?}",
        capture.samples,
        losses(&capture.profile)
    );
    let Some(capture) = of("astray=3") else { return };
    assert!(lost(&capture, "pc-out-of-range") > 0);
    assert!(reported(&capture).iter().any(|reported| reported.place.0.starts_with("[unknown: ")));
}

#[test]
fn nobody_asking_nothing_is_sampled() {
    let _turn = turn();
    let Some(program) = simulated::launcher() else { return };
    let setting = Setting { libraries: "cuda13", collector: true, ..Setting::default() };
    let words = "--threads 1 --rate 5000 --launches 500 --attended";
    let words: Vec<_> = words.split(' ').collect();
    let Some(capture) = record(setting, &program, &words) else { return };
    assert_eq!(capture.process().kernels, 500);
    assert!(capture.samples.is_empty() && reported(&capture).is_empty());
}
