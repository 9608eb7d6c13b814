//! Events of the page: single events of a trace, packed for its script.
//!
//! Owns: which events the page holds, and how they are written: [`write()`]. Because: a million events as JSON would be
//! 60 MB, of which a browser makes a million objects; packed by column they are about a tenth, and become arrays of
//! numbers. Does not: know how they are drawn; `page/events.js` reads them.
//!
//! What is written is base64 of gzip of: the length of a JSON document (4 bytes, little-endian), the document, then the
//! columns as varints, each of all lanes one after the other: begins (difference to the one before in the lane),
//! lengths, names, causes, and of streams correlation and bytes. Counters are in the document.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;
use serde_json::json;

use deepctx_profile::frame::clean;
use deepctx_profile::trace::{CounterLane, CounterUnit, Event, EventClass, EventLane, EventLanes, LaneEvent};
use deepctx_profile::units::Nanos;

use super::base64::Base64;

/// Maximum events of a page: its script takes about 60 bytes for each, and draws a picture in a few milliseconds.
const EVENTS_MAX: usize = 1_000_000;
/// Maximum bytes of names: a million events of one trace have a few thousand distinct ones.
const NAMES_MAX: usize = 32 << 20;
/// Maximum values of a counter: the columns of the widest screen.
const VALUES_MAX: usize = 4096;
/// Maximum counters: a few for each CPU of a large machine.
const COUNTERS_MAX: usize = 400;
/// Name of an event whose name found no room.
const NO_NAME: &str = "[name left out]";
/// Larger numbers are not exact in a script, whose numbers are 64-bit floats; a difference of two needs one more bit.
const EXACT: u64 = 1 << 52;

/// Writes the events. Events after the first [`EVENTS_MAX`] by begin are counted but omitted.
///
/// # Errors
/// Writing to `out` failed.
pub(super) fn write(lanes: &EventLanes, out: &mut dyn Write) -> io::Result<()> {
    let mut packed = GzEncoder::new(Base64::new(out), Compression::default());
    pack(lanes, EVENTS_MAX, &mut packed)?;
    packed.finish()?.finish()
}

fn pack(lanes: &EventLanes, most: usize, out: &mut dyn Write) -> io::Result<()> {
    let chosen = EventSelection::of(lanes, most);
    let mut columns = Columns::default();
    let described: Vec<_> = lanes
        .lanes()
        .iter()
        .map(|lane| {
            let count = columns.add(lane, lanes, &chosen);
            let (rank, device) = lanes.rank_and_device(lane);
            json!({ "label": clean(&lane.label), "stream": lane.is_stream, "rank": rank, "device": device, "count": count })
        })
        .collect();
    let (counters, counters_left_out) = counters(lanes, VALUES_MAX);
    let document = json!({
        "firstRank": lanes.job().ranks().first().map(|of| of.rank),
        "unaligned": lanes.unaligned(),
        "counters": counters,
        "countersLeftOut": counters_left_out,
        "length": lanes.length().0,
        "total": chosen.total,
        "shown": columns.shown,
        "until": chosen.until.map(|until| until.0),
        "namesLeftOut": columns.names.left_out,
        "names": columns.names.all,
        "lanes": described,
    });
    let document = serde_json::to_vec(&document)?;
    let length = u32::try_from(document.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&document)?;
    let Columns { begins, lengths, name_numbers, causes, correlations, bytes, .. } = columns;
    [begins, lengths, name_numbers, causes, correlations, bytes].iter().try_for_each(|of| out.write_all(of))
}

/// The counters of the page, and how many are left out. One with more than `most` values is reduced to the highest of
/// each interval.
fn counters(lanes: &EventLanes, most: usize) -> (Vec<serde_json::Value>, usize) {
    let length = lanes.length();
    let one = |counter: &CounterLane| {
        let is_thinned = counter.steps().len() > most;
        let (at, values): (Vec<u64>, Vec<f64>) = match is_thinned {
            false => counter.steps().iter().map(|(at, value)| (at.0, *value)).unzip(),
            true => highest_of_parts(counter, length, most).unzip(),
        };
        json!({
            "label": clean(&counter.label),
            "unit": counter.unit.map(CounterUnit::name),
            "rank": counter.rank,
            "thinned": is_thinned,
            "at": at,
            "values": values,
        })
    };
    let shown = lanes.counters().iter().take(COUNTERS_MAX).map(one).collect();
    (shown, lanes.counters().len().saturating_sub(COUNTERS_MAX))
}

fn highest_of_parts(
    counter: &CounterLane,
    length: Nanos,
    parts: usize,
) -> impl Iterator<Item = (u64, f64)> + '_ {
    let edge = move |part: usize| {
        let at = u128::from(length.0) * part as u128 / parts.max(1) as u128;
        Nanos(u64::try_from(at).unwrap_or(u64::MAX))
    };
    (0..parts).filter_map(move |part| {
        let (from, to) = (edge(part), edge(part + 1));
        Some((from.0, counter.highest(from, to)?))
    })
}

