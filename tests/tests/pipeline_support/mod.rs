//! Records as text: a test's input to the pipeline, one line each, with its symbols.
//!
//! Owns: the notation. Because: a stage is tested by readable text, not by bytes. Does not: test anything.
//!
//! ```text
//! 10 sample 7/7 app f! g main            time, pid/tid, thread name, user frames leaf first; `!` marks an exact PC
//! 10 sample 7/8 app k:sys k:entry f main  kernel frames first, leaf first
//! 10 sample 7/7 app py:step@3 eval main   a Python frame with its line, before its native evaluation frame
//! 10 sample 7/7 app f gap:no-row native=no-row period=5 cpu=1
//! 10 block 7/7 app k:futex_w f! main      the thread leaves its CPU at 10
//! 25 wake 7/7 app since 10                and comes back; a number behind it says why no stack was sent
//! 10 fork 9 of 7 app      10 exec 9 tool      10 exit 9
//! 10 space 9 tool v2      the mappings of 9 were read: from now on native names end in `~v2`
//! lose 0 3                three numbers of CPU 0 go unused, as for dropped records
//! garbage 5               five bytes that are no record
//! batch                   ends a batch of records
//! advance 20              what is not younger than 20 is used
//! 10 duty begins          probes that have a budget are watched from 10 on; 20 duty ends: until 20
//!
//! 10 call 5 cuLaunchKernel 7/7 app function=0x100 grid-x=4 : ! g main   call number 5; arguments by their meaning; `!`
//!                         stands for the function itself, no `:` for no stack, `gap:no-row` at the end for one that
//!                         lacks its beginning; text=…, flags=limited
//! 12 return 5 out=0x100 entered=10      call 5 returned
//! 11 correlate 5 77       call 5 has the correlation id 77
//! 10 call 5 made 7/7 app sequence=3 forward-thread=1 : ! o.mm main     an operator makes autograd node 3
//! 20 call 6 pass 7/7 app stack-pointer=500 : ! main                    a backward pass begins
//! 21 call 7 node 7/7 app sequence=3 forward-thread=1 stack-pointer=400     the node begins
//!                         made2, pass2, step2: the same of a second copy of the framework
//! 10 call 1 named 7/7 app text=epoch : ! py:_in@1 py:main@3            a range is about to begin; `py:_…` are torch's own
//! 11 call 2 begins 7/7 app handle=0x40    90 call 9 ends 7/7 app handle=0x40   its record begins, and ends
//! 10 call 1 parallel 7/7 app host-function=100 count=2 : ! f main           a thread hands a function to its helpers
//! 10 call 1 starts 7/7 app return-address=9 stack-pointer=400 scope=0 : o.mm main     an operator begins
//! 10 call 5 new 7/7 app address=64 bytes=100 : ! f main                an allocation of a tensor; also report, malloc, alone
//! 20 call 6 delete 7/7 app address=64                                  and its end; also free
//! 10 call 1 t.Dot 7/7 app text=dot.3 unit=jit_f stack-pointer=100      a thunk of XLA's module `jit_f` begins
//! 20 kernel 7 id=77 start=1000 end=1500 name=1    a kernel of process 7 ran; also copy, fill, graph, overhead
//! 20 borrow 7 kernel id=77 start=1000 end=1500 name=_Z4gemmv    the same, as a record of another tool's; also copy, api
//! 20 pc 7 name=1 offset=0x20 reason=4 n=3    so many samples of an instruction; cubin= and id= too
//! 20 reason 7 4 NAME      20 cubin 7 77      what samples of process 7 say by numbers
//! lines 7 77 ok           lines of image 77 were read; any other word is why not
//! 20 name 7 1 _Z4gemmv    20 clock 7 1000 2000 2010    20 state 7 collecting 26
//! ```
//! A name is its own address (its bytes as a number), so names are at most seven ASCII characters. `a+b` is `a` with
//! `b` inlined; a name that begins with `?` has no name and gives the rest as the reason. `o.mm` is the function with
//! which PyTorch's operator `mm` begins, `r.mm` and `v.mm` are its dispatch, `d.x` dispatch that names no operator.
//! `e.` is the function of PyTorch's engine that runs a node, `t.Dot` that of XLA's `DotThunk`, `h.` where a thread
//! of XLA does the work of others. `c.` is the C library's, `g.` that of OpenMP's runtime. `b.` is in a mapping beyond
//! those that are kept of its process.

