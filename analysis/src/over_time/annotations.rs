//! Annotations: what happened within the named ranges of a program.
//!
//! Owns: [`Annotation`]. Because: authors look for the names of their own ranges (`forward`, `loss`) first. Does not:
//! split time between ranges: they nest, and each has everything launched within it.
//!
//! Definition of HTA (`get_gpu_user_annotation_breakdown`): lengths of the ranges that a tool projects onto the rows of
//! devices (`gpu_user_annotation`), by name. Unlike HTA, ranges on threads also count, with their lengths there and the
//! work launched within them on their thread, which every format has.

use deepctx_profile::order::SortRows as _;
use std::collections::BTreeMap;

use deepctx_profile::StrId;
use deepctx_profile::frame::clean;
use deepctx_profile::intern::Id;
use deepctx_profile::trace::{HostKind, HostOp};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::nesting::Nesting;
use super::statistics::Statistics;
use super::window::Window;

/// Maximum number of listed names, by device time: a program may number its ranges.
const NAMES_MAX: usize = 500;

/// Ranges of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Annotation {
    /// The rank.
    pub rank: u32,
    /// The name.
    pub name: String,
    /// Lengths of those that begin on threads in the window; `None` without any: they are only on device rows, or began
    /// before the window.
    pub host: Option<Statistics>,
    /// Lengths of those that begin on device rows in the window, as projected by a tool; `None` without any.
    pub projected: Option<Statistics>,
    /// Device operations launched within them; one within two of the same name counts once.
    pub launched: u64,
    /// Sum of the lengths of those.
    pub device_ns: u64,
}

/// The annotations of a rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Annotations {
    /// The rank.
    pub rank: u32,
    /// Each name, most device time first.
    pub rows: Vec<Annotation>,
    /// Further names.
    pub left_out: usize,
}

#[derive(Default)]
struct Sums {
    host: Vec<u64>,
    projected: Vec<u64>,
    launched: u64,
    device_ns: u64,
}

pub(super) fn compute(window: &Window<'_>, nesting: &Nesting) -> Annotations {
    let (trace, links) = (&window.of.trace, &window.of.links);
    let mut by_name: BTreeMap<StrId, Sums> = BTreeMap::new();
    for (_, op) in trace.host.iter().filter(|(_, op)| is_annotation(op) && window.has(op.begin)) {
        by_name.entry(op.name).or_default().host.push(op.duration.0);
    }
    for (_, range) in trace.device_ranges.iter().filter(|(_, range)| window.has(range.begin)) {
        by_name.entry(range.name).or_default().projected.push(range.duration.0);
    }
    // First the sum right below each operation.
    let mut below: FxHashMap<Id<HostOp>, (u64, u64)> = FxHashMap::default();
    for (id, op) in window.device() {
        let call = links.launch(id).call();
        if let Some(parent) = call.and_then(|call| nesting.around(call).parent) {
            let sum = below.entry(parent).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(op.duration.0));
        }
    }
    // Then of each with all below it: an operation precedes what is within it.
    for id in links.threads().iter().flat_map(|thread| thread.iter().rev()) {
        let Some((count, device_ns)) = below.remove(id) else { continue };
        let around = nesting.around(*id);
        // A range within one of the same name counts once.
        if let Some(op) = trace.host.get(*id).filter(is_annotation).filter(|_| !around.repeated) {
            let sums = by_name.entry(op.name).or_default();
            sums.launched += count;
            sums.device_ns = sums.device_ns.saturating_add(device_ns);
        }
        if let Some(parent) = around.parent {
            let sum = below.entry(parent).or_default();
            *sum = (sum.0 + count, sum.1.saturating_add(device_ns));
        }
    }
    let row = |(name, sums): (StrId, Sums)| Annotation {
        rank: window.of.rank,
        name: clean(trace.name(name)),
        host: Statistics::of(sums.host),
        projected: Statistics::of(sums.projected),
        launched: sums.launched,
        device_ns: sums.device_ns,
    };
    let mut rows: Vec<Annotation> = by_name.into_iter().map(row).collect();
    let host_ns = |row: &Annotation| row.host.map_or(0, |host| host.sum_ns);
    rows.sort_rows_by(|a, b| {
        (b.device_ns, host_ns(b)).cmp(&(a.device_ns, host_ns(a))).then_with(|| a.name.cmp(&b.name))
    });
    let left_out = rows.len().saturating_sub(NAMES_MAX);
    rows.truncate(NAMES_MAX);
    Annotations { rank: window.of.rank, rows, left_out }
}

fn is_annotation(op: &HostOp) -> bool {
    matches!(op.kind, HostKind::Annotation | HostKind::Layer)
}
