//! What compiled kernels were made from: operators of a framework, and the lines of the program that asked for them.
//!
//! Owns: the form of the answer, and what is known of each process. Because: a compiler fuses operators of many lines into one
//! kernel, and only the files that it leaves (dumps, caches) say which. Does not: find code or its names, or guess: a kernel
//! that two compilations could have made differently stays what it is.
//!
//! | compiler | what ties code to it | what tells the operators |
//! |---|---|---|
//! | XLA | the code that it registered for debuggers, byte for byte; of a module that was loaded from the cache, the code in memory (`loaded`) | its dump (`--xla_dump_to`), or JAX's compilation cache |
//! | Inductor | the library that a kernel is in | the wrapper that calls it and the graph beside it, in Inductor's cache |
//!
//! Kernels of devices have no code here, only a name ([`device`]).

mod comment;
pub mod device;
mod folder;
pub mod hlo;
pub mod inductor;
mod loaded;
mod settings;
pub mod triton;
mod wrappers;
mod xla;

use std::fmt::Write as _;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::jit::{Found, Piece};
pub(crate) use settings::Settings;

/// Most processes whose compilers' files are followed.
const PROCESSES_MAX: usize = 64;
/// Most operators of one kernel that its text lists; more are counted.
const LISTED_MAX: usize = 24;

/// Which compiler made a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// XLA, of JAX and others.
    Xla,
    /// Inductor, of `torch.compile`.
    Inductor,
    /// Triton, of kernels that a program writes itself.
    Triton,
}

/// A line of the program, as it was when the operator was traced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Path of the file.
    pub file: Arc<str>,
    /// Function; empty when it is not known.
    pub function: Arc<str>,
    /// From 1; 0 when it is not known.
    pub line: u32,
}

/// An operator of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// As its framework names it: `jit(step)/dot_general`, `aten::mul`. Empty where only the line is known.
    pub name: Arc<str>,
    /// The lines that asked for it, outermost first; empty when they are not known, or not certain.
    pub stack: Vec<Line>,
}

/// What a kernel was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Who made it.
    pub compiler: Compiler,
    /// What was compiled: a module of XLA (`jit_step`), a kernel of Inductor (`cpp_fused_add_0`).
    pub unit: Arc<str>,
    /// Its operators, the one that it is named for first; empty when the files do not tell.
    pub ops: Vec<Op>,
    /// Operators of other lines that the very same kernel may be working for: equal kernels of a unit are made once.
    pub others: Vec<Op>,
}

/// A module that a process runs, as its runtime names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit<'a> {
    /// Its number in the process that compiled it.
    pub number: u64,
    /// Its name, or with `cut` the beginning of it.
    pub name: &'a str,
    /// The name is longer.
    pub cut: bool,
}

/// Why a kernel has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoKernel {
    /// It is not the code of a compiler that is known here.
    NotCompiled,
    /// The compiler was not asked to leave what it knows.
    NoFiles,
    /// The compiler's files do not have it, so far.
    NotThere,
    /// More than one compilation has this very code, and they mean different things by it.
    Ambiguous,
}

/// What is known of a kernel.
pub type Answer = Result<Arc<Kernel>, NoKernel>;

impl Kernel {
    /// The frame under which all of the unit stands.
    pub fn unit_label(&self) -> String {
        let compiler = match self.compiler {
            Compiler::Xla => "xla",
            Compiler::Inductor => "inductor",
            Compiler::Triton => "triton",
        };
        format!("[{compiler} {}]", self.unit)
    }

    /// The lines under which the kernel stands: those of the operator that it is named for, or, where no operator is, those
    /// that all of them have. Of a kernel that works for several lines, as far as these have the same callers.
    pub fn stack(&self) -> &[Line] {
        let Some(first) = self.ops.first() else { return &[] };
        let all = self.ops.iter().all(|op| op.stack == first.stack);
        if self.compiler == Compiler::Inductor && !all {
            return &[];
        }
        let shared = |op: &Op| op.stack.iter().zip(&first.stack).take_while(|(a, b)| a == b).count();
        let length = self.others.iter().map(shared).min().unwrap_or(first.stack.len());
        &first.stack[..length]
    }

