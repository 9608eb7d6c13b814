//! `dump`: where every thread of some processes is at this moment, without stopping them.
//!
//! Owns: turning the options into a configuration, and the text and JSON of a dump. Because: a user with a hanging
//! job wants one readable page: threads with equal stacks appear once. Does not: read stacks or decide what a thread
//! waits for (`deepctx_session::dump`).

mod ranks;

use deepctx_profile::order::SortRows as _;
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};

use deepctx_capture::dump::DumpConfig;
use deepctx_capture::{CaptureError, Targets, doctor, find_job};
use deepctx_profile::frame::{FrameKind, short_labels};
use deepctx_profile::units::counted;
use deepctx_session::dump::{self, Dump, DumpedFrame, DumpedProcess, DumpedThread, FrameRole, Wait};

use crate::capture_args::TargetArgs;
use crate::failure::{COULD_NOT_RUN, Completion, Failure};
use crate::options::{DumpArgs, TextOrJson};
use crate::{output, target, workers};

/// Runs the command. The exit code is 2 when all processes had ended.
///
/// # Errors
/// A target does not exist, a privilege is missing, or the output could not be written.
pub(crate) fn run(arguments: &DumpArgs) -> Result<Completion, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    // The others would be left out without a word.
    let named = arguments.target.pid.len();
    if arguments.all_ranks && named > 1 {
        return Err(Failure::new(format_args!("--all-ranks: expected one --pid, found {named}"))
            .hint("name any one process of the job: its other ranks are found"));
    }
    workers::install();
    let config = DumpConfig {
        targets: targets(&arguments.target)?,
        follow_children: !arguments.target.no_children,
        context: arguments.context.clone(),
        cache: doctor::cache_folder(),
    };
    let dump = read(arguments, &config).map_err(|error| failure(&error))?;
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        TextOrJson::Text => text(&dump, arguments.each, out),
        TextOrJson::Json => json(&dump, out),
    })?;
    let all_ended = dump.processes.iter().all(|process| process.ended);
    Ok(if all_ended { Completion::Command(COULD_NOT_RUN) } else { Completion::Fully })
}

fn read(arguments: &DumpArgs, config: &DumpConfig) -> Result<Dump, CaptureError> {
    let debug_info = arguments.debug_info.clone();
    match arguments.target.pid.first() {
        Some(pid) if arguments.all_ranks => dump::dump_job(&find_job(*pid)?, config, debug_info),
        _ => dump::dump(config, debug_info),
    }
}

/// Requires an explicit option for a dump of the whole machine.
fn targets(arguments: &TargetArgs) -> Result<Vec<Targets>, Failure> {
    target::check_processes(arguments)?;
    let targets = target::targets(arguments, true);
    if targets.is_empty() {
        return Err(Failure::new("no process is selected").hint("name one with --pid N or --comm NAME"));
    }
    Ok(targets)
}

fn failure(error: &CaptureError) -> Failure {
    let failure = Failure::new(error);
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn json(dump: &Dump, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, dump)?;
    writeln!(out)
}

fn text(dump: &Dump, each: bool, out: &mut dyn Write) -> io::Result<()> {
    match &dump.job {
        Some(job) => ranks::text(dump, job, each, out)?,
        None => dump.processes.iter().try_for_each(|process| write_process(process, each, out))?,
    }
    let threads: usize = dump.processes.iter().map(|process| process.threads.len()).sum();
    let read_ms = dump.read_ns as f64 / 1e6;
    writeln!(out, "{} read within {read_ms:.1} ms, none stopped", counted(threads as u64, "thread"))?;
    if dump.is_cut {
        writeln!(out, "some threads are missing: there are more than are read")?;
    }
    Ok(())
}

fn write_process(process: &DumpedProcess, each: bool, out: &mut dyn Write) -> io::Result<()> {
    if process.ended {
        return writeln!(out, "process {} ended before its threads were read\n", process.pid);
    }
    if let Some(reason) = process.unread {
        return writeln!(out, "{} (pid {}) not read: {}\n", process.name, process.pid, reason.sentence);
    }
    let threads = counted(process.threads.len() as u64, "thread");
    write!(out, "{} (pid {}), {threads}", process.name, process.pid)?;
    if process.threads_ended > 0 {
        write!(out, ", {} more ended meanwhile", process.threads_ended)?;
    }
    writeln!(out, "\n")?;
    for group in groups(process, each) {
        write_group(&group, out)?;
    }
    Ok(())
}

