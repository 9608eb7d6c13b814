//! Devices: what the stage of accelerators' calls asks of those who know names.
//!
//! Owns: when it is asked, and the form of the answers in the profile. Because: the context of a kernel is made when it is
//! launched, so what it was compiled from must be known by then. Does not: decide what is asked.

use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::correlate::{About, Correlate, Launch, Question};
use super::decode::{Arguments, Sample};
use super::resolve::compiled_frame;
use super::symbols::{DeviceKernel, Symbols};

/// Asks what is not known of a kernel that a call at this node is about to launch.
#[inline]
pub(super) fn before_call<S: Symbols>(
    sample: &Sample<'_>,
    call: Option<&Arguments<'_>>,
    node: NodeId,
    symbols: &mut S,
    correlate: &mut Correlate,
    profile: &mut Profile,
) {
    if let Some(arguments) = call
        && correlate.launches_unknown(&sample.fixed, arguments, node, profile)
    {
        ask(symbols, correlate, profile);
    }
}

/// Asks all that is to be asked.
pub(super) fn ask<S: Symbols>(symbols: &mut S, correlate: &mut Correlate, profile: &mut Profile) {
    for Question { pid, time_ns, about } in correlate.questions() {
        match about {
            About::Kernel { kernel, name, siblings } => {
                let siblings: Vec<&str> = siblings.iter().map(String::as_str).collect();
                let asked = DeviceKernel { pid, time_ns, name: &name, siblings: &siblings };
                let mut frames = Vec::new();
                let later = symbols.device_kernel(&asked, &mut |names| {
                    frames = names.iter().map(|name| compiled_frame(name, profile)).collect();
                });
                correlate.kernel_known((pid, kernel), siblings.len(), frames, time_ns, later);
            }
            About::File { file, path } => {
                let mut launches: Vec<Launch> = Vec::new();
                let later = symbols.launched_by(pid, time_ns, &path, &mut |kernel, line, names| {
                    let frames = names.iter().map(|name| compiled_frame(name, profile)).collect();
                    launches.push((profile.text(kernel), line, frames));
                });
                correlate.file_known((pid, file), launches, time_ns, later);
            }
        }
    }
}
