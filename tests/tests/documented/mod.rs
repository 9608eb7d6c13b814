//! Task pages, followed as a reader would.
//!
//! Owns: which lines of a page are its commands, which words a reader should find, and running the commands unchanged.
//! Because: output on a page is right on the day of its recording, and the program changes. Does not: start the
//! programs that a page profiles; each test does.
//!
//! A recording on a page lasts some seconds. Here it lasts until the commands after it print the expected words: that
//! time depends on other load on the machine.
//!
//! Under the heading "What to look at" each item of a list begins with words between backticks. They must be in the
//! output on the page, and in the output of its commands here.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli_support::recording::{LONGEST, LOOK_EVERY, comes};
use crate::cli_support::{program, signal, stderr, stdout};

/// Metrics that get values only when a recording ends (docs/memory.md): not awaited.
const AT_THE_END: [&str; 2] = ["live-bytes", "peak-bytes"];

/// How to follow a page.
#[derive(Default)]
pub(crate) struct Reader<'a> {
    /// Folder in which the commands run and leave their profiles.
    pub(crate) folder: Option<&'a Path>,
    /// The process id for `--pid`.
    pub(crate) pid: String,
    /// Words of the commands and their replacements.
    pub(crate) instead: &'a [(&'a str, &'a str)],
    /// Additional variables for the commands.
    pub(crate) variables: &'a [(&'a str, OsString)],
    /// Prefix of commands without `sudo`, which sets their user.
    pub(crate) user: &'a [&'a str],
}

impl Reader<'_> {
    /// Runs the commands of a page, and looks for the listed text.
    #[track_caller]
    pub(crate) fn follows(&self, page: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs").join(page);
        let text = std::fs::read_to_string(path).unwrap();
        let commands = console(&text);
        let shown: String = commands.iter().map(|(_, shown)| shown.as_str()).collect();
        let expected = to_look_at(&text);
        assert!(
            !commands.is_empty() && !expected.is_empty(),
            "{page} has no commands, or says of nothing to look at it"
        );
        let mut said = String::new();
        for (at, (command, _)) in commands.iter().enumerate() {
            let behind =
                commands[at + 1..].iter().take_while(|(command, _)| without_duration(command).is_none());
            let is_all_there = |said: &str| {
                let (mut said, mut at_the_end) = (said.to_owned(), String::new());
                for (command, shown) in behind.clone() {
                    let (succeeds, text) = self.run_command(command);
                    said += &text;
                    let is_of_end = AT_THE_END.iter().any(|metric| command.contains(metric));
                    at_the_end += if !succeeds && is_of_end { shown } else { "" };
                }
                let is_said = |words: &&str| said.contains(*words);
                expected.iter().any(is_said)
                    && expected.iter().all(|words| is_said(words) || at_the_end.contains(words))
            };
            said += &match without_duration(command) {
                Some(command) => self.record(&command, || is_all_there(&said)),
                None => self.run(command),
            };
        }
        for words in expected {
            assert!(shown.contains(words), "{page}: not in its own output: {words}");
            assert!(said.contains(words), "{page}: not said here: {words}\n{said}");
        }
    }

    /// Runs a command of a page. Returns its whole output.
    fn run(&self, command: &str) -> String {
        self.run_command(command).1
    }

    /// The same, with whether it succeeded.
    fn run_command(&self, command: &str) -> (bool, String) {
        let (mut process, line) = self.process("", command);
        let output = process.output().unwrap();
        (output.status.success(), format!("$ {line}\n{}{}", stderr(&output), stdout(&output)))
    }

    /// The same for a recording, which ends once enough is recorded.
    fn record(&self, command: &str, is_enough: impl Fn() -> bool) -> String {
        // The shell execs it, so that it gets the signal.
        let (mut process, line) = self.process("exec ", command);
        let mut recording = process.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let manifest = self.folder.unwrap().join("run.dctx/manifest.json");
        // Commands on a page may fail, and before the first flush there is nothing to open. A missing result is missing
        // in the output.
        comes(LONGEST, LOOK_EVERY, || {
            recording.try_wait().unwrap().is_some() || (manifest.exists() && is_enough())
        });
        if recording.try_wait().unwrap().is_none() {
            signal(&recording.id().to_string(), "INT");
        }
        let output = recording.wait_with_output().unwrap();
        format!("$ {line}\n{}{}", stderr(&output), stdout(&output))
    }

    /// A page's command as a process of a shell with this prefix, and the command line as run.
    fn process(&self, for_shell: &str, command: &str) -> (Command, String) {
        let mut line = with_pid(command, &self.pid);
        for (on_page, here) in self.instead {
            line = line.replace(on_page, here);
        }
        let as_root = line.strip_prefix("sudo ");
        let words = format!("{for_shell}{}", as_root.unwrap_or(&line));
        let shell = ["sh", "-c", &words];
        let words = if as_root.is_some() { shell.to_vec() } else { [self.user, &shell].concat() };
        let mut process = Command::new(words[0]);
        process.args(&words[1..]);
        // Runs like the tests' program: without options from elsewhere.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("DEEPCTX_"))
        {
            process.env_remove(name);
        }
        let folder = self.folder.unwrap();
        let built = Path::new(program().get_program()).parent().unwrap().to_owned();
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Added by `sudo`.
        let of_root = std::path::PathBuf::from("/usr/sbin");
        let folders =
            [folder.to_owned(), built].into_iter().chain(std::env::split_paths(&path)).chain([of_root]);
        process.env("PATH", std::env::join_paths(folders).unwrap()).current_dir(folder);
        process.envs(self.variables.iter().map(|(name, value)| (name, value)));
        (process, line)
    }
}

/// The commands in `console` blocks, each with its output.
fn console(page: &str) -> Vec<(&str, String)> {
    let (mut commands, mut inside) = (Vec::new(), false);
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            inside = !inside && language == "console";
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            commands.push((command, String::new()));
        } else if let (true, Some((_, shown))) = (inside, commands.last_mut()) {
            *shown += &format!("{line}\n");
        }
    }
    commands
}

/// A recording command without its duration; `None` for other commands.
fn without_duration(command: &str) -> Option<String> {
    let (before, behind) = command.split_once("--duration ").filter(|_| command.contains(" record "))?;
    Some(format!("{before}{}", behind.split_once(' ')?.1))
}

/// The text that the page says to look for.
fn to_look_at(page: &str) -> Vec<&str> {
    let part = page.split("\n## ").find(|part| part.starts_with("What to look at\n")).unwrap_or_default();
    part.lines().filter_map(|line| Some(line.strip_prefix("- `")?.split_once('`')?.0)).collect()
}

/// The same command for another process.
fn with_pid(command: &str, pid: &str) -> String {
    let mut parts = command.split("--pid ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |line, part| {
        format!("{line}--pid {pid}{}", part.trim_start_matches(|c: char| c.is_ascii_digit()))
    })
}
