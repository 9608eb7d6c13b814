//! Load: turns the compiled kernel programs into loaded programs and maps.
//!
//! Owns: the object, its configuration, its links. Because: dropping this value must release all of the profiler's
//! kernel resources. Does not: read events (`rings`), decide what to sample (`targets`) or fill tables (`tables`).

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, IntoRawFd as _, OwnedFd};
use std::sync::Mutex;

use deepctx_common::Plain as _;
use deepctx_common::config::{CONFIG_SECTION, Config, map};
use deepctx_common::memory::MemoryUse;
use deepctx_common::thread::{THREAD_FIELDS_SECTION, THREADS_PROGRAM, ThreadFields};
use libbpf_rs::{
    Link, MapCore as _, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramAttachType,
    ProgramMut, set_print,
};

use super::arch;
use super::links::AttachMethod;

/// Why the programs could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object cannot be used.
    #[error("the compiled kernel programs cannot be used: {0}")]
    Object(&'static str),
    /// The kernel refused.
    #[error("the kernel refused {what}: {source}{}", log_lines(log))]
    Kernel {
        /// Program or map.
        what: String,
        /// The system's error.
        source: libbpf_rs::Error,
        /// Last lines printed by libbpf and the verifier.
        log: Vec<String>,
    },
}

/// The lines of a log, each on its own line with a prefix.
pub(super) fn log_lines(log: &[String]) -> String {
    log.iter().map(|line| format!("\n  | {line}")).collect()
}

/// Most lines of libbpf's output that are kept for an error.
const LOG_LINES_MAX: usize = 40;

/// The programs on `sched_switch` and on `sched_waking`.
const OFF_CPU: [&str; 2] = ["off_cpu", "waking"];
/// The programs of probes.
const PROBES: [&str; 3] = ["call", "call_return", "message"];

/// The programs of probes, over the maps of the others, not loaded yet: they contain the walker again, which takes the
/// kernel as long to verify as all the rest, and samples need not wait for that.
pub(crate) struct ProbeObject {
    open: OpenObject,
}

/// Sizes of the maps, as the enabled programs need them; maps are allocated when they are created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSizes {
    /// Bytes of the ring buffer, a power of two of pages.
    pub ring_bytes: u32,
    /// Threads are followed off their CPUs.
    pub off_cpu: bool,
    /// Functions are probed.
    pub probes: bool,
}

/// Maps that only programs on `sched_switch` and on `sched_waking` need.
const MAPS_OF_OFF_CPU: [&str; 1] = [map::BLOCKED];
/// Maps that only programs of probes need, with 8 MiB in all.
const MAPS_OF_PROBES: [&str; 5] =
    [map::SITES, map::SITE_COUNTS, map::IN_FLIGHT, map::LAUNCHED, map::COLLECTED];

impl MapSizes {
    /// Number of entries of a map, if not that of its definition.
    fn entries(self, name: &OsStr) -> Option<u32> {
        let is_of = |maps: &[&str]| maps.iter().any(|of| name == OsStr::new(of));
        if name == OsStr::new(map::EVENTS) {
            return Some(self.ring_bytes);
        }
        let is_unused = !self.off_cpu && is_of(&MAPS_OF_OFF_CPU) || !self.probes && is_of(&MAPS_OF_PROBES);
        // A map cannot be empty.
        is_unused.then_some(1)
    }
}

/// Purpose of a map, for display.
fn purpose(name: &OsStr) -> &'static str {
    match name.to_str().unwrap_or_default() {
        map::EVENTS => "kernel: ring buffer",
        map::SHARDS | map::PAGES | map::RULES | map::EXECUTABLES => "kernel: index of unwind rows",
        map::MAPPINGS | map::PROCESSES | map::TARGETS | map::PYTHON_LAYOUTS => {
            "kernel: processes and mappings"
        }
        map::BLOCKED => "kernel: threads off their CPUs",
        name if MAPS_OF_PROBES.contains(&name) || name == map::CALLED => "kernel: probes",
        _ => "kernel: scratch memory and counters",
    }
}

/// Descriptors of the programs of probes.
#[derive(Debug)]
pub(crate) struct ProbePrograms {
    /// At the entry of a function.
    pub call: OwnedFd,
    /// At its return.
    pub call_return: OwnedFd,
    /// At a function that carries a message.
    pub message: OwnedFd,
}

/// The iterator over threads, alone: no other program is loaded, and only the maps that it uses are created.
pub(crate) struct IteratorProgram {
    object: Object,
    fd: OwnedFd,
}