/// The events of the page.
struct EventSelection {
    /// Events of the trace.
    total: usize,
    /// Events that begin after this time are omitted. Of those that begin at it, the first lanes' have room.
    until: Option<Nanos>,
    /// Number on the page, by the lane's rank and event.
    numbers: FxHashMap<(u32, Event), u32>,
}

impl EventSelection {
    fn of(lanes: &EventLanes, most: usize) -> Self {
        let all = || lanes.lanes().iter().flat_map(|lane| lanes.events(lane).map(move |event| (lane, event)));
        let mut begins: Vec<Nanos> = all().map(|(_, event)| event.begin).collect();
        let total = begins.len();
        let until = (total > most).then(|| *begins.select_nth_unstable(most).1);
        let earlier = begins.iter().filter(|begin| until.is_none_or(|until| **begin < until)).count();
        drop(begins);
        let mut room = most.saturating_sub(earlier);
        let mut is_there = |event: &LaneEvent<'_>| match until {
            Some(until) if event.begin == until => {
                let fits = room > 0;
                room = room.saturating_sub(1);
                fits
            }
            Some(until) => event.begin < until,
            None => true,
        };
        let there = all().filter(|(_, event)| is_there(event));
        let numbered = (0u32..).zip(there.map(|(lane, event)| (lanes.rank_and_device(lane).0, event.event)));
        let numbers = numbered.map(|(number, key)| (key, number)).collect();
        EventSelection { total, until, numbers }
    }

    /// Whether an event of a lane of this rank is on the page.
    fn has(&self, rank: u32, event: &LaneEvent<'_>) -> bool {
        match self.until {
            Some(until) if event.begin == until => self.numbers.contains_key(&(rank, event.event)),
            Some(until) => event.begin < until,
            None => true,
        }
    }
}

#[derive(Default)]
struct Columns {
    shown: usize,
    names: Names,
    begins: Vec<u8>,
    lengths: Vec<u8>,
    name_numbers: Vec<u8>,
    causes: Vec<u8>,
    correlations: Vec<u8>,
    bytes: Vec<u8>,
}

impl Columns {
    /// Adds the events of a lane; returns their count.
    fn add(&mut self, lane: &EventLane, lanes: &EventLanes, chosen: &EventSelection) -> usize {
        let rank = lanes.rank_and_device(lane).0;
        let (mut begin, mut cause, mut correlation, mut count) = (0, 0, 0, 0);
        for event in lanes.events(lane).filter(|event| chosen.has(rank, event)) {
            // A lane is sorted by begin.
            varint(&mut self.begins, event.begin.0.saturating_sub(begin));
            begin = event.begin.0;
            varint(&mut self.lengths, event.duration.0);
            let name = self.names.number(&event);
            varint(&mut self.name_numbers, name.into());
            let known = event.cause.map(|of| chosen.numbers.get(&(rank, of)).copied());
            varint(
                &mut self.causes,
                match known {
                    None => 0,
                    Some(None) => 1,
                    Some(Some(number)) => 2 + zigzag(u64::from(number), &mut cause),
                },
            );
            if lane.is_stream {
                let shown = if event.correlation < EXACT { event.correlation } else { 0 };
                varint(&mut self.correlations, zigzag(shown, &mut correlation));
                varint(&mut self.bytes, event.bytes.0);
            }
            count += 1;
        }
        self.shown += count;
        count
    }
}

/// Distinct names, each with its class: the index in [`EventClass::ALL`], or the number of classes for a step.
#[derive(Default)]
struct Names {
    all: Vec<(u8, String)>,
    numbers: FxHashMap<(u8, String), u32>,
    bytes: usize,
    left_out: u64,
}