/// Groups threads with equal states, waits and stacks: the largest group first, equal sizes by thread id.
fn groups(process: &DumpedProcess, each: bool) -> Vec<Vec<&DumpedThread>> {
    let mut groups = grouped(process.threads.iter().collect(), |thread| alike(thread, each));
    groups.sort_rows_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// The key of threads that are shown once. Threads without a stack are never merged.
fn alike(thread: &DumpedThread, each: bool) -> impl Hash + Eq {
    let alone = (each || thread.no_stack.is_some()).then_some(thread.tid);
    (thread.state, thread.wait.as_ref().map(Wait::kind), &thread.frames, alone)
}

/// Groups of equal keys, ordered by the first member of each.
fn grouped<T: Copy, K: Hash + Eq>(all: Vec<T>, key: impl Fn(T) -> K) -> Vec<Vec<T>> {
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut by_key = HashMap::new();
    for one in all {
        let next = groups.len();
        let at = *by_key.entry(key(one)).or_insert(next);
        match groups.get_mut(at) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

fn write_group(group: &[&DumpedThread], out: &mut dyn Write) -> io::Result<()> {
    match group {
        [] => return Ok(()),
        [thread] => write!(out, "thread {} {}: ", thread.tid, thread.name)?,
        _ => {
            let ids = ids(group.iter().map(|thread| (thread.name.as_str(), thread.tid)));
            write!(out, "{} threads ({ids}): ", group.len())?;
        }
    }
    write_stack(group, out)
}

/// State of the threads at one place, and the stack of the first of them.
fn write_stack(group: &[&DumpedThread], out: &mut dyn Write) -> io::Result<()> {
    let [first, others @ ..] = group else { return Ok(()) };
    write!(out, "{}", first.state.words())?;
    if let Some(other) = others.iter().find(|thread| thread.state != first.state) {
        write!(out, " or {}", other.state.words())?;
    }
    if let Some(time) = off_cpu(group) {
        write!(out, " for {time}")?;
    }
    if let Some(wait) = wait(group) {
        write!(out, ", {wait}")?;
    }
    if let Some(collective) = collective(group) {
        write!(out, ", in {collective} with other ranks")?;
    }
    writeln!(out)?;
    if let Some(reason) = first.no_stack {
        writeln!(out, "    no stack: {}", reason.sentence)?;
    }
    write_frames(&first.frames, out)?;
    writeln!(out)
}

/// The frames without those of interpreters. C++ names are short: whole ones of PyTorch fill up to ten lines each.
fn write_frames(frames: &[DumpedFrame], out: &mut dyn Write) -> io::Result<()> {
    let shown = || frames.iter().filter(|frame| frame.role != FrameRole::Interpreter);
    // Names of other kinds stay whole, as those of Python do.
    let kind = |frame: &DumpedFrame| match frame.kind {
        "native" => FrameKind::Native,
        _ => FrameKind::Python,
    };
    let names = short_labels(shown().map(|frame| (kind(frame), frame.function.as_str())));
    shown().zip(&names).try_for_each(|(frame, name)| write_frame(frame, name, out))
}

/// Names and ids of the first few threads or processes.
fn ids<'n>(all: impl ExactSizeIterator<Item = (&'n str, u32)>) -> String {
    const SHOWN: usize = 4;
    let more = if all.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = all.take(SHOWN).map(|(name, id)| format!("{name} {id}")).collect();
    format!("{}{more}", shown.join(", "))
}

/// Off-CPU times, from the shortest to the longest.
fn off_cpu(group: &[&DumpedThread]) -> Option<String> {
    let times = || group.iter().filter_map(|thread| thread.off_cpu_ns);
    let (shortest, longest) = (duration(times().min()?), duration(times().max()?));
    Some(if shortest == longest { shortest } else { format!("{shortest} to {longest}") })
}

/// What they wait for if all wait for the same; else the first one's wait as an example.
fn wait(group: &[&DumpedThread]) -> Option<String> {
    let first = group.first()?.wait.as_ref()?;
    let others = group.iter().filter(|thread| thread.wait.as_ref() != Some(first)).count();
    Some(if others == 0 { first.to_string() } else { format!("such as: {first}") })
}

/// The collective that all of them are in.
fn collective<'d>(group: &[&'d DumpedThread]) -> Option<&'d str> {
    let first = group.first()?.collective.as_deref()?;
    group.iter().all(|thread| thread.collective.as_deref() == Some(first)).then_some(first)
}

