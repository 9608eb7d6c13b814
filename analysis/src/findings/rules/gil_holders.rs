//! The threads that held Python's global interpreter lock (GIL) while others waited for it.
//!
//! Owns: the threads behind a finding of `gil-wait`, as figures. Because: a wait shows who waits; what must change is
//! the work of the thread that holds the lock. Does not: judge how long waits may be.
//!
//! Single events show who woke each waiting thread, which is the thread that released the lock: measured. Without them,
//! each wait is split over the other threads of its process by their time below Python functions: modelled, since
//! native code may have released the lock.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::trace::{HostKind, Waker};
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::Facts;
use crate::amount::percent;
use crate::findings::facts::{Class, Classes};
use crate::findings::finding::{Basis, Figure};

/// Maximum number of waiting threads, and of lock holders, that are named.
const THREADS_MAX: usize = 3;

/// Whether a thread waits for the lock. One that could run waits for a CPU instead, which `cpu-queue` counts.
pub(super) fn is_wait(classes: Classes) -> bool {
    classes.has(Class::GilWait) && !classes.has(Class::CpuQueue)
}

/// Which threads waited how long, and for which.
pub(super) fn figures(facts: &Facts<'_>) -> Vec<Figure> {
    let waits = waits(facts);
    let named = |name: String, value: f64, unit: &'static str, basis| Figure {
        name: name.into(),
        value,
        unit: unit.into(),
        basis,
    };
    let label = |thread: NodeId| facts.label(facts.profile().tree.node(thread).frame);
    let waited = largest(waits.iter().map(|(thread, ns)| (label(*thread), *ns)));
    let mut figures: Vec<Figure> = waited
        .into_iter()
        .map(|(thread, ns)| named(format!("waits of {thread}"), ns as f64, "ns", Basis::Measured))
        .collect();
    let released = released(facts);
    let all: u64 = released.values().sum();
    if all > 0 {
        figures.extend(largest(released).into_iter().map(|(thread, times)| {
            named(format!("waits that {thread} ended"), percent(times, all), "percent", Basis::Measured)
        }));
        return figures;
    }
    let holders = modelled(facts, &waits);
    let holder = |(thread, of): (&NodeId, &Holder)| {
        let line = of.lines.iter().max_by_key(|(line, ns)| (**ns, Reverse(line.number())));
        let at = line.map_or_else(String::new, |(line, _)| format!(", at {}", facts.label(*line)));
        (format!("{}{at}", label(*thread)), of.waits_ns as u64)
    };
    figures.extend(
        largest(holders.iter().map(holder))
            .into_iter()
            .map(|(thread, ns)| named(format!("waits for {thread}"), ns as f64, "ns", Basis::Modelled)),
    );
    figures
}

/// The largest; equal ones by name.
fn largest(all: impl IntoIterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = all.into_iter().filter(|(_, value)| *value > 0).collect();
    all.sort_rows_by(|(name, a), (other, b)| b.cmp(a).then_with(|| name.cmp(other)));
    all.truncate(THREADS_MAX);
    all
}

/// By thread: how long it waited for the lock.
fn waits(facts: &Facts<'_>) -> FxHashMap<NodeId, u64> {
    let mut waits: FxHashMap<NodeId, u64> = FxHashMap::default();
    for (node, sum) in facts.values(Metric::OffCpuTime) {
        let thread = facts.thread(node);
        if is_wait(facts.classes(node)) && thread != NodeId::ROOT {
            add(waits.entry(thread).or_default(), sum.value);
        }
    }
    waits
}

fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

