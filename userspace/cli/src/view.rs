//! `view`: the terminal view over a stored profile.
//!
//! Owns: making snapshots of a stored profile on a thread of its own. Because: the screen must never wait for one.
//! Does not: draw.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use deepctx_common::end::WalkEnd;
use deepctx_profile::ledger::{Ledger, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::snapshot::{Header, Snapshot, Snapshots};
use deepctx_profile::view::{Request, Resolution, Viewer};
use deepctx_storage::Opened;
use deepctx_tui::Options;

use super::failure::{Done, Failure};
use super::files::{Files, Places, WithFiles};
use super::options::ViewArgs;
use super::{open, screen, selection};
use deepctx_session::Status;

/// Finer than live snapshots, since each is made once.
const RESOLUTION: Resolution = Resolution { least_share: 1e-5, rows: 10_000 };

/// Runs it.
///
/// # Errors
/// It could not be opened or drawn.
pub fn run(arguments: &ViewArgs) -> Result<Done, Failure> {
    let opened = open::open(&arguments.profile)?;
    let request = arguments.tui.request(
        selection::selection_of(&arguments.selection, &[&opened.profile])?,
        arguments.selection.filter.clone(),
    );
    let places = Places { running: false, began_ns: opened.profile.meta.started.as_nanos() };
    if arguments.once {
        let snapshot = stored_snapshot(&opened, &mut Viewer::new(), &request);
        screen::print(&snapshot, request, &arguments.tui, places)?;
        return Ok(Done::Fully);
    }
    screen::require_terminal()?;
    let stop = screen::stop_at_signals()?;
    let files = Files::start(places).map_err(|error| Failure::io("the files' thread", &error))?;
    let snapshots = Stored::new(opened).map_err(|error| Failure::io("the thread for snapshots", &error))?;
    let options = Options { request, tab: arguments.tui.tab(), stop, ..Options::default() };
    screen::show(&mut WithFiles { pictures: snapshots, files }, &options)?;
    Ok(Done::Fully)
}

/// A snapshot of a whole profile.
pub fn snapshot(profile: &Profile, header: Header, request: &Request) -> Snapshot {
    Viewer::new().snapshot(profile, request, header, RESOLUTION)
}

fn stored_snapshot(opened: &Opened, viewer: &mut Viewer, request: &Request) -> Snapshot {
    let header = stored_header(&opened.profile, opened.elapsed.0, request.selection.metric);
    viewer.snapshot(&opened.profile, request, header, RESOLUTION)
}

fn stored_header(profile: &Profile, elapsed_ns: u64, metric: Metric) -> Header {
    let samples = profile.tree.total(Metric::Samples).count;
    let seconds = elapsed_ns as f64 / 1e9;
    let status = Status {
        samples,
        samples_per_second: if seconds > 0.0 { samples as f64 / seconds } else { 0.0 },
        lost: profile.ledger.lost(),
        complete_share: complete_share(&profile.ledger, samples),
        ..Status::default()
    };
    status.header(&profile.meta, Duration::from_nanos(elapsed_ns), metric)
}

/// Share of stacks that reach the start of their thread, as far as the ledger knows.
fn complete_share(ledger: &Ledger, samples: u64) -> Option<f64> {
    let gaps = &ledger.stage(Stage::Resolve).gaps;
    let not_failed = [WalkEnd::Complete, WalkEnd::NotWalked, WalkEnd::NoUserStack, WalkEnd::LeftOut];
    let failed = WalkEnd::ALL.iter().filter(|end| !not_failed.contains(end)).map(|end| gaps.count(end.key()));
    (samples > 0).then(|| 1.0 - failed.sum::<u64>() as f64 / samples as f64)
}

/// Snapshots of a stored profile.
struct Stored {
    requests: Sender<Request>,
    answers: Receiver<(Request, Arc<Snapshot>)>,
    requested: Option<Request>,
}

impl Stored {
    fn new(opened: Opened) -> std::io::Result<Self> {
        // One request for each change on the screen. Only the newest is worth an answer.
        let (requests, received) = unbounded::<Request>();
        let (answer, answers) = bounded(1);
        std::thread::Builder::new().name("snapshots".into()).spawn(move || {
            let mut viewer = Viewer::new();
            while let Ok(first) = received.recv() {
                let request = received.try_iter().last().unwrap_or(first);
                let snapshot = Arc::new(stored_snapshot(&opened, &mut viewer, &request));
                if answer.send((request, snapshot)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers, requested: None })
    }
}

impl Snapshots for Stored {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        if self.requested.as_ref() != Some(request) {
            self.requested = Some(request.clone());
            // The thread lives as long as this value. Without it, there is no screen to answer.
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
