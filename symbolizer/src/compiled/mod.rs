//! The origin of compiled kernels: operators of a framework, and the source lines that they come from.
//!
//! Owns: the form of an origin, and the state of each process. Because: a compiler fuses operators of many lines into
//! one kernel, and only its files (dumps, caches) say which. Does not: find code or its names, or guess: a kernel
//! that two compilations explain differently has no origin.
//!
//! | compiler | identifies the code by | takes the operators from |
//! |---|---|---|
//! | XLA | the code registered for debuggers, byte for byte; for a module loaded from the cache, the code in memory (`cached_code`) | its dump (`--xla_dump_to`), or JAX's compilation cache |
//! | Inductor | the library that contains the kernel | the wrapper that calls it and the graph beside it, in Inductor's cache |
//!
//! Of device kernels only the name is known, not the code ([`device_kernels`]).

mod cached_code;
pub mod device_kernels;
pub mod hlo;
pub mod inductor;
mod inductor_cache;
mod inductor_comment;
mod settings;
pub mod triton_cache;
mod xla;

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deepctx_address_space::time_account::{Terms, TimeAccounts};
use deepctx_address_space::{GONE_USER, accountable_user, thread_cpu_time};
use deepctx_common::reasons;
use rustc_hash::FxHashMap;

use crate::jit::{LocatedFunction, RegisteredFunction};
pub(crate) use settings::Settings;

/// Most processes whose compiler files are read.
const PROCESSES_MAX: usize = 64;
/// CPU time for the compiler files of one user: samples of others wait for their names meanwhile.
const READING: Terms =
    Terms { credit: Duration::from_secs(10), least: Duration::from_millis(10), regained: 10 };
/// Most operators of one kernel in its text; the number of further ones is appended.
const LISTED_MAX: usize = 24;

/// The compiler of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// XLA, of JAX and others.
    Xla,
    /// Inductor, of `torch.compile`.
    Inductor,
    /// Triton, for kernels written by the user.
    Triton,
}

/// A line of the program, as of the time when the operator was traced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Path of the file.
    pub file: Arc<str>,
    /// Function; empty when not known.
    pub function: Arc<str>,
    /// Line number from 1; 0 when not known.
    pub line: u32,
}

/// An operator of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Name in the framework: `jit(step)/dot_general`, `aten::mul`. Empty when only the line is known.
    pub name: Arc<str>,
    /// The source lines that it comes from, outermost first; empty when not known or not certain.
    pub stack: Vec<SourceLine>,
}

/// What a kernel was compiled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelOrigin {
    /// Its compiler.
    pub compiler: Compiler,
    /// The compilation unit: an XLA module (`jit_step`), an Inductor kernel (`cpp_fused_add_0`).
    pub unit: Arc<str>,
    /// Its operators, the one that it is named after first; empty when the files do not contain them.
    pub ops: Vec<Operator>,
    /// Operators of other lines that share this kernel: equal kernels of a unit are compiled once.
    pub others: Vec<Operator>,
}

/// An XLA module, as the runtime identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XlaModule<'a> {
    /// Number in the process that compiled it.
    pub number: u64,
    /// Name, or the beginning of it if `truncated`.
    pub name: &'a str,
    /// The name is longer.
    pub truncated: bool,
}

reasons! {
    class Unread, page "compiled.md";
    /// Why the origin of a kernel is not known.
    pub enum NoOrigin {
        NotCompiled, "origin-not-compiled", "the code is not from a supported compiler";
        /// It writes no files.
        NoFiles, "origin-without-files", "the compiler's dump or cache is not enabled";
        /// So far.
        NotFound, "origin-not-found", "the files of the compiler do not contain the kernel";
        /// More than one compilation.
        Ambiguous, "origin-ambiguous", "several compilations have this code, from different operators";
        OverShare, "origin-over-share",
            "reading compilers' files of the same user took too long, and those of this code had not been read by then";
        Defect, "origin-defect", "reading the compiler's files failed because of a defect of the profiler";
    }
}

impl std::error::Error for NoOrigin {}

/// The origin of a kernel, or the reason why it is not known.
pub type OriginResult = Result<Arc<KernelOrigin>, NoOrigin>;

