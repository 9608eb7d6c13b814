//! Frames of a dump.
//!
//! Owns: the form of a frame in text and JSON. Because: interned frames mean nothing outside their profile. Does not:
//! name anything.

use deepctx_capture::FrameSource;
use deepctx_profile::frame::{Frame, FrameKind, Line, Origin, Role, is_printable};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;
use serde::Serialize;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DumpedFrame {
    /// `python`, `native`, `kernel`, `operator`, or `unknown` where frames are missing.
    pub kind: &'static str,
    /// Name of the function; if unknown, its label, which gives the reason.
    pub function: String,
    /// Source file; if unknown, the library.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Current line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Its role in its stack.
    #[serde(skip_serializing_if = "FrameRole::is_code")]
    pub role: FrameRole,
    /// The group of frames it belongs to; `None`: the requested frames.
    #[serde(skip)]
    pub source: Option<FrameSource>,
}

/// The role of a frame in its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameRole {
    /// Ordinary code.
    Code,
    /// The interpreter's own, which the Python frame beside it represents.
    Interpreter,
    /// A framework's dispatch, which the operator above represents.
    Dispatch,
}

impl FrameRole {
    fn is_code(&self) -> bool {
        *self == Self::Code
    }
}

impl DumpedFrame {
    pub(super) fn of(id: FrameId, profile: &Profile) -> Self {
        let frame = profile.frames.get(id);
        let strings = &profile.strings;
        let text = |id: StrId| strings.get(id).to_owned();
        let number = |line: Line| line.map(std::num::NonZeroU32::get);
        let (function, file, line) = match frame {
            Frame::Python { function, file, line, .. } => (text(function), text(file), number(line)),
            Frame::Native { symbol, module, file, line, .. } => {
                let place = if line.is_some() && file != StrId::EMPTY { file } else { module };
                (text(symbol), text(place), number(line))
            }
            Frame::NativeUnnamed { module, .. } => (frame.label(strings, true), text(module), None),
            Frame::Kernel { symbol } => (text(symbol), String::new(), None),
            _ => (frame.label(strings, true), String::new(), None),
        };
        let role = match frame.role() {
            Role::Code => FrameRole::Code,
            Role::Interpreter => FrameRole::Interpreter,
            Role::Dispatch => FrameRole::Dispatch,
        };
        let (kind, source) = (kind(&frame), source(&frame));
        Self { kind, function: clean(&function), file: clean(&file), line, role, source }
    }
}

fn kind(frame: &Frame) -> &'static str {
    match (frame.kind(), frame) {
        (_, Frame::Unresolved { origin: Origin::Kernel, .. }) => "kernel",
        (FrameKind::Python, _) => "python",
        (FrameKind::Native, _) => "native",
        (FrameKind::Kernel, _) => "kernel",
        (FrameKind::Operator | FrameKind::Layer, _) => "operator",
        _ => "unknown",
    }
}

fn source(frame: &Frame) -> Option<FrameSource> {
    match frame {
        Frame::Python { .. } | Frame::Unresolved { origin: Origin::Python, .. } => Some(FrameSource::Python),
        Frame::Native { .. }
        | Frame::NativeUnnamed { .. }
        | Frame::Unresolved { origin: Origin::Native, .. } => Some(FrameSource::Native),
        Frame::Kernel { .. }
        | Frame::KernelUnnamed { .. }
        | Frame::Unresolved { origin: Origin::Kernel, .. } => Some(FrameSource::Kernel),
        _ => None,
    }
}

/// Names come from other processes: they must neither control a terminal nor reorder what it shows.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_printable(c) { c } else { '?' }).collect()
}
