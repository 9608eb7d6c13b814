//! Budget: how much of the targets' time probes may take, and when to attach them so that they stay within it.
//!
//! Owns: [`Budget`], and the [`Governor`] that decides when to attach and detach probes from their cost so far.
//! Because: a trap at each operator of a program has its price; a user who cannot pay it for the whole run can pay it
//! for a part, and must know which part. Does not: measure, attach, or read a clock: the caller passes in figures.
//!
//! ```text
//!  balance   + budget x the targets' own CPU time   - what the probes took
//!  window    while the balance lasts; then until the window has its length, or the debt is all that a pause can repay
//!  pause     until the debt is repaid, and never longer than [`PAUSE_LONGEST`]
//! ```
//! If probes cost less than the budget, the balance lasts and the first window never ends: counts are exact.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// No window is shorter: attaching itself would take most of it.
const WINDOW_SHORTEST: Duration = Duration::from_millis(20);
/// The first window, randomly a quarter more or less: some whole training steps, and soon over for a short capture.
const WINDOW_FIRST: Duration = Duration::from_millis(200);
/// Growth of each window over the one before, as a ratio: later windows hold whole training steps of slow programs.
const WINDOW_GROWS: (u64, u64) = (3, 2);
/// No window is longer.
const WINDOW_LONGEST: Duration = Duration::from_secs(10);
/// No pause is shorter.
const PAUSE_SHORTEST: Duration = Duration::from_millis(100);
/// A window ends when its debt needs a pause of this length: what the profile shows should not be older.
const PAUSE: Duration = Duration::from_secs(5);
/// Whatever the debt, a window begins after this time; one that begins in debt has the shortest length.
const PAUSE_LONGEST: Duration = Duration::from_secs(20);
/// CPU time of the targets over which unused budget is saved up for an expensive phase.
const SAVED: Duration = Duration::from_secs(2);
/// Interval between checks during a window, and during a pause.
const CHECKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(50)];

/// Share of the targets' own CPU time that probes may take, in thousandths. Its text: `2.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Budget(u32);

impl Budget {
    /// Thousandths of the targets' own CPU time.
    pub fn thousandths(self) -> u32 {
        self.0
    }

    fn of(self, time: Duration) -> Duration {
        time * self.0 / 1000
    }
}

impl FromStr for Budget {
    type Err = String;

    /// Reads percent, such as `10`, `10%` or `2.5%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>();
        number
            .ok()
            .filter(|percent| (0.1..=100.0).contains(percent))
            .map(|percent| Self((percent * 10.0).round() as u32))
            .ok_or_else(|| format!("expected a percentage from 0.1 to 100, found '{text}'"))
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10.0)
    }
}

/// Totals so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub now_ns: u64,
    /// CPU time of the targets spent in probes, nanoseconds.
    pub cost_ns: u64,
    /// CPU time of the targets, including probes, nanoseconds.
    pub cpu_ns: u64,
}

impl Figures {
    fn since(self, before: Self) -> Self {
        Self {
            now_ns: self.now_ns.saturating_sub(before.now_ns),
            cost_ns: self.cost_ns.saturating_sub(before.cost_ns),
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
        }
    }
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No change.
    Keep,
    /// The window is over.
    Detach,
    /// The next window begins.
    Attach,
}

/// A request for the probes that have a budget, while a capture runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeHold {
    /// Attached while the budget lasts.
    #[default]
    Budget,
    /// Attached, whatever their cost.
    Attached,
    /// Detached, whatever the balance.
    Detached,
}

/// Decides when windows open and close.
#[derive(Debug)]
pub(crate) struct Governor {
    budget: Budget,
    hold: ProbeHold,
    attached: bool,
    /// The window began with a debt.
    forced: bool,
    /// Figures when this window or pause began.
    began: Figures,
    last: Figures,
    /// Length of this window, and the mean length of the next one; nanoseconds.
    planned_ns: u64,
    length_ns: u64,
    /// Budget left, or debt if negative, thousandths of nanoseconds.
    balance: i64,
    /// Random state: lengths must not keep time with the program.
    chance: u64,
}

