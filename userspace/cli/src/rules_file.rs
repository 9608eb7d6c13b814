//! The file of `--rules`: parameters of built-in rules, and the user's own rules.
//!
//! Owns: its keys, and the error for a bad one. Because: a misspelled key must be an error that lists the known ones,
//! not a threshold that is never used. Does not: know a rule; `analysis` does.

use std::path::Path;

use deepctx_analysis::Query;
use deepctx_analysis::findings::{OwnRule, Settings};
use deepctx_profile::Metric;
use toml::{Table, Value};

use super::failure::Failure;
use super::{config, nearest, python_rules};

/// Maximum size of a rules file.
const SIZE_MAX: u64 = 1 << 20;
/// Key of user rules; no built-in rule has this name.
const OWN: &str = "rule";
/// Keys of a user rule; all but the metric are required.
const KEYS: [&str; 5] = ["name", "path", "metric", "share-above", "advice"];

/// The rules that run during a capture: built-in rules and those of a file, if given.
///
/// # Errors
/// As for [`read`]. Python rules are refused: they run over stored profiles.
pub(crate) fn of_capture(path: Option<&Path>) -> Result<Settings, Failure> {
    let mut settings = Settings::default();
    match path {
        Some(path) if python_rules::is_python(path) => {
            let failure = Failure::new(format_args!(
                "{}: expected a TOML file, since rules in Python need a stored profile",
                path.display()
            ));
            return Err(failure.hint("record first, then `deepctx-bpf analyze run.dctx --rules FILE`"));
        }
        Some(path) => read(path, &mut settings)?,
        None => {}
    }
    Ok(settings)
}

