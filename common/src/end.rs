//! Numbered reasons: how a walk ended, why a record was dropped. Append-only; each has a name and a sentence.

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $n:literal, $key:literal, $sentence:literal;)* }) => {
        $(#[$doc])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $(#[doc = $sentence] $variant = $n,)* }

        impl $name {
            /// Every value, in numeric order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The reason with this number, if there is one.
            pub const fn from_number(n: u8) -> Option<Self> {
                match n { $($n => Some($name::$variant),)* _ => None }
            }

            /// Stable name for machines, kebab-case.
            pub const fn key(self) -> &'static str {
                match self { $($name::$variant => $key,)* }
            }

            /// One sentence for people.
            pub const fn sentence(self) -> &'static str {
                match self { $($name::$variant => $sentence,)* }
            }
        }
    };
}

reasons! {
    /// How a native walk ended.
    WalkEnd {
        Complete = 0, "complete", "the walk reached the start of the thread";
        NotWalked = 1, "not-walked", "no user stack was asked for";
        NoUserStack = 2, "no-user-stack", "a kernel thread has no user stack";
        UnknownProcess = 3, "unknown-process", "the process has no unwind data loaded yet";
        NoMapping = 4, "no-mapping", "the PC is in no known executable mapping";
        NoTable = 5, "no-table", "the mapping has no unwind table loaded (yet)";
        NoRow = 6, "no-row", "the unwind table has no row for this PC";
        UnsupportedRule = 7, "unsupported-rule", "the unwind row has a form that is not supported";
        RegisterUnknown = 8, "register-unknown", "the rule needs a register that is only known at the leaf";
        StackUnreadable = 9, "stack-unreadable", "a stack address could not be read";
        StackNotGrowing = 10, "stack-not-growing", "the next frame is not above this one";
        TooManyFrames = 11, "too-many-frames", "the stack has more frames than are recorded";
        NoRegisters = 12, "no-registers", "the user registers could not be read";
        CompatMode = 13, "compat-mode", "32-bit code is not walked";
        FramePointerEnd = 14, "frame-pointer-end", "a frame-pointer chain without unwind rows ended here";
        NullPc = 15, "null-pc", "the return address is zero though the row promised one";
        TableCorrupt = 16, "table-corrupt", "an index in the unwind tables is out of range";
        LeftOut = 17, "native-left-out", "native frames between Python frames are left out, as asked: operators among them are not told";
    }
}

reasons! {
    /// How a Python walk ended.
    PythonEnd {
        Complete = 0, "complete", "every interpreter frame met was walked to its entry";
        NotPython = 1, "not-python", "the process has no interpreter that is known";
        NotWalked = 2, "not-walked", "Python frames were not asked for";
        NoThreadState = 3, "no-thread-state", "the thread has no Python thread state";
        ThreadStateMismatch = 4, "thread-state-mismatch", "the thread state belongs to another thread";
        Unreadable = 5, "unreadable", "an interpreter structure could not be read";
        TooManyFrames = 6, "too-many-frames", "the Python stack has more frames than are recorded";
        ChainShort = 7, "chain-short", "there are more native evaluation frames than Python entry frames";
        ChainLong = 8, "chain-long", "Python frames remained after the last native evaluation frame";
        NoEvalFrame = 9, "no-eval-frame", "the native walk met no evaluation frame though the thread has Python frames";
        Torn = 10, "torn", "the interpreter was just changing its chain of frames";
        OtherState = 11, "other-state", "an evaluation frame runs for another thread state, as sub-interpreters have";
    }
}

reasons! {
    /// How a kernel walk ended.
    KernelEnd {
        Complete = 0, "complete", "the kernel stack was recorded, or the CPU was in user mode";
        NotWalked = 1, "not-walked", "kernel frames were not asked for";
        Failed = 2, "failed", "the kernel gave no stack";
        Truncated = 3, "truncated", "the kernel stack has more frames than are recorded";
    }
}

reasons! {
    /// Slots of the counter map: what the kernel programs did with each event.
    Counter {
        SamplesSeen = 0, "samples-seen", "timer samples that reached the program";
        SamplesFiltered = 1, "samples-filtered", "samples of processes that are not targets";
        RecordsEmitted = 2, "records-emitted", "records put into the ring buffer";
        DropRingFull = 3, "ring-full", "records dropped because the ring buffer had no room";
        DropScratchBusy = 4, "scratch-busy", "samples dropped because every scratch slot of the CPU was in use";
        DropRateLimited = 5, "rate-limited", "records dropped by a rate limit";
        ProcessEventsSeen = 6, "process-events-seen", "fork, exec, exit and mmap events of targets";
        SamplesIdle = 7, "samples-idle", "samples of the idle task";
        DropTargetsFull = 8, "targets-full", "children that could not be followed because the target map is full";
        WaitsSeen = 9, "waits-seen", "records of threads that left a CPU or came back to one";
        WaitsUntracked = 10, "waits-untracked", "waits that could not be followed because too many threads wait";
        CallsSeen = 11, "calls-seen", "calls, returns and messages at probes in the targets' libraries";
        ReturnsUntracked = 12, "returns-untracked", "calls whose return could not be followed because too many are under way";
        LaunchersUntracked = 13, "launchers-untracked", "launches that could not be remembered because too many threads launch";
    }
}
