//! Names of kernels.
//!
//! Owns: the number of each name, and which were reported already. Because: a name of some kilobytes cannot go with
//! every launch. Does not: keep the names: the number is a hash of the text, so the same name has the same number
//! always.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use deepctx_common::call::TEXT_MAX;

use crate::{memory, probe};

/// Maximum number of names remembered as reported. A program has a few hundred; one that keeps making new names gets
/// them reported again.
const REPORTED_MAX: usize = 1 << 15;

static REPORTED: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// Name ids within one buffer, by address. An address holds the same name until CUPTI delivers the next buffer.
pub(crate) struct Lookup {
    known: Vec<(u64, u64)>,
}

/// Maximum number of cached addresses; beyond it, names are read each time.
const KNOWN_MAX: usize = 64;

impl Lookup {
    pub(crate) const fn new() -> Self {
        Self { known: Vec::new() }
    }

    /// The id of the name at this address; 0 when there is none. Reports a new name first.
    pub(crate) fn id(&mut self, address: u64) -> u64 {
        if let Some((_, id)) = self.known.iter().find(|(at, _)| *at == address) {
            return *id;
        }
        let mut room = [0; TEXT_MAX];
        let id = match memory::text(address, &mut room) {
            Some(length) if length > 0 => report(&room[..length]),
            _ => 0,
        };
        if self.known.len() < KNOWN_MAX {
            self.known.push((address, id));
        }
        id
    }
}

/// Reports a name unless already reported; returns its id.
fn report(name: &[u8]) -> u64 {
    let id = hash(name);
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    let reported = reported.get_or_insert_default();
    if reported.len() >= REPORTED_MAX {
        reported.clear();
    }
    if reported.insert(id) {
        probe::name(id, name);
    }
    id
}

/// Makes all names be reported again, for a new listener.
pub(crate) fn forget() {
    *REPORTED.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// FNV-1a, never 0.
fn hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_has_the_same_number_wherever_it_is() {
        let (a, b) = (c"gemm_25us".to_owned(), c"gemm_25us".to_owned());
        let mut lookup = Lookup::new();
        let [first, second, other, none] = [
            a.as_ptr().expose_provenance() as u64,
            b.as_ptr().expose_provenance() as u64,
            c"scan".as_ptr().expose_provenance() as u64,
            0x5151_5151,
        ]
        .map(|at| lookup.id(at));
        assert_eq!(first, second);
        assert_ne!(first, other);
        assert_eq!(none, 0);
    }
}
