//! Places: the lines, operators and kernels with the largest parts of a metric.
//!
//! Owns: [`PlaceKey`] and [`Facts::places`]. Because: a finding is useful only at a place that a user can change: a
//! line of the program. Does not: decide which contexts count.

use deepctx_profile::order::SortRows as _;
use std::cmp::Reverse;

use deepctx_profile::frame::{Frame, FrameKind, clean};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::tree::NodeId;
use rustc_hash::FxHashMap;

use super::Facts;
use crate::amount::percent;
use crate::findings::finding::{Location, LocationKind};
use crate::findings::share::Sum;

/// Maximum number of places that a finding names: nobody reads more.
const PLACES_MAX: usize = 5;
/// Maximum number of further lines or layers that a finding names.
const BESIDE_MAX: usize = 2;

/// Key that groups contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceKey {
    /// The innermost line of the program; without one, an operator or a function.
    Line,
    /// The frame of the context itself.
    Leaf,
    /// The innermost operator; without one, the line.
    Operator,
    /// The innermost layer; without one, the line.
    Layer,
}

/// The part of one place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacePart {
    /// Its sum.
    pub(crate) sum: Sum,
    /// The context with the largest part of it, and that part.
    context: (u64, u32),
}

impl PlacePart {
    fn add(&mut self, node: NodeId, sum: Sum) {
        self.sum += sum;
        if sum.value >= self.context.0 {
            self.context = (sum.value, node.number());
        }
    }
}

impl Facts<'_> {
    /// The sums of a metric over selected contexts, by place.
    pub(crate) fn parts(
        &self,
        metric: Metric,
        by: PlaceKey,
        mut is_in: impl FnMut(NodeId) -> bool,
    ) -> FxHashMap<FrameId, PlacePart> {
        let mut parts: FxHashMap<FrameId, PlacePart> = FxHashMap::default();
        for (node, sum) in self.values(metric) {
            if is_in(node) {
                parts.entry(self.place_frame(node, by)).or_default().add(node, sum);
            }
        }
        parts
    }

    /// The places with the largest parts of a metric over selected contexts, as shares of a whole.
    pub(crate) fn places(
        &self,
        metric: Metric,
        by: PlaceKey,
        is_in: impl FnMut(NodeId) -> bool,
        whole: u64,
    ) -> Vec<Location> {
        let mut parts: Vec<(FrameId, PlacePart)> = self.parts(metric, by, is_in).into_iter().collect();
        parts.sort_rows_by_key(|(frame, part)| (Reverse(part.sum.value), frame.number()));
        parts.truncate(PLACES_MAX);
        parts.into_iter().map(|(frame, part)| self.place(frame, &part, whole)).collect()
    }

    /// The lines of the program with the largest parts of a metric over selected contexts, listed beside other places.
    pub(crate) fn lines(&self, metric: Metric, is_in: impl Fn(NodeId) -> bool, whole: u64) -> Vec<Location> {
        let at_line = |node| self.line(node) != NodeId::ROOT && is_in(node);
        let mut lines = self.places(metric, PlaceKey::Line, at_line, whole);
        lines.truncate(BESIDE_MAX);
        lines
    }

    /// The layers with the largest parts of a metric over selected contexts; none if no layers were recorded.
    pub(crate) fn layers(&self, metric: Metric, is_in: impl Fn(NodeId) -> bool, whole: u64) -> Vec<Location> {
        if !self.has_layers() {
            return Vec::new();
        }
        let in_layer = |node| self.layer(node) != NodeId::ROOT && is_in(node);
        let mut layers = self.places(metric, PlaceKey::Layer, in_layer, whole);
        layers.truncate(BESIDE_MAX);
        layers
    }

    /// One place with its share of a whole.
    pub(crate) fn place(&self, frame: FrameId, part: &PlacePart, whole: u64) -> Location {
        let known = self.profile().frames.get(frame);
        let kind = match known.kind() {
            FrameKind::Python => LocationKind::Line,
            FrameKind::Layer => LocationKind::Layer,
            FrameKind::Operator => LocationKind::Operator,
            FrameKind::GpuKernel if matches!(known, Frame::Instruction { .. }) => LocationKind::Instruction,
            FrameKind::GpuKernel => LocationKind::Kernel,
            FrameKind::Process | FrameKind::Thread => LocationKind::Process,
            _ => LocationKind::Function,
        };
        Location {
            kind,
            name: self.label(frame),
            at: clean(&known.detail(&self.profile().strings, true)),
            context: part.context.1,
            share_percent: percent(part.sum.value, whole),
        }
    }

    /// The frame of a context's place: equal ones are one place.
    pub(crate) fn place_frame(&self, node: NodeId, by: PlaceKey) -> FrameId {
        self.profile().tree.node(self.place_of(node, by)).frame
    }

    fn place_of(&self, node: NodeId, by: PlaceKey) -> NodeId {
        let or = |found: NodeId, other: NodeId| if found == NodeId::ROOT { other } else { found };
        match by {
            PlaceKey::Leaf => node,
            PlaceKey::Line => or(self.line(node), or(self.operator(node), node)),
            PlaceKey::Operator => or(self.operator(node), or(self.line(node), node)),
            PlaceKey::Layer => or(self.layer(node), or(self.line(node), node)),
        }
    }
}
