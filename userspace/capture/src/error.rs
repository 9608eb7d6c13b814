//! Errors: why a capture could not start.
//!
//! Owns: [`CaptureError`], and what the user can do about each. Because: a caller must handle a missing privilege
//! differently from a mistyped process id. Does not: print.

use std::io;
use std::path::PathBuf;

use deepctx_symbolizer::NoSymbol;

use super::attach::AttachError;
use super::doctor;
use super::kernel_offsets::OffsetsError;
use super::load::{LoadError, log_lines};
use super::perf_event::Clock;
use super::processes::ScanError;
use super::table_error::TableError;
use super::targets::TargetError;

/// Why a capture could not start. The text is one line, except for what the kernel's verifier printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// There is no process with this id.
    #[error("no process {pid}")]
    NoSuchProcess {
        /// The process id.
        pid: u32,
    },
    /// The process is a kernel thread, or a zombie.
    #[error("process {pid} has no user space to profile (a kernel thread, or it has ended)")]
    NoUserSpace {
        /// The process id.
        pid: u32,
    },
    /// The process is not a rank of a distributed job, and started none.
    #[error("process {pid} has no rank: no launcher gave it one in its environment")]
    NoRank {
        /// The process id.
        pid: u32,
    },
    /// No running process matches.
    #[error("no process {criterion}")]
    NoTargets {
        /// The selector: `is named "python"`.
        criterion: String,
        /// Names of running processes that resemble the wanted one.
        alike: Vec<String>,
    },
    /// More than one cgroup is selected; the kernel programs follow only one.
    #[error("cgroup {}: only one cgroup can be captured at a time", path.display())]
    SecondCgroup {
        /// The second one.
        path: PathBuf,
    },
    /// The processes of the machine, or of a cgroup, cannot be listed.
    #[error("{what}: {source}")]
    TargetsUnreadable {
        /// What cannot be read.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A target's memory mappings cannot be read.
    #[error("process {pid}: {}", reason.sentence())]
    ProcessUnreadable {
        /// The process id.
        pid: u32,
        /// Why.
        reason: NoSymbol,
    },
    /// This process lacks privileges that every capture needs.
    #[error("profiling needs privileges that this process lacks: {}", capabilities.join(", "))]
    NotPrivileged {
        /// The missing capabilities: `CAP_BPF`.
        capabilities: Vec<&'static str>,
    },
    /// The kernel refused one operation for lack of a privilege, although the usual ones are present.
    #[error("cannot {operation}: {source}")]
    NotPermitted {
        /// The operation.
        operation: String,
        /// The capability that allows it.
        capability: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The address space limit of this process is below what a capture takes.
    #[error("a capture takes {needed_mib} MiB of address space, and this process may have {most_mib} MiB")]
    TooLittleAddressSpace {
        /// The required minimum.
        needed_mib: u64,
        /// The limit.
        most_mib: u64,
    },
    /// The limit of open files of this process is below what a capture takes.
    #[error("a capture takes {needed} open files, and this process may have {most}")]
    TooFewOpenFiles {
        /// The required minimum.
        needed: u64,
        /// The limit.
        most: u64,
    },
    /// The kernel has no type information (BTF).
    #[error("the kernel offers no type information (/sys/kernel/btf/vmlinux)")]
    NoBtf {
        /// The library's error.
        source: libbpf_rs::Error,
    },
    /// The kernel's type information lacks a structure or field that the programs read.
    #[error("the kernel's type information has no `{field}`")]
    NoKernelField {
        /// The structure or field.
        field: &'static str,
    },
    /// The kernel is older than the programs need, and refused them. What it said of them is the source.
    #[error("this machine runs Linux {release}, and the kernel programs need {}", doctor::needed_kernel())]
    KernelTooOld {
        /// Its release.
        release: String,
        /// The refusal.
        source: Box<LoadError>,
    },
    /// The kernel's verifier refused a program.
    #[error("the kernel refused the programs: {source}{}", log_lines(log))]
    Verifier {
        /// The program.
        program: String,
        /// The last lines that libbpf and the verifier printed.
        log: Vec<String>,
        /// The library's error.
        source: libbpf_rs::Error,
    },
    /// The programs, or one of their maps or links, could not be created for another reason.
    #[error(transparent)]
    Load(LoadError),
    /// No sampling event could be opened.
    #[error("cannot open a sampling event on CPU {cpu} at {frequency_hz} Hz: {source}")]
    Sampling {
        /// The CPU.
        cpu: u32,
        /// The event.
        clock: Clock,
        /// Samples per second and CPU.
        frequency_hz: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A table in the kernel is full, or could not be written.
    #[error(transparent)]
    Table(TableError),
    /// The kernel does not measure the cost of probes, so no budget can be kept.
    #[error("--probe-budget: the kernel does not measure what probes cost: {source}")]
    ProbeCost {
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// Its purpose.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl CaptureError {
    /// What the user can do about it, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotPrivileged { .. } => Some(doctor::privilege_hint()),
            Self::NotPermitted { capability, .. } => {
                Some(format!("it takes {capability}: `deepctx-bpf doctor` shows what this machine lacks"))
            }
            Self::TooLittleAddressSpace { .. } => Some("raise `ulimit -v`".into()),
            Self::TooFewOpenFiles { .. } => Some(doctor::OPEN_FILES_HINT.into()),
            Self::NoBtf { .. } | Self::NoKernelField { .. } => Some(doctor::BTF_HINT.into()),
            Self::Load(LoadError::Kernel { source, .. }) if doctor::is_out_of_files(source) => {
                Some(doctor::OPEN_FILES_HINT.into())
            }
            Self::KernelTooOld { .. } | Self::Verifier { .. } | Self::Load(_) => {
                Some(doctor::DOCTOR_HINT.into())
            }
            Self::Sampling { clock, frequency_hz, .. } => {
                Some(doctor::perf_event_hint(*clock, *frequency_hz))
            }
            Self::ProbeCost { .. } => Some("it takes CAP_SYS_ADMIN; run as root, or leave it out".into()),
            Self::NoSuchProcess { .. } => {
                Some("it has ended, or has another id here: `ps -e` lists those that run".into())
            }
            Self::NoUserSpace { .. } => Some("`ps -e` lists processes; names in brackets have none".into()),
            Self::NoRank { .. } => Some(
                "name a process that torchrun, mpirun or srun started, or the launcher; ranks that a program gives \
                 its own children are not seen: dump their parent"
                    .into(),
            ),
            Self::NoTargets { alike, .. } => {
                let names = "names are those of /proc/PID/comm, at most 15 characters; ids of containers stand in \
                             /proc/PID/cgroup";
                Some(match alike.is_empty() {
                    true => names.into(),
                    false => format!("similar names: {}; {names}", alike.join(", ")),
                })
            }
            Self::SecondCgroup { .. } => {
                Some("record each by itself, or name the cgroup that both are below".into())
            }
            Self::TargetsUnreadable { .. } => {
                Some("a cgroup is a folder below /sys/fs/cgroup (version 2): `cat /proc/PID/cgroup` shows it".into())
            }
            Self::ProcessUnreadable { reason, .. } => reason.reason().helps.map(str::to_owned),
            Self::Table(_) => None,
            Self::Io { source, .. } => doctor::is_out_of_files(source).then(|| doctor::OPEN_FILES_HINT.into()),
        }
    }

    /// The programs could not be loaded into the running kernel.
    pub(super) fn load(error: LoadError) -> Self {
        match doctor::kernel_too_old() {
            Some(release) => {
                tracing::debug!(%error, "the kernel refused the programs");
                Self::KernelTooOld { release, source: Box::new(error) }
            }
            None => error.into(),
        }
    }

    /// No sampling event could be opened or attached.
    pub(super) fn sampling(error: AttachError, clock: Clock) -> Self {
        match error {
            AttachError::PerfEvent { cpu, frequency, source }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Self::NotPermitted {
                    operation: format!("open a sampling event on CPU {cpu} at {frequency} Hz"),
                    capability: doctor::sampling_capability(),
                    source,
                }
            }
            AttachError::PerfEvent { cpu, frequency, source } => {
                Self::Sampling { cpu, clock, frequency_hz: frequency, source }
            }
            AttachError::Cpus(source) => Self::Io {
                what: "cannot read the list of online CPUs (/sys/devices/system/cpu/online)",
                source,
            },
            AttachError::Load(error) => error.into(),
        }
    }
}

