//! Output: files that appear complete, or not at all.
//!
//! Owns: standard output, in signs that its terminal can show, and writing a file under a temporary name until it is
//! complete. Because: a script that finds `run.svg` must be able to use it. Does not: know any format.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use deepctx_storage::folder::{Folder, OverwritePolicy};

use super::ascii::{self, Ascii};
use super::failure::Failure;
use super::options::OutputArgs;

/// Number of default profile names to try.
const NAMES_MAX: u32 = 1000;

/// Writes an output: `-` is standard output. An existing file is replaced only with `force`. A device or pipe is
/// written to and never replaced: `/dev/null` is shared.
///
/// # Errors
/// It could not be written. A broken pipe on standard output is a [`Failure`] that counts as success.
pub(crate) fn write(
    path: &Path,
    force: bool,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if path == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        let written = match ascii::is_needed(&io::stdout()) {
            true => body(&mut Ascii::new(&mut out)),
            false => body(&mut out),
        };
        return written.and_then(|()| out.flush()).map_err(|error| Failure::io("standard output", &error));
    }
    let failure = |error: io::Error| failed(path, &error);
    if is_device(path) {
        let written = open_device(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            body(&mut out)?;
            out.flush()
        });
        return written.map_err(failure);
    }
    refuse_existing(path, force)?;
    let written = Folder::of_parent(path).and_then(|(folder, name)| {
        let mut partial = folder.begin()?;
        let mut out = BufWriter::new(&mut partial);
        body(&mut out)?;
        out.flush()?;
        drop(out);
        partial.sync()?;
        partial.publish(&name, existing(force)).map(drop)
    });
    written.map_err(failure)
}

/// Creates a file that grows. It has its name from the start, so that it is usable even if this program is killed.
/// Otherwise like [`write()`].
///
/// # Errors
/// It could not be created.
pub(crate) fn create(path: &Path, force: bool) -> Result<File, Failure> {
    let failure = |error: io::Error| failed(path, &error);
    if is_device(path) {
        return open_device(path).map_err(failure);
    }
    let made =
        Folder::of_parent(path).and_then(|(folder, name)| folder.begin()?.publish(&name, existing(force)));
    made.map_err(failure)
}

/// Opens a device. A file that has replaced the device since the check is not written to.
fn open_device(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.is_file() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    Ok(file)
}

fn existing(force: bool) -> OverwritePolicy {
    if force { OverwritePolicy::Replace } else { OverwritePolicy::Keep }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::io(path.display(), error),
    }
}

/// Whether a path is neither a file nor a folder, such as a device or pipe.
pub(crate) fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir())
}

/// Fails if the output exists.
///
/// # Errors
/// It exists and `force` is not set.
pub(crate) fn refuse_existing(path: &Path, force: bool) -> Result<(), Failure> {
    if !force && fs::symlink_metadata(path).is_ok() { Err(exists(path)) } else { Ok(()) }
}

/// [`refuse_existing`] for the output options, before any work is done.
///
/// # Errors
/// As for [`refuse_existing`].
pub(crate) fn refuse_existing_output(output: &OutputArgs) -> Result<(), Failure> {
    if output.output == Path::new("-") { Ok(()) } else { refuse_existing_file(&output.output, output.force) }
}

/// [`refuse_existing`] for outputs that may also be devices.
///
/// # Errors
/// As for [`refuse_existing`].
pub(crate) fn refuse_existing_file(path: &Path, force: bool) -> Result<(), Failure> {
    if is_device(path) { Ok(()) } else { refuse_existing(path, force) }
}

/// The first free name in a folder (the current one if empty): `run.dctx`, `run-2.dctx` and so on.
///
/// # Errors
/// No name is free.
pub(crate) fn free_name(folder: &Path, stem: &str) -> Result<PathBuf, Failure> {
    let name = |n| if n == 1 { format!("{stem}.dctx") } else { format!("{stem}-{n}.dctx") };
    let names = (1..NAMES_MAX).map(|n| folder.join(name(n)));
    let path = { names }.find(|path| fs::symlink_metadata(path).is_err());
    path.ok_or_else(|| Failure::new(format_args!("{stem}.dctx: expected a free name, found none")))
}

fn exists(path: &Path) -> Failure {
    Failure::new(format_args!("{}: already exists", path.display()))
        .hint("add --force to replace it, or choose another name with -o")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, force: bool, text: &'static str) -> Result<(), Failure> {
        write(path, force, |out| out.write_all(text.as_bytes()))
    }

    #[test]
    fn profiles_without_a_name_get_the_first_free_one() {
        let folder = tempfile::tempdir().unwrap();
        let next = || free_name(folder.path(), "run").unwrap().file_name().unwrap().to_owned();
        for expect in ["run.dctx", "run-2.dctx", "run-3.dctx"] {
            assert_eq!(next(), expect);
            fs::create_dir(folder.path().join(expect)).unwrap();
        }
        // A dangling link counts as existing.
        std::os::unix::fs::symlink("nowhere", folder.path().join("run-4.dctx")).unwrap();
        assert_eq!(next(), "run-5.dctx");
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        for force in [false, true] {
            put(Path::new("/dev/null"), force, "gone").unwrap();
            assert!(is_device(Path::new("/dev/null")));
        }
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_device(folder.path()) && !is_device(&folder.path().join("none")));
    }

    #[test]
    fn existing_file_is_replaced_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        put(&path, false, "one").unwrap();
        assert!(put(&path, false, "two").unwrap_err().to_string().contains("--force"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        put(&path, true, "three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
    }

    #[test]
    fn outputs_are_private_and_replace_a_link_by_themselves() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};

        let folder = tempfile::tempdir().unwrap();
        let (victim, path) = (folder.path().join("victim"), folder.path().join("out.txt"));
        let make = |grows, force| match grows {
            true => create(&path, force).map(drop),
            false => put(&path, force, "new"),
        };
        for grows in [false, true] {
            fs::write(&victim, "precious").unwrap();
            symlink(&victim, &path).unwrap();
            assert!(make(grows, false).unwrap_err().to_string().contains("--force"));
            make(grows, true).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            let made = fs::symlink_metadata(&path).unwrap();
            assert!(made.is_file() && made.permissions().mode() & 0o777 == 0o600, "{made:?}");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn a_write_that_fails_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let failed = write(&path, false, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.unwrap_err().to_string().contains("the disk is full"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
