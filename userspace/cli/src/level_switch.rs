//! Level switch: alternates sets of probes while one command runs, and measures how long its steps take with each.
//!
//! Owns: which set is attached next, from when on steps count for it, and what is kept of them. Because: between two
//! runs of a command more changes than a set of probes costs; within one run, sets that alternate every second are
//! compared under the same conditions (S1.5 of XSP, Li et al., IPDPS 2020). Does not: attach anything, or compare
//! (`analysis` does).
//!
//! ```text
//!  round 1                          round 2                          round 3
//!  markers │ samples │ probes       samples │ probes │ markers       probes │ markers │ samples      …
//!          └ requested ─ attached ─ N steps ─ next
//! ```
//! Each round begins with another set, so that no set gains from a program that becomes slower or faster.

use std::collections::HashMap;

use deepctx_analysis::model::StepTimes;
use deepctx_capture::ProbeHold;
use deepctx_pipeline::EndedStep;
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::counted;

/// A set of probes; each includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchedLevel {
    /// Step ends and everything that is always attached; one sample per second.
    Markers,
    /// Samples.
    Samples,
    /// Probes with a budget.
    Probes,
}

impl SwitchedLevel {
    /// Every level, the smallest first.
    pub(crate) const ALL: [SwitchedLevel; 3] =
        [SwitchedLevel::Markers, SwitchedLevel::Samples, SwitchedLevel::Probes];

    /// Its spelling.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            SwitchedLevel::Markers => "markers",
            SwitchedLevel::Samples => "samples",
            SwitchedLevel::Probes => "probes",
        }
    }

    fn has_probes(self) -> bool {
        self == SwitchedLevel::Probes
    }
}

/// How probe sets are switched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelPlan {
    /// Minimum steps of a window.
    pub window: usize,
    /// Rounds, each with one window per set.
    pub rounds: usize,
    /// Samples per second and CPU in sets with samples.
    pub frequency: u32,
}

/// Settings of a probe set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelRequest {
    /// Samples per second and CPU.
    pub frequency: u32,
    /// State of probes with a budget.
    pub hold: ProbeHold,
}

/// Steps measured with one probe set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LevelWindow {
    /// The probe set.
    pub level: SwitchedLevel,
    /// Round, from 0.
    pub round: usize,
    /// Duration.
    pub wall_ns: u64,
    /// Sorted durations of the steps at the place where most steps ended.
    pub steps_ns: Vec<u64>,
}

impl LevelWindow {
    /// Statistics of its steps; `None` without steps.
    pub(crate) fn step_times(&self) -> Option<StepTimes> {
        let (first, last) = (self.steps_ns.first()?, self.steps_ns.last()?);
        let count = self.steps_ns.len();
        let middle = |at: usize| self.steps_ns.get(at).copied().unwrap_or_default() as f64;
        Some(StepTimes {
            count: count as u64,
            // A window has no sums.
            in_sums: count as f64,
            mean_ns: self.steps_ns.iter().sum::<u64>() as f64 / count as f64,
            min_ns: *first,
            max_ns: *last,
            median_ns: Some(f64::midpoint(middle((count - 1) / 2), middle(count / 2))),
        })
    }
}

/// Switches probe sets.
#[derive(Debug)]
pub(crate) struct LevelSwitch {
    plan: LevelPlan,
    state: State,
    round: usize,
    /// Index of the set in the round's order.
    place: usize,
    /// Steps of this window.
    steps: Vec<EndedStep>,
    windows: Vec<LevelWindow>,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing requested yet.
    New,
    /// The first steps of a program are slower than later ones.
    WarmUp { ended: usize },
    /// A set was requested at this time.
    Requested { at_ns: u64, ended: usize },
    /// It has been attached since this time.
    Measures { from_ns: u64 },
    /// All rounds are over, or no further one is possible.
    Over,
}

impl LevelSwitch {
    /// A new switch; nothing is attached yet.
    pub(crate) fn new(plan: LevelPlan) -> Self {
        let (state, steps, windows) = (State::New, Vec::new(), Vec::new());
        Self { plan, state, round: 0, place: 0, steps, windows, failure: None }
    }

