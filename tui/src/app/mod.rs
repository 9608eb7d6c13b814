//! App: how the model changes.
//!
//! Owns: what every message, key and click does to the model. Because: updates that are pure functions can be tested
//! without a terminal. Does not: draw, read the clock or wait.

mod actions;
mod bounds;
mod copy;
mod events;
mod graph;
mod matches;
mod metrics;
mod mouse;
mod overview;
mod pin;
mod prompt;
mod source;
mod table;
mod timeline;
mod update;

pub use update::update;
