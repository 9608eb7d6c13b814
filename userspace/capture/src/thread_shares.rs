//! Thread shares: entries above their user's share in a kernel table of threads.
//!
//! Owns: reading the keys of such a table, and which entries to remove. Because: kernel programs enter each thread that
//! waits or calls, first come, first served, and a user with enough threads would leave no room for others. Does not:
//! change a table.

use std::collections::{HashMap, HashSet};

use deepctx_symbolizer::shares::Shares;
use libbpf_rs::{MapCore as _, MapHandle};

use super::table_shares::MULTIPLE;

/// The keys of a table that changes meanwhile: the iteration begins again where its key has gone.
pub(crate) fn keys(table: &MapHandle) -> HashSet<Vec<u8>> {
    table.keys().take(table.max_entries() as usize).collect()
}

/// Whether a table has so few free entries that users may be above their shares: one alone may have four fifths.
pub(crate) fn may_be_unfair(entries: usize, room: usize) -> bool {
    entries > room / 4 * 3
}

/// The entries to remove from a table with this room, so that no user but root has more than
/// [`MULTIPLE`] times what is free. Entries come with their users; the first ones of a user are removed.
pub(crate) fn over_share<K: Copy>(entries: &[(K, u32)], room: usize) -> Vec<K> {
    let mut shares = Shares::new(room, MULTIPLE);
    for (_, user) in entries {
        shares.charge(*user, 1);
    }
    let mut excess: HashMap<u32, usize> = HashMap::new();
    // What one user gives back raises the shares of the others.
    while let Some(user) = shares.greediest(|user| !shares.may_have(user, 0)) {
        while !shares.may_have(user, 0) {
            shares.give(user, 1);
            *excess.entry(user).or_default() += 1;
        }
    }
    let mut removed = Vec::new();
    for (key, user) in entries {
        if let Some(left) = excess.get_mut(user).filter(|left| **left > 0) {
            *left -= 1;
            removed.push(*key);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries of these users, and how many of each remain in a table with room for a thousand.
    #[track_caller]
    fn check<const N: usize>(held: [(u32, usize); N], expect: [usize; N]) {
        let users = held.iter().flat_map(|(user, entries)| std::iter::repeat_n(*user, *entries));
        let entries: Vec<((usize, u32), u32)> =
            users.enumerate().map(|(number, user)| ((number, user), user)).collect();
        let removed = over_share(&entries, 1000);
        let remain =
            held.map(|(user, entries)| entries - removed.iter().filter(|(_, of)| *of == user).count());
        assert_eq!(remain, expect);
    }

    #[test]
    fn the_greediest_user_makes_room_for_others() {
        check([(1, 1000)], [800]);
        check([(1, 900), (2, 100)], [720, 100]);
        check([(1, 500), (2, 500)], [480, 400]);
    }

    #[test]
    fn users_within_their_shares_and_root_keep_all() {
        check([(1, 600), (2, 100)], [600, 100]);
        check([(0, 1000)], [1000]);
        check([(0, 990), (1, 10)], [990, 8]);
    }

    #[test]
    fn a_table_is_checked_before_a_share_is_exceeded() {
        assert_eq!([750, 751].map(|entries| may_be_unfair(entries, 1000)), [false, true]);
    }
}
