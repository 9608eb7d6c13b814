//! Restrictions: what keeps even root from capturing on some machines.
//!
//! Owns: recognizing lockdown, security modules, seccomp filters and their absence, and PID namespaces. Because: each
//! of them refuses with the same "permission denied", and only its name says whom to contact. Does not: know what a
//! policy refuses; the log of the machine does.

use std::fs;
use std::path::Path;

use super::{Check, State, read};

/// The number of the first process namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// One check for each restriction that exists.
pub(super) fn checks() -> Vec<Check> {
    let status = read("/proc/self/status").unwrap_or_default();
    let label = read("/proc/self/attr/current").map(|label| label.trim_end_matches('\0').to_owned());
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let rows = [
        lockdown(&read("/sys/kernel/security/lockdown").unwrap_or_default()),
        selinux(&read("/sys/fs/selinux/enforce").unwrap_or_default(), label.as_deref()),
        Path::new("/sys/module/apparmor").exists().then(|| apparmor(label.as_deref())).flatten(),
        seccomp(&status),
        worker_filters(&read("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default()),
        pid_namespace(&namespace.to_string_lossy()),
    ];
    rows.into_iter().flatten().collect()
}

fn row(name: &'static str, found: String, state: State, fix: &str) -> Check {
    Check { name, found, state, fix: Some(fix.into()) }
}

/// `text` lists the levels, with the active one in brackets: `none [integrity] confidentiality`.
fn lockdown(text: &str) -> Option<Check> {
    let (_, rest) = text.split_once('[')?;
    let (level, _) = rest.split_once(']')?;
    // If kernel secrets are kept from root, BPF programs may not read its memory (`LOCKDOWN_BPF_READ_KERNEL`), and perf
    // events are refused (`LOCKDOWN_PERF`).
    let fix =
        "boot with lockdown=integrity, or without: this level refuses BPF programs that read kernel memory";
    (level == "confidentiality").then(|| row("lockdown", level.to_owned(), State::Missing, fix))
}

fn selinux(enforce: &str, label: Option<&str>) -> Option<Check> {
    let found = format!("enforcing, this process is {}", label.unwrap_or("of an unknown label"));
    let fix = "where a capture is refused, `sudo ausearch -m avc -c deepctx-bpf` says by which rule";
    (enforce == "1").then(|| row("SELinux", found, State::Less, fix))
}

/// `label` is `unconfined`, or a profile with its mode: `docker-default (enforce)`.
fn apparmor(label: Option<&str>) -> Option<Check> {
    let label = label.filter(|label| !label.is_empty() && *label != "unconfined")?;
    let fix = "where a capture is refused, run it outside of this profile (`aa-exec -p unconfined`; in a container, \
               `--security-opt apparmor=unconfined`)";
    Some(row("AppArmor", label.to_owned(), State::Less, fix))
}

/// `status` is that of this process in `/proc`.
fn seccomp(status: &str) -> Option<Check> {
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"))?;
    let fix = "where a capture is refused, run the container with a filter that allows bpf, perf_event_open and \
               ptrace (`--security-opt seccomp=unconfined`)";
    (mode.trim() == "2")
        .then(|| row("system calls", "a filter is in force (seccomp)".into(), State::Less, fix))
}

/// `actions` are those that a filter can take (`seccomp(2)`); a kernel without filters has no such list.
fn worker_filters(actions: &str) -> Option<Check> {
    let fix = "use a kernel built with CONFIG_SECCOMP_FILTER=y: without, workers keep all system calls, and GPUs have \
               no figures";
    let has_filters = actions.split_whitespace().any(|action| action == "errno");
    (!has_filters).then(|| row("filters of workers", "none (seccomp)".into(), State::Less, fix))
}

fn pid_namespace(link: &str) -> Option<Check> {
    let fix = "start the container with the host's processes (`--pid=host`, `hostPID: true`) to see those of others";
    let is_own = !link.is_empty() && link != FIRST_PID_NAMESPACE;
    is_own.then(|| row("processes", "those of one container alone".into(), State::Less, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result, and whether it is sufficient.
    fn check(found: Option<Check>, expect: Option<(&str, State)>) {
        assert_eq!(found.as_ref().map(|check| (check.found.as_str(), check.state)), expect);
        assert!(found.is_none_or(|check| check.fix.is_some()));
    }

    #[test]
    fn only_the_strictest_lockdown_forbids_a_capture() {
        check(lockdown(""), None);
        check(lockdown("[none] integrity confidentiality"), None);
        check(lockdown("none [integrity] confidentiality"), None);
        check(lockdown("none integrity [confidentiality]"), Some(("confidentiality", State::Missing)));
    }

    #[test]
    fn security_modules_are_named_with_their_label() {
        let label = Some("system_u:system_r:container_t:s0");
        check(
            selinux("1", label),
            Some(("enforcing, this process is system_u:system_r:container_t:s0", State::Less)),
        );
        check(selinux("0", label), None);
        check(selinux("", None), None);
        check(apparmor(Some("docker-default (enforce)")), Some(("docker-default (enforce)", State::Less)));
        check(apparmor(Some("unconfined")), None);
        check(apparmor(None), None);
    }

    #[test]
    fn filters_and_namespaces_of_containers_are_named() {
        check(seccomp("Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"), None);
        check(
            seccomp("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"),
            Some(("a filter is in force (seccomp)", State::Less)),
        );
        check(worker_filters("kill_process kill_thread trap errno user_notif trace log allow"), None);
        check(worker_filters(""), Some(("none (seccomp)", State::Less)));
        check(pid_namespace(FIRST_PID_NAMESPACE), None);
        check(pid_namespace(""), None);
        check(pid_namespace("pid:[4026532201]"), Some(("those of one container alone", State::Less)));
    }
}
