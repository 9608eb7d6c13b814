//! Term: taking over the terminal and restoring it.
//!
//! Owns: raw mode, the alternate screen, the mouse, and restoring all three; waiting for keys, and noticing that the
//! terminal is gone. Because: a program that dies must not leave an unusable shell, and one whose terminal hung up must
//! end. Does not: draw or read events.

use std::fs::File;
use std::io::{self, IsTerminal, Stdin, Stdout, Write, stdin, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::{Hide, Show};
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{ExecutableCommand, QueueableCommand};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, kill_current_process_group};

/// Whether the terminal is taken over; global, since it must be known without the guard.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// How soon a process stops after the signal for it.
const STOPPED_WITHIN: Duration = Duration::from_millis(50);

/// A terminal that draws to standard output. It is never dropped: ratatui's `Drop` shows the cursor, as the guard does,
/// and panics if the terminal and standard error are gone.
pub type Screen = ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>;

/// Holds the terminal; dropping it restores the terminal.
#[derive(Debug)]
pub struct Guard(());

impl Guard {
    /// Takes over the terminal: raw mode, alternate screen, mouse. A panic restores it before it is reported.
    ///
    /// # Errors
    /// When standard output is not a terminal or cannot be set up; the terminal is then restored.
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
        let screen = open()?;
        Ok((guard, screen))
    }
}

/// The screen of a terminal in raw mode, blank.
fn open() -> io::Result<Screen> {
    let mut out = stdout();
    out.queue(EnterAlternateScreen)?.queue(EnableMouseCapture)?.queue(Hide)?;
    // Not `Terminal::clear`: that queries the cursor position, and fails if the response is late (a slow line) or never
    // comes (a terminal that is a pipe to something else).
    out.queue(Clear(ClearType::All))?.flush()?;
    Ok(ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?))
}

/// Gives the terminal back and stops the job, as Ctrl-Z does outside raw mode; when the shell continues it, takes the
/// terminal again. The whole process group stops, so that `sudo` above this program stops too.
///
/// # Errors
/// When the terminal cannot be set up again.
pub(crate) fn suspend(screen: &mut Screen) -> io::Result<()> {
    restore();
    kill_current_process_group(Signal::TSTP)?;
    // Another thread may receive the signal and stop this one.
    std::thread::sleep(STOPPED_WITHIN);
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    *screen = open()?;
    Ok(())
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal if it is taken over; otherwise does nothing, so it can be called anywhere and twice.
///
/// For a thread that waits for signals, not for a signal handler: it takes locks and allocates.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // The terminal may be gone: a failed operation does not prevent the others.
    let mut out = stdout();
    let _ = out.execute(DisableMouseCapture);
    let _ = out.execute(LeaveAlternateScreen);
    let _ = out.execute(Show);
    let _ = disable_raw_mode();
}

/// The input of the terminal: the same that crossterm reads.
#[derive(Debug)]
pub(crate) enum Keyboard {
    /// Standard input is the terminal.
    Input(Stdin),
    /// Standard input is something else.
    Terminal(File),
}

impl Keyboard {
    /// Finds the terminal's input.
    pub(crate) fn open() -> io::Result<Self> {
        let input = stdin();
        if input.is_terminal() { Ok(Self::Input(input)) } else { File::open("/dev/tty").map(Self::Terminal) }
    }

    /// Waits until there is input, a signal, or the timeout.
    ///
    /// # Errors
    /// When the terminal has hung up, which crossterm 0.29 would not report: it treats the end of input as no input.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<()> {
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut keyboard = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        match poll(&mut keyboard, Some(&time)) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) if keyboard[0].revents().intersects(gone) => {
                Err(io::Error::new(io::ErrorKind::BrokenPipe, "the terminal is gone"))
            }
            Ok(_) => Ok(()),
        }
    }
}

impl AsFd for Keyboard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Input(input) => input.as_fd(),
            Self::Terminal(file) => file.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
    use rustix::stdio::dup2_stdin;

    use super::*;

    #[test]
    fn waiting_for_keys_fails_when_the_other_end_is_closed() {
        let (ours, theirs) = std::io::pipe().unwrap();
        let keyboard = Keyboard::Terminal(File::from(std::os::fd::OwnedFd::from(ours)));
        assert!(keyboard.wait(Duration::ZERO).is_ok());
        drop(theirs);
        assert_eq!(keyboard.wait(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn reading_a_keyboard_that_hung_up_ends() {
        let limit = Duration::from_secs(60);
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        unlockpt(&ours).unwrap();
        dup2_stdin(ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap()).unwrap();
        let (to_test, polled) = std::sync::mpsc::channel();
        let (hung_up, to_reader) = std::sync::mpsc::channel();
        // A reader that never returns cannot be joined.
        std::thread::spawn(move || {
            to_test.send(crossterm::event::poll(Duration::from_millis(1)).unwrap()).unwrap();
            to_reader.recv().unwrap();
            to_test.send(crossterm::event::poll(Duration::from_millis(1)).unwrap_or(false)).unwrap();
        });
        assert_eq!(polled.recv_timeout(limit), Ok(false));
        drop(ours);
        hung_up.send(()).unwrap();
        assert_eq!(polled.recv_timeout(limit), Ok(false));
    }

    #[test]
    fn restoring_an_untouched_terminal_does_nothing() {
        restore();
        restore();
    }
}
