//! Tables: one file each, what a report shows of a profile.
//!
//! Owns: the list of them. Because: whoever adds a table finds the others beside it. Does not: render them
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