#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod calls;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::reasons;
use deepctx_common::record::{
    ProcessEvent, RecordHeader, StackSample, Wake, kind, sample_flag, wake_stack, word,
};
use deepctx_pipeline::input::{DutyWindow, Input, ProcessRefusal, SpaceUpdate};
use deepctx_pipeline::symbols::{
    CodeAddress, CompiledThunk, Name, NameReceiver, ProcessFacts, PythonReference, SpaceId, Symbols,
};
use deepctx_pipeline::{Config, Pipeline, encode};
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::{Meta, Profile};
use deepctx_profile::view::Selection;
use deepctx_storage::export::folded;

/// A step of a page.
#[derive(Debug)]
pub(crate) enum ReplayStep {
    /// Input for the pipeline.
    Feed(Input<String>),
    /// Use records up to this time.
    Advance(u64),
}

/// A name encoded as an address.
pub(crate) fn address(name: &str) -> u64 {
    assert!(name.len() <= 7 && name.is_ascii(), "{name} is too long to be an address");
    name.bytes().fold(0, |address, byte| address << 8 | u64::from(byte))
}

fn name(address: u64) -> String {
    address.to_be_bytes().iter().filter(|byte| **byte != 0).map(|byte| char::from(*byte)).collect()
}

/// The framework function for a short name with a prefix letter.
fn of_framework(short: &str) -> Option<String> {
    let (letter, operator) = short.split_once('.')?;
    Some(match letter {
        "o" => format!("at::_ops::{operator}::call()"),
        "r" => format!("at::_ops::{operator}::redispatch()"),
        "v" => format!("torch::autograd::VariableType::(anonymous namespace)::{operator}()"),
        "h" => "xla::cpu::SlinkyThreadPool::Impl::WorkOnTasks()".to_owned(),
        "t" => format!("xla::cpu::{operator}Thunk::Execute(xla::cpu::Thunk::ExecuteParams const&)"),
        "e" => "torch::autograd::Engine::evaluate_function(GraphTask&)".to_owned(),
        "d" => format!("c10::Dispatcher::{operator}()"),
        _ => return None,
    })
}

