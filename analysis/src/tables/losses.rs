//! Losses: what happened to every record, and where the profile has gaps.
//!
//! Owns: [`Losses`]. Because: every report must show how reliable its profile is. Does not: judge.

use std::collections::BTreeMap;

use deepctx_profile::ledger::{CheckTime, Stage, Tally};
use deepctx_profile::profile::Profile;
use deepctx_profile::view::{self, Level};
use serde::Serialize;

/// The account of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Losses {
    /// Records that the first stage in use received.
    pub received: u64,
    /// Records lost at all stages.
    pub lost: u64,
    /// As a share of those received; `None` when nothing was received.
    pub lost_percent: Option<f64>,
    /// Share of stacks without a gap in their native part; `None` without stacks.
    pub complete_percent: Option<f64>,
    /// Key of the reason of most other stacks' gaps.
    pub most_common_gap: Option<&'static str>,
    /// Losses and gaps by reason, in the order of the stages.
    pub losses: Vec<Loss>,
    /// The account of each stage.
    pub ledger: Vec<StageAccount>,
    /// The first place where the ledger does not add up, in words; `None` if it adds up.
    pub imbalance: Option<String>,
}

/// How often records were lost, or kept with a gap, for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// Name of the stage.
    pub stage: String,
    /// Key of the reason.
    pub reason: String,
    /// The reason in one sentence.
    pub sentence: String,
    /// How often.
    pub count: u64,
    /// Whether records were lost; otherwise they were kept with a gap.
    pub lost: bool,
    /// What it asks of the reader. Texts only: programs go by the reason.
    #[serde(skip)]
    pub level: Level,
    /// What helps, or when the reason is expected. Texts only.
    #[serde(skip)]
    pub advice: Option<&'static str>,
}

/// The account of one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageAccount {
    /// Its name.
    pub stage: &'static str,
    /// Records that came in.
    pub received: u64,
    /// Records passed on.
    pub kept: u64,
    /// Records that became part of another one.
    pub merged: u64,
    /// Records lost, by key of the reason.
    pub dropped: BTreeMap<String, u64>,
    /// Gaps in those kept, by key of the reason.
    pub gaps: BTreeMap<String, u64>,
}

impl Losses {
    /// The account of a profile, to which no filter applies.
    pub fn compute(profile: &Profile) -> Self {
        let ledger = &profile.ledger;
        // A truncated profile has records in transit, which is not an error.
        let when = if is_finished(profile) { CheckTime::Finished } else { CheckTime::Running };
        let losses = view::losses(profile).into_iter().map(|row| Loss {
            level: row.level(),
            advice: row.advice(),
            stage: row.stage,
            reason: row.reason,
            sentence: row.sentence,
            count: row.count,
            lost: row.lost,
        });
        Losses {
            received: ledger.received(),
            lost: ledger.lost(),
            lost_percent: ledger.lost_share().map(|share| share * 100.0),
            complete_percent: view::complete_share(ledger).map(|share| share * 100.0),
            most_common_gap: view::most_common_gap(ledger).map(|(reason, _)| reason.key),
            losses: losses.collect(),
            ledger: Stage::ALL.iter().map(|stage| account(profile, *stage)).collect(),
            imbalance: ledger.check(when).err().map(|imbalance| imbalance.to_string()),
        }
    }
}

/// Whether the capture ended well.
pub(crate) fn is_finished(profile: &Profile) -> bool {
    profile.ledger.stage(Stage::Store).gaps.count("not-finished") == 0
}

fn account(profile: &Profile, stage: Stage) -> StageAccount {
    let account = profile.ledger.stage(stage);
    let by_key =
        |tally: &Tally| tally.iter().map(|(reason, n)| (reason.key.clone().into_owned(), n)).collect();
    StageAccount {
        stage: stage.name(),
        received: account.received,
        kept: account.kept,
        merged: account.merged,
        dropped: by_key(&account.dropped),
        gaps: by_key(&account.gaps),
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::ledger::Reason;
    use deepctx_profile::text;

    use super::*;

    #[test]
    fn losses_are_listed_by_stage_and_the_ledger_is_checked() {
        let mut profile = text::parse("P a-1 / n f 1").unwrap();
        assert_eq!(
            (Losses::compute(&profile).lost_percent, Losses::compute(&profile).imbalance),
            (None, None)
        );
        profile.ledger.stage_mut(Stage::Decode).received = 4;
        profile.ledger.dropped(Stage::Decode, Reason::new("short-record", "the record is too short"), 1);
        let found = Losses::compute(&profile);
        assert_eq!((found.received, found.lost, found.lost_percent), (4, 1, Some(25.0)));
        assert_eq!((found.losses[0].reason.as_str(), found.losses[0].lost), ("short-record", true));
        let advice = Some("only damaged or foreign captures show this");
        assert_eq!((found.losses[0].level, found.losses[0].advice), (Level::Act, advice));
        assert_eq!(found.ledger[1].dropped["short-record"], 1);
        assert!(found.imbalance.unwrap().starts_with("stage decode: received 4"));
    }

    #[test]
    fn unfinished_capture_may_have_records_in_flight() {
        let mut profile = text::parse("").unwrap();
        profile.ledger.stage_mut(Stage::Decode).received = 4;
        profile.ledger.gap(Stage::Store, Reason::new("not-finished", "cut short"), 1);
        assert_eq!(Losses::compute(&profile).imbalance, None);
    }
}
