//! Opening: a profile from any supported file or folder.
//!
//! Owns: [`open`], and distinguishing our profiles from other tools' files. Because: every command, and every program
//! beside ours, must open the same files in the same way. Does not: print; what should be known about a file are
//! [`Note`]s.

use std::path::Path;

use deepctx_profile::Nanos;
use deepctx_profile::profile::Profile;

use crate::error::OpenError;
use crate::note::Note;
use crate::store::{self, StoredProfile};
use crate::version::FormatVersion;

/// An opened profile.
#[derive(Debug)]
pub struct OpenedProfile {
    /// The profile, with target, host and options in its `meta`. Unreadable parts are in its ledger as well.
    pub profile: Profile,
    /// Time from the start of the capture to the end of its data; zero if a file does not state it.
    pub elapsed: Nanos,
    /// Format of the file.
    pub format: FileFormat,
    /// Notices for the user.
    pub notes: Vec<Note>,
}

impl OpenedProfile {
    /// Whether all captured data is present.
    pub fn is_complete(&self) -> bool {
        !self.notes.iter().any(Note::is_damage)
    }
}

/// Format in which a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Our own format, a folder.
    Folder(FormatVersion),
    /// Our own format, one file.
    Packed(FormatVersion),
    /// Another tool's file.
    #[cfg(feature = "import")]
    Imported(crate::import::Kind),
}

/// Opens a profile, either a folder or one file, and with the feature `import` also recordings of other tools.
///
/// A profile with damaged files opens without them, and one of a newer minor version without its additions: the
/// [notes](OpenedProfile::notes) list them.
///
/// # Errors
/// It is not a profile, cannot be read, or has a version that would be misread.
pub fn open(path: impl AsRef<Path>) -> Result<OpenedProfile, OpenError> {
    let path = path.as_ref();
    let packed = store::is_packed(path);
    #[cfg(feature = "import")]
    if !packed && foreign::is_file(path) {
        return foreign::open(path);
    }
    #[cfg(feature = "import")]
    if crate::traces::is_folder_of_traces(path) {
        return foreign::open_ranks(path);
    }
    let StoredProfile { profile, version, finished, elapsed, lost, .. } = store::open(path)?;
    let known = FormatVersion::CURRENT;
    let newer = (version > known).then_some(Note::NewerMinor { found: version, known });
    let unfinished = (!finished).then_some(Note::NotEndedWell);
    let left_out = lost.into_iter().map(|lost| {
        let store::LostSegment { file, table, damage, because } = lost;
        Note::FileLeftOut { file, table, damage, because }
    });
    let notes = newer.into_iter().chain(unfinished).chain(left_out).collect();
    let format = if packed { FileFormat::Packed(version) } else { FileFormat::Folder(version) };
    Ok(OpenedProfile { profile, elapsed, format, notes })
}

/// Other tools' files.
#[cfg(feature = "import")]
mod foreign {
    use std::fs;
    use std::path::Path;

    use deepctx_profile::view;

    use super::{FileFormat, Note, OpenError, OpenedProfile};
    use crate::import::{self, ImportedProfile};

    /// Whether the path exists and is not a folder. Pipes are read as well: `deepctx-bpf report <(perf script)`.
    pub(super) fn is_file(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| !found.is_dir())
    }

    pub(super) fn open(path: &Path) -> Result<OpenedProfile, OpenError> {
        let bytes = crate::traces::read(path)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let imported = import::read(&bytes, &name).map_err(|source| OpenError::import(path, source))?;
        Ok(opened(imported))
    }

    fn opened(imported: ImportedProfile) -> OpenedProfile {
        let ImportedProfile { profile, kind, elapsed } = imported;
        let losses = view::losses(&profile).into_iter();
        let notes = losses.map(|row| Note::NotImported {
            count: row.count,
            reason: row.reason,
            sentence: row.sentence,
        });
        let notes = notes.collect();
        OpenedProfile { profile, elapsed, format: FileFormat::Imported(kind), notes }
    }

    /// Opens a folder with a trace per rank as one profile.
    pub(super) fn open_ranks(path: &Path) -> Result<OpenedProfile, OpenError> {
        let job = crate::traces::open_traces(&[path.to_owned()])?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        Ok(opened(import::profile_of_job(&job, &name)))
    }
}
