//! Tab of the findings.
//!
//! Owns: the content and order of its sheets. Because: the reader must see why a conclusion holds, and which rules did
//! not run. Does not: draw conclusions; text and JSON have the same figures.

use deepctx_profile::units::counted;
use deepctx_storage::export::html::{Column, Form, Tab};

use super::percent;
use crate::findings::{Check, Finding, Findings};

/// Texts of a sheet.
const TEXTS: usize = 12;

/// Kinds of the texts; the first one is the heading.
fn columns() -> [Column; TEXTS] {
    [
        Column::text("Finding"),
        Column::text("Could win"),
        Column::text("Severity"),
        Column::code("Where"),
        Column::text("Evidence"),
        Column::text("Affected"),
        Column::text("What to do"),
        Column::code("Rule"),
        Column::code("Parameters"),
        Column::text("Cause"),
        Column::code("Record with"),
        Column::code("Rules"),
    ]
}

/// A sheet for each finding, then those for the outcomes of the other rules.
pub(super) fn tab(found: &Findings) -> Tab {
    let none = found.findings.is_empty().then(|| heading("No findings".to_owned()));
    let rows = none.into_iter().chain(found.findings.iter().map(finding)).chain(others(found));
    Tab {
        id: "findings".to_owned(),
        title: "Findings".to_owned(),
        columns: columns().to_vec(),
        rows: rows.collect(),
        left_out: 0,
        form: Form::Sheets,
    }
}

fn heading(text: String) -> Vec<String> {
    let mut texts = vec![String::new(); TEXTS];
    texts[0] = text;
    texts
}

fn finding(of: &Finding) -> Vec<String> {
    let places = of.places.iter().map(|place| {
        let line = format!("{} {}  {}", percent(place.share_percent), place.name, place.at);
        line.trim_end().to_owned()
    });
    let parameters = of.parameters.iter().map(|(name, value)| format!("{name} = {value}"));
    let mut texts = vec![
        of.title.clone(),
        of.could_win(),
        of.severity.to_string(),
        lines(places),
        lines(of.evidence.iter().map(ToString::to_string)),
        format!("{} of {}", of.violations, counted(of.datapoints, "value")),
        of.advice.clone(),
        of.rule.clone(),
        parameters.collect::<Vec<_>>().join(", "),
    ];
    texts.resize(TEXTS, String::new());
    texts
}

/// Rules that failed, that lack input, that found nothing.
fn others(found: &Findings) -> Vec<Vec<String>> {
    let sheet = |title: String, cause: &str, record_with: &str, rules: &[&str]| {
        let mut texts = heading(title);
        texts[TEXTS - 3..].clone_from_slice(&[cause.to_owned(), record_with.to_owned(), rules.join(", ")]);
        texts
    };
    let failed = found.checks.iter().filter(|check| check.outcome == Check::FAILED).map(|check| {
        sheet("Failed".to_owned(), check.reason.as_deref().unwrap_or("no reason given"), "", &[&check.rule])
    });
    let not_checked = found.not_checked().into_iter();
    let not_checked =
        not_checked.map(|of| sheet("Not checked".to_owned(), of.reason, of.record_with, &of.rules));
    let healthy = found.rules_with(Check::HEALTHY);
    let healthy = (!healthy.is_empty()).then(|| sheet("Healthy".to_owned(), "", "", &healthy));
    failed.chain(not_checked).chain(healthy).collect()
}

fn lines(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use deepctx_profile::units::Nanos;

    use super::*;
    use crate::findings::Settings;

    #[test]
    fn a_finding_has_what_its_text_has() {
        let stacks = "P a-1 / n main / n gomp_barrier_wait 10000000\n".repeat(60)
            + &"P a-1 / n main / n work 10000000\n".repeat(40);
        let profile = deepctx_profile::text::parse(&stacks).unwrap();
        let found = Findings::of_profile(&profile, Nanos(1_000_000_000), &Settings::default());
        let mut text = Vec::new();
        crate::render::text::write_findings(&found, crate::render::text::Names::Short, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = words(&text);
        let tab = tab(&found);
        let (sheets, others) = tab.rows.split_at(found.findings.len());
        for (sheet, of) in sheets.iter().zip(&found.findings) {
            assert!(!of.evidence.is_empty() && sheet[4].contains("(measured)"), "{sheet:?}");
            for said in [0, 1, 4, 5, 6, 8].iter().flat_map(|column| sheet[*column].lines()) {
                assert!(text.contains(&words(said)), "no `{said}` in {text}");
            }
            assert_eq!(sheet[2], of.severity.to_string());
        }
        for rule in others.iter().flat_map(|sheet| sheet[11].split(", ")) {
            assert!(text.contains(rule), "{rule}");
        }
        let named: usize = others.iter().map(|sheet| sheet[11].split(", ").count()).sum();
        assert_eq!(named + found.rules_with(Check::FINDINGS).len(), found.checks.len());
        assert!(others.iter().any(|sheet| sheet[0] == "Not checked" && sheet[10].contains("--off-cpu")));
        assert!(others.iter().any(|sheet| sheet[0] == "Healthy"));
    }
}