/// Parses a page.
#[expect(clippy::too_many_lines, reason = "one match with an arm for each line of the notation")]
pub(crate) fn steps(page: &str) -> Vec<ReplayStep> {
    let mut steps = Vec::new();
    let mut batch = Vec::new();
    let mut numbers = BTreeMap::new();
    let mut calls = calls::Calls::default();
    for line in page.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number =
            |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("{line}: {text} is no number"));
        let end_batch = |steps: &mut Vec<ReplayStep>, batch: &mut Vec<u8>| {
            if !batch.is_empty() {
                steps.push(ReplayStep::Feed(Input::Records(std::mem::take(batch))));
            }
        };
        match words[..] {
            ["batch"] => end_batch(&mut steps, &mut batch),
            ["advance", time] => {
                end_batch(&mut steps, &mut batch);
                steps.push(ReplayStep::Advance(number(time)));
            }
            ["calls-end", time] => steps.push(ReplayStep::Feed(Input::CallsEnd(number(time)))),
            ["lines", pid, crc, because] => {
                end_batch(&mut steps, &mut batch);
                steps.push(ReplayStep::Feed(calls::lines(number(pid) as u32, number(crc), because)));
            }
            ["lose", cpu, n] => *numbers.entry(number(cpu) as u16).or_insert(0) += number(n),
            ["garbage", n] => batch.extend(std::iter::repeat_n(0xff, number(n) as usize)),
            [time, "duty", edge @ ("begins" | "ends")] => {
                end_batch(&mut steps, &mut batch);
                let watched = edge == "begins";
                let (budget, what) = ("10%".to_owned(), "probes".to_owned());
                steps.push(ReplayStep::Feed(Input::DutyWindow(DutyWindow {
                    time_ns: number(time),
                    watched,
                    budget,
                    what,
                })));
            }
            [time, "space", pid, process, maps] => {
                end_batch(&mut steps, &mut batch);
                let (pid, time_ns) = (number(pid) as u32, number(time));
                let update = SpaceUpdate { pid, time_ns, name: process.into(), maps: maps.into() };
                steps.push(ReplayStep::Feed(Input::Space(update)));
            }
            [time, "sample", who, comm, ref rest @ ..] => {
                sample(&mut batch, &mut numbers, number(time), kind::SAMPLE, who, comm, rest);
            }
            [time, "block", who, comm, ref rest @ ..] => {
                sample(&mut batch, &mut numbers, number(time), kind::BLOCK, who, comm, rest);
            }
            [time, "wake", who, comm, "since", since, ref rest @ ..] => {
                let (pid, tid) = who.split_once('/').expect("pid/tid");
                let wake = Wake {
                    header: header(&mut numbers, number(time), 0),
                    pid: number(pid) as u32,
                    tid: number(tid) as u32,
                    began_ns: number(since),
                    comm: encode::comm(comm),
                    stack: rest.first().map_or(wake_stack::SENT, |reason| number(reason) as u32),
                    ..Wake::default()
                };
                encode::wake(&mut batch, &wake);
            }
            [time, what @ ("fork" | "exec" | "exit"), pid, ref rest @ ..] => {
                let (parent, comm) = match rest {
                    ["of", parent, comm] => (number(parent) as u32, *comm),
                    [comm] => (0, *comm),
                    _ => (0, ""),
                };
                let kind = match what {
                    "fork" => kind::FORK,
                    "exec" => kind::EXEC,
                    _ => kind::EXIT,
                };
                let header = RecordHeader { kind, ..header(&mut numbers, number(time), 0) };
                let comm = encode::comm(comm);
                encode::process_event(
                    &mut batch,
                    &ProcessEvent { header, pid: number(pid) as u32, parent, comm },
                );
            }
            _ => match calls.line(&mut batch, &mut numbers, &words) {
                // Probes precede their records.
                Some(Some(site)) => steps.push(ReplayStep::Feed(Input::Sites(vec![site]))),
                Some(None) => {}
                None => panic!("not in the notation: {line}"),
            },
        }
    }
    if !batch.is_empty() {
        steps.push(ReplayStep::Feed(Input::Records(batch)));
    }
    steps
}

fn header(numbers: &mut BTreeMap<u16, u64>, time_ns: u64, cpu: u16) -> RecordHeader {
    let sequence = numbers.entry(cpu).or_insert(0);
    *sequence += 1;
    RecordHeader { cpu, sequence: *sequence, time_ns, ..RecordHeader::default() }
}

/// The end of a Python walk by its key, without the common prefix.
fn python_end(key: &str) -> PythonEnd {
    let found = PythonEnd::ALL.iter().find(|end| end.key().strip_prefix("python-") == Some(key));
    *found.expect("an end of a Python walk")
}

/// The same for a kernel walk.
fn kernel_end(key: &str) -> KernelEnd {
    let found = KernelEnd::ALL.iter().find(|end| end.key().strip_prefix("kernel-stack-") == Some(key));
    *found.expect("an end of a kernel walk")
}

reasons! {
    class Unnamed, page "loss.md";
    const JIT = "jit", "no name";
    const STRIPPED = "stripped", "no name";
    const GENERATED = "jit-of-test", "no name";
}

