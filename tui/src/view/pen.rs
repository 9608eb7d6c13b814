//! Pen: writing a line of cells from left to right.
//!
//! Owns: [`Pen`], [`put`]. Because: a text must never leave its area, however long a foreign name is. Does not:
//! choose what to write.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Writes a text on a line of an area, cut to its width.
pub(super) fn put(buffer: &mut Buffer, area: Rect, line: u16, text: &str, style: Style) {
    if line < area.height {
        let text = crate::text::cut(text, usize::from(area.width));
        buffer.set_stringn(area.x, area.y + line, text, usize::from(area.width), style);
    }
}

/// Pieces of a line from left to right, as many as fit.
pub(super) struct Pen<'a> {
    buffer: &'a mut Buffer,
    x: u16,
    end: u16,
    y: u16,
}

impl<'a> Pen<'a> {
    /// Begins at the left of a line of an area; outside it nothing is written.
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect, line: u16) -> Self {
        let end = if line < area.height { area.right() } else { area.x };
        Self { buffer, x: area.x, end, y: area.y.saturating_add(line) }
    }

    /// Free columns.
    pub(super) fn room(&self) -> usize {
        usize::from(self.end.saturating_sub(self.x))
    }

    /// Writes a text, cut to the free columns.
    pub(super) fn write(&mut self, text: &str, style: Style) {
        let room = self.room();
        if room > 0 {
            let text = crate::text::cut(text, room);
            self.x = self.buffer.set_stringn(self.x, self.y, text, room, style).0;
        }
    }

    /// Leaves columns free.
    pub(super) fn skip(&mut self, columns: usize) {
        self.x = self.end.min(self.x.saturating_add(u16::try_from(columns).unwrap_or(u16::MAX)));
    }

    /// Goes to where a text of this width ends at the right edge, if that is further on.
    pub(super) fn align_right(&mut self, width: usize) {
        self.skip(self.room().saturating_sub(width));
    }
}
