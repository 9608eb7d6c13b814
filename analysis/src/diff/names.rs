//! Frame names without the parts that differ between two runs, or two builds, of one program.
//!
//! Owns: [`Names`]. Because: a function that moved by a line, a library of another version or a worker with another id
//! is the same thing in a comparison. Does not: merge different things: two functions keep two names.
//!
//! | left out | example |
//! |---|---|
//! | ids of processes and threads | `python3-4711` → `python3`, `pt_data/8` → `pt_data` |
//! | numbers of equal threads | `worker-12` → `worker-*` |
//! | lines, unless they are asked for | `train.py:step:31` → `train.py:step` |
//! | what compilers add to clones | `gemm.constprop.0` → `gemm`; ` [clone .cold]`; Rust's `::h0123456789abcdef` |
//! | which device that is | `[device 0 H200 GPU-1234abcd]` → `[device 0]` |
//! | versions of libraries | `libc.so.6+0x10` → `libc.so+0x10` |
//! | offsets without a name, where the builds differ or are unknown | `libc.so+0x10` → `libc.so+?` |

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::{StrId, Strings};
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashSet;

/// Names of the frames of two profiles.
pub(super) struct Names {
    /// Paths of files that are the same build in both.
    same_build: FxHashSet<String>,
}

impl Names {
    pub(super) fn between(before: &Profile, after: &Profile) -> Self {
        let builds: FxHashSet<(&str, &str)> = before
            .executables
            .iter()
            .filter(|executable| !executable.build_id.is_empty())
            .map(|executable| (executable.path.as_str(), executable.build_id.as_str()))
            .collect();
        let same =
            after.executables.iter().filter(|e| builds.contains(&(e.path.as_str(), e.build_id.as_str())));
        Names { same_build: same.map(|executable| executable.path.clone()).collect() }
    }

    /// The name of a frame.
    pub(super) fn of(&self, frame: &Frame, strings: &Strings, lines: bool) -> String {
        match *frame {
            Frame::Process { comm, .. } => clean(strings.get(comm)),
            Frame::Thread { name, .. } => without_number(&clean(strings.get(name))),
            Frame::NativeUnnamed { module, offset, .. } if !strings.get(module).is_empty() => {
                let path = strings.get(module);
                let file = path.strip_suffix(" (deleted)").unwrap_or(path);
                let name = without_version(file.rsplit('/').next().unwrap_or(file));
                if self.same_build.contains(path) {
                    clean(&format!("{name}+{offset:#x}"))
                } else {
                    clean(&format!("{name}+?"))
                }
            }
            Frame::Native { .. } => {
                let (symbol, label) = (frame.label(strings, false), frame.label(strings, lines));
                let place = label.strip_prefix(&*symbol).unwrap_or_default();
                format!("{}{place}", without_clone(&symbol))
            }
            Frame::Kernel { .. } => {
                let label = frame.label(strings, lines);
                let symbol = label.strip_suffix("_[k]").unwrap_or(&label);
                format!("{}_[k]", without_clone(symbol))
            }
            // Numbers remain: those of devices in a process, and of their streams.
            Frame::Stream { device, stream, .. } => {
                Frame::Stream { device, stream, name: StrId::EMPTY }.label(strings, lines)
            }
            _ => frame.label(strings, lines),
        }
    }
}

/// Thread names of a pool differ by a number at their end.
fn without_number(name: &str) -> String {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match (stem.len() < name.len(), stem.ends_with(['-', '_', '/', '#', ':', ' '])) {
        (true, true) => format!("{stem}*"),
        _ => name.to_owned(),
    }
}

fn without_version(library: &str) -> &str {
    match library.find(".so") {
        Some(end) if library[end + 3..].bytes().all(|byte| byte == b'.' || byte.is_ascii_digit()) => {
            &library[..end + 3]
        }
        _ => library,
    }
}

/// What compilers append to names of parts and copies of a function.
const CLONES: [&str; 7] = [".constprop.", ".isra.", ".part.", ".cold", ".llvm.", ".lto_priv.", ".clone."];

fn without_clone(symbol: &str) -> &str {
    // In other languages these are words: `main.coldStart` of Go.
    let is_word = |behind: &str| behind.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let begin = |mark: &&str| {
        let mut found = symbol.match_indices(*mark).map(|(at, _)| at);
        found.find(|at| !is_word(&symbol[at + mark.len()..]))
    };
    let end = CLONES.iter().filter_map(begin).min().unwrap_or(symbol.len());
    // Demangled names have it in brackets.
    let symbol = symbol[..end].trim_end_matches(" [clone ");
    match symbol.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use deepctx_profile::frame::Role;

    use super::*;

    #[test]
    fn what_differs_between_builds_is_left_out_of_a_name() {
        let check = |found: &str, expect: &str| assert_eq!(found, expect);
        check(without_clone("gemm.constprop.0"), "gemm");
        check(without_clone("gemm.part.0.cold"), "gemm");
        check(without_clone("work::spin(long) [clone .cold]"), "work::spin(long)");
        check(without_clone("work::spin(long) [clone .isra.0] [clone .cold]"), "work::spin(long)");
        check(without_clone("f(int) [clone ._omp_fn.0]"), "f(int) [clone ._omp_fn.0]");
        check(without_clone("main.coldStart"), "main.coldStart");
        check(without_clone("JS:~run /srv/x.part.js:10:3"), "JS:~run /srv/x.part.js:10:3");
        check(without_clone("core::fmt::write::h0123456789abcdef"), "core::fmt::write");
        check(without_clone("a::house"), "a::house");
        check(without_version("libc.so.6"), "libc.so");
        check(without_version("libtorch_cpu.so"), "libtorch_cpu.so");
        check(without_version("x.something"), "x.something");
        check(&without_number("worker-12"), "worker-*");
        check(&without_number("pt_data"), "pt_data");
        check(&without_number("python3"), "python3");
    }

    #[test]
    fn names_keep_lines_and_streams_but_no_versions() {
        let mut strings = Strings::new(usize::MAX);
        let mut text = |text: &str| strings.intern(text);
        let clone = Frame::Native {
            symbol: text("gemm.constprop.0"),
            module: text("/l/libx.so"),
            file: text("/src/gemm.c"),
            line: NonZeroU32::new(7),
            inlined: false,
            role: Role::Code,
        };
        let stream = Frame::Stream { device: 0, stream: Some(7), name: text("H200 GPU-1234abcd") };
        let unnamed = Frame::NativeUnnamed {
            module: text("/l/libx.so.1 (deleted)"),
            offset: 16,
            reason: text("stripped"),
            role: Role::Code,
        };
        let names = Names { same_build: FxHashSet::default() };
        let check = |frame: &Frame, lines: bool, expect: &str| {
            assert_eq!(names.of(frame, &strings, lines), expect);
        };
        check(&clone, false, "gemm");
        check(&clone, true, "gemm (gemm.c:7)");
        check(&stream, false, "[device 0, stream 7]");
        check(&unnamed, false, "libx.so+?");
    }
}
