//! Operator work: the arithmetic and the memory traffic of an operator, computed from the sizes of its tensors.
//!
//! Owns: the formulas, and the sizes of elements. Because: floating-point operations and bytes over time show how far
//! a device is from its limits, without any hardware counter. Does not: measure: modeled values are never mixed with
//! measured ones.
//!
//! | operators | floating-point operations |
//! |---|---|
//! | `mm`, `addmm`, `bmm`, `baddbmm`, `matmul`, `linear` | 2 for each product of two elements; what is added besides is left out |
//! | `convolution`, `conv1d`, `conv2d`, `conv3d` | 2 for each element of the filter and each place that it is applied to |
//! | scaled dot-product attention | those of its two products of matrices |
//! | `layer_norm`, `native_layer_norm`, `batch_norm`, `native_batch_norm` | 8 for each element: mean 1, variance 3, scaling 2, weight and bias 2 |
//! | `_softmax`, `_log_softmax` | 5 for each element: largest, difference, power, sum, quotient |
//! | element-wise with one or two tensors | 1 for each element of the result |
//!
//! Bytes are those of all tensors read and of the result, once each. The first three lines count as
//! `torch.utils.flop_counter` does.

/// Most sizes of a tensor.
pub const SIZES_MAX: usize = 5;
/// Most tensors of an operator.
pub const TENSORS_MAX: usize = 3;

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// Display name: `f32`.
    pub name: &'static str,
    /// Bytes of one.
    pub bytes: u8,
}

/// Types of elements by the number that PyTorch gives them (`c10/core/ScalarType.h`).
const ELEMENTS: [(u16, &str, u8); 23] = [
    (0, "u8", 1),
    (1, "i8", 1),
    (2, "i16", 2),
    (3, "i32", 4),
    (4, "i64", 8),
    (5, "f16", 2),
    (6, "f32", 4),
    (7, "f64", 8),
    (8, "c32", 4),
    (9, "c64", 8),
    (10, "c128", 16),
    (11, "bool", 1),
    (12, "qi8", 1),
    (13, "qu8", 1),
    (14, "qi32", 4),
    (15, "bf16", 2),
    // Later numbers had another meaning, or none, before 2.4.
    (23, "f8e5m2", 1),
    (24, "f8e4m3fn", 1),
    (25, "f8e5m2fnuz", 1),
    (26, "f8e4m3fnuz", 1),
    (27, "u16", 2),
    (28, "u32", 4),
    (29, "u64", 8),
];

impl Element {
    /// The type of a number; `old`: before 2.4. `None` for an unknown number, or for "no type".
    pub fn of_torch(number: u64, old: bool) -> Option<Self> {
        let known = ELEMENTS.iter().find(|(n, ..)| u64::from(*n) == number)?;
        (!old || number < 16).then_some(Self { name: known.1, bytes: known.2 })
    }
}

/// A tensor: the type of its elements and its sizes, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Type of its elements.
    pub element: Element,
    /// How its elements are laid out in memory.
    pub layout: Layout,
    sizes: [u64; SIZES_MAX],
    rank: u8,
}

/// How the elements of a tensor are laid out in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Not reported, or could not be decoded.
    #[default]
    Unknown,
    /// One after the other, the last dimension first.
    Contiguous,
    /// Contiguous after exchanging the last two dimensions.
    Transposed,
    /// For images or volumes: contiguous with the channels, the second dimension, moved to the end.
    ChannelsLast,
    /// Anything else: the stride of each dimension.
    Strided([u64; SIZES_MAX]),
}

