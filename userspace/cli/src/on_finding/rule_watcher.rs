//! Rule watcher: runs rules over a growing profile, and reports each finding once.
//!
//! Owns: when they run, and what was found already. Because: only the pipeline's thread may read the profile while it
//! grows, and it must not spend more than a hundredth of its time on rules. Does not: act.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deepctx_analysis::findings::{Finding, Findings, Settings};
use deepctx_profile::units::Nanos;
use deepctx_session::{Sink, SinkError, State, TimeShare};

use super::super::fail_on::FailCondition;

/// Rules take at most one part in this many of one CPU.
const LOOKING_SHARE: u32 = 100;
/// Minimum time between two runs of the rules.
const EVERY: Duration = Duration::from_secs(2);
/// Time of the first run: a program's first seconds are not typical.
const FIRST: Duration = Duration::from_secs(10);

/// Findings not acted on yet: at most one per `--on-finding`, with the option's index.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingFindings(Arc<Mutex<Vec<(usize, Finding)>>>);

impl PendingFindings {
    /// Takes the findings since the last call.
    pub(crate) fn take(&self) -> Vec<(usize, Finding)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs rules over the profile of a session.
#[derive(Debug)]
pub(crate) struct RuleWatcher {
    settings: Settings,
    /// Conditions that are still pending.
    conditions: Vec<Option<FailCondition>>,
    found: PendingFindings,
    looking: TimeShare,
}

impl RuleWatcher {
    /// Looks for the first finding that meets each of these conditions.
    pub(crate) fn new(
        settings: Settings,
        conditions: impl IntoIterator<Item = FailCondition>,
    ) -> (Self, PendingFindings) {
        let found = PendingFindings::default();
        let conditions = conditions.into_iter().map(Some).collect();
        let looking = TimeShare::new(LOOKING_SHARE, EVERY);
        (RuleWatcher { settings, conditions, found: found.clone(), looking }, found)
    }

    fn look(&mut self, state: &State<'_>) {
        let elapsed = Nanos::from(state.elapsed);
        let findings = Findings::of_profile(state.profile, elapsed, &self.settings).findings;
        for (place, condition) in self.conditions.iter_mut().enumerate() {
            let met = |of: &FailCondition| findings.iter().find(|finding| of.matches(finding)).cloned();
            if let Some(finding) = condition.as_ref().and_then(met) {
                *condition = None;
                self.found.0.lock().unwrap_or_else(PoisonError::into_inner).push((place, finding));
            }
        }
    }

    fn is_done(&self) -> bool {
        self.conditions.iter().all(Option::is_none)
    }
}

impl Sink for RuleWatcher {
    fn on_tick(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        let start = Instant::now();
        if state.elapsed < FIRST || !self.looking.is_due(start) || self.is_done() {
            return Ok(());
        }
        self.look(state);
        let cost = start.elapsed();
        let pause = self.looking.pause_after(cost, Instant::now());
        tracing::debug!(?cost, ?pause, contexts = state.profile.tree.len(), "rules looked for findings");
        Ok(())
    }

    fn on_finish(&mut self, state: &State<'_>) -> Result<(), SinkError> {
        if !self.is_done() {
            self.look(state);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::profile::Profile;
    use deepctx_profile::text;
    use deepctx_profile::units::Time;
    use deepctx_session::Status;

    use super::*;

    fn state<'a>(profile: &'a Profile, status: &'a Status, seconds: u64) -> State<'a> {
        State { profile, newest: Time::from_nanos(0), status, elapsed: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_finding_comes_once_for_each_condition() {
        let mut hot = text::parse(
            "P python3-7 / y /a/t.py:step:30 / n gomp_team_barrier_wait_end@libgomp.so 400000000
             P python3-7 / y /a/t.py:step:31 / n work@libmkl.so 600000000",
        )
        .unwrap();
        // One sample per millisecond.
        let cells: Vec<_> =
            hot.tree.cells(Metric::CpuTime).map(|(node, cell)| (node, cell.sum / 1_000_000)).collect();
        for (node, samples) in cells {
            (0..samples).for_each(|_| hot.tree.add(node, Metric::Samples, 1));
        }
        let mut settings = Settings::default();
        settings.only("spinning-threads").unwrap();
        let conditions =
            ["spinning-threads:low", "spinning-threads:high"].map(|text| FailCondition::parse(text).unwrap());
        let (mut watch, found) = RuleWatcher::new(settings, conditions);
        let status = Status::default();
        let places = || found.take().into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        watch.on_tick(&state(&hot, &status, 1)).unwrap();
        assert_eq!(places(), [0usize; 0], "it is too early");
        watch.on_tick(&state(&hot, &status, 11)).unwrap();
        let first = places();
        assert!(first.contains(&0), "{first:?}");
        watch.looking = TimeShare::new(LOOKING_SHARE, EVERY);
        watch.on_tick(&state(&hot, &status, 12)).unwrap();
        watch.on_finish(&state(&hot, &status, 13)).unwrap();
        assert!(!places().contains(&0));
    }

    #[test]
    fn a_short_capture_is_looked_at_when_it_ends() {
        let calm = text::parse("P a-1 / n f 200000000").unwrap();
        let mut settings = Settings::default();
        settings.only("spinning-threads").unwrap();
        let (mut watch, found) =
            RuleWatcher::new(settings, [FailCondition::parse("spinning-threads").unwrap()]);
        let status = Status::default();
        watch.on_finish(&state(&calm, &status, 1)).unwrap();
        assert!(found.take().is_empty() && !watch.is_done());
    }
}
