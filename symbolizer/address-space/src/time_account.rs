//! Time accounts: how long a user's processes may delay others.
//!
//! Owns: what each user's processes have cost, and how credit is regained. Because: the same threads do work for all
//! users, a process decides how long its work takes, and one user may have a thousand such processes. Does not:
//! measure, or read a clock.
//!
//! An account is kept in time: a user can spend the credit at once, and a fixed share of the time after that. Exited
//! processes still count; otherwise each could be replaced by its child.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

/// Most users with an account; beyond it, those without debt are dropped.
pub(crate) const USERS_MAX: usize = 4096;

/// Time limits for a user.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Time available at once.
    pub credit: Duration,
    /// Least credit with which work may begin.
    pub least: Duration,
    /// One part in this many of elapsed time is regained.
    pub regained: u32,
}

/// An account for each user.
#[derive(Debug)]
pub struct TimeAccounts {
    terms: Terms,
    accounts: FxHashMap<u32, Account>,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Time spent and not regained.
    spent: Duration,
    at: Instant,
    reported: bool,
}

impl TimeAccounts {
    /// Accounts without charges.
    pub fn new(terms: Terms) -> Self {
        Self { terms, accounts: FxHashMap::default() }
    }

    /// Whether work for a user may begin.
    pub fn allows(&self, user: u32, now: Instant) -> bool {
        let spent = self.accounts.get(&user).map_or(Duration::ZERO, |account| self.spent_at(account, now));
        spent + self.terms.least <= self.terms.credit
    }

    /// Charges a user for work that took this long.
    pub fn charge(&mut self, user: u32, took: Duration, now: Instant) {
        if self.accounts.len() >= USERS_MAX {
            let regained = self.terms.regained;
            self.accounts.retain(|_, account| !account.spent_at(now, regained).is_zero());
        }
        let regained = self.terms.regained;
        let fresh = Account { spent: Duration::ZERO, at: now, reported: false };
        let account = self.accounts.entry(user).or_insert(fresh);
        account.spent = account.spent_at(now, regained) + took;
        account.at = now;
    }

    /// True once per account: at the first refusal.
    pub fn is_first_refusal(&mut self, user: u32) -> bool {
        self.accounts.get_mut(&user).is_some_and(|account| !std::mem::replace(&mut account.reported, true))
    }

    /// Number of accounts.
    #[cfg(test)]
    pub(crate) fn users(&self) -> usize {
        self.accounts.len()
    }

    fn spent_at(&self, account: &Account, now: Instant) -> Duration {
        account.spent_at(now, self.terms.regained)
    }
}

impl Account {
    fn spent_at(&self, now: Instant, regained: u32) -> Duration {
        self.spent.saturating_sub(now.saturating_duration_since(self.at) / regained.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms =
        Terms { credit: Duration::from_millis(500), least: Duration::from_millis(100), regained: 10 };

    #[test]
    fn credit_is_spent_once_and_regained_slowly() {
        let (mut accounts, began) = (TimeAccounts::new(TERMS), Instant::now());
        let after = |ms| began + Duration::from_millis(ms);
        assert!(accounts.allows(7, began));
        accounts.charge(7, Duration::from_millis(300), began);
        assert!(accounts.allows(7, began), "200 ms are left");
        accounts.charge(7, Duration::from_millis(300), began);
        assert!(!accounts.allows(7, began) && accounts.allows(8, began), "others are not refused");
        assert!(!accounts.allows(7, after(1_990)) && accounts.allows(7, after(2_000)), "a tenth is regained");
    }

    #[test]
    fn a_refusal_is_first_only_once() {
        let (mut accounts, now) = (TimeAccounts::new(TERMS), Instant::now());
        assert!(!accounts.is_first_refusal(7), "nothing was charged");
        accounts.charge(7, TERMS.credit, now);
        assert!(accounts.is_first_refusal(7) && !accounts.is_first_refusal(7));
    }

    #[test]
    fn users_remembered_are_bounded() {
        let (mut accounts, now) = (TimeAccounts::new(TERMS), Instant::now());
        for user in 0..3 * USERS_MAX as u32 {
            accounts.charge(user, TERMS.credit, now + Duration::from_secs(u64::from(user)));
        }
        assert!(accounts.users() <= USERS_MAX);
    }
}
