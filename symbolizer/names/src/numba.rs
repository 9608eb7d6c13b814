//! Names that numba gives to the functions that it compiles.
//!
//! Owns: [`demangle`]. Because: numba borrows the form of the Itanium C++ ABI but not its rules: types are encoded in
//! its own way (`ArrayIdLi1E1C7mutable7alignedE`), so that demanglers of C++ give up. Does not: name types or versions:
//! `__main__.hot` is one function, whatever it was compiled for.
//!
//! The form is that of `numba/core/itanium_mangler.py`, with the tags of `numba/core/funcdesc.py` (0.54 to 0.68):
//!
//! ```text
//!  _Z N 8__main__ 3hot B2v1 B36c8tJTC… E 5ArrayIdLi1E1C7mutable7alignedE
//!     │ └─ path ──┘      │  └ options  │ └ types of the arguments
//!     │                  └ the how-manieth function this is: all of numba's names have it, first among the tags
//!     └ absent for a path of one part
//! ```

use std::fmt::Write as _;

/// Parts of a path: module, class and nested functions.
const PARTS_MAX: usize = 64;

/// Prefixes of names of entries: those of `@cfunc`, and the loops of `@vectorize` and `prange`.
const ENTRIES: [&str; 2] = ["cfunc.", "__gufunc__."];

/// The path of the function in Python, like `__main__.hot`; `None` for names that are not numba's.
pub(crate) fn demangle(symbol: &str) -> Option<String> {
    // Entries for C and for ufuncs have an extra word before the name.
    let (entry, symbol) =
        ENTRIES.iter().find_map(|entry| Some((*entry, symbol.strip_prefix(entry)?))).unwrap_or(("", symbol));
    let name = symbol.strip_prefix("_Z")?;
    let (mut rest, nested) = name.strip_prefix('N').map_or((name, false), |rest| (rest, true));
    let mut path = String::new();
    for _ in 0..PARTS_MAX {
        let Some((part, after)) = counted(rest) else { break };
        rest = after;
        let dot = if path.is_empty() { "" } else { "." };
        write!(path, "{dot}{}", written(part)).ok()?;
        if !nested {
            break;
        }
    }
    let (version, mut rest) = counted(rest.strip_prefix('B')?)?;
    let number = version.strip_prefix('v')?;
    if path.is_empty() || number.is_empty() || !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mut has_options = false;
    while let Some((_, after)) = rest.strip_prefix('B').and_then(counted) {
        (rest, has_options) = (after, true);
    }
    let types = if nested { rest.strip_prefix('E')? } else { rest };
    let is_cpp = entry.is_empty() && !has_options && are_of_cpp(types);
    (!is_cpp).then(|| format!("{entry}{path}"))
}

/// Whether types of arguments are those of C++, whose functions may have a tag like that of numba's number: numba
/// begins with none of these letters, and writes nothing where there are no arguments.
fn are_of_cpp(types: &str) -> bool {
    const LETTERS: &str = "ACFGKMOPRSTUVceglmnorwz";
    types.split('.').next() == Some("v") || types.starts_with(|letter: char| LETTERS.contains(letter))
}

/// The text after its length, and the rest.
fn counted(text: &str) -> Option<(&str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let length: usize = text[..digits].parse().ok()?;
    text[digits..].split_at_checked(length).filter(|(part, _)| !part.is_empty())
}

/// A part in Python's spelling: `_3clocals_3e` is `<locals>`. Other escapes stay, since `_ab` may be in the source:
/// numba does not escape its escape character.
fn written(part: &str) -> String {
    match part.strip_prefix("_3c").and_then(|rest| rest.strip_suffix("_3e")) {
        Some(word) if word.bytes().all(|letter| letter.is_ascii_lowercase()) => format!("<{word}>"),
        _ => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(symbol: &str, expect: Option<&str>) {
        assert_eq!(demangle(symbol).as_deref(), expect, "{symbol}");
    }

    #[test]
    fn a_compiled_function_has_its_name_in_python() {
        // Names from numba 0.68.1.
        let of_array = "B38c8tJTIeFIjxB2IKSgI4CrvQClQZ6FczSBAA_3dE5ArrayIdLi1E1C7mutable7alignedEx";
        check(&format!("_ZN8__main__3hotB2v1{of_array}"), Some("__main__.hot"));
        check(&format!("_ZN7cpython8__main__3hotB2v1{of_array}"), Some("cpython.__main__.hot"));
        check(&format!("cfunc._ZN8__main__3hotB2v1{of_array}"), Some("cfunc.__main__.hot"));
        check("_ZN8__main__5outer12_3clocals_3e5in_abB2v3B3c8tEx", Some("__main__.outer.<locals>.in_ab"));
        check("__gufunc__._ZN13_3cdynamic_3e5loop0B2v8E", Some("__gufunc__.<dynamic>.loop0"));
        check("_ZN8__main__3hotB2v1Edi", Some("__main__.hot"));
        check("_Z3hotB2v1x", Some("hot"));
        check("_ZN8__main__3hotB2v1B3c8tEv", Some("__main__.hot"));
        check("_ZN8__main__3hotB2v1E", Some("__main__.hot"));
    }

    #[test]
    fn names_of_other_languages_are_left_alone() {
        check("_ZN4work5outerEl", None);
        check("_ZNSs6appendB5cxx11Ev", None);
        check("_Z3hoti", None);
        check("_ZN3fooB5cxx11Ev", None);
        for types in ["v", "v.cold", "PKc", "RKSs", "ll"] {
            check(&format!("_ZN3foo3barB2v1E{types}"), None);
            check(&format!("_Z3barB2v1{types}"), None);
        }
        check("hot", None);
    }

    #[test]
    fn truncated_names_are_no_names() {
        let whole = "_ZN8__main__3hotB2v1B4c8tJE5ArrayIdLi1E";
        let end = whole.find("E5").unwrap();
        for length in 0..=end {
            check(&whole[..length], None);
        }
        check("_ZN99999999999999999999a", None);
        check("_ZN4ü3hotB2v1E", None);
    }

    proptest! {
        #[test]
        fn any_text_is_named_or_left_alone(symbol in "_ZN?([0-9]{1,2}[a-zü_]{0,9}){0,4}(B2v1)?(B[0-9]x)*E?") {
            prop_assert!(demangle(&symbol).is_none_or(|name| name.len() <= 2 * symbol.len()));
        }
    }
}
