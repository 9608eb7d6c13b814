//! Traces as text, for tests: one line per event.
//!
//! Owns: [`parse`]. Because: a test of an analysis is read more often than written, and a trace of six events should
//! take six lines. Does not: read users' files.
//!
//! ```text
//! rank 1 of 8
//! step   main 0..100 ProfilerStep#1        times are microseconds, with decimals if need be
//! op     main 5..50  aten::mm
//! call   main 6..8   cudaLaunchKernel #1   #: correlation
//! call   main 6..8   cudaLaunchKernel in=aten::linear>aten::addmm at=block   operators of its stack, and their place
//! kernel 0/7  10..20 gemm #1               device/stream
//! kernel 0/7  10..20 gemm #1 node=4        of a graph
//! edge 3 4                                 node 4 comes after 3; after 0: it comes after none
//! copy   0/7  20..30 Memcpy HtoD #2 4096B
//! sync wait 0/8 21..21 #3 record=2 on=0/7  also: sync stream 0/8, sync event -, sync context -
//! lost   gpu0-s7 5..50 42                  events of a lane that were lost
//! counter 7 120 bytes=2048 live-bytes      of a process, from then on: series, value, name
//! off-cpu main 5..50 futex woken=48 by=t2  a thread, or `interrupt`; without both: ready to run all the time
//! ```

use super::{
    Basis, CallContext, CounterStep, CounterValue, DeviceKind, DeviceOp, Duration, GraphEdge, HostKind,
    HostOp, LostEvents, RankInfo, Status, Sync, SyncKind, Trace, TraceTime, WakeUpEvent, Waker,
};
use crate::context::phase::Phase;
use crate::intern::StrId;
use crate::tree::NodeId;
use crate::units::Bytes;

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no event of a trace: `{0}`")]
pub struct BadEvent(String);

/// Makes a trace from its lines.
///
/// # Errors
/// A line has none of the forms above.
pub fn parse(text: &str) -> Result<Trace, BadEvent> {
    let mut trace = Trace::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        event(&mut trace, line).ok_or_else(|| BadEvent(line.to_owned()))?;
    }
    Ok(trace)
}

fn event(trace: &mut Trace, line: &str) -> Option<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let host = |kind| Some((kind, words.get(1)?, words.get(2)?, &words[3..]));
    let (kind, thread, times, rest) = match *words.first()? {
        "rank" => {
            trace.rank = RankInfo { rank: words[1].parse().ok(), world_size: words.get(3)?.parse().ok() };
            return Some(());
        }
        "sync" => return sync(trace, &words),
        "edge" => {
            let (from, to) = (words.get(1)?.parse().ok()?, words.get(2)?.parse().ok()?);
            return trace.graph_edges.push(GraphEdge { from, to, basis: Basis::ByOrder }).map(drop);
        }
        "lost" => {
            let (lane, (from, duration)) = (trace.text(words.get(1)?), span(words.get(2)?)?);
            let (to, events) = (from + duration, words.get(3)?.parse().ok()?);
            return trace.lost.push(LostEvents { lane, from, to, events }).map(drop);
        }
        "counter" => return counter(trace, &words),
        "kernel" => return device(trace, DeviceKind::Kernel, &words),
        "copy" => return device(trace, DeviceKind::Copy, &words),
        "fill" => return device(trace, DeviceKind::Fill, &words),
        "step" => host(HostKind::Step)?,
        "op" => host(HostKind::Operator)?,
        "call" => host(HostKind::RuntimeCall)?,
        "range" => host(HostKind::Annotation)?,
        "off-cpu" => host(HostKind::OffCpu)?,
        _ => return None,
    };
    let (begin, duration) = span(times)?;
    let (name, thread) = (trace.text(&name(rest)), trace.thread("1", thread));
    let (correlation, status) = (number(rest, "#").unwrap_or(0), Status::Unknown);
    let context = context(trace, rest);
    let op = HostOp { thread, kind, begin, duration, name, correlation, status, context };
    let ends = trace.host.push(op)?;
    if let Some(woken) = rest.iter().find_map(|word| word.strip_prefix("woken=")) {
        let (at, _) = span(&format!("{woken}..{woken}"))?;
        let by = match rest.iter().find_map(|word| word.strip_prefix("by="))? {
            "interrupt" => Waker::Interrupt,
            thread => Waker::Thread(trace.thread("1", thread)),
        };
        trace.wake_ups.push(WakeUpEvent { ends, at, by })?;
    }
    Some(())
}

