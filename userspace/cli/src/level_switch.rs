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

/// A set of probes; each holds those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchedLevel {
    /// Ends of steps, and what is always attached; one sample a second.
    Markers,
    /// Samples.
    Samples,
    /// The probes that have a budget.
    Probes,
}

impl SwitchedLevel {
    /// Every level, from the least to the most.
    pub(crate) const ALL: [SwitchedLevel; 3] =
        [SwitchedLevel::Markers, SwitchedLevel::Samples, SwitchedLevel::Probes];

    /// As it is written.
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

/// How sets of probes are switched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LevelPlan {
    /// Steps of a window, at least.
    pub window: usize,
    /// Rounds, each with a window of every set.
    pub rounds: usize,
    /// Samples a second and CPU where there are samples.
    pub frequency: u32,
}

/// What a set of probes needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LevelRequest {
    /// Samples a second and CPU.
    pub frequency: u32,
    /// The probes that have a budget.
    pub hold: ProbeHold,
}

/// Steps with one set of probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LevelWindow {
    /// The set.
    pub level: SwitchedLevel,
    /// From 0.
    pub round: usize,
    /// How long it was.
    pub wall_ns: u64,
    /// How long each step took at the place where most ended, sorted.
    pub steps_ns: Vec<u64>,
}

impl LevelWindow {
    /// Its steps in figures; `None` where there are none.
    pub(crate) fn step_times(&self) -> Option<StepTimes> {
        let (first, last) = (self.steps_ns.first()?, self.steps_ns.last()?);
        let count = self.steps_ns.len();
        let middle = |at: usize| self.steps_ns.get(at).copied().unwrap_or_default() as f64;
        Some(StepTimes {
            count: count as u64,
            mean_ns: self.steps_ns.iter().sum::<u64>() as f64 / count as f64,
            min_ns: *first,
            max_ns: *last,
            median_ns: Some(f64::midpoint(middle((count - 1) / 2), middle(count / 2))),
        })
    }
}

/// Switches them.
#[derive(Debug)]
pub(crate) struct LevelSwitch {
    plan: LevelPlan,
    state: State,
    round: usize,
    /// Which set of this round, in its order.
    place: usize,
    /// Steps of this window.
    steps: Vec<EndedStep>,
    windows: Vec<LevelWindow>,
    failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was requested yet.
    New,
    /// The first steps of a program are slower than those that follow.
    WarmUp { ended: usize },
    /// A set was requested at a time.
    Requested { at_ns: u64, ended: usize },
    /// It is attached since then.
    Measures { from_ns: u64 },
    /// All rounds are over, or none will.
    Over,
}

impl LevelSwitch {
    /// Nothing is attached yet.
    pub(crate) fn new(plan: LevelPlan) -> Self {
        let (state, steps, windows) = (State::New, Vec::new(), Vec::new());
        Self { plan, state, round: 0, place: 0, steps, windows, failure: None }
    }

    /// Takes in the steps that ended since the last call, and whether probes that have a budget are attached. Gives
    /// what is to be changed now.
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
                    // No library has them so far.
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

    /// A set cannot be attached: why.
    pub(crate) fn fail(&mut self, sentence: String) {
        self.failure = Some(sentence);
        self.state = State::Over;
    }

    /// Whether nothing is left to measure.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The windows of all rounds that have one of every set that was ever attached.
    ///
    /// # Errors
    /// No round has: why, for the user.
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
                "no round of windows of {} steps was complete: run the command for longer, or with a smaller --window",
                self.plan.window
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

/// How long the steps took at the place where most ended, sorted.
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

    /// A program whose steps end once in each tick, and take as long as its probes make them: 10 ns, 1 more with
    /// samples, and 5 with probes. They are known some ticks later.
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
            // Others end elsewhere.
            self.late.extend(began_ns.is_multiple_of(300).then(|| step(2, 7)));
            let known = self.late.iter().take_while(|step| step.began_ns + 300 < self.now_ns).count();
            let ended: Vec<EndedStep> = self.late.drain(..known).collect();
            let Some(request) = self.switch.advance(self.now_ns, self.attached, &ended) else { return };
            self.frequency = request.frequency;
            self.attached = self.attached.map(|_| request.hold == ProbeHold::Attached);
        }

        /// What is left of it when it has had so many windows.
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
            // None of the steps before it was attached, and none of another place.
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
