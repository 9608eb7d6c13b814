//! Storage: profiles on disk, ours and other tools'.
//!
//! Owns: the store, the imports, the exports. Because: the model must stay free of formats, files and the libraries that they
//! need, and whoever only analyses a profile in memory builds none of them. Does not: compute anything of a profile, or know
//! how it was captured.

#[cfg(feature = "parquet")]
mod error;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "import")]
pub mod import;
#[cfg(feature = "parquet")]
mod note;
#[cfg(feature = "parquet")]
mod open;
#[cfg(any(feature = "import", feature = "export"))]
mod proto;
#[cfg(feature = "parquet")]
pub mod store;
#[cfg(feature = "parquet")]
mod version;

#[cfg(feature = "parquet")]
pub use error::OpenError;
#[cfg(feature = "parquet")]
pub use note::Note;
#[cfg(feature = "parquet")]
pub use open::{FileFormat, Opened, open};
#[cfg(feature = "parquet")]
pub use version::FormatVersion;
