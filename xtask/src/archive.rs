//! The sources of Debian packages on this machine, from its own apt configuration.
//!
//! Owns: reading apt's lists of sources. Because: the administrator of the machine chose the mirror, and only that one
//! is sure to answer. Does not: fetch anything.

use anyhow::{Result, bail};
use std::fs;
use std::path::Path;

const SOURCES: &str = "/etc/apt/sources.list";
const MORE_SOURCES: &str = "/etc/apt/sources.list.d";
/// Debian's suite aliases, independent of the installed release.
const ALIASES: [&str; 4] = ["stable", "testing", "unstable", "sid"];

/// URL of Debian's archive.
pub(crate) fn debian() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.unwrap_or_default().trim_matches('"');
    for (name, text) in files() {
        let entries = if name.ends_with(".sources") { paragraphs(&text) } else { lines(&text) };
        if let Some(entry) = entries.into_iter().find(|entry| entry.is_debian(codename)) {
            return Ok(entry.address.trim_end_matches('/').to_owned());
        }
    }
    bail!(
        "apt of this machine names no archive of Debian\nhint: an entry with a suite of Debian and the component main belongs into {SOURCES} or {MORE_SOURCES}"
    )
}

/// Names and contents of all source lists.
fn files() -> Vec<(String, String)> {
    let more = fs::read_dir(MORE_SOURCES).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = more.collect();
    paths.sort();
    paths.insert(0, Path::new(SOURCES).to_owned());
    let read = |path: &std::path::PathBuf| Some((path.display().to_string(), fs::read_to_string(path).ok()?));
    paths.iter().filter_map(read).collect()
}

/// One entry: a URL with its suites and components.
#[derive(Debug, Default, PartialEq)]
struct Entry {
    address: String,
    suites: Vec<String>,
    components: Vec<String>,
}

impl Entry {
    fn is_debian(&self, codename: &str) -> bool {
        let of_debian = |suite: &String| suite == codename || ALIASES.contains(&suite.as_str());
        let fetched = !self.address.starts_with("cdrom:") && !self.address.is_empty();
        fetched && self.suites.iter().any(of_debian) && self.components.iter().any(|part| part == "main")
    }
}

/// Entries in the one-line form `deb [OPTIONS] ADDRESS SUITE COMPONENT…`.
fn lines(text: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let rest = line.trim().strip_prefix("deb")?.strip_prefix([' ', '\t'])?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        let (address, suite) = (words.next()?, words.next()?);
        Some(Entry { address, suites: vec![suite], components: words.collect() })
    };
    text.lines().filter_map(entry).collect()
}

/// Entries in the deb822 form, one paragraph each.
fn paragraphs(text: &str) -> Vec<Entry> {
    text.split("\n\n")
        .filter_map(|paragraph| {
            let field = |name: &str| {
                let line = paragraph.lines().find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    key.eq_ignore_ascii_case(name).then_some(value)
                });
                line.unwrap_or_default().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            };
            let is_on = !field("Enabled").iter().any(|value| value == "no");
            let is_binary = field("Types").iter().any(|kind| kind == "deb");
            let entry = Entry {
                address: field("URIs").into_iter().next()?,
                suites: field("Suites"),
                components: field("Components"),
            };
            (is_on && is_binary).then_some(entry)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(entries: &[Entry], expect: Option<&str>) {
        let found = entries.iter().find(|entry| entry.is_debian("bookworm"));
        assert_eq!(found.map(|entry| entry.address.as_str()), expect, "{entries:?}");
    }

    #[test]
    fn lines_of_sources_name_the_archive() {
        check(&lines("# deb http://a/debian bookworm main\ndeb-src http://b/debian bookworm main\n"), None);
        check(&lines("deb http://c/tools bookworm-tools main\n"), None);
        check(&lines("deb cdrom:[Debian]/ bookworm main\n"), None);
        let line = "deb [arch=amd64 signed-by=/k.gpg] http://d/debian bookworm main contrib\n";
        check(&lines(line), Some("http://d/debian"));
        check(&lines("deb\thttp://e/debian stable main\n"), Some("http://e/debian"));
    }

    #[test]
    fn paragraphs_of_sources_name_the_archive() {
        let one = "Types: deb deb-src\n# why\nURIs: http://a/debian\nSuites: bookworm bookworm-updates\nComponents: main\n";
        let other = "Types: deb\nURIs: http://b/node\nSuites: nodistro\nComponents: main\n";
        check(&paragraphs(&format!("{other}\n{one}")), Some("http://a/debian"));
        check(&paragraphs(&format!("Enabled: no\n{one}\n\n{other}")), None);
    }
}
