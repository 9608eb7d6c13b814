//! The identity of a process, from `/proc/PID/status` and `stat`.
//!
//! Owns: the pid in the process's own namespace, its users, and when it started. Because: runtimes name files by that
//! pid, only files of the effective user can be trusted, and the real user is charged for the process. Does not: read
//! anything else in these files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Most bytes read of the file; it has about 1.5 KiB.
const STATUS_BYTES_MAX: usize = 16 << 10;

/// Identity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The pid in the innermost namespace.
    pub own_pid: u32,
    /// Effective user.
    pub user: u32,
    /// Real user: who started it.
    pub real_user: u32,
}

impl ProcessStatus {
    /// Reads the status of a process; `None` when the process is gone.
    pub fn read(pid: u32) -> Option<Self> {
        Self::parse(&read(pid).ok()?)
    }

    /// Parses the bytes of a status file.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let field = |key: &[u8]| {
            let line = bytes.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(key))?;
            Some(str::from_utf8(line).ok()?.split_ascii_whitespace())
        };
        // Kernels before 4.1, and those without pid namespaces, have no NSpid.
        let own_pid = field(b"NSpid:").or_else(|| field(b"Pid:"))?.next_back()?.parse().ok()?;
        let mut users = field(b"Uid:")?;
        let real_user = users.next()?.parse().ok()?;
        let user = users.next()?.parse().ok()?;
        Some(Self { own_pid, user, real_user })
    }
}

/// When a process started, in ticks since boot; `None` if it is gone.
pub fn start_ticks(pid: u32) -> Option<u64> {
    start_ticks_in(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// How long a process has been running; `None` if it is gone. Time in which the machine slept counts.
pub fn running_for(pid: u32) -> Option<Duration> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    let (ticks, per_second) = (start_ticks(pid)?, rustix::param::clock_ticks_per_second());
    let part = ticks.checked_rem(per_second)? * 1_000_000_000 / per_second;
    Some(now.saturating_sub(Duration::new(ticks / per_second, part as u32)))
}

/// The 22nd field, counted from the end of the name, which may contain anything.
fn start_ticks_in(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn read(pid: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; STATUS_BYTES_MAX];
    let read = File::open(format!("/proc/{pid}/status"))?.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_and_user_are_those_of_the_innermost_namespace() {
        let status = b"Name:\tx\nPid:\t4711\nUid:\t1000\t1001\t1002\t1003\nNSpid:\t4711\t17\t1\n";
        assert_eq!(
            ProcessStatus::parse(status),
            Some(ProcessStatus { own_pid: 1, user: 1001, real_user: 1000 })
        );
        let without = ProcessStatus::parse(b"Pid:\t5\nUid:\t0\t0\t0\t0\n");
        assert_eq!(without, Some(ProcessStatus { own_pid: 5, user: 0, real_user: 0 }));
        assert_eq!(ProcessStatus::parse(b"Pid:\nUid:\n"), None);
    }

    #[test]
    fn a_start_is_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 1234 20";
        assert_eq!(start_ticks_in(stat.as_bytes()), Some(1234));
        assert_eq!(start_ticks_in(&[b"7 (\xff", &stat.as_bytes()[3..]].concat()), Some(1234));
        assert_eq!(start_ticks_in(b"7 (a"), None);
        let own = start_ticks(std::process::id()).unwrap();
        assert!(own > 0 && start_ticks(std::process::id()) == Some(own));
        assert_eq!(start_ticks(u32::MAX), None);
    }

    #[test]
    fn a_process_runs_longer_than_its_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The start is in ticks of 10 ms.
        let longer = running_for(child.id()).unwrap();
        assert!(longer < running_for(1).unwrap() && longer < Duration::from_secs(60), "{longer:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(running_for(child.id()), None);
    }
}
