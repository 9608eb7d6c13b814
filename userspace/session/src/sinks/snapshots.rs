//! Snapshot sink: snapshots of the profile for a screen, made on request.
//!
//! Owns: the newest request and its answer, and how much of the pipeline's time snapshots and conclusions may take.
//! Because: only the pipeline's thread may read the profile while it grows, and a screen must never wait for it. Does
//! not: draw, or know how conclusions are drawn: its owner passes in the function.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use deepctx_profile::view::conclusions::Conclusions;
use deepctx_profile::view::snapshot::{Snapshot, Snapshots};
use deepctx_profile::view::{Request, Resolution, TabRequest, Viewer};

use super::{Sink, SinkError, State};
use crate::lock;
use crate::time_share::TimeShare;

/// Snapshots take at most one part in this many of the pipeline's time, besides conclusions. Only a new request is
/// answered at once.
const SNAPSHOTS_SHARE: u32 = 10;
/// Conclusions take at most one part in this many of one CPU.
const CONCLUSIONS_SHARE: u32 = 100;
/// Nobody reads a list that changes more often. Up to 8,000 contexts, a usual capture, the share allows it: the rules
/// take at most 2.4 µs a context (measured: a stored profile of 124,000 contexts is opened and analysed in 0.29 s).
const CONCLUSIONS_EVERY: Duration = Duration::from_secs(2);
/// A ten-thousandth of the total is less than a character on any screen.
const RESOLUTION: Resolution = Resolution { least_share: 1e-4, rows: 2_000 };

/// Draws conclusions from a profile, at a time after its capture began.
pub type AnalyzeFn = Box<dyn FnMut(&Profile, Nanos) -> Conclusions + Send>;

/// Answers the requests of one screen.
pub struct SnapshotSink {
    exchange: Arc<Mutex<Exchange>>,
    viewer: Viewer,
    conclude: AnalyzeFn,
    /// The latest conclusions.
    concluded: Option<Arc<Conclusions>>,
    /// When the next ones are due.
    concluding: TimeShare,
    /// The request that was answered last, and the earliest time of the next snapshot for it.
    answered: Option<(Request, Instant)>,
}

impl std::fmt::Debug for SnapshotSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotSink").field("answered", &self.answered).finish_non_exhaustive()
    }
}

/// The screen's end of a [`SnapshotSink`].
#[derive(Debug)]
pub struct LiveSnapshots {
    exchange: Arc<Mutex<Exchange>>,
}

/// State shared by a screen and the pipeline's thread.
#[derive(Debug, Default)]
struct Exchange {
    request: Option<Request>,
    answer: Option<(Request, Arc<Snapshot>)>,
    over: bool,
}

impl SnapshotSink {
    /// A sink and the screen's end of it. Conclusions are drawn only while a screen shows them.
    pub fn pair(
        conclude: impl FnMut(&Profile, Nanos) -> Conclusions + Send + 'static,
    ) -> (Self, LiveSnapshots) {
        let exchange: Arc<Mutex<Exchange>> = Arc::default();
        let snapshots = LiveSnapshots { exchange: Arc::clone(&exchange) };
        let (viewer, conclude): (Viewer, AnalyzeFn) = (Viewer::new(), Box::new(conclude));
        let concluding = TimeShare::new(CONCLUSIONS_SHARE, CONCLUSIONS_EVERY);
        (Self { exchange, viewer, conclude, concluded: None, concluding, answered: None }, snapshots)
    }

    /// The request to answer now: the newest one, unless its answer is waiting or it is too early for another.
    fn due(&self) -> Option<Request> {
        let exchange = lock(&self.exchange);
        let request = exchange.request.as_ref()?;
        let waiting = exchange.answer.as_ref().is_some_and(|(answered, _)| answered == request);
        let early =
            self.answered.as_ref().is_some_and(|(last, next)| last == request && Instant::now() < *next);
        (!waiting && !early).then(|| request.clone())
    }

    /// A snapshot, and what it cost without the conclusions, which have a share of their own.
    fn snapshot(&mut self, request: &Request, state: &State<'_>) -> (Arc<Snapshot>, Duration) {
        let conclusions = (request.part == TabRequest::Overview).then(|| self.conclusions(state));
        let start = Instant::now();
        let header = state.status.header(&state.profile.meta, state.elapsed, request.selection.metric);
        let mut snapshot = self.viewer.snapshot(state.profile, request, header, RESOLUTION);
        if let Some(conclusions) = conclusions {
            snapshot.conclude(conclusions);
        }
        (Arc::new(snapshot), start.elapsed())
    }