    /// Takes the steps that ended since the last call, and whether probes with a budget are attached. Returns what to
    /// change now.
    pub(crate) fn advance(
        &mut self,
        now_ns: u64,
        attached: Option<bool>,
        ended: &[EndedStep],
    ) -> Option<LevelRequest> {
        let wanted = self.level().has_probes();
        match &mut self.state {
            State::New => {
                self.state = State::WarmUp { ended: 0 };
                return Some(self.request(SwitchedLevel::Markers));
            }
            State::WarmUp { ended: so_far } => {
                *so_far += ended.len();
                if *so_far >= self.plan.window {
                    return self.begin_turn(now_ns);
                }
            }
            State::Requested { at_ns, ended: so_far } => {
                *so_far += ended.iter().filter(|step| step.began_ns >= *at_ns).count();
                if attached.unwrap_or(false) == wanted {
                    self.state = State::Measures { from_ns: now_ns };
                } else if attached.is_none() && *so_far >= self.plan.window {
                    // No library has such probes so far.
                    return self.next_turn(now_ns);
                }
            }
            State::Measures { from_ns } => {
                let from_ns = *from_ns;
                self.steps.extend(ended.iter().filter(|step| step.began_ns >= from_ns));
                let steps_ns = at_busiest_place(&self.steps);
                if steps_ns.len() >= self.plan.window {
                    let (level, round) = (self.level(), self.round);
                    self.windows.push(LevelWindow { level, round, wall_ns: now_ns - from_ns, steps_ns });
                    return self.next_turn(now_ns);
                }
            }
            State::Over => {}
        }
        None
    }

    /// Records why a set cannot be attached.
    pub(crate) fn fail(&mut self, sentence: String) {
        self.failure = Some(sentence);
        self.state = State::Over;
    }

    /// Whether all measurements are done.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The windows of all complete rounds: those with a window of every set that was ever attached.
    ///
    /// # Errors
    /// Why no round is complete, for the user.
    pub(crate) fn into_windows(self) -> Result<Vec<LevelWindow>, String> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let seen = SwitchedLevel::ALL.map(|level| self.windows.iter().any(|window| window.level == level));
        let seen = seen.into_iter().filter(|seen| *seen).count();
        let mut counts: HashMap<usize, usize> = HashMap::new();
        self.windows.iter().for_each(|window| *counts.entry(window.round).or_default() += 1);
        let mut windows = self.windows;
        windows.retain(|window| counts.get(&window.round) == Some(&seen));
        if seen < 2 || windows.is_empty() {
            return Err(format!(
                "no round of windows of {} was complete: run the command for longer, or with a smaller --window",
                counted(self.plan.window as u64, "step")
            ));
        }
        Ok(windows)
    }

    fn level(&self) -> SwitchedLevel {
        let all = SwitchedLevel::ALL;
        all[(self.round + self.place) % all.len()]
    }

    fn next_turn(&mut self, now_ns: u64) -> Option<LevelRequest> {
        self.place += 1;
        if self.place == SwitchedLevel::ALL.len() {
            (self.place, self.round) = (0, self.round + 1);
        }
        if self.round == self.plan.rounds {
            self.state = State::Over;
            return None;
        }
        self.begin_turn(now_ns)
    }

    fn begin_turn(&mut self, now_ns: u64) -> Option<LevelRequest> {
        self.steps.clear();
        self.state = State::Requested { at_ns: now_ns, ended: 0 };
        Some(self.request(self.level()))
    }

    fn request(&self, level: SwitchedLevel) -> LevelRequest {
        LevelRequest {
            frequency: if level == SwitchedLevel::Markers { 1 } else { self.plan.frequency },
            hold: if level.has_probes() { ProbeHold::Attached } else { ProbeHold::Detached },
        }
    }
}

