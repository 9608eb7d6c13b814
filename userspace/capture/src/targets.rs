//! Targets: turns what the user names into process ids.
//!
//! Owns: looking through `/proc` and cgroup folders. Because: names, containers and cgroups are only ways to say
//! "these processes". Does not: follow processes in time (the kernel programs do).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use deepctx_symbolizer::maps::has_user_space;

/// Which processes to profile. Several selectors add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Processes by id, in the pid namespace of the profiler.
    Pids(Vec<u32>),
    /// Every process of this name (`/proc/PID/comm`, in which the kernel keeps 15 bytes).
    Comm(String),
    /// Every process in this cgroup (v2) and below it; a path from the root of the hierarchy, or absolute.
    Cgroup(PathBuf),
    /// Every process of this container: its id, or the beginning of it.
    Container(String),
    /// Every process of the machine.
    All,
}

/// The stored form of targets: a key for each selecting option.
pub(super) mod selectors {
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    use super::*;

    #[derive(Debug, Default, Deserialize, serde::Serialize)]
    #[serde(default)]
    struct Selectors {
        pid: Vec<u32>,
        comm: Vec<String>,
        cgroup: Vec<PathBuf>,
        container: Vec<String>,
        all: bool,
    }

    pub(in super::super) fn serialize<S: Serializer>(targets: &[Targets], to: S) -> Result<S::Ok, S::Error> {
        let mut selectors = Selectors::default();
        for target in targets {
            match target {
                Targets::Pids(pids) => selectors.pid.extend(pids),
                Targets::Comm(name) => selectors.comm.push(name.clone()),
                Targets::Cgroup(path) => selectors.cgroup.push(path.clone()),
                Targets::Container(id) => selectors.container.push(id.clone()),
                Targets::All => selectors.all = true,
            }
        }
        selectors.serialize(to)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Targets>, D::Error> {
        let Selectors { pid, comm, cgroup, container, all } = Selectors::deserialize(from)?;
        let pids = Some(pid).filter(|pids| !pids.is_empty()).map(Targets::Pids);
        let comms = comm.into_iter().map(Targets::Comm);
        let cgroups = cgroup.into_iter().map(Targets::Cgroup);
        let containers = container.into_iter().map(Targets::Container);
        let all = all.then_some(Targets::All);
        Ok(pids.into_iter().chain(comms).chain(cgroups).chain(containers).chain(all).collect())
    }
}

/// Why targets could not be found.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// There is no such process.
    #[error("no process {0}")]
    NoSuchProcess(u32),
    /// A kernel thread, a zombie.
    #[error("process {0} has no user space to profile (a kernel thread, or it has ended)")]
    NoUserSpace(u32),
    /// Nothing matches.
    #[error("no process {criterion}")]
    NoMatch {
        /// The selector: `is named "python"`.
        criterion: String,
        /// Names of running processes that resemble the wanted one.
        alike: Vec<String>,
    },
    /// The cgroup cannot be read.
    #[error("cgroup {path}: {source}")]
    Cgroup {
        /// Its folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Only one cgroup can be followed.
    #[error("cgroup {}: only one cgroup can be captured at a time", .0.display())]
    SecondCgroup(PathBuf),
    /// `/proc` cannot be read.
    #[error("cannot list processes: {0}")]
    Proc(io::Error),
}

/// The cgroup that the kernel programs compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CgroupTarget {
    /// Inode number of its folder: the id in cgroup v2.
    pub id: u64,
    /// Its depth below the root of the hierarchy.
    pub level: u32,
}

/// Most processes that are prepared before sampling begins, as many as the kernel programs can hold.
const PROCESSES_MAX: usize = deepctx_common::unwind::PROCESSES_MAX as usize;

/// Processes that selectors match.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Matches {
    pub(super) pids: Vec<u32>,
    /// More match than can be held.
    pub(super) is_cut: bool,
}

impl Matches {
    /// The first `most` of these, each once.
    fn first_of(mut found: Vec<u32>, most: usize) -> Self {
        let mut seen = HashSet::new();
        found.retain(|pid| seen.insert(*pid));
        let is_cut = found.len() > most;
        found.truncate(most);
        Self { pids: found, is_cut }
    }
}

/// As [`find_matches`], where it makes no difference that there are more.
pub(super) fn find(targets: &[Targets], follow_children: bool) -> Result<Vec<u32>, TargetError> {
    Ok(find_matches(targets, follow_children)?.pids)
}

