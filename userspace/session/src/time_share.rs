//! Time share: when costly work on the pipeline's thread may run again.
//!
//! Owns: [`TimeShare`], the pause that follows from what the work cost. Because: rules and screens read the whole
//! profile, and the larger it is, the less often they may. Does not: read a clock; its owner passes the times.

use std::time::{Duration, Instant};

/// A limit on the time of work that is repeated.
#[derive(Clone, Copy, Debug)]
pub struct TimeShare {
    part: u32,
    every: Duration,
    next: Option<Instant>,
}

impl TimeShare {
    /// Work that takes at most one part in `part` of a CPU's time, and begins at most once in `every`.
    pub const fn new(part: u32, every: Duration) -> Self {
        TimeShare { part, every, next: None }
    }

    /// Whether the work may begin: always the first time.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| now >= next)
    }

    /// The work ended at `now`, and took `cost`. Returns the pause from now on.
    pub fn pause_after(&mut self, cost: Duration, now: Instant) -> Duration {
        let pause = cost.saturating_mul(self.part.saturating_sub(1)).max(self.every);
        self.next = Some(now + pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(2);

    /// Runs work for an hour, as often as it may, polled ten times a second: the number of runs. The n-th run costs
    /// `cost(n)`.
    fn runs(cost: impl Fn(u32) -> Duration) -> u32 {
        let (mut share, begin) = (TimeShare::new(100, EVERY), Instant::now());
        let (mut now, mut worked, mut runs) = (begin, Duration::ZERO, 0);
        while now - begin < Duration::from_secs(3600) {
            if share.is_due(now) {
                assert!(worked * 100 <= now - begin, "{worked:?} in {:?}", now - begin);
                let cost = cost(runs);
                (now, worked, runs) = (now + cost, worked + cost, runs + 1);
                share.pause_after(cost, now);
            }
            now += Duration::from_millis(100);
        }
        runs
    }

    #[test]
    fn work_takes_its_share_whatever_it_costs() {
        let ms = Duration::from_millis;
        for cost in [0, 1, 20, 21, 240, 2_400] {
            let most = 3600 / 2;
            assert!((1..=most).contains(&runs(|_| ms(cost))), "{cost} ms");
        }
        // A profile that grows: each run costs more than the one before.
        assert!(runs(|run| ms(u64::from(run).pow(2))) > 10);
    }

    #[test]
    fn cheap_work_is_paced_and_costly_work_waits_longer() {
        let mut share = TimeShare::new(100, EVERY);
        let now = Instant::now();
        assert!(share.is_due(now), "nothing has run yet");
        assert_eq!(share.pause_after(Duration::from_millis(5), now), EVERY);
        assert!(!share.is_due(now) && share.is_due(now + EVERY));
        assert_eq!(share.pause_after(Duration::from_secs(1), now), Duration::from_secs(99));
    }
}
