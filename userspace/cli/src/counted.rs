//! Counted: a number with its noun, for sentences.
//!
//! Owns: the plural. Because: "1 samples" reads like a defect. Does not: know irregular nouns.

/// `1 thread`, `2 threads`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        for (count, expect) in [(0, "0 files"), (1, "1 file"), (2, "2 files")] {
            assert_eq!(counted(count, "file"), expect);
        }
    }
}
