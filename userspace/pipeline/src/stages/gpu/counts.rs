//! Counts: the fate of calls and activities, by reason.
//!
//! Owns: the reasons of this stage, and their form in the ledger. Because: time that could not be attributed is
//! reported, not dropped. Does not: decide anything.

use deepctx_common::reasons;
use deepctx_profile::ledger::Account;

reasons! {
    class Gap, page "gpu.md";
    /// A kind of gap.
    pub(super) enum Gap {
        LaunchWithoutActivity, "launch-without-activity",
            "launches of processes whose activities are collected have no device time: none came for them";
        LaunchWithoutCorrelation, "launch-without-correlation",
            "launches of processes whose activities are collected were given no correlation id";
        ActivityWithoutLaunch, "activity-without-launch",
            "activities belong to no launch that was seen: their time stands under [unknown: launch-not-seen]";
        ActivityAfterEnd, "activity-after-end",
            "activities began when the capture was over, of launches that it did not see: they are left out";
        Expired, "expired", "launches were given up before their activities came: too many were waiting";
        NameUnknown, "name-unknown", "launched kernels have no name: the handle was made before the profiler came";
        NameDiffers, "name-differs", "activities name another kernel than the handle that was launched";
        ClockUnknown, "clock-unknown", "activities have no launch delay: the device clock is not known well enough";
        ClockJumped, "clock-jumped", "the device clock was set to another time";
        WithoutTimes, "activity-without-times", "activities have no times, or an end before their begin";
        Dropped, "activity-dropped", "the profiling interface dropped records: their device time is missing";
        Skipped, "activity-skipped", "the collector does not know a kind of record";
        UnknownActivity, "activity-unknown", "activities are of an unknown kind";
        Malformed, "message-malformed", "messages of a collector were cut, unreadable or of an odd size";
        ReturnMissing, "return-missing", "returns of calls did not come: what they answered is not known";
        NotReturned, "sync-not-returned",
            "waits had not returned when the capture ended: their time so far is counted";
        FreeUnknown, "free-unknown", "memory was given back whose allocation was not seen";
        SizeUnknown, "copy-size-unknown", "copies have no number of bytes";
        BoundUnknown, "bound-unknown",
            "launches have no bound on their device time: too many were waiting for a wait";
        GraphUnknown, "graph-not-seen",
            "graphs were launched that were made before the profiler came: their kernels have no context of their own";
        GraphIncomplete, "graph-incomplete", "activities of graphs are fewer than the graphs have nodes";
        WithoutStack, "call-without-stack",
            "calls have no stack of their own: stacks are limited, or no scratch memory was free";
        StateFull, "device-state-full", "processes, streams, handles, graphs or allocations are more than are remembered";
        CallLost, "call-lost",
            "calls were counted by their probe and never came: launches, copies and waits without a context";
        SampleDropped, "pc-sample-dropped", "samples of instructions were dropped by the device";
        SampleElsewhere, "pc-sample-elsewhere",
            "samples are of kernels that are not the program's own: nothing more is reported of them";
        SampleOverrun, "pc-buffer-full", "the device's buffer of samples was full: what was in it is lost";
        SampleShared, "pc-sample-shared",
            "samples of instructions stand under [all callers]: their kernel was launched in several contexts";
        SampleWithoutLaunch, "pc-sample-without-launch", "samples of instructions belong to no launch that was seen";
        ReasonUnknown, "stall-reason-unknown", "samples have a reason that is not known: they count as stall:misc";
        InstructionUnknown, "pc-out-of-range", "samples are of no place in a function";
        LinesUnread, "pc-lines-unread", "device code has a table of lines that could not be read, or not in time";
        CubinLeft, "pc-cubin-left", "device code is more than is kept: its instructions have no lines";
        ProducersLeft, "pc-producers-left-out",
            "instructions of device code are more than are decoded: it is not known what they wait for";
        SiteUnknown, "probe-not-known", "calls come from probes that are not known";
    }
}

reasons! {
    class Gap, page "gpu.md";
    pub(super) const LAUNCH_NOT_SEEN = "launch-not-seen", "work of a device has no launch that was seen";
    pub(super) const INSTRUCTION_NOT_KNOWN = "instruction-not-known", "samples are of no known instruction";
}

reasons! {
    class Loss, page "gpu.md";
    /// Why a record of this stage could not be used.
    pub(super) enum UnmatchedRecord {
        ReturnWithoutCall, "return-without-call", "returns belong to no call that was seen",
            helps "the call that the record belongs to was lost";
        CorrelationWithoutCall, "correlation-without-call", "correlation ids belong to no call that was seen",
            helps "the call that the record belongs to was lost";
        UnknownMessage, "unknown-message", "messages of a collector are of an unknown kind",
            helps "the same version on both sides";
    }
}

/// The counters.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    gaps: [u64; Gap::ALL.len()],
    unmatched: [u64; UnmatchedRecord::ALL.len()],
    merged: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { gaps: [0; Gap::ALL.len()], unmatched: [0; UnmatchedRecord::ALL.len()], merged: 0 }
    }
}

impl Counts {
    /// Counts gaps of a kind.
    pub(super) fn gap(&mut self, gap: Gap, n: u64) {
        let count = &mut self.gaps[gap as usize];
        *count = count.saturating_add(n);
    }

    /// Counts a record that became part of a call or a process.
    pub(super) fn merged(&mut self) {
        self.merged += 1;
    }

    /// Counts a record that could not be used.
    pub(super) fn unmatched(&mut self, unmatched: UnmatchedRecord) {
        self.unmatched[unmatched as usize] += 1;
    }

    /// Writes the counts to the account of the stage, whose other fields are already filled.
    pub(super) fn write_to(&self, account: &mut Account) {
        account.merged = self.merged;
        for (unmatched, n) in UnmatchedRecord::ALL.iter().zip(self.unmatched) {
            account.dropped.add(unmatched.reason(), n);
        }
        for (gap, n) in Gap::ALL.iter().zip(self.gaps) {
            account.gaps.add(gap.reason(), n);
        }
    }
}
