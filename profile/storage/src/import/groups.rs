//! Groups of ranks: which ranks take part in the collectives of a trace.
//!
//! Owns: [`Groups`]. Because: traces state them in two places, each with gaps: PyTorch cuts the lists of its events
//! after 30 ranks, and only newer versions list the program's groups. Does not: guess; a communicator without a whole
//! list has its name only.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use deepctx_profile::intern::{StrId, TEXT_MAX};
use deepctx_profile::trace::{CommunicatorGroup, GroupRanks, Trace, name_with_ranks};

use super::arguments::{Arguments, NumberOrText};

/// Maximum lists of a trace: a rank is in some tens of groups.
const GROUPS_MAX: usize = 1 << 12;
/// Maximum bytes of the program's own list: a hundred groups of a job of ten thousand ranks take half of it.
const LIST_MAX: usize = 1 << 24;

/// What a trace says of the ranks of its communicators.
#[derive(Default)]
pub(super) struct Groups {
    /// By communicator.
    found: BTreeMap<StrId, FoundGroup>,
    /// The ranks that each note states, in the order of notes; empty if it does not.
    stated: Vec<StrId>,
    /// Different whole lists of all communicators.
    lists: usize,
    /// The ranks in the program's own list, as text, by name; `None` for a name with several groups, or one without
    /// ranks.
    listed: BTreeMap<String, Option<String>>,
    left_out: usize,
}

/// What notes say of a communicator.
#[derive(Default)]
struct FoundGroup {
    /// The name of its group in the program's own list.
    name: String,
    /// Different whole lists of its ranks.
    ranks: BTreeSet<StrId>,
    /// Whether a list of its ranks is cut.
    is_cut: bool,
}

/// A group in the program's own list.
#[derive(Deserialize)]
struct ListedGroup<'b> {
    #[serde(borrow, default, rename = "pg_name")]
    name: NumberOrText<'b>,
    #[serde(borrow, default, rename = "pg_size")]
    size: NumberOrText<'b>,
    #[serde(borrow, default)]
    ranks: Option<&'b RawValue>,
}

/// Lists that say nothing.
pub(super) struct GroupGaps {
    /// Communicators of which there are only cut ones.
    pub(super) cut: usize,
    /// Those beyond the bounds.
    pub(super) left_out: usize,
}

impl Groups {
    /// Adds the program's own list of its groups (`pg_config`). A list of another form says nothing.
    pub(super) fn list(&mut self, list: &str) {
        if list.len() > LIST_MAX {
            self.left_out += 1;
            return;
        }
        // Not parsed all at once: an entry without anything takes three bytes there, and eighty here.
        let groups: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
        for group in groups {
            let Ok(group) = serde_json::from_str::<ListedGroup<'_>>(group.get()) else { continue };
            let name = group.name.to_text();
            if name.is_empty() {
                continue;
            }
            if self.listed.len() >= GROUPS_MAX && !self.listed.contains_key(&name) {
                self.left_out += 1;
                continue;
            }
            let ranks = group.ranks.and_then(|ranks| whole(ranks.get(), &group.size));
            let ranks = ranks.map(|ranks| ranks.to_string());
            let known = self.listed.entry(name).or_insert_with(|| ranks.clone());
            if *known != ranks {
                *known = None;
            }
        }
    }

    /// Adds what the arguments of the last note of a trace say of its communicator.
    pub(super) fn note(&mut self, trace: &mut Trace, communicator: StrId, arguments: &Arguments<'_>) {
        let first = || FoundGroup { name: arguments.group.to_text(), ..FoundGroup::default() };
        let found = self.found.entry(communicator).or_insert_with(first);
        let list = arguments.group_ranks.word();
        let ranks = whole(list, &arguments.group_size).map(|ranks| ranks.to_string());
        found.is_cut |= ranks.is_none() && list.contains(',');
        let ranks = match ranks {
            // A longer text would be cut.
            Some(ranks) if ranks.len() <= TEXT_MAX && self.lists < GROUPS_MAX => trace.text(&ranks),
            Some(_) => {
                self.left_out += 1;
                StrId::EMPTY
            }
            None => StrId::EMPTY,
        };
        let ranks = if ranks == StrId::FULL { StrId::EMPTY } else { ranks };
        if ranks != StrId::EMPTY && found.ranks.insert(ranks) {
            self.lists += 1;
        }
        self.stated.push(ranks);
    }

