//! Attacks of other users of the machine on a capture. Needs root and BPF.
//!
//! Owns: the other user, and the list of attacks. Because: the profiler runs as root among programs and folders of
//! unprivileged users. Does not: test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod busy_cpus;
mod changing_user;
#[path = "../cli_support/mod.rs"]
mod cli_support;
mod command_user;
mod device_code_reader;
#[path = "../documented/mod.rs"]
mod documented;
mod event_flood;
mod exec_storm;
mod forged_build_id;
mod full_tables;
mod generated_code;
mod least_privilege;
mod made_up_processes;
mod owners;
mod perf_maps;
mod planted_links;
mod probe_sites;
mod python_objects;
#[allow(dead_code, reason = "shared with other tests, which use the rest of it")]
#[path = "../simulated/mod.rs"]
mod simulated;
mod sleeping_children;
mod symbol_reader;
mod table_builder;
mod worker_support;

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use cli_support::victim::VICTIM;

/// `nobody`, which owns nothing of importance.
const OTHER: u32 = 65534;

/// A world-readable folder, removed when the test ends.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A subfolder owned by the other user.
fn others_folder(folder: &Path) -> PathBuf {
    let path = folder.join("theirs");
    fs::create_dir(&path).unwrap();
    chown(&path, Some(OTHER), Some(OTHER)).unwrap();
    path
}

/// Compiles a C workload; returns the program.
fn compiled_workload(folder: &Path, name: &str) -> PathBuf {
    let built = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("workloads/{name}.c"));
    let compiled = Command::new("cc").args(["-O2", "-o"]).arg(&built).arg(source).status().unwrap();
    assert!(compiled.success());
    built
}

/// A process of an innocent user that began now, and computes until it is killed. `program`: `innocent`, compiled.
fn computing(program: &Path) -> OtherUserProcess {
    computing_as(VICTIM, program)
}

/// The same of another user.
fn computing_as(user: u32, program: &Path) -> OtherUserProcess {
    let mut command = Command::new(program);
    command.arg("3600").uid(user).gid(user).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = OtherUserProcess::root(&mut command);
    process.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    process
}

/// Percentage of complete stacks, from a recording's final output.
fn complete_share(said: &str) -> f64 {
    let share = said.split(" % of stacks complete").next().and_then(|before| before.rsplit(' ').next());
    share.and_then(|share| share.parse().ok()).unwrap_or_else(|| panic!("no share: {said}"))
}

/// A process of the other user; killed when the test ends.
struct OtherUserProcess(Child);

impl OtherUserProcess {
    fn start(command: &mut Command) -> Self {
        Self::root(command.uid(OTHER).gid(OTHER))
    }

    /// A process that starts as root and changes its user itself.
    fn root(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits until it prints this line.
    fn wait_for_line(&mut self, line: &str) {
        let output = self.0.stdout.take().unwrap();
        assert!(
            BufReader::new(output).lines().any(|printed| printed.unwrap() == line),
            "it ended before {line:?}"
        );
    }

    /// Waits for its end, which must be a success.
    fn end(mut self) {
        let status = self.0.wait().unwrap();
        assert!(status.success(), "what the other user tried did not work: {status}");
    }
}

impl Drop for OtherUserProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
