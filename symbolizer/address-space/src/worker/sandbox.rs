//! Sandbox: the privileges left to a worker.
//!
//! Owns: irrevocably dropping users, capabilities and system calls. Because: a worker parses input from hostile
//! processes; once compromised, it must have nothing to offer the attacker: no file, no socket, no process, no
//! program. Does not: know what the worker does.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, apply_filter_all_threads,
};

/// The user `nobody`.
const NOBODY: u32 = 65_534;
/// Of all processes, the first that the kernel ends when it has no memory left (`proc_pid_oom_score_adj(5)`).
const KILLED_FIRST: &[u8] = b"1000";

/// What a worker may use at most.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Open files.
    pub files: u64,
    /// Address space, in bytes.
    pub memory: u64,
    /// Size of a file that it writes, in bytes.
    pub written: u64,
}

/// What answering requests takes, and what the allocator and the end of a process take. Others fail with EPERM.
const ALLOWED: &[libc::c_long] = &[
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

/// What threads take that were started before, and writing into files that were given.
const ALLOWED_TO_THREADS: &[libc::c_long] = &[
    libc::SYS_mprotect,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_pwrite64,
];

/// What no program does that reads files and writes files: start programs, reach other machines or other processes,
/// and change the kernel. Pairs of sockets stay: signals wake an event loop by one.
const REFUSED_TO_READERS: &[libc::c_long] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other machines, and daemons of this one.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_setns,
    libc::SYS_unshare,
    // The kernel, and what widens its surface.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
];

/// Makes this process one of nobody, without capabilities. Other threads must be started after this.
///
/// # Errors
/// Something of it cannot be given up.
pub fn give_up_privileges(bounds: &Bounds) -> io::Result<()> {
    set_no_new_privs(true)?;
    // A kernel that does not let it has the bounds below.
    let _ = fs::write("/proc/self/oom_score_adj", KILLED_FIRST);
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Nofile, bounds.files),
        (Resource::As, bounds.memory),
        (Resource::Fsize, bounds.written),
    ] {
        limit(resource, most)?;
    }
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    // Whoever may not do this is nobody much; and where the user does not exist (a user namespace), the capabilities
    // are what counts.
    let _ = set_thread_groups(&[]);
    let _ = set_thread_res_gid(group, group, group);
    let _ = set_thread_res_uid(user, user, user);
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    if !capabilities(None)?.permitted.is_empty() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(())
}

/// From now on, this process may have this many bytes of its own. Files that are mapped to be read do not count.
///
/// # Errors
/// The system's.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    limit(Resource::Data, bytes)
}

/// From now on, no thread or process can be started.
///
/// # Errors
/// The system's.
pub fn limit_threads() -> io::Result<()> {
    limit(Resource::Nproc, 0)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    // A lower limit of whoever started the profiler stays: to raise it takes CAP_SYS_RESOURCE.
    let most = getrlimit(resource).maximum.map_or(most, |lower| lower.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Leaves only a few system calls to all threads of this process, for good; `with_threads`: those that more than one
/// thread takes too. `no_new_privs` must be set.
///
/// # Errors
/// The kernel has no seccomp, or there is no filter for this machine.
pub fn enter(with_threads: bool) -> io::Result<()> {
    let more = if with_threads { ALLOWED_TO_THREADS } else { &[] };
    let filter = filter(ALLOWED.iter().chain(more)).map_err(io::Error::other)?;
    apply_filter_all_threads(&filter).map_err(io::Error::other)
}

/// Takes from this thread, and from those that it starts, what no reader of files does. `no_new_privs` must be set.
/// Programs that show things take too many calls to name those that they may make, as [`enter`] does.
///
/// # Errors
/// As [`enter`].
pub fn refuse_programs_and_sockets() -> io::Result<()> {
    let filter = filter_of(REFUSED_TO_READERS.iter(), SeccompAction::Allow, refused());
    apply_filter(&filter.map_err(io::Error::other)?).map_err(io::Error::other)
}

fn filter<'c>(
    allowed: impl Iterator<Item = &'c libc::c_long>,
) -> Result<BpfProgram, seccompiler::BackendError> {
    filter_of(allowed, refused(), SeccompAction::Allow)
}

fn refused() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.unsigned_abs())
}

/// What becomes of calls that are named, and of all others.
fn filter_of<'c>(
    named: impl Iterator<Item = &'c libc::c_long>,
    others: SeccompAction,
    of_named: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    // No condition on arguments: a call is named or it is not.
    let rules: BTreeMap<i64, Vec<seccompiler::SeccompRule>> = named.map(|call| (*call, Vec::new())).collect();
    SeccompFilter::new(rules, others, of_named, machine)?.try_into()
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
            set_no_new_privs(true).unwrap();
            let filter = filter(ALLOWED.iter()).unwrap();
            seccompiler::apply_filter(&filter).unwrap();
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
