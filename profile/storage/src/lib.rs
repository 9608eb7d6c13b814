//! Storage: profiles on disk, ours and other tools'.
//!
//! Owns: the store, the imports, the exports. Because: the model must stay free of formats, files and the libraries
//! that they need, and programs that only analyze a profile in memory need not build them. Does not: compute anything
//! of a profile, or know how it was captured.
//!
//! ```
//! use deepctx_profile::units::Time;
//! use deepctx_storage::{FileFormat, FormatVersion, Note, Writer, open};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("run.dctx");
//! let profile = deepctx_profile::text::parse("P python3-7 / y train.py:step:30 700")?;
//! let mut writer = Writer::create(&path, &profile.meta)?;
//! writer.flush(&profile, Time::from_nanos(1_000))?;
//!
//! // What was flushed can be opened while the capture goes on, and after it was killed.
//! let opened = open(&path)?;
//! assert_eq!(opened.notes, [Note::NotEndedWell]);
//!
//! writer.finish(&profile, Time::from_nanos(2_000))?;
//! let opened = open(&path)?;
//! assert!(opened.notes.is_empty());
//! assert_eq!(opened.format, FileFormat::Folder(FormatVersion::CURRENT));
//! assert_eq!(opened.profile.tree.len(), profile.tree.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`open()`] takes whatever can be read, and `docs/read-a-profile.md` goes on from there. [`Writer`] keeps a growing
//! profile; [`export::Format`] lists the formats of other tools, and [`import::Kind`] what is read of them.
//! [`folder::Folder`] is how files are made where others may be in the way.

#[cfg(feature = "parquet")]
mod error;
#[cfg(any(feature = "import", feature = "export"))]
mod event_header;
#[cfg(feature = "export")]
pub mod export;
pub mod folder;
#[cfg(any(feature = "import", feature = "export"))]
mod host_kind;
#[cfg(feature = "import")]
pub mod import;
#[cfg(feature = "parquet")]
mod note;
#[cfg(feature = "parquet")]
mod open;
pub mod owner;
#[cfg(any(feature = "import", feature = "export"))]
mod proto;
#[cfg(feature = "parquet")]
pub mod store;
#[cfg(all(feature = "parquet", feature = "import"))]
mod traces;
#[cfg(feature = "parquet")]
mod version;

#[cfg(feature = "parquet")]
pub use error::{NotAProfile, OpenError};
#[cfg(feature = "parquet")]
pub use note::{Damage, Note};
#[cfg(feature = "parquet")]
pub use open::{FileFormat, OpenedProfile, open};
#[cfg(feature = "parquet")]
pub use store::{StoreError, Writer};
#[cfg(all(feature = "parquet", feature = "import"))]
pub use traces::{may_have_ranks, open_traces, open_traces_in_part};
#[cfg(feature = "parquet")]
pub use version::FormatVersion;