    /// The operators in one text: those of another line than the kernel's with that line. `None` when none is known.
    pub fn operators(&self) -> Option<String> {
        let (first, rest) = self.ops.split_first().filter(|(first, _)| !first.name.is_empty())?;
        let line = self.stack().last();
        let place = |op: &Op| match op.stack.last() {
            Some(at) if Some(at) != line => {
                let file = at.file.rsplit('/').next().unwrap_or_default();
                format!(" {file}:{}", at.line)
            }
            _ => String::new(),
        };
        let mut text = format!("{}{}", first.name, place(first));
        let mut listed = Vec::new();
        for op in rest {
            // Within a fusion the last part tells enough: the scopes are those of the first one, mostly.
            let name = match self.compiler {
                Compiler::Xla => op.name.rsplit('/').next().unwrap_or_default(),
                Compiler::Inductor | Compiler::Triton => &op.name,
            };
            let part = format!("{name}{}", place(op));
            if !listed.contains(&part) {
                listed.push(part);
            }
        }
        let more = listed.len().saturating_sub(LISTED_MAX);
        listed.truncate(LISTED_MAX);
        if more > 0 {
            listed.push(format!("{more} more"));
        }
        let listed = listed.join(", ");
        // Writing to a text cannot fail.
        let _ = match (self.compiler, listed.is_empty()) {
            (_, true) => Ok(()),
            (Compiler::Xla, false) => write!(text, " [fused: {listed}]"),
            (Compiler::Inductor | Compiler::Triton, false) => write!(text, ", {listed}"),
        };
        for (n, op) in self.others.iter().take(LISTED_MAX).enumerate() {
            let _ = write!(text, "{}{}{}", if n == 0 { " [or: " } else { ", " }, op.name, place(op));
        }
        if !self.others.is_empty() {
            text.push(']');
        }
        Some(text)
    }
}

/// What is known of the compilers of all processes.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    xla: FxHashMap<u32, xla::Process>,
    inductor: FxHashMap<u32, wrappers::Process>,
    triton: FxHashMap<u32, triton::Process>,
}

impl Compiled {
    /// The kernel of a function that a process registered for debuggers. `pieces` are all that it registered; `settings` are
    /// asked for once.
    ///
    /// # Errors
    /// [`NoKernel`].
    pub(crate) fn generated<'a>(
        &mut self,
        pid: u32,
        time_ns: u64,
        piece: Piece<'a>,
        pieces: impl DoubleEndedIterator<Item = Piece<'a>>,
        settings: impl FnOnce() -> Settings,
    ) -> Answer {
        make_room(&mut self.xla, pid);
        let process = self.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings()));
        process.kernel(time_ns, piece, pieces)
    }

    /// The function at an address that a process loaded from a compiler's cache, in a mapping from and to these addresses;
    /// `settings` are asked for once.
    pub(crate) fn loaded(
        &mut self,
        pid: u32,
        time_ns: u64,
        mapping: [u64; 2],
        address: u64,
        settings: impl FnOnce() -> Settings,
    ) -> Option<Found> {
        make_room(&mut self.xla, pid);
        let process = self.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings()));
        process.loaded(pid, time_ns, mapping, address)
    }

    /// The kernel of a function that was found so.
    ///
    /// # Errors
    /// [`NoKernel`].
    pub(crate) fn loaded_kernel(&mut self, pid: u32, number: u64) -> Answer {
        self.xla.get_mut(&pid).map_or(Err(NoKernel::NotThere), |process| process.loaded_kernel(number))
    }

    /// The kernel of a function in a library of this path.
    ///
    /// # Errors
    /// [`NoKernel`].
    pub(crate) fn library(&mut self, pid: u32, time_ns: u64, path: &str, symbol: &str) -> Answer {
        let (folder, stem) =
            deepctx_names::inductor::kernel_library(path, symbol).ok_or(NoKernel::NotCompiled)?;
        make_room(&mut self.inductor, pid);
        let process = self.inductor.entry(pid).or_default();
        process.kernel(pid, time_ns, folder, stem)
    }

    /// What a kernel of a device was compiled from, by its name: `siblings` are others that came with the same code. `settings`
    /// are asked for once. True when more may be known later.
    pub(crate) fn device(
        &mut self,
        pid: u32,
        time_ns: u64,
        name: &str,
        siblings: &[&str],
        settings: impl FnOnce() -> Settings,
    ) -> (Answer, bool) {
        make_room(&mut self.xla, pid);
        make_room(&mut self.triton, pid);
        if !self.xla.contains_key(&pid) || !self.triton.contains_key(&pid) {
            let settings = settings();
            self.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings));
            self.triton.entry(pid).or_insert_with(|| triton::Process::new(pid, &settings));
        }
        let xla =
            self.xla.get_mut(&pid).map_or(Err(NoKernel::NoFiles), |xla| xla.device(time_ns, name, siblings));
        let triton =
            self.triton.get_mut(&pid).map_or(Err(NoKernel::NoFiles), |triton| triton.kernel(time_ns, name));
        device::either(xla, triton)
    }

    /// What a step of a module of XLA was made from; `settings` are asked for once.
    ///
    /// # Errors
    /// [`NoKernel`].
    pub(crate) fn step(
        &mut self,
        pid: u32,
        time_ns: u64,
        unit: Unit<'_>,
        step: &str,
        fused: bool,
        settings: impl FnOnce() -> Settings,
    ) -> Answer {
        make_room(&mut self.xla, pid);
        let process = self.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings()));
        process.step(time_ns, unit, step, fused)
    }

    /// What a file of Inductor launches.
    ///
    /// # Errors
    /// [`NoKernel`].
    pub(crate) fn launched_by(
        &mut self,
        pid: u32,
        time_ns: u64,
        path: &str,
    ) -> Result<device::Launches, NoKernel> {
        let (root, stem) = deepctx_names::inductor::generated_file(path).ok_or(NoKernel::NotCompiled)?;
        make_room(&mut self.inductor, pid);
        self.inductor.entry(pid).or_default().launches(pid, time_ns, root, stem)
    }

    /// The process has another program now.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.xla.remove(&pid);
        self.inductor.remove(&pid);
        self.triton.remove(&pid);
    }

    /// Keeps only some processes.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.xla.retain(|pid, _| keep(*pid));
        self.inductor.retain(|pid, _| keep(*pid));
        self.triton.retain(|pid, _| keep(*pid));
    }
}

