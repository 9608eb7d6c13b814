//! XPlane, as XLA's profiler writes it for JAX and TensorFlow, to a trace.
//!
//! Owns: [`read`], and recognizing the format. Because: JAX has no other trace of its own. Does not: read lines that
//! are derived from others (`XLA Ops`, `XLA Modules`, `Steps`), which repeat their time.
//!
//! A plane `/device:GPU:N` has a line for each stream; planes that are not of devices have lines of threads.
//! `correlation_id` connects them. Times are picoseconds from the begin of a line. Work of other devices (TPUs) is
//! counted, not read: it is no time of a thread.
//!
//! A file is counted first, then walked event by event, with no more than one of them as a value: what it takes in
//! memory is bounded by [`EVENTS_MAX`], not by what its bytes could hold. Of a file that is cut, whole planes are read:
//! the names of a plane come behind its lines.

use std::borrow::Cow;

use prost::Message;
use rustc_hash::FxHashMap;

use deepctx_common::reason::Reason;
use deepctx_profile::ledger::Stage;
use deepctx_profile::trace::{
    Call, ClockInfo, DeviceOp, Duration, HostKind, HostOp, Status, Trace, TraceTime,
};
use deepctx_profile::tree::NodeId;
use deepctx_profile::units::Nanos;

use super::arguments::STEP;
use super::fields::{Field, MalformedField, fields};
use super::trace_rows::numbered;
use super::xla::{self, Plane};
use super::{
    CUT_SHORT, END_BEFORE_BEGIN, EVENTS_MAX, ImportError, Kind, NOT_UNDERSTOOD, ON_NO_THREAD, OUT_OF_RANGE,
    REPAIRED, ROUNDED,
};
use crate::proto::xplane::{EVENTS, LINES, NAMES, PLANES, STATS, XEvent, XLine, XPlane, XStat};

/// Whether a protobuf message begins like an `XSpace`: with a plane, whose second field is its name. A pprof file
/// begins with a sample type, which has only numbers.
pub(super) fn is_one(start: &[u8]) -> bool {
    let [0x0a, rest @ ..] = start else { return false };
    let Some((length, rest)) = varint(rest) else { return false };
    let plane = &rest[..rest.len().min(usize::try_from(length).unwrap_or(usize::MAX))];
    match plane {
        [0x12, rest @ ..] => is_name(rest),
        [0x08, rest @ ..] => varint(rest).is_some_and(|(_, rest)| match rest {
            [0x12, rest @ ..] => is_name(rest),
            _ => false,
        }),
        _ => false,
    }
}

/// Plane names are paths.
fn is_name(bytes: &[u8]) -> bool {
    varint(bytes).is_some_and(|(length, rest)| length > 0 && rest.first() == Some(&b'/'))
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let value = bytes[..=end].iter().rev().fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, &bytes[end + 1..]))
}

pub(super) fn read(bytes: &[u8]) -> Result<Trace, ImportError> {
    check_count(bytes, EVENTS_MAX)?;
    let mut reader = Reader { trace: Trace::new(), threads: FxHashMap::default() };
    reader.trace.clock = ClockInfo { resolution: Nanos(1), ..ClockInfo::default() };
    for plane in messages(bytes, PLANES) {
        match plane.map(|plane| reader.plane(plane)) {
            Ok(Ok(())) => {}
            Ok(Err(MalformedField)) => reader.gap(NOT_UNDERSTOOD),
            Err(MalformedField) => reader.gap(CUT_SHORT),
        }
    }
    let gaps = &reader.trace.ledger.stage(Stage::Decode).gaps;
    let is_damaged = gaps.count(CUT_SHORT.key) + gaps.count(NOT_UNDERSTOOD.key) > 0;
    if is_damaged && reader.trace.is_empty() {
        return Err(ImportError::damaged(Kind::XPlane, "a message has bytes that are no field"));
    }
    Ok(reader.trace)
}

