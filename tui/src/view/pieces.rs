//! Pieces: figures side by side on one line, the most important first to get room.
//!
//! Owns: [`Piece`], [`fitting`]. Because: a narrow screen must lose the least important figure first. Does not:
//! choose them.

use deepctx_profile::order::SortRows as _;
use ratatui::style::Style;

use super::pen::Pen;
use crate::text;

/// A figure and its importance: those with the lowest rank get the room.
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) style: Style,
    pub(super) rank: u8,
}

/// Between two figures.
pub(super) const GAP: &str = " · ";

/// Columns of the pieces with their gaps.
pub(super) fn taken(pieces: &[Piece]) -> usize {
    let gaps = pieces.len().saturating_sub(1) * text::width(GAP);
    pieces.iter().map(|piece| text::width(&piece.text)).sum::<usize>() + gaps
}

/// Keeps the most important pieces that fit, in order.
pub(super) fn fitting(pieces: Vec<Piece>, width: usize) -> Vec<Piece> {
    let mut by_rank: Vec<usize> = (0..pieces.len()).collect();
    by_rank.sort_rows_by_key(|&index| pieces[index].rank);
    let mut keep = vec![false; pieces.len()];
    let mut room = width + text::width(GAP);
    for index in by_rank {
        let wanted = text::width(&pieces[index].text) + text::width(GAP);
        if wanted <= room {
            room -= wanted;
            keep[index] = true;
        }
    }
    pieces.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(piece, _)| piece).collect()
}

pub(super) fn line(pen: &mut Pen<'_>, pieces: Vec<Piece>) {
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            pen.write(GAP, Style::new());
        }
        pen.write(&piece.text, piece.style);
    }
}
