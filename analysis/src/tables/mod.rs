//! Tables: the tables of a report, one file each.
//!
//! Owns: the list of them. Because: authors of a new table find the others beside it. Does not: render them
//! ([`crate::render`]), or conclude from them ([`crate::findings`]).

pub mod compilation;
pub mod compiled;
pub mod contexts;
pub mod devices;
pub mod functions;
pub mod instructions;
pub mod kernels;
pub mod layers;
pub mod losses;
pub mod memory;
pub mod phases;
pub mod ranges;
pub mod system;

pub use contexts::Contexts;
pub use functions::Functions;
pub use losses::Losses;
