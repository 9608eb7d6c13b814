//! Turns names into frames of the profile.
//!
//! Owns: the form of the frame for each kind of name. Because: equal names must give equal frames, whether they come
//! from resolving an address or from looking up what code was compiled from. Does not: look anything up.

use std::num::NonZeroU32;

use deepctx_profile::frame::{Frame, Origin, Role};
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;

use crate::reason::PYTHON_INCOMPLETE;
use crate::symbols::Name;

/// A part of what code was compiled from, as a frame.
pub(crate) fn compiled_frame(name: &Name<'_>, profile: &mut Profile) -> FrameId {
    let frame = frame(name, Role::Code, profile);
    profile.frame(frame)
}

pub(crate) fn frame(name: &Name<'_>, role: Role, profile: &mut Profile) -> Frame {
    match *name {
        Name::Native { symbol, module, file, line, inlined } => Frame::Native {
            symbol: profile.text(symbol),
            module: profile.text(module),
            file: profile.text(file),
            line: NonZeroU32::new(line),
            inlined,
            role,
        },
        Name::NativeUnnamed { module, offset, reason } => Frame::NativeUnnamed {
            module: profile.text(module),
            offset,
            reason: profile.text(reason.key),
            role,
        },
        Name::Kernel { symbol } => Frame::Kernel { symbol: profile.text(symbol) },
        Name::KernelUnnamed { reason } => Frame::KernelUnnamed { reason: profile.text(reason.key) },
        Name::Python { function, file, line, first_line } => Frame::Python {
            function: profile.text(function),
            file: profile.text(file),
            line: NonZeroU32::new(line),
            first_line: NonZeroU32::new(first_line),
            role: Role::Code,
        },
        Name::Compiled { name } => Frame::Operator { name: profile.text(name) },
        Name::Traced { function, file, line } => {
            let line = NonZeroU32::new(line);
            let (function, file) = (profile.text(function), profile.text(file));
            Frame::Python { function, file, line, first_line: None, role: Role::Code }
        }
        Name::Task { name } => {
            let shown = if name.is_empty() { "[task]".to_owned() } else { format!("[task {name}]") };
            let (function, file) = (profile.text(&shown), profile.text(""));
            Frame::Python { function, file, line: None, first_line: None, role: Role::Code }
        }
        Name::Layer { path, class } => Frame::Layer { path: profile.text(path), class: profile.text(class) },
        Name::PythonIncomplete => {
            Frame::Unresolved { reason: profile.text(PYTHON_INCOMPLETE.key), origin: Origin::Python }
        }
        Name::PythonUnnamed { reason } => {
            Frame::Unresolved { reason: profile.text(reason.key), origin: Origin::Python }
        }
    }
}
