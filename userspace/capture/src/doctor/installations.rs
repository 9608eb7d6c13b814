//! Installations: the other programs of this name on a machine.
//!
//! Owns: finding them. Because: a package and a wheel can both be installed, and `sudo` looks for programs in other
//! folders than the user's shell, so the one that runs may not be the one that was updated. Does not: start any to ask
//! for its version.

use std::env;
use std::path::{Path, PathBuf};

use super::{Check, SUDO_FOLDERS, State};

/// Name of the program.
const NAME: &str = "deepctx-bpf";

/// This program, and the others with its name.
pub(super) fn check() -> Check {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(SUDO_FOLDERS.map(PathBuf::from));
    check_of(env::current_exe().ok(), folders)
}

fn check_of(program: Option<PathBuf>, folders: impl Iterator<Item = PathBuf>) -> Check {
    let version = env!("CARGO_PKG_VERSION");
    let found = match &program {
        Some(program) => format!("{version}, {}", program.display()),
        None => version.to_owned(),
    };
    let others = others(program.as_deref(), folders);
    let named: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
    let fix = (!named.is_empty()).then(|| {
        format!(
            "also installed: {}; start the one you mean by its path, or remove the others",
            named.join(", ")
        )
        .into()
    });
    Check { name: "program", found, state: State::Enough, fix }
}

/// Each file once, whichever links lead to it.
fn others(program: Option<&Path>, folders: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut seen: Vec<PathBuf> = program.and_then(|path| path.canonicalize().ok()).into_iter().collect();
    let mut others = Vec::new();
    for path in folders.map(|folder| folder.join(NAME)).filter(|path| path.is_file()) {
        let Ok(file) = path.canonicalize() else { continue };
        if !seen.contains(&file) {
            seen.push(file);
            others.push(path);
        }
    }
    others
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn other_installations_are_named_once_and_this_one_never() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["ours", "other", "empty", "link"].map(|name| root.path().join(name));
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let [ours, other, _, link] = &folders;
        fs::write(ours.join(NAME), "").unwrap();
        let check = |program: &Path| check_of(Some(program.join(NAME)), folders.iter().cloned());
        assert_eq!(check(ours).fix, None);

        fs::write(other.join(NAME), "").unwrap();
        symlink(other.join(NAME), link.join(NAME)).unwrap();
        let fix = check(ours).fix.unwrap().to_string();
        let named = format!("also installed: {};", other.join(NAME).display());
        assert!(fix.starts_with(&named), "{fix}");
        // Started through a link, it is the same.
        assert!(
            check(link)
                .fix
                .unwrap()
                .to_string()
                .starts_with(&format!("also installed: {};", ours.join(NAME).display()))
        );
    }
}
