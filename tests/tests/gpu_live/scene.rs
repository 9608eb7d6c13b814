//! A probed process with look-alike libraries.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use deepctx_capture::counters::ProbeCounters;
use deepctx_capture::{Capture, CaptureConfig, Message};
use deepctx_common::Plain as _;
use deepctx_common::call::{Call, Correlation, Message as CollectorMessage, Return};
use deepctx_common::end::Counter;
use deepctx_common::record::{RecordHeader, StackSample, kind};
use deepctx_pipeline::input::SiteInfo;

use crate::support::{LONGEST, Sample, Target, options, workload};

/// One recorded call.
#[derive(Clone, Debug)]
pub(crate) struct RecordedCall {
    pub(crate) sample: Sample,
    pub(crate) call: Call,
    pub(crate) arguments: Vec<u64>,
    pub(crate) text: String,
}

/// All reports.
#[derive(Default)]
pub(crate) struct ReportedRecords {
    pub(crate) calls: Vec<RecordedCall>,
    pub(crate) returns: Vec<Return>,
    pub(crate) correlations: Vec<Correlation>,
    pub(crate) said: Vec<(CollectorMessage, Vec<u8>)>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) sites: Vec<SiteInfo>,
    pub(crate) counts: Vec<u64>,
    pub(crate) probes: ProbeCounters,
    pub(crate) records: u64,
    pub(crate) notices: Vec<String>,
    pub(crate) counters: [u64; Counter::ALL.len()],
}

impl ReportedRecords {
    fn take(&mut self, message: Message) {
        match message {
            Message::Records(batch) => self.records(&batch),
            Message::Sites(sites) => self.sites.extend(sites),
            Message::SiteCounts(counts) => self.counts = counts,
            Message::Probes(probes) => self.probes = probes,
            Message::Notice(notice) => self.notices.push(notice),
            _ => {}
        }
    }

    fn records(&mut self, batch: &[u8]) {
        let mut rest = batch;
        while let Some(header) = RecordHeader::read_from(rest) {
            self.records += 1;
            let record = &rest[..header.size as usize];
            match header.kind {
                kind::SAMPLE => self.samples.push(sample(record).0),
                kind::CALL => {
                    let (sample, behind) = sample(record);
                    let call = Call::read_from(behind).unwrap();
                    let (arguments, text) =
                        behind[size_of::<Call>()..].split_at(8 * usize::from(call.arguments));
                    let arguments =
                        arguments.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
                    let (text, padding) = text.split_at(usize::from(call.text_bytes));
                    assert!(padding.len() < 8 && padding.iter().all(|byte| *byte == 0), "{padding:?}");
                    let text = String::from_utf8(text.to_vec()).unwrap();
                    self.calls.push(RecordedCall { sample, call, arguments: arguments.collect(), text });
                }
                kind::RETURN => self.returns.push(Return::read_from(record).unwrap()),
                kind::CORRELATION => self.correlations.push(Correlation::read_from(record).unwrap()),
                kind::MESSAGE => {
                    let said = CollectorMessage::read_from(record).unwrap();
                    let bytes = record[size_of::<CollectorMessage>()..][..said.bytes as usize].to_vec();
                    self.said.push((said, bytes));
                }
                _ => {}
            }
            rest = &rest[header.size as usize..];
        }
        assert!(rest.is_empty(), "a batch holds whole records");
    }

    /// The site of a function.
    pub(crate) fn site(&self, symbol: &str) -> &SiteInfo {
        self.sites.iter().find(|site| site.symbol == symbol).unwrap_or_else(|| panic!("no site of {symbol}"))
    }

    /// Calls of a function.
    pub(crate) fn of(&self, symbol: &str) -> Vec<&RecordedCall> {
        let site = self.site(symbol).site;
        self.calls.iter().filter(|seen| seen.call.site == site).collect()
    }

    /// Number of calls of a function, as counted by the kernel program.
    pub(crate) fn count(&self, symbol: &str) -> u64 {
        self.counts[self.site(symbol).site as usize]
    }

