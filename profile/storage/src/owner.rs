//! Owner: the user that output files belong to.
//!
//! Owns: the choice, and giving. Because: a profile holds command lines and names of other people's programs, so it
//! is for its caller alone; under `sudo` that is the user who ran `sudo`, who could otherwise neither open nor remove
//! it. Does not: make files; see [`crate::folder`], which gives each to its owner as it makes it.

use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::fs::{Gid, Uid};

/// The user and group to own created files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub user: Uid,
    /// The group.
    pub group: Gid,
}

impl Owner {
    /// The caller of `sudo`, if this process is root's and `sudo` states it.
    pub fn behind_sudo() -> Option<Owner> {
        static OWNER: OnceLock<Option<Owner>> = OnceLock::new();
        *OWNER.get_or_init(|| {
            let variable = |name| std::env::var(name).ok();
            let (user, group) = (variable("SUDO_UID"), variable("SUDO_GID"));
            let is_root = rustix::process::geteuid().is_root();
            if is_root { Owner::of_variables(user.as_deref(), group.as_deref()) } else { None }
        })
    }

    /// Both must be numbers of a user and a group: nothing is guessed, and `chown` takes −1 for "unchanged".
    fn of_variables(user: Option<&str>, group: Option<&str>) -> Option<Owner> {
        let number = |text: Option<&str>| text?.parse::<u32>().ok().filter(|&number| number != u32::MAX);
        Some(Owner { user: Uid::from_raw(number(user)?), group: Gid::from_raw(number(group)?) })
    }
}

/// Gives a new file to the caller of `sudo`. On a file system without owners, it stays as it is.
pub(crate) fn give(made: impl AsFd) {
    if let Some(Owner { user, group }) = Owner::behind_sudo() {
        _ = rustix::fs::fchown(made, Some(user), Some(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_valid_numbers_name_an_owner() {
        let of = |user, group| {
            Owner::of_variables(user, group).map(|owner| (owner.user.as_raw(), owner.group.as_raw()))
        };
        assert_eq!(of(Some("1000"), Some("100")), Some((1000, 100)));
        for (user, group) in [
            (None, Some("100")),
            (Some("1000"), None),
            (Some(""), Some("100")),
            (Some("-1"), Some("100")),
            (Some("4294967295"), Some("100")),
            (Some("1000"), Some("4294967296")),
            (Some("root"), Some("root")),
        ] {
            assert_eq!(of(user, group), None, "{user:?} {group:?}");
        }
    }
}
