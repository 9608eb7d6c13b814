//! Suspects: processes whose memory takes too long to read.
//!
//! Owns: the processes whose memory did not answer, when each is retried, and an account of waiting time per user.
//! Because: one unresponsive process costs a full timeout, and a user may have a thousand of them, or one that is
//! slow each time. Does not: read memory or look up processes.
//!
//! A process is retried, less and less often: when the machine itself stalls (a paused VM, a VM whose host is
//! overloaded), every process misses a deadline through no fault of its own.
//!
//! Waiting time beyond what a disk needs is charged to the user's account ([`TimeAccounts`]). So a user can stall a
//! capture for 0.75 s at once, and for one fiftieth of the time after that.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::DEADLINE;
use crate::read_error::ReadError;
use crate::time_account::{Terms, TimeAccounts};

/// Longest total wait for reads of one user: three deadlines at once.
const WAITING: Terms =
    Terms { credit: Duration::from_millis(750), least: Duration::from_millis(125), regained: 50 };
/// A process that did not answer is asked again after this time, then after twice the time at each further silence.
const ASKED_AGAIN: Duration = Duration::from_secs(1);
/// Longest time until it is asked again.
const ASKED_AGAIN_MAX: Duration = Duration::from_secs(60);
/// Waiting that is not charged: reading pages from a disk.
const FREE: Duration = Duration::from_millis(5);
/// Most processes remembered.
const KNOWN_MAX: usize = 4096;
/// Most notices kept until someone takes them.
const NOTICES_MAX: usize = 64;

/// Identity of a process: its pid may be reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its pid.
    pub(super) pid: u32,
    /// When it started, in ticks since boot.
    pub(super) started: u64,
    /// Its real user.
    pub(super) user: u32,
}

/// Suspect processes and users.
#[derive(Debug)]
pub(super) struct Suspects {
    /// Processes that did not answer, by pid.
    silent: FxHashMap<u32, Silence>,
    accounts: TimeAccounts,
    notices: Vec<String>,
}

/// A process that did not answer.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// Start time of the process.
    started: u64,
    /// It has not answered since. One that did is kept too: it may have one page that never answers.
    lasts: bool,
    /// When it may be asked again.
    again_at: Instant,
    /// How long it is not asked after that.
    wait: Duration,
}

impl Silence {
    fn new(started: u64, now: Instant) -> Self {
        Self { started, lasts: true, again_at: now + ASKED_AGAIN, wait: ASKED_AGAIN * 2 }
    }

    /// It is being asked now. All others wait for the result.
    fn postpone(&mut self, now: Instant) {
        self.again_at = now + self.wait;
        self.wait = (self.wait * 2).min(ASKED_AGAIN_MAX);
    }
}

impl Default for Suspects {
    fn default() -> Self {
        Self { silent: FxHashMap::default(), accounts: TimeAccounts::new(WAITING), notices: Vec::new() }
    }
}

impl Suspects {
    /// Whether memory of a process may be read. `may_be_silent`: the caller can tolerate another silence of a process
    /// that did not answer.
    pub(super) fn allows(
        &mut self,
        who: Identity,
        may_be_silent: bool,
        now: Instant,
    ) -> Result<(), ReadError> {
        let silence = self.silent.get_mut(&who.pid).filter(|of| of.started == who.started && of.lasts);
        if silence.as_ref().is_some_and(|silence| !may_be_silent || now < silence.again_at) {
            return Err(ReadError::NoAnswer);
        }
        if self.accounts.allows(who.user, now) {
            if let Some(silence) = silence {
                silence.postpone(now);
            }
            return Ok(());
        }
        if self.accounts.is_first_refusal(who.user) {
            let text = format!(
                "user {}: the memory of its processes answers late or not at all; names that are in it are missing",
                who.user
            );
            self.notice(text);
        }
        Err(ReadError::Refused)
    }

    /// Records that a read was answered after this wait.
    pub(super) fn answered(&mut self, who: Identity, waited: Duration, now: Instant) {
        if is_charged(waited) {
            self.charge(who, waited, now);
        }
        if let Some(silence) = self.silence_of(who) {
            silence.lasts = false;
        }
    }

    /// Records that a read was not answered. True the first time.
    pub(super) fn did_not_answer(&mut self, who: Identity, waited: Duration, now: Instant) -> bool {
        self.charge(who, waited, now);
        if let Some(silence) = self.silence_of(who) {
            // Several threads may have waited for it.
            if !std::mem::replace(&mut silence.lasts, true) {
                silence.postpone(now);
            }
            return false;
        }
        if self.silent.len() >= KNOWN_MAX {
            self.silent.clear();
        }
        self.silent.insert(who.pid, Silence::new(who.started, now));
        self.notice(format!(
            "process {}: its memory did not answer within {} ms; names that are in it are missing until it does",
            who.pid,
            DEADLINE.as_millis()
        ));
        true
    }

    /// Charges the wait for a read.
    fn charge(&mut self, who: Identity, waited: Duration, now: Instant) {
        self.accounts.charge(who.user, waited, now);
    }

    /// Notices since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn silence_of(&mut self, who: Identity) -> Option<&mut Silence> {
        self.silent.get_mut(&who.pid).filter(|silence| silence.started == who.started)
    }

    fn notice(&mut self, text: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(text);
        }
    }
}