impl Layout {
    /// The layout of a tensor with these sizes and strides; the stride of a dimension of size 1 does not matter.
    pub fn of(sizes: &[u64], strides: &[u64]) -> Self {
        let Some(strides) = strides.get(..sizes.len()) else { return Self::Unknown };
        let dense = |order: &mut dyn Iterator<Item = usize>| {
            let mut expected = 1_u64;
            order.filter(|at| sizes[*at] != 1).all(|at| {
                let fits = strides[at] == expected;
                expected = expected.saturating_mul(sizes[at]);
                fits
            })
        };
        let rank = sizes.len();
        if sizes.contains(&0) || dense(&mut (0..rank).rev()) {
            return Self::Contiguous;
        }
        if rank >= 2 && dense(&mut [rank - 2, rank - 1].into_iter().chain((0..rank - 2).rev())) {
            return Self::Transposed;
        }
        if rank >= 4 && dense(&mut [1].into_iter().chain((2..rank).rev()).chain([0])) {
            return Self::ChannelsLast;
        }
        let mut own = [0; SIZES_MAX];
        match own.get_mut(..rank) {
            Some(to) => to.copy_from_slice(strides),
            None => return Self::Unknown,
        }
        Self::Strided(own)
    }
}

impl Tensor {
    /// A tensor; `None` if it has more than [`SIZES_MAX`] sizes, or impossibly many elements.
    pub fn new(element: Element, sizes: &[u64]) -> Option<Self> {
        let mut own = [1; SIZES_MAX];
        own.get_mut(..sizes.len())?.copy_from_slice(sizes);
        let elements =
            sizes.iter().filter(|size| **size > 0).try_fold(1_u64, |all, size| all.checked_mul(*size))?;
        elements.checked_mul(u64::from(element.bytes)).filter(|bytes| *bytes < 1 << 48)?;
        Some(Self { element, layout: Layout::Unknown, sizes: own, rank: u8::try_from(sizes.len()).ok()? })
    }

    /// The same tensor with another layout.
    pub fn with_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Its sizes.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes[..usize::from(self.rank)]
    }

    fn elements(&self) -> u64 {
        self.sizes().iter().product()
    }

    fn bytes(&self) -> u64 {
        self.elements().saturating_mul(u64::from(self.element.bytes))
    }
}

/// The other arguments of a convolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Steps between positions of the filter.
    pub stride: [u64; 3],
    /// Elements added on each side.
    pub padding: [u64; 3],
    /// Steps between the elements of the filter.
    pub dilation: [u64; 3],
    /// Output and input are swapped.
    pub transposed: bool,
}

/// The work of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written; `None` if the size of the result is unknown.
    pub bytes: Option<u64>,
    /// Other operators do the work, and are counted themselves when they are probed.
    pub composite: bool,
}

/// The work of an operator, by its name (`aten::addmm`, `aten::mul.Tensor`) and its tensors in the order of its schema;
/// `None` without a formula, or with sizes that do not fit it.
pub fn work(operator: &str, tensors: &[Tensor], convolution: Option<&Convolution>) -> Option<Work> {
    let name = operator.strip_prefix("aten::")?;
    let name = name.split('.').next()?;
    let done = |flops: Option<u64>, elements: Option<u64>| work_of(tensors, flops?, elements);
    let product = |a: &Tensor, b: &Tensor| {
        let (result, inner) = matrices(a.sizes(), b.sizes())?;
        done(times(&[2, result, inner]), Some(result))
    };
    match (name, tensors) {
        ("mm" | "bmm", [a, b]) => {
            let rank = if name == "mm" { 2 } else { 3 };
            (a.sizes().len() == rank && b.sizes().len() == rank).then(|| product(a, b))?
        }
        ("addmm" | "baddbmm", [_, a, b]) => product(a, b),
        ("matmul", [a, b]) => product(a, b).map(composite),
        ("linear", [x, weight]) => linear(x, weight).map(composite),
        ("convolution" | "conv1d" | "conv2d" | "conv3d", [x, weight]) => {
            let work = convolve(x, weight, convolution?)?;
            Some(Work { composite: name != "convolution", ..work })
        }
        (name, [q, k, v]) if name.contains("scaled_dot_product") && !name.contains("backward") => {
            let work = attention(tensors, [q, k, v].map(Tensor::sizes))?;
            // The second one calls `matmul` twice.
            let composite = ["scaled_dot_product_attention", "_scaled_dot_product_attention_math"];
            Some(Work { composite: composite.contains(&name), ..work })
        }
        ("layer_norm" | "batch_norm", [x, ..]) => {
            done(times(&[8, x.elements()]), Some(x.elements())).map(composite)
        }
        ("native_layer_norm" | "native_batch_norm", [x, ..]) => {
            done(times(&[8, x.elements()]), Some(x.elements()))
        }
        ("_softmax" | "_log_softmax", [x]) => done(times(&[5, x.elements()]), Some(x.elements())),
        (name, [x]) if ONE.contains(&name.trim_end_matches('_')) => {
            done(Some(x.elements()), Some(x.elements()))
        }
        (name, [a]) if TWO.contains(&name.trim_end_matches('_')) => {
            done(Some(a.elements()), Some(a.elements()))
        }
        (name, [a, b]) if TWO.contains(&name.trim_end_matches('_')) => {
            let result = broadcast(a.sizes(), b.sizes())?;
            done(Some(result), Some(result))
        }
        _ => None,
    }
}

