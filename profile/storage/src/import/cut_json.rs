//! JSON documents without their end.
//!
//! Owns: [`closed`]. Because: a killed process or a full disk leaves a document that ends anywhere, and a parser of
//! whole documents keeps nothing of it. Does not: parse values, or repair anything but the end.

/// A document without its end, up to the last whole object or list in a list, with all closed that is open there.
///
/// `None` if it has its end, or nothing whole. Only lists below at most `depth` brackets (their own included) count:
/// what holds a deeper one may lack values of its own, and is no whole element of its list.
pub(super) fn closed(text: &str, depth: usize) -> Option<String> {
    // The brackets that close what is open: now, and behind the last whole element.
    let (mut open, mut closing): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    let (mut end, mut in_text, mut is_escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' => {
                if open.pop() != Some(byte) {
                    return None;
                }
                if open.len() <= depth && open.last() == Some(&b']') {
                    end = at + 1;
                    closing.clone_from(&open);
                }
            }
            _ => {}
        }
    }
    if open.is_empty() || end == 0 {
        return None;
    }
    let mut whole = text.get(..end)?.to_owned();
    whole.extend(closing.iter().rev().map(|byte| char::from(*byte)));
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_ends_behind_its_last_whole_element() {
        let check = |text: &str, depth: usize, expect: Option<&str>| {
            assert_eq!(closed(text, depth).as_deref(), expect, "{text}");
        };
        let cut = r#"{"a":[{"b":[{"c":1},{"c":2}]},{"b":[{"c":3},{"c""#;
        check(cut, 2, Some(r#"{"a":[{"b":[{"c":1},{"c":2}]}]}"#));
        check(cut, 4, Some(r#"{"a":[{"b":[{"c":1},{"c":2}]},{"b":[{"c":3}]}]}"#));
        check(r#"[{"a":"\"]}é"},{"a":"}]"#, 1, Some(r#"[{"a":"\"]}é"}]"#));
        check(r#"{"a":[[1],2"#, 2, Some(r#"{"a":[[1]]}"#));
        check(r#"{"a":[{"b":1}]}"#, 2, None);
        check(r#"{"a":[{"b":1"#, 2, None);
        check(r#"{"a":[{"b":1}},"#, 2, None);
        check("", 2, None);
    }
}
