//! Sequences of packets: the names, defaults and clocks that their events refer to.
//!
//! Owns: [`Sequences`]. Because: a writer states a name once and uses a number from then on, until it resets its
//! state; the numbers of two writers, or from before and after a reset, refer to different names. Does not: read
//! events.

use rustc_hash::FxHashMap;

use deepctx_profile::intern::{StrId, Strings};

use crate::import::{LOST_STATE, NOT_UNDERSTOOD, UNKNOWN_CLOCK};
use crate::proto::perfetto::{
    Clock, ClockSnapshot, INCREMENTAL_STATE_CLEARED, InternedData, NEEDS_INCREMENTAL_STATE, Name, TracePacket,
};
use deepctx_common::reason::Reason;

/// Maximum names of a file: each takes at least four bytes there, and forty here.
const NAMES_MAX: usize = 1 << 23;
/// Maximum bytes of names.
const NAME_BYTES_MAX: usize = 1 << 28;
/// Maximum writers and clocks of a file.
const SEQUENCES_MAX: usize = 1 << 16;

/// Clocks shared by all writers.
const REALTIME: u32 = 1;
const BOOTTIME: u32 = 6;
/// Clocks with these numbers belong to one writer.
const OWN_CLOCKS: std::ops::Range<u32> = 64..128;

/// The table of a name's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NameTable {
    Category,
    Event,
    Argument,
    Value,
}

/// All writers of a file.
pub(super) struct Sequences {
    of: FxHashMap<u32, Sequence>,
    names: FxHashMap<(u32, NameTable, u64), StrId>,
    strings: Strings,
    /// Each time a writer clears its names, a new state begins.
    states: u32,
    /// Nanoseconds added to times of a clock shared by all writers.
    shared: FxHashMap<u32, i128>,
    /// Nanoseconds from 1970 UTC to the zero of the file's clock.
    pub(super) epoch_ns: Option<u64>,
}

/// One writer.
#[derive(Default)]
struct Sequence {
    state: u32,
    /// Whether its references have been defined.
    is_known: bool,
    track: Option<u64>,
    clock: Option<u32>,
    clocks: FxHashMap<u32, OwnClock>,
}

/// A clock of one writer.
struct OwnClock {
    is_incremental: bool,
    unit_ns: u64,
    last: u64,
    offset_ns: i128,
}

/// The state that an event's packet refers to.
#[derive(Clone, Copy)]
pub(super) struct PacketState {
    pub(super) state: u32,
    /// The track of events without one.
    pub(super) track: Option<u64>,
}

impl Default for Sequences {
    fn default() -> Self {
        Sequences {
            of: FxHashMap::default(),
            names: FxHashMap::default(),
            strings: Strings::new(NAME_BYTES_MAX),
            states: 0,
            shared: [(BOOTTIME, 0)].into_iter().collect(),
            epoch_ns: None,
        }
    }
}

