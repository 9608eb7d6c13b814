//! Help: the key table and the meaning of the colours, over everything else.
//!
//! Owns: the drawing of the page. Because: the page covers whatever tab is open. Does not: choose its lines; see
//! [`crate::page::help`].

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, Clear, Widget};

use super::pen::Pen;
use crate::keys::{BINDINGS, Binding, Key};
use crate::page::help::{self, HelpLine};
use crate::text;
use crate::theme::{Theme, kind_name, letter};

/// Names of the keys of a binding.
fn keys(binding: &Binding) -> String {
    binding.keys.iter().map(|key: &Key| key.name()).collect::<Vec<_>>().join(" ")
}

pub(crate) fn draw(theme: &Theme, screen: Rect, first: usize, buffer: &mut Buffer) {
    let page = help::page(screen);
    Clear.render(page, buffer);
    let area = help::area(screen);
    if help::has_frame(page) {
        Block::bordered().title(" Help ").render(page, buffer);
    }
    let names = BINDINGS.iter().map(|binding| text::width(&keys(binding))).max().unwrap_or(0);
    for (line, content) in (0..area.height).zip(help::lines().iter().skip(first)) {
        let mut pen = Pen::new(buffer, area, line);
        pen.skip(1);
        match content {
            HelpLine::Blank => {}
            HelpLine::Title(title) => pen.write(title, theme.strong()),
            HelpLine::Key(binding) => {
                let name = keys(binding);
                pen.skip(1);
                pen.write(&name, theme.strong());
                pen.skip(names - text::width(&name) + 2);
                pen.write(binding.help, Style::new());
            }
            HelpLine::Kind(kind) => {
                pen.skip(1);
                pen.write(&format!(" {} ", letter(*kind)), theme.mark(*kind));
                pen.skip(2);
                pen.write(kind_name(*kind), Style::new());
            }
            HelpLine::Hatched => {
                pen.skip(1);
                pen.write("╱╱╱", theme.quiet());
                pen.skip(2);
                pen.write("spinning, probes, the backward pass, or time without Python frames", Style::new());
            }
        }
    }
}
