//! Origin requests: ask what kernels were compiled from, once, before a launch, and cache the answer per process.
//!
//! Owns: passing these requests and their answers between processes and the pipeline. Because: a kernel is placed
//! below the source lines that its compiler read, which only files of the process reveal. Does not: read or store
//! them ([`super::origins`]).

use deepctx_common::record::StackSample;
use deepctx_events::{Event, GpuCall, GraphCall, LaunchCall};
use deepctx_profile::intern::{FrameId, StrId};
use deepctx_profile::profile::Profile;
use deepctx_profile::tree::NodeId;

use super::names::KernelKey;
use super::{Gpu, Question};
use crate::decode::Arguments;

impl Gpu {
    /// A call of the caller at this node is about to be recorded: whether an origin must be looked up before, since it
    /// launches a kernel.
    #[inline]
    pub(crate) fn launches_unknown(
        &mut self,
        of: &StackSample,
        arguments: &Arguments<'_>,
        caller: NodeId,
        profile: &mut Profile,
    ) -> bool {
        let launches = match Event::from_number(arguments.call.event) {
            Some(Event::Gpu(GpuCall::Launch(launch))) => launch != LaunchCall::MultiDevice,
            Some(Event::Gpu(GpuCall::Graph(GraphCall::Node))) => true,
            _ => false,
        };
        if !launches {
            return false;
        }
        let Self { sites, processes, .. } = self;
        let time_ns = of.header.time_ns;
        let Some(process) = processes.get_mut(of.pid) else { return false };
        let handle = sites.given(arguments).kernel_handle();
        let named = handle.and_then(|handle| process.names.get(handle));
        let kernel = named.map(|named| named.key());
        process.origins.launched(caller, kernel, &process.names, time_ns, profile);
        process.origins.asks()
    }

    /// Look-ups of compiled kernels that are due since the last call.
    pub(crate) fn questions(&mut self) -> Vec<Question> {
        let mut questions = Vec::new();
        for (pid, process) in self.processes.followed.iter_mut().filter(|(_, process)| process.origins.asks())
        {
            let asked = process.origins.questions().into_iter();
            questions.extend(asked.map(|(time_ns, about)| Question { pid, time_ns, about }));
        }
        questions
    }

    /// The origin of a kernel of a process, whose module had so many handles.
    pub(crate) fn kernel_known(
        &mut self,
        pid: u32,
        kernel: KernelKey,
        handles: usize,
        frames: Vec<FrameId>,
        time_ns: u64,
        later: bool,
    ) {
        if let Some(process) = self.processes.get_mut(pid) {
            process.origins.kernel_known(kernel, handles, frames, time_ns, later);
        }
    }

    /// The kernels that a generated file of a process launches.
    pub(crate) fn file_known(
        &mut self,
        pid: u32,
        file: StrId,
        launches: Vec<super::origins::Launch>,
        time_ns: u64,
        later: bool,
    ) {
        if let Some(process) = self.processes.get_mut(pid) {
            process.origins.file_known(file, launches, time_ns, later);
        }
    }
}
