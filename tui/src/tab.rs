//! Tabs: the pages of the screen.
//!
//! Owns: [`Tab`]. Because: keys, layout and drawing must agree on the order of the tabs. Does not: know what is on
//! them.

/// What fills the body of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Flame graph, root at the top.
    #[default]
    Flame,
    /// Bottom-up: functions, and below each its callers.
    Callers,
    /// Hottest functions.
    Table,
    /// What each process and thread did when.
    Timeline,
    /// A source file with what its lines cost.
    Source,
    /// Losses and own cost.
    Losses,
}

impl Tab {
    /// All tabs, left to right.
    pub const ALL: [Self; 6] =
        [Self::Flame, Self::Callers, Self::Table, Self::Timeline, Self::Source, Self::Losses];

    /// Name on the tab.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Flame => "Flame",
            Self::Callers => "Callers",
            Self::Table => "Table",
            Self::Timeline => "Time",
            Self::Source => "Source",
            Self::Losses => "Losses",
        }
    }

    pub(crate) fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}
