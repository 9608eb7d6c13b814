//! Help: the key table and the meaning of the colours, over everything else.
//!
//! Owns: a page made from `keys::BINDINGS` and `FrameKind::ALL`. Because: what is printed is what the program does. Does
//! not: have text of its own about any key.

use deepctx_profile::snapshot::FrameKind;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, Clear, Widget};

use super::Pen;
use crate::keys::{BINDINGS, Binding, Key, Scope};
use crate::text;
use crate::theme::{Theme, kind_name, letter};

/// Columns that the page takes at most.
const WIDTH: u16 = 84;

/// A line of the page.
enum Line {
    Blank,
    Title(&'static str),
    Key(&'static Binding),
    Kind(FrameKind),
}

fn lines() -> Vec<Line> {
    let mut out = Vec::new();
    for scope in Scope::ALL {
        out.push(Line::Title(scope.title()));
        out.extend(BINDINGS.iter().filter(|binding| binding.scope == scope).map(Line::Key));
        out.push(Line::Blank);
    }
    out.push(Line::Title("Frames"));
    out.extend(FrameKind::ALL.map(Line::Kind));
    out
}

/// Lines of the page, for scrolling.
pub(crate) fn line_count() -> usize {
    lines().len()
}

/// Where the lines are: inside the frame.
pub(crate) fn area(screen: Rect) -> Rect {
    let page = page(screen);
    if framed(page) { Block::bordered().inner(page) } else { page }
}

fn page(screen: Rect) -> Rect {
    let width = screen.width.min(WIDTH);
    Rect { x: screen.x + (screen.width - width) / 2, width, ..screen }
}

fn framed(page: Rect) -> bool {
    page.width >= 30 && page.height >= 8
}

/// Names of the keys of a binding.
fn keys(binding: &Binding) -> String {
    binding.keys.iter().map(|key: &Key| key.name()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn draw(theme: &Theme, screen: Rect, first: usize, buffer: &mut Buffer) {
    let page = page(screen);
    Clear.render(page, buffer);
    let area = area(screen);
    if framed(page) {
        Block::bordered().title(" Help ").render(page, buffer);
    }
    let names = BINDINGS.iter().map(|binding| text::width(&keys(binding))).max().unwrap_or(0);
    for (line, content) in (0..area.height).zip(lines().iter().skip(first)) {
        let mut pen = Pen::new(buffer, area, line);
        pen.skip(1);
        match content {
            Line::Blank => {}
            Line::Title(title) => pen.write(title, theme.strong()),
            Line::Key(binding) => {
                let name = keys(binding);
                pen.skip(1);
                pen.write(&name, theme.strong());
                pen.skip(names - text::width(&name) + 2);
                pen.write(binding.help, Style::new());
            }
            Line::Kind(kind) => {
                pen.skip(1);
                pen.write(&format!(" {} ", letter(*kind)), theme.mark(*kind));
                pen.skip(2);
                pen.write(kind_name(*kind), Style::new());
            }
        }
    }
}
