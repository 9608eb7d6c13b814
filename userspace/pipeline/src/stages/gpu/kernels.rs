//! Kernels as frames, and where those of a graph are placed.
//!
//! Owns: the name of a kernel, from any source, and the placeholder for one without a name. Because: calls,
//! activities and samples of one kernel must end up in one frame. Does not: know what was launched.

use deepctx_names::demangle;
use deepctx_profile::frame::Frame;
use deepctx_profile::intern::FrameId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

/// Stands for a kernel whose handle was not seen being created.
pub(super) const UNNAMED: &str = "[unknown: handle-not-named]";
/// Suffix of the name of a kernel found in process memory.
pub(super) const RECOVERED: &str = " [recovered]";
/// Stands between the launch of a graph and the context in which a node of it was recorded.
const RECORDED_AT: &str = "[captured at]";

/// The kernel of a demangled name.
pub(super) fn kernel_frame(name: &str, profile: &mut Profile) -> FrameId {
    let name = profile.text(name);
    profile.frame(Frame::GpuKernel { name })
}

/// The kernel of a mangled name.
pub(super) fn named_kernel(name: &[u8], profile: &mut Profile) -> FrameId {
    kernel_frame(&demangle(&String::from_utf8_lossy(name)), profile)
}

/// The kernel of a name found in process memory, marked as such.
pub(super) fn recovered_kernel(name: &str, profile: &mut Profile) -> FrameId {
    kernel_frame(&(demangle(name) + RECOVERED), profile)
}

/// The context of a graph's node below its launch: where it was recorded, without the frames shared with the launch
/// context.
pub(super) fn recorded_below(launch: NodeId, recorded: NodeId, profile: &mut Profile) -> NodeId {
    let (outer, inner) = (profile.tree.stack(launch), profile.tree.stack(recorded));
    let common = outer.iter().zip(&inner).take_while(|(a, b)| a == b).count();
    let name = profile.text(RECORDED_AT);
    let marker = profile.frame(Frame::GpuApi { name });
    let rest: Vec<FrameId> = inner[common..]
        .iter()
        .copied()
        .filter(|frame| !matches!(profile.frames.get(*frame), Frame::Process { .. } | Frame::Thread { .. }))
        .collect();
    profile.tree.path(launch, std::iter::once(marker).chain(rest))
}
