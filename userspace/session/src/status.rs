//! Status: how a running session is doing, as figures and notices.
//!
//! Owns: the figures that progress lines and headers show, and the rates among them. Because: the command line and the
//! screen show the same figures. Does not: measure cost or format text.

use std::time::{Duration, Instant};

use deepctx_capture::cost::OwnCost;
use deepctx_capture::counters::ProbeCounters;
use deepctx_capture::supervisor::EarlyEnd;
use deepctx_common::memory::MemoryUse;
use deepctx_pipeline::Pipeline;
use deepctx_pipeline::symbols::Symbols;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Meta;
use deepctx_profile::trace::RecordedAccount;
use deepctx_profile::units::{Bytes, Nanos};
use deepctx_profile::view::snapshot::{Header, Overhead};

/// Different notices kept. The first ones are kept, because later ones tend to follow from them.
const NOTICES_MAX: usize = 100;
/// Shortest interval over which rates are computed.
const RATE_INTERVAL: Duration = Duration::from_secs(1);

/// The status of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Samples in the profile.
    pub samples: u64,
    /// Samples per second over the last second or so.
    pub samples_per_second: f64,
    /// Launches of kernels and graphs in the profile.
    pub launches: u64,
    /// Launches per second over the last second or so.
    pub launches_per_second: f64,
    /// Records lost so far, for all reasons.
    pub lost: u64,
    /// Lost records as a share of all; `None` before the first.
    pub lost_share: Option<f64>,
    /// Share of stacks without a gap in their native part; `None` before the first.
    pub complete_share: Option<f64>,
    /// Time of the first stack that reaches the start of its thread; `CLOCK_MONOTONIC`, nanoseconds.
    pub first_complete_ns: Option<u64>,
    /// Targets that have ended.
    pub targets_gone: Vec<u32>,
    /// Probes in the libraries of the targets.
    pub probes: ProbeCounters,
    /// Features that `--probe auto` chose, by name; empty without it.
    pub auto_probes: Vec<String>,
    /// All targets that were given by pid have ended.
    pub over: bool,
    /// Messages of the capture for the user, newest last.
    pub notices: Vec<String>,
    /// Why the store or the raw copy could not be written, unless a later attempt wrote everything. The capture goes
    /// on in memory.
    pub write_error: Option<String>,
    /// The first thread besides the pipeline's that ended because of a defect: the session is unreliable from then on.
    pub ended_early: Option<EarlyEnd>,
    /// A writing thread has stopped because of a defect: the capture is of no use any more.
    pub unstored: bool,
    /// Counts of single events; `None` until the trace is written, or without one.
    pub traced: Option<RecordedAccount>,
    /// CPU time of the profiler as a share of one CPU, over the last second or so.
    pub own_cpu_share: f64,
    /// Memory of the profiler, bytes.
    pub own_memory_bytes: u64,
    /// The same by owner, some seconds old, largest first; empty before the first measurement.
    pub own_memory: Vec<MemoryUse>,
}

impl Status {
    /// The header of a snapshot of a session that has run for `elapsed`.
    pub fn header(&self, meta: &Meta, elapsed: Duration, metric: Metric) -> Header {
        Header {
            target: meta.target.clone(),
            elapsed: Nanos::from(elapsed),
            frequency_hz: meta.frequency_hz,
            samples: self.samples,
            samples_per_second: self.samples_per_second,
            lost: self.lost,
            complete_share: self.complete_share,
            overhead: Some(Overhead { cpu_share: self.own_cpu_share, memory: Bytes(self.own_memory_bytes) }),
            memory: self.own_memory.clone(),
            metric: metric.name(),
            unit: metric.unit(),
            auto_probes: self.auto_probes.clone(),
            notice: self
                .write_error
                .clone()
                .or_else(|| self.over.then(|| "the target has ended".to_owned()))
                .or_else(|| self.notices.last().cloned()),
        }
    }

