//! Layout: where everything is on the screen.
//!
//! Owns: geometry, and nothing else. Because: drawing, keys and the mouse must agree on it to the cell. Does not:
//! know the model, styles or keys; both `app` and `view` use it.

pub(crate) mod areas;
pub(crate) mod boxes;
pub(crate) mod event_tables;
pub(crate) mod events;
pub(crate) mod hot_paths;
pub(crate) mod table;
pub(crate) mod tabs;
pub(crate) mod timeline;
