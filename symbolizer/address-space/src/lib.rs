//! Typed addresses, the mappings of processes, and the files behind them.
//!
//! Owns: the four kinds of address, the parser of `/proc/PID/maps`, safe opening of mapped files, reading memory
//! through a helper process that may hang instead of this one ([`reader`]), basic facts about ELF files, and the
//! reasons why an address has no name. Because: the symbolizer and the search for probe sites both start from a
//! mapping and its file; neither should depend on the other. Does not: read symbols, DWARF or code. Files and
//! processes may be hostile: reads are bounded, and failures are reasons ([`NoSymbol`]), never panics.
//!
//! ```
//! use deepctx_address_space::maps::{self, LineFilter};
//!
//! let maps = maps::parse(b"401000-402000 r-xp 00001000 fe:00 77 /usr/bin/env\n", LineFilter::Executable);
//! assert_eq!(maps.mappings[0].begin.0, 0x401000);
//! ```

mod account;
mod address;
mod arch;
mod cpu_clock;
mod device_number;
pub mod elf;
mod folder;
pub mod maps;
mod memory;
mod read_error;
pub mod reader;
mod reason;
mod served;
pub mod shares;
mod status;
pub mod time_account;
mod version;
pub mod worker;

pub use account::{GONE_USER, accountable_user};
pub use address::{Avma, FileOffset, KernelAddr, Lookup, Svma};
pub use arch::Arch;
pub use cpu_clock::thread_cpu_time;
pub use device_number::DeviceNumber;
pub use folder::Folder;
pub use memory::{ProcessMemory, user_file_reads};
pub use read_error::ReadError;
pub use reason::NoSymbol;
pub use status::{ProcessStatus, running_for, start_ticks};
pub use version::{FileKey, FileVersion};
