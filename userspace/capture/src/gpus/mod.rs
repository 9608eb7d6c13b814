//! GPUs: what their driver reports about each, for the figures of the machine.
//!
//! Owns: whether there is a library to query, the thread that queries it, and how a reader that does not answer is
//! handled. Because: NVIDIA's management library (NVML) is vendor code: it takes seconds to initialize, may hang
//! within the driver or end its process, and none of that may cost more than the GPU figures. Does not: load the
//! library ([`reader`] does, in a separate process), or read devices of other vendors.
//!
//! ```text
//!  thread `system`        thread `gpus`             the reader: nobody, no program, no socket
//!  each interval: take ◀──readings── ask ──request──▶ load the library once, read every GPU
//!  what has come, ask  ───────────▶      ◀─readings──┘
//!  again, wait for nothing            2 s at most (the first time 10)
//! ```
//!
//! A reading is taken at the beginning of an interval and counts for all of it. Without [`install`] nothing is
//! queried: a program that uses this crate as a library has no program to start as the reader.

mod code;
mod figures;
mod library;
mod protocol;
mod reader;
mod readers;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::{env, fmt, io};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_pipeline::system::SystemValue;
use deepctx_symbolizer::worker::Launch;

use super::supervisor::Supervisor;
use protocol::{Readings, Refusal};
pub use reader::serve;
use readers::{PATIENCE, Readers, Reading};

/// The library, by the name under which every driver installs it.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// What the library opens first.
const CONTROL: &str = "/dev/nvidiactl";
/// Each shows that the machine has a GPU whose driver has the library: the driver's device, its folder, and the device
/// of Windows' subsystem for Linux.
const SIGNS: [&str; 3] = [CONTROL, "/proc/driver/nvidia", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];
/// Most GPUs with a notice of their own about failures.
const SAID_MAX: usize = 8;

reasons! {
    class Gap, page "system.md";
    const LATE = "gpu-reading-missing",
        "readings of GPUs that had not come when their interval was over: it lacks the figures of GPUs";
}

/// Why there are no figures of GPUs, or no further ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoFigures {
    /// The reader's reason.
    Refused(Refusal),
    /// It was late again and again.
    Silent,
    /// It ended, and so did the next one.
    Ended,
    /// There is none.
    NoReader,
}

impl NoFigures {
    reasons! {
        class Unread, page "system.md";
        /// Why.
        fn reason(self) {
            Self::Refused(Refusal::Unconfined) => "gpu-reader-unconfined",
                "the process that asks NVIDIA's library could not give up programs and sockets, and does not load it otherwise",
                helps "a kernel, or a container, that allows filters of system calls (seccomp)";
            Self::Refused(Refusal::NoLibrary) => "gpu-library-missing",
                "NVIDIA's management library (libnvidia-ml.so.1) was not found, or cannot be read by the user nobody",
                helps "the driver's user-space part; in a container, the NVIDIA runtime with the capability `utility`";
            Self::Refused(Refusal::NoAccess) => "gpu-not-permitted",
                "the user nobody, as whom GPUs are asked, may not open /dev/nvidiactl",
                helps "the driver's default mode of its devices, 0666 (`NVreg_DeviceFileMode`)";
            Self::Refused(Refusal::NoInit(_)) => "gpu-library-failed", "nvmlInit failed";
            Self::Silent => "gpu-reader-silent", "NVIDIA's library did not answer in time";
            Self::Ended => "gpu-reader-ended", "NVIDIA's library ended the process that asked it";
            Self::NoReader => "gpu-no-reader", "the process that asks NVIDIA's library could not be started",
                helps "see what keeps the profiler from starting its own file (/proc/self/exe)";
        }
    }
}

impl fmt::Display for NoFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason();
        write!(f, "{reason}")?;
        if let Self::Refused(Refusal::NoInit(code)) = self {
            write!(f, ": {code}")?;
        }
        reason.helps.map_or(Ok(()), |helps| write!(f, " (helps: {helps})"))
    }
}

/// Readings of GPUs that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuCounters {
    /// Intervals whose requested reading did not come.
    pub late: u64,
}

