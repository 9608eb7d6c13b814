//! Flight recorder: writes the kept part of a capture as profiles.
//!
//! Owns: their names, none of which is used twice. Because: a profile that shows why a job hung must never be
//! replaced by the next one. Does not: keep records; the session does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use deepctx_profile::profile::Profile;
use deepctx_profile::units::{Time, clock};
use deepctx_session::{FlightOptions, FlightRequests, WriteKeptFn};

use super::destination::Destination;
use super::failure::{Failure, store_failure};
use super::flight_args::FlightArgs;

/// Number of profile names to try.
const NAMES_MAX: u32 = 10_000;

/// How a profile can be requested from a flight recorder.
#[derive(Debug, Default)]
pub(crate) struct ProfileRequesters {
    /// Sends the request.
    pub requests: FlightRequests,
    /// Set by the screen when its key is pressed.
    pub key: Arc<AtomicBool>,
}

/// The flight recorder's options; without `--keep`, it writes the whole capture so far.
pub(crate) fn options(
    arguments: FlightArgs,
    askers: &ProfileRequesters,
    files: FlightFiles,
    at_end: bool,
) -> FlightOptions {
    FlightOptions {
        keep: arguments.keep,
        on_hang: arguments.on_hang.map(|factor| factor.times()),
        at_end,
        requests: askers.requests.clone(),
        write: files.writer(),
    }
}

/// The profiles of one flight recorder: `run.dctx`, `run-2.dctx` and so on, in one folder.
#[derive(Debug)]
pub(crate) struct FlightFiles {
    /// The first profile, which may replace another one.
    first: Destination,
    /// Number of the next profile.
    next: u32,
    pack: bool,
}

impl FlightFiles {
    /// Profiles starting with this destination.
    pub(crate) fn new(first: Destination, pack: bool) -> Self {
        Self { first, next: 1, pack }
    }

    fn writer(mut self) -> WriteKeptFn {
        Box::new(move |profile, ends| match self.write(profile, ends) {
            Ok(path) => Ok(path.display().to_string()),
            Err(failure) => Err(failure.to_string()),
        })
    }

    fn write(&mut self, profile: &Profile, ends: Time<clock::Monotonic>) -> Result<PathBuf, Failure> {
        let later = self.later()?;
        let destination = later.as_ref().unwrap_or(&self.first);
        let mut writer = destination.create(&profile.meta)?;
        self.next += 1;
        writer.finish(profile, ends).map_err(|error| store_failure(&error))?;
        if self.pack {
            destination.pack(&writer.folder())?;
        }
        Ok(destination.path().to_owned())
    }

    /// The next free destination; `None` when that is the first one.
    fn later(&mut self) -> Result<Option<Destination>, Failure> {
        while self.next <= NAMES_MAX {
            if self.next == 1 {
                if !self.first.is_taken() {
                    return Ok(None);
                }
                self.next = 2;
            }
            let path = numbered(self.first.path(), self.next);
            if let Some(free) = self.first.beside(path)? {
                return Ok(Some(free));
            }
            self.next += 1;
        }
        let path = self.first.path().display();
        Err(Failure::new(format_args!("{path}: no free name up to number {NAMES_MAX}")))
    }
}

/// `run.dctx` becomes `run-2.dctx`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default();
    let mut name = stem.to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn no_profile_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("run-3.dctx")).unwrap();
        let first = Destination::of(&path("run.dctx"), false).unwrap();
        let mut write = FlightFiles::new(first, false).writer();
        let profile = Profile::new(Default::default(), Default::default());
        for name in ["run.dctx", "run-2.dctx", "run-4.dctx"] {
            assert_eq!(write(&profile, Default::default()), Ok(path(name).display().to_string()));
            assert!(deepctx_storage::open(path(name)).unwrap().is_complete());
        }
        assert_eq!(fs::read_dir(path("run-3.dctx")).unwrap().count(), 0);
    }

    #[test]
    fn a_name_that_others_took_meanwhile_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let first = Destination::of(&path("live.dctx"), false).unwrap();
        let mut write = FlightFiles::new(first, false).writer();
        fs::create_dir(path("live.dctx")).unwrap();
        let profile = Profile::new(Default::default(), Default::default());
        let written = write(&profile, Default::default());
        assert_eq!(written, Ok(path("live-2.dctx").display().to_string()));
    }

    #[test]
    fn packed_profiles_are_numbered_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut write = FlightFiles::new(Destination::of(&path, false).unwrap(), true).writer();
        let profile = Profile::new(Default::default(), Default::default());
        for name in ["run", "run-2"] {
            assert!(write(&profile, Default::default()).is_ok_and(|written| written.ends_with(name)));
            assert!(folder.path().join(name).is_file());
        }
    }
}
