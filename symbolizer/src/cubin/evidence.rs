//! Inferring where a driver's kernel objects keep the kernel's name.
//!
//! Owns: the texts reachable from the objects of a process, and when they are sufficient evidence. Because: an object
//! of the driver also leads to the names of other kernels (the next one, the first of the module), the memory after
//! it is another object, and a wrong name is worse than no name. Does not: read memory.
//!
//! The driver keeps the name of a kernel at the same place in each of its objects. So there is one pointer path along
//! which
//!
//! - most handles lead to a text, and several of these texts are names of kernels whose code was found;
//! - different handles lead to different texts: a shared text is not a kernel's name (so kernels that are loaded for
//!   several devices at once get no names here);
//! - and no shorter path leads to different texts as well, unless these contain the name (`.text.NAME`): they could
//!   be the names of kernels whose code was not found, and texts further away those of other kernels.
//!
//! A handle gets the name at this path if the code of that kernel was found and no other handle has the name.

use rustc_hash::{FxHashMap, FxHashSet};

use super::handle::{self, PointerPath, Text};
use crate::memory::TargetMemory;

/// Most handles kept.
const HANDLES_MAX: usize = 1 << 12;
/// Most bytes of texts of all handles.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Fewest handles with distinct names by a path of one pointer.
const NEAR_HANDLES_MIN: usize = 2;
/// Fewest handles with distinct names by a path of two pointers.
const FAR_HANDLES_MIN: usize = 4;

/// The texts reachable from the objects of a process.
#[derive(Debug, Default)]
pub(super) struct NameEvidence {
    /// Texts by handle, ordered by path.
    objects: FxHashMap<u64, Vec<Text>>,
    /// Total bytes of these texts.
    bytes: usize,
}

/// The text of each handle at one path.
type Texts<'e> = FxHashMap<u64, &'e str>;

impl NameEvidence {
    /// Reads the texts reachable from a handle; false when there are none, or too many handles.
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
        texts.sort_by_key(|text| key(text.path));
        self.bytes += bytes;
        self.objects.insert(handle, texts);
        true
    }

    /// The names of those handles for which the evidence is sufficient.
    pub(super) fn names(&self, handles: &[u64], is_kernel: impl Fn(&str) -> bool) -> FxHashMap<u64, String> {
        let Some(texts) = self.texts_at_name_path(&is_kernel) else { return FxHashMap::default() };
        let mut count: FxHashMap<&str, u32> = FxHashMap::default();
        texts.values().for_each(|text| *count.entry(text).or_default() += 1);
        let name =
            |handle: &u64| texts.get(handle).filter(|text| count.get(*text) == Some(&1) && is_kernel(text));
        handles.iter().filter_map(|handle| Some((*handle, (*name(handle)?).to_owned()))).collect()
    }

    /// The texts at the path of names; `None` while no path qualifies.
    fn texts_at_name_path(&self, is_kernel: impl Fn(&str) -> bool) -> Option<Texts<'_>> {
        let mut paths: FxHashMap<PointerPath, Texts<'_>> = FxHashMap::default();
        for (handle, texts) in &self.objects {
            for text in texts {
                paths.entry(text.path).or_default().insert(*handle, &text.text);
            }
        }
        let most = |texts: &Texts<'_>| texts.len() * 4 >= self.objects.len() * 3;
        let mut paths: Vec<_> =
            paths.into_iter().filter(|(_, texts)| most(texts) && are_distinct(texts)).collect();
        paths.sort_by_key(|(path, _)| key(*path));
        let found = paths.iter().position(|(path, texts)| {
            let kernels: FxHashSet<&str> = texts.values().copied().filter(|text| is_kernel(text)).collect();
            kernels.len() >= if path.second.is_none() { NEAR_HANDLES_MIN } else { FAR_HANDLES_MIN }
        })?;
        let (_, names) = paths.swap_remove(found);
        // `swap_remove` keeps the order of the paths before it.
        let shorter = &paths[..found];
        shorter.iter().all(|(_, texts)| contain(texts, &names)).then_some(names)
    }
}

