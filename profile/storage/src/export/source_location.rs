//! Source locations: what is known of a frame besides its text, the same way for every kind.
//!
//! Owns: [`SourceLocation`]. Because: formats have columns for name, file and line, and each must find the same in a
//! frame. Does not: clean texts or choose columns.

use deepctx_profile::frame::{Frame, Line};
use deepctx_profile::intern::StrId;

/// Location of a frame; unknown parts, or those without meaning for its kind, are empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SourceLocation {
    /// The name in the program.
    pub(super) name: StrId,
    /// Executable or library.
    pub(super) module: StrId,
    /// Source file.
    pub(super) file: StrId,
    /// Current line.
    pub(super) line: Line,
    /// Line of the definition.
    pub(super) start: Line,
    /// Address in the module's file, for code without a name.
    pub(super) offset: u64,
}

impl SourceLocation {
    pub(super) fn of(frame: &Frame) -> Self {
        let empty = StrId::EMPTY;
        let none = Self { name: empty, module: empty, file: empty, line: None, start: None, offset: 0 };
        match *frame {
            Frame::Python { function, file, line, first_line, .. } => {
                Self { name: function, file, line, start: first_line, ..none }
            }
            Frame::Native { symbol, module, file, line, .. } => {
                Self { name: symbol, module, file, line, ..none }
            }
            Frame::NativeUnnamed { module, offset, .. } => Self { module, offset, ..none },
            _ => none,
        }
    }
}
