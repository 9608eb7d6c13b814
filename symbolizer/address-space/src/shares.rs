//! Shares: how much of a table one user may fill.
//!
//! Owns: [`Shares`]. Because: processes map what they like and write files of any length, and a
//! first-come-first-served table would have no room left for the process that matters. Does not: hold the table, or
//! choose what to evict.

use rustc_hash::FxHashMap;

/// Exempt from shares: root may take all free slots, and is never evicted. Others are evicted for it as for anybody.
pub const ROOT: u32 = 0;

/// Shares of a bounded table, by user.
///
/// A user may hold a multiple of what stays free for all others: with a multiple of 1, one user alone may hold half of
/// the table, the next one a quarter. So a late user finds room, however greedy earlier ones were.
#[derive(Debug)]
pub struct Shares {
    room: usize,
    multiple: usize,
    used: usize,
    by_user: FxHashMap<u32, usize>,
}

impl Shares {
    /// Shares of an empty table.
    pub fn new(room: usize, multiple: usize) -> Self {
        Self { room, multiple, used: 0, by_user: FxHashMap::default() }
    }

    /// What a user holds.
    pub fn held(&self, user: u32) -> usize {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    /// Whether [`Self::take`] would succeed.
    pub fn allows(&self, user: u32, amount: usize) -> bool {
        let own = self.held(user).saturating_add(amount);
        let free = self.room.saturating_sub(self.used.saturating_add(amount));
        own <= free.saturating_mul(self.multiple)
    }

    /// The same for a user who may be root, which is exempt from shares.
    pub fn may_have(&self, user: u32, amount: usize) -> bool {
        user == ROOT || self.allows(user, amount)
    }

    /// Takes room for a user, whatever the share.
    pub fn charge(&mut self, user: u32, amount: usize) {
        self.used += amount;
        if amount > 0 {
            *self.by_user.entry(user).or_default() += amount;
        }
    }

    /// The user with most room, among those selected.
    pub fn greediest(&self, may_be: impl Fn(u32) -> bool) -> Option<u32> {
        let users = self.by_user.iter().filter(|(user, _)| may_be(**user));
        users.max_by_key(|(user, held)| (**held, **user)).map(|(user, _)| *user)
    }

    /// Takes room for a user; false, and nothing is taken, if it exceeds the user's share.
    pub fn take(&mut self, user: u32, amount: usize) -> bool {
        let fits = self.allows(user, amount);
        if fits {
            self.charge(user, amount);
        }
        fits
    }

    /// Gives room of a user back.
    pub fn give(&mut self, user: u32, amount: usize) {
        self.used = self.used.saturating_sub(amount);
        if let Some(own) = self.by_user.get_mut(&user) {
            *own = own.saturating_sub(amount);
            if *own == 0 {
                self.by_user.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes one by one until refused.
    fn greedy(shares: &mut Shares, user: u32) -> usize {
        (0..).take_while(|_| shares.take(user, 1)).count()
    }

    #[test]
    fn each_greedy_user_leaves_half_of_the_rest() {
        let mut shares = Shares::new(1000, 1);
        let taken: Vec<usize> = (0..4).map(|user| greedy(&mut shares, user)).collect();
        assert_eq!(taken, [500, 250, 125, 62]);
        assert_eq!((shares.greediest(|_| true), shares.greediest(|user| user > 1)), (Some(0), Some(2)));
        assert_eq!(greedy(&mut shares, 0), 0);
        shares.give(0, 500);
        assert!(shares.take(4, 200), "room that was given back is for everybody");
    }

    #[test]
    fn a_multiple_gives_one_user_more() {
        let mut shares = Shares::new(1000, 4);
        let taken: Vec<usize> = (0..3).map(|user| greedy(&mut shares, user)).collect();
        assert_eq!(taken, [800, 160, 32]);
        shares.charge(3, 8);
        assert_eq!(shares.held(3), 8, "who is above shares has the rest");
    }

    proptest! {
        #[test]
        fn room_is_never_exceeded_and_is_given_back(steps in prop::collection::vec((0u32..4, 0usize..50), 0..200)) {
            let mut shares = Shares::new(300, 1);
            let mut taken = Vec::new();
            for (user, amount) in steps {
                if shares.take(user, amount) {
                    taken.push((user, amount));
                }
                prop_assert!(shares.used <= 300);
                prop_assert_eq!(shares.used, taken.iter().map(|(_, amount)| amount).sum::<usize>());
            }
            for (user, amount) in taken {
                shares.give(user, amount);
            }
            prop_assert_eq!(shares.used, 0);
            prop_assert!(shares.by_user.is_empty());
        }
    }
}
