//! The header of our event exports: ranks, their clocks, and the meaning of row numbers.
//!
//! Owns: [`EventHeader`], stored in Chrome traces as `deepctx` and in Perfetto's as an argument. Because: one file
//! holds several ranks, whose processes and devices may have the same numbers and whose clocks have different zeros;
//! viewers take numbers literally, and reading the file back needs the original ones. Does not: hold events.

use serde::{Deserialize, Serialize};

use deepctx_profile::device::activity::ClockOffset;
use deepctx_profile::ledger::{Ledger, Reason, Stage};
use deepctx_profile::trace::{
    ClockInfo, CommunicatorGroup, CommunicatorGroups, GroupRanks, LostEvents, RankInfo, Trace, TraceTime,
};
use deepctx_profile::units::Nanos;

/// Its name in the files.
pub(crate) const HEADER: &str = "deepctx";
/// Name of its event in Perfetto's form. The event's category and argument are named [`HEADER`].
pub(crate) const HEADER_EVENT: &str = "deepctx trace";
/// Category of a profile's sums over time, in Chrome's form: they are of the whole capture and of no event.
pub(crate) const SUMS: &str = "deepctx sums";
/// Maximum ranks of all communicators of a rank, since a few letters stand for thousands: a hundred of ten thousand
/// ranks have a quarter of it.
const GROUP_RANKS_MAX: usize = 1 << 22;
/// What a text that is none may have cost.
const NO_RANKS_COST: usize = 1 << 16;

/// The header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventHeader {
    /// In job order.
    #[serde(default)]
    pub(crate) ranks: Vec<RankHeader>,
    /// Rows of the file.
    #[serde(default)]
    pub(crate) lanes: Vec<LaneHeader>,
}

/// A rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankHeader {
    /// The rank stated by its trace.
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    pub(crate) epoch_ns: Option<u64>,
    pub(crate) uncertainty_ns: Option<u64>,
    pub(crate) resolution_ns: u64,
    pub(crate) domain: Option<u32>,
    /// Times of the file are those of the rank plus this.
    pub(crate) shift_ns: u64,
    /// Losses of its trace.
    #[serde(default)]
    pub(crate) losses: Vec<LossHeader>,
    /// Losses by lane and time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lost: Vec<LostHeader>,
    /// What its recorder knew about the clock of its devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device_clock: Option<ClockOffset>,
    /// Ranks of communicators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<GroupHeader>,
}

/// The ranks of a communicator. Events have no place for long lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupHeader {
    pub(crate) communicator: String,
    /// Text of [`GroupRanks`].
    pub(crate) ranks: String,
}

/// Lost events of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostHeader {
    pub(crate) lane: String,
    /// By the rank's clock.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) events: u64,
}

/// A loss of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LossHeader {
    pub(crate) stage: String,
    /// Lost, or kept with a gap.
    pub(crate) dropped: bool,
    pub(crate) key: String,
    pub(crate) sentence: String,
    pub(crate) count: u64,
}

/// A row of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaneHeader {
    /// Its ids (numbers or text) in Chrome's form.
    pub(crate) pid: String,
    pub(crate) tid: String,
    /// Its number in Perfetto's format.
    pub(crate) uuid: u64,
    /// Index of its rank in the list.
    pub(crate) rank: usize,
    #[serde(flatten)]
    pub(crate) of: LaneOwner,
}

/// Owner of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum LaneOwner {
    /// A thread.
    Thread { process: String, thread: String },
    /// A stream of a device.
    Stream { device: u32, stream: Option<u64> },
    /// Values of a counter.
    Counter { process: String, counter: String, series: String },
    /// The counters of a process.
    Counters { counters_of: String },
}

