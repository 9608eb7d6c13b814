//! Hatchet and Proton: the nested JSON that `hatchet.GraphFrame` and `proton-viewer` read.
//!
//! Owns: [`write()`]. Because: it is how call trees get into pandas, and how Triton's users look at kernels. Does not:
//! go deeper than its readers can: they call themselves for every level, so below [`DEPTH_MAX`] everything is one
//! node that says so.
//!
//! The document is a list: the root node, and a table of devices, which is empty since these are sums over devices. A
//! node is `{"frame": {"name", "type"}, "metrics": {…}, "children": […]}`. Its metrics are its own; times are called
//! `NAME (ns)`, sizes `NAME (bytes)`. Where there is GPU time, `time (ns)` and `count` stand for it and its kernels,
//! as in Proton; otherwise for the selected metric and its values.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::json_text::value;
use super::outline::Outline;
use super::{Source, kind_name};
use deepctx_profile::metric::{Metric, Unit};
use deepctx_profile::tree::NodeId;

/// Deepest level. Python's own limit is 1000 calls, and a reader needs several for each level.
pub const DEPTH_MAX: u32 = 200;

/// Writes the document.
///
/// # Errors
/// Writing to `out` failed.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let outline = Outline::of(source.profile, &source.selection);
    let names = Names::of(source, &outline);
    out.write_all(b"[\n")?;
    let mut open = 0u32;
    let mut at = 0;
    while let Some(&(node, depth)) = outline.order.get(at) {
        // Close the nodes that do not contain this one.
        for _ in depth..open {
            out.write_all(b"]}")?;
        }
        if open > depth {
            out.write_all(b",\n")?;
        }
        begin(&names, outline.label(node), kind_name(outline.frame(node).kind()), &[node], out)?;
        open = depth + 1;
        at += 1;
        if depth + 1 == DEPTH_MAX {
            let below = outline.order[at..].iter().take_while(|(_, deeper)| *deeper > depth);
            let below: Vec<NodeId> = below.map(|(node, _)| *node).collect();
            if !below.is_empty() {
                begin(&names, "[deeper frames]", "unresolved", &below, out)?;
                out.write_all(b"]}")?;
                at += below.len();
            }
        }
    }
    for _ in 0..open {
        out.write_all(b"]}")?;
    }
    out.write_all(b",\n{}\n]\n")?;
    out.flush()
}

/// A node without its end. `nodes` are those with its values.
fn begin(
    names: &Names<'_, '_>,
    name: &str,
    kind: &str,
    nodes: &[NodeId],
    out: &mut dyn Write,
) -> io::Result<()> {
    out.write_all(b"{\"frame\":")?;
    value(out, &json!({ "name": name, "type": kind }))?;
    out.write_all(b",\"metrics\":")?;
    value(out, &names.metrics(nodes))?;
    out.write_all(b",\"children\":[")
}

/// Names of the metrics.
struct Names<'o, 'p> {
    outline: &'o Outline<'p>,
    metrics: Vec<(String, Metric)>,
    /// The metric of `time (ns)` and `count`.
    main: Option<(&'static str, Metric, Metric)>,
}

impl<'o, 'p> Names<'o, 'p> {
    fn of(source: &Source<'p>, outline: &'o Outline<'p>) -> Self {
        let metrics = outline.metrics.iter().map(|&metric| {
            let name = match metric.unit() {
                Unit::Nanoseconds => format!("{metric} (ns)"),
                Unit::Bytes => format!("{metric} (bytes)"),
                Unit::Count => metric.name().to_owned(),
            };
            (name, metric)
        });
        let has = |metric| outline.metrics.contains(&metric);
        let selected = source.selection.metric;
        let main = if has(Metric::GpuTime) {
            Some(("time (ns)", Metric::GpuTime, Metric::Kernels))
        } else {
            (selected.unit() == Unit::Nanoseconds && has(selected)).then_some((
                "time (ns)",
                selected,
                selected,
            ))
        };
        Names { outline, metrics: metrics.collect(), main }
    }

    fn metrics(&self, nodes: &[NodeId]) -> Map<String, Value> {
        let tree = &self.outline.contexts.tree;
        let sum =
            |metric| nodes.iter().fold(0u64, |sum, &n| sum.saturating_add(tree.exclusive(n, metric).sum));
        let count =
            |metric| nodes.iter().fold(0u64, |sum, &n| sum.saturating_add(tree.exclusive(n, metric).count));
        let mut metrics = Map::new();
        for (name, metric) in &self.metrics {
            metrics.insert(name.clone(), sum(*metric).into());
        }
        if let Some((name, time, counted)) = self.main {
            metrics.insert(name.to_owned(), sum(time).into());
            let n = if counted == Metric::Kernels { sum(counted) } else { count(counted) };
            metrics.insert("count".to_owned(), n.into());
        }
        metrics
    }
}
