//! One step of a query: which frames it matches.
//!
//! Owns: kinds by name, the name and location of a frame, and the three forms of a text. Because: users write the names
//! of reports, which are shorter than those in profiles. Does not: parse queries.

use deepctx_profile::context::phase::Phase;
use deepctx_profile::frame::{Frame, Role};
use deepctx_profile::intern::{StrId, Strings};
use regex::Regex;

macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        /// Kind of frame that a step matches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Kind { $($kind,)* }

        impl Kind {
            /// Every kind, from the root of a stack towards its leaf; the phase, which is of a context, last.
            pub(super) const ALL: &[Kind] = &[$(Kind::$kind,)*];

            /// Its name in a query.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    Process "process",
    Thread "thread",
    Python "python",
    Layer "layer",
    Range "range",
    Operator "operator",
    Native "native",
    Kernel "kernel",
    Wait "wait",
    Resource "resource",
    GpuApi "gpu-api",
    GpuKernel "gpu-kernel",
    Instruction "instruction",
    Unresolved "unresolved",
    Phase "phase",
}

impl Kind {
    /// The kind of a frame; `None` for the root and for streams, which queries ignore.
    fn of(frame: &Frame) -> Option<Kind> {
        Some(match frame {
            Frame::Root | Frame::Stream { .. } => return None,
            Frame::Process { .. } => Kind::Process,
            Frame::Thread { .. } => Kind::Thread,
            Frame::Python { .. } => Kind::Python,
            Frame::Layer { .. } => Kind::Layer,
            Frame::Range { .. } => Kind::Range,
            Frame::Operator { .. } => Kind::Operator,
            Frame::Native { .. } | Frame::NativeUnnamed { .. } => Kind::Native,
            Frame::Kernel { .. } | Frame::KernelUnnamed { .. } => Kind::Kernel,
            Frame::Wait { .. } => Kind::Wait,
            Frame::Resource { .. } => Kind::Resource,
            Frame::GpuApi { .. } => Kind::GpuApi,
            Frame::GpuKernel { .. } => Kind::GpuKernel,
            Frame::Instruction { .. } => Kind::Instruction,
            Frame::TreeFull | Frame::TableFull | Frame::Unresolved { .. } => Kind::Unresolved,
        })
    }
}

/// The kind of a frame from its name in queries; `root` and `stream` have none.
pub fn kind_of(frame: &Frame) -> &'static str {
    match (Kind::of(frame), frame) {
        (Some(kind), _) => kind.name(),
        (None, Frame::Root) => "root",
        (None, _) => "stream",
    }
}

/// A text pattern of a step.
#[derive(Clone, Debug)]
pub(super) enum TextMatch {
    /// This exact text.
    Exact(String),
    /// A regular expression. Globs become anchored ones.
    Found(Regex),
}

impl TextMatch {
    fn is(&self, text: &str) -> bool {
        match self {
            TextMatch::Exact(wanted) => wanted == text,
            TextMatch::Found(regex) => regex.is_match(text),
        }
    }
}

/// Matches one frame. `None` matches anything.
#[derive(Clone, Debug, Default)]
pub(super) struct QueryStep {
    pub(super) kind: Option<Kind>,
    pub(super) name: Option<TextMatch>,
    pub(super) place: Option<TextMatch>,
}

impl QueryStep {
    /// Whether it matches by the phase of a context.
    pub(super) fn is_phase(&self) -> bool {
        self.kind == Some(Kind::Phase)
    }

    /// Whether it matches the contexts of a phase, whatever their frame.
    pub(super) fn matches_phase(&self, phase: Phase) -> bool {
        let has_name = self.name.as_ref().is_none_or(|name| name.is(phase.name()));
        self.is_phase() && self.place.is_none() && has_name
    }

    /// Whether it matches a frame. No frame is a phase.
    pub(super) fn matches(&self, frame: &Frame, strings: &Strings) -> bool {
        // Kinds first: they leave few frames whose texts must be checked.
        let kind = Kind::of(frame);
        kind.is_some()
            && self.kind.is_none_or(|wanted| Some(wanted) == kind)
            && self.name.as_ref().is_none_or(|name| has_name(frame, strings, name))
            && self.place.as_ref().is_none_or(|place| has_place(frame, strings, place))
    }
}

/// Whether views hide a frame: an interpreter's own, a framework's dispatch, a stream.
pub(super) fn is_folded(frame: &Frame) -> bool {
    frame.role() != Role::Code || matches!(frame, Frame::Stream { .. })
}

fn has_name(frame: &Frame, strings: &Strings, wanted: &TextMatch) -> bool {
    let text = |id| strings.get(id);
    match *frame {
        Frame::Python { function, .. } => {
            let full = text(function);
            wanted.is(full) || full.rsplit_once('.').is_some_and(|(_, last)| wanted.is(last))
        }
        Frame::Operator { name } => {
            let full = text(name);
            // Operands follow a space; JAX names a path, whose last part is the operator.
            let bare = full.split_once(" [").map_or(full, |(bare, _)| bare);
            let last = bare.rsplit_once('/').map_or(bare, |(_, last)| last);
            wanted.is(full) || wanted.is(bare) || wanted.is(last)
        }
        Frame::Layer { path, class } => wanted.is(text(path)) || wanted.is(text(class)),
        Frame::Process { comm: name, .. } | Frame::Thread { name, .. } => {
            wanted.is(text(name)) || wanted.is(&frame.label(strings, false))
        }
        Frame::Native { symbol: name, .. }
        | Frame::Kernel { symbol: name }
        | Frame::Range { name }
        | Frame::GpuApi { name }
        | Frame::GpuKernel { name }
        | Frame::Instruction { kernel: name, .. }
        | Frame::Resource { name }
        | Frame::Wait { reason: name }
        | Frame::KernelUnnamed { reason: name }
        | Frame::Unresolved { reason: name, .. } => wanted.is(text(name)),
        _ => wanted.is(&frame.label(strings, false)),
    }
}

fn has_place(frame: &Frame, strings: &Strings, wanted: &TextMatch) -> bool {
    let is = |id: StrId| {
        let path = strings.get(id);
        let base = path.rsplit_once('/').map(|(_, base)| base);
        id != StrId::EMPTY && (wanted.is(path) || base.is_some_and(|base| wanted.is(base)))
    };
    match *frame {
        Frame::Python { file, .. } | Frame::Instruction { file, .. } => is(file),
        Frame::Native { module, file, .. } => is(module) || is(file),
        Frame::NativeUnnamed { module, .. } => is(module),
        _ => false,
    }
}
