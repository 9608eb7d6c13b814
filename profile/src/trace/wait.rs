//! Waits: which call, stream or node waits for which device operation.
//!
//! Owns: [`Wait`]. Because: waits of calls, of streams and of graph nodes are all followed in the same way. Does not:
//! find waits.

use super::basis::Basis;
use super::event::{DeviceOp, HostOp};
use crate::intern::Id;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waiter {
    /// A call of the host, until its end.
    Host(Id<HostOp>),
    /// A device operation, before its begin.
    Device(Id<DeviceOp>),
}

/// One wait for a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waits.
    pub waiter: Waiter,
    /// The last operation that is waited for.
    pub on: Id<DeviceOp>,
    /// How certain that is.
    pub basis: Basis,
}
