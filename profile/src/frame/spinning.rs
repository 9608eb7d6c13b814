//! Functions in which a thread waits without giving up its CPU.
//!
//! Owns: [`is_spinning`], and [`SpinState`], which finds them in a stack. Because: their samples are CPU time but no
//! work, and rules and views must agree on that. Does not: know what a thread waits for.
//!
//! A stripped runtime of OpenMP has no name for its barriers. But its threads start in it, and code of the program is
//! on their stacks while they work: a stack that has only the start of a thread and the runtime waits for work.

use super::{Frame, FrameKind};
use crate::intern::Strings;

/// Prefixes of names: barriers of libgomp, libomp and libiomp5, and the pool of OpenBLAS.
const BEGINNINGS: [&str; 6] = [
    "gomp_barrier_wait",
    "gomp_team_barrier_wait",
    "__kmp_hyper_barrier",
    "kmp_flag_64<",
    "blas_thread_server",
    "cpu_relax",
];

/// Whether the function of this demangled name is a loop that waits for other threads.
pub fn is_spinning(symbol: &str) -> bool {
    let begins = BEGINNINGS.iter().any(|begin| symbol.starts_with(begin));
    // The innermost loop of libgomp, where it was not inlined.
    let of_gomp = symbol == "do_spin" || symbol.starts_with("do_spin.");
    // A template: its name begins with its result type.
    let of_kmp = symbol.find("__kmp_").is_some_and(|at| symbol[at..].starts_with("__kmp_wait"));
    // The pool of XLA.
    let of_eigen = symbol.contains("ThreadPoolTempl") && symbol.contains("WaitForWork");
    begins || of_gomp || of_kmp || of_eigen
}

/// Files in which a thread starts: the C library, and in old ones its library of threads.
const STARTING: [&str; 4] = ["libc.", "libc-", "libpthread", "ld-"];
/// Functions in which a thread starts, where their file is unknown.
const STARTS: [&str; 4] = ["clone", "clone3", "__clone3", "start_thread"];
/// Runtimes of OpenMP.
const RUNTIMES: [&str; 3] = ["libgomp", "libomp", "libiomp5"];

/// What a frame by itself says about waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpinPart {
    /// A process or a thread.
    Target,
    /// Code of the C library.
    Starting,
    /// Code without a name of a runtime of OpenMP.
    UnnamedRuntime,
    /// Other code of such a runtime.
    Runtime,
    /// A function that waits.
    Spinning,
    /// The kernel.
    Kernel,
    /// A call of the program, or a gap, which may hide one: what is below it waits for that.
    Caller,
    /// Any other.
    #[default]
    Other,
}

impl SpinPart {
    /// Of a frame.
    pub fn of(frame: &Frame, strings: &Strings) -> Self {
        match *frame {
            Frame::Native { symbol, module, .. } => native(strings.get(symbol), strings.get(module)),
            Frame::NativeUnnamed { module, .. } => unnamed(strings.get(module)),
            _ => Self::of_kind(frame.kind()),
        }
    }

    /// Of a frame of which only its label is known.
    pub fn of_label(kind: FrameKind, label: &str) -> Self {
        match (kind, label.rsplit_once("+0x")) {
            (FrameKind::Native, Some((module, _))) => unnamed(module),
            (FrameKind::Native, None) => native(label, ""),
            _ => Self::of_kind(kind),
        }
    }

    fn of_kind(kind: FrameKind) -> Self {
        match kind {
            FrameKind::Root | FrameKind::Process | FrameKind::Thread => Self::Target,
            FrameKind::Kernel => Self::Kernel,
            kind if kind.names_a_caller() => Self::Caller,
            _ => Self::Other,
        }
    }
}

fn native(symbol: &str, module: &str) -> SpinPart {
    let file = file_of(module);
    if is_spinning(symbol) {
        SpinPart::Spinning
    } else if is_starting(file) || file.is_empty() && STARTS.contains(&symbol) {
        SpinPart::Starting
    } else if is_runtime(file) {
        SpinPart::Runtime
    } else {
        SpinPart::Other
    }
}

fn unnamed(module: &str) -> SpinPart {
    match file_of(module) {
        file if is_runtime(file) => SpinPart::UnnamedRuntime,
        file if is_starting(file) => SpinPart::Starting,
        _ => SpinPart::Other,
    }
}

fn file_of(module: &str) -> &str {
    module.rsplit('/').next().unwrap_or(module)
}

fn is_starting(file: &str) -> bool {
    STARTING.iter().any(|begin| file.starts_with(begin))
}

/// Whether a file is such a runtime, such as `libgomp.so.1.0.0`, or `libgomp-24e2ab19.so.1` of a package for Python.
fn is_runtime(file: &str) -> bool {
    let is_end = |rest: &str| {
        let hash = rest.strip_prefix('-').and_then(|rest| rest.split_once('.'));
        let is_hash = |hash: &str| hash.len() >= 8 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
        let version = match hash {
            Some((hash, version)) if is_hash(hash) => Some(version),
            Some(_) => None,
            None => rest.strip_prefix('.'),
        };
        version.is_some_and(|version| version == "so" || version.starts_with("so."))
    };
    RUNTIMES.iter().any(|name| file.strip_prefix(name).is_some_and(is_end))
}

