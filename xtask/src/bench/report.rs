//! The results of a finished capture, read back through the program's own `report` and `export`.
//!
//! Owns: the form of that JSON. Because: figures on losses and completeness must be those that a user sees. Does not:
//! know the file format of profiles.

use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// One stage of the ledger.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Stage {
    pub(super) name: String,
    pub(super) received: u64,
    pub(super) kept: u64,
    pub(super) merged: u64,
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) gaps: BTreeMap<String, u64>,
}

/// The `report` of a capture.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) stages: Vec<Stage>,
}

impl Report {
    /// Runs `report` on a profile.
    pub(super) fn of(program: &Path, profile: &Path) -> Result<Self> {
        let mut report = Command::new(program);
        report.arg("report").arg(profile).args(["--format", "json"]);
        let text = sh::output(&mut report)?;
        Self::parse(&serde_json::from_str(&text).context("the report is no JSON")?)
    }

    fn parse(report: &Value) -> Result<Self> {
        let stages = report["ledger"].as_array().context("the report has no list `ledger`")?;
        let stages =
            stages.iter().map(stage).collect::<Option<_>>().context("a row of the ledger is not complete")?;
        Ok(Self { stages })
    }

    pub(super) fn stage(&self, name: &str) -> Result<&Stage> {
        self.stages
            .iter()
            .find(|stage| stage.name == name)
            .with_context(|| format!("the ledger has no stage {name}"))
    }

    /// Samples whose user stack was to be walked, and the walks that did not reach the thread's start, by reason.
    pub(super) fn walked_and_cut(&self) -> Result<(u64, BTreeMap<String, u64>)> {
        let resolve = self.stage("resolve")?;
        let cut = NATIVE_GAPS.iter().filter_map(|key| Some(((*key).to_owned(), *resolve.gaps.get(*key)?)));
        Ok((resolve.kept, cut.collect()))
    }

    /// Records that are missing, and that no stage reported as dropped.
    pub(super) fn unexplained(&self) -> u64 {
        let tallies = self.stages.iter().flat_map(|stage| [&stage.gaps, &stage.dropped]);
        tallies.filter_map(|tally| tally.get(UNEXPLAINED)).sum()
    }

    /// Imbalances of the ledger; empty when it adds up.
    pub(super) fn imbalances(&self) -> Vec<String> {
        let mut found = Vec::new();
        for stage in &self.stages {
            let dropped: u64 = stage.dropped.values().sum();
            if stage.received != stage.kept + stage.merged + dropped {
                found.push(format!(
                    "{}: received {}, kept {}, merged {}, dropped {dropped}",
                    stage.name, stage.received, stage.kept, stage.merged
                ));
            }
        }
        let way = |pair: &[Stage]| pair[0].kept != pair[1].received && pair[1].received + pair[1].kept > 0;
        for pair in self.stages.windows(2).filter(|pair| way(pair)) {
            found.push(format!(
                "{} kept {}, {} received {}",
                pair[0].name, pair[0].kept, pair[1].name, pair[1].received
            ));
        }
        found
    }
}

/// Reason for missing records that the kernel programs did not report as dropped.
const UNEXPLAINED: &str = "unexplained-gap";

/// Reasons for truncated native walks.
const NATIVE_GAPS: [&str; 17] = [
    "unknown-process",
    "no-mapping",
    "code-too-new",
    "code-left-out",
    "no-table",
    "no-row",
    "unsupported-rule",
    "register-unknown",
    "stack-unreadable",
    "stack-not-growing",
    "too-many-frames",
    "no-registers",
    "compat-mode",
    "frame-pointer-end",
    "null-pc",
    "table-corrupt",
    "no-other-stack",
];

fn stage(row: &Value) -> Option<Stage> {
    let number = |name: &str| row[name].as_u64();
    let tally = |name: &str| -> Option<BTreeMap<String, u64>> {
        row[name].as_object()?.iter().map(|(key, count)| Some((key.clone(), count.as_u64()?))).collect()
    };
    Some(Stage {
        name: row["stage"].as_str()?.to_owned(),
        received: number("received")?,
        kept: number("kept")?,
        merged: number("merged")?,
        dropped: tally("dropped")?,
        gaps: tally("gaps")?,
    })
}

/// Contexts of a profile with their values.
pub(super) fn folded(program: &Path, profile: &Path) -> Result<Vec<(String, u64)>> {
    let mut export = Command::new(program);
    export.arg("export").arg(profile).args(["--format", "folded", "--metric", "samples", "-o", "-"]);
    let text = sh::output(&mut export)?;
    let parse =
        |line: &str| line.rsplit_once(' ').and_then(|(stack, n)| Some((stack.to_owned(), n.parse().ok()?)));
    let stacks: Vec<(String, u64)> = text.lines().filter_map(parse).collect();
    if stacks.is_empty() {
        bail!("the profile has no samples");
    }
    Ok(stacks)
}

/// The outermost walked frame below each gap, with the gap's reason, most frequent first.
pub(super) fn blamed(stacks: &[(String, u64)]) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, n) in stacks {
        let mut frames = stack.split(';').skip_while(|frame| !frame.starts_with("[unknown: "));
        if let Some(gap) = frames.next() {
            let next = frames.next().unwrap_or("(leaf)");
            *counts.entry(format!("{gap} above {next}")).or_default() += n;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_records_without_a_reason_are_counted() {
        let report = |gaps: &str| {
            let row = format!(
                r#"{{"stage":"kernel","received":9,"kept":8,"merged":0,"dropped":{{"ring-full":1}},"gaps":{gaps}}}"#
            );
            Report::parse(&serde_json::from_str(&format!(r#"{{"ledger":[{row}]}}"#)).unwrap()).unwrap()
        };
        let found = report(r#"{"unexplained-gap":3,"early":5}"#);
        assert_eq!((found.unexplained(), found.imbalances().len()), (3, 0));
        assert_eq!(report("{}").unexplained(), 0);
    }
}
