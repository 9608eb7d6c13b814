//! Search: which functions match a text, and their share of the whole.
//!
//! Owns: matching and the matched share. Because: a recursive function must be counted once, not once per level. Does
//! not: select or draw.

use deepctx_profile::view::snapshot::FlameTree;

use crate::tree::parent;

/// A text, and its matches in the present tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Search {
    query: String,
    /// Query in the form that is compared: lower case, unless it has an upper-case letter.
    needle: String,
    case_matters: bool,
    /// Matches without a match above them, hottest first.
    outermost: Vec<u32>,
    /// All matching nodes.
    count: usize,
    /// Inclusive value of the outermost matches, counting every sample once.
    value: u64,
}

impl Search {
    /// Searches a tree. An empty query matches nothing.
    pub(crate) fn of(query: &str, tree: &FlameTree) -> Self {
        let case_matters = query.chars().any(char::is_uppercase);
        let needle = if case_matters { query.to_owned() } else { query.to_lowercase() };
        let mut search =
            Self { query: query.to_owned(), needle, case_matters, outermost: Vec::new(), count: 0, value: 0 };
        if search.is_empty() {
            return search;
        }
        // Parents precede their children, so one pass determines for every node whether a match is above it.
        let mut covered = vec![false; tree.nodes.len()];
        for (index, node) in (0u32..).zip(&tree.nodes) {
            let above = parent(tree, index).is_some_and(|parent| covered[parent as usize]);
            let matches = search.matches(&node.label);
            covered[index as usize] = above || matches;
            if matches {
                search.count += 1;
            }
            if matches && !above {
                search.outermost.push(index);
                search.value = search.value.saturating_add(node.inclusive);
            }
        }
        search.outermost.sort_by_key(|&node| (std::cmp::Reverse(tree.nodes[node as usize].inclusive), node));
        search
    }

    pub(crate) fn query(&self) -> &str {
        &self.query
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.query.is_empty()
    }

    /// How many nodes match.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Value of all matches, every sample counted once.
    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// Whether a label contains the text.
    pub(crate) fn matches(&self, label: &str) -> bool {
        if self.needle.is_empty() {
            return false;
        }
        if self.case_matters {
            return label.contains(&self.needle);
        }
        if self.needle.is_ascii() {
            let needle = self.needle.as_bytes();
            return label.as_bytes().windows(needle.len()).any(|window| window.eq_ignore_ascii_case(needle));
        }
        label.to_lowercase().contains(&self.needle)
    }

    /// The match after `selected`, hottest first, wrapping at the end; the hottest if `selected` is none.
    pub(crate) fn next(&self, selected: u32, forward: bool) -> Option<u32> {
        let count = self.outermost.len();
        let at = self.outermost.iter().position(|&node| node == selected);
        let next = match (at, forward) {
            (None, _) => 0,
            (Some(at), true) => (at + 1) % count,
            (Some(at), false) => (at + count - 1) % count,
        };
        self.outermost.get(next).copied()
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::view::snapshot::FlameNode;

    use super::*;

    /// A chain of calls; the value is that of the last.
    fn chain(labels: &[&str]) -> FlameTree {
        let node = |(index, label): (usize, &&str)| FlameNode {
            label: (*label).to_owned(),
            inclusive: 10,
            parent: index.saturating_sub(1) as u32,
            children: (index + 1 < labels.len()).then_some(index as u32 + 1).into_iter().collect(),
            ..FlameNode::default()
        };
        FlameTree { nodes: labels.iter().enumerate().map(node).collect() }
    }

    #[test]
    fn a_recursive_function_counts_once() {
        let search = Search::of("fib", &chain(&["all", "main", "fib", "fib", "add", "fib"]));
        assert_eq!((search.count(), search.value(), search.outermost.as_slice()), (3, 10, &[2][..]));
    }

    #[test]
    fn case_matters_only_when_it_was_typed() {
        let check = |query: &str, label: &str, expected: bool| {
            assert_eq!(
                Search::of(query, &FlameTree::default()).matches(label),
                expected,
                "{query} in {label}"
            );
        };
        check("gemm", "SGEMM_kernel", true);
        check("Gemm", "SGEMM_kernel", false);
        check("GEMM", "SGEMM_kernel", true);
        check("über", "Überbau", true);
        check("", "anything", false);
        check("longer than the label", "label", false);
    }

    #[test]
    fn no_match_has_no_next() {
        let search = Search::of("nothing", &chain(&["all"]));
        assert_eq!((search.next(0, true), search.next(0, false)), (None, None));
    }
}
