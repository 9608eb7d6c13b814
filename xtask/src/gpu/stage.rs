//! The setup of checks: programs, their environment, and a folder for their output.
//!
//! Owns: recording a program from its start, and commands to a running one. Because: checks on a real and on the
//! simulated device differ only in environment. Does not: compare.

use super::LONGEST;
use super::python::Python;
use super::reported::ReportedProfile;
use crate::sh;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The program and its imports, embedded in this one: another machine then needs only this and the product.
const SOURCES: [(&str, &str); 3] = [
    ("gpu_check.py", include_str!("../../../tests/workloads/gpu_check.py")),
    ("gpu_check_triton.py", include_str!("../../../tests/workloads/gpu_check_triton.py")),
    ("gpu_train.py", include_str!("../../../tests/workloads/gpu_train.py")),
];
/// Device code with a line table, for the simulated device.
const CUBIN: &[u8] = include_bytes!("../../../symbolizer/tests/fixtures/cubin/lines13.cubin");

/// A fault for the simulated device: the program, not CUPTI, reports times that are too long.
pub(super) const STRETCHED: &str = "stretched";

/// Environment of all checks.
pub(super) struct Stage {
    /// The program under test.
    product: PathBuf,
    /// The library for the driver to load.
    collector: PathBuf,
    /// An interpreter; with PyTorch unless `no_torch` is set.
    python: PathBuf,
    /// Why PyTorch is not used; `None` when it is.
    pub(super) no_torch: Option<String>,
    folder: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    /// Path of CUPTI, for programs without PyTorch, which bundles it.
    cupti: Option<PathBuf>,
    pub(super) simulated: bool,
}

/// The results of a recorded program, by its own count and by the profile.
pub(super) struct RecordedRun {
    /// Answers to the commands, in order.
    pub(super) account: Vec<Value>,
    pub(super) reported: ReportedProfile,
    profile: PathBuf,
}

/// A program that waits for commands.
pub(super) struct RunningProgram {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    attended: bool,
}

/// Our program, attached to a running one.
pub(super) struct AttachedProfiler {
    child: Child,
    profile: PathBuf,
}

impl Stage {
    /// On this machine's device.
    pub(super) fn real(product: &Path, python: &Python, folder: &Path) -> Result<Self> {
        let mut stage = Self::new(product, &python.path, folder, Vec::new())?;
        stage.no_torch.clone_from(&python.no_torch);
        stage.cupti.clone_from(&python.cupti);
        Ok(stage)
    }

    /// On the simulated device with this fault: [`STRETCHED`], or one of CUPTI.
    pub(super) fn simulated(product: &Path, libraries: &Path, wrong: &str, folder: &Path) -> Result<Self> {
        let cubin = folder.join("lines.cubin");
        std::fs::create_dir_all(folder)?;
        std::fs::write(&cubin, CUBIN)?;
        let (misbehaves, stretch) = if wrong == STRETCHED { ("", "1.02") } else { (wrong, "1") };
        let variables = vec![
            ("LD_LIBRARY_PATH", libraries.into()),
            ("DEEPCTX_SIM_CUPTI", misbehaves.into()),
            ("GPU_CHECK_CUBIN", cubin.into()),
            ("GPU_CHECK_STRETCH", stretch.into()),
        ];
        let mut stage = Self::new(product, Path::new("python3"), folder, variables)?;
        stage.no_torch = Some("the simulated device runs no PyTorch".to_owned());
        stage.simulated = true;
        Ok(stage)
    }

    fn new(
        product: &Path,
        python: &Path,
        folder: &Path,
        variables: Vec<(&'static str, OsString)>,
    ) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for (name, text) in SOURCES {
            std::fs::write(folder.join(name), text)?;
        }
        let product = product.canonicalize().with_context(|| format!("no program {}", product.display()))?;
        let collector = product.with_file_name("libdeepctx_collector.so");
        if !collector.is_file() {
            bail!("no collector: expected {}", collector.display());
        }
        let (python, folder) = (python.to_owned(), folder.canonicalize()?);
        Ok(Self {
            product,
            collector,
            python,
            no_torch: None,
            folder,
            variables,
            cupti: None,
            simulated: false,
        })
    }

    /// Environment of programs; `bare`: those without PyTorch.
    fn surroundings(&self, bare: bool) -> Vec<(&'static str, OsString)> {
        let mut variables = self.variables.clone();
        if let Some(cupti) = self.cupti.as_ref().filter(|_| bare) {
            let mut folders = std::env::var_os("LD_LIBRARY_PATH").filter(|folders| !folders.is_empty());
            if let Some(folders) = &mut folders {
                folders.push(":");
            }
            let mut folders = folders.unwrap_or_default();
            folders.push(cupti);
            variables.push(("LD_LIBRARY_PATH", folders));
        }
        variables
    }

    /// A file that may be next to our program.
    pub(super) fn beside_product(&self, name: &str) -> PathBuf {
        self.product.with_file_name(name)
    }