    pub(crate) fn add_notice(&mut self, notice: String) {
        if self.notices.len() < NOTICES_MAX && !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    /// Records that a target has ended. `named` are the targets that were given by pid.
    pub(crate) fn target_ended(&mut self, pid: u32, named: &[u32]) {
        self.targets_gone.push(pid);
        self.over = !named.is_empty() && named.iter().all(|pid| self.targets_gone.contains(pid));
    }

    /// Copies the counters of a pipeline, except those that its ledger holds.
    pub(crate) fn count<S: Symbols>(&mut self, pipeline: &Pipeline<S>) {
        let accounts = pipeline.accounts();
        let (stacks, complete) = accounts.stacks_and_complete();
        self.samples = accounts.samples();
        self.launches = pipeline.launches();
        self.complete_share = (stacks > 0).then(|| complete as f64 / stacks as f64);
        self.first_complete_ns = accounts.first_complete_ns();
    }
}

/// Counters at the beginning of the current interval, from which rates are computed.
#[derive(Debug)]
pub(crate) struct Rates {
    since: Instant,
    samples: u64,
    launches: u64,
    cpu: Duration,
}

impl Rates {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, samples: 0, launches: 0, cpu: Duration::ZERO }
    }

    /// Updates the rates of a status once the interval has passed.
    pub(crate) fn update(&mut self, status: &mut Status, cost: &OwnCost) {
        status.own_memory_bytes = cost.resident_bytes + cost.map_bytes();
        let passed = self.since.elapsed();
        if passed < RATE_INTERVAL {
            return;
        }
        let seconds = passed.as_secs_f64();
        status.samples_per_second = (status.samples - self.samples) as f64 / seconds;
        status.launches_per_second = (status.launches - self.launches) as f64 / seconds;
        status.own_cpu_share = cost.cpu.saturating_sub(self.cpu).as_secs_f64() / seconds;
        *self =
            Self { since: Instant::now(), samples: status.samples, launches: status.launches, cpu: cost.cpu };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_over_once_all_named_targets_ended() {
        let mut status = Status::default();
        status.target_ended(7, &[7, 8]);
        assert!(!status.over);
        status.target_ended(8, &[7, 8]);
        assert!(status.over);
        let mut unnamed = Status::default();
        unnamed.target_ended(7, &[]);
        assert!(!unnamed.over);
    }

    #[test]
    fn header_shows_a_write_error_before_any_notice() {
        let mut status = Status::default();
        status.add_notice("a probe is missing".into());
        let notice = |status: &Status| {
            status.header(&Meta::default(), Duration::ZERO, Metric::Samples).notice.unwrap_or_default()
        };
        assert_eq!(notice(&status), "a probe is missing");
        status.over = true;
        assert_eq!(notice(&status), "the target has ended");
        status.write_error = Some("the disk is full".into());
        assert_eq!(notice(&status), "the disk is full");
    }

    #[test]
    fn header_names_what_auto_chose_beside_any_notice() {
        let mut status = Status { auto_probes: vec!["openmp".to_owned()], ..Status::default() };
        status.add_notice("a probe is missing".into());
        let header = status.header(&Meta::default(), Duration::ZERO, Metric::Samples);
        assert_eq!((header.auto_probes, header.notice.is_some()), (vec!["openmp".to_owned()], true));
    }

    #[test]
    fn notices_stay_within_their_bound() {
        let mut status = Status::default();
        (0..2 * NOTICES_MAX).for_each(|n| status.add_notice(n.to_string()));
        assert_eq!((status.notices.len(), status.notices[0].as_str()), (NOTICES_MAX, "0"));
    }

    #[test]
    fn a_repeated_notice_takes_no_room() {
        let mut status = Status::default();
        (0..NOTICES_MAX).for_each(|_| status.add_notice("a file has no probes".into()));
        status.add_notice("a probe is missing".into());
        assert_eq!(status.notices, ["a file has no probes", "a probe is missing"]);
    }
}
