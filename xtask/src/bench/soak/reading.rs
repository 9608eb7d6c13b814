//! Resource use of a running profiler at one moment.
//!
//! Owns: memory, descriptors and threads of it and of its workers, how full its tables are, and the size of its
//! profile. Because: each of them must level off. Does not: judge.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::profiler::locked_bytes;
use super::tables::{Fill, TableReader};

const MIB: f64 = 1024.0 * 1024.0;

/// One reading.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// Time since the first sample.
    pub(super) at: Duration,
    /// Resident memory of the profiler itself.
    pub(super) resident_mib: f64,
    /// Memory that it locks in the kernel: maps and programs.
    pub(super) locked_mib: f64,
    /// Memory of its workers; pages shared with each other or with the profiler are divided by the number of users.
    pub(super) workers_mib: f64,
    /// Open descriptors.
    pub(super) descriptors: f64,
    pub(super) threads: f64,
    /// Number of files of the profile.
    pub(super) files: f64,
    pub(super) profile_mib: f64,
    pub(super) tables: Fill,
}

impl Reading {
    /// Reads the profiler with this pid, which writes this profile.
    pub(super) fn of(pid: u32, profile: &Path, tables: &TableReader, at: Duration) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let files: Vec<u64> = fs::read_dir(profile)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .collect();
        Ok(Self {
            at,
            resident_mib: line(&status, "VmRSS:")? / 1024.0,
            locked_mib: locked_bytes(pid) as f64 / MIB,
            workers_mib: workers(pid) / 1024.0,
            descriptors: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as f64,
            threads: line(&status, "Threads:")?,
            files: files.len() as f64,
            profile_mib: files.iter().sum::<u64>() as f64 / MIB,
            tables: tables.read(pid)?,
        })
    }

    /// Memory of the profiler itself.
    pub(super) fn memory_mib(&self) -> f64 {
        self.resident_mib + self.locked_mib
    }

    /// Share of its fullest table in use.
    pub(super) fn fullest(&self) -> f64 {
        self.tables.values().copied().fold(0.0, f64::max)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:5.0} s  {:6.1} MiB resident, {:5.1} locked, {:6.1} of workers, {:4} descriptors, {:3} threads, profile {:6.1} \
             MiB in {} files, tables at most {:.2} % full",
            self.at.as_secs_f64(),
            self.resident_mib,
            self.locked_mib,
            self.workers_mib,
            self.descriptors,
            self.threads,
            self.profile_mib,
            self.files,
            self.fullest() * 100.0
        )
    }
}

/// The number in a line of a process's status; sizes are in KiB.
fn line(status: &str, name: &str) -> Result<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no {name} in the status"))
}

/// Memory of a process's children, each page divided by the number of its users (Pss, proc(5)), KiB.
fn workers(pid: u32) -> f64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    let of_ours = processes.filter(|process| {
        let status = fs::read_to_string(process.join("status")).unwrap_or_default();
        line(&status, "PPid:").is_ok_and(|parent| parent == f64::from(pid))
    });
    let memory =
        |process: PathBuf| line(&fs::read_to_string(process.join("smaps_rollup")).ok()?, "Pss:").ok();
    of_ours.filter_map(memory).sum()
}
