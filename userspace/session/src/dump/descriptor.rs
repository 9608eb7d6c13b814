//! Descriptor: the file that a process has open under a number.
//!
//! Owns: the words for it. Because: "reads descriptor 7" says nothing, "reads a pipe" does. Does not: open it, or
//! touch the file behind it.

use std::fs;

use super::frame::clean;

/// The open file of a descriptor: a path, or `pipe:[123]`, `socket:[4711]`, `anon_inode:[eventfd]`. `None`: it cannot
/// be read, or was closed meanwhile.
pub(super) fn opened(pid: u32, descriptor: i32) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    Some(clean(&link.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_descriptor_is_named_by_what_is_open() {
        let own = std::process::id();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(opened(own, reader.as_raw_fd()).unwrap().starts_with("pipe:["));
        let null = fs::File::open("/dev/null").unwrap();
        assert_eq!(opened(own, null.as_raw_fd()).as_deref(), Some("/dev/null"));
        assert_eq!(opened(own, -1), None);
    }
}
