//! A copy of a library with the same build-id but different unwind data and names.
//!
//! Owns: making the library and its copy, and the requirements on the real one: complete stacks and its own names. Does
//! not: test the copy's own stacks.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cli_support::recording::{Recording, RecordingOutcome, record_until};
use super::cli_support::{Busy, can_capture, folded, sample_count};
use super::{OTHER, OtherUserProcess, complete_share, open_folder, others_folder};

const LIBRARY: &str = "
__attribute__((noinline)) static unsigned long v_spin(unsigned long n) {
    volatile unsigned long kept[40];
    for (unsigned long i = 0; i < n; i++) kept[i % 40] = i;
    return kept[n % 40];
}
unsigned long v_number = NUMBER;
unsigned long v_work(void) {
    unsigned long sum = 0;
    for (;;) sum += v_spin(1000000 + (sum & 1));
    return sum;
}
";

const PROGRAM: &str = "
#include <dlfcn.h>
int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) return 1;
    ((unsigned long (*)(void))dlsym(library, \"v_work\"))();
}
";

/// A library of root, a copy modified by the other user, and a program that spends its time in either.
struct Scene {
    _folder: tempfile::TempDir,
    real: PathBuf,
    copy: PathBuf,
    program: PathBuf,
}

fn compile(arguments: &[&str], source: &str, to: &Path) {
    let code = to.with_extension("c");
    fs::write(&code, source).unwrap();
    let compiled =
        Command::new("cc").args(["-O2", "-o"]).arg(to).arg(&code).args(arguments).status().unwrap();
    assert!(compiled.success());
    fs::set_permissions(to, Permissions::from_mode(0o755)).unwrap();
}

impl Scene {
    fn new(change: impl FnOnce(&Path, &mut [u8])) -> Self {
        let folder = open_folder();
        let theirs = others_folder(folder.path());
        let (real, program) = (folder.path().join("libv.so"), folder.path().join("spin"));
        // A new build-id in each run, independent of caches from earlier runs.
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let source = LIBRARY.replace("NUMBER", &format!("{since}ul"));
        compile(&["-shared", "-fPIC", "-fomit-frame-pointer", "-Wl,--build-id=sha1"], &source, &real);
        compile(&["-ldl"], PROGRAM, &program);
        let copy = theirs.join("libv.so");
        let mut bytes = fs::read(&real).unwrap();
        let before = bytes.clone();
        change(&real, &mut bytes);
        assert!(bytes.len() == before.len() && bytes != before);
        fs::write(&copy, bytes).unwrap();
        chown(&copy, Some(OTHER), Some(OTHER)).unwrap();
        // As far as the owner can forge it.
        let modified = fs::metadata(&real).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
        Self { _folder: folder, real, copy, program }
    }

    fn spin(&self, library: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(library).stdin(Stdio::null());
        command
    }
}

/// File range of a section.
fn section(file: &Path, name: &str) -> std::ops::Range<usize> {
    let listed = Command::new("readelf").args(["-S", "-W"]).arg(file).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let line = text.lines().find_map(|line| line.split_once(&format!(" {name} "))).unwrap().1.to_owned();
    let mut numbers = line.split_whitespace().skip(2);
    let mut number = || usize::from_str_radix(numbers.next().unwrap(), 16).unwrap();
    let (begin, size) = (number(), number());
    begin..begin + size
}

/// Percentage of complete stacks in a capture of this process.
fn complete(pid: &str) -> f64 {
    let mut recording = Recording::start(pid, &["-F", "499"]);
    recording.wait_until(|file| sample_count(file) > 500);
    let RecordingOutcome { status, said } = recording.interrupted();
    assert_eq!(status.code(), Some(0), "{said}");
    complete_share(&said)
}

#[test]
fn forged_unwind_data_spoils_no_later_run() {
    if !can_capture() {
        return;
    }
    let scene = Scene::new(|real, bytes| {
        // `DW_CFA_def_cfa_offset`: each frame claims to be a word larger.
        let frames = &mut bytes[section(real, ".eh_frame")];
        for at in 1..frames.len() {
            let (operation, offset) = (frames[at - 1], frames[at] & 0x7f);
            if operation == 0x0e && offset % 8 == 0 && offset < 0x78 && frames[at] >= 16 {
                frames[at] += 8;
            }
        }
    });
    let theirs = OtherUserProcess::start(&mut scene.spin(&scene.copy));
    let forged = complete(&theirs.pid());
    assert!(forged < 50.0, "the forged data does no harm: {forged} % complete");
    drop(theirs);
    let real = Busy::of(&mut scene.spin(&scene.real));
    let share = complete(&real.pid());
    assert!(share >= 99.0, "{share} % of the real library's stacks are complete");
}

#[test]
fn forged_names_are_not_those_of_the_original() {
    if !can_capture() {
        return;
    }
    let scene = Scene::new(|real, bytes| {
        let names = &mut bytes[section(real, ".strtab")];
        let at = names.windows(6).position(|name| name == b"v_spin").unwrap();
        names[at..at + 6].copy_from_slice(b"EVILxx");
    });
    let theirs = OtherUserProcess::start(&mut scene.spin(&scene.copy));
    let real = Busy::of(&mut scene.spin(&scene.real));
    let has = |file: &str, pid: &str, name: &str| {
        let stacks = folded(file, "samples", &[]);
        let mut of = stacks.lines().filter(|line| line.starts_with(&format!("spin-{pid}")));
        of.any(|line| line.contains(name))
    };
    let (theirs, real) = (theirs.pid(), real.pid());
    let (_folder, file) = record_until(&theirs, &["--pid", &real], |file| {
        has(file, &theirs, "EVILxx") && has(file, &real, "v_spin")
    });
    assert!(!has(&file, &real, "EVILxx"), "{}", folded(&file, "samples", &[]));
}
