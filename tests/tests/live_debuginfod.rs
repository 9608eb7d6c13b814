//! A stripped program whose debug information only a server has. Needs root and BPF.
//!
//! Owns: recordings of it beside a server that sends the right file, another build's, or nothing. Because: an answer
//! may come late or never, and must neither delay samples nor give a function a wrong name. Does not: contact any other
//! machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cli_support;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};

use cli_support::recording::Recording;
use cli_support::{can_capture, expect_code, folded, gap_count, program, sample_count};
use deepctx_profile::profile::Profile;

const SOURCE: &str = "
static volatile long sink;
static __attribute__((noinline)) void hidden_spin(long n) {
    for (long i = 0; i < n; i++) sink += i;
}
int main(void) { for (;;) hidden_spin(1000000); }
";
/// Cache of a program that runs as root for server responses.
const CACHE: &str = "/var/cache/deepctx-bpf/debuginfod";

/// Seconds after which a server that never answers is given up.
const SILENT: &str = "1";
/// The same for one that answers, which may be slow on a busy machine.
const ANSWERS: &str = "300";

/// A running stripped program, and the file with its debug information.
struct StrippedProgram {
    folder: tempfile::TempDir,
    debug: Vec<u8>,
    id: String,
    child: Child,
}

/// Debug information of a program, and the program without it.
fn compiled(folder: &Path, name: &str) -> (PathBuf, Vec<u8>) {
    let (source, path) = (folder.join("spin.c"), folder.join(name));
    let debug = path.with_extension("debug");
    fs::write(&source, SOURCE).unwrap();
    let mut compiler = Command::new("cc");
    // A unique id that no public server knows.
    compiler.args(["-g", "-O1", "-Wl,--build-id=uuid", "-o"]).arg(&path).arg(&source);
    assert!(compiler.status().unwrap().success());
    for arguments in [&["objcopy", "--only-keep-debug"][..], &["strip", "-s"]] {
        let mut tool = Command::new(arguments[0]);
        tool.args(&arguments[1..]).arg(&path);
        if arguments[0] == "objcopy" {
            tool.arg(&debug);
        }
        assert!(tool.status().unwrap().success());
    }
    (path, fs::read(debug).unwrap())
}

impl StrippedProgram {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, debug) = compiled(folder.path(), "stripped");
        let notes = Command::new("readelf").arg("-n").arg(&path).output().unwrap();
        let notes = String::from_utf8(notes.stdout).unwrap();
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
        let child = Command::new(&path).spawn().unwrap();
        Self { folder, debug, id, child }
    }

    /// Debug information of another build of the same program.
    fn of_another_build(&self) -> Vec<u8> {
        compiled(self.folder.path(), "another").1
    }

    /// Starts to record it with this option, which names a server.
    fn recording(&self, server: &str, timeout: &str) -> Recording {
        let pid = self.child.id().to_string();
        let options = ["--pid", &pid, "--freq", "199", "--context", "native", server];
        Recording::by(program().env("DEBUGINFOD_TIMEOUT", timeout), &options)
    }
}

impl Drop for StrippedProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(Path::new(CACHE).join(format!("{}.debug", self.id)));
    }
}

/// A server that sends this answer to every request, or none. Returns the option and a channel of requests.
fn serve(body: Option<Vec<u8>>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let option = format!("--debuginfod=http://{}", listener.local_addr().unwrap());
    let (say, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let _ = say.send(head.first().cloned().unwrap_or_default());
            // The client may have disconnected.
            let _ = answer(&mut stream, body.as_deref());
        }
    });
    (option, asked)
}

fn answer(stream: &mut TcpStream, body: Option<&[u8]>) -> std::io::Result<()> {
    let Some(body) = body else { return std::io::copy(stream, &mut std::io::sink()).map(drop) };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    stream.write_all(body)
}

fn stacks(file: &str) -> String {
    folded(file, "samples", &["--lines"])
}

#[test]
fn a_server_names_a_stripped_program_with_its_lines() {
    if !can_capture() {
        return;
    }
    let program = StrippedProgram::start();
    let (option, asked) = serve(Some(program.debug.clone()));
    let recording = program.recording(&option, ANSWERS);
    recording.wait_until(|file| stacks(file).contains("hidden_spin"));
    let (_folder, file) = recording.end();
    let shown = stacks(&file);
    assert!(shown.contains("main (spin.c:6);hidden_spin (spin.c:4)"), "{shown}");
    assert!(asked.try_iter().any(|line| line == format!("GET /buildid/{}/debuginfo HTTP/1.1", program.id)));

    // The next capture has it from the start, and contacts no server.
    let (option, asked) = serve(None);
    let recording = program.recording(&option, SILENT);
    recording.wait_until(|file| sample_count(file) > 100);
    let (_folder, file) = recording.end();
    let shown = stacks(&file);
    assert!(shown.contains("hidden_spin (spin.c:4)") && !shown.contains("stripped+0x"), "{shown}");
    let ours = |line: &String| line.contains(&program.id);
    assert_eq!(asked.try_iter().filter(ours).count(), 0);
}

#[test]
fn without_the_option_nobody_is_asked() {
    if !can_capture() {
        return;
    }
    let stripped = StrippedProgram::start();
    let (option, asked) = serve(Some(stripped.debug.clone()));
    let url = option.strip_prefix("--debuginfod=").unwrap();
    let pid = stripped.child.id().to_string();
    let recording = Recording::by(
        program().env("DEBUGINFOD_URLS", url),
        &["--pid", &pid, "--freq", "199", "--context", "native"],
    );
    recording.wait_until(|file| sample_count(file) > 300);
    let (_folder, file) = recording.end();
    let shown = stacks(&file);
    assert!(shown.contains("stripped+0x") && !shown.contains("hidden_spin"), "{shown}");
    assert_eq!(asked.try_iter().count(), 0);
}

#[test]
fn what_a_server_cannot_name_has_a_reason() {
    if !can_capture() {
        return;
    }
    let program = StrippedProgram::start();
    let other = program.of_another_build();
    for (body, timeout, reason) in [
        (Some(other), ANSWERS, "debuginfod-other-build"),
        (Some(b"<html>".to_vec()), ANSWERS, "debuginfod-unusable"),
        (None, SILENT, "debuginfod-too-slow"),
    ] {
        let (option, _asked) = serve(body);
        let recording = program.recording(&option, timeout);
        let opened = |file: &str| -> Profile { deepctx_storage::open(Path::new(file)).unwrap().profile };
        recording.wait_until(|file| gap_count(&opened(file), reason) > 0);
        let (_folder, file) = recording.end();
        let shown = stacks(&file);
        assert!(shown.contains("stripped+0x") && !shown.contains("hidden_spin"), "{reason}: {shown}");
        let report = expect_code(0, &["report", "--all", &file]);
        assert!(report.contains(reason), "{report}");
    }
}
