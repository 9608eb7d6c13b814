//! Tensors: what a probe read of an operator's tensors → sizes that can be, their text, and the work that a model derives.
//!
//! Owns: the checks. Because: the fields are found by their distances within an object of another program: what lies there
//! may be anything. Does not: show a tensor of which anything is not as it must be.

use deepctx_profile::model::{self, Convolution, Element, Tensor, Work};
use deepctx_uprobes::role::Role;

/// Most sizes in place; of a tensor with more they lie elsewhere.
const SIZES_MAX: u64 = 5;
/// Values of strides, paddings and dilations beyond which something else was read.
const TOLD_MAX: u64 = 1 << 20;

/// What was told of an operator's tensors.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Each tensor, or nothing where it is undefined or was not understood.
    pub(super) tensors: Vec<Option<Tensor>>,
    convolution: Option<Convolution>,
}

impl Told {
    /// Reads arguments, each with its role; `None` for one that could not be read.
    pub(super) fn of(arguments: impl Iterator<Item = (Role, Option<u64>)>) -> Self {
        let mut told = Self::default();
        let mut reading: Option<Reading> = None;
        let mut lists: [Vec<Option<u64>>; 3] = Default::default();
        let mut transposed = None;
        for (role, value) in arguments {
            let list = match role {
                Role::TensorRank => {
                    told.tensors.extend(reading.take().map(|reading| reading.tensor()));
                    reading = Some(Reading { rank: value, ..Reading::default() });
                    continue;
                }
                Role::TensorType | Role::TensorTypeOld => {
                    if let Some(reading) = &mut reading {
                        let old = role == Role::TensorTypeOld;
                        reading.element = value.and_then(|number| Element::of_torch(number, old));
                    }
                    continue;
                }
                Role::TensorSize => {
                    if let Some(reading) = &mut reading {
                        reading.sizes.push(value);
                    }
                    continue;
                }
                Role::Stride => 0,
                Role::Padding => 1,
                Role::Dilation => 2,
                Role::Transposed => {
                    transposed = value;
                    continue;
                }
                _ => continue,
            };
            lists[list].push(value);
        }
        told.tensors.extend(reading.map(|reading| reading.tensor()));
        let rank = told.tensors.first().and_then(Option::as_ref).map_or(0, |tensor| tensor.sizes().len());
        let [stride, padding, dilation] = lists.map(|list| numbers(&list, rank.saturating_sub(2)));
        if let (Some(stride), Some(padding), Some(dilation)) = (stride, padding, dilation) {
            // Those of one kind have no such parameter.
            let transposed = transposed.unwrap_or(0);
            told.convolution = (transposed <= 1).then_some(Convolution {
                stride,
                padding,
                dilation,
                transposed: transposed == 1,
            });
        }
        told
    }

    /// The work of an operator on them, when all of them are known.
    pub(super) fn work(&self, operator: &str) -> Option<Work> {
        let tensors: Vec<Tensor> = self.tensors.iter().copied().collect::<Option<_>>()?;
        model::work(operator, &tensors, self.convolution.as_ref())
    }
}

#[derive(Default)]
struct Reading {
    rank: Option<u64>,
    element: Option<Element>,
    sizes: Vec<Option<u64>>,
}

impl Reading {
    fn tensor(&self) -> Option<Tensor> {
        let rank = self.rank.filter(|rank| *rank <= SIZES_MAX)?;
        let sizes: Vec<u64> =
            self.sizes.get(..usize::try_from(rank).ok()?)?.iter().copied().collect::<Option<_>>()?;
        // A size that is not a number yet (`c10::SymInt`) is a negative one.
        let plain = sizes.iter().all(|size| *size <= i64::MAX as u64);
        plain.then(|| Tensor::new(self.element?, &sizes))?
    }
}

/// A list of numbers: its length, then up to three; one number stands for all dimensions.
fn numbers(read: &[Option<u64>], dimensions: usize) -> Option<[u64; 3]> {
    let (length, numbers) = read.split_first()?;
    let length = usize::try_from((*length)?).ok()?;
    if dimensions == 0 || dimensions > 3 || length != 1 && length != dimensions {
        return None;
    }
    let mut all = [1; 3];
    for (at, to) in all.iter_mut().enumerate().take(dimensions) {
        *to = (*numbers.get(if length == 1 { 0 } else { at })?).filter(|number| *number <= TOLD_MAX)?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(rank: u64, kind: u64, sizes: [u64; 5]) -> Vec<(Role, Option<u64>)> {
        let mut all = vec![(Role::TensorRank, Some(rank)), (Role::TensorType, Some(kind))];
        all.extend(sizes.map(|size| (Role::TensorSize, Some(size))));
        all
    }

    fn text(arguments: Vec<(Role, Option<u64>)>) -> String {
        model::text(&Told::of(arguments.into_iter()).tensors, false)
    }

    #[test]
    fn tensors_are_read_one_after_the_other() {
        // What lies behind the sizes that there are is not looked at.
        let a = tensor(2, 6, [32, 64, u64::MAX, 7, 7]);
        let b = tensor(2, 6, [64, 128, 0, 0, 0]);
        let both: Vec<_> = a.iter().chain(&b).copied().collect();
        assert_eq!(text(both.clone()), "[32x64, 64x128] f32");
        let work = Told::of(both.into_iter()).work("aten::mm").unwrap();
        assert_eq!((work.flops, work.bytes), (2 * 32 * 64 * 128, Some(4 * (32 * 64 + 64 * 128 + 32 * 128))));
        assert_eq!(text(tensor(0, 7, [0; 5])), "[scalar] f64");
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
        assert_eq!(Told::of(unread.into_iter()).work("aten::relu"), None);
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
            let told = Told::of(of(length).into_iter());
            assert_eq!(told.work("aten::convolution").unwrap().flops, 2 * 2 * 16 * 108);
        }
        assert_eq!(Told::of(of(5).into_iter()).work("aten::convolution"), None);
    }
}