impl KernelOrigin {
    /// The label of the frame of the compilation unit.
    pub fn unit_label(&self) -> String {
        let compiler = match self.compiler {
            Compiler::Xla => "xla",
            Compiler::Inductor => "inductor",
            Compiler::Triton => "triton",
        };
        format!("[{compiler} {}]", self.unit)
    }

    /// The source lines of the kernel: those of the operator that it is named after, or, for Inductor, those that all
    /// operators share. For a kernel shared by several lines, their common callers.
    pub fn stack(&self) -> &[SourceLine] {
        let Some(first) = self.ops.first() else { return &[] };
        let all = self.ops.iter().all(|op| op.stack == first.stack);
        if self.compiler == Compiler::Inductor && !all {
            return &[];
        }
        let shared = |op: &Operator| op.stack.iter().zip(&first.stack).take_while(|(a, b)| a == b).count();
        let length = self.others.iter().map(shared).min().unwrap_or(first.stack.len());
        &first.stack[..length]
    }

    /// The operators as one text, with the lines of those from other lines than the kernel's. `None` when none is
    /// known.
    pub fn operators(&self) -> Option<String> {
        let (first, rest) = self.ops.split_first().filter(|(first, _)| !first.name.is_empty())?;
        let line = self.stack().last();
        let place = |op: &Operator| match op.stack.last() {
            Some(at) if Some(at) != line => {
                let file = at.file.rsplit('/').next().unwrap_or_default();
                format!(" {file}:{}", at.line)
            }
            _ => String::new(),
        };
        let mut text = format!("{}{}", first.name, place(first));
        let mut listed = Vec::new();
        for op in rest {
            // Within a fusion the last part of the name is enough: the scopes are mostly those of the first operator.
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
        // Writing to a `String` cannot fail.
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

/// The compiler files of all processes.
#[derive(Debug)]
pub(crate) struct CompilerFiles {
    xla: FxHashMap<u32, xla::Process>,
    inductor: FxHashMap<u32, inductor_cache::Process>,
    triton: FxHashMap<u32, triton_cache::Process>,
    /// Users by process.
    users: FxHashMap<u32, u32>,
    accounts: TimeAccounts,
}

impl Default for CompilerFiles {
    fn default() -> Self {
        Self {
            xla: FxHashMap::default(),
            inductor: FxHashMap::default(),
            triton: FxHashMap::default(),
            users: FxHashMap::default(),
            accounts: TimeAccounts::new(READING),
        }
    }
}

impl CompilerFiles {
    /// Charges the time of `read` to the user of a process; `None` if none of it is left.
    fn charged<T>(&mut self, pid: u32, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let user = *self.users.entry(pid).or_insert_with(|| accountable_user(pid).unwrap_or(GONE_USER));
        if !self.accounts.allows(user, Instant::now()) {
            return None;
        }
        let began = thread_cpu_time();
        let answer = read(self);
        self.accounts.charge(user, thread_cpu_time().saturating_sub(began), Instant::now());
        Some(answer)
    }

    /// The origin of a function that a process registered for debuggers. `registered` are all functions that it
    /// registered; `settings` is called at most once.
    ///
    /// # Errors
    /// [`NoOrigin`].
    pub(crate) fn generated<'a>(
        &mut self,
        pid: u32,
        time_ns: u64,
        function: RegisteredFunction<'a>,
        registered: impl DoubleEndedIterator<Item = RegisteredFunction<'a>>,
        settings: impl FnOnce() -> Settings,
    ) -> OriginResult {
        let read = |this: &mut Self| {
            make_room(&mut this.xla, pid);
            let process = this.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings()));
            process.kernel(time_ns, function, registered)
        };
        self.charged(pid, read).unwrap_or(Err(NoOrigin::OverShare))
    }