impl Governor {
    /// The first window begins now. `chance`: any number.
    pub(crate) fn new(budget: Budget, now: Figures, chance: u64) -> Self {
        let mut governor = Self {
            budget,
            hold: ProbeHold::Budget,
            attached: true,
            forced: false,
            began: now,
            last: now,
            planned_ns: 0,
            length_ns: nanos(WINDOW_FIRST),
            balance: 0,
            chance: chance | 1,
        };
        governor.plan();
        governor
    }

    /// Whether a window is open.
    pub(crate) fn attached(&self) -> bool {
        self.attached
    }

    /// Overrides decisions from the next check on. The cost of probes is still counted: a long request to attach leaves
    /// a debt for the budget.
    pub(crate) fn hold(&mut self, hold: ProbeHold) {
        self.hold = hold;
    }

    /// How long until the next check.
    pub(crate) fn next_check(&self) -> Duration {
        CHECKS[usize::from(!self.attached)]
    }

    /// Cost of the probes in this window, relative to the targets' own CPU time in it; `None` if they used none.
    pub(crate) fn rate(&self) -> Option<f64> {
        let Figures { cost_ns, cpu_ns, .. } = self.last.since(self.began);
        let own = cpu_ns.saturating_sub(cost_ns);
        (own > 0).then(|| cost_ns as f64 / own as f64)
    }

    /// Decides at these figures.
    pub(crate) fn check(&mut self, now: Figures) -> Decision {
        let Figures { cost_ns, cpu_ns, .. } = now.since(self.last);
        self.last = now;
        let thousandths = |ns: u64| i64::try_from(ns.saturating_mul(1000)).unwrap_or(i64::MAX);
        let own_ns = cpu_ns.saturating_sub(cost_ns);
        let earned = i64::try_from(own_ns.saturating_mul(u64::from(self.budget.0))).unwrap_or(i64::MAX);
        let saved = thousandths(nanos(self.budget.of(SAVED)));
        self.balance = self.balance.saturating_add(earned).saturating_sub(thousandths(cost_ns)).min(saved);
        let so_far = now.since(self.began);
        let decision = match (self.hold, self.attached) {
            (ProbeHold::Attached, true) | (ProbeHold::Detached, false) => Decision::Keep,
            (ProbeHold::Attached, false) => Decision::Attach,
            (ProbeHold::Detached, true) => Decision::Detach,
            (ProbeHold::Budget, true) => self.while_attached(so_far),
            (ProbeHold::Budget, false) => self.while_detached(so_far),
        };
        if decision != Decision::Keep {
            self.attached = decision == Decision::Attach;
            self.began = now;
        }
        decision
    }

    fn while_attached(&self, so_far: Figures) -> Decision {
        let Figures { now_ns: elapsed_ns, cpu_ns, .. } = so_far;
        if self.balance >= 0 || elapsed_ns < nanos(WINDOW_SHORTEST) {
            return Decision::Keep;
        }
        // In a pause all of the targets' time is their own.
        let repaid = u128::from(cpu_ns) * u128::from(nanos(PAUSE)) * u128::from(self.budget.0);
        let repaid = repaid / u128::from(elapsed_ns);
        let debt = u128::from(self.balance.unsigned_abs());
        if self.forced || elapsed_ns >= self.planned_ns || debt >= repaid {
            Decision::Detach
        } else {
            Decision::Keep
        }
    }

    fn while_detached(&mut self, so_far: Figures) -> Decision {
        let owes = self.balance < 0;
        let most = if owes { PAUSE_LONGEST } else { PAUSE_SHORTEST };
        if so_far.now_ns < nanos(most) {
            return Decision::Keep;
        }
        self.forced = owes;
        self.plan();
        Decision::Attach
    }

