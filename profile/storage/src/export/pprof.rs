//! pprof: the gzipped `profile.proto` of Go, read by most continuous profilers.
//!
//! Owns: [`write()`]. Because: it is the format that other tools agree on, with every metric in one file. Does not:
//! keep what it has no place for: extremes and squares of values.
//!
//! The process is the outermost frame, since many viewers show nothing else, and also a label (`process`, `pid`) to
//! select by; so are threads (`thread`, `tid`) when they are distinguished. Losses and gaps are comments (`-comments`).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use rustc_hash::FxHashMap;

use super::outline::{Lane, Outline};
use super::source_location::SourceLocation;
use super::{Source, VALUE_TOO_LARGE, too_large};
use crate::proto::pprof::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::ledger::Stage;
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::tree::NodeId;
use deepctx_profile::view::losses;

/// Messages encoded together.
const CHUNK: usize = 1024;

/// Writes a profile, gzipped.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let mut writer = Writer {
        out: GzEncoder::new(out, Compression::default()),
        texts: Texts::default(),
        mappings: FxHashMap::default(),
        outline: &outline,
        source,
    };
    writer.head()?;
    writer.samples()?;
    writer.places()?;
    writer.comments()?;
    let string_table = std::mem::take(&mut writer.texts.all);
    writer.put(&Profile { string_table, ..Profile::default() })?;
    writer.out.finish()?.flush()
}

struct Writer<'a, 'p, W: Write> {
    out: GzEncoder<W>,
    texts: Texts,
    /// By path: mapping id.
    mappings: FxHashMap<StrId, u64>,
    outline: &'a Outline<'p>,
    source: &'a Source<'p>,
}

impl<W: Write> Writer<'_, '_, W> {
    /// Consecutive messages are one message.
    fn put(&mut self, part: &Profile) -> io::Result<()> {
        self.out.write_all(&part.encode_to_vec())
    }

    fn head(&mut self) -> io::Result<()> {
        let meta = &self.source.profile.meta;
        let types = |texts: &mut Texts, metric: Metric| ValueType {
            kind: texts.number(metric.name()),
            unit: texts.number(unit(metric.unit())),
        };
        let mut head = Profile {
            time_nanos: signed(meta.started.as_nanos()),
            duration_nanos: signed(self.source.elapsed.0),
            ..Profile::default()
        };
        for &metric in &self.outline.metrics {
            head.sample_type.push(types(&mut self.texts, metric));
        }
        head.default_sample_type = self.outline.metrics.first().map_or(0, |m| self.texts.number(m.name()));
        // A period of another metric would make readers scale: only the timer's own metric has one.
        if meta.frequency_hz > 0 && self.outline.metrics.contains(&Metric::CpuTime) {
            head.period_type = Some(types(&mut self.texts, Metric::CpuTime));
            head.period = 1_000_000_000 / i64::from(meta.frequency_hz);
        }
        self.put(&head)
    }

    fn samples(&mut self) -> io::Result<()> {
        let lanes: Vec<Vec<Label>> =
            self.outline.lanes.iter().map(|lane| labels(&mut self.texts, lane)).collect();
        let nodes: Vec<_> = self.outline.order.iter().map(|(node, _)| *node).collect();
        for nodes in nodes.chunks(CHUNK) {
            let nodes = nodes.iter().copied().filter(|&node| self.outline.has_values(node));
            let sample = nodes.map(|node| {
                let mut stack = self.outline.stack(node);
                if stack.is_empty() {
                    stack.push(FrameId::ROOT);
                }
                Sample {
                    location_id: stack.into_iter().rev().map(number).collect(),
                    value: self.outline.metrics.iter().map(|&m| signed(self.outline.own(node, m))).collect(),
                    label: lanes[self.outline.lane(node)].clone(),
                }
            });
            let part = Profile { sample: sample.collect(), ..Profile::default() };
            self.put(&part)?;
        }
        Ok(())
    }

    /// Locations, functions and mappings of the used frames.
    fn places(&mut self) -> io::Result<()> {
        let mut used = vec![false; self.outline.contexts.frames.len()];
        for node in self.outline.contexts.tree.nodes() {
            used[node.frame.index()] = true;
        }
        let frames: Vec<(FrameId, Frame)> =
            self.outline.contexts.frames.iter().filter(|(id, _)| used[id.index()]).collect();
        for frames in frames.chunks(CHUNK) {
            let mut part = Profile::default();
            for &(id, frame) in frames {
                self.place(id, frame, &mut part);
            }
            self.put(&part)?;
        }
        Ok(())
    }