/// Maps that it uses, besides the read-only ones.
const ITERATOR_MAPS: [&str; 2] = [map::TARGETS, map::SCRATCH];

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn keep_log(level: PrintLevel, text: String) {
    tracing::debug!(target: "libbpf", ?level, "{}", text.trim_end());
    if let Ok(mut log) = LOG.lock() {
        for line in text.lines() {
            if log.len() == LOG_LINES_MAX {
                log.remove(0);
            }
            log.push(line.to_owned());
        }
    }
}

/// The loaded programs and their maps.
pub(crate) struct LoadedPrograms {
    object: Object,
}

impl LoadedPrograms {
    /// Loads the programs with this configuration and maps of these sizes: those for off-CPU time only on request,
    /// those of probes not at all ([`LoadedPrograms::probe_object`]).
    pub(crate) fn new(config: Config, sizes: MapSizes) -> Result<Self, LoadError> {
        begin_log();
        let mut open = open()?;
        configure(&mut open, CONFIG_SECTION, config.as_bytes())?;
        for mut program in open.progs_mut() {
            let name = program.name();
            if OFF_CPU.iter().any(|of| name == OsStr::new(of)) {
                program.set_autoload(sizes.off_cpu);
            } else if is_of_probes(name) || name == OsStr::new(THREADS_PROGRAM) {
                program.set_autoload(false);
            }
        }
        for mut m in open.maps_mut() {
            if let Some(entries) = sizes.entries(m.name()) {
                let name = m.name().to_string_lossy().into_owned();
                m.set_max_entries(entries).map_err(|source| kernel_error(name, source))?;
            }
        }
        let object = open.load().map_err(|source| kernel_error("the programs".into(), source))?;
        Ok(Self { object })
    }

    /// A handle of the map with this name; it stays valid when `self` is dropped.
    pub(crate) fn map(&self, name: &'static str) -> Result<MapHandle, LoadError> {
        map_of(&self.object, name)
    }

    /// Attaches the sampler to a perf event; the link owns the event from then on.
    pub(crate) fn attach_sampler(&mut self, perf_event: OwnedFd) -> Result<Link, LoadError> {
        let program = self.program("sample")?;
        let link = program.attach_perf_event(perf_event.as_raw_fd());
        let link = link.map_err(|source| kernel_error("the sampler".into(), source))?;
        // libbpf closes the event with the link (`bpf_link_perf_detach`).
        let _ = perf_event.into_raw_fd();
        Ok(link)
    }

    /// Attaches the programs that follow fork, exec and exit.
    pub(crate) fn attach_process_events(&mut self) -> Result<Vec<Link>, LoadError> {
        ["process_fork", "process_exec", "process_exit"]
            .into_iter()
            .map(|name| self.program(name)?.attach().map_err(|source| kernel_error(name.into(), source)))
            .collect()
    }

    /// Attaches the program that reports new mappings.
    pub(crate) fn attach_mapped(&mut self) -> Result<Link, LoadError> {
        self.program("mapped")?.attach().map_err(|source| kernel_error("mapped".into(), source))
    }

    /// Attaches the programs that follow threads off their CPUs, if they were loaded.
    pub(crate) fn attach_off_cpu(&mut self) -> Result<Vec<Link>, LoadError> {
        OFF_CPU
            .into_iter()
            .map(|name| self.program(name)?.attach().map_err(|source| kernel_error(name.into(), source)))
            .collect()
    }

    /// The programs of probes, to be attached by this method.
    pub(crate) fn probe_object(&self, method: AttachMethod) -> Result<ProbeObject, LoadError> {
        let mut open = open()?;
        for mut program in open.progs_mut() {
            let is_wanted = is_of_probes(program.name());
            program.set_autoload(is_wanted);
            if is_wanted && method == AttachMethod::Together {
                program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
            }
        }
        for mut map in open.maps_mut() {
            let loaded = self.object.maps().find(|loaded| loaded.name() == map.name());
            let loaded = loaded.ok_or(LoadError::Object("a map is missing"))?;
            map.reuse_fd(loaded.as_fd()).map_err(|source| kernel_error("a shared map".into(), source))?;
        }
        Ok(ProbeObject { open })
    }