impl From<TargetError> for CaptureError {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::NoSuchProcess(pid) => Self::NoSuchProcess { pid },
            TargetError::NoUserSpace(pid) => Self::NoUserSpace { pid },
            TargetError::NoMatch { criterion, alike } => Self::NoTargets { criterion, alike },
            TargetError::Cgroup { path, source } => {
                Self::TargetsUnreadable { what: format!("cgroup {}", path.display()), source }
            }
            TargetError::SecondCgroup(path) => Self::SecondCgroup { path },
            TargetError::Proc(source) => {
                Self::TargetsUnreadable { what: "cannot list processes".into(), source }
            }
        }
    }
}

impl From<OffsetsError> for CaptureError {
    fn from(error: OffsetsError) -> Self {
        match error {
            OffsetsError::NoBtf(source) => Self::NoBtf { source },
            OffsetsError::NoField(field) => Self::NoKernelField { field },
        }
    }
}

impl From<LoadError> for CaptureError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Kernel { what, source, log } => match refused_program(&log) {
                Some(program) => Self::Verifier { program, log, source },
                None => Self::Load(LoadError::Kernel { what, source, log }),
            },
            LoadError::Object(_) => Self::Load(error),
        }
    }
}

impl From<TableError> for CaptureError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Load(error) => error.into(),
            error => Self::Table(error),
        }
    }
}