fn sample(
    batch: &mut Vec<u8>,
    numbers: &mut BTreeMap<u16, u64>,
    time_ns: u64,
    kind: u16,
    who: &str,
    comm: &str,
    rest: &[&str],
) {
    let (pid, tid) = who.split_once('/').expect("pid/tid");
    let mut fixed = StackSample {
        pid: pid.parse().unwrap(),
        tid: tid.parse().unwrap(),
        comm: encode::comm(comm),
        period: 1,
        ..StackSample::default()
    };
    let (mut kernel, mut user, mut cpu) = (Vec::new(), Vec::new(), 0);
    let walk_end = |key: &str| WalkEnd::ALL.iter().find(|end| end.key() == key).copied().expect("an end");
    for word_text in rest {
        if let Some((option, value)) = word_text.split_once('=') {
            match option {
                "native" => fixed.native_end = value.parse().unwrap_or_else(|_| walk_end(value) as u8),
                "python" => {
                    fixed.python_end = python_end(value) as u8;
                }
                "kernel" => {
                    fixed.kernel_end = kernel_end(value) as u8;
                }
                "flags" => fixed.flags = value.parse().unwrap(),
                "period" => fixed.period = value.parse().unwrap(),
                "cpu" => cpu = value.parse().unwrap(),
                _ => panic!("unknown option {option}"),
            }
        } else if let Some(symbol) = word_text.strip_prefix("k:") {
            kernel.push(address(symbol));
        } else if let Some(words) = python_words(word_text) {
            fixed.python_frames += 1;
            user.extend(words);
        } else if let Some(key) = word_text.strip_prefix("gap:python-") {
            user.push(word::tagged(word::GAP, word::PYTHON_GAP | python_end(key) as u64));
        } else if let Some(end) = word_text.strip_prefix("gap:") {
            user.push(word::tagged(word::GAP, walk_end(end) as u64));
        } else if let Some(raw) = word_text.strip_prefix("raw:") {
            user.push(u64::from_str_radix(raw, 16).unwrap());
        } else if let Some(symbol) = word_text.strip_suffix('!') {
            user.push(word::tagged(word::EXACT, address(symbol)));
        } else {
            user.push(word::tagged(word::RETURN, address(word_text)));
        }
    }
    fixed.header = RecordHeader { kind, ..header(numbers, time_ns, cpu) };
    if kind == kind::BLOCK {
        fixed.flags |= sample_flag::OFF_CPU;
        fixed.period = time_ns;
    }
    encode::sample(batch, &fixed, &kernel, &user);
}

/// Symbols that decode names from addresses and count requests.
#[derive(Debug, Default)]
pub(crate) struct NamesInAddresses {
    versions: BTreeMap<u32, Vec<(u64, SpaceId, String, String)>>,
    suffixes: Vec<String>,
    /// Calls and addresses of each kind of request.
    pub(crate) asked: BTreeMap<&'static str, (usize, usize)>,
    /// User addresses by name, each with the time that its request stated.
    pub(crate) asked_at: Vec<(String, u64)>,
    /// If set, requests go unanswered.
    pub(crate) silent: bool,
    /// The next question whether names of the kernel changed is answered with this.
    pub(crate) kernel_renamed: bool,
    /// The process of the profiler itself.
    pub(crate) own: Option<u32>,
    /// A process without unwind data, when, and why.
    pub(crate) refused: Option<(u32, Range<u64>, ProcessRefusal)>,
    /// If set, nobody answers for a process that has ended.
    pub(crate) forgets_users: bool,
    ended: BTreeSet<u32>,
}

impl NamesInAddresses {
    fn push(&mut self, pid: u32, time_ns: u64, process: &str, maps: &str) {
        let id = SpaceId(self.suffixes.len() as u32);
        self.suffixes.push(maps.into());
        self.versions.entry(pid).or_default().push((time_ns, id, process.into(), maps.into()));
    }

    fn version(&mut self, pid: u32, time_ns: u64) -> &(u64, SpaceId, String, String) {
        if !self.versions.contains_key(&pid) {
            self.push(pid, 0, "", "");
        }
        let versions = &self.versions[&pid];
        let at = versions.partition_point(|version| version.0 <= time_ns);
        &versions[at.saturating_sub(1)]
    }

    fn count(&mut self, kind: &'static str, addresses: usize) {
        let (calls, sum) = self.asked.entry(kind).or_default();
        (*calls, *sum) = (*calls + 1, *sum + addresses);
    }
}

impl ProcessFacts for NamesInAddresses {
    fn accountable_user(&mut self, pid: u32) -> Option<u32> {
        (!self.forgets_users || !self.ended.contains(&pid)).then_some(pid / PIDS_OF_USER)
    }

    fn is_own(&mut self, pid: u32) -> bool {
        self.own == Some(pid)
    }

    fn refusal(&mut self, pid: u32, time_ns: u64) -> Option<ProcessRefusal> {
        let (refused, times_ns, refusal) = self.refused.as_ref()?;
        (*refused == pid && times_ns.contains(&time_ns)).then_some(*refusal)
    }

    fn compiled_thunk(&mut self, thunk: &CompiledThunk<'_>, answer: &mut dyn FnMut(&[Name<'_>])) {
        self.count("compiled-thunks", 1);
        if let Some(line) = thunk.name.strip_prefix("dot.").and_then(|number| number.parse().ok()) {
            let unit = format!("[xla {}]", thunk.unit);
            let line = Name::Traced { function: "loss", file: "net.py", line };
            answer(&[Name::Compiled { name: &unit }, line, Name::Compiled { name: "jit(f)/dot" }]);
        }
    }
}

