//! Reasons in documents.
//!
//! Owns: their serialized form. Because: a program uses the key, and a reader the sentence. Does not: declare reasons;
//! each is declared where it arises.

use deepctx_common::reason::Reason;
use serde::Serializer;
use serde::ser::SerializeMap as _;

/// The key alone.
pub(super) fn key<S: Serializer>(reason: &&'static Reason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(reason.key)
}

/// `reason`: the key; `because`: the sentence.
pub(super) fn fields<S: Serializer>(reason: &&'static Reason, to: S) -> Result<S::Ok, S::Error> {
    let mut fields = to.serialize_map(Some(2))?;
    fields.serialize_entry("reason", reason.key)?;
    fields.serialize_entry("because", reason.sentence)?;
    fields.end()
}
