//! Native omitted: which frames of a stack are shown if its native code was walked only to find operators.
//!
//! Owns: dropping native functions from such a stack, and the mark where the walk itself dropped them. Because:
//! native functions identify operators, accelerator calls and waits, so all stages see them; the tree need not store
//! frames that the user did not request. Does not: drop operators, or frames which say that something is missing.

use deepctx_common::record::sample_flag;
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;

use crate::decode::Sample;

/// Stands between two Python functions whose native frames were not walked.
const LEFT_OUT: &str = "[native code left out]";

/// The frame of the mark. It is shown where the interpreter's internal calls are, since it stands almost only for
/// those.
pub(crate) fn left_out(profile: &mut Profile) -> FrameId {
    let frame = Frame::Native {
        symbol: profile.text(LEFT_OUT),
        module: StrId::EMPTY,
        file: StrId::EMPTY,
        line: None,
        inlined: false,
        role: Role::Interpreter,
    };
    profile.frame(frame)
}

/// Whether a stack was walked for operators only.
#[inline]
pub(crate) fn operators_alone(sample: &Sample<'_>) -> bool {
    sample.fixed.flags & sample_flag::OPERATORS != 0
}

/// The frames to show.
pub(crate) fn without_native(frames: &[FrameId], profile: &Profile) -> Vec<FrameId> {
    let shows = |frame: &FrameId| match profile.frames.get(*frame) {
        Frame::Native { symbol, module, .. } => {
            module == StrId::EMPTY && profile.strings.get(symbol) == LEFT_OUT
        }
        Frame::NativeUnnamed { .. } => false,
        _ => true,
    };
    frames.iter().copied().filter(shows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_functions_go_and_all_else_stays() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let text = profile.text("at::_ops::addmm::call(at::Tensor const&)");
        let module = profile.text("/lib/libtorch_cpu.so");
        let native = |role| Frame::Native {
            symbol: text,
            module,
            file: StrId::EMPTY,
            line: None,
            inlined: false,
            role,
        };
        let unnamed = Frame::NativeUnnamed { module, offset: 16, reason: text, role: Role::Code };
        let operator = Frame::Operator { name: text };
        let kernel = Frame::Kernel { symbol: text };
        let gap = Frame::Unresolved { reason: text, origin: Default::default() };
        let frames = [operator, native(Role::Code), native(Role::Interpreter), unnamed, gap, kernel];
        let [operator, a, b, c, gap, kernel] = frames.map(|frame| profile.frame(frame));
        let mark = left_out(&mut profile);
        let shown = without_native(&[a, mark, b, operator, a, c, gap, kernel], &profile);
        assert_eq!(shown, [mark, operator, gap, kernel]);
    }
}
