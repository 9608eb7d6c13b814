//! pprof profiles, to a profile.
//!
//! Owns: [`read`]. Because: it is what continuous profilers and Go programs hand out. Does not: trust it: tables are
//! bounded, every reference is checked, and a dangling one becomes a labeled gap.

use prost::Message as _;
use rustc_hash::FxHashMap;

use super::{
    DANGLING, ImportError, Kind, NEGATIVE, NO_LOCATION, NO_SYMBOL, TOO_DEEP, UNKNOWN_METRIC, gap, words,
};
use crate::proto::pprof::{Function, Location, Mapping, Sample, ValueType};
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::profile::Profile;
use deepctx_profile::units::{Nanos, Time};

/// Maximum entries of any table. The largest profiles of continuous profilers have a few hundred thousand.
const ENTRIES_MAX: usize = 4 << 20;
/// Maximum frames of one stack, and of one location. The innermost are kept.
const DEPTH_MAX: usize = 16 * 1024;

/// One field of the outermost message.
enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    Other,
}

/// Iterates over the fields of a message without decoding their content.
struct Fields<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Fields<'b> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            // The tenth byte has one bit.
            value |= u64::from(byte & 0x7f).checked_shl(shift).filter(|_| shift < 63 || byte < 2)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn skip(&mut self, length: u64) -> Option<&'b [u8]> {
        let end = self.at.checked_add(usize::try_from(length).ok()?)?;
        let bytes = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    /// The next field; `Err` with its offset if the rest is not a field.
    fn next(&mut self) -> Result<Option<(u64, Field<'b>)>, usize> {
        let start = self.at;
        if start == self.bytes.len() {
            return Ok(None);
        }
        let mut read = || {
            let key = self.varint()?;
            let field = match key & 7 {
                0 => Field::Number(self.varint()?),
                1 => self.skip(8).map(|_| Field::Other)?,
                2 => {
                    let length = self.varint()?;
                    Field::Bytes(self.skip(length)?)
                }
                5 => self.skip(4).map(|_| Field::Other)?,
                _ => return None,
            };
            (key >> 3 > 0).then_some((key >> 3, field))
        };
        read().map(Some).ok_or(start)
    }
}

/// The tables of the file, without samples.
#[derive(Default)]
struct Tables<'b> {
    sample_types: Vec<ValueType>,
    strings: Vec<&'b [u8]>,
    mappings: FxHashMap<u64, Mapping>,
    locations: FxHashMap<u64, Location>,
    functions: FxHashMap<u64, Function>,
    time_nanos: i64,
    duration_nanos: i64,
}

impl<'b> Tables<'b> {
    fn text(&self, place: i64) -> std::borrow::Cow<'b, str> {
        let bytes = usize::try_from(place).ok().and_then(|place| self.strings.get(place));
        String::from_utf8_lossy(bytes.copied().unwrap_or_default())
    }
}

pub(super) fn read(bytes: &[u8], profile: &mut Profile) -> Result<Nanos, ImportError> {
    let tables = tables(bytes)?;
    let metrics = metrics(&tables, profile);
    if metrics.iter().all(Option::is_none) {
        let names: Vec<String> = tables
            .sample_types
            .iter()
            .take(8)
            .map(|kind| {
                deepctx_profile::frame::clean(&format!(
                    "{}/{}",
                    tables.text(kind.kind),
                    tables.text(kind.unit)
                ))
            })
            .collect();
        let because = format!("none of its sample types has a counterpart here: {}", names.join(", "));
        return Err(ImportError::Empty { kind: Kind::Pprof, because });
    }
    samples(bytes, &tables, &metrics, profile)?;
    profile.meta.started = Time::from_nanos(u64::try_from(tables.time_nanos).unwrap_or(0));
    Ok(Nanos(u64::try_from(tables.duration_nanos).unwrap_or(0)))
}

fn damaged(at: usize, what: &str) -> ImportError {
    ImportError::damaged(Kind::Pprof, format!("at byte {at}, {what}"))
}

