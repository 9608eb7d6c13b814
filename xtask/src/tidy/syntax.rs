//! The part of Rust's syntax that rules need: code without comments and strings, product code without its tests,
//! functions.
//!
//! Owns: distinguishing code from text. Because: a rule that mistakes a comment for code gives wrong reports. Does not:
//! parse; a function ends where its brackets do.

use std::ops::Range;

/// One function.
#[derive(Debug, PartialEq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Line of the `fn`, from 1.
    pub(super) line: usize,
    /// Lines from its `fn` to its last bracket.
    pub(super) lines: usize,
    /// One of its parameters is a tuple.
    pub(super) has_packed_parameter: bool,
}

/// The same text with comments, strings and characters blanked; line breaks stay.
pub(super) fn code_of(text: &str) -> String {
    let mut code = text.as_bytes().to_vec();
    each_text(text, |part, _| {
        for byte in &mut code[part] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    });
    String::from_utf8_lossy(&code).into_owned()
}

/// Ranges of the non-raw strings of a text, including quotes.
pub(super) fn strings(text: &str) -> Vec<Range<usize>> {
    let mut strings = Vec::new();
    each_text(text, |part, is_string| {
        if is_string {
            strings.push(part);
        }
    });
    strings
}

/// Calls `found` with each comment, string and character, and whether it is a non-raw string.
fn each_text(text: &str, mut found: impl FnMut(Range<usize>, bool)) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' if !after_word(bytes, at) => raw_string_end(bytes, at + 1).unwrap_or(at),
            b'b' if !after_word(bytes, at) && bytes.get(at + 1) == Some(&b'r') => {
                raw_string_end(bytes, at + 2).unwrap_or(at)
            }
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end > at {
            found(at..end, bytes[at] == b'"');
        }
        at = end.max(at + 1);
    }
}

fn after_word(bytes: &[u8], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| is_word(bytes[before]))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |len| at + len)
}

fn comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut at, mut depth) = (at, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r#"…"#`, whose `#` or quote is at `at`.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = at + hashes + 1;
    let len = bytes[body..].windows(close.len()).position(|window| window == close)?;
    Some(body + len + close.len())
}

/// The end of a character literal; `None` if the quote starts a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.get(at + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let rest = std::str::from_utf8(bytes.get(at + 1..)?.get(..4).unwrap_or(&bytes[at + 1..]))
        .or_else(|error| std::str::from_utf8(&bytes[at + 1..at + 1 + error.valid_up_to()]))
        .ok()?;
    let len = rest.chars().next()?.len_utf8();
    (bytes.get(at + 1 + len) == Some(&b'\'')).then_some(at + 2 + len)
}

/// Code before the unit tests of a file.
pub(super) fn product_of(code: &str) -> &str {
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]").map(|at| from + at) {
        let rest = code[at + "#[cfg(test)]".len()..].trim_start();
        // Tests come last; a module in another file, or an item for tests, does not end the product.
        if rest.starts_with("mod ")
            && rest.find('{').unwrap_or(usize::MAX) < rest.find(';').unwrap_or(usize::MAX)
        {
            return &code[..at];
        }
        from = at + 1;
    }
    code
}

/// All functions with a body.
pub(super) fn functions(code: &str) -> Vec<Function> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if after_word(bytes, at) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(end) = body_end(bytes, at).filter(|_| !name.is_empty()) else { continue };
        let breaks = |part: &[u8]| part.iter().filter(|byte| **byte == b'\n').count();
        let (line, lines) = (breaks(&bytes[..at]) + 1, breaks(&bytes[at..end]) + 1);
        let has_packed_parameter = has_packed_parameter(&code[at + 3 + name.len()..end]);
        found.push(Function { name, line, lines, has_packed_parameter });
    }
    found
}

/// Whether a parameter destructures a tuple, is one, or refers to one; `signature` starts after the function's name.
/// Unit and parentheses around a `+` (`&(dyn Any + Send)`) are no tuples.
fn has_packed_parameter(signature: &str) -> bool {
    let (mut generics, mut around, mut before) = (0_usize, 0_usize, ' ');
    let signature: Vec<char> = signature.chars().filter(|c| !c.is_whitespace()).collect();
    for (at, c) in signature.iter().copied().enumerate() {
        match c {
            '<' if around == 0 => generics += 1,
            '>' if around == 0 && before != '-' => generics = generics.saturating_sub(1),
            '(' | ')' if generics > 0 => {}
            '(' if around == 1 && is_of_parameter(&signature[..at]) && has_comma(&signature[at + 1..]) => {
                return true;
            }
            '(' | '[' | '<' => around += 1,
            '>' if before == '-' => {}
            ')' | ']' | '>' => around = around.saturating_sub(1),
            _ => {}
        }
        if generics == 0 && around == 0 && c == ')' {
            return false;
        }
        before = c;
    }
    false
}

