//! `cargo xtask setup`: prepare a fresh machine to build, run and test the project.
//!
//! Owns: the list of requirements, the purpose of each, and its package on Debian. Because: two commands must be enough
//! on an unprepared machine, and nobody should install a package without knowing why. Does not: change kernel settings;
//! it only prints them.

use crate::sh;
use anyhow::{Result, bail};
use std::path::Path;

/// Options of `cargo xtask setup`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Install without asking.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Also install what only tests and benchmarks compare with (gdb, eu-stack, perf, readelf, tmux).
    #[arg(long)]
    pub(crate) tests: bool,
}

/// How to check a requirement.
enum Probe {
    /// A program in `PATH`.
    Program(&'static str),
    /// A file at a fixed place.
    File(&'static str),
    /// A Python expression that must be true.
    Python(&'static str),
}

struct Need {
    package: &'static str,
    probe: Probe,
    because: &'static str,
    only_tests: bool,
}

const fn need(package: &'static str, probe: Probe, because: &'static str) -> Need {
    Need { package, probe, because, only_tests: false }
}

const fn test_need(package: &'static str, probe: Probe, because: &'static str) -> Need {
    Need { package, probe, because, only_tests: true }
}

const NEEDS: &[Need] = &[
    need("gcc", Probe::Program("cc"), "libbpf, on which the loader stands, is C"),
    need("g++", Probe::Program("c++"), "the example workload has a C++ extension"),
    need("make", Probe::Program("make"), "libbpf's own build is a makefile"),
    need("pkg-config", Probe::Program("pkg-config"), "libbpf's build finds libelf with it"),
    need(
        "libelf-dev",
        Probe::File("/usr/include/gelf.h"),
        "libbpf reads the kernel programs' object with libelf",
    ),
    need("zlib1g-dev", Probe::File("/usr/include/zlib.h"), "libbpf reads compressed kernel configurations"),
    need("python3", Probe::Program("python3"), "the example workload is a Python program"),
    need(
        "python3-venv",
        Probe::Python("__import__('ensurepip')"),
        "numpy goes into a private folder, not into the system",
    ),
    need(
        "python3-dev",
        Probe::Python("os.path.exists(sysconfig.get_path('include') + '/Python.h')"),
        "the workload's C++ extension is compiled against this Python",
    ),
    test_need("binutils", Probe::Program("readelf"), "readelf is the oracle for unwind rows"),
    test_need(
        "libc6-arm64-cross",
        Probe::File("/usr/aarch64-linux-gnu/lib/libc.so.6"),
        "unwind rows of aarch64 are compared with readelf on its libraries",
    ),
    test_need(
        "gcc-aarch64-linux-gnu",
        Probe::Program("aarch64-linux-gnu-gcc"),
        "what is built for aarch64 must compile, some of it with C in it",
    ),
    test_need("libc6-dev-arm64-cross", Probe::File("/usr/aarch64-linux-gnu/lib/crt1.o"), "and be linked"),
    test_need(
        "qemu-user-static",
        Probe::Program("qemu-aarch64-static"),
        "the walkers' tests run on an emulated aarch64 too",
    ),
    test_need(
        "qemu-system-x86",
        Probe::Program("qemu-system-x86_64"),
        "the kernel programs are tested on other kernels, in an emulator",
    ),
    test_need("busybox-static", Probe::Program("busybox"), "and that guest needs a shell"),
    test_need("cpio", Probe::Program("cpio"), "and a file system in memory"),
    test_need(
        "libcap2-bin",
        Probe::File("/usr/sbin/setcap"),
        "a program that captures without root has its capabilities from its file",
    ),
    test_need("curl", Probe::Program("curl"), "it asks debuginfod servers, of which tests have their own"),
    test_need("strace", Probe::Program("strace"), "it makes single writes of a recording fail"),
    test_need("elfutils", Probe::Program("eu-stack"), "eu-stack is an oracle for live stacks"),
    test_need("gdb", Probe::Program("gdb"), "gdb is an oracle for live stacks"),
    test_need(
        "linux-perf",
        Probe::Program("perf"),
        "perf is the peer in benchmarks and an oracle for live stacks",
    ),
    test_need(
        "clang-19",
        Probe::Program("clang-19"),
        "it alone compiles CPython with a function for each opcode, as installers of Python fetch it",
    ),
    test_need(
        "golang-go",
        Probe::Program("go"),
        "Go's pprof reads the exports in its format, and stacks of a Go program are tested",
    ),
    test_need("nodejs", Probe::Program("node"), "stacks through V8's builtins are tested on it"),
    test_need("chromium", Probe::Program("chromium"), "a browser draws the page of `export --format html`"),
    test_need("npm", Probe::Program("npm"), "other viewers' schemas and command lines are npm packages"),
    test_need(
        "tmux",
        Probe::Program("tmux"),
        "the live view is tested in a terminal that a program can read",
    ),
];

/// Requirements for compiling CPython like the standalone builds: the tools of one LLVM release.
const OPTIMIZED_PYTHON: &[Need] = &[
    need("clang-19", Probe::Program("clang-19"), "it alone compiles a function for each opcode"),
    need("lld-19", Probe::Program("ld.lld-19"), "it links what is optimized as a whole"),
    need("llvm-19", Probe::Program("llvm-strip-19"), "its other tools know what these two write"),
    need("bolt-19", Probe::Program("llvm-bolt-19"), "it moves the functions of linked programs"),
];

fn met(probe: &Probe) -> bool {
    match probe {
        Probe::Program(name) => sh::which(name).is_some(),
        Probe::File(path) => Path::new(path).exists(),
        Probe::Python(expression) => sh::succeeds(
            sh::command("python3")
                .args(["-c", &format!("import os, sys, sysconfig; sys.exit(0 if ({expression}) else 1)")]),
        ),
    }
}

/// Runs the chore.
pub(crate) fn run(options: &Options) -> Result<()> {
    packages(options)?;
    trace_file_system()?;
    kernel_report()
}

/// Installs missing packages.
fn packages(options: &Options) -> Result<()> {
    install(NEEDS.iter().filter(|need| options.tests || !need.only_tests), options.yes)
}

/// Installs the requirements for compiling CPython like the standalone builds.
pub(crate) fn optimized_python() -> Result<()> {
    install(OPTIMIZED_PYTHON.iter(), true)
}

/// Installs the missing ones of these packages.
fn install<'n>(needs: impl Iterator<Item = &'n Need>, yes: bool) -> Result<()> {
    let missing: Vec<&Need> = needs.filter(|need| !met(&need.probe)).collect();
    if missing.is_empty() {
        eprintln!("==> packages: nothing is missing");
        return Ok(());
    }
    eprintln!("==> packages: {} to install", missing.len());
    for need in &missing {
        eprintln!("    {:<14} because {}", need.package, need.because);
    }
    let names = missing.iter().map(|need| need.package);
    if sh::which("apt-get").is_none() {
        let names: Vec<_> = names.collect();
        bail!(
            "there is no apt-get here\nhint: install what is called like this on your system: {}",
            names.join(" ")
        );
    }
    let mut install = sh::as_root("apt-get", &[]);
    install.args(["install", "--no-install-recommends"]).args(names);
    if yes {
        install.args(["--yes", "-qq"]).env("DEBIAN_FRONTEND", "noninteractive");
    }
    if let Err(first) = sh::run(&mut install) {
        eprintln!(
            "    {first:#}; the package lists may be missing or old, so they are fetched and it is tried again"
        );
        sh::run(sh::as_root("apt-get", &[]).args(["update", "-qq"]))?;
        sh::run(&mut install)?;
    }
    match missing.iter().find(|need| !met(&need.probe)) {
        Some(need) => bail!(
            "{} was installed, but what it is for still fails its check ({})",
            need.package,
            need.because
        ),
        None => Ok(()),
    }
}

/// Checks tracefs, which contains the ids of tracepoints.
fn trace_file_system() -> Result<()> {
    let events = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
    // Without root the folder may be unreadable though mounted, so check the mount table as well.
    let mounted = std::fs::read_to_string("/proc/self/mounts").is_ok_and(|text| text.contains(" tracefs "));
    if mounted || events.iter().any(|path| Path::new(path).exists()) {
        return Ok(());
    }
    if !Path::new("/sys/kernel/tracing").exists() {
        eprintln!(
            "    note: this kernel has no /sys/kernel/tracing; children of a target cannot be followed"
        );
        return Ok(());
    }
    sh::step(
        "mount tracefs on /sys/kernel/tracing",
        "forks and exits of the target are seen through tracepoints",
    );
    sh::run(sh::as_root("mount", &[]).args(["-t", "tracefs", "nodev", "/sys/kernel/tracing"]))
}

/// Reports the kernel's features; fails only when profiling is impossible.
fn kernel_report() -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|_| "unknown".to_owned());
    eprintln!("==> kernel {release}");
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    let bpf = Path::new("/proc/sys/kernel/unprivileged_bpf_disabled").exists();
    eprintln!(
        "    BTF                 {}",
        if btf { "yes" } else { "no: the programs cannot find the kernel's fields" }
    );
    eprintln!("    BPF system call     {}", if bpf { "yes" } else { "no: no program can be loaded" });
    match read("/proc/sys/kernel/perf_event_paranoid") {
        Ok(level) => eprintln!("    perf_event_paranoid {level} (root may sample at any level)"),
        Err(_) => eprintln!(
            "    perf_event_paranoid absent: this kernel has no perf events, so nothing can be sampled"
        ),
    }
    if !sh::is_root() && sh::which("sudo").is_none() {
        eprintln!("    note: neither root nor sudo here; attaching and live tests need one of them");
    }
    if btf && bpf {
        return Ok(());
    }
    bail!(
        "this kernel cannot run the programs\nhint: a kernel of 5.15 or later with CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_SYSCALL is needed"
    )
}
