//! Reading memory that may not be there.
//!
//! Owns: strings that records point to. Because: a record may be garbage, and the program must not die of it. Does
//! not: trust the pointer, or the string to have an end.

use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes per read. A piece lies within a page, so a read either succeeds whole or stops at the page's end.
const PIECE: usize = 256;
const PAGE: usize = 4096;

/// Set once the kernel has refused such reads altogether (a system call filter).
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Reads a NUL-terminated string of at most `into.len()` bytes. Returns its length, or `None` when it cannot be read.
pub(crate) fn text(address: u64, into: &mut [u8]) -> Option<usize> {
    if address < PAGE as u64 {
        return None;
    }
    let mut length = 0;
    while length < into.len() {
        let from = usize::try_from(address).ok()?.checked_add(length)?;
        let piece = PIECE.min(into.len() - length).min(PAGE - from % PAGE);
        let target = into.get_mut(length..length + piece)?;
        read(from, target)?;
        if let Some(end) = target.iter().position(|&byte| byte == 0) {
            return Some(length + end);
        }
        length += piece;
    }
    Some(length)
}

/// Reads memory of this process through the kernel, which returns an error where a direct read would crash.
fn read(from: usize, into: &mut [u8]) -> Option<()> {
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(from), iov_len: into.len() };
    // SAFETY: `local` is ours and as long as stated; the kernel checks `remote`.
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    if read < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        if matches!(error, Some(libc::EPERM | libc::ENOSYS)) {
            REFUSED.store(true, Ordering::Relaxed);
        }
    }
    (usize::try_from(read) == Ok(into.len())).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_to_its_end() {
        let mut room = [0; 4096];
        let long = std::ffi::CString::new("k".repeat(3000)).unwrap();
        for text in [c"gemm", c"", long.as_c_str()] {
            let length = super::text(text.as_ptr().expose_provenance() as u64, &mut room);
            assert_eq!(length.map(|n| &room[..n]), Some(text.to_bytes()));
        }
        assert_eq!(super::text(long.as_ptr().expose_provenance() as u64, &mut room[..100]), Some(100));
    }

    #[test]
    fn a_pointer_to_nowhere_is_no_string() {
        let mut room = [0; 64];
        for address in [0, 1, 0x5151_5151, u64::MAX, u64::MAX - 4096, 1 << 63] {
            assert_eq!(text(address, &mut room), None, "{address:#x}");
        }
    }
}
