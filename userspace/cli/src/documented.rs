//! Checks the commands in the documentation, and the options in messages, against the actual options.
//!
//! Owns: which lines of a page are commands, and splitting them into words as a shell would. Because: a page whose
//! command fails loses its reader, and nobody rereads all pages when an option is renamed. Does not: run one; tests
//! of single pages do (`tests/tests/documented`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};

use super::options::Cli;

/// The commands of a page: in `console` blocks the text after `$`, in `sh` blocks every line, in text the code between
/// backticks.
fn commands(page: &str) -> Vec<String> {
    let mut fence = "";
    let mut found = Vec::new();
    for line in page.lines() {
        if let Some(language) = line.strip_prefix("```") {
            fence = match (fence, language) {
                ("", "") => "plain",
                ("", language) => language,
                _ => "",
            };
        } else if fence == "sh" {
            found.push(line.to_owned());
        } else if let ("console" | "text", Some(command)) = (fence, line.strip_prefix("$ ")) {
            found.push(command.to_owned());
        } else if fence.is_empty() {
            let quoted = line.split('`').skip(1).step_by(2);
            // A command's name alone is only a mention.
            let whole = |code: &&str| !code.contains('…') && code.split(' ').count() > 2;
            found.extend(quoted.filter(whole).map(str::to_owned));
        }
    }
    found
}

/// Splits a line into simple commands and their words; handles quotes and comments.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words) = (Vec::new(), Vec::new());
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | '&' | ';' | '>') => {
                words.extend(word.take());
                if letter != ' ' {
                    all.push(std::mem::take(&mut words));
                }
            }
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    all.push(words);
    all
}

/// The arguments, if this is a command of our program.
fn arguments(words: &[String]) -> Option<&[String]> {
    let words = words.strip_prefix(&["sudo".to_owned()]).unwrap_or(words);
    let (program, arguments) = words.split_first()?;
    (program.rsplit('/').next() == Some("deepctx-bpf")).then_some(arguments)
}

/// The parser's error for a command of our program; `None` for other commands.
fn refused(command: &str) -> Option<String> {
    let all = simple_commands(command);
    let mut ours = all.iter().filter_map(|words| arguments(words));
    let name = "deepctx-bpf".to_owned();
    ours.find_map(|arguments| Cli::try_parse_from(std::iter::once(&name).chain(arguments)).err())
        .filter(clap::Error::use_stderr)
        .map(|error| error.to_string())
}

/// The commands that a page shows to be typed: those in its fenced blocks.
fn typed(page: &str) -> Vec<&str> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| {
        let (language, lines) = block.split_once('\n').unwrap_or((block, ""));
        lines.lines().filter_map(move |line| match language {
            "sh" => Some(line),
            "console" | "text" => line.strip_prefix("$ "),
            _ => None,
        })
    });
    lines.collect()
}

/// All pages, with the README.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.chain([root.join("README.md")]).collect()
}

#[test]
fn every_command_of_a_page_is_accepted() {
    let mut seen = 0;
    for page in pages() {
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            seen += usize::from(command.contains("deepctx-bpf "));
            assert_eq!(refused(&command), None, "{}: {command}", page.display());
        }
    }
    assert!(seen > 60, "only {seen} commands were found");
}

#[test]
fn commands_that_capture_are_typed_with_sudo() {
    const CAPTURING: [&str; 6] = ["--pid", "demo", "dump", "experiment", "live", "record"];
    // Its subject is how to do without.
    for page in pages().iter().filter(|page| !page.ends_with("without-root.md")) {
        let text = fs::read_to_string(page).unwrap();
        for words in typed(&text).into_iter().flat_map(simple_commands) {
            let [program, command, ..] = &words[..] else { continue };
            let is_ours = program.rsplit('/').next() == Some("deepctx-bpf");
            let captures = CAPTURING.contains(&command.as_str());
            assert!(!(is_ours && captures), "{}: {}", page.display(), words.join(" "));
        }
    }
}

#[test]
fn every_command_of_the_example_action_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let action = fs::read_to_string(root.join("docs/examples/compare-action/action.yml")).unwrap();
    let values = [("\"$(command -v deepctx-bpf)\"", "deepctx-bpf"), ("$VIEW", "full"), ("$FAIL_ON", "+5%")];
    let action = values.iter().fold(action, |text, (name, value)| text.replace(name, value));
    let scripts = action.lines().filter(|line| !line.trim_start().starts_with("description:"));
    let commands = scripts.filter_map(|line| line.find("deepctx-bpf ").map(|at| &line[at..]));
    let commands: Vec<&str> = commands.collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for command in commands {
        assert_eq!(refused(command), None, "{command}");
    }
}

