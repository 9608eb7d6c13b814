//! Sandbox: the system calls that are left to the reader.
//!
//! Owns: the list, and giving up all others for good. Because: a reader that reads what hostile processes chose must
//! have nothing to offer to whoever took it over: no file, no socket, no process, no program. Does not: give up users
//! or capabilities; see [`super::serve`].

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// What answering requests takes, and what the allocator and the end of a process take. Others fail with EPERM.
const ALLOWED: [libc::c_long; 20] = [
    // Requests with the file to read, and answers.
    libc::SYS_recvmsg,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_close,
    // The time that a read took, where the vDSO has no clock.
    libc::SYS_clock_gettime,
    // The allocator.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    // Signals and the end.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Leaves only these system calls to this thread, for good. `no_new_privs` must be set.
///
/// # Errors
/// The kernel has no seccomp, or there is no filter for this machine.
pub(super) fn enter() -> io::Result<()> {
    apply_filter(&filter().map_err(io::Error::other)?).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    // No condition on arguments: a call is allowed or it is not.
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> =
        ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, refused, SeccompAction::Allow, machine)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_reading_what_was_given_is_left() {
        // Of a thread, so that other tests go on as they were.
        let thread = std::thread::spawn(|| {
            let given = File::open("/proc/self/status").unwrap();
            rustix::thread::set_no_new_privs(true).unwrap();
            enter().unwrap();
            let mut bytes = [0; 4];
            given.read_exact_at(&mut bytes, 0).unwrap();
            let refused = |what: &str, done: io::Result<()>| {
                assert_eq!(done.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{what}");
            };
            refused("a file", File::open("/proc/self/status").map(drop));
            refused("a socket", UnixStream::pair().map(drop));
            refused("a process", Command::new("true").spawn().map(drop));
            bytes
        });
        assert_eq!(&thread.join().unwrap(), b"Name");
    }
}
