//! One line of the table of checks.
//!
//! Owns: the outcome of a check, and the format of the table. Because: a skipped check must not look like a passed one.
//! Does not: check.

use std::fmt;

/// Verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Passed.
    Ok,
    /// Failed.
    Failed,
    /// Skipped: something is missing here.
    Lacks,
    /// A figure without a bound.
    Figure,
}

/// A line.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) part: &'static str,
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) got: String,
    pub(super) verdict: Verdict,
}

impl Row {
    /// A check of two values for equality.
    pub(super) fn equal<T: PartialEq + fmt::Display>(
        part: &'static str,
        what: impl Into<String>,
        expected: T,
        got: T,
    ) -> Self {
        let verdict = if expected == got { Verdict::Ok } else { Verdict::Failed };
        Self { part, what: what.into(), expected: expected.to_string(), got: got.to_string(), verdict }
    }

    /// A check of a condition.
    pub(super) fn holds(
        part: &'static str,
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl Into<String>,
        holds: bool,
    ) -> Self {
        let verdict = if holds { Verdict::Ok } else { Verdict::Failed };
        Self { part, what: what.into(), expected: expected.into(), got: got.into(), verdict }
    }

    /// A figure.
    pub(super) fn figure(part: &'static str, what: impl Into<String>, got: impl Into<String>) -> Self {
        let expected = String::new();
        Self { part, what: what.into(), expected, got: got.into(), verdict: Verdict::Figure }
    }

    /// A skipped check.
    pub(super) fn lacks(part: &'static str, what: impl Into<String>, because: impl Into<String>) -> Self {
        let expected = String::new();
        Self { part, what: what.into(), expected, got: because.into(), verdict: Verdict::Lacks }
    }

    /// A part that ended with an error.
    pub(super) fn broken(part: &'static str, error: &anyhow::Error) -> Self {
        Self::holds(part, "the check itself", "runs", format!("{error:#}"), false)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Failed => "FAILED",
            Verdict::Lacks => "lacks",
            Verdict::Figure => "",
        };
        // Text from others must not end a cell.
        let cell = |text: &str| text.replace('|', "\\|").replace(['\n', '\r'], " ");
        let cells = [self.part, &self.what, &self.expected, &self.got].map(cell);
        write!(f, "| {} | {verdict} |", cells.join(" | "))
    }
}

/// The table in Markdown, for a note or an issue.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = "| part | what | expected | got | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    rows.iter().for_each(|row| text.push_str(&format!("{row}\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_says_what_it_came_to() {
        let check = |row: Row, expect: &str| assert_eq!(row.to_string(), expect);
        check(Row::equal("a", "launches", 7, 7), "| a | launches | 7 | 7 | ok |");
        check(Row::equal("a", "launches", 7, 6), "| a | launches | 7 | 6 | FAILED |");
        check(Row::lacks("a", "Triton", "not here"), "| a | Triton |  | not here | lacks |");
        check(Row::figure("a", "x|y", "1\n2"), "| a | x\\|y |  | 1 2 |  |");
    }
}