    /// A file in this stage's folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn words(&self, bare: bool) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.python.clone().into(), self.file("gpu_check.py").into()];
        words.extend(bare.then(|| "--bare".into()));
        words
    }

    /// A command of our program.
    pub(super) fn product(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.product);
        command.args(words).envs(self.variables.iter().cloned()).stdin(Stdio::null());
        command
    }

    /// Records a whole program run: `words` are our options, `commands` are for the program. `bare`: without PyTorch.
    pub(super) fn record(
        &self,
        name: &str,
        words: &[&str],
        bare: bool,
        commands: &[&str],
    ) -> Result<RecordedRun> {
        self.record_program(name, words, &self.words(bare), bare, commands)
    }

    /// The same for any program that writes an account.
    pub(super) fn record_program(
        &self,
        name: &str,
        words: &[&str],
        program: &[OsString],
        bare: bool,
        commands: &[&str],
    ) -> Result<RecordedRun> {
        let (profile, account) = (self.file(&format!("{name}.dctx")), self.file(&format!("{name}.json")));
        let _ = std::fs::remove_file(&account);
        let mut command = self.product(&["record", "--force", "-o"]);
        command.envs(self.surroundings(bare));
        command.arg(&profile).args(words).arg("--").args(program);
        command.arg("--account").arg(&account).args(commands);
        sh::finished(command, &format!("the recording {name}"), LONGEST)?;
        let text = std::fs::read_to_string(&account).context("the program left no account")?;
        let account = serde_json::from_str::<Vec<Value>>(&text).context("the account is no list")?;
        Ok(RecordedRun { account, reported: self.reported(&profile)?, profile })
    }

    /// Reads a stored profile.
    fn reported(&self, profile: &Path) -> Result<ReportedProfile> {
        let export = self.export(profile, &["--format", "json", "--lines"])?;
        let manifest = std::fs::read_to_string(profile.join("manifest.json"))?;
        ReportedProfile::read(&export, &manifest)
    }

    fn export(&self, profile: &Path, words: &[&str]) -> Result<String> {
        let mut command = self.product(&["export"]);
        command.arg(profile).args(words);
        sh::finished(command, "an export", LONGEST)
    }

    /// The individual activities of a recording, as a trace.
    pub(super) fn trace(&self, recorded: &RecordedRun) -> Result<String> {
        self.export(&recorded.profile, &["--format", "chrome"])
    }

    /// Starts a program that waits for commands; `injected`: the driver loads the collector.
    pub(super) fn start(&self, bare: bool, injected: bool) -> Result<RunningProgram> {
        let words = self.words(bare);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(self.surroundings(bare));
        if injected {
            command.env("CUDA_INJECTION64_PATH", &self.collector);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.python.display()))?;
        let input = child.stdin.take().context("a pipe was asked for")?;
        let output = child.stdout.take().context("a pipe was asked for")?;
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    break;
                }
            }
        });
        let mut running = RunningProgram { child, input, lines, attended: false };
        if running.answer()?["ready"].as_u64().is_none() {
            bail!("the program did not say that it is ready");
        }
        Ok(running)
    }

    /// Attaches our program to a running one, and waits until it captures.
    pub(super) fn attach(
        &self,
        name: &str,
        running: &mut RunningProgram,
        words: &[&str],
    ) -> Result<AttachedProfiler> {
        let profile = self.file(&format!("{name}.dctx"));
        let pid = running.child.id().to_string();
        let mut command = self.product(&["record", "--force", "--pid", &pid, "-o"]);
        command.arg(&profile).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot start deepctx-bpf")?;
        let attached = AttachedProfiler { child, profile };
        running.tell("attended")?;
        running.attended = true;
        Ok(attached)
    }

    /// Ends a capture and reads its profile.
    pub(super) fn detach(&self, mut attached: AttachedProfiler) -> Result<ReportedProfile> {
        let pid = attached.child.id().to_string();
        if !Command::new("kill").args(["-INT", &pid]).status()?.success() {
            bail!("deepctx-bpf has ended early");
        }
        let end = Instant::now() + LONGEST;
        while attached.child.try_wait()?.is_none() {
            if Instant::now() > end {
                bail!("deepctx-bpf does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.reported(&attached.profile)
    }
}

impl RunningProgram {
    /// Sends a command to the program.
    pub(super) fn tell(&mut self, command: &str) -> Result<Value> {
        writeln!(self.input, "{command}")
            .with_context(|| format!("the program has ended before `{command}`"))?;
        self.answer().with_context(|| format!("no answer to `{command}`"))
    }

    fn answer(&mut self) -> Result<Value> {
        let line = self.lines.recv_timeout(LONGEST)?;
        serde_json::from_str(&line).with_context(|| format!("no JSON: {line}"))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for AttachedProfiler {
    fn drop(&mut self) {
        // As above.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
