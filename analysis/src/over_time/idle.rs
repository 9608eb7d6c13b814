//! Idle: why each stream was idle.
//!
//! Owns: [`IdleTime`]. Because: waiting for the host and waiting for a kernel need different fixes. Does not: follow
//! chains of causes: see [`super::CriticalPath`].
//!
//! The rule is HTA's (`get_idle_time_breakdown`). A gap ends where an operation begins, and begins where all earlier
//! ones on the stream have ended. It is a *host wait* if the operation was launched after that end, else a *kernel
//! wait* if it is shorter than 30 µs, else *other*. HTA uses the end of the one operation before, so gaps become
//! negative where two overlap; and for an unknown launch it uses the begin of the trace's first event.

use deepctx_profile::order::SortRows as _;
use serde::Serialize;

use super::window::Window;

/// Shorter gaps are the normal delay of the next kernel (HTA: `consecutive_kernel_delay`).
pub(super) const KERNEL_WAIT_NS: u64 = 30_000;

/// Gaps of one stream, by cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IdleTime {
    /// The rank.
    pub rank: u32,
    /// Number of the device.
    pub device: u32,
    /// Number of the stream.
    pub stream: Option<u64>,
    /// Operations of the stream.
    pub operations: u64,
    /// Gaps before operations launched too late.
    pub host_wait_ns: u64,
    /// Gaps shorter than 30 µs before operations launched in time.
    pub kernel_wait_ns: u64,
    /// Longer gaps before operations launched in time.
    pub other_ns: u64,
    /// Gaps before operations with unknown launch.
    pub unknown_ns: u64,
}

impl IdleTime {
    /// All gaps.
    pub fn total_ns(&self) -> u64 {
        self.host_wait_ns + self.kernel_wait_ns + self.other_ns + self.unknown_ns
    }
}

pub(super) fn compute(window: &Window<'_>) -> Vec<IdleTime> {
    let mut rows = Vec::new();
    for (number, ops) in window.streams() {
        let Some(stream) = window.of.trace.streams().get(number).filter(|_| !ops.is_empty()) else {
            continue;
        };
        let mut row = IdleTime {
            rank: window.of.rank,
            device: stream.device,
            stream: stream.stream,
            operations: ops.len() as u64,
            ..IdleTime::default()
        };
        let mut end = None;
        for (id, op) in ops {
            if let Some(before) = end.filter(|before| *before < op.begin) {
                let gap = (op.begin - before).0;
                let call = window.of.links.launch(id).call().and_then(|call| window.of.trace.host.get(call));
                match call {
                    None => row.unknown_ns += gap,
                    Some(call) if call.begin > before => row.host_wait_ns += gap,
                    Some(_) if gap < KERNEL_WAIT_NS => row.kernel_wait_ns += gap,
                    Some(_) => row.other_ns += gap,
                }
            }
            end = end.max(Some(op.end()));
        }
        rows.push(row);
    }
    rows.sort_rows_by_key(|row| (row.device, row.stream));
    rows
}
