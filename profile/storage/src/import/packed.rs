//! Compressed files, and marks of encodings.
//!
//! Owns: [`plain`], and the bound on what a file may expand to. Because: traces are large, and their writers and users
//! pack them. Does not: look at what is inside.

use std::borrow::Cow;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::{BYTES_MAX, ImportError, TOO_LARGE};

/// Decompressed bytes.
pub(super) struct DecompressedBytes<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    /// The compressed file is truncated.
    pub(super) is_cut: bool,
}

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// UTF-8's mark, which Windows' editors and shells write.
const MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// First bytes of what is not unpacked, its name, and what to do.
const NOT_UNPACKED: [(&[u8], &str, &str); 7] = [
    (b"PK\x03\x04", "a zip archive", "unpack it (`unzip`)"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "compressed with xz", "unpack it (`xz -d`)"),
    (b"BZh", "compressed with bzip2", "unpack it (`bzip2 -d`)"),
    (&[0x04, 0x22, 0x4d, 0x18], "compressed with lz4", "unpack it (`lz4 -d`)"),
    (b"PERFILE2", "a recording of perf", "print it (`perf script`)"),
    (&[0xff, 0xfe], "text in UTF-16", "convert it (`iconv -f UTF-16 -t UTF-8`)"),
    (&[0xfe, 0xff], "text in UTF-16", "convert it (`iconv -f UTF-16 -t UTF-8`)"),
];

/// Decompresses gzip and zstd; other bytes are returned as they are, without a mark of their encoding.
pub(super) fn plain(bytes: &[u8]) -> Result<DecompressedBytes<'_>, ImportError> {
    for (start, format, because) in NOT_UNPACKED {
        if bytes.starts_with(start) {
            return Err(ImportError::NotRead { format, because });
        }
    }
    let mut out = Vec::new();
    let is_cut = match bytes {
        // Of a larger file, packed or not, not all was read.
        _ if bytes.len() > BYTES_MAX => return Err(TOO_LARGE),
        _ if bytes.starts_with(GZIP) => gzip(bytes, &mut out)?,
        _ if bytes.starts_with(ZSTD) => zstd(bytes, &mut out)?,
        _ => {
            let bytes = Cow::Borrowed(bytes.strip_prefix(MARK).unwrap_or(bytes));
            return Ok(DecompressedBytes { bytes, is_cut: false });
        }
    };
    if out.starts_with(MARK) {
        out.drain(..MARK.len());
    }
    Ok(DecompressedBytes { bytes: Cow::Owned(out), is_cut })
}

/// Decompresses a gzip file. Returns whether its end is missing.
fn gzip(bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, ImportError> {
    let read = bounded(MultiGzDecoder::new(bytes), out)?;
    // Left by a killed process, or a full disk.
    let is_cut = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof && !out.is_empty();
    match read {
        Ok(()) => Ok(false),
        Err(error) if is_cut(&error) => Ok(true),
        Err(error) => Err(damaged("gzip", &error)),
    }
}

/// Decompresses the frames of a zstd file. Returns whether its end is missing.
fn zstd(mut bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, ImportError> {
    while !bytes.is_empty() {
        let read = match StreamingDecoder::new(&mut bytes) {
            Ok(frame) => bounded(frame, out)?,
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        if let Err(error) = read {
            return if bytes.is_empty() && !out.is_empty() { Ok(true) } else { Err(damaged("zstd", &error)) };
        }
    }
    Ok(false)
}

/// Reads up to the bound.
fn bounded(from: impl Read, out: &mut Vec<u8>) -> Result<io::Result<()>, ImportError> {
    let left = BYTES_MAX + 1 - out.len();
    let read = from.take(left as u64).read_to_end(out);
    if out.len() > BYTES_MAX { Err(TOO_LARGE) } else { Ok(read.map(drop)) }
}

fn damaged(format: &str, error: &io::Error) -> ImportError {
    let because = format!("it begins like a {format} file, but cannot be decompressed: {error}");
    ImportError::Unknown { because }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `deepctx` and 3000 zeroes, by `zstd`.
    const PACKED: &[u8] = &[
        0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x7d, 0x00, 0x00, 0x40, 0x64, 0x65, 0x65, 0x70, 0x63, 0x74, 0x78,
        0x00, 0x01, 0x00, 0xb4, 0xf3, 0x01, 0x17,
    ];

    #[test]
    fn zstd_frames_are_unpacked_one_after_the_other() {
        let unpacked = |bytes: &[u8]| plain(bytes).map(|found| (found.bytes.into_owned(), found.is_cut));
        let one = [b"deepctx".as_slice(), &[0; 3000]].concat();
        assert_eq!(unpacked(PACKED), Ok((one.clone(), false)));
        assert_eq!(unpacked(&[PACKED, PACKED].concat()), Ok((one.repeat(2), false)));
        assert!(unpacked(&PACKED[..9]).is_err());
        assert_eq!(unpacked(&[PACKED, &PACKED[..9]].concat()), Ok((one, true)));
    }

    #[test]
    fn more_packed_bytes_than_are_read_are_too_many() {
        // Whatever they hold: this is what was read of a file that goes on.
        for start in [GZIP, ZSTD, b"{"] {
            let mut bytes = vec![0; BYTES_MAX + 1];
            bytes[..start.len()].copy_from_slice(start);
            assert_eq!(plain(&bytes).map(|found| found.is_cut), Err(TOO_LARGE));
        }
    }

    #[test]
    fn other_packings_and_encodings_are_named() {
        let check = |bytes: &[u8], expect: &str| {
            let error = plain(bytes).map(|found| found.is_cut).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(b"PK\x03\x04...", "it is a zip archive, which is not read: unpack it (`unzip`)");
        check(b"\xfd7zXZ\0", "xz");
        check(b"BZh9", "bzip2");
        check(b"PERFILE2h\0", "it is a recording of perf, which is not read: print it (`perf script`)");
        check(b"\xff\xfe{\0", "UTF-16");
        let of_windows = plain(b"\xef\xbb\xbf{}").map(|found| found.bytes.into_owned());
        assert_eq!(of_windows, Ok(b"{}".to_vec()));
    }
}
