//! A program whose names, lines and inlined calls are known, compiled and started; and the output of `addr2line` for
//! it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use deepctx_symbolizer::maps::{Backing, Mapping};
use deepctx_symbolizer::native::SymbolResult;
use deepctx_symbolizer::{Avma, FileOffset};
use tempfile::TempDir;

pub(crate) const SOURCE: &str = r#"#include <cstdio>
namespace work {
volatile long sink;
__attribute__((noinline)) void spin(long n) {
    for (long i = 0; i < n; i++)
        sink = sink + i;
}
template <int N> struct Deep {
    __attribute__((always_inline)) static inline void run(long n) {
        sink = sink + N;
        Deep<N - 1>::run(n);
        sink = sink - N;
    }
};
template <> struct Deep<0> {
    __attribute__((always_inline)) static inline void run(long n) {
        spin(n);
        sink = sink + 7;
    }
};
__attribute__((noinline)) void outer(long n) {
    Deep<3>::run(n);
    sink = sink + 2;
}
}
int main() {
    work::outer(10);
    std::printf("%p\n", (void *)&work::outer);
    std::fflush(stdout);
    return std::getchar();
}
"#;

/// True when a test must be left out for want of something; a build server must have everything.
pub(crate) fn left_out(missing: &str) -> bool {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing} is missing");
    eprintln!("left out: {missing} is missing");
    true
}

pub(crate) fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap();
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A compiled program in a folder of its own.
pub(crate) struct Program {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
}

impl Program {
    pub(crate) fn compile(options: &[&str]) -> Option<Self> {
        if !has("g++") || !has("addr2line") {
            left_out("g++ or binutils");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (source, path) = (folder.path().join("work.cc"), folder.path().join("work"));
        std::fs::write(&source, SOURCE).unwrap();
        run("g++", &[options, &["-O2", "-o", path.to_str().unwrap(), source.to_str().unwrap()]].concat());
        Some(Self { folder, path })
    }

    pub(crate) fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// First address and size of a function, as the file states them.
    pub(crate) fn function(&self, name: &str) -> (u64, u64) {
        let table = run("nm", &["-CS", self.text()]);
        let line = table.lines().find(|line| line.ends_with(name)).unwrap();
        let mut fields = line.split(' ').map(|field| u64::from_str_radix(field, 16).unwrap_or(0));
        (fields.next().unwrap(), fields.next().unwrap())
    }

    pub(crate) fn start(&self) -> RunningProgram {
        RunningProgram::start(&mut Command::new(&self.path))
    }
}

/// A process that waits for its standard input.
pub(crate) struct RunningProgram {
    pub(crate) child: Child,
    /// What it says is the address of `work::outer`.
    pub(crate) outer: Avma,
}

impl RunningProgram {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let outer = Avma(u64::from_str_radix(line.trim().trim_start_matches("0x"), 16).unwrap());
        Self { child, outer }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Frames as text, the innermost first, as `addr2line -i` has them.
pub(crate) fn shown(named: &SymbolResult) -> Vec<String> {
    let frames = named.as_ref().unwrap();
    assert!(!frames[0].inlined && frames[1..].iter().all(|frame| frame.inlined));
    let line = |frame: &deepctx_symbolizer::native::Frame| {
        let file = frame.file.as_deref().map_or("??", |file| file.rsplit('/').next().unwrap());
        format!("{} {file}:{}", bare(&frame.name), frame.line)
    };
    frames.iter().rev().map(line).collect()
}

/// A name without its parameters.
pub(crate) fn bare(name: &str) -> &str {
    name.split('(').next().unwrap()
}

/// What `addr2line` says of addresses of a file.
pub(crate) fn oracle(path: &str, addresses: &[u64]) -> Vec<Vec<String>> {
    let texts: Vec<String> = addresses.iter().map(|a| format!("{a:#x}")).collect();
    let arguments: Vec<&str> =
        ["-a", "-f", "-i", "-C", "-e", path].into_iter().chain(texts.iter().map(|t| &**t)).collect();
    let mut answers: Vec<Vec<String>> = Vec::new();
    let output = run("addr2line", &arguments);
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let place =
            lines.next().unwrap().split(" (discriminator").next().unwrap().rsplit('/').next().unwrap();
        answers.last_mut().unwrap().push(format!(
            "{} {}",
            bare(line),
            place.replace('?', "0").replace("00:0", "??:0")
        ));
    }
    answers
}

/// Reading `/proc/PID/map_files` needs root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root() || !left_out("root")
}

/// A mapping of a file that is not really mapped.
pub(crate) fn pretended(path: &Path) -> Mapping {
    Mapping {
        begin: Avma(0x1000),
        end: Avma(0x2000),
        offset: FileOffset(0),
        device: Default::default(),
        inode: 1,
        readable: true,
        writable: false,
        executable: true,
        backing: Backing::File,
        path: path.as_os_str().into(),
    }
}
