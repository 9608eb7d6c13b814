//! Starting targets, capturing, and samples in a form for tests.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use deepctx_capture::config::Hertz;
use deepctx_capture::{Capture, CaptureConfig, Message, Targets};
use deepctx_common::Plain as _;
use deepctx_common::end::{Counter, PythonEnd, WalkEnd};
use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, kind, word};
use deepctx_pipeline::decode::Sequences;
use deepctx_symbolizer::maps::{self, LineFilter};
use deepctx_symbolizer::native::DebugInfo;
use deepctx_symbolizer::python::{PythonSymbols, locate_process};
use deepctx_symbolizer::{Avma, Lookup, Symbolizer};

/// True when real captures are possible; prints what is missing, and fails if tests must not be skipped.
pub(crate) fn can_capture() -> bool {
    let missing: Vec<_> = deepctx_capture::doctor::checks().into_iter().filter(|c| !c.ok()).collect();
    if missing.is_empty() {
        return true;
    }
    let list: Vec<_> = missing.iter().map(|c| format!("{}: {}", c.name, c.found)).collect();
    assert!(std::env::var_os("CI").is_none(), "this machine cannot capture: {}", list.join("; "));
    eprintln!("skipped: this machine cannot capture: {}", list.join("; "));
    false
}

/// The same for a program that a test needs.
pub(crate) fn has_program(name: &str) -> bool {
    let found =
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "this test needs {name}");
    if !found {
        eprintln!("skipped: this test needs {name}");
    }
    found
}

/// A program of `tests/workloads`.
pub(crate) fn workload(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads").join(name)
}

