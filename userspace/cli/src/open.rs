//! Open: opens a profile from disk.
//!
//! Owns: the notes about it on standard error. Does not: know a format; `deepctx_storage` does.

use std::path::Path;

use deepctx_storage::OpenedProfile;

use super::failure::{Failure, open_failure};

/// Opens a profile or imports another tool's file. Prints caveats on standard error.
///
/// # Errors
/// It is neither, is damaged, or has another version.
pub(crate) fn open(path: &Path) -> Result<OpenedProfile, Failure> {
    let opened = deepctx_storage::open(path).map_err(|error| open_failure(&error))?;
    for note in &opened.notes {
        super::note(format_args!("{}: {note}", path.display()));
    }
    Ok(opened)
}
