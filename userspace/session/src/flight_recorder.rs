//! Flight recorder: keeps the last part of a capture in memory until it is requested.
//!
//! Owns: when a slice ends, the requests for a profile of the kept part, and the thread that writes it. Because: a
//! profile that is written only after something went wrong can still cover what led to it, and no disk is used before
//! a request. Does not: add up slices ([`deepctx_profile::profile::RecentPart`]), or know where profiles go: its
//! owner passes that in.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use deepctx_capture::cost::ThreadClock;
use deepctx_capture::supervisor::{Heartbeat, Supervisor};
use deepctx_profile::ledger::Ledger;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Profile, RecentPart};
use deepctx_profile::units::{Nanos, Time, clock, counted};

use crate::ending::{END_LONGEST, EndingThread, LOOK_EVERY, has_ended};
use crate::hang::{Hang, HangWatch};
use crate::lock;

/// Slices of the kept part: a window is at most a twelfth longer than requested.
const SLICES: u32 = 12;
/// Shortest slice: the recorder is called at this interval.
const SLICE_LEAST: Duration = Duration::from_millis(100);
/// Profiles that may wait for the thread: one of a request, and behind it that of the end.
const WINDOWS_MAX: usize = 2;

/// Why a flight recorder writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// A signal.
    Signal,
    /// A key in the terminal view.
    Key,
    /// No training step has ended for a long time.
    Hang,
    /// A rule found something.
    Finding,
    /// Requested on the control socket.
    Request,
    /// The capture has ended.
    End,
}

impl Trigger {
    /// Stored name.
    pub fn name(self) -> &'static str {
        match self {
            Trigger::Signal => "signal",
            Trigger::Key => "key",
            Trigger::Hang => "hang",
            Trigger::Finding => "finding",
            Trigger::Request => "request",
            Trigger::End => "end",
        }
    }
}

/// Requests a profile from a flight recorder, from any thread.
#[derive(Clone, Debug, Default)]
pub struct FlightRequests(Arc<Mutex<Option<Trigger>>>);

impl FlightRequests {
    /// Requests a profile of the kept part. Requests made before one is served are served together.
    pub fn request(&self, trigger: Trigger) {
        lock(&self.0).get_or_insert(trigger);
    }

    fn pending(&self) -> Option<Trigger> {
        *lock(&self.0)
    }

    fn served(&self) {
        *lock(&self.0) = None;
    }
}

/// Writes a profile up to a time, and returns where it is. Called on a thread of its own.
pub type WriteKeptFn = Box<dyn FnMut(&Profile, Time<clock::Monotonic>) -> Result<String, String> + Send>;

/// Options of a flight recorder.
pub struct FlightOptions {
    /// Length of the kept part; `None`: nothing is given up, and each profile is of the whole capture so far.
    pub keep: Option<Duration>,
    /// A training step this many times longer than usual counts as a hang, and a profile is written.
    pub on_hang: Option<f64>,
    /// Whether a profile is written when the capture ends.
    pub at_end: bool,
    /// Requests for a profile.
    pub requests: FlightRequests,
    /// Writes a profile.
    pub write: WriteKeptFn,
}

impl fmt::Debug for FlightOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keep, on_hang, at_end, .. } = self;
        let mut shown = f.debug_struct("FlightOptions");
        shown.field("keep", keep).field("on_hang", on_hang).field("at_end", at_end).finish_non_exhaustive()
    }
}

/// Keeps the last part of a capture, or all of it.
#[derive(Debug)]
pub(crate) struct FlightRecorder {
    /// `None` if nothing is given up.
    recent: Option<RecentPart>,
    keep: Nanos,
    slice: Duration,
    hang: Option<HangWatch>,
    /// When a profile of a hang was last written.
    hung: Option<Nanos>,
    at_end: bool,
    requests: FlightRequests,
    windows: Sender<Window>,
    thread: JoinHandle<()>,
    /// Closed when the thread has written its last profile, or panics.
    end: Receiver<()>,
    said: Arc<Mutex<RecorderStatus>>,
}

/// A profile to be written.
#[derive(Debug)]
struct Window {
    profile: Profile,
    ends: Time<clock::Monotonic>,
    trigger: Trigger,
    /// The capture has ended.
    is_last: bool,
}

/// State of the thread, for the recorder.
#[derive(Debug, Default)]
struct RecorderStatus {
    notices: Vec<String>,
    error: Option<String>,
    /// Profiles that it was given and has not written yet.
    unwritten: usize,
}

