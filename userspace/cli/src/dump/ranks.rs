//! Ranks: where the processes of a distributed job are, those that differ first.
//!
//! Owns: the text of a dump of a job. Because: when one rank is late, all others wait for it, so the few stacks that
//! differ among hundreds are the answer. Does not: find ranks (`deepctx_capture::find_job`) or compare times.
//!
//! Two main threads are at the same place if their Python frames are equal, or, in programs without Python, all of
//! their frames: below one Python line, waiting threads are at different points of the same loop.

use deepctx_profile::order::SortRows as _;
use std::io::{self, Write};

use deepctx_profile::units::counted;
use deepctx_session::dump::{Dump, DumpedFrame, DumpedJob, DumpedProcess, DumpedThread, FrameRole};

use super::{alike, grouped, ids, write_stack};

/// A thread with its process.
type ThreadOfProcess<'d> = (&'d DumpedProcess, &'d DumpedThread);

pub(super) fn text(dump: &Dump, job: &DumpedJob, each: bool, out: &mut dyn Write) -> io::Result<()> {
    let mains: Vec<&DumpedProcess> =
        dump.processes.iter().filter(|process| process.is_main_of_rank).collect();
    let (here, mut places) = (counted_ranks(&mains), places(&mains));
    // Outliers are what users look for.
    places.sort_rows_by_key(Vec::len);
    let found = match (places.len(), mains.len()) {
        (0, _) => ", no main thread was read".to_owned(),
        (1, 1) => String::new(),
        (1, _) => ", their main threads all at one place".to_owned(),
        (several, _) => format!(", their main threads at {several} places"),
    };
    writeln!(out, "{here} of {} ({}) on this host{found}\n", job.size, job.launcher)?;
    for place in &places {
        write_place(place, out)?;
    }
    for process in dump.processes.iter().filter(|process| process.ended) {
        writeln!(out, "process {}{} ended before its threads were read\n", process.pid, of_rank(process))?;
    }
    for process in &dump.processes {
        if let Some(reason) = process.unread {
            writeln!(out, "process {}{} not read: {}\n", process.pid, of_rank(process), reason.sentence)?;
        }
    }
    for process in dump.processes.iter().filter(|process| process.threads_ended > 0) {
        let ended = counted(process.threads_ended, "thread");
        writeln!(out, "{ended} of process {}{} ended meanwhile\n", process.pid, of_rank(process))?;
    }
    let others = dump.processes.iter().flat_map(|process| {
        let threads = process.threads.iter().map(move |thread| (process, thread));
        threads.filter(|(process, thread)| !(process.is_main_of_rank && thread.tid == process.pid))
    });
    for group in groups(others.collect(), each) {
        write_others(&group, out)?;
    }
    Ok(())
}

fn counted_ranks(mains: &[&DumpedProcess]) -> String {
    let mut ranks: Vec<u32> = mains.iter().filter_map(|process| process.rank).collect();
    ranks.dedup();
    counted(ranks.len() as u64, "rank")
}

/// Main threads by place, in rank order.
fn places<'d>(mains: &[&'d DumpedProcess]) -> Vec<Vec<ThreadOfProcess<'d>>> {
    let main_thread = |process: &&'d DumpedProcess| {
        let thread = process.threads.iter().find(|thread| thread.tid == process.pid)?;
        Some((*process, thread))
    };
    let mut of: Vec<ThreadOfProcess<'d>> = mains.iter().filter_map(main_thread).collect();
    of.sort_rows_by_key(|(process, _)| process.rank);
    // Threads without a stack are never merged.
    grouped(of, |(process, thread)| (place(&thread.frames), thread.no_stack.map(|_| process.pid)))
}

/// The frames that identify a thread's place.
fn place(frames: &[DumpedFrame]) -> Vec<&DumpedFrame> {
    let is_python = |frame: &&DumpedFrame| frame.kind == "python" && frame.role == FrameRole::Code;
    let python: Vec<&DumpedFrame> = frames.iter().filter(is_python).collect();
    if python.is_empty() { frames.iter().collect() } else { python }
}

