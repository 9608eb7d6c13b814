//! `analyze`: what rules find in a stored profile.
//!
//! Owns: which rules run, and the exit code. Because: rules come from three places, and one of them is a program. Does
//! not: know a rule or draw anything; `analysis` does.

use deepctx_analysis::findings::{ExternalRule, Findings, Settings, SettingsError};
use deepctx_analysis::{Analysis, Selection, Subset, render};
use deepctx_storage::export::Source;

use super::fail_on::FailCondition;
use super::failure::{Completion, Failure};
use super::options::{AnalyzeArgs, ReportFormat};
use super::{lanes, nearest, open, output, python_rules, rules_file, selection};
use crate::confinement::Confinement;

/// Runs the command.
///
/// # Errors
/// A rule or a parameter is not known, the profile could not be opened, or the output could not be written.
pub(crate) fn run(arguments: &AnalyzeArgs) -> Result<Completion, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let (settings, external) = settings(arguments)?;
    Confinement::of_files(&[&arguments.profile], &arguments.output).enter_and_log();
    let opened = open::open(&arguments.profile)?;
    arguments.selection.require_memory_for(&opened.profile)?;
    let shown = selection::selection_of(&arguments.selection.live, &[&opened.profile])?;
    let rows = Selection::of(shown.metric).rows;
    let has_ranks = deepctx_storage::may_have_ranks(&arguments.profile);
    let job = if has_ranks { lanes::job(&arguments.profile) } else { None };
    let selected = arguments.selection.selected(shown, rows);
    let subset = Subset::new(&opened.profile, &selected).with_events(job.as_deref());
    selection::require_matches(&arguments.selection, &[subset.profile()], &[&opened.profile])?;
    let mut analysis = Analysis::compute(&subset, opened.elapsed, &settings);
    analysis.findings.add(external, &settings);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        ReportFormat::Text => {
            let names = match arguments.full_names {
                true => render::text::Names::Full,
                false => render::text::Names::Short,
            };
            render::text::write_findings(&analysis.findings, names, out)
        }
        ReportFormat::Json => render::json::write(&analysis, out),
        ReportFormat::Html => {
            let mut page = shown;
            page.metric = arguments.selection.opening_metric(&selected, &opened.profile, opened.elapsed);
            let profile = subset.profile();
            let source = Source { profile, selection: page, elapsed: opened.elapsed, folds: true };
            render::html::write_findings(&source, &analysis.findings, out)
        }
    })?;
    Ok(done(&analysis.findings, &arguments.fail_on))
}

fn done(found: &Findings, fail_on: &[FailCondition]) -> Completion {
    let fails = |of: &FailCondition| found.findings.iter().any(|finding| of.matches(finding));
    if fail_on.iter().any(fails) { Completion::WithFindings } else { Completion::Fully }
}

/// The rules to run, and the results of rules written in Python.
fn settings(arguments: &AnalyzeArgs) -> Result<(Settings, Vec<ExternalRule>), Failure> {
    let mut settings = Settings::default();
    let mut external = Vec::new();
    // First, because other options may name the file's rules.
    if let Some(path) = &arguments.rules {
        if python_rules::is_python(path) {
            external = python_rules::run(path, &arguments.profile, &arguments.selection)?;
            for rule in &external {
                let added = settings.add_external(&rule.check.rule);
                added.map_err(|error| failure(&path.display().to_string(), &error))?;
            }
        } else {
            rules_file::read(path, &mut settings)?;
        }
    }
    for rule in &arguments.only {
        settings.only(rule).map_err(|error| failure("--only", &error))?;
    }
    for rule in &arguments.skip {
        settings.skip(rule).map_err(|error| failure("--skip", &error))?;
    }
    for condition in &arguments.fail_on {
        settings.require(condition.rule()).map_err(|error| failure("--fail-on", &error))?;
    }
    Ok((settings, external))
}

fn failure(option: &str, error: &SettingsError) -> Failure {
    let error = nearest::settings_error(error);
    Failure::new(format_args!("{option}: {error}")).hint("see docs/findings.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options that rules recommend for `record` must exist.
    #[test]
    fn options_that_rules_name_exist() {
        use clap::CommandFactory as _;

        let command = crate::options::Cli::command();
        let record = command.get_subcommands().find(|sub| sub.get_name() == "record").unwrap();
        let known: Vec<String> =
            record.get_arguments().filter_map(|of| of.get_long().map(|long| format!("--{long}"))).collect();
        let profile = deepctx_profile::text::parse("P a-1 / n f 1").unwrap();
        let subset = Subset::new(&profile, &Selection::of(deepctx_profile::Metric::CpuTime));
        let found = Findings::compute(&subset, deepctx_profile::Nanos(1), &Settings::default());
        let options: Vec<&str> = found
            .checks
            .iter()
            .filter_map(|check| check.record_with.as_deref())
            .flat_map(|options| options.split([' ', ',']))
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(options.len() > 10);
        for option in options {
            assert!(known.iter().any(|of| of == option), "{option}");
        }
    }
}
