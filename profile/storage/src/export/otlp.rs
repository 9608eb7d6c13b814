//! OpenTelemetry profiles: one `ProfilesData` message as an OTLP receiver takes it.
//!
//! Owns: [`write()`]. Because: collectors and backends agree on it across languages. Does not: send anything, and
//! cannot be sure of tomorrow: the format is alpha, here as of version 1.11.
//!
//! A process is a resource, with one profile for each metric it has values of. Threads, when they are distinguished,
//! are attributes of samples.

use std::collections::BTreeMap;
use std::io::{self, Write};

use prost::Message as _;
use rustc_hash::FxHashMap;

use super::outline::{Lane, Outline};
use super::source_location::SourceLocation;
use super::{Source, VALUE_TOO_LARGE, kind_name, too_large};
use crate::proto::otlp::{
    AnyValue, Function, InstrumentationScope, KeyValue, KeyValueAndUnit, Line, Link, Location, Mapping,
    Profile, ProfilesData, ProfilesDictionary, Resource, ResourceProfiles, Sample, ScopeProfiles, Stack,
    ValueType,
};
use deepctx_profile::frame::Frame;
use deepctx_profile::frame::FrameKind;
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::tree::NodeId;

/// Writes the message.
///
/// # Errors
/// Writing to `out` failed, or `InvalidData` when there are more contexts than its numbers can count.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    if i32::try_from(outline.contexts.tree.len()).is_err() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the profile has too many contexts for OTLP"));
    }
    let mut tables = Tables::new(source, &outline);
    // By name as well: a process may change it, and all processes without their own context have one number.
    let mut by_process: BTreeMap<(u32, &str), Vec<NodeId>> = BTreeMap::new();
    for &(node, _) in outline.order.iter().filter(|(node, _)| outline.has_values(*node)) {
        let lane = &outline.lanes[outline.lane(node)];
        by_process.entry((lane.pid(), lane.process_name())).or_default().push(node);
    }
    let resource_profiles =
        by_process.values().map(|nodes| resource(source, &outline, &mut tables, nodes)).collect();
    let data = ProfilesData { resource_profiles, dictionary: Some(tables.dictionary) };
    out.write_all(&data.encode_to_vec())?;
    out.flush()
}

fn resource(
    source: &Source<'_>,
    outline: &Outline<'_>,
    tables: &mut Tables,
    nodes: &[NodeId],
) -> ResourceProfiles {
    let meta = &source.profile.meta;
    let attributes = attributes(source, outline, nodes);
    let samples: Vec<(NodeId, i32, Vec<i32>)> =
        nodes.iter().map(|&node| (node, tables.stack(outline, node), tables.thread(outline, node))).collect();
    let profiles = outline.metrics.iter().filter_map(|&metric| {
        let has_values = |node: NodeId| !outline.contexts.tree.exclusive(node, metric).is_empty();
        let samples: Vec<Sample> = samples
            .iter()
            .filter(|(node, ..)| has_values(*node))
            .map(|(node, stack_index, attribute_indices)| Sample {
                stack_index: *stack_index,
                attribute_indices: attribute_indices.clone(),
                values: vec![signed(outline.own(*node, metric))],
            })
            .collect();
        let period = match metric {
            Metric::CpuTime if meta.frequency_hz > 0 => 1_000_000_000 / i64::from(meta.frequency_hz),
            _ => 0,
        };
        (!samples.is_empty()).then(|| Profile {
            sample_type: Some(tables.value_type(metric)),
            samples,
            time_unix_nano: meta.started.as_nanos(),
            duration_nano: source.elapsed.0,
            period_type: (period > 0).then(|| tables.value_type(metric)),
            period,
        })
    });
    let scope = InstrumentationScope {
        name: "deepctx-bpf".to_owned(),
        version: deepctx_profile::frame::clean(&meta.version),
    };
    let profiles = profiles.collect();
    ResourceProfiles {
        resource: Some(Resource { attributes }),
        scope_profiles: vec![ScopeProfiles { scope: Some(scope), profiles }],
    }
}

/// Facts about a process, of which all `nodes` are.
fn attributes(source: &Source<'_>, outline: &Outline<'_>, nodes: &[NodeId]) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    let host = deepctx_profile::frame::clean(&source.profile.meta.host);
    if !host.is_empty() {
        attributes.push(attribute("host.name", AnyValue::text(&host)));
    }
    let lane = nodes.first().map(|&node| &outline.lanes[outline.lane(node)]);
    if let Some((name, pid)) = lane.and_then(|lane| lane.process.as_ref()) {
        if *pid != Frame::OTHERS {
            attributes.push(attribute("process.pid", AnyValue::number(i64::from(*pid))));
        }
        attributes.push(attribute("process.executable.name", AnyValue::text(name)));
    }
    let own = |&node: &NodeId| outline.metrics.iter().map(move |&metric| outline.own(node, metric));
    let capped = too_large(nodes.iter().flat_map(own));
    if capped > 0 {
        let key = format!("deepctx.{}", VALUE_TOO_LARGE.key);
        attributes.push(attribute(&key, AnyValue::number(signed(capped))));
    }
    attributes
}

fn attribute(key: &str, value: Option<AnyValue>) -> KeyValue {
    KeyValue { key: key.to_owned(), value }
}

