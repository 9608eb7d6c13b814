//! The parser of queries.
//!
//! Owns: the grammar, and the position of an error. Because: a user sees a query rejected at the wrong character. Does
//! not: match.
//!
//! ```text
//!   query  = ["!"] ["^"] part {blank part} ["$"]
//!   part   = "**" | "*" | step
//!   step   = [kind ":"] [text] ["@" text]           at least one text
//!   text   = "/" regular expression "/" | '"' exactly this '"' | glob with * and ?
//! ```

use regex::RegexBuilder;

use super::frame::{Kind, QueryStep, TextMatch};
use super::{BYTES_MAX, STEPS_MAX};

/// Maximum bytes of a compiled expression: thirty steps with two each stay below 16 MiB.
const COMPILED_MAX: usize = 1 << 18;

/// A parsed query.
#[derive(Debug, Default)]
pub(super) struct ParsedQuery {
    pub(super) steps: Vec<QueryStep>,
    /// Bit *i*: any number of frames may follow the first *i* steps.
    pub(super) gaps: u32,
    pub(super) inverted: bool,
}

/// The error and its byte position.
#[derive(Debug)]
pub(super) struct QueryError {
    pub(super) at: usize,
    pub(super) message: String,
}

impl QueryError {
    fn at(at: usize, message: impl Into<String>) -> Self {
        QueryError { at, message: message.into() }
    }
}

/// Parses a query.
///
/// # Errors
/// The first error.
pub(super) fn parse(text: &str) -> Result<ParsedQuery, QueryError> {
    if text.len() > BYTES_MAX {
        let message = format!("the query is longer than {BYTES_MAX} bytes");
        return Err(QueryError::at(text.floor_char_boundary(BYTES_MAX), message));
    }
    let mut reader = Reader { text, at: 0 };
    let mut parsed = ParsedQuery::default();
    reader.blanks();
    parsed.inverted = reader.take("!");
    reader.blanks();
    if parsed.inverted && reader.remaining().starts_with('!') {
        return Err(QueryError::at(reader.at, "`!` can only come once"));
    }
    let from_root = reader.take_word("^");
    let to_leaf = parts(&mut reader, &mut parsed)?;
    if parsed.steps.is_empty() {
        return Err(QueryError::at(
            reader.at,
            "expected a frame, such as python:train_step or operator:aten::*",
        ));
    }
    if !from_root {
        parsed.gaps |= 1;
    }
    if !to_leaf {
        parsed.gaps |= 1 << parsed.steps.len();
    }
    Ok(parsed)
}

/// Parses steps and gaps up to the end; returns whether the end is the leaf of a stack.
fn parts(reader: &mut Reader<'_>, parsed: &mut ParsedQuery) -> Result<bool, QueryError> {
    loop {
        reader.blanks();
        let begin = reader.at;
        if reader.remaining().is_empty() {
            return Ok(false);
        }
        if reader.take_word("$") {
            reader.blanks();
            return match reader.remaining() {
                "" => Ok(true),
                _ => Err(QueryError::at(begin, "`$` is the leaf of a stack: it can only come last")),
            };
        }
        if reader.take_word("^") {
            return Err(QueryError::at(begin, "`^` is the root of a stack: it can only come first"));
        }
        if reader.take_word("**") {
            parsed.gaps |= 1 << parsed.steps.len();
            continue;
        }
        if parsed.steps.len() == STEPS_MAX {
            return Err(QueryError::at(begin, format!("a query has at most {STEPS_MAX} steps")));
        }
        let any = reader.take_word("*");
        parsed.steps.push(if any { QueryStep::default() } else { reader.step()? });
    }
}

