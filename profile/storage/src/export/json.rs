//! JSON: the whole profile as one document, with all figures of every metric.
//!
//! Owns: [`write()`]. Because: scripts that need more than one number should not parse another tool's format. Does not:
//! nest; contexts are a flat list in which a caller stands before those it calls, so that depth is no limit.
//!
//! | key | meaning |
//! |---|---|
//! | `format`, `version` | `"deepctx-export"`, 1; raised when a reader would misread it |
//! | `meta` | target, host, start (nanoseconds since 1970), frequency, version and options of the capture |
//! | `elapsed_ns` | length of the capture, 0 when unknown |
//! | `view` | `full`, `python` or `native` |
//! | `metrics` | `name`, `unit` (`ns`, `bytes`, `count`), and the `total` over all contexts |
//! | `frames` | `name`, `kind`, `where`; known by their place in the list |
//! | `contexts` | `frame` (place in `frames`), `parent` (place in `contexts`; null for the outermost), `values`: by metric `[count, sum, min, max, mean, deviation]` of this very context |
//! | `losses` | `stage`, `reason`, `sentence`, `count`, and whether records were `lost` or kept with a gap |

use std::io::{self, Write};

use serde_json::{Value, json};

use super::json_text::{field, list, value};
use super::outline::Outline;
use super::{Source, kind_name};
use deepctx_profile::metric::Unit;
use deepctx_profile::profile::Meta;
use deepctx_profile::tree::NodeId;
use deepctx_profile::view::losses;

/// Writes the document.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    out.write_all(b"{\"format\":\"deepctx-export\",\"version\":1,\n")?;
    // Documents are passed on, and only our own format needs the boot of the host.
    let meta = Meta { boot_id: String::new(), ..source.profile.meta.clone() };
    field(out, "meta", &meta)?;
    writeln!(out, ",\n\"elapsed_ns\":{},", source.elapsed.0)?;
    field(out, "view", source.selection.view.name())?;
    out.write_all(b",\n\"metrics\":")?;
    list(out, &outline.metrics, |out, metric| {
        let total = outline.contexts.tree.total(*metric).sum;
        value(out, &json!({ "name": metric.name(), "unit": unit(metric.unit()), "total": total }))
    })?;
    out.write_all(b",\n\"frames\":")?;
    list(out, outline.contexts.frames.iter(), |out, (id, frame)| {
        let place = frame.detail(outline.contexts.strings, source.selection.lines);
        let json =
            json!({ "name": outline.frame_label(id), "kind": kind_name(frame.kind()), "where": place });
        value(out, &json)
    })?;
    out.write_all(b",\n\"contexts\":")?;
    let mut places = vec![0usize; outline.contexts.tree.len()];
    for (place, (node, _)) in outline.order.iter().enumerate() {
        places[node.index()] = place;
    }
    list(out, &outline.order, |out, &(node, depth)| {
        let parent = outline.contexts.tree.node(node).parent;
        let parent = if depth == 0 { Value::Null } else { places[parent.index()].into() };
        let frame = outline.frame_id(node).number();
        value(out, &json!({ "frame": frame, "parent": parent, "values": figures(&outline, node) }))
    })?;
    out.write_all(b",\n\"losses\":")?;
    list(out, losses(source.profile), |out, row| {
        let json = json!({
            "stage": row.stage, "reason": row.reason, "sentence": row.sentence,
            "count": row.count, "lost": row.lost,
        });
        value(out, &json)
    })?;
    out.write_all(b"}\n")?;
    out.flush()
}

fn figures(outline: &Outline<'_>, node: NodeId) -> serde_json::Map<String, Value> {
    let cells = outline.metrics.iter().map(|&m| (m, outline.contexts.tree.exclusive(node, m)));
    cells
        .filter(|(_, cell)| !cell.is_empty())
        .map(|(metric, cell)| {
            let list = json!([cell.count, cell.sum, cell.min, cell.max, cell.mean(), cell.deviation()]);
            (metric.name().to_owned(), list)
        })
        .collect()
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
    }
}
