//! Owners: for whose processes a bounded table has grown.
//!
//! Owns: how much of a table each owner has taken, and whether it may take more. Because: nothing is ever removed from
//! the tables of a profile, and a program that makes names or functions without end must not leave the programs of
//! others without contexts. Does not: know users; the pipeline numbers them.
//!
//! The last eighth of a table is for owners that have less than a sixteenth of it. What belongs to no process, and what
//! is read from a file, is not limited.

/// Owners with a number of their own; all others count as one.
pub const OWNERS_MAX: usize = 256;

/// The part of a table that is kept for small owners: one in this many.
const KEPT: usize = 8;
/// The most of a table that a small owner has: one part in this many.
const SMALL: usize = 16;

/// Number of an owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner(u16);

impl Owner {
    /// The capture itself: what belongs to no process.
    pub const CAPTURE: Owner = Owner(0);

    /// The owner with this number; numbers from [`OWNERS_MAX`] on are one owner.
    pub fn from_number(number: usize) -> Self {
        Owner(number.min(OWNERS_MAX - 1) as u16)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Why a table has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// It is full.
    Full,
    /// Its owner has enough of what is almost full.
    ShareTaken,
}

/// What each owner has taken of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnerShares {
    /// The owner that the table grows for now.
    owner: Owner,
    taken: Vec<usize>,
    /// Refusals because the table was full.
    full: u64,
    /// Refusals because of a share.
    refused: u64,
}

impl OwnerShares {
    /// From now on the table grows for this owner.
    #[inline]
    pub(crate) fn grow_for(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// The owner that the table grows for now.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Refusals because the table was full.
    pub(crate) fn full(&self) -> u64 {
        self.full
    }

    /// Refusals because of a share.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds the refusals of another table.
    pub(crate) fn merge_refused(&mut self, other: &Self) {
        self.full = self.full.saturating_add(other.full);
        self.refused = self.refused.saturating_add(other.refused);
    }

    /// Takes `more` for the present owner of a table that has `used` places of `most`.
    ///
    /// # Errors
    /// There is no place, or none for this owner, which is counted.
    pub(crate) fn take(&mut self, used: usize, more: usize, most: usize) -> Result<(), NoPlace> {
        let after = used.saturating_add(more);
        if after > most {
            self.full = self.full.saturating_add(1);
            return Err(NoPlace::Full);
        }
        if self.taken.len() <= self.owner.index() {
            self.taken.resize(self.owner.index() + 1, 0);
        }
        let own = self.taken[self.owner.index()].saturating_add(more);
        if self.owner != Owner::CAPTURE && after > most - most / KEPT && own > most / SMALL {
            self.refused = self.refused.saturating_add(1);
            return Err(NoPlace::ShareTaken);
        }
        self.taken[self.owner.index()] = own;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: usize = 1600;

    /// Takes places one by one for an owner, until one is refused. Returns why, and how many it got.
    fn fill(shares: &mut OwnerShares, used: &mut usize, owner: usize) -> (NoPlace, usize) {
        shares.grow_for(Owner::from_number(owner));
        let before = *used;
        loop {
            match shares.take(*used, 1, MOST) {
                Ok(()) => *used += 1,
                Err(why) => return (why, *used - before),
            }
        }
    }

    #[test]
    fn what_belongs_to_no_process_may_fill_a_table() {
        let (mut shares, mut used) = (OwnerShares::default(), 0);
        assert_eq!(fill(&mut shares, &mut used, 0), (NoPlace::Full, MOST));
        assert_eq!(shares.refused(), 0);
    }

    #[test]
    fn an_owner_leaves_an_eighth_to_others() {
        let (mut shares, mut used) = (OwnerShares::default(), 0);
        assert_eq!(fill(&mut shares, &mut used, 1), (NoPlace::ShareTaken, MOST / 8 * 7));
        assert_eq!(fill(&mut shares, &mut used, 2), (NoPlace::ShareTaken, MOST / 16));
        assert_eq!(fill(&mut shares, &mut used, 1), (NoPlace::ShareTaken, 0));
        assert_eq!(fill(&mut shares, &mut used, 3), (NoPlace::Full, MOST / 16));
        assert_eq!(shares.refused(), 3);
    }

    proptest! {
        #[test]
        fn no_table_grows_beyond_its_bound(
            taken in prop::collection::vec((0usize..400, 0usize..40), 0..400), most in 0usize..2000,
        ) {
            let (mut shares, mut used) = (OwnerShares::default(), 0);
            for (owner, more) in taken {
                shares.grow_for(Owner::from_number(owner));
                if shares.take(used, more, most).is_ok() {
                    used += more;
                }
                prop_assert!(used <= most && shares.taken.iter().sum::<usize>() == used);
                prop_assert!(shares.taken.len() <= OWNERS_MAX);
            }
        }
    }
}