impl Symbols for NamesInAddresses {
    type Space = String;

    fn replacement_seen(&mut self, _: u32) {}

    fn python_seen(&mut self, _: u32, frames: &[PythonReference]) {
        self.count("python-seen", frames.len());
    }

    fn space_changed(&mut self, update: SpaceUpdate<String>) {
        self.push(update.pid, update.time_ns, &update.name, &update.maps);
    }

    fn forked(&mut self, event: &ProcessEvent) {
        let (_, _, process, maps) = self.version(event.parent, event.header.time_ns).clone();
        self.push(event.pid, event.header.time_ns, &process, &maps);
    }

    fn replaced(&mut self, event: &ProcessEvent) {
        let process = String::from_utf8_lossy(&event.comm).trim_end_matches('\0').to_owned();
        self.push(event.pid, event.header.time_ns, &process, "");
    }

    fn on_exit(&mut self, event: &ProcessEvent) {
        self.ended.insert(event.pid);
    }

    fn retire(&mut self, _: u64) {}

    fn space(&mut self, pid: u32, time_ns: u64) -> SpaceId {
        self.version(pid, time_ns).1
    }

    fn process_name(&mut self, pid: u32, time_ns: u64) -> Option<&str> {
        Some(self.version(pid, time_ns).2.as_str())
    }

    fn user(
        &mut self,
        space: SpaceId,
        addresses: &[CodeAddress],
        times_ns: &[u64],
        answer: &mut NameReceiver<'_>,
    ) {
        self.count("user", addresses.len());
        let named = addresses.iter().map(|(CodeAddress::Exact(at) | CodeAddress::Return(at))| name(*at));
        self.asked_at.extend(named.zip(times_ns.iter().copied()));
        if self.silent {
            return;
        }
        let maps = self.suffixes[space.0 as usize].clone();
        for (n, CodeAddress::Exact(address) | CodeAddress::Return(address)) in addresses.iter().enumerate() {
            let text = name(*address);
            if let Some(key) = text.strip_prefix('?') {
                let reason = match key {
                    "jit" => JIT,
                    "made" => GENERATED,
                    _ => STRIPPED,
                };
                answer(n, &[Name::NativeUnnamed { module: "", offset: *address, reason }]);
                continue;
            }
            // `fusion^step`: a function that was compiled from the unit `step`.
            if let Some((symbol, unit)) = text.split_once('^') {
                let (unit, file) = (format!("[xla {unit}]"), "/src/m.py");
                let traced = Name::Traced { function: "traced", file, line: 3 };
                let native = Name::Native { symbol, module: "", file: "", line: 0, inlined: false };
                answer(n, &[Name::Compiled { name: &unit }, traced, native]);
                continue;
            }
            let full: Vec<String> = text
                .split('+')
                .map(|part| of_framework(part).unwrap_or_else(|| part.to_owned()))
                .map(|part| if maps.is_empty() { part } else { format!("{part}~{maps}") })
                .collect();
            let names: Vec<_> = full
                .iter()
                .enumerate()
                .map(|(depth, symbol)| Name::Native {
                    symbol,
                    module: match text.split_once('.') {
                        Some(("c", _)) => "/lib/libc.so.6",
                        Some(("g", _)) => "/lib/libgomp.so.1",
                        _ => "/lib/x.so",
                    },
                    file: "",
                    line: 0,
                    inlined: depth > 0,
                })
                .collect();
            answer(n, &names);
        }
    }

    fn left_out(&mut self, _: SpaceId, addresses: &[CodeAddress], _: &[u64], answer: &mut dyn FnMut(usize)) {
        for (n, CodeAddress::Exact(address) | CodeAddress::Return(address)) in addresses.iter().enumerate() {
            if name(*address).starts_with("b.") {
                answer(n);
            }
        }
    }

    fn python(&mut self, _: SpaceId, frames: &[PythonReference], answer: &mut NameReceiver<'_>) {
        self.count("python", frames.len());
        for (n, frame) in frames.iter().enumerate() {
            let function = name(frame.code);
            let line = frame.instruction.unwrap_or(0);
            let own = function.starts_with('_');
            let file = if own { "/lib/torch/autograd/profiler.py" } else { "/src/m.py" };
            answer(n, &[Name::Python { function: &function, file, line, first_line: 1 }]);
        }
    }

