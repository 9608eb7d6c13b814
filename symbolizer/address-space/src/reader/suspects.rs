//! Suspects: whose memory costs too much time.
//!
//! Owns: the processes that did not answer, and an account of waiting time for each user. Because: one process that
//! does not answer costs a deadline, and a user may have a thousand of them, or one that answers slowly each time.
//! Does not: read memory or look processes up.
//!
//! What reads waited beyond what a disk takes is charged to the user's account ([`TimeAccounts`]). So a user can hold a
//! capture up for 0.75 s at once and for a fiftieth of the time after that.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::DEADLINE;
use crate::read_error::ReadError;
use crate::time_account::{Terms, TimeAccounts};

/// What a user's reads may wait in all: three deadlines at once.
const WAITING: Terms =
    Terms { credit: Duration::from_millis(750), least: Duration::from_millis(125), regained: 50 };
/// Waiting that is not charged: reading pages from a disk.
const FREE: Duration = Duration::from_millis(5);
/// Most processes remembered.
const KNOWN_MAX: usize = 4096;
/// Most notices kept until someone takes them.
const NOTICES_MAX: usize = 64;

/// Who a process is: its number may be given to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// Its number.
    pub(super) pid: u32,
    /// When it started, in ticks since the machine did.
    pub(super) started: u64,
    /// Its real user.
    pub(super) user: u32,
}

/// What is known against processes and users.
#[derive(Debug)]
pub(super) struct Suspects {
    /// When processes that did not answer were started, by number.
    silent: FxHashMap<u32, u64>,
    accounts: TimeAccounts,
    notices: Vec<String>,
}

impl Default for Suspects {
    fn default() -> Self {
        Self { silent: FxHashMap::default(), accounts: TimeAccounts::new(WAITING), notices: Vec::new() }
    }
}

impl Suspects {
    /// Whether memory of a process may be read.
    pub(super) fn allows(&mut self, who: Identity, now: Instant) -> Result<(), ReadError> {
        if self.silent.get(&who.pid) == Some(&who.started) {
            return Err(ReadError::NoAnswer);
        }
        if self.accounts.allows(who.user, now) {
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

    /// A read of a process was not answered. Whether that is new: several threads may have waited for it.
    pub(super) fn did_not_answer(&mut self, who: Identity, waited: Duration, now: Instant) -> bool {
        if self.silent.len() >= KNOWN_MAX {
            self.silent.clear();
        }
        let is_new = self.silent.insert(who.pid, who.started) != Some(who.started);
        if is_new {
            self.notice(format!(
                "process {}: its memory did not answer within {} ms; its names from memory are missing",
                who.pid,
                DEADLINE.as_millis()
            ));
        }
        self.charge(who, waited, now);
        is_new
    }

    /// A read of a process took this long.
    pub(super) fn charge(&mut self, who: Identity, waited: Duration, now: Instant) {
        self.accounts.charge(who.user, waited, now);
    }

    /// What the user should know since the last time.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
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
    fn a_silent_process_is_not_asked_again() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        let who = process(10, 1000);
        assert_eq!(suspects.allows(who, now), Ok(()));
        assert!(suspects.did_not_answer(who, DEADLINE, now));
        assert!(!suspects.did_not_answer(who, DEADLINE, now));
        assert_eq!(suspects.allows(who, now + Duration::from_secs(9999)), Err(ReadError::NoAnswer));
        // Its number is given to another process.
        assert_eq!(suspects.allows(Identity { started: 8, ..who }, now), Ok(()));
        let notices = suspects.take_notices();
        assert!(notices[0].contains("process 10") && notices[0].contains("250 ms"), "{notices:?}");
    }

    #[test]
    fn a_user_holds_up_a_capture_for_a_bounded_time() {
        let (mut suspects, began) = (Suspects::default(), Instant::now());
        let mut waited = Duration::ZERO;
        for pid in 0..1000 {
            if suspects.allows(process(pid, 1000), began + waited).is_ok() {
                waited += DEADLINE;
                suspects.did_not_answer(process(pid, 1000), DEADLINE, began + waited);
            }
        }
        assert_eq!(waited, 3 * DEADLINE);
        assert_eq!(suspects.allows(process(5000, 1000), began + waited), Err(ReadError::Refused));
        assert_eq!(suspects.allows(process(5000, 1001), began + waited), Ok(()), "others are not refused");
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
            if suspects.allows(process(pid, 1000), now).is_ok() {
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
            suspects.allows(process(1, 5), now).is_err()
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
