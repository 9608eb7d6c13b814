//! Contexts of a model: which layer, which operator and which operands each context of the tree belongs to.
//!
//! Owns: [`ModelContexts`]. Because: every table of a model sums over layers or operators, and one walk of the tree
//! finds both. Does not: compute sums.
//!
//! If the profile has modules, the layer of a context is the innermost module around it, so layers do not overlap and
//! their sums add up. Otherwise it is the outermost operator around it, by call site.

use deepctx_profile::frame::{Frame, clean};
use deepctx_profile::intern::FrameId;
use deepctx_profile::operator::operand::has_operands;
use deepctx_profile::profile::Profile;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// Kind of a profile's layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// Modules (`nn.Module`).
    Modules,
    /// Outermost operators by the place that calls them.
    Operators,
    /// The profile has neither.
    None,
}

/// Name of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerName {
    /// Path in the model, or place and operator.
    pub(super) layer: String,
    /// Class of the module, or the operator.
    pub(super) layer_type: String,
}

/// Properties of a context that follow from its path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModelContext {
    /// Number of the layer plus one; 0 for none.
    layer: u32,
    /// Number of the innermost operator's node; 0 for none.
    pub(super) operator: u32,
    /// Innermost Python function or range.
    call_site: Option<FrameId>,
    /// Below an operator that convolves.
    pub(super) convolution: bool,
    /// Within the backward pass.
    pub(super) backward: bool,
    /// The operator began without a stack: its layer is unknown.
    pub(super) without_stack: bool,
    /// The frame is an operator's operands.
    pub(super) operands: bool,
}

impl ModelContext {
    /// Number of the layer.
    pub(super) fn layer(self) -> Option<usize> {
        (self.layer as usize).checked_sub(1)
    }
}

/// Meaning of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Meaning {
    #[default]
    Other,
    /// A Python function or a range.
    CallSite,
    Layer,
    Operator {
        convolution: bool,
    },
    Operands,
    Backward,
    WithoutStack,
}

/// Layers, and the layer, operator and operands of each context, by node number.
#[derive(Debug)]
pub(super) struct ModelContexts {
    /// Kind of the layers.
    pub(super) kind: LayerKind,
    /// Layers in the order in which they were first seen.
    pub(super) layers: Vec<LayerName>,
    of_node: Vec<ModelContext>,
}

impl ModelContexts {
    /// Walks a profile.
    pub(super) fn of(profile: &Profile) -> Self {
        let meanings: Vec<Meaning> =
            profile.frames.iter().map(|(_, frame)| meaning(profile, &frame)).collect();
        let has = |of: fn(&Meaning) -> bool| meanings.iter().any(of);
        let kind = if has(|of| *of == Meaning::Layer) {
            LayerKind::Modules
        } else if has(|of| matches!(of, Meaning::Operator { .. })) {
            LayerKind::Operators
        } else {
            LayerKind::None
        };
        let mut found = Self { kind, layers: Vec::new(), of_node: Vec::with_capacity(profile.tree.len()) };
        let mut known: FxHashMap<(Option<FrameId>, FrameId), u32> = FxHashMap::default();
        found.of_node.push(ModelContext::default());
        // A node's number is above its parent's.
        for (number, node) in (1u32..).zip(profile.tree.nodes().skip(1)) {
            let above = found.of_node.get(node.parent.index()).copied().unwrap_or_default();
            let mut at = ModelContext { operands: false, ..above };
            let meaning = meanings.get(node.frame.index()).copied().unwrap_or_default();
            match meaning {
                Meaning::CallSite => at.call_site = Some(node.frame),
                Meaning::Operands => at.operands = true,
                Meaning::Backward => at.backward = true,
                Meaning::WithoutStack => at.without_stack = true,
                Meaning::Operator { convolution } => {
                    at.operator = number;
                    at.convolution |= convolution;
                }
                Meaning::Layer | Meaning::Other => {}
            }
            let key = match (kind, meaning) {
                (LayerKind::Modules, Meaning::Layer) => Some((None, node.frame)),
                (LayerKind::Operators, Meaning::Operator { .. }) if at.layer == 0 => {
                    Some((at.call_site, node.frame))
                }
                _ => None,
            };
            if let Some(key) = key {
                let layers = &mut found.layers;
                at.layer = *known.entry(key).or_insert_with(|| {
                    layers.push(name(profile, key.0, key.1));
                    layers.len() as u32
                });
            }
            found.of_node.push(at);
        }
        found
    }

    /// Layer and operator of a context.
    pub(super) fn at(&self, node: usize) -> ModelContext {
        self.of_node.get(node).copied().unwrap_or_default()
    }
}

