//! Workers of a recording, and programs that give them work.
//!
//! Owns: a program whose functions are on every stack, and finding a worker by its command line. Because: workers are
//! started, inspected and killed alike. Does not: test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cli_support::{is_without_privileges, program, signal, workers_of};

/// Its functions are on every stack, each for a fixed CPU time; the program that it execs is another file.
const SOURCE: &str = "
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void spin(double seconds) {
    struct timespec began, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (now.tv_sec - began.tv_sec + 1e-9 * (now.tv_nsec - began.tv_nsec) < seconds);
    __asm__ volatile(\"\");
}
__attribute__((noinline)) void SPIN(double seconds) { spin(seconds); __asm__ volatile(\"\"); }
__attribute__((noinline)) void later(double seconds) { spin(seconds); __asm__ volatile(\"\"); }
int main(int count, char **next) {
    while (access(next[1], F_OK) != 0) SPIN(0.1);
    SPIN(1);
    if (count > 2) { later(1); execv(next[2], next + 1); }
    return 0;
}
";
/// Timeout for expected events.
const PATIENCE: Duration = Duration::from_secs(60);

/// Compiles the program with this function name. It waits until its first argument exists, runs `later`, and execs the
/// program in its second argument.
pub(super) fn compiled(folder: &Path, function: &str) -> String {
    let path = folder.join(function);
    let source = path.with_extension("c");
    fs::write(&source, SOURCE).unwrap();
    let define = format!("-DSPIN={function}");
    let done = Command::new("cc").args(["-O1", &define, "-o"]).arg(&path).arg(&source).status().unwrap();
    assert!(done.success());
    path.to_str().unwrap().to_owned()
}

/// Records a program that execs another one, `first_spin` and then `second_spin`. Meanwhile checks that the first
/// worker of this name has no privileges, and kills it. Returns the profile.
pub(super) fn recorded_while_killing(worker: &str, folder: &Path) -> PathBuf {
    let (first, second) = (compiled(folder, "first_spin"), compiled(folder, "second_spin"));
    let (go, profile) = (folder.join("go"), folder.join("run.dctx"));
    let mut record = program();
    record.args(["record", "--freq", "499", "-o"]).arg(&profile).args(["--", &first]).arg(&go).arg(second);
    let mut recording = record.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();

    let pid = worker_of(&recording, worker, |_| true);
    is_without_privileges(&pid);
    signal(&pid, "KILL");
    fs::write(&go, "").unwrap();

    assert!(recording.wait().unwrap().success());
    profile
}

/// A worker started by a recording whose file meets the condition.
pub(super) fn worker_of(recording: &Child, name: &str, is_it: impl Fn(&Path) -> bool) -> String {
    worker_of_pid(&recording.id().to_string(), name, is_it)
}

/// The same for a recording with this pid.
pub(super) fn worker_of_pid(recording: &str, name: &str, is_it: impl Fn(&Path) -> bool) -> String {
    let began = Instant::now();
    loop {
        let workers = workers_of(recording, name);
        if let Some(found) = workers.iter().find(|process| is_it(process)) {
            return found.file_name().unwrap().to_str().unwrap().to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "no {name} was started");
        std::thread::yield_now();
    }
}

/// Waits until a process has ended and was reaped.
pub(super) fn is_gone(pid: &str) {
    let began = Instant::now();
    while Path::new("/proc").join(pid).exists() {
        assert!(began.elapsed() < PATIENCE, "{pid} was left behind");
        std::thread::yield_now();
    }
}
