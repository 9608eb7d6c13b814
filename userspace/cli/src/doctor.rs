//! `doctor`: what this machine needs for a capture, and how to fix what is missing.
//!
//! Owns: how the checks are printed. Does not: check anything.

mod fix;

use std::io::{self, Write};
use std::path::Path;

use super::failure::{COULD_NOT_RUN, Completion, Failure};
use super::options::{DoctorArgs, TextOrJson};
use super::output;
use deepctx_capture::doctor::{Check, Remedy, checks};

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
    Ok(if checks.iter().all(|check| check.ok) {
        Completion::Fully
    } else {
        Completion::Command(COULD_NOT_RUN)
    })
}

fn text(checks: &[Check], out: &mut dyn Write) -> io::Result<()> {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    for check in checks {
        let mark = if check.ok { "ok     " } else { "MISSING" };
        writeln!(out, "{mark}  {:width$}  {}", check.name, check.found)?;
        if let Some(fix) = &check.fix {
            writeln!(out, "{:9}{:width$}  hint: {fix}", "", "")?;
        }
    }
    Ok(())
}

fn json(checks: &[Check], out: &mut dyn Write) -> io::Result<()> {
    let rows: Vec<_> = checks
        .iter()
        .map(|check| {
            serde_json::json!({ "name": check.name, "found": check.found, "ok": check.ok, "fix": check.fix.as_ref().map(Remedy::to_string) })
        })
        .collect();
    serde_json::to_writer_pretty(&mut *out, &rows)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_requirement_has_a_hint() {
        let checks = [
            Check { name: "kernel", found: "6.1".into(), ok: true, fix: None },
            Check { name: "BTF", found: "none".into(), ok: false, fix: Some("install it".into()) },
        ];
        let mut out = Vec::new();
        text(&checks, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ok       kernel  6.1\nMISSING  BTF     none\n                 hint: install it\n"
        );
    }
}
