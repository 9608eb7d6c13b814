//! `view`: the terminal view over a stored profile.
//!
//! Owns: making pictures of a profile that does not change, off the screen's thread. Does not: draw.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use deepctx_common::end::WalkEnd;
use deepctx_profile::ledger::{Ledger, Stage};
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::snapshot::{Header, Snapshot, Snapshots};
use deepctx_profile::view::{Request, Resolution, Viewer};
use deepctx_storage::store::Opened;
use deepctx_tui::Options;

use super::failure::{Done, Failure};
use super::files::{Files, Places, WithFiles};
use super::options::ViewArgs;
use super::{look, screen};
use deepctx_session::Status;

/// How fine pictures are: finer than live, since they are made once.
const RESOLUTION: Resolution = Resolution { least_share: 1e-5, rows: 10_000 };

/// Runs it.
///
/// # Errors
/// It could not be opened or drawn.
pub fn run(arguments: &ViewArgs) -> Result<Done, Failure> {
    let opened = look::open(&arguments.profile)?;
    let request = arguments
        .sight
        .request(look::selection_of(&arguments.look, &opened.profile), arguments.look.filter.clone());
    let places = Places { running: false, began_ns: opened.profile.meta.started.as_nanos() };
    if arguments.once {
        let picture = stored_picture(&opened, &mut Viewer::new(), &request);
        screen::print(&picture, request, &arguments.sight, places)?;
        return Ok(Done::Fully);
    }
    screen::require_terminal()?;
    let stop = screen::stop_at_signals()?;
    let files = Files::start(places).map_err(|error| Failure::io("the files' thread", &error))?;
    let pictures = Stored::new(opened).map_err(|error| Failure::io("the picture's thread", &error))?;
    let options = Options { request, tab: arguments.sight.tab(), stop, ..Options::default() };
    screen::show(&mut WithFiles { pictures, files }, &options)?;
    Ok(Done::Fully)
}

/// A picture of a whole profile.
pub fn picture(profile: &Profile, header: Header, request: &Request) -> Snapshot {
    Viewer::new().answer(profile, request, header, RESOLUTION)
}

fn stored_picture(opened: &Opened, viewer: &mut Viewer, request: &Request) -> Snapshot {
    let header = stored_header(&opened.profile, opened.elapsed.0, request.selection.metric);
    viewer.answer(&opened.profile, request, header, RESOLUTION)
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

/// Share of stacks that reach the start of their thread, as far as the ledger tells.
fn complete_share(ledger: &Ledger, samples: u64) -> Option<f64> {
    let gaps = &ledger.stage(Stage::Resolve).gaps;
    let not_failed = [WalkEnd::Complete, WalkEnd::NotWalked, WalkEnd::NoUserStack, WalkEnd::LeftOut];
    let failed = WalkEnd::ALL.iter().filter(|end| !not_failed.contains(end)).map(|end| gaps.count(end.key()));
    (samples > 0).then(|| 1.0 - failed.sum::<u64>() as f64 / samples as f64)
}

/// Pictures of a stored profile.
struct Stored {
    wishes: Sender<Request>,
    answers: Receiver<(Request, Arc<Snapshot>)>,
    asked: Option<Request>,
}

impl Stored {
    fn new(opened: Opened) -> std::io::Result<Self> {
        // A wish for each change of mind; only the newest is worth an answer.
        let (wishes, wished) = unbounded::<Request>();
        let (answer, answers) = bounded(1);
        std::thread::Builder::new().name("pictures".into()).spawn(move || {
            let mut viewer = Viewer::new();
            while let Ok(first) = wished.recv() {
                let request = wished.try_iter().last().unwrap_or(first);
                let snapshot = Arc::new(stored_picture(&opened, &mut viewer, &request));
                if answer.send((request, snapshot)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { wishes, answers, asked: None })
    }
}

impl Snapshots for Stored {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        if self.asked.as_ref() != Some(request) {
            self.asked = Some(request.clone());
            // The thread lives as long as this; a wish that is lost with it has nobody to see it.
            let _ = self.wishes.send(request.clone());
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