/// Whether a parameter or its type follows, possibly after a reference. White space has been removed: for `&'a mut (`,
/// `before` is `&'amut`.
fn is_of_parameter(before: &[char]) -> bool {
    let length = before.iter().rev().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '\'')).count();
    let (before, word) = before.split_at(before.len() - length);
    let word: String = word.iter().collect();
    let is_lifetime = word.starts_with('\'') && !word.contains("dyn") && !word.contains("impl");
    let before = match before {
        [rest @ .., '&'] if word.is_empty() || word == "mut" || is_lifetime => rest,
        _ if word.is_empty() => before,
        _ => return false,
    };
    matches!(before, [.., '(' | ',' | ':'])
}

/// Whether the parentheses at the start of `inside` contain a comma.
fn has_comma(inside: &[char]) -> bool {
    let (mut depth, mut before) = (0_usize, ' ');
    for c in inside.iter().copied() {
        match c {
            ',' if depth == 0 => return true,
            '(' | '[' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '>' if depth == 0 => return false,
            ')' | ']' | '>' => depth -= 1,
            _ => {}
        }
        before = c;
    }
    false
}

/// End of the body of the function at `at`; `None` without a body.
fn body_end(bytes: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut around) = (0_usize, 0_isize);
    for (place, byte) in (at..).zip(&bytes[at..]) {
        match byte {
            // `[u8; 4]` in a signature.
            b'(' | b'[' => around += 1,
            b')' | b']' => around -= 1,
            b';' if depth == 0 && around == 0 => return None,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && around == 0 {
                    return Some(place + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_become_blank() {
        // Blanks are counted in bytes; the rest is sufficient.
        let check = |text: &str, expect: &str| {
            let code = code_of(text);
            assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expect, "{text}");
            assert_eq!(code.lines().count(), text.lines().count(), "{text}");
        };
        check("a // b\nc", "a c");
        check("a /* b /* c */\n */ d", "a d");
        check(r#"f("x \" {", y)"#, "f( , y)");
        check(r##"f(r#"a"b"#, br"c", '{', '\'', '…', g::<'a>)"##, "f( , , , , , g::<'a>)");
        check("for r in b {}", "for r in b {}");
    }

    #[test]
    fn strings_are_found_and_not_what_looks_like_one() {
        let text = r##"f("a", '"', r#"b"#, "c\"d") // "e""##;
        let found: Vec<_> = strings(text).into_iter().map(|part| &text[part]).collect();
        assert_eq!(found, [r#""a""#, r#""c\"d""#]);
    }

    #[test]
    fn tuples_are_no_parameters() {
        let check = |code: &str, expect: bool| assert_eq!(has_packed_parameter(code), expect, "{code}");
        check("((a, b): (u8, u8)) {}", true);
        check("<F: Fn(u8) -> u8>(\n    &self,\n    (a, b): (u8, u8),\n) {}", true);
        check("(&self, a: (u8, u8)) {}", true);
        check("(a: u8, b: &(u8, u8)) {}", true);
        check("(a: &'a mut (Vec<u8>, u8)) {}", true);
        check("(a: &[(u8, u8)], b: Vec<(u8, u8)>) {}", false);
        check("(a: &(dyn Any + Send), b: &(impl Into<Map<u8, u8>> + ?Sized)) {}", false);
        check("(a: fn(u8, u8) -> u8, b: &dyn Fn(u8, u8)) {}", false);
        check("(f: impl Fn((u8, u8)) -> u8, g: Vec<(u8, u8)>, h: [u8; 2]) -> (u8, u8) { g((a, b)) }", false);
        check("<'a, T: Into<(u8, u8)>>(self) {}", false);
        check("(&self, (): (), a: u8) {}", false);
    }

    #[test]
    fn functions_have_their_lines() {
        let code =
            code_of("fn a(x: [u8; 2]) -> u8 {\n    { \"}\" }\n}\ntrait T { fn b(&self); }\npub fn c() {}\n");
        let function = |name: &str, line, lines| Function {
            name: name.to_owned(),
            line,
            lines,
            has_packed_parameter: false,
        };
        assert_eq!(functions(&code), [function("a", 1, 3), function("c", 5, 1)]);
    }

    #[test]
    fn unit_tests_are_no_product() {
        assert_eq!(product_of("fn a() {}\n#[cfg(test)]\nmod tests {\n}"), "fn a() {}\n");
        let outside = "#[cfg(test)]\nmod tests;\nfn a() {}\n";
        assert_eq!(product_of(outside), outside);
    }
}
