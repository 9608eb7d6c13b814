//! Order: rows of tables are sorted by their positions.
//!
//! Owns: stable sorts whose code is small. Because: the standard library's sort is monomorphized for each type and
//! comparison, at 5 KB of code each, and tables have some hundred rows. Does not: sort events: there are many, and
//! the standard library's sort is faster for them.

use std::cmp::Ordering;

/// Sorts like the slice methods of these names without `rows`.
pub trait SortRows<T> {
    /// Equal rows stay in their order.
    fn sort_rows_by(&mut self, compare: impl FnMut(&T, &T) -> Ordering);

    /// Equal rows stay in their order.
    fn sort_rows_by_key<K: Ord>(&mut self, key: impl FnMut(&T) -> K);
}

impl<T> SortRows<T> for [T] {
    fn sort_rows_by(&mut self, mut compare: impl FnMut(&T, &T) -> Ordering) {
        let order = sorted(self.len(), &mut |a, b| compare(&self[a], &self[b]));
        rearrange(order, &mut |a, b| self.swap(a, b));
    }

    fn sort_rows_by_key<K: Ord>(&mut self, mut key: impl FnMut(&T) -> K) {
        self.sort_rows_by(|a, b| key(a).cmp(&key(b)));
    }
}

/// Positions of rows in sorted order.
#[inline(never)]
fn sorted(rows: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

/// Brings rows into an order by swaps.
#[inline(never)]
fn rearrange(mut order: Vec<usize>, swap: &mut dyn FnMut(usize, usize)) {
    for first in 0..order.len() {
        let mut place = first;
        // Along each cycle of the permutation.
        loop {
            let from = std::mem::replace(&mut order[place], place);
            if from == first || from == place {
                break;
            }
            swap(place, from);
            place = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    proptest! {
        #[test]
        fn rows_are_sorted_as_the_standard_library_does(keys in proptest::collection::vec(0_u8..8, 0..200)) {
            // Original positions distinguish equal keys.
            let rows: Vec<(u8, String)> = (0..).zip(keys).map(|(at, key): (u32, _)| (key, at.to_string())).collect();
            let (mut expect, mut have) = (rows.clone(), rows.clone());
            let falling = |a: &(u8, String), b: &(u8, String)| b.0.cmp(&a.0);
            expect.sort_by(falling);
            have.sort_rows_by(falling);
            prop_assert_eq!(&have, &expect);
            have.sort_rows_by_key(|row| row.0);
            expect.sort_by_key(|row| row.0);
            prop_assert_eq!(&have, &expect);
            have.sort_rows_by_key(|row| Reverse((row.0, row.1.clone())));
            expect.sort_by_key(|row| Reverse((row.0, row.1.clone())));
            prop_assert_eq!(have, expect);
        }
    }
}
