//! Snapshot sink: snapshots of the profile for a screen, made on request.
//!
//! Owns: the newest request and its answer, and how much of the pipeline's time snapshots may take. Because: only the
//! pipeline's thread may read the profile while it grows, and a screen must never wait for it. Does not: draw.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use deepctx_profile::snapshot::{Snapshot, Snapshots};
use deepctx_profile::view::{Request, Resolution, Viewer};

use super::{Sink, SinkError, State};
use crate::lock;

/// Snapshots take at most one part in so many of the pipeline's time. Only a new request is answered at once.
const TIME_SHARE: u32 = 10;
/// A ten-thousandth of the total is less than a character on any screen.
const RESOLUTION: Resolution = Resolution { least_share: 1e-4, rows: 2_000 };

/// Answers the requests of one screen.
#[derive(Debug)]
pub struct SnapshotSink {
    exchange: Arc<Mutex<Exchange>>,
    viewer: Viewer,
    /// The request that was answered last, and the earliest time of the next snapshot for it.
    answered: Option<(Request, Instant)>,
}

/// The screen's end of a [`SnapshotSink`].
#[derive(Debug)]
pub struct LiveSnapshots {
    exchange: Arc<Mutex<Exchange>>,
}

/// What a screen and the pipeline's thread hand each other.
#[derive(Debug, Default)]
struct Exchange {
    request: Option<Request>,
    answer: Option<(Request, Arc<Snapshot>)>,
    over: bool,
}

impl SnapshotSink {
    /// A sink and the screen's end of it.
    pub fn pair() -> (Self, LiveSnapshots) {
        let exchange: Arc<Mutex<Exchange>> = Arc::default();
        let snapshots = LiveSnapshots { exchange: Arc::clone(&exchange) };
        (Self { exchange, viewer: Viewer::new(), answered: None }, snapshots)
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

    fn snapshot(&mut self, request: &Request, state: &State<'_>) -> Arc<Snapshot> {
        let header = state.status.header(&state.profile.meta, state.elapsed, request.selection.metric);
        Arc::new(self.viewer.snapshot(state.profile, request, header, RESOLUTION))
    }
}

impl Sink for SnapshotSink {
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let Some(request) = self.due() else { return Ok(()) };
        let start = Instant::now();
        let snapshot = self.snapshot(&request, state);
        self.answered = Some((request.clone(), Instant::now() + start.elapsed() * (TIME_SHARE - 1)));
        let mut exchange = lock(&self.exchange);
        // The screen asks again when it wants the next one.
        exchange.request = None;
        exchange.answer = Some((request, snapshot));
        Ok(())
    }

    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let request = lock(&self.exchange).request.take();
        let request = request.or_else(|| self.answered.take().map(|(request, _)| request));
        let last = request.map(|request| (request.clone(), self.snapshot(&request, state)));
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
    use std::time::Duration;

    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::{Limits, Meta, Profile};
    use deepctx_profile::units::Time;

    use super::*;
    use crate::Status;

    #[test]
    fn snapshot_is_given_once_and_a_last_one_follows() {
        let (mut sink, mut snapshots) = SnapshotSink::pair();
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
}