    fn program(&mut self, name: &'static str) -> Result<ProgramMut<'_>, LoadError> {
        self.object.progs_mut().find(|p| p.name() == OsStr::new(name)).ok_or(LoadError::Object(name))
    }

    /// Bytes of kernel memory locked by the maps, as the kernel reports them, by purpose.
    pub(crate) fn locked(&self) -> Vec<MemoryUse> {
        let mut all: Vec<MemoryUse> = Vec::new();
        for m in self.object.maps() {
            let (by, bytes) = (purpose(m.name()), super::cost::map_memlock(&m));
            match all.iter_mut().find(|held| held.by == by) {
                Some(held) => held.bytes += bytes,
                None => all.push(MemoryUse { by, bytes }),
            }
        }
        all
    }
}

impl ProbeObject {
    /// Loads only the one at the entry of functions: another instance, whose cost is counted separately.
    pub(crate) fn load_call(mut self) -> Result<OwnedFd, LoadError> {
        let [call, ..] = PROBES;
        for mut program in self.open.progs_mut() {
            let is_wanted = program.name() == OsStr::new(call);
            program.set_autoload(is_wanted);
        }
        let object = self.open.load().map_err(|source| kernel_error("a program of probes".into(), source))?;
        let program = object.progs().find(|program| program.name() == OsStr::new(call));
        let fd = program.ok_or(LoadError::Object(call))?.as_fd().try_clone_to_owned();
        fd.map_err(|e| kernel_error(call.into(), libbpf_rs::Error::from(e)))
    }

    /// Loads them. They stay loaded as long as their descriptors are open.
    pub(crate) fn load(self) -> Result<ProbePrograms, LoadError> {
        let object = self.open.load();
        let object = object.map_err(|source| kernel_error("the programs of probes".into(), source))?;
        let program = |name: &'static str| {
            let program = object.progs().find(|program| program.name() == OsStr::new(name));
            let fd = program.ok_or(LoadError::Object(name))?.as_fd().try_clone_to_owned();
            fd.map_err(|e| kernel_error(name.into(), libbpf_rs::Error::from(e)))
        };
        let [call, call_return, message] = PROBES;
        Ok(ProbePrograms {
            call: program(call)?,
            call_return: program(call_return)?,
            message: program(message)?,
        })
    }
}

impl IteratorProgram {
    /// Loads it.
    pub(crate) fn load(config: &Config, fields: &ThreadFields) -> Result<Self, LoadError> {
        begin_log();
        let mut open = open()?;
        configure(&mut open, CONFIG_SECTION, config.as_bytes())?;
        configure(&mut open, THREAD_FIELDS_SECTION, fields.as_bytes())?;
        for mut program in open.progs_mut() {
            let is_wanted = program.name() == OsStr::new(THREADS_PROGRAM);
            program.set_autoload(is_wanted);
        }
        for mut map in open.maps_mut() {
            let name = map.name();
            let is_used = ITERATOR_MAPS.iter().any(|used| name == OsStr::new(used))
                || name.to_string_lossy().starts_with(".rodata");
            map.set_autocreate(is_used).map_err(|source| kernel_error("a map".into(), source))?;
        }
        let object =
            open.load().map_err(|source| kernel_error("the iterator over threads".into(), source))?;
        let program = object.progs().find(|program| program.name() == OsStr::new(THREADS_PROGRAM));
        let fd = program.ok_or(LoadError::Object(THREADS_PROGRAM))?.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|e| kernel_error(THREADS_PROGRAM.into(), libbpf_rs::Error::from(e)))?;
        Ok(Self { object, fd })
    }

    /// The program.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A handle of one of its maps.
    pub(crate) fn map(&self, name: &'static str) -> Result<MapHandle, LoadError> {
        map_of(&self.object, name)
    }
}

fn open() -> Result<OpenObject, LoadError> {
    let object = arch::object().ok_or(LoadError::Object("they cannot be unpacked"))?;
    let open = ObjectBuilder::default().open_memory(object);
    open.map_err(|source| kernel_error("the object".into(), source))
}

fn is_of_probes(program: &OsStr) -> bool {
    PROBES.iter().any(|name| program == OsStr::new(name))
}

/// Writes a configuration into its own read-only map.
fn configure(open: &mut OpenObject, section: &'static str, bytes: &[u8]) -> Result<(), LoadError> {
    let mut rodata = open
        .maps_mut()
        .find(|m| m.name() == OsStr::new(section))
        .ok_or(LoadError::Object("no configuration section"))?;
    rodata.set_initial_value(bytes).map_err(|_| LoadError::Object("a configuration of another version"))
}

/// Keeps libbpf's output from now on, for an error.
fn begin_log() {
    if let Ok(mut log) = LOG.lock() {
        log.clear();
    }
    set_print(Some((PrintLevel::Info, keep_log)));
}

fn map_of(object: &Object, name: &'static str) -> Result<MapHandle, LoadError> {
    let map = object.maps().find(|m| m.name() == OsStr::new(name));
    let map = map.ok_or(LoadError::Object(name))?;
    MapHandle::try_from(&map).map_err(|source| kernel_error(name.into(), source))
}

fn kernel_error(what: String, source: libbpf_rs::Error) -> LoadError {
    let log = LOG.lock().map(|mut log| std::mem::take(&mut *log)).unwrap_or_default();
    LoadError::Kernel { what, source, log }
}
