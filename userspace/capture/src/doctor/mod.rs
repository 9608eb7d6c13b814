//! Doctor: what this machine needs for a capture, and how to fix what is missing.
//!
//! Owns: the checks, and the hints of a capture that could not start. Because: a profiler that does not start must say
//! why, and what its user can change. Does not: print, or change anything.

mod capabilities;
mod installations;
mod pages;
mod restrictions;

use std::fmt;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

pub(super) use capabilities::missing_capabilities;
pub use capabilities::notices as capability_notices;
pub use pages::with_installed_pages;

use super::arch::HERE;
use super::perf_event::{self, Clock};

/// A requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is needed.
    pub name: &'static str,
    /// The result.
    pub found: String,
    /// Whether it is sufficient.
    pub state: State,
    /// A remedy; for a check that is not missing, a way to get more.
    pub fix: Option<Remedy>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Sufficient.
    Enough,
    /// There is less than there could be, or nothing; a capture works without it.
    Less,
    /// A capture, or an important part of it, needs this.
    Missing,
}

impl State {
    /// Enough, or else what its absence means.
    fn enough_if(is_enough: bool, otherwise: Self) -> Self {
        if is_enough { Self::Enough } else { otherwise }
    }
}

impl Check {
    /// Whether nothing that is needed is missing here.
    pub fn ok(&self) -> bool {
        self.state != State::Missing
    }
}

/// A remedy for a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A command for root, word by word, that is sufficient.
    Command(Vec<String>),
    /// Advice, if no command is sufficient.
    Hint(String),
}

impl Remedy {
    /// Sets a parameter of the kernel until the next boot.
    fn kernel_parameter(assignment: &str) -> Self {
        Self::Command(vec!["sysctl".to_owned(), assignment.to_owned()])
    }
}

impl From<String> for Remedy {
    fn from(hint: String) -> Self {
        Self::Hint(hint)
    }
}

impl From<&str> for Remedy {
    fn from(hint: &str) -> Self {
        Self::Hint(hint.to_owned())
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(words) => write!(f, "sudo {}", words.join(" ")),
            Self::Hint(hint) => f.write_str(hint),
        }
    }
}

/// Oldest kernel on which the programs load: `bpf_task_pt_regs` came with 5.15.
const KERNEL_MIN: (u32, u32) = (5, 15);

/// All checks.
pub fn checks() -> Vec<Check> {
    let mut checks = vec![installations::check(), machine(), kernel(), btf()];
    checks.extend(capabilities::checks());
    checks.extend([
        perf_events(),
        sampling_rate(),
        hardware_cycles(),
        uprobes(),
        kernel_symbols(),
        disk_cache(),
        gpu_driver(),
        gpu_counters(),
    ]);
    checks.extend(restrictions::checks());
    checks
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn machine() -> Check {
    let tested = if HERE.is_tested { "" } else { ": built for it, but not tested on it" };
    // An untested machine is no reason not to try.
    Check { name: "machine", found: format!("{}{tested}", HERE.arch), state: State::Enough, fix: None }
}

fn kernel() -> Check {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let ok = version(&release).is_none_or(|v| v >= KERNEL_MIN);
    let state = State::enough_if(ok, State::Missing);
    Check { name: "kernel", found: release, state, fix: (!ok).then(|| newer_kernel_hint().into()) }
}

/// Major and minor number of a release such as `6.1.0-18-amd64`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn btf() -> Check {
    let path = "/sys/kernel/btf/vmlinux";
    let ok = Path::new(path).exists();
    Check {
        name: "kernel types (BTF)",
        found: if ok { path.into() } else { "none".into() },
        state: State::enough_if(ok, State::Missing),
        fix: (!ok).then(|| BTF_HINT.into()),
    }
}

fn perf_events() -> Check {
    // Without the capability, the refusal is no news.
    let has_capability = !missing_capabilities().contains(&"CAP_PERFMON");
    perf_events_of(paranoid_level(), has_capability && perf_event::is_refused())
}

