//! The code of the evaluation loop, with the parts that the compiler split off.
//!
//! Owns: following jumps out of `_PyEval_EvalFrameDefault`. Because: with hot/cold splitting (PGO, BOLT) its symbol
//! covers as little as a hundredth of it, and a native frame in an unknown part of the loop loses its Python frames.
//! Does not: depend on names, which may be stripped; it uses them if they exist.

use std::cell::LazyCell;

use deepctx_common::python::EVAL_RANGES;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::ReadRef;

use super::elf::{Elf, Symbol};

/// Most bytes decoded of one part: ten times the largest loop seen (95 KB, except debug builds).
const PART_MAX: u64 = 1 << 20;

/// Most jumps followed out of a part; real loops have a few dozen.
const TARGETS_MAX: usize = 4096;

/// The ranges, as stated in the file; unused ones are 0, 0.
pub(super) struct EvalRanges {
    /// Begin and end of each.
    pub(super) ranges: [[u64; 2]; EVAL_RANGES],
    /// Parts found beyond the bound.
    pub(super) left_out: u32,
}

/// The parts of the function at `symbol`, itself first.
pub(super) fn eval_ranges<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, symbol: Symbol) -> Option<EvalRanges> {
    let hot = match (symbol.size, elf.extent_at(symbol.address)) {
        (0, None) => return None,
        (0, Some(extent)) => [symbol.address, extent.end],
        (size, _) => [symbol.address, symbol.address.checked_add(size)?],
    };
    let named = LazyCell::new(|| elf.prefixed("_PyEval_EvalFrameDefault."));
    let mut parts = vec![hot];
    let mut left_out = 0;
    let mut next = 0;
    while let Some(&part) = parts.get(next) {
        next += 1;
        for target in jumps_out_of(elf, part) {
            if parts.iter().any(|[begin, end]| (*begin..*end).contains(&target)) {
                continue;
            }
            match cold_part(elf, target, || named.binary_search(&target).is_ok()) {
                Some(_) if parts.len() == EVAL_RANGES => left_out += 1,
                Some(cold) => parts.push(cold),
                None => {}
            }
        }
    }
    let mut ranges = [[0; 2]; EVAL_RANGES];
    ranges[..parts.len()].copy_from_slice(&parts);
    Some(EvalRanges { ranges, left_out })
}

/// Targets of direct jumps out of the part, each once.
pub(super) fn jumps_out_of<'a, R: ReadRef<'a>>(elf: &Elf<'a, R>, [begin, end]: [u64; 2]) -> Vec<u64> {
    let text = elf.bytes_at(begin, (end - begin).min(PART_MAX)).unwrap_or_default();
    let mut targets: Vec<u64> = Decoder::with_ip(64, text, begin, DecoderOptions::NONE)
        .iter()
        .filter(|i| {
            matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
        })
        .map(|i| i.near_branch_target())
        .filter(|target| !(begin..end).contains(target))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets.truncate(TARGETS_MAX);
    targets
}

/// The split-off part that contains `target`, unless the jump is a tail call of another function. `is_named`: whether
/// a symbol names the code there as a part of the loop.
fn cold_part<'a, R: ReadRef<'a>>(
    elf: &Elf<'a, R>,
    target: u64,
    is_named: impl FnOnce() -> bool,
) -> Option<[u64; 2]> {
    let extent = elf.extent_at(target)?;
    // A part is entered with the stack frame of the loop; a function, with only a return address. Code that is
    // entered in its middle cannot be another function.
    let is_call = extent.is_function && extent.begin == target && !is_named();
    (!is_call).then_some([extent.begin, extent.end])
}
