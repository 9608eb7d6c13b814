//! Dump: where every thread of some processes is at this moment, and what it waits for.
//!
//! Owns: the value of a dump, built from what the capture read and the resolver named. Because: text, JSON and tests
//! must show the same thing. Does not: read stacks (`deepctx_capture::dump`) or print.

mod collective;
mod descriptor;
mod frame;
mod system_call;
mod wait;

use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::dump::{DumpConfig, ProcessStacks, Stack, ThreadStack, VanishedPart};
use deepctx_capture::job::Job;
use deepctx_capture::{CaptureError, FrameSource, Targets};
use deepctx_common::reasons;
use deepctx_common::thread::{Thread, thread_flag};
use deepctx_pipeline::input::SpaceUpdate;
use deepctx_pipeline::stacks::{ResolvedStack, Stacks};
use deepctx_pipeline::symbols::Symbols as _;
use deepctx_pipeline::thread_name;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;
use deepctx_symbolizer::native::DebugInfo;
use serde::Serialize;

pub use frame::{DumpedFrame, FrameRole};
pub use wait::{FutexUse, Wait};

use crate::resolver::Resolver;
use frame::clean;

/// Version of the JSON form: incremented when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// All threads of some processes at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dump {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// From reading the first thread to the last, nanoseconds: each stack is of a moment in between (measured).
    pub read_ns: u64,
    /// There are more processes, or they have more threads, than are read: some are missing here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The job that the processes are ranks of, if one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<DumpedJob>,
    /// By id.
    pub processes: Vec<DumpedProcess>,
}

/// A distributed job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpedJob {
    /// What started it: `torchrun`.
    pub launcher: &'static str,
    /// Its ranks, on all hosts.
    pub size: u32,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpedProcess {
    /// Its id, in the pid namespace of the profiler.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// The rank that it is, or belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// It is the rank itself, not a process started by it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_main_of_rank: bool,
    /// Why it could not be read; `None` if it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<NoStack>,
    /// It ended before its threads were read.
    pub ended: bool,
    /// Threads that ended while they were read.
    pub threads_ended: u64,
    /// By id.
    pub threads: Vec<DumpedThread>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DumpedThread {
    /// Its id, in the pid namespace of the profiler.
    pub tid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Its scheduler state.
    pub state: State,
    /// How long it has been off its CPU, nanoseconds: measured by the scheduler, up to the time of interrupts while it
    /// last ran. `None`: it runs, or the kernel does not report it.
    pub off_cpu_ns: Option<u64>,
    /// The system call that it is in.
    pub system_call: Option<String>,
    /// What it waits for; `None` when it does not wait.
    pub wait: Option<Wait>,
    /// The collective, or the exchange with another rank, that it is in (`all_reduce`); `None` if it is in none that is
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<String>,
    /// Why there are no frames; `None` if there are. Gaps within a stack are frames with their own reason.
    pub no_stack: Option<NoStack>,
    /// Leaf first.
    pub frames: Vec<DumpedFrame>,
}

/// Scheduler state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is on a CPU. Its stack is of a moment at which this tool took the CPU instead.
    Running,
    /// It could run, and has no CPU.
    WaitsForCpu,
    /// It sleeps, and a signal wakes it.
    Sleeping,
    /// It sleeps, and no signal wakes it except, perhaps, a fatal one.
    Uninterruptible,
    /// A signal stopped it.
    Stopped,
    /// A debugger holds it.
    Traced,
    /// A state unknown to this version.
    Other,
}

impl State {
    fn of(thread: &Thread) -> Self {
        // include/linux/sched.h; stopped and traced come with bits of the others.
        const INTERRUPTIBLE: u32 = 1;
        const UNINTERRUPTIBLE: u32 = 2;
        const STOPPED: u32 = 4;
        const TRACED: u32 = 8;
        match thread.state {
            _ if thread.flags & thread_flag::ON_CPU != 0 => Self::Running,
            0 => Self::WaitsForCpu,
            state if state & TRACED != 0 => Self::Traced,
            state if state & STOPPED != 0 => Self::Stopped,
            state if state & INTERRUPTIBLE != 0 => Self::Sleeping,
            state if state & UNINTERRUPTIBLE != 0 => Self::Uninterruptible,
            _ => Self::Other,
        }
    }

    /// A label of one or two words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::WaitsForCpu => "waiting for a CPU",
            Self::Sleeping => "sleeping",
            Self::Uninterruptible => "sleeping uninterruptibly",
            Self::Stopped => "stopped by a signal",
            Self::Traced => "stopped by a debugger",
            Self::Other => "in an unknown state",
        }
    }
}

/// Why a thread has no frames, or a process no threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NoStack {
    /// The key in docs/loss.md.
    pub key: &'static str,
    /// The sentence for people.
    pub sentence: &'static str,
}

reasons! {
    class Gap, page "hang.md";
    const MOVING = "thread-moving",
        "the thread ran each time it was looked at, and is not stopped to be read",
        helps "dump once more: another moment may find it off its CPU";
}

