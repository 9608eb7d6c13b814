//! `perfetto.protos.Trace`: tracks and slices.
//!
//! Owns: its messages, as far as tracks, slices and counters need them, and clocks. Because: see the folder. Does not:
//! lay out, or know what a field means that is not listed.

use prost::Message;

/// A trace, or a part of one: consecutive messages are one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<TracePacket>,
}

/// One message of a producer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub(crate) timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub(crate) trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(crate) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(crate) sequence_flags: Option<u32>,
    /// An older form of [`INCREMENTAL_STATE_CLEARED`].
    #[prost(bool, tag = "41")]
    pub(crate) incremental_state_cleared: bool,
    #[prost(bool, tag = "42")]
    pub(crate) previous_packet_dropped: bool,
    #[prost(message, optional, tag = "6")]
    pub(crate) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint32, optional, tag = "58")]
    pub(crate) timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(crate) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

/// Earlier state no longer applies.
pub(crate) const INCREMENTAL_STATE_CLEARED: u32 = 1;
/// Numbers refer to earlier names.
pub(crate) const NEEDS_INCREMENTAL_STATE: u32 = 2;
/// `TrackEvent.type`: a slice begins.
pub(crate) const SLICE_BEGIN: i32 = 1;
/// `TrackEvent.type`: the innermost slice ends.
pub(crate) const SLICE_END: i32 = 2;

/// `TrackEvent.type`: an instant.
pub(crate) const SLICE_INSTANT: i32 = 3;
/// `TrackEvent.type`: a counter changes its value.
pub(crate) const COUNTER: i32 = 4;

/// One instant on several clocks.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(crate) clocks: Vec<Clock>,
}

/// An instant on one clock.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Clock {
    #[prost(uint32, tag = "1")]
    pub(crate) clock_id: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) timestamp: u64,
    /// Times of this clock are differences to the previous one.
    #[prost(bool, tag = "3")]
    pub(crate) is_incremental: bool,
    /// 0 means 1.
    #[prost(uint64, tag = "4")]
    pub(crate) unit_multiplier_ns: u64,
}

/// Default values for packets of a sequence.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TracePacketDefaults {
    #[prost(message, optional, tag = "11")]
    pub(crate) track_event_defaults: Option<TrackEventDefaults>,
    #[prost(uint32, optional, tag = "58")]
    pub(crate) timestamp_clock_id: Option<u32>,
}

/// Default values for events of a sequence.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEventDefaults {
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
}

/// The start or end of a slice, or a step of a counter.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackEvent {
    #[prost(uint64, repeated, tag = "3")]
    pub(crate) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, tag = "9")]
    pub(crate) kind: i32,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    pub(crate) categories: Vec<String>,
    #[prost(int64, optional, tag = "30")]
    pub(crate) counter_value: Option<i64>,
    /// The older form of events, before they had a type.
    #[prost(message, optional, tag = "6")]
    pub(crate) legacy_event: Option<LegacyEvent>,
    #[prost(string, optional, tag = "23")]
    pub(crate) name: Option<String>,
    #[prost(double, optional, tag = "44")]
    pub(crate) double_counter_value: Option<f64>,
    /// Arrows that start here or continue.
    #[prost(fixed64, repeated, tag = "47")]
    pub(crate) flow_ids: Vec<u64>,
    /// Arrows that end here.
    #[prost(fixed64, repeated, tag = "48")]
    pub(crate) terminating_flow_ids: Vec<u64>,
}

/// An event in the form of Chrome's JSON.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LegacyEvent {
    /// A character.
    #[prost(int32, tag = "2")]
    pub(crate) phase: i32,
    #[prost(int64, tag = "3")]
    pub(crate) duration_us: i64,
}

/// An argument of a slice.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DebugAnnotation {
    #[prost(string, optional, tag = "10")]
    pub(crate) name: Option<String>,
    #[prost(uint64, tag = "1")]
    pub(crate) name_iid: u64,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) int_value: Option<i64>,
    #[prost(string, optional, tag = "6")]
    pub(crate) string_value: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    pub(crate) string_value_iid: Option<u64>,
}

/// Names that later packets refer to by number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(crate) event_categories: Vec<Name>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) event_names: Vec<Name>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) debug_annotation_names: Vec<Name>,
    #[prost(message, repeated, tag = "29")]
    pub(crate) debug_annotation_string_values: Vec<Name>,
}

/// A name and its number, which is not 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Name {
    #[prost(uint64, tag = "1")]
    pub(crate) iid: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

/// A row of slices.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub(crate) uuid: u64,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(crate) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(crate) counter: Option<CounterDescriptor>,
    #[prost(string, optional, tag = "10")]
    pub(crate) static_name: Option<String>,
    #[prost(string, optional, tag = "14")]
    pub(crate) description: Option<String>,
}

/// Marks a track as a counter.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
    /// Factor of the values; 0 means 1.
    #[prost(int64, tag = "4")]
    pub(crate) unit_multiplier: i64,
    /// Values are differences to the previous one.
    #[prost(bool, tag = "5")]
    pub(crate) is_incremental: bool,
    #[prost(string, optional, tag = "6")]
    pub(crate) unit_name: Option<String>,
}

/// A process.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pub(crate) pid: i32,
    #[prost(string, tag = "6")]
    pub(crate) process_name: String,
}

/// A thread.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pub(crate) pid: i32,
    #[prost(int64, tag = "2")]
    pub(crate) tid: i64,
    #[prost(string, tag = "5")]
    pub(crate) thread_name: String,
}