/// Results of a flight recorder at its end.
#[derive(Debug, Default)]
pub(crate) struct FlightEnd {
    pub(crate) notices: Vec<String>,
    pub(crate) error: Option<String>,
}

/// The last profiles on their way to the disk.
#[derive(Debug)]
pub(crate) struct EndingFlight {
    end: Receiver<()>,
    ending: EndingThread,
    thread: JoinHandle<()>,
    said: Arc<Mutex<RecorderStatus>>,
    /// Hangs were looked for, and no training step was seen.
    never_stepped: bool,
}

impl EndingFlight {
    /// Whether profiles are still written, and there is progress.
    pub(crate) fn is_writing(&mut self) -> bool {
        !has_ended(&self.end) && self.ending.goes_on(lock(&self.said).unwritten)
    }

    /// Waits until all is written, or there is no progress.
    pub(crate) fn wait(mut self) -> FlightEnd {
        while self.is_writing() {
            std::thread::sleep(LOOK_EVERY);
        }
        let Self { end, thread, said: shared, never_stepped, .. } = self;
        let is_over = has_ended(&end);
        if is_over {
            // All that it does now is to report a panic, for which the supervisor is asked next.
            _ = thread.join();
        }
        let mut said = std::mem::take(&mut *lock(&shared));
        if !is_over {
            let lasted = END_LONGEST.as_secs();
            said.error =
                Some(format!("the disk did not take what the flight recorder keeps within {lasted} s"));
        }
        if never_stepped {
            said.notices.push(
                "`--on-hang` had nothing to go by: no training step ended, or fewer than it takes to know how long one \
                 usually is; `--step-marker` says what ends one"
                    .to_owned(),
            );
        }
        FlightEnd { notices: said.notices, error: said.error }
    }
}

impl FlightRecorder {
    /// Keeps the figures of a profile from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        options: FlightOptions,
        profile: &mut Profile,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let FlightOptions { keep, on_hang, at_end, requests, write } = options;
        let (windows, incoming) = bounded(WINDOWS_MAX);
        let (running, end) = bounded(0);
        let said = Arc::<Mutex<RecorderStatus>>::default();
        let of_thread = Arc::clone(&said);
        let body = move |heartbeat: &Heartbeat| {
            let _running: Sender<()> = running;
            write_windows(&incoming, write, &of_thread, heartbeat);
        };
        let missing = "the kept data is no longer written";
        let thread = supervisor.spawn("flight-recorder", missing, body)?;
        let hang = on_hang.map(HangWatch::new);
        let recent = keep.map(|keep| RecentPart::start(profile, keep.into(), Nanos(0)));
        let keep = keep.unwrap_or_default();
        let slice = (keep / SLICES).max(SLICE_LEAST);
        let keep = Nanos::from(keep);
        Ok(Self { recent, keep, slice, hang, hung: None, at_end, requests, windows, thread, end, said })
    }

    /// Ends a slice if it is due, and writes the kept part on request or when training hangs. `profile` is up to date,
    /// `elapsed` the time since the capture began.
    pub(crate) fn tick(&mut self, profile: &mut Profile, elapsed: Duration) {
        let now = Nanos::from(elapsed);
        if let Some(hang) = self.hang.as_mut().and_then(|watch| watch.look(profile, now)) {
            self.hangs(&hang, now);
        }
        let is_due = |recent: &RecentPart| now.saturating_sub(recent.open_since()) >= Nanos::from(self.slice);
        if self.recent.as_ref().is_some_and(is_due) {
            self.end_slice(profile, now);
        }
        if let Some(trigger) = self.requests.pending() {
            self.write(profile, now, trigger);
        }
    }

    /// Starts to write the kept part at the end of the capture, if configured. The capture took `elapsed`.
    pub(crate) fn finish(mut self, profile: &mut Profile, elapsed: Duration) -> EndingFlight {
        let now = Nanos::from(elapsed);
        let asked = self.requests.pending();
        if let Some(trigger) = asked.or(self.at_end.then_some(Trigger::End)) {
            let window = Window { is_last: true, ..self.cut_out(profile, now, trigger) };
            lock(&self.said).unwritten += 1;
            // There is room behind the one before. The supervisor reports a thread that is gone.
            _ = self.windows.try_send(window);
        }
        let never_stepped = self.hang.take().is_some_and(|watch| !watch.has_seen_steps());
        let Self { windows, end, thread, said, .. } = self;
        drop(windows);
        let ending = EndingThread::new(ThreadClock::of(&thread), lock(&said).unwritten);
        EndingFlight { end, ending, thread, said, never_stepped }
    }

    /// Notices since the last time, and the last error.
    pub(crate) fn said(&self) -> (Vec<String>, Option<String>) {
        let mut said = lock(&self.said);
        (std::mem::take(&mut said.notices), said.error.clone())
    }

    /// Writes a profile of a hang, once per window: a program that stalls again and again must not fill the disk.
    fn hangs(&mut self, hang: &Hang, now: Nanos) {
        lock(&self.said).notices.push(hang.to_string());
        if self.hung.is_none_or(|last| now.saturating_sub(last) >= self.keep) {
            self.hung = Some(now);
            self.requests.request(Trigger::Hang);
        }
    }

    fn end_slice(&mut self, profile: &mut Profile, now: Nanos) {
        let Some(recent) = &mut self.recent else { return };
        let start = Instant::now();
        recent.next_slice(profile, now);
        let (cost, cells) = (start.elapsed(), recent.cells());
        tracing::debug!(?cost, cells, contexts = profile.tree.len(), "slice of the flight recorder ended");
    }

    /// Hands a profile to the thread. While that writes another one, the request waits.
    fn write(&mut self, profile: &Profile, now: Nanos, trigger: Trigger) {
        if std::mem::replace(&mut lock(&self.said).unwritten, 1) > 0 {
            return;
        }
        let window = self.cut_out(profile, now, trigger);
        self.requests.served();
        // The supervisor reports a thread that is gone.
        _ = self.windows.try_send(window);
    }

    fn cut_out(&self, profile: &Profile, now: Nanos, trigger: Trigger) -> Window {
        let start = Instant::now();
        let window = match &self.recent {
            Some(recent) => recent.window(profile, now, trigger.name()),
            None => so_far(profile),
        };
        let (cost, contexts) = (start.elapsed(), window.tree.len());
        tracing::debug!(?cost, contexts, "profile of the flight recorder made");
        Window { profile: window, ends: profile.meta.started_monotonic + now, trigger, is_last: false }
    }
}

