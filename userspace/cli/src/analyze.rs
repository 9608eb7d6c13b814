//! `analyze`: what rules conclude from a stored profile.
//!
//! Owns: the file of rules' parameters, which rules run, and the exit code. Does not: know a rule
//! or draw anything; `analysis` does.

use std::path::Path;

use deepctx_analysis::findings::{Findings, Settings, SettingsError, find};
use deepctx_analysis::{Analysis, Selection, Subset, render};
use deepctx_storage::export::Source;

use super::fail_on::FailOn;
use super::failure::{Done, Failure};
use super::options::{AnalyzeArgs, ReportFormat};
use super::{open, output, selection};

/// A file of parameters larger than this is not one.
const SIZE_MAX: u64 = 1 << 20;

/// Runs it.
///
/// # Errors
/// A rule or a parameter is not known, the profile could not be opened, or the output could not be written.
pub fn run(arguments: &AnalyzeArgs) -> Result<Done, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let settings = settings(arguments)?;
    let opened = open::open(&arguments.profile)?;
    let shown = selection::selection_of(&arguments.selection, &[&opened.profile])?;
    selection::require_matches(&arguments.selection, &[&opened.profile])?;
    let filter = arguments.selection.filter.clone();
    let selection = Selection { filter, ..Selection::of(shown.metric) };
    let subset = Subset::new(&opened.profile, &Selection { shown, ..selection });
    let analysis = Analysis::compute(&subset, opened.elapsed, &settings);
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        ReportFormat::Text => render::text::write_findings(&analysis.findings, out),
        ReportFormat::Json => render::json::write(&analysis, out),
        ReportFormat::Html => {
            let source = Source { profile: subset.profile(), selection: shown, elapsed: opened.elapsed };
            render::html::write_findings(&source, &analysis.findings, out)
        }
    })?;
    Ok(done(&analysis.findings, &arguments.fail_on))
}

fn done(found: &Findings, fail_on: &[FailOn]) -> Done {
    let fails = |of: &FailOn| found.findings.iter().any(|finding| of.matches(finding));
    if fail_on.iter().any(fails) { Done::WithFindings } else { Done::Fully }
}

fn settings(arguments: &AnalyzeArgs) -> Result<Settings, Failure> {
    let mut settings = Settings::default();
    for rule in &arguments.only {
        settings.only(rule).map_err(|error| failure("--only", &error))?;
    }
    for rule in &arguments.skip {
        settings.skip(rule).map_err(|error| failure("--skip", &error))?;
    }
    if let Some(path) = &arguments.rules {
        let text = read(path)?;
        parameters(&text, &mut settings).map_err(|message| {
            Failure::new(format_args!("{}: {message}", path.display())).hint("see docs/findings.md")
        })?;
    }
    Ok(settings)
}

fn failure(option: &str, error: &SettingsError) -> Failure {
    Failure::new(format_args!("{option}: {error}")).hint("see docs/findings.md")
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > SIZE_MAX {
        return Err(Failure::new(format_args!(
            "{}: expected a small TOML file, found {size} bytes",
            path.display()
        )));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// A table for each rule, a number for each parameter: `[small-kernels] max_us = 20`.
fn parameters(text: &str, settings: &mut Settings) -> Result<(), String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    for (rule, value) in &table {
        find(rule).map_err(|error| error.to_string())?;
        let values = value.as_table().ok_or_else(|| format!("`{rule}` must be a table: [{rule}]"))?;
        for (name, value) in values {
            let number = match value {
                toml::Value::Integer(number) => *number as f64,
                toml::Value::Float(number) => *number,
                _ => return Err(format!("`{name}` of rule `{rule}` must be a number")),
            };
            settings.set(rule, name, number).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_sets_parameters_and_names_what_it_does_not_know() {
        let check = |text: &str, expect: Result<(), &str>| {
            let mut settings = Settings::default();
            match (parameters(text, &mut settings), expect) {
                (Ok(()), Ok(())) => assert_ne!(settings, Settings::default()),
                (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
                (found, expect) => panic!("{text}: {found:?}, {expect:?}"),
            }
        };
        check("[small-kernels]\nmax_us = 20\nmin_percent = 0.5", Ok(()));
        check("[small-kernel]\nmax_us = 20", Err("unknown rule `small-kernel`: expected one of hotspot, "));
        check("[small-kernels]\nus = 20", Err("has no parameter `us`: expected one of max_us, min_launches"));
        check("[small-kernels]\nmax_us = -1", Err("not negative"));
        check("[small-kernels]\nmax_us = \"a\"", Err("must be a number"));
        check("small-kernels = 20", Err("must be a table"));
        check("[small-kernels", Err("unclosed"));
    }

    /// What a rule tells a user to pass to `record` must exist.
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
            .filter_map(|check| check.record_with)
            .flat_map(|options| options.split([' ', ',']))
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(options.len() > 10);
        for option in options {
            assert!(known.iter().any(|of| of == option), "{option}");
        }
    }
}
