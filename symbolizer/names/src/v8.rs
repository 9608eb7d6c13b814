//! V8's names for code shared by all JavaScript functions.
//!
//! Owns: [`label`]. Because: an interpreted function has no machine code of its own. On the stack it is a frame of
//! the builtin that runs its bytecode, and the builtin's name means nothing to the author of the function. Does not:
//! name the function; that name is in V8's heap.

/// Symbol of all frames of interpreted functions (`src/builtins/x64/builtins-x64.cc`,
/// `Generate_InterpreterEntryTrampoline`): bytecode handlers return to it, however the function was entered.
const ENTRIES: [&str; 2] =
    ["Builtins_InterpreterEntryTrampoline", "Builtins_InterpreterEntryTrampolineForProfiling"];

/// Label of an interpreted function.
const INTERPRETED: &str = "[interpreted JavaScript]";

/// The label for a symbol shared by all JavaScript functions; `None` for others.
pub(crate) fn label(symbol: &str) -> Option<String> {
    ENTRIES.contains(&symbol).then(|| INTERPRETED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_the_interpreter_are_labelled() {
        let check = |symbol: &str, expect: Option<&str>| {
            assert_eq!(label(symbol).as_deref(), expect, "{symbol}");
        };
        check("Builtins_InterpreterEntryTrampoline", Some("[interpreted JavaScript]"));
        check("Builtins_InterpreterEntryTrampolineForProfiling", Some("[interpreted JavaScript]"));
        // The functions that it runs, and compiled code, have their own names.
        for symbol in [
            "Builtins_LdaGlobalHandler",
            "Builtins_JSEntryTrampoline",
            "Builtins_InterpreterEntryTrampoline.cold",
            "InterpreterEntryTrampoline",
            "JS:~descend",
            "",
        ] {
            check(symbol, None);
        }
    }
}