/// Work with the bytes of all tensors and of a result with this many elements.
fn work_of(tensors: &[Tensor], flops: u64, elements: Option<u64>) -> Option<Work> {
    let first = tensors.first()?;
    let read: u64 = tensors.iter().map(Tensor::bytes).fold(0, u64::saturating_add);
    let written = elements.map(|elements| elements.saturating_mul(u64::from(first.element.bytes)));
    Some(Work { flops, bytes: written.map(|written| read.saturating_add(written)), composite: false })
}

fn linear(x: &Tensor, weight: &Tensor) -> Option<Work> {
    let (&[out, inner], Some(&last)) = (weight.sizes(), x.sizes().last()) else { return None };
    let rows = x.elements().checked_div(last)?;
    let result = times(&[rows, out])?;
    let work = work_of(&[*x, *weight], times(&[2, result, inner])?, Some(result));
    work.filter(|_| last == inner)
}

fn convolve(x: &Tensor, weight: &Tensor, convolution: &Convolution) -> Option<Work> {
    let (places, channels) = applied(x.sizes(), weight.sizes(), convolution)?;
    let each: u64 = times(weight.sizes())?;
    let batch = *x.sizes().first()?;
    let result = if convolution.transposed { None } else { times(&[batch, channels, places]) };
    work_of(&[*x, *weight], times(&[2, batch, places, each])?, result)
}

/// Attention, given the sizes of queries, keys and values.
fn attention(tensors: &[Tensor], [q, k, v]: [&[u64]; 3]) -> Option<Work> {
    let &[batch, heads, queries, width] = q else { return None };
    let (&[.., keys, same], &[.., values, out]) = (k, v) else { return None };
    let fits = same == width && values == keys && k.len() == 4 && v.len() == 4;
    let flops = times(&[2, batch, heads, queries, keys, width.checked_add(out)?])?;
    fits.then(|| work_of(tensors, flops, times(&[batch, heads, queries, out])))?
}

/// Whether an operator does part of the work of a composite one ([`Work::composite`]). `biased`: that one has a bias,
/// or may have one.
pub fn does_work_of(operator: &str, composite: &str, biased: bool) -> bool {
    let base = |name: &str| name.strip_prefix("aten::").unwrap_or(name).split('.').next().map(str::to_owned);
    let (Some(operator), Some(composite)) = (base(operator), base(composite)) else { return false };
    match &*composite {
        "matmul" => matches!(&*operator, "mm" | "addmm" | "bmm" | "baddbmm"),
        // Its weight is one matrix. Without a bias, it calls `matmul`.
        "linear" if biased => operator == "addmm",
        "linear" => matches!(&*operator, "matmul" | "mm"),
        "_scaled_dot_product_attention_math" => matches!(&*operator, "matmul" | "bmm" | "baddbmm"),
        "conv1d" | "conv2d" | "conv3d" => operator == "convolution",
        "scaled_dot_product_attention" => operator.starts_with("_scaled_dot_product"),
        "layer_norm" | "batch_norm" => operator.strip_prefix("native_") == Some(&composite),
        _ => false,
    }
}

fn composite(work: Work) -> Work {
    Work { composite: true, ..work }
}

