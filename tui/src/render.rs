//! Render: one screen as text, for scripts and documents.
//!
//! Owns: [`render_once`]: turning cells into plain or ANSI-coloured lines. Because: `--once` and the README must show
//! what the terminal shows. Does not: read the size of a terminal, or write anywhere.

use std::fmt::Write;
use std::sync::Arc;

use deepctx_profile::metric::Metric;
use deepctx_profile::view::Request;
use deepctx_profile::view::snapshot::{Snapshot, SourceText};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use crate::app::update;
use crate::message::Message;
use crate::model::{Model, Setup};
use crate::tab::Tab;
use crate::theme::{Charset, Palette, Theme};
use crate::view;

/// Options of [`render_once`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderOptions {
    /// Columns.
    pub width: u16,
    /// Maximum number of lines; empty ones at the end are left out.
    pub height: u16,
    /// Tab.
    pub tab: Tab,
    /// The request of the snapshot.
    pub request: Request,
    /// Text of the source file of the request.
    pub text: Option<Arc<SourceText>>,
    /// `Plain` gives text without any escape sequence.
    pub palette: Palette,
    /// Allowed characters.
    pub signs: Charset,
}

impl Default for RenderOptions {
    fn default() -> Self {
        let request = Request::of(Metric::CpuTime);
        Self {
            width: 100,
            height: 30,
            tab: Tab::Flame,
            request,
            text: None,
            palette: Palette::Plain,
            signs: Charset::Unicode,
        }
    }
}

/// Draws a snapshot as lines of text, each ended by a newline.
#[must_use]
pub fn render_once(snapshot: &Snapshot, options: &RenderOptions) -> String {
    // A larger screen is a mistake and would only cost memory.
    let (width, height) = (options.width.min(2_000), options.height.min(2_000));
    let setup = Setup { tab: options.tab, request: options.request.clone(), ..Setup::default() };
    let mut model = Model::non_interactive(setup, width, height);
    if let Some(text) = &options.text {
        update(&mut model, Message::Text(Arc::clone(text)));
    }
    update(&mut model, Message::Snapshot(Arc::new(snapshot.clone())));
    let mut buffer = Buffer::empty(model.screen);
    view::draw(&model, &Theme::new(options.palette).with(options.signs), &mut buffer);
    lines(&buffer, options.palette != Palette::Plain)
}

/// Cells as text; styles become escape sequences only if `styled`.
fn lines(buffer: &Buffer, styled: bool) -> String {
    let mut out = String::new();
    let mut end = 0;
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut style = Style::new();
        let mut wide = 0;
        let start = out.len();
        for x in buffer.area.left()..buffer.area.right() {
            let cell = &buffer[(x, y)];
            // The second cell of a wide character holds a blank that is not printed.
            if wide > 0 {
                wide -= 1;
                continue;
            }
            wide = crate::text::width(cell.symbol()).saturating_sub(1);
            if styled && cell.style() != style {
                style = cell.style();
                escape(&mut out, style);
            }
            out.push_str(cell.symbol());
        }
        if styled {
            out.push_str("\x1b[0m");
        } else {
            out.truncate(start + out[start..].trim_end().len());
        }
        out.push('\n');
        let blank = (buffer.area.left()..buffer.area.right()).all(|x| buffer[(x, y)].symbol() == " ");
        if !blank {
            end = out.len();
        }
    }
    out.truncate(end);
    out
}

/// Select Graphic Rendition (ECMA-48 8.3.117) for a style, from any style.
fn escape(out: &mut String, style: Style) {
    out.push_str("\x1b[0");
    let modifiers =
        [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::UNDERLINED, 4), (Modifier::REVERSED, 7)];
    for (modifier, code) in modifiers {
        if style.add_modifier.contains(modifier) {
            let _ = write!(out, ";{code}");
        }
    }
    for (color, base) in [(style.fg, 30), (style.bg, 40)] {
        let _ = match color {
            Some(Color::Rgb(r, g, b)) => write!(out, ";{};2;{r};{g};{b}", base + 8),
            Some(Color::Indexed(index)) => write!(out, ";{};5;{index}", base + 8),
            Some(named) => match code_of(named) {
                Some(code @ 0..8) => write!(out, ";{}", base + code),
                Some(code) => write!(out, ";{}", base + 52 + code),
                None => Ok(()),
            },
            None => Ok(()),
        };
    }
    out.push('m');
}

/// Number of one of the 16 colours; 8 and up are the bright ones.
fn code_of(color: Color) -> Option<u32> {
    const NAMED: [Color; 16] = [
        Color::Black,
        Color::Red,
        Color::Green,
        Color::Yellow,
        Color::Blue,
        Color::Magenta,
        Color::Cyan,
        Color::Gray,
        Color::DarkGray,
        Color::LightRed,
        Color::LightGreen,
        Color::LightYellow,
        Color::LightBlue,
        Color::LightMagenta,
        Color::LightCyan,
        Color::White,
    ];
    (0u32..).zip(NAMED).find(|(_, named)| *named == color).map(|(code, _)| code)
}