/// What a process is known by is read again if it is asked for after it had to go.
fn make_room<T>(processes: &mut FxHashMap<u32, T>, pid: u32) {
    if processes.len() >= PROCESSES_MAX && !processes.contains_key(&pid) {
        processes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(name: &str, lines: &[u32]) -> Op {
        let line = |line: &u32| Line { file: "/srv/net.py".into(), function: "f".into(), line: *line };
        Op { name: name.into(), stack: lines.iter().map(line).collect() }
    }

    fn check(compiler: Compiler, ops: &[Op], stack: usize, text: Option<&str>) {
        let kernel = Kernel { compiler, unit: "u".into(), ops: ops.to_vec(), others: Vec::new() };
        assert_eq!((kernel.stack().len(), kernel.operators().as_deref()), (stack, text));
    }

    #[test]
    fn a_kernel_stands_at_its_line_and_names_the_lines_of_others() {
        use Compiler::{Inductor, Xla};
        check(Xla, &[], 0, None);
        check(Xla, &[op("jit(f)/mul", &[3, 7])], 2, Some("jit(f)/mul"));
        check(
            Xla,
            &[op("jit(f)/mul", &[3, 7]), op("jit(f)/g/add", &[3, 7]), op("jit(f)/exp", &[3, 8])],
            2,
            Some("jit(f)/mul [fused: add, exp net.py:8]"),
        );
        check(Inductor, &[op("aten::mul", &[7]), op("aten::tanh", &[7])], 1, Some("aten::mul, aten::tanh"));
        check(
            Inductor,
            &[op("aten::mul", &[7]), op("aten::tanh", &[8]), op("aten::exp", &[])],
            0,
            Some("aten::mul net.py:7, aten::tanh net.py:8, aten::exp"),
        );
    }

    #[test]
    fn a_kernel_that_works_for_several_lines_stands_where_they_part() {
        let others = vec![op("jit(f)/tanh", &[3, 8])];
        let ops = vec![op("jit(f)/tanh", &[3, 7])];
        let kernel = Kernel { compiler: Compiler::Xla, unit: "u".into(), ops, others };
        assert_eq!(kernel.stack().len(), 1);
        assert_eq!(kernel.operators().unwrap(), "jit(f)/tanh net.py:7 [or: jit(f)/tanh net.py:8]");
    }

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let ops: Vec<Op> = (0..40).map(|n| op(&format!("aten::op{n}"), &[])).collect();
        let kernel = Kernel { compiler: Compiler::Inductor, unit: "u".into(), ops, others: Vec::new() };
        assert!(kernel.operators().unwrap().ends_with(", aten::op24, 15 more"));
    }
}
