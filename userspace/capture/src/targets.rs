//! Targets: from what a user names to process ids.
//!
//! Owns: looking through `/proc` and cgroup folders. Because: names, containers and cgroups are only ways to say
//! "these processes". Does not: follow processes in time (the kernel programs do).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Whom to profile. Several may be given; they add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetSpec {
    /// Processes by id, in the pid namespace of the profiler.
    pub pids: Vec<u32>,
    /// Processes by name (`/proc/PID/comm`).
    pub comms: Vec<String>,
    /// All processes in this cgroup (v2) and below.
    pub cgroup: Option<PathBuf>,
    /// All processes of this container.
    pub container: Option<String>,
    /// Every process.
    pub all: bool,
    /// Also what the targets start, and have started.
    pub children: bool,
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
    #[error("no process {0}")]
    NoMatch(String),
    /// The cgroup cannot be read.
    #[error("cgroup {path}: {source}")]
    Cgroup {
        /// Its folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `/proc` cannot be read.
    #[error("cannot list processes: {0}")]
    Proc(io::Error),
}

/// The cgroup that the kernel programs compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupTarget {
    /// Inode number of its folder: the id in cgroup v2.
    pub id: u64,
    /// Its depth below the root of the hierarchy.
    pub level: u32,
}

/// Most processes that are prepared before sampling begins, as many as the kernel programs can hold.
const PROCESSES_MAX: usize = deepctx_common::unwind::PROCESSES_MAX as usize;

/// The processes that `spec` names now; with their descendants when children are to be followed.
pub fn find(spec: &TargetSpec) -> Result<Vec<u32>, TargetError> {
    let mut found: Vec<u32> = Vec::new();
    for &pid in &spec.pids {
        if !Path::new(&format!("/proc/{pid}")).exists() {
            return Err(TargetError::NoSuchProcess(pid));
        }
        if !has_user_space(pid) {
            return Err(TargetError::NoUserSpace(pid));
        }
        found.push(pid);
    }
    if spec.all || !spec.comms.is_empty() || spec.container.is_some() {
        let own = std::process::id();
        let everyone: Vec<u32> =
            all_pids()?.into_iter().filter(|&pid| pid != own && has_user_space(pid)).collect();
        for comm in &spec.comms {
            let named: Vec<u32> =
                everyone.iter().copied().filter(|&pid| comm_of(pid).as_deref() == Some(comm)).collect();
            if named.is_empty() {
                return Err(TargetError::NoMatch(format!("is named {comm:?}")));
            }
            found.extend(named);
        }
        if let Some(id) = &spec.container {
            let inside: Vec<u32> = everyone.iter().copied().filter(|&pid| in_container(pid, id)).collect();
            if inside.is_empty() {
                return Err(TargetError::NoMatch(format!("is in a container whose id begins with {id:?}")));
            }
            found.extend(inside);
        }
        if spec.all {
            found.extend(everyone);
        }
    }
    if let Some(cgroup) = &spec.cgroup {
        found.extend(pids_of_cgroup(&cgroup_folder(cgroup)?)?);
    }
    if spec.children && !spec.all {
        found = with_descendants(&found)?;
    }
    let mut seen = HashSet::new();
    found.retain(|pid| seen.insert(*pid));
    found.truncate(PROCESSES_MAX);
    Ok(found)
}

/// The cgroup for the kernel programs.
pub fn cgroup_target(path: &Path) -> Result<CgroupTarget, TargetError> {
    let folder = cgroup_folder(path)?;
    let error = |source| TargetError::Cgroup { path: folder.clone(), source };
    let metadata = fs::metadata(&folder).map_err(error)?;
    let level = folder.ancestors().skip(1).take_while(|f| f.join("cgroup.procs").exists()).count() as u32;
    Ok(CgroupTarget { id: metadata.ino(), level })
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
    /// Deepest nesting that is followed; the kernel's own default bound is lower than this for all managers known.
    const DEPTH_MAX: usize = 64;
    let error = |source| TargetError::Cgroup { path: folder.to_owned(), source };
    let mut pids = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let text = fs::read_to_string(folder.join("cgroup.procs")).map_err(error)?;
        pids.extend(
            text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|&pid| has_user_space(pid)),
        );
        if depth < DEPTH_MAX {
            let entries = fs::read_dir(&folder).map_err(error)?;
            let inner = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            folders.extend(inner.map(|e| (e.path(), depth + 1)));
        }
    }
    Ok(pids)
}

fn all_pids() -> Result<Vec<u32>, TargetError> {
    let entries = fs::read_dir("/proc").map_err(TargetError::Proc)?;
    Ok(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
}

/// True when the process has memory of its own: kernel threads and zombies have none.
pub fn has_user_space(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/statm")).is_ok_and(|s| !s.starts_with(b"0 "))
}

/// Name of a process.
pub fn comm_of(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|s| s.trim_end().to_owned())
}

fn in_container(pid: u32, id: &str) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return false };
    // Managers write `/docker/ID`, `docker-ID.scope`, `cri-containerd-ID.scope`, `libpod-ID.scope`, `/kubepods/…/ID`.
    id.len() >= 4
        && text.lines().flat_map(|line| line.split(['/', '-', ':', '.'])).any(|part| part.starts_with(id))
}

fn parent_of(pid: u32) -> Option<u32> {
    // The name may hold spaces and brackets: fields are counted from the last one.
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
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
    use super::{TargetError, TargetSpec, find};

    #[test]
    fn children_of_a_target_are_targets() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let spec = TargetSpec { pids: vec![std::process::id()], children: true, ..TargetSpec::default() };
        let with = find(&spec).unwrap();
        let without = find(&TargetSpec { children: false, ..spec }).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(with.contains(&child.id()), "{with:?}");
        assert_eq!(without, [std::process::id()]);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let spec = TargetSpec { pids: vec![u32::MAX - 1], ..TargetSpec::default() };
        assert!(matches!(find(&spec), Err(TargetError::NoSuchProcess(pid)) if pid == u32::MAX - 1));
    }

    #[test]
    fn kernel_threads_have_nothing_to_profile() {
        // Process 2 is kthreadd, unless the tests run in a pid namespace of their own.
        if super::comm_of(2).as_deref() == Some("kthreadd") {
            let spec = TargetSpec { pids: vec![2], ..TargetSpec::default() };
            assert!(matches!(find(&spec), Err(TargetError::NoUserSpace(2))));
        }
    }
}
