//! Messages: events of the view, and what the event loop does after each.
//!
//! Owns: [`Message`], [`Effects`]. Because: a terminal program that can be driven by a list of messages can be tested
//! without a terminal. Does not: know what a message changes.

use std::sync::Arc;

use deepctx_profile::view::snapshot::{Snapshot, SourceText};

use crate::keys::Action;

/// An event.
#[derive(Clone, Debug)]
pub enum Message {
    /// A newer snapshot.
    Snapshot(Arc<Snapshot>),
    /// The text of the source file that was requested.
    Text(Arc<SourceText>),
    /// Whether the source can still provide newer snapshots.
    Live(bool),
    /// The terminal was resized to this many columns and rows.
    Resize(u16, u16),
    /// A key of the key table.
    Action(Action),
    /// A character for the line being typed.
    Character(char),
    /// Left button at a column and row of the screen.
    Click(u16, u16),
    /// Right button.
    RightClick,
    /// Wheel at a column and row of the screen; true is up.
    Wheel(bool, u16, u16),
    /// The pointer moved to a column and row with its left button down.
    Drag(u16, u16),
    /// The left button was released.
    Release,
}

/// What the event loop must do after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// Nothing: the screen is up to date.
    None,
    /// Draw.
    Redraw,
    /// Fetch from the source, since the request has changed; and draw.
    Fetch,
    /// Give the terminal back and stop until the shell continues the job; then draw.
    Suspend,
    /// Pass the copied text to the terminal, for its clipboard; and draw.
    Copy,
    /// Request a write of the capture so far, or of the kept part; and draw.
    WriteKept,
    /// Quit.
    Quit {
        /// Whether to save the profile.
        save: bool,
    },
}
