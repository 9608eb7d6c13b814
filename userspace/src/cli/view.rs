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
use deepctx_profile::snapshot::{Header, Snapshot};
use deepctx_profile::store::Opened;
use deepctx_profile::view::{Grain, Screen, Selection};
use deepctx_tui::Snapshots;

use super::failure::{Done, Failure};
use super::options::ViewArgs;
use super::{look, screen};
use crate::session::{Status, header};

/// How fine pictures are: finer than live, since they are made once.
const GRAIN: Grain = Grain { least_share: 1e-5, rows: 10_000 };

/// Runs it.
///
/// # Errors
/// It could not be opened or drawn.
pub fn run(arguments: &ViewArgs) -> Result<Done, Failure> {
    let opened = look::open(&arguments.profile)?;
    let selection = look::selection(&arguments.look);
    if arguments.once {
        screen::print(&stored_picture(&opened, selection))?;
        return Ok(Done::Fully);
    }
    screen::require_terminal()?;
    let mut pictures = Stored::new(opened).map_err(|error| Failure::io("the picture's thread", &error))?;
    screen::show(&mut pictures, selection, false, Arc::default())?;
    Ok(Done::Fully)
}

/// A picture of a whole profile.
pub fn picture(profile: &Profile, header: Header, selection: Selection) -> Snapshot {
    let mut screen = Screen::new(selection);
    screen.refresh(profile, None);
    screen.snapshot(profile, header, GRAIN)
}

fn stored_picture(opened: &Opened, selection: Selection) -> Snapshot {
    let header = stored_header(&opened.profile, opened.elapsed.0, selection.metric);
    picture(&opened.profile, header, selection)
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
    header(&profile.meta, &status, Duration::from_nanos(elapsed_ns), metric)
}

/// Share of stacks that reach the start of their thread, as far as the ledger tells.
fn complete_share(ledger: &Ledger, samples: u64) -> Option<f64> {
    let gaps = &ledger.stage(Stage::Resolve).gaps;
    let not_failed = [WalkEnd::Complete, WalkEnd::NotWalked, WalkEnd::NoUserStack];
    let failed = WalkEnd::ALL.iter().filter(|end| !not_failed.contains(end)).map(|end| gaps.count(end.key()));
    (samples > 0).then(|| 1.0 - failed.sum::<u64>() as f64 / samples as f64)
}

/// Pictures of a stored profile.
struct Stored {
    metrics: Vec<Metric>,
    wishes: Sender<Selection>,
    answers: Receiver<(Selection, Arc<Snapshot>)>,
    asked: Option<Selection>,
}

impl Stored {
    fn new(opened: Opened) -> std::io::Result<Self> {
        let metrics = opened.profile.tree.metrics().collect();
        // A wish for each change of mind; only the newest is worth an answer.
        let (wishes, wished) = unbounded::<Selection>();
        let (answer, answers) = bounded(1);
        std::thread::Builder::new().name("pictures".into()).spawn(move || {
            while let Ok(first) = wished.recv() {
                let selection = wished.try_iter().last().unwrap_or(first);
                let snapshot = Arc::new(stored_picture(&opened, selection));
                if answer.send((selection, snapshot)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { metrics, wishes, answers, asked: None })
    }
}

impl Snapshots for Stored {
    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn latest(&mut self, request: &Selection) -> Option<Arc<Snapshot>> {
        if self.asked != Some(*request) {
            self.asked = Some(*request);
            // The thread lives as long as this; a wish that is lost with it has nobody to see it.
            let _ = self.wishes.send(*request);
        }
        self.answers
            .try_iter()
            .filter(|(selection, _)| selection == request)
            .last()
            .map(|(_, snapshot)| snapshot)
    }

    fn live(&self) -> bool {
        false
    }
}
