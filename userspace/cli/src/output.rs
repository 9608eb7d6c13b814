//! Output: files that appear complete, or not at all.
//!
//! Owns: standard output, and writing a file under another name until it is whole. Because: a script that finds
//! `run.svg` must be able to use it. Does not: know any format.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::failure::Failure;
use super::options::OutputArgs;

/// Writes an output: `-` is standard output. An existing file is replaced only when `force` says so; a device or a
/// pipe is written to and never replaced: `/dev/null` is shared.
///
/// # Errors
/// It could not be written. A broken pipe on standard output is a [`Failure`] that counts as success.
pub fn write(
    path: &Path,
    force: bool,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    if path == Path::new("-") {
        let mut out = BufWriter::new(io::stdout().lock());
        return body(&mut out)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::io("standard output", &error));
    }
    let failure = |error: io::Error| Failure::io(path.display(), &error);
    if is_device(path) {
        let written = fs::File::options().write(true).open(path).and_then(|file| {
            let mut out = BufWriter::new(file);
            body(&mut out)?;
            out.flush()
        });
        return written.map_err(failure);
    }
    refuse_existing(path, force)?;
    let partial = partial_name(path);
    let written = fs::File::create_new(&partial).and_then(|file| {
        let mut out = BufWriter::new(file);
        body(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        publish(&partial, path, force)
    });
    written.map_err(|error| {
        // The failure is reported; the partial file is of no use.
        let _ = fs::remove_file(&partial);
        match error.kind() {
            io::ErrorKind::AlreadyExists => exists(path),
            _ => failure(error),
        }
    })
}

/// Whether a path names something else than a file or a folder, such as a device or a pipe.
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir())
}

/// Renames a complete file to its final name. Without `force`, a file that was created meanwhile is not replaced.
fn publish(partial: &Path, path: &Path, force: bool) -> io::Result<()> {
    if force {
        return fs::rename(partial, path);
    }
    match rustix::fs::renameat_with(
        rustix::fs::CWD,
        partial,
        rustix::fs::CWD,
        path,
        rustix::fs::RenameFlags::NOREPLACE,
    ) {
        // Not every file system supports this. The check at the beginning must suffice there.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => fs::rename(partial, path),
        other => other.map_err(Into::into),
    }
}

/// Fails if the output exists.
///
/// # Errors
/// It exists and `force` is not set.
pub fn refuse_existing(path: &Path, force: bool) -> Result<(), Failure> {
    if !force && fs::symlink_metadata(path).is_ok() { Err(exists(path)) } else { Ok(()) }
}

/// [`refuse_existing`] for the output options, before any work is done.
///
/// # Errors
/// As there.
pub fn refuse_existing_output(output: &OutputArgs) -> Result<(), Failure> {
    if output.output == Path::new("-") || is_device(&output.output) {
        return Ok(());
    }
    refuse_existing(&output.output, output.force)
}

fn exists(path: &Path) -> Failure {
    Failure::new(format_args!("{}: already exists", path.display()))
        .hint("add --force to replace it, or choose another name with -o")
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(path: &Path, force: bool, text: &'static str) -> Result<(), Failure> {
        write(path, force, |out| out.write_all(text.as_bytes()))
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
