//! Rules on the shape of the product: the length of functions, which files may use each other, the structure of
//! headers.
//!
//! Owns: the limits. Because: long functions and cycles of files gradually make a clear tree unclear. Does not: have
//! exceptions.

use super::tree::Crate;
use super::{modules, syntax};

/// Longer functions do more than one thing.
pub(super) const FUNCTION_LINES_MAX: usize = 80;
/// Calls that read a clock: library functions, and our wrappers around them.
const CLOCKS: &[&str] = &[
    "Instant::now(",
    "SystemTime::now(",
    "::now(",
    ".elapsed()",
    "clock_gettime(",
    "gettimeofday(",
    "monotonic_ns(",
    "log_progress(",
    "cpu_time(",
    "cpu_time_ns(",
    "process_cpu_ns(",
];

/// Checks all crates of the product.
pub(super) fn check(crates: &[Crate], broken: &mut Vec<String>) {
    let product = || crates.iter().filter(|one| !one.folder.starts_with("tests"));
    functions(product(), broken);
    packed_parameters(product(), broken);
    circles(product(), broken);
    for one in product() {
        clocks(one, broken);
    }
}

fn functions<'a>(crates: impl Iterator<Item = &'a Crate>, broken: &mut Vec<String>) {
    for file in crates.flat_map(Crate::product) {
        for function in syntax::functions(file.product()) {
            if function.lines > FUNCTION_LINES_MAX {
                broken.push(format!(
                    "{}:{}: {} has {} lines; split it below {FUNCTION_LINES_MAX}",
                    file.name, function.line, function.name, function.lines
                ));
            }
        }
    }
}

/// Tuple parameters have no names at the call and hide the number of parameters.
fn packed_parameters<'a>(crates: impl Iterator<Item = &'a Crate>, broken: &mut Vec<String>) {
    for file in crates.flat_map(Crate::product) {
        for function in syntax::functions(file.product()) {
            if function.has_packed_parameter {
                broken.push(format!(
                    "{}:{}: {} takes a tuple; pass its parts, or a type with names",
                    file.name, function.line, function.name
                ));
            }
        }
    }
}

fn circles<'a>(crates: impl Iterator<Item = &'a Crate>, broken: &mut Vec<String>) {
    for one in crates {
        for circle in circles_of(one) {
            let files = circle.join(", ");
            broken.push(format!("{}: files that use each other in a circle: {files}", one.folder));
        }
    }
}

/// Cycles among the files of a crate's product.
pub(super) fn circles_of(one: &Crate) -> Vec<Vec<String>> {
    let files: Vec<_> = one.product().map(|file| (file.name.clone(), file.text.clone())).collect();
    modules::circles(&one.folder, &files)
}

/// A header's promise to read no clock holds for its file; a folder's header, for all of it.
fn clocks(one: &Crate, broken: &mut Vec<String>) {
    for claim in one.product().filter(|file| promises_no_clock(&file.header())) {
        let folder = claim.name.strip_suffix("/mod.rs").or_else(|| claim.name.strip_suffix("/lib.rs"));
        let covered = |name: &str| {
            name == claim.name || folder.is_some_and(|folder| name.starts_with(&format!("{folder}/")))
        };
        for file in one.product().filter(|file| covered(&file.name)) {
            for (number, line) in (1..).zip(file.product().lines()) {
                if let Some(clock) = CLOCKS.iter().find(|clock| line.contains(**clock)) {
                    broken.push(format!(
                        "{}:{number}: calls {clock}…), while the header of {} says that no clock is read",
                        file.name, claim.name
                    ));
                }
            }
        }
    }
}

/// Whether the part `Does not: …` of a header mentions reading clocks.
fn promises_no_clock(header: &str) -> bool {
    let Some((_, rest)) = header.split_once("Does not:") else { return false };
    let sentence = rest.split_once(". ").map_or(rest, |(sentence, _)| sentence).to_lowercase();
    let verbs = ["read", "know", "use", "look at", "ask"];
    ["clock", "clocks"].iter().any(|noun| {
        sentence.split(|c: char| !c.is_alphanumeric()).any(|word| word == *noun)
            && verbs.iter().any(|verb| sentence.find(verb).is_some_and(|at| sentence[at..].contains(noun)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::File;

    fn check(files: &[(&str, &str)], expect: &[&str]) {
        let file = |(name, text): &(&str, &str)| File {
            name: (*name).to_owned(),
            text: (*text).to_owned(),
            code: syntax::code_of(text),
        };
        let one = Crate { folder: "c".to_owned(), files: files.iter().map(file).collect() };
        let mut broken = Vec::new();
        functions(std::iter::once(&one), &mut broken);
        packed_parameters(std::iter::once(&one), &mut broken);
        circles(std::iter::once(&one), &mut broken);
        clocks(&one, &mut broken);
        assert_eq!(broken, expect, "{files:?}");
    }

    #[test]
    fn parameters_packed_into_tuples_are_named() {
        let text = "fn f((a, b): (u8, u8)) {}\n";
        check(
            &[("c/src/lib.rs", text)],
            &["c/src/lib.rs:1: f takes a tuple; pass its parts, or a type with names"],
        );
        let whole = "fn f(a: (u8, u8)) {}\n";
        check(
            &[("c/src/lib.rs", whole)],
            &["c/src/lib.rs:1: f takes a tuple; pass its parts, or a type with names"],
        );
        check(&[("c/tests/a.rs", text)], &[]);
    }

    #[test]
    fn long_functions_are_named() {
        let long = format!("fn f() {{\n{}}}\n", "x;\n".repeat(79));
        check(&[("c/src/lib.rs", &long)], &["c/src/lib.rs:1: f has 81 lines; split it below 80"]);
        check(&[("c/src/lib.rs", &long.replacen("x;\n", "", 1))], &[]);
        check(&[("c/tests/a.rs", &long)], &[]);
    }

    #[test]
    fn a_promise_about_clocks_is_held_against_the_code() {
        let header = "//! Owns: it. Does not: draw, or read a clock: time comes\n//! with it.\n";
        let lies = format!("{header}fn f() {{ Instant::now(); }}\n");
        let expect =
            "c/src/a.rs:3: calls Instant::now(…), while the header of c/src/a.rs says that no clock is read";
        check(&[("c/src/a.rs", &lies)], &[expect]);
        check(&[("c/src/a.rs", &format!("{header}#[cfg(test)]\nmod tests {{\nInstant::now();\n}}\n"))], &[]);
        for around in ["log_progress(0)", "thread_cpu_time()", "OwnCost::now()"] {
            let lies = format!("{header}fn f() {{ {around}; }}\n");
            let call = CLOCKS.iter().find(|clock| around.contains(**clock)).expect("a known one");
            let expect = expect.replace("Instant::now(", call);
            check(&[("c/src/a.rs", &lies)], &[&expect]);
        }
        check(&[("c/src/a.rs", "//! Does not: convert between clocks.\nfn f() { Instant::now(); }\n")], &[]);
        let below = "c/src/b/x.rs:1: calls Instant::now(…), while the header of c/src/b/mod.rs says that no clock is read";
        check(&[("c/src/b/mod.rs", header), ("c/src/b/x.rs", "fn f() { Instant::now(); }")], &[below]);
    }
}
