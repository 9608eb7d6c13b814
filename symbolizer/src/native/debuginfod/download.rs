//! Download: one file from one server, with `curl`.
//!
//! Owns: how `curl` is started and what its exit status means. Because: a server's response is handled by an
//! unprivileged process (user `nobody`), and the distribution keeps the machine's TLS, proxies and certificates up to
//! date. Does not: trust the file, or keep it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use deepctx_address_space::elf::BuildId;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use rustix::thread::set_no_new_privs;

use super::servers::ServerUrl;

/// The program.
pub(super) const PROGRAM: &str = "curl";
/// The user and group `nobody`.
const NOBODY: u32 = 65_534;
/// Minimum of a file received within [`Terms::patience`], as for elfutils.
const PROGRESS_BYTES: u64 = 100 << 10;
/// Longest time to reach a server, seconds.
const CONNECT_SECONDS: &str = "10";
/// Time beyond the program's own limit before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// Interval of checks whether it has exited.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Variables for reaching servers, and for trusted certificates.
const PASSED_ON: [&str; 12] = [
    "PATH",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "RES_OPTIONS",
];

/// Bounds of a download.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) bytes_max: u64,
    pub(super) patience: Duration,
    pub(super) longest: Duration,
}

/// Why a file could not be downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoFile {
    /// The server does not have this build.
    NotFound,
    TooSlow,
    TooLarge,
    /// The server cannot be reached, or answers with an error.
    Failed,
    /// The download was cancelled.
    Stopped,
}

/// Downloads a build's file into `file`. `stopped` waits for the given time; true: the download is cancelled.
pub(super) fn download(
    server: &ServerUrl,
    id: &BuildId,
    terms: Terms,
    file: &File,
    stopped: impl Fn(Duration) -> bool,
) -> Result<(), NoFile> {
    let mut running = CurlProcess(start(server, id, terms, file).map_err(|error| {
        tracing::warn!(%error, "{PROGRAM} cannot be started to ask a debuginfod server");
        NoFile::Failed
    })?);
    let deadline = Instant::now() + terms.longest + GRACE;
    let ended = loop {
        match running.0.try_wait() {
            Ok(Some(ended)) => break ended,
            Ok(None) if Instant::now() > deadline => return Err(NoFile::TooSlow),
            Ok(None) => {}
            Err(_) => return Err(NoFile::Failed),
        }
        if stopped(LOOK_EVERY) {
            return Err(NoFile::Stopped);
        }
    };
    let mut answer = String::new();
    if let Some(said) = running.0.stderr.take() {
        // The status has three digits.
        let _ = said.take(64).read_to_string(&mut answer);
    }
    meaning(ended, &answer, file, terms.bytes_max)
}

/// A process that does not outlive its owner.
struct CurlProcess(Child);

impl Drop for CurlProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program. It reads the URL from its input, which others cannot see: it may contain a password.
fn start(server: &ServerUrl, id: &BuildId, terms: Terms, file: &File) -> io::Result<Child> {
    let mut command = Command::new(PROGRAM);
    // `-q` must come first: it disables all configuration files.
    command.args(["-q", "--silent", "--fail", "--globoff", "--location", "--max-redirs", "5"]);
    command.args(["--proto", "=http,https", "--proto-redir"]);
    command.arg(if server.is_encrypted() { "=https" } else { "=http,https" });
    let seconds = |time: Duration| time.as_secs().max(1);
    for (option, value) in [
        ("--connect-timeout", CONNECT_SECONDS.to_owned()),
        ("--speed-time", seconds(terms.patience).to_string()),
        ("--speed-limit", (PROGRESS_BYTES / seconds(terms.patience)).max(1).to_string()),
        ("--max-time", seconds(terms.longest).to_string()),
        ("--max-filesize", terms.bytes_max.to_string()),
        ("--user-agent", concat!("deepctx-bpf/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("--write-out", "%{stderr}%{http_code}".to_owned()),
        ("--config", "-".to_owned()),
    ] {
        command.arg(option).arg(value);
    }
    command.stdin(Stdio::piped()).stdout(file.try_clone()?).stderr(Stdio::piped()).current_dir("/");
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    // A lower limit inherited by the profiler stays: raising it takes a capability.
    let hard = getrlimit(Resource::Fsize).maximum;
    let most = Some(hard.map_or(terms.bytes_max, |hard| hard.min(terms.bytes_max)));
    let give_up = move || {
        set_no_new_privs(true)?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        // For servers that do not state the size of the file.
        setrlimit(Resource::Fsize, Rlimit { current: most, maximum: most })?;
        Ok(())
    };
    // SAFETY: between fork and exec these are system calls alone: they take no lock and allocate nothing.
    let mut child = unsafe { command.pre_exec(give_up) }.spawn()?;
    if let Some(mut settings) = child.stdin.take() {
        // If it has ended already, its status shows why.
        let _ = writeln!(settings, "url = \"{}/buildid/{id}/debuginfo\"", server.secret());
    }
    Ok(child)
}

/// The meaning of the program's exit status (`curl(1)`, exit codes).
fn meaning(ended: ExitStatus, answer: &str, file: &File, bytes_max: u64) -> Result<(), NoFile> {
    let is_full = || file.metadata().is_ok_and(|facts| facts.len() >= bytes_max);
    match (ended.code(), ended.signal()) {
        (Some(0), _) => Ok(()),
        // The server has no such build, or removed it.
        (Some(22), _) if matches!(answer, "404" | "410") => Err(NoFile::NotFound),
        (Some(28), _) => Err(NoFile::TooSlow),
        (Some(63), _) => Err(NoFile::TooLarge),
        (Some(23), _) | (None, Some(libc::SIGXFSZ)) if is_full() => Err(NoFile::TooLarge),
        _ => Err(NoFile::Failed),
    }
}
