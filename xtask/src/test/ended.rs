//! Waiting for test programs, with a time limit.
//!
//! Owns: the destination of their output, the time limit, what is killed after it. Because: a hanging program must fail
//! alone, and a process that it left behind must not block the others (the output is a file, since a stray process can
//! keep a pipe open). Does not: judge the output.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::sh;

/// The result of a program.
pub(super) struct ProgramEnd {
    pub(super) status: ExitStatus,
    /// Standard output and standard error, in the order of writing.
    pub(super) text: String,
    /// It exceeded its time limit.
    pub(super) killed: bool,
    /// CPU time of the program and its ended children, read shortly before its end. Unknown under `sudo`.
    pub(super) cpu: Duration,
}

/// How often the CPU time is read.
const INTERVAL: Duration = Duration::from_millis(200);

impl ProgramEnd {
    /// Runs the command to its end, or kills it and its children after `longest`.
    pub(super) fn of(mut command: Command, name: &str, longest: Duration) -> Result<Self> {
        let path = output_file(name)?;
        let output = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        let mut child = command.spawn()?;
        let end = Instant::now() + longest;
        let mut cpu = Duration::ZERO;
        let killed = loop {
            if sh::ends_within(&mut child, INTERVAL)? {
                break false;
            }
            cpu = cpu_time(child.id()).unwrap_or(cpu);
            if Instant::now() > end {
                break true;
            }
        };
        if killed {
            kill_with_descendants(child.id());
        }
        let status = child.wait()?;
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        Ok(Self { status, text, killed, cpu })
    }
}

/// The fields of `/proc/PID/stat` after the name in parentheses.
fn stat(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.to_owned())
}

/// CPU time of a process and its ended children: `utime` to `cstime` of proc_pid_stat(5), in ticks, which every Linux
/// architecture reports to user space as 100 per second.
fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = stat(pid)?;
    let ticks = stat.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok());
    Some(Duration::from_millis(ticks.sum::<Option<u64>>()? * 10))
}

/// `target/test-output/NAME.txt`, kept until the next run.
fn output_file(name: &str) -> Result<PathBuf> {
    let folder = sh::target_dir().join("test-output");
    fs::create_dir_all(&folder)?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') { c } else { '-' };
    Ok(folder.join(format!("{}.txt", name.chars().map(plain).collect::<String>())))
}

fn kill_with_descendants(pid: u32) {
    let mut all = vec![pid];
    let parents = parents();
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        all.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(child, _)| child));
        next += 1;
    }
    let mut kill = sh::as_root("kill", &[]);
    // A process may have ended already.
    let _ = kill.arg("-KILL").args(all.iter().map(u32::to_string)).stderr(Stdio::null()).status();
}

/// All processes of this machine with their parents.
fn parents() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let of = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, stat(pid)?.split(' ').nth(1)?.parse().ok()?))
    };
    entries.flatten().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, longest: Duration) -> ProgramEnd {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        ProgramEnd::of(command, script, longest).expect("a shell starts")
    }

    #[test]
    fn output_and_status_of_an_ended_program_are_kept() {
        let ended = shell("echo a; echo b >&2; exit 3", Duration::from_secs(60));
        assert_eq!((ended.status.code(), ended.text.as_str(), ended.killed), (Some(3), "a\nb\n", false));
    }

    #[test]
    fn cpu_time_of_a_program_and_its_children_counts() {
        let ended =
            shell("(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done); sleep 1", Duration::from_secs(60));
        assert!(ended.cpu >= Duration::from_millis(10), "{:?}", ended.cpu);
    }

    #[test]
    fn a_process_left_behind_holds_nothing_up() {
        let start = Instant::now();
        let ended = shell("sleep 300 & echo $!", Duration::from_secs(60));
        let left = ended.text.trim().to_owned();
        assert!(!ended.killed && start.elapsed() < Duration::from_secs(60));
        assert!(Command::new("kill").arg(left).status().is_ok_and(|status| status.success()));
    }

    #[test]
    fn what_does_not_end_is_killed_with_its_children() {
        let ended = shell("sleep 301 & echo $!; wait", Duration::from_millis(300));
        let child: u32 = ended.text.trim().parse().expect("the shell printed its child");
        assert!(ended.killed);
        // The signal stays pending for a short time.
        let end = Instant::now() + Duration::from_secs(60);
        let is_gone = || {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        while !is_gone() {
            assert!(Instant::now() < end, "{child} lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
