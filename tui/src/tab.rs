//! Tabs: the pages of the screen.
//!
//! Owns: [`Tab`]. Because: keys, layout and drawing must agree on the order of the tabs. Does not: know what is on
//! them.

/// Content of the body of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// Findings, phases and where the time goes.
    #[default]
    Overview,
    /// Flame graph, root at the top.
    Flame,
    /// Bottom-up: functions, and below each its callers.
    Callers,
    /// Hottest functions.
    Table,
    /// Activity of each process and thread over time.
    Timeline,
    /// A source file with the cost of its lines.
    Source,
    /// Losses, gaps and own cost.
    Health,
}

impl Tab {
    /// All tabs, left to right.
    pub const ALL: [Self; 7] =
        [Self::Overview, Self::Flame, Self::Callers, Self::Table, Self::Timeline, Self::Source, Self::Health];

    /// Name on the tab.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Flame => "Flame",
            Self::Callers => "Callers",
            Self::Table => "Table",
            Self::Timeline => "Time",
            Self::Source => "Source",
            Self::Health => "Health",
        }
    }

    pub(crate) fn step(self, by: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        Self::ALL[(at + by) % Self::ALL.len()]
    }
}
