//! Borrowed CPU: the CPU of a running thread, for as long as it takes to read its stack.
//!
//! Owns: moving this thread to that CPU and back. Because: the registers of a thread are in memory only while it is
//! off its CPU, and a dump must not stop it; but another thread may preempt it for a moment, as the scheduler does
//! all the time. Does not: hold the thread back: it may migrate to another CPU, which its switch count shows.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The lowest real-time priority: a real-time thread that needs the CPU at once still gets it.
const PRIORITY: i32 = 1;

/// This thread, moved to another CPU; moves back when dropped.
pub(super) struct BorrowedCpu {
    before: CpuSet,
}

impl BorrowedCpu {
    /// Moves this thread to the CPU of another one, ahead of it. `None` if the kernel refuses: the CPU may be out of
    /// bounds (cpusets), or the thread gone.
    pub(super) fn of_thread(pid: u32, tid: u32) -> Option<Self> {
        let before = sched_getaffinity(None).ok()?;
        let cpu = cpu_of(&fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?)?;
        let mut there = CpuSet::new();
        there.set(cpu);
        // Without the right to a priority (CAP_SYS_NICE) the scheduler often lets a thread that was just moved run
        // first.
        set_priority(libc::SCHED_FIFO, PRIORITY);
        let borrowed = Self { before };
        sched_setaffinity(None, &there).ok().map(|()| borrowed)
    }
}

impl Drop for BorrowedCpu {
    fn drop(&mut self) {
        set_priority(libc::SCHED_OTHER, 0);
        // The old mask was allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

fn set_priority(policy: i32, priority: i32) {
    // SAFETY: all zeros is a value of this structure; there may be more fields than the priority.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: of this thread, with a structure that outlives the call. A refusal leaves things as they are.
    let _ = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
}

/// The 39th field of `/proc/PID/stat`, counted from the end of the name, which may contain anything.
fn cpu_of(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok().filter(|cpu| *cpu < CpuSet::MAX_CPU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_found_behind_any_name() {
        let numbers: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("7 (a ) b) S {}", numbers.join(" "));
        assert_eq!(cpu_of(stat.as_bytes()), Some(39));
        assert_eq!(cpu_of(b"7 (a) S 1"), None);
        assert_eq!(cpu_of(b"7 (a"), None);
        assert_eq!(cpu_of(stat.replace(" 39 ", " 99999999 ").as_bytes()), None);
    }

    #[test]
    fn a_borrowed_cpu_is_given_back() {
        let before = sched_getaffinity(None).unwrap();
        let own = std::process::id();
        drop(BorrowedCpu::of_thread(own, own));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        assert!(BorrowedCpu::of_thread(u32::MAX, u32::MAX).is_none());
    }
}
