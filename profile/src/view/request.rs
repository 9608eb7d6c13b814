//! Requests: what a screen shows.
//!
//! Owns: [`Request`], [`TabRequest`], [`Pattern`]. Because: a request is one value, which is also the key of its
//! snapshot. Does not: produce snapshots; see [`crate::view::Viewer`].

use std::fmt;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};

use crate::context::selection::Selection;
use crate::metric::Metric;
use crate::units::Nanos;

/// Bytes of the longest pattern: longer than anyone types.
const PATTERN_MAX: usize = 1000;
/// Bytes of a compiled pattern: a larger one would also be slow.
const COMPILED_MAX: usize = 1 << 20;

/// The content that a screen requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Metric, languages and grouping.
    pub selection: Selection,
    /// Whether repeated sequences of boxes are folded into one.
    pub fold_recursion: bool,
    /// Whether the backward pass is shown below its operators, instead of beside them.
    pub backward_in_place: bool,
    /// Which stacks count.
    pub filter: Option<Pattern>,
    /// Number of the latest mark, counted from 1; 0 for none. Later snapshots are compared with the profile at the
    /// first request with that number.
    pub mark: u32,
    /// Whether to show only values since the mark, and how they differ from those before.
    pub since_mark: bool,
    /// Content beside the flame graph.
    pub part: TabRequest,
}

/// Content beside the flame graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TabRequest {
    /// Nothing.
    #[default]
    Flame,
    /// Conclusions from the profile, and its hottest functions, operators and layers.
    Overview,
    /// Functions with their callers below them.
    Callers,
    /// The table of functions.
    Table,
    /// Activity of each process and thread over time.
    Timeline,
    /// Single events of threads and streams, if the source has any; otherwise as [`TabRequest::Timeline`].
    Events,
    /// The same, with conclusions from the events between two moments, since the first event.
    EventRange(Nanos, Nanos),
    /// The same as [`TabRequest::Events`], with the tables over all of them.
    EventTables,
    /// The lines of the source file with this path, or of the first one whose path ends with it.
    Source(Arc<str>),
}

impl Request {
    /// The flame graph of one metric.
    pub const fn of(metric: Metric) -> Self {
        Self::select(Selection::of(metric))
    }

    /// The flame graph of a selection.
    pub const fn select(selection: Selection) -> Self {
        Request {
            selection,
            fold_recursion: false,
            backward_in_place: false,
            filter: None,
            mark: 0,
            since_mark: false,
            part: TabRequest::Flame,
        }
    }
}

/// Resolution of a snapshot. The default leaves nothing out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resolution {
    /// Boxes with a smaller share of the total are left out, 0..=1. Their values stay in the boxes above them.
    pub least_share: f64,
    /// Most rows of the table.
    pub rows: usize,
}

impl Default for Resolution {
    fn default() -> Self {
        Resolution { least_share: 0.0, rows: usize::MAX }
    }
}

/// A regular expression over the texts of frames. A leading `!` inverts it: stacks without a match.
///
/// Case matters only when the pattern has a capital letter.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    regex: Regex,
    inverted: bool,
}

/// The error in a pattern, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It is not a regular expression, or too large.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        if text.len() > PATTERN_MAX {
            return Err(BadPattern(format!("the pattern is longer than {PATTERN_MAX} bytes")));
        }
        let (body, inverted) = text.strip_prefix('!').map_or((text, false), |body| (body, true));
        let case_matters = body.chars().any(char::is_uppercase);
        let regex = RegexBuilder::new(body)
            .case_insensitive(!case_matters)
            .size_limit(COMPILED_MAX)
            .dfa_size_limit(COMPILED_MAX)
            .build()
            .map_err(|error| BadPattern(last_line(&error.to_string())))?;
        Ok(Pattern { text: text.into(), regex, inverted })
    }

    /// The text as typed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it selects stacks without a match.
    pub fn is_inverted(&self) -> bool {
        self.inverted
    }

    /// Whether a text has a match, ignoring inversion.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// The message without the drawing of the pattern above it.
fn last_line(message: &str) -> String {
    let last = message.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pattern").field(&self.text).finish()
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}
impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_or_fail_with_one_line() {
        let check = |pattern: &str, text: &str, expect: Result<(bool, bool), &str>| {
            let result = Pattern::new(pattern).map(|it| (it.matches(text), it.is_inverted()));
            assert_eq!(result.as_ref().map_err(|error| error.0.as_str()), expect.as_ref().map_err(|it| *it));
        };
        check("gemm$", "sgemm", Ok((true, false)));
        check("Gemm", "sgemm", Ok((false, false)));
        check("!^read", "READ", Ok((true, true)));
        check(r"^\w{5}$", "größe", Ok((true, false)));
        check("größe", "GRÖßE", Ok((true, false)));
        check("a(b", "ab", Err("unclosed group"));
        check("(a{1000}){1000}", "", Err("Compiled regex exceeds size limit of 1048576 bytes."));
        check(&"x".repeat(1001), "", Err("the pattern is longer than 1000 bytes"));
    }
}
