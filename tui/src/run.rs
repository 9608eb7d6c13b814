//! Run: the loop that turns what happens at the terminal and in the source into messages.
//!
//! Owns: waiting, and how often the source is asked. Because: it is the only part of the terminal view with a clock.
//! Does not: decide anything; `app::update` does.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossterm::QueueableCommand;
use crossterm::event::{
    self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use deepctx_profile::metric::Metric;
use deepctx_profile::snapshot::{Snapshot, Snapshots};
use deepctx_profile::view::Request;

use crate::app::update;
use crate::keys;
use crate::message::{Effects, Message};
use crate::model::{Model, Setup};
use crate::tab::Tab;
use crate::term::{Keyboard, Screen};
use crate::theme::{Palette, Theme};
use crate::view;

/// Events taken in before the next drawing: a held key or a pasted text must not starve the screen.
const EVENTS_PER_DRAW: usize = 64;

/// Time between two questions while an answer is due: a tenth of what people notice.
const SOON: Duration = Duration::from_millis(10);

/// Time between two looks at whether to stop when nothing else can happen.
const IDLE: Duration = Duration::from_secs(1);

/// How the loop runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// First request.
    pub request: Request,
    /// First tab.
    pub tab: Tab,
    /// Colours.
    pub palette: Palette,
    /// Time between two questions to the source while it is live or has not answered yet.
    pub refresh: Duration,
    /// Whether leaving asks "save what was seen?".
    pub can_save: bool,
    /// Set from outside (a signal, the end of the capture) to make the loop return at its next turn, within `refresh`
    /// or a second.
    pub stop: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request: Request::of(Metric::CpuTime),
            tab: Tab::Flame,
            palette: Palette::detect(|name| std::env::var(name).ok()),
            refresh: Duration::from_millis(250),
            can_save: false,
            stop: Arc::default(),
        }
    }
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The user left.
    Quit {
        /// Whether to keep what was seen.
        save: bool,
    },
    /// `Options::stop` was set.
    Stopped,
}

/// Shows snapshots until the user leaves or the loop is stopped.
///
/// # Errors
/// When the terminal can no longer be read or drawn to.
pub fn run(screen: &mut Screen, source: &mut dyn Snapshots, options: &Options) -> io::Result<Outcome> {
    let theme = Theme::new(options.palette);
    let keyboard = Keyboard::open()?;
    let size = screen.size()?;
    let setup = Setup { request: options.request.clone(), tab: options.tab, can_save: options.can_save };
    let mut model = Model::new(setup, size.width, size.height);
    let mut last: Option<Arc<Snapshot>> = None;
    let mut redraw = true;
    let mut more = false;
    let mut ask = true;
    let mut next_ask = Instant::now();
    loop {
        if options.stop.load(Ordering::Relaxed) {
            return Ok(Outcome::Stopped);
        }
        let mut messages = Vec::new();
        if ask || Instant::now() >= next_ask {
            ask = false;
            // Soon again while an answer is due, seldom when nothing more can come.
            let pause = match (model.is_waiting(), source.live()) {
                (true, _) => options.refresh.min(SOON),
                (false, true) => options.refresh,
                (false, false) => options.refresh.max(IDLE),
            };
            next_ask = Instant::now() + pause;
            messages.push(Message::Live(source.live()));
            if model.wants_snapshot()
                && let Some(snapshot) = source.latest(model.request())
                && !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &snapshot))
            {
                last = Some(Arc::clone(&snapshot));
                messages.push(Message::Snapshot(snapshot));
            }
            if let Some(text) = model.wants_text().and_then(|place| source.text(place)) {
                messages.push(Message::Text(text));
            }
        }
        for message in messages {
            redraw |= update(&mut model, message) != Effects::None;
        }
        if redraw {
            draw(screen, &model, &theme)?;
            redraw = false;
        }
        // Events that crossterm has read already do not show at the terminal any more.
        let wait =
            if more || ask { Duration::ZERO } else { next_ask.saturating_duration_since(Instant::now()) };
        keyboard.wait(wait)?;
        more = true;
        for _ in 0..EVENTS_PER_DRAW {
            if !event::poll(Duration::ZERO)? {
                more = false;
                break;
            }
            let Some(message) = message(&model, &event::read()?) else { continue };
            match update(&mut model, message) {
                Effects::None => {}
                Effects::Redraw => redraw = true,
                Effects::Fetch => (redraw, ask) = (true, true),
                Effects::Quit { save } => return Ok(Outcome::Quit { save }),
            }
        }
    }
}

/// One picture in one piece: only cells that changed, and shown at once by terminals that know how.
fn draw(screen: &mut Screen, model: &Model, theme: &Theme) -> io::Result<()> {
    screen.backend_mut().queue(BeginSynchronizedUpdate)?;
    let drawn = screen.draw(|frame| view::draw(model, theme, frame.buffer_mut())).map(|_| ());
    screen.backend_mut().queue(EndSynchronizedUpdate)?;
    screen.backend_mut().flush()?;
    drawn
}

/// What an event of the terminal means to the model as it is; `None` for what means nothing.
#[must_use]
pub fn message(model: &Model, event: &Event) -> Option<Message> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => of_key(model, key),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => Some(Message::Click(mouse.column, mouse.row)),
            MouseEventKind::Down(MouseButton::Right) => Some(Message::RightClick),
            MouseEventKind::ScrollUp => Some(Message::Wheel(true)),
            MouseEventKind::ScrollDown => Some(Message::Wheel(false)),
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