impl RankHeader {
    #[cfg_attr(not(feature = "export"), allow(dead_code, reason = "written by exports"))]
    pub(crate) fn of(trace: &Trace, shift_ns: u64) -> Self {
        let ClockInfo { epoch_ns, uncertainty, resolution, domain } = trace.clock;
        let mut losses = Vec::new();
        for stage in Stage::ALL {
            let account = trace.ledger.stage(*stage);
            for (dropped, tally) in [(true, &account.dropped), (false, &account.gaps)] {
                losses.extend(tally.iter().map(|(reason, count)| LossHeader {
                    stage: stage.name().to_owned(),
                    dropped,
                    key: reason.key.clone().into_owned(),
                    sentence: reason.sentence.clone().into_owned(),
                    count,
                }));
            }
        }
        let lost = trace.lost.iter().map(|(_, lost)| LostHeader {
            lane: trace.name(lost.lane).to_owned(),
            from_ns: lost.from.as_nanos(),
            to_ns: lost.to.as_nanos(),
            events: lost.events,
        });
        let groups = trace.communicator_groups.iter().map(|(_, group)| GroupHeader {
            communicator: trace.name(group.communicator).to_owned(),
            ranks: trace.name(group.ranks).to_owned(),
        });
        RankHeader {
            lost: lost.collect(),
            groups: groups.collect(),
            device_clock: trace.device_clock,
            rank: trace.rank.rank,
            world_size: trace.rank.world_size,
            epoch_ns,
            uncertainty_ns: uncertainty.map(|of| of.0),
            resolution_ns: resolution.0,
            domain,
            shift_ns,
            losses,
        }
    }

    /// Applies the header of this rank to its trace. Returns how many communicators have no ranks, or too many.
    #[cfg_attr(not(feature = "import"), allow(dead_code, reason = "read by imports"))]
    pub(crate) fn apply(&self, trace: &mut Trace) -> usize {
        trace.rank = RankInfo { rank: self.rank, world_size: self.world_size };
        trace.clock = ClockInfo {
            epoch_ns: self.epoch_ns,
            uncertainty: self.uncertainty_ns.map(Nanos),
            resolution: Nanos(self.resolution_ns),
            domain: self.domain,
        };
        for loss in &self.losses {
            loss.count(&mut trace.ledger);
        }
        for of in &self.lost {
            let (from, to) = (TraceTime::from_nanos(of.from_ns), TraceTime::from_nanos(of.to_ns));
            let lane = trace.text(&of.lane);
            trace.lost.push(LostEvents { lane, from, to, events: of.events });
        }
        trace.device_clock = self.device_clock;
        // Instead of what events say: they have the short lists of these.
        trace.communicator_groups = CommunicatorGroups::default();
        let mut room = GROUP_RANKS_MAX;
        for of in &self.groups {
            let ranks = GroupRanks::from_text(&of.ranks);
            let cost = ranks.as_ref().map_or(NO_RANKS_COST, GroupRanks::count);
            let Some(rest) = room.checked_sub(cost) else { break };
            room = rest;
            let Some(ranks) = ranks else { continue };
            let (communicator, ranks) = (trace.text(&of.communicator), trace.text(&ranks.to_string()));
            trace.communicator_groups.push(CommunicatorGroup { communicator, ranks });
        }
        self.groups.len() - trace.communicator_groups.len()
    }
}

impl LossHeader {
    #[cfg_attr(not(feature = "import"), allow(dead_code, reason = "read by imports"))]
    fn count(&self, ledger: &mut Ledger) {
        let Some(stage) = Stage::from_name(&self.stage) else { return };
        let reason = Reason { key: self.key.clone().into(), sentence: self.sentence.clone().into() };
        if self.dropped {
            ledger.dropped(stage, reason, self.count);
        } else {
            ledger.gap(stage, reason, self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_in_a_header_are_bounded() {
        let group = |ranks: &str| GroupHeader { communicator: "tp".to_owned(), ranks: ranks.to_owned() };
        let check = |groups: Vec<GroupHeader>, kept: usize, left_out: usize| {
            let header = RankHeader { groups, ..RankHeader::default() };
            let mut trace = Trace::new();
            assert_eq!(header.apply(&mut trace), left_out);
            assert_eq!(trace.communicator_groups.len(), kept);
        };
        check(vec![group("0-3"), group("3,3"), group("4-7")], 2, 1);
        check(vec![group("0-65535"); 70], 64, 6);
        check(vec![group("0-65535,0"); 70], 0, 70);
    }
}
