//! Capabilities: which ones each part of a capture needs on this kernel, and which ones this process lacks.
//!
//! Owns: the list of capabilities by purpose. Because: a user who runs the program with less than root must know
//! exactly which capabilities to grant, and what is lost without them. Does not: acquire any.

use super::{Check, State, hides_kernel_symbols, privilege_hint, read};
use crate::kernel_offsets;

/// A capability, by its bit in `CapEff` (include/uapi/linux/capability.h).
#[derive(Clone, Copy)]
struct Capability {
    bit: u32,
    name: &'static str,
    /// CAP_SYS_ADMIN can replace it.
    or_admin: bool,
}

const BPF: Capability = Capability { bit: 39, name: "CAP_BPF", or_admin: true };
const PERFMON: Capability = Capability { bit: 38, name: "CAP_PERFMON", or_admin: true };
const SYS_PTRACE: Capability = Capability { bit: 19, name: "CAP_SYS_PTRACE", or_admin: false };
const DAC_READ_SEARCH: Capability = Capability { bit: 2, name: "CAP_DAC_READ_SEARCH", or_admin: false };
const CHECKPOINT_RESTORE: Capability = Capability { bit: 40, name: "CAP_CHECKPOINT_RESTORE", or_admin: true };
const SYSLOG: Capability = Capability { bit: 34, name: "CAP_SYSLOG", or_admin: false };
const SYS_ADMIN: Capability = Capability { bit: 21, name: "CAP_SYS_ADMIN", or_admin: false };
const SETGID: Capability = Capability { bit: 6, name: "CAP_SETGID", or_admin: false };
const SETUID: Capability = Capability { bit: 7, name: "CAP_SETUID", or_admin: false };
const SYS_NICE: Capability = Capability { bit: 23, name: "CAP_SYS_NICE", or_admin: false };

/// A part of a capture, and what it needs.
struct Feature {
    /// Name of its check.
    name: &'static str,
    /// What profiles lack without it; `None` if there is no capture at all.
    without: Option<&'static str>,
    needs: &'static [Capability],
}

const CAPTURE: Feature = Feature { name: "for a capture", without: None, needs: &[BPF, PERFMON, SYS_PTRACE] };
/// Tested on 6.18 with each of them dropped.
const OTHERS: [Feature; 3] = [
    Feature {
        name: "for Python names",
        without: Some("Python names of other users' processes"),
        needs: &[DAC_READ_SEARCH],
    },
    Feature {
        name: "for files elsewhere",
        without: Some("files that were deleted or that lie in another mount namespace"),
        needs: &[CHECKPOINT_RESTORE],
    },
    Feature { name: "for kernel names", without: Some("names of kernel functions"), needs: &[SYSLOG] },
];

/// Probes of a capture, if one call attaches to all places of a file.
const PROBES: Feature =
    Feature { name: "for probes", without: Some("calls of probed libraries"), needs: &[BPF, PERFMON] };
/// Older kernels demand it to create a uprobe event (`perf_uprobe_event_init`, kernel/events/core.c).
const PROBES_ONE_BY_ONE: Feature = Feature { needs: &[SYS_ADMIN], ..PROBES };

/// What protects a capture and others, and shows in no profile: `without` is what happens then.
const SAFEGUARDS: [Feature; 2] = [
    Feature {
        name: "for workers as nobody",
        without: Some("workers keep this user, without its capabilities"),
        needs: &[SETUID, SETGID],
    },
    Feature {
        name: "for an end in time",
        without: Some("beside programs that keep every CPU busy, the end can take longer"),
        needs: &[SYS_NICE],
    },
];

/// Where `fusectl` is mounted, which lists the FUSE servers. With CAP_SYS_ADMIN a capture mounts its own.
const FUSE_LIST: &str = "/sys/fs/fuse/connections";
/// What happens without either.
const NO_FUSE_LIST: &str = "files that users serve through FUSE are not recognized, and such a server can hold the \
                            capture up: no CAP_SYS_ADMIN, and no fusectl on /sys/fs/fuse/connections";

/// The needs of the features here, satisfied ones first, then those of safeguards.
pub(super) fn checks() -> Vec<Check> {
    let uprobe_multi = kernel_offsets::facts().is_none_or(|facts| facts.uprobe_multi);
    let effective = effective();
    let mut checks = checks_of(effective, uprobe_multi);
    checks.extend(SAFEGUARDS.iter().map(|safeguard| of_safeguard(safeguard, effective)));
    checks.push(of_fuse(effective, &mounts()));
    checks
}

/// What a capture lacks here although it can begin, and what that costs.
pub fn notices() -> Vec<String> {
    notices_of(effective(), hides_kernel_symbols, &mounts())
}

