//! Names in the columns of tables.
//!
//! Owns: [`Names`], [`short_column`], [`ShortNames`]. Because: the names of kernels begin and end alike, and rows that
//! differ must not read the same. Does not: know the parts of a name; [`short_labels`] does.

use std::collections::{BTreeMap, BTreeSet};

use deepctx_profile::frame::{FrameKind, short_labels};

use super::without_middle;

/// How often names that read the same are cut at another place, before they get numbers.
const ROUNDS: usize = 4;
/// Characters shown before a difference.
const BEFORE: usize = 3;

/// Which names tables show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Short ones, which fit their columns.
    #[default]
    Short,
    /// Full ones, however long they are.
    Full,
}

impl Names {
    /// The width of a column of names; that of full ones is `usize::MAX`.
    pub(super) fn width(self, width: usize) -> usize {
        if self == Self::Full { usize::MAX } else { width }
    }
}

/// The names of one column, in their order, with at most `width` characters each. Equal names get equal texts,
/// different names different ones. With [`Names::Full`], they stay as they are.
pub(in crate::render) fn short_column<'n>(
    names: impl IntoIterator<Item = (FrameKind, &'n str)>,
    width: usize,
) -> Vec<String> {
    let names: Vec<(FrameKind, &str)> = names.into_iter().collect();
    if width == usize::MAX {
        return names.into_iter().map(|(_, name)| name.to_owned()).collect();
    }
    let short = short_labels(names);
    let texts = short.iter().map(|of| (of.as_str(), without_middle(of, width))).collect();
    let mut cut = Cut { texts, width };
    for _ in 0..ROUNDS {
        cut.apart();
    }
    cut.number();
    short.iter().map(|of| cut.texts.get(of.as_str()).cloned().unwrap_or_default()).collect()
}

/// The same for kernels of devices.
pub(in crate::render) fn short_kernels<'n>(
    names: impl IntoIterator<Item = &'n String>,
    width: usize,
) -> Vec<String> {
    short_column(names.into_iter().map(|name| (FrameKind::GpuKernel, name.as_str())), width)
}

/// The names of one column, to look up.
pub(in crate::render) struct ShortNames<'n>(BTreeMap<&'n str, String>);

impl<'n> ShortNames<'n> {
    /// As [`short_column`] shortens these.
    pub(in crate::render) fn of(names: impl IntoIterator<Item = (FrameKind, &'n str)>, width: usize) -> Self {
        let names: Vec<(FrameKind, &str)> = names.into_iter().collect();
        let short = short_column(names.iter().copied(), width);
        Self(names.iter().map(|(_, name)| *name).zip(short).collect())
    }

    /// What is shown of a name.
    pub(in crate::render) fn get<'s>(&'s self, name: &'s str) -> &'s str {
        self.0.get(name).map_or(name, String::as_str)
    }
}

/// Names with what is shown of them.
struct Cut<'n> {
    texts: BTreeMap<&'n str, String>,
    width: usize,
}

impl<'n> Cut<'n> {
    /// Names that read the same.
    fn alike(&self) -> Vec<Vec<&'n str>> {
        let mut by_text: BTreeMap<&str, Vec<&'n str>> = BTreeMap::new();
        for (name, text) in &self.texts {
            by_text.entry(text).or_default().push(*name);
        }
        by_text.into_values().filter(|names| names.len() > 1).collect()
    }

    /// Shows the first difference of names that read the same.
    fn apart(&mut self) {
        for names in self.alike() {
            let from = first_difference(&names);
            for name in names {
                self.texts.insert(name, with_difference(name, from, self.width));
            }
        }
    }

    /// Numbers names that still read the same: they differ at more places than they have room for.
    fn number(&mut self) {
        let width = self.width;
        let mut taken: BTreeSet<String> = self.texts.values().cloned().collect();
        // By begin of the text: the last number. Searching from 1 again would take quadratic time.
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for names in self.alike() {
            for name in names.into_iter().filter(|name| name.chars().count() > width) {
                let last = last.entry(numbered(name, 1, width)).or_default();
                let text = loop {
                    *last += 1;
                    let text = numbered(name, *last, width);
                    if taken.insert(text.clone()) {
                        break text;
                    }
                };
                self.texts.insert(name, text);
            }
        }
    }
}

