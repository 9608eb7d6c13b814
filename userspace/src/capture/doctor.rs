//! Doctor: what this machine needs for a capture, and how to mend what is missing.
//!
//! Owns: the checks. Because: a profiler that does not start must say why. Does not: print.

use std::fs;

/// One need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is needed.
    pub name: &'static str,
    /// What was found.
    pub found: String,
    /// Whether it will do.
    pub ok: bool,
    /// The command that mends it.
    pub fix: Option<String>,
}

/// All checks.
pub fn checks() -> Vec<Check> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let btf = fs::metadata("/sys/kernel/btf/vmlinux").is_ok();
    vec![
        Check { name: "kernel", found: kernel, ok: true, fix: None },
        Check {
            name: "kernel types (BTF)",
            found: if btf { "/sys/kernel/btf/vmlinux".into() } else { "none".into() },
            ok: btf,
            fix: (!btf).then(|| "use a kernel built with CONFIG_DEBUG_INFO_BTF=y".into()),
        },
    ]
}
