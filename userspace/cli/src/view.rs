//! `view`: the terminal view over a stored profile.
//!
//! Owns: making snapshots of a stored profile on a separate thread. Because: the screen must never wait for one. Does
//! not: draw.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use deepctx_analysis::findings::Settings;
use deepctx_analysis::over_time::Steps;
use deepctx_analysis::render::screen::event_tables;
use deepctx_analysis::{OverTime, conclude};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::conclusions::Conclusions;
use deepctx_profile::view::event_tables::EventTable;
use deepctx_profile::view::snapshot::{Header, RangeConclusions, SharedLanes, Snapshot, Snapshots, TabData};
use deepctx_profile::view::{Request, Resolution, TabRequest, Viewer, complete_share};
use deepctx_storage::OpenedProfile;
use deepctx_storage::import::profile_of_range;
use deepctx_tui::Options;

use super::failure::{Completion, Failure};
use super::files::{Files, Places, SourceFileSnapshots};
use super::options::ViewArgs;
use super::{open, out_of_memory, screen, selection};
use deepctx_session::Status;

/// Finer than for live snapshots, since each is computed once.
const RESOLUTION: Resolution = Resolution { least_share: 1e-5, rows: 10_000 };

/// Runs the command.
///
/// # Errors
/// The profile could not be opened or drawn.
pub(crate) fn run(arguments: &ViewArgs) -> Result<Completion, Failure> {
    let opened = open::open(&arguments.profile)?;
    out_of_memory::refuse_beyond_limit(opened.profile.tree.len())?;
    let mut request = arguments.tui.request(
        selection::selection_of(&arguments.selection, &[&opened.profile])?,
        arguments.selection.filter.clone(),
    );
    let places = Places { running: false, began_ns: opened.profile.meta.started.as_nanos() };
    let follows_device = arguments.selection.metric.is_none();
    if arguments.once {
        let mut snapshots = StaticSnapshots::of_file(&arguments.profile);
        let of = |request: &Request| snapshots.stored(&opened, request);
        let snapshot = following_device(&mut request, follows_device, of);
        screen::print(&snapshot, request, &arguments.tui, places)?;
        return Ok(Completion::Fully);
    }
    screen::require_terminal("the view", "`report`")?;
    let stop = screen::stop_at_signals()?;
    let files = Files::start(places).map_err(|error| Failure::io("the files' thread", &error))?;
    let snapshots = StaticSnapshots::of_file(&arguments.profile);
    let snapshots = StoredSnapshots::new(snapshots, opened)
        .map_err(|error| Failure::io("the thread for snapshots", &error))?;
    let options = Options {
        request,
        tab: arguments.tui.tab(),
        signs: arguments.tui.signs(),
        follows_device,
        stop,
        ..Options::default()
    };
    screen::show(&mut SourceFileSnapshots { pictures: snapshots, files }, &options)?;
    Ok(Completion::Fully)
}

/// A snapshot for the request. If a device was busy and the user chose no metric (`follows_device`), the request
/// becomes one for its time.
pub(crate) fn following_device(
    request: &mut Request,
    follows_device: bool,
    mut snapshot_of: impl FnMut(&Request) -> Snapshot,
) -> Snapshot {
    let snapshot = snapshot_of(request);
    match snapshot.device_metric().filter(|_| follows_device) {
        Some(metric) => {
            request.selection.metric = metric;
            snapshot_of(request)
        }
        None => snapshot,
    }
}

/// A snapshot of a whole profile, with findings of the rules in `settings`.
pub(crate) fn snapshot(profile: &Profile, header: Header, request: &Request, settings: Settings) -> Snapshot {
    StaticSnapshots { settings, ..StaticSnapshots::default() }.of(profile, header, request)
}

/// Snapshots of an unchanging profile.
#[derive(Default)]
struct StaticSnapshots {
    viewer: Viewer,
    /// Computed once: they do not depend on the request.
    conclusions: Option<Arc<Conclusions>>,
    settings: Settings,
    trace: Trace,
    /// The tables over all events, computed on first use: of a large trace, they take seconds.
    event_tables: Option<Arc<[EventTable]>>,
    /// Whether a thread computes them.
    computes_tables: bool,
}

/// Individual events of a file, for the timeline.
#[derive(Default)]
enum Trace {
    /// The file has none.
    #[default]
    None,
    /// It may have some; not read yet.
    Unread(PathBuf),
    /// Read events.
    Lanes(SharedLanes),
}

