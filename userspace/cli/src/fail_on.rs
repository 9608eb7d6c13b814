//! `--fail-on`: which findings make the exit code 1.
//!
//! Owns: [`FailCondition`]. Because: a pipeline that checks for one defect must not fail for another. Does not: find
//! any.

use deepctx_analysis::findings::{Finding, Severity};

/// Matches findings of a rule with at least this severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailCondition {
    rule: String,
    severity: Severity,
}

impl FailCondition {
    /// Parses `RULE` or `RULE:SEVERITY`. Whether the rule exists is checked once the rules file is read.
    ///
    /// # Errors
    /// The severity does not exist.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (rule, severity) = match text.split_once(':') {
            Some((rule, severity)) => (rule, severity.parse().map_err(|error| format!("{error}"))?),
            None => (text, Severity::Low),
        };
        Ok(FailCondition { rule: rule.to_owned(), severity })
    }

    /// Rule name.
    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    /// Minimum severity.
    pub(crate) fn severity(&self) -> Severity {
        self.severity
    }

    /// Whether a finding matches.
    pub(crate) fn matches(&self, finding: &Finding) -> bool {
        finding.rule == self.rule && finding.severity >= self.severity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_conditions_name_a_rule_and_a_severity() {
        let check = |text: &str, expect: Result<Severity, &str>| match (FailCondition::parse(text), expect) {
            (Ok(found), Ok(severity)) => assert_eq!(found.severity, severity),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, expect) => panic!("{text}: {found:?}, {expect:?}"),
        };
        check("hotspot", Ok(Severity::Low));
        check("hotspot:high", Ok(Severity::High));
        check("hotspot:huge", Err("expected low, medium or high"));
    }
}
