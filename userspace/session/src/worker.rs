//! Worker: the loop of the pipeline's thread.
//!
//! Owns: when the pipeline is advanced and when sinks are called. Because: naming and writing are slow and must never
//! hold up the thread that drains the rings. Does not: know a sink of profiles by name (single events and the flight
//! recorder have an interface of their own), or decide when to stop.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, TryRecvError};
use deepctx_capture::Message;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::cost::{OwnCost, ResidentMemory};
use deepctx_capture::counters::{CpuCounters, GpuCounters, ScanCounters, WaitCounters};
use deepctx_capture::supervisor::{STALL_MIN, Supervisor, standstill_for_tests};
use deepctx_pipeline::input::{Input, KernelCounters, SpaceUpdate};
use deepctx_pipeline::{AwaitedBegin, Pipeline, STEP_MARKER};
use deepctx_profile::profile::Executable;
use deepctx_profile::units::{Bytes, Time, counted};
use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::memory;

use crate::device_code::DeviceCode;
use crate::ending::LOOK_EVERY;
use crate::flight_recorder::{EndingFlight, FlightEnd, FlightOptions, FlightRecorder};
use crate::hottest::HottestOperators;
use crate::lock;
use crate::memory_table;
use crate::options::{Options, SKEW_NS, SessionResult, SharedState};
use crate::reason::THREAD_RESTARTED;
use crate::resolver::Resolver;
use crate::sinks::{EndingTrace, Sink, SinkError, State, TraceSink};
use crate::status::{Rates, Status};

/// Interval at which the pipeline is advanced: long enough that unknown addresses are resolved together, short enough
/// to look live.
const TICK: Duration = Duration::from_millis(100);
/// Without records the clock still advances. A record older than this on arrival was delayed by a stopped reader.
const IDLE_NS: u64 = 1_000_000_000;
/// Longest wait for a stopped capture to close its channel. Draining a full ring takes a second.
const DRAIN_GRACE: Duration = Duration::from_secs(10);
/// Longest wait for its next message: one of its threads may wait for something that never comes.
const DRAIN_IDLE: Duration = Duration::from_secs(3);
/// Interval at which memory is accounted by owner. It takes a millisecond.
const MEMORY_EVERY: Duration = Duration::from_secs(5);
/// Training steps kept for the session's owner, who takes them ten times a second.
const ENDED_STEPS_MAX: usize = 1 << 16;
/// Most files that a profile lists: some 100 bytes each.
const EXECUTABLES_MAX: usize = 1 << 16;
/// Longest wait for lines of device code at the end.
const LINES_GRACE: Duration = Duration::from_secs(2);