fn meaning(profile: &Profile, frame: &Frame) -> Meaning {
    let Frame::Operator { name } = frame else {
        return match frame {
            Frame::Layer { .. } => Meaning::Layer,
            Frame::Python { .. } | Frame::Range { .. } => Meaning::CallSite,
            _ => Meaning::Other,
        };
    };
    match profile.strings.get(*name) {
        "[operators]" => Meaning::WithoutStack,
        "[backward]" => Meaning::Backward,
        name if name.starts_with('[') => Meaning::Other,
        name if has_operands(name) => Meaning::Operands,
        name => Meaning::Operator { convolution: convolves(name) },
    }
}

/// By the name of an operator; `convert_element_type` and `_convert_indices_from_coo_to_csr` convert.
fn convolves(name: &str) -> bool {
    let mut found = name.match_indices("conv").chain(name.match_indices("Conv"));
    found.any(|(at, conv)| !name[at + conv.len()..].starts_with("ert"))
}

fn name(profile: &Profile, place: Option<FrameId>, frame: FrameId) -> LayerName {
    let text = |id: FrameId, lines| profile.frames.get(id).label(&profile.strings, lines);
    let own = text(frame, false);
    match (profile.frames.get(frame), place) {
        (Frame::Layer { class, .. }, _) => {
            LayerName { layer: own, layer_type: clean(profile.strings.get(class)) }
        }
        (_, Some(place)) => LayerName { layer: format!("{} ▸ {own}", text(place, true)), layer_type: own },
        (_, None) => LayerName { layer: own.clone(), layer_type: own },
    }
}

#[cfg(test)]
mod tests {
    use deepctx_profile::metric::Metric;
    use deepctx_profile::text;

    use super::*;

    fn check(lines: &str, kind: LayerKind, layers: &[&str]) {
        let profile = text::parse(lines).unwrap();
        let found = ModelContexts::of(&profile);
        assert_eq!(found.kind, kind, "{lines}");
        assert_eq!(found.layers.iter().map(|of| of.layer.as_str()).collect::<Vec<_>>(), layers, "{lines}");
    }

    #[test]
    fn without_modules_layers_are_outermost_operators_by_place() {
        check(
            "y m.py:f:3 / o aten::linear / o aten::addmm 5
             y m.py:f:3 / o aten::relu 1
             y m.py:f:9 / o aten::linear / o [memory] cpu 1
             o [operators] / o aten::relu / o aten::relu [8] f32 1",
            LayerKind::Operators,
            &["m.py:f:3 ▸ aten::linear", "m.py:f:3 ▸ aten::relu", "m.py:f:9 ▸ aten::linear", "aten::relu"],
        );
        check("n f 5", LayerKind::None, &[]);
        check(
            "o [xla jit_f] / y m.py:f:3 / o jit(f)/mul [fused: exp] 5",
            LayerKind::Operators,
            &["m.py:f:3 ▸ jit(f)/mul [fused: exp]"],
        );
    }

    #[test]
    fn a_conversion_is_no_convolution() {
        let check = |name: &str, expect: bool| assert_eq!(convolves(name), expect, "{name}");
        check("aten::conv2d", true);
        check("aten::cudnn_convolution", true);
        check("ConvolutionBackward0", true);
        check("jit(step)/conv_general_dilated", true);
        check("aten::_convert_indices_from_coo_to_csr", false);
        check("jit(step)/convert_element_type", false);
        check("jit(convert)/conv_general_dilated", true);
        check("aten::mm", false);
    }

    #[test]
    fn a_context_belongs_to_the_innermost_module() {
        let mut profile = Profile::new(Default::default(), Default::default());
        let mut layer = |path: &str, class: &str| {
            let (path, class) = (profile.text(path), profile.text(class));
            profile.frame(Frame::Layer { path, class })
        };
        let [net, conv] = [layer("Net", "Net"), layer("Net.conv", "Conv2d")];
        let mut operator = |name: &str| {
            let name = profile.text(name);
            profile.frame(Frame::Operator { name })
        };
        let [convolve, backward] = [operator("aten::convolution"), operator("[backward]")];
        let inner = profile.add(&[net, conv, convolve, backward], Metric::CpuTime, 1);
        let outer = profile.add(&[net], Metric::CpuTime, 1);
        let found = ModelContexts::of(&profile);
        assert_eq!(found.kind, LayerKind::Modules);
        let of = |node: deepctx_profile::tree::NodeId| found.at(node.index());
        assert_eq!((of(outer).layer(), of(inner).layer()), (Some(0), Some(1)));
        assert!(of(inner).convolution && of(inner).backward && !of(outer).convolution);
        assert_eq!(found.layers[1].layer_type, "Conv2d");
    }
}
