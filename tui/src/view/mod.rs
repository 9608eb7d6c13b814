//! Tab: the model as cells.
//!
//! Owns: one drawing function per part of the screen, each from `&Model`. Because: a picture that depends on nothing
//! else can be compared with a stored one. Does not: change the model or know the terminal.

pub(crate) mod footer;
pub(crate) mod graph;
pub(crate) mod header;
pub(crate) mod help;
pub(crate) mod lines;
pub(crate) mod losses;
pub(crate) mod prompt;
pub(crate) mod strip;
pub(crate) mod table;
pub(crate) mod timeline;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::app::{Mode, Model, Tab};
use crate::theme::Theme;

/// Draws the whole screen into a blank buffer.
///
/// The buffer may differ in size from the screen that the model knows (a resize that has not been read yet): what does
/// not fit is left out until the next drawing.
pub fn draw(model: &Model, theme: &Theme, buffer: &mut Buffer) {
    if buffer.area == model.screen {
        return draw_all(model, theme, buffer);
    }
    let mut whole = Buffer::empty(model.screen);
    draw_all(model, theme, &mut whole);
    for position in buffer.area.intersection(model.screen).positions() {
        buffer[position] = whole[position].clone();
    }
}

fn draw_all(model: &Model, theme: &Theme, buffer: &mut Buffer) {
    let areas = model.areas();
    header::draw(model, theme, areas, buffer);
    strip::draw(model, theme, areas.strip, buffer);
    body(model, theme, areas.body, buffer);
    footer::draw(model, theme, areas.footer, buffer);
    if let Mode::Help(first) = model.mode {
        help::draw(theme, model.screen, first, buffer);
    }
}

fn body(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let Some(snapshot) = &model.snapshot else {
        return put(buffer, area, 0, "waiting for the first samples …", theme.quiet());
    };
    match model.tab {
        Tab::Source => return lines::draw(model, theme, area, buffer),
        Tab::Losses => return losses::draw(model, snapshot, theme, area, buffer),
        _ => {}
    }
    if model.shown().is_none() {
        return put(buffer, area, 0, "one moment …", theme.quiet());
    }
    match (model.tab, model.timeline_data()) {
        (Tab::Table, _) => table::draw(model, theme, area, buffer),
        (Tab::Timeline, Some(timeline)) => timeline::draw(model, timeline, theme, area, buffer),
        _ => graph::draw(model, theme, area, buffer),
    }
}

/// Why a view is empty.
fn nothing(model: &Model) -> &'static str {
    match &model.request.filter {
        Some(_) => "no stack matches the filter: F counts all stacks again",
        None => "no samples yet",
    }
}

/// Writes a text on a line of an area, cut to its width.
fn put(buffer: &mut Buffer, area: Rect, line: u16, text: &str, style: Style) {
    if line < area.height {
        let text = crate::text::cut(text, usize::from(area.width));
        buffer.set_stringn(area.x, area.y + line, text, usize::from(area.width), style);
    }
}

/// Pieces of a line from left to right, as many as fit.
pub(crate) struct Pen<'a> {
    buffer: &'a mut Buffer,
    x: u16,
    end: u16,
    y: u16,
}

impl<'a> Pen<'a> {
    /// Begins at the left of a line of an area; a line outside it takes nothing.
    fn new(buffer: &'a mut Buffer, area: Rect, line: u16) -> Self {
        let end = if line < area.height { area.right() } else { area.x };
        Self { buffer, x: area.x, end, y: area.y.saturating_add(line) }
    }

    /// Columns still free.
    fn room(&self) -> usize {
        usize::from(self.end.saturating_sub(self.x))
    }

    /// Writes a text, cut to what is free.
    fn write(&mut self, text: &str, style: Style) {
        let room = self.room();
        if room > 0 {
            let text = crate::text::cut(text, room);
            self.x = self.buffer.set_stringn(self.x, self.y, text, room, style).0;
        }
    }

    /// Leaves columns free.
    fn skip(&mut self, columns: usize) {
        self.x = self.end.min(self.x.saturating_add(u16::try_from(columns).unwrap_or(u16::MAX)));
    }

    /// Goes to where a text of this width ends at the right edge, if that is further on.
    fn align_right(&mut self, width: usize) {
        self.skip(self.room().saturating_sub(width));
    }
}