/// Number of characters with which all of these names begin.
fn first_difference(names: &[&str]) -> usize {
    let Some((first, others)) = names.split_first() else { return 0 };
    let same = |other: &&str| first.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    others.iter().map(same).min().unwrap_or(0)
}

/// The begin of a name, and what follows the first `from` characters.
fn with_difference(name: &str, from: usize, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let room = width - width / 3 - 1;
    let start = from.saturating_sub(BEFORE);
    let rest = length.saturating_sub(start);
    // The end of the name has room: then more of its begin is shown.
    let (shown, more) = if rest <= room { (rest, "") } else { (room.saturating_sub(1), "…") };
    let begin = width.saturating_sub(1 + shown + more.chars().count());
    if start <= begin {
        return name.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    let shown = name.chars().skip(start).take(shown);
    name.chars().take(begin).chain(['…']).chain(shown).chain(more.chars()).collect()
}

fn numbered(name: &str, number: u64, width: usize) -> String {
    let number = format!("… #{number}");
    name.chars().take(width.saturating_sub(number.chars().count())).chain(number.chars()).collect()
}

/// Names of a column, among which are such that have no parts: they are only cut.
pub(super) fn cut_names<'n>(names: impl IntoIterator<Item = &'n String>, width: usize) -> Vec<String> {
    short_column(names.into_iter().map(|name| (FrameKind::Operator, name.as_str())), width)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(width: usize, names_and_shown: &[(&str, &str)]) {
        let shown = short_column(names_and_shown.iter().map(|(name, _)| (FrameKind::Operator, *name)), width);
        let expect: Vec<&str> = names_and_shown.iter().map(|(_, shown)| *shown).collect();
        assert_eq!(shown, expect);
    }

    #[test]
    fn names_that_differ_in_the_middle_keep_what_differs() {
        check(
            15,
            &[
                ("aaaaaaaaaaaaaaaaaaaa", "aaaaaaa…aaaaaaa"),
                ("begin.of.names.one.and.their.end", "begin…es.one.a…"),
                ("begin.of.names.two.and.their.end", "begin…es.two.a…"),
                ("begin.of.names.two.and.their.end", "begin…es.two.a…"),
                ("short", "short"),
            ],
        );
    }

    #[test]
    fn names_that_differ_too_often_get_numbers() {
        let name = |first: &str, second: &str| format!("{}{first}{}{second}", "a".repeat(40), "b".repeat(40));
        let names = [name("1", "1"), name("1", "2"), name("2", "1"), name("2", "2")];
        let shown = short_column(names.iter().map(|name| (FrameKind::Operator, name.as_str())), 12);
        assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), 4, "{shown:?}");
    }

    #[test]
    fn full_names_stay_as_they_are() {
        let name = format!("void f<{}>(int)", "a".repeat(300));
        assert_eq!(short_kernels([&name], Names::Full.width(56)), [name]);
    }

    #[test]
    fn kernels_have_their_short_names() {
        let kernel =
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, 2>(int)";
        assert_eq!(
            short_kernels([&kernel.to_owned()], 80),
            ["at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor, 2>"]
        );
    }

    proptest! {
        #[test]
        fn different_names_never_read_the_same(
            names in prop::collection::btree_set(
                "(void )?(a{1,20}|b{1,20}|a::b|<a>|…| #1|é){1,8}(x{20,40})?[ab](y{20,40})?[ab]?(\\(int\\))?",
                1..16,
            ),
            width in 12usize..60,
        ) {
            for kind in [FrameKind::GpuKernel, FrameKind::Native, FrameKind::Operator] {
                let shown = short_column(names.iter().map(|name| (kind, name.as_str())), width);
                let distinct: BTreeSet<&String> = shown.iter().collect();
                prop_assert_eq!(distinct.len(), names.len(), "{:?} {:?}", &names, &shown);
                prop_assert!(shown.iter().all(|text| text.chars().count() <= width), "{:?}", &shown);
            }
        }
    }
}
