//! `--fail-on`: which findings make the exit code 1.
//!
//! Owns: [`FailCondition`]. Because: a pipeline that checks for one defect must not fail for another. Does not: find
//! any.

use deepctx_analysis::findings::{Finding, Severity};

/// Findings of a rule that are at least this severe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailCondition {
    rule: String,
    severity: Severity,
}

impl FailCondition {
    /// `RULE` or `RULE:SEVERITY`. Whether there is such a rule is known once the file of rules is read.
    ///
    /// # Errors
    /// There is no such severity.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (rule, severity) = match text.split_once(':') {
            Some((rule, severity)) => (rule, severity.parse().map_err(|error| format!("{error}"))?),
            None => (text, Severity::Low),
        };
        Ok(FailCondition { rule: rule.to_owned(), severity })
    }

    /// Name of the rule.
    pub(crate) fn rule(&self) -> &str {
        &self.rule
    }

    /// The least severity.
    pub(crate) fn severity(&self) -> Severity {
        self.severity
    }

    /// Whether a finding is one of them.
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