    /// Decides the length of the next window.
    fn plan(&mut self) {
        // xorshift64 (Marsaglia, 2003).
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.planned_ns = self.length_ns / 4 * 3 + self.chance % (self.length_ns / 2);
        let (more, of) = WINDOW_GROWS;
        self.length_ns = (self.length_ns / of * more).min(nanos(WINDOW_LONGEST));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_budget_is_a_percentage() {
        for (text, expect) in
            [("10", "10%"), ("10%", "10%"), ("2.5 %", "2.5%"), ("0.1", "0.1%"), ("100%", "100%")]
        {
            assert_eq!(text.parse::<Budget>().unwrap().to_string(), expect, "{text}");
        }
        for text in ["", "0", "0.04", "101", "-3", "ten", "NaN"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }

    /// A program that uses this many CPUs, whose probes cost this much per nanosecond of its own time, for this long.
    #[derive(Clone, Copy, Debug)]
    struct Phase {
        cpus: f64,
        cost: f64,
        milliseconds: u64,
    }

    #[derive(Debug, Default)]
    struct SimulatedCost {
        windows: u64,
        forced: u64,
        watched_ns: u64,
        longest_pause_ns: u64,
        cost_ns: f64,
        own_ns: f64,
        most_cpus: f64,
    }

    const CHECK_NS: u64 = 20_000_000;

    /// Runs a governor through phases, checking as often as it asks, and late by up to `late_ns`.
    fn follow(budget: Budget, phases: &[Phase], late_ns: u64, chance: u64) -> SimulatedCost {
        let mut governor = Governor::new(budget, Figures::default(), chance);
        let mut seen = SimulatedCost { windows: 1, ..SimulatedCost::default() };
        let (mut now_ns, mut check_ns, mut pause_ns) = (0, CHECK_NS, None);
        for phase in phases {
            seen.most_cpus = seen.most_cpus.max(phase.cpus);
            for _ in 0..phase.milliseconds {
                now_ns += 1_000_000;
                let cpu = phase.cpus * 1e6;
                let cost = if governor.attached() { cpu * phase.cost / (1.0 + phase.cost) } else { 0.0 };
                seen.cost_ns += cost;
                seen.own_ns += cpu - cost;
                seen.watched_ns += u64::from(governor.attached()) * 1_000_000;
                if now_ns < check_ns {
                    continue;
                }
                let cpu_ns = (seen.own_ns + seen.cost_ns) as u64;
                match governor.check(Figures { now_ns, cost_ns: seen.cost_ns as u64, cpu_ns }) {
                    Decision::Keep => {}
                    Decision::Detach => pause_ns = Some(now_ns),
                    Decision::Attach => {
                        seen.windows += 1;
                        seen.forced += u64::from(governor.forced);
                        let pause_ns = pause_ns.take().map_or(0, |since| now_ns - since);
                        seen.longest_pause_ns = seen.longest_pause_ns.max(pause_ns);
                    }
                }
                check_ns = now_ns + nanos(governor.next_check()) + (now_ns * 7919) % (late_ns + 1);
            }
        }
        if let Some(since) = pause_ns {
            seen.longest_pause_ns = seen.longest_pause_ns.max(now_ns - since);
        }
        seen
    }

    /// Seconds of a program; the watched share of time in percent, and the number of windows.
    #[track_caller]
    fn check(
        budget: &str,
        cost: f64,
        cpus: f64,
        share: std::ops::RangeInclusive<f64>,
        windows: std::ops::RangeInclusive<u64>,
    ) {
        let phase = Phase { cpus, cost, milliseconds: 60_000 };
        let seen = follow(budget.parse().unwrap(), &[phase], 0, 1);
        let watched = seen.watched_ns as f64 / 60e9 * 100.0;
        assert!(share.contains(&watched), "{budget}, cost {cost}: watched {watched} %, {seen:?}");
        assert!(windows.contains(&seen.windows), "{budget}, cost {cost}: {seen:?}");
    }

    #[test]
    fn a_request_stands_above_the_budget() {
        let mut governor = Governor::new("10%".parse().unwrap(), Figures::default(), 1);
        let mut now = Figures::default();
        let mut next = |governor: &mut Governor, cost_ns| {
            now = Figures {
                now_ns: now.now_ns + CHECK_NS,
                cost_ns: now.cost_ns + cost_ns,
                cpu_ns: now.cpu_ns + CHECK_NS,
            };
            governor.check(now)
        };
        governor.hold(ProbeHold::Attached);
        // Half of the time is spent in probes: without the request the window would end within a second.
        assert!((0..500).all(|_| next(&mut governor, CHECK_NS / 2) == Decision::Keep));
        governor.hold(ProbeHold::Detached);
        assert_eq!(next(&mut governor, 0), Decision::Detach);
        assert!((0..5000).all(|_| next(&mut governor, 0) == Decision::Keep) && !governor.attached());
        governor.hold(ProbeHold::Attached);
        assert_eq!(next(&mut governor, 0), Decision::Attach);
        governor.hold(ProbeHold::Budget);
        let decided: Vec<_> = (0..500).map(|_| next(&mut governor, CHECK_NS / 2)).collect();
        assert!(decided.contains(&Decision::Detach), "the budget holds again");
    }

    #[test]
    fn probes_cheaper_than_the_budget_are_always_attached() {
        check("10%", 0.0, 1.0, 100.0..=100.0, 1..=1);
        check("10%", 0.099, 1.0, 100.0..=100.0, 1..=1);
        check("100%", 0.9, 8.0, 100.0..=100.0, 1..=1);
        check("10%", 5.0, 0.0, 100.0..=100.0, 1..=1);
    }

    #[test]
    fn probes_above_the_budget_are_attached_for_the_affordable_share() {
        // Watched w of the time: w c / (1 + c) = b (1 - w c / (1 + c)).
        check("10%", 3.89, 1.0, 10.5..=12.5, 9..=20);
        check("10%", 3.89, 8.0, 10.5..=12.5, 9..=20);
        check("1%", 3.89, 1.0, 1.1..=1.4, 8..=14);
        check("10%", 0.3, 1.0, 37.0..=42.0, 7..=20);
        check("10%", 0.12, 1.0, 80.0..=100.0, 5..=60);
        check("50%", 3.89, 1.0, 40.0..=44.0, 7..=25);
    }

    #[test]
    fn an_expensive_phase_is_paid_from_savings() {
        let cheap = Phase { cpus: 1.0, cost: 0.02, milliseconds: 5_000 };
        let expensive = Phase { cpus: 1.0, cost: 1.0, milliseconds: 200 };
        let seen = follow("10%".parse().unwrap(), &[cheap, expensive, cheap, expensive, cheap], 0, 1);
        assert_eq!(seen.windows, 1, "{seen:?}");
    }

    fn phases() -> impl Strategy<Value = Vec<Phase>> {
        let phase = (0u32..=32, 0u32..=100, 1u64..20_000).prop_map(|(cpus, cost, milliseconds)| Phase {
            cpus: f64::from(cpus) / 4.0,
            cost: f64::from(cost * cost) / 500.0,
            milliseconds,
        });
        proptest::collection::vec(phase, 1..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_budget_is_kept_but_for_one_window(
            phases in phases(), thousandths in 1u32..=1000, late_ms in 0u64..40, chance: u64
        ) {
            let budget = Budget(thousandths);
            let late_ns = late_ms * 1_000_000;
            let seen = follow(budget, &phases, late_ns, chance);
            let share = f64::from(thousandths) / 1000.0;
            // Unseen cost: between two checks; at most that in each window that had to begin in debt.
            let unseen_ns = (CHECK_NS * 2 + late_ns) as f64 * seen.most_cpus;
            let turn_ns = share * nanos(PAUSE) as f64 * seen.most_cpus;
            let most = share * seen.own_ns + turn_ns + unseen_ns * (1 + seen.forced) as f64 + 1e6;
            prop_assert!(seen.cost_ns <= most, "{:?} > {}", seen, most);
            prop_assert!(seen.watched_ns > 0);
            let pause_ns = nanos(PAUSE_LONGEST) + nanos(CHECKS[1]) + late_ns + 1_000_000;
            prop_assert!(seen.longest_pause_ns <= pause_ns, "{:?}", seen);
        }

        #[test]
        fn figures_may_be_anything(totals in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..50)) {
            let mut governor = Governor::new(Budget(100), Figures::default(), 0);
            for (now_ns, cost_ns, cpu_ns) in totals {
                governor.check(Figures { now_ns, cost_ns, cpu_ns });
            }
        }
    }
}
