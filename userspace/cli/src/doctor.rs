//! `doctor`: what this machine needs for a capture, and how to fix what is missing.
//!
//! Owns: how the checks are printed. Does not: check anything.

mod fix;

use std::io::{self, Write};
use std::path::Path;

use super::failure::{COULD_NOT_RUN, Completion, Failure};
use super::options::{DoctorArgs, TextOrJson};
use super::output;
use deepctx_capture::doctor::{Check, Remedy, State, checks};

/// Runs the command. The exit code is 2 when a requirement is missing.
///
/// # Errors
/// The output could not be written.
pub(crate) fn run(arguments: &DoctorArgs) -> Result<Completion, Failure> {
    let mut checks = checks();
    if arguments.fix {
        fix::offer(&checks, &mut io::stdin().lock(), &mut io::stderr(), &mut fix::as_root)
            .map_err(|error| Failure::io("the terminal", &error))?;
        checks = deepctx_capture::doctor::checks();
    }
    output::write(Path::new("-"), false, |out| match arguments.format {
        TextOrJson::Text => text(&checks, out),
        TextOrJson::Json => json(&checks, out),
    })?;
    Ok(if checks.iter().all(Check::ok) { Completion::Fully } else { Completion::Command(COULD_NOT_RUN) })
}

fn text(checks: &[Check], out: &mut dyn Write) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    for check in checks {
        let mark = match check.state {
            State::Enough => "ok",
            State::Less => "-",
            State::Missing => "MISSING",
        };
        writeln!(out, "{mark:7}  {:width$}  {}", check.name, check.found)?;
        if let Some(fix) = &check.fix {
            writeln!(out, "{:9}{:width$}  hint: {fix}", "", "")?;
        }
    }
    writeln!(out, "\n{}", verdict(checks))
}

/// One line for those who read no other.
fn verdict(checks: &[Check]) -> String {
    let names = |state| {
        let found = checks.iter().filter(|check| check.state == state).map(|check| check.name);
        found.collect::<Vec<_>>().join(", ")
    };
    match (names(State::Missing), names(State::Less)) {
        (missing, less) if missing.is_empty() && less.is_empty() => "ready to capture".to_owned(),
        (missing, less) if missing.is_empty() => format!("ready to capture; none or less of: {less}"),
        (missing, _) => format!("not ready: {missing}"),
    }
}

fn json(checks: &[Check], out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            let state = match check.state {
                State::Enough => "enough",
                State::Less => "less",
                State::Missing => "missing",
            };
            let fix = check.fix.as_ref().map(Remedy::to_string);
            serde_json::json!({ "name": check.name, "found": check.found, "ok": check.ok(), "state": state, "fix": fix })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, state: State, fix: Option<Remedy>) -> Check {
        Check { name, found: "it".into(), state, fix }
    }

    #[test]
    fn each_result_has_a_mark_and_maybe_a_hint() {
        let checks = [
            check("kernel", State::Enough, None),
            check("driver", State::Less, None),
            check("BTF", State::Missing, Some("install it".into())),
        ];
        let mut out = Vec::new();
        text(&checks, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ok       kernel  it\n-        driver  it\nMISSING  BTF     it\n                 hint: install it\n\n\
             not ready: BTF\n"
        );
    }

    #[test]
    fn the_last_line_says_whether_a_capture_is_possible() {
        let kernel = check("kernel", State::Enough, None);
        let driver = check("driver", State::Less, None);
        let btf = check("BTF", State::Missing, None);
        assert_eq!(verdict(std::slice::from_ref(&kernel)), "ready to capture");
        assert_eq!(verdict(&[kernel, driver.clone()]), "ready to capture; none or less of: driver");
        assert_eq!(verdict(&[driver, btf]), "not ready: BTF");
    }
}
