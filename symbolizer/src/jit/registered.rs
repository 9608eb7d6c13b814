//! Functions of a process that a runtime registered for debuggers.
//!
//! Owns: adding them to its table, and dropping those that are no longer registered, or whose memory holds something
//! else by now. Because: runtimes free code, and other code with another name comes to its address. Does not: read
//! object files or their list ([`gdb`](super::gdb)).

use std::ops::Range;
use std::sync::Arc;

use deepctx_address_space::Avma;
use rustc_hash::FxHashSet;

use super::evidence::{self, Evidence};
use super::gdb::ObjectFile;
use super::names::NameSource;
use super::{Function, Jit, JitSymbol, Process, ReadTime};
use crate::memory::ProcessMemory;

/// Most functions that one process registers for debuggers.
const REGISTERED_MAX: usize = 1 << 17;
/// Most object files of a process that are compared with memory at once: one takes some 10 µs.
const CHECKED_MAX: usize = 16;

impl Jit {
    /// Reads what a process registered and unregistered since the last call.
    pub(super) fn read_registered(&mut self, pid: u32, now: ReadTime, process: &mut Process) {
        if process.descriptors.is_empty() {
            return;
        }
        if process.memory.is_none() {
            process.memory = ProcessMemory::open(pid).ok();
            self.counters.refused += u64::from(process.memory.is_none());
        }
        let Some(memory) = &process.memory else { return };
        let changes = process.descriptors.read_new(memory, now);
        let functions: Vec<_> =
            changes.new.iter().map(|(file, object)| (*file, evidence::functions(object, memory))).collect();
        self.drop_objects(process, &changes.gone);
        for (file, functions) in functions {
            if functions.iter().any(|(_, evidence)| *evidence == Evidence::Unread) {
                // Whether they are there is seen when the list is read the next time.
                process.descriptors.forget(file);
                continue;
            }
            for (function, evidence) in functions {
                self.add_registered(process, file, function, evidence);
            }
        }
    }

    fn add_registered(
        &mut self,
        process: &mut Process,
        file: ObjectFile,
        function: Function,
        evidence: Evidence,
    ) {
        self.counters.entries += 1;
        let range = function.address..function.address.saturating_add(function.size);
        let is_confirmed = evidence == Evidence::Confirmed;
        if evidence == Evidence::Refuted || !is_confirmed && self.has_confirmed(process, &range) {
            self.counters.refuted += 1;
            process.refuted.add(range);
            return;
        }
        let (code_hash, order) = (function.code_hash, process.registered.len());
        let source = NameSource::Registered { code_hash, order, is_confirmed };
        let symbol = match order < REGISTERED_MAX {
            true => self.names.add(process.user(), function.name.into(), source),
            false => None,
        };
        match symbol {
            Some(symbol) => {
                process.registered.push(symbol);
                process.objects.insert(symbol, file);
                self.insert(process, function.address, function.size, 0, symbol);
            }
            None => self.leave_out(process, function.address, function.size),
        }
    }

    /// Drops the functions of the object file of an address if it, or their code, is not what it was.
    pub(super) fn check_registered(&mut self, process: &mut Process, now: ReadTime, address: Avma) {
        let found = process.table.lookup(address.0, now.time_ns);
        if let Some(file) = found.and_then(|symbol| process.objects.get(&symbol).copied())
            && process.descriptors.is_due(file, now)
        {
            self.check_object(process, now, file);
        }
    }

    /// Checks object files, those first that were not checked for the longest time.
    pub(super) fn check_due_objects(&mut self, process: &mut Process, now: ReadTime) {
        for file in process.descriptors.due(now, CHECKED_MAX) {
            self.check_object(process, now, file);
        }
    }

    fn check_object(&mut self, process: &mut Process, now: ReadTime, file: ObjectFile) {
        let Some(memory) = &process.memory else { return };
        let is_gone = match process.descriptors.read_again(file, memory, now) {
            Ok(Some(object)) => {
                let is_confirmed_here = |symbol: JitSymbol| {
                    process.objects.get(&symbol) == Some(&file) && self.is_confirmed(symbol)
                };
                let refuted = evidence::refuted(&object, memory).into_iter();
                let mut named = refuted.filter_map(|address| process.table.lookup(address, now.time_ns));
                named.any(is_confirmed_here)
            }
            Ok(None) => true,
            // A process that has ended, or does not answer: its late samples have the names it had.
            Err(_) => false,
        };
        if is_gone {
            process.descriptors.forget(file);
            self.drop_objects(process, &[file]);
        }
    }

    /// Drops the functions of object files. Their order stays: it is compared with that of a compiler's modules.
    fn drop_objects(&mut self, process: &mut Process, gone: &[ObjectFile]) {
        if gone.is_empty() {
            return;
        }
        let gone: FxHashSet<ObjectFile> = gone.iter().copied().collect();
        let is_gone =
            |symbol: &JitSymbol| process.objects.get(symbol).is_some_and(|file| gone.contains(file));
        let dropped = Arc::make_mut(&mut process.table).retain(|_, symbol| !is_gone(&symbol));
        process.objects.retain(|_, file| !gone.contains(file));
        self.release_ranges(process, dropped);
    }

    /// Whether these addresses overlap code that memory has confirmed.
    fn has_confirmed(&self, process: &Process, range: &Range<u64>) -> bool {
        process.table.overlapped(range.start, range.end).any(|symbol| self.is_confirmed(symbol))
    }

    fn is_confirmed(&self, symbol: JitSymbol) -> bool {
        let entry = self.names.get(symbol);
        entry.is_some_and(|e| matches!(e.source, NameSource::Registered { is_confirmed: true, .. }))
    }
}
