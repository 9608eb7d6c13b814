//! Waits: what a sleeping thread waits for, from its system call, its frames, and the kernel's.
//!
//! Owns: the kinds of waits that help to find a hang, and how each is recognized. Because: among a thousand threads
//! in `futex` one has to know which wait for what: the interpreter's lock, a barrier of OpenMP, the end of a thread.
//! Does not: guess: a wait that no frame explains stays a futex.

use std::fmt;

use deepctx_common::thread::Thread;
use serde::Serialize;

use super::frame::DumpedFrame;
use super::{descriptor, system_call};

/// What a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Wait {
    /// An accelerator.
    Device {
        /// The function of the driver or runtime that waits.
        function: String,
        /// It waits on its CPU: the default of CUDA is to poll. Or it copies, if the function does so itself.
        polls: bool,
    },
    /// Another thread, through a word in memory.
    Futex {
        /// Its address.
        address: u64,
        /// Its use, according to the frames.
        used_for: FutexUse,
    },
    /// A descriptor.
    Descriptor {
        /// The system call.
        call: &'static str,
        /// Its number.
        descriptor: i32,
        /// The open file (`pipe:[123]`); `None` if it could not be read.
        opened: Option<String>,
    },
    /// One of several descriptors.
    Descriptors {
        /// The system call.
        call: &'static str,
    },
    /// Time.
    Sleep,
    /// Anything else.
    Other {
        /// The reason shown by the kernel frames, as in off-CPU time.
        reason: &'static str,
    },
}

/// The use of a futex, found from the leaf outwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FutexUse {
    /// The lock of the Python interpreter.
    Gil,
    /// A lock, queue or event of Python's `threading`.
    PythonLock,
    /// A barrier of OpenMP, or the next parallel region.
    OpenMp,
    /// The end of another thread.
    ThreadEnd,
    /// A barrier.
    Barrier,
    /// A condition variable.
    Condition,
    /// A semaphore.
    Semaphore,
    /// A read-write lock.
    ReadWriteLock,
    /// A mutex.
    Mutex,
    /// No frame shows it.
    Unknown,
}

impl FutexUse {
    /// The label.
    pub fn words(self) -> &'static str {
        match self {
            Self::Gil => "the GIL",
            Self::PythonLock => "a Python lock",
            Self::OpenMp => "an OpenMP barrier or its next parallel region",
            Self::ThreadEnd => "the end of another thread",
            Self::Barrier => "a barrier",
            Self::Condition => "a condition variable",
            Self::Semaphore => "a semaphore",
            Self::ReadWriteLock => "a read-write lock",
            Self::Mutex => "a mutex",
            Self::Unknown => "a futex",
        }
    }
}

impl Wait {
    /// The kind of wait, without addresses and numbers, so that equal waits can be grouped.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Device { polls: false, .. } => "a device",
            Self::Device { polls: true, .. } => "a device, polled for",
            Self::Futex { used_for, .. } => used_for.words(),
            Self::Descriptor { call, .. } | Self::Descriptors { call } => call,
            Self::Sleep => "sleep",
            Self::Other { reason } => reason,
        }
    }
}

