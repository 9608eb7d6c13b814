//! Losses: what became of the records of a profile, as rows.
//!
//! Owns: [`losses`], and the rows of the stages. Because: a screen, a report and an export must count the same. Does
//! not: count; see [`crate::ledger`].

use crate::ledger::{Account, LossRow, Stage};
use crate::profile::Profile;
use crate::snapshot::StageRow;

/// What became of the records at each stage that is in use.
pub(super) fn stages(profile: &Profile) -> Vec<StageRow> {
    let row = |stage: &Stage| {
        let account = profile.ledger.stage(*stage);
        let &Account { received, kept, merged, .. } = account;
        StageRow { stage: stage.name(), received, kept, merged, dropped: account.dropped.total() }
    };
    Stage::ALL.iter().map(row).filter(|row| (row.received, row.kept, row.dropped) != (0, 0, 0)).collect()
}

/// Losses and gaps of a profile, in stage order: the ledger's, and what the profile's own tables had to refuse.
pub fn losses(profile: &Profile) -> Vec<LossRow> {
    let mut ledger = profile.ledger.clone();
    for (reason, n) in profile.refusals() {
        ledger.gap(Stage::Attribute, reason, n);
    }
    ledger.rows()
}