/// A growing profile as if it ended now: records that are under way count nowhere.
fn so_far(profile: &Profile) -> Profile {
    let mut copy = profile.clone();
    copy.ledger = profile.ledger.since(&Ledger::default());
    copy
}

/// The thread: writes profiles until the channel closes.
fn write_windows(
    windows: &Receiver<Window>,
    mut write: WriteKeptFn,
    said: &Mutex<RecorderStatus>,
    heartbeat: &Heartbeat,
) {
    for window in windows {
        heartbeat.beat();
        let notice = write(&window.profile, window.ends).map(|place| notice(&place, &window));
        let mut said = lock(said);
        // The recorder counts none anymore once it has given the thread up.
        said.unwritten = said.unwritten.saturating_sub(1);
        match notice {
            Ok(notice) => said.notices.push(notice),
            Err(error) => {
                let what = match window.profile.meta.kept {
                    Some(_) => "the flight recorder could not write what it keeps",
                    None => "the capture so far could not be written",
                };
                let error = format!("{what}: {error}");
                said.notices.push(error.clone());
                said.error = Some(error);
            }
        }
        heartbeat.idle();
    }
}

fn notice(place: &str, window: &Window) -> String {
    let profile = &window.profile;
    let (length, samples) =
        (window.ends - profile.meta.started_monotonic, profile.tree.total(Metric::Samples).count);
    let why = match window.trigger {
        Trigger::Signal => "asked for by a signal",
        Trigger::Key => "asked for by a key",
        Trigger::Hang => "written because training hangs",
        Trigger::Finding => "written because of a finding",
        Trigger::Request => "written on request",
        Trigger::End => "written",
    };
    let then = match (window.is_last, window.trigger) {
        (true, Trigger::End) => " at the end of the recording",
        (true, _) => ", at the end of the recording",
        (false, _) => "; recording goes on",
    };
    let part = if profile.meta.kept.is_some() { "last" } else { "whole" };
    format!("{place}: the {part} {length} with {}, {why}{then}", counted(samples, "sample"))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::frame::Frame;
    use deepctx_profile::ledger::Stage;
    use deepctx_profile::profile::{Limits, Meta};

    use super::*;

    /// The written profiles: samples and trigger of each.
    type WrittenProfiles = Arc<Mutex<Vec<(u64, String)>>>;

    fn recorder(
        profile: &mut Profile,
        requests: &FlightRequests,
        fails: bool,
    ) -> (FlightRecorder, WrittenProfiles) {
        let written = WrittenProfiles::default();
        let of_thread = Arc::clone(&written);
        let write: WriteKeptFn = Box::new(move |window, _| {
            if fails {
                return Err("the disk is full".into());
            }
            let because = window.meta.kept.clone().unwrap_or_default().because;
            lock(&of_thread).push((window.tree.total(Metric::Samples).count, because));
            Ok("run.dctx".into())
        });
        let (keep, requests) = (Some(Duration::from_secs(12)), requests.clone());
        let options = FlightOptions { keep, on_hang: None, at_end: true, requests, write };
        (FlightRecorder::start(options, profile, &Supervisor::default()).unwrap(), written)
    }

    fn profile() -> (Profile, deepctx_profile::NodeId) {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let name = profile.text("f");
        let frame = profile.frame(Frame::Operator { name });
        let node = profile.add(&[frame], Metric::Samples, 1);
        (profile, node)
    }

    #[test]
    fn requests_give_the_window_and_recording_goes_on() {
        let (mut profile, node) = profile();
        let requests = FlightRequests::default();
        let (mut recorder, written) = recorder(&mut profile, &requests, false);
        for second in 1..=30 {
            profile.tree.add(node, Metric::Samples, 1);
            recorder.tick(&mut profile, Duration::from_secs(second));
            if second == 20 {
                requests.request(Trigger::Signal);
                requests.request(Trigger::Key);
            }
        }
        let end = recorder.finish(&mut profile, Duration::from_secs(30)).wait();
        assert_eq!(*lock(&written), [(12, "signal".to_owned()), (12, "end".to_owned())]);
        assert_eq!((end.notices.len(), end.error), (2, None), "{:?}", end.notices);
        let window = "run.dctx: the last 12.0 s with 12 samples";
        assert_eq!(end.notices[0], format!("{window}, asked for by a signal; recording goes on"));
        assert_eq!(end.notices[1], format!("{window}, written at the end of the recording"));
    }

    #[test]
    fn a_request_that_is_served_last_says_so() {
        let (mut profile, node) = profile();
        let requests = FlightRequests::default();
        let (recorder, written) = recorder(&mut profile, &requests, false);
        requests.request(Trigger::Finding);
        profile.tree.add(node, Metric::Samples, 1);
        let end = recorder.finish(&mut profile, Duration::from_secs(12)).wait();
        assert_eq!(*lock(&written), [(1, "finding".to_owned())]);
        let said = "run.dctx: the last 12.0 s with 1 sample, written because of a finding, at the end of the recording";
        assert_eq!(end.notices, [said]);
    }

    #[test]
    fn without_a_limit_a_request_gives_the_whole_capture() {
        let (mut profile, node) = profile();
        let written = Arc::<Mutex<Vec<Profile>>>::default();
        let of_thread = Arc::clone(&written);
        let write: WriteKeptFn = Box::new(move |window, _| {
            lock(&of_thread).push(window.clone());
            Ok("live.dctx".into())
        });
        let requests = FlightRequests::default();
        let options =
            FlightOptions { keep: None, on_hang: None, at_end: false, requests: requests.clone(), write };
        let mut recorder = FlightRecorder::start(options, &mut profile, &Supervisor::default()).unwrap();
        // One record is under way.
        profile.ledger.stage_mut(Stage::Decode).pass(31);
        profile.ledger.stage_mut(Stage::Attribute).pass(30);
        for second in 1..=30 {
            profile.tree.add(node, Metric::Samples, 1);
            recorder.tick(&mut profile, Duration::from_secs(second));
        }
        requests.request(Trigger::Key);
        let end = recorder.finish(&mut profile, Duration::from_secs(30)).wait();
        let written = lock(&written);
        assert_eq!((written.len(), &written[0].meta.kept), (1, &None));
        assert_eq!(written[0].tree.total(Metric::Samples).count, 31);
        assert_eq!(written[0].ledger.stage(Stage::Decode).received, 30);
        let said =
            "live.dctx: the whole 30.0 s with 31 samples, asked for by a key, at the end of the recording";
        assert_eq!((end.notices, end.error), (vec![said.to_owned()], None));
    }

    #[test]
    fn hangs_within_one_window_are_written_once() {
        let (mut profile, _) = profile();
        let requests = FlightRequests::default();
        let (mut recorder, written) = recorder(&mut profile, &requests, false);
        let hang = Hang { since: Nanos(1), usual: Nanos(1), pids: vec![7] };
        for second in [1, 5, 12, 13, 20] {
            recorder.hangs(&hang, Duration::from_secs(second).into());
            if requests.pending().is_some() {
                requests.served();
                lock(&written).push((second, "hang".to_owned()));
            }
        }
        recorder.finish(&mut profile, Duration::from_secs(20)).wait();
        let hangs: Vec<u64> =
            lock(&written).iter().filter(|(_, why)| why == "hang").map(|(at, _)| *at).collect();
        assert_eq!(hangs, [1, 13]);
    }

    #[test]
    fn a_disk_that_hangs_does_not_hold_up_the_end() {
        let (mut profile, _) = profile();
        let (_goes_on, hangs) = bounded::<()>(0);
        let write: WriteKeptFn = Box::new(move |_, _| {
            _ = hangs.recv();
            Ok("run.dctx".into())
        });
        let (keep, requests) = (Some(Duration::from_secs(12)), FlightRequests::default());
        let options = FlightOptions { keep, on_hang: None, at_end: true, requests, write };
        let recorder = FlightRecorder::start(options, &mut profile, &Supervisor::default()).unwrap();
        let end = recorder.finish(&mut profile, Duration::from_secs(1)).wait();
        assert!(end.error.is_some_and(|error| error.contains("the disk did not take what")));
    }

    #[test]
    fn a_thread_that_takes_nothing_is_waited_for_once() {
        let (mut profile, _) = profile();
        let requests = FlightRequests::default();
        let (mut recorder, _) = recorder(&mut profile, &requests, false);
        // Nobody takes from these.
        let ((windows, untaken), (_running, end)) = (bounded(WINDOWS_MAX), bounded(0));
        (recorder.windows, recorder.end) = (windows, end);
        requests.request(Trigger::Signal);
        recorder.tick(&mut profile, Duration::from_secs(1));
        let began = Instant::now();
        let end = recorder.finish(&mut profile, Duration::from_secs(2)).wait();
        assert!(began.elapsed() < END_LONGEST * 3 / 2, "{:?}", began.elapsed());
        assert_eq!((untaken.len(), end.error.is_some()), (2, true));
    }

    #[test]
    fn each_profile_that_is_written_prolongs_the_wait() {
        let (mut profile, _) = profile();
        // A slow disk takes no CPU time.
        let write: WriteKeptFn = Box::new(|_, _| {
            std::thread::sleep(END_LONGEST * 5 / 8);
            Ok("run.dctx".into())
        });
        let (keep, requests) = (Some(Duration::from_secs(12)), FlightRequests::default());
        let options = FlightOptions { keep, on_hang: None, at_end: true, requests: requests.clone(), write };
        let mut recorder = FlightRecorder::start(options, &mut profile, &Supervisor::default()).unwrap();
        requests.request(Trigger::Signal);
        recorder.tick(&mut profile, Duration::from_secs(1));
        let end = recorder.finish(&mut profile, Duration::from_secs(2)).wait();
        assert_eq!((end.notices.len(), end.error), (2, None), "{:?}", end.notices);
    }

    #[test]
    fn a_panic_over_the_last_profile_is_reported_at_once() {
        let (mut profile, _) = profile();
        let write: WriteKeptFn = Box::new(|_, _| panic!("row {}", 7));
        let (keep, requests) = (Some(Duration::from_secs(12)), FlightRequests::default());
        let options = FlightOptions { keep, on_hang: None, at_end: true, requests, write };
        let supervisor = Supervisor::default();
        let recorder = FlightRecorder::start(options, &mut profile, &supervisor).unwrap();
        recorder.finish(&mut profile, Duration::from_secs(1)).wait();
        assert_eq!(supervisor.ended_early().map(|end| end.thread), Some("flight-recorder"));
    }

    #[test]
    fn a_profile_that_cannot_be_written_is_reported() {
        let (mut profile, _) = profile();
        let (recorder, _) = recorder(&mut profile, &FlightRequests::default(), true);
        let end = recorder.finish(&mut profile, Duration::from_secs(1)).wait();
        assert!(end.error.is_some_and(|error| error.contains("the disk is full")));
    }
}
