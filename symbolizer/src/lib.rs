//! From an address to a name, or to the reason why it has none.
//!
//! Owns: typed addresses, what processes have mapped over time, names of native, generated, kernel and Python code,
//! unwind rows. Because: every later stage trusts that a frame is either named or says why not. Does not: know BPF,
//! calling context trees or terminals. Everything read here (ELF files, `/proc`, the memory and files of other
//! processes) may be hostile: reads are bounded, and faults are reasons ([`NoSymbol`]), never panics.
//!
//! ```
//! use deepctx_symbolizer::native::DebugInfo;
//! use deepctx_symbolizer::{Avma, CodeLocation, Lookup, Symbolizer};
//!
//! fn function() {}
//!
//! let mut symbolizer = Symbolizer::new(DebugInfo::default());
//! let (pid, time_ns) = (std::process::id(), 1);
//! symbolizer.refresh(pid, time_ns)?;
//! let code = Avma(function as fn() as usize as u64);
//! assert!(matches!(symbolizer.locate(pid, time_ns, code, Lookup::Exact), CodeLocation::Native { .. }));
//! assert!(matches!(symbolizer.locate(pid, time_ns, Avma(8), Lookup::Exact), CodeLocation::Unknown(_)));
//! # Ok::<(), deepctx_symbolizer::maps::UnreadMaps>(())
//! ```
//!
//! The crate root has [`Symbolizer`] with its inputs and outputs. Use the modules to read one kind of thing by
//! itself: [`maps`] and [`elf`] for files; [`native`], [`python`], [`jit`] and [`generated`] for code;
//! [`unwind_rows`]; [`cubin`] and [`compiled`] for device code. [`memory`], [`worker`], [`guard`], [`shares`] and
//! [`time_account`] make it safe to read untrusted input.

mod cache;
pub mod compiled;
pub mod cubin;
pub mod generated;
pub mod guard;
pub mod jit;
mod kernel;
pub mod memory;
pub mod native;
pub mod pclntab;
pub mod python;
mod readable;
mod space;
mod symbolizer;
pub mod unwind_rows;
mod variable;

pub use deepctx_address_space::{
    Arch, Avma, FileKey, FileOffset, FileVersion, GONE_USER, KernelAddr, Lookup, NoSymbol, ProcessStatus,
    Svma, accountable_user, start_ticks, thread_cpu_time,
};
pub use deepctx_address_space::{elf, maps, shares, time_account, worker};
pub use kernel::Kallsyms;
pub use space::{AddressSpace, Owner};
pub use symbolizer::{CodeLocation, Counters, ProcessMappings, Symbolizer};
