//! Copies of device code that has line tables.
//!
//! Owns: the copies. Because: CUPTI shows an image only while it is loaded, and listeners read it later, from outside.
//! Does not: interpret code; it searches for the names of two sections.

use std::sync::{Mutex, PoisonError};

use deepctx_common::activity::state;
use deepctx_common::samples::Cubin;

use crate::cupti::Sampler;
use crate::probe;

/// Maximum bytes of all copies. Programs that compile at run time make many images, but small ones.
const BYTES_MAX: usize = 64 << 20;

/// Each copy with CUPTI's id.
static COPIES: Mutex<Vec<(u64, Box<[u8]>)>> = Mutex::new(Vec::new());

/// Device code was loaded.
pub(super) fn loaded(sampler: &Sampler, cubin: &[u8]) {
    // Name of the line table's section. The one that NVIDIA adds contains it.
    const TABLE: &[u8] = b"debug_line";
    if cubin.len() > BYTES_MAX {
        return probe::state(state::CUBINS_LEFT, 1);
    }
    if !cubin.windows(TABLE.len()).any(|bytes| bytes == TABLE) {
        return;
    }
    let Some(crc) = sampler.crc(cubin) else { return };
    let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    if copies.iter().any(|(known, _)| *known == crc) {
        return;
    }
    let bytes: usize = copies.iter().map(|(_, copy)| copy.len()).sum();
    if bytes + cubin.len() > BYTES_MAX {
        drop(copies);
        return probe::state(state::CUBINS_LEFT, 1);
    }
    let copy: Box<[u8]> = cubin.into();
    let cubin = described(crc, &copy);
    copies.push((crc, copy));
    drop(copies);
    probe::cubin(&cubin);
}

fn described(crc: u64, copy: &[u8]) -> Cubin {
    Cubin { crc, address: copy.as_ptr().expose_provenance() as u64, bytes: copy.len() as u64 }
}

/// Reports all copies again.
pub(super) fn report_again() {
    let copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
    for (crc, copy) in copies.iter() {
        probe::cubin(&described(*crc, copy));
    }
}

/// Drops all copies: the last listener is gone.
pub(super) fn forget() {
    *COPIES.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
}
