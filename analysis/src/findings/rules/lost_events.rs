//! Profiles that lost too many events to be reliable.

use deepctx_profile::ledger::Stage;

use super::{Draft, Facts, Outcome, Rule, Values, written};
use crate::findings::finding::{Figure, Gain};
use crate::findings::reason;
use crate::findings::rule::Parameter;

pub(super) const RULE: Rule = Rule {
    id: "lost-events",
    what: "records that were lost, so that figures are too low",
    definition: "lost records / received records > `max_percent`",
    source: "own rule",
    origin: "",
    needs: "the account of a capture",
    parameters: &[Parameter { name: "max_percent", default: 1.0, source: "own" }],
    check,
};

fn check(facts: &Facts<'_>, values: &Values<'_>) -> Outcome {
    let ledger = &facts.profile().ledger;
    let Some(share) = ledger.lost_share() else {
        return Outcome::missing(reason::NO_RECORD_COUNTS);
    };
    let (share, datapoints) = (share * 100.0, ledger.received());
    if share <= values.get("max_percent") {
        return Outcome::Healthy { datapoints };
    }
    let at = Stage::ALL.iter().max_by_key(|stage| ledger.stage(**stage).dropped.total());
    let draft = Draft {
        title: format!(
            "{} of all records were lost, most of them in stage {}: do not trust small differences",
            written(share),
            at.map_or("", |stage| stage.name())
        ),
        metric: "records",
        share_percent: share,
        gain: Gain::Unknown { because: "no time is won: figures become true".into() },
        places: Vec::new(),
        evidence: vec![Figure::measured("lost records", ledger.lost() as f64, "count")],
        advice: "Sample less often (--freq), record fewer features (--probe) or stacks (--launch-stacks \
                 100/s); docs/loss.md explains each reason.",
        datapoints,
        violations: ledger.lost(),
    };
    Outcome::Findings(vec![draft.finding(values)])
}
