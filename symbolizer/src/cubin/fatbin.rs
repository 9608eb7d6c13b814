//! Fat binaries: several images of the same device code in one, each perhaps compressed.
//!
//! Owns: finding images in a fat binary, or in a section full of them, and unpacking them within bounds. Because: this is
//! the form in which programs carry their kernels. Does not: read the images ([`super::read`]).
//!
//! As `fatbinary` of CUDA 13.5 writes it; numbers are little-endian:
//!
//! ```text
//!  u32 0xba55ed50 · u16 version · u16 bytes of this header · u64 bytes of all images, each:
//!    u16 kind (1 PTX, 2 cubin) · u16 · u32 bytes of this header · u64 bytes that follow it ·
//!    u32 bytes without padding · u32 · u16 · u16 · u32 architecture · u32 · u32 · u64 flags · u64 · u64 bytes unpacked
//! ```

use std::borrow::Cow;
use std::io::Read as _;

use thiserror::Error;

const MAGIC: u32 = 0xba55_ed50;
const COMPRESSED_LZ4: u64 = 0x2000;
const COMPRESSED_ZSTD: u64 = 0x8000;
/// Largest image that is unpacked: the largest of the vendor's libraries stay below it.
pub const IMAGE_MAX: usize = 256 << 20;
/// No LZ4 block grows more than this: the memory for it is taken ahead.
const LZ4_RATIO_MAX: usize = 256;
/// Most images of one section.
pub const IMAGES_MAX: usize = 1 << 16;

/// What an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code for one architecture.
    Cubin,
    /// Assembly, to be compiled where it runs.
    Ptx,
    /// Something else.
    Other(u16),
}

/// An image of device code, as it lies in a fat binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// What it is.
    pub kind: Kind,
    /// The architecture that it is for: 80 for `sm_80`.
    pub arch: u32,
    bytes: &'a [u8],
    flags: u64,
    unpacked: u64,
}

/// Why an image cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoImage {
    /// It would be larger than [`IMAGE_MAX`].
    #[error("it claims {0} bytes")]
    TooLarge(u64),
    /// Its compressed bytes make no sense.
    #[error("its compressed bytes make no sense")]
    Damaged,
    /// It says a size that it does not have.
    #[error("it unpacks to another size than it says")]
    OtherSize,
}

impl<'a> Image<'a> {
    /// Bytes that it claims to have when it is unpacked.
    pub fn unpacked_bytes(&self) -> u64 {
        if self.flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) == 0 {
            self.bytes.len() as u64
        } else {
            self.unpacked
        }
    }

    /// The image itself.
    ///
    /// # Errors
    /// [`NoImage`]; never takes more memory than the image says it has, nor more than [`IMAGE_MAX`].
    pub fn unpack(&self) -> Result<Cow<'a, [u8]>, NoImage> {
        if self.flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) == 0 {
            return Ok(Cow::Borrowed(self.bytes));
        }
        let size = usize::try_from(self.unpacked).ok().filter(|size| *size <= IMAGE_MAX);
        let size = size.ok_or(NoImage::TooLarge(self.unpacked))?;
        let unpacked = if self.flags & COMPRESSED_ZSTD != 0 {
            zstd(self.bytes, size)?
        } else if size > self.bytes.len().saturating_mul(LZ4_RATIO_MAX) {
            return Err(NoImage::Damaged);
        } else {
            lz4_flex::block::decompress(self.bytes, size).map_err(|_| NoImage::Damaged)?
        };
        if unpacked.len() == size { Ok(Cow::Owned(unpacked)) } else { Err(NoImage::OtherSize) }
    }
}

fn zstd(bytes: &[u8], size: usize) -> Result<Vec<u8>, NoImage> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|_| NoImage::Damaged)?;
    let mut unpacked = Vec::new();
    // One more would be too many; what it claims is not allocated ahead.
    decoder.take(size as u64 + 1).read_to_end(&mut unpacked).map_err(|_| NoImage::Damaged)?;
    Ok(unpacked)
}

/// A little-endian number at the beginning of bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(wide))
}

/// The images of one fat binary, or of as many as lie behind each other, with padding between them. Bytes that are none
/// are passed over; ends after the last byte whatever the bytes are.
pub fn images(bytes: &[u8]) -> impl Iterator<Item = Image<'_>> {
    let mut rest = bytes;
    // Images that are left of the fat binary at hand.
    let mut inside: &[u8] = &[];
    std::iter::from_fn(move || {
        loop {
            if let Some((image, behind)) = image(inside) {
                inside = behind;
                return Some(image);
            }
            (inside, rest) = next_binary(rest)?;
        }
    })
    .take(IMAGES_MAX)
}

