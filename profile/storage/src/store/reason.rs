//! Reasons why something of a stored profile could not be read back.
//!
//! Owns: their declarations. Because: a damaged profile is opened as far as it goes, and says what it lacks. Does
//! not: decide whether a profile can be opened at all ([`super::StoreError`] does).

use deepctx_common::reasons;

reasons! {
    class Unread, page "formats.md";
    pub(super) const SEGMENT_LOST = "segment-lost", "files of the profile could not be read";
    pub(super) const NOT_FINISHED = "not-finished",
        "the capture did not end well: what came after the last flush is missing";
    pub(super) const FRAME_LOST = "frame-lost", "the frame was in a file of the profile that could not be read";
    pub(super) const CONTEXT_LOST = "context-lost", "the context was in a file of the profile that could not be read";
    pub(super) const FRAME_KIND_UNKNOWN = "frame-kind-unknown", "the frame is of a kind that this version does not know";
}