/// Whether a read took longer than reading from a disk.
pub(super) fn is_charged(waited: Duration) -> bool {
    waited > FREE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_account::USERS_MAX;

    fn process(pid: u32, user: u32) -> Identity {
        Identity { pid, started: 7, user }
    }

    #[test]
    fn a_silent_process_is_left_alone() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        let who = process(10, 1000);
        assert_eq!(suspects.allows(who, true, now), Ok(()));
        assert!(suspects.did_not_answer(who, DEADLINE, now));
        assert!(!suspects.did_not_answer(who, DEADLINE, now));
        assert_eq!(suspects.allows(who, true, now + ASKED_AGAIN / 2), Err(ReadError::NoAnswer));
        let later = now + Duration::from_secs(9999);
        assert_eq!(
            suspects.allows(who, false, later),
            Err(ReadError::NoAnswer),
            "somebody may wait for ever"
        );
        // Its pid is reused by another process.
        assert_eq!(suspects.allows(Identity { started: 8, ..who }, false, now), Ok(()));
        let notices = suspects.take_notices();
        assert!(notices[0].contains("process 10") && notices[0].contains("250 ms"), "{notices:?}");
    }

    #[test]
    fn a_silent_process_is_asked_again_less_and_less_often() {
        let (mut suspects, began) = (Suspects::default(), Instant::now());
        let who = process(10, 1000);
        suspects.did_not_answer(who, Duration::ZERO, began);
        let asked = (0..400).filter(|second| {
            let now = began + Duration::from_secs(*second);
            let asked = suspects.allows(who, true, now).is_ok();
            if asked {
                assert_eq!(suspects.allows(who, true, now), Err(ReadError::NoAnswer), "by one thread");
                suspects.did_not_answer(who, Duration::ZERO, now);
            }
            asked
        });
        assert_eq!(asked.collect::<Vec<_>>(), [1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]);
        assert_eq!(suspects.take_notices().len(), 1);
    }

    #[test]
    fn a_process_that_answers_again_is_like_any_other() {
        let (mut suspects, began) = (Suspects::default(), Instant::now());
        let who = process(10, 1000);
        suspects.did_not_answer(who, DEADLINE, began);
        suspects.answered(Identity { started: 8, ..who }, Duration::ZERO, began);
        assert_eq!(suspects.allows(who, true, began), Err(ReadError::NoAnswer), "another one has its number");
        suspects.answered(who, Duration::ZERO, began);
        assert_eq!(suspects.allows(who, false, began), Ok(()));
        assert!(!suspects.did_not_answer(who, DEADLINE, began), "it is counted once");
        assert_eq!(
            suspects.allows(who, true, began + ASKED_AGAIN),
            Err(ReadError::NoAnswer),
            "and waits longer"
        );
        assert_eq!(suspects.allows(who, true, began + 2 * ASKED_AGAIN), Ok(()));
    }

    #[test]
    fn a_user_holds_up_a_capture_for_a_bounded_time() {
        let (mut suspects, began) = (Suspects::default(), Instant::now());
        let mut waited = Duration::ZERO;
        for pid in 0..1000 {
            if suspects.allows(process(pid, 1000), true, began + waited).is_ok() {
                waited += DEADLINE;
                suspects.did_not_answer(process(pid, 1000), DEADLINE, began + waited);
            }
        }
        assert_eq!(waited, 3 * DEADLINE);
        assert_eq!(suspects.allows(process(5000, 1000), true, began + waited), Err(ReadError::Refused));
        assert_eq!(
            suspects.allows(process(5000, 1001), true, began + waited),
            Ok(()),
            "others are not refused"
        );
        assert_eq!(
            suspects.take_notices().iter().filter(|notice| notice.starts_with("user 1000")).count(),
            1
        );
        // A fiftieth of the time after that.
        let (hour, mut now) = (Duration::from_secs(3600), began + waited);
        let end = now + hour;
        let mut pid = 10_000;
        while now < end {
            now += Duration::from_millis(100);
            pid += 1;
            if suspects.allows(process(pid, 1000), true, now).is_ok() {
                waited += DEADLINE;
                suspects.did_not_answer(process(pid, 1000), DEADLINE, now);
            }
        }
        assert!(waited <= hour / WAITING.regained + WAITING.credit + DEADLINE, "{waited:?}");
    }

    #[test]
    fn slow_answers_are_charged_as_missing_ones_are() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        let answers = (0..).find(|_| {
            suspects.charge(process(1, 5), Duration::from_millis(100), now);
            suspects.allows(process(1, 5), true, now).is_err()
        });
        assert_eq!(answers, Some(6));
        assert!(is_charged(Duration::from_millis(100)) && !is_charged(Duration::from_micros(900)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        for n in 0..3 * KNOWN_MAX as u32 {
            let now = now + Duration::from_secs(u64::from(n));
            suspects.did_not_answer(process(n, n), DEADLINE, now);
        }
        assert!(suspects.silent.len() <= KNOWN_MAX && suspects.accounts.users() <= USERS_MAX);
        assert_eq!(suspects.take_notices().len(), NOTICES_MAX);
    }
}