/// Element-wise operators with one tensor.
const ONE: [&str; 16] = [
    "abs",
    "ceil",
    "cos",
    "exp",
    "floor",
    "gelu",
    "log",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "silu",
    "sqrt",
    "tanh",
];
/// Element-wise operators with two tensors, or one and a number.
const TWO: [&str; 8] = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "rsub"];

/// Elements of the product of two matrices (or batches of them), and the number of products summed for each.
fn matrices(a: &[u64], b: &[u64]) -> Option<(u64, u64)> {
    let (rows, inner, outer_a): (u64, u64, &[u64]) = match a {
        [inner] => (1, *inner, &[]),
        [outer @ .., rows, inner] => (*rows, *inner, outer),
        [] => return None,
    };
    let (columns, same, outer_b): (u64, u64, &[u64]) = match b {
        [same] => (1, *same, &[]),
        [outer @ .., same, columns] => (*columns, *same, outer),
        [] => return None,
    };
    let batches = broadcast(outer_a, outer_b)?;
    (inner == same).then(|| times(&[batches, rows, columns]))?.map(|result| (result, inner))
}

/// Positions of a filter per element of a batch, and channels of the result.
fn applied(x: &[u64], weight: &[u64], convolution: &Convolution) -> Option<(u64, u64)> {
    let (&[_, _, ref x @ ..], &[out, each, ref filter @ ..]) = (x, weight) else { return None };
    if x.len() != filter.len() || x.is_empty() || x.len() > convolution.stride.len() {
        return None;
    }
    if convolution.transposed {
        return Some((times(x)?, each));
    }
    let mut places = 1_u64;
    for (at, (&size, &filter)) in x.iter().zip(filter).enumerate() {
        let covered = filter.checked_sub(1)?.checked_mul(convolution.dilation[at])?.checked_add(1)?;
        let padded = size.checked_add(convolution.padding[at].checked_mul(2)?)?;
        let of_this = padded.checked_sub(covered)?.checked_div(convolution.stride[at])?.checked_add(1)?;
        places = places.checked_mul(of_this)?;
    }
    Some((places, out))
}

/// Elements of the common broadcast shape of two tensors.
fn broadcast(a: &[u64], b: &[u64]) -> Option<u64> {
    let longest = a.len().max(b.len());
    let size = |of: &[u64], at: usize| {
        let from_end = longest - at;
        if from_end > of.len() { 1 } else { of[of.len() - from_end] }
    };
    (0..longest).try_fold(1_u64, |all, at| {
        let size = match (size(a, at), size(b, at)) {
            (1, other) | (other, 1) => other,
            (a, b) if a == b => a,
            _ => return None,
        };
        all.checked_mul(size)
    })
}

fn times(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1_u64, |all, factor| all.checked_mul(*factor))
}

