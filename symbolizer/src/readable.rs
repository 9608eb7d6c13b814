//! Readable names, made in this process.
//!
//! Owns: [`readable`]. Because: processes choose the names of the code that they generate, and a demangler that panics
//! over one of them must not end the capture. Does not: limit the time that many names take.

use crate::guard;

/// The readable form of a name; the name itself if it has none, or if the demangler has a defect.
pub(crate) fn readable(name: &str) -> String {
    guard::catch_faults(|| deepctx_names::demangle_quickly(name)).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_defeats_a_demangler_stays_as_it_is() {
        // The number of a parameter that overflows, and eighty levels of which each may double the time.
        for name in ["_Z1fT9223372036854775807_".to_owned(), format!("_Z1fIX{}E", "dl".repeat(80))] {
            assert_eq!(readable(&name), name);
        }
        assert_eq!(readable("_ZN4work5outerEl"), "work::outer(long)");
    }
}
