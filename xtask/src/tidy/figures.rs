//! `cargo xtask tidy --figures`: size and shape of the code, and remains of the old vocabulary.
//!
//! Owns: lines and files by crate, long functions, cycles, words of the old vocabulary; beside those of another
//! checkout if one is named. Because: "smaller" and "clearer" need numbers. Does not: fail, except for words of the old
//! vocabulary.

use super::tree::{Crate, crates};
use super::{prose, shape, syntax};
use crate::sh;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Banned words of prose, in any case.
const WORDS: &[&str] = &[
    "told",
    "tells",
    "untold",
    "mend",
    "mends",
    "mended",
    "dear",
    "lately",
    "wish",
    "wishes",
    "shelf",
    "shelves",
    "doubt",
    "doubts",
    "lacking",
    "glue",
    "plumbing",
    "foresight",
    "wherefrom",
    "hear",
    "heard",
    "course",
    "team",
    "teams",
];
/// Where such a word is allowed: keys in profiles, recorded events, and a former option value.
const KEYS: &[&str] = &["team-begins", "team-call-lost", "team-unknown", "\"team\""];
/// Banned identifiers, case-sensitive. `Screen` is allowed: it is the terminal's.
const NAMES: &[&str] = &[
    "LAST_WORDS",
    "hear_out",
    "Turn",
    "Turns",
    "Looks",
    "Picture",
    "Below",
    "Way",
    "Moment",
    "Point",
    "Team",
    "TeamPart",
    "rest()",
    "give_back",
    "Questions",
    "Answers",
    "Head",
    "Known",
    "Hole",
    "Holes",
    "why()",
    "Shelf",
    "Place",
    "Within",
    "Useless",
    "given_up",
    "Asked",
    "Answer",
    "use_early",
    "Sight",
    "Look",
    "Grain",
    "Passing",
    "Entering",
    "Meet",
    "watched_in_turns",
    "WATCHED_IN_TURNS",
    "tells_kernels",
    "struct Step",
    "enum Step",
    "type Step",
    "StepId",
];
/// Banned file names. `source.rs` is allowed: in the viewer it concerns source code.
const FILES: &[&str] = &[
    "meet.rs",
    "enter.rs",
    "holes.rs",
    "below.rs",
    "stand.rs",
    "waits.rs",
    "marks.rs",
    "course.rs",
    "sight.rs",
    "look.rs",
    "told.rs",
    "teams.rs",
    "turns.rs",
    "passing.rs",
];

/// Figures by name, in display order.
type Figures = BTreeMap<(usize, String), u64>;

/// Longer functions are counted; above [`shape::FUNCTION_LINES_MAX`] they are refused.
const FUNCTION_LINES: usize = 60;

/// Prints the figures of `root` next to those of `before`; with `list`, each counted place of `root`.
pub(super) fn print(root: &Path, before: Option<&PathBuf>, list: bool) {
    let (now, places) = figures(root);
    let before = before.map(|before| figures(before).0);
    let mut keys: Vec<_> = now.keys().chain(before.iter().flat_map(BTreeMap::keys)).cloned().collect();
    keys.sort();
    keys.dedup();
    match before {
        Some(_) => println!("| figure | before | now |\n|---|---:|---:|"),
        None => println!("| figure | now |\n|---|---:|"),
    }
    let cell = |figures: &Figures, key| figures.get(key).map_or_else(|| "–".to_owned(), u64::to_string);
    for key in &keys {
        match &before {
            Some(before) => println!("| {} | {} | {} |", key.1, cell(before, key), cell(&now, key)),
            None => println!("| {} | {} |", key.1, cell(&now, key)),
        }
    }
    for one in crates(root) {
        for circle in shape::circles_of(&one) {
            println!("circle of {} files: {}", circle.len(), circle.join(", "));
        }
        let most = if list && !one.is_of_tests() { FUNCTION_LINES } else { shape::FUNCTION_LINES_MAX };
        for (file, function) in long(&one, most) {
            println!("{}:{}: {} has {} lines", file, function.line, function.name, function.lines);
        }
    }
    for place in places.iter().filter(|_| list) {
        println!("{place}");
    }
}

/// Fails on banned words.
pub(super) fn check(root: &Path, broken: &mut Vec<String>) {
    broken.extend(
        words(root, &mut Figures::new()).into_iter().map(|place| format!("{place} left the vocabulary")),
    );
}