    pub(crate) fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

fn sample(record: &[u8]) -> (Sample, &[u8]) {
    let fixed = StackSample::read_from(record).unwrap();
    let words = &record[size_of::<StackSample>()..];
    let (kernel, user) = (usize::from(fixed.kernel_words), usize::from(fixed.user_words));
    let user_words = words[8 * kernel..][..8 * user]
        .chunks(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
        .collect();
    (Sample { fixed, user: user_words }, &words[8 * (kernel + user)..])
}

/// Stub libraries and the program that calls them.
pub(crate) struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let built = Self { folder };
        for (what, name) in [
            ("DRIVER", "libcuda.so.1"),
            ("CUPTI", "libcupti.so.12"),
            ("COLLECTOR", "libdeepctx_collector.so"),
        ] {
            let library = workload("accelerator.c");
            built.cc(&["-fPIC", "-shared", &format!("-D{what}")], &library, name);
        }
        built.cc(&["-g", "-fomit-frame-pointer", "-pthread"], &workload("accelerated.c"), "accelerated");
        built
    }

    fn cc(&self, arguments: &[&str], source: &std::path::Path, name: &str) {
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Werror"]).args(arguments).arg("-o").arg(self.path(name)).arg(source);
        assert!(compiler.status().unwrap().success(), "{name} does not compile");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A captured process.
pub(crate) struct Scene {
    pub(crate) built: Built,
    pub(crate) target: Target,
    capture: Option<Capture>,
    messages: Receiver<Message>,
    pub(crate) reported: ReportedRecords,
}

impl Scene {
    /// Starts the process, runs `before` in it, and captures it.
    pub(crate) fn new(before: &[&str], change: impl FnOnce(&mut CaptureConfig)) -> Self {
        let built = Built::new();
        let mut target = Target::start(&mut Command::new(built.path("accelerated")));
        assert_eq!(target.line().trim(), format!("ready {}", target.pid()));
        for command in before {
            tell(&built, &mut target, command);
        }
        let mut options = options(target.pid(), 99);
        options.accelerators = true;
        change(&mut options);
        let capture = Capture::start(options).unwrap();
        let messages = capture.messages();
        let mut scene =
            Self { built, target, capture: Some(capture), messages, reported: ReportedRecords::default() };
        if before.iter().any(|command| command.starts_with("open")) {
            scene.until(|reported| reported.probes.files > 0);
        }
        scene
    }

    /// Sends a command to the process, and returns the number in its answer.
    pub(crate) fn tell(&mut self, command: &str) -> u64 {
        tell(&self.built, &mut self.target, command)
    }

    /// Reads until the condition holds.
    pub(crate) fn until(&mut self, done: impl Fn(&ReportedRecords) -> bool) {
        let end = Instant::now() + LONGEST;
        while !done(&self.reported) {
            assert!(
                Instant::now() < end,
                "reported: {:?}, {:?}",
                self.reported.probes,
                self.reported.notices
            );
            if let Ok(message) = self.messages.recv_timeout(Duration::from_millis(100)) {
                self.reported.take(message);
            }
        }
    }

    /// Ends the capture and reads the rest.
    pub(crate) fn end(&mut self) -> &ReportedRecords {
        let capture = self.capture.take().unwrap();
        let messages = self.messages.clone();
        let reader = std::thread::spawn(move || messages.iter().collect::<Vec<_>>());
        self.reported.counters = capture.stop();
        for message in reader.join().unwrap() {
            self.reported.take(message);
        }
        &self.reported
    }
}

/// Sends a command, in which names in capitals stand for the libraries.
fn tell(built: &Built, target: &mut Target, command: &str) -> u64 {
    let paths =
        [("DRIVER", "libcuda.so.1"), ("CUPTI", "libcupti.so.12"), ("COLLECTOR", "libdeepctx_collector.so")];
    let command = paths.iter().fold(command.to_owned(), |command, (name, file)| {
        command.replace(name, &built.path(file).display().to_string())
    });
    let input = target.child.stdin.as_mut().unwrap();
    writeln!(input, "{command}").unwrap();
    input.flush().unwrap();
    target.line().trim().strip_prefix("done ").unwrap().parse().unwrap()
}
