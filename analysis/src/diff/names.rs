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
//! | what compilers add to clones | `gemm.constprop.0`, `gemm.cold` → `gemm`; Rust's `::h0123456789abcdef` |
//! | versions of libraries | `libc.so.6+0x10` → `libc.so+0x10` |
//! | offsets without a name, where the builds differ or are unknown | `libc.so+0x10` → `libc.so+?` |

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::Strings;
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
                let name = without_version(path.rsplit('/').next().unwrap_or(path));
                if self.same_build.contains(path) {
                    clean(&format!("{name}+{offset:#x}"))
                } else {
                    clean(&format!("{name}+?"))
                }
            }
            Frame::Native { .. } | Frame::Kernel { .. } => {
                let label = frame.label(strings, lines);
                match label.strip_suffix("_[k]") {
                    Some(symbol) => format!("{}_[k]", without_clone(symbol)),
                    None => without_clone(&label).to_owned(),
                }
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
    let end = CLONES.iter().filter_map(|mark| symbol.find(mark)).min().unwrap_or(symbol.len());
    let symbol = &symbol[..end];
    match symbol.rsplit_once("::h") {
        Some((name, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_builds_is_left_out_of_a_name() {
        let check = |found: &str, expect: &str| assert_eq!(found, expect);
        check(without_clone("gemm.constprop.0"), "gemm");
        check(without_clone("gemm.part.0.cold"), "gemm");
        check(without_clone("core::fmt::write::h0123456789abcdef"), "core::fmt::write");
        check(without_clone("a::house"), "a::house");
        check(without_version("libc.so.6"), "libc.so");
        check(without_version("libtorch_cpu.so"), "libtorch_cpu.so");
        check(without_version("x.something"), "x.something");
        check(&without_number("worker-12"), "worker-*");
        check(&without_number("pt_data"), "pt_data");
        check(&without_number("python3"), "python3");
    }
}
