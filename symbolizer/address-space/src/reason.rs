//! Reasons why there is no name.
//!
//! Owns: [`NoSymbol`] with its numbers, keys and sentences. Because: "no answer, because …" is a result that is
//! counted and shown, not an error that is swallowed. Does not: describe failures of the profiler itself.

use std::io;

use deepctx_common::reasons;

reasons! {
    class Unnamed, page "loss.md";
    /// Why an address has no name. Numbers are append-only.
    pub enum NoSymbol: u8 {
        Unmapped = 0, "unmapped", "the address was in no executable mapping of the process at that time";
        UnknownProcess = 1, "process-unread", "the mappings of the process have not been read";
        ProcessGone = 2, "process-gone", "the process ended before its mappings could be read";
        PermissionDenied = 3, "permission-denied", "reading the process or the file behind the mapping is not permitted",
            helps "run the profiler as root";
        ModuleMissing = 4, "module-missing", "the file behind the mapping is no longer there";
        ModuleDeleted = 5, "module-deleted", "the file behind the mapping was deleted and can be reached only with more privileges";
        ModuleUnreadable = 6, "module-unreadable", "the file behind the mapping could not be read";
        NotRegularFile = 7, "not-regular-file", "what is behind the mapping is not a regular file";
        NotElf = 8, "not-elf", "the file behind the mapping is not an ELF file of this machine";
        CorruptElf = 9, "corrupt-elf", "the ELF file contradicts itself or ends too early";
        TooLarge = 10, "too-large", "the file or one of its tables is larger than the profiler accepts";
        OutsideSegments = 11, "outside-segments", "no program header of the file describes this part of it";
        NoSymbolTable = 12, "no-symbol-table", "the file was stripped of the symbols that could cover the address",
            helps "a build that was not stripped";
        NotCovered = 13, "not-covered", "no symbol of the file covers the address";
        ReaderFailed = 14, "reader-failed", "the reader of symbols gave up on this file";
        JitWithoutMap = 15, "jit-without-map", "the code was generated at run time and its runtime wrote no map of it",
            helps "let the runtime write one (`/tmp/perf-PID.map`), such as `node --perf-basic-prof`";
        JitNotCovered = 16, "jit-not-covered", "the code was generated at run time and the map that its runtime wrote does not cover it";
        UprobeTrampoline = 17, "uprobe-trampoline", "the address is the kernel's page for probed instructions";
        SpecialMapping = 18, "special-mapping", "the address is in a special mapping of the kernel that has no symbols";
        KernelRestricted = 19, "kernel-restricted", "kernel addresses are hidden from this user (kernel.kptr_restrict, CAP_SYSLOG)",
            helps "CAP_SYSLOG, as root has it; where kernel.kptr_restrict is 2, also `sysctl kernel.kptr_restrict=1`";
        KernelNotCovered = 20, "kernel-not-covered", "no kernel symbol covers the address";
        KernelUnreadable = 21, "kernel-unreadable", "/proc/kallsyms could not be read";
        TooManyModules = 22, "too-many-modules", "more files are mapped than the profiler keeps track of";
        FileChanged = 23, "file-changed", "the file behind the mapping was changed while it was read";
        UserFile = 24, "file-of-user-server",
            "the file is on a file system that a user's program serves (FUSE) and that may never answer",
            helps "have root mount it";
        ProcessSilent = 25, "process-silent", "the mappings of the process could not be read in time";
        JitNoRoom = 26, "jit-no-room",
            "the code was generated at run time, and names of such code of its user take more room than one user may have";
        SymbolsTookTooLong = 27, "symbols-took-too-long",
            "reading the symbols of the file, or of others of its user, took more than 4 s of a CPU (root's: 10 s) and is \
             tried again later, or was not done 15 s after the end of the capture";
        SymbolReaderEnded = 28, "symbol-reader-ended",
            "the process that reads symbols ended over this file, or gave none";
        NoSymbolReader = 29, "symbol-no-reader", "the process that reads symbols could not be started",
            helps "see what keeps the profiler from starting its own file (/proc/self/exe)";
        SymbolShareSpent = 30, "symbol-share-spent",
            "symbols of other files of its user took all the time that one user may have (10 s, then a tenth of the time)",
            helps "wait: files are read in their turn, and samples from then on have names";
        NoMemoryReader = 31, "process-no-reader",
            "the process in which the profiler reads what others map could not be started, or ended",
            helps "see what keeps the profiler from starting its own file (/proc/self/exe), such as a limit (`ulimit -a`)";
        JitRefuted = 32, "jit-refuted",
            "the code was generated at run time, and what its runtime registered for debuggers at this address is other code";
        JitDefect = 33, "jit-defect",
            "the code was generated at run time, and reading what its process says of such code failed because of a defect of the profiler",
            helps "report it: `-v` says what failed";
        JitLate = 34, "jit-late",
            "the code was generated at run time, and reading what processes of its user say of such code took all the time that one user may have",
            helps "wait: they are read in their turn, and samples from then on have names";
        DebuginfodPending = 35, "debuginfod-pending",
            "the file was stripped, and debuginfod servers have not answered yet whether they have its symbols",
            helps "wait: samples from then on have names, and the next capture has them from the start";
        DebuginfodNotFound = 36, "debuginfod-not-found",
            "the file was stripped, and no debuginfod server has its symbols",
            helps "a build that was not stripped, or a server of its vendor";
        DebuginfodTooSlow = 37, "debuginfod-too-slow",
            "the file was stripped, and a debuginfod server took too long to send its symbols",
            helps "more patience: `DEBUGINFOD_TIMEOUT` in seconds, 30 by default";
        DebuginfodFailed = 38, "debuginfod-failed",
            "the file was stripped, and a debuginfod server could not be reached or answered with an error",
            helps "try `curl` on the server's address: a proxy or a certificate may be missing";
        DebuginfodOtherBuild = 39, "debuginfod-other-build",
            "the file was stripped, and what a debuginfod server sent for it is of another build";
        DebuginfodTooLarge = 40, "debuginfod-too-large",
            "the file was stripped, and what a debuginfod server has for it is larger than `--debug-info` or 1 GiB",
            helps "`--debug-info 1G`";
        DebuginfodUnusable = 41, "debuginfod-unusable",
            "the file was stripped, and what a debuginfod server sent for it has neither symbols nor debug information";
    }
}

