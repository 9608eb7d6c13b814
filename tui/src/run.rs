//! Run: the event loop, which turns events of the terminal and of the source into messages.
//!
//! Owns: waiting, and how often the source is polled. Because: it is the only part of the terminal view with a clock.
//! Does not: decide anything; `app::update` does.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::QueueableCommand;
use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{
    self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use deepctx_profile::metric::Metric;
use deepctx_profile::view::Request;
use deepctx_profile::view::snapshot::{Snapshot, Snapshots};

use crate::app::update;
use crate::keys;
use crate::message::{Effects, Message};
use crate::model::{Model, Setup};
use crate::tab::Tab;
use crate::term::{self, Keyboard, Screen};
use crate::theme::{Charset, Palette, Theme};
use crate::view;

/// Events handled before the next drawing: a held key or a pasted text must not starve the screen.
const EVENTS_PER_DRAW: usize = 64;
/// How long crossterm may wait for one more event: without any time it would not look at the terminal.
const KEY_WAIT: Duration = Duration::from_millis(1);

/// Poll interval while a snapshot is expected: a tenth of a noticeable delay.
const POLL_SOON: Duration = Duration::from_millis(10);

/// Poll interval of [`Options::stop`] when nothing else can happen.
const IDLE: Duration = Duration::from_secs(1);

/// Options of the loop.
#[derive(Clone, Debug)]
pub struct Options {
    /// First request.
    pub request: Request,
    /// First tab.
    pub tab: Tab,
    /// Colours.
    pub palette: Palette,
    /// Characters.
    pub signs: Charset,
    /// Poll interval of the source while it is live.
    pub refresh: Duration,
    /// Whether quitting prompts to save the profile.
    pub can_save: bool,
    /// Set when the user requests a profile of the capture so far; `None` where none can be written.
    pub save_kept: Option<Arc<AtomicBool>>,
    /// Whether to show the time of a device once it was busy; false if the user chose a metric.
    pub follows_device: bool,
    /// Set by others (a signal, the end of the capture) to make the loop return within `refresh` or a second.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request: Request::of(Metric::CpuTime),
            tab: Tab::default(),
            palette: Palette::detect(|name| std::env::var(name).ok()),
            signs: Charset::detect(|name| std::env::var(name).ok()),
            refresh: Duration::from_millis(250),
            can_save: false,
            save_kept: None,
            follows_device: false,
            stop: Arc::default(),
        }
    }
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The user quit.
    Quit {
        /// Whether to save the profile.
        save: bool,
    },
    /// `Options::stop` was set.
    Stopped,
}

/// Shows snapshots until the user quits or the loop is stopped.
///
/// # Errors
/// When the terminal can no longer be read or drawn to.
pub fn run(screen: &mut Screen, source: &mut dyn Snapshots, options: &Options) -> io::Result<Outcome> {
    let theme = Theme::new(options.palette).with(options.signs);
    let keyboard = Keyboard::open()?;
    let size = screen.size()?;
    let Options { request, tab, can_save, follows_device, .. } = options;
    let (tab, can_save, follows_device) = (*tab, *can_save, *follows_device);
    let can_write_kept = options.save_kept.is_some();
    let setup = Setup { request: request.clone(), tab, can_save, can_write_kept, follows_device };
    let mut model = Model::new(setup, size.width, size.height);
    let mut poll = Poll { last: None, due: Instant::now() };
    let mut redraw = true;
    let mut more = false;
    loop {
        if options.stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Stopped);
        }
        for message in poll.messages(&model, source, options) {
            redraw |= update(&mut model, message) != Effects::None;
        }
        if redraw {
            draw(screen, &model, &theme)?;
            redraw = false;
        }
        // Events that crossterm has already read no longer make the terminal readable.
        let wait = if more { Duration::ZERO } else { poll.due.saturating_duration_since(Instant::now()) };
        keyboard.wait(wait)?;
        more = true;
        for _ in 0..EVENTS_PER_DRAW {
            if !event::poll(KEY_WAIT)? {
                more = false;
                break;
            }
            let Some(message) = message(&model, &event::read()?) else { continue };
            match update(&mut model, message) {
                Effects::None => {}
                Effects::Redraw => redraw = true,
                Effects::Fetch => (redraw, poll.due) = (true, Instant::now()),
                Effects::Copy => {
                    if let Some(text) = model.take_copied() {
                        screen.backend_mut().queue(CopyToClipboard::to_clipboard_from(text))?;
                    }
                    redraw = true;
                }
                Effects::WriteKept => {
                    if let Some(save_kept) = &options.save_kept {
                        save_kept.store(true, Ordering::Relaxed);
                    }
                    redraw = true;
                }
                Effects::Suspend => {
                    term::suspend(screen)?;
                    let size = screen.size()?;
                    update(&mut model, Message::Resize(size.width, size.height));
                    redraw = true;
                }
                Effects::Quit { save } => return Ok(Outcome::Quit { save }),
            }
        }
    }
}

