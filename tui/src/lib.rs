//! Draws snapshots of a profile in a terminal.
//!
//! Owns: the live view ([`run()`]), one screen as text ([`render_once`]), and the terminal while the view uses it
//! ([`term`]). Because: a user interface should be testable without a capture. Does not: know BPF, files or how a
//! snapshot is made; see [`deepctx_profile::view::snapshot::Snapshots`] for where they come from.
//!
//! ```
//! use deepctx_profile::view::request::{Request, Resolution};
//! use deepctx_profile::view::snapshot::Header;
//! use deepctx_profile::{Frame, Limits, Meta, Metric, Profile, Viewer};
//! use deepctx_tui::{RenderOptions, Tab, render_once};
//!
//! let mut profile = Profile::new(Meta::default(), Limits::default());
//! let name = profile.text("aten::addmm");
//! let operator = profile.frame(Frame::Operator { name });
//! profile.add(&[operator], Metric::CpuTime, 10_000_000);
//!
//! let header = Header { target: "train.py".to_owned(), metric: "cpu-time", ..Header::default() };
//! let request = Request::of(Metric::CpuTime);
//! let snapshot = Viewer::new().snapshot(&profile, &request, header, Resolution::default());
//! let text = render_once(&snapshot, &RenderOptions { tab: Tab::Flame, request, ..RenderOptions::default() });
//! assert!(text.contains("aten::addmm"));
//! ```
//!
//! Modules depend on each other in one direction: `tree` and `layout` (geometry), `state` (where the user is in each
//! tab), `model`, `page` (pages of text), then `app` (updates) and `view` (drawing), then the event loop `run`.

mod app;
mod difference;
pub mod keys;
mod layout;
mod message;
mod model;
mod page;
mod render;
mod run;
mod state;
mod tab;
pub mod term;
mod text;
mod theme;
mod tree;
mod view;

pub use app::update;
pub use message::{Effects, Message};
pub use model::{Model, Setup};
pub use render::{RenderOptions, render_once};
pub use run::{Options, Outcome, message, run};
pub use tab::Tab;
pub use theme::{Charset, Palette, Theme};
pub use view::draw;