    /// Adds to a trace which ranks its communicators have. Several of one name get names of their own.
    pub(super) fn finish(self, trace: &mut Trace) -> GroupGaps {
        let Groups { found, stated, listed, left_out, .. } = self;
        let mut gaps = GroupGaps { cut: 0, left_out };
        // By communicator and ranks: their name.
        let mut renamed: BTreeMap<(StrId, StrId), StrId> = BTreeMap::new();
        for (communicator, of) in found {
            if of.ranks.is_empty() {
                // Many communicators may be of one listed group.
                let is_full = trace.communicator_groups.len() >= GROUPS_MAX;
                match listed.get(&of.name).and_then(Option::as_deref) {
                    Some(ranks) if is_full || ranks.len() > TEXT_MAX => gaps.left_out += 1,
                    Some(ranks) => {
                        let ranks = trace.text(ranks);
                        trace.communicator_groups.push(CommunicatorGroup { communicator, ranks });
                    }
                    None => gaps.cut += usize::from(of.is_cut),
                }
                continue;
            }
            let is_one = of.ranks.len() == 1;
            for ranks in of.ranks {
                let name = match is_one {
                    true => communicator,
                    false => trace.text(&name_with_ranks(trace.name(communicator), trace.name(ranks))),
                };
                if !is_one {
                    renamed.insert((communicator, ranks), name);
                }
                trace.communicator_groups.push(CommunicatorGroup { communicator: name, ranks });
            }
        }
        if !renamed.is_empty() {
            let ranks = |place: usize| stated.get(place).copied().unwrap_or(StrId::EMPTY);
            trace.rename_communicators(|place, of| renamed.get(&(of, ranks(place))).copied().unwrap_or(of));
        }
        gaps
    }
}

