//! Pages of mapped files that were read and are not needed now.
//!
//! Owns: finding the reader's mappings among those of this process, and giving their pages back. Because: the reader maps
//! each file as a whole, and every page that it ever looked at counts as this process's memory for as long as it runs.
//! Does not: unmap anything, or touch what is private or can be written.

use std::io;

use rustix::mm::{Advice, madvise};

/// Most mappings that are looked at: the kernel's own default bound of a process.
const MAPPINGS_MAX: usize = 65_530;

/// Gives back the pages of files that are mapped shared and only to be read; a page comes back when it is read again.
/// The number of mappings whose pages went.
///
/// # Errors
/// The list of mappings cannot be read.
pub(super) fn release() -> io::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let given = |(begin, end): &(usize, usize)| {
        // SAFETY: the mapping is shared, so all of its content stands in the file: whoever reads it, now or later, reads
        // the same bytes with or without the pages. Files are mapped by the reader only, on this thread, so none comes or
        // goes between the reading of the list and this call.
        unsafe { madvise(*begin as *mut _, end - begin, Advice::LinuxDontNeed) }.is_ok()
    };
    Ok(maps.lines().take(MAPPINGS_MAX).filter_map(shared_file).filter(given).count())
}

/// Begin and end of a mapping of a file that is shared and only to be read. Memory of the kernel that is mapped (rings)
/// has no file name, and its pages would not come back.
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
    fn only_shared_files_that_cannot_be_written_are_given_back() {
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

    /// Kilobytes of a mapping that count as memory of this process.
    fn resident(map: &memmap2::Mmap) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_map = smaps.split_once(&format!("{:x}-", map.as_ptr().addr())).unwrap().1;
        let line = of_map.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn what_was_given_back_reads_the_same() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        // SAFETY: nobody else has the file.
        let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        let sum = || map.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(sum(), 7 << 20);
        assert!(resident(&map) >= 1024);
        assert!(release().unwrap() >= 1);
        assert_eq!(resident(&map), 0);
        assert_eq!(sum(), 7 << 20);
    }
}
