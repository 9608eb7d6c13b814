//! The whole program except the terminal, driven by keys and clicks.
//!
//! Owns: [`Program`]. Because: several files of tests press keys and look at screens. Does not: check anything.
#![allow(dead_code, reason = "each file of tests uses a part")]

use std::sync::Arc;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use deepctx_profile::view::snapshot::{Snapshot, SourceText};
use deepctx_tui::{Effects, Message, Model, Palette, Setup, Tab, Theme, draw, message, update};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

use crate::synthetic::{self, Training, request};

/// A stored screen for each name: its size, and the keys that lead to it.
macro_rules! screens {
    ($start:path; $($name:ident: $width:literal x $height:literal, $keys:literal;)*) => {$(
        #[test]
        fn $name() {
            let mut program = $start($width, $height);
            program.press($keys);
            expect_file![concat!("golden/", stringify!($name), ".txt")].assert_eq(&program.screen());
        }
    )*};
}

/// The program with a terminal of cells, and a run that answers new requests.
pub(crate) struct Program {
    pub(crate) model: Model,
    pub(crate) terminal: Terminal<TestBackend>,
    pub(crate) effects: Effects,
    pub(crate) training: Option<Training>,
    pub(crate) text: Arc<SourceText>,
}

impl Program {
    pub(crate) fn new(width: u16, height: u16) -> Self {
        let mut program = Self::empty(width, height);
        program.training = Some(Training::at(50));
        program.fetch();
        program
    }

    pub(crate) fn empty(width: u16, height: u16) -> Self {
        let setup = Setup {
            request: request(),
            tab: Tab::Flame,
            can_save: true,
            can_write_kept: true,
            follows_device: false,
        };
        Self {
            model: Model::new(setup, width, height),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            effects: Effects::None,
            training: None,
            text: synthetic::text(),
        }
    }

    pub(crate) fn show(&mut self, snapshot: Snapshot) {
        self.effects = update(&mut self.model, Message::Snapshot(Arc::new(snapshot)));
    }

    /// What the loop does after a new request.
    pub(crate) fn fetch(&mut self) {
        if let Some(training) = &mut self.training {
            let snapshot = training.snapshot(self.model.request());
            self.show(snapshot);
        }
        if self.model.missing_text().is_some() {
            update(&mut self.model, Message::Text(Arc::clone(&self.text)));
        }
    }

    /// The run continues for some refreshes.
    pub(crate) fn go_on(&mut self, turns: u64) -> &mut Self {
        if let Some(training) = &mut self.training {
            training.go_on(turns);
        }
        self.fetch();
        self
    }

    pub(crate) fn event(&mut self, event: Event) {
        if let Some(message) = message(&self.model, &event) {
            self.effects = update(&mut self.model, message);
            if self.effects == Effects::Fetch {
                self.fetch();
                self.effects = Effects::Fetch;
            }
        }
    }

    /// Presses keys: words name keys, everything else is typed letter by letter.
    pub(crate) fn press(&mut self, keys: &str) -> &mut Self {
        for word in keys.split(' ').filter(|word| !word.is_empty()) {
            let (code, modifiers) = match word {
                "Up" => (KeyCode::Up, KeyModifiers::NONE),
                "Down" => (KeyCode::Down, KeyModifiers::NONE),
                "Left" => (KeyCode::Left, KeyModifiers::NONE),
                "Right" => (KeyCode::Right, KeyModifiers::NONE),
                "PgDn" => (KeyCode::PageDown, KeyModifiers::NONE),
                "PgUp" => (KeyCode::PageUp, KeyModifiers::NONE),
                "Home" => (KeyCode::Home, KeyModifiers::NONE),
                "End" => (KeyCode::End, KeyModifiers::NONE),
                "Enter" => (KeyCode::Enter, KeyModifiers::NONE),
                "Esc" => (KeyCode::Esc, KeyModifiers::NONE),
                "Tab" => (KeyCode::Tab, KeyModifiers::NONE),
                "BackTab" => (KeyCode::BackTab, KeyModifiers::SHIFT),
                "Backspace" => (KeyCode::Backspace, KeyModifiers::NONE),
                "Space" => (KeyCode::Char(' '), KeyModifiers::NONE),
                "Ctrl-C" => (KeyCode::Char('c'), KeyModifiers::CONTROL),
                "Ctrl-Z" => (KeyCode::Char('z'), KeyModifiers::CONTROL),
                "Ctrl-U" => (KeyCode::Char('u'), KeyModifiers::CONTROL),
                text => {
                    for letter in text.chars() {
                        self.event(Event::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE)));
                    }
                    continue;
                }
            };
            self.event(Event::Key(KeyEvent::new(code, modifiers)));
        }
        self
    }

    pub(crate) fn mouse(&mut self, kind: MouseEventKind, column: u16, row: u16) -> &mut Self {
        self.event(Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE }));
        self
    }

    pub(crate) fn click(&mut self, column: u16, row: u16) -> &mut Self {
        self.mouse(MouseEventKind::Down(MouseButton::Left), column, row)
    }

    pub(crate) fn selected(&self) -> String {
        self.model.selected_path().last().map_or(String::new(), |label| (*label).to_owned())
    }

    pub(crate) fn zoomed(&self) -> String {
        self.model.zoomed_path().last().map_or(String::new(), |label| (*label).to_owned())
    }

    /// The screen as text, and below it where it is reversed or underlined: that is all a terminal without colour has.
    pub(crate) fn screen(&mut self) -> String {
        let Self { model, terminal, .. } = self;
        let theme = Theme::new(Palette::Plain);
        terminal.draw(|frame| draw(model, &theme, frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let mut text = String::new();
        let mut marks = String::new();
        for y in 0..buffer.area.height {
            let mut line = String::new();
            let mut open: Option<(u16, Modifier)> = None;
            for x in 0..=buffer.area.width {
                let now = (x < buffer.area.width)
                    .then(|| buffer[(x, y)].modifier & (Modifier::REVERSED | Modifier::UNDERLINED))
                    .filter(|marks| !marks.is_empty());
                if open.map(|(_, modifier)| modifier) != now {
                    if let Some((from, modifier)) = open {
                        marks += &format!("line {y}, columns {from}..{x}: {modifier:?}\n");
                    }
                    open = now.map(|modifier| (x, modifier));
                }
                if x < buffer.area.width {
                    line.push_str(buffer[(x, y)].symbol());
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        format!("{text}{:─<40}\n{marks}", "")
    }
}

impl Program {
    /// A run with a device.
    pub(crate) fn on_device(width: u16, height: u16) -> Self {
        let mut program = Self::empty(width, height);
        program.training = Some(Training::on_device(50));
        program.fetch();
        program
    }
}
