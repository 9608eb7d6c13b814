//! Job: the ranks of a distributed job that run on this host.
//!
//! Owns: [`Job`], and which variables launchers set in the processes of a job. Because: when one rank hangs, all of
//! them wait, and the one that differs is found by comparing all. Does not: query the launcher, or know other hosts.
//!
//! A launcher puts a process's rank into its environment (`torchrun`: `RANK` and `WORLD_SIZE`, PyTorch's "Environment
//! variable initialization"; Open MPI: `OMPI_COMM_WORLD_RANK`; PMI: `PMI_RANK`; Slurm: `SLURM_PROCID`).
//! `/proc/PID/environ` holds the environment at exec: variables that the process sets later do not show.

use std::collections::{HashMap, HashSet};

use deepctx_symbolizer::memory::reader::{self, Subject};

use super::targets::{self, TargetError};

/// Most of an environment that is read. The kernel allows more, but no launcher's variables come after so much.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;
/// Programs that start a rank and wait for it.
const SHELLS: [&str; 5] = ["bash", "dash", "ksh", "sh", "zsh"];

/// A launcher's variables in the environment of its processes.
#[derive(Debug)]
struct Launcher {
    name: &'static str,
    /// The variable with the rank, and with the number of ranks.
    rank: &'static str,
    size: &'static str,
    /// Variables that differ between jobs.
    job: &'static [&'static str],
}

/// The innermost first: `srun` may start `torchrun`, whose processes have the variables of both.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        size: "WORLD_SIZE",
        job: &["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"],
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Launcher { name: "PMI", rank: "PMI_RANK", size: "PMI_SIZE", job: &["PMI_PORT"] },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
];

/// The processes of a job on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its launcher, by the variables of its processes.
    pub launcher: &'static str,
    /// Ranks of the whole job, on all hosts.
    pub size: u32,
    /// By rank, then by id.
    pub processes: Vec<RankProcess>,
}

/// A process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankProcess {
    /// Its rank.
    pub rank: u32,
    /// Its id, in the pid namespace of the profiler.
    pub pid: u32,
    /// It is the rank itself; others are its descendants, or the shell that started it.
    pub is_main: bool,
}

/// A process of the machine, as needed here.
#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    member: Option<Member>,
}

/// The rank that a launcher gave a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRank {
    /// The rank.
    pub rank: u32,
    /// Ranks of the whole job, on all hosts.
    pub size: u32,
}

/// The job data in a process's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    /// Index into [`LAUNCHERS`].
    launcher: usize,
    job: Vec<Option<String>>,
    rank: u32,
    size: u32,
}

/// The job that has a process, or else one of its descendants, as a rank; `None` if its environment has no rank.
///
/// # Errors
/// There is no such process, or processes cannot be listed.
pub(super) fn of_process(pid: u32) -> Result<Option<Job>, TargetError> {
    let own = targets::find(&[targets::Targets::Pids(vec![pid])], true)?;
    let everyone = targets::find(&[targets::Targets::All], false)?;
    let processes: Vec<Process> = everyone
        .into_iter()
        .filter_map(|pid| {
            let member = member_of(pid);
            let name = targets::comm_of(pid)?;
            Some(Process { pid, parent: targets::parent_of(pid)?, name, member })
        })
        .collect();
    Ok(find(&processes, &own))
}

/// The rank that a process was started as; `None` if no launcher gave it one, or it is gone.
pub fn rank_of(pid: u32) -> Option<ProcessRank> {
    member_of(pid).map(|Member { rank, size, .. }| ProcessRank { rank, size })
}

/// The job data in a process's environment; `None` if it has no rank or cannot be read.
fn member_of(pid: u32) -> Option<Member> {
    let environment = reader::read_proc(&Subject::of(pid), "environ", ENVIRONMENT_BYTES_MAX);
    environment.ok().and_then(|bytes| member(&bytes))
}

/// The job data in an environment of zero-terminated `NAME=VALUE` strings.
fn member(environment: &[u8]) -> Option<Member> {
    let variables: HashMap<&[u8], &[u8]> = environment
        .split(|byte| *byte == 0)
        .filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b'=')?;
            Some((&line[..at], &line[at + 1..]))
        })
        .collect();
    let text = |name: &str| variables.get(name.as_bytes()).and_then(|value| str::from_utf8(value).ok());
    let number = |name: &str| text(name)?.parse::<u32>().ok();
    LAUNCHERS.iter().enumerate().find_map(|(at, launcher)| {
        let (rank, size) = (number(launcher.rank)?, number(launcher.size)?);
        let job = launcher.job.iter().map(|name| text(name).map(str::to_owned)).collect();
        (rank < size).then_some(Member { launcher: at, job, rank, size })
    })
}

