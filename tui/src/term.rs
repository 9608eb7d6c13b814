//! Term: the terminal as a guest finds and leaves it.
//!
//! Owns: raw mode, the alternate screen, the mouse, and putting all three back. Because: a program that dies must not
//! leave a shell that cannot be typed into. Does not: draw or read events.

use std::io::{self, Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use crossterm::{ExecutableCommand, QueueableCommand};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// Whether the terminal is ours now; the one thing that must be known without the guard.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal that draws to standard output.
pub type Screen = Terminal<CrosstermBackend<Stdout>>;

/// Holds the terminal; dropping it gives the terminal back.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes the terminal: raw mode, alternate screen, mouse. A panic anywhere gives it back before it is reported.
    ///
    /// # Errors
    /// When standard output is no terminal or cannot be set up; it is then as it was before.
    pub fn take() -> io::Result<(Self, Screen)> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        // From here on an error drops the guard.
        let guard = Self(());
        stdout().queue(EnterAlternateScreen)?.queue(EnableMouseCapture)?.queue(Hide)?.flush()?;
        let mut screen = Terminal::new(CrosstermBackend::new(stdout()))?;
        screen.clear()?;
        Ok((guard, screen))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back if it is taken; does nothing otherwise, so it can be called from anywhere and twice.
///
/// For a thread that waits for signals, not for a signal handler: it takes locks and allocates.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // The terminal may be gone; each step is tried by itself, for the others may still help.
    let mut out = stdout();
    let _ = out.execute(DisableMouseCapture);
    let _ = out.execute(LeaveAlternateScreen);
    let _ = out.execute(Show);
    let _ = disable_raw_mode();
}
