//! Numbered reasons: how a walk ended, why a record was dropped. Append-only; each has a key and a sentence.
//!
//! Owns: the numbers that kernel programs put into records and counters. Because: stored profiles contain these
//! numbers, so a retired number is never reused. Does not: hold user-space reasons, which are declared where they
//! arise.

use crate::reasons;

reasons! {
    class Gap, page "loss.md";
    /// How a native walk ended.
    pub enum WalkEnd: u8 {
        Complete = 0, "complete", "the walk reached the start of the thread", class Normal;
        NotWalked = 1, "not-walked", "user stacks were not requested", class Normal;
        NoUserStack = 2, "no-user-stack", "a kernel thread has no user stack", class Normal;
        UnknownProcess = 3, "unknown-process", "the process has no unwind data loaded yet",
            helps "usual in the first moments after an attach, an exec or a `dlopen`: the unknown address triggers another scan of the mappings";
        NoMapping = 4, "no-mapping", "the PC is in no known executable mapping",
            helps "the stack is damaged, or the mapping is gone";
        NoTable = 5, "no-table", "the mapping has no unwind table loaded (yet)",
            helps "usual in the first moments after an attach, an exec or a `dlopen`: the unknown address triggers another scan of the mappings";
        NoRow = 6, "no-row", "the unwind table has no row for this PC",
            helps "hand-written assembler without CFI, or code made at run time";
        UnsupportedRule = 7, "unsupported-rule", "the unwind row has a form that is not supported", page "unwinding.md";
        RegisterUnknown = 8, "register-unknown", "the rule needs a register that is only known at the leaf";
        StackUnreadable = 9, "stack-unreadable", "a stack address could not be read",
            helps "the stack memory was paged out, or the stack pointer is wrong";
        StackNotGrowing = 10, "stack-not-growing", "the next frame is not above this one",
            helps "any further frame would be wrong: the stack is damaged, or a row is wrong";
        TooManyFrames = 11, "too-many-frames", "the stack has more frames than are recorded",
            helps "the innermost are kept";
        NoRegisters = 12, "no-registers", "the user registers could not be read";
        CompatMode = 13, "compat-mode", "32-bit code is not walked";
        FramePointerEnd = 14, "frame-pointer-end", "a frame-pointer chain without unwind rows ended here";
        NullPc = 15, "null-pc", "the return address is zero, although the row has a rule for it",
            helps "any further frame would be wrong: the stack is damaged, or a row is wrong";
        TableCorrupt = 16, "table-corrupt", "an index in the unwind tables is out of range",
            helps "a bug, please report it";
        LeftOut = 17, "native-left-out", "native frames between Python frames are omitted, as requested; operators among them are not reported";
        NoOtherStack = 18, "no-other-stack", "a function switched stacks, and the stack pointer that it saved leads to no stack",
            helps "the function was in the middle of switching stacks, or its frame is damaged";
    }
}

reasons! {
    class Gap, page "python-frames.md";
    /// How a Python walk ended.
    pub enum PythonEnd: u8 {
        Complete = 0, "python-complete", "every interpreter frame met was walked to its entry", class Normal, page "loss.md";
        NotPython = 1, "not-python", "the process has no interpreter that is known", class Normal, page "loss.md";
        NotWalked = 2, "python-not-walked", "Python frames were not requested", class Normal, page "loss.md";
        NoThreadState = 3, "python-no-thread-state", "the thread has no Python thread state";
        ThreadStateMismatch = 4, "python-thread-state-mismatch", "the thread state belongs to another thread";
        Unreadable = 5, "python-unreadable", "an interpreter structure could not be read";
        TooManyFrames = 6, "python-too-many-frames", "the Python stack has more frames than are recorded";
        ChainShort = 7, "python-chain-short", "there are more native evaluation frames than Python entry frames";
        ChainLong = 8, "python-chain-long", "Python frames remained after the last native evaluation frame";
        NoEvalFrame = 9, "python-no-eval-frame", "the native walk met no evaluation frame, although the thread has Python frames";
        Torn = 10, "python-torn", "the interpreter was in the middle of changing its chain of frames";
        OtherState = 11, "python-other-state", "an evaluation frame runs for another thread state, as sub-interpreters have";
    }
}

reasons! {
    class Gap, page "loss.md";
    /// How a kernel walk ended.
    pub enum KernelEnd: u8 {
        Complete = 0, "kernel-complete", "the kernel stack was recorded, or the CPU was in user mode", class Normal;
        NotWalked = 1, "kernel-not-walked", "kernel frames were not requested", class Normal;
        Failed = 2, "kernel-stack-failed", "the kernel gave no stack";
        Truncated = 3, "kernel-stack-truncated", "the kernel stack has more frames than are recorded";
    }
}

reasons! {
    class Normal, page "loss.md";
    /// Slots of the counter map: outcomes of the kernel programs, by kind of event.
    pub enum Counter: u8 {
        SamplesSeen = 0, "samples-seen", "timer samples that reached the program";
        SamplesFiltered = 1, "samples-filtered", "samples of processes that are not targets";
        RecordsEmitted = 2, "records-emitted", "records put into the ring buffer";
        DropRingFull = 3, "ring-full", "records dropped because the ring buffer had no room", class Loss,
            helps "a lower `--freq`: the reader did not get the CPU for long enough";
        DropScratchBusy = 4, "scratch-busy", "samples dropped because every scratch slot of the CPU was in use", class Loss,
            helps "nothing to do: it is rare that one tick interrupts so many walks";
        DropRateLimited = 5, "rate-limited", "records dropped by a rate limit", class Loss, helps "raise the limit";
        ProcessEventsSeen = 6, "process-events-seen", "fork, exec, exit and mmap events of targets";
        SamplesIdle = 7, "samples-idle", "samples of the idle task";
        DropTargetsFull = 8, "targets-full", "children that could not be followed because the target map is full", class Gap;
        WaitsSeen = 9, "waits-seen", "records of threads that left a CPU or came back to one";
        WaitsUntracked = 10, "waits-untracked", "waits that could not be followed because too many threads wait", class Gap;
        CallsSeen = 11, "calls-seen", "calls, returns and messages at probes in the targets' libraries";
        ReturnsUntracked = 12, "returns-untracked", "calls whose return could not be followed because too many are under way", class Gap;
        LaunchersUntracked = 13, "launchers-untracked", "launches that could not be remembered because too many threads launch", class Gap;
    }
}
