//! One-sided frames: what only one of two captures could have, by its options, and is left out of both.
//!
//! Owns: [`OneSided`]. Because: the same code would lie in different contexts, and every one of them would look like a
//! change. Does not: match stacks that an option moves to another place, as those of the backward pass.

use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::intern::Strings;
use deepctx_profile::profile::Profile;
use deepctx_profile::view::Selection;
use rustc_hash::FxHashSet;

use super::options::{Effect, OptionChange, items};

/// Frames that a capture has if a list among its options has a value.
struct OptionalFrames {
    option: &'static str,
    value: &'static str,
    name: &'static str,
    includes: fn(&Frame) -> bool,
}

const PYTHON: &str = "Python frames";
const LAYERS: &str = "layers";

static OPTIONAL: [OptionalFrames; 7] = [
    OptionalFrames { option: "context", value: "python", name: PYTHON, includes: is_python },
    OptionalFrames { option: "context", value: "native", name: "native frames", includes: is_native },
    OptionalFrames { option: "context", value: "native", name: "operators", includes: is_operator },
    OptionalFrames { option: "context", value: "kernel", name: "kernel frames", includes: is_kernel },
    OptionalFrames { option: "probe", value: "operators", name: "operators", includes: is_operator },
    OptionalFrames { option: "probe", value: "modules", name: LAYERS, includes: is_layer },
    OptionalFrames { option: "probe", value: "ranges", name: "ranges", includes: is_range },
];

fn is_python(frame: &Frame) -> bool {
    matches!(frame, Frame::Python { .. } | Frame::Unresolved { origin: Origin::Python, .. })
}

fn is_native(frame: &Frame) -> bool {
    let gap = matches!(frame, Frame::Unresolved { origin: Origin::Native, .. });
    gap || matches!(frame, Frame::Native { .. } | Frame::NativeUnnamed { .. })
}

fn is_kernel(frame: &Frame) -> bool {
    let gap = matches!(frame, Frame::Unresolved { origin: Origin::Kernel, .. });
    gap || matches!(frame, Frame::Kernel { .. } | Frame::KernelUnnamed { .. })
}

fn is_operator(frame: &Frame) -> bool {
    matches!(frame, Frame::Operator { .. })
}

fn is_layer(frame: &Frame) -> bool {
    matches!(frame, Frame::Layer { .. })
}

fn is_range(frame: &Frame) -> bool {
    matches!(frame, Frame::Range { .. })
}

impl OptionalFrames {
    /// Whether a profile has such frames. Gaps and marks, which it has for other reasons as well, do not count.
    fn are_in(&self, profile: &Profile) -> bool {
        profile.frames.iter().any(|(_, frame)| {
            let counts = frame.role() == Role::Code && !matches!(frame, Frame::Unresolved { .. });
            counts && (self.includes)(&frame)
        })
    }
}

/// The frames that a comparison leaves out.
pub(super) struct OneSided {
    kinds: Vec<&'static OptionalFrames>,
    /// Functions that lead from a layer to its code: with layers, profiles have them as its dispatch, which is hidden.
    calls_of_layers: FxHashSet<String>,
}

impl OneSided {
    /// Those of two profiles. Each option says what is left out because of it.
    pub(super) fn between(profiles: [&Profile; 2], options: &mut [OptionChange]) -> Self {
        let mut kinds: Vec<&'static OptionalFrames> = Vec::new();
        for option in options {
            let [before, after] = [items(&option.before), items(&option.after)];
            let lost = before.iter().filter(|value| !after.contains(value)).map(|value| (*value, 0usize));
            let gained = after.iter().filter(|value| !before.contains(value)).map(|value| (*value, 1usize));
            let mut left_out: Vec<&'static OptionalFrames> = Vec::new();
            let mut is_all = true;
            for (value, owner) in lost.chain(gained).filter(|(value, _)| !value.is_empty()) {
                let of_value = OPTIONAL.iter().filter(|of| (of.option, of.value) == (option.option, value));
                let one_sided =
                    of_value.filter(|of| of.are_in(profiles[owner]) && !of.are_in(profiles[1 - owner]));
                let found = left_out.len();
                left_out.extend(one_sided);
                is_all &= left_out.len() > found;
            }
            if is_all && !left_out.is_empty() {
                option.effect = Effect::FramesLeftOut;
            }
            option.left_out = left_out.iter().map(|of| of.name).collect();
            kinds.extend(left_out);
        }
        let mut one_sided = OneSided { kinds, calls_of_layers: FxHashSet::default() };
        if one_sided.has(LAYERS) {
            let all = profiles.into_iter().flat_map(|of| of.frames.iter().map(move |(_, frame)| (of, frame)));
            let calls = all.filter(|(_, frame)| is_python(frame) && frame.role() == Role::Dispatch);
            one_sided.calls_of_layers = calls.map(|(of, frame)| frame.label(&of.strings, false)).collect();
        }
        one_sided
    }

    fn has(&self, name: &str) -> bool {
        self.kinds.iter().any(|of| of.name == name)
    }

    /// The selection for both. Evaluation loops are hidden where Python frames stand for them, so they are shown if
    /// those are left out.
    pub(super) fn selection(&self, selection: &Selection) -> Selection {
        Selection { interpreter: selection.interpreter || self.has(PYTHON), ..*selection }
    }

    /// Whether a frame is left out: its values are its caller's.
    pub(super) fn includes(&self, frame: &Frame, strings: &Strings) -> bool {
        self.kinds.iter().any(|of| (of.includes)(frame))
            || !self.calls_of_layers.is_empty()
                && is_python(frame)
                && self.calls_of_layers.contains(&frame.label(strings, false))
    }
}
