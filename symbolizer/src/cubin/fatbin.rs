//! Fat binaries: several images of the same device code, possibly compressed.
//!
//! Owns: finding images in a fat binary, or in a section of several, and such sections; and decompressing images
//! within bounds. Because: programs contain their kernels in this form. Does not: parse the images ([`super::read`]).
//!
//! The format, as written by `fatbinary` of CUDA 13.5 (little-endian):
//!
//! ```text
//!  u32 0xba55ed50 · u16 version · u16 bytes of this header · u64 bytes of all images, each:
//!    u16 kind (1 PTX, 2 cubin) · u16 · u32 bytes of this header · u64 bytes that follow it ·
//!    u32 bytes without padding · u32 · u16 · u16 · u32 architecture · u32 · u32 · u64 flags · u64 · u64 bytes decompressed
//! ```

use std::borrow::Cow;
use std::fmt;
use std::io::Read as _;

use deepctx_common::reasons;
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// Sections of ELF files with fat binaries.
const SECTIONS: [&[u8]; 2] = [b".nv_fatbin", b"__nv_relfatbin"];
const MAGIC: u32 = 0xba55_ed50;
const COMPRESSED_LZ4: u64 = 0x2000;
const COMPRESSED_ZSTD: u64 = 0x8000;
/// Largest image decompressed: those of the vendor's libraries stay below it.
pub const IMAGE_MAX: usize = 256 << 20;
/// No LZ4 block expands more than this: its memory is allocated in advance.
const LZ4_RATIO_MAX: usize = 256;
/// Most images of one section.
pub const IMAGES_MAX: usize = 1 << 16;

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code for one architecture.
    Cubin,
    /// Assembly, to be compiled at run time.
    Ptx,
    /// Something else.
    Other(u16),
}

/// An image of device code in a fat binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Kind.
    pub kind: Kind,
    /// Target architecture: 80 for `sm_80`.
    pub arch: u32,
    bytes: &'a [u8],
    flags: u64,
    decompressed: u64,
}

/// Why an image cannot be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoImage {
    /// It would be larger than [`IMAGE_MAX`].
    TooLarge(u64),
    /// Its compressed bytes are corrupt.
    Corrupt,
    /// It decompresses to another size than stated.
    WrongSize,
}

impl NoImage {
    reasons! {
        class Unread, page "gpu.md";
        /// Its key and its general sentence; [`Display`](fmt::Display) adds the size.
        pub fn reason(self) {
            Self::TooLarge(_) => "image-too-large", "an image of device code states a size that is not believed";
            Self::Corrupt => "image-corrupt", "the compressed bytes of the image are corrupt";
            Self::WrongSize => "image-of-wrong-size", "the image decompresses to another size than it states";
        }
    }
}

impl fmt::Display for NoImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(bytes) => write!(f, "the image states a size of {bytes} bytes"),
            _ => self.reason().fmt(f),
        }
    }
}

impl std::error::Error for NoImage {}

impl<'a> Image<'a> {
    /// Its stated size after decompression.
    pub fn decompressed_bytes(&self) -> u64 {
        if self.flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) == 0 {
            self.bytes.len() as u64
        } else {
            self.decompressed
        }
    }

    /// The decompressed image.
    ///
    /// # Errors
    /// [`NoImage`]. Never allocates more memory than the stated size, nor more than [`IMAGE_MAX`].
    pub fn decompress(&self) -> Result<Cow<'a, [u8]>, NoImage> {
        if self.flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) == 0 {
            return Ok(Cow::Borrowed(self.bytes));
        }
        let size = usize::try_from(self.decompressed).ok().filter(|size| *size <= IMAGE_MAX);
        let size = size.ok_or(NoImage::TooLarge(self.decompressed))?;
        let decompressed = if self.flags & COMPRESSED_ZSTD != 0 {
            zstd(self.bytes, size)?
        } else if size > self.bytes.len().saturating_mul(LZ4_RATIO_MAX) {
            return Err(NoImage::Corrupt);
        } else {
            lz4_flex::block::decompress(self.bytes, size).map_err(|_| NoImage::Corrupt)?
        };
        if decompressed.len() == size { Ok(Cow::Owned(decompressed)) } else { Err(NoImage::WrongSize) }
    }
}

fn zstd(bytes: &[u8], size: usize) -> Result<Vec<u8>, NoImage> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|_| NoImage::Corrupt)?;
    let mut decompressed = Vec::new();
    // Reads at most one byte more than expected; nothing is allocated in advance.
    decoder.take(size as u64 + 1).read_to_end(&mut decompressed).map_err(|_| NoImage::Corrupt)?;
    Ok(decompressed)
}

/// The little-endian number of `N` bytes at an offset.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(wide))
}

/// The sections of an ELF file with fat binaries.
pub(super) fn sections(file: &[u8]) -> Vec<&[u8]> {
    let Ok(header) = FileHeader64::<LittleEndian>::parse(file) else { return Vec::new() };
    let Ok(endian) = header.endian() else { return Vec::new() };
    let Ok(sections) = header.sections(endian, file) else { return Vec::new() };
    let holds = |section: &&_| sections.section_name(endian, *section).is_ok_and(|n| SECTIONS.contains(&n));
    sections.iter().filter(holds).filter_map(|section| section.data(endian, file).ok()).collect()
}