/// The rest of a query.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn remaining(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.remaining().trim_start().len();
    }

    fn take(&mut self, what: &str) -> bool {
        let is = self.remaining().starts_with(what);
        self.at += if is { what.len() } else { 0 };
        is
    }

    /// Takes a word that ends at a space or with the query.
    fn take_word(&mut self, what: &str) -> bool {
        let behind = self.remaining().strip_prefix(what);
        let is = behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace));
        is && self.take(what)
    }

    fn step(&mut self) -> Result<QueryStep, QueryError> {
        let kind = self.kind()?;
        let name = match self.remaining().chars().next() {
            Some(first) if first != '@' && !first.is_whitespace() => Some(self.text(&['@'])?),
            _ => None,
        };
        let place = if self.take("@") { Some(self.text(&[])?) } else { None };
        if name.is_none() && place.is_none() {
            let kind = kind.map_or("", Kind::name);
            return Err(QueryError::at(
                self.at,
                format!("expected a name behind `{kind}:`; `{kind}:*` is any of them"),
            ));
        }
        match self.remaining().chars().next() {
            Some(next) if !next.is_whitespace() => {
                Err(QueryError::at(self.at, "expected a blank; a path that begins with / stands in quotes"))
            }
            _ => Ok(QueryStep { kind, name, place }),
        }
    }

    /// A kind with its colon. Two colons belong to a name: `aten::mm`.
    fn kind(&mut self) -> Result<Option<Kind>, QueryError> {
        let rest = self.remaining();
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ':' | '"' | '/' | '@'));
        let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
        if !behind.starts_with(':') || behind.starts_with("::") {
            return Ok(None);
        }
        let kind = Kind::ALL.iter().copied().find(|kind| kind.name() == word);
        let Some(kind) = kind else {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let hint = match word.contains('.') {
                true => format!("; a function of a file is python:NAME@{word}"),
                false => String::new(),
            };
            let names = names.join(", ");
            return Err(QueryError::at(
                self.at,
                format!("unknown kind `{word}`: expected one of {names}{hint}"),
            ));
        };
        self.at += word.len() + 1;
        Ok(Some(kind))
    }

    fn text(&mut self, ends: &[char]) -> Result<TextMatch, QueryError> {
        let begin = self.at;
        if self.take("\"") {
            let text = self.quoted('"').ok_or_else(|| QueryError::at(begin, "this quote does not end"))?;
            return Ok(TextMatch::Exact(text));
        }
        if self.take("/") {
            let unclosed = || QueryError::at(begin, "this regular expression does not end: expected a /");
            return compiled(&self.quoted('/').ok_or_else(unclosed)?, begin);
        }
        let rest = self.remaining();
        let end = rest.find(|c: char| c.is_whitespace() || ends.contains(&c)).unwrap_or(rest.len());
        let word = &rest[..end];
        if word.is_empty() {
            return Err(QueryError::at(begin, "expected a file or a library behind `@`"));
        }
        self.at += end;
        if word.contains(['*', '?']) {
            compiled(&glob(word), begin)
        } else {
            Ok(TextMatch::Exact(word.to_owned()))
        }
    }

    /// The text up to `end`, which a backslash escapes. Other backslashes stay. `None` without an end.
    fn quoted(&mut self, end: char) -> Option<String> {
        let mut text = String::new();
        let mut escaped = false;
        for (offset, c) in self.remaining().char_indices() {
            match c {
                _ if escaped => {
                    if c != end {
                        text.push('\\');
                    }
                    text.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                c if c == end => {
                    self.at += offset + c.len_utf8();
                    return Some(text);
                }
                c => text.push(c),
            }
        }
        None
    }
}

fn compiled(expression: &str, at: usize) -> Result<TextMatch, QueryError> {
    let regex = RegexBuilder::new(expression).size_limit(COMPILED_MAX).dfa_size_limit(COMPILED_MAX).build();
    regex.map(TextMatch::Found).map_err(|error| {
        // The last line has the reason; those above draw the expression.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim();
        QueryError::at(at, reason.strip_prefix("error: ").unwrap_or(reason))
    })
}

/// The anchored expression of a glob: `*` is any text, `?` one character.
fn glob(word: &str) -> String {
    let mut expression = String::from("(?s)^");
    for c in word.chars() {
        match c {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            c => expression.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    expression
}
