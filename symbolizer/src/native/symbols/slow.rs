//! Slow files: what their authors have cost others recently.
//!
//! Owns: whose files are not read for now, because reading others of theirs took too long. Because: the names of all
//! users wait meanwhile, and a file may be made to take long; a machine that was busy for a while must not cost anybody
//! their names for the rest of a capture of weeks. Does not: measure time, or know files.

use std::time::{Duration, Instant};

use deepctx_address_space::NoSymbol;
use deepctx_address_space::time_account::{Terms, TimeAccounts};
use deepctx_address_space::worker::Author;

/// Times that files of one author may take too long; after that none of them is read until all of that is forgotten.
const SLOW_MAX: u32 = 3;
/// When an author's slow files are forgotten, after the last of them.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Most authors with counted slow files; the one that was slow longest ago is forgotten first.
const AUTHORS_MAX: usize = 256;
/// Time that slow files of all authors together may take: one user may have thousands of user ids.
const OF_ALL: Terms = Terms { credit: Duration::from_secs(60), least: Duration::from_secs(10), regained: 20 };
/// Key of the account of all authors.
const ALL: u32 = 0;

/// The authors of slow files.
#[derive(Debug)]
pub(super) struct SlowAuthors {
    authors: Vec<SlowAuthor>,
    of_all: TimeAccounts,
}

#[derive(Debug)]
struct SlowAuthor {
    author: Author,
    times: u32,
    last: Instant,
}

impl Default for SlowAuthors {
    fn default() -> Self {
        Self { authors: Vec::new(), of_all: TimeAccounts::new(OF_ALL) }
    }
}

impl SlowAuthors {
    /// Why no file of this author is read now.
    ///
    /// # Errors
    /// Too many of theirs were slow, or those of all took too long together.
    pub(super) fn check(&self, author: Author, now: Instant) -> Result<(), NoSymbol> {
        let slow = self.authors.iter().find(|slow| slow.author == author);
        if slow.is_some_and(|slow| slow.times >= SLOW_MAX && !slow.is_forgotten(now)) {
            return Err(NoSymbol::SymbolsTookTooLong);
        }
        if self.of_all.allows(ALL, now) { Ok(()) } else { Err(NoSymbol::SymbolShareSpent) }
    }

    /// A file of this author took too long, and so long.
    pub(super) fn add(&mut self, author: Author, took: Duration, now: Instant) {
        self.of_all.charge(ALL, took, now);
        self.authors.retain(|slow| !slow.is_forgotten(now));
        if let Some(slow) = self.authors.iter_mut().find(|slow| slow.author == author) {
            (slow.times, slow.last) = (slow.times.saturating_add(1), now);
            return;
        }
        if self.authors.len() >= AUTHORS_MAX
            && let Some(oldest) = (0..self.authors.len()).min_by_key(|&at| self.authors[at].last)
        {
            self.authors.swap_remove(oldest);
        }
        self.authors.push(SlowAuthor { author, times: 1, last: now });
    }
}

impl SlowAuthor {
    fn is_forgotten(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= FORGOTTEN_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_author_of_slow_files_is_refused_for_ten_minutes() {
        let (mut slow, now) = (SlowAuthors::default(), Instant::now());
        let (hers, his) = (Author::user(7), Author::user(8));
        for _ in 0..SLOW_MAX {
            assert_eq!(slow.check(hers, now), Ok(()));
            slow.add(hers, SECOND, now);
        }
        assert_eq!(slow.check(hers, now), Err(NoSymbol::SymbolsTookTooLong));
        assert_eq!(slow.check(his, now), Ok(()));
        assert_eq!(slow.check(hers, now + FORGOTTEN_AFTER), Ok(()));
        // From the beginning.
        slow.add(hers, SECOND, now + FORGOTTEN_AFTER);
        assert_eq!(slow.check(hers, now + FORGOTTEN_AFTER), Ok(()));
    }

    #[test]
    fn thousands_of_users_cannot_hold_up_everybody() {
        let (mut slow, mut now) = (SlowAuthors::default(), Instant::now());
        let mut held_up = Duration::ZERO;
        // An hour, in which each of many users tries to be slow.
        for user in 0..3600 {
            now += SECOND;
            if slow.check(Author::user(user), now).is_ok() {
                slow.add(Author::user(user), 8 * SECOND, now);
                held_up += 8 * SECOND;
            }
            assert!(slow.authors.len() <= AUTHORS_MAX);
        }
        assert!(held_up < 300 * SECOND, "{held_up:?}");
        assert_eq!(slow.check(Author::user(5000), now + 600 * SECOND), Ok(()), "others have names again");
    }
}
