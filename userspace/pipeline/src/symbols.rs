//! Symbols: the pipeline's interface to symbolization.
//!
//! Owns: the trait, and the form of requests and answers. Because: resolving is pure only if files, processes and
//! caches of names stay outside; tests answer from a table. Does not: know ELF, DWARF, `/proc` or CPython.

use deepctx_common::reason::Reason;
use deepctx_common::record::ProcessEvent;

use crate::input::{ProcessRefusal, Refusals, SpaceUpdate};

/// One state of one process's address space: the same word in the same space always has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u32);

/// A chain of asyncio tasks and coroutines, each awaiting the next. A number always means the same chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AwaitChainId(pub u32);

/// A PyTorch module that was called, as the walk saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModuleReference {
    /// Address of the object.
    pub object: u64,
    /// Address of its type.
    pub of_type: u64,
}

/// A code address in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeAddress {
    /// An instruction that was about to run: look up this very address.
    Exact(u64),
    /// Where a call returns to: look up the byte before it.
    Return(u64),
}

/// A Python frame as the walk saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonReference {
    /// Address of the code object.
    pub code: u64,
    /// Checksum over the code object's header at that time: distinguishes a reused address from the same function.
    pub checksum: u32,
    /// Byte offset of the current instruction in the bytecode; `None` if unknown.
    pub instruction: Option<u32>,
}

/// A frame that outlives its call, as those of coroutines and generators do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoroutineReference {
    /// Address of the frame, which lies within the coroutine or generator.
    pub frame: u64,
    /// What it runs.
    pub function: PythonReference,
}

/// The meaning of an address or a Python reference. The fields are those of `deepctx_profile::frame::Frame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name<'a> {
    /// A native function.
    Native {
        /// Demangled name.
        symbol: &'a str,
        /// Path of the file that holds it.
        module: &'a str,
        /// Source file; empty when unknown.
        file: &'a str,
        /// Line; 0 when unknown.
        line: u32,
        /// True for a function that was inlined into the one before it.
        inlined: bool,
    },
    /// Native code without a name.
    NativeUnnamed {
        /// Path of the file that holds it; empty when unknown.
        module: &'a str,
        /// Address as the file states it, or the plain address when the file is unknown.
        offset: u64,
        /// Why there is no name.
        reason: &'static Reason,
    },
    /// A kernel function.
    Kernel {
        /// Its name.
        symbol: &'a str,
    },
    /// Kernel code without a name.
    KernelUnnamed {
        /// Why there is no name.
        reason: &'static Reason,
    },
    /// A Python function.
    Python {
        /// Qualified name.
        function: &'a str,
        /// Source file.
        file: &'a str,
        /// Line that was running; 0 when unknown.
        line: u32,
        /// First line of the function; 0 when unknown.
        first_line: u32,
    },
    /// The origin of the native function that follows in the answer: a unit of a compiler, or operators.
    Compiled {
        /// Its name.
        name: &'a str,
    },
    /// The Python line that the following code was traced from, as the compiler saw it.
    Traced {
        /// Function.
        function: &'a str,
        /// Source file.
        file: &'a str,
        /// Line.
        line: u32,
    },
    /// A task of asyncio.
    Task {
        /// Its name; empty if asyncio gave it the default one with a counter.
        name: &'a str,
    },
    /// A layer of a model.
    Layer {
        /// Its qualified name; empty when unknown.
        path: &'a str,
        /// Its class; empty when unknown.
        class: &'a str,
    },
    /// A Python function that was just being entered: its interpreter would not show it.
    PythonIncomplete,
    /// A Python function without a name.
    PythonUnnamed {
        /// Why there is no name.
        reason: &'static Reason,
    },
}

/// A device kernel whose origin is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceKernel<'a> {
    /// Process that launches it.
    pub pid: u32,
    /// When: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Its name.
    pub name: &'a str,
    /// Known names of other kernels in the same code.
    pub siblings: &'a [&'a str],
}

/// A thunk of a compiled module that calls a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledThunk<'a> {
    /// Process that runs it.
    pub pid: u32,
    /// When: `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Number of the module in its process.
    pub unit_number: u64,
    /// Name of the module, or with `cut` its beginning.
    pub unit: &'a str,
    /// The name of the module is longer.
    pub cut: bool,
    /// Name of the thunk in the module.
    pub name: &'a str,
    /// Other operators may be fused into it.
    pub fused: bool,
}

/// Receives the answer to query `n`: the frames of that address, outermost first (inlined functions follow).
pub type NameReceiver<'a> = dyn FnMut(usize, &[Name<'_>]) + 'a;

/// What is asked about processes: what compilers made their code from, who answers for them, which are our own, and why
/// the kernel programs do not know them.
pub trait ProcessFacts {
    /// The user who answers for a process now; `None` when it is gone, or nobody knows.
    fn accountable_user(&mut self, _pid: u32) -> Option<u32> {
        None
    }

    /// Whether a process is the profiler itself or one of its workers, and its stacks are not wanted.
    fn is_own(&mut self, _pid: u32) -> bool {
        false
    }

