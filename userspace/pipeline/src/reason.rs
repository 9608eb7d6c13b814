//! Reasons that do not belong to a single stage.
//!
//! Owns: the reasons for what the pipeline itself drops or cannot know. Because: accounts, frames and several stages
//! share them. Does not: hold the reasons of a stage, which are in its folder.

use deepctx_common::reasons;

reasons! {
    class Loss, page "loss.md";
    pub(crate) const SEQUENCE_GAP = "sequence-gap", "record numbers are missing";
    pub(crate) const LATE = "late", "records arrived after later ones had been used";
    pub(crate) const UNREAD = "unread", "records were not read before the capture ended";
}

reasons! {
    class Gap, page "loss.md";
    pub(crate) const UNEXPLAINED_GAP = "unexplained-gap",
        "record numbers are missing that the kernel programs did not report as dropped";
    pub(crate) const EARLY = "early", "records were used before their time because too many were waiting";
    pub(crate) const PYTHON_UNKNOWN_END = "python-unknown-end",
        "Python walks ended for a reason that this version does not know";
    pub(crate) const KERNEL_UNKNOWN_END = "kernel-unknown-end",
        "kernel walks ended for a reason that this version does not know";
    pub(crate) const MALFORMED_WORDS = "malformed-words",
        "words of stacks had an unknown form and stand as [unknown: malformed-words]";
    pub(crate) const PYTHON_INCOMPLETE = "incomplete", "a Python function was just being entered";
    pub(crate) const STACK_LIMITED = "stack-limited", "the call has no stack: the limit of stacks was reached",
        helps "`--launch-stacks`, `--operator-stacks`";
    pub(crate) const PROCESS_CHANGE_LOST = "process-change-lost",
        "processes began or ended and kept what was known of their number: too many did at once";
    pub(crate) const CONTEXT_SHARED = "context-shared",
        "short-lived processes and threads are shown together by name (`[others]`)";
    pub(crate) const STACK_NOT_TAKEN = "stack-not-taken", "the call has no stack: no scratch memory was free";
}

reasons! {
    class Gap, page "off-cpu.md";
    pub(crate) const WAIT_RATE_LIMITED = "wait-rate-limited",
        "waits have their time and no stack: the share of walks was used up";
    pub(crate) const WAIT_SCRATCH_BUSY = "wait-scratch-busy",
        "waits have their time and no stack: no scratch memory was free";
    pub(crate) const WAIT_STACK_LOST = "wait-stack-lost",
        "waits have their time and no stack: it was lost on its way";
    pub(crate) const WAIT_END_LOST = "wait-end-lost", "waits have a stack and no time: their end was not seen";
}

reasons! {
    class Unnamed, page "loss.md";
    pub(crate) const NOT_ANSWERED = "not-answered", "the symbolizer gave no answer";
}
