//! Confinement: the restrictions on a command that opens a profile, before it reads the first byte of it.
//!
//! Owns: the files that each such command may use, and dropping everything else: other files (Landlock), programs,
//! sockets and other processes (seccomp), capabilities, and half of the machine's memory. Because: the author of a
//! profile controls every byte that its reader parses, and people open profiles with `sudo`. Does not: keep a command
//! from working where the kernel offers less; the log says what is missing.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use deepctx_address_space::worker::refuse_programs_and_sockets;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, RestrictionStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::system::sysinfo;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use super::options::{Command, OutputArgs};
use super::out_of_memory;

/// Requested Landlock ABI (Linux 6.12: signals and abstract sockets); older kernels apply what they support.
const LANDLOCK: ABI = ABI::V6;

/// Capabilities that root keeps: recordings made under `sudo` belong to its caller, as do output files. Landlock
/// restricts these capabilities too.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER);

/// The files that a command may access.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Confinement {
    /// Readable files and folders, with everything below.
    read: Vec<PathBuf>,
    /// Folders to write in, and devices to write to.
    written: Vec<PathBuf>,
    /// Whether it uses the terminal.
    terminal: bool,
}

/// A restriction that the kernel did not apply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MissingLimit {
    /// File access is not restricted.
    Landlock(String),
    /// The kernel supports only part of Landlock.
    PartOfLandlock,
    /// System calls are not restricted.
    Seccomp(String),
    /// Capabilities were kept.
    Capabilities(String),
    /// Memory is not limited.
    Memory(String),
}

impl fmt::Display for MissingLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingLimit::Landlock(why) => write!(f, "access to files is not confined (Landlock: {why})"),
            MissingLimit::PartOfLandlock => {
                f.write_str("this kernel supports only part of Landlock (full support: Linux 6.12)")
            }
            MissingLimit::Seccomp(why) => write!(f, "system calls are not confined (seccomp: {why})"),
            MissingLimit::Capabilities(why) => write!(f, "capabilities are kept: {why}"),
            MissingLimit::Memory(why) => write!(f, "memory is not limited: {why}"),
        }
    }
}

