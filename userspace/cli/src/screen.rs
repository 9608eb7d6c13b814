//! Screen: the terminal, taken over by a view or written to once.
//!
//! Owns: the checks before the terminal is taken, the signals that end a view of a stored profile, and the form of
//! printed snapshots. Does not: draw; `tui` does.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deepctx_profile::view::snapshot::{Snapshot, Snapshots, SourcePlace};
use deepctx_profile::view::{Request, TabRequest};
use deepctx_tui::term::Guard;
use deepctx_tui::{Charset, Options, Outcome, Palette, RenderOptions, render_once};
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::files::{self, Places};
use super::output;
use super::tui_args::TuiArgs;

/// Fails without a terminal. `view` is what needs one, `others` are commands that do without.
///
/// # Errors
/// Standard input or output is not a terminal.
pub(crate) fn require_terminal(view: &str, others: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::new(format_args!("{view} needs a terminal on standard input and output"))
        .hint(format_args!("add --once to print one snapshot as text, or use {others}")))
}

/// A flag that is set when a signal asks the program to end: a killed view would leave the terminal unusable.
///
/// # Errors
/// The thread that waits for signals could not be created.
pub(crate) fn stop_at_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error: io::Error| Failure::io("signals", &error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let entered = runtime.enter();
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    let [mut terminate, mut hang_up, mut interrupt] = kinds.map(signal);
    drop(entered);
    let to_set = Arc::clone(&stop);
    let wait = move || {
        runtime.block_on(async {
            // A signal that cannot be handled keeps its default action.
            let (Ok(terminate), Ok(hang_up), Ok(interrupt)) = (&mut terminate, &mut hang_up, &mut interrupt)
            else {
                return;
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                _ = interrupt.recv() => {}
            }
            to_set.store(true, Ordering::Relaxed);
        });
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
    Ok(stop)
}

/// Shows snapshots until the user quits, or `stop` is set.
///
/// # Errors
/// The terminal was closed.
pub(crate) fn show(snapshots: &mut dyn Snapshots, options: &Options) -> Result<Outcome, Failure> {
    let failed = |error: io::Error| Failure::io("the terminal", &error);
    let (guard, mut screen) = Guard::take().map_err(failed)?;
    let outcome = deepctx_tui::run(&mut screen, snapshots, options);
    drop(guard);
    outcome.map_err(failed)
}

/// Prints a snapshot on standard output: colored on a terminal, plain text elsewhere.
///
/// # Errors
/// It could not be written.
pub(crate) fn print(
    snapshot: &Snapshot,
    request: Request,
    tui: &TuiArgs,
    places: Places,
) -> Result<(), Failure> {
    let palette = if io::stdout().is_terminal() {
        Palette::detect(|name| std::env::var(name).ok())
    } else {
        Palette::Plain
    };
    // Files are UTF-8, whatever the locale.
    let signs = if tui.ascii || io::stdout().is_terminal() { tui.signs() } else { Charset::Unicode };
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let usual = RenderOptions::default();
    let width = columns.or_else(terminal_columns).unwrap_or(usual.width);
    let (width, height) = tui.size.unwrap_or((width, usual.height));
    let text = match &request.part {
        TabRequest::Source(file) => {
            let place = SourcePlace { file: Arc::clone(file), line: 0, pid: 0 };
            Some(Arc::new(files::read(&place, places)))
        }
        _ => None,
    };
    let still = RenderOptions { width, height, tab: tui.tab(), request, text, palette, signs };
    output::write(Path::new("-"), false, |out| out.write_all(render_once(snapshot, &still).as_bytes()))
}

/// Columns of the terminal on standard output, beyond which its lines would wrap. A serial console states none.
fn terminal_columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}
