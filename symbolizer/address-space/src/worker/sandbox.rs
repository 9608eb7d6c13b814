//! Sandbox: the privileges left to a worker.
//!
//! Owns: irrevocably dropping users, capabilities and system calls. Because: a worker parses input from hostile
//! processes; once compromised, it must have nothing to offer the attacker: no file, no socket, no process, no
//! program. Does not: know what the worker does.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use rustix::process::{
    DumpableBehavior, Gid, Resource, Rlimit, Uid, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter, apply_filter_all_threads, sock_filter,
};

/// The user `nobody`.
const NOBODY: u32 = 65_534;
/// First number of the x32 system calls (`__X32_SYSCALL_BIT`, arch/x86/include/uapi/asm/unistd.h): to a filter, they
/// are of the same architecture as those of x86-64.
const X32_CALLS: u32 = 0x4000_0000;
/// Makes the kernel kill this process first when memory runs out (`proc_pid_oom_score_adj(5)`).
const KILLED_FIRST: &[u8] = b"1000";

/// Resource limits of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Open files.
    pub files: u64,
    /// Address space, in bytes.
    pub memory: u64,
    /// Largest file that it may write, in bytes.
    pub written: u64,
}

/// System calls for answering requests, and of the allocator and the exit of a process. Others fail with EPERM.
const ALLOWED: &[libc::c_long] = &[
    // Requests with the file to read, and answers.
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_sendto,
    libc::SYS_close,
    // Timing of a read, if the vDSO has no clock.
    libc::SYS_clock_gettime,
    // The allocator.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    // Signals and exit.
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Further system calls of threads that were started before, and for writing to passed files.
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

/// System calls that no reader and writer of files needs: starting programs, reaching other machines or processes, and
/// changing the kernel. Socket pairs stay allowed: signals wake an event loop through one.
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
    // The kernel, and calls that widen its attack surface.
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

/// Makes this process one of `nobody`, without capabilities. Other threads must be started after this.
///
/// # Errors
/// Some privilege cannot be dropped.
pub fn give_up_privileges(bounds: &Bounds) -> io::Result<()> {
    set_no_new_privs(true)?;
    // If the kernel refuses, the bounds below still apply.
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
    // A process without this right has few others; and where the user does not exist (a user namespace), dropping the
    // capabilities is what counts.
    let _ = set_thread_groups(&[]);
    let _ = set_thread_res_gid(group, group, group);
    let _ = set_thread_res_uid(user, user, user);
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    if !capabilities(None)?.permitted.is_empty() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // Last, since a change of user sets it to `fs.suid_dumpable`: other processes of this user may not trace it.
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Limits the private memory of this process. Files mapped for reading do not count.
///
/// # Errors
/// The system's.
pub fn limit_memory(bytes: u64) -> io::Result<()> {
    limit(Resource::Data, bytes)
}

/// The last steps of a worker before its first request: no thread can be started, and few system calls are left
/// ([`enter`]). Notifies the pool, and returns the socket for requests, which is standard input.
///
/// # Errors
/// The system's.
pub fn begin(with_threads: bool) -> io::Result<UnixStream> {
    limit_threads()?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // A second barrier. A kernel without seccomp, or a container that forbids it, has only the first.
    let _ = enter(with_threads);
    super::ready(&socket)?;
    Ok(socket)
}

/// From now on, no thread or process can be started.
fn limit_threads() -> io::Result<()> {
    limit(Resource::Nproc, 0)
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    // A lower limit inherited by the profiler stays: raising it takes CAP_SYS_RESOURCE.
    let most = getrlimit(resource).maximum.map_or(most, |lower| lower.min(most));
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Permanently restricts all threads of this process to a few system calls; `with_threads`: also those that several
/// threads need. `no_new_privs` must be set.
///
/// # Errors
/// The kernel has no seccomp, or there is no filter for this machine.
fn enter(with_threads: bool) -> io::Result<()> {
    let more = if with_threads { ALLOWED_TO_THREADS } else { &[] };
    let filter = filter(ALLOWED.iter().chain(more)).map_err(io::Error::other)?;
    apply_filter_all_threads(&filter).map_err(io::Error::other)
}

/// Forbids this thread, and those that it starts, the system calls that no reader of files needs. `no_new_privs` must
/// be set. Programs with a user interface need too many calls to list the allowed ones, as [`enter`] does.
///
/// # Errors
/// As [`enter`].
pub fn refuse_programs_and_sockets() -> io::Result<()> {
    let filter = filter_of_readers().map_err(io::Error::other)?;
    apply_filter(&filter).map_err(io::Error::other)
}

/// Each listed call has another number among those of x32, which would let it pass.
fn filter_of_readers() -> Result<BpfProgram, seccompiler::BackendError> {
    let listed = filter_of(REFUSED_TO_READERS.iter(), SeccompAction::Allow, refused())?;
    if !cfg!(target_arch = "x86_64") {
        return Ok(listed);
    }
    Ok(refuse_from(X32_CALLS).into_iter().chain(listed).collect())
}

/// The beginning of a filter: refuses all calls from this number on.
fn refuse_from(number: u32) -> [sock_filter; 3] {
    /// `BPF_LD | BPF_W | BPF_ABS`, include/uapi/linux/bpf_common.h.
    const LOAD: u16 = 0x20;
    /// `BPF_JMP | BPF_JGE | BPF_K`.
    const IF_AT_LEAST: u16 = 0x35;
    /// `BPF_RET | BPF_K`.
    const RETURN: u16 = 0x06;
    [
        // The number is the first word of `seccomp_data`.
        sock_filter { code: LOAD, jt: 0, jf: 0, k: 0 },
        // Less: skips the refusal.
        sock_filter { code: IF_AT_LEAST, jt: 0, jf: 1, k: number },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: refused().into() },
    ]
}

fn filter<'c>(
    allowed: impl Iterator<Item = &'c libc::c_long>,
) -> Result<BpfProgram, seccompiler::BackendError> {
    filter_of(allowed, refused(), SeccompAction::Allow)
}

fn refused() -> SeccompAction {
    SeccompAction::Errno(libc::EPERM.unsigned_abs())
}

/// A filter with one action for the listed calls, and one for all others.
fn filter_of<'c>(
    named: impl Iterator<Item = &'c libc::c_long>,
    others: SeccompAction,
    of_named: SeccompAction,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    // No condition on arguments: a call is listed or not.
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
        // Only for this thread, so that other tests are not affected.
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

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_of_x32_are_refused_to_readers() {
        // Only for this thread, so that other tests are not affected.
        let thread = std::thread::spawn(|| {
            set_no_new_privs(true).unwrap();
            refuse_programs_and_sockets().unwrap();
            // SAFETY: a call without arguments.
            let own = unsafe { libc::syscall(libc::SYS_getpid) };
            // SAFETY: as above; without the filter, a kernel without x32 says that there is no such call.
            let of_x32 = unsafe { libc::syscall(libc::SYS_getpid | i64::from(X32_CALLS)) };
            (own, of_x32, io::Error::last_os_error().raw_os_error())
        });
        let own = i64::from(std::process::id());
        assert_eq!(thread.join().unwrap(), (own, -1, Some(libc::EPERM)));
    }
}
