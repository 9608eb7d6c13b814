//! Tensors: what a probe read of an operator's tensors → plausible sizes, their text, and the work that a model
//! derives.
//!
//! Owns: the checks. Because: the fields are found by their offsets within an object of another program, where
//! anything may be. Does not: show a tensor of which any field is implausible.

use deepctx_events::Role;
use deepctx_profile::operator::operand::Operand;
use deepctx_profile::operator::work::{self, Convolution, Element, Layout, Tensor, Work};

/// Most sizes stored inline; those of a larger tensor are elsewhere.
const SIZES_MAX: u64 = 5;
/// Largest plausible stride, padding or dilation.
const REPORTED_MAX: u64 = 1 << 20;

/// Largest plausible number of tensors in a list.
const LIST_MAX: u64 = 1 << 20;

/// The reported tensors of an operator.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReportedTensors {
    /// Its operands.
    pub(super) operands: Vec<Operand>,
    /// Required tensors, or `None` for one that was not understood.
    needed: Vec<Option<Tensor>>,
    /// How many were not understood.
    pub(super) unknown: usize,
    convolution: Option<Convolution>,
}

impl ReportedTensors {
    /// Reads arguments, each with its role; `None` for one that could not be read.
    pub(super) fn of(arguments: impl Iterator<Item = (Role, Option<u64>)>) -> Self {
        let mut tensors = Self::default();
        let mut reading = Reading::default();
        let [mut stride, mut padding, mut dilation]: [Vec<Option<u64>>; 3] = Default::default();
        let mut transposed = None;
        for (role, value) in arguments {
            match role {
                Role::TensorThere => {
                    tensors.take(std::mem::take(&mut reading));
                    reading.kind = Kind::Optional(value);
                }
                Role::ListLength => {
                    tensors.take(std::mem::take(&mut reading));
                    tensors.list(value);
                }
                Role::TensorRank | Role::ItemRank => {
                    let begun = matches!(reading.kind, Kind::Optional(_)) && reading.rank.is_none();
                    if !begun {
                        tensors.take(std::mem::take(&mut reading));
                        reading.kind = if role == Role::ItemRank { Kind::Item } else { Kind::Needed };
                    }
                    reading.rank = Some(value);
                }
                Role::TensorType | Role::TensorTypeOld => {
                    let old = role == Role::TensorTypeOld;
                    reading.element = value.and_then(|number| Element::of_torch(number, old));
                }
                Role::TensorSize => reading.sizes.push(value),
                Role::TensorStride => reading.strides.push(value),
                Role::Stride => stride.push(value),
                Role::Padding => padding.push(value),
                Role::Dilation => dilation.push(value),
                Role::Transposed => transposed = value,
                _ => {}
            }
        }
        tensors.take(reading);
        let rank = tensors.needed.first().and_then(Option::as_ref).map_or(0, |tensor| tensor.sizes().len());
        let of_rank = |list: &[_]| numbers(list, rank.saturating_sub(2));
        let [stride, padding, dilation] = [of_rank(&stride), of_rank(&padding), of_rank(&dilation)];
        if let (Some(stride), Some(padding), Some(dilation)) = (stride, padding, dilation) {
            // Some variants have no such parameter.
            let transposed = transposed.unwrap_or(0);
            tensors.convolution = (transposed <= 1).then_some(Convolution {
                stride,
                padding,
                dilation,
                transposed: transposed == 1,
            });
        }
        tensors
    }

    /// Adds the length of a list, whose items follow.
    fn list(&mut self, length: Option<u64>) {
        let length = length.filter(|length| *length <= LIST_MAX);
        self.unknown += usize::from(length.is_none());
        self.operands.push(match length {
            Some(length) => Operand::List(length, Vec::new()),
            None => Operand::Unknown,
        });
    }

    /// Adds the values read from one tensor.
    fn take(&mut self, reading: Reading) {
        let tensor = reading.tensor();
        match reading.kind {
            Kind::Nothing => {}
            Kind::Optional(Some(0)) => self.operands.push(Operand::Absent),
            Kind::Item => {
                // The memory after the end of a list is unrelated, and items of a list of unknown length are unknown.
                if let Some(Operand::List(length, items)) = self.operands.last_mut()
                    && (items.len() as u64) < *length
                {
                    self.unknown += usize::from(tensor.is_none());
                    items.push(tensor);
                }
            }
            Kind::Needed | Kind::Optional(_) => {
                let needed = reading.kind == Kind::Needed;
                let there = needed || reading.kind == Kind::Optional(Some(1));
                let tensor = tensor.filter(|_| there);
                self.unknown += usize::from(tensor.is_none());
                self.operands.push(tensor.map_or(Operand::Unknown, Operand::Tensor));
                if needed {
                    self.needed.push(tensor);
                }
            }
        }
    }

