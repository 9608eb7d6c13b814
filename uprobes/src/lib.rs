//! What to attach to in the libraries of accelerators, and where it is in this very file.
//!
//! Owns: the catalogue of functions, their arguments, finding them in ELF files, the instruction to put a probe on, and
//! the plan for a process. Because: a probe at the wrong byte or a wrong register gives numbers that look right.
//! Does not: load or attach anything, know BPF, or keep what probes report. Files and processes may be hostile: reads
//! are bounded, and what has no answer has a reason.

pub mod abi;
pub mod catalogue;
pub mod collector;
pub mod entry;
pub mod image;
pub mod libraries;
pub mod plan;
pub mod reason;
pub mod resolve;
pub mod returns;
pub mod site;
pub mod torch;
pub mod types;
pub mod usdt;
pub mod user;
pub mod xla;

pub use reason::NoProbe;