/// The figures, and the places of banned words.
fn figures(root: &Path) -> (Figures, Vec<String>) {
    let crates = crates(root);
    let mut figures = Figures::new();
    for one in &crates {
        let mut add = |group, what: &str, count: usize| {
            *figures.entry((group, what.to_owned())).or_insert(0) += count as u64;
        };
        let lines = |file: &super::tree::File| file.text.lines().count();
        let product: Vec<_> = one.product().collect();
        if !product.is_empty() {
            add(0, &format!("{}: files", one.folder), product.len());
            add(1, &format!("{}: lines", one.folder), product.iter().map(|file| lines(file)).sum());
        }
        let tests = || one.files.iter().filter(|file| file.is_test());
        add(2, "all crates: files of the product", product.len());
        add(2, "all crates: lines of the product", product.iter().map(|file| lines(file)).sum());
        add(2, "all crates: lines of tests in files of their own", tests().map(lines).sum());
        add(3, "files above 600 lines", product.iter().filter(|file| lines(file) > 600).count());
        if !one.is_of_tests() {
            add(4, "functions above 60 lines", long(one, FUNCTION_LINES).len());
            add(4, "functions above 80 lines", long(one, shape::FUNCTION_LINES_MAX).len());
            let circles = shape::circles_of(one);
            add(5, "circles of files", circles.len());
            add(5, "files in circles", circles.iter().map(Vec::len).sum());
        }
        let long_names = one.files.iter().flat_map(|file| prose::long_names(&file.code));
        add(6, "tests with names above ten words", long_names.count());
    }
    let places = words(root, &mut figures);
    (figures, places)
}

/// Functions of the product longer than the given number of lines.
fn long(one: &Crate, most: usize) -> Vec<(String, syntax::Function)> {
    one.product()
        .flat_map(|file| {
            syntax::functions(file.product()).into_iter().map(|function| (file.name.clone(), function))
        })
        .filter(|(_, function)| function.lines > most)
        .collect()
}

/// Counts words in all sources and pages except test data, and returns their places.
fn words(root: &Path, figures: &mut Figures) -> Vec<String> {
    let mut add = |group, what: String, count: usize| {
        if count > 0 {
            *figures.entry((group, what)).or_insert(0) += count as u64;
        }
    };
    let mut places = Vec::new();
    for suffix in [".rs", ".md", ".py", ".c", ".cpp", ".h", ".toml"] {
        for path in sh::files_below(root, suffix) {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            let ours = name.starts_with("xtask/src/tidy/");
            if ours || prose::is_data(&name) || name == "CHANGELOG.md" {
                continue;
            }
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let is_prose = if suffix == ".md" { prose::is_paragraph } else { prose::is_comment };
            let long = prose::long_lines(&text, is_prose).count();
            add(7, "lines of prose above 120 characters".to_owned(), long);
            let code = if suffix == ".rs" { syntax::code_of(&text) } else { String::new() };
            for (number, what) in old_vocabulary(&text, &code) {
                places.push(format!("{name}:{number}: {what}"));
                add(8, "words of the old vocabulary".to_owned(), 1);
                add(9, what, 1);
            }
            if FILES.iter().any(|file| name.ends_with(&format!("/{file}"))) {
                places.push(format!("{name}: a file with an old name"));
                add(8, "words of the old vocabulary".to_owned(), 1);
                add(9, "files with old names".to_owned(), 1);
            }
        }
    }
    places
}

/// Banned words of a text and banned names of its code, by line. In comments and user-visible text, names are ordinary
/// words.
fn old_vocabulary(text: &str, code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut look_for = |text: &str, kind: &str, words: &[&str]| {
        for (number, line) in (1..).zip(text.lines()) {
            for word in words {
                found.extend((0..count(line, word)).map(|_| (number, format!("{kind}: {word}"))));
            }
        }
    };
    let without_keys = KEYS.iter().fold(text.to_lowercase(), |text, key| text.replace(key, ""));
    look_for(&without_keys, "word", WORDS);
    look_for(code, "name", NAMES);
    found
}

/// Occurrences of the whole word.
fn count(text: &str, word: &str) -> usize {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let whole = |(at, _): &(usize, &str)| {
        !text[..*at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
    };
    text.match_indices(word).filter(whole).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_code() {
        let text = "fn f(of: Look) {} // Look\n\"Look\"; /* told */";
        let found = old_vocabulary(text, &syntax::code_of(text));
        assert_eq!(found, [(2, "word: told".to_owned()), (1, "name: Look".to_owned())]);
    }

    #[test]
    fn stored_keys_may_be_words_that_left() {
        let found = old_vocabulary("`team-unknown`: a team\n(\"team\", 1) team-mate", "");
        assert_eq!(found, [(1, "word: team".to_owned()), (2, "word: team".to_owned())]);
    }

    #[test]
    fn words_are_counted_whole() {
        assert_eq!(count("told, untold told_by Told", "told"), 1);
        assert_eq!(count("x.why() why()", "why()"), 2);
    }
}
