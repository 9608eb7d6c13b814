//! Measurement: figures of a training step, or why there are none.
//!
//! Owns: [`Measurement`], [`NotMeasured`]. Because: if events of a training step were lost, its figures are too small,
//! and such a number looks like any other. Does not: reject windows: their losses are counted.

use deepctx_common::reason::Reason;
use deepctx_common::reasons;
use deepctx_profile::frame::clean;
use deepctx_profile::trace::{RankTrace, TraceTime};
use serde::Serialize;

use super::reason::key;

/// Figures, or why there are none. Serialized as the fields of the variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Measurement<T> {
    /// Nothing is missing.
    Yes(T),
    /// They would be too small.
    No {
        /// Why.
        not_measured: NotMeasured,
    },
}

impl<T> Measurement<T> {
    /// `figures` where nothing was lost.
    pub(super) fn unless(lost: Vec<LaneLoss>, figures: impl FnOnce() -> T) -> Self {
        match lost.is_empty() {
            true => Measurement::Yes(figures()),
            false => Measurement::No { not_measured: NotMeasured { reason: EVENTS_LOST, lost } },
        }
    }

    /// The figures, if there are any.
    pub fn figures(&self) -> Option<&T> {
        match self {
            Measurement::Yes(figures) => Some(figures),
            Measurement::No { .. } => None,
        }
    }

    pub(super) fn figures_mut(&mut self) -> Option<&mut T> {
        match self {
            Measurement::Yes(figures) => Some(figures),
            Measurement::No { .. } => None,
        }
    }

    /// Why there are none.
    pub fn not_measured(&self) -> Option<&NotMeasured> {
        match self {
            Measurement::Yes(_) => None,
            Measurement::No { not_measured } => Some(not_measured),
        }
    }
}

reasons! {
    class Gap, page "traces.md";
    /// The one reason so far.
    const EVENTS_LOST = "events-lost", "events were lost meanwhile: the figures would be too small";
}

/// Why figures are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotMeasured {
    /// The reason; serialized, its key.
    #[serde(serialize_with = "key")]
    pub reason: &'static Reason,
    /// What was lost meanwhile.
    pub lost: Vec<LaneLoss>,
}

/// Events that were lost from a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LaneLoss {
    /// The rank.
    pub rank: u32,
    /// The lane (`gpu0 stream 7`).
    pub lane: String,
    /// How many; any of them may lie in the time in question.
    pub events: u64,
}

/// Losses of a rank that may lie between two moments.
pub(super) fn lost_between(of: &RankTrace, from: TraceTime, to: TraceTime) -> Vec<LaneLoss> {
    let overlaps = of.trace.lost.iter().filter(|(_, lost)| lost.from < to && from <= lost.to);
    let mut found: Vec<LaneLoss> = Vec::new();
    for (_, lost) in overlaps {
        let lane = clean(of.trace.name(lost.lane));
        match found.iter_mut().find(|row| row.lane == lane) {
            Some(row) => row.events = row.events.saturating_add(lost.events),
            None => found.push(LaneLoss { rank: of.rank, lane, events: lost.events }),
        }
    }
    found
}
