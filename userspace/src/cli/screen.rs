//! Screen: the terminal, taken for a view or written to once.
//!
//! Owns: the checks before the terminal is taken, and the form of still pictures. Does not: draw; `tui` does.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use deepctx_profile::snapshot::Snapshot;
use deepctx_profile::view::Selection;
use deepctx_tui::term::Guard;
use deepctx_tui::{Options, Outcome, Palette, Snapshots, Still, render_once};

use super::failure::Failure;
use super::output;

/// Refuses to go on without a terminal.
///
/// # Errors
/// Standard input or output is none.
pub fn require_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::new("standard output: expected a terminal for the live view, found none")
        .hint("add --once for a still picture as text, or use `record` and `report`"))
}

/// Shows pictures until the user leaves, or `stop` is set.
///
/// # Errors
/// The terminal went away.
pub fn show(
    pictures: &mut dyn Snapshots,
    request: Selection,
    can_save: bool,
    stop: Arc<AtomicBool>,
) -> Result<Outcome, Failure> {
    let failed = |error: io::Error| Failure::io("the terminal", &error);
    let (guard, mut screen) = Guard::take().map_err(failed)?;
    let outcome =
        deepctx_tui::run(&mut screen, pictures, &Options { request, can_save, stop, ..Options::default() });
    drop(guard);
    outcome.map_err(failed)
}

/// Prints a still picture on standard output: coloured on a terminal, plain text elsewhere.
///
/// # Errors
/// It could not be written.
pub fn print(snapshot: &Snapshot) -> Result<(), Failure> {
    let palette = if io::stdout().is_terminal() {
        Palette::detect(|name| std::env::var(name).ok())
    } else {
        Palette::Plain
    };
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let still = Still { width: columns.unwrap_or(Still::default().width), palette, ..Still::default() };
    output::write(Path::new("-"), false, |out| out.write_all(render_once(snapshot, &still).as_bytes()))
}
