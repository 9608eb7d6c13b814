//! Own work: where the samples and waits of the profiler's own processes go.
//!
//! Owns: the frame that stands for their stacks. Because: in a capture of the whole system, deep stacks of inlined
//! code would fill the tree with the profiler itself. Does not: know which processes are its own
//! ([`crate::symbols::ProcessFacts::is_own`]), or change what is counted.

use deepctx_common::end::{KernelEnd, PythonEnd, WalkEnd};
use deepctx_common::record::sample_flag;
use deepctx_profile::frame::{Frame, OWN_WORK, Role};
use deepctx_profile::intern::StrId;
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use crate::decode::Sample;
use crate::stages::off_cpu;

/// The sample as one whose stack was not requested: it lacks nothing.
pub(crate) fn without_stack(mut sample: Sample<'_>) -> Sample<'_> {
    sample.fixed.native_end = WalkEnd::NotWalked as u8;
    sample.fixed.python_end = PythonEnd::NotWalked as u8;
    sample.fixed.kernel_end = KernelEnd::NotWalked as u8;
    sample
}

/// The context of a sample, or of the wait that it begins.
pub(crate) fn of_sample(thread: NodeId, sample: &Sample<'_>, profile: &mut Profile) -> NodeId {
    let flags = sample.fixed.flags;
    if flags & sample_flag::OFF_CPU == 0 {
        return node(thread, profile);
    }
    of_wait(thread, flags & sample_flag::PREEMPTED != 0, profile)
}

/// The context of a wait. Its reason needs no stack if the thread was preempted.
pub(crate) fn of_wait(thread: NodeId, preempted: bool, profile: &mut Profile) -> NodeId {
    let node = node(thread, profile);
    let reason = off_cpu::reason(profile, &[], preempted);
    let reason = profile.text(reason);
    let frame = profile.frame(Frame::Wait { reason });
    profile.tree.child(node, frame)
}

fn node(thread: NodeId, profile: &mut Profile) -> NodeId {
    let frame = Frame::Native {
        symbol: profile.text(OWN_WORK),
        module: StrId::EMPTY,
        file: StrId::EMPTY,
        line: None,
        inlined: false,
        role: Role::Code,
    };
    let frame = profile.frame(frame);
    profile.tree.child(thread, frame)
}