/// Prefixes of native functions, without the underscores and marks that C libraries put before them, and the use of a
/// futex awaited below them. The first row that some frame matches counts, so more specific rows precede those below
/// them in the same stack: Python's locks and the barriers of OpenMP are made of condition variables and mutexes.
const USES: &[(&str, FutexUse)] = &[
    ("take_gil", FutexUse::Gil),
    ("PyEval_RestoreThread", FutexUse::Gil),
    ("PyThread_acquire_lock_timed", FutexUse::PythonLock),
    ("PyParkingLot_Park", FutexUse::PythonLock),
    // Called only by the one before, which has no name in stripped builds of 3.13 and later.
    ("PySemaphore_Wait", FutexUse::PythonLock),
    ("gomp_barrier_wait", FutexUse::OpenMp),
    ("gomp_team_barrier_wait", FutexUse::OpenMp),
    ("gomp_thread_start", FutexUse::OpenMp),
    ("kmp_", FutexUse::OpenMp),
    ("pthread_barrier_wait", FutexUse::Barrier),
    ("std::barrier", FutexUse::Barrier),
    ("pthread_join", FutexUse::ThreadEnd),
    ("pthread_clockjoin", FutexUse::ThreadEnd),
    ("pthread_timedjoin", FutexUse::ThreadEnd),
    ("pthread_cond_", FutexUse::Condition),
    ("sem_", FutexUse::Semaphore),
    ("new_sem_", FutexUse::Semaphore),
    ("pthread_rwlock_", FutexUse::ReadWriteLock),
    ("pthread_mutex_", FutexUse::Mutex),
    ("lll_lock_wait", FutexUse::Mutex),
];

/// A name without the prefixes of C libraries: `___pthread_barrier_wait`, `__GI___lll_lock_wait`.
fn bare(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_')
}

/// Native frames nearest to the leaf that may show the use of a futex: the outer ones only led there.
const USE_FRAMES_MAX: usize = 12;

/// Functions that wait for an accelerator, by the beginnings of their names. Those that contain `Async` do not.
const DEVICE_WAITS: &[&str] = &[
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuMemcpy",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
    "cudaMemcpy",
    "hipStreamSynchronize",
    "hipEventSynchronize",
    "hipDeviceSynchronize",
    "hipMemcpy",
    "hsa_signal_wait",
];

/// What a thread on a CPU, or about to have one, waits for: a device. Other waits give their CPU away.
pub(super) fn on_cpu(frames: &[DumpedFrame]) -> Option<Wait> {
    device_wait(frames).map(|function| Wait::Device { function, polls: true })
}

/// What a sleeping thread waits for. `call`: the name of its system call, if known; `by_kernel`: the reason shown by
/// the kernel frames.
pub(super) fn of(
    thread: &Thread,
    call: Option<&'static str>,
    by_kernel: &'static str,
    frames: &[DumpedFrame],
) -> Wait {
    if let Some(function) = device_wait(frames) {
        return Wait::Device { function, polls: false };
    }
    let [first, ..] = thread.arguments;
    match call {
        Some("futex") => Wait::Futex { address: first, used_for: futex_use(frames) },
        Some(call) if system_call::is_of_descriptor(call) => {
            // The kernel, too, takes only the low half.
            let descriptor = first as i32;
            Wait::Descriptor { call, descriptor, opened: descriptor::opened(thread.pid, descriptor) }
        }
        Some(call @ ("poll" | "ppoll" | "select" | "pselect6")) => Wait::Descriptors { call },
        Some("nanosleep" | "clock_nanosleep") => Wait::Sleep,
        _ => Wait::Other { reason: by_kernel },
    }
}

fn native(frames: &[DumpedFrame]) -> impl Iterator<Item = &str> + Clone {
    frames.iter().filter(|frame| frame.kind == "native").map(|frame| frame.function.as_str())
}

fn device_wait(frames: &[DumpedFrame]) -> Option<String> {
    let waits =
        |name: &&str| DEVICE_WAITS.iter().any(|begin| name.starts_with(begin)) && !name.contains("Async");
    native(frames).find(waits).map(str::to_owned)
}