/// Reads a file.
///
/// # Errors
/// It could not be read, or contains something unknown.
pub(crate) fn read(path: &Path, settings: &mut Settings) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > SIZE_MAX {
        return Err(Failure::new(format_args!(
            "{}: expected a small TOML file, found {size} bytes",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    take(&text, settings).map_err(|message| {
        Failure::new(format_args!("{}: {message}", path.display()))
            .hint("docs/findings.md lists parameters, docs/query.md the keys of your own rules")
    })
}

fn take(text: &str, settings: &mut Settings) -> Result<(), String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| config::syntax(text, &error))?;
    for (name, value) in &table {
        match value {
            Value::Array(rules) if name == OWN => {
                for (number, rule) in (1..).zip(rules) {
                    let rule = own_rule(rule).map_err(|message| format!("rule {number}: {message}"))?;
                    settings.add(rule).map_err(|error| error.to_string())?;
                }
            }
            _ if name == OWN => return Err("`rule` must be a list of tables: [[rule]]".to_owned()),
            value => parameters(name, value, settings)?,
        }
    }
    Ok(())
}

/// Reads a rule's table, with a number for each parameter: `[small-kernels] max_us = 20`.
fn parameters(rule: &str, value: &Value, settings: &mut Settings) -> Result<(), String> {
    settings.require(rule).map_err(|error| nearest::settings_error(&error))?;
    let values = value.as_table().ok_or_else(|| format!("`{rule}` must be a table: [{rule}]"))?;
    for (name, value) in values {
        let number = number(value).ok_or_else(|| format!("`{name}` of rule `{rule}` must be a number"))?;
        settings.set(rule, name, number).map_err(|error| nearest::settings_error(&error))?;
    }
    Ok(())
}

fn own_rule(value: &Value) -> Result<OwnRule, String> {
    let table = value.as_table().ok_or("expected a table: [[rule]]")?;
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("unknown key `{unknown}`: expected {}", KEYS.join(", ")));
    }
    let text = |key: &str| -> Result<&str, String> {
        let value = table.get(key).ok_or_else(|| format!("`{key}` is missing"))?;
        value.as_str().ok_or_else(|| format!("`{key}` must be a text"))
    };
    let share = table.get("share-above").ok_or("`share-above` is missing")?;
    let metric = match table.contains_key("metric") {
        true => Some(text("metric")?.parse::<Metric>().map_err(|error| error.to_string())?),
        false => None,
    };
    Ok(OwnRule {
        name: text("name")?.to_owned(),
        path: Query::parse(text("path")?).map_err(|error| format!("`path`: {error}"))?,
        metric,
        share_above: number(share).ok_or("`share-above` must be a number")?,
        advice: text("advice")?.to_owned(),
    })
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use deepctx_analysis::findings::Findings;
    use deepctx_analysis::{Selection, Subset};
    use deepctx_profile::Nanos;

    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Result<(), &str>) {
        let mut settings = Settings::default();
        match (take(text, &mut settings), expect) {
            (Ok(()), Ok(())) => assert_ne!(settings, Settings::default()),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, expect) => panic!("{text}: {found:?}, {expect:?}"),
        }
    }

    #[test]
    fn a_file_sets_parameters_and_reports_unknown_keys() {
        check("[small-kernels]\nmax_us = 20\nmin_percent = 0.5", Ok(()));
        check(
            "[small-kernel]\nmax_us = 20",
            Err("unknown rule `small-kernel`; the nearest are small-kernels, "),
        );
        check("[small-kernels]\nus = 20", Err("has no parameter `us`: expected one of max_us, min_launches"));
        check("[small-kernels]\nmax_us = -1", Err("not negative"));
        check("[small-kernels]\nmax_us = \"a\"", Err("must be a number"));
        check("small-kernels = 20", Err("must be a table"));
        check("[small-kernels", Err("unclosed"));
        check("\n[small-kernels", Err("line 2: "));
    }

    #[test]
    fn a_bad_rule_of_a_user_is_refused() {
        let with = |lines: &str| {
            let given: Vec<&str> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
            let usual = ["name = \"mine\"", "path = \"f\"", "share-above = 1", "advice = \"Do less.\""];
            let rest =
                usual.iter().filter(|line| !given.contains(&line.split(' ').next().unwrap_or_default()));
            let rest: Vec<&str> = rest.copied().collect();
            format!("[[rule]]\n{lines}\n{}", rest.join("\n"))
        };
        check(&with(""), Ok(()));
        check(&with("metric = \"gpu-time\""), Ok(()));
        check(&with("metric = \"gpu\""), Err("rule 1: "));
        check(&with("name = \"My rule\""), Err("expected small letters, digits and hyphens"));
        check(&with("name = \"hotspot\""), Err("there is already a rule `hotspot`"));
        check(&format!("{}\n{}", with(""), with("")), Err("there is already a rule `mine`"));
        check(&with("path = \"pyton:f\""), Err("rule 1: `path`: column 1: unknown kind `pyton`"));
        check(&with("path = 1"), Err("`path` must be a text"));
        check(&with("share-above = 101"), Err("expected a percentage from 0 to 100"));
        check(&with("share-above = nan"), Err("expected a percentage from 0 to 100"));
        check(&with("share-above = \"1\""), Err("must be a number"));
        check(&with("share_above = 1"), Err("unknown key `share_above`: expected name, path, metric"));
        check("[[rule]]\nname = \"mine\"", Err("rule 1: `share-above` is missing"));
        check("[rule]\nname = \"mine\"", Err("must be a list of tables"));
        let many: Vec<String> = (0..101).map(|n| with(&format!("name = \"mine-{n}\""))).collect();
        check(&many.join("\n"), Err("more than 100 rules of your own"));
    }

    /// The output of a rule with `path` and `more` over 300 samples, of which 200 are in `g`.
    fn said(path: &str, more: &str) -> String {
        let mut settings = Settings::default();
        let rule = format!(
            "[[rule]]\nname = \"mine\"\npath = \"{path}\"\nshare-above = 10\nadvice = \"Do less.\"\n{more}"
        );
        take(&rule, &mut settings).unwrap();
        settings.only("mine").unwrap();
        let mut profile =
            deepctx_profile::text::parse("P py-7 / y t.py:f:4 / n g 1\nP py-7 / n h 1").unwrap();
        let leaves = [deepctx_profile::NodeId::from_number(3), deepctx_profile::NodeId::from_number(4)];
        for n in 0..298 {
            profile.tree.add(leaves[usize::from(n % 3 == 0)], Metric::CpuTime, 1);
        }
        let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
        let found = Findings::compute(&subset, Nanos(1), &settings);
        assert_eq!(found.checks.len(), 1);
        match found.findings.first() {
            Some(finding) => {
                format!("{}: {} {} {}", finding.rule, finding.title, finding.places[0].name, finding.advice)
            }
            None => {
                found.checks[0].reason.clone().unwrap_or_else(|| found.checks[0].outcome.clone().into_owned())
            }
        }
    }

    #[test]
    fn a_rule_of_a_user_fires_by_its_share() {
        assert_eq!(
            said("python:f ** native:g", ""),
            "mine: 66% of cpu-time is on paths python:f ** native:g t.py:f:4 Do less."
        );
        assert_eq!(said("native:absent", ""), "healthy");
        assert_eq!(said("native:g", "metric = \"gpu-time\""), "the profile has no values of gpu-time");
    }
}
