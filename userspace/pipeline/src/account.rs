//! Account: the fate of every record, counted in plain counters and written to the ledger on request.
//!
//! Owns: the pipeline's counters, and the rules that turn them and the kernel's counters into accounts that add up.
//! Because: at a million samples a second there is no time to look up reasons by name. Does not: drop anything
//! itself.

use std::collections::BTreeMap;

use deepctx_common::end::{Counter, KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::reason::Reason;
use deepctx_profile::ledger::{
    Account, CODE_LEFT_OUT, CODE_TOO_NEW, Ledger, PROCESS_GAVE_WAY, PROCESS_OVER_SHARE, PROCESS_WITHOUT_ROOM,
    Stage, UNKNOWN_END,
};

use crate::decode::{DecodeError, Sample};
use crate::input::{KernelCounters, ProcessRefusal};
use crate::reason::{
    EARLY, KERNEL_UNKNOWN_END, LATE, MALFORMED_WORDS, PYTHON_UNKNOWN_END, SEQUENCE_GAP, UNEXPLAINED_GAP,
    UNREAD, WAIT_END_LOST, WAIT_RATE_LIMITED, WAIT_SCRATCH_BUSY, WAIT_STACK_LOST,
};
use crate::stages::off_cpu::WaitGaps;

const REASONS: usize = u8::MAX as usize + 1;

/// Why a native walk ended at code that the kernel programs did not know, where it is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnlistedCode {
    /// Its mapping was new.
    TooNew,
    /// Its process has too many mappings.
    LeftOut,
    /// None of its process was known: [`ProcessRefusal::NoRoom`].
    NoRoom,
    /// The same: [`ProcessRefusal::OverShare`].
    OverShare,
    /// The same: [`ProcessRefusal::GaveWay`].
    GaveWay,
}

impl UnlistedCode {
    /// Each of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] =
        [Self::TooNew, Self::LeftOut, Self::NoRoom, Self::OverShare, Self::GaveWay];

    /// As a gap.
    pub(crate) fn reason(self) -> &'static Reason {
        match self {
            Self::TooNew => CODE_TOO_NEW,
            Self::LeftOut => CODE_LEFT_OUT,
            Self::NoRoom => PROCESS_WITHOUT_ROOM,
            Self::OverShare => PROCESS_OVER_SHARE,
            Self::GaveWay => PROCESS_GAVE_WAY,
        }
    }
}

impl From<ProcessRefusal> for UnlistedCode {
    fn from(refusal: ProcessRefusal) -> Self {
        match refusal {
            ProcessRefusal::NoRoom => Self::NoRoom,
            ProcessRefusal::OverShare => Self::OverShare,
            ProcessRefusal::GaveWay => Self::GaveWay,
        }
    }
}

/// The gaps of one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingFrames {
    /// Number of the reason why one of its frames has no name ([`Accounts::unnamed_number`]); 0 if all have one.
    pub(crate) unnamed: u16,
    /// Its native walk ended at code that the kernel programs did not know.
    pub(crate) unlisted: Option<UnlistedCode>,
}

/// Counters of all stages.
#[derive(Debug)]
pub struct Accounts {
    kernel: Option<KernelCounters>,
    /// No record follows.
    is_over: bool,
    missing: u64,
    tables: Vec<(&'static Reason, u64)>,
    received: u64,
    undecoded: BTreeMap<&'static Reason, u64>,
    late: u64,
    processes: u64,
    samples: u64,
    blocks: u64,
    wakes: u64,
    calls: u64,
    device_records: u64,
    steps: u64,
    wait_gaps: WaitGaps,
    first_complete_ns: Option<u64>,
    native_ends: [u64; REASONS],
    /// Walks that ended at [`UnlistedCode`], by its number; not counted in `native_ends`.
    unlisted: [u64; UnlistedCode::ALL.len()],
    python_ends: [u64; REASONS],
    kernel_ends: [u64; REASONS],
    unnamed: Vec<(&'static Reason, u64)>,
    malformed_words: u64,
    early: u64,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            kernel: None,
            is_over: false,
            missing: 0,
            tables: Vec::new(),
            received: 0,
            undecoded: BTreeMap::new(),
            late: 0,
            processes: 0,
            samples: 0,
            blocks: 0,
            wakes: 0,
            calls: 0,
            device_records: 0,
            steps: 0,
            wait_gaps: WaitGaps::default(),
            first_complete_ns: None,
            native_ends: [0; REASONS],
            unlisted: [0; UnlistedCode::ALL.len()],
            python_ends: [0; REASONS],
            kernel_ends: [0; REASONS],
            unnamed: Vec::new(),
            malformed_words: 0,
            early: 0,
        }
    }
}

