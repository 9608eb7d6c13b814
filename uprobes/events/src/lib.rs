//! What a probed call means.
//!
//! Owns: events ([`Event`], nested by the family that emits them), the meaning of arguments ([`Role`]), the libraries
//! they are from ([`Family`]), and names of XLA's thunks ([`xla`]). Because: the code that attaches probes and the
//! code that interprets their records need the same terms, and the latter must not depend on ELF files or probes.
//! Does not: open files, know symbols of the catalogue, or attach anything.
//!
//! Records and stored captures carry an event as a number, which never changes:
//!
//! ```
//! use deepctx_events::{Event, GpuCall, LaunchCall};
//!
//! let launch = Event::Gpu(GpuCall::Launch(LaunchCall::Kernel));
//! assert_eq!(launch.number(), 0x0100);
//! assert_eq!(Event::from_number(0x0100), Some(launch));
//! assert_eq!(launch.to_string(), "launch");
//! // Of a newer version, or of no version at all.
//! assert_eq!(Event::from_number(0x7f00), None);
//! ```

mod event;
mod family;
pub mod gpu;
mod role;
pub mod xla;

pub use event::{
    AutogradEvent, CuptiEvent, Event, OpenMpEvent, OperatorEvent, RangeEvent, TensorEvent, XlaEvent,
};
pub use family::Family;
pub use gpu::{
    CollectiveCall, CollectiveOperation, ContextCall, Direction, GpuCall, GraphCall, LaunchCall, MemoryCall,
    MemoryKind, ModuleCall, StreamCall, SyncScope, Timing, TransferCall,
};
pub use role::Role;