/// Whether a stack waits, as far as its frames are known: from its process on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpinState {
    /// Has no code yet.
    #[default]
    Begin,
    /// In the C library, which starts a thread.
    Starts,
    /// In a runtime of OpenMP that started the thread, without code of the program: it has no work.
    Idle,
    /// In a function that waits for no call.
    Spins,
    /// In a call of the program: if it waits, then for that call.
    Called,
    /// In other code.
    Works,
}

impl SpinState {
    /// The state with one more frame.
    #[must_use]
    pub fn then(self, part: SpinPart) -> Self {
        use SpinPart::{Caller, Kernel, Runtime, Spinning, Starting, Target, UnnamedRuntime};
        match (self, part) {
            (Self::Called | Self::Spins, _) => self,
            (_, Caller) => Self::Called,
            (Self::Begin, Target) => Self::Begin,
            (Self::Begin | Self::Starts, Starting) => Self::Starts,
            (Self::Starts, UnnamedRuntime) => Self::Idle,
            // The C library and the kernel let it sleep.
            (Self::Idle, UnnamedRuntime | Runtime | Spinning | Starting | Kernel) => Self::Idle,
            (_, Spinning) => Self::Spins,
            _ => Self::Works,
        }
    }

    /// Whether it waits, and no call waits for it.
    pub fn is_apart(self) -> bool {
        matches!(self, Self::Idle | Self::Spins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::profile;
    use crate::text::parse_frame;

    #[track_caller]
    fn check(symbol: &str, expect: bool) {
        assert_eq!(is_spinning(symbol), expect, "{symbol}");
    }

    #[test]
    fn loops_of_known_runtimes_are_recognised() {
        check("gomp_barrier_wait_end", true);
        check("gomp_team_barrier_wait_end", true);
        check("do_spin", true);
        check("do_spin.isra.0", true);
        check("__kmp_wait_4", true);
        check("bool __kmp_wait_template<kmp_flag_64<false, true>, false, true, true>(kmp_info*, int)", true);
        check("Eigen::ThreadPoolTempl<tsl::thread::EigenEnvironment>::WaitForWork(Waiter*)", true);
    }

    #[test]
    fn work_within_runtimes_is_no_spinning() {
        check("gomp_thread_start", false);
        check("GOMP_parallel", false);
        check("__kmp_invoke_microtask", false);
        check("do_spinup", false);
        check("", false);
    }

    #[track_caller]
    fn check_stack(stack: &str, expect: SpinState) {
        let mut profile = profile("");
        let mut state = SpinState::default();
        for text in stack.split(" / ") {
            let id = parse_frame(&mut profile, text).unwrap();
            let frame = profile.frames.get(id);
            let part = SpinPart::of(&frame, &profile.strings);
            if matches!(frame, Frame::NativeUnnamed { .. } | Frame::Kernel { .. }) {
                let label = frame.label(&profile.strings, false);
                assert_eq!(SpinPart::of_label(frame.kind(), &label), part, "{label}");
            }
            state = state.then(part);
        }
        assert_eq!(state, expect, "{stack}");
    }

    const WORKER: &str = "P a-1 / T a/2 / n clone3 / u /lib/libc.so.6+0x10 / u /lib/libgomp.so.1.0.0+0x10";

    #[test]
    fn a_worker_of_a_stripped_runtime_without_work_waits() {
        check_stack(WORKER, SpinState::Idle);
        check_stack(&format!("{WORKER} / u /lib/libgomp.so.1.0.0+0x10"), SpinState::Idle);
        check_stack(&format!("{WORKER} / u /lib/libc.so.6+0x10 / k do_syscall_64"), SpinState::Idle);
        check_stack("P a-1 / n start_thread / u /v/libomp-24e2ab19.so.5+0x10", SpinState::Idle);
    }

    #[test]
    fn a_worker_within_code_of_the_program_works() {
        let in_region = format!("{WORKER} / n main._omp_fn.0@/srv/app");
        check_stack(&in_region, SpinState::Works);
        // Its own barrier is a part of the region.
        check_stack(&format!("{in_region} / u /lib/libgomp.so.1.0.0+0x10"), SpinState::Works);
        check_stack(&format!("{WORKER} / u /srv/app+0x10"), SpinState::Works);
        check_stack(&format!("{WORKER} / y a.py:f / u /lib/libgomp.so.1.0.0+0x10"), SpinState::Called);
        check_stack("P a-1 / n _start@/srv/app / u libc.so.6+0x10 / u libgomp.so.1+0x10", SpinState::Works);
        check_stack("P a-1 / ? no-row / u /lib/libgomp.so.1+0x10", SpinState::Called);
        check_stack("P a-1 / u /lib/libgomp.so.1+0x10", SpinState::Works);
        check_stack("P a-1 / n clone3 / u /lib/libgomp-plugin-nvptx.so.1+0x10", SpinState::Works);
        check_stack("P a-1 / n clone3 / u /lib/libgomp-my.so.1+0x10", SpinState::Works);
    }

    #[test]
    fn named_functions_wait_unless_a_call_does() {
        check_stack(
            "P a-1 / n clone / n gomp_thread_start / n gomp_barrier_wait_end / n f",
            SpinState::Spins,
        );
        check_stack("P a-1 / y t.py:f / n gomp_barrier_wait_end", SpinState::Called);
        check_stack("P a-1 / n clone / n gomp_thread_start@/lib/libgomp.so.1 / n work", SpinState::Works);
    }
}