    /// The function at an address that a process loaded from a compilation cache, in this mapping; `settings` is
    /// called at most once.
    pub(crate) fn cached_function(
        &mut self,
        pid: u32,
        time_ns: u64,
        mapping: Range<u64>,
        address: u64,
        settings: impl FnOnce() -> Settings,
    ) -> Option<LocatedFunction> {
        let read = |this: &mut Self| {
            make_room(&mut this.xla, pid);
            let process = this.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings()));
            process.cached_function(pid, time_ns, mapping, address)
        };
        self.charged(pid, read).flatten()
    }

    /// The origin of a function of a compilation cache.
    ///
    /// # Errors
    /// [`NoOrigin`].
    pub(crate) fn cached_kernel(&mut self, pid: u32, key: u64) -> OriginResult {
        let read = |this: &mut Self| {
            this.xla.get_mut(&pid).map_or(Err(NoOrigin::NotFound), |process| process.cached_kernel(key))
        };
        self.charged(pid, read).unwrap_or(Err(NoOrigin::OverShare))
    }

    /// The origin of a function in the library with this path.
    ///
    /// # Errors
    /// [`NoOrigin`].
    pub(crate) fn library(&mut self, pid: u32, time_ns: u64, path: &str, symbol: &str) -> OriginResult {
        let (folder, stem) =
            deepctx_names::inductor::kernel_library(path, symbol).ok_or(NoOrigin::NotCompiled)?;
        let read = |this: &mut Self| {
            make_room(&mut this.inductor, pid);
            this.inductor.entry(pid).or_default().kernel(pid, time_ns, folder, stem)
        };
        self.charged(pid, read).unwrap_or(Err(NoOrigin::OverShare))
    }

    /// The origin of a device kernel, by its name; `siblings` are kernels that were loaded with the same code.
    /// `settings` is called at most once. True when more may be known later.
    pub(crate) fn device(
        &mut self,
        pid: u32,
        time_ns: u64,
        name: &str,
        siblings: &[&str],
        settings: impl FnOnce() -> Settings,
    ) -> (OriginResult, bool) {
        let read = |this: &mut Self| {
            make_room(&mut this.xla, pid);
            make_room(&mut this.triton, pid);
            if !this.xla.contains_key(&pid) || !this.triton.contains_key(&pid) {
                let settings = settings();
                this.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings));
                this.triton.entry(pid).or_insert_with(|| triton_cache::Process::new(pid, &settings));
            }
            let (xla, triton) = (this.xla.get_mut(&pid), this.triton.get_mut(&pid));
            let xla = xla.map_or(Err(NoOrigin::NoFiles), |xla| xla.device(time_ns, name, siblings));
            let triton = triton.map_or(Err(NoOrigin::NoFiles), |triton| triton.kernel(time_ns, name));
            device_kernels::either(xla, triton)
        };
        self.charged(pid, read).unwrap_or((Err(NoOrigin::OverShare), true))
    }

    /// The origin of a thunk of an XLA module; `settings` is called at most once.
    ///
    /// # Errors
    /// [`NoOrigin`].
    pub(crate) fn thunk(
        &mut self,
        pid: u32,
        time_ns: u64,
        module: XlaModule<'_>,
        thunk: &str,
        fused: bool,
        settings: impl FnOnce() -> Settings,
    ) -> OriginResult {
        let read = |this: &mut Self| {
            make_room(&mut this.xla, pid);
            let process = this.xla.entry(pid).or_insert_with(|| xla::Process::new(pid, &settings()));
            process.thunk(time_ns, module, thunk, fused)
        };
        self.charged(pid, read).unwrap_or(Err(NoOrigin::OverShare))
    }

    /// The kernels that a file of Inductor launches.
    ///
    /// # Errors
    /// [`NoOrigin`].
    pub(crate) fn launches_of(
        &mut self,
        pid: u32,
        time_ns: u64,
        path: &str,
    ) -> Result<device_kernels::FileLaunches, NoOrigin> {
        let (root, stem) = deepctx_names::inductor::generated_file(path).ok_or(NoOrigin::NotCompiled)?;
        let read = |this: &mut Self| {
            make_room(&mut this.inductor, pid);
            this.inductor.entry(pid).or_default().launches(pid, time_ns, root, stem)
        };
        self.charged(pid, read).unwrap_or(Err(NoOrigin::OverShare))
    }

    /// Drops the process, which runs another program now.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.xla.remove(&pid);
        self.inductor.remove(&pid);
        self.triton.remove(&pid);
        self.users.remove(&pid);
    }

    /// Keeps the processes for which `keep` is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.xla.retain(|pid, _| keep(*pid));
        self.inductor.retain(|pid, _| keep(*pid));
        self.triton.retain(|pid, _| keep(*pid));
        self.users.retain(|pid, _| keep(*pid));
    }
}

