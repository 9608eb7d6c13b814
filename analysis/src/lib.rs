//! Analysis: tables of a profile as values.
//!
//! Owns: one table per file, each computed from a [`Subset`] of a profile, and their renderings in [`render`]. Because:
//! text, JSON, HTML and the terminal must agree, and a script must have access to every figure of a report. Does not:
//! open files, or draw on a terminal.
//!
//! ```
//! use deepctx_analysis::{Functions, Selection, Subset};
//! use deepctx_profile::Metric;
//!
//! let profile = deepctx_profile::text::parse(
//!     "P python3-7 / y train.py:step:30 / n gemm@libmkl.so 700
//!      P python3-7 / y train.py:load:12 300",
//! )?;
//! let subset = Subset::new(&profile, &Selection::of(Metric::CpuTime));
//! let hottest: Vec<String> = Functions::compute(&subset)
//!     .rows
//!     .iter()
//!     .map(|row| format!("{} {} ({:.0}%)", row.function, row.exclusive, row.exclusive_percent))
//!     .collect();
//! assert_eq!(hottest[..2], ["gemm 700 ns (70%)", "train.py:load 300 ns (30%)"]);
//! # Ok::<(), deepctx_profile::text::BadLine>(())
//! ```
//!
//! [`Report`] holds all tables; [`diff::compare`] compares two profiles. `docs/read-a-profile.md` starts from a file.
//! The root has the types that most users need; the modules have their parts: [`tables`], [`findings`], [`over_time`],
//! [`model`], [`experiment`], [`diff`], [`query`].

// The page on reading profiles from Rust: its code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/read-a-profile.md")]
mod read_a_profile {}

mod conclusions;
pub mod diff;
pub mod experiment;
pub mod findings;
pub mod model;
pub mod over_time;
pub mod query;
pub mod render;
pub mod tables;

mod amount;
mod own_code;
mod report;
mod selection;
mod table;

pub use amount::Amount;
pub use conclusions::conclude;
pub use diff::Comparison;
pub use findings::Findings;
pub use model::ModelTables;
pub use over_time::OverTime;
pub use query::Query;
pub use report::{Analysis, MetricTotal, Report, SCHEMA_VERSION};
pub use selection::{Selection, Subset, usual_metric};
pub use table::Table;
pub use tables::{Contexts, Functions, Losses};
