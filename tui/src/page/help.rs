//! Help page: its lines, and where on the screen it lies.
//!
//! Owns: the page made from the key table and the kinds of frames. Because: the help always matches the program. Does
//! not: have its own text about any key.

use deepctx_profile::view::snapshot::FrameKind;
use ratatui::layout::Rect;
use ratatui::widgets::Block;

use crate::keys::{BINDINGS, Binding, Scope};

/// Maximum columns of the page.
const WIDTH: u16 = 84;

/// A line of the page.
pub(crate) enum HelpLine {
    Blank,
    Title(&'static str),
    Key(&'static Binding),
    Kind(FrameKind),
    Hatched,
}

/// Every line of the page.
pub(crate) fn lines() -> Vec<HelpLine> {
    let mut out = Vec::new();
    for scope in Scope::ALL {
        out.push(HelpLine::Title(scope.title()));
        out.extend(BINDINGS.iter().filter(|binding| binding.scope == scope).map(HelpLine::Key));
        out.push(HelpLine::Blank);
    }
    out.push(HelpLine::Title("Frames"));
    out.extend(FrameKind::ALL.map(HelpLine::Kind));
    out.push(HelpLine::Hatched);
    out
}

/// Area of the lines: inside the frame.
pub(crate) fn area(screen: Rect) -> Rect {
    let page = page(screen);
    if has_frame(page) { Block::bordered().inner(page) } else { page }
}

/// The whole page with its frame.
pub(crate) fn page(screen: Rect) -> Rect {
    let width = screen.width.min(WIDTH);
    Rect { x: screen.x + (screen.width - width) / 2, width, ..screen }
}

/// Whether a page has room for a frame.
pub(crate) fn has_frame(page: Rect) -> bool {
    page.width >= 30 && page.height >= 8
}
