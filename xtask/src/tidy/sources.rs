//! Rules on the text of the sources: headers, sizes, safety arguments, and code that is allowed in one place only.
//!
//! Owns: the rules and the small amount of Rust syntax they need. Because: "only this module does X" is reliable only
//! if a machine checks it. Does not: parse Rust; a rule that needs more than lines belongs in a lint.

use super::tree;
use crate::sh;
use std::path::Path;

/// Longer files hold more than one concept.
const LINES_MAX: usize = 700;
/// Maximum lines between an `unsafe` and the start of its argument.
const SAFETY_LINES: usize = 8;

/// Words reserved for certain places.
struct RestrictedWords {
    words: &'static [&'static str],
    /// Scope: path prefixes.
    within: &'static [&'static str],
    /// Exceptions inside: path prefixes.
    except: &'static [&'static str],
    because: &'static str,
}

const ONLY_IN: &[RestrictedWords] = &[
    RestrictedWords {
        words: &["libbpf_rs"],
        within: &["common/", "walk/", "symbolizer/", "uprobes/", "profile/", "tui/", "userspace/"],
        except: &["userspace/capture/src/", "userspace/cli/tests/"],
        because: "only capture/ knows the loader",
    },
    RestrictedWords {
        words: &["RingBuffer"],
        within: &["userspace/"],
        except: &["userspace/capture/src/rings"],
        because: "only capture/rings reads memory shared with the kernel",
    },
    RestrictedWords {
        words: &["bpf_ringbuf", ".submit(", "RingBuf"],
        within: &["ebpf/src/"],
        except: &["ebpf/src/emit", "ebpf/src/maps"],
        because: "only emit writes records",
    },
    RestrictedWords {
        words: &[
            "std::fs",
            "Instant::now",
            "SystemTime",
            "std::thread",
            "std::process",
            "std::net",
            "std::env",
            "File::open",
        ],
        within: &[
            "userspace/pipeline/src/",
            "profile/src/",
            "profile/storage/src/import",
            "profile/storage/src/export",
            "tui/src/app",
            "tui/src/layout",
            "tui/src/model",
            "tui/src/page",
            "tui/src/state",
            "tui/src/view",
            "walk/src/",
            "common/src/",
            "symbolizer/names/src/",
        ],
        except: &[],
        because: "pure stages open no file, read no clock and start no thread",
    },
    RestrictedWords {
        words: &["/proc/"],
        within: &[
            "profile/src/",
            "profile/storage/src/",
            "tui/src/",
            "userspace/pipeline/src/",
            "walk/src/",
            "common/src/",
        ],
        except: &[],
        because: "the model and the pure stages do not know the operating system",
    },
    RestrictedWords {
        words: &["ratatui", "crossterm"],
        within: &["common/", "walk/", "symbolizer/", "uprobes/", "profile/", "userspace/"],
        except: &[],
        because: "only tui draws",
    },
];

const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "work left is written in an issue, not in the code"),
    (concat!("FIX", "ME"), "work left is written in an issue, not in the code"),
    (concat!("XX", "X:"), "work left is written in an issue, not in the code"),
    (concat!("crates", ".io"), "the machine's own configuration knows its registries"),
    (concat!("pypi", ".org"), "the machine's own configuration knows its registries"),
    (concat!("pythonhosted", ".org"), "the machine's own configuration knows its registries"),
    (concat!("npmjs", ".org"), "the machine's own configuration knows its registries"),
    (concat!("debian", ".org"), "the machine's own configuration knows its registries"),
    (concat!("rust-lang", ".org"), "the machine's own configuration knows its registries"),
];

/// Checks all hand-written text files of the checkout.
pub(super) fn check(root: &Path, broken: &mut Vec<String>) {
    for suffix in [".rs", ".md", ".toml", ".py", ".cpp", ".c", ".h", ".sh"] {
        for path in sh::files_below(root, suffix) {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            if name.starts_with("tests/fixtures/") || name.starts_with("tests/golden/") {
                continue;
            }
            match std::fs::read_to_string(&path) {
                Ok(text) => file(&name, &text, broken),
                Err(error) => broken.push(format!("{name}: cannot be read: {error}")),
            }
        }
    }
}

