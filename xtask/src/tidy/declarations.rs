//! Reading the declarations of reasons from the sources.
//!
//! Owns: the syntax of the macro `reasons!` of `common`. Because: the tables of `docs/loss.md` are generated from the
//! declarations, which only compilers could read if they had many forms. Does not: judge them; see [`super::reasons`].
//!
//! ```text
//! reasons! {
//!     class Gap, page "operators.md";
//!     const LOST = "operator-lost", "operators never came", class Loss, page "loss.md", helps "more memory";
//! }
//! ```

use super::syntax;
use std::ops::Range;

/// Start of a block of declarations.
const OPENS: &str = "reasons! {";

/// One reason.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Declaration {
    pub(super) key: String,
    pub(super) sentence: String,
    pub(super) class: String,
    pub(super) page: String,
    pub(super) helps: Option<String>,
    /// Line of the key, from 1.
    pub(super) line: usize,
}

/// The blocks of a file, from the first character after the opening bracket to the closing one. `code` is the file's
/// product code without comments and strings.
pub(super) fn blocks(code: &str) -> Vec<Range<usize>> {
    let block = |(at, _): (usize, &str)| {
        let begin = at + OPENS.len();
        let mut depth = 1_usize;
        for (length, byte) in code.as_bytes()[begin..].iter().enumerate() {
            match byte {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return begin..begin + length;
            }
        }
        begin..code.len()
    };
    code.match_indices(OPENS).map(block).collect()
}

/// The declarations of a block.
///
/// # Errors
/// A line and its error.
pub(super) fn read(text: &str, code: &str, block: Range<usize>) -> Result<Vec<Declaration>, (usize, String)> {
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let strings = syntax::strings(text).into_iter();
    let mut strings = strings.filter(|part| block.contains(&part.start));
    let page = strings.next().ok_or((line_of(block.start), "no page in the first line".to_owned()))?;
    let head = words(&code[block.start..page.start]);
    let ["class", class, ",", "page"] = head.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        return Err((line_of(page.start), "does not begin with `class CLASS, page \"PAGE\";`".to_owned()));
    };
    let header = Declaration {
        class: class.to_owned(),
        page: unescaped(&text[page.clone()]),
        ..Declaration::default()
    };
    let mut found: Vec<Declaration> = Vec::new();
    let mut at = page.end;
    for string in strings {
        let between = &code[at..string.start];
        let (own, next) = between.split_once(';').map_or((between, None), |(own, next)| (own, Some(next)));
        let value = unescaped(&text[string.clone()]);
        let wrong = |what: &str| (line_of(string.start), format!("{value:?} {what}"));
        let options = words(own);
        if let Some(last) = found.last_mut() {
            take_class(&options, last);
        }
        match (next, options.last().map(String::as_str), found.last_mut()) {
            (Some(_), ..) => {
                found.push(Declaration { key: value, line: line_of(string.start), ..header.clone() });
            }
            (None, Some("helps"), Some(last)) => last.helps = Some(value),
            (None, Some("page"), Some(last)) => last.page = value,
            (None, Some(","), Some(last)) if last.sentence.is_empty() => last.sentence = value,
            _ => return Err(wrong("is neither a key, a sentence, a page nor what helps")),
        }
        at = string.end;
    }
    if let Some(last) = found.last_mut() {
        let rest = &code[at..block.end];
        take_class(&words(rest.split(';').next().unwrap_or_default()), last);
    }
    match found.iter().find(|one| one.sentence.is_empty()) {
        Some(one) => Err((one.line, format!("{} has no sentence", one.key))),
        None => Ok(found),
    }
}

/// Parses `, class CLASS` before another option or the end.
fn take_class(options: &[String], into: &mut Declaration) {
    if let Some(at) = options.iter().position(|word| word == "class")
        && let Some(class) = options.get(at + 1)
    {
        into.class.clone_from(class);
    }
}

/// Words and commas.
fn words(code: &str) -> Vec<String> {
    code.replace(',', " , ").split_whitespace().map(str::to_owned).collect()
}

/// The value of a non-raw string literal.
pub(super) fn unescaped(quoted: &str) -> String {
    let mut value = String::new();
    let mut chars = quoted.trim_matches('"').chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('\n')) => while chars.next_if(|next| next.is_whitespace()).is_some() {},
            ('\\', Some(_)) => value.extend(chars.next()),
            _ => value.push(c),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line per declaration: key | sentence | class | page | help.
    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        let code = syntax::code_of(text);
        let mut lines = Vec::new();
        for block in blocks(&code) {
            match read(text, &code, block) {
                Ok(found) => lines.extend(found.into_iter().map(|one| {
                    let helps = one.helps.unwrap_or_default();
                    [one.key, one.sentence, one.class, one.page, helps].join(" | ")
                })),
                Err((line, what)) => lines.push(format!("{line}: {what}")),
            }
        }
        assert_eq!(lines, expect, "{text}");
    }

    #[test]
    fn each_form_is_read() {
        check(
            "reasons! {\n class Gap, page \"a.md\";\n /// A \"doc\".\n pub(crate) const A = \"a-b\", \"it is; so\";\n const C = \"c\",\n  \"c\";\n}",
            &["a-b | it is; so | Gap | a.md | ", "c | c | Gap | a.md | "],
        );
        check(
            "reasons! { class Gap, page \"a.md\"; pub enum E: u8 { A = 0, \"a\", \"x\", class Loss; B = 1, \"b\", \"y\"; } }",
            &["a | x | Loss | a.md | ", "b | y | Gap | a.md | "],
        );
        check(
            "impl N { reasons! { class Gap, page \"a.md\"; fn reason(self) { Self::A { .. } | Self::B(_) => \"a\", \"x\"; } or { Self::C(c) => c.reason(); } } }",
            &["a | x | Gap | a.md | "],
        );
    }

    #[test]
    fn an_entry_may_differ_from_the_header() {
        check(
            "reasons! { class Gap, page \"a.md\"; enum E { A, \"a\", \"x\", class Loss, page \"b.md\", helps \"h\"; B, \"b\", \"y\", helps \"i\"; C, \"c\", \"z\"; } }",
            &["a | x | Loss | b.md | h", "b | y | Gap | a.md | i", "c | z | Gap | a.md | "],
        );
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        check(
            "reasons! { enum E { A, \"a\", \"x\"; } }",
            &["1: does not begin with `class CLASS, page \"PAGE\";`"],
        );
        check("reasons! {\n class Gap, page \"a.md\";\n const A = \"a\";\n}", &["3: a has no sentence"]);
        check(
            "reasons! { class Gap, page \"a.md\"; const A = \"a\", \"b\", \"c\"; }",
            &["1: \"c\" is neither a key, a sentence, a page nor what helps"],
        );
    }

    #[test]
    fn comments_and_other_macros_declare_nothing() {
        check(
            "// reasons! { class Gap, page \"a.md\"; const A = \"a\", \"b\"; }\nmacro_rules! reasons { () => {} }",
            &[],
        );
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescaped("\"a \\\"b\\\" \\\n   c\""), "a \"b\" c");
    }
}
