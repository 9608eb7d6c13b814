//! `export`: a stored profile in another format.
//!
//! Owns: the list of formats. Does not: know any of them.

use deepctx_profile::export::{folded, svg};
use deepctx_profile::view::Selection;

use super::failure::{Done, Failure};
use super::options::{ExportArgs, ExportFormat};
use super::{look, output};

/// Runs it.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &ExportArgs) -> Result<Done, Failure> {
    output::refuse_existing_output(&arguments.output)?;
    let profile = look::open(&arguments.profile)?.profile;
    let selection = Selection {
        lines: arguments.lines,
        group_by: look::group_by(&arguments.group_by),
        ..look::selection(&arguments.look, look::timer_of(&profile))
    };
    output::write(&arguments.output.output, arguments.output.force, |out| match arguments.format {
        ExportFormat::Folded => folded::write(&profile, &selection, out),
        ExportFormat::Svg => svg::write(&profile, &selection, out),
    })?;
    Ok(Done::Fully)
}
