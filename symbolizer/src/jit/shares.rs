//! Shares: how much of a table one user may fill.
//!
//! Owns: [`Shares`]. Because: names of generated code come from files of anybody's length, and a table that is filled
//! by whoever comes first has no room for the process that matters. Does not: hold the table, or choose what goes.

use rustc_hash::FxHashMap;

/// Room of a table, by user.
///
/// A user may hold as much as stays free for all others: one alone half of the table, the next one a quarter. So
/// whoever comes late finds room, however greedy those before were.
#[derive(Debug)]
pub(super) struct Shares {
    room: usize,
    used: usize,
    by_user: FxHashMap<u32, usize>,
}

impl Shares {
    /// Of an empty table.
    pub(super) fn new(room: usize) -> Self {
        Self { room, used: 0, by_user: FxHashMap::default() }
    }

    /// Takes room for a user; false, and nothing is taken, when it is more than the user's share.
    pub(super) fn take(&mut self, user: u32, amount: usize) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or(0).saturating_add(amount);
        let free = self.room.saturating_sub(self.used.saturating_add(amount));
        let fits = own <= free;
        if fits {
            self.used += amount;
            self.by_user.insert(user, own);
        }
        fits
    }

    /// Gives room of a user back.
    pub(super) fn give(&mut self, user: u32, amount: usize) {
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
        let mut shares = Shares::new(1000);
        let taken: Vec<usize> = (0..4).map(|user| greedy(&mut shares, user)).collect();
        assert_eq!(taken, [500, 250, 125, 62]);
        assert_eq!(greedy(&mut shares, 0), 0);
        shares.give(0, 500);
        assert!(shares.take(4, 200), "room that was given back is for everybody");
    }

    proptest! {
        #[test]
        fn room_is_never_exceeded_and_is_given_back(steps in prop::collection::vec((0u32..4, 0usize..50), 0..200)) {
            let mut shares = Shares::new(300);
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