/// Drops processes when full; their files are read again when needed. A user never loses processes to one with more.
fn make_room<T>(processes: &mut FxHashMap<u32, T>, pid: u32) {
    if processes.len() >= PROCESSES_MAX && !processes.contains_key(&pid) {
        let owners: Vec<_> = processes.keys().map(|pid| (*pid, accountable_user(*pid))).collect();
        for pid in to_drop(&owners) {
            processes.remove(&pid);
        }
    }
}

/// The processes to drop, given their users: all that are gone, otherwise one of the user with the most.
fn to_drop(owners: &[(u32, Option<u32>)]) -> Vec<u32> {
    let gone: Vec<u32> = owners.iter().filter(|(_, user)| user.is_none()).map(|(pid, _)| *pid).collect();
    if !gone.is_empty() {
        return gone;
    }
    let mut of_user: FxHashMap<Option<u32>, Vec<u32>> = FxHashMap::default();
    for (pid, user) in owners {
        of_user.entry(*user).or_default().push(*pid);
    }
    let greediest = of_user.into_values().max_by_key(Vec::len);
    greediest.into_iter().filter_map(|theirs| theirs.into_iter().min()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_by_the_gone_then_by_the_greediest() {
        let check =
            |owners: &[(u32, Option<u32>)], expect: &[u32]| assert_eq!(to_drop(owners), expect, "{owners:?}");
        check(&[(1, Some(0)), (2, None), (3, Some(7)), (4, None)], &[2, 4]);
        check(&[(1, Some(0)), (9, Some(7)), (3, Some(7)), (4, Some(8))], &[3]);
        check(&[], &[]);
    }

    #[test]
    fn files_of_users_over_their_time_are_read_later() {
        let (own, mut files) = (std::process::id(), CompilerFiles::default());
        assert_eq!(files.cached_kernel(own, 7), Err(NoOrigin::NotFound));
        let user = accountable_user(own).unwrap();
        // Twice, so that what is regained until the question does not matter.
        files.accounts.charge(user, READING.credit * 2, Instant::now());
        assert_eq!(files.cached_kernel(own, 7), Err(NoOrigin::OverShare));
        assert_eq!(files.cached_kernel(u32::MAX, 7), Err(NoOrigin::NotFound), "of another user");
    }

    fn op(name: &str, lines: &[u32]) -> Operator {
        let line = |line: &u32| SourceLine { file: "/srv/net.py".into(), function: "f".into(), line: *line };
        Operator { name: name.into(), stack: lines.iter().map(line).collect() }
    }

    fn check(compiler: Compiler, ops: &[Operator], stack: usize, text: Option<&str>) {
        let kernel = KernelOrigin { compiler, unit: "u".into(), ops: ops.to_vec(), others: Vec::new() };
        assert_eq!((kernel.stack().len(), kernel.operators().as_deref()), (stack, text));
    }

    #[test]
    fn the_text_has_lines_of_operators_from_other_lines() {
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
    fn a_shared_kernel_has_the_common_callers() {
        let others = vec![op("jit(f)/tanh", &[3, 8])];
        let ops = vec![op("jit(f)/tanh", &[3, 7])];
        let kernel = KernelOrigin { compiler: Compiler::Xla, unit: "u".into(), ops, others };
        assert_eq!(kernel.stack().len(), 1);
        assert_eq!(kernel.operators().unwrap(), "jit(f)/tanh net.py:7 [or: jit(f)/tanh net.py:8]");
    }

    #[test]
    fn a_long_list_of_operators_is_truncated() {
        let ops: Vec<Operator> = (0..40).map(|n| op(&format!("aten::op{n}"), &[])).collect();
        let kernel = KernelOrigin { compiler: Compiler::Inductor, unit: "u".into(), ops, others: Vec::new() };
        assert!(kernel.operators().unwrap().ends_with(", aten::op24, 15 more"));
    }
}