impl Trace {
    /// The lanes, read on first use: a trace of many ranks takes seconds.
    fn lanes(&mut self) -> Option<&SharedLanes> {
        if let Trace::Unread(path) = self {
            *self =
                super::lanes::read(path).map_or(Trace::None, |of| Trace::Lanes(SharedLanes(Arc::new(of))));
        }
        match self {
            Trace::Lanes(lanes) => Some(lanes),
            Trace::None | Trace::Unread(_) => None,
        }
    }
}

impl StaticSnapshots {
    /// For an opened file, which may also have individual events.
    fn of_file(path: &Path) -> Self {
        Self { trace: Trace::Unread(path.to_owned()), ..Self::default() }
    }

    fn of(&mut self, profile: &Profile, header: Header, request: &Request) -> Snapshot {
        let elapsed = header.elapsed;
        let mut snapshot = self.viewer.snapshot(profile, request, header, RESOLUTION);
        if request.part == TabRequest::Overview {
            let settings = &self.settings;
            let drawn =
                self.conclusions.get_or_insert_with(|| Arc::new(conclude(profile, elapsed, settings)));
            snapshot.conclude(Arc::clone(drawn));
        }
        self.events(request, &mut snapshot);
        snapshot
    }

    /// Adds individual events, and conclusions from a part of them or the tables over all of them, if requested and the
    /// file has some.
    fn events(&mut self, request: &Request, snapshot: &mut Snapshot) {
        let (TabRequest::Events | TabRequest::EventRange(..) | TabRequest::EventTables) = request.part else {
            return;
        };
        let Some(lanes) = self.trace.lanes().cloned() else { return };
        snapshot.extra = match request.part {
            TabRequest::EventTables => {
                let tables = Arc::clone(self.event_tables.get_or_insert_with(|| tables_of(&lanes)));
                TabData::EventTables(lanes, tables)
            }
            TabRequest::EventRange(from, to) => {
                let profile = profile_of_range(&lanes.0, from, to);
                let conclusions = Arc::new(conclude(&profile, to.saturating_sub(from), &self.settings));
                TabData::EventRange(lanes, RangeConclusions { from, to, conclusions })
            }
            _ => TabData::Events(lanes),
        };
    }

    /// Whether a request has to wait for tables that a thread computes and sends to `done`. The first one starts it.
    fn waits_for_tables(&mut self, request: &Request, done: &Sender<Arc<[EventTable]>>) -> bool {
        if request.part != TabRequest::EventTables || self.event_tables.is_some() {
            return false;
        }
        let Some(lanes) = self.trace.lanes().cloned() else { return false };
        if !self.computes_tables {
            let done = done.clone();
            let compute = move || {
                // Without a receiver, the view has ended.
                let _ = done.send(tables_of(&lanes));
            };
            let thread = std::thread::Builder::new().name("event-tables".into());
            // Without a thread, they are computed with the snapshot.
            self.computes_tables = thread.spawn(compute).is_ok();
        }
        self.computes_tables
    }

    fn stored(&mut self, opened: &OpenedProfile, request: &Request) -> Snapshot {
        let header = stored_header(&opened.profile, opened.elapsed.0, request.selection.metric);
        self.of(&opened.profile, header, request)
    }
}

fn tables_of(lanes: &SharedLanes) -> Arc<[EventTable]> {
    event_tables(&OverTime::compute(lanes.0.job(), Steps::default()))
}

fn stored_header(profile: &Profile, elapsed_ns: u64, metric: Metric) -> Header {
    let samples = profile.tree.total(Metric::Samples).count;
    let seconds = elapsed_ns as f64 / 1e9;
    let status = Status {
        samples,
        samples_per_second: if seconds > 0.0 { samples as f64 / seconds } else { 0.0 },
        lost: profile.ledger.lost(),
        complete_share: complete_share(&profile.ledger),
        ..Status::default()
    };
    let header = status.header(&profile.meta, Duration::from_nanos(elapsed_ns), metric);
    // The capture's overhead is not stored.
    Header { overhead: None, ..header }
}

/// Snapshots of a stored profile.
struct StoredSnapshots {
    requests: Sender<Request>,
    answers: Receiver<(Request, Arc<Snapshot>)>,
    requested: Option<Request>,
}

