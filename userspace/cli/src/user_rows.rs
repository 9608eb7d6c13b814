//! User rows: probes that the user describes in a file.
//!
//! Owns: reading the file, and its errors. Because: `record`, `live` and `probes` all read it. Does not: know the
//! format; see [`deepctx_uprobes::catalogue::user`].

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use deepctx_uprobes::UserRow;
use deepctx_uprobes::catalogue::user;

use super::failure::Failure;

/// Reads a probe file.
///
/// # Errors
/// It cannot be read, or one of its rows is invalid.
pub(crate) fn user_rows(path: &Path) -> Result<Vec<UserRow>, Failure> {
    let failed = |error: io::Error| Failure::io(path.display(), &error);
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    // One byte more than the parser accepts, so that the parser reports a file that is too large.
    file.take(user::FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text).map_err(failed)?;
    user::parse(&text).map_err(|error| {
        Failure::new(format_args!("{}: {error}", path.display())).hint("docs/probes.md shows the format")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_probe_file_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.toml");
        fs::write(&path, "[[probe]]\nlibrary = \"x\"\nsymbol = \"y\"\nevent = \"z\"\n").unwrap();
        let failure = user_rows(&path).unwrap_err().to_string();
        assert!(failure.contains("rows.toml: line 4: event: expected launch"), "{failure}");
    }
}