/// Groups threads with equal states, waits and stacks, the largest group first.
fn groups(threads: Vec<ThreadOfProcess<'_>>, each: bool) -> Vec<Vec<ThreadOfProcess<'_>>> {
    let mut groups = grouped(threads, |(_, thread)| alike(thread, each));
    groups.sort_rows_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

fn write_place(group: &[ThreadOfProcess<'_>], out: &mut dyn Write) -> io::Result<()> {
    let ids = ids(group.iter().map(|(process, _)| (process.name.as_str(), process.pid)));
    write!(out, "{} ({ids}): ", ranks(group))?;
    write_stack(&threads(group), out)
}

fn write_others(group: &[ThreadOfProcess<'_>], out: &mut dyn Write) -> io::Result<()> {
    match group {
        [(process, thread)] => {
            let of = of_rank(process);
            write!(out, "thread {} {} of process {}{of}: ", thread.tid, thread.name, process.pid)?;
        }
        [(_, first), ..] => {
            let named = group.iter().all(|(_, thread)| thread.name == first.name);
            let name = if named { format!(" {}", first.name) } else { String::new() };
            write!(out, "{}{name} of {}: ", counted(group.len() as u64, "thread"), ranks(group))?;
        }
        [] => return Ok(()),
    }
    write_stack(&threads(group), out)
}

fn threads<'d>(group: &[ThreadOfProcess<'d>]) -> Vec<&'d DumpedThread> {
    group.iter().map(|(_, thread)| *thread).collect()
}

fn of_rank(process: &DumpedProcess) -> String {
    process.rank.map_or_else(String::new, |rank| format!(" of rank {rank}"))
}

/// `rank 3`, or `ranks 0-2, 7`.
fn ranks(group: &[ThreadOfProcess<'_>]) -> String {
    let mut ranks: Vec<u32> = group.iter().filter_map(|(process, _)| process.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let runs = ranks.chunk_by(|a, b| a + 1 == *b);
    let words: Vec<String> = runs
        .filter_map(|run| match run {
            [one] => Some(one.to_string()),
            [first, second] => Some(format!("{first}, {second}")),
            [first, .., last] => Some(format!("{first}-{last}")),
            [] => None,
        })
        .collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, words.join(", "))
}

#[cfg(test)]
mod tests {
    use deepctx_session::dump::NoStack;

    use super::super::tests::{frame, thread};
    use super::*;

    /// `RANK PID:PLACE` for each process: a main thread at a Python line, and a sleeping pool thread.
    fn dump(processes: &[(u32, u32, u32)]) -> Dump {
        let process = |&(rank, pid, line): &(u32, u32, u32)| {
            let native = format!("poll_{pid}");
            let main = [frame("native", &native, "", None), frame("python", "step", "/train.py", Some(line))];
            let pool = thread(1, &[frame("native", "pool_wait", "/lib/libgomp.so.1", None)]);
            DumpedProcess {
                pid,
                name: "python3".to_owned(),
                rank: Some(rank),
                is_main_of_rank: true,
                unread: None,
                ended: false,
                threads_ended: 0,
                threads: vec![
                    DumpedThread { wait: None, ..thread(pid, &main) },
                    DumpedThread { tid: pid + 1, name: "pool".to_owned(), ..pool },
                ],
            }
        };
        let mut dump = super::super::tests::dump(Vec::new());
        dump.processes = processes.iter().map(process).collect();
        dump.job = Some(DumpedJob { launcher: "torchrun", size: 8 });
        dump
    }

    fn check(dump: &Dump, expect: &str) {
        let mut out = Vec::new();
        text(dump, dump.job.as_ref().unwrap(), false, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn the_rank_that_differs_comes_first() {
        let pool = "sleeping for 1.5 s, waits for a barrier (futex 0x1000)\n    native   pool_wait (libgomp.so.1)\n\n";
        check(
            &dump(&[(0, 10, 7), (1, 20, 7), (2, 30, 9), (3, 40, 7)]),
            &format!(
                "4 ranks of 8 (torchrun) on this host, their main threads at 2 places\n\n\
                 rank 2 (python3 30): sleeping for 45.0 s\n    native   poll_30\n    python   step (/train.py:9)\n\n\
                 ranks 0, 1, 3 (python3 10, python3 20, python3 40): sleeping for 15.0 s to 1.0 min\n\
                 \x20   native   poll_10\n    python   step (/train.py:7)\n\n\
                 4 threads pool of ranks 0-3: {pool}"
            ),
        );
        check(
            &dump(&[(5, 10, 7)]),
            &format!(
                "1 rank of 8 (torchrun) on this host\n\n\
                 rank 5 (python3 10): sleeping for 15.0 s\n    native   poll_10\n    python   step (/train.py:7)\n\n\
                 thread 11 pool of process 10 of rank 5: {pool}"
            ),
        );
    }

    #[test]
    fn a_rank_that_ended_is_named() {
        let mut dump = dump(&[(1, 10, 7)]);
        dump.processes[0].ended = true;
        dump.processes[0].threads.clear();
        check(
            &dump,
            "1 rank of 8 (torchrun) on this host, no main thread was read\n\n\
             process 10 of rank 1 ended before its threads were read\n\n",
        );
    }

    #[test]
    fn threads_of_ranks_that_ended_are_counted() {
        let mut dump = dump(&[(1, 10, 7)]);
        dump.processes[0].threads_ended = 3;
        dump.processes[0].threads.clear();
        check(
            &dump,
            "1 rank of 8 (torchrun) on this host, no main thread was read\n\n\
             3 threads of process 10 of rank 1 ended meanwhile\n\n",
        );
    }

    #[test]
    fn a_rank_that_is_not_read_is_named() {
        let mut dump = dump(&[(1, 10, 7)]);
        dump.processes[0].unread = Some(NoStack { key: "s", sentence: "it is silent" });
        dump.processes[0].threads.clear();
        check(
            &dump,
            "1 rank of 8 (torchrun) on this host, no main thread was read\n\n\
             process 10 of rank 1 not read: it is silent\n\n",
        );
    }
}
