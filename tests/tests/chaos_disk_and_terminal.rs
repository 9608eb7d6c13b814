//! A capture loses its resources: the disk is full, the terminal is closed. Needs root and BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::recording::{Recording, RecordingOutcome};
use cli_support::terminal::in_a_terminal;
use cli_support::{Busy, can_capture, expect_code, program, program_under, run, sample_count, stderr};
use deepctx_profile::ledger::CheckTime;

/// A small separate disk, removed on drop.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// A disk of this size; `None` if none can be created.
    fn of(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path());
        let mounted = mount.output().unwrap();
        if mounted.status.success() {
            return Some(Disk { folder });
        }
        let because = String::from_utf8_lossy(&mounted.stderr).trim().to_owned();
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no disk can be mounted: {because}");
        println!("skipped: no disk can be mounted here: {because}");
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Continuously new stacks, so that each flush has data; runs for the CPU time given as the argument.
const NEW_STACKS: &str = "
import random, sys, time
names = ['f%d' % n for n in range(300)]
code = ''.join('def %s(n):\\n    s = 0\\n    for i in range(200): s += i\\n    return go(n - 1)\\n' % name for name in names)
scope = {'go': lambda n: n and scope[random.choice(names)](n)}
exec(code, scope)
while time.process_time() < float(sys.argv[1]):
    scope['go'](20)
";

#[test]
fn full_disk_ends_the_capture_and_keeps_flushed_data() {
    if !can_capture() {
        return;
    }
    let Some(disk) = Disk::of("160k") else { return };
    let profile = disk.path().join("run.dctx");
    let path = profile.to_str().unwrap();
    let recorded = run(&[
        "record", "--freq", "999", "--flush", "100ms", "-o", path, "--", "python3", "-c", NEW_STACKS, "6",
    ]);
    let said = stderr(&recorded);
    assert_eq!(recorded.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left") && said.contains("hint: "), "{said}");
    // No incomplete file is listed, and no file of a failed flush takes space.
    let report = run(&["report", path]);
    assert!(report.status.success(), "{}", stderr(&report));
    assert!(stderr(&report).contains("did not end well"), "{}", stderr(&report));
    deepctx_storage::open(&profile).unwrap().profile.ledger.check(CheckTime::Running).unwrap();
    let manifest = fs::read_to_string(profile.join("manifest.json")).unwrap();
    for file in fs::read_dir(&profile).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name == "manifest.json" || manifest.contains(&name), "{name} belongs to nothing");
    }
}

#[test]
fn an_export_that_finds_no_room_leaves_nothing_behind() {
    let Some(disk) = Disk::of("16k") else { return };
    let source = tempfile::tempdir().unwrap();
    let folded = source.path().join("in.folded");
    let stacks: String = (0..3000).map(|n| format!("main;function_{n};leaf_{} {n}\n", n % 7)).collect();
    fs::write(&folded, stacks).unwrap();
    for format in ["folded", "html", "csv", "dctx"] {
        let out = disk.path().join("out");
        let exported =
            run(&["export", folded.to_str().unwrap(), "--format", format, "-o", out.to_str().unwrap()]);
        let said = stderr(&exported);
        assert_eq!(exported.status.code(), Some(2), "{format}: {said}");
        assert!(said.contains("No space left") && said.contains("hint: "), "{format}: {said}");
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0, "{format}");
    }
}

#[test]
fn hanging_up_ends_a_recording_that_is_complete() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    // Also if these signals are ignored by the caller (`nohup`), which the profiler would inherit.
    let mut command = Command::new("env");
    let command = program_under(command.arg("--default-signal=HUP"));
    let mut recording = Recording::by(command, &["--pid", &busy.pid()]);
    recording.wait_until(|file| sample_count(file) > 0);
    recording.signal("HUP");
    let RecordingOutcome { status, said } = recording.ended();
    drop(busy);
    assert!(status.success(), "{status}\n{said}");
    let report = run(&["report", &recording.file()]);
    assert!(report.status.success() && stderr(&report).is_empty(), "{}", stderr(&report));
}

/// Runs the program in a terminal until it has drawn this. It ends well when the terminal is gone: neither by a crash
/// nor by a signal, and it has put away what it attached.
fn ends_with_its_terminal(command: &mut Command, drawn: &str) {
    let outcome = in_a_terminal(command, drawn);
    assert!([0, 1, 2].contains(&outcome.code) && outcome.drawn.contains(drawn), "{outcome:?}");
}

#[test]
fn a_live_view_ends_with_its_terminal() {
    if !can_capture() {
        return;
    }
    let busy = Busy::start();
    ends_with_its_terminal(program().args(["live", "--pid", &busy.pid()]), "Flame");
}

/// A stored profile.
fn stored(folder: &Path) -> PathBuf {
    let folded = folder.join("in.folded");
    fs::write(&folded, "main;work 10\n").unwrap();
    let profile = folder.join("in.dctx");
    let (from, to) = (folded.to_str().unwrap(), profile.to_str().unwrap());
    expect_code(0, &["export", from, "--format", "dctx", "-o", to]);
    profile
}

#[test]
fn a_view_of_a_stored_profile_ends_with_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    ends_with_its_terminal(program().arg("view").arg(stored(folder.path())), "Flame");
}

/// A shell in a terminal, since a job without one cannot be stopped. After each input, these words must come.
const IN_A_SHELL: &str = r"
import fcntl, os, pty, select, shlex, struct, sys, termios, time
pid, master = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
    os.environ['TERM'] = 'xterm-256color'
    os.environ.pop('ENV', None)
    os.execvp('sh', ['sh', '-i'])
left = b'\x1b[?1049l'
for typed, words in [
    (shlex.join(sys.argv[1:]) + '\n', [b'Flame']),
    ('\x1a', [left, b'Stopped']),
    # Not every shell puts back what the program left.
    ('stty -a\n', [b' icanon ', b' echo ']),
    ('fg\n', [b'\x1b[?1049h', b'Flame']),
    ('q', [left]),
    ('echo e$((6*7))d\n', [b'e42d']),
]:
    os.write(master, typed.encode())
    seen, end = b'', time.time() + 120
    while not all(word in seen for word in words):
        assert time.time() < end, (typed, seen)
        if select.select([master], [], [], 1)[0]:
            seen += os.read(master, 65536)
";

#[test]
fn control_z_stops_the_view_and_fg_continues_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", IN_A_SHELL]);
    let ended = program_under(&mut python).arg("view").arg(stored(folder.path())).output().unwrap();
    assert!(ended.status.success(), "{}", stderr(&ended));
}

#[test]
fn a_live_view_whose_screen_stops_keeps_its_profile() {
    if !can_capture() {
        return;
    }
    let (folder, busy) = (tempfile::tempdir().unwrap(), Busy::start());
    let mut defective = program();
    defective.env("DEEPCTX_TEST_DEFECT", "screen").current_dir(folder.path());
    let live = defective.args(["live", "--pid", &busy.pid()]);
    ends_with_its_terminal(live, "the screen stopped because of a defect");
    let report = run(&["report", folder.path().join("live.dctx").to_str().unwrap()]);
    assert!(report.status.success() && stderr(&report).is_empty(), "{}", stderr(&report));
}
