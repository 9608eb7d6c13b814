//! Evidence: which road leads from handles to their names.
//!
//! Owns: what the objects of a process lead to, and when that is enough. Because: an object of a driver leads to the names of
//! other kernels too (the next one, the first of the module), what lies behind it in memory is another object, and a wrong
//! name is worse than none. Does not: read memory.
//!
//! The driver keeps the name of a kernel at the same place of each of its objects. So one road is looked for, by which
//!
//! - most handles lead to a text, and several of these texts are names of kernels whose code was found;
//! - different handles lead to different texts: what they share is nobody's name (so kernels that are loaded for several
//!   devices at once find no names here);
//! - and no shorter road leads to different texts as well, unless these contain the name (`.text.NAME`): they could be the names,
//!   of kernels whose code was not found, and what lies further away belongs to others.
//!
//! A handle has the name to which this road leads, if the code of that kernel was found and no other handle has the name.

use rustc_hash::{FxHashMap, FxHashSet};

use super::handle::{self, Road, Text};
use crate::python::memory::TargetMemory;

/// Handles that are remembered.
const HANDLES_MAX: usize = 1 << 12;
/// Bytes of texts that are kept of all of them.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Handles that must have names of their own by a road of one pointer, and of two.
const NEAR_LEAST: usize = 2;
const FAR_LEAST: usize = 4;

/// What is known of the objects of a process.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Texts by handle, by the order of their roads.
    objects: FxHashMap<u64, Vec<Text>>,
    /// Bytes of these texts.
    bytes: usize,
}

/// Texts of handles by a road.
type Texts<'e> = FxHashMap<u64, &'e str>;

impl Evidence {
    /// Reads what is in reach of a handle; false when that is no text, or when there are too many handles.
    pub(super) fn read(&mut self, memory: &dyn TargetMemory, handle: u64) -> bool {
        let mut texts = handle::near(memory, handle);
        texts.extend(handle::far(memory, handle));
        self.put(handle, texts)
    }

    fn put(&mut self, handle: u64, mut texts: Vec<Text>) -> bool {
        let bytes_of = |texts: &Vec<Text>| texts.iter().map(|text| text.text.len()).sum::<usize>();
        if let Some(before) = self.objects.remove(&handle) {
            self.bytes -= bytes_of(&before);
        }
        let bytes = bytes_of(&texts);
        if texts.is_empty() || self.objects.len() >= HANDLES_MAX || self.bytes + bytes > TEXT_BYTES_MAX {
            return false;
        }
        texts.sort_by_key(|text| key(text.road));
        self.bytes += bytes;
        self.objects.insert(handle, texts);
        true
    }

    /// Names of those of these handles of which there is no doubt.
    pub(super) fn names(&self, handles: &[u64], is_kernel: impl Fn(&str) -> bool) -> FxHashMap<u64, String> {
        let Some(texts) = self.road(&is_kernel) else { return FxHashMap::default() };
        let mut count: FxHashMap<&str, u32> = FxHashMap::default();
        texts.values().for_each(|text| *count.entry(text).or_default() += 1);
        let name =
            |handle: &u64| texts.get(handle).filter(|text| count.get(*text) == Some(&1) && is_kernel(text));
        handles.iter().filter_map(|handle| Some((*handle, (*name(handle)?).to_owned()))).collect()
    }

    /// The texts by the road to names; `None` while there is no such road.
    fn road(&self, is_kernel: impl Fn(&str) -> bool) -> Option<Texts<'_>> {
        let mut roads: FxHashMap<Road, Texts<'_>> = FxHashMap::default();
        for (handle, texts) in &self.objects {
            for text in texts {
                roads.entry(text.road).or_default().insert(*handle, &text.text);
            }
        }
        let most = |texts: &Texts<'_>| texts.len() * 4 >= self.objects.len() * 3;
        let mut roads: Vec<_> =
            roads.into_iter().filter(|(_, texts)| most(texts) && are_own(texts)).collect();
        roads.sort_by_key(|(road, _)| key(*road));
        let found = roads.iter().position(|(road, texts)| {
            let kernels: FxHashSet<&str> = texts.values().copied().filter(|text| is_kernel(text)).collect();
            kernels.len() >= if road.second.is_none() { NEAR_LEAST } else { FAR_LEAST }
        })?;
        let (_, names) = roads.swap_remove(found);
        // What was before it still is.
        let shorter = &roads[..found];
        shorter.iter().all(|(_, texts)| contain(texts, &names)).then_some(names)
    }
}

/// Shorter roads are less.
fn key(road: Road) -> (bool, u16, u16) {
    (road.second.is_some(), road.first, road.second.unwrap_or(0))
}

