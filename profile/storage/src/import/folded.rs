//! Folded stacks back to a profile.
//!
//! Owns: [`split`], [`read`]. Because: every collapser writes them. Does not: know what was counted; values are taken
//! as samples.

use super::lossy::lossy;
use super::{NOT_UNDERSTOOD, REPAIRED, ROUNDED, TOO_DEEP, gap, words};
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;

/// Maximum frames of one line, more than any real stack. The outermost are kept.
const DEPTH_MAX: usize = 16 * 1024;

/// The value of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoldedValue {
    value: u64,
    is_rounded: bool,
}

/// Below 2^53, each whole number is a `f64`.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

impl FoldedValue {
    /// Some tools write values with decimals.
    fn of(text: &str) -> Option<Self> {
        if let Ok(value) = text.parse() {
            return Some(FoldedValue { value, is_rounded: false });
        }
        let decimal = text.parse::<f64>().ok().filter(|value| value.is_finite())?;
        let is_rounded = decimal.fract() != 0.0 || decimal >= EXACT_BELOW;
        // A value that is too large becomes the maximum.
        Some(FoldedValue { value: decimal.round() as u64, is_rounded })
    }
}

/// The stack and value of a line.
pub(super) fn split(line: &str) -> Option<(&str, FoldedValue)> {
    let (stack, value) = line.trim_end().rsplit_once(' ')?;
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let value = FoldedValue::of(value)?;
    (!stack.trim().is_empty()).then_some((stack, value))
}

pub(super) fn read(bytes: &[u8], profile: &mut Profile) -> Nanos {
    let (text, repaired) = lossy(bytes);
    let (mut odd, mut rounded, mut too_deep) = (0, 0, 0);
    let mut stack: Vec<FrameId> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let Some((frames, value)) = split(line) else {
            odd += 1;
            continue;
        };
        stack.clear();
        // Values without a context are written as `all`.
        let frames = if frames == "all" { None } else { Some(frames) };
        for (depth, text) in frames.into_iter().flat_map(|f| f.split(';')).enumerate() {
            if depth >= DEPTH_MAX {
                too_deep += 1;
                continue;
            }
            let process = if depth == 0 { words::process(profile, text) } else { None };
            let frame = process.unwrap_or_else(|| words::frame(profile, text));
            stack.push(profile.frame(frame));
        }
        rounded += u64::from(value.is_rounded);
        profile.add(&stack, Metric::Samples, value.value);
    }
    gap(profile, NOT_UNDERSTOOD, odd);
    gap(profile, ROUNDED, rounded);
    gap(profile, TOO_DEEP, too_deep);
    gap(profile, REPAIRED, repaired);
    Nanos(0)
}
