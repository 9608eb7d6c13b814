//! Source lines: what each line of one source file cost.
//!
//! Owns: the sums by line. Because: optimizing a function starts at its hottest line. Does not: read the file.

use super::mark::Mark;
use super::merged_tree::MergedTree;
use crate::intern::StrId;
use crate::profile::Profile;
use crate::tree::NodeId;
use crate::view::snapshot::{LineRow, SourceLines};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Marks a frame of the file without a known line.
const NO_LINE: u32 = u32::MAX;
/// Marks a frame of another file.
const ELSEWHERE: u32 = 0;

/// Sums the values of a file's lines. As everywhere, values of hidden frames count for their caller.
///
/// `merged` was refreshed with the same filter and mark.
pub(super) fn source_lines(
    merged: &MergedTree,
    profile: &Profile,
    file: &Arc<str>,
    since: Option<&Mark>,
) -> SourceLines {
    let selection = *merged.selection();
    let tree = &profile.tree;
    let wanted = find(profile, file);
    let of_frame: Vec<(bool, u32)> = profile
        .frames
        .iter()
        .map(|(_, frame)| {
            let line = match frame.source_file() {
                Some((text, line)) if Some(text) == wanted => line.map_or(NO_LINE, |it| it.get()),
                _ => ELSEWHERE,
            };
            (selection.shows(&frame), line)
        })
        .collect();
    let frame =
        |node: NodeId| of_frame.get(tree.node(node).frame.index()).copied().unwrap_or((true, ELSEWHERE));

    let mut own = vec![0u64; tree.len()];
    for (node, place, cell) in tree.placed_cells(selection.metric) {
        if merged.passes(node) {
            let before = since.map_or(0, |mark| mark.value(selection.metric, place).0);
            own[node.index()] = cell.sum.saturating_sub(before);
        }
    }
    let mut all = own.clone();
    // Backwards, so that the values below a node are added to it before it is passed on.
    for number in (1..tree.len()).rev() {
        let node = NodeId::from_number(number as u32);
        let parent = tree.node(node).parent.index();
        all[parent] = all[parent].saturating_add(all[number]);
        if !frame(node).0 {
            own[parent] = own[parent].saturating_add(own[number]);
        }
    }

    let mut lines: BTreeMap<u32, LineRow> = BTreeMap::new();
    for number in 1..tree.len() {
        let node = NodeId::from_number(number as u32);
        let (shows, line) = frame(node);
        if line == ELSEWHERE || !shows || all[number] == 0 {
            continue;
        }
        let row = lines.entry(line).or_insert(LineRow { line, ..LineRow::default() });
        row.exclusive = row.exclusive.saturating_add(own[number]);
        if !stands_above(profile, node, |node| frame(node) == (true, line)) {
            row.inclusive = row.inclusive.saturating_add(all[number]);
        }
    }
    let without_line = lines.remove(&NO_LINE).map_or(0, |row| row.inclusive);
    SourceLines { file: Arc::clone(file), lines: lines.into_values().collect(), without_line }
}

/// The file with this path, else the first whose path ends with it.
fn find(profile: &Profile, file: &str) -> Option<StrId> {
    let files = || profile.frames.iter().filter_map(|(_, frame)| frame.source_file()).map(|(text, _)| text);
    let path = |text: &StrId| profile.strings.get(*text);
    let ends = |text: &StrId| path(text).strip_suffix(file).is_some_and(|folder| folder.ends_with('/'));
    files().find(|text| path(text) == file).or_else(|| files().find(ends))
}

fn stands_above(profile: &Profile, node: NodeId, is: impl Fn(NodeId) -> bool) -> bool {
    let mut at = profile.tree.node(node).parent;
    while at != NodeId::ROOT {
        if is(at) {
            return true;
        }
        at = profile.tree.node(at).parent;
    }
    false
}