/// The processes that the selectors match now, with their descendants if children are followed.
pub(super) fn find_matches(targets: &[Targets], follow_children: bool) -> Result<Matches, TargetError> {
    let mut found: Vec<u32> = Vec::new();
    let mut everyone = None;
    for target in targets {
        match target {
            Targets::Pids(pids) => {
                for &pid in pids {
                    found.push(checked(pid)?);
                }
            }
            Targets::Comm(name) => {
                let named = |pid: &u32| is_named(*pid, name);
                let named: Vec<u32> = listed(&mut everyone)?.iter().copied().filter(named).collect();
                if named.is_empty() {
                    let running = listed(&mut everyone)?.iter().filter_map(|&pid| comm_of(pid));
                    let (criterion, alike) = (format!("is named {name:?}"), alike(running, name));
                    return Err(TargetError::NoMatch { criterion, alike });
                }
                found.extend(named);
            }
            Targets::Container(id) => {
                let inside = |pid: &u32| in_container(*pid, id);
                let inside: Vec<u32> = listed(&mut everyone)?.iter().copied().filter(inside).collect();
                if inside.is_empty() {
                    let criterion = format!("is in a container whose id begins with {id:?}");
                    return Err(TargetError::NoMatch { criterion, alike: Vec::new() });
                }
                found.extend(inside);
            }
            Targets::All => found.extend(listed(&mut everyone)?),
            Targets::Cgroup(path) => found.extend(pids_of_cgroup(&cgroup_folder(path)?)?),
        }
    }
    if follow_children && !targets.contains(&Targets::All) {
        found = with_descendants(&found)?;
    }
    Ok(Matches::first_of(found, PROCESSES_MAX))
}

/// A process named by pid, if it can be profiled.
fn checked(pid: u32) -> Result<u32, TargetError> {
    if !Path::new(&format!("/proc/{pid}")).exists() {
        return Err(TargetError::NoSuchProcess(pid));
    }
    if !has_user_space(pid) {
        return Err(TargetError::NoUserSpace(pid));
    }
    Ok(pid)
}

/// Every process except this one; listed once.
fn listed(everyone: &mut Option<Vec<u32>>) -> Result<&[u32], TargetError> {
    if everyone.is_none() {
        let own = std::process::id();
        *everyone = Some(all_pids()?.into_iter().filter(|&pid| pid != own && has_user_space(pid)).collect());
    }
    Ok(everyone.as_deref().unwrap_or_default())
}

/// The cgroup that the kernel programs compare with, if one is selected. They support only one.
pub(super) fn selected_cgroup(targets: &[Targets]) -> Result<Option<CgroupTarget>, TargetError> {
    let mut cgroups = targets.iter().filter_map(|target| match target {
        Targets::Cgroup(path) => Some(path),
        _ => None,
    });
    let first = cgroups.next();
    match cgroups.next() {
        Some(second) => Err(TargetError::SecondCgroup(second.clone())),
        None => Ok(first.map(|path| cgroup_target(path)).transpose()?.flatten()),
    }
}

/// The cgroup for the kernel programs; `None` for one of version 1. They compare ids of version 2, where the same
/// number may be another cgroup's.
fn cgroup_target(path: &Path) -> Result<Option<CgroupTarget>, TargetError> {
    let folder = cgroup_folder(path)?;
    // Each cgroup of version 2 has this file, and none of version 1.
    if !folder.join("cgroup.controllers").exists() {
        tracing::warn!(
            cgroup = %folder.display(),
            "it is of version 1: processes that join it later are not captured"
        );
        return Ok(None);
    }
    let error = |source| TargetError::Cgroup { path: folder.clone(), source };
    let metadata = fs::metadata(&folder).map_err(error)?;
    let level = folder.ancestors().skip(1).take_while(|f| f.join("cgroup.procs").exists()).count() as u32;
    Ok(Some(CgroupTarget { id: metadata.ino(), level }))
}

/// The folder that a user means: absolute, or below the cgroup v2 mount.
fn cgroup_folder(path: &Path) -> Result<PathBuf, TargetError> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let candidates = std::iter::once(path.to_owned())
        .filter(|p| p.is_absolute())
        .chain(roots.iter().map(|root| Path::new(root).join(path.strip_prefix("/").unwrap_or(path))));
    candidates.filter_map(|p| fs::canonicalize(p).ok()).find(|p| p.join("cgroup.procs").exists()).ok_or_else(
        || TargetError::Cgroup { path: path.to_owned(), source: io::Error::from(io::ErrorKind::NotFound) },
    )
}