impl Names {
    fn number(&mut self, event: &LaneEvent<'_>) -> u32 {
        let class = if event.is_step { EventClass::ALL.len() } else { event.class as usize } as u8;
        let mut key = (class, clean(event.name));
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.bytes.saturating_add(key.1.len()) > NAMES_MAX {
            self.left_out += 1;
            key.1 = NO_NAME.to_owned();
            if let Some(number) = self.numbers.get(&key) {
                return *number;
            }
        }
        self.bytes += key.1.len();
        let number = self.all.len() as u32;
        self.all.push(key.clone());
        self.numbers.insert(key, number);
        number
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The difference to the previous value, zigzag-encoded: small for small ones of either sign.
fn zigzag(value: u64, before: &mut u64) -> u64 {
    let difference = value.wrapping_sub(*before).cast_signed();
    *before = value;
    ((difference << 1) ^ (difference >> 63)).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use deepctx_profile::trace::{Job, text};

    use super::*;

    fn packed(input: &str, most: usize) -> (serde_json::Value, Vec<u64>) {
        let job = Job::new(vec![("a.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        packed_lanes(&EventLanes::new(Arc::new(job), |_| 0), most)
    }

    fn packed_lanes(lanes: &EventLanes, most: usize) -> (serde_json::Value, Vec<u64>) {
        let mut out = Vec::new();
        pack(lanes, most, &mut out).unwrap();
        let length = u32::from_le_bytes(out[..4].try_into().unwrap()) as usize;
        let mut values = vec![0];
        let mut shift = 0;
        for byte in &out[4 + length..] {
            *values.last_mut().unwrap() |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                values.push(0);
                shift = 0;
            }
        }
        values.pop();
        (serde_json::from_slice(&out[4..4 + length]).unwrap(), values)
    }

    const INPUT: &str = "step main 0..100 Step#1\ncall main 1..2 launch #9\nkernel 0/7 3..5 gemm #9";

    #[test]
    fn columns_hold_every_event_and_its_cause() {
        let (document, values) = packed(INPUT, 3);
        assert_eq!((&document["total"], &document["shown"]), (&json!(3), &json!(3)));
        assert_eq!(document["until"], json!(null));
        assert_eq!(document["names"], json!([[0, "gemm"], [9, "Step#1"], [3, "launch"]]));
        let begins = [3_000, 0, 1_000];
        let lengths = [2_000, 100_000, 1_000];
        // The kernel's cause is event 2: doubled for the sign, plus two.
        let rest = [0, 1, 2, 6, 0, 0, 18, 0];
        assert_eq!(values, [&begins[..], &lengths, &rest].concat());
    }

    #[test]
    fn what_begins_late_is_left_out_and_counted() {
        let (document, values) = packed(INPUT, 2);
        assert_eq!((&document["total"], &document["shown"]), (&json!(3), &json!(2)));
        assert_eq!(document["until"], json!(3_000));
        assert_eq!(document["lanes"][0]["count"], json!(0));
        assert_eq!(values, [0, 1_000, 100_000, 1_000, 0, 1, 0, 0]);
    }

    #[test]
    fn of_events_that_begin_together_as_many_stay_as_fit() {
        let input = "kernel 0/7 3..5 a\nkernel 0/8 3..6 b\nkernel 0/9 3..7 c\nkernel 0/7 8..9 d";
        let (document, values) = packed(input, 2);
        assert_eq!((&document["total"], &document["shown"]), (&json!(4), &json!(2)));
        let counts = document["lanes"].as_array().unwrap().iter().map(|lane| lane["count"].as_u64().unwrap());
        let counts: Vec<u64> = counts.collect();
        assert_eq!((counts.len(), counts.iter().sum::<u64>()), (3, 2));
        // Six columns of two events each.
        assert_eq!(values.len(), 12);
    }

    #[test]
    fn ranks_with_their_own_clock_are_listed() {
        let trace = || text::parse("kernel 0/7 3..5 gemm").unwrap();
        let job = Job::new(vec![("a".to_owned(), trace()), ("b".to_owned(), trace())]).unwrap();
        let lanes = EventLanes::with_unaligned(Arc::new(job), |_| 0, vec![1]);
        let (document, _) = packed_lanes(&lanes, 9);
        assert_eq!((&document["firstRank"], &document["unaligned"]), (&json!(0), &json!([1])));
        assert_eq!(document["lanes"][1]["label"], json!("rank 1 own clock gpu0 stream 7"));
    }

    #[test]
    fn counters_have_their_values_or_the_highest_of_parts() {
        let input = "op main 0..100 f\ncounter 1 10 bytes=5 live\ncounter 1 20 bytes=9 live\ncounter 1 30 bytes=2 live";
        let job = Job::new(vec![("a.json".to_owned(), text::parse(input).unwrap())]).unwrap();
        let lanes = EventLanes::new(Arc::new(job), |_| 0);
        let check = |most, thinned: bool, at: &[u64], values: &[f64]| {
            let (found, left_out) = counters(&lanes, most);
            let [counter] = &found[..] else { panic!("{found:?}") };
            assert_eq!((&counter["label"], &counter["unit"]), (&json!("live"), &json!("bytes")));
            assert_eq!((&counter["at"], &counter["values"]), (&json!(at), &json!(values)));
            assert_eq!((&counter["thinned"], left_out), (&json!(thinned), 0));
        };
        check(3, false, &[10_000, 20_000, 30_000], &[5.0, 9.0, 2.0]);
        check(2, true, &[0, 50_000], &[9.0, 2.0]);
    }
}