/// Dumps all threads of the selected processes, with the frames that `config` requests. Native and kernel frames are
/// read in any case: they show what a thread waits for.
///
/// # Errors
/// As [`deepctx_capture::dump::dump`].
pub fn dump(config: &DumpConfig, debug_info: DebugInfo) -> Result<Dump, CaptureError> {
    let needed = [FrameSource::Native, FrameSource::Kernel];
    let context = config.context.iter().copied().chain(needed).collect();
    let raw = deepctx_capture::dump::dump(&DumpConfig { context, ..config.clone() })?;
    let (read_ns, is_cut) = (Nanos::from(raw.took).0, raw.is_cut);
    let mut stacks = Stacks::new(Resolver::new(debug_info, None));
    for process in &raw.processes {
        let maps = stacks.symbols().admit(process.pid, process.maps.clone());
        let update = SpaceUpdate { pid: process.pid, time_ns: monotonic_ns(), name: String::new(), maps };
        stacks.symbols().space_changed(update);
    }
    let records =
        || raw.processes.iter().flat_map(|process| &process.threads).map(|thread| thread.stack.record());
    stacks.note(records());
    let between_ns = monotonic_ns();
    let mut resolved = stacks.resolve(records(), between_ns).into_iter();
    let mut processes = Vec::new();
    for process in &raw.processes {
        let threads = process.threads.iter().zip(&mut resolved);
        let threads = threads
            .map(|(thread, resolved)| dumped(thread, resolved, stacks.profile(), &config.context))
            .collect();
        processes.push(of_process(process, threads));
    }
    Ok(Dump { schema_version: SCHEMA_VERSION, read_ns, is_cut, job: None, processes })
}

/// Dumps the processes of a job, without those that they started since the job was found.
///
/// # Errors
/// As [`dump`].
pub fn dump_job(job: &Job, config: &DumpConfig, debug_info: DebugInfo) -> Result<Dump, CaptureError> {
    let of_job = job.processes.iter().filter(|process| config.follow_children || process.is_main);
    let targets = vec![Targets::Pids(of_job.map(|process| process.pid).collect())];
    let mut dump = dump(&DumpConfig { targets, ..config.clone() }, debug_info)?;
    dump.job = Some(DumpedJob { launcher: job.launcher, size: job.size });
    for process in &mut dump.processes {
        let known = job.processes.iter().find(|of| of.pid == process.pid);
        (process.rank, process.is_main_of_rank) =
            (known.map(|of| of.rank), known.is_some_and(|of| of.is_main));
    }
    Ok(dump)
}

fn of_process(process: &ProcessStacks, threads: Vec<DumpedThread>) -> DumpedProcess {
    let (ended, threads_ended) = match process.gone {
        VanishedPart::Process => (true, 0),
        VanishedPart::Threads(count) => (false, count),
    };
    DumpedProcess {
        pid: process.pid,
        name: clean(&process.name),
        rank: None,
        is_main_of_rank: false,
        unread: process.unread.map(|reason| NoStack { key: reason.key(), sentence: reason.sentence() }),
        ended,
        threads_ended,
        threads,
    }
}

fn dumped(
    read: &ThreadStack,
    resolved: Option<ResolvedStack>,
    profile: &Profile,
    asked: &[FrameSource],
) -> DumpedThread {
    let thread = &read.thread;
    let state = State::of(thread);
    let in_call = thread.flags & thread_flag::IN_SYSTEM_CALL != 0;
    let call = in_call.then(|| system_call::name(thread.system_call));
    let waits_for = resolved.as_ref().map_or("blocked", |stack| stack.waits_for);
    let ids = resolved.iter().flat_map(|stack| stack.frames.iter().rev());
    let mut frames: Vec<DumpedFrame> = ids.map(|frame| DumpedFrame::of(*frame, profile)).collect();
    let wait = match state {
        State::Sleeping | State::Uninterruptible => {
            Some(wait::of(thread, call.flatten(), waits_for, &frames))
        }
        State::Running | State::WaitsForCpu => wait::on_cpu(&frames),
        State::Stopped | State::Traced | State::Other => None,
    };
    let collective = collective::of(&frames);
    frames.retain(|frame| frame.source.is_none_or(|source| asked.contains(&source)));
    DumpedThread {
        tid: thread.tid,
        name: clean(&thread_name(&thread.comm)),
        state,
        off_cpu_ns: read.off_cpu_ns.filter(|_| state != State::Running),
        system_call: call.map(|name| name.map_or_else(|| thread.system_call.to_string(), str::to_owned)),
        wait,
        collective,
        no_stack: matches!(read.stack, Stack::Moving)
            .then_some(NoStack { key: MOVING.key, sentence: MOVING.sentence }),
        frames,
    }
}

#[cfg(test)]
mod tests {
    use deepctx_common::Plain as _;
    use deepctx_symbolizer::maps::Maps;

    use super::*;

    #[test]
    fn names_of_programs_do_not_control_the_terminal() {
        let name = "\u{1b}]0;x\u{7}\u{202e}".to_owned();
        let (maps, gone) = (Maps::default(), VanishedPart::Threads(0));
        let process = ProcessStacks { pid: 7, name, maps, unread: None, gone, threads: Vec::new() };
        assert_eq!(of_process(&process, Vec::new()).name, "?]0;x??");
        let mut thread = Thread::read_from(&[0; size_of::<Thread>()]).unwrap();
        thread.comm[..4].copy_from_slice(b"\x1b[2J");
        let read = ThreadStack { thread, off_cpu_ns: None, stack: Stack::Moving };
        let profile = Profile::new(Default::default(), Default::default());
        assert_eq!(dumped(&read, None, &profile, &[]).name, "?[2J");
    }

    #[test]
    fn a_state_is_what_the_scheduler_says() {
        let check = |state, flags, expect| {
            let zeros = Thread::read_from(&[0; size_of::<Thread>()]).unwrap();
            assert_eq!(State::of(&Thread { state, flags, ..zeros }), expect, "{state:#x}");
        };
        check(0, thread_flag::ON_CPU, State::Running);
        check(1, thread_flag::ON_CPU, State::Running);
        check(0, 0, State::WaitsForCpu);
        check(1, 0, State::Sleeping);
        check(0x2001, 0, State::Sleeping);
        check(2, 0, State::Uninterruptible);
        check(0x102, 0, State::Uninterruptible);
        check(0x104, 0, State::Stopped);
        check(8, 0, State::Traced);
        check(0x80, 0, State::Other);
    }
}
