//! Reason: what the resolver cannot know, beyond the symbolizer's reasons.
//!
//! Owns: the reasons that arise here. Because: the awaiter of a task and the called layer follow from several
//! readings, which the symbolizer does not see together, and it knows nothing of the kernel's tables. Does not: decide
//! when a reason holds.

use deepctx_common::reasons;

reasons! {
    class Unnamed, page "operators.md";
    pub(super) const NO_LAYER = "layer-unreadable", "the module that was called could not be read";
    pub(super) const NO_ROOM_FOR_LAYERS = "layers-over-share",
        "processes whose modules of PyTorch are not recorded: too many have some, or most of these have the same user",
        class Gap;
}

reasons! {
    class Gap, page "unwinding.md";
    pub(super) const REFUSALS_FORGOTTEN = "refusals-forgotten",
        "more processes got no unwind data than are remembered: walks in some end with `unknown-process`";
}

reasons! {
    class Gap, page "python-frames.md";
    pub(super) const SEVERAL_AWAITERS = "async-several-awaiters", "more than one task awaits the task below";
    pub(super) const CHAIN_TOO_LONG = "async-chain-too-long",
        "the await chain goes on beyond what is read";
    pub(super) const TASK_CHANGED = "async-task-changed",
        "the coroutine was another task's before and after, or its awaiters changed just then";
    pub(super) const TASK_NEW = "async-task-new",
        "the coroutine's task was not read before the sample, or not often enough to be sure";
    pub(super) const TOO_MANY_CHAINS = "async-too-many-chains", "more await chains than are kept apart";
}