impl Confinement {
    /// For a command that opens files others may have made; `None` for commands that capture or only communicate.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        let files = Self::of_files;
        Some(match command {
            // Profiles name source files, which the view shows: it may read whatever its user may read.
            Command::View(view) => {
                Self { read: vec![view.profile.clone(), "/".into()], written: Vec::new(), terminal: true }
            }
            Command::Report(report) => files(&[&report.profile], &report.output),
            Command::Timeline(timeline) => {
                let traces: Vec<_> = timeline.traces.iter().map(PathBuf::as_path).collect();
                files(&traces, &timeline.output)
            }
            Command::Export(export) => files(&[&export.profile], &export.output),
            Command::Diff(diff) => files(&[&diff.before, &diff.after], &diff.output),
            // It may first have to start a program of rules, and confines itself afterwards.
            Command::Analyze(_)
            | Command::Live(_)
            | Command::Record(_)
            // It reads profiles in a separate process, which confines itself.
            | Command::Experiment(_)
            | Command::ReplayRaw(_)
            | Command::Dump(_)
            | Command::Control(_)
            | Command::Doctor(_)
            | Command::Probes(_)
            | Command::Demo(_)
            | Command::Completions(_)
            | Command::ManualPages(_) => return None,
        })
    }

    /// For a command that reads these files and has one output.
    pub(crate) fn of_files(read: &[&Path], output: &OutputArgs) -> Self {
        Self {
            read: read.iter().map(|path| path.to_path_buf()).collect(),
            written: written(&output.output),
            terminal: false,
        }
    }

    /// [`Confinement::enter`], which logs missing restrictions.
    pub(crate) fn enter_and_log(&self) {
        for missing in self.enter() {
            tracing::info!("{missing}");
        }
    }

    /// Permanently confines this thread and the threads it will start; the memory limit applies to the process. Returns
    /// the restrictions that the kernel did not apply.
    pub(crate) fn enter(&self) -> Vec<MissingLimit> {
        let mut missing = Vec::new();
        if let Err(error) = set_no_new_privs(true) {
            missing.push(MissingLimit::Seccomp(error.to_string()));
            return missing;
        }
        match self.restrict_files().map(|status| status.ruleset) {
            Ok(RulesetStatus::FullyEnforced) => {}
            Ok(RulesetStatus::PartiallyEnforced) => missing.push(MissingLimit::PartOfLandlock),
            Ok(RulesetStatus::NotEnforced) => {
                missing.push(MissingLimit::Landlock("not supported or disabled in this kernel".to_owned()));
            }
            Err(error) => missing.push(MissingLimit::Landlock(error.to_string())),
        }
        if let Err(error) = drop_capabilities() {
            missing.push(MissingLimit::Capabilities(error.to_string()));
        }
        if let Err(error) = limit_memory() {
            missing.push(MissingLimit::Memory(error.to_string()));
        }
        out_of_memory::ends_in_a_sentence();
        if let Err(error) = refuse_programs_and_sockets() {
            missing.push(MissingLimit::Seccomp(error.to_string()));
        }
        missing
    }

    fn restrict_files(&self) -> Result<RestrictionStatus, RulesetError> {
        let reading: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
        // A new file gets its name by a link or rename once it is complete.
        let writing = reading
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::RemoveFile
            | AccessFs::IoctlDev;
        let terminal: &[&str] = if self.terminal { &["/dev/tty"] } else { &[] };
        Ruleset::default()
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .handle_access(AccessNet::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?
            .create()?
            .add_rules(path_beneath_rules(&self.read, reading))?
            .add_rules(path_beneath_rules(&self.written, writing))?
            .add_rules(path_beneath_rules(terminal, writing))?
            .restrict_self()
    }
}

/// What must be writable for an output: the device itself, a file's folder, nothing for standard output.
fn written(output: &Path) -> Vec<PathBuf> {
    if output == Path::new("-") {
        return Vec::new();
    }
    if fs::metadata(output).is_ok_and(|facts| !facts.is_file() && !facts.is_dir()) {
        return vec![output.to_owned()];
    }
    let folder = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    vec![folder.unwrap_or(Path::new(".")).to_owned()]
}

/// Minimum memory limit of a reader: a profile with a million contexts takes a fifth of it.
const MEMORY_MIN: u64 = 1 << 30;

/// Limits this process to half of the machine's memory: a malicious profile then ends only its reader, not other
/// programs. The limit covers private memory; mapped files do not count.
fn limit_memory() -> rustix::io::Result<()> {
    let machine = sysinfo();
    let all = machine.totalram.saturating_mul(u64::from(machine.mem_unit));
    let most = (all / 2).max(MEMORY_MIN);
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    if current.is_some_and(|current| current <= most) {
        return Ok(());
    }
    setrlimit(Resource::Data, Rlimit { current: Some(most), maximum })
}

