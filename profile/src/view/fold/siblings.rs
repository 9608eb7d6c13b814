//! Siblings: joining names that differ only in a number.
//!
//! Owns: [`pattern`], which is equal for names that may be joined, and [`joined`], their common name. Because: a
//! model has a dozen identical layers, and a run has a hundred steps. Does not: decide which frames are joined.
//!
//! A number is a separate group of digits: that of `h.11`, but not those of `conv2` or `layer3`, which are distinct
//! layers.

use std::collections::BTreeSet;

use super::FrameKind;

/// Numbers that are listed for one place; with more, only the first and the last.
const LISTED: usize = 4;

/// Whether frames of this kind and name may be joined with their siblings: layers, and ranges named by programs.
pub fn may_be_joined(kind: FrameKind, label: &str) -> bool {
    kind == FrameKind::Layer || label.starts_with("[range] ")
}

/// A name with `#` for each separate number; `None` if it has none.
pub(super) fn pattern(label: &str) -> Option<String> {
    let parts = parts(label);
    (parts.len() > 1).then(|| parts.iter().map(|(text, _)| *text).collect::<Vec<_>>().join("#"))
}

/// The joint name of several with one pattern: `h.{0..11} ×12`.
pub(super) fn joined(labels: &[&str]) -> String {
    let all: Vec<Vec<(&str, &str)>> = labels.iter().map(|label| parts(label)).collect();
    let Some(first) = all.first() else { return String::new() };
    let mut name = String::new();
    for (place, (text, _)) in first.iter().enumerate() {
        name.push_str(text);
        let numbers: BTreeSet<(usize, &str)> =
            all.iter().filter_map(|of| of.get(place)).map(|(_, number)| (number.len(), *number)).collect();
        name.push_str(&set(&numbers.into_iter().map(|(_, number)| number).collect::<Vec<_>>()));
    }
    format!("{name} ×{}", labels.len())
}

/// Numbers in ascending order.
fn set(numbers: &[&str]) -> String {
    match numbers {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, .., last] if numbers.len() > LISTED || (numbers.len() > 2 && follow(numbers)) => {
            format!("{{{first}..{last}}}")
        }
        few => format!("{{{}}}", few.join(",")),
    }
}

/// Whether each number is one more than the previous one.
fn follow(numbers: &[&str]) -> bool {
    let value = |number: &str| number.parse::<u64>().ok();
    numbers
        .windows(2)
        .all(|two| value(two[0]).zip(value(two[1])).is_some_and(|(a, b)| a.checked_add(1) == Some(b)))
}

/// The texts of a name, each with the number after it; empty for the last.
fn parts(label: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let (mut from, mut rest) = (0, label);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let begin = label.len() - rest.len() + at;
        let digits = label[begin..].bytes().take_while(u8::is_ascii_digit).count();
        let end = begin + digits;
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let alone = !label[..begin].ends_with(is_word) && !label[end..].starts_with(is_word);
        if alone {
            parts.push((&label[from..begin], &label[begin..end]));
            from = end;
        }
        rest = &label[end..];
    }
    parts.push((&label[from..], ""));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_by_a_number_have_one_name() {
        let check = |labels: &[&str], expect: &str| {
            let patterns: BTreeSet<_> = labels.iter().map(|label| pattern(label)).collect();
            let name =
                if patterns.len() == 1 && !patterns.contains(&None) { joined(labels) } else { String::new() };
            assert_eq!(name, expect, "{labels:?}");
        };
        check(&["h.0 (Block)", "h.2 (Block)", "h.1 (Block)"], "h.{0..2} (Block) ×3");
        check(&["h.9", "h.10", "h.11", "h.12"], "h.{9..12} ×4");
        check(&["net.0 (Linear)", "net.2 (Linear)"], "net.{0,2} (Linear) ×2");
        check(&["h.1", "h.3", "h.5", "h.7", "h.9"], "h.{1..9} ×5");
        check(&["a.0.b.1", "a.0.b.2"], "a.0.b.{1,2} ×2");
        check(&["[range] step 7", "[range] step 8", "[range] step 9"], "[range] step {7..9} ×3");
        check(&["net.0 (Linear)", "net.1 (ReLU)"], "");
        check(&["conv1 (Conv2d)", "conv2 (Conv2d)"], "");
        check(&["h.99999999999999999999999", "h.1", "h.2"], "h.{1,2,99999999999999999999999} ×3");
        check(&["α.1", "α.2"], "α.{1,2} ×2");
        check(&["", ""], "");
    }
}
