//! State: where the user is in each view.
//!
//! Owns: plain values, and how they find their place again in a newer snapshot. Because: each can be tested without a
//! screen. Does not: know the model that holds them.

pub(crate) mod events;
pub(crate) mod graph;
pub(crate) mod overview;
pub(crate) mod pin;
pub(crate) mod prompt;
pub(crate) mod search;
pub(crate) mod source;
pub(crate) mod table;
pub(crate) mod timeline;