impl GpuCounters {
    /// What is missing, and how often.
    pub fn gaps(&self) -> [(&'static Reason, u64); 1] {
        [(LATE, self.late)]
    }
}

static LAUNCH: OnceLock<Launch> = OnceLock::new();

/// From now on, captures query GPUs through processes that `launch` starts and that call [`serve`]. Only the first call
/// has an effect.
pub fn install(launch: Launch) {
    LAUNCH.get_or_init(|| launch);
}

/// Whether there is a driver to query, or the user named a folder with its library.
fn is_to_be_asked() -> bool {
    let exists = |path: &str| Path::new(path).exists();
    let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    SIGNS.into_iter().any(exists) || env::split_paths(&named).any(|folder| folder.join(LIBRARY).exists())
}

/// The GPUs of this machine, as a capture sees them.
#[derive(Debug)]
pub(super) struct Gpus {
    requests: Sender<()>,
    answers: Receiver<Reading>,
    /// A request is pending.
    is_asked: bool,
    /// No further requests are made.
    is_over: bool,
    has_answered: bool,
    /// The last answer, until an interval has used it.
    readings: Option<Readings>,
    counters: GpuCounters,
    /// GPUs for which there was a notice.
    said: BTreeSet<u32>,
    has_said_left_out: bool,
    notices: Vec<String>,
}

impl Gpus {
    /// Starts the querying thread, and makes the first request; `None` if there is nothing to query.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(super) fn start(supervisor: &Supervisor) -> io::Result<Option<Self>> {
        let Some(launch) = LAUNCH.get().copied().filter(|_| is_to_be_asked()) else { return Ok(None) };
        let (requests, requested) = bounded(1);
        let (answered, answers) = bounded(1);
        let mut is_again = false;
        supervisor.spawn_restartable("gpus", "figures of GPUs are not recorded", move |heartbeat| {
            // The request at which a defect stopped it gets no other answer.
            if std::mem::replace(&mut is_again, true) {
                let _ = answered.try_send(Reading::Missing);
            }
            Readers::new(launch, PATIENCE).run(&requested, &answered, heartbeat);
        })?;
        let mut gpus = Self::new(requests, answers);
        gpus.ask();
        Ok(Some(gpus))
    }

    fn new(requests: Sender<()>, answers: Receiver<Reading>) -> Self {
        Self {
            requests,
            answers,
            is_asked: false,
            is_over: false,
            has_answered: false,
            readings: None,
            counters: GpuCounters::default(),
            said: BTreeSet::new(),
            has_said_left_out: false,
            notices: Vec::new(),
        }
    }

    /// Requests the readings of the interval that begins now, unless earlier ones are pending, or were not sent: others
    /// would replace them.
    pub(super) fn ask(&mut self) {
        if !self.is_asked && !self.is_over && self.readings.is_none() {
            self.is_asked = self.requests.try_send(()).is_ok();
        }
    }

    /// Takes the readings that have come for the interval that ends now.
    pub(super) fn take(&mut self) {
        match self.answers.try_recv() {
            Ok(Reading::Read(readings)) => {
                (self.is_asked, self.has_answered) = (false, true);
                self.say_what_failed(&readings);
                self.readings = Some(readings);
            }
            Ok(Reading::Missing) => {
                self.is_asked = false;
                self.counters.late += u64::from(self.has_answered);
            }
            Ok(Reading::Over(why)) => self.end(why),
            // The initialization time of the library is not counted.
            Err(TryRecvError::Empty) => {
                self.counters.late += u64::from(self.is_asked && self.has_answered);
            }
            // The thread has ended early, which its supervisor reports.
            Err(TryRecvError::Disconnected) => self.is_over = true,
        }
    }

    /// The figures of an interval of this length.
    pub(super) fn values(&self, interval_ns: u64) -> Vec<SystemValue> {
        let gpus = self.readings.iter().flat_map(|readings| &readings.gpus);
        gpus.flat_map(|gpu| figures::values(gpu, interval_ns)).collect()
    }

    /// The interval was sent; its readings are not used again.
    pub(super) fn used(&mut self) {
        self.readings = None;
    }

    /// The capture ends.
    pub(super) fn finish(&mut self) {
        if self.is_asked && !self.has_answered && !self.is_over {
            self.end(NoFigures::Silent);
        }
    }

    /// The counters so far.
    pub(super) fn counters(&self) -> GpuCounters {
        self.counters
    }

