//! Rules on prose: the length of a line, and the number of words in the name of a test.
//!
//! Owns: the limits. Because: long lines and long names return one at a time. Does not: know code; rustfmt does.

use super::tree::Crate;
use crate::sh;
use std::path::Path;

/// Maximum columns of a line of prose.
const COLUMNS_MAX: usize = 120;
/// Maximum words in the name of a test.
const TEST_WORDS_MAX: usize = 10;

/// Checks comments and test names in all crates, and the pages.
pub(super) fn check(root: &Path, crates: &[Crate], broken: &mut Vec<String>) {
    for file in crates.iter().flat_map(|one| &one.files) {
        for name in long_names(&file.code) {
            broken.push(format!("{}: {name} has more than {TEST_WORDS_MAX} words", file.name));
        }
        for number in long_lines(&file.text, is_comment) {
            broken.push(format!("{}:{number}: a comment goes past column {COLUMNS_MAX}", file.name));
        }
    }
    for path in sh::files_below(root, ".md") {
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for number in long_lines(&text, is_paragraph).filter(|_| !is_data(&name)) {
            broken.push(format!("{name}:{number}: a line goes past column {COLUMNS_MAX}"));
        }
    }
}

/// Whether a file is test input or expected output, which is not wrapped.
pub(super) fn is_data(name: &str) -> bool {
    name.contains("fixtures/") || name.contains("golden/")
}

/// Whether a line of source code is a wrappable comment.
pub(super) fn is_comment(line: &str) -> bool {
    line.trim_start().strip_prefix("//").is_some_and(|rest| {
        let text = rest.trim_start_matches(['/', '!']).trim_start();
        !text.starts_with('|') && text.contains(' ')
    })
}

/// Whether a line of a page can be wrapped: table rows and lone links cannot.
pub(super) fn is_paragraph(line: &str) -> bool {
    !line.starts_with('|') && line.trim_start().contains(' ')
}

/// Numbers of prose lines that are too long; fenced blocks are not prose.
pub(super) fn long_lines(text: &str, is_prose: impl Fn(&str) -> bool) -> impl Iterator<Item = usize> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        fenced ^= line.trim_start_matches([' ', '/', '!']).starts_with("```");
        (!fenced && is_prose(line) && line.chars().count() > COLUMNS_MAX).then_some(number)
    })
}

/// Test names that are too long.
pub(super) fn long_names(code: &str) -> impl Iterator<Item = &str> {
    let tests = code.split("#[test]").skip(1);
    let names = tests.filter_map(|test| test.split_once("fn ")?.1.split('(').next());
    names.filter(|name| name.split('_').count() > TEST_WORDS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_are_counted_in_words() {
        let attribute = "#[test]";
        let code = format!("{attribute}\nfn a_b_c_d_e_f_g_h_i_j_k() {{}}\n{attribute}\nfn a_b() {{}}\n");
        assert_eq!(long_names(&code).collect::<Vec<_>>(), ["a_b_c_d_e_f_g_h_i_j_k"]);
    }

    #[test]
    fn only_prose_that_can_be_wrapped_is_too_long() {
        let long = "word ".repeat(30);
        let page = format!("short\n{long}\n| {long}\n```\n{long}\n```\n{long}\n");
        assert_eq!(long_lines(&page, is_paragraph).collect::<Vec<_>>(), [2, 7]);
        let code = format!("// {long}\n    /// {long}\nlet x = \"{long}\";\n/// {}\n", "x".repeat(130));
        assert_eq!(long_lines(&code, is_comment).collect::<Vec<_>>(), [1, 2]);
    }
}
