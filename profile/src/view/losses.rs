//! Losses: what happened to the records of a profile, as rows.
//!
//! Owns: [`losses`], [`losses_by_level`], [`complete_share`] and how it is shown, and the rows of the stages. Because:
//! a screen, a report and an export must count the same. Does not: count; see [`crate::ledger`].

use deepctx_common::end::WalkEnd;
use deepctx_common::reason::Reason;

use crate::ledger::{
    Account, CODE_LEFT_OUT, CODE_TOO_NEW, Ledger, LossRow, PROCESS_GAVE_WAY, PROCESS_OVER_SHARE,
    PROCESS_WITHOUT_ROOM, Stage, UNKNOWN_END,
};
use crate::order::SortRows as _;
use crate::profile::Profile;
use crate::view::snapshot::StageRow;

/// Counts of records at each stage in use.
pub(super) fn stages(profile: &Profile) -> Vec<StageRow> {
    let row = |stage: &Stage| {
        let account = profile.ledger.stage(*stage);
        let &Account { received, kept, merged, .. } = account;
        StageRow { stage: stage.name(), received, kept, merged, dropped: account.dropped.total() }
    };
    Stage::ALL.iter().map(row).filter(|row| (row.received, row.kept, row.dropped) != (0, 0, 0)).collect()
}

/// Losses and gaps of a profile, in stage order: the ledger's, and entries that the profile's tables refused.
pub fn losses(profile: &Profile) -> Vec<LossRow> {
    let mut ledger = profile.ledger.clone();
    for (reason, n) in profile.refusals() {
        ledger.gap(Stage::Attribute, reason, n);
    }
    ledger.rows()
}

/// Losses and gaps of a profile, most urgent level first; within a level in stage order.
pub fn losses_by_level(profile: &Profile) -> Vec<LossRow> {
    let mut rows = losses(profile);
    rows.sort_rows_by_key(LossRow::level);
    rows
}

/// Share of stacks without a gap in their native part, 0..=1: the same for a live capture and its stored profile.
/// `None` without stacks, or if another tool counted them.
pub fn complete_share(ledger: &Ledger) -> Option<f64> {
    let stacks = ledger.stage(Stage::Attribute).received;
    let gap = cut(ledger).fold(0u64, |sum, (_, stacks)| sum.saturating_add(stacks));
    (stacks > 0).then(|| 1.0 - gap.min(stacks) as f64 / stacks as f64)
}

/// A share of complete stacks in percent, for display: rounded down to hundredths, since 100 is a promise.
pub fn complete_percent(share: f64) -> String {
    // As a floating-point number, a whole number of hundredths may lie slightly below it.
    const ROUNDING: f64 = 1e-6;
    format!("{:.2}", (share * 10_000.0 + ROUNDING).floor() / 100.0)
}

/// The most common reason for a gap in the native part of stacks, and its count; `None` without any.
pub fn most_common_gap(ledger: &Ledger) -> Option<(&'static Reason, u64)> {
    cut(ledger).filter(|(_, stacks)| *stacks > 0).max_by_key(|(_, stacks)| *stacks)
}

/// How many stacks have a gap of each kind in their native part. Each stack has one end, so these add up.
fn cut(ledger: &Ledger) -> impl Iterator<Item = (&'static Reason, u64)> {
    let gaps = &ledger.stage(Stage::Resolve).gaps;
    let intended = [WalkEnd::Complete, WalkEnd::NotWalked, WalkEnd::NoUserStack, WalkEnd::LeftOut];
    let ends = WalkEnd::ALL.iter().filter(move |end| !intended.contains(end)).map(|end| end.reason());
    let known = [CODE_TOO_NEW, CODE_LEFT_OUT, PROCESS_WITHOUT_ROOM, PROCESS_OVER_SHARE, PROCESS_GAVE_WAY];
    ends.chain(known).chain([UNKNOWN_END]).map(|reason| (reason, gaps.count(reason.key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger;
    use crate::{Limits, Meta};

    #[test]
    fn rows_by_level_are_the_same_rows_in_another_order() {
        let mut profile = Profile::new(Meta::default(), Limits::default());
        let reason = |key| ledger::Reason::new(key, "so it is");
        profile.ledger.gap(Stage::Decode, reason("no-symbol"), 9);
        profile.ledger.gap(Stage::Order, reason("never-declared"), 3);
        profile.ledger.gap(Stage::Resolve, reason("no-row"), 2);
        profile.ledger.dropped(Stage::Attribute, reason("never-declared"), 1);
        let rows = losses_by_level(&profile);
        let figures = |row: &LossRow| (row.stage.clone(), row.reason.clone(), row.count);
        let found: Vec<_> = rows.iter().map(figures).collect();
        let expect = [
            ("attribute", "never-declared", 1),
            ("order", "never-declared", 3),
            ("resolve", "no-row", 2),
            ("decode", "no-symbol", 9),
        ]
        .map(|(stage, reason, count): (&str, &str, u64)| (stage.to_owned(), reason.to_owned(), count));
        assert_eq!(found, expect);
        let unsorted = losses(&profile);
        assert!(unsorted.len() == rows.len() && unsorted.iter().all(|row| rows.contains(row)));
    }

    #[test]
    fn only_all_stacks_are_a_hundred_percent() {
        let check = |gaps: u64, stacks: u64, expect: &str| {
            assert_eq!(complete_percent(1.0 - gaps as f64 / stacks as f64), expect, "{gaps} of {stacks}");
        };
        check(0, 7, "100.00");
        check(1, 1_000_000_000, "99.99");
        check(3, 10_000, "99.97");
        check(1, 3, "66.66");
        check(3, 3, "0.00");
    }

    #[test]
    fn every_stack_counts_once_in_the_complete_share() {
        let [no_row, left_out] = [WalkEnd::NoRow, WalkEnd::LeftOut].map(WalkEnd::reason);
        let check = |stacks: u64, gaps: &[(&'static Reason, u64)], expect: Option<f64>| {
            let mut ledger = Ledger::default();
            ledger.stage_mut(Stage::Attribute).pass(stacks);
            gaps.iter().for_each(|(reason, n)| ledger.gap(Stage::Resolve, *reason, *n));
            assert_eq!(complete_share(&ledger), expect);
            let most = gaps.iter().copied().filter(|(reason, _)| *reason != left_out).max_by_key(|(_, n)| *n);
            assert_eq!(most_common_gap(&ledger), most);
        };
        check(0, &[], None);
        check(200, &[], Some(1.0));
        check(200, &[(no_row, 30), (WalkEnd::TooManyFrames.reason(), 20)], Some(0.75));
        check(200, &[(no_row, 10), (CODE_TOO_NEW, 30), (UNKNOWN_END, 10)], Some(0.75));
        check(200, &[(CODE_TOO_NEW, 20), (CODE_LEFT_OUT, 30)], Some(0.75));
        let refused = [(PROCESS_WITHOUT_ROOM, 10), (PROCESS_OVER_SHARE, 15), (PROCESS_GAVE_WAY, 25)];
        check(200, &refused, Some(0.75));
        check(200, &[(left_out, 50)], Some(1.0));
        check(10, &[(no_row, 30)], Some(0.0));
        // A file may say anything.
        check(10, &[(no_row, u64::MAX), (CODE_TOO_NEW, 1)], Some(0.0));
    }
}
