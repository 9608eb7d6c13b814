//! `--fail-on`: which findings make the exit code 1.
//!
//! Owns: [`FailOn`]. Because: a pipeline that checks for one defect must not fail for another. Does not: find any.

use deepctx_analysis::findings::{Finding, Severity, find};

/// Findings of a rule that are at least this severe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailOn {
    rule: &'static str,
    severity: Severity,
}

impl FailOn {
    /// `RULE` or `RULE:SEVERITY`.
    ///
    /// # Errors
    /// There is no such rule or severity.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (rule, severity) = match text.split_once(':') {
            Some((rule, severity)) => (rule, severity.parse().map_err(|error| format!("{error}"))?),
            None => (text, Severity::Low),
        };
        Ok(FailOn { rule: find(rule).map_err(|error| error.to_string())?.id, severity })
    }

    /// Whether a finding is one of them.
    pub fn matches(&self, finding: &Finding) -> bool {
        finding.rule == self.rule && finding.severity >= self.severity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_conditions_name_a_rule_and_a_severity() {
        let check = |text: &str, expect: Result<Severity, &str>| match (FailOn::parse(text), expect) {
            (Ok(found), Ok(severity)) => assert_eq!(found.severity, severity),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, expect) => panic!("{text}: {found:?}, {expect:?}"),
        };
        check("hotspot", Ok(Severity::Low));
        check("hotspot:high", Ok(Severity::High));
        check("hotspot:huge", Err("expected low, medium or high"));
        check("hotspots", Err("unknown rule `hotspots`"));
    }
}