    fn place(&mut self, id: FrameId, frame: Frame, part: &mut Profile) {
        let strings = self.outline.contexts.strings;
        let SourceLocation { name, module, file, line, start, offset: address } = SourceLocation::of(&frame);
        let mapping_id = if module == StrId::EMPTY { 0 } else { self.mapping(module, part) };
        let line_number = |line: deepctx_profile::frame::Line| line.map_or(0, |line| i64::from(line.get()));
        let function_id = number(id);
        part.location.push(Location {
            id: number(id),
            mapping_id,
            address,
            line: vec![Line { function_id, line: line_number(line) }],
        });
        let name_clean = deepctx_profile::frame::clean(strings.get(name));
        let filename = if file == StrId::EMPTY { module } else { file };
        part.function.push(Function {
            id: function_id,
            // The line is stored separately, so the name omits it.
            name: self.texts.number(&frame.label(strings, false)),
            system_name: self.texts.number(&name_clean),
            filename: self.texts.number(&deepctx_profile::frame::clean(strings.get(filename))),
            start_line: line_number(start),
        });
    }

    fn mapping(&mut self, module: StrId, part: &mut Profile) -> u64 {
        if let Some(&id) = self.mappings.get(&module) {
            return id;
        }
        let id = self.mappings.len() as u64 + 1;
        self.mappings.insert(module, id);
        let path = self.outline.contexts.strings.get(module);
        // One of several files at a path may have none.
        let known = self.source.profile.executables.iter().filter(|executable| executable.path == path);
        let build_id = known.map(|executable| executable.build_id.as_str()).find(|id| !id.is_empty());
        part.mapping.push(Mapping {
            id,
            filename: self.texts.number(&deepctx_profile::frame::clean(path)),
            build_id: self.texts.number(build_id.unwrap_or("")),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: self.source.selection.lines,
            has_inline_frames: true,
            ..Mapping::default()
        });
        id
    }

    fn comments(&mut self) -> io::Result<()> {
        let mut part = Profile::default();
        let meta = &self.source.profile.meta;
        let mut say =
            |text: String| part.comment.push(self.texts.number(&deepctx_profile::frame::clean(&text)));
        say(format!("{} on {}, by deepctx-bpf {}", meta.target, meta.host, meta.version));
        for row in losses(self.source.profile) {
            let what = if row.lost { "lost" } else { "gap" };
            say(format!("{} {} {} {what}: {}", row.stage, row.reason, row.count, row.sentence));
        }
        let outline = self.outline;
        let own = |&(node, _): &(NodeId, u32)| outline.metrics.iter().map(move |&m| outline.own(node, m));
        let capped = too_large(outline.order.iter().flat_map(own));
        if capped > 0 {
            say(format!("{} {} {capped} gap: {VALUE_TOO_LARGE}", Stage::Store.name(), VALUE_TOO_LARGE.key));
        }
        self.put(&part)
    }
}

fn labels(texts: &mut Texts, lane: &Lane) -> Vec<Label> {
    let mut labels = Vec::new();
    for (name_key, id_key, who) in [("process", "pid", &lane.process), ("thread", "tid", &lane.thread)] {
        let Some((name, id)) = who else { continue };
        labels.push(Label { key: texts.number(name_key), str: texts.number(name), ..Label::default() });
        if *id != Frame::OTHERS {
            labels.push(Label { key: texts.number(id_key), num: i64::from(*id), ..Label::default() });
        }
    }
    labels
}

/// Id of locations and functions: derived from the frame, never 0.
fn number(frame: FrameId) -> u64 {
    u64::from(frame.number()) + 1
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Count => "count",
        Unit::Bytes => "bytes",
    }
}

/// The string table; its first entry is empty.
struct Texts {
    all: Vec<String>,
    numbers: FxHashMap<String, i64>,
}

impl Default for Texts {
    fn default() -> Self {
        let mut texts = Texts { all: Vec::new(), numbers: FxHashMap::default() };
        texts.number("");
        texts
    }
}

impl Texts {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}