fn tables(bytes: &[u8]) -> Result<Tables<'_>, ImportError> {
    let mut tables = Tables::default();
    let mut fields = Fields { bytes, at: 0 };
    let mut samples = 0usize;
    loop {
        let at = fields.at;
        let wrong = |what: &str| damaged(at, &format!("{what} is not as pprof has it"));
        let next = fields.next().map_err(|at| damaged(at, "there is no field of a protobuf message"))?;
        match next {
            None => break,
            Some((1, Field::Bytes(part))) => {
                tables.sample_types.push(ValueType::decode(part).map_err(|_| wrong("a sample type"))?);
            }
            Some((2, Field::Bytes(_))) => samples += 1,
            Some((3, Field::Bytes(part))) => {
                let mapping = Mapping::decode(part).map_err(|_| wrong("a mapping"))?;
                tables.mappings.insert(mapping.id, mapping);
            }
            Some((4, Field::Bytes(part))) => {
                let location = Location::decode(part).map_err(|_| wrong("a location"))?;
                tables.locations.insert(location.id, location);
            }
            Some((5, Field::Bytes(part))) => {
                let function = Function::decode(part).map_err(|_| wrong("a function"))?;
                tables.functions.insert(function.id, function);
            }
            Some((6, Field::Bytes(text))) => tables.strings.push(text),
            Some((9, Field::Number(time))) => tables.time_nanos = time.cast_signed(),
            Some((10, Field::Number(time))) => tables.duration_nanos = time.cast_signed(),
            Some((1..=6, _)) => return Err(wrong("a table")),
            // Filters, comments, the period, and fields of later versions.
            Some(_) => {}
        }
        let largest = [tables.sample_types.len(), tables.strings.len(), tables.locations.len()].into_iter();
        let largest = largest.chain([tables.functions.len(), tables.mappings.len()]).max().unwrap_or(0);
        if largest > ENTRIES_MAX {
            return Err(ImportError::TooLarge {
                most: ENTRIES_MAX,
                what: "entries in a table of a pprof profile",
            });
        }
    }
    if tables.strings.first().is_none_or(|first| !first.is_empty()) {
        return Err(ImportError::damaged(
            Kind::Pprof,
            "its string table does not begin with the empty string",
        ));
    }
    if tables.sample_types.is_empty() || samples == 0 {
        let because = if samples == 0 { "it has no samples" } else { "it has no sample types" };
        return Err(ImportError::Empty { kind: Kind::Pprof, because: because.to_owned() });
    }
    Ok(tables)
}

/// By index in a sample: the metric, and the factor from the file's unit to its own.
fn metrics(tables: &Tables<'_>, profile: &mut Profile) -> Vec<Option<(Metric, u64)>> {
    let mut metrics: Vec<Option<(Metric, u64)>> = Vec::new();
    for kind in &tables.sample_types {
        let (name, unit) = (tables.text(kind.kind), tables.text(kind.unit));
        let (unit, scale) = match &*unit {
            "nanoseconds" | "ns" => (Unit::Nanoseconds, 1),
            "microseconds" | "us" => (Unit::Nanoseconds, 1_000),
            "milliseconds" | "ms" => (Unit::Nanoseconds, 1_000_000),
            "seconds" | "s" => (Unit::Nanoseconds, 1_000_000_000),
            "bytes" | "By" => (Unit::Bytes, 1),
            _ => (Unit::Count, 1),
        };
        let metric = name.parse::<Metric>().ok().or(match &*name {
            "cpu" => Some(Metric::CpuTime),
            "wall" => Some(Metric::WallTime),
            "delay" => Some(Metric::OffCpuTime),
            "sample" | "contentions" => Some(Metric::Samples),
            "alloc_space" => Some(Metric::AllocBytes),
            _ => None,
        });
        let metric = metric.filter(|metric| metric.unit() == unit);
        // Two columns of one metric would not add up to either.
        let metric = metric.filter(|metric| metrics.iter().flatten().all(|(known, _)| known != metric));
        metrics.push(metric.map(|metric| (metric, scale)));
    }
    let unknown = metrics.iter().filter(|metric| metric.is_none()).count() as u64;
    gap(profile, UNKNOWN_METRIC, unknown);
    metrics
}

