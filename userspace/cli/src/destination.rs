//! Destination: where a profile will be written, and what is there already.
//!
//! Owns: whether something may be replaced, its removal, the new folder, and packing it into one file. Because:
//! captures are often recorded where other users may rename and plant files, so what was checked at the beginning
//! must be what is removed and packed at the end. Does not: write the profile; the store does.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use deepctx_profile::profile::Meta;
use deepctx_storage::folder::{Folder, OverwritePolicy};
use deepctx_storage::store::{self, FoundProfile, Writer};

use super::failure::{Failure, store_failure};
use super::output;

/// A name in a folder that is kept open from before the capture to its end.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    parent: Arc<Folder>,
    name: OsString,
    /// The profile to replace.
    old: Option<FoundProfile>,
}

impl Destination {
    /// Refuses an existing path, unless `force` is set and it is a profile.
    ///
    /// # Errors
    /// The path exists, or its folder does not.
    pub(crate) fn of(path: &Path, force: bool) -> Result<Self, Failure> {
        output::refuse_existing(path, force)?;
        let (parent, name) = Folder::of_parent(path).map_err(|error| no_folder(path, &error))?;
        let old = FoundProfile::in_folder(&parent, &name);
        // Replacing deletes a folder, so it must be a profile.
        if old.is_none() && parent.has(&name) {
            return Err(Failure::new(format_args!(
                "{}: expected a profile to replace, found something else",
                path.display()
            ))
            .hint("choose another name with -o"));
        }
        Ok(Self { path: path.to_owned(), parent: Arc::new(parent), name, old })
    }

    /// Another destination in the same folder, with the last name of `path`; `None` when that exists.
    ///
    /// # Errors
    /// `path` has no last name.
    pub(crate) fn beside(&self, path: PathBuf) -> Result<Option<Self>, Failure> {
        let name = path.file_name().map(OsString::from);
        let name = name.ok_or_else(|| Failure::new(format_args!("{}: expected a name", path.display())))?;
        let parent = Arc::clone(&self.parent);
        Ok((!parent.has(&name)).then_some(Self { path, parent, name, old: None }))
    }

    /// Whether something that must not be replaced has got this name since.
    pub(crate) fn is_taken(&self) -> bool {
        self.old.is_none() && self.parent.has(&self.name)
    }

    /// The path, as the user specified it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the profile to replace and creates an empty one.
    ///
    /// # Errors
    /// Either failed.
    pub(crate) fn create(&self, meta: &Meta) -> Result<Writer, Failure> {
        if let Some(old) = &self.old {
            match old.remove(&self.parent, &self.name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(self.failed(&error)),
                _ => {}
            }
        }
        Writer::create_in(&self.parent, &self.name, meta).map_err(|error| store_failure(&error))
    }

    /// Removes the created profile.
    ///
    /// # Errors
    /// A system call failed.
    pub(crate) fn discard(&self, profile: &Folder) -> io::Result<()> {
        self.parent.remove_folder(&self.name, profile)
    }

    /// Packs the created profile into one file. At every moment, one of the two is complete.
    ///
    /// # Errors
    /// It could not be written, or the folder has moved. The folder then stays.
    pub(crate) fn pack(&self, profile: &Arc<Folder>) -> Result<(), Failure> {
        let aside = self.replace_by_file(profile);
        let aside = aside.map_err(|failure| failure.hint("the profile is complete as a folder"))?;
        self.parent.remove_folder(&aside, profile).map_err(|error| self.failed(&error))
    }

    /// Returns the folder's new name.
    fn replace_by_file(&self, profile: &Arc<Folder>) -> Result<OsString, Failure> {
        let failed = |error: io::Error| self.failed(&error);
        let mut file = self.parent.begin().map_err(failed)?;
        let mut out = BufWriter::new(&mut file);
        store::pack(profile, &mut out).map_err(|error| store_failure(&error))?;
        out.flush().map_err(failed)?;
        drop(out);
        file.sync().map_err(failed)?;
        if !self.parent.holds(&self.name, profile) {
            return Err(Failure::new(format_args!(
                "{}: the folder was moved during the recording",
                self.path.display()
            )));
        }
        let aside = self.parent.set_aside(&self.name).map_err(failed)?;
        if let Err(error) = file.publish(&self.name, OverwritePolicy::Keep) {
            // The first error is the one reported.
            _ = self.parent.rename(&aside, &self.name, OverwritePolicy::Keep);
            return Err(failed(error));
        }
        Ok(aside)
    }

    fn failed(&self, error: &io::Error) -> Failure {
        Failure::io(self.path.display(), error)
    }
}

fn no_folder(path: &Path, error: &io::Error) -> Failure {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::new(format_args!("{}: expected a folder for the profile, found none", parent.display()))
                .hint("create it first, or choose another path with -o")
        }
        _ => Failure::io(path.display(), error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn packed_profile_replaces_its_folder_and_can_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.dctx");
        let profile = deepctx_profile::Profile::new(Default::default(), Default::default());
        let destination = Destination::of(&output, false).unwrap();
        let mut writer = destination.create(&profile.meta).unwrap();
        writer.finish(&profile, Default::default()).unwrap();
        destination.pack(&writer.folder()).unwrap();
        assert!(output.is_file() && deepctx_storage::open(&output).unwrap().is_complete());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let again = Destination::of(&output, true).unwrap();
        let writer = again.create(&profile.meta).unwrap();
        assert!(output.is_dir());
        again.discard(&writer.folder()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_a_profile_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.dctx");
        let refused = |force| Destination::of(&output, force).unwrap_err().to_string();
        assert!(Destination::of(&output, false).is_ok());
        fs::create_dir(&output).unwrap();
        assert!(refused(false).contains("--force"));
        assert!(refused(true).contains("found something else"));
        fs::write(output.join("manifest.json"), "{}").unwrap();
        fs::create_dir_all(output.join("deep/er")).unwrap();
        let destination = Destination::of(&output, true).unwrap();
        destination.create(&Meta::default()).unwrap();
        assert!(!output.join("deep").exists());
        let nowhere = Destination::of(&folder.path().join("no/run.dctx"), false).unwrap_err();
        assert!(nowhere.to_string().contains("found none"), "{nowhere}");
    }

    #[test]
    fn what_was_swapped_in_is_neither_removed_nor_packed() {
        let folder = tempfile::tempdir().unwrap();
        let (output, moved) = (folder.path().join("run.dctx"), folder.path().join("moved"));
        let profile = deepctx_profile::Profile::new(Default::default(), Default::default());
        let first = Destination::of(&output, false).unwrap();
        let mut writer = first.create(&profile.meta).unwrap();
        writer.finish(&profile, Default::default()).unwrap();
        // Another user's folder that looks like a profile.
        let swap = || {
            fs::rename(&output, &moved).unwrap();
            fs::create_dir(&output).unwrap();
            fs::write(output.join("manifest.json"), "precious").unwrap();
        };
        let precious = || fs::read_to_string(output.join("manifest.json")).unwrap() == "precious";
        swap();
        let failure = first.pack(&writer.folder()).unwrap_err().to_string();
        assert!(failure.contains("was moved") && precious(), "{failure}");
        assert!(deepctx_storage::open(&moved).unwrap().is_complete());
        fs::remove_dir_all(&output).unwrap();
        fs::rename(&moved, &output).unwrap();
        let second = Destination::of(&output, true).unwrap();
        swap();
        assert!(second.create(&profile.meta).is_err() && precious());
    }
}
