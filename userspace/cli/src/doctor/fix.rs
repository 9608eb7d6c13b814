//! `doctor --fix`: offers each command that fixes something, and runs those that the user accepts.
//!
//! Owns: the prompt, the answer, and running a command as root. Because: a user who reads a hint copies it to the
//! next prompt anyway, but a profiler must not change a machine unasked. Does not: know what is missing, or what
//! fixes it.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use deepctx_capture::doctor::{Check, Remedy};

/// Runs one command. The error is a sentence.
type Runner<'r> = &'r mut dyn FnMut(&[String]) -> Result<(), String>;

/// Asks about each command on `out`, reads answers from `input` (its end means no), and runs the confirmed ones.
///
/// # Errors
/// The question could not be printed, or the answer could not be read.
pub(super) fn offer(
    checks: &[Check],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    run: Runner<'_>,
) -> io::Result<()> {
    let mut offered = 0;
    for check in checks {
        let Some(fix @ Remedy::Command(words)) = &check.fix else { continue };
        offered += 1;
        write!(out, "{}: {}\n  $ {fix}\nrun it? [y/N] ", check.name, check.found)?;
        out.flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            writeln!(out)?;
        }
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            let said = run(words).map_or_else(|error| format!("error: {error}"), |()| "done".to_owned());
            writeln!(out, "{said}")?;
        }
    }
    if offered == 0 {
        writeln!(out, "note: nothing here can be fixed by a command")?;
    }
    Ok(())
}

/// Runs a command as root: directly if this process is root, else through `sudo`.
pub(super) fn as_root(words: &[String]) -> Result<(), String> {
    let sudo = (!rustix::process::geteuid().is_root()).then(|| "sudo".to_owned());
    let mut words = sudo.iter().chain(words);
    let program = words.next().ok_or("no command")?;
    let path = with_folders_of_root(env::var_os("PATH"));
    // Its output must not appear within the list.
    let status = Command::new(program).args(words).env("PATH", path).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A `PATH` with the folders of root's programs, which Debian keeps out of a user's: `su` leaves root with the user's.
fn with_folders_of_root(path: Option<OsString>) -> OsString {
    let folders: Vec<PathBuf> = env::split_paths(&path.unwrap_or_default())
        // An empty one means the current folder.
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .collect();
    env::join_paths(folders).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use deepctx_capture::doctor::State;

    use super::*;

    fn check(answers: &str, expect_run: &[&str], expect_said: &str) {
        let fix = |words: &str| Remedy::Command(words.split(' ').map(str::to_owned).collect());
        let row = |name, fix| Check { name, found: "bad".into(), state: State::Missing, fix };
        let checks = [
            row("rate", Some(fix("sysctl rate=1"))),
            row("BTF", Some("use another kernel".into())),
            row("symbols", Some(fix("sysctl symbols=1"))),
            row("kernel", None),
        ];
        let (mut ran, mut said) = (Vec::new(), Vec::new());
        let mut run = |words: &[String]| {
            ran.push(words.join(" "));
            if ran.len() == 1 { Ok(()) } else { Err("sysctl: refused".to_owned()) }
        };
        offer(&checks, &mut answers.as_bytes(), &mut said, &mut run).unwrap();
        assert_eq!(ran, expect_run, "{answers:?}");
        assert_eq!(String::from_utf8(said).unwrap(), expect_said, "{answers:?}");
    }

    #[test]
    fn only_commands_that_are_wanted_run() {
        let rate = "rate: bad\n  $ sudo sysctl rate=1\nrun it? [y/N] ";
        let symbols = "symbols: bad\n  $ sudo sysctl symbols=1\nrun it? [y/N] ";
        check("y\nn\n", &["sysctl rate=1"], &format!("{rate}done\n{symbols}"));
        check("\nyes\n", &["sysctl symbols=1"], &format!("{rate}{symbols}done\n"));
        check(
            "y\ny\n",
            &["sysctl rate=1", "sysctl symbols=1"],
            &format!("{rate}done\n{symbols}error: sysctl: refused\n"),
        );
        check("", &[], &format!("{rate}\n{symbols}\n"));
    }

    #[test]
    fn nothing_to_run_is_said() {
        let checks = [Check { name: "kernel", found: "6.1".into(), state: State::Enough, fix: None }];
        let mut said = Vec::new();
        offer(&checks, &mut "y\n".as_bytes(), &mut said, &mut |_| unreachable!("nothing is offered"))
            .unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), "note: nothing here can be fixed by a command\n");
    }

    #[test]
    fn commands_of_root_are_found_with_a_users_path() {
        let check = |path: Option<&str>, expect: &str| {
            assert_eq!(with_folders_of_root(path.map(OsString::from)), expect, "{path:?}");
        };
        check(Some("/usr/local/bin:/usr/bin:/bin"), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        check(Some(""), "/usr/sbin:/sbin");
        check(None, "/usr/sbin:/sbin");
    }

    #[test]
    fn what_ends_badly_or_is_not_there_is_a_sentence() {
        let run = |words: &[&str]| {
            // As root, without `sudo`.
            as_root(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        if !rustix::process::geteuid().is_root() {
            return;
        }
        assert_eq!(run(&["true"]), Ok(()));
        assert_eq!(run(&["false"]), Err("false: exit status: 1".to_owned()));
        assert!(run(&["no-such-program"]).unwrap_err().starts_with("no-such-program: No such file"));
    }
}