impl Accounts {
    /// The kernel programs' counters; totals so far.
    pub(crate) fn kernel(&mut self, counters: KernelCounters) {
        self.kernel = Some(counters);
    }

    /// No record follows: those that the kernel programs emitted and that have not come are lost.
    pub(crate) fn finish(&mut self) {
        self.is_over = true;
    }

    /// Gaps of the kernel programs' tables; totals so far.
    pub(crate) fn tables(&mut self, gaps: Vec<(&'static Reason, u64)>) {
        self.tables = gaps;
    }

    /// Sequence numbers for which no record came; total so far.
    pub(crate) fn missing(&mut self, missing: u64) {
        self.missing = missing;
    }

    /// A record was received.
    pub(crate) fn received(&mut self) {
        self.received += 1;
    }

    /// It could not be decoded.
    pub(crate) fn undecoded(&mut self, error: &DecodeError) {
        *self.undecoded.entry(error.reason()).or_default() += 1;
    }

    /// It came after its place in the stream had passed.
    pub(crate) fn late(&mut self) {
        self.late += 1;
    }

    /// It was used before its time, because too many records were waiting.
    pub(crate) fn early(&mut self) {
        self.early += 1;
    }

    /// It changed the set of processes.
    pub(crate) fn process(&mut self) {
        self.processes += 1;
    }

    /// It was a sample, and it is in the tree.
    #[inline]
    pub(crate) fn sample(&mut self, sample: &Sample<'_>, missing: MissingFrames) {
        self.samples += 1;
        self.stack(sample, missing);
    }

    /// It began a wait, and its stack is in the tree.
    #[inline]
    pub(crate) fn block(&mut self, sample: &Sample<'_>, missing: MissingFrames) {
        self.blocks += 1;
        self.stack(sample, missing);
    }

    /// It ended a wait.
    pub(crate) fn wake(&mut self) {
        self.wakes += 1;
    }

    /// It was a call of an accelerator library, and its stack is in the tree.
    #[inline]
    pub(crate) fn call(&mut self, sample: &Sample<'_>, missing: MissingFrames) {
        self.calls += 1;
        self.stack(sample, missing);
    }

    /// It belongs to such a call: a return, a correlation id, a collector's message.
    pub(crate) fn device_record(&mut self) {
        self.device_records += 1;
    }

    /// It came from a framework: an autograd node, or a range of the program.
    pub(crate) fn scope_change(&mut self) {
        self.steps += 1;
    }

    /// Gaps in the record of waits; totals so far.
    pub(crate) fn waits(&mut self, gaps: WaitGaps) {
        self.wait_gaps = gaps;
    }

    fn stack(&mut self, sample: &Sample<'_>, missing: MissingFrames) {
        match missing.unlisted {
            Some(code) => self.unlisted[code as usize] += 1,
            None => self.native_ends[usize::from(sample.fixed.native_end)] += 1,
        }
        let as_asked = [WalkEnd::Complete as u8, WalkEnd::LeftOut as u8];
        if self.first_complete_ns.is_none() && as_asked.contains(&sample.fixed.native_end) {
            self.first_complete_ns = Some(sample.fixed.header.time_ns);
        }
        self.python_ends[usize::from(sample.fixed.python_end)] += 1;
        self.kernel_ends[usize::from(sample.fixed.kernel_end)] += 1;
        if missing.unnamed != 0 {
            self.unnamed[usize::from(missing.unnamed) - 1].1 += 1;
        }
    }

    /// Its stack had undecodable words.
    pub(crate) fn malformed_words(&mut self, words: u64) {
        self.malformed_words += words;
    }

    /// The number of a reason for a missing name, for [`MissingFrames`].
    pub(crate) fn unnamed_number(&mut self, reason: &'static Reason) -> u16 {
        let at = match self.unnamed.iter().position(|(known, _)| known.key == reason.key) {
            Some(at) => at,
            None => {
                self.unnamed.push((reason, 0));
                self.unnamed.len() - 1
            }
        };
        // Reasons are compiled in: a few dozen.
        u16::try_from(at + 1).unwrap_or(u16::MAX)
    }

    /// Samples in the tree.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Time of the first sample whose stack reaches the start of its thread; `CLOCK_MONOTONIC`, nanoseconds.
    pub fn first_complete_ns(&self) -> Option<u64> {
        self.first_complete_ns
    }

    /// Number of stacks, and of those without a gap in their native part. A ledger has one more gap for each other
    /// stack, whether `native_ends` or `unlisted` counted it: its `complete_share` is the same.
    pub fn stacks_and_complete(&self) -> (u64, u64) {
        let intended = [WalkEnd::Complete, WalkEnd::NotWalked, WalkEnd::NoUserStack, WalkEnd::LeftOut];
        let complete = intended.iter().map(|end| self.native_ends[*end as usize]).sum();
        (self.samples + self.blocks + self.calls, complete)
    }

    /// Writes all counts to the ledger, replacing earlier ones of these stages. `waiting`: records between `order` and
    /// `resolve`.
    pub(crate) fn write_to(&self, ledger: &mut Ledger) {
        let undecoded: u64 = self.undecoded.values().sum();
        let decoded = self.received - undecoded;
        let kept = self.samples + self.blocks + self.calls;
        let merged = self.processes + self.wakes + self.steps;
        let resolved = kept + merged + self.device_records;

        let kernel = ledger.stage_mut(Stage::Kernel);
        *kernel = self.kernel_account();
        for (reason, n) in &self.tables {
            kernel.gaps.add(*reason, *n);
        }

        let decode = fresh(ledger, Stage::Decode, self.received, decoded);
        for (reason, n) in &self.undecoded {
            decode.dropped.add(*reason, *n);
        }
        if let Some(kernel) = &self.kernel {
            let explained =
                KERNEL_DROPS.iter().fold(0u64, |sum, counter| sum.saturating_add(kernel[*counter as usize]));
            decode.gaps.add(UNEXPLAINED_GAP, self.missing.saturating_sub(explained));
        }

        let order = fresh(ledger, Stage::Order, decoded, resolved);
        order.dropped.add(LATE, self.late);
        order.gaps.add(EARLY, self.early);

        let resolve = fresh(ledger, Stage::Resolve, resolved, kept + self.device_records);
        resolve.merged = merged;
        self.add_ends(resolve);
        for (reason, n) in &self.unnamed {
            resolve.gaps.add(*reason, *n);
        }
        resolve.gaps.add(MALFORMED_WORDS, self.malformed_words);

        // The stage itself accounts for the rest. Without calls there was no such stage.
        if self.calls + self.device_records > 0 {
            fresh(ledger, Stage::Correlate, kept + self.device_records, kept);
        }

        let attribute = fresh(ledger, Stage::Attribute, kept, kept);
        for (reason, n) in [
            (WAIT_RATE_LIMITED, self.wait_gaps.rate_limited),
            (WAIT_SCRATCH_BUSY, self.wait_gaps.scratch_busy),
            (WAIT_STACK_LOST, self.wait_gaps.stack_lost),
            (WAIT_END_LOST, self.wait_gaps.end_lost),
        ] {
            attribute.gaps.add(reason, n);
        }
    }

    fn kernel_account(&self) -> Account {
        let mut account = Account::default();
        let Some(counters) = &self.kernel else {
            // A replay has no counters: only sequence numbers show what is missing.
            if self.missing > 0 {
                account.received = self.received.saturating_add(self.missing);
                account.kept = self.received;
                account.dropped.add(SEQUENCE_GAP, self.missing);
            }
            return account;
        };
        let value = |counter: Counter| counters[counter as usize];
        let seen = value(Counter::SamplesSeen)
            .saturating_add(value(Counter::ProcessEventsSeen))
            .saturating_add(value(Counter::WaitsSeen))
            .saturating_add(value(Counter::CallsSeen));
        let not_wanted = value(Counter::SamplesFiltered).saturating_add(value(Counter::SamplesIdle));
        account.received = seen.saturating_sub(not_wanted);
        let emitted = value(Counter::RecordsEmitted);
        let unread = if self.is_over { emitted.saturating_sub(self.received) } else { 0 };
        account.kept = emitted - unread;
        account.dropped.add(UNREAD, unread);
        for counter in KERNEL_DROPS {
            account.dropped.add(counter.reason(), value(counter));
        }
        let full = [
            Counter::DropTargetsFull,
            Counter::WaitsUntracked,
            Counter::ReturnsUntracked,
            Counter::LaunchersUntracked,
        ];
        for full in full {
            account.gaps.add(full.reason(), value(full));
        }
        account
    }

    fn add_ends(&self, resolve: &mut Account) {
        for (code, n) in UnlistedCode::ALL.into_iter().zip(self.unlisted) {
            resolve.gaps.add(code.reason(), n);
        }
        for (number, n) in (0..=u8::MAX).zip(&self.native_ends) {
            match WalkEnd::from_number(number) {
                Some(WalkEnd::Complete | WalkEnd::NotWalked | WalkEnd::NoUserStack) => {}
                Some(end) => resolve.gaps.add(end.reason(), *n),
                None => resolve.gaps.add(UNKNOWN_END, *n),
            }
        }
        for (number, n) in (0..=u8::MAX).zip(&self.python_ends) {
            match PythonEnd::from_number(number) {
                Some(PythonEnd::Complete | PythonEnd::NotPython | PythonEnd::NotWalked) => {}
                Some(end) => resolve.gaps.add(end.reason(), *n),
                None => resolve.gaps.add(PYTHON_UNKNOWN_END, *n),
            }
        }
        for (number, n) in (0..=u8::MAX).zip(&self.kernel_ends) {
            match KernelEnd::from_number(number) {
                Some(KernelEnd::Complete | KernelEnd::NotWalked) => {}
                Some(end) => resolve.gaps.add(end.reason(), *n),
                None => resolve.gaps.add(KERNEL_UNKNOWN_END, *n),
            }
        }
    }
}

/// Counters of records that the kernel programs lost.
const KERNEL_DROPS: [Counter; 3] =
    [Counter::DropRingFull, Counter::DropScratchBusy, Counter::DropRateLimited];

/// Resets the account of a stage.
fn fresh(ledger: &mut Ledger, stage: Stage, received: u64, kept: u64) -> &mut Account {
    let account = ledger.stage_mut(stage);
    *account = Account { received, kept, ..Account::default() };
    account
}

#[cfg(test)]
mod tests {
    use deepctx_profile::ledger::CheckTime;

    use super::*;

    #[test]
    fn records_that_nobody_read_are_lost() {
        let (mut accounts, mut ledger) = (Accounts::default(), Ledger::default());
        let mut counters = [0; Counter::ALL.len()];
        (counters[Counter::SamplesSeen as usize], counters[Counter::RecordsEmitted as usize]) = (7, 7);
        accounts.kernel(counters);
        for _ in 0..3 {
            accounts.received();
            accounts.process();
        }
        accounts.write_to(&mut ledger);
        assert_eq!((ledger.lost(), ledger.check(CheckTime::Running)), (0, Ok(())), "they may still come");
        accounts.finish();
        accounts.write_to(&mut ledger);
        assert_eq!((ledger.lost(), ledger.check(CheckTime::Finished)), (4, Ok(())));
    }
}
