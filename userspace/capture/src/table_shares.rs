//! Table shares: each user's share of the kernel's tables, and whose entries are evicted when one is full.
//!
//! Owns: the slot count by user. Because: a process may map as many files as it likes, and a table filled first come,
//! first served has no room for the process that matters. Does not: hold the tables (`tables`), or know processes.

use std::collections::VecDeque;

use deepctx_symbolizer::shares::{ROOT, Shares};

use super::arena::QUARANTINE_NS;
use super::room::Room;
use super::table_error::TableError;

/// How much of what stays free one user may hold: alone four fifths of a table, the next one four fifths of the rest.
pub(crate) const MULTIPLE: usize = 4;

/// Slots of each table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots([usize; Room::ALL.len()]);

impl Slots {
    /// These, and none of the others.
    pub(crate) fn new<const N: usize>(slots: [(Room, usize); N]) -> Self {
        let mut all = Self::default();
        for (room, count) in slots {
            all.0[room as usize] = count;
        }
        all
    }

    /// Of one table.
    pub(crate) fn of(&self, room: Room) -> usize {
        self.0[room as usize]
    }
}

/// The slots of a process, without its mappings.
pub(crate) const PLACE: Slots = {
    let mut slots = [0; Room::ALL.len()];
    slots[Room::Processes as usize] = 1;
    Slots(slots)
};

/// A request for slots that could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) user: u32,
    pub(crate) room: Room,
    pub(crate) wanted: usize,
}

/// Slots by user.
pub(crate) struct TableShares {
    tables: [Shares; Room::ALL.len()],
    /// Slots not reused until the kernel is done with them: since when, whose; oldest first.
    resting: VecDeque<(u64, u32, Slots)>,
    /// The last shortage that nobody has taken.
    shortage: Option<Shortage>,
}

impl Default for TableShares {
    fn default() -> Self {
        Self {
            tables: Room::ALL.map(|room| Shares::new(room.size(), MULTIPLE)),
            resting: VecDeque::new(),
            shortage: None,
        }
    }
}

impl TableShares {
    /// Takes slots for a user.
    ///
    /// # Errors
    /// The user's share of one of the tables is used up: nothing is taken.
    pub(crate) fn take(&mut self, user: u32, slots: &Slots) -> Result<(), TableError> {
        let refused = |room: &Room| {
            let wanted = slots.of(*room);
            wanted > 0 && !self.tables[*room as usize].may_have(user, wanted)
        };
        if let Some(room) = Room::ALL.into_iter().find(refused) {
            self.shortage = Some(Shortage { user, room, wanted: slots.of(room) });
            let (held, size) = (self.tables[room as usize].held(user), room.size());
            return Err(TableError::OverShare { room, user, percent: held * 100 / size });
        }
        self.charge(user, slots);
        Ok(())
    }

    /// Takes slots for a user, whatever the share.
    pub(crate) fn charge(&mut self, user: u32, slots: &Slots) {
        for room in Room::ALL {
            self.tables[room as usize].charge(user, slots.of(room));
        }
    }

    /// Gives back slots that the kernel may be using: they count until they can be reused.
    pub(crate) fn give_later(&mut self, user: u32, slots: Slots, now_ns: u64) {
        self.resting.push_back((now_ns, user, slots));
    }

