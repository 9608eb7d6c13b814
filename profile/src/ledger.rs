//! The ledger: what became of every record.
//!
//! Owns: for each stage, how many records it received and whether it kept, merged or dropped them, and why; and the
//! gaps in kept records. Because: a profiler that loses data silently cannot be believed. Does not: decide what to
//! drop.
//!
//! ```text
//!   kernel ──kept──▶ decode ──kept──▶ order ──kept──▶ resolve ──kept──▶ correlate ──kept──▶ attribute
//!     │ dropped(ring-full)  │ dropped(short-record)  │ dropped(late)
//!     ▼                     ▼                        ▼
//!   received = kept + merged + dropped, at each stage; kept here = received there
//! ```

use crate::order::SortRows as _;
use std::borrow::Cow;
use std::fmt;

use deepctx_common::reasons;

/// Stages that a record passes through, in order. Names are stored: append-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The kernel programs and their ring buffer.
    Kernel,
    /// Bytes to events.
    Decode,
    /// Events into one stream by time.
    Order,
    /// Addresses to frames.
    Resolve,
    /// Stacks to the tree.
    Attribute,
    /// The profile on disk. Receives nothing; its gaps are what could not be read back.
    Store,
    /// Calls of accelerator libraries, with the work of their devices. Between `Resolve` and `Attribute`, and only if
    /// there are such calls.
    Correlate,
}

impl Stage {
    /// Every stage, in order.
    pub const ALL: &'static [Stage] = &[
        Stage::Kernel,
        Stage::Decode,
        Stage::Order,
        Stage::Resolve,
        Stage::Correlate,
        Stage::Attribute,
        Stage::Store,
    ];

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Kernel => "kernel",
            Stage::Decode => "decode",
            Stage::Order => "order",
            Stage::Resolve => "resolve",
            Stage::Attribute => "attribute",
            Stage::Store => "store",
            Stage::Correlate => "correlate",
        }
    }

    /// The stage with this name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.iter().copied().find(|stage| stage.name() == name)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

reasons! {
    class Gap, page "probes.md";
    /// Of duty-cycled probes: their counts cover the time in which they were attached. Its sentence in a profile states
    /// that time.
    pub const DUTY_CYCLED = "watched-in-turns",
        "probes with a budget (`--probe-budget`) would have taken more than that, so they were duty-cycled";
}

reasons! {
    class Gap, page "loss.md";
    /// Of a native walk whose end is none of `deepctx_common::end::WalkEnd`: a newer version made the record.
    pub const UNKNOWN_END = "unknown-end", "walks ended for a reason that this version does not know";
    /// Replaces `no-mapping` as the end of a native walk.
    pub const CODE_TOO_NEW = "code-too-new",
        "the code was made or loaded so recently that its unwind rows were not there yet",
        helps "usual when a program compiles or loads code: the unknown address asks for a new look at its mappings";
    /// The same, for code whose mapping the kernel programs never get.
    pub const CODE_LEFT_OUT = "code-left-out",
        "the code's mapping is beyond the number that is kept of a process",
        helps "mappings at the lowest addresses are kept; `mapping-left-out` counts the others";
}

reasons! {
    class Gap, page "unwinding.md";
    /// Replaces `unknown-process` as the end of a native walk, once a process got no unwind data.
    pub const PROCESS_WITHOUT_ROOM = "process-without-room",
        "the process has no unwind data: the kernel's tables have no room for it",
        helps "fewer targets (`--pid`, `--cgroup`); it is tried again now and then";
    /// The same, where its user may have no more.
    pub const PROCESS_OVER_SHARE = "process-over-share",
        "the process has no unwind data: its user has most of the kernel's tables, and others need the rest",
        helps "fewer targets of this user (`--pid`, `--cgroup`); it is tried again now and then";
    /// The same, where its user gave room back.
    pub const PROCESS_GAVE_WAY = "process-gave-way",
        "the process has no unwind data for now: its user had most of the kernel's tables, and others needed some",
        helps "wait: it is tried again; or fewer targets of this user (`--pid`, `--cgroup`)";
}

/// Why something was dropped or has a gap, as a profile keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Stable name for machines, kebab-case. Two reasons are the same when their keys are.
    pub key: Cow<'static, str>,
    /// One sentence for people.
    pub sentence: Cow<'static, str>,
}