/// The context of a call: one for each list of operators and place, in unknown `phase`s.
fn context(trace: &mut Trace, words: &[&str]) -> NodeId {
    let word = |prefix| words.iter().find_map(|word| word.strip_prefix(prefix));
    let Some(operators) = word("in=") else { return NodeId::ROOT };
    let operators: Vec<StrId> = operators.split('>').map(|name| trace.text(name)).collect();
    let place = word("at=").map(|place| trace.text(place));
    let contexts = &mut trace.contexts.0;
    let same = |found: &&CallContext| found.operators.first() == operators.first() && found.place == place;
    // Even numbers are places of outermost operators, odd ones are contexts.
    let next = u32::try_from(2 * contexts.len() + 2).unwrap_or(u32::MAX - 1);
    let outermost = contexts.values().find(same).map_or(NodeId::from_number(next), |found| found.outermost);
    let node = NodeId::from_number(next + 1);
    contexts.insert(node, CallContext { operators, outermost, place, phase: Phase::Other });
    node
}

fn device(trace: &mut Trace, kind: DeviceKind, words: &[&str]) -> Option<()> {
    let (stream, rest) = (lane(trace, words.get(1)?)?, words.get(3..)?);
    let (begin, duration) = span(words.get(2)?)?;
    let bytes = rest.iter().find_map(|word| word.strip_suffix('B')?.parse().ok()).unwrap_or(0);
    let name = trace.text(&name(rest));
    let correlation = number(rest, "#").unwrap_or(0);
    let op = DeviceOp {
        bytes: Bytes(bytes),
        graph_node: number(rest, "node=").unwrap_or(0),
        ..DeviceOp::correlated(stream, kind, begin, duration, name, correlation)
    };
    trace.device.push(op).map(drop)
}

fn counter(trace: &mut Trace, words: &[&str]) -> Option<()> {
    let (at, _) = span(&format!("{at}..{at}", at = words.get(2)?))?;
    let (series, value) = words.get(3)?.split_once('=')?;
    let [process, name, series] = [words[1], &words[4..].join(" "), series].map(|word| trace.text(word));
    let value = CounterValue::new(value.parse().ok()?);
    trace.counters.push(CounterStep { process, name, series, at, value }).map(drop)
}

fn sync(trace: &mut Trace, words: &[&str]) -> Option<()> {
    let kind = match *words.get(1)? {
        "stream" => SyncKind::Stream,
        "event" => SyncKind::Event,
        "context" => SyncKind::Context,
        "wait" => SyncKind::StreamWait,
        _ => return None,
    };
    let stream = match *words.get(2)? {
        "-" => None,
        other => Some(lane(trace, other)?),
    };
    let (begin, duration) = span(words.get(3)?)?;
    let rest = &words[4..];
    let on = rest.iter().find_map(|word| word.strip_prefix("on="));
    let recorded_on = on.and_then(|lane_of| lane(trace, lane_of));
    let (correlation, record) = (number(rest, "#").unwrap_or(0), number(rest, "record="));
    trace.syncs.push(Sync { kind, stream, begin, duration, correlation, record, recorded_on }).map(drop)
}

fn lane(trace: &mut Trace, text: &str) -> Option<crate::intern::Id<super::Stream>> {
    let (device, stream) = text.split_once('/')?;
    Some(trace.stream(device.parse().ok()?, Some(stream.parse().ok()?)))
}

fn span(text: &str) -> Option<(TraceTime, Duration)> {
    let (begin, end) = text.split_once("..")?;
    let nanos = |micros: &str| micros.parse::<f64>().ok().map(|micros| (micros * 1000.0).round() as u64);
    let (begin, end) = (TraceTime::from_nanos(nanos(begin)?), TraceTime::from_nanos(nanos(end)?));
    Some((begin, end - begin))
}

fn name(words: &[&str]) -> String {
    let is_name = |word: &&&str| {
        !(word.starts_with('#')
            || ["in=", "at=", "node="].iter().any(|prefix| word.starts_with(prefix))
            || word.ends_with('B') && word.starts_with(|first: char| first.is_ascii_digit()))
    };
    words.iter().filter(is_name).copied().collect::<Vec<_>>().join(" ")
}

fn number(words: &[&str], prefix: &str) -> Option<u64> {
    words.iter().find_map(|word| word.strip_prefix(prefix)?.parse().ok())
}
