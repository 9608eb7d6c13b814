//! Account: the user charged for what a process costs.
//!
//! Owns: [`accountable_user`], [`GONE_USER`]. Because: a user who may create user namespaces has thousands of user
//! ids, and each of them would get its own share of every table. Does not: keep shares (`shares`) or accounts of time
//! (`time_account`).

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::unix::fs::MetadataExt as _;

use crate::status::ProcessStatus;

/// The user charged for a process that is gone before its user is read: no user has this id.
pub const GONE_USER: u32 = u32::MAX;

/// The user charged for a process: the owner of the outermost user namespace that contains it but not this process;
/// without one, its real user. `None` if the process is gone.
///
/// A namespace that root made, for a container, is not charged to root but to the id mapped to the namespace's root.
pub fn accountable_user(pid: u32) -> Option<u32> {
    let real_user = ProcessStatus::read(pid)?.real_user;
    // Without namespaces, or the right to read this one, only the user id is known.
    Some(namespace_user(pid).ok().flatten().unwrap_or(real_user))
}

fn namespace_user(pid: u32) -> io::Result<Option<u32>> {
    let path = format!("/proc/{pid}/ns/user");
    let own = identity(&fs::metadata("/proc/self/ns/user")?);
    if identity(&fs::metadata(&path)?) == own {
        return Ok(None);
    }
    let mut namespace = File::open(&path)?;
    // The kernel allows 32 levels (`create_user_ns` in kernel/user_namespace.c).
    for _ in 0..=32 {
        let parent = parent(&namespace)?;
        if identity(&parent.metadata()?) == own {
            break;
        }
        namespace = parent;
    }
    match owner(&namespace)? {
        0 => Ok(root_of(pid)),
        owner => Ok(Some(owner)),
    }
}

fn identity(of: &fs::Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// The parent of a namespace.
fn parent(namespace: &File) -> io::Result<File> {
    /// `_IO(0xb7, 0x2)`, include/uapi/linux/nsfs.h; since Linux 4.9.
    const NS_GET_PARENT: libc::c_ulong = 0xb702;
    // SAFETY: the request takes no argument, and the descriptor is open as long as the borrow.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT as _) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and no other code has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The owner of a user namespace, as this process sees it.
fn owner(namespace: &File) -> io::Result<u32> {
    /// `_IO(0xb7, 0x4)`, include/uapi/linux/nsfs.h; since Linux 4.11.
    const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;
    let mut user: libc::uid_t = 0;
    // SAFETY: the request writes one `uid_t` where the argument points, and that is what lies there.
    let result = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID as _, &raw mut user) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(user)
}

/// The outer user id that the first inner one is mapped to.
fn root_of(pid: u32) -> Option<u32> {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).ok()?;
    map.lines().next()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    #[test]
    fn a_process_of_no_other_namespace_is_its_users() {
        let user = ProcessStatus::read(std::process::id()).unwrap().real_user;
        assert_eq!(accountable_user(std::process::id()), Some(user));
        assert_eq!(accountable_user(u32::MAX), None);
    }

    /// A process that `user` started in nested namespaces; the caller kills it.
    fn inside(user: &str, levels: usize) -> Option<Child> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
        for _ in 0..levels {
            command.args(["unshare", "--user", "--map-root-user"]);
        }
        command.args(["sh", "-c", "echo ready; exec sleep 60"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        if line == "ready\n" {
            return Some(child);
        }
        let _ = child.wait();
        None
    }

    #[test]
    fn whoever_made_a_user_namespace_answers_for_it() {
        for levels in [1, 2] {
            let Some(mut child) = inside("65534", levels) else {
                println!(
                    "skipped: needs root, setpriv and unshare, and a kernel that lets users make namespaces"
                );
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "cannot test");
                return;
            };
            let user = accountable_user(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(user, Some(65534), "{levels} levels");
        }
    }
}