    /// Frees slots that have rested long enough.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        while let Some((since_ns, user, slots)) = self.resting.front() {
            if since_ns.saturating_add(QUARANTINE_NS) > now_ns {
                break;
            }
            let (user, slots) = (*user, *slots);
            self.resting.pop_front();
            self.give(user, &slots);
        }
    }

    /// Gives slots back that the kernel never used.
    pub(crate) fn give(&mut self, user: u32, slots: &Slots) {
        for room in Room::ALL.into_iter().filter(|room| slots.of(*room) > 0) {
            self.tables[room as usize].give(user, slots.of(room));
        }
    }

    /// Gives back slots for which there was no room after all, and records the shortage.
    pub(crate) fn take_back(&mut self, user: u32, slots: &Slots, error: &TableError) {
        self.give(user, slots);
        if let TableError::Full { room, .. } = error {
            self.shortage = Some(Shortage { user, room: *room, wanted: slots.of(*room) });
        }
    }

    /// The last shortage, once.
    pub(crate) fn take_shortage(&mut self) -> Option<Shortage> {
        self.shortage.take()
    }

    /// The user to evict from, and how many slots: the user with most slots, who must still have more than the
    /// requester.
    pub(crate) fn gives_way(&self, shortage: &Shortage) -> Option<(u32, usize)> {
        let Shortage { user, room, wanted } = *shortage;
        let table = &self.tables[room as usize];
        let greediest = table.greediest(|other| other != user && other != ROOT)?;
        let wants = table.held(user) + wanted;
        // A little more than requested, so that the next request succeeds.
        let amount = wanted.max(room.size() / 16);
        let surplus = table.held(greediest).saturating_sub(wants);
        (surplus > 0).then_some((greediest, amount.min(surplus)))
    }

    /// How many slots idle processes of `user` free for a shortage when nobody else gives way: for their own user as
    /// many as for anybody, and root's while root has more than who asks.
    pub(crate) fn idle_give(&self, user: u32, shortage: &Shortage) -> usize {
        let table = &self.tables[shortage.room as usize];
        let amount = shortage.wanted.max(shortage.room.size() / 16);
        let wants = table.held(shortage.user) + shortage.wanted;
        match user {
            _ if user == shortage.user => amount,
            ROOT => amount.min(table.held(ROOT).saturating_sub(wants)),
            _ => 0,
        }
    }
}

/// Slots that evicting a process would free.
pub(crate) struct TableUse {
    pub(crate) pid: u32,
    /// When it was last sampled; 0: never, or long ago.
    pub(crate) sampled_ns: u64,
    /// Its own.
    pub(crate) slots: Slots,
    /// Slots shared with others: a number, the slots freed with the last user, and how many users there are.
    pub(crate) shared: Vec<(u32, Slots, u32)>,
}

/// Which processes to evict for this many slots of a table; those that were sampled longest ago go first, of these the
/// ones with most mappings, and those that would free nothing stay.
pub(crate) fn chosen(mut holdings: Vec<TableUse>, room: Room, amount: usize) -> Vec<u32> {
    holdings.sort_by_key(|holding| {
        (holding.sampled_ns, std::cmp::Reverse(holding.slots.of(Room::Mappings)), holding.pid)
    });
    let mut left = std::collections::HashMap::new();
    let (mut freed, mut through, mut order) = (0, 0, Vec::new());
    for holding in holdings {
        if freed >= amount {
            break;
        }
        let before = freed;
        freed += holding.slots.of(room);
        for (shared, slots, users) in holding.shared {
            let users = left.entry(shared).or_insert(users);
            *users = users.saturating_sub(1);
            if *users == 0 {
                freed += slots.of(room);
            }
        }
        order.push(holding.pid);
        if freed > before {
            through = order.len();
        }
    }
    order.truncate(through);
    order
}

#[cfg(test)]
mod tests {
    use deepctx_common::unwind::MAPPINGS_MAX;

    use super::*;

    fn mappings(count: usize) -> Slots {
        Slots::new([(Room::Mappings, count)])
    }

    #[test]
    fn whoever_comes_late_finds_room() {
        let mut shares = TableShares::default();
        while shares.take(1000, &mappings(100)).is_ok() {}
        let shortage = shares.take_shortage().unwrap();
        assert_eq!(shortage, Shortage { user: 1000, room: Room::Mappings, wanted: 100 });
        assert_eq!(shares.gives_way(&shortage), None, "nobody has more");
        assert_eq!(shares.take_shortage(), None);
        shares.take(1001, &mappings(5000)).unwrap();
        shares.take(ROOT, &mappings(5000)).unwrap();
    }

