//! Demangling of C++, Rust and numba symbols, and V8's label for symbols shared by all functions.
//!
//! Owns: detecting the language of a symbol, and bounds on the output. Because: a mangled C++ name of a hundred bytes
//! can expand to gigabytes, and symbol tables are untrusted input. Does not: know where the name came from.

use std::fmt;

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

use crate::{numba, v8};

/// Longest mangled name that is demangled, and longest result. Names of expression templates in numeric libraries reach
/// some thousand bytes.
const NAME_BYTES_MAX: usize = 8192;
/// Deepest nesting of types in a C++ name.
const DEPTH_MAX: u32 = 96;
/// The same where others wait: the parser may read the rest of a name twice at each level.
const QUICK_DEPTH_MAX: u32 = 24;
/// Longest C++ name that is demangled where others wait.
const QUICK_BYTES_MAX: usize = 256;
/// `new` and `delete` in expressions: the parser reads what follows twice.
const READ_TWICE: [&[u8]; 4] = [b"dl", b"da", b"nw", b"na"];
/// Most of them in a name that is parsed: each doubles the time. Names of real kernels have none.
const READ_TWICE_MAX: usize = 16;

/// The readable name of a symbol; the symbol itself, cut to a bounded length, if it is not mangled.
pub fn demangle(symbol: &str) -> String {
    demangle_with(symbol, |symbol| cpp(symbol, DEPTH_MAX))
}

/// As [`demangle`], for symbols that anybody may have chosen, where others wait: names of C++ that are long or nest
/// deeply stay mangled.
pub fn demangle_quickly(symbol: &str) -> String {
    demangle_with(symbol, |symbol| {
        let is_short = symbol.len() <= QUICK_BYTES_MAX;
        is_short.then(|| cpp(symbol, QUICK_DEPTH_MAX)).flatten()
    })
}

fn demangle_with(symbol: &str, cpp: impl Fn(&str) -> Option<String>) -> String {
    let readable = (symbol.len() <= NAME_BYTES_MAX).then(|| {
        // Numba's names look like C++ that does not parse, or parses as something else.
        let mangled = rust(symbol).or_else(|| numba::demangle(symbol)).or_else(|| cpp(symbol));
        mangled.or_else(|| v8::label(symbol))
    });
    let readable = readable.flatten();
    readable.unwrap_or_else(|| shortened(symbol).to_owned())
}

fn rust(symbol: &str) -> Option<String> {
    // Some systems drop the underscore: there, `RC4_INIT` would be a crate of the name `INIT`.
    if !symbol.starts_with('_') {
        return None;
    }
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut out = BoundedText::default();
    // The alternate form leaves the hash out.
    fmt::write(&mut out, format_args!("{name:#}")).ok()?;
    Some(out.text)
}