fn write_frame(frame: &DumpedFrame, name: &str, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "    {:<8} {name}", frame.kind)?;
    let file = if frame.kind == "python" { &frame.file } else { base_name(&frame.file) };
    match (file, frame.line) {
        ("", _) => writeln!(out),
        (file, Some(line)) => writeln!(out, " ({file}:{line})"),
        (file, None) => writeln!(out, " ({file})"),
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms")];
    let unit = UNITS.iter().find(|(of, _)| ns >= *of);
    let (of, name) = unit.copied().unwrap_or((1_000, "µs"));
    format!("{:.1} {name}", ns as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use deepctx_session::dump::{FutexUse, NoStack, SCHEMA_VERSION, State};

    use super::*;

    pub(super) fn frame(kind: &'static str, function: &str, file: &str, line: Option<u32>) -> DumpedFrame {
        let (function, file) = (function.to_owned(), file.to_owned());
        DumpedFrame { kind, function, file, line, role: FrameRole::Code, source: None }
    }

    pub(super) fn thread(tid: u32, frames: &[DumpedFrame]) -> DumpedThread {
        DumpedThread {
            tid,
            name: format!("worker-{tid}"),
            state: State::Sleeping,
            off_cpu_ns: Some(1_500_000_000 * u64::from(tid)),
            system_call: Some("futex".to_owned()),
            wait: Some(Wait::Futex { address: 0x1000, used_for: FutexUse::Barrier }),
            collective: None,
            no_stack: None,
            frames: frames.to_vec(),
        }
    }

    pub(super) fn dump(threads: Vec<DumpedThread>) -> Dump {
        let process = DumpedProcess {
            pid: 1,
            name: "train".to_owned(),
            rank: None,
            is_main_of_rank: false,
            unread: None,
            ended: false,
            threads_ended: 0,
            threads,
        };
        let (read_ns, processes) = (2_500_000, vec![process]);
        Dump { schema_version: SCHEMA_VERSION, read_ns, is_cut: false, job: None, processes }
    }

    fn check(dump: &Dump, each: bool, expect: &str) {
        let mut out = Vec::new();
        text(dump, each, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn threads_with_equal_stacks_stand_there_once() {
        let at = [
            frame("kernel", "futex_wait", "", None),
            frame("native", "pthread_barrier_wait", "/lib/libc.so.6", None),
            frame("native", "main", "/src/job.cpp", Some(7)),
        ];
        let mut python = thread(4, &[frame("python", "Queue.get", "/lib/queue.py", Some(171))]);
        python.wait = None;
        let dump = dump(vec![thread(2, &at), python, thread(3, &at)]);
        let stack = "    kernel   futex_wait\n    native   pthread_barrier_wait (libc.so.6)\n\
                     \x20   native   main (job.cpp:7)\n";
        let alone = "thread 4 worker-4: sleeping for 6.0 s\n    python   Queue.get (/lib/queue.py:171)\n";
        let waits = "waits for a barrier (futex 0x1000)";
        let end = "3 threads read within 2.5 ms, none stopped\n";
        check(
            &dump,
            false,
            &format!(
                "train (pid 1), 3 threads\n\n2 threads (worker-2 2, worker-3 3): sleeping for 3.0 s to 4.5 s, \
                 {waits}\n{stack}\n{alone}\n{end}"
            ),
        );
        check(
            &dump,
            true,
            &format!(
                "train (pid 1), 3 threads\n\nthread 2 worker-2: sleeping for 3.0 s, {waits}\n{stack}\n{alone}\n\
                 thread 3 worker-3: sleeping for 4.5 s, {waits}\n{stack}\n{end}"
            ),
        );
    }

    #[test]
    fn cpp_names_are_short_in_text_and_whole_in_json() {
        let whole =
            "c10::impl::wrap_kernel<at::Tensor (at::Tensor const&), c10::List<long>>::call(c10::Keys)";
        let dump = dump(vec![thread(2, &[frame("native", whole, "/lib/libtorch.so", None)])]);
        let (mut said, mut stored) = (Vec::new(), Vec::new());
        text(&dump, false, &mut said).unwrap();
        json(&dump, &mut stored).unwrap();
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("\n    native   c10::impl::wrap_kernel::call (libtorch.so)\n"), "{said}");
        assert!(String::from_utf8(stored).unwrap().contains(whole));
    }

    #[test]
    fn threads_in_a_collective_say_so() {
        let mut late = thread(2, &[]);
        late.collective = Some("all_reduce".to_owned());
        late.off_cpu_ns = None;
        let waits = "sleeping, waits for a barrier (futex 0x1000), in all_reduce with other ranks";
        check(
            &dump(vec![late]),
            false,
            &format!(
                "train (pid 1), 1 thread\n\nthread 2 worker-2: {waits}\n\n1 thread read within 2.5 ms, none stopped\n"
            ),
        );
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut running = thread(2, &[]);
        running.state = State::Running;
        (running.wait, running.off_cpu_ns) = (None, None);
        running.no_stack = Some(NoStack { key: "k", sentence: "it ran" });
        let mut dump = dump(vec![running]);
        dump.processes[0].threads_ended = 2;
        let mut ended = dump.processes[0].clone();
        (ended.pid, ended.ended) = (9, true);
        let mut silent = dump.processes[0].clone();
        (silent.pid, silent.unread) = (11, Some(NoStack { key: "s", sentence: "it is silent" }));
        silent.threads.clear();
        dump.processes.extend([ended, silent]);
        check(
            &dump,
            false,
            "train (pid 1), 1 thread, 2 more ended meanwhile\n\nthread 2 worker-2: running\n    no stack: it ran\n\n\
             process 9 ended before its threads were read\n\ntrain (pid 11) not read: it is silent\n\n\
             2 threads read within 2.5 ms, none stopped\n",
        );
    }

    #[test]
    fn a_dump_without_all_threads_says_so() {
        let mut dump = dump(Vec::new());
        let all = "train (pid 1), 0 threads\n\n0 threads read within 2.5 ms, none stopped\n";
        check(&dump, false, all);
        dump.is_cut = true;
        check(&dump, false, &format!("{all}some threads are missing: there are more than are read\n"));
    }

    #[test]
    fn all_ranks_are_found_from_one_process() {
        use clap::Parser as _;

        let words = ["deepctx-bpf", "dump", "--pid", "1,2", "--all-ranks"];
        let cli = crate::options::Cli::try_parse_from(words).unwrap();
        let Some(crate::options::Command::Dump(arguments)) = cli.command else { panic!("it is `dump`") };
        let failure = run(&arguments).unwrap_err().to_string();
        assert!(failure.contains("--all-ranks: expected one --pid, found 2"), "{failure}");
    }

    #[test]
    fn json_has_a_schema_and_waits_have_kinds() {
        let mut out = Vec::new();
        json(&dump(vec![thread(2, &[])]), &mut out).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let thread = &value["processes"][0]["threads"][0];
        assert_eq!(value["schema_version"], SCHEMA_VERSION);
        assert_eq!((&thread["state"], &thread["wait"]["kind"]), (&"sleeping".into(), &"futex".into()));
        assert_eq!(thread["wait"]["used_for"], "barrier");
    }

    #[test]
    fn times_have_the_unit_of_their_size() {
        let check = |ns, expect| assert_eq!(duration(ns), expect);
        check(900, "0.9 µs");
        check(2_500_000, "2.5 ms");
        check(59_000_000_000, "59.0 s");
        check(90_000_000_000, "1.5 min");
        check(5_400_000_000_000, "1.5 h");
    }
}
