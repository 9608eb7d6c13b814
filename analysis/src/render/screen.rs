//! Screen: the tables over time for the terminal view.
//!
//! Owns: which tabs of the page the view has, and in which order. Because: both show the same cells. Does not: compute
//! or draw anything.

use std::sync::Arc;

use deepctx_profile::view::event_tables::{EventColumn, EventTable};
use deepctx_storage::export::html::{Column, Tab};

use super::html::over_time;
use crate::over_time::OverTime;

/// Ids of the tabs, in the order of the view.
const TABS: [&str; 6] = ["breakdown", "idle", "path", "split", "slowest", "stragglers"];
/// Maximum rows of a table: a screen has fewer lines.
const ROWS_MAX: usize = 100;

/// The tables of these that have rows.
pub fn event_tables(tables: &OverTime) -> Arc<[EventTable]> {
    let tabs: Vec<Tab> = over_time::tabs(tables).collect();
    TABS.iter().filter_map(|id| tabs.iter().find(|tab| tab.id == *id)).map(event_table).collect()
}

fn event_table(tab: &Tab) -> EventTable {
    let column =
        |column: &Column| EventColumn { title: column.title().to_owned(), is_number: column.is_number() };
    EventTable {
        title: tab.title.clone(),
        columns: tab.columns.iter().map(column).collect(),
        rows: tab.rows.iter().take(ROWS_MAX).cloned().collect(),
        left_out: tab.left_out.saturating_add(tab.rows.len().saturating_sub(ROWS_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::trace::{Job, text};

    use super::*;
    use crate::over_time::Steps;

    fn tables(ranks: &[&str]) -> Arc<[EventTable]> {
        let parse = |lines: &&str| ("trace.json".to_owned(), text::parse(lines).unwrap());
        let job = Job::new(ranks.iter().map(parse).collect()).unwrap();
        event_tables(&OverTime::compute(&job, Steps::default()))
    }

    #[test]
    fn the_view_has_the_cells_of_the_page() {
        let rank = "step m 0..40 s#1
            call m 0..2 cudaLaunchKernel #1
            call m 3..4 cudaLaunchKernel #2
            kernel 0/7 10..20 gemm #1
            kernel 0/7 25..30 gemm #2";
        let found = tables(&[rank, rank]);
        let titles: Vec<&str> = found.iter().map(|table| table.title.as_str()).collect();
        let expect = [
            "Devices over time",
            "Idle streams",
            "Critical path",
            "Steps over time",
            "Slowest rank",
            "Stragglers",
        ];
        assert_eq!(titles, expect);
        assert_eq!(found[0].rows[1][..4], ["1", "0", "20.0 µs", "25.0%"]);
        for table in found.iter() {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.title);
        }
    }

    #[test]
    fn rows_beyond_a_screen_are_counted() {
        let step = |n: u64| format!("step m {}..{} s#{n}\n", 10 * n, 10 * n + 10);
        let found = tables(&[&(0..150).map(step).collect::<String>()]);
        let steps = found.iter().find(|table| table.title == "Steps over time").unwrap();
        assert_eq!((steps.rows.len(), steps.left_out), (100, 50));
    }
}