/// Sorted durations of the steps at the place where most steps ended.
fn at_busiest_place(steps: &[EndedStep]) -> Vec<u64> {
    let mut counts: HashMap<NodeId, usize> = HashMap::new();
    steps.iter().for_each(|step| *counts.entry(step.place).or_default() += 1);
    let busiest = counts.into_iter().max_by_key(|(place, count)| (*count, *place)).map(|(place, _)| place);
    let there = steps.iter().filter(|step| Some(step.place) == busiest);
    let mut steps_ns: Vec<u64> = there.map(|step| step.took_ns).collect();
    steps_ns.sort_unstable();
    steps_ns
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A program whose steps end once per tick. A step takes 10 ns, 1 more with samples and 5 more with probes, and is
    /// reported some ticks later.
    struct Program {
        now_ns: u64,
        attached: Option<bool>,
        frequency: u32,
        late: VecDeque<EndedStep>,
        switch: LevelSwitch,
    }

    impl Program {
        fn new(attached: Option<bool>, rounds: usize) -> Self {
            let plan = LevelPlan { window: 2, rounds, frequency: 99 };
            let (late, switch) = (VecDeque::new(), LevelSwitch::new(plan));
            Self { now_ns: 0, attached, frequency: 99, late, switch }
        }

        fn tick(&mut self) {
            let took_ns =
                10 + u64::from(self.frequency == 99) + if self.attached == Some(true) { 5 } else { 0 };
            let began_ns = self.now_ns;
            self.now_ns += 100;
            let step = |place, took_ns| EndedStep { place: NodeId::from_number(place), began_ns, took_ns };
            self.late.push_back(step(1, took_ns));
            // Some steps end elsewhere.
            self.late.extend(began_ns.is_multiple_of(300).then(|| step(2, 7)));
            let known = self.late.iter().take_while(|step| step.began_ns + 300 < self.now_ns).count();
            let ended: Vec<EndedStep> = self.late.drain(..known).collect();
            let Some(request) = self.switch.advance(self.now_ns, self.attached, &ended) else { return };
            self.frequency = request.frequency;
            self.attached = self.attached.map(|_| request.hold == ProbeHold::Attached);
        }

        /// Runs it for this many windows and returns them.
        fn windows(mut self, count: usize) -> Result<Vec<LevelWindow>, String> {
            while self.switch.windows.len() < count {
                self.tick();
            }
            self.switch.into_windows()
        }
    }

    #[test]
    fn each_round_has_every_set_in_another_order() {
        let windows = Program::new(Some(true), 3).windows(9).unwrap();
        let (m, s, p) = (SwitchedLevel::Markers, SwitchedLevel::Samples, SwitchedLevel::Probes);
        let order: Vec<_> = windows.iter().map(|window| (window.round, window.level)).collect();
        assert_eq!(order, [(0, m), (0, s), (0, p), (1, s), (1, p), (1, m), (2, p), (2, m), (2, s)]);
        for window in &windows {
            let took_ns = match window.level {
                SwitchedLevel::Markers => 10,
                SwitchedLevel::Samples => 11,
                SwitchedLevel::Probes => 16,
            };
            // Excludes steps from before the set was attached, and steps of another place.
            assert_eq!(window.steps_ns, [took_ns; 2], "{window:?}");
            let times = window.step_times().unwrap();
            assert_eq!((times.count, times.median_ns), (2, Some(took_ns as f64)));
        }
    }

    #[test]
    fn a_round_that_is_not_over_does_not_count() {
        let levels = |attached, count| {
            let windows = Program::new(attached, 3).windows(count)?;
            Ok::<_, String>(windows.iter().map(|window| window.level.name()).collect::<Vec<_>>())
        };
        assert!(levels(Some(true), 1).unwrap_err().contains("--window"));
        assert_eq!(levels(Some(true), 5).unwrap(), ["markers", "samples", "probes"]);
        // No library has the probes.
        assert_eq!(levels(None, 3).unwrap(), ["markers", "samples"]);
    }

    #[test]
    fn the_end_comes_with_the_last_round_or_a_failure() {
        let mut program = Program::new(Some(true), 1);
        while !program.switch.is_over() {
            program.tick();
        }
        assert_eq!(program.switch.advance(0, None, &[]), None);
        let mut program = Program::new(Some(true), 1);
        program.switch.fail("the kernel refuses".to_owned());
        assert!(program.switch.is_over());
        assert_eq!(program.switch.into_windows().unwrap_err(), "the kernel refuses");
    }
}