fn notices_of(effective: u64, hides_kernel_symbols: impl Fn() -> bool, mounts: &str) -> Vec<String> {
    let mut words = Vec::new();
    for feature in &OTHERS {
        // Where the kernel shows its symbols to everybody, that capability is for nothing.
        let missing = missing(feature, effective).filter(|it| it.bit != SYSLOG.bit || hides_kernel_symbols());
        words.extend(missing.map(|it| word(feature, it.name)));
    }
    let lacks = (!words.is_empty()).then(|| format!("without {}", words.join(", ")));
    let fuse = of_fuse(effective, mounts);
    lacks.into_iter().chain((fuse.state != State::Enough).then_some(fuse.found)).collect()
}

/// Capabilities without which there is no capture, and which this process lacks.
pub(in super::super) fn missing_capabilities() -> Vec<&'static str> {
    missing(&CAPTURE, effective()).map(|capability| capability.name).collect()
}

/// The checks of a process with these capabilities. The first lists what is missing, the others the purpose of each.
fn checks_of(effective: u64, uprobe_multi: bool) -> Vec<Check> {
    let probes = if uprobe_multi { PROBES } else { PROBES_ONE_BY_ONE };
    let features: Vec<Feature> = [CAPTURE].into_iter().chain(OTHERS).chain([probes]).collect();
    let mut words: Vec<String> = Vec::new();
    let mut named: Vec<&str> = Vec::new();
    for feature in &features {
        for Capability { name, .. } in missing(feature, effective) {
            // If the capture lacks it, its probes do too.
            if named.contains(name) {
                continue;
            }
            named.push(name);
            words.push(word(feature, name));
        }
    }
    let captures = missing(&CAPTURE, effective).next().is_none();
    let without = if captures { State::Less } else { State::Missing };
    let first = Check {
        name: "privileges",
        found: if words.is_empty() { "enough".into() } else { format!("without {}", words.join(", ")) },
        state: State::enough_if(words.is_empty(), without),
        fix: (!words.is_empty()).then(|| privilege_hint().into()),
    };
    let by_feature = features.iter().map(|feature| of_feature(feature, effective));
    std::iter::once(first).chain(by_feature).collect()
}

/// A missing capability, with what it costs.
fn word(feature: &Feature, name: &str) -> String {
    match feature.without {
        Some(without) => format!("{name} ({without} will be missing)"),
        None => name.to_owned(),
    }
}

fn of_safeguard(safeguard: &Feature, effective: u64) -> Check {
    let check = of_feature(safeguard, effective);
    match safeguard.without {
        Some(without) if check.state != State::Enough => {
            Check { found: format!("{}: {without}", check.found), ..check }
        }
        _ => check,
    }
}

/// Whether a capture can tell which files users serve. `mounts` is that of this process in `/proc`.
fn of_fuse(effective: u64, mounts: &str) -> Check {
    let is_list = |line: &str| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(FUSE_LIST) && words.next() == Some("fusectl")
    };
    let by = match effective >> SYS_ADMIN.bit & 1 == 1 {
        true => Some(SYS_ADMIN.name),
        false => mounts.lines().any(is_list).then_some(FUSE_LIST),
    };
    Check {
        name: "for files over FUSE",
        found: by.unwrap_or(NO_FUSE_LIST).to_owned(),
        state: State::enough_if(by.is_some(), State::Less),
        fix: by.is_none().then(|| "`sudo mount -t fusectl fusectl /sys/fs/fuse/connections`".into()),
    }
}

fn mounts() -> String {
    read("/proc/self/mounts").unwrap_or_default()
}

fn of_feature(feature: &Feature, effective: u64) -> Check {
    let needs: Vec<&str> = feature.needs.iter().map(|capability| capability.name).collect();
    let missing: Vec<&str> = missing(feature, effective).map(|capability| capability.name).collect();
    let needs = needs.join(", ");
    let without = if feature.without.is_some() { State::Less } else { State::Missing };
    Check {
        name: feature.name,
        found: if missing.is_empty() { needs } else { format!("{needs}; missing: {}", missing.join(", ")) },
        state: State::enough_if(missing.is_empty(), without),
        fix: None,
    }
}

fn missing(feature: &Feature, effective: u64) -> impl Iterator<Item = &'static Capability> + use<> {
    let has = move |capability: &Capability| effective >> capability.bit & 1 == 1;
    feature
        .needs
        .iter()
        .filter(move |capability| !(has(capability) || capability.or_admin && has(&SYS_ADMIN)))
}

