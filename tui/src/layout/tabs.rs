//! Tabs layout: the titles of the tabs, and which of them is at a column.
//!
//! Owns: [`title`], [`tab_at`]. Because: a click must find the tab that was drawn. Does not: draw.

use crate::tab::Tab;
use crate::text;

/// Text of a tab; `lost` is whether anything was lost.
pub(crate) fn title(tab: Tab, lost: bool) -> String {
    let number = Tab::ALL.iter().position(|it| *it == tab).map_or(0, |at| at + 1);
    match tab {
        Tab::Health => format!(" {number} {} {} ", tab.title(), if lost { '!' } else { '✓' }),
        _ => format!(" {number} {} ", tab.title()),
    }
}

/// The tab at a column.
pub(crate) fn tab_at(column: u16, lost: bool) -> Option<Tab> {
    let mut end = 0;
    Tab::ALL.into_iter().find(|tab| {
        end += text::width(&title(*tab, lost));
        usize::from(column) < end
    })
}