impl From<ScanError> for CaptureError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Process { pid, reason } => Self::ProcessUnreadable { pid, reason },
            ScanError::Tables(error) => error.into(),
        }
    }
}

/// The program that libbpf could not load: `libbpf: prog 'sample': BPF program load failed: Permission denied`.
fn refused_program(log: &[String]) -> Option<String> {
    let line = log.iter().find(|line| line.contains("BPF program load failed"))?;
    let (_, rest) = line.split_once("prog '")?;
    rest.split_once('\'').map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn refused(log: &[&str]) -> LoadError {
        let source = libbpf_rs::Error::from(io::Error::from_raw_os_error(libc::EACCES));
        let log = log.iter().map(ToString::to_string).collect();
        LoadError::Kernel { what: "the programs".into(), source, log }
    }

    #[test]
    fn a_refused_program_is_named_from_libbpf_s_log() {
        let line = "libbpf: prog 'sample': BPF program load failed: Permission denied";
        let error = CaptureError::from(refused(&["libbpf: elf: nothing", line, "R1 invalid mem access"]));
        assert!(matches!(&error, CaptureError::Verifier { program, .. } if program == "sample"), "{error:?}");
        assert!(error.to_string().contains("R1 invalid mem access") && error.source().is_some(), "{error}");
    }

    #[test]
    fn an_old_kernel_is_one_sentence_with_both_versions() {
        let log = ["libbpf: prog 'sample': BPF program load failed", "R1 invalid mem access"];
        let source = Box::new(refused(&log));
        let error = CaptureError::KernelTooOld { release: "5.10.0-30-amd64".into(), source };
        let said =
            "this machine runs Linux 5.10.0-30-amd64, and the kernel programs need Linux 5.15 or newer";
        assert_eq!(error.to_string(), said);
        assert!(
            error.hint().is_some() && error.source().unwrap().to_string().contains("R1 invalid"),
            "{error:?}"
        );
    }

    #[test]
    fn names_like_a_missing_one_begin_the_hint() {
        let hint = |alike: &[&str]| {
            let alike = alike.iter().map(ToString::to_string).collect();
            CaptureError::NoTargets { criterion: "is named \"pyton\"".into(), alike }.hint().unwrap()
        };
        assert!(hint(&["python3", "pytest"]).starts_with("similar names: python3, pytest; names are those"));
        assert!(hint(&[]).starts_with("names are those of /proc/PID/comm"));
    }

    #[test]
    fn a_kernel_without_types_is_one_sentence() {
        let error =
            CaptureError::from(OffsetsError::NoBtf(io::Error::from_raw_os_error(libc::ENOENT).into()));
        assert_eq!(error.to_string(), "the kernel offers no type information (/sys/kernel/btf/vmlinux)");
        assert_eq!(error.hint().as_deref(), Some(doctor::BTF_HINT));
    }

    #[test]
    fn other_refusals_of_the_kernel_are_no_verifier_errors() {
        let error = CaptureError::from(refused(&["libbpf: map 'EVENTS': failed to create"]));
        assert!(matches!(error, CaptureError::Load(_)), "{error:?}");
    }

    #[test]
    fn sampling_event_without_permission_has_its_own_error() {
        let event = |errno| AttachError::PerfEvent {
            cpu: 3,
            frequency: 99,
            source: io::Error::from_raw_os_error(errno),
        };
        let error = CaptureError::sampling(event(libc::EPERM), Clock::CpuClock);
        assert!(matches!(error, CaptureError::NotPermitted { .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot open a sampling event on CPU 3 at 99 Hz: "), "{error}");
        let error = CaptureError::sampling(event(libc::EINVAL), Clock::CpuClock);
        assert!(matches!(error, CaptureError::Sampling { cpu: 3, .. }), "{error:?}");
        assert!(error.to_string().starts_with("cannot open a sampling event on CPU 3 at 99 Hz: "), "{error}");
    }
}