fn perf_events_of(level: Option<i32>, is_refused: bool) -> Check {
    let (found, state, fix) = match level {
        None => {
            let fix = Remedy::from("use a kernel built with CONFIG_PERF_EVENTS=y");
            ("none".to_owned(), State::Missing, Some(fix))
        }
        Some(level) if level > PARANOID_MOST && is_refused => {
            let fix = Remedy::kernel_parameter("kernel.perf_event_paranoid=2");
            let found = format!("perf_event_paranoid = {level}: only CAP_SYS_ADMIN overrides it here");
            (found, State::Missing, Some(fix))
        }
        Some(level) => {
            (format!("perf_event_paranoid = {level}: CAP_PERFMON overrides it"), State::Enough, None)
        }
    };
    Check { name: "perf events", found, state, fix }
}

/// The strictest level of Linux. Debian and Ubuntu have higher ones, and Ubuntu's is overridden by CAP_SYS_ADMIN alone
/// (`perf_paranoid_any`, kernel/events/core.c there).
const PARANOID_MOST: i32 = 2;

fn paranoid_level() -> Option<i32> {
    read("/proc/sys/kernel/perf_event_paranoid")?.parse().ok()
}

/// The capability that overrides the restriction of sampling events, where one was refused to a process that has
/// CAP_PERFMON.
pub(super) fn sampling_capability() -> &'static str {
    if paranoid_level().is_some_and(|level| level > PARANOID_MOST) { "CAP_SYS_ADMIN" } else { "CAP_PERFMON" }
}

fn sampling_rate() -> Check {
    let rate = read("/proc/sys/kernel/perf_event_max_sample_rate").and_then(|text| text.parse::<u32>().ok());
    let ok = rate.is_none_or(|rate| rate >= 99);
    Check {
        name: "highest sampling rate",
        found: rate.map_or("not limited".into(), |rate| format!("{rate} Hz")),
        state: State::enough_if(ok, State::Missing),
        fix: (!ok).then(|| Remedy::kernel_parameter("kernel.perf_event_max_sample_rate=10000")),
    }
}

fn hardware_cycles() -> Check {
    let ok = perf_event::has_cycles();
    let found = if ok { "can be sampled" } else { "none that can be sampled; the CPU clock is used" };
    let state = State::enough_if(ok, State::Less);
    Check { name: "hardware cycles", found: found.into(), state, fix: None }
}

fn uprobes() -> Check {
    let ok = Path::new("/sys/bus/event_source/devices/uprobe").exists();
    Check {
        name: "uprobes",
        found: if ok { "yes".into() } else { "none".into() },
        // Sampling works without them; GPU launches and operators need them.
        state: State::enough_if(ok, State::Less),
        fix: (!ok).then(|| "use a kernel built with CONFIG_UPROBE_EVENTS=y to see GPU launches".into()),
    }
}

fn kernel_symbols() -> Check {
    kernel_symbols_of(hides_kernel_symbols(), read("/proc/sys/kernel/kptr_restrict").as_deref())
}

/// Whether the kernel hides the addresses of its functions from this process.
fn hides_kernel_symbols() -> bool {
    let Ok(file) = fs::File::open("/proc/kallsyms") else { return true };
    // The whole file has megabytes.
    let mut lines = BufReader::new(file).lines().map_while(Result::ok).take(100);
    lines.all(|line| line.starts_with("0000000000000000"))
}

fn kernel_symbols_of(are_hidden: bool, restriction: Option<&str>) -> Check {
    Check {
        name: "kernel symbols",
        found: if are_hidden { "addresses are hidden".into() } else { "/proc/kallsyms".into() },
        // A capture without them has no names of kernel functions, and everything else.
        state: State::enough_if(!are_hidden, State::Less),
        // With 2 they are hidden from everybody; below, CAP_SYSLOG shows them (`kallsyms_show_value`,
        // kernel/ksyms_common.c).
        fix: are_hidden.then(|| match restriction {
            Some("2") => Remedy::kernel_parameter("kernel.kptr_restrict=1"),
            _ => privilege_hint().into(),
        }),
    }
}