    /// Notices since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn end(&mut self, why: NoFigures) {
        (self.is_asked, self.is_over) = (false, true);
        let more = if self.has_answered { "more " } else { "" };
        self.notices.push(format!("no {more}figures of GPUs: {why}"));
    }

    /// One notice for each GPU, and one for those beyond the limit.
    fn say_what_failed(&mut self, readings: &Readings) {
        for gpu in &readings.gpus {
            let Some(code) = gpu.failed else { continue };
            if self.said.len() < SAID_MAX && self.said.insert(gpu.index) {
                let name = figures::name(gpu);
                self.notices.push(format!("{name}: some or all figures are missing: {code}"));
            }
        }
        if readings.left_out > 0 && !self.has_said_left_out {
            self.has_said_left_out = true;
            let (most, left_out) = (protocol::GPUS_MAX, readings.left_out);
            let gpus = if left_out == 1 { "GPU has" } else { "GPUs have" };
            self.notices.push(format!("{left_out} {gpus} no figures: {most} are read at most"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::code::Code;
    use super::protocol::{Figure, GpuReading};
    use super::*;

    /// The side of a capture, and the thread's ends of the channels.
    fn gpus() -> (Gpus, Receiver<()>, Sender<Reading>) {
        let ((requests, requested), (answered, answers)) = (bounded(1), bounded(1));
        (Gpus::new(requests, answers), requested, answered)
    }

    fn read(failed: Option<Code>, left_out: u32) -> Reading {
        let mut gpu = GpuReading { index: 1, uuid: "GPU-b".into(), failed, ..GpuReading::default() };
        gpu.set(Figure::BusyPercent, 50);
        Reading::Read(Readings { gpus: vec![gpu], left_out })
    }

    #[test]
    fn a_reading_is_used_for_one_interval() {
        let (mut gpus, requested, answered) = gpus();
        gpus.ask();
        gpus.ask();
        assert_eq!(requested.try_iter().count(), 1, "one request at a time");
        answered.send(read(None, 0)).unwrap();
        gpus.take();
        assert_eq!(gpus.values(1000)[0].value, 500);
        // Nobody took the interval: the next one includes it.
        gpus.ask();
        assert_eq!(requested.try_iter().count(), 0, "its reading would be lost");
        assert_eq!(gpus.values(2000)[0].value, 1000);
        gpus.used();
        assert!(gpus.values(1000).is_empty());
        gpus.ask();
        assert_eq!(requested.try_iter().count(), 1);
    }

    #[test]
    fn late_readings_count_once_there_was_one() {
        let (mut gpus, requested, answered) = gpus();
        gpus.ask();
        gpus.take();
        assert_eq!(gpus.counters().late, 0, "the library begins");
        requested.recv().unwrap();
        answered.send(read(None, 0)).unwrap();
        gpus.take();
        gpus.used();
        gpus.ask();
        gpus.take();
        answered.send(Reading::Missing).unwrap();
        gpus.take();
        assert_eq!(gpus.counters().gaps(), [(LATE, 2)]);
        assert!(gpus.take_notices().is_empty());
    }

    #[test]
    fn the_end_of_figures_is_said_once() {
        for (had, expect) in [
            (false, "no figures of GPUs: nvmlInit failed: NVML_ERROR_DRIVER_NOT_LOADED (9)"),
            (true, "no more figures of GPUs: nvmlInit failed: NVML_ERROR_DRIVER_NOT_LOADED (9)"),
        ] {
            let (mut gpus, requested, answered) = gpus();
            gpus.has_answered = had;
            gpus.ask();
            answered.send(Reading::Over(NoFigures::Refused(Refusal::NoInit(Code(9))))).unwrap();
            gpus.take();
            drop(answered);
            gpus.take();
            gpus.ask();
            gpus.finish();
            assert_eq!(gpus.take_notices(), [expect]);
            assert_eq!(requested.try_iter().count(), 1, "no more is asked");
        }
    }

    #[test]
    fn a_capture_that_ends_before_an_answer_says_so() {
        let (mut gpus, _requested, _answered) = gpus();
        gpus.finish();
        assert!(gpus.take_notices().is_empty(), "nothing was asked");
        gpus.ask();
        gpus.finish();
        gpus.finish();
        assert_eq!(gpus.take_notices(), ["no figures of GPUs: NVIDIA's library did not answer in time"]);
    }

    #[test]
    fn each_gpu_that_fails_is_named_once() {
        let (mut gpus, _requested, answered) = gpus();
        for _ in 0..2 {
            gpus.ask();
            answered.send(read(Some(Code::GPU_IS_LOST), 3)).unwrap();
            gpus.take();
        }
        assert_eq!(
            gpus.take_notices(),
            [
                "gpu 1 GPU-b: some or all figures are missing: NVML_ERROR_GPU_IS_LOST (15)",
                "3 GPUs have no figures: 64 are read at most",
            ]
        );
    }

    #[test]
    fn one_gpu_beyond_the_limit_is_singular() {
        let (mut gpus, _requested, answered) = gpus();
        gpus.ask();
        answered.send(read(None, 1)).unwrap();
        gpus.take();
        assert_eq!(gpus.take_notices(), ["1 GPU has no figures: 64 are read at most"]);
    }

    #[test]
    fn what_helps_is_said_with_the_reason() {
        let said = NoFigures::Refused(Refusal::NoAccess).to_string();
        assert!(said.contains("/dev/nvidiactl") && said.contains("(helps: "), "{said}");
        assert!(!NoFigures::Silent.to_string().contains("helps"));
    }
}
