//! Metrics page: the menu of the metrics that the profile has.
//!
//! Owns: where on the screen it lies, and which part of it is in sight. Because: a click must find the metric that was
//! drawn. Does not: draw.

use ratatui::layout::Rect;

/// Columns of the menu.
const WIDTH: u16 = 44;

/// Area of the menu of `count` metrics, including its frame.
pub(crate) fn page(screen: Rect, count: usize) -> Rect {
    let width = screen.width.min(WIDTH);
    let rows = u16::try_from(count.saturating_add(2)).unwrap_or(u16::MAX);
    let height = screen.height.min(rows);
    let (x, y) = (screen.x + (screen.width - width) / 2, screen.y + (screen.height - height) / 2);
    Rect { x, y, width, height }
}

/// Area of its lines: inside the frame, if there is room for one.
pub(crate) fn area(page: Rect) -> Rect {
    if page.width < 3 || page.height < 3 {
        return page;
    }
    Rect { x: page.x + 1, y: page.y + 1, width: page.width - 2, height: page.height - 2 }
}

/// The first visible metric, so that the selected one is visible.
pub(crate) fn first(area: Rect, chosen: usize) -> usize {
    (chosen + 1).saturating_sub(usize::from(area.height))
}
