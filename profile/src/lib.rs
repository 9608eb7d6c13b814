//! The profile: what was seen, and all that can be computed from it.
//!
//! Owns: the calling context tree, interned frames and strings, metrics, the ledger, snapshots, exports, the store.
//! Because: analyses and views must be testable without a kernel, a process or a terminal.
//! Does not: call the OS outside `store/` and `export/` writers, know BPF, read clocks, draw.

pub mod snapshot;
