//! Nearest: suggests existing names for a misspelled one.
//!
//! Owns: the distance between two names. Because: a user who mistypes a function or a metric must not have to read a
//! list of thousands. Does not: know regular expressions or queries; it takes the words in them.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeSet;

use deepctx_analysis::findings::SettingsError;
use deepctx_profile::profile::Profile;

/// Maximum number of suggestions.
const MOST: usize = 3;
/// Maximum number of candidates per word.
const OF_WORD: usize = 100;
/// Characters of a word that are compared. A comparison takes time proportional to the product of both lengths.
const WORD_MAX: usize = 48;
/// Characters of a name that are compared.
const NAME_MAX: usize = 160;
/// Maximum number of names compared: about 0.2 s with the limits above.
const NAMES_MAX: usize = 20_000;
/// Characters of a name that are shown.
const SHOWN_MAX: usize = 80;

/// Frame names nearest to the words of a pattern or query, the nearest first. Words that occur in some name get no
/// suggestions.
pub(super) fn frames(text: &str, profiles: &[&Profile]) -> Vec<String> {
    let words: Vec<Vec<char>> = words(text).map(|word| letters(word, WORD_MAX)).collect();
    let mut names = BTreeSet::new();
    for profile in profiles {
        for (_, frame) in profile.frames.iter().take(NAMES_MAX.saturating_sub(names.len())) {
            names.insert(frame.label(&profile.strings, false));
        }
    }
    let mut near: Vec<(usize, String)> = Vec::new();
    for word in &words {
        let mut of_word: Vec<(usize, &String)> = names
            .iter()
            .map(|name| (distance_within(word, &letters(name, NAME_MAX)), name))
            .filter(|(distance, _)| distance * 2 < word.len())
            .collect();
        if of_word.iter().all(|(distance, _)| *distance > 0) {
            of_word.sort_rows_by_key(|(distance, name)| (*distance, name.len(), *name));
            near.extend(of_word.into_iter().take(OF_WORD).map(|(distance, name)| (distance, name.clone())));
        }
    }
    near.sort_rows_by(|a, b| (a.0, a.1.len(), &a.1).cmp(&(b.0, b.1.len(), &b.1)));
    let mut proposed: Vec<String> = Vec::new();
    for (_, name) in near {
        // Operators are also listed with each combination of tensor types.
        if proposed.len() < MOST && !proposed.iter().any(|shorter| name.starts_with(shorter.as_str())) {
            proposed.push(name);
        }
    }
    proposed.iter().map(|name| shown(name)).collect()
}

/// Names sorted by distance to one that is not among them.
pub(super) fn sorted<'n>(text: &str, mut names: Vec<&'n str>) -> Vec<&'n str> {
    let word = letters(text, WORD_MAX);
    names.sort_rows_by_key(|name| distance(&word, &letters(name, WORD_MAX)));
    names
}

/// The text of an error in the settings of rules. Of the existing rules it lists those with the nearest names.
pub(super) fn settings_error(error: &SettingsError) -> String {
    match error {
        SettingsError::UnknownRule { name, known } => {
            let mut near = sorted(name, known.iter().map(String::as_str).collect());
            // A part of a name is farther from the whole than some other short name is.
            near.sort_rows_by_key(|near| {
                !near.split('-').any(|part| name.split('-').any(|word| word == part))
            });
            near.truncate(MOST);
            format!("unknown rule `{name}`; the nearest are {}", near.join(", "))
        }
        other => other.to_string(),
    }
}

/// Words of a regular expression or query, without operators and without frame kinds before a colon.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_sign = |c: char| c.is_whitespace() || "*?+^$()[]{}|\\/\"!@".contains(c);
    let is_kind = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let parts = text.split(is_sign).map(move |part| match part.split_once(':') {
        Some((kind, name)) if is_kind(kind) && !name.starts_with(':') => name,
        _ => part,
    });
    parts.filter(|part| part.len() > 1)
}

fn letters(text: &str, most: usize) -> Vec<char> {
    text.chars().flat_map(char::to_lowercase).take(most).collect()
}

fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Edit distance between a word and a whole name.
fn distance(word: &[char], name: &[char]) -> usize {
    let row = (0..=name.len()).collect();
    last_row(word, name, row).last().copied().unwrap_or_default()
}

/// Edit distance between a word and the best part of a name.
fn distance_within(word: &[char], name: &[char]) -> usize {
    let row = vec![0; name.len() + 1];
    last_row(word, name, row).into_iter().min().unwrap_or_default()
}

/// The last row of Levenshtein's table, from its first one.
fn last_row(word: &[char], name: &[char], mut row: Vec<usize>) -> Vec<usize> {
    for letter in word {
        let mut diagonal = row[0];
        row[0] += 1;
        for (at, other) in (1..).zip(name) {
            let changed = diagonal + usize::from(letter != other);
            diagonal = row[at];
            row[at] = changed.min(row[at] + 1).min(row[at - 1] + 1);
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_function_is_found_by_its_name() {
        let stacks = "P app-7 / y train.py:Trainer.train_step:3 / n mkl_sgemm 1\nP app-7 / y data.py:load:9 1\n\
                      P app-7 / o aten::addmm / o aten::addmm~2 1\nP app-7 / o aten::baddbmm 1";
        let profile = deepctx_profile::text::parse(stacks).unwrap();
        let check = |text: &str, expect: &[&str]| assert_eq!(frames(text, &[&profile]), expect, "{text}");
        check("trian_step", &["train.py:Trainer.train_step"]);
        check("python:tran_step ** native:mkl_sgem?", &["train.py:Trainer.train_step"]);
        check("^mkl_dgemm$", &["mkl_sgemm"]);
        check("data.py:laod", &["data.py:load"]);
        check("aten::admm", &["aten::addmm", "aten::baddbmm"]);
        check("zzzzzz", &[]);
        // Both exist, but not in this order.
        check("load ** train_step", &[]);
        check("", &[]);
        check("((", &[]);
    }

    #[test]
    fn names_are_sorted_by_how_near_they_are() {
        let names = vec!["samples", "cpu-time", "gpu-launches", "off-cpu-time"];
        assert_eq!(sorted("gpu-time", names)[..2], ["cpu-time", "off-cpu-time"]);
    }

    #[test]
    fn of_unknown_rules_the_nearest_are_listed() {
        let check = |name: &str, expect: &str| {
            let known = ["hotspot", "small-kernels", "import-time", "idle-device", "page-faults"];
            let known = known.map(str::to_owned).into();
            let said = settings_error(&SettingsError::UnknownRule { name: name.into(), known });
            let begins = format!("unknown rule `{name}`; the nearest are {expect}, ");
            assert!(said.starts_with(&begins), "{said}");
            assert_eq!(said.matches(", ").count(), MOST - 1);
        };
        check("small-kernel", "small-kernels");
        check("idle-devise", "idle-device");
        check("faults", "page-faults");
    }

    #[test]
    fn names_of_any_length_are_compared() {
        let long = "x".repeat(100_000);
        let profile = deepctx_profile::text::parse(&format!("P app-7 / n {long} 1")).unwrap();
        assert_eq!(frames(&long, &[&profile]), Vec::<String>::new());
        assert_eq!(frames("xxxxxy", &[&profile])[0].chars().count(), SHOWN_MAX + 1);
    }
}