    /// The latest conclusions; new ones when they are due.
    fn conclusions(&mut self, state: &State<'_>) -> Arc<Conclusions> {
        let start = Instant::now();
        if let Some(latest) = &self.concluded
            && !self.concluding.is_due(start)
        {
            return Arc::clone(latest);
        }
        let elapsed = Nanos::from(state.elapsed);
        let latest = Arc::new((self.conclude)(state.profile, elapsed));
        let cost = start.elapsed();
        let pause = self.concluding.pause_after(cost, Instant::now());
        tracing::debug!(?cost, ?pause, contexts = state.profile.tree.len(), "conclusions drawn");
        self.concluded = Some(Arc::clone(&latest));
        latest
    }
}

impl Sink for SnapshotSink {
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let Some(request) = self.due() else { return Ok(()) };
        let (snapshot, cost) = self.snapshot(&request, state);
        self.answered = Some((request.clone(), Instant::now() + cost * (SNAPSHOTS_SHARE - 1)));
        let mut exchange = lock(&self.exchange);
        // The screen asks again when it wants the next one.
        exchange.request = None;
        exchange.answer = Some((request, snapshot));
        Ok(())
    }

    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let request = lock(&self.exchange).request.take();
        self.concluded = None;
        let request = request.or_else(|| self.answered.take().map(|(request, _)| request));
        let last = request.map(|request| (request.clone(), self.snapshot(&request, state).0));
        let mut exchange = lock(&self.exchange);
        exchange.over = true;
        exchange.answer = last;
        Ok(())
    }
}

impl Snapshots for LiveSnapshots {
    fn latest(&mut self, request: &Request) -> Option<Arc<Snapshot>> {
        let mut exchange = lock(&self.exchange);
        exchange.request = Some(request.clone());
        match exchange.answer.take() {
            Some((answered, snapshot)) if answered == *request => Some(snapshot),
            _ => None,
        }
    }

    fn live(&self) -> bool {
        !lock(&self.exchange).over
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::{Limits, Meta};
    use deepctx_profile::units::Time;
    use deepctx_profile::view::snapshot::TabData;

    use super::*;
    use crate::Status;

    #[test]
    fn snapshot_is_given_once_and_a_last_one_follows() {
        let (mut sink, mut snapshots) = SnapshotSink::pair(|_, _| Conclusions::default());
        let profile = Profile::new(Meta::default(), Limits::default());
        let status = Status::default();
        let state = State {
            profile: &profile,
            newest: Time::from_nanos(0),
            status: &status,
            elapsed: Duration::from_secs(1),
        };
        let request = Request::of(Metric::Samples);
        sink.on_tick(&state).unwrap();
        assert!(snapshots.latest(&request).is_none(), "not requested before");
        sink.on_tick(&state).unwrap();
        assert!(snapshots.latest(&request).is_some() && snapshots.latest(&request).is_none());
        assert!(snapshots.live());
        sink.on_finish(&state).unwrap();
        assert!(snapshots.latest(&request).is_some() && !snapshots.live());
    }

    #[test]
    fn conclusions_are_drawn_seldom_and_once_more_at_the_end() {
        let (mut sink, mut snapshots) =
            SnapshotSink::pair(|_, at| Conclusions { at, ..Conclusions::default() });
        let profile = Profile::new(Meta::default(), Limits::default());
        let status = Status::default();
        let state = |seconds| State {
            profile: &profile,
            newest: Time::from_nanos(0),
            status: &status,
            elapsed: Duration::from_secs(seconds),
        };
        let request = Request { part: TabRequest::Overview, ..Request::of(Metric::Samples) };
        let concluded_at = |snapshots: &mut LiveSnapshots| {
            let snapshot = snapshots.latest(&request)?;
            let TabData::Overview(overview) = &snapshot.extra else { return None };
            Some(overview.conclusions.as_ref()?.at.0 / 1_000_000_000)
        };
        assert_eq!(concluded_at(&mut snapshots), None);
        sink.on_tick(&state(1)).unwrap();
        assert_eq!(concluded_at(&mut snapshots), Some(1));
        sink.answered = None;
        assert_eq!(concluded_at(&mut snapshots), None);
        sink.on_tick(&state(2)).unwrap();
        assert_eq!(concluded_at(&mut snapshots), Some(1), "it is too early for others");
        sink.on_finish(&state(3)).unwrap();
        assert_eq!(concluded_at(&mut snapshots), Some(3), "the last ones are of the whole capture");
    }
}