/// The job of the first of some processes that has one.
fn find(processes: &[Process], own: &[u32]) -> Option<Job> {
    let by_pid: HashMap<u32, &Process> = processes.iter().map(|process| (process.pid, process)).collect();
    let members = own.iter().filter_map(|pid| by_pid.get(pid)?.member.as_ref());
    // Within a batch job, the launcher of the ranks has a rank itself.
    let wanted = members.min_by_key(|member| member.launcher)?;
    let launcher = LAUNCHERS.get(wanted.launcher)?;
    let of_job = |process: &&Process| {
        let member = process.member.as_ref();
        member
            .is_some_and(|of| (of.launcher, &of.job, of.size) == (wanted.launcher, &wanted.job, wanted.size))
    };
    let ranks: HashMap<u32, u32> = processes
        .iter()
        .filter(of_job)
        .filter_map(|process| Some((process.pid, process.member.as_ref()?.rank)))
        .collect();
    let mains = mains(&by_pid, &ranks);
    let mut found: Vec<RankProcess> = ranks
        .iter()
        .map(|(pid, rank)| RankProcess { rank: *rank, pid: *pid, is_main: mains.contains(pid) })
        .collect();
    found.sort_unstable_by_key(|process| (process.rank, process.pid));
    Some(Job { launcher: launcher.name, size: wanted.size, processes: found })
}

/// The main process of each rank: the ancestor of its others, below the shells that started it.
fn mains(by_pid: &HashMap<u32, &Process>, ranks: &HashMap<u32, u32>) -> HashSet<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut mains = Vec::new();
    for (pid, rank) in ranks {
        let parent = by_pid.get(pid).map_or(0, |process| process.parent);
        if ranks.get(&parent) == Some(rank) {
            children.entry(parent).or_default().push(*pid);
        } else {
            mains.push(*pid);
        }
    }
    let is_shell = |pid: u32| by_pid.get(&pid).is_some_and(|of| SHELLS.contains(&of.name.as_str()));
    for main in &mut mains {
        // A process has one parent, so this ends.
        while let Some([child]) = children.get(main).filter(|_| is_shell(*main)).map(Vec::as_slice) {
            *main = *child;
        }
    }
    mains.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One process per line: `PID PARENT NAME VARIABLE=VALUE …`; the job of the processes `of`, as `LAUNCHER SIZE:
    /// RANK=PID* RANK=PID`, with a star at each rank's main process.
    #[track_caller]
    fn check(lines: &str, of: &[u32], expect: &str) {
        let process = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let environment = words[3..].join("\0");
            let (pid, parent) = (words[0].parse().unwrap(), words[1].parse().unwrap());
            Process { pid, parent, name: words[2].to_owned(), member: member(environment.as_bytes()) }
        };
        let processes: Vec<Process> = lines.lines().map(process).collect();
        let found = find(&processes, of).map(|job| {
            let one =
                |of: &RankProcess| format!("{}={}{}", of.rank, of.pid, if of.is_main { "*" } else { "" });
            let ranks: Vec<String> = job.processes.iter().map(one).collect();
            format!("{} {}: {}", job.launcher, job.size, ranks.join(" "))
        });
        assert_eq!(found.as_deref().unwrap_or("none"), expect);
    }

    #[test]
    fn ranks_are_those_of_one_job() {
        let lines = "10 1 torchrun A=B
            11 10 python3 RANK=0 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1
            12 10 python3 RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1
            13 12 pt_data_worker RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1
            21 20 python3 RANK=0 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=2";
        check(lines, &[12], "torchrun 4: 0=11* 1=12* 1=13");
        check(lines, &[13], "torchrun 4: 0=11* 1=12* 1=13");
        // The launcher has no rank; its children have.
        check(lines, &[10, 11, 12, 13], "torchrun 4: 0=11* 1=12* 1=13");
        check(lines, &[21], "torchrun 4: 0=21*");
        check(lines, &[10], "none");
    }

    #[test]
    fn the_innermost_launcher_counts() {
        let slurm = "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0";
        let lines = format!(
            "10 1 srun {slurm}\n11 10 python3 {slurm} RANK=0 WORLD_SIZE=8\n12 10 python3 {slurm} RANK=1 WORLD_SIZE=8"
        );
        check(&lines, &[10, 11, 12], "torchrun 8: 0=11* 1=12*");
        check(&lines, &[10], "Slurm 2: 0=10*");
    }

    #[test]
    fn a_shell_is_no_rank_itself() {
        let mpi = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4";
        check(&format!("5 1 bash {mpi}\n6 5 python3 {mpi}"), &[5, 6], "Open MPI 4: 3=5 3=6*");
        check(&format!("5 1 bash {mpi}"), &[5], "Open MPI 4: 3=5*");
        check(&format!("5 1 python3 {mpi}\n6 5 python3 {mpi}"), &[5], "Open MPI 4: 3=5* 3=6");
    }

    #[test]
    fn what_is_no_rank_is_none() {
        let check = |environment: &str| assert_eq!(member(environment.as_bytes()), None, "{environment:?}");
        ["", "RANK=1", "RANK=4\0WORLD_SIZE=4", "RANK=x\0WORLD_SIZE=4", "RANK=-1\0WORLD_SIZE=4", "=\0=="]
            .into_iter()
            .for_each(check);
    }
}
