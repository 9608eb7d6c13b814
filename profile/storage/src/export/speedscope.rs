//! speedscope: the JSON of <https://www.speedscope.app>, one profile per metric.
//!
//! Owns: [`write()`]. Because: it draws left-heavy graphs and sandwiches in any browser. Does not: give times of day;
//! a capture holds sums, so samples are placed side by side in the order of their stacks.

use std::io::{self, Write};

use serde_json::json;

use super::Source;
use super::json_text::{field, list, value};
use super::outline::Outline;
use super::source_location::SourceLocation;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::metric::{Metric, Unit};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Writes the JSON document.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let meta = &source.profile.meta;
    out.write_all(b"{")?;
    field(out, "$schema", SCHEMA)?;
    out.write_all(b",\n")?;
    field(out, "exporter", &format!("deepctx-bpf {}", deepctx_profile::frame::clean(&meta.version)))?;
    out.write_all(b",\n")?;
    field(out, "name", &deepctx_profile::frame::clean(&meta.target))?;
    out.write_all(b",\n\"activeProfileIndex\":0,\n\"shared\":{\"frames\":")?;
    let frames = outline.contexts.frames.iter();
    list(out, frames, |out, (id, frame)| value(out, &frame_json(&outline, id, &frame)))?;
    out.write_all(b"},\n\"profiles\":")?;
    // The selected metric is written even without values: the format requires a profile.
    let none = [source.selection.metric];
    let metrics = if outline.metrics.is_empty() { &none[..] } else { &outline.metrics };
    list(out, metrics, |out, &metric| profile(&outline, metric, out))?;
    out.write_all(b"}\n")?;
    out.flush()
}

fn frame_json(outline: &Outline<'_>, id: FrameId, frame: &Frame) -> serde_json::Value {
    let strings = outline.contexts.strings;
    let SourceLocation { file, module, line, start, .. } = SourceLocation::of(frame);
    let (file, line) =
        if file == StrId::EMPTY { (strings.get(module), None) } else { (strings.get(file), line.or(start)) };
    let mut json = json!({ "name": outline.frame_label(id) });
    if !file.is_empty() {
        json["file"] = deepctx_profile::frame::clean(file).into();
        if let Some(line) = line {
            json["line"] = line.get().into();
        }
    }
    json
}

fn profile(outline: &Outline<'_>, metric: Metric, out: &mut dyn Write) -> io::Result<()> {
    let own = |node| outline.own(node, metric);
    let nodes = || outline.order.iter().map(|(node, _)| *node).filter(|&node| own(node) > 0);
    let total = nodes().fold(0u64, |sum, node| sum.saturating_add(own(node)));
    let unit = match metric.unit() {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count => "none",
    };
    out.write_all(b"{\"type\":\"sampled\",")?;
    field(out, "name", metric.name())?;
    out.write_all(b",")?;
    field(out, "unit", unit)?;
    write!(out, ",\"startValue\":0,\"endValue\":{total},\n\"samples\":")?;
    list(out, nodes(), |out, node| {
        let mut stack = outline.stack(node);
        if stack.is_empty() {
            stack.push(FrameId::ROOT);
        }
        value(out, &stack.into_iter().map(FrameId::number).collect::<Vec<u32>>())
    })?;
    out.write_all(b",\n\"weights\":")?;
    list(out, nodes(), |out, node| write!(out, "{}", own(node)))?;
    out.write_all(b"}")
}
