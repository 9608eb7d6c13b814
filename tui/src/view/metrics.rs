//! Metrics: the menu of the metrics that the profile has, with their values.
//!
//! Owns: the drawing of the menu. Because: it covers whatever tab is open. Does not: place it; see
//! [`crate::page::metrics`].

use ratatui::buffer::Buffer;
use ratatui::style::Style;
use ratatui::widgets::{Block, Clear, Widget};

use super::pen::Pen;
use crate::model::Model;
use crate::page::metrics;
use crate::text;
use crate::theme::Theme;

pub(crate) fn draw(model: &Model, theme: &Theme, chosen: usize, buffer: &mut Buffer) {
    let page = metrics::page(model.screen, model.metrics().len());
    Clear.render(page, buffer);
    let area = metrics::area(page);
    if area != page {
        Block::bordered().title(" Metrics ").render(page, buffer);
    }
    let rows = model.metrics().iter().enumerate().skip(metrics::first(area, chosen));
    for (line, (at, row)) in (0..area.height).zip(rows) {
        let mut pen = Pen::new(buffer, area, line);
        let style = if at == chosen { theme.chosen() } else { Style::new() };
        let shown = if row.metric == model.request.selection.metric { "*" } else { " " };
        let value = text::value(row.metric.unit(), row.total);
        let name = format!("{shown}{}", text::metric(row.metric.name()));
        let room = pen.room().saturating_sub(text::width(&value) + 2);
        pen.write(&format!("{:room$} {value} ", text::cut(&name, room)), style);
    }
}
