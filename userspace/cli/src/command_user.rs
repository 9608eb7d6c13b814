//! Command user: the user as whom a recorded command runs.
//!
//! Owns: the choice of the user, and becoming that user between fork and exec. Because: the profiler needs root, the
//! command does not; below `sudo`, whoever types `record -- CMD` expects CMD to run as they would run it. Does not:
//! start the command; see [`crate::command`].

use std::ffi::{CString, OsString};
use std::io;
use std::process::Command;

use deepctx_storage::owner::Owner;
use nix::unistd::{User, getgrouplist};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::failure::Failure;

/// The user to run a command as, if not the profiler's.
#[derive(Debug)]
pub(crate) struct CommandUser {
    user: Uid,
    group: Gid,
    /// All groups, the primary one first.
    groups: Vec<Gid>,
    /// Name, home folder and shell; `None` for a user without an entry in the user database.
    entry: Option<User>,
    by_sudo: bool,
}

impl CommandUser {
    /// Variables in which `sudo` names its caller. The command does not get them, as it no longer runs under `sudo`.
    const VARIABLES_REMOVED: [&str; 4] = ["SUDO_COMMAND", "SUDO_GID", "SUDO_UID", "SUDO_USER"];

    /// The user of `--user`, else the caller of `sudo`; `None` when that is this process's user.
    ///
    /// # Errors
    /// The user does not exist, or this process may not change to it.
    pub(crate) fn choose(asked: Option<&str>) -> Result<Option<Self>, Failure> {
        let own = rustix::process::geteuid();
        let Some(chosen) = asked.map(Self::named).transpose()?.or_else(Self::behind_sudo) else {
            return Ok(None);
        };
        if chosen.user == own {
            return Ok(None);
        }
        if !own.is_root() {
            let name = chosen.name();
            return Err(Failure::new(format_args!(
                "--user {name}: only root can run a command as another user"
            ))
            .hint("run it with sudo, or omit --user"));
        }
        Ok(Some(chosen))
    }

    fn named(asked: &str) -> Result<Self, Failure> {
        let found = match asked.parse::<u32>() {
            Ok(number) => User::from_uid(number.into()),
            Err(_) => User::from_name(asked),
        };
        let entry = found.map_err(|error| Failure::io(format_args!("--user {asked}"), &error.into()))?;
        let Some(entry) = entry else {
            return Err(Failure::new(format_args!("--user {asked}: expected a user of this machine"))
                .hint("`getent passwd` lists them"));
        };
        Ok(Self::of_entry(entry, false))
    }

    fn behind_sudo() -> Option<Self> {
        let Owner { user, group } = Owner::behind_sudo()?;
        // The database may be unreachable or lack the user: then only the numbers are used.
        Some(match User::from_uid(user.as_raw().into()) {
            Ok(Some(entry)) => Self::of_entry(entry, true),
            _ => Self { user, group, groups: vec![group], entry: None, by_sudo: true },
        })
    }

    fn of_entry(entry: User, by_sudo: bool) -> Self {
        let (user, group) = (Uid::from_raw(entry.uid.as_raw()), Gid::from_raw(entry.gid.as_raw()));
        let listed = CString::new(entry.name.as_bytes()).ok();
        let listed = listed.and_then(|name| getgrouplist(&name, entry.gid).ok());
        let groups = listed.map_or_else(
            || vec![group],
            |groups| groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect(),
        );
        Self { user, group, groups, entry: Some(entry), by_sudo }
    }

    fn name(&self) -> String {
        self.entry.as_ref().map_or_else(|| self.user.as_raw().to_string(), |entry| entry.name.clone())
    }

    /// The notice for the user.
    pub(crate) fn notice(&self) -> String {
        let user = format!("{} (uid {})", self.name(), self.user.as_raw());
        if self.by_sudo {
            format!("the command runs as {user}, who called sudo; --user root keeps it root")
        } else {
            format!("the command runs as {user}")
        }
    }

    /// Sets this user's variables in a command's environment.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        for name in Self::VARIABLES_REMOVED {
            command.env_remove(name);
        }
        command.envs(self.variables());
    }

    /// The variables to set.
    fn variables(&self) -> Vec<(&'static str, OsString)> {
        let Some(entry) = &self.entry else { return Vec::new() };
        let name = OsString::from(&entry.name);
        vec![
            ("HOME", entry.dir.clone().into_os_string()),
            ("SHELL", entry.shell.clone().into_os_string()),
            ("LOGNAME", name.clone()),
            ("USER", name),
        ]
    }

    /// Permanently changes the only thread of a forked process to this user. Allocates nothing.
    pub(crate) fn enter(&self) -> io::Result<()> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.group, self.group, self.group)?;
        // Last, because it drops the permission for all of this, with every capability (capabilities(7)).
        set_thread_res_uid(self.user, self.user, self.user)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_does_not_exist_is_refused_by_name() {
        let failure = CommandUser::choose(Some("no-such-user-here")).unwrap_err();
        assert!(failure.to_string().contains("--user no-such-user-here: expected a user"), "{failure}");
    }

    #[test]
    fn the_users_own_name_and_number_change_nothing() {
        let own = User::from_uid(nix::unistd::geteuid()).unwrap().unwrap();
        for asked in [own.name.clone(), own.uid.to_string()] {
            assert!(CommandUser::choose(Some(&asked)).unwrap().is_none(), "{asked}");
        }
    }

    #[test]
    fn a_user_brings_home_name_and_groups() {
        let root = CommandUser::named("root").unwrap();
        assert_eq!((root.user, root.group), (Uid::ROOT, Gid::ROOT));
        assert!(root.groups.contains(&Gid::ROOT));
        let variables = root.variables();
        assert!(
            variables.contains(&("HOME", "/root".into())) && variables.contains(&("USER", "root".into()))
        );
        assert_eq!(root.notice(), "the command runs as root (uid 0)");
    }
}