    #[test]
    fn who_has_most_gives_way_but_root_never_does() {
        let mut shares = TableShares::default();
        shares.take(ROOT, &mappings(20_000)).unwrap();
        while shares.take(1000, &mappings(100)).is_ok() {}
        while shares.take(1001, &mappings(100)).is_ok() {}
        let check = |user, wanted, expect| {
            let shortage = Shortage { user, room: Room::Mappings, wanted };
            assert_eq!(shares.gives_way(&shortage), expect, "{user} wants {wanted}");
        };
        let amount = MAPPINGS_MAX as usize / 16;
        check(1002, 300, Some((1000, amount)));
        check(1001, 300, Some((1000, amount)));
        check(ROOT, 300, Some((1000, amount)));
        check(ROOT, 30_000, None);
        check(1000, 300, None);
        check(1002, 8000, Some((1000, 8000)));
        check(1002, 60_000, None);
    }

    #[test]
    fn what_rests_counts_until_it_is_free() {
        let mut shares = TableShares::default();
        shares.take(1000, &mappings(50_000)).unwrap();
        shares.give_later(1000, mappings(50_000), 5);
        shares.settle(QUARANTINE_NS);
        assert!(
            shares.take(1000, &mappings(50_000)).is_err(),
            "scanning again and again is no way to have more"
        );
        shares.settle(5 + QUARANTINE_NS);
        shares.take(1000, &mappings(50_000)).unwrap();
    }

    #[test]
    fn no_more_processes_go_than_are_needed() {
        let of = |pid, own, shared: &[(u32, usize, u32)]| TableUse {
            pid,
            sampled_ns: 0,
            slots: Slots::new([(Room::Mappings, own), (Room::Processes, 1)]),
            shared: shared
                .iter()
                .map(|(id, rows, users)| (*id, Slots::new([(Room::Rows, *rows)]), *users))
                .collect(),
        };
        let check = |room, amount, expect: &[u32]| {
            let holdings = vec![
                of(1, 10, &[(1, 500, 2)]),
                of(2, 30, &[(1, 500, 2), (2, 7, 9)]),
                of(3, 20, &[(3, 5, 1)]),
                of(4, 1, &[]),
            ];
            assert_eq!(chosen(holdings, room, amount), expect, "{amount} {room}");
        };
        check(Room::Mappings, 1, &[2]);
        check(Room::Mappings, 31, &[2, 3]);
        check(Room::Processes, 3, &[2, 3, 1]);
        check(Room::Rows, 5, &[2, 3]);
        check(Room::Rows, 6, &[2, 3, 1]);
        check(Room::Rows, 10_000, &[2, 3, 1]);
        check(Room::Rules, 1, &[]);
    }

    #[test]
    fn who_was_sampled_longest_ago_goes_first() {
        let of = |pid, mappings, sampled_ns| TableUse {
            pid,
            sampled_ns,
            slots: Slots::new([(Room::Mappings, mappings)]),
            shared: vec![],
        };
        let holdings = vec![of(1, 90, 30), of(2, 10, 20), of(3, 5, 0), of(4, 9, 0)];
        assert_eq!(chosen(holdings, Room::Mappings, 25), [4, 3, 2, 1]);
    }

    #[test]
    fn idle_processes_give_way_to_their_own_user() {
        let mut shares = TableShares::default();
        shares.take(ROOT, &mappings(20_000)).unwrap();
        shares.take(1000, &mappings(5000)).unwrap();
        let check = |user, asker, wanted, expect| {
            let shortage = Shortage { user: asker, room: Room::Mappings, wanted };
            assert_eq!(shares.idle_give(user, &shortage), expect, "{user} for {asker}");
        };
        let amount = MAPPINGS_MAX as usize / 16;
        check(1000, 1000, 300, amount);
        check(ROOT, ROOT, 300, amount);
        check(ROOT, ROOT, 8000, 8000);
        check(ROOT, 1000, 300, amount);
        check(ROOT, 1000, 14_990, 10);
        check(ROOT, 1000, 15_000, 0);
        check(1000, 1001, 300, 0);
    }
}
