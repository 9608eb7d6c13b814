//! Messages: what can happen, and what has to follow.
//!
//! Owns: [`Message`], [`Effects`]. Because: a terminal program that can be driven by a list of messages can be tested without a
//! terminal. Does not: know what a message changes.

use std::sync::Arc;

use deepctx_profile::snapshot::{Snapshot, SourceText};

use crate::keys::Action;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Message {
    /// The source has something newer.
    Snapshot(Arc<Snapshot>),
    /// The text of the source file that was requested.
    Text(Arc<SourceText>),
    /// The source will or will not give more.
    Live(bool),
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// A key that is in the key table.
    Action(Action),
    /// A character for the line that is typed.
    Character(char),
    /// Left button at a column and row of the screen.
    Click(u16, u16),
    /// Right button.
    RightClick,
    /// Wheel; true is up.
    Wheel(bool),
}

/// What the event loop has to do after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Nothing: what is on the screen still holds.
    None,
    /// Draw.
    Redraw,
    /// Ask the source again, for the request has changed; and draw.
    Fetch,
    /// Leave.
    Quit {
        /// Whether the user wants to keep what was seen.
        save: bool,
    },
}
