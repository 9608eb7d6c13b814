//! Level: what a loss or a gap asks of the reader of a profile, and what helps.
//!
//! Owns: [`Level`], from which share on a loss asks for action, and the advice of a row. Because: profiles store keys
//! and sentences only, and most reasons are declared in crates that a reader of profiles does not link, so both are
//! found by key. Does not: declare reasons (see [`deepctx_common::reason`]), or judge counts of gaps.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::ledger::LossRow;

/// Key, class and advice of every declared reason, with tabs between; written by `cargo xtask tidy --write`.
const DECLARED: &str = include_str!("reasons.tsv");

/// A loss of one record in this many asks for action: 0.1 %. Shares are shown to a tenth of a percent, so that a
/// smaller loss changes none of them by more than their last digit.
const ACT_FROM_ONE_IN: u64 = 1000;

/// What a row asks of the reader, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// So many records are lost that figures are too small.
    Act,
    /// Few records are lost, or something of a record is missing, or a name that could be had.
    WorthKnowing,
    /// At most names are missing, and nothing brings them back.
    Fine,
}

impl Level {
    /// Every level, in order.
    pub const ALL: [Level; 3] = [Level::Act, Level::WorthKnowing, Level::Fine];

    /// In words, for a column.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Act => "act",
            Level::WorthKnowing => "worth knowing",
            Level::Fine => "fine",
        }
    }

    /// Title above its rows.
    pub const fn title(self) -> &'static str {
        match self {
            Level::Act => "Act: lost records",
            Level::WorthKnowing => "Worth knowing: incomplete records, small losses",
            Level::Fine => "Fine: at most names are missing",
        }
    }
}

impl LossRow {
    /// Lost records ask for action from 0.1 % of those that their stage received on, whatever their reason; fewer are
    /// worth knowing. So are gaps of other versions' reasons.
    pub fn level(&self) -> Level {
        match declared(&self.reason) {
            _ if self.asks_for_action() => Level::Act,
            _ if self.lost => Level::WorthKnowing,
            Some((level, _)) => level,
            None => Level::WorthKnowing,
        }
    }

    /// Whether so many records were lost that figures are too small.
    pub fn asks_for_action(&self) -> bool {
        self.lost && self.is_large()
    }

    /// Whether the count is a large share of what the stage received. It is where that is not known.
    fn is_large(&self) -> bool {
        u128::from(self.count) * u128::from(ACT_FROM_ONE_IN) >= u128::from(self.received)
    }

    /// What helps, or when the reason is expected; `None` where nothing is known, as for other versions' reasons.
    pub fn advice(&self) -> Option<&'static str> {
        declared(&self.reason).and_then(|(_, advice)| advice)
    }
}

/// Level and advice of a reason that this version declares.
fn declared(key: &str) -> Option<(Level, Option<&'static str>)> {
    static ROWS: LazyLock<FxHashMap<&'static str, (Level, Option<&'static str>)>> =
        LazyLock::new(|| DECLARED.lines().filter_map(row).collect());
    ROWS.get(key).copied()
}

fn row(line: &'static str) -> Option<(&'static str, (Level, Option<&'static str>))> {
    let mut parts = line.splitn(3, '\t');
    let (key, class, advice) = (parts.next()?, parts.next()?, parts.next());
    let level = match (class, advice) {
        ("Loss", _) => Level::Act,
        // A missing name costs no time: it matters where something helps.
        ("Normal", _) | ("Unnamed", None) => Level::Fine,
        _ => Level::WorthKnowing,
    };
    Some((key, (level, advice)))
}

#[cfg(test)]
mod tests {
    use deepctx_common::end::{Counter, KernelEnd, PythonEnd, WalkEnd};
    use deepctx_common::reason::Class;

    use super::*;
    use crate::ledger::{CODE_TOO_NEW, DUTY_CYCLED, UNKNOWN_END};

    fn gap(reason: &str) -> LossRow {
        LossRow { reason: reason.to_owned(), count: 1, ..LossRow::default() }
    }

    #[test]
    fn advice_is_that_of_the_declaration() {
        let walks = WalkEnd::ALL.iter().map(|end| end.reason());
        let python = PythonEnd::ALL.iter().map(|end| end.reason());
        let kernel = KernelEnd::ALL.iter().map(|end| end.reason());
        let counters = Counter::ALL.iter().map(|counter| counter.reason());
        let all = walks.chain(python).chain(kernel).chain(counters);
        for reason in all.chain([CODE_TOO_NEW, DUTY_CYCLED, UNKNOWN_END]) {
            let row = gap(reason.key);
            let level = match reason.class {
                Class::Loss => Level::Act,
                Class::Normal => Level::Fine,
                _ => Level::WorthKnowing,
            };
            assert_eq!((row.level(), row.advice()), (level, reason.helps), "{}", reason.key);
        }
    }

    #[test]
    fn levels_follow_from_class_and_advice() {
        let check = |reason: &str, lost: bool, level: Level, has_advice: bool| {
            let row = LossRow { lost, ..gap(reason) };
            assert_eq!((row.level(), row.advice().is_some()), (level, has_advice), "{reason}");
        };
        check("ring-full", true, Level::Act, true);
        check("late", true, Level::Act, false);
        check("no-row", false, Level::WorthKnowing, true);
        check("kernel-restricted", false, Level::WorthKnowing, true);
        check("no-symbol", false, Level::Fine, false);
        // Of another version.
        check("never-declared", false, Level::WorthKnowing, false);
        check("never-declared", true, Level::Act, false);
        check("", false, Level::WorthKnowing, false);
    }

    #[test]
    fn a_loss_asks_for_action_by_its_share() {
        let check = |count, received, level: Level| {
            for reason in ["ring-full", "never-declared"] {
                let row = LossRow { count, received, lost: true, ..gap(reason) };
                let found = (row.level(), row.asks_for_action());
                assert_eq!(found, (level, level == Level::Act), "{count} of {received}");
            }
        };
        check(1, 1_000_000, Level::WorthKnowing);
        check(999, 1_000_000, Level::WorthKnowing);
        check(1_000, 1_000_000, Level::Act);
        check(1, 10, Level::Act);
        check(10, 10, Level::Act);
        check(u64::MAX, u64::MAX, Level::Act);
        // A file may say anything, or nothing.
        check(3, 2, Level::Act);
        check(1, 0, Level::Act);
    }

    #[test]
    fn each_line_of_the_table_is_a_reason() {
        for line in DECLARED.lines() {
            let (key, _) = row(line).unwrap();
            assert!(!key.is_empty() && !line.ends_with('\t') && line.split('\t').count() <= 3, "{line}");
        }
    }
}
