//! Torch call wrappers: how PyTorch calls a module that has its own frame.
//!
//! Owns: which Python functions between a layer and the code of its module are mere wrappers. Because: each layer has
//! two or three of them, and the layer's frame already says as much. Does not: mark them where no layer precedes
//! them.

use deepctx_names::is_torch_module_file;
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;

/// Last parts of their qualified names.
const NAMES: [&str; 3] = ["_wrapped_call_impl", "_call_impl", "inner"];

/// The role of a frame for the layer before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LayerFrameRole {
    /// Nothing: native code.
    #[default]
    Other,
    /// The layer.
    Layer,
    /// A wrapper that calls on: the same frame, marked as dispatch.
    Call(FrameId),
    /// Any other Python function: the layer's code begins.
    Begins,
}

/// Marks the frames of torch call wrappers.
#[derive(Debug, Default)]
pub(crate) struct TorchCallWrappers {
    /// By frame number; shorter than the frame table until learned.
    parts: Vec<LayerFrameRole>,
    /// A layer was learned.
    any: bool,
}

impl TorchCallWrappers {
    /// Records the role of a frame.
    pub(crate) fn learn(&mut self, id: FrameId, profile: &mut Profile) {
        let part = match profile.frames.get(id) {
            Frame::Layer { .. } => {
                self.any = true;
                LayerFrameRole::Layer
            }
            Frame::Python { function, file, line, first_line, role: Role::Code } => {
                let name = profile.strings.get(function).rsplit('.').next().unwrap_or_default();
                if NAMES.contains(&name) && is_torch_module_file(profile.strings.get(file)) {
                    let role = Role::Dispatch;
                    LayerFrameRole::Call(profile.frame(Frame::Python {
                        function,
                        file,
                        line,
                        first_line,
                        role,
                    }))
                } else {
                    LayerFrameRole::Begins
                }
            }
            _ => return,
        };
        // Bounded, since frames are.
        if self.parts.len() <= id.index() {
            self.parts.resize(id.index() + 1, LayerFrameRole::Other);
        }
        self.parts[id.index()] = part;
    }

    /// Marks the torch call wrappers in a path as dispatch.
    pub(crate) fn mark(&self, path: &mut [FrameId]) {
        if !self.any {
            return;
        }
        let mut within = false;
        for frame in path {
            match self.parts.get(frame.index()).copied().unwrap_or_default() {
                LayerFrameRole::Layer => within = true,
                LayerFrameRole::Call(twin) if within => *frame = twin,
                LayerFrameRole::Begins => within = false,
                LayerFrameRole::Call(_) | LayerFrameRole::Other => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::intern::StrId;

    use super::*;

    /// `L` is a layer, `n` native code, a word with a `:` a Python function and its file. Marked frames come back with
    /// a `*`.
    #[track_caller]
    fn check(path: &str, expect: &str) {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut wrappers = TorchCallWrappers::default();
        let mut frames: Vec<FrameId> = path
            .split(' ')
            .map(|word| {
                let text = profile.text(word);
                let frame = match word.split_once(':') {
                    Some((function, file)) => {
                        let (function, file) = (profile.text(function), profile.text(file));
                        Frame::Python { function, file, line: None, first_line: None, role: Role::Code }
                    }
                    None if word == "L" => Frame::Layer { path: text, class: StrId::EMPTY },
                    None => Frame::Kernel { symbol: text },
                };
                let id = profile.frame(frame);
                wrappers.learn(id, &mut profile);
                id
            })
            .collect();
        wrappers.mark(&mut frames);
        let marked: Vec<String> = path
            .split(' ')
            .zip(&frames)
            .map(|(word, id)| match profile.frames.get(*id).role() {
                Role::Dispatch => format!("{}*", word.split(':').next().unwrap_or_default()),
                _ => word.split(':').next().unwrap_or_default().to_owned(),
            })
            .collect();
        assert_eq!(marked.join(" "), expect);
    }

    #[test]
    fn what_leads_from_a_layer_to_its_code_is_marked() {
        const FILE: &str = "/lib/torch/nn/modules/module.py";
        let call = |name: &str| format!("{name}:{FILE}");
        let [outer, inner, hooked] =
            ["Module._wrapped_call_impl", "_call_impl", "Module._call_impl.<locals>.inner"].map(call);
        check(
            &format!("main:a.py L {outer} n {inner} {hooked} n forward:a.py {inner} n L {inner} relu:b.py"),
            "main L Module._wrapped_call_impl* n _call_impl* Module._call_impl.<locals>.inner* n forward _call_impl n L \
             _call_impl* relu",
        );
        check(
            &format!("main:a.py {outer} {inner} forward:a.py"),
            "main Module._wrapped_call_impl _call_impl forward",
        );
        check("L inner:a.py inner:b.py", "L inner inner");
    }
}
