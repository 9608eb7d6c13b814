//! `perfetto.protos.Trace`: tracks and slices.
//!
//! Owns: its messages, as far as tracks, slices and counters need them. Because: see the folder. Does not: lay out.

use prost::Message;

/// A trace, or a part of one: messages that follow each other are one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(crate) packet: Vec<TracePacket>,
}

/// One thing that a producer says.
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
    #[prost(message, optional, tag = "60")]
    pub(crate) track_descriptor: Option<TrackDescriptor>,
}

/// Nothing said before counts any more.
pub(crate) const INCREMENTAL_STATE_CLEARED: u32 = 1;
/// Numbers refer to names said before.
pub(crate) const NEEDS_INCREMENTAL_STATE: u32 = 2;
/// `TrackEvent.type`: a slice begins.
pub(crate) const SLICE_BEGIN: i32 = 1;
/// `TrackEvent.type`: the innermost slice ends.
pub(crate) const SLICE_END: i32 = 2;

/// `TrackEvent.type`: a moment.
pub(crate) const SLICE_INSTANT: i32 = 3;
/// `TrackEvent.type`: a counter has another value from now on.
pub(crate) const COUNTER: i32 = 4;

/// The beginning or the end of a slice, or a step of a counter.
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
    #[prost(uint64, tag = "11")]
    pub(crate) track_uuid: u64,
    #[prost(string, optional, tag = "23")]
    pub(crate) name: Option<String>,
    #[prost(double, optional, tag = "44")]
    pub(crate) double_counter_value: Option<f64>,
    /// Arrows that begin here, or lead on.
    #[prost(fixed64, repeated, tag = "47")]
    pub(crate) flow_ids: Vec<u64>,
    /// Arrows that end here.
    #[prost(fixed64, repeated, tag = "48")]
    pub(crate) terminating_flow_ids: Vec<u64>,
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
    #[prost(string, optional, tag = "6")]
    pub(crate) string_value: Option<String>,
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
}

/// A name and its number, which is not 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Name {
    #[prost(uint64, tag = "1")]
    pub(crate) iid: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

/// A line of slices.
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
    #[prost(string, optional, tag = "14")]
    pub(crate) description: Option<String>,
}

/// That a track is a counter.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CounterDescriptor {
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
