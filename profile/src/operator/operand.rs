//! Operands: the arguments of an operator, as text.
//!
//! Owns: the text, and which names have it. Because: calls with tensors of the same kind share one frame, and only the
//! text distinguishes frames. Does not: guess: an unknown tensor is `?`, and so is an unknown layout.
//!
//! ```text
//! [128, 32x64, 64x128 (transposed)] f32
//! [32x64 f32, 9 i64]                                        of several types
//! [list(2x3, 2x4, 2x5 of 8)] f32                            a list of eight, of which three are known
//! [8x3x16x16 (strides ?), 4x3x3x3 (strides ?), …] f32       layouts are unknown, and whether there are others
//! [32x64, none] f32                                         an optional tensor that was not passed
//! ```

use crate::operator::work::{Element, Layout, Tensor};

/// An argument of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A tensor.
    Tensor(Tensor),
    /// An optional tensor that was not passed.
    Absent,
    /// A list of this many tensors, and its first ones.
    List(u64, Vec<Option<Tensor>>),
    /// An undefined tensor, or an argument that could not be decoded.
    Unknown,
}

impl Operand {
    fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Self::Tensor(tensor) => vec![tensor],
            Self::List(_, first) => first.iter().flatten().collect(),
            Self::Absent | Self::Unknown => Vec::new(),
        }
    }
}

/// Operands as shown below their operator, with one type for all, or one for each if they differ. `others`: the
/// operator may have more.
pub fn text(operands: &[Operand], others: bool) -> String {
    let mut types = operands.iter().flat_map(Operand::tensors).map(|tensor| tensor.element);
    let first = types.next();
    let same = first.filter(|first| types.all(|other| other == *first));
    let mut parts: Vec<String> = operands.iter().map(|operand| one(operand, same)).collect();
    if others {
        parts.push("…".to_owned());
    }
    let list = format!("[{}]", parts.join(", "));
    same.map_or_else(|| list.clone(), |element| format!("{list} {}", element.name))
}

/// Whether the name of an operator's frame ends with its operands. In their place, names of compiled code have notes:
/// `jit(f)/mul [fused: exp]`.
pub fn has_operands(name: &str) -> bool {
    const NOTES: [&str; 2] = ["fused: ", "or: "];
    name.split_once(" [").is_some_and(|(_, rest)| !NOTES.iter().any(|note| rest.starts_with(note)))
}

fn one(operand: &Operand, same: Option<Element>) -> String {
    match operand {
        Operand::Tensor(one) => tensor(one, same),
        Operand::Absent => "none".to_owned(),
        Operand::List(length, first) => {
            let each =
                |item: &Option<Tensor>| item.as_ref().map_or("?".to_owned(), |item| tensor(item, same));
            let known: Vec<String> = first.iter().map(each).collect();
            let more = if (known.len() as u64) < *length { format!(" of {length}") } else { String::new() };
            format!("list({}{more})", known.join(", "))
        }
        Operand::Unknown => "?".to_owned(),
    }
}

fn tensor(tensor: &Tensor, same: Option<Element>) -> String {
    let joined = |numbers: &[u64]| numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
    let sizes = tensor.sizes();
    let mut text = if sizes.is_empty() { "scalar".to_owned() } else { joined(sizes) };
    match tensor.layout {
        Layout::Contiguous => {}
        Layout::Unknown => text.push_str(" (strides ?)"),
        Layout::Transposed => text.push_str(" (transposed)"),
        Layout::ChannelsLast => text.push_str(" (channels last)"),
        Layout::Strided(strides) => {
            let strides = strides.get(..sizes.len()).unwrap_or_default();
            text.push_str(&format!(" (strides {})", joined(strides)));
        }
    }
    if same.is_none() {
        text.push_str(&format!(" {}", tensor.element.name));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: u64, sizes: &[u64], strides: &[u64]) -> Tensor {
        let element = Element::of_torch(kind, false).unwrap();
        Tensor::new(element, sizes).unwrap().with_layout(Layout::of(sizes, strides))
    }

    #[test]
    fn operands_are_written_with_their_types() {
        let [a, b] = [of(6, &[32, 64], &[64, 1]), of(6, &[64, 128], &[1, 64])];
        let long = of(4, &[9], &[1]);
        let scalar = of(6, &[], &[]);
        let unknown = of(6, &[2, 3, 4], &[12]);
        let list = |length, items: &[crate::operator::work::Tensor]| {
            Operand::List(length, items.iter().copied().map(Some).collect())
        };
        use Operand::{Absent, List, Tensor, Unknown};
        for (operands, others, expect) in [
            (vec![Tensor(a), Tensor(b)], false, "[32x64, 64x128 (transposed)] f32"),
            (vec![Tensor(b), Tensor(long)], false, "[64x128 (transposed) f32, 9 i64]"),
            (vec![Tensor(scalar), Unknown], true, "[scalar, ?, …] f32"),
            (vec![Unknown], false, "[?]"),
            (vec![Tensor(unknown), Absent], false, "[2x3x4 (strides ?), none] f32"),
            (vec![list(2, &[a, a])], false, "[list(32x64, 32x64)] f32"),
            (vec![list(8, &[a, long]), Absent], false, "[list(32x64 f32, 9 i64 of 8), none]"),
            (vec![List(1, vec![None])], false, "[list(?)]"),
            (vec![List(0, vec![])], false, "[list()]"),
        ] {
            assert_eq!(text(&operands, others), expect);
        }
    }

    #[test]
    fn notes_of_compilers_are_no_operands() {
        for (name, expect) in [
            ("aten::mm [32x64, 64x8] f32", true),
            ("aten::cat [list()]", true),
            ("aten::mm", false),
            ("jit(f)/jvp(gate)/div [fused: neg, exp]", false),
            ("jit(f)/tanh net.py:7 [or: jit(f)/tanh net.py:8]", false),
        ] {
            assert_eq!(has_operands(name), expect, "{name}");
        }
    }

    #[test]
    fn a_layout_is_told_by_strides() {
        #[track_caller]
        fn check(sizes: &[u64], strides: &[u64], expect: Layout) {
            assert_eq!(Layout::of(sizes, strides), expect, "{sizes:?} {strides:?}");
        }
        let strided = |strides: &[u64]| {
            let mut all = [0; 5];
            all[..strides.len()].copy_from_slice(strides);
            Layout::Strided(all)
        };
        check(&[2, 3, 4], &[12, 4, 1, 99, 99], Layout::Contiguous);
        check(&[], &[], Layout::Contiguous);
        check(&[0, 3], &[7, 7], Layout::Contiguous);
        // A dimension of one element has no next one.
        check(&[2, 1, 4], &[4, 99, 1], Layout::Contiguous);
        check(&[64, 128], &[1, 64], Layout::Transposed);
        check(&[5, 7, 6], &[42, 1, 7], Layout::Transposed);
        check(&[2, 3, 8, 8], &[192, 1, 24, 3], Layout::ChannelsLast);
        check(&[2, 3, 4, 5, 6], &[360, 1, 90, 18, 3], Layout::ChannelsLast);
        check(&[4, 3], &[0, 1], strided(&[0, 1]));
        check(&[4, 3], &[6, 2], strided(&[6, 2]));
        check(&[4, 3, 2], &[6, 2], Layout::Unknown);
        check(&[u64::MAX, u64::MAX, 2], &[2, 2, 1], strided(&[2, 2, 1]));
    }
}
