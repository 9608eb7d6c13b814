//! Loops with one defect each and twins without it, and the findings of `analyze` for both.
//!
//! Owns: which part of a recording a loop is, and the expected findings of a pair. Because: a rule that always fires
//! finds every defect; the twin shows that it finds nothing else. Does not: record.

use crate::cli_support::expect_code;
use serde_json::Value;

/// Rules about the machine, whose CPUs and disks other programs use too, and about where time goes, which is no defect.
const NO_DEFECTS: [&str; 9] = [
    "cpu-limit",
    "cpu-pressure",
    "cpu-queue",
    "cpu-steal",
    "gpu-throttling",
    "hotspot",
    "io-bottleneck",
    "io-pressure",
    "memory-pressure",
];

/// A loop of a program that runs below a function `defect` and below its `twin`.
pub(crate) struct Case {
    /// Its function.
    pub(crate) name: &'static str,
    /// The rule that detects the defect.
    pub(crate) rule: &'static str,
    /// The line that the finding must name first.
    pub(crate) place: String,
}

/// The output of `analyze`.
pub(crate) struct Analysis(Value);

impl Analysis {
    /// Analyzes a profile or a part of it.
    pub(crate) fn of(file: &str, options: &[&str]) -> Self {
        let said = expect_code(0, &[&["analyze", file, "--format", "json"], options].concat());
        Self(serde_json::from_str(&said).unwrap())
    }

    fn list(&self, field: &str) -> impl Iterator<Item = &Value> {
        self.0[field].as_array().unwrap().iter()
    }

    /// The result of a rule.
    fn check(&self, rule: &str) -> &Value {
        self.list("checks").find(|check| check["rule"] == rule).unwrap()
    }

    /// The outcome of a rule.
    pub(crate) fn outcome(&self, rule: &str) -> &str {
        self.check(rule)["outcome"].as_str().unwrap()
    }

    /// The findings of a rule.
    pub(crate) fn findings(&self, rule: &str) -> impl Iterator<Item = &Value> {
        self.list("findings").filter(move |finding| finding["rule"] == rule)
    }

    /// The first finding of a rule.
    pub(crate) fn finding(&self, rule: &str) -> Option<&Value> {
        self.findings(rule).next()
    }

    /// Rules with findings that are program defects.
    pub(crate) fn defects(&self) -> Vec<&str> {
        let rules = self.list("findings").map(|finding| finding["rule"].as_str().unwrap());
        rules.filter(|rule| !NO_DEFECTS.contains(rule)).collect()
    }
}

impl Case {
    /// Analyses of defect and twin in one recording.
    fn analyses(&self, file: &str, options: &[&str]) -> [Analysis; 2] {
        ["defect", "twin"].map(|kind| {
            let path = format!("python:{kind} ** python:{}", self.name);
            Analysis::of(file, &[&["--path", &path], options].concat())
        })
    }

    /// Expects a finding for the defect at its place and none for the twin. Returns the problems.
    pub(crate) fn problems(&self, [defect, twin]: [Analysis; 2]) -> Vec<String> {
        let Case { name, rule, place } = self;
        let mut problems = Vec::new();
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rules.md")).unwrap();
        let is_row = |line: &str| {
            line.starts_with(&format!("| `{name}` |")) && line.contains(&format!("| `{rule}` |"))
        };
        if !page.lines().any(is_row) {
            problems.push(format!("{name} with {rule} is not in docs/rules.md"));
        }
        match defect.finding(rule) {
            Some(finding) => {
                println!("| {name} | `{rule}` | {} | {} |", finding["title"], twin.defects().len());
                let mut places = finding["places"].as_array().unwrap().iter();
                let line = places.find(|place| place["kind"] == "line");
                if line.is_none_or(|line| line["name"] != **place) {
                    problems.push(format!("{name}: {rule} is not at {place}: {finding:#}"));
                }
            }
            None => problems.push(format!("{name}: {rule} says {:#}", defect.check(rule))),
        }
        if twin.outcome(rule) != "healthy" || !twin.defects().is_empty() {
            problems.push(format!("twin of {name}: {rule} says {}: {:#}", twin.outcome(rule), twin.0));
        }
        problems
    }
}

/// Expects that for all cases in one recording.
#[track_caller]
pub(crate) fn hold(cases: &[Case], file: &str, options: &[&str]) {
    let of = |case: &Case| case.problems(case.analyses(file, options));
    let problems: Vec<String> = cases.iter().flat_map(of).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