/// The images of the next fat binary, and what lies behind it.
fn next_binary(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let magic = MAGIC.to_le_bytes();
    // Each begins at a multiple of eight bytes.
    let at = bytes.chunks(8).position(|chunk| chunk.starts_with(&magic))? * 8;
    let binary = &bytes[at..];
    let header = usize::try_from(number::<2>(binary, 6)?).ok()?.max(16);
    let all = usize::try_from(number::<8>(binary, 8)?).unwrap_or(usize::MAX);
    let inside = binary.get(header..)?;
    let inside = &inside[..all.min(inside.len())];
    // The next one begins at a multiple of eight from here, however long this one says it is.
    let behind = (header + inside.len()).next_multiple_of(8).min(binary.len());
    Some((inside, &binary[behind..]))
}

/// The first image, and what lies behind it.
fn image(bytes: &[u8]) -> Option<(Image<'_>, &[u8])> {
    let header = usize::try_from(number::<4>(bytes, 4)?).ok().filter(|header| *header >= 64)?;
    let size = usize::try_from(number::<8>(bytes, 8)?).ok()?;
    let packed = usize::try_from(number::<4>(bytes, 16)?).ok()?;
    let flags = number::<8>(bytes, 40)?;
    let behind = bytes.get(header..)?;
    let (own, behind) = behind.split_at_checked(size)?;
    let compressed = flags & (COMPRESSED_LZ4 | COMPRESSED_ZSTD) != 0;
    let own = if compressed { own.get(..packed)? } else { own };
    let kind = match number::<2>(bytes, 0)? {
        1 => Kind::Ptx,
        2 => Kind::Cubin,
        other => Kind::Other(other as u16),
    };
    let arch = number::<4>(bytes, 28)? as u32;
    Some((Image { kind, arch, bytes: own, flags, unpacked: number::<8>(bytes, 56)? }, behind))
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
    fn images_come_out_as_they_went_in_however_they_are_packed() {
        for (name, bytes) in [("plain", PLAIN), ("lz4", LZ4), ("zstd", ZSTD)] {
            let found: Vec<_> = images(bytes).map(|image| (image.kind, image.arch)).collect();
            assert_eq!(found, [(Kind::Cubin, 80), (Kind::Ptx, 80)], "{name}");
            let cubin = images(bytes).next().unwrap().unpack().unwrap();
            assert_eq!(read(&cubin), read(CUBIN), "{name}");
            let ptx = images(bytes).nth(1).unwrap().unpack().unwrap();
            assert!(String::from_utf8_lossy(&ptx).contains(".entry _Z4gemmPfi"), "{name}");
        }
    }

    #[test]
    fn a_section_holds_many_with_padding_between_them() {
        let section = [&[0; 24], PLAIN, &vec![0; 8 - PLAIN.len() % 8], LZ4, &[0; 40]].concat();
        assert_eq!(images(&section).count(), 4);
        assert_eq!(images(b"").count(), 0);
    }

    #[test]
    fn an_image_that_lies_about_its_size_is_refused() {
        for (bytes, says, expect) in [
            (ZSTD, 1u64 << 40, NoImage::TooLarge(1 << 40)),
            (ZSTD, 10, NoImage::OtherSize),
            (LZ4, 10, NoImage::Damaged),
            (ZSTD, 1 << 20, NoImage::OtherSize),
        ] {
            let mut bytes = bytes.to_vec();
            bytes[16 + 56..16 + 64].copy_from_slice(&says.to_le_bytes());
            assert_eq!(images(&bytes).next().unwrap().unpack(), Err(expect));
        }
    }

    proptest! {
        #[test]
        fn damaged_fat_binaries_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut: prop::sample::Index,
        ) {
            for whole in [PLAIN, LZ4, ZSTD] {
                let mut bytes = whole.to_vec();
                for (at, value) in &changes {
                    // Most of what matters is in the headers.
                    let at = at.index(bytes.len().min(96));
                    bytes[at] = *value;
                }
                bytes.truncate(cut.index(bytes.len()) + 1);
                for image in images(&bytes) {
                    if image.unpacked < 1 << 20 {
                        _ = image.unpack();
                    }
                }
            }
        }
    }
}