    fn kernel_renamed(&mut self) -> bool {
        std::mem::take(&mut self.kernel_renamed)
    }

    fn kernel(&mut self, addresses: &[CodeAddress], answer: &mut NameReceiver<'_>) {
        self.count("kernel", addresses.len());
        for (n, CodeAddress::Exact(address) | CodeAddress::Return(address)) in addresses.iter().enumerate() {
            answer(n, &[Name::Kernel { symbol: &name(*address) }]);
        }
    }
}

/// The words of `py:step@3`; `None` for any other text.
pub(crate) fn python_words(text: &str) -> Option<[u64; 2]> {
    let function = text.strip_prefix("py:")?;
    let (function, line) = function.split_once('@').unwrap_or((function, "0"));
    Some([word::tagged(word::PYTHON, address(function)), word::python_detail(0, line.parse().unwrap())])
}

/// Numbers of processes of each user: the first ones are root's.
pub(crate) const PIDS_OF_USER: u32 = 100_000;

/// A pipeline without lookahead, so that the times on a page mean what they say.
pub(crate) fn config() -> Config {
    Config { mapping_lookahead_ns: 0, ..Config::default() }
}

/// Runs a page to its end.
pub(crate) fn run(page: &str) -> Pipeline<NamesInAddresses> {
    run_with(page, config())
}

/// Runs a page to its end.
pub(crate) fn run_with(page: &str, config: Config) -> Pipeline<NamesInAddresses> {
    let mut pipeline = Pipeline::new(NamesInAddresses::default(), Meta::default(), config);
    for step in steps(page) {
        match step {
            ReplayStep::Feed(input) => pipeline.feed(input),
            ReplayStep::Advance(time) => pipeline.advance(time),
        }
    }
    pipeline.finish();
    pipeline
}

/// Records → folded stacks.
#[track_caller]
pub(crate) fn check_stacks(records: &str, expect: &str) {
    let mut pipeline = run(records);
    assert_eq!(folded(pipeline.profile()), page(expect));
    pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
}

/// Records → losses and gaps of a stage.
#[track_caller]
pub(crate) fn check_gaps(stage: &str, records: &str, expect: &str) {
    let mut pipeline = run(records);
    let all = losses(pipeline.profile());
    let ours: String =
        all.lines().filter(|line| line.starts_with(stage)).map(|line| format!("{line}\n")).collect();
    assert_eq!(ours, page(expect));
    pipeline.profile().ledger.check(CheckTime::Finished).unwrap();
}

/// Feeds a page with damaged records: at each of these positions a byte is changed. The ledger must add up after each
/// step.
pub(crate) fn feed_damaged(
    pipeline: &mut Pipeline<NamesInAddresses>,
    page: &str,
    damage: &[(proptest::sample::Index, u8)],
) {
    for step in steps(page) {
        match step {
            ReplayStep::Feed(Input::Records(mut bytes)) => {
                for (index, value) in damage {
                    let at = index.index(bytes.len());
                    bytes[at] = *value;
                }
                pipeline.feed(Input::Records(bytes));
            }
            ReplayStep::Feed(input) => pipeline.feed(input),
            ReplayStep::Advance(time) => pipeline.advance(time),
        }
        pipeline.profile().ledger.check(CheckTime::Running).unwrap();
    }
}

/// Folded stacks of a profile by samples, with every frame.
pub(crate) fn folded(profile: &Profile) -> String {
    folded_as(profile, Selection { interpreter: true, ..Selection::of(Metric::Samples) })
}

/// Folded stacks of a selection.
pub(crate) fn folded_as(profile: &Profile, selection: Selection) -> String {
    let mut out = Vec::new();
    folded::write(profile, &selection, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The ledger's rows as text, one line each.
pub(crate) fn losses(profile: &Profile) -> String {
    let rows = profile.ledger.rows();
    rows.iter()
        .map(|row| {
            format!("{} {} {}{}\n", row.stage, row.reason, row.count, if row.lost { " lost" } else { "" })
        })
        .collect()
}

/// Text without the source file's indentation.
pub(crate) fn page(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}
