//! Text of findings: the first part of a report, and the whole of `analyze`.
//!
//! Owns: the number of findings and places on a page. Because: a reader must first see the conclusion, with its place
//! and a remedy. Does not: draw conclusions.

use std::io::{self, Write};

use deepctx_profile::frame::FrameKind;

use super::{NAME_WIDTH, Names, ShortNames, counted, short_column, without_middle};
use crate::findings::{Check, Finding, Findings, Location, LocationKind, NotChecked};

/// Findings at the top of a report.
const TOP: usize = 5;
/// Widest line of a list.
const WIDTH: usize = 110;

/// The first findings, two lines each.
pub(super) fn top(findings: &Findings, names: Names, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\nFindings, by what could be won at most")?;
    if findings.findings.is_empty() {
        return writeln!(out, "  none: {}", checked(findings));
    }
    let shown = findings.findings.iter().take(TOP);
    let places = shown.clone().flat_map(|finding| &finding.places);
    let places =
        ShortNames::of(places.map(|place| (kind(place), place.name.as_str())), names.width(NAME_WIDTH));
    let width = |width: usize| names.width(width);
    for finding in shown {
        let title = finding.places.iter().fold(finding.title.clone(), |title, place| {
            title.replace(place.name.as_str(), places.get(&place.name))
        });
        writeln!(out, "  {}  {}", gain(finding.weight_percent()), without_middle(&title, width(WIDTH)))?;
        // The title already names the place if the finding has only one.
        let other = finding.places.iter().find(|place| !finding.title.contains(&place.name));
        let place = other.map_or(finding.advice.as_str(), |place| places.get(&place.name));
        let advised = format!("{}: {place}", finding.rule);
        writeln!(out, "           {}", without_middle(&advised, width(WIDTH - 2)))?;
    }
    match findings.findings.len().saturating_sub(TOP) {
        0 => Ok(()),
        more => writeln!(out, "  … {} (deepctx-bpf analyze)", counted(more as u64, "more finding")),
    }
}

/// Every finding with its evidence, and the outcomes of the other rules.
///
/// # Errors
/// Those of `out`.
pub fn write(findings: &Findings, names: Names, out: &mut dyn Write) -> io::Result<()> {
    for (number, finding) in (1..).zip(&findings.findings) {
        one(number, finding, names, out)?;
    }
    if findings.findings.is_empty() {
        writeln!(out, "No findings: {}", checked(findings))?;
    }
    list("Healthy", &findings.rules_with(Check::HEALTHY), out)?;
    not_checked(findings, out)?;
    for check in findings.checks.iter().filter(|check| check.outcome == Check::FAILED) {
        writeln!(out, "Failed: {}: {}", check.rule, check.reason.as_deref().unwrap_or("no reason given"))?;
    }
    out.flush()
}

fn one(number: usize, finding: &Finding, names: Names, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{number}. {}", finding.title)?;
    writeln!(out, "   rule       {}, {} severity", finding.rule, finding.severity)?;
    writeln!(out, "   could win  {}", finding.could_win())?;
    let names = place_names(&finding.places, names.width(NAME_WIDTH));
    for (number, (place, name)) in finding.places.iter().zip(names).enumerate() {
        let title = if number == 0 { "where" } else { "" };
        writeln!(out, "   {title:9}  {}", where_it_is(place, &name))?;
    }
    for (number, figure) in finding.evidence.iter().enumerate() {
        let title = if number == 0 { "evidence" } else { "" };
        writeln!(out, "   {title:9}  {figure}")?;
    }
    let (violations, datapoints) = (finding.violations, finding.datapoints);
    writeln!(out, "              {violations} of {} affected", counted(datapoints, "value"))?;
    for (number, line) in wrapped(&finding.advice).iter().enumerate() {
        let title = if number == 0 { "advice" } else { "" };
        writeln!(out, "   {title:9}  {line}")?;
    }
    let parameters = finding.parameters.iter().map(|(name, value)| format!("{name} = {value}"));
    writeln!(out, "   with       {}\n", parameters.collect::<Vec<_>>().join(", "))
}

/// Kernels and functions have names with parts to leave out; others are only cut.
fn kind(place: &Location) -> FrameKind {
    match place.kind {
        LocationKind::Kernel | LocationKind::Instruction => FrameKind::GpuKernel,
        LocationKind::Function => FrameKind::Native,
        _ => FrameKind::Operator,
    }
}

fn place_names(places: &[Location], width: usize) -> Vec<String> {
    short_column(places.iter().map(|place| (kind(place), place.name.as_str())), width)
}

fn where_it_is(place: &Location, name: &str) -> String {
    let line =
        format!("{:>6}  {name}  {}", percent(place.share_percent), super::without_start(&place.at, 44));
    line.trim_end().to_owned()
}

fn not_checked(findings: &Findings, out: &mut dyn Write) -> io::Result<()> {
    for NotChecked { reason, record_with, rules } in findings.not_checked() {
        let help =
            if record_with.is_empty() { String::new() } else { format!(" (record with {record_with})") };
        list(&format!("Not checked, since {reason}{help}"), &rules, out)?;
    }
    Ok(())
}

fn list(title: &str, names: &[&str], out: &mut dyn Write) -> io::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    writeln!(out, "{title}:")?;
    for line in wrapped(&names.join(", ")) {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Number of rules by outcome: `12 rules checked, 19 lack their input`.
fn checked(findings: &Findings) -> String {
    let checked = findings.checked();
    let lack = findings.rules_with(Check::NOT_CHECKED).len();
    format!("{} checked, {lack} without their input (deepctx-bpf analyze)", counted(checked as u64, "rule"))
}

fn gain(percent: Option<f64>) -> String {
    percent.map_or_else(|| "     ?".to_owned(), |gain| format!("≤{gain:5.1}%"))
}

fn percent(share: f64) -> String {
    format!("{share:.1}%")
}

/// A text in lines, broken at spaces.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + word.chars().count() < WIDTH - 12) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}
