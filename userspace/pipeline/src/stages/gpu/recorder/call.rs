//! One call, as the recorder sees it.
//!
//! Owns: [`RecordedCall`]. Because: the event of a call and its cause are derived from the same facts. Does not:
//! derive them.

use deepctx_profile::trace::RecordedKind;
use deepctx_profile::tree::NodeId;

use super::super::communicators::Exchange;
use super::super::streams::StreamKey;

/// A call that is recorded.
#[derive(Clone, Copy, Debug)]
pub(in crate::stages::gpu) struct RecordedCall {
    pub(in crate::stages::gpu) kind: RecordedKind,
    pub(in crate::stages::gpu) number: u64,
    pub(in crate::stages::gpu) time_ns: u64,
    pub(in crate::stages::gpu) pid: u32,
    pub(in crate::stages::gpu) tid: u32,
    pub(in crate::stages::gpu) node: NodeId,
    pub(in crate::stages::gpu) stream: StreamKey,
    /// Handle of an event or of a launchable graph; 0 for none.
    pub(in crate::stages::gpu) object: u64,
    /// It becomes part of a graph, without giving work.
    pub(in crate::stages::gpu) is_captured: bool,
    /// For a collective: its exchange, and the bytes that this rank contributes.
    pub(in crate::stages::gpu) exchange: Option<(Exchange, u64)>,
}