impl NoSymbol {
    /// Whether the same address may get a name later: the runtime writes it, or it is read in a later turn.
    pub fn may_be_named_later(&self) -> bool {
        use NoSymbol::{DebuginfodPending, SymbolShareSpent, SymbolsTookTooLong};
        use NoSymbol::{JitLate, JitNoRoom, JitNotCovered, JitRefuted, JitWithoutMap};
        let of_generated = matches!(self, JitWithoutMap | JitNotCovered | JitRefuted | JitNoRoom | JitLate);
        of_generated || matches!(self, SymbolShareSpent | SymbolsTookTooLong | DebuginfodPending)
    }

    /// The reason for an error of opening or reading data of a process.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            io::ErrorKind::NotFound => Self::ModuleMissing,
            _ => Self::ModuleUnreadable,
        }
    }
}

impl std::error::Error for NoSymbol {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_keys_are_unique() {
        for (i, reason) in NoSymbol::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, i);
            assert_eq!(NoSymbol::ALL.iter().filter(|other| other.key() == reason.key()).count(), 1);
            assert!(!reason.sentence().ends_with('.'), "{}", reason.sentence());
        }
    }

    #[test]
    fn hidden_kernel_names_need_a_capability() {
        let helps = NoSymbol::KernelRestricted.reason().helps.unwrap();
        // With 0 the kernel shows them to everybody only where `perf_event_paranoid` is below 2.
        assert!(helps.contains("CAP_SYSLOG") && !helps.contains("kptr_restrict=0"), "{helps}");
    }
}
