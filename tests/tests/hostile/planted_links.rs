//! A profile is recorded into a folder whose owner renames it and plants links where files are expected.
//!
//! Owns: which of root's files must stay unchanged, and where root may write files. Does not: check the profile, except
//! that it is complete.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cli_support::recording::wait_for;
use super::cli_support::{Busy, can_capture, expect_code, program, run, signal, stderr};
use super::{OtherUserProcess, open_folder, others_folder};

/// Moves the profile after a flush, and puts a folder of links in its place: under every name that a flush, a merge or
/// packing could use.
const MOVE_AND_PLANT: &str = "
import os, sys, time
theirs, victim = sys.argv[1:]
os.chdir(theirs)
os.mkdir('trap')
tables = ['frames', 'nodes', 'values', 'timeline', 'activities', 'shapes', 'ledger', 'executables']
files = ['%s-%06d.parquet' % (table, n) for table in tables for n in range(200)] + ['manifest.json']
for name in files:
    os.symlink(victim, 'trap/' + name)
    os.symlink(victim, 'trap/.%s.new' % name)
os.symlink('trap', 'link')
end = time.time() + 600
while not os.path.lexists('run.dctx'):
    assert time.time() < end, 'nothing is recorded'
made = os.stat('run.dctx').st_mtime
while os.stat('run.dctx').st_mtime < made + 0.2:
    assert time.time() < end, 'nothing is flushed'
    time.sleep(0.001)
os.rename('run.dctx', 'moved')
os.rename('link', 'run.dctx')
";

/// Flushes after the attack, with the planted links in their way.
const FLUSHES_AFTER: usize = 5;

/// A file owned by root.
fn victim(folder: &Path) -> PathBuf {
    let path = folder.join("victim");
    fs::write(&path, "precious").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    path
}

fn is_unharmed(victim: &Path) -> bool {
    let is = fs::symlink_metadata(victim).unwrap();
    is.is_file()
        && (is.uid(), is.mode() & 0o777) == (0, 0o640)
        && fs::read_to_string(victim).unwrap() == "precious"
}

/// Root's regular files below a folder.
fn of_root(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is = fs::symlink_metadata(&path).unwrap();
        if is.is_dir() {
            found.extend(of_root(&path));
        } else if is.is_file() && is.uid() == 0 {
            found.push(path);
        }
    }
    found
}

/// Records while the other user moves and plants; returns the exit code and the output.
fn record_meanwhile(folder: &Path, theirs: &Path, more: &[&str]) -> (Option<i32>, String) {
    let busy = Busy::start();
    let victim = victim(folder);
    // The system's Python, because root's own may be inaccessible to others.
    let mut attack = Command::new("/usr/bin/python3");
    let attack = OtherUserProcess::start(attack.args(["-c", MOVE_AND_PLANT]).arg(theirs).arg(&victim));
    let (output, pid) = (theirs.join("run.dctx"), busy.pid());
    // A time limit, in case the attack fails: nothing else would end the recording.
    let arguments =
        ["record", "--pid", &pid, "-d", "900s", "--flush", "100ms", "-o", output.to_str().unwrap()];
    // Under `sudo`, the files would belong to its caller.
    let mut record = program();
    record.env_remove("SUDO_UID").args(arguments).args(more).stdout(Stdio::null()).stderr(Stdio::piped());
    let recording = record.spawn().unwrap();
    attack.end();
    let manifest = theirs.join("moved/manifest.json");
    for _ in 0..FLUSHES_AFTER {
        let before = fs::metadata(&manifest).unwrap().ino();
        wait_for("a flush", || fs::metadata(&manifest).is_ok_and(|is| is.ino() != before));
    }
    signal(&recording.id().to_string(), "INT");
    let recorded = recording.wait_with_output().unwrap();
    assert!(is_unharmed(&victim), "{}", stderr(&recorded));
    (recorded.status.code(), stderr(&recorded))
}

#[test]
fn links_planted_during_a_capture_lead_nowhere() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let theirs = others_folder(folder.path());
    let (code, said) = record_meanwhile(folder.path(), &theirs, &[]);
    assert_eq!(code, Some(0), "{said}");
    let moved = theirs.join("moved");
    let report = run(&["report", moved.to_str().unwrap()]);
    assert!(report.status.success() && stderr(&report).is_empty(), "{}", stderr(&report));
    let elsewhere: Vec<PathBuf> =
        of_root(folder.path()).into_iter().filter(|path| !path.starts_with(&moved)).collect();
    assert_eq!(elsewhere, [folder.path().join("victim")]);
}

#[test]
fn packing_takes_what_was_recorded_or_fails() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let theirs = others_folder(folder.path());
    let (code, said) = record_meanwhile(folder.path(), &theirs, &["--pack"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("was moved") && said.contains("hint: "), "{said}");
    assert!(fs::symlink_metadata(theirs.join("run.dctx")).unwrap().is_symlink());
    let report = run(&["report", theirs.join("moved").to_str().unwrap()]);
    assert!(report.status.success() && stderr(&report).is_empty(), "{}", stderr(&report));
    // Nothing remains of the packed file.
    assert!(of_root(folder.path()).iter().all(|path| !path.to_string_lossy().ends_with(".new")));
}

#[test]
fn a_raw_copy_replaces_nothing_unless_forced() {
    if !can_capture() {
        return;
    }
    let folder = open_folder();
    let theirs = others_folder(folder.path());
    let victim = victim(folder.path());
    let (busy, output, raw) = (Busy::start(), folder.path().join("run.dctx"), theirs.join("run.raw"));
    symlink(&victim, &raw).unwrap();
    let pid = busy.pid();
    let paths = ["-o", output.to_str().unwrap(), "--raw", raw.to_str().unwrap()];
    let arguments = [&["record", "--pid", &pid, "-d", "300ms"][..], &paths].concat();
    let said = expect_code(2, &arguments);
    assert!(said.contains("run.raw: already exists") && said.contains("--force"), "{said}");
    assert!(is_unharmed(&victim) && !output.exists());
    expect_code(0, &[&arguments[..], &["--force"]].concat());
    let made = fs::symlink_metadata(&raw).unwrap();
    assert!(is_unharmed(&victim) && made.is_file() && made.mode() & 0o777 == 0o600, "{made:?}");
    assert!(made.len() > 0);
}