fn disk_cache() -> Check {
    let folder = cache_folder();
    Check {
        name: "cache of unwind tables",
        found: folder.as_ref().map_or("none: no home folder".into(), |f| f.display().to_string()),
        state: State::enough_if(folder.is_some(), State::Less),
        fix: folder.is_none().then(|| "set XDG_CACHE_HOME".into()),
    }
}

/// Whether all users may read counters of NVIDIA's devices, which sampling of instructions needs.
fn gpu_counters() -> Check {
    let parameters = read("/proc/driver/nvidia/params");
    let admins_only = parameters.as_deref().and_then(counters_are_for_admins);
    let (state, found, fix) = match (parameters.is_some(), admins_only) {
        (false, _) => (State::Less, "no NVIDIA driver", None),
        (true, Some(false)) => (State::Enough, "for everybody", None),
        (true, Some(true)) => (
            State::Less,
            "for administrators: --pc-sampling of other users' programs is refused",
            Some(
                "set NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, or run the program as root",
            ),
        ),
        (true, None) => (State::Enough, "the driver does not say for whom", None),
    };
    Check { name: "GPU counters", found: found.into(), state, fix: fix.map(Remedy::from) }
}

/// The restriction according to the driver's parameters, as the module names them when loaded.
fn counters_are_for_admins(parameters: &str) -> Option<bool> {
    let value = parameters.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
    value.trim().parse::<u32>().ok().map(|value| value != 0)
}

fn gpu_driver() -> Check {
    let nvidia = read("/proc/driver/nvidia/version").and_then(|text| text.lines().next().map(str::to_owned));
    let amd = Path::new("/dev/kfd").exists().then(|| "amdgpu (/dev/kfd)".to_owned());
    let found = nvidia.or(amd);
    let state = State::enough_if(found.is_some(), State::Less);
    Check { name: "GPU driver", found: found.unwrap_or_else(|| "none".into()), state, fix: None }
}

/// Where unwind tables are kept between runs: root's own folder, otherwise the user's (`$XDG_CACHE_HOME`, `~/.cache`).
pub fn cache_folder() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/cache/deepctx-bpf".into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(base.join("deepctx-bpf"))
}

/// Advice for a kernel without type information.
pub(super) const BTF_HINT: &str =
    "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (every current distribution's is)";

/// Folders in which `sudo` looks for programs, as Debian, Ubuntu and Fedora set it up (`secure_path`).
const SUDO_FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Advice for root without privileges: `sudo` gives it nothing more.
const ROOT_HINT: &str = "root has fewer privileges here, as in a container: start that with \
    `--privileged --pid=host`, or with `--cap-add` for each capability";

/// Advice for missing privileges.
pub(super) fn privilege_hint() -> String {
    let is_root = rustix::process::geteuid().is_root();
    with_installed_pages(&privilege_hint_of(is_root, std::env::current_exe().ok().as_deref()))
}