fn drop_capabilities() -> rustix::io::Result<()> {
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let left = CapabilitySets {
        effective: effective & KEPT,
        permitted: permitted & KEPT,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, left)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{self, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::process::Command as Program;

    use clap::Parser as _;

    use super::*;
    use crate::options::Cli;

    fn of(line: &str) -> Option<Confinement> {
        Confinement::of(&Cli::try_parse_from(line.split(' ')).unwrap().command.unwrap())
    }

    #[test]
    fn each_command_has_its_files_and_no_other() {
        let check = |line: &str, read: &[&str], written: &[&str]| {
            let expected = Confinement {
                read: read.iter().map(PathBuf::from).collect(),
                written: written.iter().map(PathBuf::from).collect(),
                terminal: line.contains(" view "),
            };
            assert_eq!(of(line), Some(expected), "{line}");
        };
        check("deepctx-bpf report a.dctx", &["a.dctx"], &[]);
        check("deepctx-bpf report a.dctx -o out.txt", &["a.dctx"], &["."]);
        check("deepctx-bpf export a.dctx --format folded -o x/y.folded", &["a.dctx"], &["x"]);
        check("deepctx-bpf export a.dctx --format folded -o /dev/null", &["a.dctx"], &["/dev/null"]);
        check("deepctx-bpf diff a.dctx b.dctx", &["a.dctx", "b.dctx"], &[]);
        check("deepctx-bpf timeline a.json b.json", &["a.json", "b.json"], &[]);
        check("deepctx-bpf view a.dctx", &["a.dctx", "/"], &[]);
        assert_eq!(of("deepctx-bpf doctor"), None);
        assert_eq!(of("deepctx-bpf analyze a.dctx"), None);
    }

    /// Allocates more bytes than any test machine has, without touching them.
    fn takes_all_memory() -> bool {
        let all = sysinfo();
        let bytes = all.totalram.saturating_mul(u64::from(all.mem_unit)) / 4 * 3;
        Vec::<u8>::new().try_reserve_exact(usize::try_from(bytes).unwrap()).is_ok()
    }

    #[test]
    fn a_reader_cannot_take_all_memory() {
        assert!(takes_all_memory(), "the control");
        limit_memory().unwrap();
        assert!(!takes_all_memory());
        assert!(Vec::<u8>::new().try_reserve_exact(64 << 20).is_ok());
    }

    /// What an attacker who controls the reader of `read` would try.
    fn attempts(read: &Path, other: &Path, address: std::net::SocketAddr) -> Vec<(&'static str, bool)> {
        let tried = |done: io::Result<()>| done.is_ok();
        let folder = other.parent().unwrap();
        vec![
            ("read what it was given", tried(File::open(read).map(drop))),
            ("read another file", tried(File::open(other).map(drop))),
            ("list a folder", tried(fs::read_dir(folder).map(drop))),
            ("write a file", tried(File::create(folder.join("new")).map(drop))),
            ("remove a file", tried(fs::remove_file(folder.join("victim")))),
            ("connect", tried(TcpStream::connect(address).map(drop))),
            ("start a program", tried(Program::new("/bin/true").status().map(drop))),
        ]
    }

    #[test]
    fn a_reader_that_was_taken_over_can_do_nothing_else() {
        let (given, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (read, other) = (given.path().join("a.dctx"), others.path().join("other"));
        for file in [&read, &other, &others.path().join("victim")] {
            fs::write(file, "text").unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Both on separate threads, since the confinement is permanent.
        let without = {
            let (read, other) = (read.clone(), other.clone());
            std::thread::spawn(move || attempts(&read, &other, address)).join().unwrap()
        };
        assert!(without.iter().all(|(_, done)| *done), "the control: {without:?}");
        fs::write(others.path().join("victim"), "text").unwrap();
        let out = given.path().join("out");
        let (within, missing, wrote) = std::thread::spawn(move || {
            let confinement =
                Confinement { read: vec![read.clone()], written: written(&out), terminal: false };
            let missing = confinement.enter();
            let wrote = File::create(&out).and_then(|mut file| file.write_all(b"report")).is_ok();
            (attempts(&read, &other, address), missing, wrote)
        })
        .join()
        .unwrap();
        assert!(wrote && within[0].1, "{within:?}");
        let succeeded: Vec<_> = within[1..].iter().filter(|(_, done)| *done).map(|(what, _)| *what).collect();
        if !missing.iter().any(|one| matches!(one, MissingLimit::Landlock(_))) {
            assert_eq!(succeeded, Vec::<&str>::new());
        }
        assert!(
            !missing
                .iter()
                .any(|one| matches!(one, MissingLimit::Seccomp(_) | MissingLimit::Capabilities(_)))
        );
        assert!(!succeeded.contains(&"start a program") && !succeeded.contains(&"connect"));
        assert!(others.path().join("victim").exists());
    }
}
