//! Areas: which part of the screen shows what.
//!
//! Owns: [`Areas`], and the rows below a title. Because: drawing, keys and the mouse must agree on them to the cell.
//! Does not: know the model.

use ratatui::layout::Rect;

/// The screen from top to bottom; parts without room are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Areas {
    /// Target, figures and tabs: up to three lines.
    pub(crate) header: Rect,
    /// Filter, mark and pin: one line if there are any.
    pub(crate) strip: Rect,
    /// The view itself.
    pub(crate) body: Rect,
    /// Selection and key hints: up to two lines.
    pub(crate) footer: Rect,
}

impl Areas {
    /// Divides a screen; `footer` is false without a user, `strip` if it would be empty.
    pub(crate) fn of(screen: Rect, footer: bool, strip: bool) -> Self {
        let header = match screen.height {
            12.. => 3,
            8.. => 2,
            4.. => 1,
            _ => 0,
        };
        let footer = match screen.height {
            _ if !footer => 0,
            10.. => 2,
            3.. => 1,
            _ => 0,
        };
        let strip = u16::from(strip && screen.height >= 6);
        let body = screen.height - header - strip - footer;
        let below = screen.y + header;
        Self {
            header: Rect { height: header, ..screen },
            strip: Rect { y: below, height: strip, ..screen },
            body: Rect { y: below + strip, height: body, ..screen },
            footer: Rect { y: below + strip + body, height: footer, ..screen },
        }
    }

    /// Line of the header with the tabs, if there is room for them.
    pub(crate) fn tabs(&self) -> Option<Rect> {
        (self.header.height == 3).then(|| Rect { y: self.header.y + 2, height: 1, ..self.header })
    }
}

/// Area of the rows of a table: below its titles, if there is room for those.
pub(crate) fn rows_area(body: Rect) -> Rect {
    let titles = u16::from(body.height >= 3);
    Rect { y: body.y + titles, height: body.height - titles, ..body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_screens_have_shorter_headers_and_footers() {
        let check = |height: u16, expected: [u16; 3]| {
            for strip in [false, true] {
                let areas = Areas::of(Rect::new(0, 0, 80, height), true, strip);
                let line = u16::from(strip && height >= 6);
                assert_eq!(areas.strip.height, line);
                assert_eq!([areas.header.height, areas.body.height + line, areas.footer.height], expected);
            }
        };
        check(24, [3, 19, 2]);
        check(10, [2, 6, 2]);
        check(5, [1, 3, 1]);
        check(3, [0, 2, 1]);
        check(1, [0, 1, 0]);
        check(0, [0, 0, 0]);
    }
}