fn file(name: &str, text: &str, broken: &mut Vec<String>) {
    for (number, line) in (1..).zip(text.lines()) {
        // rustfmt handles Rust; what it leaves is text that tests expect.
        if line.ends_with([' ', '\t']) && !name.ends_with(".rs") {
            broken.push(format!("{name}:{number}: ends in white space"));
        }
        for (word, because) in FORBIDDEN {
            if line.contains(word) {
                broken.push(format!("{name}:{number}: says {word}; {because}"));
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        broken.push(format!("{name}: does not end in a line break"));
    }
    if name.ends_with(".rs") {
        rust(name, text, broken);
    }
}

fn rust(name: &str, text: &str, broken: &mut Vec<String>) {
    // `x/tests.rs` belongs to `x.rs`, whose header covers both.
    if !text.starts_with("//! ") && !name.ends_with("/tests.rs") && !name.ends_with("/tests/mod.rs") {
        broken.push(format!(
            "{name}:1: a module opens with `//!`: what it owns, because of what, what it does not"
        ));
    }
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > LINES_MAX {
        broken.push(format!("{name}: {} lines; split by concept below {LINES_MAX}", lines.len()));
    }
    for number in 0..lines.len() {
        if is_unsafe(lines[number]) && !argued(&lines, number) {
            broken.push(format!("{name}:{}: `unsafe` without a SAFETY argument", number + 1));
        }
    }
    // Unit tests may use what the tested code must not.
    if tree::is_test(name) {
        return;
    }
    let product = lines.iter().take_while(|line| line.trim() != "#[cfg(test)]");
    for (number, line) in (1..).zip(product) {
        let code = line.split("//").next().unwrap_or_default();
        for rule in ONLY_IN {
            let here = rule.within.iter().any(|prefix| name.starts_with(prefix))
                && !rule.except.iter().any(|prefix| name.starts_with(prefix));
            if let Some(word) = rule.words.iter().find(|word| here && code.contains(**word)) {
                broken.push(format!("{name}:{number}: says {word}; {}", rule.because));
            }
        }
    }
}

/// An unsafe block, implementation or function in code, not in a comment or a string.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["unsafe {", "unsafe impl", "unsafe fn"].iter().any(|form| {
        code.find(form)
            .is_some_and(|at| code[..at].matches('"').count().is_multiple_of(2) && !code[..at].ends_with('`'))
    })
}

/// Whether a `SAFETY:` comment or a `# Safety` section is on the line or shortly above.
fn argued(lines: &[&str], number: usize) -> bool {
    let first = number.saturating_sub(SAFETY_LINES);
    lines[first..=number].iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expect: &[&str]) {
        let mut broken = Vec::new();
        file(name, text, &mut broken);
        assert_eq!(broken, expect, "{name}: {text:?}");
    }

    #[test]
    fn each_rule_names_file_line_and_reason() {
        check("a.rs", "//! Owns it.\nfn f() {}\n", &[]);
        check("a.md", "text \n", &["a.md:1: ends in white space"]);
        check("a.md", "text", &["a.md: does not end in a line break"]);
        check(
            "a.rs",
            "fn f() {}\n",
            &["a.rs:1: a module opens with `//!`: what it owns, because of what, what it does not"],
        );
    }

    #[test]
    fn unsafe_code_needs_a_safety_argument_but_mentions_do_not() {
        let expect = ["a.rs:2: `unsafe` without a SAFETY argument"];
        check("a.rs", "//! X.\nlet x = unsafe { f() };\n", &expect);
        check("a.rs", "//! X.\n// SAFETY: f only reads.\nlet x = unsafe { f() };\n", &[]);
        check("a.rs", "//! X.\n/// # Safety\n/// `p` is valid.\npub unsafe fn g(p: *const u8) {}\n", &[]);
        check("a.rs", "//! X.\nlet x = \"unsafe {\"; // unsafe { here }\n", &[]);
    }

    #[test]
    fn names_reserved_for_one_place_are_refused_elsewhere() {
        let text = "//! X.\nuse libbpf_rs::Map;\n";
        check("userspace/capture/src/load.rs", text, &[]);
        check(
            "userspace/cli/src/live.rs",
            text,
            &["userspace/cli/src/live.rs:2: says libbpf_rs; only capture/ knows the loader"],
        );
        let timed = "//! X.\nlet t = std::time::Instant::now();\n";
        let expect = "profile/src/tree.rs:2: says Instant::now; pure stages open no file, read no clock and start no thread";
        check("profile/src/tree.rs", timed, &[expect]);
        check("profile/src/tree.rs", "//! X.\n#[cfg(test)]\nlet t = Instant::now();\n", &[]);
    }
}
