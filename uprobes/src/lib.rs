//! The functions to probe in the libraries of accelerators and frameworks, and their locations in the given file.
//!
//! Owns: the catalogue of functions, their arguments, finding them in ELF files, the instruction to put a probe on, and
//! the plan for a process. Because: a probe at the wrong byte or a wrong register gives numbers that look right. Does
//! not: load or attach anything, know BPF, or interpret what probes record. Files and processes may be hostile: reads
//! are bounded, and every missing answer has a reason.
//!
//! | module | holds |
//! |---|---|
//! | [`catalogue`] | which functions are worth a probe: tables, rows that the code of a library shows, users' rows |
//! | [`abi`] | where arguments are at function entry |
//! | [`locate`] | files of processes, symbols, USDT probes, the instruction for a probe |
//! | [`plan`] | all of it together, for some processes |
//!
//! The meaning of calls is in `deepctx-events`, which the pipeline uses without this crate.
//!
//! ```
//! use deepctx_uprobes::{Kernel, Layers, Planner, ProbeRequest};
//!
//! let request = ProbeRequest { ranges: true, ..ProbeRequest::default() };
//! let mut planner =
//!     Planner::new(Vec::new(), Layers::Lowest, Kernel { version: (6, 12) }).with_request(true, request);
//! planner.add_process(std::process::id())?;
//! for file in planner.planned() {
//!     println!("{}: {} probes", file.library.attach_path().display(), file.sites.len());
//!     for missing in &file.missing {
//!         println!("  no {}: {}", missing.symbol, missing.because);
//!     }
//! }
//! # Ok::<(), deepctx_address_space::NoSymbol>(())
//! ```

pub mod abi;
pub mod catalogue;
pub mod locate;
pub mod plan;
mod row;

pub use catalogue::rows;
pub use catalogue::user::{UserRow, UserRowError};
pub use locate::instruction::Kernel;
pub use locate::libraries::{FileKey, Library};
pub use locate::reason::NoProbe;
pub use locate::site::{MissingProbe, Site};
pub use plan::{Contents, Layers, PlanId, PlannedFile, Planner, ProbeRequest};
pub use row::{Name, ReturnProbe, Row, Version};