fn futex_use(frames: &[DumpedFrame]) -> FutexUse {
    // The frames between the leaf and the first Python frame show the purpose of this wait.
    let until_python = frames.iter().position(|frame| frame.kind == "python").unwrap_or(frames.len());
    let near = native(&frames[..until_python]).take(USE_FRAMES_MAX);
    let is_used = |(begin, _): &&(&str, FutexUse)| near.clone().any(|name| bare(name).starts_with(begin));
    USES.iter().find(is_used).map_or(FutexUse::Unknown, |(_, used_for)| *used_for)
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { function, polls: false } => write!(f, "waits for a device in {function}"),
            Self::Device { function, polls: true } => {
                write!(f, "busy in {function}, which waits for a device")
            }
            Self::Futex { address, used_for: FutexUse::Unknown } => write!(f, "waits for futex {address:#x}"),
            Self::Futex { address, used_for } => {
                write!(f, "waits for {} (futex {address:#x})", used_for.words())
            }
            Self::Descriptor { call, descriptor, opened } => {
                write!(f, "waits in {call} for descriptor {descriptor}")?;
                opened.as_ref().map_or(Ok(()), |opened| write!(f, " ({opened})"))
            }
            Self::Descriptors { call } => write!(f, "waits in {call} for descriptors"),
            Self::Sleep => f.write_str("in a timed sleep"),
            Self::Other { reason: "blocked" } => f.write_str("the kernel frames do not say what for"),
            Self::Other { reason } => write!(f, "waits for: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::FrameRole;
    use super::*;

    fn frames(text: &str) -> Vec<DumpedFrame> {
        let frame = |word: &str| {
            let (kind, function) = match word.split_once(':') {
                Some(("py", function)) => ("python", function),
                Some(("k", function)) => ("kernel", function),
                _ => ("native", word),
            };
            let function = function.to_owned();
            DumpedFrame {
                kind,
                function,
                file: String::new(),
                line: None,
                role: FrameRole::Code,
                source: None,
            }
        };
        text.split(' ').map(frame).collect()
    }

    #[test]
    fn a_futex_is_what_its_frames_use_it_for() {
        let check = |text, expect| assert_eq!(futex_use(&frames(text)), expect, "{text}");
        check("k:futex_wait __futex_abstimed_wait pthread_cond_timedwait take_gil py:f", FutexUse::Gil);
        check("__new_sem_wait_slow64 sem_clockwait PyThread_acquire_lock_timed py:get", FutexUse::PythonLock);
        check("__futex_abstimed_wait pthread_cond_wait@@GLIBC_2.3.2 worker", FutexUse::Condition);
        check("futex_wait __GI___lll_lock_wait ___pthread_mutex_lock f", FutexUse::Mutex);
        check("syscall gomp_team_barrier_wait_end gomp_thread_start", FutexUse::OpenMp);
        check("futex_wait_simple ___pthread_barrier_wait main", FutexUse::Barrier);
        check("__futex_abstimed_wait __pthread_clockjoin_ex main", FutexUse::ThreadEnd);
        check("syscall parking_lot::park", FutexUse::Unknown);
    }

    #[test]
    fn a_lock_further_out_than_python_says_nothing() {
        assert_eq!(futex_use(&frames("syscall f py:g take_gil")), FutexUse::Unknown);
    }

    #[test]
    fn a_device_is_waited_for_by_name() {
        let check = |text, expect: Option<&str>| assert_eq!(device_wait(&frames(text)).as_deref(), expect);
        check("k:poll ppoll libcuda cuStreamSynchronize cudaStreamSynchronize", Some("cuStreamSynchronize"));
        check("py:cuStreamSynchronize main", None);
        check("libcuda cuMemcpyDtoH_v2 cudaMemcpy at::native::copy_", Some("cuMemcpyDtoH_v2"));
        check("libcuda cuMemcpyDtoHAsync_v2 cudaMemcpyAsync main", None);
    }

    #[test]
    fn a_thread_on_its_cpu_may_poll_for_a_device() {
        let waits = on_cpu(&frames("clock_gettime libcuda cuStreamSynchronize py:step"));
        let words = "busy in cuStreamSynchronize, which waits for a device";
        assert_eq!(waits.map(|wait| wait.to_string()).as_deref(), Some(words));
        assert_eq!(on_cpu(&frames("pthread_mutex_lock py:step")), None);
    }
}
