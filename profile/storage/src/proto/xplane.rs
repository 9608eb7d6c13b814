//! `tensorflow.profiler.XSpace`, the format of XLA's profiler.
//!
//! Owns: its messages, as far as they are read. Because: see the folder. Does not: know what a line or a statistic
//! means.
//!
//! Planes, lines, events and statistics are nested in each other ([`PLANES`], [`LINES`], [`EVENTS`], [`STATS`]), and
//! each is read by itself, without those within it: an empty one takes two bytes in a file, and twenty times as many as
//! a value. Names are bytes: as texts, one that is not UTF-8 would spoil its plane.

use std::collections::BTreeMap;

use prost::Message;

/// `XSpace.planes`.
pub(crate) const PLANES: u32 = 1;
/// `XPlane.lines`.
pub(crate) const LINES: u32 = 3;
/// `XPlane.event_metadata` and `.stat_metadata`.
pub(crate) const NAMES: [u32; 2] = [4, 5];
/// `XLine.events`.
pub(crate) const EVENTS: u32 = 4;
/// `XEvent.stats`.
pub(crate) const STATS: u32 = 4;

/// A device, or the host.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct XPlane {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name: Vec<u8>,
    #[prost(btree_map = "int64, message", tag = "4")]
    pub(crate) event_metadata: BTreeMap<i64, XEventMetadata>,
    #[prost(btree_map = "int64, message", tag = "5")]
    pub(crate) stat_metadata: BTreeMap<i64, XStatMetadata>,
}

/// A thread, or a stream.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct XLine {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) timestamp_ns: i64,
}

/// An event, relative to the start of its line.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct XEvent {
    #[prost(int64, tag = "1")]
    pub(crate) metadata_id: i64,
    #[prost(int64, tag = "2")]
    pub(crate) offset_ps: i64,
    #[prost(int64, tag = "3")]
    pub(crate) duration_ps: i64,
}

/// A statistic: exactly one of its values is set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct XStat {
    #[prost(int64, tag = "1")]
    pub(crate) metadata_id: i64,
    #[prost(uint64, optional, tag = "3")]
    pub(crate) unsigned: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub(crate) signed: Option<i64>,
}

/// The name of an event.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct XEventMetadata {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name: Vec<u8>,
}

/// The name of a statistic.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct XStatMetadata {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name: Vec<u8>,
}