    /// The work of an operator on them, if all necessary ones are known.
    pub(super) fn work(&self, operator: &str) -> Option<Work> {
        let tensors: Vec<Tensor> = self.needed.iter().copied().collect::<Option<_>>()?;
        work::work(operator, &tensors, self.convolution.as_ref())
    }
}

/// The role of a tensor for its operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    /// None was begun.
    #[default]
    Nothing,
    Needed,
    /// With the value that shows whether it is present.
    Optional(Option<u64>),
    Item,
}

#[derive(Default)]
struct Reading {
    kind: Kind,
    rank: Option<Option<u64>>,
    element: Option<Element>,
    sizes: Vec<Option<u64>>,
    strides: Vec<Option<u64>>,
}

impl Reading {
    fn tensor(&self) -> Option<Tensor> {
        let rank = self.rank.flatten().filter(|rank| *rank <= SIZES_MAX)?;
        let rank = usize::try_from(rank).ok()?;
        let sizes: Vec<u64> = self.sizes.get(..rank)?.iter().copied().collect::<Option<_>>()?;
        // A symbolic size (`c10::SymInt`) is a negative number.
        let plain = |numbers: &[u64]| numbers.iter().all(|number| *number <= i64::MAX as u64);
        let tensor = plain(&sizes).then(|| Tensor::new(self.element?, &sizes))??;
        let strides: Option<Vec<u64>> =
            self.strides.get(..rank).and_then(|strides| strides.iter().copied().collect());
        let strides = strides.filter(|strides| plain(strides));
        let layout = strides.map_or(Layout::Unknown, |strides| Layout::of(&sizes, &strides));
        Some(tensor.with_layout(layout))
    }
}