#[test]
fn commands_of_a_page_are_found_and_split() {
    let page = "```console\n$ sudo deepctx-bpf record -o a.dctx\n10 samples\n```\n```sh\ndeepctx-bpf doctor\n```\n\
                ```\n$ no\n```\nor `deepctx-bpf demo --force`, `deepctx-bpf report`\n";
    assert_eq!(
        commands(page),
        ["sudo deepctx-bpf record -o a.dctx", "deepctx-bpf doctor", "deepctx-bpf demo --force"]
    );
    let line = "deepctx-bpf report run.dctx --path 'python:a b' | head > x & # why";
    let split = simple_commands(line);
    assert_eq!(split[0], ["deepctx-bpf", "report", "run.dctx", "--path", "python:a b"]);
    assert_eq!(split[1..], [vec!["head".to_owned()], vec!["x".to_owned()], vec![]]);
}

#[test]
fn options_that_do_not_exist_are_refused() {
    assert!(
        refused("sudo deepctx-bpf record --pid 7 --no-such").is_some_and(|said| said.contains("--no-such"))
    );
    assert!(refused("cd x; deepctx-bpf reports run.dctx").is_some_and(|said| said.contains("reports")));
    assert_eq!(refused("make --no-such"), None);
    assert_eq!(refused("deepctx-bpf record --help"), None);
}

/// Options of other programs that our messages name: of Docker, and of a training script.
const FOREIGN: [&str; 4] = ["batch", "cap-add", "privileged", "security-opt"];

/// The options in the code of a file, without comments and tests.
fn options_named(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let mut named = BTreeSet::new();
    for line in lines {
        for (at, dashes) in line.match_indices("--") {
            let name: String = line[at + dashes.len()..].chars().take_while(|c| is_of_word(*c)).collect();
            let begins = !line[..at].ends_with(is_of_word);
            if begins && name.starts_with(|first: char| first.is_ascii_lowercase()) {
                named.insert(name.trim_end_matches('-').to_owned());
            }
        }
    }
    named
}

/// The files with messages below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_test = name == "tests" || name.ends_with("tests.rs") || name == "documented.rs";
        if path.is_dir() && !is_test {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") && !is_test {
            found.push(path);
        }
    }
    found
}

/// Adds the long options of a command and of all below it, hidden ones too.
fn collect_options(command: &clap::Command, options: &mut BTreeSet<String>) {
    options.extend(command.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned));
    command.get_subcommands().for_each(|below| collect_options(below, options));
}

#[test]
fn every_option_that_a_message_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut program = Cli::command();
    program.build();
    let mut known: BTreeSet<String> = FOREIGN.map(str::to_owned).into();
    collect_options(&program, &mut known);
    let mut seen = BTreeSet::new();
    for folder in ["analysis/src", "profile/src", "tui/src", "userspace"] {
        for file in sources(&root.join(folder)) {
            let named = options_named(&fs::read_to_string(&file).unwrap());
            let unknown: Vec<_> = named.difference(&known).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?}", file.display());
            seen.extend(named);
        }
    }
    assert!(seen.len() > 40, "only {seen:?}");
}

#[test]
fn options_in_a_message_are_found() {
    let source = "/// --help\nfail(\"add --once, or `--probe-file`\") // a--b\n#[cfg(test)]\n\"--nosuch\"";
    assert_eq!(options_named(source), BTreeSet::from(["once", "probe-file"].map(str::to_owned)));
}

#[test]
fn every_option_has_a_reason_to_stay() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let page = fs::read_to_string(root.join("docs/options.md")).unwrap();
    let defended: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split('|').next())
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter_map(|option| option.strip_prefix("--"))
        .collect();
    let mut program = Cli::command();
    program.build();
    let commands =
        std::iter::once(&program).chain(program.get_subcommands().filter(|one| !one.is_hide_set()));
    let options = commands.flat_map(clap::Command::get_arguments).filter(|option| !option.is_hide_set());
    let there: BTreeSet<&str> =
        options.filter_map(clap::Arg::get_long).filter(|long| !["help", "version"].contains(long)).collect();
    assert_eq!(defended, there);
}
