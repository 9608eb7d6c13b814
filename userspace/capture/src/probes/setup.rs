//! Setup: the initial state of the thread that attaches probes.
//!
//! Owns: [`Setup`]. Because: it has many parts, from all over the start of a capture. Does not: act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use crossbeam_channel::Sender;
use deepctx_uprobes::{Library, ProbeRequest, UserRow};
use libbpf_rs::MapHandle;

use super::waiting_calls::WaitingCalls;
use crate::duty_cycle::DutyCyclePrograms;
use crate::links::AttachMethod;
use crate::load::ProbeObject;
use crate::message::Message;

/// The initial state of the thread.
pub(in super::super) struct Setup {
    /// The programs of probes, not loaded yet.
    pub(in super::super) object: ProbeObject,
    /// A second instance of them for the probes that have a budget, if there is one.
    pub(in super::super) duty_cycled: Option<DutyCyclePrograms>,
    /// How the kernel attaches probes.
    pub(in super::super) attach_method: AttachMethod,
    /// The map `SITES`.
    pub(in super::super) sites: MapHandle,
    /// The map `SITE_COUNTS`.
    pub(in super::super) site_counts: MapHandle,
    /// Maps of calls that wait for their return or id.
    pub(in super::super) waiting_calls: WaitingCalls,
    /// Number of sites ever used.
    pub(in super::super) sites_used: Arc<AtomicU32>,
    /// Rows that the user wrote.
    pub(in super::super) user_rows: Vec<UserRow>,
    /// Read the activity records of other collections in the targets.
    pub(in super::super) other_collections: bool,
    /// Have collectors sample instructions.
    pub(in super::super) instruction_samples: bool,
    /// Probe the libraries of accelerators.
    pub(in super::super) accelerators: bool,
    /// The requested probes of PyTorch.
    pub(in super::super) request: ProbeRequest,
    /// Operators that get a stack, per second: 0 for none.
    pub(in super::super) operator_stacks: u32,
    /// Probes of ranges and steps have no budget.
    pub(in super::super) steps_stay: bool,
    /// Watch the returns of all calls that give devices work or wait for them.
    pub(in super::super) call_returns: bool,
    /// Libraries to probe before any process has mapped them.
    pub(in super::super) libraries: Vec<Library>,
    /// Processes to scan first.
    pub(in super::super) pids: Vec<u32>,
    /// Receives descriptions of sites, counters and notices.
    pub(in super::super) messages: Sender<Message>,
    /// Set when the receiver of messages may be gone.
    pub(in super::super) ending: Arc<AtomicBool>,
}
