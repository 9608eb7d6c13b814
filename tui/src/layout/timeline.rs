//! Timeline layout: which columns hold names, and which part of the time the others hold.
//!
//! Owns: [`TimeSpan`], and the widths of both parts. Because: a click must find the moment that was drawn. Does not:
//! know the model.

use deepctx_profile::units::Nanos;

/// The visible time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSpan {
    /// Start, relative to the start of the capture.
    pub(crate) from: Nanos,
    /// Length; never 0.
    pub(crate) length: Nanos,
}

impl TimeSpan {
    /// The time in the middle of one of `columns`, relative to the start of the capture.
    pub(crate) fn moment_at(self, column: u16, columns: u16) -> Nanos {
        let offset =
            u128::from(self.length.0) * (2 * u128::from(column) + 1) / (2 * u128::from(columns.max(1)));
        self.from.saturating_add(Nanos(u64::try_from(offset).unwrap_or(0)))
    }

    /// The column of a time; `None` if it is not visible.
    pub(crate) fn column_of(self, at: Nanos, columns: u16) -> Option<u16> {
        let offset = at.0.checked_sub(self.from.0).filter(|offset| *offset < self.length.0)?;
        let column = u128::from(offset) * u128::from(columns) / u128::from(self.length.0);
        u16::try_from(column).ok()
    }
}

/// Columns of names and figures: those of a copying stream fit in a width of 80.
pub(crate) fn name_columns(width: u16) -> u16 {
    // Without a product, which the widest terminal would overflow.
    (width / 5 * 2 + width % 5 * 2 / 5).min(36)
}

/// Columns of the time.
pub(crate) fn time_columns(width: u16) -> u16 {
    width - name_columns(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_two_fifths_of_any_width() {
        for (width, expect) in [(0, 0), (1, 0), (3, 1), (44, 17), (80, 32), (90, 36), (u16::MAX, 36)] {
            assert_eq!((name_columns(width), time_columns(width)), (expect, width - expect), "{width}");
        }
    }
}