/// By thread: how many waits for the lock it ended, from single events, whose contexts are node numbers of the whole
/// profile.
fn released(facts: &Facts<'_>) -> FxHashMap<String, u64> {
    let mut by_thread: FxHashMap<String, u64> = FxHashMap::default();
    let Some(job) = facts.events().filter(|_| std::ptr::eq(facts.profile(), facts.whole())) else {
        return by_thread;
    };
    // Events identify threads by number.
    let profile = facts.profile();
    let name = |(id, frame)| match frame {
        Frame::Thread { tid, .. } => Some((tid.to_string(), facts.label(id))),
        _ => None,
    };
    let names: FxHashMap<String, String> = profile.frames.iter().filter_map(name).collect();
    for trace in job.ranks().iter().map(|of| &of.trace) {
        for (_, wake_up) in trace.wake_ups.iter() {
            let Some(wait) = trace.host.get(wake_up.ends) else { continue };
            // A waiter wakes every 5 ms and waits again: a timer ends such a wait, and no thread released the lock.
            if let Waker::Thread(thread) = wake_up.by
                && wait.kind == HostKind::OffCpu
                && facts.classes(wait.context).has(Class::GilWait)
                && let Some(thread) = trace.threads().get(thread.index())
            {
                let number = trace.name(thread.thread);
                let name = names.get(number).map_or(number, String::as_str);
                *by_thread.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    by_thread
}

/// A thread that may have held the lock.
#[derive(Clone, Debug, Default)]
struct Holder {
    /// Time that it ran below Python functions.
    ran_ns: u64,
    /// Of this, by line.
    lines: FxHashMap<FrameId, u64>,
    /// Waits of other threads that count for it.
    waits_ns: f64,
}

/// By thread: the waits of others, each split among the other threads of its process in proportion to their Python
/// time.
fn modelled(facts: &Facts<'_>, waits: &FxHashMap<NodeId, u64>) -> FxHashMap<NodeId, Holder> {
    let tree = &facts.profile().tree;
    let mut holders: FxHashMap<NodeId, Holder> = FxHashMap::default();
    let Some(host) = facts.host() else { return holders };
    // Threads are below their process. Where none are known, a process stands for its threads, and shares no lock with
    // other processes: nothing holds it then.
    let process = |thread: NodeId| tree.node(thread).parent;
    for (node, sum) in facts.values(host) {
        let (thread, line) = (facts.thread(node), facts.line(node));
        let is_thread = process(thread) != NodeId::ROOT;
        if line != NodeId::ROOT && is_thread && !facts.classes(node).has(Class::GilWait) {
            let holder = holders.entry(thread).or_default();
            add(&mut holder.ran_ns, sum.value);
            add(holder.lines.entry(tree.node(line).frame).or_default(), sum.value);
        }
    }
    let mut ran: FxHashMap<NodeId, u64> = FxHashMap::default();
    for (thread, holder) in &holders {
        add(ran.entry(process(*thread)).or_default(), holder.ran_ns);
    }
    let mut waited: FxHashMap<NodeId, f64> = FxHashMap::default();
    // A waiter does not wait for its own running time.
    let others = |waiter: NodeId| {
        let own = holders.get(&waiter).map_or(0, |holder| holder.ran_ns);
        ran.get(&process(waiter)).copied().unwrap_or(0).saturating_sub(own)
    };
    let shares: Vec<(NodeId, f64)> = waits
        .iter()
        .filter(|(waiter, _)| others(**waiter) > 0)
        .map(|(waiter, ns)| (*waiter, *ns as f64 / others(*waiter) as f64))
        .collect();
    for (waiter, share) in &shares {
        *waited.entry(process(*waiter)).or_default() += share;
    }
    let own: FxHashMap<NodeId, f64> = shares.into_iter().collect();
    for (thread, holder) in &mut holders {
        let all = waited.get(&process(*thread)).copied().unwrap_or(0.0);
        let of_others = all - own.get(thread).copied().unwrap_or(0.0);
        holder.waits_ns = holder.ran_ns as f64 * of_others;
    }
    holders
}

#[cfg(test)]
mod tests {
    use deepctx_profile::intern::StrId;
    use deepctx_profile::trace::{HostOp, Job, Status, Trace, TraceTime, WakeUpEvent};
    use deepctx_profile::units::Nanos;

    use super::super::tests::profile;
    use super::*;

    const RUN: &str = "P py-7 / T a/7 / y /a/t.py:f:1 / n g 300
        P py-7 / T a/7 / y /a/t.py:f:2 / n g 100
        P py-7 / T b/8 / y /a/t.py:w:3 / n h 100
        P py-7 / T c/9 / n native 900
        P py-7 / T b/8 / y /a/t.py:w:3 / n take_gil 5
        P other-9 / T a/9 / y /a/t.py:f:1 900
        off-cpu-time: P py-7 / T b/8 / y /a/t.py:w:3 / n take_gil 10x80
        off-cpu-time: P py-7 / T d/10 / y /a/t.py:w:3 / n take_gil 10x50
        off-cpu-time: P py-7 / T d/10 / y /a/t.py:w:3 / n poll 10x999";

    #[track_caller]
    fn check(facts: &Facts<'_>, expect: &[&str]) {
        let found: Vec<String> = figures(facts).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn waits_count_for_threads_that_ran_python() {
        let profile = profile(RUN);
        check(
            &Facts::of(&profile, &profile, Nanos(0)),
            &[
                "waits of b/8: 800 ns (measured)",
                "waits of d/10: 500 ns (measured)",
                // All waits of b, and of those of d four fifths.
                "waits for a/7, at t.py:f:1: 1.20 µs (modelled)",
                "waits for b/8, at t.py:w:3: 100 ns (modelled)",
            ],
        );
    }

    #[test]
    fn processes_without_known_threads_hold_no_lock_of_others() {
        let profile = profile(
            "P py-7 / y /a/t.py:f:1 / n g 300
             P other-9 / y /a/t.py:f:1 900
             off-cpu-time: P py-7 / y /a/t.py:w:3 / n take_gil 10x80",
        );
        check(&Facts::of(&profile, &profile, Nanos(0)), &["waits of py-7: 800 ns (measured)"]);
    }

    #[test]
    fn single_events_say_who_gave_the_lock_up() {
        let profile = profile(RUN);
        let nodes = (1..profile.tree.len() as u32).map(NodeId::from_number);
        let off_cpu = nodes.filter(|node| profile.tree.exclusive(*node, Metric::OffCpuTime).sum > 0);
        let [of_b, of_d, polls] = off_cpu.collect::<Vec<_>>().try_into().unwrap();
        let mut trace = Trace::new();
        let threads = ["7", "8", "99"].map(|name| trace.thread("py", name));
        let mut wait = |context: NodeId, by: Waker| {
            let op = HostOp {
                thread: threads[1],
                kind: HostKind::OffCpu,
                begin: TraceTime::from_nanos(5),
                duration: Nanos(9),
                name: StrId::EMPTY,
                correlation: 0,
                status: Status::Unknown,
                context,
            };
            let ends = trace.host.push(op).unwrap();
            trace.wake_ups.push(WakeUpEvent { ends, at: TraceTime::from_nanos(14), by }).unwrap();
        };
        for _ in 0..3 {
            wait(of_b, Waker::Thread(threads[0]));
        }
        wait(of_d, Waker::Thread(threads[1]));
        // A timeout, another process, and the end of another wait.
        wait(of_b, Waker::Interrupt);
        wait(of_b, Waker::OtherProcess { pid: 1, tid: 1 });
        wait(polls, Waker::Thread(threads[2]));
        let job = Job::new(vec![("run".to_owned(), trace)]).unwrap();
        let expect = [
            "waits of b/8: 800 ns (measured)",
            "waits of d/10: 500 ns (measured)",
            "waits that a/7 ended: 75.0% (measured)",
            "waits that b/8 ended: 25.0% (measured)",
        ];
        check(&Facts::of(&profile, &profile, Nanos(0)).with_events(Some(&job)), &expect);
        // A part has other node numbers.
        let part = profile.clone();
        let of_part = figures(&Facts::of(&part, &profile, Nanos(0)).with_events(Some(&job)));
        assert!(of_part.iter().all(|of| !of.name.ends_with("ended")), "{of_part:?}");
    }
}
