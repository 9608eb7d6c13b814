//! Reason: what is lost while a disk hangs.
//!
//! Owns: the reasons of sinks. Because: the capture goes on in memory while a disk accepts nothing, and what is
//! dropped meanwhile must not pass for what the kernel lost. Does not: decide when a disk hangs.

use deepctx_common::reasons;

reasons! {
    class Gap, page "loss.md";
    pub(super) const STALLED = "disk-stalled",
        "flushes left out while the disk took nothing: a later one writes what they would have written",
        helps "another disk (`-o`)";
    pub(super) const RAW_STALLED = "raw-disk-stalled",
        "blocks missing in the raw copy: the disk took nothing, and more waited for it than is kept",
        helps "another disk (`--raw`)";
}
