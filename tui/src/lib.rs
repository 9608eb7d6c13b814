//! Draws snapshots of a profile in a terminal.
//!
//! Owns: the live view (`run`), the still picture (`render_once`), and the terminal while it is taken (`term`).
//! Because: what people look at all day deserves a crate that can be tested without a capture. Does not: know BPF,
//! files or how a snapshot is made; see `source::Snapshots` for the door through which they come.

mod app;
mod difference;
pub mod keys;
mod layout;
mod run;
pub mod source;
mod still;
pub mod term;
mod text;
mod theme;
mod view;

pub use app::{Effects, Message, Model, Setup, Tab, update};
pub use run::{Options, Outcome, message, run};
pub use source::{NoText, Snapshots, SourceText};
pub use still::{Still, render_once};
pub use theme::{Palette, Theme};
pub use view::draw;
