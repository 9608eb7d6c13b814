//! Table layout: which columns the table of functions has room for, and which of them is at a place.
//!
//! Owns: [`Columns`], [`SortKey`]. Because: a click on a title must find the column that was drawn. Does not: sort or
//! draw.

/// Columns of a value.
pub(crate) const VALUE: usize = 9;
/// Columns of a percentage.
pub(crate) const SHARE: usize = 7;
/// Columns of the kind's letter and its gap.
pub(crate) const KIND: usize = 3;
/// Desired columns of a name; figures that leave less are left out.
pub(crate) const NAME: usize = 16;
/// Minimum columns of a name beside the first figure.
pub(crate) const SHORT_NAME: usize = 8;
/// Columns of a value of another metric, and of its title.
pub(crate) const OTHER: usize = 15;
/// Minimum columns of a location; with less it is left out.
pub(crate) const LOCATION: usize = 24;
/// Desired columns of a name before other metrics get any.
pub(crate) const WIDE_NAME: usize = 24;

/// Column that the rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SortKey {
    /// Exclusive value of a metric: 0 is the shown one, then the others.
    Exclusive(usize),
    /// Inclusive value of a metric.
    Inclusive(usize),
    /// Label, then location.
    Label,
}

impl Default for SortKey {
    fn default() -> Self {
        Self::Exclusive(0)
    }
}

impl SortKey {
    /// The column to the right; `metrics` counts the shown one and the others.
    pub(crate) fn next(self, metrics: usize) -> Self {
        match self {
            Self::Exclusive(metric) => Self::Inclusive(metric),
            Self::Inclusive(metric) if metric + 1 < metrics => Self::Exclusive(metric + 1),
            Self::Inclusive(_) => Self::Label,
            Self::Label => Self::Exclusive(0),
        }
    }

    /// Whether a table with this many metrics has this column.
    pub(crate) fn exists(self, metrics: usize) -> bool {
        match self {
            Self::Exclusive(metric) | Self::Inclusive(metric) => metric < metrics,
            Self::Label => true,
        }
    }
}

/// The figures for which a width has room.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Values beside the shares.
    pub(crate) values: bool,
    /// Shares at all.
    pub(crate) shares: bool,
    /// The total beside the own value.
    pub(crate) total: bool,
    /// Columns of other metrics, as sort keys.
    pub(crate) others: Vec<SortKey>,
    /// Width of the location; 0 if there is no room.
    pub(crate) location: usize,
}

impl Columns {
    /// `metrics` counts the shown one and the others. The sort column is always included.
    pub(crate) fn of(width: u16, metrics: usize, sort: SortKey) -> Self {
        let room = usize::from(width).saturating_sub(KIND + NAME + 1);
        let total = room >= 2 * SHARE;
        let values = room >= 2 * (SHARE + VALUE);
        let figures = if values { 2 * (SHARE + VALUE) } else { 2 * SHARE };
        let mut free = room.saturating_sub(figures);
        // The location takes precedence over figures of other metrics, except the sort column.
        let by_other = !matches!(sort, SortKey::Exclusive(0) | SortKey::Inclusive(0) | SortKey::Label);
        let beside = (free + NAME).saturating_sub(WIDE_NAME);
        let fits = (beside.saturating_sub(LOCATION) / OTHER).max(usize::from(by_other && beside >= OTHER));
        let mut others: Vec<SortKey> = (1..metrics)
            .flat_map(|metric| [SortKey::Exclusive(metric), SortKey::Inclusive(metric)])
            .collect();
        if let Some(at) = others.iter().position(|key| *key == sort).filter(|at| *at >= fits) {
            others.swap(at, fits.saturating_sub(1));
        }
        others.truncate(fits);
        free = free.saturating_sub(others.len() * OTHER);
        Self {
            values,
            shares: usize::from(width) > KIND + SHORT_NAME + SHARE,
            total,
            others,
            location: if free >= LOCATION { free / 2 } else { 0 },
        }
    }

    /// Columns of one figure: its share, and its value if there is room.
    pub(crate) fn figures(&self) -> usize {
        usize::from(self.shares) * (SHARE + usize::from(self.values) * VALUE)
    }

    /// The sort key of the column whose title is at `x`.
    pub(crate) fn key_at(&self, x: u16) -> SortKey {
        let (x, figures) = (usize::from(x), self.figures());
        let own = figures * (1 + usize::from(self.total));
        let other = x.checked_sub(own).and_then(|x| self.others.get(x / OTHER));
        match (x, other) {
            (x, _) if x < figures => SortKey::Exclusive(0),
            (x, _) if x < own => SortKey::Inclusive(0),
            (_, Some(&other)) => other,
            _ => SortKey::Label,
        }
    }
}