fn pids_of_cgroup(folder: &Path) -> Result<Vec<u32>, TargetError> {
    /// Deepest nesting that is followed; all known managers nest less deeply.
    const DEPTH_MAX: usize = 64;
    let mut pids = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((inner, depth)) = folders.pop() {
        match fs::read_to_string(inner.join("cgroup.procs")) {
            Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
            Err(source) if depth == 0 => return Err(TargetError::Cgroup { path: inner, source }),
            // It was removed meanwhile; or it has threads only, whose processes are listed above it.
            Err(error) => tracing::debug!(%error, cgroup = %inner.display(), "a nested cgroup is left out"),
        }
        if depth < DEPTH_MAX {
            let entries = fs::read_dir(&inner).into_iter().flatten().flatten();
            let nested = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            folders.extend(nested.map(|e| (e.path(), depth + 1)));
        }
    }
    pids.retain(|pid| has_user_space(*pid));
    Ok(pids)
}

fn all_pids() -> Result<Vec<u32>, TargetError> {
    let entries = fs::read_dir("/proc").map_err(TargetError::Proc)?;
    Ok(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

/// Name of a process.
pub(crate) fn comm_of(pid: u32) -> Option<String> {
    text_of(pid, "comm").map(|name| name.trim_end().to_owned())
}

/// A file of `/proc/PID` as text. The name of a process may be any bytes; the kernel cuts it within a character.
fn text_of(pid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_named(pid: u32, name: &str) -> bool {
    fs::read(format!("/proc/{pid}/comm")).is_ok_and(|comm| is_comm(&comm, name))
}

/// Whether the kernel states this name so: it keeps 15 bytes of it (`TASK_COMM_LEN`), which may end within a character.
/// Other names that are not UTF-8 are also known as they are shown.
fn is_comm(comm: &[u8], name: &str) -> bool {
    const KEPT: usize = 15;
    let comm = comm.trim_ascii_end();
    let kept = name.as_bytes().get(..KEPT).unwrap_or(name.as_bytes());
    comm == kept.trim_ascii_end() || String::from_utf8_lossy(comm) == name
}

/// Names that contain the wanted one or begin as it does, in any case: those with most letters in common first.
fn alike(names: impl IntoIterator<Item = String>, wanted: &str) -> Vec<String> {
    const PROPOSED_MAX: usize = 3;
    const COMMON_MIN: usize = 2;
    let wanted = wanted.to_lowercase();
    let mut found = BTreeSet::new();
    for name in names {
        let lower = name.to_lowercase();
        let common = lower.chars().zip(wanted.chars()).take_while(|(one, other)| one == other).count();
        if common >= COMMON_MIN || !wanted.is_empty() && lower.contains(&wanted) {
            found.insert((Reverse(common), name));
        }
    }
    found.into_iter().take(PROPOSED_MAX).map(|(_, name)| name).collect()
}

fn in_container(pid: u32, id: &str) -> bool {
    fs::read(format!("/proc/{pid}/cgroup")).is_ok_and(|cgroups| are_of_container(&cgroups, id))
}

/// Whether a process in these cgroups is in a container. Their names may be any bytes.
fn are_of_container(cgroups: &[u8], id: &str) -> bool {
    // Managers write `/docker/ID`, `docker-ID.scope`, `cri-containerd-ID.scope`, `libpod-ID.scope`, `/kubepods/…/ID`.
    let mut parts = cgroups.split(|byte| matches!(byte, b'/' | b'-' | b':' | b'.' | b'\n'));
    id.len() >= 4 && parts.any(|part| part.starts_with(id.as_bytes()))
}

/// The parent of a process; `None` if it is gone.
pub fn parent_of(pid: u32) -> Option<u32> {
    // The name may contain spaces and brackets: fields are counted from the last one.
    let text = text_of(pid, "stat")?;
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn with_descendants(roots: &[u32]) -> Result<Vec<u32>, TargetError> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in all_pids()? {
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found: Vec<u32> = roots.to_vec();
    let mut next = 0;
    // Each process has one parent, so this ends; the bound holds even if /proc changes while it is read.
    while let Some(&pid) = found.get(next).filter(|_| next < PROCESSES_MAX) {
        next += 1;
        found.extend(
            children.remove(&pid).unwrap_or_default().into_iter().filter(|&child| has_user_space(child)),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Matches, TargetError, Targets, find, pids_of_cgroup, selected_cgroup};

    #[test]
    fn more_matches_than_are_kept_are_noticed() {
        let check = |most, pids: &[u32], is_cut| {
            assert_eq!(Matches::first_of(vec![7, 8, 7, 9], most), Matches { pids: pids.into(), is_cut });
        };
        check(3, &[7, 8, 9], false);
        check(2, &[7, 8], true);
    }

    #[test]
    fn long_names_are_compared_as_the_kernel_cuts_them() {
        let check = |comm: &[u8], name: &str, expect: bool| {
            assert_eq!(super::is_comm(comm, name), expect, "{name}");
        };
        check(b"sleep\n", "sleep", true);
        check(b"sleep\n", "sleeper", false);
        check(b"a-program-with-\n", "a-program-with-a-long-name", true);
        check(b"a-program-with-\n", "a-program-without", false);
        check(b"0123456789abcd\xe2\n", "0123456789abcd€", true);
        check(b"sleep\xff\n", "sleep\u{fffd}", true);
    }

    #[test]
    fn names_like_the_wanted_one_are_proposed() {
        let check = |wanted: &str, expect: &[&str]| {
            let running = ["bash", "python3", "pt_main_thread", "PostgreSQL", "python3"];
            assert_eq!(super::alike(running.map(str::to_owned), wanted), expect, "{wanted}");
        };
        check("python", &["python3"]);
        check("Pyhton", &["python3"]);
        check("main_thread", &["pt_main_thread"]);
        check("postgres", &["PostgreSQL"]);
        check("zsh", &[]);
        check("", &[]);
    }

    #[test]
    fn containers_are_found_beside_any_name() {
        let check = |id: &str, expect: bool| {
            let cgroups = b"1:name=\xff:/\n0::/caf\xe9/docker-0123abcd.scope\n";
            assert_eq!(super::are_of_container(cgroups, id), expect, "{id}");
        };
        check("0123", true);
        check("0123abcd", true);
        check("012", false);
        check("abcd", false);
    }

    #[test]
    fn children_of_a_target_are_targets() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let targets = [Targets::Pids(vec![std::process::id()])];
        let with = find(&targets, true).unwrap();
        let without = find(&targets, false).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(with.contains(&child.id()), "{with:?}");
        assert_eq!(without, [std::process::id()]);
    }

    #[test]
    fn a_child_with_any_name_is_a_target() {
        use std::os::unix::ffi::OsStrExt as _;

        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(std::ffi::OsStr::from_bytes(b"sleep\xff"));
        // Not a copy: while another test spawns a child, that holds it open for writing.
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(program).arg("60").spawn().unwrap();
        let (parent, name) = (super::parent_of(child.id()), super::comm_of(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((parent, name.as_deref()), (Some(std::process::id()), Some("sleep\u{fffd}")));
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let targets = [Targets::Pids(vec![u32::MAX - 1])];
        assert!(matches!(find(&targets, true), Err(TargetError::NoSuchProcess(pid)) if pid == u32::MAX - 1));
    }

    #[test]
    fn kernel_threads_have_nothing_to_profile() {
        // Process 2 is kthreadd, unless the tests run in a pid namespace of their own.
        if super::comm_of(2).as_deref() == Some("kthreadd") {
            let targets = [Targets::Pids(vec![2])];
            assert!(matches!(find(&targets, true), Err(TargetError::NoUserSpace(2))));
        }
    }

    #[test]
    fn nested_cgroups_that_are_gone_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let (gone, own) = (folder.path().join("gone"), std::process::id());
        assert!(matches!(pids_of_cgroup(&gone), Err(TargetError::Cgroup { path, .. }) if path == gone));
        std::fs::write(folder.path().join("cgroup.procs"), format!("{own}\n")).unwrap();
        // Of a folder that is being removed, the files go first.
        std::fs::create_dir(&gone).unwrap();
        assert_eq!(pids_of_cgroup(folder.path()).unwrap(), [own]);
    }

    #[test]
    fn cgroups_of_version_1_are_not_compared_in_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let targets = [Targets::Cgroup(folder.path().to_owned())];
        std::fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        assert_eq!(selected_cgroup(&targets).unwrap(), None);
        std::fs::write(folder.path().join("cgroup.controllers"), "").unwrap();
        assert!(selected_cgroup(&targets).unwrap().is_some());
    }

    #[test]
    fn a_second_cgroup_is_refused() {
        let cgroup = |name: &str| Targets::Cgroup(PathBuf::from(name));
        let error = selected_cgroup(&[cgroup("a"), Targets::All, cgroup("b")]).unwrap_err();
        assert!(matches!(error, TargetError::SecondCgroup(path) if path == std::path::Path::new("b")));
        assert_eq!(selected_cgroup(&[Targets::All]).unwrap(), None);
    }
}
