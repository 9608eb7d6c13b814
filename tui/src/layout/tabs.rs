//! Tabs layout: the titles of the tabs, and which of them is at a column.
//!
//! Owns: [`title`], [`tab_at`]. Because: a click must find the tab that was drawn. Does not: draw.

use crate::tab::Tab;
use crate::text;

/// Text of a tab; `losses` is the number of reasons for losses and gaps.
pub(crate) fn title(tab: Tab, losses: usize) -> String {
    let number = Tab::ALL.iter().position(|it| *it == tab).map_or(0, |at| at + 1);
    match tab {
        Tab::Losses if losses > 0 => format!(" {number} {} ({losses}) ", tab.title()),
        _ => format!(" {number} {} ", tab.title()),
    }
}

/// The tab at a column.
pub(crate) fn tab_at(column: u16, losses: usize) -> Option<Tab> {
    let mut end = 0;
    Tab::ALL.into_iter().find(|tab| {
        end += text::width(&title(*tab, losses));
        usize::from(column) < end
    })
}