/// When the source is polled, and what it returned.
struct Poll {
    last: Option<Arc<Snapshot>>,
    due: Instant,
}

impl Poll {
    /// Messages from the source; none before the poll is due.
    fn messages(&mut self, model: &Model, source: &mut dyn Snapshots, options: &Options) -> Vec<Message> {
        if Instant::now() < self.due {
            return Vec::new();
        }
        let live = source.live();
        let pause = match (model.is_waiting(), live) {
            (true, _) => options.refresh.min(POLL_SOON),
            (false, true) => options.refresh,
            (false, false) => options.refresh.max(IDLE),
        };
        self.due = Instant::now() + pause;
        let mut messages = vec![Message::Live(live)];
        if model.accepts_snapshot()
            && let Some(snapshot) = source.latest(model.request())
            && !self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &snapshot))
        {
            self.last = Some(Arc::clone(&snapshot));
            messages.push(Message::Snapshot(snapshot));
        }
        if let Some(text) = model.missing_text().and_then(|place| source.text(place)) {
            messages.push(Message::Text(text));
        }
        messages
    }
}

/// Draws the cells that changed, as one update on terminals that support it.
fn draw(screen: &mut Screen, model: &Model, theme: &Theme) -> io::Result<()> {
    screen.backend_mut().queue(BeginSynchronizedUpdate)?;
    let drawn = screen.draw(|frame| view::draw(model, theme, frame.buffer_mut())).map(|_| ());
    screen.backend_mut().queue(EndSynchronizedUpdate)?;
    screen.backend_mut().flush()?;
    drawn
}

/// The message for a terminal event in the present state; `None` if it has no meaning.
#[must_use]
pub fn message(model: &Model, event: &Event) -> Option<Message> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => of_key(model, key),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => Some(Message::Click(mouse.column, mouse.row)),
            MouseEventKind::Down(MouseButton::Right) => Some(Message::RightClick),
            MouseEventKind::Drag(MouseButton::Left) => Some(Message::Drag(mouse.column, mouse.row)),
            MouseEventKind::Up(MouseButton::Left) => Some(Message::Release),
            MouseEventKind::ScrollUp => Some(Message::Wheel(true, mouse.column, mouse.row)),
            MouseEventKind::ScrollDown => Some(Message::Wheel(false, mouse.column, mouse.row)),
            _ => None,
        },
        Event::Resize(width, height) => Some(Message::Resize(*width, *height)),
        _ => None,
    }
}

fn of_key(model: &Model, key: &KeyEvent) -> Option<Message> {
    if let Some(action) = keys::action(model.scopes(), key) {
        return Some(Message::Action(action));
    }
    match key.code {
        KeyCode::Char(character)
            if model.is_typing() && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
        {
            Some(Message::Character(character))
        }
        _ => None,
    }
}
