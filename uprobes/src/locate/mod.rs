//! Finding functions in files: which file, which symbol, which instruction.
//!
//! Owns: files of processes, ELF symbols and code, USDT probes, the instruction for a probe, and the reasons why there
//! is none. Because: a probe at the wrong byte gives numbers that look right, and "not attached" alone is misleading.
//! Does not: know which functions are worth a probe ([`crate::catalogue`]), or which processes are probed
//! ([`crate::plan`]).

pub mod collector;
pub mod elf;
pub mod instruction;
pub mod libraries;
pub mod reason;
pub mod resolve;
pub mod site;
pub(crate) mod thread_local;
pub mod usdt;
