//! Rules on the pages in `docs/`: each is in the site's contents once, no link is broken, and Python code parses.
//!
//! Owns: the syntax of links, headings and Python blocks in a page. Because: a page without links to it is not read,
//! `mdbook build` does not report links to renamed headings, and a reformatted code block breaks silently. Does not:
//! check the content of pages, or know the options of the program, whose own tests try every command of a page.

use super::prose;
use crate::sh;
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The site's table of contents, in mdBook's format.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Checks all pages of the checkout.
pub(super) fn check(root: &Path, broken: &mut Vec<String>) {
    let paths = sh::files_below(root, ".md").into_iter();
    let mut pages: Vec<(String, String)> = paths
        .filter_map(|path| {
            let name = path.strip_prefix(root).ok()?.to_string_lossy().into_owned();
            Some((name, std::fs::read_to_string(&path).ok()?))
        })
        .filter(|(name, _)| !prose::is_data(name))
        .collect();
    pages.sort();
    broken.extend(not_once_in_contents(&pages));
    broken.extend(links_to_nothing(&pages, |path| root.join(path).exists()));
    match sh::which("python3") {
        Some(python) => broken.extend(python_errors(&pages, |code| syntax_error(&python, code))),
        None if sh::in_ci() => {
            broken.push("python3 is missing: it parses the Python code of the pages".to_owned())
        }
        None => eprintln!("skipped: Python code of the pages, since python3 is missing"),
    }
}

/// Python blocks with syntax errors.
fn python_errors(pages: &[(String, String)], parse: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, text) in pages {
        for (line, code) in python_blocks(text) {
            if let Some(error) = parse(&code) {
                broken.push(format!("{name}:{line}: Python that does not parse: {error}"));
            }
        }
    }
    broken
}

/// Python blocks in a page, with the numbers of their first lines.
fn python_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("```") {
            blocks.extend(open.take());
            open = (line == "```python").then(|| (number + 1, String::new()));
        } else if let Some((_, code)) = &mut open {
            code.push_str(line);
            code.push('\n');
        }
    }
    blocks
}

/// The syntax error that CPython finds, if any.
fn syntax_error(python: &Path, code: &str) -> Option<String> {
    const PARSE: &str = "import ast, sys\n\
        try: ast.parse(sys.stdin.buffer.read())\n\
        except SyntaxError as error: sys.exit(str(error))";
    let parse = || -> io::Result<Output> {
        let mut command = Command::new(python);
        command.args(["-I", "-c", PARSE]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // Closed at the end of the block, which ends the input.
        if let Some(mut input) = child.stdin.take() {
            input.write_all(code.as_bytes())?;
        }
        child.wait_with_output()
    };
    match parse() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("python3: {error}")),
    }
}

/// Pages of the site that its contents omit, or list more than once.
fn not_once_in_contents(pages: &[(String, String)]) -> Vec<String> {
    let contents = pages.iter().find(|(name, _)| name == CONTENTS).map_or("", |(_, text)| text);
    let listed: Vec<String> = links(contents).map(|(_, link)| beside(CONTENTS, link)).collect();
    let of_site = pages.iter().map(|(name, _)| name).filter(|name| is_of_site(name) && *name != CONTENTS);
    of_site
        .filter_map(|name| match listed.iter().filter(|link| *link == name).count() {
            1 => None,
            times => Some(format!("{CONTENTS}: {name} stands there {times} times, not once")),
        })
        .collect()
}

/// Links to missing files and headings, and links out of the site, which has no other files.
fn links_to_nothing(pages: &[(String, String)], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, text) in pages {
        for (line, link) in links(text).filter(|(_, link)| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let to = if file.is_empty() { name.clone() } else { beside(name, file) };
            let there = pages.iter().find(|(page, _)| *page == to);
            if there.is_none() && !exists(&to) {
                broken.push(format!("{name}:{line}: there is no {to}"));
            } else if is_of_site(name) && !is_of_site(&to) {
                broken
                    .push(format!("{name}:{line}: {to} is no part of the site: name it, and do not link it"));
            } else if !heading.is_empty() && !there.is_some_and(|(_, text)| anchors(text).contains(heading)) {
                broken.push(format!("{name}:{line}: {to} has no heading #{heading}"));
            }
        }
    }
    broken
}

fn is_of_site(name: &str) -> bool {
    name.starts_with("docs/")
}

/// The target of a page's link, relative to the root of the checkout.
fn beside(page: &str, link: &str) -> String {
    let mut path = PathBuf::from(page);
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    path.to_string_lossy().into_owned()
}

/// Numbered lines of a page outside its fenced blocks.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fence && !fenced
    })
}

/// Link targets of a page with their line numbers. Text between backticks is not a link.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    lines(text).flat_map(|(number, line)| {
        let mut inside_code = false;
        let starts = line.char_indices().filter_map(move |(at, letter)| {
            inside_code ^= letter == '`';
            (!inside_code && line[at..].starts_with("](")).then_some(at + 2)
        });
        starts.filter_map(move |start| Some((number, line[start..].split_once(')')?.0)))
    })
}

/// Headings of a page in link form: lower case, digits, hyphens for spaces.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = lines(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' ')).flatten()
    });
    headings.map(anchor).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading
        .trim()
        .chars()
        .filter(|&letter| letter.is_alphanumeric() || letter.is_whitespace() || matches!(letter, '-' | '_'));
    kept.flat_map(char::to_lowercase)
        .map(|letter| if letter.is_whitespace() { '-' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn every_page_stands_once_in_the_contents() {
        let of = |contents: &str| {
            not_once_in_contents(&pages(&[
                (CONTENTS, contents),
                ("docs/a.md", ""),
                ("docs/b.md", ""),
                ("README.md", ""),
            ]))
        };
        assert_eq!(of("[A](a.md)\n- [B](b.md)\n"), Vec::<String>::new());
        assert_eq!(
            of("[A](a.md)\n[A again](a.md)\n"),
            [
                "docs/SUMMARY.md: docs/a.md stands there 2 times, not once",
                "docs/SUMMARY.md: docs/b.md stands there 0 times, not once"
            ]
        );
    }

    #[test]
    fn python_blocks_must_parse() {
        let page = pages(&[("docs/a.md", "```python\nx = 1\n```\n```\ny y\n```\n\n```python\nz z\n```\n")]);
        let refuse = |code: &str| (code == "z z\n").then(|| "invalid".to_owned());
        assert_eq!(python_errors(&page, refuse), ["docs/a.md:9: Python that does not parse: invalid"]);
    }

    #[test]
    fn links_lead_to_files_and_headings_that_exist() {
        let check = |text: &str, expect: &[&str]| {
            let all = pages(&[
                ("README.md", "# Two words"),
                ("docs/a.md", text),
                ("docs/b.md", "# Of `--an option`, (maybe)\n```\n# no heading\n```\n"),
            ]);
            assert_eq!(links_to_nothing(&all, |path| path == "docs/there.yml"), expect, "{text}");
        };
        check("[b](b.md) [there](there.yml) [far](https://example.org/x.md)", &[]);
        check("[b](b.md#of---an-option-maybe) and [here](#a-b)\n\n## A b", &[]);
        check("\n[b](c.md)", &["docs/a.md:2: there is no docs/c.md"]);
        check("[b](b.md#no-heading)", &["docs/a.md:1: docs/b.md has no heading #no-heading"]);
        check(
            "[out](../README.md#two-words)",
            &["docs/a.md:1: README.md is no part of the site: name it, and do not link it"],
        );
        check("`[code](nowhere)`\n```\n[block](nowhere)\n```\n", &[]);
    }
}