impl StoredSnapshots {
    fn new(snapshots: StaticSnapshots, opened: OpenedProfile) -> std::io::Result<Self> {
        let (requests, received) = unbounded::<Request>();
        let (answers_to, answers) = bounded(1);
        let thread = std::thread::Builder::new().name("snapshots".into());
        thread.spawn(move || answer(snapshots, &opened, &received, &answers_to))?;
        Ok(Self { requests, answers, requested: None })
    }
}

/// Answers requests until no screen waits for one: one per change on the screen, and only the newest. While another
/// thread computes the tables over all events, it answers those that need no tables.
fn answer(
    mut snapshots: StaticSnapshots,
    opened: &OpenedProfile,
    received: &Receiver<Request>,
    answers: &Sender<(Request, Arc<Snapshot>)>,
) {
    let (done, computed) = bounded(1);
    let mut newest: Option<Request> = None;
    loop {
        select! {
            recv(received) -> first => match first {
                Ok(first) => newest = Some(received.try_iter().last().unwrap_or(first)),
                Err(_) => return,
            },
            recv(computed) -> tables => snapshots.event_tables = tables.ok(),
        }
        let ready = newest.take_if(|request| !snapshots.waits_for_tables(request, &done));
        let Some(request) = ready else { continue };
        let snapshot = Arc::new(snapshots.stored(opened, &request));
        if answers.send((request, snapshot)).is_err() {
            return;
        }
    }
}

impl Snapshots for StoredSnapshots {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        if self.requested.as_ref() != Some(request) {
            self.requested = Some(request.clone());
            // The thread lives as long as this value; once it ends, no screen waits for an answer.
            let _ = self.requests.send(request.clone());
        }
        self.answers
            .try_iter()
            .filter(|(answered, _)| answered == request)
            .last()
            .map(|(_, snapshot)| snapshot)
    }

    fn live(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{self, EventLanes, Job};
    use deepctx_profile::units::Nanos;
    use deepctx_profile::view::snapshot::MetricTotal;

    use super::*;

    fn with_lanes() -> StaticSnapshots {
        let job = Job::new(vec![("trace.json".to_owned(), trace::Trace::new())]).unwrap();
        let lanes = SharedLanes(Arc::new(EventLanes::new(Arc::new(job), |_| 0)));
        StaticSnapshots { trace: Trace::Lanes(lanes), ..StaticSnapshots::default() }
    }

    fn request(part: TabRequest) -> Request {
        Request { part, ..Request::of(Metric::GpuTime) }
    }

    #[test]
    fn only_requests_for_tables_wait_for_them() {
        let (done, computed) = bounded(1);
        let mut snapshots = with_lanes();
        for (part, waits) in [(TabRequest::Events, false), (TabRequest::EventTables, true)] {
            assert_eq!(snapshots.waits_for_tables(&request(part), &done), waits);
        }
        snapshots.event_tables = computed.recv().ok();
        assert!(!snapshots.waits_for_tables(&request(TabRequest::EventTables), &done));
    }

    #[test]
    fn tables_over_events_are_computed_once() {
        let mut snapshots = with_lanes();
        let mut tables = |part: TabRequest| {
            let mut snapshot = Snapshot::default();
            snapshots.events(&request(part), &mut snapshot);
            match snapshot.extra {
                TabData::EventTables(_, tables) => Some(tables),
                _ => None,
            }
        };
        let first = tables(TabRequest::EventTables).unwrap();
        assert_eq!(tables(TabRequest::Events), None);
        assert!(Arc::ptr_eq(&first, &tables(TabRequest::EventTables).unwrap()));
    }

    #[test]
    fn a_busy_device_is_shown_unless_a_metric_was_chosen() {
        let check = |device_ns: u64, follows_device: bool, expect: Metric| {
            let mut request = Request::of(Metric::CpuTime);
            let shown = following_device(&mut request, follows_device, |request| Snapshot {
                header: Header {
                    elapsed: Nanos(1_000),
                    metric: request.selection.metric.name(),
                    ..Header::default()
                },
                metrics: vec![MetricTotal { metric: Metric::GpuTime, total: device_ns }],
                ..Snapshot::default()
            });
            assert_eq!((request.selection.metric, shown.header.metric), (expect, expect.name()));
        };
        check(500, true, Metric::GpuTime);
        check(500, false, Metric::CpuTime);
        check(99, true, Metric::CpuTime);
    }
}