/// A list of numbers: its length, then up to three; one number applies to all dimensions.
fn numbers(read: &[Option<u64>], dimensions: usize) -> Option<[u64; 3]> {
    let (length, numbers) = read.split_first()?;
    let length = usize::try_from((*length)?).ok()?;
    if dimensions == 0 || dimensions > 3 || length != 1 && length != dimensions {
        return None;
    }
    let mut all = [1; 3];
    for (at, to) in all.iter_mut().enumerate().take(dimensions) {
        *to = (*numbers.get(if length == 1 { 0 } else { at })?).filter(|number| *number <= REPORTED_MAX)?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use deepctx_profile::operator::operand;

    use super::*;

    fn tensor(rank: u64, kind: u64, sizes: [u64; 5]) -> Vec<(Role, Option<u64>)> {
        let mut all = vec![(Role::TensorRank, Some(rank)), (Role::TensorType, Some(kind))];
        all.extend(sizes.map(|size| (Role::TensorSize, Some(size))));
        all
    }

    fn with_strides<const N: usize>(
        mut tensor: Vec<(Role, Option<u64>)>,
        strides: [u64; N],
    ) -> Vec<(Role, Option<u64>)> {
        tensor.extend(strides.map(|stride| (Role::TensorStride, Some(stride))));
        tensor
    }

    fn text(arguments: Vec<(Role, Option<u64>)>) -> String {
        operand::text(&ReportedTensors::of(arguments.into_iter()).operands, false)
    }

    #[test]
    fn tensors_are_read_one_after_the_other() {
        // Values after the existing sizes are ignored.
        let a = with_strides(tensor(2, 6, [32, 64, u64::MAX, 7, 7]), [64, 1, 5]);
        let b = with_strides(tensor(2, 6, [64, 128, 0, 0, 0]), [1, 64]);
        let both: Vec<_> = a.iter().chain(&b).copied().collect();
        assert_eq!(text(both.clone()), "[32x64, 64x128 (transposed)] f32");
        let work = ReportedTensors::of(both.into_iter()).work("aten::mm").unwrap();
        assert_eq!((work.flops, work.bytes), (2 * 32 * 64 * 128, Some(4 * (32 * 64 + 64 * 128 + 32 * 128))));
        assert_eq!(text(tensor(0, 7, [0; 5])), "[scalar] f64");
        assert_eq!(text(with_strides(tensor(2, 6, [3, 4, 0, 0, 0]), [4])), "[3x4 (strides ?)] f32");
        assert_eq!(text(with_strides(tensor(1, 6, [3, 4, 0, 0, 0]), [u64::MAX])), "[3 (strides ?)] f32");
    }

    #[test]
    fn optional_tensor_is_read_only_when_present() {
        let x = with_strides(tensor(2, 6, [2, 3, 0, 0, 0]), [3, 1]);
        let bias = with_strides(tensor(1, 6, [3, 0, 0, 0, 0]), [1]);
        let garbage = with_strides(tensor(77, 99, [u64::MAX; 5]), [5]);
        let with = |there: Option<u64>, bias: &[(Role, Option<u64>)]| {
            let all = [&x[..], &[(Role::TensorThere, there)], bias, &x].concat();
            (text(all.clone()), ReportedTensors::of(all.into_iter()).work("aten::mul.Tensor").is_some())
        };
        assert_eq!(with(Some(1), &bias), ("[2x3, 3, 2x3] f32".to_owned(), true));
        assert_eq!(with(Some(0), &garbage), ("[2x3, none, 2x3] f32".to_owned(), true));
        assert_eq!(with(Some(1), &garbage), ("[2x3, ?, 2x3] f32".to_owned(), true));
        assert_eq!(with(Some(7), &bias), ("[2x3, ?, 2x3] f32".to_owned(), true));
        assert_eq!(with(None, &bias), ("[2x3, ?, 2x3] f32".to_owned(), true));
    }

    #[test]
    fn a_list_ends_where_it_says() {
        let item = |size: u64| {
            let mut item = with_strides(tensor(1, 6, [size, 0, 0, 0, 0]), [1]);
            item[0].0 = Role::ItemRank;
            item
        };
        let of = |length: Option<u64>| {
            text([vec![(Role::ListLength, length)], item(4), item(5), tensor(0, 6, [0; 5])].concat())
        };
        assert_eq!(of(Some(2)), "[list(4, 5), scalar] f32");
        assert_eq!(of(Some(9)), "[list(4, 5 of 9), scalar] f32");
        assert_eq!(of(Some(1)), "[list(4), scalar] f32");
        assert_eq!(of(Some(0)), "[list(), scalar] f32");
        assert_eq!(of(Some(u64::MAX)), "[?, scalar] f32");
        assert_eq!(of(None), "[?, scalar] f32");
    }

    #[test]
    fn what_cannot_be_is_not_shown() {
        assert_eq!(text(tensor(65, 6, [1; 5])), "[?]");
        assert_eq!(text(tensor(6, 6, [1; 5])), "[?]");
        assert_eq!(text(tensor(2, 99, [1; 5])), "[?]");
        assert_eq!(text(tensor(2, 6, [1, u64::MAX - 3, 0, 0, 0])), "[?]");
        let mut unread = tensor(2, 6, [1; 5]);
        unread[3].1 = None;
        assert_eq!(text(unread.clone()), "[?]");
        assert_eq!(ReportedTensors::of(unread.into_iter()).work("aten::relu"), None);
        assert_eq!(text(Vec::new()), "[]");
        assert_eq!(text(vec![(Role::TensorSize, Some(1)), (Role::Stride, None)]), "[]");
    }

    #[test]
    fn one_number_of_a_convolution_stands_for_all_dimensions() {
        let list = |role, length: u64, numbers: [u64; 3]| {
            let numbers = numbers.map(|number| (role, Some(number)));
            [vec![(role, Some(length))], numbers.to_vec()].concat()
        };
        let of = |stride: u64| {
            [
                tensor(4, 6, [2, 3, 8, 8, 0]),
                tensor(4, 6, [4, 3, 3, 3, 0]),
                list(Role::Stride, stride, [2, 2, 0]),
                list(Role::Padding, 2, [1, 1, 9]),
                list(Role::Dilation, 1, [1, 0, 0]),
                vec![(Role::Transposed, Some(0)), (Role::Groups, Some(1))],
            ]
            .concat()
        };
        for length in [1, 2] {
            let tensors = ReportedTensors::of(of(length).into_iter());
            assert_eq!(tensors.work("aten::convolution").unwrap().flops, 2 * 2 * 16 * 108);
        }
        assert_eq!(ReportedTensors::of(of(5).into_iter()).work("aten::convolution"), None);
    }
}
