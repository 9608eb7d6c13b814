//! Hang: no training step has ended for much longer than one usually takes.
//!
//! Owns: how long steps usually take, and since when none has ended. Because: that is the moment when the contents of
//! a flight recorder are worth most. Does not: know what ends a step (the pipeline's `ranges`), or write anything.

use std::collections::VecDeque;
use std::fmt;

use deepctx_profile::frame::Frame;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;

/// Steps whose median is the usual length: the first ones, which compile and allocate, soon have no weight.
const STEPS_MAX: usize = 32;
/// Steps needed to know the usual length.
const STEPS_LEAST: usize = 3;
/// A shorter pause is not a hang, however short the steps: records take up to a fifth of a second to arrive.
const LEAST: Nanos = Nanos(Nanos::SECOND.0);

/// Watches the ends of training steps, of all processes together.
#[derive(Debug)]
pub(crate) struct HangWatch {
    times: f64,
    /// Lengths of the last steps.
    steps: VecDeque<u64>,
    /// Steps in the profile, and the sum of their lengths.
    seen: (u64, u64),
    last_end: Nanos,
    reported: bool,
    alive: fn(u32) -> bool,
}

/// No step has ended for a long time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hang {
    pub(crate) since: Nanos,
    /// The usual length of a step.
    pub(crate) usual: Nanos,
    /// Of the processes that ended steps, those that still run.
    pub(crate) pids: Vec<u32>,
}

impl HangWatch {
    /// A step this many times longer than usual is a hang.
    pub(crate) fn new(times: f64) -> Self {
        let (steps, seen) = (VecDeque::new(), (0, 0));
        Self { times, steps, seen, last_end: Nanos(0), reported: false, alive: is_alive }
    }

    /// The hang, once, if there is one now.
    pub(crate) fn look(&mut self, profile: &Profile, now: Nanos) -> Option<Hang> {
        let total = profile.tree.total(Metric::StepTime);
        let (count, sum) = (total.count - self.seen.0, total.sum - self.seen.1);
        if let Some(mean) = sum.checked_div(count) {
            self.steps.extend(std::iter::repeat_n(mean, STEPS_MAX.min(count as usize)));
            self.steps.drain(..self.steps.len().saturating_sub(STEPS_MAX));
            (self.seen, self.last_end, self.reported) = ((total.count, total.sum), now, false);
            return None;
        }
        let (usual, since) = (self.usual()?, now.saturating_sub(self.last_end));
        if self.reported || (since.0 as f64) < usual.0 as f64 * self.times || since < LEAST {
            return None;
        }
        self.reported = true;
        let mut pids: Vec<u32> =
            profile.tree.cells(Metric::StepTime).filter_map(|(node, _)| process(profile, node)).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| (self.alive)(*pid));
        // Programs that have ended do not hang.
        (!pids.is_empty()).then_some(Hang { since, usual, pids })
    }

    /// Whether it has seen enough steps to detect a hang.
    pub(crate) fn has_seen_steps(&self) -> bool {
        self.usual().is_some()
    }

    /// The median of the last steps.
    fn usual(&self) -> Option<Nanos> {
        if self.steps.len() < STEPS_LEAST {
            return None;
        }
        let mut steps: Vec<u64> = self.steps.iter().copied().collect();
        steps.sort_unstable();
        Some(Nanos(steps[steps.len() / 2]))
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, usual, pids } = self;
        let pids: Vec<String> = pids.iter().map(|pid| format!("--pid {pid}")).collect();
        write!(
            f,
            "no training step has ended for {since}, and one usually takes {usual}; `deepctx-bpf dump {}` shows what \
             the threads wait for",
            pids.join(" ")
        )
    }
}

/// The process of a context.
fn process(profile: &Profile, node: deepctx_profile::NodeId) -> Option<u32> {
    let frames = profile.tree.stack(node);
    frames.into_iter().find_map(|frame| match profile.frames.get(frame) {
        Frame::Process { pid, .. } => Some(pid),
        _ => None,
    })
}

/// Whether a process still runs; a zombie does not.
fn is_alive(pid: u32) -> bool {
    // The name in it may be any bytes.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !['Z', 'X'].contains(&state))
}

#[cfg(test)]
mod tests {
    use deepctx_profile::NodeId;
    use deepctx_profile::profile::{Limits, Meta};

    use super::*;

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    fn profile() -> (Profile, NodeId) {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let comm = profile.text("python");
        let process = profile.frame(Frame::Process { pid: 7, comm });
        let node = profile.tree.path(NodeId::ROOT, [process]);
        (profile, node)
    }

    /// The times at which a hang is found, with steps of a second that end at `ends`.
    fn hangs(ends: &[u64], alive: fn(u32) -> bool) -> Vec<u64> {
        let (mut profile, node) = profile();
        let mut watch = HangWatch { alive, ..HangWatch::new(5.0) };
        let mut found = Vec::new();
        for second in 0..60 {
            if ends.contains(&second) {
                profile.tree.add(node, Metric::StepTime, seconds(1).0);
            }
            found.extend(watch.look(&profile, seconds(second)).map(|_| second));
        }
        found
    }

    #[test]
    fn a_hang_is_found_once_until_steps_end_again() {
        assert_eq!(hangs(&[2, 3, 4, 5], |_| true), [10]);
        assert_eq!(hangs(&[2, 3, 4, 30, 31], |_| true), [9, 36]);
        assert_eq!(hangs(&[2, 3], |_| true), [0; 0], "too few to know");
        assert_eq!(hangs(&[2, 3, 4, 5], |_| false), [0; 0], "the program has ended");
    }

    #[test]
    fn short_steps_need_a_pause_of_a_second() {
        let (mut profile, node) = profile();
        let mut watch = HangWatch { alive: |_| true, ..HangWatch::new(5.0) };
        for _ in 0..10 {
            profile.tree.add(node, Metric::StepTime, 1_000_000);
        }
        assert_eq!(watch.look(&profile, seconds(1)), None);
        assert_eq!(watch.look(&profile, Nanos(1_900_000_000)), None);
        let hang = watch.look(&profile, seconds(2)).unwrap();
        assert_eq!(
            hang.to_string(),
            "no training step has ended for 1.00 s, and one usually takes 1.00 ms; `deepctx-bpf dump --pid 7` shows \
             what the threads wait for"
        );
    }

    #[test]
    fn a_process_that_runs_is_told_from_one_that_ended() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX));
    }
}
