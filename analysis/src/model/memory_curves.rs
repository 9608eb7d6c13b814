//! Memory curves: tensor memory over the capture, by device.
//!
//! Owns: [`MemoryCurves`]. Because: curves make devices of one job easy to compare, and their shape shows whether
//! memory rises, stays level or oscillates (PASTA's memory timelines). Does not: say who holds it; `PeakMemory` does.

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::metric::Metric;
use deepctx_profile::order::SortRows as _;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;
use serde::Serialize;

/// Live bytes of tensors over time, most first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryCurves {
    /// Width of a window.
    pub window_ns: u64,
    /// A curve for each device of each process.
    pub curves: Vec<MemoryCurve>,
}

/// Live bytes on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryCurve {
    /// The process, with its id.
    pub process: String,
    /// The device.
    pub device: String,
    /// Maximum over all windows.
    pub most_bytes: u64,
    /// Maximum within each window, from the begin of the capture.
    pub live_bytes: Vec<u64>,
}

impl MemoryCurves {
    pub(super) fn of(profile: &Profile) -> Self {
        let lanes = profile.timeline.lanes().iter().filter(|lane| lane.metric == Metric::LiveBytes);
        let curve = |lane: &deepctx_profile::profile::timeline::Lane| MemoryCurve {
            process: process_of(profile, lane.node),
            device: device_of(profile, lane.node),
            most_bytes: lane.values.iter().copied().max().unwrap_or(0),
            live_bytes: lane.values.clone(),
        };
        let mut curves: Vec<MemoryCurve> = lanes.map(curve).filter(|curve| curve.most_bytes > 0).collect();
        curves.sort_rows_by(|a, b| {
            let name = |of: &MemoryCurve| (of.process.clone(), of.device.clone());
            b.most_bytes.cmp(&a.most_bytes).then_with(|| name(a).cmp(&name(b)))
        });
        MemoryCurves { window_ns: profile.timeline.window().0, curves }
    }
}

fn label(profile: &Profile, frame: Frame) -> String {
    clean(&frame.label(&profile.strings, false))
}

fn process_of(profile: &Profile, node: NodeId) -> String {
    let frames = profile.tree.stack(node).into_iter().map(|frame| profile.frames.get(frame));
    let process = frames.into_iter().find(|frame| matches!(frame, Frame::Process { .. }));
    process.map_or_else(String::new, |frame| label(profile, frame))
}

fn device_of(profile: &Profile, node: NodeId) -> String {
    let name = label(profile, profile.frames.get(profile.tree.node(node).frame));
    name.strip_prefix("[memory] ").unwrap_or(&name).to_owned()
}