impl Reason {
    /// A reason by its texts. Those of the program are declared, by [`reasons!`], and become one of these by `into()`.
    pub const fn new(key: &'static str, sentence: &'static str) -> Self {
        Reason { key: Cow::Borrowed(key), sentence: Cow::Borrowed(sentence) }
    }
}

impl From<&'static deepctx_common::reason::Reason> for Reason {
    fn from(declared: &'static deepctx_common::reason::Reason) -> Self {
        Reason::new(declared.key, declared.sentence)
    }
}

/// How often each reason occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    // A stage has few reasons: searching a list is faster than hashing.
    rows: Vec<(Reason, u64)>,
}

impl Tally {
    /// Adds `n` to a reason. Zero adds no row.
    pub fn add(&mut self, reason: impl Into<Reason>, n: u64) {
        if n == 0 {
            return;
        }
        let reason = reason.into();
        match self.rows.iter_mut().find(|(known, _)| known.key == reason.key) {
            Some((_, count)) => *count = count.saturating_add(n),
            None => self.rows.push((reason, n)),
        }
    }

    /// Sum over all reasons.
    pub fn total(&self) -> u64 {
        self.rows.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// How often the reason with this key occurred.
    pub fn count(&self, key: &str) -> u64 {
        self.rows.iter().find(|(known, _)| known.key == key).map_or(0, |(_, n)| *n)
    }

    /// How often each occurred since an earlier state of this tally.
    fn since(&self, before: &Tally) -> Tally {
        let mut since = Tally::default();
        for (reason, n) in &self.rows {
            since.add(reason.clone(), n.saturating_sub(before.count(&reason.key)));
        }
        since
    }

    /// Reasons and counts, in the order of their first occurrence.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Reason, u64)> {
        self.rows.iter().map(|(reason, n)| (reason, *n))
    }

    fn merge(&mut self, other: &Tally) {
        for (reason, n) in other.iter() {
            self.add(reason.clone(), n);
        }
    }
}

/// The account of one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Records received.
    pub received: u64,
    /// Records passed on.
    pub kept: u64,
    /// Records that became part of another one.
    pub merged: u64,
    /// Records lost, by reason.
    pub dropped: Tally,
    /// Kept, but incomplete: gaps by reason. One record may have several, so they are not part of the sum.
    pub gaps: Tally,
}

impl Account {
    /// Counts `n` records as received and passed on.
    pub fn pass(&mut self, n: u64) {
        self.received = self.received.saturating_add(n);
        self.kept = self.kept.saturating_add(n);
    }

    /// Records received that are neither kept, merged nor dropped yet; `None` if more left than were received.
    pub fn in_hand(&self) -> Option<u64> {
        let out = u128::from(self.kept) + u128::from(self.merged) + u128::from(self.dropped.total());
        u128::from(self.received).checked_sub(out).and_then(|rest| u64::try_from(rest).ok())
    }

    fn is_unused(&self) -> bool {
        self.received == 0 && self.kept == 0 && self.merged == 0 && self.dropped.total() == 0
    }
}

/// The accounts of all stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    accounts: [Account; Stage::ALL.len()],
}

/// When a ledger is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckTime {
    /// While records may still be inside stages or between them.
    Running,
    /// After the last record: nothing may be left inside or between stages.
    Finished,
}

/// A stage, or the passage between two stages, whose counts do not add up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Imbalance {
    /// Received differs from the sum of the outcomes.
    #[error(
        "stage {stage}: received {received}, but kept {kept} + merged {merged} + dropped {dropped} = {sum}",
        sum = u128::from(*kept) + u128::from(*merged) + u128::from(*dropped)
    )]
    Stage {
        /// Which stage.
        stage: Stage,
        /// Records received.
        received: u64,
        /// Records passed on.
        kept: u64,
        /// Records that became part of another one.
        merged: u64,
        /// Records lost.
        dropped: u64,
    },
    /// The next stage did not receive what one stage passed on.
    #[error("between {from} and {to}: {kept} passed on, {received} received")]
    Passage {
        /// The earlier stage.
        from: Stage,
        /// The later stage.
        to: Stage,
        /// What the earlier stage passed on.
        kept: u64,
        /// What the later stage received.
        received: u64,
    },
}

impl Ledger {
    /// The account of a stage.
    pub fn stage(&self, stage: Stage) -> &Account {
        &self.accounts[stage as usize]
    }

