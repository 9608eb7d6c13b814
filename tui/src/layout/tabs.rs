//! Tabs layout: the titles of the tabs, and which of them is at a column.
//!
//! Owns: [`titles`], [`tab_at`]. Because: a click must find the tab that was drawn. Does not: draw.

use crate::tab::Tab;
use crate::text;

/// Texts of all tabs for this many columns. Without room for all names, only the open tab has one. `lost` is whether so
/// much was lost that it asks for action.
pub(crate) fn titles(open: Tab, lost: bool, columns: u16) -> [(Tab, String); Tab::ALL.len()] {
    let named = Tab::ALL.map(|tab| (tab, title(tab, lost, true)));
    let width: usize = named.iter().map(|(_, title)| text::width(title)).sum();
    if width <= usize::from(columns) {
        return named;
    }
    Tab::ALL.map(|tab| (tab, title(tab, lost, tab == open)))
}

fn title(tab: Tab, lost: bool, is_named: bool) -> String {
    let number = Tab::ALL.iter().position(|it| *it == tab).map_or(0, |at| at + 1);
    let name = if is_named { format!(" {}", tab.title()) } else { String::new() };
    match tab {
        Tab::Health => format!(" {number}{name} {} ", if lost { '!' } else { '✓' }),
        _ => format!(" {number}{name} "),
    }
}

/// The tab at a column.
pub(crate) fn tab_at(column: u16, titles: &[(Tab, String)]) -> Option<Tab> {
    let mut end = 0;
    let hit = titles.iter().find(|(_, title)| {
        end += text::width(title);
        usize::from(column) < end
    });
    hit.map(|(tab, _)| *tab)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_screen_names_the_open_tab_alone() {
        let check = |open: Tab, columns: u16, expect: &str| {
            let line = titles(open, false, columns).map(|(_, title)| title).concat();
            assert_eq!(line, expect);
        };
        let all = " 1 Overview  2 Flame  3 Callers  4 Table  5 Time  6 Source  7 Health ✓ ";
        check(Tab::Flame, 71, all);
        check(Tab::Flame, 70, " 1  2 Flame  3  4  5  6  7 ✓ ");
        check(Tab::Health, 40, " 1  2  3  4  5  6  7 Health ✓ ");
    }

    #[test]
    fn a_column_has_the_tab_that_is_drawn_there() {
        let check = |column: u16, columns: u16, expect: Option<Tab>| {
            assert_eq!(tab_at(column, &titles(Tab::Flame, false, columns)), expect, "{column} of {columns}");
        };
        check(0, 80, Some(Tab::Overview));
        check(12, 80, Some(Tab::Flame));
        check(70, 80, Some(Tab::Health));
        check(71, 80, None);
        check(2, 40, Some(Tab::Overview));
        check(3, 40, Some(Tab::Flame));
        check(12, 40, Some(Tab::Callers));
    }
}
