//! Folded stacks back to a profile.
//!
//! Owns: [`split`], [`read`]. Because: every collapser writes them. Does not: know what was counted; values are taken
//! as samples.

use super::words;
use deepctx_profile::intern::FrameId;
use deepctx_profile::metric::Metric;
use deepctx_profile::profile::Profile;
use deepctx_profile::units::Nanos;

/// Maximum frames of one line, more than any real stack; the rest of the line becomes one more.
const DEPTH_MAX: usize = 16 * 1024;

/// The stack and value of a line. Some tools write values with decimals.
pub(super) fn split(line: &str) -> Option<(&str, f64)> {
    let (stack, value) = line.trim_end().rsplit_once(' ')?;
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let value: f64 = value.parse().ok()?;
    (!stack.trim().is_empty() && value.is_finite()).then_some((stack, value))
}

pub(super) fn read(bytes: &[u8], profile: &mut Profile) -> Nanos {
    let text = String::from_utf8_lossy(bytes);
    let (mut odd, mut rounded) = (0, 0);
    let mut stack: Vec<FrameId> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let Some((frames, value)) = split(line) else {
            odd += 1;
            continue;
        };
        stack.clear();
        // Values without a context are written as `all`.
        let frames = if frames == "all" { None } else { Some(frames) };
        for (depth, text) in frames.into_iter().flat_map(|f| f.split(';')).take(DEPTH_MAX).enumerate() {
            let process = if depth == 0 { words::process(profile, text) } else { None };
            let frame = process.unwrap_or_else(|| words::frame(profile, text));
            stack.push(profile.frame(frame));
        }
        rounded += u64::from(value.fract() != 0.0);
        // A value that is too large becomes the maximum.
        profile.add(&stack, Metric::Samples, value.round() as u64);
    }
    super::gap(profile, super::NOT_UNDERSTOOD, odd);
    super::gap(profile, super::ROUNDED, rounded);
    Nanos(0)
}
