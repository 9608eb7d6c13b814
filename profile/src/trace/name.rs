//! Classification of kernels and calls by name.
//!
//! Owns: [`KernelClass`] and [`Call`]. Because: in a trace only names tell which kernel communicates and which call
//! waits, and every analysis must interpret them the same way. Does not: know traces.

use super::event::DeviceKind;

/// Purpose of a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelClass {
    /// Computes.
    Compute,
    /// Exchanges data with other devices: NCCL, RCCL, MSCCL, NVSHMEM, DeepEP, and collectives over memory that devices
    /// share (PyTorch, vLLM, TensorRT-LLM, FlashInfer).
    Communication,
    /// Copies or fills memory.
    Memory,
}

/// Prefixes of the names of kernels that communicate. HTA knows only `^nccl.*Kernel`, which misses RCCL's names.
const COMMUNICATION: [&str; 5] = ["nccl", "rccl", "msccl", "void nvshmem", "nvshmem"];
/// Parts of the names of their functions, without arguments: `multimem_all_reduce_kernel` of PyTorch,
/// `vllm::cross_device_reduce_2stage`, `tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport`.
const COLLECTIVE: [&str; 7] = [
    "all_reduce_kernel",
    "all_gather_kernel",
    "reduce_scatter_kernel",
    "all_to_all_kernel",
    "cross_device_reduce",
    "allreduce_fusion",
    "deep_ep::",
];

impl KernelClass {
    /// The class of an operation. A copy or a fill by the tool's kind is memory, whatever its name; a kernel by the
    /// tool's kind never is.
    pub fn of(kind: DeviceKind, name: &str) -> Self {
        let communicates = || communicates(name);
        match kind {
            DeviceKind::Copy | DeviceKind::Fill => KernelClass::Memory,
            DeviceKind::Kernel if communicates() => KernelClass::Communication,
            DeviceKind::Kernel => KernelClass::Compute,
        }
    }
}

/// Whether a kernel exchanges data with other devices, by its name.
pub fn communicates(name: &str) -> bool {
    let function = || {
        let name = name.strip_prefix("void ").unwrap_or(name);
        let begin = name.strip_prefix("(anonymous namespace)::").unwrap_or(name);
        &begin[..begin.find(['<', '(']).unwrap_or(begin.len())]
    };
    COMMUNICATION.iter().any(|prefix| starts_with(name, prefix))
        || COLLECTIVE.iter().any(|part| function().contains(part))
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Effect of an accelerator API call on the order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Queues work: a kernel, a copy, a fill or a graph.
    Launch,
    /// Waits for a stream.
    StreamSync,
    /// Waits for an event.
    EventSync,
    /// Waits for the device.
    DeviceSync,
    /// Records an event in a stream.
    EventRecord,
    /// Lets a stream wait for an event.
    StreamWait,
    /// Anything else.
    Other,
}

impl Call {
    /// The effect of a call of this name, in CUDA's and HIP's runtime and driver.
    pub fn of(name: &str) -> Self {
        let Some(rest) = ["cuda", "hip", "cu"].iter().find_map(|prefix| name.strip_prefix(prefix)) else {
            return Call::Other;
        };
        match rest {
            _ if rest.starts_with("StreamSynchronize") => Call::StreamSync,
            _ if rest.starts_with("EventSynchronize") => Call::EventSync,
            _ if rest.starts_with("DeviceSynchronize") || rest.starts_with("CtxSynchronize") => {
                Call::DeviceSync
            }
            _ if rest.starts_with("EventRecord") => Call::EventRecord,
            _ if rest.starts_with("StreamWaitEvent") => Call::StreamWait,
            _ if rest.contains("Launch") || rest.starts_with("Memcpy") || rest.starts_with("Memset") => {
                Call::Launch
            }
            _ => Call::Other,
        }
    }

    /// Whether the host waits for a device in it.
    pub fn waits(self) -> bool {
        matches!(self, Call::StreamSync | Call::EventSync | Call::DeviceSync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_kernels_are_for() {
        let check = |kind, name: &str, expect| assert_eq!(KernelClass::of(kind, name), expect, "{name}");
        check(DeviceKind::Kernel, "ncclKernel_AllReduce_RING_LL", KernelClass::Communication);
        check(DeviceKind::Kernel, "ncclDevKernel_AllGather_RING_LL(args)", KernelClass::Communication);
        for name in [
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
            "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
            "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
        ] {
            check(DeviceKind::Kernel, name, KernelClass::Communication);
        }
        check(DeviceKind::Kernel, "void norm<BlockOp<all_reduce_kernel>>(float*)", KernelClass::Compute);
        check(DeviceKind::Kernel, "void at::native::vectorized_elementwise_kernel<4>", KernelClass::Compute);
        check(DeviceKind::Copy, "Memcpy HtoD (Pageable -> Device)", KernelClass::Memory);
        check(DeviceKind::Fill, "anything", KernelClass::Memory);
        // HTA puts both into none of its classes.
        check(DeviceKind::Kernel, "BatchMemcpyKernel", KernelClass::Compute);
        check(DeviceKind::Kernel, "void grid_Sync<float>", KernelClass::Compute);
        check(DeviceKind::Kernel, "é", KernelClass::Compute);
    }

    #[test]
    fn names_tell_what_calls_do() {
        let check = |name: &str, expect| assert_eq!(Call::of(name), expect, "{name}");
        check("cudaLaunchKernelExC", Call::Launch);
        check("hipExtModuleLaunchKernel", Call::Launch);
        check("cuLaunchKernelEx", Call::Launch);
        check("cudaGraphLaunch", Call::Launch);
        check("hipMemcpyWithStream", Call::Launch);
        check("cudaStreamSynchronize", Call::StreamSync);
        check("hipDeviceSynchronize", Call::DeviceSync);
        check("cudaEventSynchronize", Call::EventSync);
        check("cudaEventRecordWithFlags", Call::EventRecord);
        check("cudaStreamWaitEvent", Call::StreamWait);
        check("cudaEventQuery", Call::Other);
        check("aten::mm", Call::Other);
    }
}