/// The shared tables under construction.
struct Tables {
    dictionary: ProfilesDictionary,
    texts: FxHashMap<String, i32>,
    mappings: FxHashMap<StrId, i32>,
    attributes: FxHashMap<(&'static str, String), i32>,
}

impl Tables {
    /// Tables with all frames: the index of a frame's location is its number plus one.
    fn new(source: &Source<'_>, outline: &Outline<'_>) -> Self {
        // Entry 0 of every table means "none".
        let dictionary = ProfilesDictionary {
            mapping_table: vec![Mapping::default()],
            location_table: vec![Location::default()],
            function_table: vec![Function::default()],
            link_table: vec![Link::default()],
            string_table: vec![String::new()],
            attribute_table: vec![KeyValueAndUnit::default()],
            stack_table: vec![Stack::default()],
        };
        let mut tables = Tables {
            dictionary,
            texts: FxHashMap::from_iter([(String::new(), 0)]),
            mappings: FxHashMap::default(),
            attributes: FxHashMap::default(),
        };
        for (id, frame) in outline.contexts.frames.iter() {
            tables.place(source, outline, id, frame);
        }
        tables
    }

    fn text(&mut self, text: &str) -> i32 {
        if let Some(&place) = self.texts.get(text) {
            return place;
        }
        let place = self.dictionary.string_table.len() as i32;
        self.dictionary.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), place);
        place
    }

    fn attribute(&mut self, key: &'static str, value: Option<AnyValue>) -> i32 {
        let known = (key, format!("{value:?}"));
        if let Some(&place) = self.attributes.get(&known) {
            return place;
        }
        let entry = KeyValueAndUnit { key_strindex: self.text(key), value, unit_strindex: 0 };
        let place = self.dictionary.attribute_table.len() as i32;
        self.dictionary.attribute_table.push(entry);
        self.attributes.insert(known, place);
        place
    }

    fn value_type(&mut self, metric: Metric) -> ValueType {
        let unit = match metric.unit() {
            Unit::Nanoseconds => "ns",
            Unit::Count => "count",
            Unit::Bytes => "By",
        };
        ValueType { type_strindex: self.text(metric.name()), unit_strindex: self.text(unit) }
    }

    fn place(&mut self, source: &Source<'_>, outline: &Outline<'_>, id: FrameId, frame: Frame) {
        let strings = outline.contexts.strings;
        let clean = |id: StrId| deepctx_profile::frame::clean(strings.get(id));
        let SourceLocation { name, module, file, line, start, offset: address } = SourceLocation::of(&frame);
        let number = |line: deepctx_profile::frame::Line| line.map_or(0, |line| i64::from(line.get()));
        let function = Function {
            name_strindex: self.text(&frame.label(strings, false)),
            system_name_strindex: self.text(&clean(name)),
            filename_strindex: self.text(&clean(file)),
            start_line: number(start),
        };
        let kind = match frame.kind() {
            FrameKind::Python => Some("cpython"),
            FrameKind::Native => Some("native"),
            FrameKind::Kernel => Some("kernel"),
            // The convention has no names for these, and permits others.
            own @ (FrameKind::Operator | FrameKind::Layer | FrameKind::GpuApi | FrameKind::GpuKernel) => {
                Some(kind_name(own))
            }
            FrameKind::Root | FrameKind::Process | FrameKind::Thread | FrameKind::Unresolved => None,
        };
        let mapping_index =
            if module == StrId::EMPTY { 0 } else { self.mapping(source, module, &clean(module)) };
        let kind = kind.map(|kind| self.attribute("profile.frame.type", AnyValue::text(kind)));
        self.dictionary.location_table.push(Location {
            mapping_index,
            address,
            lines: vec![Line { function_index: id.number() as i32 + 1, line: number(line) }],
            attribute_indices: kind.into_iter().collect(),
        });
        self.dictionary.function_table.push(function);
    }

    fn mapping(&mut self, source: &Source<'_>, module: StrId, path: &str) -> i32 {
        if let Some(&place) = self.mappings.get(&module) {
            return place;
        }
        let build_ids = source.profile.executables.iter().filter(|known| known.path == path);
        let build_id = build_ids.map(|known| known.build_id.as_str()).find(|id| !id.is_empty());
        let build_id =
            build_id.map(|id| self.attribute("process.executable.build_id.gnu", AnyValue::text(id)));
        let place = self.dictionary.mapping_table.len() as i32;
        let filename_strindex = self.text(path);
        let attribute_indices = build_id.into_iter().collect();
        self.dictionary.mapping_table.push(Mapping { filename_strindex, attribute_indices });
        self.mappings.insert(module, place);
        place
    }

    fn stack(&mut self, outline: &Outline<'_>, node: NodeId) -> i32 {
        let mut stack = outline.stack(node);
        if stack.is_empty() {
            stack.push(FrameId::ROOT);
        }
        let location_indices = stack.into_iter().rev().map(|frame| frame.number() as i32 + 1).collect();
        let place = self.dictionary.stack_table.len() as i32;
        self.dictionary.stack_table.push(Stack { location_indices });
        place
    }

    fn thread(&mut self, outline: &Outline<'_>, node: NodeId) -> Vec<i32> {
        let Lane { thread: Some((name, tid)), .. } = &outline.lanes[outline.lane(node)] else {
            return Vec::new();
        };
        let mut attributes = Vec::new();
        if *tid != Frame::OTHERS {
            attributes.push(self.attribute("thread.id", AnyValue::number(i64::from(*tid))));
        }
        attributes.push(self.attribute("thread.name", AnyValue::text(name)));
        attributes
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