/// Tensors as shown below their operator: `[32x64, 64x128] f32`, with a type for each if they differ. `others`: the
/// operator may have more.
pub fn text(tensors: &[Option<Tensor>], others: bool) -> String {
    let mut types = tensors.iter().flatten().map(|tensor| tensor.element);
    let first = types.next();
    let same = first.filter(|first| types.all(|other| other == *first));
    let one = |tensor: &Option<Tensor>| match tensor {
        None => "?".to_owned(),
        Some(tensor) => {
            let sizes: Vec<String> = tensor.sizes().iter().map(ToString::to_string).collect();
            let sizes = if sizes.is_empty() { "scalar".to_owned() } else { sizes.join("x") };
            if same.is_some() { sizes } else { format!("{sizes} {}", tensor.element.name) }
        }
    };
    let mut parts: Vec<String> = tensors.iter().map(one).collect();
    if others {
        parts.push("…".to_owned());
    }
    let list = format!("[{}]", parts.join(", "));
    same.map_or_else(|| list.clone(), |element| format!("{list} {}", element.name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn f32s(sizes: &[u64]) -> Tensor {
        Tensor::new(Element::of_torch(6, false).unwrap(), sizes).unwrap()
    }

    #[track_caller]
    fn check(operator: &str, tensors: &[&[u64]], flops: u64, bytes: u64) {
        let tensors: Vec<Tensor> = tensors.iter().map(|sizes| f32s(sizes)).collect();
        let found = work(operator, &tensors, None).map(|work| (work.flops, work.bytes));
        assert_eq!(found, Some((flops, Some(bytes))), "{operator}");
    }

    /// Counted by hand.
    #[test]
    fn products_of_matrices_count_two_for_each_product_of_elements() {
        check("aten::mm", &[&[2, 3], &[3, 5]], 60, 4 * (6 + 15 + 10));
        check("aten::addmm", &[&[5], &[2, 3], &[3, 5]], 60, 4 * (5 + 6 + 15 + 10));
        check("aten::bmm", &[&[7, 2, 3], &[7, 3, 5]], 420, 4 * (42 + 105 + 70));
        check("aten::baddbmm", &[&[7, 2, 5], &[7, 2, 3], &[7, 3, 5]], 420, 4 * (70 + 42 + 105 + 70));
        check("aten::matmul", &[&[4, 1, 2, 3], &[6, 3, 5]], 2 * 24 * 2 * 5 * 3, 4 * (24 + 90 + 240));
        check("aten::matmul", &[&[3], &[3]], 6, 4 * (3 + 3 + 1));
        check("aten::linear", &[&[2, 4, 3], &[5, 3]], 240, 4 * (24 + 15 + 40));
    }

    #[test]
    fn attention_counts_its_two_products() {
        let (q, k, v): (&[u64], &[u64], &[u64]) = (&[2, 8, 10, 16], &[2, 8, 12, 16], &[2, 8, 12, 20]);
        let (flops, bytes) = (2 * 16 * 10 * 12 * (16 + 20), 4 * (2560 + 3072 + 3840 + 3200));
        check("aten::_scaled_dot_product_flash_attention_for_cpu", &[q, k, v], flops, bytes);
        check("aten::scaled_dot_product_attention", &[q, k, v], flops, bytes);
        assert_eq!(
            work("aten::_scaled_dot_product_flash_attention", &[f32s(q), f32s(q), f32s(v)], None),
            None
        );
    }

    #[test]
    fn element_wise_operators_count_the_elements_of_their_result() {
        check("aten::mul.Tensor", &[&[4, 1], &[3]], 12, 4 * (4 + 3 + 12));
        check("aten::add_.Tensor", &[&[4, 3], &[]], 12, 4 * (12 + 1 + 12));
        check("aten::mul.Scalar", &[&[4, 3]], 12, 96);
        check("aten::relu", &[&[10]], 10, 80);
        check("aten::native_layer_norm", &[&[4, 10]], 320, 320);
        check("aten::_softmax", &[&[4, 10]], 200, 320);
    }

    #[test]
    fn a_convolution_counts_its_filter_at_each_place() {
        let plain = Convolution { stride: [1; 3], dilation: [1; 3], ..Convolution::default() };
        let check =
            |x: &[u64], weight: &[u64], convolution: Convolution, flops: u64, written: Option<u64>| {
                let tensors = [f32s(x), f32s(weight)];
                let found = work("aten::convolution", &tensors, Some(&convolution)).unwrap();
                let read = tensors[0].bytes() + tensors[1].bytes();
                assert_eq!((found.flops, found.bytes), (flops, written.map(|written| 4 * written + read)));
            };
        check(&[2, 3, 8, 8], &[4, 3, 3, 3], plain, 2 * 2 * 36 * 108, Some(2 * 4 * 36));
        let convolution = Convolution { stride: [2; 3], padding: [1; 3], ..plain };
        check(&[2, 3, 8, 8], &[4, 3, 3, 3], convolution, 2 * 2 * 16 * 108, Some(2 * 4 * 16));
        // Two groups: each filter sees half of the channels.
        check(&[1, 4, 5], &[6, 2, 3], Convolution { dilation: [2; 3], ..plain }, 2 * 36, Some(6));
        let transposed = Convolution { transposed: true, ..plain };
        check(&[2, 3, 8, 8], &[3, 4, 3, 3], transposed, 2 * 2 * 64 * 108, None);
        let none = Convolution::default();
        assert_eq!(work("aten::convolution", &[f32s(&[2, 3, 8]), f32s(&[4, 3, 3])], Some(&none)), None);
    }

    #[test]
    fn work_of_composite_operators_is_done_by_others() {
        for (operator, composite, expect) in [
            ("aten::addmm", "aten::linear", true),
            ("aten::addmm.out", "aten::matmul", true),
            ("aten::convolution", "aten::linear", false),
            ("aten::convolution", "aten::conv2d", true),
            ("aten::native_layer_norm", "aten::layer_norm", true),
            ("aten::_scaled_dot_product_efficient_attention", "aten::scaled_dot_product_attention", true),
            ("aten::mul.Tensor", "aten::add.Tensor", false),
            ("aten::linear", "aten::matmul", false),
            ("aten::bmm", "aten::_scaled_dot_product_attention_math", true),
            ("aten::addmm", "aten::_scaled_dot_product_attention_math", false),
            ("aten::bmm", "aten::_scaled_dot_product_flash_attention", false),
        ] {
            assert_eq!(does_work_of(operator, composite, true), expect, "{operator} {composite}");
        }
        for (operator, with_bias, without) in
            [("addmm", true, false), ("mm", false, true), ("matmul", false, true), ("bmm", false, false)]
        {
            let found = [true, false].map(|biased| does_work_of(operator, "aten::linear", biased));
            assert_eq!(found, [with_bias, without], "{operator}");
        }
        let [q, k, v] = [f32s(&[2, 8, 10, 16]), f32s(&[2, 8, 12, 16]), f32s(&[2, 8, 12, 20])];
        let composite = |operator: &str| work(operator, &[q, k, v], None).unwrap().composite;
        assert!(composite("aten::_scaled_dot_product_attention_math"));
        assert!(!composite("aten::_scaled_dot_product_flash_attention"));
    }

    #[test]
    fn what_does_not_fit_has_no_work() {
        for (operator, tensors) in [
            ("aten::mm", vec![f32s(&[2, 3]), f32s(&[2, 3])]),
            ("aten::mm", vec![f32s(&[2, 3, 4]), f32s(&[2, 4, 3])]),
            ("aten::mm", vec![f32s(&[2, 3])]),
            ("aten::mul.Tensor", vec![f32s(&[2]), f32s(&[3])]),
            ("aten::linear", vec![f32s(&[0]), f32s(&[3, 0])]),
            ("aten::nonzero", vec![f32s(&[2])]),
            ("at::_ops::mm", vec![f32s(&[2, 3]), f32s(&[3, 2])]),
            ("aten::mm", vec![]),
        ] {
            assert_eq!(work(operator, &tensors, None), None, "{operator}");
        }
        let element = Element::of_torch(7, false).unwrap();
        assert_eq!(Tensor::new(element, &[1 << 40, 1 << 40]), None);
        assert_eq!(Tensor::new(element, &[1; 6]), None);
        assert_eq!(Element::of_torch(24, true), None);
        assert_eq!(Element::of_torch(46, false), None);
    }

    proptest! {
        #[test]
        fn whatever_the_sizes_nothing_breaks(
            sizes in proptest::collection::vec(proptest::collection::vec(any::<u64>(), 0..7), 0..4), arguments: [u64; 9]
        ) {
            let element = Element::of_torch(6, false).unwrap();
            let tensors: Vec<Tensor> = sizes.iter().filter_map(|sizes| Tensor::new(element, sizes)).collect();
            let [a, b, c, d, e, f, g, h, i] = arguments;
            let convolution = Convolution { stride: [a, b, c], padding: [d, e, f], dilation: [g, h, i], transposed: false };
            for name in ["mm", "addmm", "matmul", "linear", "convolution", "conv2d", "add", "relu", "layer_norm"] {
                let _ = work(&format!("aten::{name}"), &tensors, Some(&convolution));
            }
        }
    }
}
