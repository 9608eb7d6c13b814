//! Functions of a process that were located by their bytes, because nothing registers them.
//!
//! Owns: comparing them with memory again, and dropping those that are gone. Because: code is freed and other code with
//! another name comes to its address, which nothing reports either. Does not: locate functions
//! ([`crate::compiled`]).

use std::sync::Arc;

use deepctx_address_space::Avma;

use super::{Jit, JitSymbol, LocatedFunction, Process, REREAD_INTERVAL, ReadTime, gdb};
use crate::memory::{ProcessMemory, ReadError, TargetMemory as _};

/// Most located functions of a process that are compared with memory at once: one takes some 10 µs.
const CHECKED_MAX: usize = 16;

/// What was at an address when a function was located there.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocatedCode {
    address: u64,
    size: u64,
    /// Hash of its bytes, with what relocation changed.
    hash: u64,
    checked_at: ReadTime,
}

impl LocatedCode {
    pub(super) fn of(located: &LocatedFunction, now: ReadTime) -> Self {
        let LocatedFunction { address, size, hash, .. } = *located;
        Self { address, size, hash, checked_at: now }
    }

    /// Whether it is to be compared with memory again.
    pub(super) fn is_due(&self, now: ReadTime) -> bool {
        self.checked_at.is_before(now, REREAD_INTERVAL)
    }
}

impl Jit {
    /// Drops the located function at an address if its code is gone.
    pub(super) fn check_located_at(&mut self, pid: u32, process: &mut Process, now: ReadTime, address: Avma) {
        let found = process.table.lookup(address.0, now.time_ns);
        if let Some(symbol) = found.filter(|symbol| process.is_located_due(*symbol, now)) {
            self.check_located(pid, process, now, symbol);
        }
    }

    /// Checks located functions, those first that were not checked for the longest time.
    pub(super) fn check_due_located(&mut self, pid: u32, process: &mut Process, now: ReadTime) {
        let due = process.located.iter().filter(|(_, code)| code.is_due(now));
        let mut due: Vec<_> = due.map(|(symbol, code)| (code.checked_at.instant(), *symbol)).collect();
        due.sort_unstable_by_key(|(at, _)| *at);
        for (_, symbol) in due.into_iter().take(CHECKED_MAX) {
            self.check_located(pid, process, now, symbol);
        }
    }

    fn check_located(&mut self, pid: u32, process: &mut Process, now: ReadTime, symbol: JitSymbol) {
        let Some(code) = process.located.get_mut(&symbol) else { return };
        // Memory that cannot be opened is not tried again at once either.
        code.checked_at = now;
        let address = code.address;
        if process.memory.is_none() {
            process.memory = ProcessMemory::open(pid).ok();
        }
        let Some(memory) = &process.memory else { return };
        let is_there = match memory.read_vec(address, code.size as usize) {
            Ok(bytes) => gdb::bytes_hash(&bytes) == code.hash,
            // A process that has ended, or does not answer: its late samples have the names it had.
            Err(error) => error != ReadError::Unmapped,
        };
        // Its number may be that of another name by now.
        let is_named = process.table.lookup(address, u64::MAX) == Some(symbol);
        if is_there && is_named {
            return;
        }
        process.located.remove(&symbol);
        if is_named {
            let dropped = Arc::make_mut(&mut process.table).retain(|_, other| other != symbol);
            self.release_ranges(process, dropped);
        }
    }
}
