//! Communicators: the ranks of each, and one name for each group of ranks of a job.
//!
//! Owns: [`GroupRanks`], and the names of communicators that a program calls alike. Because: groups of a mesh have one
//! name (`mesh_tp` of ranks 0 to 3 and of ranks 4 to 7), or numbers that each rank counts by itself, and collectives of
//! one must not be matched with those of another. Does not: guess: a communicator whose ranks no trace states keeps its
//! name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::Hasher as _;

use rustc_hash::{FxHashMap, FxHasher};

use super::{CollectiveNote, CollectiveNotes, CommunicatorGroup, CommunicatorGroups, Trace};
use crate::intern::StrId;

/// Maximum ranks of a communicator: more than the largest jobs have.
const RANKS_MAX: usize = 1 << 16;
/// Letters of a list of ranks within a name.
const SHOWN_MAX: usize = 48;

/// The ranks of a communicator, in ascending order. Their text is short where their distances are equal: `0-3`,
/// `0-24/8,30` for 0, 8, 16, 24 and 30.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRanks(Vec<u32>);

impl GroupRanks {
    /// The ranks in any order; `None` without any, with too many, or with one of them twice.
    pub fn new(mut ranks: Vec<u32>) -> Option<Self> {
        ranks.sort_unstable();
        let is_set = ranks.array_windows::<2>().all(|[a, b]| a < b);
        let fits = !ranks.is_empty() && ranks.len() <= RANKS_MAX;
        (is_set && fits).then_some(GroupRanks(ranks))
    }

    /// Parses a list as other tools write it (`[0, 1, 2]`); `None` if it is cut (`[0, 1, ...]`) or of another form.
    pub fn from_list(list: &str) -> Option<Self> {
        let list = list.trim().trim_matches('"').strip_prefix('[')?.strip_suffix(']')?;
        // One more than fits is refused.
        let ranks = list.split(',').take(RANKS_MAX + 1).map(|rank| rank.trim().parse::<u32>().ok());
        Self::new(ranks.collect::<Option<Vec<u32>>>()?)
    }

    /// Parses its text.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut ranks: Vec<u32> = Vec::new();
        for part in text.split(',') {
            let (range, step) = part.split_once('/').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            let step = step.parse::<usize>().ok().filter(|step| *step > 0)?;
            let room = (RANKS_MAX + 1).saturating_sub(ranks.len());
            ranks.extend((first..=last).step_by(step).take(room));
        }
        Self::new(ranks)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All of them, as other tools write it (`[0, 1, 2]`).
    pub fn list(&self) -> String {
        let ranks: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        format!("[{}]", ranks.join(", "))
    }
}

impl fmt::Display for GroupRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut between) = (self.0.as_slice(), "");
        while let Some(first) = rest.first() {
            let (run, others) = rest.split_at(equally_apart(rest));
            write!(f, "{between}{first}")?;
            if let [_, second, .., last] = run {
                write!(f, "-{last}")?;
                let step = second - first;
                if step > 1 {
                    write!(f, "/{step}")?;
                }
            }
            (rest, between) = (others, ",");
        }
        Ok(())
    }
}

/// How many ranks have equal distances, from the first one on; 1 if it is fewer than three.
fn equally_apart(ranks: &[u32]) -> usize {
    let [first, second, ..] = ranks else { return ranks.len() };
    let step = second - first;
    let steps = ranks.array_windows::<2>().take_while(|[a, b]| b - a == step).count();
    if steps < 2 { 1 } else { steps + 1 }
}

/// Name of a communicator with these ranks, beside others that the program calls alike.
pub fn name_with_ranks(name: &str, ranks: &str) -> String {
    let shown: String = ranks.chars().take(SHOWN_MAX).collect();
    let mut more = String::new();
    if shown.len() < ranks.len() {
        // Long lists may begin alike.
        let mut hasher = FxHasher::default();
        hasher.write(ranks.as_bytes());
        more = format!("… {:016x}", hasher.finish());
    }
    format!("{name} (ranks {shown}{more})").trim_start().to_owned()
}

/// Adds their ranks to the names of communicators of a job that have one name and different ranks.
pub(super) fn tell_apart(traces: &mut [(String, Trace)]) {
    let shared = shared_names(traces);
    if shared.is_empty() {
        return;
    }
    for (_, trace) in traces {
        let groups: Vec<CommunicatorGroup> =
            trace.communicator_groups.iter().map(|(_, group)| group).collect();
        let mut renamed: FxHashMap<StrId, StrId> = FxHashMap::default();
        trace.communicator_groups = CommunicatorGroups::default();
        for group in groups {
            let mut communicator = group.communicator;
            if shared.contains(trace.name(communicator)) {
                let name = name_with_ranks(trace.name(communicator), trace.name(group.ranks));
                communicator = trace.text(&name);
                renamed.insert(group.communicator, communicator);
            }
            trace.communicator_groups.push(CommunicatorGroup { communicator, ..group });
        }
        trace.rename_communicators(|_, of| renamed.get(&of).copied().unwrap_or(of));
    }
}

