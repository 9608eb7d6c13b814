//! Categories of trace events: what each says of an operation of a thread.
//!
//! Owns: [`host_kind`]. Because: imports go by it, and exports write a kind of their own only where it would say
//! another one. Does not: know events of devices.

use deepctx_profile::trace::HostKind;

/// Kind of events with a category and name; `None` for an unknown category.
pub(crate) fn host_kind(category: &str, name: &str) -> Option<HostKind> {
    Some(match category {
        "cuda_runtime"
        | "Runtime"
        | "runtime"
        | "gpu_api"
        | "xpu_runtime"
        | "mtia_runtime"
        | "glow_runtime"
        | "privateuse1_runtime" => HostKind::RuntimeCall,
        "cuda_driver" | "driver" | "xpu_driver" | "privateuse1_driver" => HostKind::DriverCall,
        "python_function" => HostKind::Python,
        "layer" => HostKind::Layer,
        "process" => HostKind::Process,
        "off_cpu" => HostKind::OffCpu,
        "cpu_op" | "Operator" | "operator" | "user_annotation" if name.starts_with("ProfilerStep") => {
            HostKind::Step
        }
        "cpu_op" | "Operator" | "operator" => HostKind::Operator,
        "user_annotation" => HostKind::Annotation,
        // The profiler's own work, and categories of our sums.
        "" | "overhead" | "thread" | "python" | "native" | "kernel_code" | "unresolved" | "root" => {
            HostKind::Other
        }
        _ => return None,
    })
}
