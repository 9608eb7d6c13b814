//! Names of XLA's thunks.
//!
//! Owns: the symbols of the functions that run thunks, and how much of a module's name is read. Because: the probe is
//! placed by the symbol, and the reader of its records takes the class of the thunk from the same symbol. Does not:
//! look for symbols.

/// Bytes of a module's name that are read.
pub const UNIT_NAME_BYTES: usize = 48;

/// Prefix of the class in the symbol of its execute function.
const BEFORE: &str = "_ZN3xla3cpu";
const AFTER: &str = "7ExecuteERKNS0_5Thunk13ExecuteParamsE";

/// The symbol of the function that runs thunks of a class, given in mangled form: `8DotThunk`.
pub fn execute_symbol(mangled_class: &str) -> String {
    format!("{BEFORE}{mangled_class}{AFTER}")
}

/// The thunk class of an execute symbol: `DotThunk`.
pub fn class_of(symbol: &str) -> Option<&str> {
    let class = symbol.strip_prefix(BEFORE)?.strip_suffix(AFTER)?;
    let class = class.strip_prefix("8internal").unwrap_or(class);
    let digits = class.bytes().take_while(u8::is_ascii_digit).count();
    class[digits..].get(..class[..digits].parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_of_a_thunk_is_read_from_its_symbol() {
        for (class, expect) in [
            ("8DotThunk", Some("DotThunk")),
            ("16SmallKernelThunkILl6ELl1EE", Some("SmallKernelThunk")),
            ("8internal14LogicalIdThunkILNS1_13LogicalIdKindE1EE", Some("LogicalIdThunk")),
            ("99DotThunk", None),
            ("DotThunk", None),
            ("", None),
        ] {
            assert_eq!(class_of(&execute_symbol(class)), expect, "{class}");
        }
        assert_eq!(class_of("main"), None);
    }
}