/// Names of communicators with different ranks, and those that another trace has with their ranks already.
fn shared_names(traces: &[(String, Trace)]) -> BTreeSet<String> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for (_, trace) in traces {
        for (_, group) in trace.communicator_groups.iter() {
            let (name, ranks) = (trace.name(group.communicator), trace.name(group.ranks));
            if *first.entry(name).or_insert(ranks) != ranks {
                shared.insert(name.to_owned());
            }
        }
    }
    // One of several in its own trace, or in the job that it was exported from.
    for (name, ranks) in &first {
        if first.contains_key(name_with_ranks(name, ranks).as_str()) {
            shared.insert((*name).to_owned());
        }
    }
    shared
}

impl Trace {
    /// Renames the communicators of collectives, by the place of a note in its table and its communicator.
    pub fn rename_communicators(&mut self, name: impl Fn(usize, StrId) -> StrId) {
        let mut notes = CollectiveNotes::default();
        for (place, (_, note)) in self.collectives.iter().enumerate() {
            let communicator = name(place, note.communicator);
            notes.push(CollectiveNote { communicator, ..note });
        }
        self.collectives = notes;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Job, text};
    use super::*;

    #[test]
    fn ranks_are_short_as_text_and_come_back() {
        let check = |list: &str, expect: &str| {
            let ranks = GroupRanks::from_list(list).unwrap();
            assert_eq!(ranks.to_string(), expect, "{list}");
            assert_eq!(GroupRanks::from_text(expect), Some(ranks), "{list}");
        };
        check("[5]", "5");
        check("[0, 4]", "0,4");
        check("[0, 1, 2, 3]", "0-3");
        check("[24,16,8,0,30]", "0-24/8,30");
        check("\"[0, 1, 8, 9, 10]\"", "0,1,8-10");
        assert_eq!(GroupRanks::from_text("0-24/8,30").unwrap().list(), "[0, 8, 16, 24, 30]");
    }

    #[test]
    fn lists_that_are_cut_or_false_are_no_ranks() {
        for list in ["", "[]", "0, 1", "[0, 1, ...]", "[0, ..., 7]", "[-1]", "[1, 1]", "[4294967296]"] {
            assert_eq!(GroupRanks::from_list(list), None, "{list}");
        }
        for text in ["", "0-", "0-4/0", "0-3,2", "0-4294967295", "0-65535,70000-140000"] {
            assert_eq!(GroupRanks::from_text(text), None, "{text}");
        }
        assert_eq!(GroupRanks::from_text("0-65535").unwrap().count(), RANKS_MAX);
    }

    #[test]
    fn long_lists_that_begin_alike_have_different_names() {
        let ranks = |last: &str| format!("{}{last}", "10,21,".repeat(20));
        let [one, other] = ["1", "2"].map(|last| name_with_ranks("tp", &ranks(last)));
        assert!(one != other && one.len() < 100, "{one}, {other}");
        assert_eq!(name_with_ranks("", "0-3"), "(ranks 0-3)");
    }

    /// A rank with one collective of a communicator with these ranks; empty if they are not known.
    fn rank(number: u32, communicator: &str, ranks: &str) -> (String, Trace) {
        let mut trace = text::parse("kernel 0/9 0..5 ncclKernel").unwrap();
        let op = trace.device.iter().next().unwrap().0;
        let [operation, communicator, ranks] =
            ["allreduce", communicator, ranks].map(|word| trace.text(word));
        let note = CollectiveNote {
            op,
            operation,
            communicator,
            group_size: 2,
            elements_in: 8,
            element: StrId::EMPTY,
            ordinal: None,
            peer: None,
        };
        trace.collectives.push(note).unwrap();
        if ranks != StrId::EMPTY {
            trace.communicator_groups.push(CommunicatorGroup { communicator, ranks }).unwrap();
        }
        (format!("rank{number}.json"), trace)
    }

    #[test]
    fn communicators_of_one_name_are_told_apart_by_ranks() {
        let check = |ranks: &[(&str, &str)], expect: &[&str]| {
            let traces = (0..).zip(ranks).map(|(number, (name, ranks))| rank(number, name, ranks)).collect();
            let job = Job::new(traces).unwrap();
            let name = |of: &Trace| of.name(of.collectives.iter().next().unwrap().1.communicator).to_owned();
            let names: Vec<String> = job.ranks().iter().map(|of| name(&of.trace)).collect();
            assert_eq!(names, expect, "{ranks:?}");
        };
        let (tp, low, high) = ("3 mesh_tp", "3 mesh_tp (ranks 0,1)", "3 mesh_tp (ranks 2,3)");
        check(&[(tp, "0,1"), (tp, "0,1"), (tp, "2,3"), (tp, "2,3")], &[low, low, high, high]);
        // Where names are enough, they stay.
        check(&[(tp, "0,1"), (tp, "0,1"), ("4 mesh_dp", "2,3")], &[tp, tp, "4 mesh_dp"]);
        // Ranks that are not known are not guessed.
        check(&[(tp, "0,1"), (tp, "")], &[tp, tp]);
        check(&[(tp, "0,1"), (tp, ""), (tp, "2,3")], &[low, tp, high]);
        // Another trace has the name with its ranks already.
        check(&[(low, "0,1"), (tp, "0,1")], &[low, low]);
    }
}
