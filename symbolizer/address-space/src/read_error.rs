//! Reasons why the memory of a process could not be read.
//!
//! Owns: [`ReadError`]. Because: both the memory readers and the symbolizer use it. Does not: read.

use deepctx_common::reasons;

reasons! {
    class Unread, page "loss.md";
    /// Why an address could not be read.
    pub enum ReadError {
        /// The process, or the address space that it had when its memory was opened.
        Gone, "memory-gone", "the process or its address space is gone";
        /// The range is not mapped, or not completely.
        Unmapped, "memory-unmapped", "the address is not mapped";
        /// The kernel refuses.
        Denied, "memory-denied", "not permitted to read the memory of the process", helps "run the profiler as root";
        /// A read of this process was not answered in time.
        NoAnswer, "memory-no-answer",
            "the memory of the process did not answer within 250 ms, and is asked again seldom",
            helps "see what the process maps: a file of a hung server (NFS, FUSE) or a page that nobody fills";
        /// Others of the same user were not answered in time.
        Refused, "memory-refused",
            "the memory of the process is not read for now: too much of its user's memory answered late or not at all";
        /// The address lies in a mapping that a program of a user fills.
        UserFile, "memory-user-file",
            "the address is in a mapped file that a user's program serves (FUSE), and that may never answer";
        /// The profiler's own part that reads is missing.
        NoReader, "memory-no-reader", "the process in which the profiler reads memory could not be started, or ended",
            helps "see what keeps the profiler from starting its own file (/proc/self/exe)";
    }
}

impl std::error::Error for ReadError {}

impl ReadError {
    /// Whether the process was not asked, or did not answer in time: it may answer later.
    pub const fn is_silence(self) -> bool {
        matches!(self, Self::NoAnswer | Self::Refused | Self::NoReader)
    }
}