impl Sequences {
    /// Applies a packet to its writer's state.
    ///
    /// # Errors
    /// It refers to something undefined, or there are too many names.
    pub(super) fn enter(&mut self, packet: &TracePacket) -> Result<PacketState, &'static Reason> {
        let id = packet.trusted_packet_sequence_id;
        if self.of.len() >= SEQUENCES_MAX && !self.of.contains_key(&id) {
            return Err(NOT_UNDERSTOOD);
        }
        let flags = packet.sequence_flags.unwrap_or(0);
        let sequence = self.of.entry(id).or_default();
        if packet.previous_packet_dropped {
            sequence.is_known = false;
        }
        if flags & INCREMENTAL_STATE_CLEARED != 0 || packet.incremental_state_cleared || sequence.state == 0 {
            self.states += 1;
            let is_known = sequence.state == 0 && !packet.previous_packet_dropped
                || flags & INCREMENTAL_STATE_CLEARED != 0
                || packet.incremental_state_cleared;
            *sequence = Sequence { state: self.states, is_known, ..Sequence::default() };
        }
        if let Some(defaults) = &packet.trace_packet_defaults {
            sequence.clock = defaults.timestamp_clock_id;
            sequence.track = defaults.track_event_defaults.as_ref().and_then(|of| of.track_uuid);
        }
        let (state, track, is_known) = (sequence.state, sequence.track, sequence.is_known);
        if let Some(snapshot) = &packet.clock_snapshot {
            self.snapshot(id, snapshot);
        }
        if let Some(interned) = &packet.interned_data {
            self.intern(state, interned)?;
        }
        if flags & NEEDS_INCREMENTAL_STATE != 0 && !is_known {
            return Err(LOST_STATE);
        }
        Ok(PacketState { state, track })
    }

    fn intern(&mut self, state: u32, interned: &InternedData) -> Result<(), &'static Reason> {
        let tables: [(NameTable, &[Name]); 4] = [
            (NameTable::Category, &interned.event_categories),
            (NameTable::Event, &interned.event_names),
            (NameTable::Argument, &interned.debug_annotation_names),
            (NameTable::Value, &interned.debug_annotation_string_values),
        ];
        for (table, names) in tables {
            for Name { iid, name } in names {
                if self.names.len() >= NAMES_MAX {
                    return Err(NOT_UNDERSTOOD);
                }
                let name = self.strings.intern(name);
                self.names.insert((state, table, *iid), name);
            }
        }
        Ok(())
    }

    /// The name with a number.
    pub(super) fn name(&self, state: u32, table: NameTable, iid: u64) -> Option<&str> {
        self.names.get(&(state, table, iid)).map(|id| self.strings.get(*id))
    }

    /// The same moment on several clocks. For shared clocks, the first snapshot counts: they drift by less than the
    /// error of a reading.
    fn snapshot(&mut self, id: u32, snapshot: &ClockSnapshot) {
        let ns = |clock: &Clock| nanos(clock.timestamp, clock.unit_multiplier_ns.max(1));
        let find = |wanted: u32| snapshot.clocks.iter().find(|clock| clock.clock_id == wanted);
        let known = snapshot
            .clocks
            .iter()
            .find_map(|clock| Some(ns(clock).saturating_add(*self.shared.get(&clock.clock_id)?)));
        let Some(now) = find(BOOTTIME).map(ns).or(known).or(snapshot.clocks.first().map(ns)) else { return };
        if let Some(real) = find(REALTIME).filter(|_| self.epoch_ns.is_none()) {
            self.epoch_ns = u64::try_from(ns(real).saturating_sub(now)).ok();
        }
        for clock in &snapshot.clocks {
            let offset_ns = now.saturating_sub(ns(clock));
            if !OWN_CLOCKS.contains(&clock.clock_id) {
                if self.shared.len() < SEQUENCES_MAX {
                    self.shared.entry(clock.clock_id).or_insert(offset_ns);
                }
                continue;
            }
            let own = OwnClock {
                is_incremental: clock.is_incremental,
                unit_ns: clock.unit_multiplier_ns.max(1),
                last: clock.timestamp,
                offset_ns,
            };
            if let Some(sequence) = self.of.get_mut(&id) {
                sequence.clocks.insert(clock.clock_id, own);
            }
        }
    }

    /// The time of a packet; must be called in the order of packets.
    ///
    /// # Errors
    /// It has none, or one of an unknown clock.
    pub(super) fn time(&mut self, packet: &TracePacket) -> Result<i128, &'static Reason> {
        let Some(timestamp) = packet.timestamp else { return Err(NOT_UNDERSTOOD) };
        let Some(sequence) = self.of.get_mut(&packet.trusted_packet_sequence_id) else {
            return Err(NOT_UNDERSTOOD);
        };
        let clock = packet.timestamp_clock_id.or(sequence.clock).unwrap_or(BOOTTIME);
        if !OWN_CLOCKS.contains(&clock) {
            let offset = self.shared.get(&clock).ok_or(UNKNOWN_CLOCK)?;
            return Ok(i128::from(timestamp).saturating_add(*offset));
        }
        let own = sequence.clocks.get_mut(&clock).ok_or(UNKNOWN_CLOCK)?;
        let value = if own.is_incremental { own.last.saturating_add(timestamp) } else { timestamp };
        own.last = value;
        Ok(nanos(value, own.unit_ns).saturating_add(own.offset_ns))
    }
}

/// A time in nanoseconds. Units are the file's: the product of two may have 128 bits.
fn nanos(value: u64, unit_ns: u64) -> i128 {
    i128::from(value).saturating_mul(i128::from(unit_ns))
}