/// A program installed by pip is in no folder where `sudo` looks.
fn privilege_hint_of(is_root: bool, program: Option<&Path>) -> String {
    if is_root {
        return ROOT_HINT.to_owned();
    }
    let once = "or give the program its capabilities once: docs/without-root.md";
    match program
        .filter(|path| path.parent().is_none_or(|folder| !SUDO_FOLDERS.iter().any(|it| folder == *it)))
    {
        Some(path) => format!("run it with sudo, by its path: `sudo {}`; {once}", quoted(path)),
        None => format!("run it with sudo, {once}"),
    }
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%,:=".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Advice for an unknown cause.
pub(super) const DOCTOR_HINT: &str = "`deepctx-bpf doctor` shows what this machine lacks";

/// Advice for the limit of open files.
pub const OPEN_FILES_HINT: &str = "raise `ulimit -n`: this process may open no more files";

/// Whether an error is the limit of open files. libbpf-rs gives the number only in its text.
pub(super) fn is_out_of_files(error: &impl fmt::Display) -> bool {
    format!("{error:#}").contains(&format!("(os error {})", Errno::MFILE.raw_os_error()))
}

/// The kernels that the programs run on.
pub(super) fn needed_kernel() -> String {
    let (major, minor) = KERNEL_MIN;
    format!("Linux {major}.{minor} or newer")
}

/// Advice for a kernel that is too old.
fn newer_kernel_hint() -> String {
    format!(
        "use {} (Debian 11 has one in bullseye-backports, Ubuntu 20.04 as linux-generic-hwe-20.04); what \
         opens profiles works here, too",
        needed_kernel()
    )
}

/// The release of the running kernel, if it is older than the programs need.
pub(super) fn kernel_too_old() -> Option<String> {
    let check = kernel();
    (!check.ok()).then_some(check.found)
}

/// Why an event may have been refused.
pub(super) fn perf_event_hint(clock: Clock, frequency_hz: u32) -> String {
    if clock == Clock::Cycles && !perf_event::has_cycles() {
        return "this machine counts no cycles that can be sampled, as many virtual machines do not: leave out --event".into();
    }
    let rate = read("/proc/sys/kernel/perf_event_max_sample_rate").and_then(|text| text.parse::<u32>().ok());
    match rate {
        Some(rate) if rate < frequency_hz => format!(
            "this kernel samples at {rate} Hz at most: use --freq {rate}, or sudo sysctl kernel.perf_event_max_sample_rate={frequency_hz}"
        ),
        _ => DOCTOR_HINT.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Remedy, State, kernel_symbols_of, perf_events_of, privilege_hint_of, version};

    #[test]
    fn a_program_outside_sudos_folders_is_named_by_path() {
        let check = |path: &str, expect: &str| {
            let hint = privilege_hint_of(false, Some(Path::new(path)));
            assert!(hint.starts_with(expect), "{hint}");
        };
        check("/usr/bin/deepctx-bpf", "run it with sudo, or");
        check("/opt/tools/deepctx-bpf", "run it with sudo, by its path: `sudo /opt/tools/deepctx-bpf`;");
        check("/opt/my tools/it", "run it with sudo, by its path: `sudo '/opt/my tools/it'`;");
        check("/home/o'neil/it", r"run it with sudo, by its path: `sudo '/home/o'\''neil/it'`;");
    }

    #[test]
    fn root_in_a_container_is_not_sent_to_sudo() {
        let hint = privilege_hint_of(true, Some(Path::new("/usr/bin/deepctx-bpf")));
        assert!(hint.contains("--privileged --pid=host") && !hint.contains("sudo"), "{hint}");
    }

    #[test]
    fn a_level_that_only_root_overrides_is_missing() {
        let check = |level, is_refused, state, fix: Option<&str>| {
            let check = perf_events_of(level, is_refused);
            let found = check.fix.map(|fix| fix.to_string());
            assert_eq!((check.state, found.as_deref()), (state, fix), "{level:?} {is_refused}");
        };
        check(Some(4), true, State::Missing, Some("sudo sysctl kernel.perf_event_paranoid=2"));
        check(Some(3), false, State::Enough, None);
        // A security module refuses it.
        check(Some(2), true, State::Enough, None);
        check(None, false, State::Missing, Some("use a kernel built with CONFIG_PERF_EVENTS=y"));
    }

    #[test]
    fn hidden_kernel_symbols_forbid_no_capture() {
        let hidden = kernel_symbols_of(true, Some("2"));
        assert_eq!(hidden.state, State::Less);
        assert_eq!(hidden.fix, Some(Remedy::kernel_parameter("kernel.kptr_restrict=1")));
        assert!(matches!(kernel_symbols_of(true, Some("1")).fix, Some(Remedy::Hint(_))));
        assert_eq!(kernel_symbols_of(false, Some("2")).fix, None);
    }

    #[test]
    fn kernel_versions_compare_by_number() {
        let check = |release: &str, expect| assert_eq!(version(release), expect, "{release}");
        check("6.1.0-18-amd64", Some((6, 1)));
        check("5.15.0", Some((5, 15)));
        check("6.18.44-cloud", Some((6, 18)));
        check("unknown", None);
        assert!(version("5.4.1") < version("5.15.2"));
    }
}
