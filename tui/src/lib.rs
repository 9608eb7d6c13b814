//! Draws snapshots of a profile in a terminal.
//!
//! Owns: the live view (`run`), the still picture (`render_once`), and the terminal while it is taken (`term`).
//! Because: what people look at all day deserves a crate that can be tested without a capture. Does not: know BPF,
//! files or how a snapshot is made; see [`deepctx_profile::snapshot::Snapshots`] for where they come from.

mod app;
mod difference;
pub mod keys;
mod layout;
mod message;
mod model;
mod page;
mod run;
mod state;
mod still;
mod tab;
pub mod term;
mod text;
mod theme;
mod tree;
mod view;

pub use app::update;
pub use message::{Effects, Message};
pub use model::{Model, Setup};
pub use run::{Options, Outcome, message, run};
pub use still::{Still, render_once};
pub use tab::Tab;
pub use theme::{Palette, Theme};
pub use view::draw;