/// `depth_max`: deepest nesting that is parsed. What is printed is bounded by its length.
fn cpp(symbol: &str, depth_max: u32) -> Option<String> {
    // Only names marked as mangled: a C function may be called `i`, which is also the mangled form of the type `int`.
    if !symbol.starts_with("_Z") && !symbol.starts_with("___Z") {
        return None;
    }
    if read_twice(symbol.as_bytes()) > READ_TWICE_MAX {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(depth_max);
    let name = Symbol::new_with_options(symbol, &options).ok()?;
    let mut out = BoundedText::default();
    name.structured_demangle(&mut out, &DemangleOptions::new().recursion_limit(DEPTH_MAX)).ok()?;
    Some(out.text)
}

/// How often a mangled name may have an operator of [`READ_TWICE`]. What is not certainly an identifier counts, so the
/// number is never too small.
fn read_twice(mut rest: &[u8]) -> usize {
    let (mut found, mut before) = (0, 0);
    while let Some(&first) = rest.first() {
        found += usize::from(READ_TWICE.iter().any(|operator| rest.starts_with(operator)));
        let length = match first {
            b'S' | b'T' => reference(rest),
            // The level of a parameter (`fL0p_`), or the name of a local function.
            b'0'..=b'9' if before != b'L' => identifier(rest),
            _ => 1,
        };
        before = rest[length - 1];
        rest = &rest[length..];
    }
    found
}

/// Bytes of a reference to an earlier part (`S1A_`), or of the letter alone.
fn reference(rest: &[u8]) -> usize {
    let number = rest[1..].iter().take_while(|it| it.is_ascii_digit() || it.is_ascii_uppercase()).count();
    if rest.get(1 + number) == Some(&b'_') { number + 2 } else { 1 }
}

/// Bytes of an identifier with its length, or of the number alone: before `E` or `_` it is a value or an index.
fn identifier(rest: &[u8]) -> usize {
    let digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
    let add = |length: usize, digit: &u8| length.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
    match rest.get(digits) {
        None | Some(b'E' | b'_') => digits,
        Some(_) => rest[..digits].iter().fold(0, add).saturating_add(digits).min(rest.len()),
    }
}

fn shortened(symbol: &str) -> &str {
    &symbol[..symbol.floor_char_boundary(NAME_BYTES_MAX)]
}

/// A text whose length is bounded: writing beyond the bound fails.
#[derive(Default)]
struct BoundedText {
    text: String,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > NAME_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(symbol: &str, expected: &str) {
        assert_eq!(demangle(symbol), expected);
    }

    #[test]
    fn names_of_each_language_are_demangled() {
        check("_ZN4core9panicking9panic_fmt17h5f1a6fd39197ad62E", "core::panicking::panic_fmt");
        check("_RNvC6_123foo3bar", "123foo::bar");
        check("_ZN4work5outerEl", "work::outer(long)");
        check("_ZN4work4DeepILi3EE3runEl", "work::Deep<3>::run(long)");
        check(
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
        );
        check("_ZN8__main__3hotB2v1B4c8tJE5ArrayIdLi1E1C7mutable7alignedE", "__main__.hot");
        check("_ZN3foo3barB2v1Ev", "foo::bar[abi:v1]()");
        check("Builtins_InterpreterEntryTrampoline", "[interpreted JavaScript]");
        check("cuLaunchKernel", "cuLaunchKernel");
        check("i", "i");
        check("RC4_INIT", "RC4_INIT");
        check("_Znot_a_name", "_Znot_a_name");
        check("_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault");
        check("_ZN4work4spinEl.cold", "work::spin(long) [clone .cold]");
    }

    #[test]
    fn a_name_that_expands_without_bound_stays_mangled() {
        // b<a, a> is the first parameter; each further one is a b of the previous one, twice.
        let twice = |i: u32| format!("S_IS{0}_S{0}_E", base36(i));
        let name = |parameters| "_Z1f1bI1aS0_E".to_owned() + &(1..parameters).map(twice).collect::<String>();
        check(&name(2), "f(b<a, a>, b<b<a, a>, b<a, a> >)");
        assert!(Symbol::new(&name(40)).is_ok());
        check(&name(40), &name(40));
    }

    #[test]
    fn a_name_that_takes_long_to_parse_stays_mangled() {
        // Of each `delete` the parser tries a second reading when what follows is none.
        for levels in [13, 80] {
            let name = format!("_Z1fIX{}E", "dl".repeat(levels));
            assert_eq!(demangle_quickly(&name), name);
        }
        let quick = ["_ZNSt6vectorIiSaIiEE9push_backERKi", "_RNvC6_123foo3bar", "_ZN8__main__3hotB2v1Edi"];
        for name in quick {
            assert_eq!(demangle_quickly(name), demangle(name));
        }
    }

    #[test]
    fn no_name_is_read_again_and_again() {
        let deletes = "dl".repeat(80);
        let hidden =
            ["", "plLi160E", "plfL160p_", "plT160_", "plS160_", "plS16A_", "plLN1aE160E", "plL1a160E"];
        for before in hidden {
            let name = format!("_Z1fIX{before}{deletes}E");
            check(&name, &name);
        }
        let data = "4data".repeat(30);
        check(&format!("_ZN{data}Ev"), &format!("{}()", vec!["data"; 30].join("::")));
    }

    fn base36(n: u32) -> String {
        let digit = |d: u32| char::from_digit(d, 36).unwrap().to_ascii_uppercase();
        if n < 36 { digit(n).into() } else { [digit(n / 36), digit(n % 36)].iter().collect() }
    }

    #[test]
    fn a_very_long_name_is_cut_at_a_char_boundary() {
        assert_eq!(demangle(&"ü".repeat(NAME_BYTES_MAX)).len(), NAME_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn any_name_gives_a_bounded_result(symbol in "(_Z|_R|___Z|_ZN)[A-Za-z0-9_]{0,80}") {
            prop_assert!(demangle(&symbol).len() <= NAME_BYTES_MAX);
        }
    }
}