/// Compiles a C++ workload without frame pointers; the program is removed with the folder.
pub(crate) fn compile(source: &Path, arguments: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(source.file_stem().unwrap());
    let status = Command::new("g++")
        .args(["-O2", "-g", "-fomit-frame-pointer", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(arguments)
        .status()
        .unwrap();
    assert!(status.success(), "{} does not compile", source.display());
    (folder, program)
}

/// A child that is killed when the test ends in any way.
pub(crate) struct Target {
    pub(crate) child: Child,
    pub(crate) output: Option<BufReader<ChildStdout>>,
}

impl Target {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().map(BufReader::new);
        Self { child, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the program prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the target ended");
        line
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) fixed: StackSample,
    /// Tagged words, leaf first.
    pub(crate) user: Vec<u64>,
}

impl Sample {
    pub(crate) fn native_end(&self) -> WalkEnd {
        WalkEnd::from_number(self.fixed.native_end).unwrap()
    }

    pub(crate) fn python_end(&self) -> PythonEnd {
        PythonEnd::from_number(self.fixed.python_end).unwrap()
    }

    /// Native addresses with their lookup methods, leaf first.
    pub(crate) fn native(&self) -> Vec<(u64, Lookup)> {
        let mut frames = Vec::new();
        let mut words = self.user.iter().copied();
        while let Some(w) = words.next() {
            match word::tag(w) {
                word::EXACT => frames.push((w & word::PAYLOAD, Lookup::Exact)),
                word::RETURN => frames.push((w & word::PAYLOAD, Lookup::Return)),
                word::PYTHON => drop(words.next()),
                _ => {}
            }
        }
        frames
    }

    /// Code objects with checksum and instruction offset, leaf first.
    pub(crate) fn python(&self) -> Vec<(u64, u32, u32)> {
        let mut frames = Vec::new();
        let mut words = self.user.iter().copied();
        while let Some(w) = words.next() {
            if word::tag(w) == word::PYTHON {
                let detail = words.next().unwrap();
                frames.push((w & word::PAYLOAD, (detail >> 32) as u32, detail as u32));
            }
        }
        frames
    }
}

/// The result of one capture.
#[derive(Default)]
pub(crate) struct CaptureContents {
    pub(crate) samples: Vec<Sample>,
    pub(crate) events: Vec<ProcessEvent>,
    pub(crate) counters: [u64; Counter::ALL.len()],
    /// Missing records, by gaps in each CPU's sequence numbers.
    pub(crate) gaps: u64,
    pub(crate) records: u64,
    sequences: Sequences,
}

impl CaptureContents {
    fn add(&mut self, batch: &[u8]) {
        let mut rest = batch;
        while let Some(header) = RecordHeader::read_from(rest) {
            self.records += 1;
            self.sequences.record(header.cpu, header.sequence);
            if header.kind == kind::SAMPLE {
                let fixed = StackSample::read_from(rest).unwrap();
                let words: Vec<u64> = rest[size_of::<StackSample>()..header.size as usize]
                    .chunks_exact(8)
                    .map(|w| u64::read_from(w).unwrap())
                    .collect();
                assert_eq!(words.len(), usize::from(fixed.kernel_words + fixed.user_words));
                let user = words[usize::from(fixed.kernel_words)..].to_vec();
                self.samples.push(Sample { fixed, user });
            } else {
                self.events.push(ProcessEvent::read_from(rest).unwrap());
            }
            rest = &rest[header.size as usize..];
        }
        assert!(rest.is_empty(), "a batch holds whole records");
        self.gaps = self.sequences.missing();
    }

    /// Stops the capture and reads until everything is reported.
    pub(crate) fn finish(&mut self, capture: Capture, messages: Receiver<Message>) {
        self.counters = capture.stop();
        for message in messages {
            if let Message::Records(batch) = message {
                self.add(&batch);
            }
        }
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Samples of a process.
    pub(crate) fn of(&self, pid: u32) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |s| s.fixed.pid == pid)
    }
}

/// Options for one process at `frequency_hz`.
pub(crate) fn options(pid: u32, frequency_hz: u32) -> CaptureConfig {
    CaptureConfig {
        targets: vec![Targets::Pids(vec![pid])],
        frequency: Hertz(frequency_hz),
        accelerators: false,
        ..CaptureConfig::default()
    }
}

/// Timeout: many times the slowest on an idle machine.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// Captures and reads until `done` returns true.
#[track_caller]
pub(crate) fn capture_until(
    options: CaptureConfig,
    mut done: impl FnMut(&CaptureContents) -> bool,
) -> CaptureContents {
    let capture = Capture::start(options).unwrap();
    let messages = capture.messages();
    let mut captured = CaptureContents::default();
    let end = Instant::now() + LONGEST;
    while !done(&captured) {
        assert!(Instant::now() < end, "{} samples in {LONGEST:?}", captured.samples.len());
        if let Ok(Message::Records(batch)) = messages.recv_timeout(Duration::from_millis(100)) {
            captured.add(&batch);
        }
    }
    captured.finish(capture, messages);
    captured
}

/// Captures until there are `samples` of the process.
pub(crate) fn capture_samples(options: CaptureConfig, samples: usize) -> CaptureContents {
    let [Targets::Pids(pids)] = &options.targets[..] else { panic!("expected processes by id: {options:?}") };
    let pid = pids[0];
    capture_until(options, |c| c.of(pid).count() >= samples)
}

/// Names native frames of one live process.
pub(crate) struct Names {
    symbolizer: Symbolizer,
    pid: u32,
}

impl Names {
    pub(crate) fn of(pid: u32) -> Self {
        let mut symbolizer = Symbolizer::new(DebugInfo::default());
        symbolizer.refresh(pid, 1).unwrap();
        Self { symbolizer, pid }
    }

    /// Function names, leaf first, including inlined ones; `?` for none.
    pub(crate) fn functions(&mut self, sample: &Sample) -> Vec<String> {
        let mut names = Vec::new();
        for (address, lookup) in sample.native() {
            let place = self.symbolizer.locate(self.pid, 1, Avma(address), lookup);
            match self.symbolizer.name(place) {
                Ok(frames) => names.extend(frames.iter().rev().map(|f| f.name.to_string())),
                Err(_) => names.push("?".into()),
            }
        }
        names
    }
}

/// Names Python frames of one live process.
pub(crate) struct PythonNames {
    symbols: PythonSymbols,
    pid: u32,
}

impl PythonNames {
    pub(crate) fn of(pid: u32) -> Self {
        let mappings = maps::read(pid, LineFilter::Executable).unwrap().mappings;
        let (interpreter, memory) = locate_process(pid, &mappings).unwrap();
        let mut symbols = PythonSymbols::default();
        assert!(symbols.attach(pid, &interpreter, Box::new(memory)));
        Self { symbols, pid }
    }

    /// Function names, leaf first, without those that are unknown.
    pub(crate) fn functions(&mut self, sample: &Sample) -> Vec<String> {
        let mut names = Vec::new();
        for (code, checksum, instruction) in sample.python() {
            let frame = self.symbols.frame(self.pid, code, checksum, instruction);
            names.extend(frame.ok().map(|frame| frame.qualname.to_string()));
        }
        names
    }
}