    /// The account of a stage, mutable. A stage whose counters are totals kept elsewhere (the kernel's) replaces its
    /// account each time.
    pub fn stage_mut(&mut self, stage: Stage) -> &mut Account {
        &mut self.accounts[stage as usize]
    }

    /// Counts `n` records that a stage lost.
    pub fn dropped(&mut self, stage: Stage, reason: impl Into<Reason>, n: u64) {
        self.stage_mut(stage).dropped.add(reason, n);
    }

    /// Counts `n` gaps in what a stage kept.
    pub fn gap(&mut self, stage: Stage, reason: impl Into<Reason>, n: u64) {
        self.stage_mut(stage).gaps.add(reason, n);
    }

    /// Records lost at all stages.
    pub fn lost(&self) -> u64 {
        self.accounts.iter().fold(0, |sum, account| sum.saturating_add(account.dropped.total()))
    }

    /// Records that the first stage in use received.
    pub fn received(&self) -> u64 {
        self.accounts.iter().find(|account| !account.is_unused()).map_or(0, |account| account.received)
    }

    /// The duty cycle of probes, as a sentence; `None` when they were attached all the time.
    pub fn duty_cycled(&self) -> Option<&str> {
        let mut gaps = self.stage(Stage::Attribute).gaps.iter();
        gaps.find(|(reason, _)| reason.key == DUTY_CYCLED.key).map(|(reason, _)| reason.sentence.as_ref())
    }

    /// Lost records as a share of all received, 0..=1; `None` when nothing was received.
    pub fn lost_share(&self) -> Option<f64> {
        let received = self.received();
        (received > 0).then(|| self.lost() as f64 / received as f64)
    }

    /// Whether everything adds up; if not, the first place where it does not.
    ///
    /// Stages before the first one in use are left out (replayed input has no kernel stage), and so is the one that
    /// only calls of accelerator libraries use.
    pub fn check(&self, when: CheckTime) -> Result<(), Imbalance> {
        let absent = |stage| stage == Stage::Correlate && self.stage(stage).is_unused();
        let stages = || Stage::ALL.iter().copied().filter(|&stage| stage != Stage::Store && !absent(stage));
        let used = || stages().skip_while(|&stage| self.stage(stage).is_unused());
        for stage in used() {
            let account = self.stage(stage);
            let fits = match account.in_hand() {
                None => false,
                Some(rest) => rest == 0 || when == CheckTime::Running,
            };
            if !fits {
                let &Account { received, kept, merged, .. } = account;
                let dropped = account.dropped.total();
                return Err(Imbalance::Stage { stage, received, kept, merged, dropped });
            }
        }
        for (from, to) in used().zip(used().skip(1)) {
            let (kept, received) = (self.stage(from).kept, self.stage(to).received);
            // The kernel's own counters are read at intervals: more records may have arrived since.
            let too_many = received > kept && (from != Stage::Kernel || when == CheckTime::Finished);
            if too_many || (received < kept && when == CheckTime::Finished) {
                return Err(Imbalance::Passage { from, to, kept, received });
            }
        }
        Ok(())
    }

    /// Adds another ledger, of other records.
    pub fn merge(&mut self, other: &Ledger) {
        for (mine, theirs) in self.accounts.iter_mut().zip(&other.accounts) {
            mine.received = mine.received.saturating_add(theirs.received);
            mine.kept = mine.kept.saturating_add(theirs.kept);
            mine.merged = mine.merged.saturating_add(theirs.merged);
            mine.dropped.merge(&theirs.dropped);
            mine.gaps.merge(&theirs.gaps);
        }
    }

    /// Outcomes of records between `before`, an earlier state of this ledger, and now.
    ///
    /// A record counts if it ended in that time: at the last stage, or where it was lost. So the stages add up as in a
    /// finished ledger, although records were under way at both ends.
    #[must_use]
    pub fn since(&self, before: &Ledger) -> Ledger {
        let mut since = Ledger::default();
        let mut next_received = None;
        for &stage in Stage::ALL.iter().rev() {
            let (now, then) = (self.stage(stage), before.stage(stage));
            let account = since.stage_mut(stage);
            account.dropped = now.dropped.since(&then.dropped);
            account.gaps = now.gaps.since(&then.gaps);
            if stage == Stage::Store || now.is_unused() {
                continue;
            }
            account.merged = now.merged.saturating_sub(then.merged);
            account.kept = next_received.unwrap_or_else(|| now.kept.saturating_sub(then.kept));
            let settled = account.kept.saturating_add(account.merged);
            account.received = settled.saturating_add(account.dropped.total());
            next_received = Some(account.received);
        }
        since
    }

