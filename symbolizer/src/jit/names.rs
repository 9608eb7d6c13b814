//! Names of generated code, shared by all processes.
//!
//! Owns: the table of names, each user's share of it, and releasing names that no code uses anymore. Because: many
//! processes run the same runtime and have the same names, and processes come and go for weeks. Does not: know which
//! code has a name (`table`), or read names.

use std::sync::Arc;

use deepctx_address_space::shares::Shares;
use rustc_hash::FxHashMap;

use super::JitSymbol;

/// Most names of all processes.
const NAMES_MAX: usize = 1 << 20;
/// Most bytes of names of all processes.
const NAME_BYTES_TOTAL_MAX: usize = 96 << 20;
/// Fewer released names do not justify a search for unused ones.
const RELEASED_LEAST: usize = 4096;

/// A name of generated code, with its source.
#[derive(Debug)]
pub(super) struct NameEntry {
    pub(super) name: Arc<str>,
    pub(super) source: NameSource,
    /// The user charged for it.
    pub(super) user: u32,
}

/// The source of a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameSource {
    /// A perf map or jitdump.
    File,
    /// A registration for debuggers: [`super::Function::code_hash`], the index among those of the process, and whether
    /// its code was found at its address.
    Registered { code_hash: u64, order: usize, is_confirmed: bool },
    /// A compilation cache: [`super::LocatedFunction::key`].
    Cached { key: u64 },
}

/// All names, by number.
#[derive(Debug)]
pub(super) struct Names {
    entries: Vec<Option<NameEntry>>,
    /// Numbers of released names.
    free: Vec<JitSymbol>,
    /// Names from files, which many processes share.
    by_name: FxHashMap<Arc<str>, JitSymbol>,
    shares: Shares,
    byte_shares: Shares,
    /// Code ranges that lost their name since unused names were last released.
    released: usize,
}

impl Default for Names {
    fn default() -> Self {
        Self::bounded(NAMES_MAX, NAME_BYTES_TOTAL_MAX)
    }
}

impl Names {
    /// At most this many names and bytes.
    pub(super) fn bounded(names: usize, bytes: usize) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_name: FxHashMap::default(),
            shares: Shares::new(names, 1),
            byte_shares: Shares::new(bytes, 1),
            released: 0,
        }
    }

    pub(super) fn get(&self, symbol: JitSymbol) -> Option<&NameEntry> {
        self.entries.get(symbol.0 as usize)?.as_ref()
    }

    /// The number of a name from a file; `None` if the user has no room for one more.
    pub(super) fn of_file(&mut self, user: u32, name: &str) -> Option<JitSymbol> {
        if let Some(known) = self.by_name.get(name) {
            return Some(*known);
        }
        let name: Arc<str> = name.into();
        let symbol = self.add(user, Arc::clone(&name), NameSource::File)?;
        self.by_name.insert(name, symbol);
        Some(symbol)
    }

    /// A separate number for a name; `None` if the user has no room for one more.
    pub(super) fn add(&mut self, user: u32, name: Arc<str>, source: NameSource) -> Option<JitSymbol> {
        let next = u32::try_from(self.entries.len()).ok()?;
        if !self.shares.take(user, 1) {
            return None;
        }
        if !self.byte_shares.take(user, name.len()) {
            self.shares.give(user, 1);
            return None;
        }
        let entry = Some(NameEntry { name, source, user });
        Some(match self.free.pop() {
            Some(symbol) => {
                self.entries[symbol.0 as usize] = entry;
                symbol
            }
            None => {
                self.entries.push(entry);
                JitSymbol(next)
            }
        })
    }

    /// Counts code ranges that lost their name.
    pub(super) fn release(&mut self, ranges: usize) {
        self.released += ranges;
    }

    /// Whether enough code lost its name to justify a search for unused names: its cost grows with the number of names,
    /// and of code ranges.
    pub(super) fn has_unused(&self, ranges: usize) -> bool {
        let searched = self.entries.len() - self.free.len() + ranges;
        self.released >= RELEASED_LEAST.max(searched / 4)
    }

    /// Releases all names but these.
    pub(super) fn keep(&mut self, used: impl Iterator<Item = JitSymbol>) {
        self.released = 0;
        let mut is_used = vec![false; self.entries.len()];
        for symbol in used {
            if let Some(is_used) = is_used.get_mut(symbol.0 as usize) {
                *is_used = true;
            }
        }
        for (number, (entry, is_used)) in (0_u32..).zip(self.entries.iter_mut().zip(is_used)) {
            if is_used {
                continue;
            }
            let Some(NameEntry { name, source, user }) = entry.take() else { continue };
            if matches!(source, NameSource::File) {
                self.by_name.remove(&name);
            }
            self.shares.give(user, 1);
            self.byte_shares.give(user, name.len());
            self.free.push(JitSymbol(number));
        }
        if self.by_name.len() < self.by_name.capacity() / 4 {
            self.by_name.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_code_are_given_back() {
        let mut names = Names::bounded(16, 1 << 10);
        let all: Vec<_> = (0..8).map(|n| names.of_file(1000, &format!("function{n}")).unwrap()).collect();
        assert_eq!(names.of_file(1000, "one more"), None);
        names.keep(all[..2].iter().copied());
        assert_eq!(names.of_file(1001, "function1"), Some(all[1]), "it is still there");
        assert!(names.get(all[7]).is_none());
        let again: Vec<_> = (0..6).map(|n| names.of_file(1000, &format!("other{n}"))).collect();
        assert!(again.iter().all(Option::is_some), "{again:?}");
        assert_eq!(names.of_file(1000, "one more"), None);
        assert_eq!(names.entries.len(), 8, "numbers are used again");
    }

    #[test]
    fn a_search_is_worth_it_when_much_was_released() {
        let mut names = Names::default();
        names.release(RELEASED_LEAST);
        assert!(names.has_unused(0) && !names.has_unused(8 * RELEASED_LEAST));
        names.keep(std::iter::empty());
        assert!(!names.has_unused(0));
    }
}