type SinkMethod = fn(&mut (dyn Sink + 'static), &State<'_>) -> Result<(), SinkError>;

/// The state of the pipeline's thread.
pub(crate) struct Worker {
    pipeline: Pipeline<Resolver>,
    shared: Arc<SharedState>,
    started: Instant,
    named: Vec<u32>,
    sinks: Vec<Box<dyn Sink>>,
    trace: Option<TraceSink>,
    flight_recorder: Option<FlightRecorder>,
    device_code: DeviceCode,
    supervisor: Supervisor,
    hottest: Option<HottestOperators>,
    /// Published on request with [`Worker::publish`].
    status: Status,
    rates: Rates,
    /// Number of the first file that is not looked at for the profile's list.
    next_module: u32,
    /// What scans of processes found and missed so far.
    scans: ScanCounters,
    gpus: GpuCounters,
    cpus: CpuCounters,
    waits: WaitCounters,
    /// When to account memory by owner next.
    memory_due: Option<Instant>,
    /// Error of a write that is being retried.
    retried: Option<String>,
}

impl Worker {
    pub(crate) fn new(options: Options, shared: Arc<SharedState>) -> Self {
        let supervisor = Supervisor::default();
        let now = Instant::now();
        let resolver = Resolver::new(options.debug_info, options.layers).live(&options.named);
        let mut pipeline = Pipeline::new(resolver, options.meta, options.config);
        let mut status = Status::default();
        let flight_recorder = options
            .flight_recorder
            .and_then(|options| start_flight_recorder(options, &mut pipeline, &mut status, &supervisor));
        Self {
            pipeline,
            flight_recorder,
            shared,
            started: now,
            named: options.named,
            sinks: options.sinks,
            trace: options.trace,
            device_code: DeviceCode::new(supervisor.clone()),
            supervisor,
            hottest: options.hottest,
            status,
            rates: Rates::new(now),
            next_module: 0,
            scans: ScanCounters::default(),
            gpus: GpuCounters::default(),
            cpus: CpuCounters::default(),
            waits: WaitCounters::default(),
            memory_due: None,
            retried: None,
        }
    }

    pub(crate) fn run(
        mut self,
        messages: &Receiver<Message>,
        finish: &Receiver<Option<KernelCounters>>,
    ) -> SessionResult {
        let mut next_tick = Instant::now() + TICK;
        let counters = loop {
            match messages.recv_deadline(next_tick) {
                Ok(message) => self.on_message(message),
                Err(RecvTimeoutError::Timeout) => {}
                // The capture has ended. Only the request to finish is awaited.
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(next_tick.saturating_duration_since(Instant::now()))
                }
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.tick(messages.is_empty());
                standstill_for_tests("pipeline");
            }
            match finish.try_recv() {
                Ok(counters) => break counters,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => break None,
            }
        };
        // Nothing is sampled from here on, however long symbolization takes.
        let captured = self.started.elapsed();
        // A stopped capture still drains its ring, and closes the channel after the last record.
        let deadline = Instant::now() + DRAIN_GRACE;
        while let Ok(message) = messages.recv_deadline(deadline.min(Instant::now() + DRAIN_IDLE)) {
            self.on_message(message);
        }
        self.finish(counters, captured)
    }

    fn on_message(&mut self, message: Message) {
        self.come_on();
        match message {
            Message::Records(bytes) => self.feed(Input::Records(bytes)),
            Message::Counters(counters) => self.feed(Input::Counters(counters)),
            Message::Space { pid, time_ns, maps } => {
                if let Some(trace) = &self.trace {
                    trace.note_process(pid);
                }
                self.feed(Input::Space(SpaceUpdate { pid, time_ns, name: process_name(pid), maps }))
            }
            Message::Refused(refusals) => self.feed(Input::Refused(refusals)),
            Message::Sites(sites) => self.feed(Input::Sites(sites)),
            Message::SitesFreed(numbers) => self.feed(Input::SitesFreed(numbers)),
            Message::SiteCounts(counts) => self.feed(Input::SiteCounts(counts)),
            Message::CallsEnd(time_ns) => self.feed(Input::CallsEnd(time_ns)),
            Message::DutyWindow(window) => self.feed(Input::DutyWindow(window)),
            Message::System(sample) => self.feed(Input::System(sample)),
            Message::Scans(counters) => self.scans = counters,
            Message::Gpus(counters) => self.gpus = counters,
            Message::Cpus(counters) => self.cpus = counters,
            Message::Waits(counters) => self.waits = counters,
            Message::TargetGone { pid } => {
                self.status.target_ended(pid, &self.named);
                self.publish();
            }
            Message::Notice(notice) => self.notice(notice),
            Message::Probes(counters) => {
                self.status.probes = counters;
                self.publish();
            }
        }
    }

    fn feed(&mut self, input: Input<Maps>) {
        for sink in &mut self.sinks {
            if let Err(error) = sink.on_input(&input) {
                self.status.unstored |= matches!(error, SinkError::Stopped { .. });
                self.status.write_error = Some(error.to_string());
            }
        }
        let input = input.with_maps(|pid, maps| self.pipeline.symbols().admit(pid, maps));
        self.pipeline.feed(input);
        self.device_code.request_lines(self.pipeline.unread_cubins());
    }

    /// Records that this thread makes progress.
    fn come_on(&self) {
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
    }

    fn tick(&mut self, idle: bool) {
        self.come_on();
        self.begin_trace();
        let newest = self.pipeline.newest_ns().saturating_sub(SKEW_NS);
        // While messages wait, the clock does not show which records have arrived.
        let quiet = if idle { monotonic_ns().saturating_sub(IDLE_NS) } else { 0 };
        self.pipeline.advance(newest.max(quiet));
        self.hand_on_events();
        self.hand_on_steps();
        self.recover_names();
        self.choose_hottest();
        self.feed_lines(Duration::ZERO);
        self.measure();
        self.record_flight();
        self.call_sinks(<dyn Sink>::on_tick);
    }

    fn finish(mut self, counters: Option<KernelCounters>, captured: Duration) -> SessionResult {
        self.come_on();
        if let Some(counters) = counters {
            self.feed(Input::Counters(counters));
        }
        let cost = lock(&self.shared.cost).clone();
        self.account_memory(&cost);
        self.feed_lines(LINES_GRACE);
        self.feed_names();
        self.pipeline.finish();
        let mut trace = self.finish_trace();
        let mut flight = self.finish_flight(captured);
        self.report_unseen_markers();
        self.measure();
        self.sinks.reverse();
        self.write_last(flight.as_mut(), trace.as_mut());
        if let Some(flight) = flight {
            self.report_flight(flight);
        }
        self.call_sinks(<dyn Sink>::on_finish);
        if let Some(trace) = trace {
            self.report_trace(trace);
        }
        SessionResult { profile: self.pipeline.into_profile(), status: self.status }
    }

    /// Has all write their last part, until each has or makes no progress. All are looked at together: they may wait
    /// for one disk, and progress counts from when it is seen.
    fn write_last(&mut self, mut flight: Option<&mut EndingFlight>, mut trace: Option<&mut EndingTrace>) {
        loop {
            self.come_on();
            self.call_sinks(<dyn Sink>::on_ending);
            let mut writes = flight.as_mut().is_some_and(|flight| flight.is_writing());
            writes |= trace.as_mut().is_some_and(|trace| trace.is_writing());
            for sink in &mut self.sinks {
                writes |= sink.is_writing();
            }
            if !writes {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Hands single events to the trace sink.
    fn hand_on_events(&mut self) {
        let Some(trace) = &mut self.trace else { return };
        if let Some(batch) = self.pipeline.recorded() {
            trace.take(batch);
        }
        if let Some(error) = trace.error() {
            self.status.write_error = Some(format!("the trace: {error}"));
        }
    }

    /// Hands training steps to the session's owner.
    fn hand_on_steps(&mut self) {
        let ended = self.pipeline.ended_steps();
        let mut waiting = lock(&self.shared.ended_steps);
        let room = ENDED_STEPS_MAX.saturating_sub(waiting.len());
        waiting.extend(ended.into_iter().take(room));
    }

    /// Begins the window of single events on request.
    fn begin_trace(&mut self) {
        let requests = std::mem::take(&mut *lock(&self.shared.trace_requests));
        for at_ns in requests {
            let ago = Duration::from_nanos(monotonic_ns().saturating_sub(at_ns));
            let at = self.started.elapsed().saturating_sub(ago).as_secs_f64();
            let said = match self.pipeline.request_trace(at_ns) {
                true => format!("individual events are recorded from {at:.1} s after the start"),
                false => {
                    format!(
                        "individual events cannot be recorded again at {at:.1} s: a capture has one window"
                    )
                }
            };
            self.notice(said);
        }
    }

    /// Hands over the last single events, and reports why there are none.
    fn finish_trace(&mut self) -> Option<EndingTrace> {
        self.hand_on_events();
        let trace = self.trace.take()?;
        match self.pipeline.trace_awaits() {
            Some(AwaitedBegin::Work) => self.notice(
                "the trace is empty: no kernel was launched, and no range, step or operator began; the last three \
                 need `--probe`"
                    .to_owned(),
            ),
            Some(AwaitedBegin::Step(step)) => self.notice(format!(
                "the trace is empty: training step {step} never began; steps are counted with `--probe ranges`, and \
                 `--step-marker` says what ends one"
            )),
            Some(AwaitedBegin::Launch(launch)) => self.notice(format!(
                "the trace is empty: no process came to launch {launch}; launches are counted from the start of the \
                 capture"
            )),
            Some(AwaitedBegin::Request) => {
                self.notice("the trace is empty: no SIGUSR2 came".to_owned());
            }
            None => {}
        }
        Some(trace.finish(self.pipeline.recorded_account().unwrap_or_default()))
    }

    /// Waits until all single events are on disk, and reports what is missing.
    fn report_trace(&mut self, trace: EndingTrace) {
        let (account, error) = trace.wait();
        if let Some(error) = error {
            self.status.write_error = Some(format!("the trace: {error}"));
        }
        if account.lost() > 0 {
            let (lost, all) = (account.lost(), counted(account.received, "event"));
            self.notice(format!("the trace lacks {lost} of {all}; the rows `gap` in it say where and when"));
        }
        self.status.traced = Some(account);
        self.publish();
    }

    /// Keeps the additions to the profile, and reports what was written.
    fn record_flight(&mut self) {
        if self.flight_recorder.is_some() {
            self.list_executables();
        }
        let Some(recorder) = &mut self.flight_recorder else { return };
        recorder.tick(self.pipeline.profile(), self.started.elapsed());
        let (notices, error) = recorder.said();
        self.say_of_flight(FlightEnd { notices, error });
    }

    /// Hands over the last part of the kept profile.
    fn finish_flight(&mut self, captured: Duration) -> Option<EndingFlight> {
        self.come_on();
        self.list_executables();
        let recorder = self.flight_recorder.take()?;
        Some(recorder.finish(self.pipeline.profile(), captured))
    }

    /// Waits until the kept profile is on disk, and reports what was written.
    fn report_flight(&mut self, flight: EndingFlight) {
        self.say_of_flight(flight.wait());
        // Its thread may have stopped over the last part.
        self.status.ended_early = self.supervisor.ended_early();
    }

    fn say_of_flight(&mut self, FlightEnd { notices, error }: FlightEnd) {
        notices.into_iter().for_each(|notice| self.notice(notice));
        if error.is_some() {
            self.status.write_error = error;
        }
    }

    /// Requests names for kernels launched without one, and feeds the names found.
    fn recover_names(&mut self) {
        self.device_code.request_names(self.pipeline.unnamed_kernels());
        self.feed_names();
    }

    /// Feeds names of kernels that were found since the last call.
    fn feed_names(&mut self) {
        for kernels in self.device_code.names() {
            self.feed(Input::Recovered(kernels));
        }
    }

    /// Feeds lines of device code; waits at most `longest` for those being read.
    fn feed_lines(&mut self, longest: Duration) {
        let lines = self.device_code.lines(longest);
        if !lines.is_empty() {
            self.feed(Input::Lines(lines));
        }
    }

    /// Chooses the hottest operators, once.
    fn choose_hottest(&mut self) {
        let Some(hottest) = &mut self.hottest else { return };
        if let Some(notice) = hottest.choose_if_due(self.pipeline.profile()) {
            self.hottest = None;
            self.notice(notice);
        }
    }

    /// Reports the user's step markers that no range matched.
    fn report_unseen_markers(&mut self) {
        let unseen: Vec<String> =
            self.pipeline.unseen_markers().filter(|name| *name != STEP_MARKER).map(str::to_owned).collect();
        for name in unseen {
            self.notice(format!(
                "--step-marker {name} ended no training step: no range ended whose name begins with it"
            ));
        }
    }

    fn measure(&mut self) {
        let mut gaps: Vec<_> = self.scans.gaps().into();
        gaps.extend(memory::gaps());
        gaps.extend(self.gpus.gaps());
        gaps.extend(self.cpus.gaps());
        gaps.extend(self.waits.gaps());
        gaps.extend(self.pipeline.symbols().gaps());
        gaps.extend(self.status.probes.gaps());
        gaps.extend(self.sinks.iter().flat_map(|sink| sink.gaps()));
        gaps.push((THREAD_RESTARTED, self.shared.restarts.load(Ordering::Relaxed)));
        self.pipeline.tables_lack(gaps);
        let late = std::mem::take(&mut *lock(&self.shared.notices));
        for notice in late.into_iter().chain(memory::reader::take_notices()) {
            self.notice(notice);
        }
        for stall in self.supervisor.newly_stalled(STALL_MIN) {
            self.notice(stall.to_string());
        }
        self.status.auto_probes.clone_from(&lock(&self.shared.auto_probes));
        self.status.ended_early = self.supervisor.ended_early();
        self.status.count(&self.pipeline);
        let cost = lock(&self.shared.cost).clone();
        self.rates.update(&mut self.status, &cost);
        if self.memory_due.is_none_or(|due| Instant::now() >= due) {
            self.account_memory(&cost);
        }
    }

    /// Accounts the profiler's memory by owner.
    fn account_memory(&mut self, cost: &OwnCost) {
        self.memory_due = Some(Instant::now() + MEMORY_EVERY);
        let mut here = self.pipeline.memory();
        here.extend(self.pipeline.symbols().memory());
        here.extend(self.sinks.iter().filter_map(|sink| sink.memory()));
        here.push(cost.processes);
        self.status.own_memory = memory_table::by_owner(&cost.maps, here, ResidentMemory::now());
    }

    /// Updates the profile and the status, and hands both to every sink.
    fn call_sinks(&mut self, method: SinkMethod) {
        self.list_executables();
        let newest = Time::from_nanos(self.pipeline.newest_ns());
        let profile = self.pipeline.profile();
        self.status.lost = profile.ledger.lost();
        self.status.lost_share = profile.ledger.lost_share();
        // A sink may take long; readers of the status get the new figures meanwhile.
        lock(&self.shared.status).clone_from(&self.status);
        let elapsed = self.started.elapsed();
        let mut recovered = false;
        for sink in &mut self.sinks {
            self.shared.progress.fetch_add(1, Ordering::Relaxed);
            let state = State { profile, newest, status: &self.status, elapsed };
            match method(&mut **sink, &state) {
                Err(error) => {
                    let text = error.to_string();
                    self.status.unstored |= matches!(error, SinkError::Stopped { .. });
                    if matches!(error, SinkError::Store(_) | SinkError::Stalled { .. }) {
                        self.retried.get_or_insert_with(|| text.clone());
                        self.status.write_error.get_or_insert(text);
                    } else {
                        self.status.write_error = Some(text);
                    }
                }
                Ok(()) => recovered |= sink.has_recovered(),
            }
        }
        if recovered && let Some(error) = self.retried.take() {
            self.status.write_error.take_if(|shown| *shown == error);
            self.status.add_notice(format!("{error}; a later attempt succeeded, and nothing is missing"));
        }
        self.publish();
    }

    /// Lists files that the symbolizer opened in the profile. Later readers of the profile need their build-ids.
    fn list_executables(&mut self) {
        let new = self.new_executables();
        let listed = &mut self.pipeline.profile().executables;
        let room = EXECUTABLES_MAX.saturating_sub(listed.len());
        let fills = room > 0 && new.len() > room;
        listed.extend(new.into_iter().take(room));
        if fills {
            self.notice(format!(
                "the profile lists the first {EXECUTABLES_MAX} files that were mapped; exports know no build-id of others"
            ));
        }
    }

    /// Files that the symbolizer opened since the last call.
    fn new_executables(&mut self) -> Vec<Executable> {
        let modules = self.pipeline.symbols().symbolizer().modules();
        let mut next = self.next_module;
        let new = modules.since(next).inspect(|(handle, _)| next = handle.number() + 1);
        let executables = new.map(|(_, module)| Executable {
            path: module.path().to_string(),
            build_id: module.facts().build_id.map(|id| id.to_string()).unwrap_or_default(),
            size: Bytes(module.facts().size),
        });
        let executables = executables.collect();
        self.next_module = next;
        executables
    }

    fn notice(&mut self, notice: String) {
        self.status.add_notice(notice);
        self.publish();
    }

    fn publish(&self) {
        lock(&self.shared.status).clone_from(&self.status);
    }
}

/// A capture without its flight recorder is of no use, but the program must report it and not end in the middle.
fn start_flight_recorder(
    options: FlightOptions,
    pipeline: &mut Pipeline<Resolver>,
    status: &mut Status,
    supervisor: &Supervisor,
) -> Option<FlightRecorder> {
    let started = FlightRecorder::start(options, pipeline.profile(), supervisor);
    if let Err(error) = &started {
        status.write_error = Some(format!("the thread of the flight recorder: {error}"));
    }
    started.ok()
}

/// Name of a process's main thread; empty if the process is gone.
fn process_name(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Mutex;

    use crossbeam_channel::{Sender, bounded};
    use deepctx_capture::cost::ThreadClock;
    use deepctx_pipeline::input::RecoveredKernel;
    use deepctx_profile::profile::Meta;
    use deepctx_storage::store::Writer;

    use super::*;
    use crate::ending::{END_LONGEST, EndingThread};
    use crate::flight_recorder::{FlightRequests, WriteKeptFn};
    use crate::sinks::{RawSink, StoreSink};

    /// The names of kernels that come as input.
    #[derive(Debug, Default)]
    struct FoundNames(Arc<Mutex<Vec<String>>>);

    impl Sink for FoundNames {
        fn on_input(&mut self, input: &Input<Maps>) -> Result<(), SinkError> {
            if let Input::Recovered(kernels) = input {
                lock(&self.0).extend(kernels.iter().map(|kernel| kernel.name.clone()));
            }
            Ok(())
        }

        fn on_finish(&mut self, _state: &State<'_>) -> Result<(), SinkError> {
            Ok(())
        }
    }

    #[test]
    fn names_found_since_the_last_tick_are_used() {
        let names = FoundNames::default();
        let found = Arc::clone(&names.0);
        let options = Options { sinks: vec![Box::new(names)], ..Options::default() };
        let mut worker = Worker::new(options, Arc::default());
        let kernel = RecoveredKernel { name: "_Z4gemmPf".into(), ..RecoveredKernel::default() };
        worker.device_code = DeviceCode::having_found(vec![kernel]);
        worker.finish(None, Duration::ZERO);
        assert_eq!(*lock(&found), ["_Z4gemmPf"]);
    }

    #[test]
    fn the_status_names_what_auto_chose() {
        let shared = Arc::<SharedState>::default();
        lock(&shared.auto_probes).push("openmp".to_owned());
        let ended = Worker::new(Options::default(), shared).finish(None, Duration::ZERO);
        assert_eq!(ended.status.auto_probes, ["openmp"]);
    }

    /// A file that reports its flushes: that of a raw copy is at its end.
    struct FlushSignal(Sender<()>);

    impl Write for FlushSignal {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            _ = self.0.try_send(());
            Ok(())
        }
    }

    #[test]
    fn all_write_their_last_part_before_one_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.dctx");
        let writer = Writer::create(&path, &Meta::default()).unwrap();
        let store = StoreSink::new(writer, Duration::from_secs(5)).unwrap();
        let (flush, flushed) = bounded(1);
        let raw = RawSink::new(FlushSignal(flush)).unwrap();
        // Written after the other two, which it would wait for in vain if they began later.
        let write: WriteKeptFn = Box::new(move |_, _| {
            let deadline = Instant::now() + Duration::from_secs(60);
            flushed.recv_deadline(deadline).map_err(|error| error.to_string())?;
            let is_complete = || {
                let manifest = std::fs::read_to_string(path.join("manifest.json"));
                manifest.is_ok_and(|text| text.contains("\"complete\": true"))
            };
            while !is_complete() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok("kept.dctx".into())
        });
        let (keep, requests) = (Some(Duration::from_secs(12)), FlightRequests::default());
        let options = Options {
            sinks: vec![Box::new(store), Box::new(raw)],
            flight_recorder: Some(FlightOptions { keep, on_hang: None, at_end: true, requests, write }),
            ..Options::default()
        };
        let ended = Worker::new(options, Arc::default()).finish(None, Duration::from_secs(1));
        assert_eq!(ended.status.write_error, None, "{:?}", ended.status.notices);
    }

    /// Computes for a while, and then waits for a disk that hangs. Whoever waits for it looks at it.
    #[derive(Debug)]
    struct HungSink(EndingThread);

    impl HungSink {
        fn start(disk: Receiver<()>) -> Self {
            let thread = std::thread::spawn(move || {
                let began = Instant::now();
                while began.elapsed() < END_LONGEST / 2 {
                    std::hint::spin_loop();
                }
                _ = disk.recv();
            });
            Self(EndingThread::new(ThreadClock::of(&thread), 0))
        }
    }

    impl Sink for HungSink {
        fn is_writing(&mut self) -> bool {
            self.0.goes_on(0)
        }

        fn on_finish(&mut self, _state: &State<'_>) -> Result<(), SinkError> {
            while self.is_writing() {
                std::thread::sleep(LOOK_EVERY);
            }
            Ok(())
        }
    }

    #[test]
    fn several_that_hang_are_waited_for_once() {
        let (_goes_on, disk) = bounded(0);
        let sinks = (0..3).map(|_| Box::new(HungSink::start(disk.clone())) as Box<dyn Sink>).collect();
        let began = Instant::now();
        Worker::new(Options { sinks, ..Options::default() }, Arc::default()).finish(None, Duration::ZERO);
        // Computing is progress.
        let lasted = began.elapsed();
        assert!(lasted > END_LONGEST && lasted < END_LONGEST * 2, "{lasted:?}");
    }
}