/// The ranks of a list, if it has as many as the group.
fn whole(list: &str, size: &NumberOrText<'_>) -> Option<GroupRanks> {
    let ranks = GroupRanks::from_list(list)?;
    let size = size.number().filter(|size| *size > 0);
    size.is_none_or(|size| size == ranks.count() as u64).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::ledger::Stage;
    use deepctx_profile::trace::CommunicatorGroup;

    use super::super::events::traces;

    /// Communicators with their ranks, of a trace with these collectives (arguments) and this list of groups; then the
    /// gaps.
    fn check(collectives: &[&str], listed: &str, expect: &[&str]) {
        let event = |arguments: &&str| {
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"ncclDevKernel","pid":0,"tid":7,"ts":10,"dur":5,"args":{{
                    "Collective name":"allreduce","Process Group Name":"3",{arguments}}}}}"#
            )
        };
        let events: Vec<String> = collectives.iter().map(event).collect();
        let document = format!(
            r#"{{"distributedInfo":{{"rank":1,"pg_config":{listed},"world_size":8}},"traceEvents":[{}]}}"#,
            events.join(",")
        );
        let (traces, _) = traces(document.as_bytes()).unwrap();
        let trace = &traces[0].1;
        assert_eq!((trace.rank.rank, trace.rank.world_size), (Some(1), Some(8)), "{listed}");
        let ranks = |name: &str| {
            let of_name = |group: &CommunicatorGroup| trace.name(group.communicator) == name;
            let found = trace.communicator_groups.iter().map(|(_, group)| group).find(of_name);
            found.map_or("?", |group| trace.name(group.ranks))
        };
        let names = trace.collectives.iter().map(|(_, note)| trace.name(note.communicator));
        let mut shown: Vec<String> = names.map(|name| format!("{name}: {}", ranks(name))).collect();
        let gaps = &trace.ledger.stage(Stage::Decode).gaps;
        shown.extend(gaps.iter().map(|(reason, n)| format!("{n} {}", reason.key)));
        assert_eq!(shown, expect, "{collectives:?} {listed}");
    }

    #[test]
    fn ranks_of_groups_are_read_from_whole_lists() {
        let (text, list) = (r#""Process Group Ranks":"[4, 5, 6, 7]""#, r#""Process Group Ranks":[4,5,6,7]"#);
        check(&[text], "[]", &["3: 4-7"]);
        check(&[list, text], "null", &["3: 4-7", "3: 4-7"]);
        let described =
            r#""Group size":4,"Process Group Description":"mesh_tp","Process Group Ranks":"[0,2,4,6]""#;
        check(&[described], "[]", &["3 mesh_tp: 0-6/2"]);
        // No list, an empty one, and values of other forms.
        for none in ["7", r#""[]""#, "null", r#""all""#, "{}"] {
            check(&[&format!(r#""Process Group Ranks":{none}"#)], "[]", &["3: ?"]);
        }
        check(&[r#""Group size":4"#], "[]", &["3: ?"]);
    }

    #[test]
    fn ranks_that_a_list_cuts_are_not_guessed() {
        let cut = r#""Group size":8,"Process Group Ranks":"[0, 1, 2, ...]""#;
        let gap = "1 group-ranks-cut";
        check(&[cut, cut], "[]", &["3: ?", "3: ?", gap]);
        check(&[r#""Group size":8,"Process Group Ranks":"[0, 1, 2]""#], "[]", &["3: ?", gap]);
        let group = |name: &str, size: u32, ranks: &str| {
            format!(
                r#"{{"pg_name":"{name}","pg_desc":"d","backend_config":"","pg_size":{size},"ranks":{ranks}}}"#
            )
        };
        let (own, all) = (group("3", 8, "[0,1,2,3,4,5,6,7]"), "[0,1,2,3,4,5,6,7,8,9]");
        check(&[cut], &format!("[{},{own}]", group("0", 10, all)), &["3: 0-7"]);
        // Another size than stated, an empty list, and two groups of the name.
        check(&[cut], &format!("[{}]", group("3", 8, all)), &["3: ?", gap]);
        check(&[cut], &format!("[{}]", group("3", 8, "[]")), &["3: ?", gap]);
        check(&[cut], &format!("[{own},{}]", group("3", 2, "[0,1]")), &["3: ?", gap]);
        for other in ["{}", "7", r#"[{"pg_name":"3"},7]"#] {
            check(&[cut], other, &["3: ?", gap]);
        }
    }

    #[test]
    fn very_long_lists_are_counted() {
        // No two distances in a row are equal: each rank takes its letters.
        let ranks: Vec<String> = (0..3000).map(|n: u32| (n + n / 2).to_string()).collect();
        let list = format!("[{}]", ranks.join(","));
        let gap = "1 group-ranks-left-out";
        check(&[&format!(r#""Process Group Ranks":{list}"#)], "[]", &["3: ?", gap]);
        let own = format!(r#"[{{"pg_name":"3","pg_size":3000,"ranks":{list}}}]"#);
        check(&[r#""Group size":3000"#], &own, &["3: ?", gap]);
    }

    #[test]
    fn groups_of_one_name_in_one_trace_have_own_names() {
        let of = |ranks: &str| format!(r#""Process Group Ranks":"{ranks}""#);
        let (low, high) = (of("[0, 1]"), of("[2, 3]"));
        let none = r#""dtype":"Float""#;
        let expect = ["3 (ranks 2,3): 2,3", "3 (ranks 0,1): 0,1", "3: ?", "3 (ranks 2,3): 2,3"];
        check(&[&high, &low, none, &high], "[]", &expect);
    }
}
