//! Options of the terminal view at its start.
//!
//! Owns: the options that `live` and `view` have in common, and the request that they define. Because: what keys
//! change in the view must be available to scripts and aliases too. Does not: draw.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, ValueEnum};
use deepctx_profile::view::{Pattern, Request, Selection, TabRequest};
use deepctx_tui::{Charset, Tab};

use super::selection::{self, GroupBy};

/// What the terminal view opens with; every one of them can be changed by a key.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Terminal view")]
pub(crate) struct TuiArgs {
    /// Tab to open.
    #[arg(long, value_name = "TAB", env = "DEEPCTX_TAB", default_value = "overview")]
    pub tab: TabName,
    /// Group stacks by.
    #[arg(long, value_name = "LIST", env = "DEEPCTX_GROUP_BY", value_delimiter = ',', default_values_t = [GroupBy::Process])]
    pub group_by: Vec<GroupBy>,
    /// Show each source line of a function as a separate frame.
    #[arg(long, env = "DEEPCTX_LINES", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub lines: bool,
    /// Collapse recursive calls.
    #[arg(long, env = "DEEPCTX_FOLD_RECURSION", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub fold_recursion: bool,
    /// Source file for the `source` tab, as the process names it.
    #[arg(long, value_name = "FILE", env = "DEEPCTX_SOURCE")]
    pub source: Option<PathBuf>,
    /// Draw with ASCII characters only (default: only if the locale is not UTF-8).
    #[arg(long, env = "DEEPCTX_ASCII", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    pub ascii: bool,
    /// Size of the `--once` snapshot in columns and lines (default: as wide as the terminal, or 100x30).
    #[arg(long, value_name = "WxH", env = "DEEPCTX_SIZE", value_parser = size)]
    pub size: Option<(u16, u16)>,
}

/// A tab of the terminal view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TabName {
    /// Findings, phases, and where the time goes.
    #[default]
    Overview,
    /// Flame graph, callers above callees.
    Flame,
    /// Bottom-up view: functions, with the callers below each.
    Callers,
    /// Table of functions.
    Table,
    /// Processes and threads over time.
    Time,
    /// A source file with the cost of each line.
    Source,
    /// Losses, gaps and the profiler's own cost.
    #[value(alias = "losses")]
    Health,
}

impl TuiArgs {
    /// The tab to open.
    pub(crate) fn tab(&self) -> Tab {
        match self.tab {
            TabName::Overview => Tab::Overview,
            TabName::Flame => Tab::Flame,
            TabName::Callers => Tab::Callers,
            TabName::Table => Tab::Table,
            TabName::Time => Tab::Timeline,
            TabName::Source => Tab::Source,
            TabName::Health => Tab::Health,
        }
    }

    /// The character set for a terminal view.
    pub(crate) fn signs(&self) -> Charset {
        if self.ascii { Charset::Ascii } else { Charset::detect(|name| std::env::var(name).ok()) }
    }

    /// The screen's initial request for this selection.
    pub(crate) fn request(&self, selection: Selection, filter: Option<Pattern>) -> Request {
        let group_by = selection::group_by(&self.group_by);
        let part = match (self.tab, &self.source) {
            (TabName::Overview, _) => TabRequest::Overview,
            (TabName::Callers, _) => TabRequest::Callers,
            (TabName::Table, _) => TabRequest::Table,
            (TabName::Time, _) => TabRequest::Events,
            (TabName::Source, Some(file)) => TabRequest::Source(Arc::from(file.to_string_lossy())),
            _ => TabRequest::Flame,
        };
        Request {
            fold_recursion: self.fold_recursion,
            filter,
            part,
            ..Request::select(Selection { group_by, lines: self.lines, ..selection })
        }
    }
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed = text
        .split_once(['x', 'X'])
        .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)))
        .filter(|&(width, height): &(u16, u16)| width > 0 && height > 0);
    parsed.ok_or_else(|| format!("expected columns and lines like 100x30, found '{text}'"))
}

impl std::fmt::Display for TabName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_columns_and_lines() {
        assert_eq!(size("100x30"), Ok((100, 30)));
        for wrong in ["", "100", "x30", "0x30", "100x-1", "99999x1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
