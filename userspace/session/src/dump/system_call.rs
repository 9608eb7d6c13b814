//! System calls by number.
//!
//! Owns: names of the system calls in which threads wait. Because: numbers differ between architectures, and the name
//! is half of the answer. Does not: interpret arguments (`wait`).

/// Name of a system call in which threads wait; `None` for other calls.
pub(super) fn name(number: u64) -> Option<&'static str> {
    let number = libc::c_long::try_from(number).ok()?;
    COMMON.iter().chain(OF_MACHINE).find(|(known, _)| *known == number).map(|(_, name)| *name)
}

macro_rules! calls {
    ($($number:ident $name:literal,)*) => { &[$((libc::$number, $name),)*] };
}

const COMMON: &[(libc::c_long, &str)] = calls! {
    SYS_futex "futex",
    SYS_read "read",
    SYS_readv "readv",
    SYS_pread64 "pread64",
    SYS_preadv "preadv",
    SYS_write "write",
    SYS_writev "writev",
    SYS_pwrite64 "pwrite64",
    SYS_pwritev "pwritev",
    SYS_recvfrom "recvfrom",
    SYS_recvmsg "recvmsg",
    SYS_recvmmsg "recvmmsg",
    SYS_sendto "sendto",
    SYS_sendmsg "sendmsg",
    SYS_sendmmsg "sendmmsg",
    SYS_sendfile "sendfile",
    SYS_splice "splice",
    SYS_accept "accept",
    SYS_accept4 "accept4",
    SYS_connect "connect",
    SYS_fsync "fsync",
    SYS_fdatasync "fdatasync",
    SYS_flock "flock",
    SYS_fcntl "fcntl",
    SYS_ioctl "ioctl",
    SYS_close "close",
    SYS_ppoll "ppoll",
    SYS_pselect6 "pselect6",
    SYS_epoll_pwait "epoll_pwait",
    SYS_epoll_pwait2 "epoll_pwait2",
    SYS_nanosleep "nanosleep",
    SYS_clock_nanosleep "clock_nanosleep",
    SYS_wait4 "wait4",
    SYS_waitid "waitid",
    SYS_rt_sigtimedwait "rt_sigtimedwait",
    SYS_rt_sigsuspend "rt_sigsuspend",
    SYS_io_getevents "io_getevents",
    SYS_io_uring_enter "io_uring_enter",
    SYS_futex_waitv "futex_waitv",
    SYS_msgrcv "msgrcv",
    SYS_semop "semop",
    SYS_semtimedop "semtimedop",
    SYS_restart_syscall "restart_syscall",
    SYS_mmap "mmap",
    SYS_munmap "munmap",
    SYS_madvise "madvise",
    SYS_exit "exit",
    SYS_exit_group "exit_group",
    SYS_openat "openat",
};

#[cfg(target_arch = "x86_64")]
const OF_MACHINE: &[(libc::c_long, &str)] = calls! {
    SYS_poll "poll",
    SYS_select "select",
    SYS_epoll_wait "epoll_wait",
    SYS_pause "pause",
    SYS_open "open",
};

#[cfg(not(target_arch = "x86_64"))]
const OF_MACHINE: &[(libc::c_long, &str)] = &[];

/// Calls that wait for the descriptor in their first argument.
const OF_DESCRIPTOR: &[&str] = &[
    "read",
    "readv",
    "pread64",
    "preadv",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "sendfile",
    "splice",
    "accept",
    "accept4",
    "connect",
    "fsync",
    "fdatasync",
    "flock",
    "fcntl",
    "ioctl",
    "close",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
];

/// Whether a call waits for the descriptor in its first argument.
pub(super) fn is_of_descriptor(name: &str) -> bool {
    OF_DESCRIPTOR.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_a_descriptor_has_a_number() {
        let known: Vec<&str> = COMMON.iter().chain(OF_MACHINE).map(|(_, name)| *name).collect();
        for name in OF_DESCRIPTOR.iter().filter(|name| **name != "epoll_wait") {
            assert!(known.contains(name), "{name}");
        }
    }

    #[test]
    fn a_number_has_at_most_one_name() {
        assert_eq!(name(libc::SYS_futex.unsigned_abs()), Some("futex"));
        assert_eq!(name(u64::MAX), None);
        let mut numbers: Vec<_> = COMMON.iter().chain(OF_MACHINE).map(|(number, _)| *number).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }
}
