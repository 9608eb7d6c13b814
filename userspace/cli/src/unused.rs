//! Unused: options that were typed and have no effect beside the others.
//!
//! Owns: a sentence about each. Because: who types an option expects it to do something. Does not: mind variables and
//! files, which hold for many commands, or refuse anything. Options of a capture are checked where they are used
//! ([`crate::target`]).

use clap::ArgMatches;
use clap::parser::ValueSource;
use deepctx_storage::export::Format;

use super::options::ReportFormat;

/// A sentence about each typed option without effect.
pub(crate) fn sentences(matches: &ArgMatches) -> Vec<&'static str> {
    let checks = match matches.subcommand() {
        Some(("report", of)) => of_report(of),
        Some(("export", of)) => of_export(of),
        Some(("record", of)) => vec![(
            is_typed(of, "flush") && of.contains_id("keep"),
            "--flush has no effect with --keep, which writes on request",
        )],
        _ => Vec::new(),
    };
    checks.into_iter().filter(|(is_unused, _)| *is_unused).map(|(_, sentence)| sentence).collect()
}

fn is_typed(of: &ArgMatches, option: &str) -> bool {
    of.value_source(option) == Some(ValueSource::CommandLine)
}

fn of_report(of: &ArgMatches) -> Vec<(bool, &'static str)> {
    let format = of.get_one::<ReportFormat>("format").copied();
    let has_tables = of.contains_id("table");
    let peaks = is_typed(of, "peak_flops") || is_typed(of, "peak_bandwidth");
    vec![
        (
            peaks && !has_tables && format != Some(ReportFormat::Html),
            "--peak-flops and --peak-bandwidth have no effect without --table or `--format html`",
        ),
        (
            is_typed(of, "all") && (has_tables || format != Some(ReportFormat::Text)),
            "--all has no effect with --table, or with a --format other than text",
        ),
        (
            is_typed(of, "full_names") && format != Some(ReportFormat::Text),
            "--full-names has no effect with a --format other than text: they have full names",
        ),
    ]
}

fn of_export(of: &ArgMatches) -> Vec<(bool, &'static str)> {
    let format = of.get_one::<Format>("format").copied();
    let is_drawn = matches!(format, Some(Format::Svg | Format::Html));
    vec![
        (
            is_typed(of, "sums") && !format.is_some_and(Format::has_events),
            "--sums has no effect on this format: those with single events are chrome and perfetto",
        ),
        (
            is_typed(of, "no_fold") && !is_drawn,
            "--no-fold has no effect on this format: only svg and html leave frames out",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::options::Cli;
    use super::*;

    #[track_caller]
    fn check(words: &str, expect: &[&str]) {
        let words = format!("deepctx-bpf {words}");
        let matches = Cli::command().try_get_matches_from(words.split_whitespace()).unwrap();
        let said = sentences(&matches);
        let names: Vec<&str> = said.iter().filter_map(|sentence| sentence.split(' ').next()).collect();
        assert_eq!(names, expect, "{words}");
    }

    #[test]
    fn typed_options_without_effect_are_named() {
        let peaks = "--peak-flops 1T --peak-bandwidth 1G";
        check(&format!("report x {peaks}"), &["--peak-flops"]);
        check(&format!("report x {peaks} --table kernels"), &[]);
        check(&format!("report x {peaks} --format html"), &[]);
        check("report x --all", &[]);
        check("report x --all --format json", &["--all"]);
        check("report x --all --table kernels", &["--all"]);
        check("report x --full-names --table kernels", &[]);
        check("report x --full-names --format json", &["--full-names"]);
        check("export x --format folded --sums --no-fold", &["--sums", "--no-fold"]);
        check("export x --format perfetto --sums", &[]);
        check("export x --format svg --no-fold", &[]);
        check("record --keep 10s --flush 1s", &["--flush"]);
        check("record --flush 1s", &[]);
        check("record --keep 10s", &[]);
    }
}