/// The images of one fat binary, or of several with padding between them. Other bytes are skipped; the iteration ends
/// at the last byte whatever the content.
pub fn images(bytes: &[u8]) -> impl Iterator<Item = Image<'_>> {
    let mut rest = bytes;
    // Remaining images of the current fat binary.
    let mut inside: &[u8] = &[];
    std::iter::from_fn(move || {
        loop {
            if let Some((image, after)) = image(inside) {
                inside = after;
                return Some(image);
            }
            (inside, rest) = next_binary(rest)?;
        }
    })
    .take(IMAGES_MAX)
}

/// The images of the next fat binary, and the bytes after it.
fn next_binary(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let magic = MAGIC.to_le_bytes();
    // Fat binaries are aligned to eight bytes.
    let at = bytes.chunks(8).position(|chunk| chunk.starts_with(&magic))? * 8;
    let binary = &bytes[at..];
    let header = usize::try_from(number::<2>(binary, 6)?).ok()?.max(16);
    let all = usize::try_from(number::<8>(binary, 8)?).unwrap_or(usize::MAX);
    let inside = binary.get(header..)?;
    let inside = &inside[..all.min(inside.len())];
    // The next one is aligned to eight bytes, whatever the stated length of this one.
    let after = (header + inside.len()).next_multiple_of(8).min(binary.len());
    Some((inside, &binary[after..]))
}

/// The first image, and the bytes after it.
fn image(bytes: &[u8]) -> Option<(Image<'_>, &[u8])> {
    let header = usize::try_from(number::<4>(bytes, 4)?).ok().filter(|header| *header >= 64)?;
    let size = usize::try_from(number::<8>(bytes, 8)?).ok()?;
    let packed = usize::try_from(number::<4>(bytes, 16)?).ok()?;
    let flags = number::<8>(bytes, 40)?;
    let after = bytes.get(header..)?;
    let (own, after) = after.split_at_checked(size)?;
    let compressed = flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) != 0;
    let own = if compressed { own.get(..packed)? } else { own };
    let kind = match number::<2>(bytes, 0)? {
        1 => Kind::Ptx,
        2 => Kind::Cubin,
        other => Kind::Other(other as u16),
    };
    let arch = number::<4>(bytes, 28)? as u32;
    Some((Image { kind, arch, bytes: own, flags, decompressed: number::<8>(bytes, 56)? }, after))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::read;
    use super::*;

    // `fatbinary -64 --compress-all --compress-mode=…` with `cuda13.cubin` and `kernels.ptx`.
    const PLAIN: &[u8] = include_bytes!("../../tests/fixtures/cubin/plain.fatbin");
    const LZ4: &[u8] = include_bytes!("../../tests/fixtures/cubin/lz4.fatbin");
    const ZSTD: &[u8] = include_bytes!("../../tests/fixtures/cubin/zstd.fatbin");
    const CUBIN: &[u8] = include_bytes!("../../tests/fixtures/cubin/cuda13.cubin");

    #[test]
    fn images_are_found_with_every_compression() {
        for (name, bytes) in [("plain", PLAIN), ("lz4", LZ4), ("zstd", ZSTD)] {
            let found: Vec<_> = images(bytes).map(|image| (image.kind, image.arch)).collect();
            assert_eq!(found, [(Kind::Cubin, 80), (Kind::Ptx, 80)], "{name}");
            let cubin = images(bytes).next().unwrap().decompress().unwrap();
            assert_eq!(read(&cubin), read(CUBIN), "{name}");
            let ptx = images(bytes).nth(1).unwrap().decompress().unwrap();
            assert!(String::from_utf8_lossy(&ptx).contains(".entry _Z4gemmPfi"), "{name}");
        }
    }

    #[test]
    fn a_section_may_contain_several_fat_binaries() {
        let section = [&[0; 24], PLAIN, &vec![0; 8 - PLAIN.len() % 8], LZ4, &[0; 40]].concat();
        assert_eq!(images(&section).count(), 4);
        assert_eq!(images(b"").count(), 0);
    }

    #[test]
    fn an_image_with_a_wrong_size_is_refused() {
        for (bytes, stated, expect) in [
            (ZSTD, 1u64 << 40, NoImage::TooLarge(1 << 40)),
            (ZSTD, 10, NoImage::WrongSize),
            (LZ4, 10, NoImage::Corrupt),
            (ZSTD, 1 << 20, NoImage::WrongSize),
        ] {
            let mut bytes = bytes.to_vec();
            bytes[16 + 56..16 + 64].copy_from_slice(&stated.to_le_bytes());
            assert_eq!(images(&bytes).next().unwrap().decompress(), Err(expect));
        }
    }

    proptest! {
        #[test]
        fn corrupt_fat_binaries_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut: prop::sample::Index,
        ) {
            for whole in [PLAIN, LZ4, ZSTD] {
                let mut bytes = whole.to_vec();
                for (at, value) in &changes {
                    // Most relevant bytes are in the headers.
                    let at = at.index(bytes.len().min(96));
                    bytes[at] = *value;
                }
                bytes.truncate(cut.index(bytes.len()) + 1);
                for image in images(&bytes) {
                    if image.decompressed < 1 << 20 {
                        _ = image.decompress();
                    }
                }
            }
        }
    }
}