fn samples(
    bytes: &[u8],
    tables: &Tables<'_>,
    metrics: &[Option<(Metric, u64)>],
    profile: &mut Profile,
) -> Result<(), ImportError> {
    // The frames of each location, innermost first.
    let mut known: FxHashMap<u64, Vec<FrameId>> = FxHashMap::default();
    let mut fields = Fields { bytes, at: 0 };
    let (mut negative, mut dangling, mut too_deep) = (0, 0, 0);
    let mut stack: Vec<FrameId> = Vec::new();
    loop {
        let at = fields.at;
        // The same fields were read before for the tables.
        let Ok(Some((number, field))) = fields.next() else { break };
        let (2, Field::Bytes(part)) = (number, field) else { continue };
        let sample = Sample::decode(part).map_err(|_| damaged(at, "a sample is not as pprof has it"))?;
        stack.clear();
        for id in &sample.location_id {
            let frames = known.entry(*id).or_insert_with(|| match tables.locations.get(id) {
                Some(location) => {
                    too_deep += location.line.len().saturating_sub(DEPTH_MAX) as u64;
                    frames(tables, location, profile)
                }
                None => {
                    dangling += 1;
                    let reason = profile.text(NO_LOCATION.key);
                    vec![profile.frame(Frame::Unresolved { reason, origin: Default::default() })]
                }
            });
            let room = DEPTH_MAX.saturating_sub(stack.len());
            stack.extend(frames.iter().take(room));
            too_deep += frames.len().saturating_sub(room) as u64;
        }
        root(tables, &sample, profile, &mut stack);
        stack.reverse();
        for (value, metric) in sample.value.iter().zip(metrics) {
            let Some((metric, scale)) = *metric else { continue };
            match u64::try_from(*value) {
                Ok(0) => {}
                Ok(value) => {
                    profile.add(&stack, metric, value.saturating_mul(scale));
                }
                Err(_) => negative += 1,
            }
        }
    }
    gap(profile, NEGATIVE, negative);
    gap(profile, DANGLING, dangling);
    gap(profile, TOO_DEEP, too_deep);
    Ok(())
}

/// Makes the outermost frame the process named by the labels, if any. The stack is leaf first here.
fn root(tables: &Tables<'_>, sample: &Sample, profile: &mut Profile, stack: &mut Vec<FrameId>) {
    let label = |name: &str| sample.label.iter().find(|label| tables.text(label.key) == name);
    let Some(comm) = label("process") else { return };
    // Ours have no number where a process stands for all others of its name, which its frame says, too.
    let pid = label("pid").map(|pid| u32::try_from(pid.num));
    let Ok(pid) = pid.unwrap_or(Ok(Frame::OTHERS)) else { return };
    let comm = tables.text(comm.str);
    let frame = Frame::Process { comm: profile.text(&comm), pid };
    let text = frame.label(&profile.strings, false);
    let frame = profile.frame(frame);
    // The frames may include it already, for viewers that show no labels.
    let same = |at: &FrameId| profile.frames.get(*at).label(&profile.strings, false) == text;
    match stack.iter_mut().rev().take(2).find(|at| same(at)) {
        Some(known) => *known = frame,
        None if pid == Frame::OTHERS => {}
        None => stack.push(frame),
    }
}

/// The frames of a location, innermost first.
fn frames(tables: &Tables<'_>, location: &Location, profile: &mut Profile) -> Vec<FrameId> {
    let mapping = tables.mappings.get(&location.mapping_id);
    let module = mapping.map(|mapping| tables.text(mapping.filename)).unwrap_or_default();
    let lines = location.line.len().min(DEPTH_MAX);
    if lines == 0 {
        let (module, reason) = (profile.text(&module), profile.text(NO_SYMBOL.key));
        let frame = Frame::NativeUnnamed { module, offset: location.address, reason, role: Role::Code };
        return vec![profile.frame(frame)];
    }
    let mut frames = Vec::with_capacity(lines);
    for (place, line) in location.line[..lines].iter().enumerate() {
        let function = tables.functions.get(&line.function_id).copied().unwrap_or_default();
        let (name, file) = (tables.text(function.name), tables.text(function.filename));
        let number = |line: i64| u32::try_from(line).ok().and_then(std::num::NonZeroU32::new);
        let frame = if file.ends_with(".py") || file.starts_with('<') {
            // A function may have both a plain name and a readable one.
            let system = tables.text(function.system_name);
            let name = if system.is_empty() { &name } else { &system };
            words::of_python(profile, name, &file, number(line.line), number(function.start_line))
        } else if module.contains("kernel") && module.starts_with('[') {
            Frame::Kernel { symbol: profile.text(name.strip_suffix("_[k]").unwrap_or(&name)) }
        } else {
            match words::frame(profile, &name) {
                Frame::Native { symbol, role, inlined, .. } => Frame::Native {
                    symbol,
                    module: profile.text(&module),
                    file: if *file == *module {
                        deepctx_profile::intern::StrId::EMPTY
                    } else {
                        profile.text(&file)
                    },
                    line: number(line.line),
                    // All but the last frame of a location were inlined into the next.
                    inlined: inlined || place + 1 < lines,
                    role,
                },
                other => other,
            }
        };
        frames.push(profile.frame(frame));
    }
    frames
}
