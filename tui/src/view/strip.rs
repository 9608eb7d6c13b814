//! Strip: the filter, the mark and the pinned function.
//!
//! Owns: a line below the header while there is any of these. Because: a filtered screen must not be mistaken for the
//! whole. Does not: measure.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::pen::Pen;
use super::pieces::{Piece, fitting, line};
use crate::model::Model;
use crate::text;
use crate::theme::Theme;

pub(crate) fn draw(model: &Model, theme: &Theme, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let mut pen = Pen::new(buffer, area, 0);
    pen.skip(1);
    line(&mut pen, fitting(pieces(model, theme), usize::from(area.width).saturating_sub(2)));
}

fn pieces(model: &Model, theme: &Theme) -> Vec<Piece> {
    let whole = model.flame_tree().nodes.first().map_or(0, |root| root.inclusive);
    let snapshot = model.snapshot.as_deref();
    let unit = snapshot.map(|snapshot| snapshot.header.unit).unwrap_or_default();
    let mut pieces = Vec::new();
    if let Some(filter) = &model.request.filter {
        let pattern = text::cut(filter.text(), 30);
        let share = snapshot.map_or(0, |snapshot| snapshot.unfiltered);
        let text = format!(" filter {pattern} {} ", text::percent(whole, share));
        pieces.push(Piece { text, style: theme.chosen(), rank: 0 });
    }
    match snapshot.and_then(|snapshot| snapshot.since) {
        Some(since) => {
            let text = format!("{} since the mark at {}", text::value(unit, whole), text::clock(since.at));
            pieces.push(Piece { text, style: theme.notice(), rank: 1 });
            pieces.push(Piece {
                text: "▲▼ share against before".to_owned(), style: theme.quiet(), rank: 3
            });
        }
        None if model.request.mark > 0 => {
            let text = "mark set (d compares)".to_owned();
            pieces.push(Piece { text, style: Style::new(), rank: 3 });
        }
        None => {}
    }
    if let Some(pin) = &model.pin {
        let [all, own] = [pin.inclusive, pin.exclusive].map(|value| text::percent(value, whole));
        let text = format!("{} total {all} self {own}", text::cut(&pin.label, 30));
        pieces.push(Piece { text, style: theme.strong(), rank: 2 });
    }
    pieces
}
