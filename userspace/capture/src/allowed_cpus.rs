//! Allowed CPUs: how many of the machine's CPUs the targets may use.
//!
//! Owns: [`allowed_cpus`], from affinities and the limits of cgroups. Because: a container with 6 of 128 CPUs has too
//! many loader workers with 16, and the kernel's figures of the machine do not show that. Does not: read limits of
//! cgroups version 1.
//!
//! Sources: `Documentation/filesystems/proc.rst` (`status`), `Documentation/admin-guide/cgroup-v2.rst` (`cpu.max`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::cpus::parse_cpu_list;
use super::targets::{self, Targets};

/// CPUs that the processes of these selectors may use together: those that any of them may run on, and no more than
/// their cgroups have time for. `None` if that is not known, or if everything is a target: the machine has it all.
pub fn allowed_cpus(targets: &[Targets]) -> Option<u32> {
    if targets.contains(&Targets::All) {
        return None;
    }
    // Children inherit both.
    let pids = targets::find(targets, false).ok()?;
    allowed_to(&pids, Path::new("/proc"), Path::new("/sys/fs/cgroup"))
}

fn allowed_to(pids: &[u32], proc: &Path, cgroups: &Path) -> Option<u32> {
    let (mut cpus, mut quotas) = (BTreeSet::new(), BTreeMap::new());
    for pid in pids {
        // The name of a process may be any bytes.
        let read = |name: &str| fs::read(proc.join(pid.to_string()).join(name));
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        // It may have ended.
        let Ok(status) = read("status") else { continue };
        cpus.extend(cpus_in(&text(status))?);
        let cgroup = text(read("cgroup").unwrap_or_default());
        let path = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        quotas.entry(path.to_owned()).or_insert_with(|| quota_of(path, cgroups));
    }
    let cpus = u32::try_from(cpus.len()).ok().filter(|cpus| *cpus > 0)?;
    // Without a limit for one of them there is none for all.
    let quota =
        quotas.into_values().try_fold(0u64, |sum, quota: Option<u64>| Some(sum.saturating_add(quota?)));
    let of_quota = quota.and_then(|thousandths| u32::try_from(thousandths.div_ceil(1000)).ok());
    Some(of_quota.map_or(cpus, |of_quota| cpus.min(of_quota.max(1))))
}

/// The CPUs of a process, from the text of its `status`.
fn cpus_in(status: &str) -> Option<Vec<u32>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    parse_cpu_list(list.trim())
}

/// The lowest limit of a cgroup and those above it, in thousandths of a CPU; `None` without any, or outside our
/// namespace of cgroups.
fn quota_of(path: &str, cgroups: &Path) -> Option<u64> {
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let folder = cgroups.join(path.trim_start_matches('/'));
    let above = folder.ancestors().take_while(|above| above.starts_with(cgroups));
    above.filter_map(|above| quota_in(&fs::read_to_string(above.join("cpu.max")).ok()?)).min()
}

/// Quota and period of `cpu.max`, in thousandths of a CPU; `None` for `max`, which is no limit.
fn quota_in(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    quota.parse::<u64>().ok()?.saturating_mul(1000).checked_div(period.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What processes with these lists of CPUs, and cgroups with these limits, may use.
    #[track_caller]
    fn check(processes: &[(&str, &str)], limits: &[(&str, &str)], expect: Option<u32>) {
        let folder = tempfile::tempdir().unwrap();
        let (proc, cgroups) = (folder.path().join("proc"), folder.path().join("cgroup"));
        for (pid, (cpus, cgroup)) in (1u32..).zip(processes) {
            let process = proc.join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            let name: &[u8] = b"Name:\t\xff\nCpus_allowed:\tff\n";
            let list = format!("Cpus_allowed_list:\t{cpus}\n");
            fs::write(process.join("status"), [name, list.as_bytes()].concat()).unwrap();
            fs::write(process.join("cgroup"), format!("1:cpu:/old\n0::{cgroup}\n")).unwrap();
        }
        for (cgroup, limit) in limits {
            let cgroup = cgroups.join(cgroup);
            fs::create_dir_all(&cgroup).unwrap();
            fs::write(cgroup.join("cpu.max"), format!("{limit}\n")).unwrap();
        }
        // One more has ended.
        let pids: Vec<u32> = (1..=processes.len() as u32 + 1).collect();
        assert_eq!(allowed_to(&pids, &proc, &cgroups), expect, "{processes:?} {limits:?}");
    }

    #[test]
    fn affinities_and_limits_say_how_many_cpus_there_are() {
        check(&[("0-127", "/")], &[], Some(128));
        check(&[("0-5", "/")], &[], Some(6));
        // Ranks of one job, each on CPUs of its own.
        check(&[("0-5", "/"), ("6-11", "/"), ("6-7", "/")], &[], Some(12));
        let limited = [("pod", "max 100000"), ("pod/job", "550000 100000")];
        check(&[("0-127", "/pod/job")], &limited, Some(6));
        check(&[("0-3", "/pod/job")], &limited, Some(4));
        check(&[("0-127", "/pod/job"), ("0-127", "/pod/job")], &limited, Some(6));
        check(&[("0-127", "/pod")], &limited, Some(128));
        // The one above it limits it, and two of them have both.
        let above = [("pod", "200000 100000"), ("pod/job", "max 100000"), ("other", "1000 100000")];
        check(&[("0-127", "/pod/job")], &above, Some(2));
        check(&[("0-127", "/pod/job"), ("0-127", "/other")], &above, Some(3));
        check(&[("0-127", "/pod/job"), ("0-127", "/")], &above, Some(128));
        check(&[("0-127", "/other")], &above, Some(1));
    }

    #[test]
    fn unknown_cpus_are_no_limit() {
        check(&[], &[], None);
        check(&[("x", "/")], &[], None);
        check(&[("0-3", "/../job")], &[("job", "100000 100000")], Some(4));
        for limit in ["", "max", "-1 100000", "100000 0", "1"] {
            check(&[("0-3", "/job")], &[("job", limit)], Some(4));
        }
        assert_eq!(allowed_cpus(&[Targets::All]), None);
        let own = allowed_cpus(&[Targets::Pids(vec![std::process::id()])]);
        assert!(own.is_some_and(|cpus| cpus > 0), "{own:?}");
    }
}