/// Whether handles have different texts.
fn are_own(texts: &Texts<'_>) -> bool {
    let different: FxHashSet<&str> = texts.values().copied().collect();
    different.len() > 1 && different.len() * 4 >= texts.len() * 3
}

/// Whether the texts of most handles contain their names.
fn contain(texts: &Texts<'_>, names: &Texts<'_>) -> bool {
    let both = names.iter().filter_map(|(handle, name)| Some((texts.get(handle)?, name)));
    let contains: Vec<bool> = both.map(|(text, name)| text.contains(*name)).collect();
    let yes = contains.iter().filter(|yes| **yes).count();
    yes * 4 >= contains.len() * 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What leads to these texts: `first/text`, or `first.second/text`.
    fn texts(words: &str) -> Vec<Text> {
        let text = |word: &str| {
            let (road, text) = word.split_once('/').unwrap();
            let (first, second) = match road.split_once('.') {
                None => (road, None),
                Some((first, second)) => (first, Some(second.parse().unwrap())),
            };
            Text { road: Road { first: first.parse().unwrap(), second }, text: text.to_owned() }
        };
        words.split_whitespace().map(text).collect()
    }

    /// Kernels whose code was found are those in capitals.
    fn is_kernel(text: &str) -> bool {
        text.bytes().all(|byte| byte.is_ascii_uppercase())
    }

    /// The names of handles, `-` for none.
    fn check(objects: &[&str], expect: &str) {
        let mut evidence = Evidence::default();
        let handles: Vec<u64> = (0..objects.len() as u64).collect();
        for (handle, words) in handles.iter().zip(objects) {
            evidence.put(*handle, texts(words));
        }
        let names = evidence.names(&handles, is_kernel);
        let names: Vec<&str> =
            handles.iter().map(|handle| names.get(handle).map_or("-", String::as_str)).collect();
        assert_eq!(names.join(" "), expect, "{objects:?}");
    }

    #[test]
    fn the_name_is_at_the_same_place_of_each_object() {
        check(&["8/A 16/sm_80", "8/B 16/sm_80"], "A B");
        check(&["8/A", "8/B", "8/unknown"], "A B -");
        check(&["0/.text.A 8/A", "0/.text.B 8/B"], "A B");
        check(&["8/A", "16/B"], "- -");
        check(&["8/A"], "-");
    }

    #[test]
    fn what_handles_share_is_nobody_s_name() {
        check(&["8/Z 24/A", "8/Z 24/B", "8/Z 24/C"], "A B C");
        check(&["24/Z", "24/Z", "24/Z"], "- - -");
        // One kernel twice among many others.
        check(&["8/A", "8/A", "8/B", "8/C", "8/D"], "- - B C D");
    }

    #[test]
    fn what_lies_behind_an_object_is_not_its_name() {
        // Each is followed by the next one.
        check(&["8/A 72/B", "8/B 72/C", "8/C 72/D"], "A B C");
        // The same, and the code of these kernels was not found, only that of those behind them.
        check(&["8/a 72/B", "8/c 72/D", "8/e 72/F"], "- - -");
        // A few are followed by something.
        check(&["8/A", "8/B", "8/unknown 400/D", "8/other 400/E"], "A B - -");
        check(&["8/unknown 400/D", "8/other 400/E", "8/more", "8/yet"], "- - - -");
    }

    #[test]
    fn names_of_neighbours_are_not_taken_where_one_s_own_are_nearer() {
        check(&["8/A 16.8/B", "8/B 16.8/C", "8/unknown 16.8/A"], "A B -");
        check(&["8/a 16.8/B", "8/b 16.8/C", "8/c 16.8/D", "8/d 16.8/E"], "- - - -");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let text = |n: u64| format!("{n:04}{}", "x".repeat((1 << 20) - 4));
        let long = |n: u64| vec![Text { road: Road { first: 8, second: None }, text: text(n) }];
        let mut evidence = Evidence::default();
        assert_eq!((0..40).filter(|n| evidence.put(*n, long(*n))).count(), 16);
        assert!(!evidence.put(3, Vec::new()));
        assert!(evidence.put(50, long(50)), "there is room again");
        assert_eq!(evidence.bytes, 16 << 20);
    }

    #[test]
    fn two_pointers_are_believed_once_four_handles_have_names_of_their_own() {
        check(&["16.8/A", "16.8/B", "16.8/C"], "- - -");
        check(&["16.8/A 24.0/Z", "16.8/B 24.0/Z", "16.8/C 24.0/Z", "16.8/D 24.0/Z"], "A B C D");
        check(&["16.8/A", "16.8/A", "16.8/C", "16.8/C"], "- - - -");
    }
}