    /// Why the kernel programs had no unwind data of a process at a time; `None` if it was not refused. Asked only
    /// about processes that they did not know.
    fn refusal(&mut self, _pid: u32, _time_ns: u64) -> Option<ProcessRefusal> {
        None
    }

    /// Asks what a kernel of a device was compiled from. Answered once, outermost first, if it is known. True when
    /// more may be known later.
    fn device_kernel(&mut self, _kernel: &DeviceKernel<'_>, _answer: &mut dyn FnMut(&[Name<'_>])) -> bool {
        false
    }

    /// Looks up what a generated file of a process launches. Answers each launch: the name of the kernel, the line of
    /// the file (0: unknown), and the origin of the kernel, outermost first. True if more may be known later.
    fn launched_by(
        &mut self,
        _pid: u32,
        _time_ns: u64,
        _path: &str,
        _answer: &mut dyn FnMut(&str, u32, &[Name<'_>]),
    ) -> bool {
        false
    }

    /// Looks up the origin of a thunk of a compiled module. Answers once, outermost first, if it is known.
    fn compiled_thunk(&mut self, _thunk: &CompiledThunk<'_>, _answer: &mut dyn FnMut(&[Name<'_>])) {}
}

/// Those who know names. Processes and address spaces are reported in time order; questions may be about any time
/// since.
pub trait Symbols: ProcessFacts {
    /// Form in which an address space is described.
    type Space;

    /// A process was seen to replace its image. Unlike [`Symbols::replaced`], this is reported at once, not in time
    /// order.
    fn replacement_seen(&mut self, _pid: u32) {}

    /// The kernel programs got no unwind data of these processes; reported at once, not in time order: what ends a
    /// refusal comes in its turn.
    fn refused(&mut self, _refusals: Refusals) {}

    /// Python frames were seen; reported at once, not in time order, so that what only a live process has can be read.
    /// Each function of a process is reported once, or a few times.
    fn python_seen(&mut self, _pid: u32, _frames: &[PythonReference]) {}

    /// These coroutines and generators ran at a time; reported at once, not in time order, so that their tasks and who
    /// awaits those can be read while they run.
    fn coroutines_seen(&mut self, _pid: u32, _time_ns: u64, _coroutines: &[CoroutineReference]) {}

    /// Which of the coroutines that ran, innermost first, is a task's, and who awaited that task at the time.
    fn await_chain(
        &mut self,
        _pid: u32,
        _time_ns: u64,
        _coroutines: &mut dyn Iterator<Item = CoroutineReference>,
    ) -> Option<(u64, AwaitChainId)> {
        None
    }

    /// Looks up the parts of chains, root first. Each is answered once, in any order.
    fn await_chain_parts(&mut self, _chains: &[AwaitChainId], _answer: &mut NameReceiver<'_>) {}

    /// Modules were called at a time, each by the next, innermost first; reported at once, not in time order. `whole`:
    /// none is missing further out.
    fn modules_seen(&mut self, _pid: u32, _time_ns: u64, _modules: &[ModuleReference], _whole: bool) {}

    /// Looks up modules of one space. Each is answered once, in any order.
    fn modules(&mut self, _space: SpaceId, _modules: &[ModuleReference], _answer: &mut NameReceiver<'_>) {}

    /// The address space of a process was read.
    fn space_changed(&mut self, update: SpaceUpdate<Self::Space>);

    /// A process was forked from `event.parent`.
    fn forked(&mut self, event: &ProcessEvent);

    /// A process replaced its image.
    fn replaced(&mut self, event: &ProcessEvent);

    /// A process ended.
    fn on_exit(&mut self, event: &ProcessEvent);

    /// No query about a time before this will follow.
    fn retire(&mut self, before_ns: u64);

    /// The state of a process's address space at a time. Every process has one, even if nothing is known about it.
    fn space(&mut self, pid: u32, time_ns: u64) -> SpaceId;

    /// Name of a process at a time, if it is known.
    fn process_name(&mut self, pid: u32, time_ns: u64) -> Option<&str>;

    /// Looks up user addresses of one space, each as of the time in `times_ns` at its place. Each is answered once, in
    /// any order.
    fn user(
        &mut self,
        space: SpaceId,
        addresses: &[CodeAddress],
        times_ns: &[u64],
        answer: &mut NameReceiver<'_>,
    );

    /// Says which of these addresses, as of the same times, lie in mappings that the kernel programs never get,
    /// since their process has too many.
    fn left_out(
        &mut self,
        _space: SpaceId,
        _addresses: &[CodeAddress],
        _times_ns: &[u64],
        _answer: &mut dyn FnMut(usize),
    ) {
    }

    /// Looks up Python frames of one space. Each is answered once, in any order.
    fn python(&mut self, space: SpaceId, frames: &[PythonReference], answer: &mut NameReceiver<'_>);

    /// Whether the names of kernel addresses that were given before may have changed since the last call.
    fn kernel_renamed(&mut self) -> bool {
        false
    }

    /// Looks up kernel addresses, exact or (`Return`) behind a call. Each is answered once, in any order.
    fn kernel(&mut self, addresses: &[CodeAddress], answer: &mut NameReceiver<'_>);
}