/// Sort key: shorter paths come first.
fn key(path: PointerPath) -> (bool, u16, u16) {
    (path.second.is_some(), path.first, path.second.unwrap_or(0))
}

/// Whether most handles have different texts.
fn are_distinct(texts: &Texts<'_>) -> bool {
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

    /// Texts with their paths: `first/text`, or `first.second/text`.
    fn texts(words: &str) -> Vec<Text> {
        let text = |word: &str| {
            let (path, text) = word.split_once('/').unwrap();
            let (first, second) = match path.split_once('.') {
                None => (path, None),
                Some((first, second)) => (first, Some(second.parse().unwrap())),
            };
            Text { path: PointerPath { first: first.parse().unwrap(), second }, text: text.to_owned() }
        };
        words.split_whitespace().map(text).collect()
    }

    /// Kernels whose code was found are in capitals.
    fn is_kernel(text: &str) -> bool {
        text.bytes().all(|byte| byte.is_ascii_uppercase())
    }

    /// Checks the names of handles, `-` for none.
    fn check(objects: &[&str], expect: &str) {
        let mut evidence = NameEvidence::default();
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
    fn the_name_is_at_the_same_path_of_each_object() {
        check(&["8/A 16/sm_80", "8/B 16/sm_80"], "A B");
        check(&["8/A", "8/B", "8/unknown"], "A B -");
        check(&["0/.text.A 8/A", "0/.text.B 8/B"], "A B");
        check(&["8/A", "16/B"], "- -");
        check(&["8/A"], "-");
    }

    #[test]
    fn a_shared_text_is_no_name() {
        check(&["8/Z 24/A", "8/Z 24/B", "8/Z 24/C"], "A B C");
        check(&["24/Z", "24/Z", "24/Z"], "- - -");
        // One kernel twice among many others.
        check(&["8/A", "8/A", "8/B", "8/C", "8/D"], "- - B C D");
    }

    #[test]
    fn a_text_of_the_next_object_is_no_name() {
        // Each object is followed by the next one.
        check(&["8/A 72/B", "8/B 72/C", "8/C 72/D"], "A B C");
        // The same, but only the code of the kernels after them was found.
        check(&["8/a 72/B", "8/c 72/D", "8/e 72/F"], "- - -");
        // A few are followed by other objects.
        check(&["8/A", "8/B", "8/unknown 400/D", "8/other 400/E"], "A B - -");
        check(&["8/unknown 400/D", "8/other 400/E", "8/more", "8/yet"], "- - - -");
    }

    #[test]
    fn nearer_names_are_preferred_to_those_of_neighbours() {
        check(&["8/A 16.8/B", "8/B 16.8/C", "8/unknown 16.8/A"], "A B -");
        check(&["8/a 16.8/B", "8/b 16.8/C", "8/c 16.8/D", "8/d 16.8/E"], "- - - -");
    }

    #[test]
    fn the_texts_kept_are_bounded() {
        let text = |n: u64| format!("{n:04}{}", "x".repeat((1 << 20) - 4));
        let long = |n: u64| vec![Text { path: PointerPath { first: 8, second: None }, text: text(n) }];
        let mut evidence = NameEvidence::default();
        assert_eq!((0..40).filter(|n| evidence.put(*n, long(*n))).count(), 16);
        assert!(!evidence.put(3, Vec::new()));
        assert!(evidence.put(50, long(50)), "there is room again");
        assert_eq!(evidence.bytes, 16 << 20);
    }

    #[test]
    fn a_path_of_two_pointers_needs_four_distinct_names() {
        check(&["16.8/A", "16.8/B", "16.8/C"], "- - -");
        check(&["16.8/A 24.0/Z", "16.8/B 24.0/Z", "16.8/C 24.0/Z", "16.8/D 24.0/Z"], "A B C D");
        check(&["16.8/A", "16.8/A", "16.8/C", "16.8/C"], "- - - -");
    }
}
