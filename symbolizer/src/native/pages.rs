//! Releasing resident pages of mapped files.
//!
//! Owns: finding blazesym's mappings among those of this process, and releasing their pages. Because: blazesym maps
//! each file completely, and every page that it ever read counts as resident memory of this process. Does not: unmap
//! anything, or affect private or writable mappings.

use std::io;

use rustix::mm::{Advice, madvise};

/// Most mappings examined: the kernel's default limit of a process.
const MAPPINGS_MAX: usize = 65_530;

/// Releases the pages of files that are mapped shared and read-only; a page returns when it is read again. Returns
/// the number of mappings whose pages were released.
///
/// # Errors
/// The list of mappings cannot be read.
pub(super) fn release() -> io::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let released = |(begin, end): &(usize, usize)| {
        // SAFETY: the mapping is shared, so all of its content is in the file: any read, now or later, returns the
        // same bytes with or without the pages. Only blazesym maps files, on this thread, so no mapping is created or
        // removed between reading the list and this call.
        unsafe { madvise(*begin as *mut _, end - begin, Advice::LinuxDontNeed) }.is_ok()
    };
    Ok(maps.lines().take(MAPPINGS_MAX).filter_map(shared_file).filter(released).count())
}

/// Begin and end of a mapping of a file that is shared and read-only. Mapped kernel memory (ring buffers) has no file
/// name, and its pages would not return.
fn shared_file(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.splitn(6, ' ');
    let (begin, end) = fields.next()?.split_once('-')?;
    let file = fields.next()? == "r--s" && fields.nth(3)?.trim_start().starts_with('/');
    let address = |text| usize::from_str_radix(text, 16).ok();
    file.then_some(())?;
    Some((address(begin)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn only_shared_read_only_files_are_released() {
        let check = |line: &str, expect| assert_eq!(shared_file(line), expect, "{line}");
        check("1000-3000 r--s 00000000 fe:00 77   /usr/lib/libc.so.6", Some((0x1000, 0x3000)));
        check(
            "1000-3000 r--s 00000000 00:01 77                         /memfd:vdso (deleted)",
            Some((0x1000, 0x3000)),
        );
        check("1000-3000 r--p 00000000 fe:00 77   /usr/lib/libc.so.6", None);
        check("1000-3000 rw-s 00000000 fe:00 77   /tmp/file", None);
        check("1000-3000 r--s 00000000 00:0e 77   anon_inode:bpf-map", None);
        check("1000-3000 r--s 00000000 00:00 0 ", None);
        check("nothing", None);
    }

    /// Resident kilobytes of a mapping.
    fn resident(map: &memmap2::Mmap) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_map = smaps.split_once(&format!("{:x}-", map.as_ptr().addr())).unwrap().1;
        let line = of_map.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn released_pages_read_the_same() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        // SAFETY: no other process has the file.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let sum = || map.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(sum(), 7 << 20);
        assert!(resident(&map) >= 1024);
        assert!(release().unwrap() >= 1);
        assert_eq!(resident(&map), 0);
        assert_eq!(sum(), 7 << 20);
    }
}