    /// Losses and gaps, in stage order; within a stage losses first, then most frequent first.
    pub fn rows(&self) -> Vec<LossRow> {
        let mut rows = Vec::new();
        for &stage in Stage::ALL {
            let account = self.stage(stage);
            for (tally, lost) in [(&account.dropped, true), (&account.gaps, false)] {
                let mut reasons: Vec<_> = tally.iter().collect();
                reasons.sort_rows_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.key.cmp(&b.key)));
                rows.extend(reasons.into_iter().map(|(reason, count)| LossRow {
                    stage: stage.name().to_owned(),
                    reason: reason.key.clone().into_owned(),
                    sentence: reason.sentence.clone().into_owned(),
                    count,
                    received: account.received,
                    lost,
                }));
            }
        }
        rows
    }
}

/// One reason for a loss or a gap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossRow {
    /// Stage (`kernel`, `decode`, `order`, `resolve`, …).
    pub stage: String,
    /// Stable name of the reason (`ring-full`).
    pub reason: String,
    /// One sentence.
    pub sentence: String,
    /// How many events or frames.
    pub count: u64,
    /// Records that the stage received; 0 when unknown.
    pub received: u64,
    /// True when events were lost; false when they were kept with a labeled gap.
    pub lost: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LATE: Reason = Reason::new("late", "the record arrived after later ones were passed on");

    #[test]
    fn the_first_imbalance_is_named() {
        let check = |change: fn(&mut Ledger), when, expect: Option<&str>| {
            let mut ledger = Ledger::default();
            for stage in [Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute] {
                ledger.stage_mut(stage).pass(10);
            }
            change(&mut ledger);
            assert_eq!(ledger.check(when).err().map(|e| e.to_string()).as_deref(), expect);
        };
        check(|_| (), CheckTime::Finished, None);
        check(
            |l| l.stage_mut(Stage::Order).kept = 9,
            CheckTime::Finished,
            Some("stage order: received 10, but kept 9 + merged 0 + dropped 0 = 9"),
        );
        check(
            |l| l.dropped(Stage::Resolve, LATE, 1),
            CheckTime::Running,
            Some("stage resolve: received 10, but kept 10 + merged 0 + dropped 1 = 11"),
        );
        check(
            |l| l.stage_mut(Stage::Kernel).pass(12),
            CheckTime::Finished,
            Some("between kernel and decode: 12 passed on, 10 received"),
        );
        check(|l| l.stage_mut(Stage::Kernel).pass(12), CheckTime::Running, None);
        check(|l| l.stage_mut(Stage::Correlate).pass(10), CheckTime::Finished, None);
        check(
            |l| l.stage_mut(Stage::Correlate).pass(9),
            CheckTime::Finished,
            Some("between resolve and correlate: 10 passed on, 9 received"),
        );
        check(
            |l| l.stage_mut(Stage::Kernel).pass(9),
            CheckTime::Finished,
            Some("between kernel and decode: 9 passed on, 10 received"),
        );
        // Counters of the kernel are older than the records from its rings.
        check(|l| l.stage_mut(Stage::Kernel).pass(9), CheckTime::Running, None);
        check(
            |l| l.stage_mut(Stage::Decode).kept = 9,
            CheckTime::Running,
            Some("between decode and order: 9 passed on, 10 received"),
        );
    }

    #[test]
    fn a_last_stage_without_records_is_a_loss() {
        let mut ledger = Ledger::default();
        ledger.stage_mut(Stage::Kernel).pass(5);
        assert!(ledger.check(CheckTime::Running).is_ok());
        assert!(ledger.check(CheckTime::Finished).is_err());
    }

    #[test]
    fn records_under_way_count_where_their_way_ends() {
        let mut ledger = Ledger::default();
        ledger.stage_mut(Stage::Kernel).pass(12);
        ledger.stage_mut(Stage::Decode).pass(10);
        for (stage, received, kept) in
            [(Stage::Order, 10, 4), (Stage::Resolve, 4, 4), (Stage::Attribute, 4, 4)]
        {
            *ledger.stage_mut(stage) = Account { received, kept, ..Account::default() };
        }
        let before = ledger.clone();
        for stage in [Stage::Order, Stage::Resolve, Stage::Attribute] {
            *ledger.stage_mut(stage) = Account { received: 10, kept: 10, ..Account::default() };
        }
        ledger.dropped(Stage::Kernel, Reason::new("ring-full", "r"), 3);
        let since = ledger.since(&before);
        assert_eq!(since.check(CheckTime::Finished), Ok(()));
        assert_eq!((since.received(), since.lost(), since.stage(Stage::Attribute).kept), (9, 3, 6));
    }

    #[test]
    fn rows_are_ordered_by_stage_then_losses_then_count() {
        let mut ledger = Ledger::default();
        ledger.gap(Stage::Resolve, Reason::new("no-row", "n"), 2);
        ledger.gap(Stage::Resolve, Reason::new("no-mapping", "m"), 5);
        ledger.dropped(Stage::Resolve, Reason::new("gone", "g"), 1);
        ledger.dropped(Stage::Kernel, Reason::new("ring-full", "r"), 7);
        ledger.dropped(Stage::Kernel, Reason::new("never", "zero leaves no row"), 0);
        let rows: Vec<_> = ledger
            .rows()
            .into_iter()
            .map(|r| format!("{} {} {} {}", r.stage, r.reason, r.count, r.lost))
            .collect();
        assert_eq!(
            rows,
            [
                "kernel ring-full 7 true",
                "resolve gone 1 true",
                "resolve no-mapping 5 false",
                "resolve no-row 2 false"
            ]
        );
        assert_eq!(ledger.lost(), 8);
    }

    #[test]
    fn rows_know_what_their_stage_received() {
        let mut ledger = Ledger::default();
        *ledger.stage_mut(Stage::Order) = Account { received: 10, kept: 7, merged: 1, ..Account::default() };
        ledger.dropped(Stage::Order, LATE, 2);
        ledger.gap(Stage::Store, Reason::new("not-finished", "cut short"), 1);
        let rows: Vec<_> = ledger.rows().iter().map(|row| (row.count, row.received)).collect();
        assert_eq!(rows, [(2, 10), (1, 0)]);
    }

    #[test]
    fn stage_names_parse_back() {
        for &stage in Stage::ALL {
            assert_eq!(Stage::from_name(stage.name()), Some(stage));
        }
    }

    proptest! {
        /// A small pipeline that keeps, merges or drops each record at random.
        #[test]
        fn every_record_is_accounted_for_at_every_stage(
            fates in prop::collection::vec(prop::collection::vec(0u8..8, 5), 0..200),
            half in 0usize..200,
        ) {
            let stages = [Stage::Kernel, Stage::Decode, Stage::Order, Stage::Resolve, Stage::Attribute];
            let (mut ledger, mut other) = (Ledger::default(), Ledger::default());
            for (number, fates) in fates.iter().enumerate() {
                let ledger = if number < half { &mut ledger } else { &mut other };
                for (stage, fate) in stages.into_iter().zip(fates) {
                    ledger.stage_mut(stage).received += 1;
                    prop_assert!(ledger.check(CheckTime::Running).is_ok());
                    match fate {
                        0 => ledger.dropped(stage, LATE, 1),
                        1 => ledger.dropped(stage, Reason::new("full", "no room"), 1),
                        2 => ledger.stage_mut(stage).merged += 1,
                        _ => {
                            ledger.stage_mut(stage).kept += 1;
                            continue;
                        }
                    }
                    break;
                }
            }
            let first = ledger.clone();
            ledger.merge(&other);
            prop_assert_eq!(ledger.check(CheckTime::Finished), Ok(()));
            prop_assert_eq!(ledger.received(), fates.len() as u64);
            let merged: u64 = stages.iter().map(|&s| ledger.stage(s).merged).sum();
            prop_assert_eq!(ledger.stage(Stage::Attribute).kept + ledger.lost() + merged, fates.len() as u64);

            // The second half is the whole ledger minus the first half.
            let mut all = first.clone();
            all.merge(&other);
            let (since, nothing) = (all.since(&first), all.since(&all));
            prop_assert_eq!(since.check(CheckTime::Finished), Ok(()));
            prop_assert_eq!((since.rows(), since.received()), (other.rows(), other.received()));
            prop_assert_eq!((nothing.received(), nothing.lost()), (0, 0));

            // One missing record is found at any stage.
            for stage in stages {
                let mut broken = ledger.clone();
                broken.stage_mut(stage).received += 1;
                prop_assert!(broken.check(CheckTime::Finished).is_err());
            }
        }
    }
}
