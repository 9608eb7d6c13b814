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

/// The readable name of a symbol; the symbol itself, cut to a bounded length, if it is not mangled.
pub fn demangle(symbol: &str) -> String {
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

fn cpp(symbol: &str) -> Option<String> {
    // Only names marked as mangled: a C function may be called `i`, which is also the mangled form of the type `int`.
    if !symbol.starts_with("_Z") && !symbol.starts_with("___Z") {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(DEPTH_MAX);
    let name = Symbol::new_with_options(symbol, &options).ok()?;
    let mut out = BoundedText::default();
    name.structured_demangle(&mut out, &DemangleOptions::new().recursion_limit(DEPTH_MAX)).ok()?;
    Some(out.text)
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