fn effective() -> u64 {
    let status = read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 2 | 1 << 40 | 1 << 34;

    #[test]
    fn missing_capabilities_are_named_with_what_they_are_for() {
        let check = |effective: u64, uprobe_multi: bool, state: State, found: &str| {
            let checks = checks_of(effective, uprobe_multi);
            assert_eq!((checks[0].state, checks[0].found.as_str()), (state, found), "{effective:#x}");
            assert_eq!(checks.iter().all(Check::ok), state != State::Missing, "{effective:#x}");
            // No feature is enough while something that it needs is missing.
            let lacks = |check: &&Check| check.found.contains("missing: ");
            assert!(checks.iter().filter(lacks).all(|check| check.state != State::Enough), "{effective:#x}");
        };
        let (enough, less, missing) = (State::Enough, State::Less, State::Missing);
        check(ALL, true, enough, "enough");
        check(u64::MAX, false, enough, "enough");
        check(ALL & !(1 << 39), true, missing, "without CAP_BPF");
        check(ALL & !(1 << 34), true, less, "without CAP_SYSLOG (names of kernel functions will be missing)");
        // CAP_SYS_ADMIN replaces the newer ones that were split off from it.
        check(ALL & !(1 << 39 | 1 << 38 | 1 << 40) | 1 << 21, true, enough, "enough");
        check(ALL & !(1 << 19) | 1 << 21, true, missing, "without CAP_SYS_PTRACE");
        // Before Linux 6.6 probes need it themselves.
        check(ALL, false, less, "without CAP_SYS_ADMIN (calls of probed libraries will be missing)");
    }

    #[test]
    fn each_feature_lists_what_it_needs_here() {
        let found = |effective: u64, uprobe_multi: bool, name: &str| {
            let checks = checks_of(effective, uprobe_multi);
            checks.into_iter().find(|check| check.name == name).unwrap().found
        };
        assert_eq!(found(ALL, true, "for a capture"), "CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE");
        assert_eq!(found(ALL, true, "for probes"), "CAP_BPF, CAP_PERFMON");
        assert_eq!(found(ALL, false, "for probes"), "CAP_SYS_ADMIN; missing: CAP_SYS_ADMIN");
        assert_eq!(found(0, true, "for kernel names"), "CAP_SYSLOG; missing: CAP_SYSLOG");
        assert_eq!(
            found(ALL & !(1 << 38), true, "for a capture"),
            "CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE; missing: CAP_PERFMON"
        );
    }

    const FUSECTL: &str = "proc /proc proc rw 0 0\nfusectl /sys/fs/fuse/connections fusectl rw,nosuid 0 0\n";

    #[test]
    fn safeguards_say_what_happens_without_them() {
        let found = |held: u64| SAFEGUARDS.each_ref().map(|safeguard| of_safeguard(safeguard, held).found);
        assert_eq!(found(u64::MAX), ["CAP_SETUID, CAP_SETGID", "CAP_SYS_NICE"]);
        let [workers, end] = found(ALL);
        assert!(workers.contains("; missing: CAP_SETUID, CAP_SETGID: workers keep this user"), "{workers}");
        assert!(end.contains("; missing: CAP_SYS_NICE: "), "{end}");
    }

    #[test]
    fn servers_of_users_are_known_by_their_list_only() {
        let check = |effective: u64, mounts: &str, state: State, found: &str| {
            let check = of_fuse(effective, mounts);
            assert_eq!((check.state, check.found.as_str()), (state, found), "{effective:#x} {mounts}");
        };
        check(1 << 21, "", State::Enough, "CAP_SYS_ADMIN");
        check(ALL, FUSECTL, State::Enough, FUSE_LIST);
        // The folder is there without the file system, too.
        check(ALL, "sysfs /sys sysfs rw 0 0\n", State::Less, NO_FUSE_LIST);
        check(ALL, "fusectl /mnt fusectl rw 0 0\n", State::Less, NO_FUSE_LIST);
    }

    #[test]
    fn a_capture_that_lacks_something_begins_by_saying_so() {
        let check = |effective: u64, hidden: bool, mounts: &str, expect: &[&str]| {
            assert_eq!(notices_of(effective, || hidden, mounts), expect, "{effective:#x} {hidden}");
        };
        check(u64::MAX, true, "", &[]);
        check(ALL, true, FUSECTL, &[]);
        check(ALL, true, "", &[NO_FUSE_LIST]);
        let syslog = "without CAP_SYSLOG (names of kernel functions will be missing)";
        check(ALL & !(1 << 34), true, FUSECTL, &[syslog]);
        check(ALL & !(1 << 34), false, FUSECTL, &[]);
        let both = "without CAP_DAC_READ_SEARCH (Python names of other users' processes will be missing), \
                    CAP_CHECKPOINT_RESTORE (files that were deleted or that lie in another mount namespace will be \
                    missing)";
        check(ALL & !(1 << 2 | 1 << 40), true, FUSECTL, &[both]);
    }
}