/// Refuses a file with more messages than that. What is damaged is counted up to there, as it is read.
fn check_count(bytes: &[u8], most: usize) -> Result<(), ImportError> {
    let mut left = most;
    let mut take = || {
        let what = "planes, lines, names and events of a trace";
        left = left.checked_sub(1).ok_or(ImportError::TooLarge { most, what })?;
        Ok::<(), ImportError>(())
    };
    for plane in messages(bytes, PLANES).map_while(Result::ok) {
        take()?;
        for field in fields(plane).map_while(Result::ok) {
            match field {
                (LINES, Field::Bytes(line)) => {
                    take()?;
                    messages(line, EVENTS).map_while(Result::ok).try_for_each(|_| take())?;
                }
                (number, _) if NAMES.contains(&number) => take()?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The messages of a field.
fn messages(bytes: &[u8], number: u32) -> impl Iterator<Item = Result<&[u8], MalformedField>> {
    fields(bytes).filter_map(move |field| match field {
        Ok((found, Field::Bytes(message))) if found == number => Some(Ok(message)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })
}

/// A message without those within it.
fn decoded<M: Message + Default>(bytes: &[u8]) -> Result<M, MalformedField> {
    M::decode(bytes).map_err(|_| MalformedField)
}

fn text(name: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(name)
}

fn is_text(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok()
}

struct Reader {
    trace: Trace,
    /// The line that had a name first, by plane and name.
    threads: FxHashMap<(String, String), i64>,
}

impl Reader {
    fn gap(&mut self, reason: &'static Reason) {
        self.trace.ledger.gap(Stage::Decode, reason, 1);
    }

    /// Reads a plane. A line that is damaged is read up to there.
    fn plane(&mut self, bytes: &[u8]) -> Result<(), MalformedField> {
        // Names behind bytes that are no field were not counted: they are not decoded.
        fields(bytes).try_for_each(|field| field.map(drop))?;
        let plane = decoded::<XPlane>(bytes)?;
        let names = plane.event_metadata.values().map(|of| &of.name).chain([&plane.name]);
        let odd = names.filter(|name| !is_text(name)).count() as u64;
        self.trace.ledger.gap(Stage::Decode, REPAIRED, odd);
        for line in messages(bytes, LINES) {
            if self.line(&plane, line?).is_err() {
                self.gap(NOT_UNDERSTOOD);
            }
        }
        Ok(())
    }

    fn line(&mut self, plane: &XPlane, bytes: &[u8]) -> Result<(), MalformedField> {
        let line = decoded::<XLine>(bytes)?;
        if !is_text(&line.name) {
            self.gap(REPAIRED);
        }
        match Plane::of(&text(&plane.name)) {
            Plane::Gpu(device) => self.stream(device, plane, &line, bytes),
            Plane::OtherDevice => {
                messages(bytes, EVENTS).for_each(|_| self.gap(ON_NO_THREAD));
                Ok(())
            }
            Plane::Threads => self.thread(plane, &line, bytes),
        }
    }

    /// A line of a GPU: `Stream #17(Kernel)`.
    fn stream(
        &mut self,
        device: u32,
        plane: &XPlane,
        line: &XLine,
        bytes: &[u8],
    ) -> Result<(), MalformedField> {
        let line_name = text(&line.name);
        let Some((number, kinds)) = xla::stream(&line_name) else { return Ok(()) };
        let stream = self.trace.stream(device, number);
        for event in messages(bytes, EVENTS) {
            let bytes = event?;
            let event = decoded::<XEvent>(bytes)?;
            let Some((begin, duration)) = self.span(line, &event) else { continue };
            let name = name(plane, &event);
            let kind = xla::work(kinds, &name);
            let (name, correlation) = (self.trace.text(&name), correlation(plane, bytes)?);
            let op = DeviceOp::correlated(stream, kind, begin, duration, name, correlation);
            if self.trace.device.push(op).is_none() {
                self.gap(NOT_UNDERSTOOD);
            }
        }
        Ok(())
    }

    fn thread(&mut self, plane: &XPlane, line: &XLine, bytes: &[u8]) -> Result<(), MalformedField> {
        let thread = self.thread_name(plane, line);
        let thread = self.trace.thread(&text(&plane.name), &thread);
        for event in messages(bytes, EVENTS) {
            let bytes = event?;
            let event = decoded::<XEvent>(bytes)?;
            let Some((begin, duration)) = self.span(line, &event) else { continue };
            let name = name(plane, &event);
            let correlation = correlation(plane, bytes)?;
            let is_call = correlation != 0 || Call::of(&name) != Call::Other;
            let (kind, name) = match stat(plane, bytes, STEP)? {
                Some(step) => (HostKind::Step, self.trace.text(&numbered(&name, step))),
                None if is_call => (HostKind::RuntimeCall, self.trace.text(&name)),
                None => (HostKind::Other, self.trace.text(&name)),
            };
            let (status, context) = (Status::Unknown, NodeId::ROOT);
            let op = HostOp { thread, kind, begin, duration, name, correlation, status, context };
            if self.trace.host.push(op).is_none() {
                self.gap(NOT_UNDERSTOOD);
            }
        }
        Ok(())
    }

    /// Threads of one name, as all of Python's have, are distinguished by their ids.
    fn thread_name(&mut self, plane: &XPlane, line: &XLine) -> String {
        if line.name.is_empty() {
            return line.id.to_string();
        }
        let (process, name) = (text(&plane.name).into_owned(), text(&line.name).into_owned());
        let first = *self.threads.entry((process, name.clone())).or_insert(line.id);
        if first == line.id { name } else { format!("{name} {}", line.id) }
    }

    fn span(&mut self, line: &XLine, event: &XEvent) -> Option<(TraceTime, Duration)> {
        if event.duration_ps < 0 {
            self.gap(END_BEFORE_BEGIN);
            return None;
        }
        let begin = i128::from(line.timestamp_ns) * 1000 + i128::from(event.offset_ps);
        let Ok(begin_ns) = u64::try_from((begin + 500).div_euclid(1000)) else {
            self.gap(OUT_OF_RANGE);
            return None;
        };
        if begin % 1000 != 0 || event.duration_ps % 1000 != 0 {
            self.gap(ROUNDED);
        }
        Some((TraceTime::from_nanos(begin_ns), Nanos((event.duration_ps as u64).saturating_add(500) / 1000)))
    }
}

fn name<'p>(plane: &'p XPlane, event: &XEvent) -> Cow<'p, str> {
    plane.event_metadata.get(&event.metadata_id).map_or("[no name]".into(), |of| text(&of.name))
}

fn correlation(plane: &XPlane, event: &[u8]) -> Result<u64, MalformedField> {
    Ok(stat(plane, event, "correlation_id")?.unwrap_or(0))
}

/// A number that is known of an event.
fn stat(plane: &XPlane, event: &[u8], name: &str) -> Result<Option<u64>, MalformedField> {
    let is_it = |id: i64| plane.stat_metadata.get(&id).is_some_and(|of| of.name == name.as_bytes());
    for stat in messages(event, STATS) {
        let stat = decoded::<XStat>(stat?)?;
        if is_it(stat.metadata_id) {
            return Ok(stat.unsigned.or(stat.signed.and_then(|value| u64::try_from(value).ok())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_takes_memory_is_counted() {
        let check = |bytes: &[u8], expect: usize| {
            assert_eq!(check_count(bytes, expect), Ok(()), "{bytes:?}");
            let error = check_count(bytes, expect - 1).unwrap_err();
            assert!(matches!(error, ImportError::TooLarge { .. }), "{bytes:?}: {error}");
        };
        // Two planes; the first with a name, which is not counted.
        check(&[0x0a, 2, 0x12, 0, 0x0a, 0], 2);
        // A line of two events.
        check(&[0x0a, 6, 0x1a, 4, 0x22, 0, 0x22, 0], 4);
        // Names of an event and of a statistic.
        check(&[0x0a, 4, 0x22, 0, 0x2a, 0], 3);
    }

    /// A field with a message or a text.
    fn nested(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8][..], content].concat()
    }

    /// A plane with a thread, which has one event of this name.
    fn plane(event: &[u8]) -> Vec<u8> {
        let of_event = nested(4, &[0x08, 4, 0x18, 5]);
        let line = [nested(2, b"python"), vec![0x18, 7], of_event].concat();
        let name = [vec![0x08, 4], nested(2, &nested(2, event))].concat();
        nested(1, &[nested(2, b"/host:CPU"), nested(3, &line), nested(4, &name)].concat())
    }

    /// Names of events, then gaps.
    fn shown(bytes: &[u8]) -> Result<Vec<String>, ImportError> {
        let trace = read(bytes)?;
        let names = trace.host.iter().map(|(_, op)| trace.name(op.name).to_owned());
        let gaps = trace.ledger.stage(Stage::Decode).gaps.iter().filter(|(of, _)| of.key != ROUNDED.key);
        Ok(names.chain(gaps.map(|(reason, n)| format!("{n} {}", reason.key))).collect())
    }

    #[test]
    fn whole_planes_of_a_cut_file_are_read() {
        let bytes = [plane(b"first"), plane(b"second")].concat();
        assert_eq!(shown(&bytes).unwrap(), ["first", "second"]);
        assert_eq!(shown(&bytes[..bytes.len() - 1]).unwrap(), ["first", "1 cut-short"]);
        assert!(matches!(shown(&bytes[..9]), Err(ImportError::Damaged { .. })));
    }

    #[test]
    fn what_is_damaged_spoils_nothing_else() {
        // A group, which is no field here: in a plane, and in a line.
        let odd_plane = nested(1, &[nested(2, b"/host:CPU"), vec![0x0b]].concat());
        let odd_line = nested(1, &[nested(2, b"/host:CPU"), nested(3, &[0x0b])].concat());
        for odd in [odd_plane, odd_line] {
            assert_eq!(shown(&[odd, plane(b"next")].concat()).unwrap(), ["next", "1 not-understood"]);
        }
        assert_eq!(shown(&plane(b"a\xff")).unwrap(), ["a\u{fffd}", "1 repaired"]);
    }
}
